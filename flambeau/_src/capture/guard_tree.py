"""Guards as the tree that the checker in C walks: paths that share a beginning, and what stands
at each. Also what of a log needs no look while no module has changed."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.capture.guards import Guard, Kind, ModuleFacts, TensorFacts
from flambeau._src.capture.modes import in_c
from flambeau._src.capture.relations import relation
from flambeau._src.capture.source import (
    APPLIED,
    AppliedSource,
    AttrSource,
    BuiltinSource,
    CallSource,
    GlobalSource,
    ItemSource,
    KeySource,
    LocalSource,
    ModuleSource,
    Source,
    TypeSource,
)
from flambeau._src.core.slots import slot

__all__ = ["GuardTree", "weak_to"]

# Numbers of csrc/guard.c.
_LOCAL, _GLOBAL, _BUILTIN, _MODULE, _ATTR, _RAW, _ITEM, _KEY, _VALUE, _TYPE, _CALL, _APPLY = range(
    12
)
(
    _G_TYPE, _G_ID, _G_WEAK, _G_EQUALS, _G_NONE, _G_LENGTH, _G_KEYS, _G_HAS_KEY, _G_NO_KEY,
    _G_HAS_ATTR, _G_NO_ATTR, _G_TENSOR, _G_TREE, _G_FUNCTION, _G_ITERATOR, _G_PYTHON, _G_SAME,
    _G_DIFFERENT, _G_SHAPE, _G_STATE,
) = range(20)  # fmt: skip
_VALUE_KINDS = {
    Kind.TYPE: _G_TYPE, Kind.EQUALS: _G_EQUALS, Kind.NONE: _G_NONE, Kind.LENGTH: _G_LENGTH,
    Kind.KEYS: _G_KEYS, Kind.HAS_KEY: _G_HAS_KEY, Kind.NO_KEY: _G_NO_KEY,
    Kind.HAS_ATTR: _G_HAS_ATTR, Kind.NO_ATTR: _G_NO_ATTR, Kind.ALIVE: _G_WEAK,
    Kind.PYTHON: _G_PYTHON,
}  # fmt: skip
_TABLES = ("_parameters", "_buffers", "_modules")
_UNTOLD = sys.version_info[:2] >= (3, 13)  # attributes that are set change no number of the dict


class Places:
    """Numbers for sources, equal ones the same: hashing a path over and over would cost its length.

    Sources must outlive this, as those of guards do.
    """

    def __init__(self) -> None:
        self._by_object: dict[int, int] = {}
        self._by_step: dict[Any, int] = {}

    def __getitem__(self, source: Source) -> int:
        found = self._by_object.get(id(source))
        if found is None:
            base = -1 if source.base is None else self[source.base]
            kind, key, number = _accessor(source)
            step = (base, kind, type(key), key, number)
            found = self._by_object[id(source)] = self._by_step.setdefault(step, len(self._by_step))
        return found


class _Path:
    def __init__(self, kind: int, key: Any, number: int, parent: _Path | None) -> None:
        self.parent = parent
        self.kind, self.key, self.number = kind, key, number
        self.register = -1
        self.first = sys.maxsize
        self.children: list[int] = []
        self.guards: list[tuple[int, int, Any, int]] = []


class GuardTree:
    """Paths by source, and what stands at them."""

    def __init__(
        self,
        guards: Sequence[Guard],
        order: Sequence[int] | None = None,
        places: Places | None = None,
    ) -> None:
        self.paths: list[_Path] = []
        self.roots: list[int] = []
        self.places = Places() if places is None else places
        self.at: dict[int, int] = {}
        self.late: list[tuple[int, int, Any, int]] = []
        self.registers = 0
        self.tensors = 0
        listed = list(zip(range(len(guards)) if order is None else order, guards, strict=True))
        trees: dict[int, tuple[Any, ...]] = {}
        for place, guard in listed:
            if guard.kind is Kind.MODULE_TREE:
                trees[place], listed = self._tree(place, guard.expected, listed)
        for place, guard in listed:
            if place in trees:
                assert guard.source is not None
                self.path(guard.source, place).guards.append((_G_TREE, place, trees[place], 0))
            else:
                self._add(place, guard)

    def parts(self) -> tuple[Any, ...]:
        """The arguments of the checker in C."""
        paths = tuple(
            (
                p.kind, p.key, p.number, p.register, p.first, tuple(p.children), tuple(p.guards),
            )
            for p in self.paths
        )  # fmt: skip
        return tuple(self.roots), paths, tuple(self.late), self.registers

    # ---- paths ----

    def path(self, source: Source, place: int) -> _Path:
        """The path of a source; the guard at `place` depends on it."""
        index = self.at.get(self.places[source])
        if index is None:
            base = source.base
            parent = None if base is None else self.path(base, place)
            index = self.at[self.places[source]] = len(self.paths)
            self.paths.append(_Path(*_accessor(source), parent))
            (self.roots if parent is None else parent.children).append(index)
        path: _Path | None = self.paths[index]
        while path is not None and path.first > place:
            path.first = place
            path = path.parent
        return self.paths[index]

    def register(self, source: Source, place: int) -> int:
        """The register in which the value of a source is kept."""
        path = self.path(source, place)
        if path.register < 0:
            path.register = self.registers
            self.registers += 1
        return path.register

    # ---- guards ----

    def _add(self, place: int, guard: Guard) -> None:
        kind, source, want = guard.kind, guard.source, guard.expected
        if kind is Kind.STATE:
            self.late.append((_G_STATE, place, in_c(want), 0))
            return
        if kind is Kind.SHAPE:
            self._add_relation(place, guard)
            return
        assert source is not None, guard
        if kind is Kind.SAME:
            pair = self.register(source, place) << 16 | self.register(want, place)
            self.late.append((_G_SAME, place, None, pair))
        elif kind is Kind.NOT_SAME:
            registers = tuple(dict.fromkeys(self.register(s, place) for s in (source, *want)))
            self.late.append((_G_DIFFERENT, place, registers, 0))
        else:
            self.path(source, place).guards.append(self._of_value(place, kind, want))

    def _of_value(self, place: int, kind: Kind, want: Any) -> tuple[int, int, Any, int]:
        if kind is Kind.ID:
            weak = weak_to(want)
            return (_G_ID, place, want, 0) if weak is None else (_G_WEAK, place, weak, 0)
        if kind is Kind.TENSOR:
            self.tensors += 1
            return _G_TENSOR, place, _facts(want), 0
        if kind is Kind.FUNCTION:
            return _G_FUNCTION, place, weakref.ref(want), 0
        if kind is Kind.ITERATOR:
            return _G_ITERATOR, place, want, want[1]
        if kind is Kind.LENGTH:
            return _G_LENGTH, place, None, want
        if kind is Kind.KEYS:
            want = tuple(want)
        return _VALUE_KINDS[kind], place, want, 0

    def _add_relation(self, place: int, guard: Guard) -> None:
        found = relation(guard)
        leaves = tuple(
            (leaf.kind, self.register(leaf.source, place), leaf.number) for leaf in found.leaves
        )
        steps = None
        if found.steps is not None:
            steps = tuple(
                (*leaves[number][:2], leaves[number][2]) if kind is None else (kind, number, 0)
                for kind, number in found.steps
            )
        self.late.append((_G_SHAPE, place, (found.function, leaves, steps), 0))

    # ---- modules ----

    def _tree(
        self, place: int, facts: ModuleFacts, listed: list[tuple[int, Guard]]
    ) -> tuple[tuple[Any, ...], list[tuple[int, Guard]]]:
        """A tree of modules with what it owns, for C, and the guards that are left."""
        owner = _Owner(self.places, facts, [g for _, g in listed])
        roots = [(p, g) for p, g in listed if owner.is_module(g)]
        owned = [(p, g) for p, g in listed if owner.may_hold(g)]
        # what is owned is looked up only if the roots are the modules that were captured
        both = roots + owned
        inner = GuardTree([g for _, g in both], [p for p, _ in both], self.places)
        read = GuardTree(facts.guards, [place] * len(facts.guards), self.places)
        clock, table = slot("module_clock")()
        data = (
            clock, facts.clock, tuple(facts.modules), tuple(facts.stamps), table, table.stamp,
            _native.Checker(*read.parts()), _native.Checker(*inner.parts()), inner.tensors,
            tuple(self._attributes(place, facts, owner)) if _UNTOLD else (),
        )  # fmt: skip
        taken = {p for p, _ in owned}
        return data, [(p, g) for p, g in listed if p not in taken]

    def _attributes(
        self, place: int, facts: ModuleFacts, owner: _Owner
    ) -> list[tuple[int, str | None, tuple[int, int, Any, int]]]:
        """What was read in the modules' own dicts: (module, name, guard), no name for the dict."""
        out = []
        for g in facts.guards:
            source = g.source
            if isinstance(source, AttrSource) and self.places[source.base] in owner.sources:
                name = source.name if source.raw else None
                if source.raw or source.name == "__dict__":
                    at = owner.sources[self.places[source.base]]
                    out.append((at, name, self._of_value(place, g.kind, g.expected)))
        return out


class _Owner:
    """Which guards need no looking at while the modules of a tree stand still."""

    _KINDS = frozenset(
        {Kind.TENSOR, Kind.SAME, Kind.ID, Kind.EQUALS, Kind.NONE, Kind.FUNCTION, Kind.TYPE}
    )

    def __init__(self, places: Places, facts: ModuleFacts, log: Sequence[Guard]) -> None:
        self.places = places
        self.modules = {id(ref()): i for i, ref in enumerate(facts.modules)}
        self.sources = {
            places[g.source]: self.modules[id(g.expected)]
            for g in [*log, *facts.guards]
            if g.source is not None and self.is_module(g)
        }

    def is_module(self, guard: Guard) -> bool:
        """Whether the guard says that a value is one of the modules."""
        return guard.kind is Kind.ID and id(guard.expected) in self.modules

    def owns(self, source: Source) -> bool:
        """Whether the source is an entry of a module's `__dict__` or of one of its tables."""
        if isinstance(source, ItemSource) and isinstance(source.base, AttrSource):
            source = source.base
            if source.name not in _TABLES:
                return False
        raw = isinstance(source, AttrSource) and source.raw is True
        return raw and source.base is not None and self._is_source(source.base)

    def _is_source(self, source: Source) -> bool:
        return self.places[source] in self.sources

    def may_hold(self, guard: Guard) -> bool:
        """Whether the guard can only fail when a stamp has moved (or a tensor's own record)."""
        source = guard.source
        if guard.kind not in self._KINDS or source is None or not self.owns(source):
            return False
        if guard.kind is Kind.SAME:
            return self.owns(guard.expected)
        # a module's class is set by its __setattr__, which moves the stamp; other objects' is not
        return guard.kind is not Kind.TYPE or self._is_source(source)


def _accessor(source: Source) -> tuple[int, Any, int]:
    """(kind, key, number) of the last step of a source."""
    if isinstance(source, LocalSource):
        return _LOCAL, source.name, -1
    if isinstance(source, GlobalSource):
        return _GLOBAL, source.name, -1
    if isinstance(source, BuiltinSource):
        return _BUILTIN, source.name, -1
    if isinstance(source, ModuleSource):
        return _MODULE, source.name, -1
    if isinstance(source, AttrSource):
        return (_RAW if source.raw else _ATTR), source.name, -1
    if isinstance(source, ItemSource):
        key = source.key
        if isinstance(key, KeySource):  # the value at a place of a dict
            return _VALUE, None, key.index
        return _ITEM, key, key if type(key) is int and key >= 0 else -1
    if isinstance(source, KeySource):
        return _KEY, None, source.index
    if isinstance(source, TypeSource):
        return _TYPE, None, -1
    if isinstance(source, CallSource):
        return _CALL, source.name, -1
    if isinstance(source, AppliedSource):
        return _APPLY, APPLIED[source.name], -1
    raise TypeError(f"no way to read {source!r}")


_WEAK = (types.ModuleType, types.FunctionType, types.CodeType)


def weak_to(value: Any) -> weakref.ref[Any] | None:
    """A weak reference where one is wanted: what lives for ever or cannot be is referred to."""
    if isinstance(value, type) and not value.__flags__ & 1 << 9:  # a static type
        return None
    if value is None or isinstance(value, (bool, int, str, types.BuiltinFunctionType)):
        return None
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def _facts(f: TensorFacts) -> tuple[Any, ...]:
    return (
        f.kind, f.dtype, f.device, int(f.requires_grad), int(f.leaf), f.bits, int(f.conjugated),
        int(f.negated), tuple(f.shape), tuple(f.stride),
    )  # fmt: skip
