"""What of a factorisation is determined, and what is the library's choice. NumPy only.

Of singular vectors and eigenvectors only the spaces are determined: vectors of one value may turn
together by a unitary matrix (a sign, where the value has one vector), left and right singular
vectors by the same one, vectors that belong to no value by one of their own. `factors` finds the
turn that brings ours nearest to torch's; what is left after it is judged by the usual rule. A wrong
space, scale, order or pairing of left with right is not mended by any turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: entry: what its results are: "values", vectors as "columns" or (conjugated) as "rows"
RESULTS = {
    label: parts.split()
    for labels, parts in {
        "linalg.svd": "columns values rows",
        "svd svd_lowrank pca_lowrank": "columns values columns",
        "linalg.eigh linalg.eig": "values columns",
    }.items()
    for label in labels.split()
}
SAME = 64  # roundings of the largest value: closer ones are one value


def _polar(m: np.ndarray) -> np.ndarray:
    """The unitary matrix nearest to m (exactly ±1 of a real number)."""
    if m.shape == (1, 1):
        size = np.abs(m)
        return m / size if size > 0 else np.ones_like(m)
    u, _, vh = np.linalg.svd(m)
    return np.asarray(u @ vh)


def _blocks(values: np.ndarray, eps: float) -> list[slice]:
    """Runs of columns whose values are one, in the order in which they stand."""
    if not values.size:
        return []
    near = SAME * eps * float(np.abs(values).max())
    ends = [i for i in range(1, values.size) if abs(values[i] - values[i - 1]) > near]
    return [slice(a, b) for a, b in zip([0, *ends], [*ends, values.size], strict=True)]


def _turn(
    ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], values: np.ndarray, eps: float
) -> list[np.ndarray]:
    """For one matrix: of each of its sets of vectors (as columns), what it is to be multiplied by
    from the right."""
    wide = np.result_type(np.float64, *ours, *theirs)
    found = [np.eye(v.shape[-1], dtype=wide) for v in ours]
    count = values.size
    blocks = _blocks(values, eps)
    zero = SAME * eps * float(np.abs(values).max()) if count else 0.0
    for at in blocks:
        alike = [a[:, at].conj().T @ b[:, at] for a, b in zip(ours, theirs, strict=True)]
        if len(ours) > 1 and np.abs(values[at]).max() <= zero:  # no value ties left to right
            for factor, m in zip(found, alike, strict=True):
                factor[at, at] = _polar(m)
            continue
        common = _polar(np.sum(alike, axis=0))
        for factor in found:
            factor[at, at] = common
    for factor, a, b in zip(found, ours, theirs, strict=True):
        if a.shape[-1] > count:
            rest = slice(count, None)
            factor[rest, rest] = _polar(a[:, rest].conj().T @ b[:, rest])
    return found


def factors(
    label: str, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]
) -> list[np.ndarray | None] | None:
    """Of each result, the turn that brings ours to theirs (None of values); None where the results
    are not of the shapes that an entry of that label has."""
    parts = RESULTS.get(label)
    if parts is None or [a.shape for a in ours] != [b.shape for b in theirs]:
        return None
    if len(ours) != len(parts) or any(a.ndim < 2 for a in _vectors(parts, ours)):
        return None
    if not all(np.isfinite(a).all() for a in (*ours, *theirs)):
        return None
    values = theirs[parts.index("values")]
    eps = float(np.finfo(values.dtype).eps)
    mine, wanted = _vectors(parts, ours), _vectors(parts, theirs)
    turns = [np.empty((*v.shape[:-2], v.shape[-1], v.shape[-1]), np.complex128) for v in mine]
    for at in np.ndindex(*values.shape[:-1]):
        made = _turn([v[at] for v in mine], [v[at] for v in wanted], values[at], eps)
        for whole, one in zip(turns, made, strict=True):
            whole[at] = one
    real = [t if v.dtype.kind == "c" else t.real.copy() for t, v in zip(turns, mine, strict=True)]
    remaining = iter(real)
    return [None if part == "values" else next(remaining) for part in parts]


def _vectors(parts: Sequence[str], results: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The sets of vectors, as columns."""
    return [
        v if part == "columns" else v.conj().swapaxes(-1, -2)
        for part, v in zip(parts, results, strict=False)
        if part != "values"
    ]


def turned(label: str, results: Sequence[Any], turns: Sequence[Any], multiply: Any) -> list[Any]:
    """The results with their vectors turned; `multiply(x, y)` is the runtime's product."""
    out = []
    for part, value, turn in zip(RESULTS[label], results, turns, strict=True):
        if part == "columns":
            value = multiply(value, turn)
        elif part == "rows":
            value = multiply(turn.conj().swapaxes(-1, -2), value)
        out.append(value)
    return out
