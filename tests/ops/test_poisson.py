"""torch.poisson: PyTorch's numbers for the same seed, and the distribution's moments."""

from __future__ import annotations

import pytest

import flambeau as torch


def test_the_stream_is_that_of_pytorch() -> None:
    """Recorded: PyTorch 2.13, the draws and the uniform number that follows them."""
    torch.manual_seed(7)
    assert torch.poisson(torch.tensor([0.5, 2.0, 5.0, 9.9, 0.0])).tolist() == [0, 4, 4, 3, 0]
    assert torch.rand(1).item() == 0.8559429049491882
    torch.manual_seed(7)
    assert torch.poisson(torch.tensor([10.0, 20.0, 100.0, 1e4])).tolist() == [8, 26, 117, 9939]
    assert torch.rand(1).item() == 0.720380425453186
    torch.manual_seed(7)
    turned = torch.tensor([[1.0, 2.0], [3.0, 40.0]]).T  # drawn in the result's order
    assert torch.poisson(turned).tolist() == [[0, 5], [3, 27]]


@pytest.mark.parametrize("rate", [0.7, 6.0, 10.0, 250.0])
def test_mean_and_variance_are_the_rate(rate: float) -> None:
    torch.manual_seed(0)
    n = 40_000
    x = torch.poisson(torch.full((n,), rate, dtype=torch.float64))
    assert x.mean().item() == pytest.approx(rate, abs=5 * (rate / n) ** 0.5)
    assert x.var().item() == pytest.approx(rate, rel=5 * (3 / n) ** 0.5 + 0.02)


def test_no_gradient_flows_and_bad_rates_are_refused() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    torch.poisson(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="expected rate to be non-negative"):
        torch.poisson(torch.tensor([float("nan")]))
    with pytest.raises(NotImplementedError, match="\"poisson_cpu\" not implemented for 'Long'"):
        torch.poisson(torch.tensor([3]))
