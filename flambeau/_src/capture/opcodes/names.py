"""Variables: locals, cells, globals, attributes' names."""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import attributes, scopes
from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.interpreter import LOOP_PREFIX, NULL, Frame, Pending, opcode
from flambeau._src.capture.outcome import Unsupported

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session


def value_of(s: Session, f: Frame, slot: int) -> Any:
    """A local variable that is bound."""
    value = f.locals[slot]
    if type(value) is Pending:
        value = f.locals[slot] = s.heap.enter(value.real, value.source)
    return value


@opcode("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CLOSURE", "LOAD_FAST_BORROW")
def load_fast(s: Session, f: Frame, i: Instruction) -> None:
    """A local variable (or the cell in its slot)."""
    value = f.locals[i.arg]  # type: ignore[index]
    if value is NULL:
        s.raise_(
            UnboundLocalError(
                f"cannot access local variable '{i.argval}' where it is not associated with a value"
            )
        )
    if type(value) is Pending and not i.argval.startswith(LOOP_PREFIX):
        value = value_of(s, f, i.arg)  # type: ignore[arg-type]
    f.stack.append(value)


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(s: Session, f: Frame, i: Instruction) -> None:
    """A local variable, bound or not; unbound afterwards."""
    slot: int = i.arg  # type: ignore[assignment]
    f.stack.append(value_of(s, f, slot))
    f.locals[slot] = NULL


@opcode("STORE_FAST", "STORE_FAST_MAYBE_NULL")
def store_fast(s: Session, f: Frame, i: Instruction) -> None:
    """Bind a local variable."""
    f.locals[i.arg] = f.stack.pop()  # type: ignore[index]


@opcode("DELETE_FAST")
def delete_fast(s: Session, f: Frame, i: Instruction) -> None:
    """Unbind a local variable."""
    if f.locals[i.arg] is NULL:  # type: ignore[index]
        s.raise_(
            UnboundLocalError(
                f"cannot access local variable '{i.argval}' where it is not associated with a value"
            )
        )
    f.locals[i.arg] = NULL  # type: ignore[index]


@opcode("MAKE_CELL")
def make_cell(s: Session, f: Frame, i: Instruction) -> None:
    """Put the variable into a cell."""
    slot: int = i.arg  # type: ignore[assignment]
    value = value_of(s, f, slot)
    f.locals[slot] = types.CellType() if value is NULL else types.CellType(value)


def _cell_value(s: Session, f: Frame, i: Instruction) -> Any:
    try:
        return s.heap.read_cell(f.locals[i.arg])  # type: ignore[index]
    except ValueError:
        if i.argval in f.code.co_freevars:
            text = (
                f"cannot access free variable '{i.argval}' where it is not associated with a value "
                "in enclosing scope"
            )
            return s.raise_(NameError(text))
        return s.raise_(
            UnboundLocalError(
                f"cannot access local variable '{i.argval}' where it is not associated with a value"
            )
        )


@opcode("LOAD_DEREF", "LOAD_CLASSDEREF")
def load_deref(s: Session, f: Frame, i: Instruction) -> None:
    """The contents of a cell."""
    if i.opname == "LOAD_CLASSDEREF":
        raise Unsupported("A class body is run in the function.", "Define the class outside.")
    f.stack.append(_cell_value(s, f, i))


@opcode("STORE_DEREF")
def store_deref(s: Session, f: Frame, i: Instruction) -> None:
    """Set the contents of a cell."""
    s.heap.write_cell(f.locals[i.arg], f.stack.pop())  # type: ignore[index]


@opcode("DELETE_DEREF")
def delete_deref(s: Session, f: Frame, i: Instruction) -> None:
    """Empty a cell."""
    _cell_value(s, f, i)
    cell = f.locals[i.arg]  # type: ignore[index]
    if id(cell) in s.heap.cells:
        raise Unsupported("A variable of an enclosing function is deleted.")
    del cell.cell_contents


@opcode("LOAD_GLOBAL", "LOAD_NAME")
def load_global(s: Session, f: Frame, i: Instruction) -> None:
    """A global or builtin; with the flag NULL for a call too."""
    value = scopes.read(s, f, i.argval)
    if not i.flag:
        f.stack.append(value)
    elif scopes.NULL_FIRST:
        f.stack += (NULL, value)
    else:
        f.stack += (value, NULL)


@opcode("STORE_GLOBAL")
def store_global(s: Session, f: Frame, i: Instruction) -> None:
    """Set a global: noted, and done after the graph."""
    scopes.write(s, f, i.argval, f.stack.pop())


@opcode("DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME", "LOAD_LOCALS")
def refuse(s: Session, f: Frame, i: Instruction) -> None:
    """What changes names in ways that are not followed."""
    raise Unsupported(f"The instruction {i.opname} is not captured.")


@opcode("LOAD_BUILD_CLASS")
def load_build_class(s: Session, f: Frame, i: Instruction) -> None:
    """What makes classes: its call is a break."""
    f.stack.append(builtins.__build_class__)


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(s: Session, f: Frame, i: Instruction) -> None:
    """AssertionError itself, whatever the name means."""
    f.stack.append(AssertionError)


@opcode("LOAD_ATTR")
def load_attr(s: Session, f: Frame, i: Instruction) -> None:
    """An attribute; with the flag as a callable and NULL (3.12)."""
    value = attributes.get(s, f.stack.pop(), i.argval)
    if not i.flag:
        f.stack.append(value)
    elif scopes.NULL_FIRST:
        f.stack += (NULL, value)
    else:
        f.stack += (value, NULL)


@opcode("LOAD_METHOD")
def load_method(s: Session, f: Frame, i: Instruction) -> None:
    """A bound method, beside NULL (3.11)."""
    f.stack[-1:] = (NULL, attributes.get(s, f.stack[-1], i.argval))


@opcode("LOAD_SUPER_ATTR")
def load_super_attr(s: Session, f: Frame, i: Instruction) -> None:
    """`super().name` (3.12)."""
    global_super, cls, self_ = f.stack[-3:]
    del f.stack[-3:]
    if global_super is not super:
        raise Unsupported("`super` is not the builtin one.")
    value = attributes.get_super(s, cls, self_, i.argval)
    if not i.flag[0]:
        f.stack.append(value)
    elif scopes.NULL_FIRST:
        f.stack += (NULL, value)
    else:
        f.stack += (value, NULL)


@opcode("STORE_ATTR")
def store_attr(s: Session, f: Frame, i: Instruction) -> None:
    """Set an attribute."""
    target = f.stack.pop()
    attributes.set_(s, target, i.argval, f.stack.pop())


@opcode("DELETE_ATTR")
def delete_attr(s: Session, f: Frame, i: Instruction) -> None:
    """Delete an attribute."""
    attributes.delete(s, f.stack.pop(), i.argval)
