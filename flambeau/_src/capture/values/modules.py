"""Modules: their attributes are read under one guard, the clock of mutations."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.guards import Guard, Kind, ModuleFacts
from flambeau._src.capture.source import AttrSource, ItemSource, Source

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Known
    from flambeau._src.capture.session import Session

__all__ = ["Modules"]

_TABLES = ("_parameters", "_buffers", "_modules")


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

    def enter(self, known: Known) -> None:
        """Guard a module, by identity at a root and by its owner's stamps below."""
        session = self.session
        guard = Guard(Kind.ID, known.source, known.real, "", session.where())
        self.read[id(known.real)] = known
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

    def owns(self, source: Source) -> bool:
        """Whether the source is an entry of a module's own attributes or tables."""
        base = source.base
        if isinstance(source, ItemSource) and isinstance(base, AttrSource):
            if base.name not in _TABLES or base.base is None:
                return False
            owner: Source | None = base.base
        elif isinstance(source, AttrSource):
            owner = base
        else:
            return False
        return owner in self.places

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
