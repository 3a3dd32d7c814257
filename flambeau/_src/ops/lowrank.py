"""Singular values of matrices that are nearly of low rank, from a random sample of their range
(Halko, Martinsson and Tropp 2011, "Finding structure with randomness", algorithms 4.4 and 5.1)."""

from __future__ import annotations

from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, overridable
from flambeau._src.ops.factor import doubled


def _orthonormal(a: Tensor) -> Tensor:
    made: Tensor = aten.linalg_qr(a)[0]
    return made


def _range(a: Tensor, q: int, niter: int, drawn: Any) -> Tensor:
    """Orthonormal columns (..., m, q) that span most of a's range: subspace iteration from random
    numbers of the dtype `drawn`."""
    sample = aten.randn([a.shape[-1], q], dtype=drawn, device=a.device)
    basis = _orthonormal(aten.matmul(a, sample.to(a.dtype)))
    for _ in range(niter):
        basis = _orthonormal(aten.matmul(a.mH, basis))
        basis = _orthonormal(aten.matmul(a, basis))
    return basis


@overridable
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """U (..., m, q), S (..., q) and V (..., n, q) with U diag(S) Vᴴ near A - M, A (..., m, n).

    Args:
        q: the rank, an upper bound of it with a little to spare.
        niter: steps of the subspace iteration.
        M: subtracted from A, broadcast.
    """
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    a = doubled(A)
    dtype = A.dtype if M is None else dt.promote_types(A.dtype, M.dtype)
    return _rounded(a if M is None else a - doubled(M), q, niter, dtype)


def _rounded(a: Tensor, q: int, niter: int, dtype: Any) -> tuple[Tensor, Tensor, Tensor]:
    u, s, v = _factors(a, q, niter, dtype)
    return u.to(dtype), s.to(dt.REAL_OF.get(dtype, dtype)), v.to(dtype)


def _factors(a: Tensor, q: int, niter: int, drawn: Any) -> tuple[Tensor, Tensor, Tensor]:
    m, n = a.shape[-2:]
    if m < n:  # the smaller sample: of the rows' span
        basis = _range(a.mH, q, niter, drawn)
        u, s, vh = aten.linalg_svd(aten.matmul(a, basis), False)
        return u, s, aten.matmul(basis, vh.mH)
    basis = _range(a, q, niter, drawn)
    u, s, vh = aten.linalg_svd(aten.matmul(basis.mH, a), False)
    return aten.matmul(basis, u), s, vh.mH


@overridable
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """svd_lowrank of A (..., m, n) less the mean of its rows: the principal components are V.

    Raises:
        ValueError: q is not in [0, min(m, n)], or niter negative.
    """
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    a = doubled(A)
    a = a - aten.mean(a, [-2], True) if center else a
    return _rounded(a, q, niter, A.dtype)


FUNCTIONS: dict[str, Any] = {"svd_lowrank": svd_lowrank, "pca_lowrank": pca_lowrank}
