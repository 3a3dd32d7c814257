"""Sizes of outside tensors as symbols: which ones, their nodes, and what must hold of them as
guards."""

from __future__ import annotations

import collections
import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flambeau._src.capture.guards import Guard, GuardLog, Kind, TensorFacts
from flambeau._src.capture.source import CallSource, ItemSource, LocalSource, Source
from flambeau._src.core.size import Size
from flambeau._src.core.symint import SymBool, SymFloat, SymInt
from flambeau._src.interp.sizes import Dims
from flambeau._src.ir.conditions import Condition, Real
from flambeau._src.ir.integers import Expr, Range
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import SymNode, expression_of, sym_int

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "NumberInfo", "SYMBOLIC", "add_guards", "bounded", "fixed", "is_symbolic", "loosened", "number",
    "numbers", "policy", "symbols_in",
]  # fmt: skip

_LONG = 500  # parts of an expression; longer ones are followed no more
_WIDE = 1 << 63  # ints beyond are constants
#: What stands for numbers that are not fixed.
SYMBOLIC: Mapping[type, type] = {SymInt: int, SymFloat: float, SymBool: bool}


def policy(session: Session, t: Any, source: Source) -> Dims | None:
    """Which sizes of an outside tensor are symbols; None: all are fixed.

    Marks on the tensor come first. Then `dynamic`: True makes all symbols but those of parameters
    and of what modules hold, False none, and None those that were seen to change.
    """
    options = session.options
    if options.dynamic is False or session.fixed:
        return None
    policies: dict[int, str] = {}
    own = type(t).__name__ == "Parameter" or session.modules.owns(source)
    if options.dynamic and not own:
        policies = dict.fromkeys(range(t.dim()), "duck")
    elif options.sizes is not None:
        policies = dict.fromkeys(_changed(options.sizes, source.text(), t), "own")
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


class NumberInfo:
    """A symbolic number for one from outside, as an input of the graph."""

    __slots__ = ("fake", "node", "source")

    def __init__(self, number: SymInt | SymFloat, source: Source) -> None:
        self.fake = number
        self.source = source
        self.node: Any = None


def number(session: Session, value: int | float, source: Source) -> Any:
    """A symbolic number for one from outside; None: it is a constant.

    As with sizes: with `dynamic=True` each is one, without it those that were seen to change. Ints
    that modules hold, and globals, are constants; such floats are symbols once they change.
    """
    options = session.options
    floating = type(value) is float
    if options.dynamic is False or (floating and not options.floats):
        return None
    path = list(source.path())
    own = not isinstance(path[0], LocalSource) or any(map(session.modules.owns, path))
    if own and not floating:
        return None
    if own or not options.dynamic:
        if options.sizes is None:
            return None
        seen = options.sizes.setdefault(_name_of(source), [value])
        if seen[0] != value:
            seen[0] = None
        if seen[0] is not None:
            return None
    if not math.isfinite(value) if floating else abs(value) >= _WIDE:
        return None
    known = session.numbers.get(source)
    if known is None:
        env, place = session.shape_env, (source, "", 0)
        made: Any = (
            SymFloat(SymNode(env, "float", env.given_float(value, place)))
            if floating
            else sym_int(env, env.given(int(value), place))
        )
        known = session.numbers[source] = NumberInfo(made, source)
    return known.fake


def held(session: Session, info: Any) -> Any:
    """The int that an outside tensor of one number holds, as a symbolic number from outside; None
    where it is none, or was written since."""
    t = info.fake
    if (
        info.real is None
        or info.source is None
        or info.made_of is not None
        or t.dim()
        or t.dtype.is_floating_point
        or t.dtype.is_complex
        or t.dtype.name == "bool"
        or t.device.type != "cpu"
        or t._version  # it, or what shares its bytes, was written
    ):
        return None
    if not session.read_inputs:
        session.inputs_read = True
        return None
    source = CallSource(info.source, "item")
    known = session.numbers.get(source)
    if known is None:
        env = session.shape_env
        made: Any = sym_int(env, env.given(info.real.item(), (source, "", 0)))
        known = session.numbers[source] = NumberInfo(made, source)
    return known.fake


def stays(session: Session, value: tuple[Any, ...], source: Source) -> bool:
    """Whether a tuple of constants is one itself: unless its floats were seen to change."""
    seen, dynamic = session.options.sizes, session.options.dynamic
    floats = session.options.floats and any(type(v) is float for v in value)
    if not floats or dynamic is False or (seen is None and not dynamic):
        return True
    if dynamic:
        return False
    assert seen is not None
    known = seen.setdefault(f"tuple {source.text()}", [value])
    if known[0] is not None and known[0] != value:
        for i, item in enumerate(known[0]):
            seen.setdefault(_name_of(ItemSource(source, i)), [item])
        known[0] = None
    return known[0] is not None


def _name_of(source: Source) -> str:
    """Under what a number is noted that was seen there."""
    return f"number {source.text()}"


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


def numbers(v: Any, depth: int = 0) -> Any:
    """The value with every symbolic number as the number that it is now, which fixes it."""
    kind = type(v)
    if kind in SYMBOLIC:
        return SYMBOLIC[kind](v)
    if kind is Size:
        return Size(map(numbers, v))
    if depth > 20 or not isinstance(v, (list, tuple, dict, set, frozenset, collections.deque)):
        return v
    if isinstance(v, dict):
        found = {k: numbers(x, depth + 1) for k, x in v.items()}
        if all(found[k] is x for k, x in v.items()) and not any(map(is_symbolic, v)):
            return v
        if kind is dict:
            return {numbers(k): x for k, x in found.items()}
        made = copy.copy(v)
        dict.update(made, found)
        return made
    items = [numbers(x, depth + 1) for x in v]
    if all(a is b for a, b in zip(items, v, strict=True)):
        return v
    return kind(*items) if hasattr(v, "_fields") else kind(items)


# ---- guards ----


def _place(source: Source, what: str, i: int) -> Source:
    """Where a size, a stride or (for no `what`) a number itself stands."""
    return source if not what else ItemSource(CallSource(source, what), i)


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


def bounded(session: Session, v: Any) -> Any:
    """A symbolic number, or the number that it is now where its expression grew too long: then the
    numbers from outside that are in it are fixed."""
    longest = session.longest // 100 or _LONG
    if _length(v.node.value, longest) > 0:  # as it was written: what is known by now is not put in
        return v
    names = symbols_in(v)
    for info in session.numbers.values():
        if not names.isdisjoint(symbols_in(info.fake)):
            numbers(info.fake)
    return numbers(v)


def _length(e: Any, left: int) -> int:
    """What is left of a number of parts when those of an expression are taken away."""
    if isinstance(e, Expr):
        for monomial in e.terms:
            for atom, _ in monomial:
                left -= 1
                left = _lengths(atom.args, left)
    elif isinstance(e, Real):
        left = _lengths(e.args, left)
    elif isinstance(e, Condition):
        left = _lengths((*e.sides, *e.parts), left)
    return left


def _lengths(parts: tuple[Any, ...], left: int) -> int:
    for part in parts:
        if left > 0:
            left = _length(part, left - 1)
    return left


def symbols_in(v: Any) -> frozenset[str]:
    """The symbols of a symbolic number's expression."""
    found: frozenset[str] = getattr(expression_of(v), "symbols", frozenset())
    return found
