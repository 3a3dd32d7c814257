"""Gradients where a function bends: which side counts there is a convention, PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import pytest

import flambeau as torch
from flambeau.nn import functional as F


def test_prelu_bends_at_zero_for_the_second_derivative() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0]).requires_grad_()
    slope, g = torch.tensor(0.25), torch.ones(7).requires_grad_()
    (first,) = torch.autograd.grad(F.prelu(x, slope), x, g, create_graph=True)
    assert first.tolist() == [0.25, 1, 0.25, 0.25, 0.25, 1, 0.25]
    of_x, of_g = torch.autograd.grad(first, [x, g], torch.full((7,), 2.0))
    assert of_x.tolist() == [0] * 7
    assert of_g.tolist() == [0.5, 2, 0.5, 2, 2, 2, 0.5]


@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_nothing_pulls_on_a_point_at_the_border(padding: str) -> None:
    image = torch.arange(1.0, 10).reshape(1, 1, 3, 3)
    points = torch.tensor([1.0, 0, -1, 0, 0, 1, 0.5, 0.5]).reshape(1, 1, 4, 2).requires_grad_()
    out = F.grid_sample(image, points, "bilinear", padding, align_corners=True)
    (g,) = torch.autograd.grad(out.sum(), points)
    assert g.flatten().tolist() == [0, 3, 0, 3, 1, 0, 1, 3]


@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_a_point_that_is_nan_reads_the_first_pixel(padding: str) -> None:
    image = torch.arange(1.0, 10).reshape(1, 1, 3, 3)
    points = torch.tensor([math.nan, 0.0]).reshape(1, 1, 1, 2)
    for mode in ("bilinear", "nearest"):
        assert F.grid_sample(image, points, mode, padding, align_corners=False).item() == 4


def test_second_gradients_by_the_nearest_pixel_are_zeros_and_not_undefined() -> None:
    image = torch.rand(1, 1, 3, 3).requires_grad_()
    points = torch.zeros(1, 1, 2, 2).requires_grad_()
    out = F.grid_sample(image, points, "nearest", align_corners=False)
    first = torch.autograd.grad(out.sum(), [image, points], create_graph=True)
    (g,) = torch.autograd.grad([t.sum() for t in first], points)
    assert g.tolist() == torch.zeros(1, 1, 2, 2).tolist()


def test_soft_margin_keeps_its_curvature_far_from_zero() -> None:
    x = torch.tensor([9.0, -9.0, 30.0]).requires_grad_()
    (first,) = torch.autograd.grad(
        F.soft_margin_loss(x, torch.ones(3), reduction="sum"), x, create_graph=True
    )
    (g,) = torch.autograd.grad(first.sum(), x)
    wanted = [math.exp(-abs(v)) / (1 + math.exp(-abs(v))) ** 2 for v in (9, 9, 30)]
    assert all(abs(a - b) <= 1e-6 * b for a, b in zip(g.tolist(), wanted, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_second_gradients_of_16_bits_are_rounded_once(dtype: torch.dtype) -> None:
    """Of a loss whose two terms cancel, and of one that is a quotient of squares."""
    torch.manual_seed(0)

    def second(loss: Any, x: Any) -> Any:
        x = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(loss(x), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0].double()

    ulp = torch.finfo(dtype).eps
    target = torch.rand(50).to(dtype)

    def both(x: Any) -> Any:
        return F.logsigmoid(x).sum() - F.logsigmoid(-x).sum()

    def entropy(x: Any) -> Any:
        return F.binary_cross_entropy(x, target.to(x.dtype), reduction="sum")

    for loss, x in ((both, torch.randn(50) - 3), (entropy, torch.rand(50) * 0.8 + 0.1)):
        x = x.to(dtype)
        true = second(loss, x.double())
        bound = ulp * (true.abs() + 0.25 * (loss is both))
        assert ((second(loss, x) - true).abs() <= bound).all()


NAN, INF = math.nan, math.inf
#: function, arguments, first gradients, and the second by the argument and by the cotangent: of
#: PyTorch, for cotangents of 1.5 and 1.25
SPECIAL = {
    "acosh": (torch.acosh, [-1, INF], [INF, 0], [INF, NAN], [INF, 0]),
    "digamma": (torch.digamma, [INF, 0, -INF], [0, INF, NAN], [NAN, -INF, -INF], [0, INF, NAN]),
    "lgamma": (torch.lgamma, [INF, 0], [INF, -INF], [0, INF], [INF, -INF]),
    "logit": (torch.logit, [0, 1, -1, 0.5], [INF, INF, NAN, 6], [NAN, NAN, 0, 0], [INF, INF, 0, 5]),
    "mish": (F.mish, [90, 0], [1.5, 0.9], [NAN, 1.2], [1.25, 0.75]),
    "sinc": (torch.sinc, [0, INF], [0, NAN], [NAN, NAN], [NAN, NAN]),
    "square": (torch.square, [NAN, INF, 0], [NAN, INF, 0], [3.75, 3.75, 3.75], [NAN, INF, 0]),
    "elu": (F.elu, [0, INF], [1.5, 1.5], [0, 0], [1.25, 1.25]),
    "logsigmoid": (F.logsigmoid, [30, -INF], [1.4036e-13, 1.5], [0, 0], [1.1697e-13, 1.25]),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_gradients_at_the_ends_of_the_domain(name: str) -> None:
    fn, points, *wanted = SPECIAL[name]
    x = torch.tensor(points, dtype=torch.float32).requires_grad_()
    g = torch.full_like(x, 1.5).requires_grad_()
    (first,) = torch.autograd.grad(fn(x), x, g, create_graph=True)
    second = torch.autograd.grad(first, [x, g], torch.full_like(x, 1.25))
    for found, numbers in zip((first, *second), wanted, strict=True):
        assert found.tolist() == pytest.approx(numbers, rel=1e-4, abs=1e-30, nan_ok=True)


def test_anything_to_the_power_of_zero_is_one() -> None:
    assert (torch.tensor([NAN, INF, 0.0]) ** 0).tolist() == [1, 1, 1]


def test_fmax_of_bools_is_their_or() -> None:
    a, b = torch.tensor([True, False]), torch.tensor([False, False])
    assert torch.fmax(a, b).tolist() == [True, False]


def test_strides_of_what_has_a_size_of_one_or_none() -> None:
    odd = torch.empty_strided((1, 3, 4), (1, 4, 1))
    for _ in range(3):  # by Python, by its repetition, by C
        assert F.hardtanh(odd).stride() == F.relu6(odd).stride() == (1, 4, 1)
        assert torch.isinf(torch.empty(3, 0, 1, 0)).stride() == (0, 0, 0, 1)
        assert F.logsigmoid(torch.empty(2, 3).T).stride() == (2, 1)
    out = torch.empty(0)
    torch.conj_physical(torch.empty(4, 6)[:, ::2], out=out)
    assert out.stride() == (3, 1)


def test_threshold_writes_to_expanded_tensors() -> None:
    assert F.threshold_(torch.tensor([0.5]).expand(3), 1, -9).tolist() == [-9, -9, -9]


def test_the_dtype_of_the_target_precedes_that_of_the_kernel() -> None:
    with pytest.raises(RuntimeError, match="result type Long can't be cast"):
        torch.ones(3, dtype=torch.bool).hypot_(torch.ones(3, dtype=torch.int64))


def test_the_slope_of_dropped_integers_is_a_float() -> None:
    mask = torch.tensor([True, False])
    for dtype in (torch.bool, torch.int64):
        out = torch.ops.aten.native_dropout_backward(torch.ones(2).to(dtype), mask, 2.0)
        assert out.dtype is torch.float32 and out.tolist() == [2, 0]
