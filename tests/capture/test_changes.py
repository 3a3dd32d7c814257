"""A second call that differs in one thing that the first one's graph relied on, for every kind of
guard: it gives what eager gives (and without that guard it does not: `test_faults.py`)."""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.capture.guards import Kind

nn = torch.nn


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def x(n: int = 4) -> Any:
    return torch.arange(float(n))


@dataclass
class Case:
    """`function` called with `first()` and then with `second()`, inside `around` then."""

    kind: Kind
    function: Callable[..., Any]
    first: Callable[[], tuple[Any, ...]]
    second: Callable[[], tuple[Any, ...]]
    around: Callable[[], Any] = contextlib.nullcontext
    options: dict[str, Any] = field(default_factory=dict)


class Two:
    factor = 2
    items: Any = None


class Three:
    factor = 3


def sized(t: Any) -> Any:
    return t + 1 if t.shape[0] > 5 else t - 1


def twice(t: Any) -> Any:
    return t * 2


def thrice(t: Any) -> Any:
    return t * 3


class Layer(nn.Module):
    """A number that the forward reads."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, t: Any) -> Any:
        return t * self.scale


LAYER = Layer(2.0)
OWNED = Two()


class Slot:
    """A place that may be empty."""

    __slots__ = ("factor",)


SLOT = Slot()


def filled() -> tuple[Any, ...]:
    SLOT.factor = 5
    return x(), SLOT


def emptied() -> tuple[Any, ...]:
    if hasattr(SLOT, "factor"):
        del SLOT.factor
    return x(), SLOT


def owner() -> tuple[Any, ...]:
    vars(OWNED).clear()
    return x(), OWNED


def owner_changed() -> tuple[Any, ...]:
    OWNED.factor = 7
    return x(), OWNED


def layer(scale: float) -> Callable[[], tuple[Any, ...]]:
    def call() -> tuple[Any, ...]:
        LAYER.scale = scale
        return x(), LAYER

    return call


def one_twice() -> tuple[Any, ...]:
    a = x()
    return a, a


def same(a: Any, b: Any) -> Any:
    return a + b if a is b else a - b


CASES = [
    Case(
        Kind.TYPE, lambda t, row: t * 2 if isinstance(row, list) else t * 3, lambda: (x(), [1]),
        lambda: (x(), (1,)),
    ),
    Case(
        Kind.ID, lambda t, kind: t + (1 if isinstance(OWNED, kind) else 2), lambda: (x(), Two),
        lambda: (x(), Three),
    ),
    Case(Kind.EQUALS, lambda t, n: t * n, lambda: (x(), 2), lambda: (x(), 3)),
    Case(
        Kind.EQUALS, lambda t, r: (t * 2, r.stop), lambda: (x(), range(0, 3, 2)),
        lambda: (x(), range(0, 4, 2)),
    ),
    Case(
        Kind.EQUALS, lambda t, s: (t * 2, repr(s)), lambda: (x(), (frozenset({1}),)),
        lambda: (x(), (frozenset({1.0}),)),
    ),
    Case(
        Kind.PYTHON, lambda t, s: (t * 2, s[-1]), lambda: (x(), [0.0] * 40),
        lambda: (x(), [-0.0] * 40),
    ),
    Case(
        Kind.NONE, lambda t, u: t + 1 if u is None else t + u, lambda: (x(), None),
        lambda: (x(), x()),
    ),
    Case(
        Kind.LENGTH, lambda parts: sum(p * 2 for p in parts), lambda: ([x(), x()],),
        lambda: ([x(), x(), x()],),
    ),
    Case(
        Kind.KEYS, lambda named: sum(t * len(k) for k, t in named.items()),
        lambda: ({"a": x()},), lambda: ({"a": x(), "bb": x()},),
    ),
    Case(Kind.NO_KEY, lambda t, o: t * o.factor, owner, owner_changed),
    Case(Kind.NO_ATTR, lambda t, o: t * getattr(o, "factor", 2), emptied, filled),
    Case(
        Kind.TENSOR, lambda t: t + 1 if t.dtype == torch.float32 else t - 1, lambda: (x(),),
        lambda: (x().double(),),
    ),
    Case(Kind.MODULE_TREE, lambda t, m: m(t), layer(2.0), layer(3.0)),
    Case(Kind.FUNCTION, lambda t, f: f(t), lambda: (x(), twice), lambda: (x(), thrice)),
    Case(Kind.SAME, same, one_twice, lambda: (x(), x())),
    Case(Kind.NOT_SAME, same, lambda: (x(), x()), one_twice),
    Case(
        Kind.STATE, lambda t: t * 2 if torch.is_grad_enabled() else t * 3, lambda: (x(),),
        lambda: (x(),), torch.no_grad,
    ),
    Case(
        Kind.SHAPE, sized, lambda: (x(7),), lambda: (x(3),), options={"dynamic": True},
    ),
    Case(
        Kind.PYTHON, lambda t, names: t * 2 if "a" in names else t * 3, lambda: (x(), {"a", "b"}),
        lambda: (x(), {"c", "b"}),
    ),
]  # fmt: skip


def text(outcome: Callable[[], Any]) -> str:
    """What a call gives, or how it fails, with the tensors that it changed."""
    try:
        return str(outcome())
    except Exception as error:
        return repr(error)


def differs(case: Case) -> bool:
    """Whether the second call gives something else than eager does."""
    torch._dynamo.reset()
    compiled = torch.compile(case.function, backend="eager", **case.options)
    assert text(lambda: compiled(*case.first())) == text(lambda: case.function(*case.first()))
    case.first()  # the state that it leaves
    with case.around():
        found = text(lambda: compiled(*case.second()))
        return found != text(lambda: case.function(*case.second()))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.kind.name)
def test_what_changed_is_seen(case: Case) -> None:
    assert not differs(case)


def test_iterators_go_on_call_by_call() -> None:
    """Where an iterator is, is no number that may become a symbol."""
    owner = Two()
    owner.items = iter([10, 20, 30, 40, 50])
    compiled = torch.compile(lambda t, o: t + next(o.items), backend="eager")
    assert [int(compiled(torch.zeros(()), owner)) for _ in range(5)] == [10, 20, 30, 40, 50]


def test_every_kind_that_captures_make_has_a_case() -> None:
    kinds = set()
    for case in CASES:
        torch._dynamo.reset()
        compiled = torch.compile(case.function, backend="eager", **case.options)
        compiled(*case.first())
        kinds |= {guard.kind for entry in compiled.compiler().entries for guard in entry.guards}
    assert kinds == {case.kind for case in CASES}


def test_saying_why_runs_no_method_of_an_object() -> None:
    asked = []

    class Box:
        def __repr__(self) -> str:
            asked.append("repr")
            return "Box()"

    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

        def __repr__(self) -> str:
            asked.append("repr of a member")
            return "colour"

    def f(x: Any, v: Any) -> Any:
        if isinstance(v, dict):
            return x + sum(v.values())
        return x + 1 if v == 3 else x + 2

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="eager")
    x = torch.ones(2)
    box = Box()
    red, blue = Colour.RED, Colour.BLUE
    kinds = (3, box, "k", 3.5, Box(), red, blue, {box: 1}, {red: 1}, {Box(): 1, (red, box): 2})
    wanted = [torch.full((2,), float(n)) for n in (2, 3, 3, 3, 3, 3, 3, 2, 2, 4)]
    asked.clear()
    for v, want in zip(kinds, wanted, strict=True):
        assert torch.equal(compiled(x, v), want)
    assert len(compiled.compiler().entries) > 4
    assert not asked


_ADDED = [1]


@functools.lru_cache
def _found(name: str) -> bool:
    _ADDED[0] += 10
    return importlib.util.find_spec(name) is not None  # what no capture follows


def test_what_a_cache_holds_is_a_constant_until_it_is_cleared() -> None:
    graphs: list[object] = []

    def back_end(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def f(x):
        return x + 1 if _found("json") else x - 1

    _found.cache_clear()
    _found("json")
    x = torch.ones(2)
    compiled = torch.compile(f, backend=back_end, fullgraph=True)
    before = _ADDED[0]
    for _ in range(3):
        assert torch.equal(compiled(x), f(x))
    assert len(graphs) == 1
    assert _ADDED[0] == before
    _found.cache_clear()
    assert torch.equal(compiled(x), x + 1)
    assert _ADDED[0] == before + 10, "who asks first runs the function, as in eager"
    assert _found.cache_info().currsize == 1
