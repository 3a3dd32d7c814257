"""torch.lobpcg against the dense eigenvalue problems of NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import scipy.linalg

import flambeau as torch


def _symmetric(seed: int, shift: float = 0.0) -> Any:
    a = torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return a @ a.T + shift * torch.eye(12, dtype=torch.float64)


@pytest.mark.parametrize("method", ["ortho", "basic"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("general", [False, True])
def test_the_pairs_are_those_of_the_dense_problem(
    method: str, largest: bool, general: bool
) -> None:
    torch.manual_seed(0)
    A, B = _symmetric(1), _symmetric(2, 6.0) if general else None
    wanted = scipy.linalg.eigh(A.numpy(), None if B is None else B.numpy())[0]
    wanted = wanted[::-1][:3] if largest else wanted[:3]
    E, X = torch.lobpcg(A, 3, B, largest=largest, method=method, tol=1e-10)
    numpy.testing.assert_allclose(E.numpy(), wanted, rtol=1e-9)
    image = X if B is None else B @ X
    numpy.testing.assert_allclose((A @ X).numpy(), (image * E).numpy(), atol=1e-6)
    numpy.testing.assert_allclose((X.T @ image).numpy(), numpy.eye(3), atol=1e-9)


def test_batches_starts_preconditioners_and_trackers() -> None:
    torch.manual_seed(0)
    A = torch.stack([_symmetric(1, 1.0), _symmetric(2, 1.0)])
    steps: list[int] = []
    E, X = torch.lobpcg(A, 2, tracker=lambda run: steps.append(run.ivars["istep"]))
    assert E.shape == (2, 2) and X.shape == (2, 12, 2)
    numpy.testing.assert_allclose(E.numpy(), torch.linalg.eigvalsh(A).flip(-1)[:, :2].numpy())
    assert steps[0] == 1 and steps.count(1) == 2
    assert torch.lobpcg(A[0], X=torch.randn(12, 3, dtype=torch.float64))[0].shape == (3,)
    count: list[Any] = []
    torch.lobpcg(A[0], largest=False, iK=torch.linalg.inv(A[0]), tracker=count.append)
    plain: list[Any] = []
    torch.lobpcg(A[0], largest=False, tracker=plain.append)
    assert len(count) < len(plain)


def test_its_gradient_is_that_of_the_dense_problem() -> None:
    torch.manual_seed(0)
    C = torch.randn(12, 2, dtype=torch.float64)

    def loss(e: Any, v: Any) -> Any:
        return (v * v * C).sum() + (v[:, 0] * C[:, 0]).sum() ** 2 + e[0] ** 2

    a, b = _symmetric(1).requires_grad_(), _symmetric(1).requires_grad_()
    loss(*torch.lobpcg(a, 2, tol=1e-13)).backward()
    e, v = torch.linalg.eigh((b + b.T) / 2)
    loss(e.flip(-1)[:2], v.flip(-1)[:, :2]).backward()
    numpy.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-6)
    with pytest.raises(ValueError, match="does not support backward with B != I yet"):
        torch.lobpcg(a, 1, _symmetric(2, 6.0))[0].sum().backward()


def test_what_is_refused() -> None:
    A = _symmetric(1)
    with pytest.raises(ValueError, match=r"A rows \(=12\) is smaller than 3 x .* \(=5\)"):
        torch.lobpcg(A, 5)
    with pytest.raises(AssertionError, match="A must be square"):
        torch.lobpcg(A[:, :5])
    with pytest.raises(AssertionError, match="X shape mismatch"):
        torch.lobpcg(A, X=torch.zeros(11, 2, dtype=torch.float64))
