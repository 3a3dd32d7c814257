"""Leaky relu with random slopes: gradients in place, sizes that vary."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.nn import functional as F


@pytest.mark.parametrize("training", [False, True])
def test_the_form_in_place_has_the_gradient_of_the_other(training: bool) -> None:
    x = torch.linspace(-2, 2, 9, requires_grad=True)
    torch.manual_seed(3)
    plain = F.rrelu(x, 0.1, 0.4, training)
    (slope,) = torch.autograd.grad(plain.sum(), x)
    torch.manual_seed(3)
    copy = x.clone()
    written = F.rrelu(copy, 0.1, 0.4, training, inplace=True)
    assert written is copy
    torch.testing.assert_close(written, plain, rtol=0, atol=0)
    torch.testing.assert_close(torch.autograd.grad(written.sum(), x)[0], slope, rtol=0, atol=0)


def test_one_graph_serves_all_sizes() -> None:
    compiled = torch.compile(
        lambda x: F.rrelu(x, 0.1, 0.4, True), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        torch.manual_seed(0)
        expected = F.rrelu(x, 0.1, 0.4, True)
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)
