"""The rule for vectors that are determined up to signs: what it mends, and what it must not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle import gauge


def _svd(shape: tuple[int, ...], full: bool = False) -> list[np.ndarray]:
    values = np.random.RandomState(3).standard_normal(shape)
    return list(np.linalg.svd(values, full))


def _left(label: str, ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest difference that remains."""
    turns = gauge.factors(label, ours, theirs)
    assert turns is not None
    made = gauge.turned(label, ours, turns, np.matmul)
    return max(float(np.abs(a - b).max()) for a, b in zip(made, theirs, strict=True))


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (2, 3, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_a_sign_of_a_pair_is_no_difference(shape: tuple[int, ...], full: bool) -> None:
    theirs = _svd(shape, full)
    u, s, vh = (a.copy() for a in theirs)
    u[..., 1] *= -1
    vh[..., 1, :] *= -1
    assert _left("linalg.svd", [u, s, vh], theirs) < 1e-14


def test_vectors_of_no_value_turn_alone() -> None:
    theirs = _svd((5, 3), True)
    u, s, vh = (a.copy() for a in theirs)
    u[:, 3:] = u[:, 3:] @ np.array([[0.6, -0.8], [0.8, 0.6]])
    assert _left("linalg.svd", [u, s, vh], theirs) < 1e-14


def test_vectors_of_one_value_turn_together() -> None:
    q = np.linalg.qr(np.random.RandomState(5).standard_normal((4, 4)))[0]
    theirs = [np.array([1.0, 2.0, 2.0, 3.0]), q]
    v = q.copy()
    v[:, 1:3] = v[:, 1:3] @ np.array([[0.6, -0.8], [0.8, 0.6]])
    assert _left("linalg.eigh", [theirs[0], v], theirs) < 1e-14
    apart = [np.array([1.0, 2.0, 2.1, 3.0]), q]
    assert _left("linalg.eigh", [apart[0], v], apart) > 0.1


def test_what_is_determined_stays_a_difference() -> None:
    theirs = _svd((4, 4))
    for fault in ("one side", "scale", "order", "values", "space"):
        u, s, vh = (a.copy() for a in theirs)
        if fault == "one side":
            u[:, 1] *= -1
        elif fault == "scale":
            u[:, 1] *= 1.01
        elif fault == "order":
            u[:, [0, 1]], vh[[0, 1]] = u[:, [1, 0]], vh[[1, 0]]
        elif fault == "values":
            s[1] *= 1.01
        else:
            u[:, :2] = u[:, :2] @ np.array([[0.8, -0.6], [0.6, 0.8]])
        assert _left("linalg.svd", [u, s, vh], theirs) > 1e-3, fault


def test_phases_of_complex_vectors() -> None:
    random = np.random.RandomState(7)
    values = random.standard_normal((4, 4)) + 1j * random.standard_normal((4, 4))
    theirs = list(np.linalg.eig(values))
    v = theirs[1] * np.exp(1j * random.standard_normal(4))
    assert _left("linalg.eig", [theirs[0], v], theirs) < 1e-14
