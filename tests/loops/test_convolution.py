"""Convolution's own kernels against NumPy in double: extents that fill no tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch

# x, w, padding, dilation
CASES = [
    ((4, 16, 16, 16), (16, 16, 3, 3), (1, 1), (1, 1)),
    ((3, 5, 8, 8), (17, 5, 3, 3), (1, 1), (1, 1)),
    ((2, 5, 9, 11), (29, 5, 2, 4), (0, 2), (1, 1)),
    ((2, 4, 12, 12), (6, 4, 3, 3), (2, 2), (2, 2)),
    ((1, 4, 30, 31), (45, 4, 3, 3), (5, 4), (1, 1)),
    ((2, 9, 40, 50), (13, 9, 3, 5), (0, 0), (3, 1)),
    ((1, 33, 4, 300), (5, 33, 1, 2), (0, 1), (1, 7)),
    ((2, 7, 3, 3), (8, 7, 3, 3), (0, 0), (1, 1)),
]
KINDS = {"float32": 2e-6, "float64": 1e-14}


def expected(x: Any, w: Any, g: Any, padding: Any, dilation: Any) -> list[Any]:
    """The output without a bias, and the gradients of x and w, tap by tap."""
    (p, q), (d, e) = padding, dilation
    wide = np.pad(x, ((0, 0), (0, 0), (p, p), (q, q)))
    high = wide.shape[2] - (w.shape[2] - 1) * d
    length = wide.shape[3] - (w.shape[3] - 1) * e
    out = np.zeros((x.shape[0], w.shape[0], high, length))
    gx, gw = np.zeros_like(wide), np.zeros_like(w)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            at = np.s_[:, :, i * d : i * d + high, j * e : j * e + length]
            out += np.einsum("nchw,fc->nfhw", wide[at], w[:, :, i, j])
            if g is not None:
                gx[at] += np.einsum("nfhw,fc->nchw", g, w[:, :, i, j])
                gw[:, :, i, j] = np.einsum("nfhw,nchw->fc", g, wide[at])
    inside = np.s_[:, :, p : p + x.shape[2], q : q + x.shape[3]]
    return [out, gx[inside], gw]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients(kind: str, case: Any) -> None:
    of_x, of_w, padding, dilation = case
    dtype = getattr(torch, kind)
    torch.manual_seed(2)
    x = torch.randn(of_x, dtype=dtype, requires_grad=True)
    w = torch.randn(of_w, dtype=dtype, requires_grad=True)
    b = torch.randn(of_w[0], dtype=dtype, requires_grad=True)
    out = torch.nn.functional.conv2d(x, w, b, padding=padding, dilation=dilation)
    g = torch.randn(out.shape, dtype=dtype)
    got = [out, *torch.autograd.grad(out, (x, w, b), g)]
    xs, ws, bs, gs = (t.detach().numpy().astype(np.float64) for t in (x, w, b, g))
    want = expected(xs, ws, gs, padding, dilation)
    want[0] += bs.reshape(1, -1, 1, 1)
    for a, e in zip(got, [*want, gs.sum((0, 2, 3))], strict=True):
        error = np.abs(a.detach().numpy() - e).max() / max(1.0, np.abs(e).max())
        assert error < KINDS[kind]


def test_one_dimension_is_a_line() -> None:
    x = torch.randn(2, 12, 70, requires_grad=True)
    w = torch.randn(9, 12, 4, requires_grad=True)
    out = torch.nn.functional.conv1d(x, w, padding=2)
    g = torch.randn(out.shape)
    got = [out, *torch.autograd.grad(out, (x, w), g)]
    xs, ws, gs = (t.detach().numpy().astype(np.float64)[:, :, None] for t in (x, w, g))
    for a, e in zip(got, expected(xs, ws, gs, (0, 2), (1, 1)), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), e[:, :, 0], rtol=0, atol=1e-4)
