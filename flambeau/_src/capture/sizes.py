"""Sizes of outside tensors as symbols: which ones, their nodes, and what must hold of them as
guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.guards import Guard, GuardLog, Kind, TensorFacts
from flambeau._src.capture.source import CallSource, ItemSource, Source
from flambeau._src.core.size import Size
from flambeau._src.core.symint import SymBool, SymFloat, SymInt
from flambeau._src.interp.sizes import Dims
from flambeau._src.ir.integers import Range
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import expression_of

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "SYMBOLIC", "add_guards", "fixed", "is_symbolic", "loosened", "numbers", "policy", "symbols_in",
]  # fmt: skip

#: What stands for numbers that are not fixed.
SYMBOLIC: Mapping[type, type] = {SymInt: int, SymFloat: float, SymBool: bool}


def policy(session: Session, t: Any, source: Source) -> Dims | None:
    """Which sizes of an outside tensor are symbols; None: all are fixed.

    Marks on the tensor come first. Then `dynamic`: True makes all symbols but those of parameters
    and of what modules hold, False none, and None those that were seen to change.
    """
    options = session.options
    if options.dynamic is False:
        return None
    policies: dict[int, str] = {}
    own = type(t).__name__ == "Parameter" or session.modules.owns(source)
    if options.dynamic and not own:
        policies = dict.fromkeys(range(t.dim()), "duck")
    elif options.sizes is not None:
        policies = dict.fromkeys(_changed(options.sizes, source.text(), t), "duck")
    marked = t.__dict__
    for name, what in (
        ("_dynamo_weak_dynamic_indices", "duck"), ("_dynamo_dynamic_indices", "dynamic"),
        ("_dynamo_unbacked_indices", "unbacked"), ("_dynamo_static_indices", "static"),
    ):  # fmt: skip
        policies.update(dict.fromkeys(marked.get(name, ()), what))
    if not set(policies.values()) - {"static"}:
        return None
    ranges = {r.dim: Range(r.min, r.max) for r in marked.get("_dynamo_dynamic_range", ())}
    return Dims("static", policies, ranges)


def _changed(seen: dict[str, list[int | None]], name: str, t: Any) -> list[int]:
    """The dimensions whose size was another one in an earlier call."""
    known = seen.get(name)
    if known is None or len(known) != t.dim():
        known = seen[name] = list(t.shape)
    for i, n in enumerate(t.shape):
        if known[i] != n:
            known[i] = None
    return [i for i, n in enumerate(known) if n is None]


def loosened(found: TensorFacts, fake: Any) -> TensorFacts:
    """What a guard checks of a tensor some of whose sizes are symbols."""
    return replace(
        found,
        shape=tuple(None if is_symbolic(n) else n for n in fake.shape),
        stride=tuple(None if is_symbolic(n) else n for n in fake.stride()),
    )


def is_symbolic(v: Any) -> bool:
    """Whether a value stands for a number that is not fixed."""
    return type(v) in SYMBOLIC


def numbers(v: Any) -> Any:
    """The value with every symbolic number as the number that it is now, which fixes it."""
    if type(v) in SYMBOLIC:
        return SYMBOLIC[type(v)](v)
    if type(v) is Size or (type(v) in (list, tuple) and any(map(is_symbolic, v))):
        return type(v)(map(numbers, v))
    return v


# ---- guards ----


def _place(source: Source, what: str, i: int) -> Source:
    return ItemSource(CallSource(source, what), i)


def add_guards(env: ShapeEnv, tensors: list[tuple[Source, Any]], log: GuardLog, stage: str) -> None:
    """All that was relied on of sizes becomes guards; the environment takes no more after that.

    `tensors`: the sources and fake forms of outside tensors. Raises ConstraintViolationError.
    """
    places: dict[str, Source] = {}
    equal: list[tuple[str, Source]] = []
    for s in env.symbols.values():
        for source, what, i in s.sources:
            place = _place(source, what, i)
            if s.name in places:
                equal.append((s.name, place))
            else:
                places[s.name] = place
    for text, names, reason in _relations(env, tensors, places, equal):
        bound = tuple(names.items())
        log.add(Guard(Kind.SHAPE, bound[0][1], text, reason, None, stage, bound))
    env.freeze(stage)


def _relations(
    env: ShapeEnv, tensors: list[tuple[Source, Any]], places: Mapping[str, Source],
    equal: list[tuple[str, Source]],
) -> Iterator[tuple[str, dict[str, Source], str]]:  # fmt: skip
    for k, (name, place) in enumerate(equal):
        yield f"{name} == t{k}", {name: places[name], f"t{k}": place}, "sizes that were equal"
    for k, (source, fake) in enumerate(tensors):
        for i, n in enumerate(fake.stride()):
            if is_symbolic(n):
                e = n.node.value
                names = {f"d{k}": _place(source, "stride", i)}
                names |= {name: places[name] for name in sorted(e.symbols)}
                yield f"d{k} == {e}", names, "a stride"
    known = set(places)
    for condition, reason in env.relied_on():
        used = condition.symbols
        if used and used <= known:
            yield str(condition), {n: places[n] for n in sorted(used)}, reason


def fixed(v: Any) -> bool:
    """Whether a symbolic number is a number after all."""
    e = expression_of(v)
    return isinstance(e, (int, float)) or getattr(e, "constant", None) is not None


def symbols_in(v: Any) -> frozenset[str]:
    """The symbols of a symbolic number's expression."""
    found: frozenset[str] = getattr(expression_of(v), "symbols", frozenset())
    return found
