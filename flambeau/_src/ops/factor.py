"""Factorisations and inverses through LAPACK: inv, det, cholesky, qr, lu.

Gradients: Giles 2008, "Collected matrix derivative results"; Walter and Lehmann 2018 for QR.
Everything takes batches of matrices in the last two dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.op import Declaration
from flambeau._src.util.errors import LinAlgError


def columns(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides with columns contiguous, as LAPACK writes its results."""
    *batch, m, n = shape
    out = [0] * len(batch)
    c = max(m, 1) * max(n, 1)
    for i in range(len(batch) - 1, -1, -1):
        out[i] = c
        c *= max(batch[i], 1)
    return (*out, 1, max(m, 1))


_LAPACK = (dt.float32, dt.float64, dt.complex64, dt.complex128)


def check_implemented(a: Tensor, kernel: str) -> None:
    """LAPACK's four dtypes; others are refused where the numbers would be worked on."""
    if a.dtype not in _LAPACK and a.device.type == "cpu":
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dt.scalar_name(a.dtype)}'")


def check_wide(a: Tensor) -> None:
    """Where the smallest number that counts follows from the dtype."""
    if a.dtype not in _LAPACK:
        raise RuntimeError("This function doesn't handle types other than float and double")


def check_pinv(a: Tensor) -> None:
    if a.dim() < 2 or a.dtype not in _LAPACK:
        raise RuntimeError(
            f"linalg.pinv({dt.scalar_name(a.dtype)}{{{list(a.shape)}}}): expected a tensor with 2 "
            "or more dimensions of float, double, cfloat or cdouble types"
        )


def columned(shape: Sequence[int], like: Tensor, dtype: Any = None) -> TensorSpec:
    return TensorSpec(shape, dtype or like.dtype, like.device, columns(shape))


def check_matrix(
    a: Tensor, name: str, what: str = "A", *, square: bool = False, types: bool = True,
    kernel: str = "", late: bool = False,
) -> None:  # fmt: skip
    """Refuse what is no batch of (square) floating matrices, with torch's words.

    Args:
        kernel: the routine that is the first to refuse 16-bit floats.
        late: it is also the first to refuse integers.
    """
    if a.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor {what} must have at least 2 dimensions.")
    if square and a.shape[-1] != a.shape[-2]:
        raise RuntimeError(
            f"{name}: {what} must be batches of square matrices, but they are {a.shape[-2]} by "
            f"{a.shape[-1]} matrices"
        )
    if types:
        check_floating(a, name, what, kernel, late)


def check_floating(
    a: Tensor, name: str, what: str = "A", kernel: str = "", late: bool = False
) -> None:
    if not late and not (a.dtype.is_floating_point or a.dtype.is_complex):
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got "
            f"{dt.scalar_name(a.dtype)}"
        )
    if a.dtype not in _LAPACK:
        if kernel:
            check_implemented(a, kernel)
            return
        raise RuntimeError(
            f"{name}: Low precision dtypes not supported. Got {dt.scalar_name(a.dtype)}"
        )


def real_dtype(a: Tensor) -> dt.dtype:
    own: dt.dtype = a.dtype
    return dt.REAL_OF.get(own, own)


_FEW = 4_096  # elements whose double costs nothing next to the call
WIDE = {dt.float32: dt.float64, dt.complex64: dt.complex128}


def doubled(a: Tensor) -> Tensor:
    """Small matrices that will be differentiated, in double precision: roundings on the way to the
    gradients of singular values and vectors are divided by the gaps between the values."""
    wide = WIDE.get(a.dtype)
    if wide is None or not (a.requires_grad and a.numel() <= _FEW):
        return a
    return a.to(wide)


def put(out: Tensor, values: Any) -> None:
    if out.numel():
        array_of(out)[...] = values


# ---- LU with partial pivoting: NumPy gives no access to LAPACK's ----


def lu_arrays(a: Any) -> tuple[Any, Any, Any]:
    """(LU in one matrix, pivots counted from 1, info: the first zero pivot counted from 1)."""
    import numpy as np  # lazy: NumPy is heavy

    a = np.array(a)
    *batch, m, n = a.shape
    k = min(m, n)
    count = math.prod(batch)
    flat = a.reshape(count, m, n)
    pivots = np.zeros((count, k), np.int32)
    info = np.zeros(count, np.int32)
    every = np.arange(count)
    for j in range(k):
        column = flat[:, j:, j]  # LAPACK takes |re| + |im| for the size of a complex number
        size = np.abs(column.real) + np.abs(column.imag) if a.dtype.kind == "c" else np.abs(column)
        top = j + size.argmax(1) if count else np.zeros(0, np.int64)
        pivots[:, j] = top + 1
        swap = flat[every, top].copy()
        flat[every, top] = flat[:, j]
        flat[:, j] = swap
        head = flat[:, j, j]
        zero = head == 0
        info = np.where((info == 0) & zero, j + 1, info).astype(np.int32)
        safe = np.where(zero, 1, head)
        flat[:, j + 1 :, j] /= safe[:, None]
        flat[:, j + 1 :, j + 1 :] -= flat[:, j + 1 :, j, None] * flat[:, j, None, j + 1 :]
    return flat.reshape(a.shape), pivots.reshape(*batch, k), info.reshape(batch)


def permutation(pivots: Any, m: int) -> Any:
    """Row order after the interchanges: LU's row i is row order[i] of the matrix."""
    import numpy as np  # lazy: NumPy is heavy

    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.broadcast_to(np.arange(m), (flat.shape[0], m)).copy()
    every = np.arange(flat.shape[0])
    for j in range(flat.shape[1]):
        at = flat[:, j] - 1
        held = order[every, at].copy()
        order[every, at] = order[:, j]
        order[:, j] = held
    return order.reshape(*pivots.shape[:-1], m)


def substitute(t: Any, b: Any, upper: bool, unit: bool = False) -> Any:
    """X with T X = B for triangular T; a zero on the diagonal gives infinities."""
    import numpy as np  # lazy: NumPy is heavy

    n = t.shape[-1]
    x = np.array(
        np.broadcast_to(b, (*np.broadcast_shapes(t.shape[:-2], b.shape[:-2]), *b.shape[-2:])),
        np.result_type(t, b),
    )
    with np.errstate(all="ignore"):
        for i in range(n - 1, -1, -1) if upper else range(n):
            rest = slice(i + 1, n) if upper else slice(0, i)
            row = x[..., i, :] - np.matmul(t[..., i : i + 1, rest], x[..., rest, :])[..., 0, :]
            x[..., i, :] = row if unit else row / t[..., i, i, None]
    return x


def lu_solution(lu: Any, pivots: Any, b: Any, adjoint: bool = False) -> Any:
    """X with A X = B (or Aᴴ X = B) from A's factors."""
    import numpy as np  # lazy: NumPy is heavy

    order = permutation(pivots, lu.shape[-1])
    batch = np.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    order = np.broadcast_to(order, (*batch, order.shape[-1]))
    if not adjoint:
        moved = np.take_along_axis(b, order[..., None], -2)
        return substitute(lu, substitute(lu, moved, False, True), True)
    h = np.conj(np.swapaxes(lu, -1, -2))
    y = substitute(h, substitute(h, b, False), True, True)
    return np.take_along_axis(y, np.argsort(order, -1)[..., None], -2)


# ---- errors ----


_REASONS = {
    "inv": "The diagonal element {i} is zero, the inversion could not be completed because the "
    "input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not "
    "positive-definite (the leading minor of order {i} is not positive-definite).",
    "eigh": "The algorithm failed to converge because the input matrix is ill-conditioned or has "
    "too many repeated eigenvalues (error code: {i}).",
    "lu": "The factorization could not be completed because the input matrix is singular "
    "(U[{i},{i}] is zero).",
}


class CheckErrors(Declaration):
    """Raise LinAlgError for the first matrix whose info is not 0."""

    schema = "_linalg_check_errors(Tensor info, str api_name, *, bool is_matrix) -> ()"
    public = ""
    differentiable = False

    def run(info: Tensor, name: str, is_matrix: bool) -> None:
        codes = array_of(info).reshape(-1)
        bad = codes.nonzero()[0]
        if not bad.size:
            return
        at = int(bad[0])
        where = ":" if is_matrix else f": (Batch element {at}):"
        kind = next((k for k in ("inv", "solve", "cholesky", "eigh", "lu") if k in name), "inv")
        raise LinAlgError(f"{name}{where} {_REASONS[kind].format(i=int(codes[at]))}")

    def meta(info: Tensor, name: str, is_matrix: bool) -> tuple[()]:
        return ()


# ---- inverse and determinant ----


class InvEx(Opaque):
    """The inverse, and info: the first zero pivot or 0."""

    takes16 = False
    schema = "linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)"
    public = ""
    out = "inverse"
    out_args = ("inverse", "info")
    differentiable = (0,)

    def meta(a: Tensor, check: bool) -> Any:
        check_matrix(a, "linalg.inv", square=True)
        return columned(a.shape, a), TensorSpec(a.shape[:-2], dt.int32, a.device)

    def kernel(outs: Any, a: Tensor, check: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x = array_of(a)
        info = np.zeros(x.shape[:-2], np.int32)
        try:
            r = np.linalg.inv(x) if x.size else x
        except np.linalg.LinAlgError:
            _, _, info = lu_arrays(x)
            r = np.full(x.shape, np.inf, x.dtype)
            for i in np.ndindex(*info.shape):
                if not info[i]:
                    r[i] = np.linalg.inv(x[i])
        put(outs[0], r)
        put(outs[1], info)
        if check:
            aten._linalg_check_errors(outs[1], "linalg.inv_ex", is_matrix=a.dim() == 2)

    def vjp(b: Any, g: Any, a: Any, check: bool) -> Any:
        h = b.outs[0].mH
        return -aten.matmul(h, aten.matmul(g[0], h))

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 3), (2, 4, 4), (1, 1)):
            eye = aten.eye(shape[-1], dtype=s.dtype)
            yield s.sample(s.tensor(shape) * 0.3 + 2 * eye)


class Inv(Composite):
    """The inverse of a square matrix; LinAlgError when it has none."""

    schema = "linalg_inv(Tensor A) -> Tensor"
    public = ""
    out = "out"

    def decompose(a: Tensor) -> Tensor:
        result, info = aten.linalg_inv_ex(a)
        aten._linalg_check_errors(info, "linalg.inv", is_matrix=a.dim() == 2)
        return result


class Inverse(Composite):
    """linalg.inv."""

    schema = "inverse(Tensor self) -> Tensor"
    out = "out"

    def decompose(a: Tensor) -> Tensor:
        return aten.linalg_inv(a)


class LinalgDet(Opaque):
    """The determinant, with the LU factors of the matrix."""

    schema = "_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)"
    public = ""
    out = "result"
    out_args = ("result", "LU", "pivots")
    differentiable = (0,)

    def meta(a: Tensor) -> Any:
        check_matrix(a, "linalg.det", square=True, kernel="lu_cpu")
        return (
            TensorSpec(a.shape[:-2], a.dtype, a.device),
            columned(a.shape, a),
            TensorSpec(a.shape[:-1], dt.int32, a.device),
        )

    def kernel(outs: Any, a: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        lu, pivots, _ = lu_arrays(array_of(a))
        swaps = (pivots != np.arange(1, a.shape[-1] + 1)).sum(-1)
        put(
            outs[0],
            np.diagonal(lu, axis1=-2, axis2=-1).prod(-1)
            * np.where(swaps % 2, -1, 1).astype(lu.real.dtype),
        )
        put(outs[1], lu)
        put(outs[2], pivots)

    saves_by = ("A",)

    def vjp(b: Any, g: Any, a: Any) -> Any:
        n = a.shape[-1]
        if n == 1:
            return g[0].unsqueeze(-1).unsqueeze(-1).expand(a.shape)
        # A singular matrix is moved a little: det(A) A^-H tends to the cofactors there.
        eye = aten.eye(n, dtype=a.dtype, device=a.device)
        singular = (b.outs[0] == 0).to(a.dtype).unsqueeze(-1).unsqueeze(-1)
        tiny = 1e-8 if a.dtype in (dt.float64, dt.complex128) else 1e-4
        moved = a + singular * (tiny * eye)
        det = aten.linalg_det(moved)
        d = (g[0] * det.conj()).unsqueeze(-1).unsqueeze(-1) * eye
        return aten._linalg_solve_ex(moved.mH, d)[0]


class Det(Composite):
    """The determinant of a square matrix."""

    schema = "linalg_det(Tensor A) -> Tensor"
    public = ""
    out = "out"

    def decompose(a: Tensor) -> Tensor:
        return aten._linalg_det(a)[0]


class TorchDet(Composite):
    """linalg.det."""

    schema = "det(Tensor self) -> Tensor"

    def decompose(a: Tensor) -> Tensor:
        return aten.linalg_det(a)


class LinalgSlogdet(Opaque):
    """Sign and logarithm of the determinant's size, with the LU factors."""

    schema = (
        "_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)"
    )
    public = ""
    out = "sign"
    out_args = ("sign", "logabsdet", "LU", "pivots")
    differentiable = (0, 1)
    undefined_grads = True

    def meta(a: Tensor) -> Any:
        check_matrix(a, "linalg.slogdet", square=True)
        return (
            TensorSpec(a.shape[:-2], a.dtype, a.device),
            TensorSpec(a.shape[:-2], real_dtype(a), a.device),
            columned(a.shape, a),
            TensorSpec(a.shape[:-1], dt.int32, a.device),
        )

    def kernel(outs: Any, a: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        lu, pivots, _ = lu_arrays(array_of(a))
        swaps = (pivots != np.arange(1, a.shape[-1] + 1)).sum(-1)
        diagonal = np.diagonal(lu, axis1=-2, axis2=-1)
        size = np.abs(diagonal)
        with np.errstate(all="ignore"):
            unit = np.where(size == 0, 0, diagonal / np.where(size == 0, 1, size))
            put(outs[0], unit.prod(-1) * np.where(swaps % 2, -1, 1).astype(lu.real.dtype))
            put(outs[1], np.log(size).sum(-1))
        put(outs[2], lu)
        put(outs[3], pivots)

    def vjp(b: Any, g: Any, a: Any) -> Any:
        g_sign, g_log = g[0], g[1]
        if g_sign is None and g_log is None:
            return None
        n = a.shape[-1]
        if a.dtype.is_complex:
            sign = b.outs[0]
            total = aten.zeros_like(sign) if g_log is None else g_log.to(sign.dtype)
            if g_sign is not None:
                total = total - 1j * aten.imag(g_sign.conj() * sign)
        elif g_log is None:
            return aten.zeros_like(a)
        else:
            total = g_log
        d = total.unsqueeze(-1).unsqueeze(-1) * aten.eye(n, dtype=a.dtype, device=a.device)
        return aten._linalg_solve_ex(a.mH, d)[0]


class Slogdet(Composite):
    """Sign and logarithm of the determinant's size."""

    schema = "linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)"
    public = ""
    out = "out"
    out_args = ("sign", "logabsdet")

    def decompose(a: Tensor) -> Any:
        return aten._linalg_slogdet(a)[:2]


class TorchSlogdet(Composite):
    """linalg.slogdet."""

    schema = "slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)"
    out = "out"
    out_args = ("sign", "logabsdet")

    def decompose(a: Tensor) -> Any:
        return tuple(aten.linalg_slogdet(a))


class Logdet(Composite):
    """The logarithm of the determinant: NaN when it is negative."""

    schema = "logdet(Tensor self) -> Tensor"

    def decompose(a: Tensor) -> Tensor:
        check_matrix(a, "logdet", square=True)
        sign, size = aten.linalg_slogdet(a)
        if a.dtype.is_complex:
            return size + sign.log()
        return aten.where(sign == -1, aten.full((), float("nan"), dtype=size.dtype), size)


# ---- Cholesky ----


def _phi(t: Tensor) -> Tensor:
    """The lower triangle with half the diagonal."""
    return t.tril() - 0.5 * aten.diag_embed(aten.diagonal(t, 0, -2, -1))


def cholesky_vjp(g: Any, factor: Any, upper: bool) -> Any:
    """The symmetric gradient of the matrix from that of its triangular factor."""
    low = factor.mH if upper else factor
    g = g.mH if upper else g
    p = aten.matmul(low.mH, g).tril()
    p = (p + p.tril(-1).mH) * 0.5
    left = aten.linalg_solve_triangular(low.mH, p, upper=True)
    return aten.linalg_solve_triangular(low, left, upper=False, left=False)


def _cholesky_arrays(x: Any, upper: bool) -> tuple[Any, Any]:
    import numpy as np  # lazy: NumPy is heavy

    x = np.conj(np.swapaxes(x, -1, -2)) if upper else x
    info = np.zeros(x.shape[:-2], np.int32)
    try:
        r = np.linalg.cholesky(x) if x.size else x
    except np.linalg.LinAlgError:
        r = np.tril(x)
        for at in np.ndindex(*info.shape):
            try:
                r[at] = np.linalg.cholesky(x[at])
            except np.linalg.LinAlgError:
                info[at] = next(
                    (k for k in range(1, x.shape[-1] + 1) if not _positive(x[at][:k, :k])),
                    x.shape[-1],
                )
    return (np.conj(np.swapaxes(r, -1, -2)) if upper else r), info


def _positive(x: Any) -> bool:
    import numpy as np  # lazy: NumPy is heavy

    try:
        np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        return False
    return True


class CholeskyEx(Opaque):
    """L with L Lᴴ = A, and info: the order of the first minor that is not positive, or 0."""

    schema = (
        "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) "
        "-> (Tensor L, Tensor info)"
    )
    public = ""
    out = "L"
    out_args = ("L", "info")
    differentiable = (0,)

    def meta(a: Tensor, upper: bool, check: bool) -> Any:
        check_matrix(a, "linalg.cholesky", square=True, kernel="cholesky_cpu")
        return columned(a.shape, a), TensorSpec(a.shape[:-2], dt.int32, a.device)

    def kernel(outs: Any, a: Tensor, upper: bool, check: bool) -> None:
        r, info = _cholesky_arrays(array_of(a), upper)
        put(outs[0], r)
        put(outs[1], info)
        if check:
            aten._linalg_check_errors(outs[1], "linalg.cholesky_ex", is_matrix=a.dim() == 2)

    def vjp(b: Any, g: Any, a: Any, upper: bool, check: bool) -> Any:
        return cholesky_vjp(g[0], b.outs[0], upper)


class LinalgCholesky(Composite):
    """L with L Lᴴ = A; LinAlgError when A is not positive-definite."""

    schema = "linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor"
    public = ""
    out = "out"

    def decompose(a: Tensor, upper: bool) -> Tensor:
        result, info = aten.linalg_cholesky_ex(a, upper=upper, check_errors=False)
        aten._linalg_check_errors(info, "linalg.cholesky", is_matrix=a.dim() == 2)
        return result


class Cholesky(Opaque):
    """linalg.cholesky under its old name."""

    schema = "cholesky(Tensor self, bool upper=False) -> Tensor"
    out = "out"
    out_rows = True

    def meta(a: Tensor, upper: bool) -> TensorSpec:
        check_matrix(a, "cholesky", square=True, kernel="cholesky_cpu", late=True)
        return columned(a.shape, a) if a.numel() else TensorSpec(a.shape, a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor, upper: bool) -> None:
        r, info = _cholesky_arrays(array_of(a), upper)
        bad = info.reshape(-1).nonzero()[0]
        if bad.size:
            where = "" if a.dim() == 2 else f" (Batch element {int(bad[0])}):"
            raise LinAlgError(
                f"cholesky:{where} {_REASONS['cholesky'].format(i=int(info.reshape(-1)[bad[0]]))}"
            )
        put(out, r)

    def vjp(b: Any, g: Any, a: Any, upper: bool) -> Any:
        return cholesky_vjp(g, b.out, upper)


# ---- QR ----


class LinalgQr(Opaque):
    """Q R = A with orthonormal columns in Q. mode: 'reduced', 'complete', or 'r' (R alone)."""

    takes16 = False
    schema = "linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)"
    public = ""
    out = "out"
    out_args = ("Q", "R")
    undefined_grads = True

    def meta(a: Tensor, mode: str) -> Any:
        if mode not in ("reduced", "complete", "r"):
            raise RuntimeError(
                f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
                "'r', or 'complete'"
            )
        check_matrix(a, "linalg.qr", kernel="geqrf_cpu")
        *batch, m, n = a.shape
        k = m if mode == "complete" else min(m, n)
        q = columned([*batch, m, k], a) if mode != "r" else TensorSpec((0,), a.dtype, a.device)
        return q, columned([*batch, k, n], a)

    def kernel(outs: Any, a: Tensor, mode: str) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x = array_of(a)
        if not x.size:
            if outs[0].numel():
                put(outs[0], np.eye(outs[0].shape[-1], dtype=x.dtype))
            return
        if mode == "r":
            put(outs[1], np.linalg.qr(x, "r"))
            return
        q, r = np.linalg.qr(x, "complete" if mode == "complete" else "reduced")
        put(outs[0], q)
        put(outs[1], r)

    def vjp(b: Any, g: Any, a: Any, mode: str) -> Any:
        gq, gr = g
        m, n = a.shape[-2:]
        if mode == "r":
            raise RuntimeError(
                "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. "
                "Please use linalg.qr(A, mode='reduced') if you are going to require gradients."
            )
        if mode == "complete" and m > n:
            raise RuntimeError(
                "The QR decomposition is not differentiable when mode='complete' and nrows > "
                f"ncols. Got nrows={m} and ncols={n}."
            )
        q, r = b.outs
        if gq is None and gr is None:
            return None
        p = None
        if gr is not None:
            p = aten.matmul(gr, r.mH)
        if gq is not None:
            part = aten.matmul(q.mH, gq)
            p = -part if p is None else p - part
        if m >= n:
            p = p.triu()  # type: ignore[union-attr]
            p = (
                p
                + p.mH
                - aten.diag_embed(
                    aten.diagonal(p, 0, -2, -1).real
                    if a.dtype.is_complex
                    else aten.diagonal(p, 0, -2, -1)
                )
            )
            total = aten.matmul(q, p)
            if gq is not None:
                total = total + gq
            return aten.linalg_solve_triangular(r.mH, total, upper=False, left=False)
        return _wide_qr(gr, p, q, r, m)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 3), (4, 3), (3, 4), (2, 3, 3)):
            yield s.sample(s.tensor(shape))


def _wide_qr(gr: Any, p: Any, q: Any, r: Any, m: int) -> Any:
    """QR's gradient for more columns than rows: that of the square part, and
    what the others give."""
    # p = gr Rᴴ - Qᴴ gq; only its strictly lower, skew part acts on Q.
    skew = _lower_minus(p)
    square = aten.narrow(r, -1, 0, m)
    inner = aten.linalg_solve_triangular(square.mH, skew, upper=False, left=False)
    rest = aten.zeros_like(r) if gr is None else gr
    first = aten.narrow(rest, -1, 0, m) + inner
    whole = aten.cat([first, aten.narrow(rest, -1, m, r.shape[-1] - m)], -1)
    return aten.matmul(q, whole)


def _lower_minus(p: Any) -> Any:
    """The strictly lower triangle of pᴴ - p (and, of complex p, half the diagonal's difference)."""
    d = p.mH - p
    low = d.tril(-1)
    if not p.dtype.is_complex:
        return low
    return low + 0.5 * aten.diag_embed(aten.diagonal(d, 0, -2, -1))


class Qr(Composite):
    """linalg.qr under its old name: `some` is the reduced form."""

    schema = "qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)"
    out = "Q"
    out_args = ("Q", "R")

    def decompose(a: Tensor, some: bool) -> Any:
        return tuple(aten.linalg_qr(a, "reduced" if some else "complete"))
