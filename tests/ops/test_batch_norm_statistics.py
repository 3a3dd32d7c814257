"""The statistics of batch norm in 16 bits: what torch 2.13 rounds, and where.

In bfloat16 it keeps the mean, the sum of squares and the variance in the parameters' type, and each
product of the running statistics but the variance's; in float16 it rounds only what it returns.
The steps are done here in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import flambeau

Round = Callable[[np.ndarray], np.ndarray]


def bfloat16(values: np.ndarray) -> np.ndarray:
    """To the nearest number of 8 bits of precision, ties to even."""
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.rint(fraction * 256), exponent - 8)


def float16(values: np.ndarray) -> np.ndarray:
    """To the nearest float16."""
    return np.asarray(values, np.float64).astype(np.float16).astype(np.float64)


def nothing(values: np.ndarray) -> np.ndarray:
    """No rounding between steps."""
    return values


@pytest.mark.parametrize(
    ("name", "inner", "outer"),
    [("bfloat16", bfloat16, bfloat16), ("float16", nothing, float16)],
)
@pytest.mark.parametrize("shape", [(2, 1), (3, 1), (5, 3), (2, 3, 4, 5)])
def test_statistics_are_rounded_where_torch_rounds_them(
    name: str, inner: Round, outer: Round, shape: tuple[int, ...]
) -> None:
    random = np.random.RandomState(3)
    c, n = shape[1], int(np.prod(shape)) // shape[1]
    kind = getattr(flambeau, name)
    for _ in range(20):
        x = outer(random.randn(*shape) * 3)
        start = outer(random.randn(c)), outer(random.rand(c))
        running = [flambeau.tensor(s.tolist(), dtype=kind) for s in start]
        given = flambeau.tensor(x.tolist(), dtype=kind)
        _, mean, invstd = flambeau.native_batch_norm(given, None, None, *running, True, 0.3, 1e-5)

        cells = np.moveaxis(x, 1, 0).reshape(c, -1)
        m = inner(cells.mean(1))
        squares = inner(((cells - m[:, None]) ** 2).sum(1))
        assert mean.tolist() == outer(m).tolist()
        deviation = np.sqrt(inner(squares / n) + 1e-5)
        assert invstd.tolist() == outer(1 / deviation).tolist()
        move = inner(np.float64(0.3))
        stays = [inner(s * inner(1 - move)) for s in start]
        moved = outer(stays[0] + inner(m * move))
        spread = outer(stays[1] + inner(squares / (n - 1)) * move)
        assert running[0].tolist() == moved.tolist()
        assert running[1].tolist() == spread.tolist()


def test_a_layer_may_run_twice_before_the_backward() -> None:
    """Training moves the running statistics without a new version: the backward needs none."""
    layer = flambeau.nn.BatchNorm1d(3)
    x = flambeau.arange(6.0).reshape(2, 3).requires_grad_()
    version = layer.running_mean._version
    once = layer(x)
    (once + layer(x * 2)).sum().backward()
    assert layer.running_mean._version == version
    assert int(layer.num_batches_tracked) == 2
    kept = layer(x)
    with flambeau.no_grad():
        layer.running_mean.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()
