"""Independent implementations that NumPy and SciPy do not have under one name."""

from __future__ import annotations

from typing import Any

import numpy as np


def rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def mantissa(x: Any) -> Any:
    return np.frexp(x)[0]


def cartesian(x: Any, y: Any) -> Any:
    return x + 1j * y


def polar(r: Any, angle: Any) -> Any:
    return r * np.exp(1j * angle)


def lower_median(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    axis = -1 if axis is None else axis
    x = x if x.ndim else x.reshape(1)
    row = np.sort(x, axis=axis)
    found = np.take(row, [(x.shape[axis] - 1) // 2], axis=axis)
    return found if keepdims else found.squeeze(axis)


lower_nanmedian = lower_median


def times_power(x: Any, n: Any) -> Any:
    return x * np.power(2.0, n)


def histc(x: Any, bins: int, low: float = 0, high: float = 0) -> Any:
    return np.histogram(x, bins, (low, high))[0] if high > low else np.zeros(bins)


def half_spectrum(x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    return np.fft.rfftn(x, axes=dim)
