"""Calls and what makes functions."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import calls, iteration
from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.interpreter import NULL, Frame, opcode
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.scopes import NULL_FIRST

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session


def _callee(f: Frame, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The callable below the arguments, and the arguments with self if there is one."""
    second = f.stack.pop()
    first = f.stack.pop()
    if NULL_FIRST:
        if first is NULL:
            return second, args
        return first, (second, *args)
    return first, (args if second is NULL else (second, *args))


@opcode("KW_NAMES")
def kw_names(s: Session, f: Frame, i: Instruction) -> None:
    """The keywords of the next call (3.11, 3.12)."""
    f.kwnames = i.argval


@opcode("CALL")
def call(s: Session, f: Frame, i: Instruction) -> None:
    """A call with n arguments."""
    n: int = i.arg  # type: ignore[assignment]
    names, f.kwnames = f.kwnames, ()
    _call(s, f, n, names)


@opcode("CALL_KW")
def call_kw(s: Session, f: Frame, i: Instruction) -> None:
    """A call with keywords (3.13)."""
    names = f.stack.pop()
    _call(s, f, i.arg or 0, names)


def _call(s: Session, f: Frame, n: int, names: tuple[str, ...]) -> None:
    stack = f.stack
    args: tuple[Any, ...] = ()
    if n:
        args = tuple(stack[-n:])
        del stack[-n:]
    kwargs: dict[str, Any] = {}
    if names:
        kwargs = dict(zip(names, args[n - len(names) :], strict=True))
        args = args[: n - len(names)]
    fn, args = _callee(f, args)
    stack.append(calls.call(s, fn, args, kwargs))


@opcode("CALL_FUNCTION_EX")
def call_function_ex(s: Session, f: Frame, i: Instruction) -> None:
    """`f(*args, **kwargs)`."""
    kwargs = iteration.mapping(s, f.stack.pop()) if i.arg else {}
    args = tuple(iteration.items(s, f.stack.pop()))
    if NULL_FIRST:
        fn = f.stack.pop()
        f.stack.pop()
    else:
        f.stack.pop()
        fn = f.stack.pop()
    for key in kwargs:
        if type(key) is not str:
            s.raise_(TypeError("keywords must be strings"))
    f.stack.append(calls.call(s, fn, args, kwargs))


@opcode("MAKE_FUNCTION")
def make_function(s: Session, f: Frame, i: Instruction) -> None:
    """A function of the code on top."""
    code = f.stack.pop()
    flags = i.arg or 0
    closure = f.stack.pop() if flags & 8 else None
    annotations = f.stack.pop() if flags & 4 else None
    kwdefaults = f.stack.pop() if flags & 2 else None
    defaults = f.stack.pop() if flags & 1 else None
    if code.co_freevars and closure is None:  # 3.13: SET_FUNCTION_ATTRIBUTE follows
        closure = tuple([types.CellType() for _ in code.co_freevars])
    made = types.FunctionType(code, f.globals, code.co_name, defaults, closure)
    made.__qualname__ = code.co_qualname
    if kwdefaults is not None:
        made.__kwdefaults__ = kwdefaults
    if annotations is not None:
        made.__annotations__ = dict(zip(annotations[::2], annotations[1::2], strict=True))
    made.__module__ = f.globals.get("__name__")  # type: ignore[assignment]
    f.stack.append(s.heap.made(made))


@opcode("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(s: Session, f: Frame, i: Instruction) -> None:
    """A part of the function on top (3.13)."""
    fn = f.stack.pop()
    value = f.stack.pop()
    flag = i.arg or 0
    if flag == 8:
        made = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, value)
        made.__qualname__, made.__kwdefaults__ = fn.__qualname__, fn.__kwdefaults__
        made.__annotations__, made.__module__ = fn.__annotations__, fn.__module__
        fn = s.heap.made(made)
    elif flag == 4:
        fn.__annotations__ = dict(zip(value[::2], value[1::2], strict=True))
    elif flag == 2:
        fn.__kwdefaults__ = value
    elif flag == 1:
        fn.__defaults__ = value
    else:
        raise Unsupported("A function gets an unknown attribute.")
    f.stack.append(fn)
