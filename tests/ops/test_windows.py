"""Convolution, pooling and attention against loops in NumPy, in the layouts treated apart."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import flambeau as torch

F = torch.nn.functional


def convolved(x: Any, w: Any, b: Any, stride: int, pad: int, dilation: int, groups: int) -> Any:
    """One product a window."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    n, o, (kh, kw) = x.shape[0], w.shape[0], w.shape[2:]
    h, v = ((s - (k - 1) * dilation - 1) // stride + 1 for s, k in zip(x.shape[2:], (kh, kw)))
    out = np.zeros((n, o, h, v))
    per_in, per_out = w.shape[1], o // groups
    for i, c, y, z in itertools.product(range(n), range(o), range(h), range(v)):
        first = c // per_out * per_in
        window = x[
            i, first : first + per_in,
            y * stride : y * stride + (kh - 1) * dilation + 1 : dilation,
            z * stride : z * stride + (kw - 1) * dilation + 1 : dilation,
        ]  # fmt: skip
        out[i, c, y, z] = (window * w[c]).sum() + b[c]
    return out


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("extent", [6, 26])  # few places: one product for all images; many: each
@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "groups"),
    [(1, 1, 1, 1), (2, 0, 1, 2), (1, 3, 2, 1), (3, 1, 1, 4)],
)
def test_convolution(
    extent: int, stride: int, pad: int, dilation: int, groups: int, last: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, extent, extent + 1, dtype=torch.float64)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    w, b = torch.randn(8, 4 // groups, 3, 2, dtype=torch.float64), torch.randn(8).double()
    leaves = [t.requires_grad_() for t in (x, w, b)]
    out = F.conv2d(x, w, b, stride, pad, dilation, groups)
    given = [t.detach().numpy() for t in leaves]
    expected = convolved(*given, stride, pad, dilation, groups)
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-11, atol=1e-11)
    # It is linear in each: the gradients are those of the sum of products.
    g = torch.randn(out.shape, dtype=torch.float64)
    grads = torch.autograd.grad(out, leaves, g)
    zero = np.zeros(8)
    for i, (leaf, grad) in enumerate(zip(given, grads, strict=True)):
        step = np.random.default_rng(i).normal(size=leaf.shape)
        moved = [step if i == j else t for j, t in enumerate(given)]
        if i < 2:
            change = convolved(moved[0], moved[1], zero, stride, pad, dilation, groups)
        else:
            change = np.broadcast_to(step[:, None, None], expected.shape)
        found = (grad.numpy() * step).sum()
        np.testing.assert_allclose(found, (change * g.numpy()).sum(), rtol=1e-10)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_largest_of_windows(kind: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 6).to(kind)
    for kernel, stride, pad in ((2, 2, 0), (3, 1, 1), (3, 2, 1)):
        out, at = F.max_pool2d(x, kernel, stride, pad, return_indices=True)
        flat = x.float().flatten(2)
        assert torch.equal(flat.gather(2, at.flatten(2)).reshape(out.shape), out.float())
        wide = F.pad(x.float(), (pad,) * 4, value=float("-inf")).numpy()
        for y, z in itertools.product(range(out.shape[2]), range(out.shape[3])):
            a, b = y * stride, z * stride
            expected = wide[:, :, a : a + kernel, b : b + kernel].max((2, 3))
            assert np.array_equal(out[:, :, y, z].float().numpy(), expected)


def test_the_last_nan_of_a_window_is_its_largest() -> None:
    x = torch.tensor([[[[1.0, float("nan"), float("nan"), 0.0]]]])
    for pad in (0, (0, 1)):
        _, at = F.max_pool2d(x, (1, 4), padding=pad, return_indices=True)
        assert at.flatten()[0] == 2
    lowest = torch.full((1, 1, 1, 4), float("-inf"))
    _, at = F.max_pool2d(lowest, (1, 3), padding=(0, 1), return_indices=True)
    assert at.flatten().tolist() == [0, 2]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 0), (2, 5, 1)])
def test_first_of_equals_and_last_nan(kernel: int, stride: int, pad: int, kind: Any) -> None:
    numbers = np.random.default_rng(1).integers(-2, 2, (2, 3, 9, 11)).astype(np.float64)
    numbers[numbers == -1] = np.nan
    numbers[:, :, ::2][numbers[:, :, ::2] == 0] = -0.0
    x = torch.from_numpy(numbers).to(kind)
    out, at = F.max_pool2d(x, kernel, stride, pad, return_indices=True)
    for n, c, y, z in np.ndindex(*out.shape):
        seen = [
            (i, j)
            for i in range(y * stride - pad, y * stride - pad + kernel)
            for j in range(z * stride - pad, z * stride - pad + kernel)
            if 0 <= i < 9 and 0 <= j < 11
        ]
        best = seen[0]
        for place in seen[1:]:
            value, top = numbers[n, c][place], numbers[n, c][best]
            best = place if value > top or np.isnan(value) else best
        assert at[n, c, y, z] == best[0] * 11 + best[1]
        got, want = out[n, c, y, z].item(), numbers[n, c][best]
        assert got == want or (np.isnan(got) and np.isnan(want))
        assert np.signbit(got) == np.signbit(want) or np.isnan(want)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(40, 40), (40, 56), (56, 40)])
def test_attention_and_its_gradients(sizes: tuple[int, int], causal: bool) -> None:
    """Against the same in double precision, written out; more than the few products that are
    computed in double."""
    torch.manual_seed(0)
    rows, columns = sizes
    q, k, v = (torch.randn(3, 4, n, 16) for n in (rows, columns, columns))
    g = torch.randn(3, 4, rows, 16)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    found = [out, *torch.autograd.grad(out, leaves, g)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    scores = wide[0] @ wide[1].transpose(-1, -2) / 4
    if causal:
        hidden = torch.ones(rows, columns, dtype=torch.bool).tril().logical_not()
        scores = scores.masked_fill(hidden, float("-inf"))
    exact = scores.softmax(-1) @ wide[2]
    expected = [exact, *torch.autograd.grad(exact, wide, g.double())]
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("by", [None, 7])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_means_of_windows(kind: Any, by: int | None, include: bool) -> None:
    """Windows that reach over the border, and over the zeros around it (ceil_mode)."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 7).to(kind).requires_grad_()
    for kernel, stride, pad in ((2, 2, 0), (3, 2, 1), (3, 3, 1)):
        out = F.avg_pool2d(x, kernel, stride, pad, True, include, by)
        g = torch.randn(out.shape).to(kind)
        (slope,) = torch.autograd.grad(out, x, g)
        values, shares = (t.detach().double().numpy() for t in (x, g))
        want, back = np.zeros(out.shape), np.zeros(x.shape)
        for y, z in np.ndindex(*out.shape[2:]):
            ends = [(at * stride - pad, at * stride - pad + kernel) for at in (y, z)]
            ends = [(a, min(b, n + pad)) for (a, b), n in zip(ends, (8, 7), strict=True)]
            inside = [(max(a, 0), min(b, n)) for (a, b), n in zip(ends, (8, 7), strict=True)]
            count = by or np.prod([b - a for a, b in (ends if include else inside)])
            at = (slice(None), slice(None), *(slice(*pair) for pair in inside))
            want[:, :, y, z] = values[at].sum((2, 3)) / count
            back[at] += shares[:, :, y, z, None, None] / count
        near = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 2e-2}[kind]
        np.testing.assert_allclose(out.detach().double().numpy(), want, rtol=0, atol=near)
        np.testing.assert_allclose(slope.double().numpy(), back, rtol=0, atol=near)
