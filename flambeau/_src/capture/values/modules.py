"""Modules: their attributes are read under one guard, the clock of mutations.

That guard holds for the very modules that were captured. Where a code has met another module of the
same class at the same place (the blocks of a model, each compiled by itself), the module is taken
by its structure: it is an object like others, each thing that is read of it has its own guard, and
one version serves all modules that are built alike.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.guards import Guard, Kind, ModuleFacts
from flambeau._src.capture.source import AttrSource, ItemSource, ModuleSource, Source

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Known
    from flambeau._src.capture.session import Session

__all__ = ["Met", "Modules"]

_TABLES = ("_parameters", "_buffers", "_modules")
_STRUCTURES = 4  # modules of a class at a place that are taken by their structure


class Met:
    """The modules of a class that captures of a code met at a place.

    The first has a version of its own, with the quick guard; so has a second that follows when it
    has ended (a model in each cell of a notebook). Others are taken by their structure, and where
    that fitted several times no later one, again each for itself.
    """

    __slots__ = ("alike", "ended", "last")

    def __init__(self, module: Any) -> None:
        self.last, self.ended = weakref.ref(module), 0
        self.alike: list[weakref.ref[Any]] = []

    def meets(self, module: Any) -> bool:
        """Note a module (attempts are made again). Whether to take it by its structure."""
        if any(ref() is module for ref in self.alike):
            return True
        before = self.last()
        if before is module:
            return False
        self.last = weakref.ref(module)
        if before is None:
            self.ended += 1
            if self.ended == 1 and not self.alike:
                return False
        if len(self.alike) == _STRUCTURES:
            return False
        self.alike.append(self.last)
        return True


class Modules:
    """The modules that a capture has read, and the one guard for all of them.

    A module that is found in a module needs no guard of its own: the stamps of the outer one say
    whether it is still the same. `facts.guards` says what was read, for when a stamp has moved.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.facts: ModuleFacts | None = None
        self.read: dict[int, Known] = {}
        self.places: set[Source] = set()  # their sources
        self.alike: set[Source] = set()  # of modules that are taken by their structure

    def enter(self, known: Known) -> None:
        """Guard a module, by identity at a root and by its owner's stamps below."""
        session = self.session
        guard = Guard(Kind.ID, known.source, known.real, "", session.where())
        self.read[id(known.real)] = known
        if self._varies(known):
            self.alike.add(known.source)
            session.heap.guard(Kind.TYPE, known.source, type(known.real))
            session.heap.distinct.append(known.source)
            return
        self.places.add(known.source)
        facts = self.facts
        if facts is None:
            facts = self.facts = ModuleFacts(_clock(known.real))
            session.guards.add(guard)
            session.guards.add(Guard(Kind.MODULE_TREE, known.source, facts))
        elif not self.owns(known.source):
            session.guards.add(guard)
        else:
            facts.guards.append(guard)
        facts.modules.append(weakref.ref(known.real))
        facts.stamps.append(_stamp(known.real))

    def _varies(self, known: Known) -> bool:
        """Whether a module is taken by its structure: what it is found in is, or earlier calls had
        other modules of its class there (of those that have ended, two)."""
        source = known.source
        if self._owner(source) in self.places:
            return False
        if any(step in self.alike for step in source.path()):
            return True
        seen = self.session.options.modules
        if seen is None:
            return False
        key = (source, type(known.real))
        met = seen.get(key)
        if met is None:
            met = seen[key] = Met(known.real)
        return bool(met.meets(known.real))

    def is_alike(self, known: Known) -> bool:
        """Whether the module is taken by its structure."""
        return known.source in self.alike

    def without_hooks(self, known: Known, globals_: dict[str, Any]) -> None:
        """Guard that a call of the module is one of its `forward`."""
        guard, source = self.session.heap.guard, known.source
        everywhere = AttrSource(ModuleSource(globals_["__name__"]), "_any_global")
        guard(Kind.LENGTH, everywhere, 0)
        if source in self.alike:
            guard(Kind.LENGTH, AttrSource(source, "_hooked", raw=True), 0)
            guard(Kind.NO_KEY, AttrSource(source, "__dict__"), "_compiled_call_impl")

    def lacks(self, known: Known, name: str) -> None:
        """Guard that no table of a module taken by its structure has the name."""
        if known.source in self.alike:
            for table in _TABLES:
                if name not in known.real.__dict__[table]:
                    place = AttrSource(known.source, table, raw=True)
                    self.session.heap.guard(Kind.NO_KEY, place, name)

    def owns(self, source: Source) -> bool:
        """Whether the source is an entry of a module's own attributes or tables."""
        return self._owner(source) in self.places

    @staticmethod
    def _owner(source: Source) -> Source | None:
        """The place of the module whose attribute or entry of a table is found at the source."""
        base = source.base
        if isinstance(source, ItemSource) and isinstance(base, AttrSource):
            return base.base if base.name in _TABLES else None
        return base if isinstance(source, AttrSource) else None

    def _is_table(self, source: Source) -> bool:
        return (
            isinstance(source, AttrSource) and source.name in _TABLES and source.base in self.places
        )

    def attribute(self, known: Known, name: str) -> Source | None:
        """Where a module's attribute is found: in its `__dict__` or a table; None: nowhere."""
        d = known.real.__dict__
        if name in d:
            return AttrSource(known.source, name, raw=True)
        for table in _TABLES:
            if name in d[table]:
                if known.source in self.alike:
                    self.session.heap.lacks_attribute(known, name)
                    self.lacks(known, name)
                return ItemSource(AttrSource(known.source, table, raw=True), name)
        return None

    def add_guard(self, guard: Guard) -> bool:
        """Take a guard over if the stamps make it needless; False: it must stand on its own."""
        if guard.source is None or self.facts is None:
            return False
        if guard.kind is Kind.NO_KEY:
            source = guard.source
            if isinstance(source, AttrSource) and source.name == "__dict__":
                base = source.base
                if base in self.places:
                    self.facts.guards.append(guard)
                    return True
            return False
        if guard.kind in (Kind.KEYS, Kind.TYPE) and self._is_table(guard.source):
            self.facts.guards.append(guard)
            return True
        if guard.kind not in (Kind.EQUALS, Kind.NONE, Kind.ID, Kind.FUNCTION, Kind.TYPE):
            return False
        if not self.owns(guard.source):
            return False
        self.facts.guards.append(guard)
        return True


def _clock(module: Any) -> int:
    # The clock stands in a public library, which this rank does not import: it is found through the
    # class that counts with it.
    clock = _namespace(module)["_clock"]
    return int(clock[0])


def _namespace(module: Any) -> dict[str, Any]:
    for base in reversed(type(module).__mro__[:-1]):
        init = base.__dict__.get("_wrapped_call_impl")
        if init is not None:
            return init.__globals__  # type: ignore[no-any-return]
    raise TypeError(f"{type(module).__name__} is no module")


def _stamp(module: Any) -> int:
    return int(_namespace(module)["_mutation"].stamp_of(module))
