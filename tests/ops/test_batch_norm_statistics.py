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


@pytest.mark.parametrize(
    "shape", [(5, 3, 8, 9), (2, 4, 37), (3, 2, 1, 1), (2, 3, 2, 3, 4)], ids=str
)
@pytest.mark.parametrize("weighted", [False, True])
def test_output_and_gradients_in_single_precision(shape: tuple[int, ...], weighted: bool) -> None:
    """Against the formulas in double, for rows that fill vectors and rows that do not."""
    random, aten = np.random.default_rng(3), flambeau.ops.aten
    x, g = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
    w = random.standard_normal(shape[1]).astype(np.float32) if weighted else None
    given, slopes = flambeau.from_numpy(x + 2), flambeau.from_numpy(g)
    weight = None if w is None else flambeau.from_numpy(w)
    out, mean, r = aten.native_batch_norm(given, weight, weight, None, None, True, 0.1, 1e-5)
    grads = aten.native_batch_norm_backward(
        slopes, given, weight, None, None, mean, r, True, 1e-5, [True, True, True]
    )
    wide, g = (x + 2).astype(np.float64), g.astype(np.float64)
    others = (0, *range(2, len(shape)))
    scale = np.ones(shape[1]) if w is None else w.astype(np.float64)

    def spread(values: np.ndarray) -> np.ndarray:
        return values.reshape(1, -1, *[1] * (len(shape) - 2))

    deviation = np.sqrt(wide.var(others) + 1e-5)
    normal = (wide - spread(wide.mean(others))) / spread(deviation)
    to_bias, to_weight, count = g.sum(others), (g * normal).sum(others), wide.size / shape[1]
    to_input = (g - spread(to_bias) / count - normal * spread(to_weight) / count) * spread(scale)
    expected = [
        normal * spread(scale) + (0 if w is None else spread(scale)), wide.mean(others),
        1 / deviation, to_input / spread(deviation), to_weight, to_bias,
    ]  # fmt: skip
    for got, want in zip((out, mean, r, *grads), expected, strict=True):
        limit = 4e-6 * max(1.0, np.abs(want).max())
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=limit)
