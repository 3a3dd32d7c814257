"""`while_loop`, `scan`, `map` as operators: eager, traced, functional, with gradients."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._higher_order_ops import map as map_
from flambeau._higher_order_ops import scan, while_loop
from flambeau._src.compiler.aot import aot_function
from flambeau.fx.experimental.proxy_tensor import make_fx

x = torch.arange(6.0).reshape(2, 3) / 4
c = torch.tensor([1.0, -2.0, 0.5])


def running(c: Any, x: Any) -> Any:
    return scan(lambda a, b: (a * b.cos(), a + b), c, x)


def running_by_hand(c: Any, x: Any) -> Any:
    ys = []
    for row in x:
        ys.append(c + row)
        c = c * row.cos()
    return c, torch.stack(ys)


def powers(c: Any, x: Any) -> Any:
    i = torch.tensor(0)
    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * c.sin()), (i, x[0]))[1]


def each(c: Any, x: Any) -> Any:
    return map_(lambda row, c: (row * c.exp()).cumsum(0), x, c)


def each_by_hand(c: Any, x: Any) -> Any:
    return torch.stack([(row * c.exp()).cumsum(0) for row in x])


PAIRS = [
    (running, running_by_hand),
    (each, each_by_hand),
    (powers, lambda c, x: x[0] * c.sin() * c.sin() * c.sin()),
]


def _flat(v: Any) -> list[Any]:
    return list(v) if isinstance(v, tuple) else [v]


def _grads(fn: Any) -> list[Any]:
    a, b = c.clone().requires_grad_(), x.clone().requires_grad_()
    outs = _flat(fn(a, b))
    total = sum(o.sin().sum() for o in outs)
    return [*outs, *torch.autograd.grad(total, (a, b))]


@pytest.mark.parametrize(("fn", "by_hand"), PAIRS)
def test_eager(fn: Any, by_hand: Any) -> None:
    for got, want in zip(_grads(fn), _grads(by_hand), strict=True):
        assert torch.allclose(got, want)


def test_which_way() -> None:
    carry, ys = scan(lambda a, b: (a + b, a * 1), torch.zeros(2), x, dim=1, reverse=True)
    assert torch.equal(carry, x.sum(1)) and ys.shape == (3, 2)
    assert torch.equal(ys[2], torch.zeros(2)) and torch.equal(ys[0], x[:, 2] + x[:, 1])


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize(("fn", "by_hand"), PAIRS[:2])
def test_traced(fn: Any, by_hand: Any, mode: str) -> None:
    gm = make_fx(fn, tracing_mode=mode)(c, x)
    names = [n.target.name() for n in gm.graph.nodes if hasattr(n.target, "name")]
    assert {"scan", "map_impl"} & set(names)
    other = torch.randn(2, 3)
    for got, want in zip(_flat(gm(c, other)), _flat(by_hand(c, other)), strict=True):
        assert torch.allclose(got, want)


def test_traced_while_loop() -> None:
    def f(i: Any, v: Any, s: Any) -> Any:
        return while_loop(
            lambda i, v, s: i < 3, lambda i, v, s: (i + 1, v * s, s.clone()), (i, v, s)
        )

    gm = make_fx(f)(torch.tensor(0), x, c)
    assert torch.equal(gm(torch.tensor(1), x, c)[1], x * c * c)
    assert torch.equal(gm(torch.tensor(5), x, c)[1], x)


@pytest.mark.parametrize(("fn", "by_hand"), PAIRS[:2])
def test_functional(fn: Any, by_hand: Any) -> None:
    for got, want in zip(
        _flat(torch.func.functionalize(fn)(c, x)), _flat(by_hand(c, x)), strict=True
    ):
        assert torch.allclose(got, want)


@pytest.mark.parametrize(("fn", "by_hand"), PAIRS[:2])
def test_gradients_compiled(fn: Any, by_hand: Any) -> None:
    for got, want in zip(_grads(aot_function(fn)), _grads(by_hand), strict=True):
        assert torch.allclose(got, want)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: scan(3, c, x), "Combine_fn must be a callable, but got 3"),
        (lambda: scan(running, [], x), r"scan\(\) operator requires init leaves."),
        (lambda: scan(running, 3, x), "All init leaves must be a Tensor but got 3"),
        (lambda: scan(running, c, x[:0]), "scan dimension > 0"),
        (lambda: scan(lambda a, b: a, c, x), "combine_fn must return a tuple"),
        (lambda: map_(each, 3), r"Mapped xs can only consist of tensors. Got xs \[3\]."),
        (lambda: map_(each, [x, x[:1]]), "Leading dimensions of mapped xs must be consistent."),
        (lambda: map_(each, x[:0]), "Leading dimensions of mapped xs cannot be 0."),
        (lambda: while_loop(3, each, (x,)), "Expect cond_fn and body_fn to be callable."),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call()
