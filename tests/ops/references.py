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


def tetragamma(x: Any) -> Any:
    """SciPy's, for arguments above 0; reflected below."""
    from scipy.special import polygamma  # lazy: SciPy is heavy

    x = np.asarray(x, np.float64)
    below = x <= 0
    other = 2 * np.pi**3 * np.cos(np.pi * x) / np.sin(np.pi * x) ** 3
    return polygamma(2, np.where(below, 1 - x, x)) - np.where(below, other, 0)


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


def half_spectrum(x: Any, axis: Any) -> Any:
    return np.fft.rfftn(x, axes=axis)


def grid_sample(x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    """Point by point, pixel by pixel."""
    sizes = x.shape[2:]
    n = len(sizes)
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]))

    def settle(c: float, size: int) -> float:
        if padding == 2:
            low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
            while high > low and not low <= c <= high:
                c = 2 * low - c if c < low else 2 * high - c
            c = 0.0 if high == low else c
        return min(max(c, 0.0), size - 1.0) if padding else c

    def pixel(image: Any, at: tuple[int, ...]) -> Any:
        inside = all(0 <= i < s for i, s in zip(at, sizes, strict=True))
        return image[(slice(None), *at)] if inside else np.zeros(x.shape[1])

    def cubic(t: float) -> float:
        t = abs(t)
        if t <= 1:
            return 1.25 * t**3 - 2.25 * t**2 + 1
        return -0.75 * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0

    for place in np.ndindex(*grid.shape[:-1]):
        image = x[place[0]]
        c = [
            (v + 1) / 2 * (s - 1) if align else ((v + 1) * s - 1) / 2
            for v, s in zip(grid[place][::-1], sizes, strict=True)
        ]
        reach = (-1, 0, 1, 2) if mode == 2 else (0, 1)
        if mode != 2:
            c = [settle(v, s) for v, s in zip(c, sizes, strict=True)]
        total: Any = 0
        if mode == 1:
            total = pixel(image, tuple(int(np.rint(v)) for v in c))
        else:
            for step in np.ndindex(*(len(reach),) * n):
                at = [int(np.floor(v)) + reach[i] for v, i in zip(c, step, strict=True)]
                far = [v - a for v, a in zip(c, at, strict=True)]
                weight = np.prod([cubic(d) if mode == 2 else 1 - abs(d) for d in far])
                if mode == 2:
                    at = [
                        int(settle(a, s)) if padding else a for a, s in zip(at, sizes, strict=True)
                    ]
                total = total + weight * pixel(image, tuple(at))
        out[(place[0], slice(None), *place[1:])] = total
    return out


grid_sample_2d = grid_sample_3d = grid_sample
