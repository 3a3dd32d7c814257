"""Convolution's own kernels against NumPy in double: extents that fill no tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch

# x, w, padding, dilation, stride, groups; many images lie side by side
PLAIN = ((1, 1), 1)
CASES = [
    ((4, 16, 16, 16), (16, 16, 3, 3), (1, 1), (1, 1), *PLAIN),
    ((3, 5, 8, 8), (17, 5, 3, 3), (1, 1), (1, 1), *PLAIN),
    ((2, 5, 9, 11), (29, 5, 2, 4), (0, 2), (1, 1), *PLAIN),
    ((2, 4, 12, 12), (6, 4, 3, 3), (2, 2), (2, 2), *PLAIN),
    ((1, 4, 30, 31), (45, 4, 3, 3), (5, 4), (1, 1), *PLAIN),
    ((2, 9, 40, 50), (13, 9, 3, 5), (0, 0), (3, 1), *PLAIN),
    ((1, 33, 4, 300), (5, 33, 1, 2), (0, 1), (1, 7), *PLAIN),
    ((2, 7, 3, 3), (8, 7, 3, 3), (0, 0), (1, 1), *PLAIN),
    ((64, 1, 8, 8), (32, 1, 3, 3), (1, 1), (1, 1), *PLAIN),
    ((37, 6, 4, 4), (61, 6, 3, 3), (1, 1), (1, 1), *PLAIN),
    ((17, 6, 5, 3), (50, 6, 2, 3), (2, 1), (1, 2), *PLAIN),
    ((16, 9, 3, 7), (5, 9, 1, 1), (0, 0), (1, 1), *PLAIN),
    ((3, 8, 20, 17), (12, 8, 3, 3), (1, 1), (1, 1), (2, 2), 1),
    ((33, 8, 9, 8), (12, 8, 3, 3), (1, 2), (2, 1), (2, 3), 1),
    ((2, 8, 14, 40), (30, 8, 2, 5), (3, 0), (1, 3), (3, 2), 1),
    ((32, 8, 6, 6), (12, 8, 1, 1), (0, 0), (1, 1), (2, 2), 1),
    ((2, 8, 9, 30), (12, 8, 1, 2), (0, 1), (1, 4), (5, 4), 1),
    ((2, 12, 10, 16), (12, 1, 3, 3), (1, 1), (1, 1), (1, 1), 12),
    ((40, 12, 5, 6), (24, 4, 3, 3), (1, 1), (1, 1), (1, 2), 3),
    ((3, 12, 11, 19), (24, 6, 3, 3), (0, 2), (2, 1), (2, 1), 2),
]
KINDS = {"float32": 2e-6, "float64": 1e-14}


def expected(
    x: Any, w: Any, g: Any, padding: Any, dilation: Any, stride: Any = (1, 1), groups: int = 1
) -> list[Any]:
    """The output without a bias, and the gradients of x and w, tap by tap."""
    (p, q), (d, e), (s, t) = padding, dilation, stride
    wide = np.pad(x, ((0, 0), (0, 0), (p, p), (q, q)))
    high = (wide.shape[2] - (w.shape[2] - 1) * d - 1) // s + 1
    length = (wide.shape[3] - (w.shape[3] - 1) * e - 1) // t + 1
    out = np.zeros((x.shape[0], w.shape[0], high, length))
    gx, gw = np.zeros_like(wide), np.zeros_like(w)
    of_x, of_w = x.shape[1] // groups, w.shape[0] // groups
    for group, i, j in np.ndindex(groups, w.shape[2], w.shape[3]):
        to = slice(group * of_w, (group + 1) * of_w)
        lines = slice(i * d, i * d + (high - 1) * s + 1, s)
        columns = slice(j * e, j * e + (length - 1) * t + 1, t)
        at = (slice(None), slice(group * of_x, (group + 1) * of_x), lines, columns)
        out[:, to] += np.einsum("nchw,fc->nfhw", wide[at], w[to, :, i, j])
        if g is not None:
            gx[at] += np.einsum("nfhw,fc->nchw", g[:, to], w[to, :, i, j])
            gw[to, :, i, j] = np.einsum("nfhw,nchw->fc", g[:, to], wide[at])
    inside = np.s_[:, :, p : p + x.shape[2], q : q + x.shape[3]]
    return [out, gx[inside], gw]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients(kind: str, case: Any) -> None:
    of_x, of_w, padding, dilation, stride, groups = case
    dtype = getattr(torch, kind)
    torch.manual_seed(2)
    x = torch.randn(of_x, dtype=dtype, requires_grad=True)
    w = torch.randn(of_w, dtype=dtype, requires_grad=True)
    b = torch.randn(of_w[0], dtype=dtype, requires_grad=True)
    out = torch.nn.functional.conv2d(x, w, b, stride, padding, dilation, groups)
    g = torch.randn(out.shape, dtype=dtype)
    got = [out, *torch.autograd.grad(out, (x, w, b), g)]
    xs, ws, bs, gs = (t.detach().numpy().astype(np.float64) for t in (x, w, b, g))
    want = expected(xs, ws, gs, padding, dilation, stride, groups)
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
