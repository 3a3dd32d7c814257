"""Back ends by name: what turns a captured graph into a callable.

A back end is a callable `(gm: fx.GraphModule, example_inputs) -> callable(*inputs)`. Our own ones
also say which stages they are made of, so that the driver runs (and shows) them one by one, and no
GraphModule is made for nobody. Packages announce back ends as entry points of the group
``torch_dynamo_backends``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau._src.compiler.errors import InvalidBackend

__all__ = [
    "GROUP",
    "BackEnd",
    "known_names",
    "list_backends",
    "lookup",
    "lookup_backend",
    "register_backend",
    "register_own",
]

GROUP = "torch_dynamo_backends"
CompilerFn = Callable[..., Callable[..., Any]]


@dataclass(frozen=True, eq=False)
class BackEnd:
    """A named way from a graph to a callable.

    `pipeline` names stages of the driver (see `driver.PIPELINES`); None: `function` is called.
    """

    name: str
    function: CompilerFn
    pipeline: str | None = None
    tags: frozenset[str] = field(default_factory=frozenset)


_KNOWN: dict[str, BackEnd] = {}
_FOUND: dict[str, Any] = {}  # name → entry point, once they were looked for
_SEARCHED: list[bool] = []


def register_backend(
    compiler_fn: CompilerFn | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Make a back end known by its name; usable as a decorator.

    Args:
        compiler_fn: `(gm, example_inputs) -> callable`; None: returns a decorator.
        name: defaults to the function's name.
        tags: "debug" and "experimental" hide it from `list_backends()`.

    Raises:
        AssertionError: not callable, or the name is taken.
    """
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    assert callable(compiler_fn), "a back end must be callable"
    chosen = name or compiler_fn.__name__
    assert chosen not in _KNOWN, f"duplicate name: {chosen}"
    _KNOWN[chosen] = BackEnd(chosen, compiler_fn, None, frozenset(tags))
    return compiler_fn


def register_own(
    name: str, pipeline: str, tags: Sequence[str] = ()
) -> Callable[[CompilerFn], CompilerFn]:
    """Register a function that is a pipeline of the driver's stages."""

    def decorate(function: CompilerFn) -> CompilerFn:
        _KNOWN[name] = BackEnd(name, function, pipeline, frozenset(tags))
        return function

    return decorate


def _entry_points() -> dict[str, Any]:
    if not _SEARCHED:
        from importlib.metadata import entry_points  # lazy: reads every installed package

        _SEARCHED.append(True)
        for found in entry_points(group=GROUP):
            _FOUND[found.name] = found
    return _FOUND


def known_names() -> list[str]:
    """All names, those of other packages included."""
    return sorted({*_KNOWN, *_entry_points()})


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names that `compile(backend=...)` takes, without those that have one of the tags."""
    hidden = set(exclude_tags or ())
    return sorted(n for n in known_names() if n not in _KNOWN or not _KNOWN[n].tags & hidden)


def lookup(backend: Any) -> BackEnd:
    """The back end of a name, or one around a callable.

    Raises:
        InvalidBackend: an unknown name.
    """
    if not isinstance(backend, str):
        for own in _KNOWN.values():
            if own.function is backend:
                return own
        name = getattr(backend, "__name__", None) or str(backend)
        return BackEnd(name, backend)
    if backend not in _KNOWN:
        found = _entry_points().get(backend)
        if found is None:
            raise InvalidBackend(backend)
        register_backend(found.load(), name=backend)
    return _KNOWN[backend]


def lookup_backend(compiler_fn: Any) -> CompilerFn:
    """The function behind a name; a callable is returned as it is."""
    return lookup(compiler_fn).function if isinstance(compiler_fn, str) else compiler_fn
