"""Saved-tensor hooks and checkpoints: what is packed, in which order, how often forward runs."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.nn import functional


def packed_shapes(run: Any) -> list[list[int]]:
    """Shapes of what is packed while `run` is called, in order."""
    shapes: list[list[int]] = []

    def pack(t: Any) -> Any:
        shapes.append(list(t.shape))
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        run()
    return shapes


def leaf(*shape: int) -> Any:
    return torch.randn(*shape, requires_grad=True)


# Recorded from PyTorch 2.13: arguments in the order of their names, then results in theirs.
ORDERS: dict[str, tuple[Any, list[list[int]]]] = {
    "mul: other, self": (lambda: leaf(2, 2) * leaf(1, 2), [[1, 2], [2, 2]]),
    "mm: mat2, self": (lambda: leaf(2, 3) @ leaf(3, 4), [[3, 4], [2, 3]]),
    "pow: exponent, self, result": (lambda: leaf(2) ** leaf(2, 1), [[2, 1], [2], [2, 2]]),
    "layer norm: bias, input, weight": (
        lambda: functional.layer_norm(leaf(2, 3), (3,), leaf(3), leaf(3)),
        [[3], [2, 3], [3], [2, 1], [2, 1]],
    ),
    "attention: results by name": (
        lambda: functional.scaled_dot_product_attention(leaf(1, 1, 2, 4), leaf(1, 1, 2, 4),
                                                        leaf(1, 1, 2, 4)),
        [[1, 1, 2, 4]] * 3 + [[1, 1, 2], [1, 1, 2, 4]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_order(name: str) -> None:
    run, expected = ORDERS[name]
    assert packed_shapes(run) == expected


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_runs_forward_twice(reentrant: bool) -> None:
    """Once, and once again for all that its backward reads."""
    calls = []

    def block(t: Any) -> Any:
        calls.append(1)
        return functional.dropout(t.tanh(), 0.5) * t

    x = leaf(5)
    y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant)
    y.sum().backward()
    assert len(calls) == 2
    assert x.grad is not None


def test_hooks_see_every_pass() -> None:
    """What a hook gives back is asked for in each pass, with the graph kept."""
    unpacked = []

    def unpack(t: Any) -> Any:
        unpacked.append(1)
        return t

    x = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), unpack):
        y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert len(unpacked) == 4
    assert torch.allclose(x.grad, 4 * x)
