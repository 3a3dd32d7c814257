"""Ints that vary: after another number was seen they are symbols, whatever they are used for."""

from __future__ import annotations

import collections
import enum
import math
from typing import Any, NamedTuple

import pytest

import flambeau as torch
from flambeau._dynamo.testing import CompileCounterWithBackend
from tests.capture.comparing import differences

TABLE = {i: i * 10 for i in range(-5, 20)}
WORDS = list("abcdefghijklm")


class Counter:
    def __init__(self, n: Any) -> None:
        self.n = n


def _arithmetic(x: Any, n: Any) -> Any:
    return x * n, divmod(n, 3), -n, abs(n), n**2, n << 1, n & 1, n / 2, 0 < n < 4, n == 3


def _text(x: Any, n: Any) -> Any:
    inside = {n: [n]}, collections.Counter([n]), str([[n]]), ",".join(map(str, [n, n]))
    return x + 1, f"{n:03d} {n!r} {inside}", f"{[n]} %s" % ((n,),), str(n), "a" * n


def _as_a_key(x: Any, n: Any) -> Any:
    return x * TABLE[n], WORDS[n], WORDS[:n], n in {3, 4}, {(n, 1): 2}[(n, 1)], hash((n, n)), {n: x}


def _types(x: Any, n: Any) -> Any:
    return x + 1, type(n) is int, isinstance(n, int), n.__class__, n.bit_length(), n.__index__(), ~n


def _library(x: Any, n: Any) -> Any:
    return (
        math.sqrt(n),
        max(n, 2),
        sorted([n, 2]),
        sum([n, 1]),
        list(range(n)),
        round(n * 1.5),
        x * 1,
    )


def _shapes(x: Any, n: Any) -> Any:
    return torch.ones(n, 2), x[:, :n] * 2, x.repeat(n, 1), torch.full((n,), n), x.new_zeros(n, n)


def _values(x: Any, n: Any) -> Any:
    return x + torch.scalar_tensor(n), x.clamp(n, n + 2), torch.add(x, x, alpha=n), (x == n).sum()


def _branches(x: Any, n: Any) -> Any:
    match n:
        case 3:
            return x * 3
        case 4 | 5:
            return x * n + 1
    return x if n else -x


def _effects(x: Any, n: Any) -> Any:
    c = Counter(n)
    c.n += n
    seen = [n, c.n]
    return x * c.n, seen, c


# fn, and in how many graphs: text, keys and lengths are fixed for each number anew.
CASES = {
    _arithmetic: 2, _text: 4, _as_a_key: 4, _types: 4, _library: 4, _shapes: 2, _values: 2,
    _branches: 3, _effects: 2,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
def test_varying(fn: Any, backend: str) -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend(backend)
    compiled = torch.compile(fn, backend=counted, fullgraph=True)
    x = torch.arange(12.0).reshape(3, 4)
    for n in (3, 4, 5, 7):
        found = differences(fn(x, n), compiled(x, n), "value", {"rounding": 1e-6})
        assert not found, found
    assert counted.frame_count == CASES[fn]


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_when(dynamic: Any) -> None:
    """0, 1 and negative numbers are like others; a bool is none, and no other type either."""
    torch._dynamo.reset()
    counted = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda x, n: x * n, backend=counted, dynamic=dynamic)
    x = torch.arange(3)
    for n in (3, 4, 0, 1, -2, 3):
        assert torch.equal(compiled(x, n), x * n)
    assert counted.frame_count == {None: 2, True: 1, False: 5}[dynamic]
    for n in (True, 2.5):
        assert torch.equal(compiled(x, n), x * n) and compiled(x, n).dtype is (x * n).dtype
    assert counted.frame_count == {None: 4, True: 3, False: 7}[dynamic]


def test_what_a_module_holds_is_constant() -> None:
    torch._dynamo.reset()
    m = torch.nn.Module()
    counted = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda m, d, x: x * m.n + d["n"], backend=counted)
    for n in (3, 4, 5):
        m.n = n
        assert compiled(m, {"n": 2}, torch.ones(1)).item() == n + 2
    assert counted.frame_count == 3
    for n in (6, 7):
        assert compiled(m, {"n": n}, torch.ones(1)).item() == 5 + n
    assert counted.frame_count == 4


OUTPUTS = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}


def _item(x: Any, n: Any) -> Any:
    k = n.item()
    torch._check(k >= 2)
    torch._check(k <= x.shape[0], lambda: f"{k} is too large")
    return torch.zeros(k) + 1, x[:k] * k, k + 1, n.sum().item()


def _lists(x: Any, n: Any) -> Any:
    a, b = torch.stack([n, n + 1]).tolist()
    torch._check(a >= 0)
    torch._check(a <= 6)
    return x[:a] * b, [a, b]


def _found(x: Any, n: Any) -> Any:
    mask = x > n
    return (
        mask.nonzero()[:, 0] * 2,
        x[mask].sum(),
        torch.masked_select(x, mask).sin(),
        torch.unique(x * 0),
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [_item, _lists, _found])
def test_numbers_that_only_running_tells(fn: Any, backend: str) -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend(backend)
    x = torch.arange(6.0)
    with torch._dynamo.config.patch(OUTPUTS):
        compiled = torch.compile(fn, backend=counted, fullgraph=True)
        for n in (3, 2, 4):
            found = differences(
                fn(x, torch.tensor(n)), compiled(x, torch.tensor(n)), "value", {"rounding": 1e-6}
            )
            assert not found, found
        assert counted.frame_count == 1
        if fn is _item:
            with pytest.raises(RuntimeError):
                compiled(x, torch.tensor(1))


def test_a_branch_on_such_a_number_breaks() -> None:
    def f(x: Any, n: Any) -> Any:  # of an input itself it would be guarded
        return x * 2 if (n + 0).item() > 2 else x * 3

    torch._dynamo.reset()
    x = torch.arange(6.0)
    with torch._dynamo.config.patch(OUTPUTS):
        compiled = torch.compile(f, backend="eager")
        for n in (1, 3):
            assert torch.equal(compiled(x, torch.tensor(n)), f(x, torch.tensor(n)))
        strict = torch.compile(f, backend="eager", fullgraph=True)
        with pytest.raises(torch._dynamo.exc.Unsupported, match="data-dependent"):
            strict(x, torch.tensor(1))


class _Pair(NamedTuple):
    first: int
    second: int


def _texts(x: Any, pair: Any, at: int) -> Any:
    pattern = "%r"
    return x + at, pair[0], f"{pair}", "%r %s" % pair, pattern.__mod__(at), repr(pair)  # noqa: UP031  (what is tested)


def _shifted(x: Any, pair: Any, at: int) -> Any:
    parent = (at - 1) >> 1
    item = [10, 20, 30, 40][parent]  # which fixes `at`
    torch._dynamo.graph_break()
    return x + item, parent


@pytest.mark.parametrize("fn", [_texts, _shifted])
def test_numbers_that_change_are_numbers_to_native_code(fn: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend="eager")
    for n in (5, 6, 7, 3):
        args = torch.arange(6.0), _Pair(n, 2), n
        assert not (found := differences(fn(*args), compiled(*args))), found
    assert not [n for e in compiled.compiler().skipped for n in e.contained]


def test_numbers_from_two_places_may_be_one_object() -> None:
    def f(x: Any, a: int, b: int) -> Any:
        return x + a, a is b

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="eager")
    x = torch.ones(2)
    for n in (3, 4, 5):
        assert compiled(x, n, n)[1] is True
        assert compiled(x, n, n + 1)[1] is False


class _Kinds(enum.Flag):
    A = 1
    B = 2
    C = 4 | B


def test_members_of_enumerations_are_asked_for_with_numbers() -> None:
    """Native code would see a symbol, which is no int to it."""

    def f(x, v):
        try:
            return x + 1, _Kinds(v)
        except ValueError as e:
            return x - 1, str(e)

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="eager")
    for v in (7, 42, 43, 3, 2, 44):
        assert compiled(torch.ones(2), v)[1] == f(torch.ones(2), v)[1]
