"""Which calls are offered to a compiler, and what runs in their place.

Two front ends with one face. `Hook` is the frame-evaluation hook in C (CPython 3.11 to 3.13): every
Python function that runs in a thread with a callback is offered, however it is called. `Wrapper`
is for interpreters without it, and for ``FLAMBEAU_NATIVE=0``: only calls through a function that
`prepare` returned are offered; what that function calls in its turn runs as it is.

A callback is called as ``callback(code, variables, globals, builtins, function)``, where
`variables` are the bound arguments and the closure by name, cells taken as what they hold; it
returns code that takes the same arguments and free variables, or None: the frame runs as it is, or
False: so does all that it calls (versions that fit run). Its
attribute `key` (itself, if it has none) says whose versions of a function are its own. A version is
a checker (``check(variables, globals) -> bool``, None: always), replacement code, and an object for
whoever added it. While a callback or a checker runs, nothing is offered.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flambeau._src import _native
from flambeau._src.util.config import config

__all__ = [
    "FRONT",
    "Hook",
    "Version",
    "Wrapper",
    "add",
    "entries",
    "forget",
    "get_callback",
    "goes_on",
    "prepare",
    "rest",
    "run_with",
    "set_callback",
    "skip",
    "skipped",
]

F = TypeVar("F", bound=Callable[..., Any])
Version = tuple[Any, Any, types.CodeType, Any]  # key, checker, replacement, the adder's object


class Hook:
    """The hook in C. It is in the interpreter only while some thread has a callback."""

    def __init__(self) -> None:
        self.set_callback = _native.frame_set
        self.get_callback = _native.frame_get
        self.add = _native.frame_add
        self.entries = _native.frame_entries
        self.skip = _native.frame_skip
        self.rest = _native.frame_rest
        self.skipped = _native.frame_skipped
        self.forget = _native.frame_reset
        self.goes_on = _native.frame_resumes

    def prepare(self, fn: F) -> F:
        """A callable whose calls are offered: any is."""
        return fn


class _Thread(threading.local):
    def __init__(self) -> None:
        self.callback: Any = None
        self.paused = False


class _Known:
    """What is known of a code object."""

    def __init__(self) -> None:
        self.skip_all = False
        self.skip: list[Any] = []
        self.rest: list[tuple[Any, int]] = []  # by key: how many calls more are not asked about
        self.versions: list[Version] = []


class Wrapper:
    """The same in Python, for functions that `prepare` has wrapped."""

    def __init__(self) -> None:
        self.thread = _Thread()
        self.known: dict[int, tuple[weakref.ref[types.CodeType], _Known]] = {}
        self.signatures: weakref.WeakKeyDictionary[Any, tuple[Any, inspect.Signature]] = (
            weakref.WeakKeyDictionary()
        )

    def set_callback(self, callback: Any) -> Any:
        """Offer this thread's calls to `callback` (None: to none); returns the one before."""
        if callback is not None and not callable(callback):
            raise TypeError("a callable or None is expected")
        before, self.thread.callback = self.thread.callback, callback
        return before

    def get_callback(self) -> Any:
        """This thread's callback."""
        return self.thread.callback

    def add(
        self, code: types.CodeType, key: Any, checker: Any, replacement: types.CodeType, entry: Any
    ) -> None:
        """Run `replacement` where `checker` holds. Raises ValueError if its arguments differ."""
        _check_fits(code, replacement)
        self._known(code).versions.append((key, checker, replacement, entry))

    def entries(self, code: types.CodeType) -> list[Version]:
        """All versions of a code object."""
        found = self.known.get(id(code))
        return list(found[1].versions) if found else []

    def skip(self, code: types.CodeType, key: Any) -> None:
        """Never offer the code to the callbacks of `key`; None: to any."""
        known = self._known(code)
        if key is None:
            known.skip_all = True
        else:
            known.skip.append(key)

    def rest(self, code: types.CodeType, key: Any, calls: int) -> None:
        """Do not ask `key` about the next `calls` calls that fit no version (negative: about any
        more; what such a call calls is not asked about either, its versions run)."""
        known = self._known(code)
        known.rest = [(k, n) for k, n in known.rest if k is not key] + [(key, calls)]

    def skipped(self, code: types.CodeType, key: Any) -> bool:
        """Whether the code is not offered to the callbacks of `key`."""
        found = self.known.get(id(code))
        return found is not None and _is_skipped(found[1], key)

    def goes_on(self, code: types.CodeType) -> None:
        """The code is what follows a graph break."""

    def forget(self, code: types.CodeType) -> None:
        """Drop the versions of a code object and offer it again."""
        self.known.pop(id(code), None)

    def prepare(self, fn: F) -> F:
        """A callable whose calls are offered: a function around `fn`."""
        function = getattr(fn, "__func__", fn)
        if not isinstance(function, types.FunctionType):
            return fn
        first = (fn.__self__,) if function is not fn else ()  # type: ignore[attr-defined]

        @functools.wraps(fn)
        def offered(*args: Any, **kwargs: Any) -> Any:
            return self._run(function, first + args, kwargs)

        return offered  # type: ignore[return-value]

    def _rests(self, known: _Known, key: Any) -> bool:
        for i, (owner, calls) in enumerate(known.rest):
            if owner is key and calls:
                known.rest[i] = (owner, calls - (calls > 0))
                return True
        return False

    def _known(self, code: types.CodeType) -> _Known:
        found = self.known.get(id(code))
        if found is None:
            at, table = id(code), self.known
            found = table[at] = (weakref.ref(code, lambda _: table.pop(at, None)), _Known())
        return found[1]

    def _signature(self, function: types.FunctionType) -> inspect.Signature:
        found = self.signatures.get(function)
        if (
            found is None
            or found[0] is not function.__defaults__
            or function.__kwdefaults__  # a dict, which may have changed
        ):
            made = inspect.signature(function, follow_wrapped=False)
            found = self.signatures[function] = function.__defaults__, made
        return found[1]

    def _run(
        self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        thread, code = self.thread, function.__code__
        callback = thread.callback
        if callback is None or thread.paused:
            return function(*args, **kwargs)
        key = getattr(callback, "key", callback)
        found = self.known.get(id(code))
        versions = found[1].versions if found else ()
        if found is not None and _is_skipped(found[1], key):
            return function(*args, **kwargs)
        try:
            bound = self._signature(function).bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # which raises what the user should see
        bound.apply_defaults()
        variables = {**bound.arguments, **_closure(function)}
        thread.paused = True
        try:
            replacement: types.CodeType | bool | None = next(
                (
                    now
                    for owner, checker, now, _ in versions
                    if owner is key
                    and (checker is None or checker.check(variables, function.__globals__))
                ),
                None,
            )
            if replacement is None and not (found and self._rests(found[1], key)):
                replacement = callback(
                    code, variables, function.__globals__, _builtins_of(function), function
                )
        finally:
            thread.paused = False
        if replacement is None:
            return function(*args, **kwargs)
        if isinstance(replacement, bool):
            before, thread.callback = callback, None
            try:
                return function(*args, **kwargs)
            finally:
                thread.callback = before
        _check_fits(code, replacement)
        made = types.FunctionType(
            replacement, function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )  # fmt: skip
        made.__kwdefaults__ = function.__kwdefaults__
        made.__qualname__ = function.__qualname__
        return made(*args, **kwargs)


def _is_skipped(known: _Known, key: Any) -> bool:
    return known.skip_all or any(k is key for k in known.skip)


def _closure(function: types.FunctionType) -> dict[str, Any]:
    """The free variables that have a value."""
    out = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            out[name] = cell.cell_contents
        except ValueError:
            continue  # an empty cell
    return out


def _builtins_of(function: types.FunctionType) -> Mapping[str, Any]:
    given = function.__globals__.get("__builtins__", builtins)
    return given if isinstance(given, dict) else vars(given)


def _check_fits(code: types.CodeType, replacement: types.CodeType) -> None:
    layout = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_OPTIMIZED
    if (
        code.co_argcount != replacement.co_argcount
        or code.co_kwonlyargcount != replacement.co_kwonlyargcount
        or (code.co_flags ^ replacement.co_flags) & layout
        or code.co_freevars != replacement.co_freevars
    ):
        raise ValueError(
            f"code in place of {code.co_qualname} must take the same arguments and free variables"
        )


FRONT: Hook | Wrapper = Hook() if config.native and hasattr(_native, "frame_set") else Wrapper()

set_callback = FRONT.set_callback
get_callback = FRONT.get_callback
add = FRONT.add
entries = FRONT.entries
skip = FRONT.skip
rest = FRONT.rest
skipped = FRONT.skipped
forget = FRONT.forget
goes_on = FRONT.goes_on
prepare = FRONT.prepare


def run_with(
    callback: Any, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """``fn(*args, **kwargs)`` with its calls offered to `callback`.

    With the wrapper, `fn` should come from `prepare`.
    """
    before = set_callback(callback)
    try:
        return fn(*args, **(kwargs or {}))
    finally:
        set_callback(before)
