"""Instructions that only move values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.interpreter import NULL, Frame, opcode

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session


@opcode("NOP", "RESUME", "PRECALL", "CACHE", "EXTENDED_ARG", "COPY_FREE_VARS", "NOT_TAKEN")
def nop(s: Session, f: Frame, i: Instruction) -> None:
    """Nothing."""


@opcode("POP_TOP")
def pop_top(s: Session, f: Frame, i: Instruction) -> None:
    """Drop the top."""
    f.stack.pop()


@opcode("PUSH_NULL")
def push_null(s: Session, f: Frame, i: Instruction) -> None:
    """NULL beside a callable."""
    f.stack.append(NULL)


@opcode("COPY")
def copy(s: Session, f: Frame, i: Instruction) -> None:
    """Push the n-th value from the top."""
    f.stack.append(f.stack[-i.arg])  # type: ignore[operator]


@opcode("SWAP")
def swap(s: Session, f: Frame, i: Instruction) -> None:
    """Exchange the top and the n-th value."""
    stack, n = f.stack, -i.arg  # type: ignore[operator]
    stack[-1], stack[n] = stack[n], stack[-1]


@opcode("LOAD_CONST")
def load_const(s: Session, f: Frame, i: Instruction) -> None:
    """A constant of the code."""
    value = i.argval
    if type(value) is tuple:
        s.heap.constants[id(value)] = value
    f.stack.append(value)


@opcode("END_FOR")
def end_for(s: Session, f: Frame, i: Instruction) -> None:
    """Reached by no jump of this interpreter: FOR_ITER goes behind it."""
    f.stack.pop()


@opcode("END_SEND")
def end_send(s: Session, f: Frame, i: Instruction) -> None:
    """Drop the iterator under the value."""
    del f.stack[-2]
