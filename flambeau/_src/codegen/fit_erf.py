"""The tables of erf in `vecmath32.py`: `python -m flambeau._src.codegen.fit_erf` prints them.

|x| lies in one of eight intervals around n * WIDTH. In each a polynomial of degree 6 in the
distance from its middle is fitted, minimax in units of the last place of erf: weighted least
squares, the weights growing where the error is large (Lawson 1961). The coefficients are rounded
to float one after the other, lowest first, each time fitting the rest again to what is left.
Fitted is erf(x) - x in the first intervals and erf(x) - 7/8 in the others: both are small, so that
only the last addition rounds more than a small term.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["WIDTH", "fitted"]

WIDTH = 67 / 128  # n * WIDTH has few bits: x - n * WIDTH is exact. erf(7.5 * WIDTH) rounds to 1
DEGREE, INTERVALS, NEAR, FAR, POINTS, ROUNDS = 6, 8, 2, 0.875, 4001, 300

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def _lawson(basis: Array, target: Array, weight: Array) -> Array:
    """Coefficients of the least largest weighted error."""
    share = np.full(len(target), 1 / len(target))
    found = np.zeros(basis.shape[1])
    for _ in range(ROUNDS):
        scale = np.sqrt(share) * weight
        found = np.linalg.lstsq(basis * scale[:, None], target * scale, rcond=None)[0]
        share = share * np.abs((basis @ found - target) * weight)
        share /= share.sum()
    return found


def fitted(interval: int) -> tuple[list[float], float]:
    """The coefficients, constant first, and the largest error in units of the last place."""
    low = -WIDTH / 2 if interval else 2.0**-40
    nodes = np.cos(np.linspace(0, np.pi, POINTS))
    r = (low + WIDTH / 2) / 2 + (WIDTH / 2 - low) / 2 * nodes
    x = r + interval * WIDTH
    y = np.array([math.erf(v) for v in x])
    weight = np.exp2(23 - np.floor(np.log2(y)))
    powers = range(DEGREE + 1) if interval else range(1, DEGREE + 1)
    basis = np.stack([r**power for power in powers], axis=1)
    rest = y - x if interval < NEAR else y - FAR
    coefficients = [] if interval else [0.0]
    for at in range(basis.shape[1]):
        first = float(np.float32(_lawson(basis[:, at:], rest, weight)[0]))
        coefficients.append(first)
        rest = rest - basis[:, at] * first
    return coefficients, float(np.abs(rest * weight).max())


def main() -> None:
    columns, worst = [], 0.0
    for interval in range(INTERVALS):
        coefficients, error = fitted(interval)
        columns.append(coefficients)
        worst = max(worst, error)
    for power in range(DEGREE + 1):
        row = [float(column[power]).hex() for column in columns]
        print("    [" + ", ".join(f'"{_short(value)}"' for value in row) + "],")
    print(f"# largest error {worst:.3f} ulp before evaluation")


def _short(hexadecimal: str) -> str:
    """A float's 6 hexadecimal digits, of the 13 that a double has."""
    digits, _, exponent = hexadecimal.partition("p")
    head, _, tail = digits.partition(".")
    return f"{head}.{tail[:6].ljust(6, '0')}p{exponent}"


if __name__ == "__main__":
    main()
