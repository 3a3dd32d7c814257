"""Arithmetic, comparison, indexing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau._src.capture import arithmetic
from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.interpreter import Frame, opcode

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session


@opcode("BINARY_OP")
def binary_op(s: Session, f: Frame, i: Instruction) -> None:
    """`a + b`, `a += b`, ..."""
    b = f.stack.pop()
    f.stack[-1] = arithmetic.binary(s, i.argval, f.stack[-1], b)


@opcode("BINARY_SUBSCR")
def binary_subscr(s: Session, f: Frame, i: Instruction) -> None:
    """`a[b]`."""
    b = f.stack.pop()
    f.stack[-1] = arithmetic.get_item(s, f.stack[-1], b)


@opcode("BINARY_SLICE")
def binary_slice(s: Session, f: Frame, i: Instruction) -> None:
    """`a[b:c]`."""
    a, b, c = f.stack[-3:]
    f.stack[-3:] = (arithmetic.get_item(s, a, slice(b, c)),)


@opcode("STORE_SUBSCR")
def store_subscr(s: Session, f: Frame, i: Instruction) -> None:
    """`a[b] = v`."""
    v, a, b = f.stack[-3:]
    del f.stack[-3:]
    arithmetic.set_item(s, a, b, v)


@opcode("STORE_SLICE")
def store_slice(s: Session, f: Frame, i: Instruction) -> None:
    """`a[b:c] = v`."""
    v, a, b, c = f.stack[-4:]
    del f.stack[-4:]
    arithmetic.set_item(s, a, slice(b, c), v)


@opcode("DELETE_SUBSCR")
def delete_subscr(s: Session, f: Frame, i: Instruction) -> None:
    """`del a[b]`."""
    a, b = f.stack[-2:]
    del f.stack[-2:]
    arithmetic.delete_item(s, a, b)


@opcode("COMPARE_OP")
def compare_op(s: Session, f: Frame, i: Instruction) -> None:
    """`a < b`, ...; with the flag the result is made a bool (3.13)."""
    b = f.stack.pop()
    value = arithmetic.binary(s, i.argval, f.stack[-1], b)
    f.stack[-1] = arithmetic.truth(s, value) if i.flag else value


@opcode("IS_OP")
def is_op(s: Session, f: Frame, i: Instruction) -> None:
    """`a is b`."""
    b = f.stack.pop()
    f.stack[-1] = arithmetic.same(s, f.stack[-1], b) is not i.argval


@opcode("CONTAINS_OP")
def contains_op(s: Session, f: Frame, i: Instruction) -> None:
    """`a in b`."""
    b = f.stack.pop()
    f.stack[-1] = arithmetic.contains(s, b, f.stack[-1]) is not i.argval


@opcode("UNARY_NOT")
def unary_not(s: Session, f: Frame, i: Instruction) -> None:
    """`not a`."""
    f.stack[-1] = not arithmetic.truth(s, f.stack[-1])


@opcode("TO_BOOL")
def to_bool(s: Session, f: Frame, i: Instruction) -> None:
    """The truth of a value (3.13)."""
    f.stack[-1] = arithmetic.truth(s, f.stack[-1])


_UNARY = {"UNARY_NEGATIVE": "neg", "UNARY_INVERT": "invert", "UNARY_POSITIVE": "pos"}


@opcode(*_UNARY)
def unary(s: Session, f: Frame, i: Instruction) -> None:
    """`-a`, `~a`, `+a`."""
    f.stack[-1] = arithmetic.unary(s, _UNARY[i.opname], f.stack[-1])
