"""vmap's own options."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.util import log
from flambeau.nn import functional as F


def test_same_randomness_holds_over_chunks() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2)

    x = torch.zeros(5, 2)
    torch.manual_seed(7)
    chunked = torch.vmap(f, randomness="same", chunk_size=2)(x)
    torch.manual_seed(7)
    assert torch.equal(chunked, torch.rand(2).expand(5, 2))


ROWS = torch.linspace(0.1, 0.9, 12).reshape(4, 3)
FIRST = ROWS[0].flip(0)
MATRICES = (torch.linspace(-2, 2, 36).cos() + 0.1).reshape(4, 3, 3) + 2 * torch.eye(3)
IMAGES = torch.linspace(-1, 1, 4 * 2 * 9).sin().reshape(4, 2, 3, 3)
BOUNDS = torch.tensor([0.2, 0.5])
# Whose batching rule PyTorch has: none of them may run once for each element of the batch.
RULES: dict[str, tuple[Any, Any]] = {
    **{
        f"{name} {how}": (
            lambda a, name=name, how=how: getattr(F, name)(a, FIRST, reduction=how), ROWS
        )
        for name in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
        for how in ("none", "mean", "sum")
    },
    "weighted": (lambda a: F.binary_cross_entropy(a, FIRST, FIRST), ROWS),
    "broadcast": (lambda a: F.mse_loss(a, FIRST), MATRICES),
    "pixels": (lambda a: F.cross_entropy(a[None], torch.ones(1, 3, 3).long()), IMAGES),
    "all pixels": (
        lambda a: F.nll_loss(a[None], torch.ones(1, 3, 3).long(), reduction="none"), IMAGES
    ),
    "addmv": (lambda a: torch.addmv(a[0], a, FIRST, beta=2, alpha=3), MATRICES),
    "addr": (lambda a: torch.addr(FIRST, a[0], a[1], beta=0.5, alpha=3), MATRICES),
    "norm": (lambda a: torch.norm(a) + torch.norm(a, 1, 0).sum(), MATRICES),
    "dist": (lambda a: torch.dist(a, FIRST, 3), ROWS),
    "distances": (lambda a: F.pairwise_distance(a, FIRST), MATRICES),
    "inverse": (torch.linalg.inv, MATRICES),
    "pseudoinverse": (torch.linalg.pinv, MATRICES),
    "least squares": (lambda a: torch.linalg.lstsq(a, a.mT)[0], MATRICES),
    "cholesky": (lambda a: torch.linalg.cholesky(a @ a.mT), MATRICES),
}  # fmt: skip
SEARCHES = {
    "bucketize": (lambda a: torch.bucketize(a, BOUNDS), ROWS),
    "searchsorted": (lambda a: torch.searchsorted(BOUNDS, a, right=True), ROWS),
    "in its own": (lambda a: torch.searchsorted(a, FIRST.reshape(3, 1)), ROWS),
    "in rows": (lambda a: torch.searchsorted(a.sort()[0], a), MATRICES),
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings that are given once are given again, as errors."""
    monkeypatch.setattr(log, "_announced", set())


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("name", [*RULES, *SEARCHES])
def test_rules_are_those_of_one_by_one(name: str) -> None:
    f, value = {**RULES, **SEARCHES}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = torch.stack([f(v) for v in value])
        warnings.filterwarnings("error", message=".*batching rule.*")
        found = torch.vmap(f)(value)
    assert found.dtype is expected.dtype
    assert torch.allclose(found.double(), expected.double(), 1e-5, 1e-5)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("name", RULES)
def test_gradients_are_those_of_one_by_one(name: str) -> None:
    f, value = RULES[name]
    gradient = torch.func.grad(lambda v: (f(v) * f(v)).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = torch.stack([gradient(v) for v in value])
        warnings.filterwarnings("error", message=".*batching rule.*")
        found = torch.vmap(gradient)(value)
    assert torch.allclose(found, expected, 1e-4, 1e-4)


def test_nextafter_has_the_gradient_of_what_it_starts_from() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tensor([1.0, 3.0], requires_grad=True)
    torch.nextafter(x, y).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]
    assert y.grad.tolist() == [0.0, 0.0]
