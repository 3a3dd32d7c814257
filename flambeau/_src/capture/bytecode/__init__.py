"""Code objects as lists of instructions and back, on CPython 3.11, 3.12 and 3.13."""

from flambeau._src.capture.bytecode.assemble import assemble
from flambeau._src.capture.bytecode.decode import decode
from flambeau._src.capture.bytecode.program import ExceptionEntry, Instruction, Positions, Program
from flambeau._src.capture.bytecode.stack import depths, effect, stack_size

__all__ = [
    "ExceptionEntry",
    "Instruction",
    "Positions",
    "Program",
    "assemble",
    "decode",
    "depths",
    "effect",
    "stack_size",
]
