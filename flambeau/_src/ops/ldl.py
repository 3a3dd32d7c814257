"""Factors L D Lᴴ of symmetric or Hermitian matrices with D of blocks 1 by 1 and 2 by 2
(Bunch and Kaufman 1977), in LAPACK's layout and with its choice of pivots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.factor import check_implemented, check_matrix, columned, put
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.promote import broadcast_shape

_GROWTH = (1 + math.sqrt(17)) / 8  # where both kinds of pivots let elements grow alike


def _sizes(x: Any) -> Any:
    """LAPACK's size of an element: |re| + |im|."""
    import numpy as np  # lazy: NumPy is heavy

    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)


def _pivot(a: Any, k: int, hermitian: bool) -> tuple[int, int]:
    """(the row to be exchanged, the block's size) for column k; size 0 where the column is 0."""
    own = abs(a[k, k].real) if hermitian else _sizes(a[k : k + 1, k])[0]
    below = _sizes(a[k + 1 :, k])
    if not below.size:
        return k, 1 if own > 0 else 0
    at = int(below.argmax())
    most, row = below[at], k + 1 + at
    if own != own or max(own, most) == 0:
        return k, 0
    if own >= _GROWTH * most:
        return k, 1
    others = [*_sizes(a[row, k:row]), *_sizes(a[row + 1 :, row])]
    widest = max(others)
    if own >= _GROWTH * most * (most / widest):
        return k, 1
    inner = abs(a[row, row].real) if hermitian else _sizes(a[row : row + 1, row])[0]
    return (row, 1) if inner >= _GROWTH * widest else (row, 2)


def _exchange(a: Any, k: int, row: int, size: int, hermitian: bool) -> None:
    """Rows and columns k + size - 1 and `row` of the lower triangle change places."""
    import numpy as np  # lazy: NumPy is heavy

    at = k + size - 1
    turn = np.conj if hermitian else np.array
    low = a[row + 1 :, at].copy()
    a[row + 1 :, at] = a[row + 1 :, row]
    a[row + 1 :, row] = low
    between = turn(a[at + 1 : row, at])
    a[at + 1 : row, at] = turn(a[row, at + 1 : row])
    a[row, at + 1 : row] = between
    if hermitian:
        a[row, at] = np.conj(a[row, at])
    a[at, at], a[row, row] = a[row, row], a[at, at]
    if size == 2:
        a[k + 1, k], a[row, k] = a[row, k], a[k + 1, k]


def _eliminate(a: Any, k: int, size: int, hermitian: bool) -> None:
    """What stays of the matrix once the block at k is taken out; L's columns take its place."""
    import numpy as np  # lazy: NumPy is heavy

    turn = np.conj if hermitian else np.array
    rest = slice(k + size, None)
    column = a[rest, k : k + size].copy()
    if not column.size:
        return
    block = a[k : k + size, k : k + size].copy()
    if size == 1:
        scaled = column / block
    else:
        low = block[1, 0]
        # D⁻¹ from numbers divided by the block's lower element, against over- and underflow
        first, last = block[0, 0] / turn(low), block[1, 1] / low
        whole = first * last - 1
        one, two = column[:, 0] / low, column[:, 1] / turn(low)
        scaled = np.stack(
            [(last * column[:, 0] / turn(low) - two) / whole,
             (first * column[:, 1] / low - one) / whole], 1
        )  # fmt: skip
    a[rest, rest] -= np.tril(scaled @ turn(column).T)
    a[rest, k : k + size] = scaled


def _factor(a: Any, hermitian: bool) -> tuple[Any, Any, int]:
    """(LD, pivots, info) of one matrix."""
    import numpy as np  # lazy: NumPy is heavy

    a = np.tril(a)
    hermitian = hermitian and a.dtype.kind == "c"
    n = a.shape[-1]
    pivots = np.zeros(n, np.int32)
    info, k = 0, 0
    with np.errstate(all="ignore"):
        while k < n:
            row, size = _pivot(a, k, hermitian)
            if not size:
                info, size = info or k + 1, 1
            else:
                if row != k + size - 1:
                    _exchange(a, k, row, size, hermitian)
                if hermitian:
                    at = np.arange(k, k + size)
                    a[at, at] = a[at, at].real
                _eliminate(a, k, size, hermitian)
                if hermitian:
                    at = np.arange(k + size, n)
                    a[at, at] = a[at, at].real
            pivots[k : k + size] = row + 1 if size == 1 else -(row + 1)
            k += size
    return a, pivots, info


class LdlFactorEx(Opaque):
    """L and D in one matrix LD (..., n, n), read from and left in the lower triangle; pivots
    (..., n) counted from 1, a negative pair for a block of 2 by 2; info: the first zero block or 0.
    It has no gradient."""

    takes16 = False
    no_formula = True
    schema = (
        "linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) "
        "-> (Tensor LD, Tensor pivots, Tensor info)"
    )
    public = ""
    out = "out"
    out_args = ("LD", "pivots", "info")
    differentiable = (0,)

    def meta(a: Tensor, hermitian: bool, check: bool) -> Any:
        check_matrix(a, "torch.linalg.ldl_factor_ex", square=True, kernel="ldl_factor_kernel_cpu")
        return (
            columned(a.shape, a), TensorSpec(a.shape[:-1], dt.int32, a.device),
            TensorSpec(a.shape[:-2], dt.int32, a.device),
        )  # fmt: skip

    def kernel(outs: Any, a: Tensor, hermitian: bool, check: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x = array_of(a)
        made = np.array(x)
        pivots = np.zeros(x.shape[:-1], np.int32)
        info = np.zeros(x.shape[:-2], np.int32)
        for at in np.ndindex(*info.shape):
            made[at], pivots[at], info[at] = _factor(x[at], hermitian)
        for out, values in zip(outs, (made, pivots, info), strict=True):
            put(out, values)
        if check:
            aten._linalg_check_errors(outs[2], "torch.linalg.ldl_factor_ex", is_matrix=a.dim() == 2)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((4, 4), (2, 3, 3), (0, 0)):
            yield s.sample(s.tensor(shape))
            yield s.sample(s.tensor(shape), hermitian=True)


class LdlFactor(Composite):
    """ldl_factor_ex with an error where a block of D is 0."""

    schema = "linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)"
    public = ""
    out = "out"
    out_args = ("LD", "pivots")

    def decompose(a: Tensor, hermitian: bool) -> Any:
        made, pivots, info = aten.linalg_ldl_factor_ex(a, hermitian=hermitian)
        aten._linalg_check_errors(info, "torch.linalg.ldl_factor", is_matrix=a.dim() == 2)
        return made, pivots


def _solution(ld: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """X with A X = B for one matrix: L's columns, then D's blocks, then those of Lᴴ."""
    import numpy as np  # lazy: NumPy is heavy

    turn = np.conj if hermitian and ld.dtype.kind == "c" else np.array
    x = np.array(b)
    n = ld.shape[-1]
    blocks = []
    k = 0
    while k < n:
        size = 1 if pivots[k] > 0 else 2
        at, row = k + size - 1, abs(int(pivots[k])) - 1
        blocks.append((k, size, at, row))
        x[[at, row]] = x[[row, at]]
        x[k + size :] -= ld[k + size :, k : k + size] @ x[k : k + size]
        if size == 1:
            x[k] /= ld[k, k].real if turn is np.conj else ld[k, k]
        else:
            low = ld[k + 1, k]
            first, last = ld[k, k] / turn(low), ld[k + 1, k + 1] / low
            top, bottom = x[k] / turn(low), x[k + 1] / low
            whole = first * last - 1
            x[k], x[k + 1] = (last * top - bottom) / whole, (first * bottom - top) / whole
        k += size
    for k, size, at, row in reversed(blocks):
        x[k : k + size] -= turn(ld[k + size :, k : k + size]).T @ x[k + size :]
        x[[at, row]] = x[[row, at]]
    return x


class LdlSolve(Opaque):
    """X (..., n, r) with A X = B from A's factors LD (..., n, n) and pivots (..., n). It has no
    gradient."""

    takes16 = False
    no_formula = True
    schema = (
        "linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor"
    )
    public = ""
    out = "out"

    def meta(ld: Tensor, pivots: Tensor, b: Tensor, hermitian: bool) -> TensorSpec:
        name = "torch.linalg.ldl_solve"
        check_matrix(ld, name, square=True, kernel="ldl_solve_kernel_cpu")
        if b.dim() < 2:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-max(b.dim(), 1)}, "
                f"{max(b.dim(), 1) - 1}], but got -2)"
            )
        if b.shape[-2] != ld.shape[-1]:
            raise RuntimeError(
                f"Incompatible matrix sizes for {name}: each A matrix is {ld.shape[-1]} by "
                f"{ld.shape[-1]} but each b matrix is {b.shape[-2]} by {b.shape[-1]}"
            )
        if tuple(pivots.shape) != tuple(ld.shape[:-1]):
            raise RuntimeError(
                f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots "
                f"with shape {list(pivots.shape)} instead"
            )
        if not dt.is_integral(pivots.dtype):
            raise RuntimeError(
                f"{name}: Expected pivots to be integers. Got {dt.scalar_name(pivots.dtype)}"
            )
        if b.dtype is not ld.dtype:
            raise RuntimeError(
                "Expected b and A to have the same dtype, but found b of type "
                f"{dt.scalar_name(b.dtype)} and A of type {dt.scalar_name(ld.dtype)} instead."
            )
        check_implemented(b, "ldl_solve_kernel_cpu")
        batch = broadcast_shape([ld.shape[:-2], b.shape[:-2]])
        return columned([*batch, *b.shape[-2:]], b)

    def kernel(out: Tensor, ld: Tensor, pivots: Tensor, b: Tensor, hermitian: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        x, p, y = array_of(ld), array_of(pivots), array_of(b)
        batch = tuple(out.shape[:-2])
        x = np.broadcast_to(x, (*batch, *x.shape[-2:]))
        p = np.broadcast_to(p, (*batch, p.shape[-1]))
        y = np.broadcast_to(y, (*batch, *y.shape[-2:]))
        made = np.empty(y.shape, y.dtype)
        with np.errstate(all="ignore"):
            for at in np.ndindex(*batch):
                made[at] = _solution(x[at], p[at], y[at], hermitian)
        put(out, made)

    def samples(s: Any) -> Iterator[Any]:
        for shape, other in (((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1))):
            ld, pivots, _ = aten.linalg_ldl_factor_ex(s.tensor(shape).detach())
            yield s.sample(ld, pivots, s.tensor(other).detach())
