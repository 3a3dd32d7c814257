"""Globals: read with a guard, written after the graph."""

from __future__ import annotations

import builtins
import sys
import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import library
from flambeau._src.capture.guards import Kind
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.source import (
    AttrSource,
    BuiltinSource,
    GlobalSource,
    ItemSource,
    ModuleSource,
    Source,
)
from flambeau._src.capture.values.constant import ATOMS, is_reference

if TYPE_CHECKING:
    from flambeau._src.capture.interpreter import Frame
    from flambeau._src.capture.session import Session

__all__ = ["NULL_FIRST", "Scope", "read", "write"]

#: Whether NULL is pushed below a callable (3.11, 3.12) or above it.
NULL_FIRST = sys.version_info < (3, 13)


class Scope:
    """The globals of a function: what was read of them and what they are now."""

    __slots__ = ("base", "library", "now", "real", "root", "written")

    def __init__(self, real: dict[str, Any], base: Source | None, root: bool) -> None:
        self.real = real
        self.base = base  # where the dict is found; None for the outermost frame's own
        self.root = root
        self.library = library.is_library_globals(real)
        self.now: dict[str, Any] = {}
        self.written: dict[str, Any] = {}

    def source(self, name: str) -> Source:
        """Where a global is found."""
        if self.root:
            return GlobalSource(name)
        if self.base is None:
            raise Unsupported(
                "A global is read in a function whose module cannot be found again.",
                "Define the function in an imported module.",
            )
        return ItemSource(self.base, name)


def scope_of(s: Session, f: Frame) -> Scope:
    """The scope of a frame."""
    scope: Scope | None = f.scope
    if scope is not None:
        return scope
    found = s.scopes.get(id(f.globals))
    if found is None:
        base: Source | None = None
        name = f.globals.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if module is not None and getattr(module, "__dict__", None) is f.globals:
            base = AttrSource(ModuleSource(str(name)), "__dict__")
        elif (name := _module_of(f.globals)) is not None:
            base = AttrSource(ModuleSource(name), "__dict__")
        elif f.function is not None and s.heap.source_of(f.function) is not None:
            base = AttrSource(s.heap.source_of(f.function), "__globals__")  # type: ignore[arg-type]
        found = s.scopes[id(f.globals)] = Scope(f.globals, base, f.parent is None)
    f.scope = found
    return found


def _module_of(globals_: dict[str, Any]) -> str | None:
    """The name under which a module is found that calls itself otherwise (`_collections_abc`)."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__dict__", None) is globals_:
            return name
    return None


def read(s: Session, f: Frame, name: str) -> Any:
    """A global, or a builtin where there is none."""
    scope = scope_of(s, f)
    now = scope.now
    if name in now:
        return now[name]
    real = scope.real
    if name in real:
        value = real[name]
        if scope.library and _trusted(value):
            now[name] = value
        else:
            now[name] = value = s.heap.enter(value, scope.source(name))
        return value
    return _builtin(s, scope, name)


def _trusted(value: Any) -> bool:
    """Whether a global of the library's own modules never changes."""
    kind = type(value)
    return (
        kind in ATOMS
        or kind is types.FunctionType
        or kind is types.ModuleType
        or is_reference(value)
    )


def _builtin(s: Session, scope: Scope, name: str) -> Any:
    table = scope.real.get("__builtins__", builtins)
    table = table if isinstance(table, dict) else table.__dict__
    if name not in table:
        s.raise_(NameError(f"name '{name}' is not defined", name=name))
    value = table[name]
    if not scope.library:
        if table is not builtins.__dict__:
            raise Unsupported("The function has builtins of its own.")
        if scope.root:
            s.heap.guard(Kind.ID, BuiltinSource(name), value)
        else:
            s.heap.guard(Kind.NO_KEY, _base(scope), name)
    if not isinstance(value, (type, types.BuiltinFunctionType)) and type(value) not in ATOMS:
        raise Unsupported(f"The builtin {name} was replaced by an object.")
    scope.now[name] = value
    return value


def _base(scope: Scope) -> Source:
    source = scope.source("")
    assert isinstance(source, ItemSource)
    return source.base


def write(s: Session, f: Frame, name: str, value: Any) -> None:
    """Set a global inside; the effect is replayed after the graph."""
    scope = scope_of(s, f)
    if scope.library:
        raise Unsupported(f"A global of the library ({name}) is set.")
    scope.source(name)
    scope.now[name] = value
    scope.written[name] = value
