"""Compiled is no further from the float64 truth than eager, and bit-equal where asked."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

SEEDS = range(12)
Step = Callable[[nn.Module, Any, Any], Any]


def _mixed(model: nn.Module, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.mse_loss(model(x).float(), y)


def _plain(model: nn.Module, x: Any, y: Any) -> Any:
    return F.mse_loss(model(x), y)


def _gradients(step: Step, model: nn.Module, x: Any, y: Any) -> list[Any]:
    """The loss and the gradients of a step."""
    model.zero_grad()
    loss = step(model, x, y)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def _ulp(scale: float) -> float:
    """A unit in the last place of a bfloat16 number of this size."""
    return math.ldexp(1.0, math.frexp(scale)[1] - 8)


def _compare(compiled: Step) -> tuple[list[tuple[float, float, float]], bool]:
    """Eager's error, the compiled one's, the scale, of each result; whether all are bit-equal."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    errors, same = [], True
    for seed in SEEDS:
        torch.manual_seed(seed)
        for layer in (model[0], model[2]):
            layer.reset_parameters()
        x, y = torch.randn(6, 4), torch.randn(6, 1)
        found = [_gradients(step, model, x, y) for step in (_mixed, compiled)]
        truth = _gradients(_plain, copy.deepcopy(model).double(), x.double(), y.double())
        for eager, ours, true in zip(*found, truth, strict=True):
            off = [(t.double() - true).abs().max().item() for t in (eager, ours)]
            errors.append((off[0], off[1], true.abs().max().item()))
            same = same and torch.equal(eager, ours)
    return errors, same


def test_mixed_precision_training_is_as_near_as_eager() -> None:
    """The bias's gradient is summed in the kernel that rounds what it sums: eager sums the rounded
    numbers, the kernel the ones before, so the two differ, and the kernel is no further off."""
    errors, same = _compare(torch.compile(_mixed, fullgraph=True))
    assert not same
    for eager, ours, scale in errors:
        assert ours <= max(eager, 2 * _ulp(scale))
    eager, ours = (math.sqrt(sum((e[k] / e[2]) ** 2 for e in errors)) for k in (0, 1))
    assert ours <= eager


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_bit_equal_where_asked(backend: str) -> None:
    options = {"emulate_precision_casts": True} if backend == "inductor" else None
    compiled = torch.compile(_mixed, fullgraph=True, backend=backend, options=options)
    assert _compare(compiled)[1]


def test_rows_between_kernels_are_kept_in_float32() -> None:
    """Sums of the rows that cancel in what the next kernel does with them."""

    def spread(x: Any) -> Any:
        return ((x * 0.1).cos() * 64).sum(1).sub(446).mul(3).mean()

    compiled = torch.compile(spread, fullgraph=True)
    for seed in SEEDS:
        torch.manual_seed(seed)
        x = torch.randn(9, 7).bfloat16()
        true = spread(x.double()).item()
        assert abs(compiled(x).item() - true) <= _ulp(true)
