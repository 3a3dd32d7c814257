"""The backward pass in C against the engine in Python, which is its reference: bit by bit."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import flambeau as torch
from flambeau._src import _native
from tests.ops import battery

OPS = [op for op in battery.tested_ops() if not op.decl.random]


@contextmanager
def python_engine() -> Iterator[None]:
    """No node counts as plain, so that every pass is the Python engine's."""
    kinds = _native.set_op_types(())
    try:
        yield
    finally:
        _native.set_op_types(kinds)


def other_values(t: Any) -> Any:
    """The same numbers in another order (so that they stay in the operator's domain)."""
    if not t.dtype.is_floating_point or not t.dim():
        return t
    turned = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
    return turned.copy_(t.detach().contiguous().flatten().flip(0).reshape(t.shape))


def gradients(op: Any, sample: Any, tensors: list[Any], scale: float) -> list[Any]:
    leaves = []
    for t in tensors:
        leaf = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t.detach())
        leaves.append(leaf.requires_grad_() if t.dtype.is_floating_point else leaf)
    s = battery.with_tensors(sample, leaves)
    result = battery.function_of(op)(*s.args, **s.kwargs)
    outs = [o for o in battery.outputs(result) if isinstance(o, torch.Tensor) and o.requires_grad]
    if not outs:
        return []
    given = [
        (torch.arange(o.numel(), dtype=torch.float64) * scale + 0.3)
        .cos()
        .to(o.dtype)
        .reshape(o.shape)
        for o in outs
    ]
    torch.autograd.backward(outs, given)
    return [leaf.grad for leaf in leaves]


def same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if a.dtype is not b.dtype or a.stride() != b.stride() or a.shape != b.shape:
        return False
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_every_operator(op: Any) -> None:
    """Recorded, then repeated with other values: as the Python engine gives it."""
    for sample in battery.samples_of(op, torch.float64):
        tensors = battery.tensors_in(sample)
        if any(t.dtype.is_complex for t in tensors):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            turned = [other_values(t) for t in tensors]
            for values, scale in ((tensors, 1.0), (turned, 2.0), (tensors, 3.0)):
                try:
                    found = gradients(op, sample, values, scale)
                except (RuntimeError, NotImplementedError):
                    with python_engine(), pytest.raises((RuntimeError, NotImplementedError)):
                        gradients(op, sample, values, scale)
                    break
                with python_engine():
                    expected = gradients(op, sample, values, scale)
                assert len(found) == len(expected)
                for a, b in zip(found, expected, strict=True):
                    assert same(a, b), (sample, scale)


def test_aliases_are_told_apart() -> None:
    """x * x and x * y have one geometry; the program of one is not the other's."""
    _native.forget_programs()
    x, y = (torch.rand(4, requires_grad=True) for _ in range(2))
    (x * x).sum().backward()
    x.grad = None
    (x * y).sum().backward()
    assert torch.equal(x.grad, y.detach()) and torch.equal(y.grad, x.detach())


def test_changed_values_are_seen() -> None:
    for _ in range(3):
        x = torch.rand(4, requires_grad=True)
        y = x * 2
        z = (y * y).sum()
        y.detach().add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()


def test_freed() -> None:
    for _ in range(3):
        x = torch.rand(4, requires_grad=True)
        z = (x * x).sum()
        z.backward(retain_graph=True)
        z.backward()
        assert torch.equal(x.grad, 4 * x.detach())
        with pytest.raises(RuntimeError, match="a second time"):
            z.backward()


def test_gradients_are_taken_or_copied() -> None:
    """A fresh gradient is taken; one that is shared, or laid out otherwise, is copied."""
    for _ in range(3):
        a, b = (torch.rand(3, requires_grad=True) for _ in range(2))
        (a + b).backward(given := torch.ones(3))
        assert a.grad is not given and b.grad is not given
        a.grad.add_(1)
        assert torch.equal(b.grad, torch.ones(3)) and torch.equal(given, torch.ones(3))
        c = torch.rand(3, 2, requires_grad=True)
        c.sum().backward()
        assert c.grad.is_contiguous() and c.grad.stride() == c.stride()
        first = c.grad
        (c * 3).sum().backward()
        assert c.grad is first and torch.equal(first, torch.full((3, 2), 4.0))


def test_order() -> None:
    """A node with several consumers runs once, when all of them have."""
    for _ in range(3):
        x = torch.rand(5, dtype=torch.float64, requires_grad=True)
        y = x.exp()
        parts = y.split(2)
        z = sum((p * p).sum() for p in parts) + (y * x).sum() + y[0] + x[1:3].prod()
        z.backward()
        found = x.grad.clone()
        x.grad = None
        with python_engine():
            y = x.exp()
            z = sum((p * p).sum() for p in y.split(2)) + (y * x).sum() + y[0] + x[1:3].prod()
            z.backward()
        assert torch.equal(found, x.grad)


def test_backward_inside_backward() -> None:
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                (y * y * g.detach()).sum().backward()
            return y.grad

    for _ in range(3):
        x = torch.rand(4, requires_grad=True)
        (Inner.apply(x * 2) * 3).sum().backward()
        assert torch.allclose(x.grad, 24 * x.detach())


def test_nothing_is_kept() -> None:
    """References and storages are as many after a thousand steps as after ten."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    x = torch.rand(3, 4)
    held: list[tuple[int, ...]] = []
    objects: list[int] = []
    for step in range(1000):
        model.zero_grad()
        loss = (model(x) ** 2).mean() + model(x).softmax(-1)[0, 0]
        loss.backward()
        if step in (10, 999):
            gc.collect()
            counts = [sys.getrefcount(x), *(sys.getrefcount(p) for p in model.parameters())]
            counts += [sys.getrefcount(p.grad) for p in model.parameters()]
            held.append((*counts, _native.memory_stats()["live_bytes"]))
            objects.append(len(gc.get_objects()))
    assert held[0] == held[1]
    assert objects[1] <= objects[0] + 200
