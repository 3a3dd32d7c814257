"""Raising, catching, `with`."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import arithmetic, attributes, calls, classes
from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.interpreter import Frame, Handling, opcode
from flambeau._src.capture.outcome import Raised, Unsupported

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session


def _instance(s: Session, value: Any, what: str = "exceptions") -> BaseException:
    if isinstance(value, type) and issubclass(value, BaseException):
        value = calls.call(s, value, (), {})
    if not isinstance(value, BaseException):
        s.raise_(TypeError(f"{what} must derive from BaseException"))
    return value  # type: ignore[no-any-return]


@opcode("RAISE_VARARGS")
def raise_varargs(s: Session, f: Frame, i: Instruction) -> None:
    """`raise`, `raise e`, `raise e from cause`."""
    if not i.arg:
        if s.handled is None:
            s.alone()
            s.raise_(RuntimeError("No active exception to reraise"))
        raise Raised(s.handled)  # type: ignore[arg-type]
    cause = f.stack.pop() if i.arg == 2 else None
    error = _instance(s, f.stack.pop())
    if s.heap.known(error) is not None:
        raise Unsupported("An exception from outside is raised.")
    if i.arg == 2:
        if cause is not None:
            cause = _instance(s, cause, "exception causes")
        error.__cause__ = cause
    raise Raised(s.chain(error))


@opcode("PUSH_EXC_INFO")
def push_exc_info(s: Session, f: Frame, i: Instruction) -> None:
    """The exception on top is being handled; what was handled before goes below it."""
    error = f.stack.pop()
    if s.handled is None and s.heap.known(error) is None:
        s.alone()  # its context
    f.stack += (Handling(s.handled, error), error)
    s.handled = error


@opcode("POP_EXCEPT")
def pop_except(s: Session, f: Frame, i: Instruction) -> None:
    """Done with handling."""
    handling = f.stack.pop()
    handling.over = True
    s.handled = handling.before


@opcode("CHECK_EXC_MATCH")
def check_exc_match(s: Session, f: Frame, i: Instruction) -> None:
    """Whether the exception below is of the type on top."""
    kinds = f.stack.pop()
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            text = "catching classes that do not inherit from BaseException is not allowed"
            s.raise_(TypeError(text))
    f.stack.append(isinstance(f.stack[-1], kinds))


@opcode("RERAISE")
def reraise(s: Session, f: Frame, i: Instruction) -> None:
    """Raise the exception on top again."""
    raise Raised(f.stack.pop())


@opcode("CHECK_EG_MATCH")
def check_eg_match(s: Session, f: Frame, i: Instruction) -> None:
    """`except*`: what of the exception is of these types goes on top of the rest."""
    kinds = f.stack.pop()
    error = f.stack.pop()
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            text = "catching classes that do not inherit from BaseException is not allowed"
            s.raise_(TypeError(text))
        if issubclass(kind, BaseExceptionGroup):
            text = "catching ExceptionGroup with except* is not allowed. Use except instead."
            s.raise_(TypeError(text))
    rest, match = error, None
    if isinstance(error, kinds):
        rest = None
        match = error
        if not isinstance(error, BaseExceptionGroup):
            match = s.native(BaseExceptionGroup, "", [error])
    elif isinstance(error, BaseExceptionGroup):
        match, rest = _split(s, error, kinds)
    f.stack += (rest, match)
    if match is not None:
        s.handled = match


def _split(s: Session, group: Any, kinds: Any) -> Any:
    if type(group) not in (ExceptionGroup, BaseExceptionGroup):
        raise Unsupported("A group of a class of the user's is split.")
    return s.native(group.split, kinds)


@opcode("PREP_RERAISE_STAR")
def prep_reraise_star(s: Session, f: Frame, i: Instruction) -> None:
    """What is raised when all `except*` are done (3.11)."""
    raised = f.stack.pop()
    f.stack[-1] = _left_over(s, f.stack[-1], raised)


def _left_over(s: Session, original: Any, raised: list[Any]) -> Any:
    """What no `except*` caught, and what they raised, in one."""
    left = [e for e in raised if e is not None]
    if not left or not isinstance(original, BaseExceptionGroup):
        return left[0] if left else None
    parts = _leaves(original)
    if all(isinstance(e, BaseExceptionGroup) and _leaves(e) <= parts for e in left):
        kept = set().union(*map(_leaves, left))
        if kept == parts:
            return original
        return s.native(original.subgroup, lambda e: id(e) in kept)
    raise Unsupported("An exception is raised in `except*`.")


def _leaves(group: Any) -> set[int]:
    if not isinstance(group, BaseExceptionGroup):
        return {id(group)}
    return set().union(*map(_leaves, group.exceptions))


@opcode("CLEANUP_THROW")
def cleanup_throw(s: Session, f: Frame, i: Instruction) -> None:
    """An exception in a generator's delegate: its result if it is the end (3.12)."""
    error = f.stack[-1]
    if not isinstance(error, StopIteration):
        raise Raised(error)
    f.stack[-3:] = (None, error.value)


@opcode("BEFORE_WITH")
def before_with(s: Session, f: Frame, i: Instruction) -> None:
    """Enter a context: its exit stays below its result."""
    manager = f.stack.pop()
    kind = classes.type_of(s, manager)
    enter = attributes.special(kind, "__enter__")
    leave = attributes.special(kind, "__exit__")
    if enter is None or leave is None:
        missing = "" if enter is None else " (missed __exit__ method)"
        text = f"'{kind.__name__}' object does not support the context manager protocol{missing}"
        s.raise_(TypeError(text))
    if type(enter) is not types.FunctionType or type(leave) is not types.FunctionType:
        raise Unsupported(
            f"The context manager {kind.__name__} is native code.",
            "Enter it outside of the compiled function.",
        )
    bound = attributes.bind(s, leave, manager)
    result = calls.call(s, attributes.bind(s, enter, manager), (), {})
    f.stack += (bound, result)


@opcode("WITH_EXCEPT_START")
def with_except_start(s: Session, f: Frame, i: Instruction) -> None:
    """Call the exit of a context with the exception on top."""
    error = f.stack[-1]
    leave = f.stack[-4]
    result = calls.call(s, leave, classes.raised(s, error), {})
    f.stack.append(result)


@opcode("CALL_INTRINSIC_1")
def call_intrinsic_1(s: Session, f: Frame, i: Instruction) -> None:
    """Small operations that have no opcode (3.12)."""
    what = i.argval
    if what == "INTRINSIC_LIST_TO_TUPLE":
        f.stack[-1] = tuple(f.stack[-1])
    elif what == "INTRINSIC_STOPITERATION_ERROR":
        error = f.stack[-1]
        if isinstance(error, StopIteration):
            made = RuntimeError("generator raised StopIteration")
            made.__cause__ = made.__context__ = error
            f.stack[-1] = made
    elif what == "INTRINSIC_UNARY_POSITIVE":
        f.stack[-1] = arithmetic.unary(s, "pos", f.stack[-1])
    else:
        raise Unsupported(f"The intrinsic {what} is not captured.")


@opcode("CALL_INTRINSIC_2")
def call_intrinsic_2(s: Session, f: Frame, i: Instruction) -> None:
    """As above, of two values."""
    if i.argval == "INTRINSIC_PREP_RERAISE_STAR":
        prep_reraise_star(s, f, i)
        return
    raise Unsupported(f"The intrinsic {i.argval} is not captured.")
