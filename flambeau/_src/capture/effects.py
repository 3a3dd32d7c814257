"""What the program changed outside: found by comparing, and done after the graph has run."""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import library
from flambeau._src.capture.lookup import is_hidden
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.overriding import has_say
from flambeau._src.capture.source import AttrSource, LocalSource, Source
from flambeau._src.capture.values.containers import native_writer, same_items
from flambeau._src.capture.values.iterators import SEQUENCE_ITERATORS, place

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Known
    from flambeau._src.capture.session import Session

__all__ = ["Effect", "effects"]


@dataclass(slots=True)
class Effect:
    """One change: `kind` says which, `target` where, `name` of what, `value` to what (inside)."""

    kind: str
    target: Source | None
    name: Any = None
    value: Any = None
    native: Any = None  # the class whose methods do it


def effects(s: Session) -> list[Effect]:
    """All changes of outside objects, in the order in which the objects were met."""
    out: list[Effect] = []
    for known in list(s.heap.by_real.values()):
        if known.before is not None and type(known.inside) is not types.CellType:
            popped = id(known.inside) in s.heap.popped
            if popped and native_writer(type(known.inside), "pop item") is not None:
                popped = False
            changes = _container(known, popped)
            for effect in changes:
                if effect.kind != "iterator":
                    effect.native = native_writer(type(known.inside), effect.kind)
            out += changes
            if isinstance(known.inside, collections.defaultdict):
                factory = known.inside.default_factory
                if factory is not known.factory:
                    out.append(Effect("attribute", known.source, "default_factory", factory))
        if known.attrs or known.read:
            out += _attributes(known)
    for info in s.tensors.values():
        if info.source is not None:
            for name, value in info.attrs.items():
                if name not in info.read or info.read[name] is not value:
                    asks = name == "grad" and has_say(info.kind)
                    kind = "unasked attribute" if asks else "attribute"
                    out.append(Effect(kind, info.source, name, value))
    for known in s.heap.changed_cells():
        out.append(_cell(known))
    for scope in s.scopes.values():
        for name, value in scope.written.items():
            source = scope.source(name)
            if scope.root:
                out.append(Effect("global", None, name, value))
            else:
                out.append(Effect("item", source.base, name, value))
    return out


def _container(known: Known, popped: bool) -> list[Effect]:
    twin = known.inside
    if type(twin) in SEQUENCE_ITERATORS:
        at = place(twin)
        return [] if at == known.before[0] else [Effect("iterator", known.source, None, at)]
    if isinstance(twin, dict):
        return _dict(known, twin, popped and type(twin) is dict)
    if isinstance(twin, (set, frozenset)):
        if set(twin) == known.before:
            return []
        return [Effect("set", known.source, None, list(twin))]
    now = list(twin)
    if same_items(now, known.before):
        return []
    kind = "deque" if isinstance(twin, collections.deque) else "list"
    return [Effect(kind, known.source, None, now)]


def _dict(known: Known, twin: dict[Any, Any], popped: bool) -> list[Effect]:
    now = list(twin.items())
    before = known.before
    keys = [k for k, _ in now]
    if same_items([x for kv in now for x in kv], [x for kv in before for x in kv]):
        return []
    if same_items(keys[: len(before)], [k for k, _ in before]):
        changed = [
            kv
            for i, kv in enumerate(now)
            if i >= len(before) or not same_items([kv[1]], [before[i][1]])
        ]
        return [Effect("item", known.source, k, v) for k, v in changed]
    left = [kv for kv in before if any(kv[0] is k for k in keys)]
    popped = popped and same_items([k for k, _ in left], [k for k, _ in before[: len(left)]])
    if (left or popped) and same_items(keys[: len(left)], [k for k, _ in left]):
        gone = [kv[0] for kv in before if not any(kv[0] is k for k in keys)]
        how = "pop item" if popped else "delete item"
        out = [Effect(how, known.source, k) for k in gone]
        for i, (k, v) in enumerate(now):
            if i >= len(left) or not same_items([v], [left[i][1]]):
                out.append(Effect("item", known.source, k, v))
        return out
    return [Effect("dict", known.source, None, now)]


def _attributes(known: Known) -> list[Effect]:
    kind = "attribute" if library.is_module(known.real) else "raw attribute"
    out = []
    holder = type(known.real)
    for name in known.read:
        if name and name not in known.attrs:
            how = "delete hidden" if is_hidden(holder, name) else "delete attribute"
            out.append(Effect(how, known.source, name))
    for name, value in known.attrs.items():
        if name in known.read and same_items([known.read[name]], [value]):
            continue
        how = "hidden attribute" if is_hidden(holder, name) else kind
        out.append(Effect(how, known.source, name, value))
    return out


def _cell(known: Known) -> Effect:
    try:
        value = known.inside.cell_contents
    except ValueError:
        raise Unsupported("A variable of an enclosing function is emptied.") from None
    source = known.source
    if isinstance(source, LocalSource):
        return Effect("cell", None, source.name, value)
    assert isinstance(source, AttrSource)
    return Effect("attribute", source.base, "cell_contents", value)
