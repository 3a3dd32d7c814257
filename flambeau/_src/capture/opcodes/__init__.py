"""One handler per opcode, by kind; importing the package fills the table of the interpreter."""

from flambeau._src.capture.opcodes import (
    calls,
    containers,
    control,
    exceptions,
    imports,
    names,
    operators,
    stack,
)

__all__ = [
    "calls",
    "containers",
    "control",
    "exceptions",
    "imports",
    "names",
    "operators",
    "stack",
]
