"""Sources: where a value of the captured program can be found again when the program is called.

A source is a path from the call to the value. It prints as Python over two names: `L`, the bound
arguments and closure variables of the frame by name, and `G`, the globals of its code. Guards are
checked at their source, and the replacement code loads a graph's inputs from theirs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = [
    "AttrSource",
    "BuiltinSource",
    "APPLIED",
    "AppliedSource",
    "CallSource",
    "GlobalSource",
    "ItemSource",
    "KeySource",
    "LocalSource",
    "ModuleSource",
    "RootSource",
    "Source",
    "StepSource",
    "TypeSource",
    "applied",
    "key_text",
]


def key_text(key: Any) -> str:
    """A constant key as Python, without a call of what a program's class says of its members."""
    if type(key) in (tuple, frozenset):
        parts = ", ".join(map(key_text, key))
        if type(key) is frozenset:
            return f"frozenset([{parts}])"
        return f"({parts},)" if len(key) == 1 else f"({parts})"
    return f"{type(key).__name__}.{key._name_}" if isinstance(key, enum.Enum) else repr(key)


class Source:
    """A path to a value. `base` is the source that it starts from, None at a root."""

    __slots__ = ()
    base: Source | None

    def text(self) -> str:
        """The path as a Python expression over L and G."""
        raise NotImplementedError(type(self).__name__)

    def path(self) -> Iterator[Source]:
        """The sources from the root to this one."""
        if self.base is not None:
            yield from self.base.path()
        yield self

    def __str__(self) -> str:
        return self.text()


class RootSource(Source):
    """Where a path starts."""

    __slots__ = ()
    base = None


@dataclass(frozen=True, slots=True)
class LocalSource(RootSource):
    """A bound argument; `is_cell`: the contents of a cell (closure variable, captured argument)."""

    name: str
    is_cell: bool = False

    def text(self) -> str:
        return f"L[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class GlobalSource(RootSource):
    """A global of the captured code."""

    name: str

    def text(self) -> str:
        return f"G[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class BuiltinSource(RootSource):
    """A name found in `builtins` because the globals have no such name."""

    name: str

    def text(self) -> str:
        return f"G['__builtins__'][{self.name!r}]"


@dataclass(frozen=True, slots=True)
class ModuleSource(RootSource):
    """An imported module, by its name in sys.modules: globals of inlined functions live there."""

    name: str

    def text(self) -> str:
        return f"M[{self.name!r}]"


class StepSource(Source):
    """One step from another source. Its hash is kept: paths are long, and looked up often."""

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            fields: Any = self.__match_args__  # type: ignore[attr-defined]
            made: int = hash((type(self), *[getattr(self, name) for name in fields]))
            object.__setattr__(self, "_hash", made)
            return made


@dataclass(frozen=True, slots=True)
class AttrSource(StepSource):
    """`base.name`; with `raw` the entry of the instance's `__dict__`, descriptors left aside; where
    `raw` is "own" the object's `__getattribute__` is not asked for that either."""

    __hash__ = StepSource.__hash__
    base: Source
    name: str
    raw: bool | str = False

    def text(self) -> str:
        if self.raw:
            return f"{self.base.text()}.__dict__[{self.name!r}]"
        return f"{self.base.text()}.{self.name}"


@dataclass(frozen=True, slots=True)
class ItemSource(StepSource):
    """`base[key]`: `key` is a constant (int, str, ...), hashed as such."""

    __hash__ = StepSource.__hash__
    base: Source
    key: Any

    def text(self) -> str:
        return f"{self.base.text()}[{key_text(self.key)}]"


@dataclass(frozen=True, slots=True)
class KeySource(StepSource):
    """The key at a place of a dict: for keys that are no constants."""

    __hash__ = StepSource.__hash__
    base: Source
    index: int

    def text(self) -> str:
        return f"list({self.base.text()})[{self.index}]"


@dataclass(frozen=True, slots=True)
class TypeSource(StepSource):
    """`type(base)`."""

    __hash__ = StepSource.__hash__
    base: Source

    def text(self) -> str:
        return f"type({self.base.text()})"


#: The functions that sources apply, by the names that they have in printed guards.
APPLIED: dict[str, Callable[[Any], Any]] = {}


def applied(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let sources name the function: it has no effects."""
    APPLIED[function.__name__] = function
    return function


@dataclass(frozen=True, slots=True)
class AppliedSource(StepSource):
    """`name(base)`, for a function of `APPLIED`: the tensor over the bytes of an array, say."""

    __hash__ = StepSource.__hash__
    base: Source
    name: str

    def text(self) -> str:
        return f"{self.name}({self.base.text()})"


@dataclass(frozen=True, slots=True)
class CallSource(StepSource):
    """`base.name()`: methods without arguments and effects, such as `t.size()`."""

    __hash__ = StepSource.__hash__
    base: Source
    name: str

    def text(self) -> str:
        return f"{self.base.text()}.{self.name}()"
