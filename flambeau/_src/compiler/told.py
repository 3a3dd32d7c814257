"""What programs told the compiler about functions: leave it, take it whole, take another one."""

from __future__ import annotations

import builtins
import inspect
import os
import weakref
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from types import CodeType, ModuleType
from typing import Any, TypeVar

from flambeau._src.capture.library import PLAIN, is_module_code, kind_of_code
from flambeau._src.core.tensor import Tensor

__all__ = [
    "CONSTANTS",
    "LEAVES",
    "NAMES",
    "SUBSTITUTES",
    "allow_in_graph",
    "assume_constant_result",
    "builtins_are_own",
    "disallow_in_graph",
    "error_on_graph_break",
    "forbid_in_graph",
    "is_disabled",
    "may_capture",
    "nonstrict_trace",
    "offer",
    "place",
    "stand_for",
    "substitute_in_graph",
]

F = TypeVar("F", bound=Callable[..., Any])

#: Functions that are one node of a graph although they are Python.
LEAVES: set[Any] = set()


class _Substitutes(dict[Any, Any]):
    """Functions to capture in place of others. What `compile` wrapped stands for itself."""

    def get(self, fn: Any, default: Any = None) -> Any:
        """The function to capture for `fn`."""
        found = getattr(fn, "__dict__", {}).get("_torchdynamo_inline")
        return dict.get(self, fn, default) if found is None else found


SUBSTITUTES = _Substitutes()
#: Functions whose result is taken for a constant.
CONSTANTS: set[Any] = set()
#: Functions that end a graph although they could be in it.
BREAKS: set[Any] = set()
#: One counter for the names of all compiled regions: they share the globals of modules.
NAMES: list[int] = [0]

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep
_SITE = os.sep + "site-packages" + os.sep
#: Packages whose functions are not captured where they are called from Python.
_LEFT_ALONE = frozenset(
    {
        "IPython", "PIL", "_distutils_hack", "_pytest", "cupy", "hypothesis", "jax", "matplotlib",
        "numpy", "onnx", "onnxruntime", "pandas", "pkg_resources", "pluggy", "pyarrow", "pytest",
        "scipy", "setuptools", "sklearn", "sympy", "tensorboard", "tensorflow", "tqdm", "triton",
    }
)  # fmt: skip
#: Parts of the library whose functions are programs like the user's.
_PROGRAMS = ("nn" + os.sep, "optim" + os.sep, "distributions" + os.sep)
#: Their parts between a module's call and what it calls, which is offered itself.
_BETWEEN = tuple(os.path.join("nn", "modules", f) for f in ("_calling.py", "_functions.py"))
_CALLS = frozenset({"__call__", "_wrapped_call_impl", "_call_impl"})
_files: dict[str, bool] = {}
_offered: dict[int, Any] = {}


#: Of the functions that `compile` puts around callables without a frame of their own: what they
#: stand for, by their file name.
_STAND_FOR: dict[str, tuple[str, int, str]] = {}


def stand_for(fn: Any) -> str:
    """A file name for a function that calls `fn`; what is said of it names the user's function:
    a module's `forward`, an object's `__call__`."""
    inner = getattr(fn, "__func__", None) or getattr(type(fn), "forward", None)
    code = getattr(inner or inspect.getattr_static(type(fn), "__call__"), "__code__", None)
    if code is None:
        return "<compiled>"
    file = f"<compiled {code.co_filename}:{code.co_firstlineno}>"
    _STAND_FOR[file] = (code.co_filename, code.co_firstlineno, code.co_name)
    return file


def place(file: str, line: int, name: str) -> tuple[str, int, str]:
    """A file, line and function as the user knows them."""
    return _STAND_FOR.get(file, (file, line, name))


def _capturable(code: CodeType) -> bool:
    file = code.co_filename
    if file.startswith(_ROOT):
        rest = file[len(_ROOT) :]
        own = rest.startswith(_PROGRAMS) and rest not in _BETWEEN
        return own and kind_of_code(code) is PLAIN
    if file.startswith(("<frozen", "<graph", "<flambeau", "<eval_with_key>")):
        return False
    _, site, rest = file.rpartition(_SITE)
    if site:
        return rest.split(os.sep)[0] not in _LEFT_ALONE
    return not file.startswith(_STDLIB)


def may_capture(code: CodeType, everything: bool = False) -> bool:
    """Whether a function that is called may be captured: neither the library's nor Python's own.

    Codes that were offered (what goes on after a break, the wrapper around a callable) always are.
    With `everything` only the library's are not, and what it generated.
    """
    if id(code) in _offered:
        return True
    if everything:
        return not code.co_filename.startswith((_ROOT, "<graph", "<flambeau", "<eval_with_key>"))
    file = code.co_filename
    found = _files.get(file)
    if found is None:
        found = _files[file] = _capturable(code)
    if found and code.co_name in _CALLS and is_module_code(code):
        return False  # all modules share it: what it calls is offered
    return found and code.co_name != "<module>"


def meets_tensors(
    code: CodeType, arguments: Mapping[str, Any], globals_: Mapping[str, Any]
) -> bool:
    """Whether a call may lead to operators: tensors or modules among its arguments, or the library
    among the globals that its code names."""
    if id(code) in _offered:
        return True
    for name in code.co_names:
        value = globals_.get(name)
        home = _own(value, "__module__") or (_own(value, "__dict__") or {}).get("__name__")
        if isinstance(home, str) and home.split(".")[0] in ("flambeau", "torch"):
            return True
    return any(_holds_tensor(v, 3) for v in arguments.values())


def _own(value: Any, name: str) -> Any:
    """An attribute without the class's `__getattr__` and `__getattribute__`: nobody's code runs."""
    try:
        return (type if issubclass(type(value), type) else object).__getattribute__(value, name)
    except (AttributeError, TypeError):
        return None


def _holds_tensor(value: Any, depth: int) -> bool:
    """Whether there are tensors or modules in a value; its own methods are not asked."""
    kind = type(value)
    inside = None if issubclass(kind, (type, ModuleType)) else _own(value, "__dict__")
    if issubclass(kind, Tensor) or (isinstance(inside, dict) and "_parameters" in inside):
        return True
    for base, items in _HOLDERS:
        if depth and issubclass(kind, base):
            return any(_holds_tensor(v, depth - 1) for v in list(items(value)))
    if depth > 1 and isinstance(inside, dict):
        return any(_holds_tensor(v, depth - 2) for v in list(dict.values(inside)))
    return False


_HOLDERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (list, list.__iter__), (tuple, tuple.__iter__), (dict, dict.values),
)  # fmt: skip


#: Builtins that the compiler itself is written with; programs replace the others at will.
_BUILTINS = tuple(
    (name, value)
    for name, value in vars(builtins).items()
    if callable(value)
    and name not in ("__import__", "breakpoint", "exit", "help", "input", "open", "print", "quit")
)


def builtins_are_own() -> bool:
    """Whether no builtin is replaced that the compiler would call."""
    now = vars(builtins)
    return all(now.get(name) is value for name, value in _BUILTINS)


def offer(code: CodeType) -> None:
    """Let a code object be captured, wherever it comes from."""
    key = id(code)
    _offered[key] = weakref.ref(code, lambda _: _offered.pop(key, None))


class _OnGraphBreak(ContextDecorator):
    """Within it a graph break is an error (True) or not (False), whatever `fullgraph` says."""

    def __init__(self, error_on_graph_break: bool) -> None:
        self.error_on_graph_break = error_on_graph_break

    def __enter__(self) -> None:
        """The capture reads it; where nothing is captured it says nothing."""

    def __exit__(self, *error: object) -> None:
        """Nothing."""


def error_on_graph_break(error_on_graph_break: bool) -> _OnGraphBreak:
    """A context manager and decorator: inside, graph breaks are errors, or are not."""
    return _OnGraphBreak(error_on_graph_break)


def forbid_in_graph(fn: Any) -> Any:
    """Make a capture that meets this function fail; returns the function."""
    if isinstance(fn, (list, tuple)):
        return [forbid_in_graph(f) for f in fn]
    assert callable(fn), "forbid_in_graph applies only to callables"
    fn._dynamo_forbidden = True
    return fn


def is_disabled(function: Any) -> bool:
    """Whether a program said that a function is never to be captured."""
    return bool(getattr(function, "_torchdynamo_disable", False))


def allow_in_graph(fn: Any) -> Any:
    """Take a function (or each of a list) for one operator of a graph; returns it.

    AssertionError for what cannot be called.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    assert callable(fn), "allow_in_graph expects a callable"
    BREAKS.discard(fn)
    LEAVES.add(fn)
    return fn


def nonstrict_trace(traceable_fn: Any) -> Any:
    """Take a function for one operator of a captured graph; what differentiates the graph ahead of
    time runs it. Returns it. AssertionError for what cannot be called."""
    assert callable(traceable_fn), "nonstrict_trace expects a callable"
    return allow_in_graph(traceable_fn)


def disallow_in_graph(fn: Any) -> Any:
    """End the graph where a function (or each of a list) is called; returns it."""
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(f) for f in fn]
    assert callable(fn), "disallow_in_graph expects a callable"
    LEAVES.discard(fn)
    BREAKS.add(fn)
    return fn


def assume_constant_result(fn: F) -> F:
    """Take the result of a function for a constant of the graph; returns the function."""
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    CONSTANTS.add(fn)
    return fn


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[F], F]:
    """A decorator: its function is captured wherever the program calls `original_fn`.

    Args:
        original_fn: the function to be replaced in captures, one that cannot be captured itself.
        can_constant_fold_through: its result on constants is a constant.
        skip_signature_check: the two may be called differently.

    Raises:
        TypeError: original_fn is no function, or the signatures differ.
    """
    if not callable(original_fn):
        raise TypeError(f"substitute_in_graph expects a function but got {type(original_fn)!r}")

    def register(function: F) -> F:
        if not callable(function):
            raise TypeError(
                f"@substitute_in_graph(...) expects a function but got {type(function)!r}"
            )
        if not skip_signature_check:
            _same_signature(original_fn, function)
        SUBSTITUTES[original_fn] = function
        if can_constant_fold_through:
            CONSTANTS.add(original_fn)
        function.__torch_original_fn__ = original_fn  # type: ignore[attr-defined]
        return function

    return register


def _same_signature(original: Any, function: Any) -> None:
    try:
        theirs = inspect.signature(original)
    except (TypeError, ValueError):
        return  # a built-in function that does not say
    ours = inspect.signature(function)

    def shape(s: inspect.Signature) -> Any:
        positional, keywords, rest = [], set(), []
        for name, p in s.parameters.items():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                named = name if p.kind is p.POSITIONAL_OR_KEYWORD else None
                positional.append((named, p.default is p.empty))
            elif p.kind is p.KEYWORD_ONLY:
                keywords.add((name, p.default is p.empty))
            else:
                rest.append(p.kind)
        return positional, keywords, rest

    if shape(theirs) != shape(ours):
        raise TypeError(
            f"Signature mismatch between {original!r} and {function!r}: {theirs} != {ours}"
        )


def forget() -> None:
    """What follows from compiled code; what programs said stays."""
    _offered.clear()
