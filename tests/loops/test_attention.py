"""Attention's own kernels against NumPy in double: sizes that fill no tile, and every layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau as torch

SIZES = [  # N, H, L, S, E
    (2, 3, 128, 128, 32),
    (1, 2, 50, 70, 24),
    (1, 2, 13, 131, 64),
    (1, 1, 300, 57, 7),
    (2, 2, 97, 97, 40),
    (1, 1, 1, 1, 1),
    (2, 2, 5, 6, 8),
]
KINDS = {"float32": 4e-6, "float64": 1e-14}


def expected(given: list[Any], causal: bool, scale: float | None) -> list[Any]:
    """The output and the gradients of q, k, v."""
    q, k, v, g = (t.detach().numpy().astype(np.float64) for t in given)
    s = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.swapaxes(-1, -2) * s
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out = p @ v
    gs = p * (g @ v.swapaxes(-1, -2) - (g * out).sum(-1, keepdims=True)) * s
    return [out, gs @ k, gs.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients(kind: str, sizes: tuple[int, ...], causal: bool) -> None:
    n, h, rows, columns, width = sizes
    dtype = getattr(torch, kind)
    torch.manual_seed(3)

    def heads(length: int, turned: bool) -> Any:
        if turned:  # heads inside rows, as a projection leaves them
            made = torch.randn(n, length, h, width, dtype=dtype).transpose(1, 2)
        else:
            made = torch.randn(n, h, length, width, dtype=dtype)
        return made.requires_grad_()

    attention = torch.nn.functional.scaled_dot_product_attention
    for turned, scale in ((False, None), (True, 0.3)):
        q, k, v = heads(rows, turned), heads(columns, turned), heads(columns, turned)
        out = attention(q, k, v, is_causal=causal, scale=scale)
        g = torch.randn(out.shape, dtype=dtype)
        got = [out, *torch.autograd.grad(out, (q, k, v), g)]
        for a, b in zip(got, expected([q, k, v, g], causal, scale), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b, rtol=0, atol=KINDS[kind])


def test_gradients_of_a_sum_and_of_shared_heads() -> None:
    """The gradient of a sum has no bytes of its own, and heads may be one tensor seen often."""
    q = torch.randn(2, 4, 64, 32, requires_grad=True)
    k = torch.randn(2, 1, 64, 32, requires_grad=True)
    out = torch.nn.functional.scaled_dot_product_attention(q, k.expand(2, 4, 64, 32), q)
    got = torch.autograd.grad(out.sum(), (q, k))
    wide = [q, k.expand(2, 4, 64, 32), q, torch.ones(2, 4, 64, 32)]
    _, gq, gk, gv = expected(wide, False, None)
    np.testing.assert_allclose(got[0].numpy(), gq + gv, rtol=0, atol=1e-5)
    np.testing.assert_allclose(got[1].numpy(), gk.sum(1, keepdims=True), rtol=0, atol=1e-5)


def test_what_is_not_a_number_stays_in_its_row() -> None:
    q = torch.randn(1, 1, 64, 32)
    q[0, 0, 5, 3] = float("nan")
    out = torch.nn.functional.scaled_dot_product_attention(q, torch.randn(1, 1, 64, 32), q * 0 + 1)
    bad = out.isnan().any(-1)[0, 0]
    assert bad[5] and out.isnan().any(-2)[0, 0].sum() == 32
