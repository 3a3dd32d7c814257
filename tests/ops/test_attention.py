"""Attention: how its result lies in memory, and where its gradients end."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.nn import functional


def heads(dtype: Any = torch.float64, rows: int = 3, transposed: bool = False) -> Any:
    t = torch.randn(2, rows, 4, 8, dtype=dtype) if transposed else torch.randn(2, 4, rows, 8)
    t = t.transpose(1, 2) if transposed else t.to(dtype)
    return t.detach().requires_grad_()


@pytest.mark.parametrize("transposed", [False, True])
def test_the_result_lies_as_the_query(transposed: bool) -> None:
    q, k, v = (heads(rows=n, transposed=transposed) for n in (3, 6, 6))
    out = functional.scaled_dot_product_attention(q, k, v)
    assert out.stride() == q.stride()
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    assert grads[0].stride() == (96, 8, 32, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_no_second_gradient(dtype: Any) -> None:
    """As in torch: the gradients carry a node that refuses."""
    q, k, v = (heads(dtype, rows=n) for n in (3, 6, 6))
    out = functional.scaled_dot_product_attention(q, k, v)
    first = torch.autograd.grad(out.sum(), (q, k, v), create_graph=True)
    assert [g.grad_fn.name() for g in first] == ["torch::autograd::NotImplemented"] * 3
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    with pytest.raises(RuntimeError, match=f"derivative for {name} is not implemented"):
        torch.autograd.grad(first[0].sum(), q)


@pytest.mark.parametrize("causal", [False, True])
def test_values_where_scores_are_large(causal: bool) -> None:
    """The weights are a softmax: no logarithm of sums of thousands rounds them."""
    torch.manual_seed(0)
    q, k, v = (heads(torch.float32, rows=n).detach() * 12 for n in (3, 6, 6))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    wide = [t.double() for t in (q, k, v)]
    scores = wide[0] @ wide[1].transpose(-2, -1) / 8**0.5
    if causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    exact = scores.softmax(-1) @ wide[2]
    assert (out.double() - exact).abs().max() < 2e-6 * 12
