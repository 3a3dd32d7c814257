"""CTC against the sum over all alignments, written out."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

import flambeau as torch


def alignments(log_probs: list[list[float]], target: list[int], blank: int) -> float:
    """-log of the probability of all paths that collapse to the target."""
    classes, total = len(log_probs[0]), 0.0
    for path in itertools.product(range(classes), repeat=len(log_probs)):
        kept = [c for c, _ in itertools.groupby(path) if c != blank]
        if kept == target:
            total += math.exp(sum(row[c] for row, c in zip(log_probs, path, strict=True)))
    return -math.log(total) if total else math.inf


@pytest.mark.parametrize("packed", [False, True])
def test_loss_is_the_sum_over_alignments(packed: bool) -> None:
    torch.manual_seed(3)
    log_probs = torch.randn(5, 3, 3, dtype=torch.float64).log_softmax(-1)
    targets, wanted, inputs = [[1, 2], [1, 1], [2]], [2, 2, 1], [5, 4, 3]
    given = torch.tensor(
        [c for t in targets for c in t] if packed else [t + [0] * (2 - len(t)) for t in targets]
    )
    got = torch.ctc_loss(log_probs, given, inputs, wanted, 0, 0)
    rows = [log_probs[:n, i].tolist() for i, n in enumerate(inputs)]
    want = [alignments(r, t, 0) for r, t in zip(rows, targets, strict=True)]
    assert got.tolist() == pytest.approx(want, rel=1e-12)


def test_gradient_through_log_softmax() -> None:
    """torch's gradient is that of the logits before log_softmax."""
    torch.manual_seed(4)
    logits = torch.randn(6, 2, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[1, 2, 2], [3, 1, 0]])

    def loss(x: torch.Tensor) -> torch.Tensor:
        return torch.ctc_loss(x.log_softmax(-1), targets, [6, 5], [3, 2], 0, 2)

    assert torch.autograd.gradcheck(loss, (logits,))


def test_impossible_targets() -> None:
    log_probs = torch.zeros(2, 1, 3).log_softmax(-1).requires_grad_()
    target = torch.tensor([[1, 1]])  # needs three steps
    assert torch.ctc_loss(log_probs, target, [2], [2], 0, 2).item() == math.inf
    quiet = torch.ctc_loss(log_probs, target, [2], [2], 0, 2, zero_infinity=True)
    quiet.backward()
    assert quiet.item() == 0 and not log_probs.grad.any()


def test_refusals() -> None:
    log_probs, target = torch.zeros(2, 1, 3), torch.tensor([[1, 1]])
    with pytest.raises(RuntimeError, match="blank must be in label range"):
        torch.ctc_loss(log_probs, target, [2], [1], 5)
    with pytest.raises(RuntimeError, match="to have value at most 2, but got value 3"):
        torch.ctc_loss(log_probs, target, [3], [1])
    with pytest.raises(RuntimeError, match="size at least 3 at dimension 1"):
        torch.ctc_loss(log_probs, target, [2], [3])


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("lists", [True, False])
def test_one_graph_holds_it_without_the_lengths(lists: bool, padded: bool) -> None:
    torch.manual_seed(0)
    scores = torch.randn(6, 2, 4).requires_grad_()
    targets = torch.tensor([[1, 2, 3], [2, 2, 0]]) if padded else torch.tensor([1, 2, 3, 2, 2])
    lengths = [6, 5], [3, 2]
    given = lengths if lists else tuple(torch.tensor(v) for v in lengths)

    def loss(x: Any) -> Any:
        return torch.nn.functional.ctc_loss(x.log_softmax(-1), targets, *given)

    whole = torch.compile(loss, backend="aot_eager", fullgraph=True)(scores)
    assert whole.item() == pytest.approx(loss(scores).item(), rel=1e-6)
    got, want = (torch.autograd.grad(f, scores)[0] for f in (whole, loss(scores)))
    assert torch.allclose(got, want, atol=1e-6)


def test_gradient_of_float32_keeps_its_digits() -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(50, 3, 15).log_softmax(-1)
    targets = torch.randint(1, 15, (3, 20))

    def gradient(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        loss = torch.ctc_loss(x, targets, [50] * 3, [20] * 3, 0, 2)
        return torch.autograd.grad(loss, x)[0].double()

    true = gradient(log_probs.double())
    off = (gradient(log_probs) - true).abs().max().item()
    assert off <= 200 * 2**-23 * true.abs().max().item()
