"""Linear systems, least squares and pseudo-inverses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.factor import (
    check_implemented,
    check_matrix,
    check_pinv,
    check_wide,
    columned,
    lu_arrays,
    lu_solution,
    permutation,
    put,
    real_dtype,
    substitute,
)  # fmt: skip
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.promote import broadcast_shape


def batch_of(a: Tensor, b: Tensor) -> list[int]:
    """The broadcast batch shape of two batches of matrices."""
    import numpy as np  # lazy: NumPy is heavy

    try:
        return list(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    except ValueError:
        raise RuntimeError(
            f"The batch dimensions of the tensors cannot be broadcast: {list(a.shape)} and "
            f"{list(b.shape)}"
        ) from None


def _spread(t: Tensor, batch: list[int]) -> Any:
    import numpy as np  # lazy: NumPy is heavy

    return np.broadcast_to(array_of(t), (*batch, *t.shape[-2:]))


def _adjoint(v: Any) -> Any:
    return v.swapaxes(-1, -2).conj()


def sum_batch(g: Any, like: Any) -> Any:
    """g summed over batch dimensions that were broadcast from `like`."""
    if g is None or g.shape == like.shape:
        return g
    extra = g.dim() - like.dim()
    dims = [
        *range(extra),
        *(
            i + extra
            for i in range(like.dim() - 2)
            if like.shape[i] == 1 and g.shape[i + extra] != 1
        ),
    ]
    return g.sum(dims, True).reshape(like.shape) if dims else g.reshape(like.shape)


def is_vector(a: Tensor, b: Tensor) -> bool:
    """Whether b holds a right-hand side a matrix, not matrices (NumPy's old rule)."""
    return b.dim() == 1 or (a.dim() - 1 == b.dim() and tuple(b.shape) == tuple(a.shape[:-1]))


# ---- solve ----


class SolveEx(Opaque):
    """X with A X = B (left) or X A = B, with A's LU factors; info: the first zero pivot or 0."""

    schema = (
        "_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> "
        "(Tensor result, Tensor LU, Tensor pivots, Tensor info)"
    )
    public = ""
    out = "result"
    out_args = ("result", "LU", "pivots", "info")
    differentiable = (0,)

    def meta(a: Tensor, b: Tensor, left: bool, check: bool) -> Any:
        if a.dtype is not b.dtype:
            raise RuntimeError(
                "linalg.solve: Expected A and B to have the same dtype, but found A of type "
                f"{dt.scalar_name(a.dtype)} and B of type {dt.scalar_name(b.dtype)} instead"
            )
        check_matrix(a, "linalg.solve", square=True, kernel="lu_cpu")
        vector = is_vector(a, b)
        if vector and not left:
            raise RuntimeError(
                "linalg.solve: Vector broadcasting of the left hand side is not supported for "
                "left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)"
            )
        shape = [*b.shape, 1] if vector else list(b.shape)
        if len(shape) < 2:
            raise RuntimeError("linalg.solve: The input tensor B must have at least 2 dimensions.")
        n = shape[-2] if left else shape[-1]
        if n != a.shape[-1]:
            word = "AX = B" if left else "XA = B"
            raise RuntimeError(
                f"linalg.solve: Incompatible shapes of A and B for the equation {word} "
                f"({a.shape[-2]}x{a.shape[-1]} and {shape[-2]}x{shape[-1]})"
            )
        import numpy as np  # lazy: NumPy is heavy

        batch = list(np.broadcast_shapes(tuple(a.shape[:-2]), tuple(shape[:-2])))
        full = [*batch, *shape[-2:]]
        if (vector and len(full) == 2) or not left:
            result = TensorSpec(full[:-1] if vector else full, a.dtype, a.device)
        else:
            result = columned(full[:-1] if vector else full, a)
        return (
            result, columned(a.shape, a), TensorSpec(a.shape[:-1], dt.int32, a.device),
            TensorSpec(a.shape[:-2], dt.int32, a.device),
        )  # fmt: skip

    def kernel(outs: Any, a: Tensor, b: Tensor, left: bool, check: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x, y = array_of(a), array_of(b)
        vector = is_vector(a, b)
        y = y[..., None] if vector else y
        lu, pivots, info = lu_arrays(x)
        put(outs[1], lu)
        put(outs[2], pivots)
        put(outs[3], info)
        if check:
            aten._linalg_check_errors(outs[3], "torch.linalg.solve_ex", is_matrix=a.dim() == 2)
        if not outs[0].numel():
            return
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        if not left:  # X A = B is Aᵀ Xᵀ = Bᵀ
            y = y.swapaxes(-1, -2)
        whole = np.broadcast_to(y, (*batch, *y.shape[-2:]))
        if info.any():
            r = lu_solution(lu, pivots, whole) if left else np.full(whole.shape, np.inf, x.dtype)
        else:
            square = x if left else x.swapaxes(-1, -2)
            r = np.linalg.solve(np.broadcast_to(square, (*batch, *x.shape[-2:])), whole)
        if not left:
            r = r.swapaxes(-1, -2)
        put(outs[0], r[..., 0] if vector else r)

    def vjp(b: Any, g: Any, a: Any, rhs: Any, left: bool, check: bool) -> Any:
        x, gx = b.outs[0], g[0]
        vector = is_vector(a, rhs)
        if vector:
            x, gx = x.unsqueeze(-1), gx.unsqueeze(-1)
        gb = aten._linalg_solve_ex(a.mH, gx, left=left)[0]
        ga = None
        if b.needs[0]:
            ga = sum_batch(-aten.matmul(gb, x.mH) if left else -aten.matmul(x.mH, gb), a)
        if not b.needs[1]:
            return ga, None
        if vector:
            gb = gb.squeeze(-1)
            return ga, gb if gb.shape == rhs.shape else gb.sum(
                list(range(gb.dim() - rhs.dim()))
            ).reshape(rhs.shape)
        return ga, sum_batch(gb, rhs)


class SolveExPublic(Composite):
    """linalg.solve with info instead of an error."""

    schema = (
        "linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) "
        "-> (Tensor result, Tensor info)"
    )
    public = ""
    out = "out"
    out_args = ("result", "info")

    def decompose(a: Tensor, b: Tensor, left: bool, check: bool) -> Any:
        result, _, _, info = aten._linalg_solve_ex(a, b, left=left, check_errors=check)
        return result, info


class Solve(Composite):
    """X with A X = B; LinAlgError when A is singular."""

    schema = "linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor"
    public = ""
    out = "out"

    def decompose(a: Tensor, b: Tensor, left: bool) -> Tensor:
        result, _, _, info = aten._linalg_solve_ex(a, b, left=left)
        aten._linalg_check_errors(info, "torch.linalg.solve", is_matrix=a.dim() == 2)
        return result


class SolveTriangular(Opaque):
    """X with A X = B for triangular A; unitriangular takes the diagonal as ones."""

    schema = (
        "linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool "
        "unitriangular=False) -> Tensor"
    )
    public = ""
    out = "out"

    def meta(a: Tensor, b: Tensor, upper: bool, left: bool, unit: bool) -> TensorSpec:
        name = "linalg.solve_triangular"
        if a.dtype is not b.dtype:
            raise RuntimeError(
                f"{name}: Expected A and B to have the same dtype, but found A of type "
                f"{dt.scalar_name(a.dtype)} and B of type {dt.scalar_name(b.dtype)} instead"
            )
        check_matrix(a, name, square=True, kernel="triangular_solve_cpu", late=True)
        check_matrix(b, name, "B", kernel="triangular_solve_cpu", late=True)
        if a.shape[-1] != (b.shape[-2] if left else b.shape[-1]):
            raise RuntimeError(
                f"{name}: Incompatible shapes of A and B for the equation "
                f"{'AX = B' if left else 'XA = B'} ({a.shape[-2]}x{a.shape[-1]} and "
                f"{b.shape[-2]}x{b.shape[-1]})"
            )
        return columned([*batch_of(a, b), *b.shape[-2:]], b)

    def kernel(out: Tensor, a: Tensor, b: Tensor, upper: bool, left: bool, unit: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        x, y = array_of(a), array_of(b)
        if left:
            put(out, substitute(x, y, upper, unit))
        else:
            put(
                out,
                np.swapaxes(
                    substitute(np.swapaxes(x, -1, -2), np.swapaxes(y, -1, -2), not upper, unit),
                    -1,
                    -2,
                ),
            )

    def vjp(b: Any, g: Any, a: Any, rhs: Any, upper: bool, left: bool, unit: bool) -> Any:
        gb = aten.linalg_solve_triangular(a.mH, g, upper=not upper, left=left, unitriangular=unit)
        ga = None
        if b.needs[0]:
            x = b.out
            ga = -aten.matmul(gb, x.mH) if left else -aten.matmul(x.mH, gb)
            ga = sum_batch(ga.triu(int(unit)) if upper else ga.tril(-int(unit)), a)
        return ga, sum_batch(gb, rhs) if b.needs[1] else None


class TriangularSolve(Opaque):
    """The old name of solve_triangular: (X, a copy of A)."""

    schema = (
        "triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool "
        "unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)"
    )
    out = "X"
    out_args = ("X", "M")
    out_fresh = (0, 1)
    undefined_grads = True

    def meta(b: Tensor, a: Tensor, upper: bool, transpose: bool, unit: bool) -> Any:
        for name, t in (("b", b), ("A", a)):
            if t.dim() < 2:
                raise RuntimeError(
                    f"torch.triangular_solve: Expected {name} to have at least 2 dimensions, but "
                    f"it has {t.dim()} dimensions instead"
                )
        if a.shape[-1] != a.shape[-2]:
            raise RuntimeError(
                "triangular_solve: A must be batches of square matrices, but they are "
                f"{a.shape[-2]} by {a.shape[-1]} matrices"
            )
        if a.shape[-1] != b.shape[-2]:
            raise RuntimeError(
                f"Incompatible matrix sizes for triangular_solve: each A matrix is {a.shape[-1]} "
                f"by {a.shape[-1]} but each b matrix is {b.shape[-2]} by {b.shape[-1]}"
            )
        check_implemented(a, "triangular_solve_cpu")
        batch = batch_of(a, b)
        return columned([*batch, *b.shape[-2:]], b), columned([*batch, *a.shape[-2:]], a)

    def kernel(outs: Any, b: Tensor, a: Tensor, upper: bool, transpose: bool, unit: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x = array_of(a)
        put(outs[1], x)
        if outs[0].numel():
            if transpose:
                x, upper = np.swapaxes(x, -1, -2), not upper
            put(outs[0], substitute(x, array_of(b), upper, unit))

    def vjp(b: Any, g: Any, rhs: Any, a: Any, upper: bool, transpose: bool, unit: bool) -> Any:
        g, copied = g
        if g is None:
            return None, copied
        x = b.outs[0]
        t = a.mT.conj() if not transpose else a.conj()
        up = (not upper) if not transpose else upper
        gb = aten.linalg_solve_triangular(t, g, upper=up, unitriangular=unit)
        ga = None
        if b.needs[1]:
            ga = -aten.matmul(x.conj(), gb.mT) if transpose else -aten.matmul(gb, x.mH)
            ga = sum_batch(ga.triu(int(unit)) if upper else ga.tril(-int(unit)), a)
            ga = ga if copied is None else ga + sum_batch(copied, a)
        return sum_batch(gb, rhs) if b.needs[0] else None, ga


class CholeskySolve(Opaque):
    """X with A X = B, A given by its Cholesky factor."""

    schema = "cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor"
    out = "out"
    out_rows = True

    def meta(b: Tensor, a: Tensor, upper: bool) -> TensorSpec:
        if b.dim() < 2:
            raise RuntimeError(
                f"b should have at least 2 dimensions, but has {b.dim()} dimensions instead"
            )
        if a.dim() < 2:
            raise RuntimeError(
                f"u should have at least 2 dimensions, but has {a.dim()} dimensions instead"
            )
        check_matrix(a, "cholesky_solve", square=True, kernel="cholesky_solve_cpu", late=True)
        if a.shape[-1] != b.shape[-2]:
            raise RuntimeError(
                f"Incompatible matrix sizes for cholesky_solve: each A matrix is {a.shape[-1]} by "
                f"{a.shape[-1]} but each b matrix is {b.shape[-2]} by {b.shape[-1]}"
            )
        return columned([*batch_of(a, b), *b.shape[-2:]], b)

    def kernel(out: Tensor, b: Tensor, a: Tensor, upper: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if out.numel():
            x = array_of(a)
            h = np.conj(np.swapaxes(x, -1, -2))
            low, high = (h, x) if upper else (x, h)
            put(out, substitute(high, substitute(low, array_of(b), False), True))

    def vjp(b: Any, g: Any, rhs: Any, a: Any, upper: bool) -> Any:
        gb = aten.cholesky_solve(g, a, upper)
        ga = None
        if b.needs[1]:
            common = aten.matmul(gb, b.out.mH)
            common = common + common.mH
            ga = sum_batch(-aten.matmul(a, common) if upper else -aten.matmul(common, a), a)
        return sum_batch(gb, rhs) if b.needs[0] else None, ga


class CholeskyInverse(Opaque):
    """A⁻¹ from A's Cholesky factor."""

    schema = "cholesky_inverse(Tensor self, bool upper=False) -> Tensor"
    out = "out"
    out_rows = True
    out_fresh = (0,)

    def meta(a: Tensor, upper: bool) -> TensorSpec:
        check_matrix(
            a, "cholesky_inverse", square=True, kernel="cholesky_inverse_out_cpu", late=True
        )
        return columned(a.shape, a)

    def kernel(out: Tensor, a: Tensor, upper: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if out.numel():
            x = array_of(a)
            x = np.triu(x) if upper else np.tril(x)
            h = np.conj(np.swapaxes(x, -1, -2))
            eye = np.eye(x.shape[-1], dtype=x.dtype)
            low, high = (h, x) if upper else (x, h)
            put(out, substitute(high, substitute(low, eye, False), True))

    def vjp(b: Any, g: Any, a: Any, upper: bool) -> Any:
        inv = b.out
        common = aten.matmul(inv, aten.matmul(g + g.mH, inv))
        return -aten.matmul(a, common) if upper else -aten.matmul(common, a)


# ---- LU ----


class LuFactorEx(Opaque):
    """P L U = A with L and U in one matrix, pivots counted from 1."""

    schema = (
        "linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) "
        "-> (Tensor LU, Tensor pivots, Tensor info)"
    )
    public = ""
    out = "out"
    out_args = ("LU", "pivots", "info")
    differentiable = (0,)

    def meta(a: Tensor, pivot: bool, check: bool) -> Any:
        if not pivot:
            raise RuntimeError(
                "linalg.lu_factor: LU without pivoting is not implemented on the CPU"
            )
        check_matrix(a, "torch.lu_factor", kernel="lu_cpu", late=True)
        *batch, m, n = a.shape
        return (
            columned(a.shape, a), TensorSpec([*batch, min(m, n)], dt.int32, a.device),
            TensorSpec(batch, dt.int32, a.device),
        )  # fmt: skip

    def kernel(outs: Any, a: Tensor, pivot: bool, check: bool) -> None:
        for o, v in zip(outs, lu_arrays(array_of(a)), strict=True):
            put(o, v)
        if check:
            aten._linalg_check_errors(outs[2], "torch.linalg.lu_factor_ex", is_matrix=a.dim() == 2)

    def vjp(b: Any, g: Any, a: Any, pivot: bool, check: bool) -> Any:
        p, low, up = aten.lu_unpack(b.outs[0], b.outs[1])
        k = min(a.shape[-2:])
        gl = aten.narrow(g[0], -1, 0, k).tril(-1)
        gu = aten.narrow(g[0], -2, 0, k).triu()
        return lu_gradient(gl, gu, p, low, up)


def lu_gradient(gl: Any, gu: Any, p: Any, low: Any, up: Any) -> Any:
    """The gradient of P L U = A: inner products with what dL and dU are made of."""
    m, k = low.shape[-2:]
    n = up.shape[-1]
    top, left = aten.narrow(low, -2, 0, k), aten.narrow(up, -1, 0, k)
    phi = None
    if gl is not None:
        phi = aten.matmul(low.mH, gl).tril(-1)
    if gu is not None:
        part = aten.matmul(gu, up.mH).triu()
        phi = part if phi is None else phi + part
    if m == n:
        inner = aten.linalg_solve_triangular(top.mH, phi, upper=True, unitriangular=True)
        return aten.matmul(p, aten.linalg_solve_triangular(left.mH, inner, upper=False, left=False))
    if m < n:
        rest = (
            aten.narrow(gu, -1, k, n - k)
            if gu is not None
            else up.new_zeros([*up.shape[:-2], k, n - k])
        )
        u2 = aten.narrow(up, -1, k, n - k)
        phi = (aten.matmul(low.mH, gl).tril(-1) if gl is not None else 0) + (
            aten.matmul(aten.narrow(gu, -1, 0, k), left.mH).triu() if gu is not None else 0
        )
        if gu is not None:
            phi = phi - aten.matmul(rest, u2.mH).tril(-1)
        first = aten.linalg_solve_triangular(left.mH, phi, upper=False, left=False)
        whole = aten.cat([first, rest], -1)
        return aten.matmul(
            p, aten.linalg_solve_triangular(top.mH, whole, upper=True, unitriangular=True)
        )
    l2 = aten.narrow(low, -2, k, m - k)
    rest = (
        aten.narrow(gl, -2, k, m - k)
        if gl is not None
        else low.new_zeros([*low.shape[:-2], m - k, k])
    )
    phi = (aten.matmul(top.mH, aten.narrow(gl, -2, 0, k)).tril(-1) if gl is not None else 0) + (
        aten.matmul(gu, up.mH).triu() if gu is not None else 0
    )
    if gl is not None:
        phi = phi - aten.matmul(l2.mH, rest).triu()
    first = aten.linalg_solve_triangular(top.mH, phi, upper=True, unitriangular=True)
    whole = aten.cat([first, rest], -2)
    return aten.matmul(p, aten.linalg_solve_triangular(left.mH, whole, upper=False, left=False))


class LuFactor(Composite):
    """lu_factor_ex with an error for singular matrices."""

    schema = "linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)"
    public = ""
    out = "out"
    out_args = ("LU", "pivots")

    def decompose(a: Tensor, pivot: bool) -> Any:
        lu, pivots, info = aten.linalg_lu_factor_ex(a, pivot=pivot, check_errors=False)
        aten._linalg_check_errors(info, "torch.linalg.lu_factor", is_matrix=a.dim() == 2)
        return lu, pivots


class LuUnpack(Opaque):
    """P, L and U from lu_factor's matrix and pivots."""

    schema = (
        "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool "
        "unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)"
    )
    public = "function"
    out = "out"
    out_args = ("P", "L", "U")
    differentiable = (1, 2)
    undefined_grads = True

    def meta(lu: Tensor, pivots: Tensor, data: bool, pivot: bool) -> Any:
        if pivot and pivots.dtype is not dt.int32:
            raise RuntimeError(
                "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 "
                "dtype.\nNote: this function is intended to be used with the output produced by "
                "torch.linalg.lu_factor"
            )
        *batch, m, n = lu.shape
        k = min(m, n)
        none = TensorSpec((0,), lu.dtype, lu.device)
        return (
            TensorSpec([*batch, m, m], lu.dtype, lu.device) if pivot else none,
            TensorSpec([*batch, m, k], lu.dtype, lu.device) if data else none,
            TensorSpec([*batch, k, n], lu.dtype, lu.device) if data else none,
        )

    def kernel(outs: Any, lu: Tensor, pivots: Tensor, data: bool, pivot: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x = array_of(lu)
        m, n = x.shape[-2:]
        k = min(m, n)
        if pivot and outs[0].numel():
            order = permutation(array_of(pivots), m)
            p = np.zeros(tuple(outs[0].shape), x.dtype)
            np.put_along_axis(p, order[..., None, :], 1, -2)
            put(outs[0], p)
        if data:
            put(outs[1], np.tril(x[..., :k], -1) + np.eye(m, k, dtype=x.dtype))
            put(outs[2], np.triu(x[..., :k, :]))

    def vjp(b: Any, g: Any, lu: Any, pivots: Any, data: bool, pivot: bool) -> Any:
        _, gl, gu = g
        if gl is None and gu is None:
            return None, None
        m, n = lu.shape[-2:]
        k = min(m, n)
        total = None
        if gl is not None:
            total = gl.tril(-1)
            if n > k:
                total = aten.cat([total, total.new_zeros([*total.shape[:-1], n - k])], -1)
        if gu is not None:
            part = gu.triu()
            if m > k:
                part = aten.cat([part, part.new_zeros([*part.shape[:-2], m - k, n])], -2)
            total = part if total is None else total + part
        return total, None


class Lu(Opaque):
    """P, L, U with P L U = A."""

    schema = "linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"
    public = ""
    out = "out"
    out_args = ("P", "L", "U")
    differentiable = (1, 2)
    undefined_grads = True

    def meta(a: Tensor, pivot: bool) -> Any:
        check_matrix(a, "linalg.lu", kernel="lu_cpu", late=True)
        *batch, m, n = a.shape
        k = min(m, n)
        return (
            TensorSpec([*batch, m, m], a.dtype, a.device),
            TensorSpec([*batch, m, k], a.dtype, a.device),
            TensorSpec([*batch, k, n], a.dtype, a.device),
        )

    def kernel(outs: Any, a: Tensor, pivot: bool) -> None:
        lu, pivots, _ = aten.linalg_lu_factor_ex(a, pivot=pivot)
        for o, v in zip(outs, aten.lu_unpack(lu, pivots), strict=True):
            put(o, array_of(v))

    def vjp(b: Any, g: Any, a: Any, pivot: bool) -> Any:
        _, gl, gu = g
        if gl is None and gu is None:
            return None
        p, low, up = b.outs
        return lu_gradient(
            None if gl is None else gl.tril(-1), None if gu is None else gu.triu(), p, low, up
        )


class LuSolve(Opaque):
    """X with A X = B from A's LU factors."""

    schema = (
        "linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool "
        "adjoint=False) -> Tensor"
    )
    public = ""
    out = "out"

    def meta(lu: Tensor, pivots: Tensor, b: Tensor, left: bool, adjoint: bool) -> TensorSpec:
        check_matrix(lu, "torch.linalg.lu_solve", "LU", square=True, kernel="linalg.lu_solve_cpu")
        if lu.dtype is not b.dtype:
            raise RuntimeError(
                "linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type "
                f"{dt.scalar_name(lu.dtype)} and B of type {dt.scalar_name(b.dtype)} instead"
            )
        if pivots.dtype is not dt.int32:
            raise RuntimeError(
                "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32"
            )
        if lu.shape[-1] != (b.shape[-2] if left else b.shape[-1]):
            raise RuntimeError(
                "linalg.lu_solve: Incompatible shapes of A and B for the equation "
                f"{'AX = B' if left else 'XA = B'} ({lu.shape[-2]}x{lu.shape[-1]} and "
                f"{b.shape[-2]}x{b.shape[-1]})"
            )
        if tuple(lu.shape[:-1]) != tuple(pivots.shape):
            raise RuntimeError(
                "linalg.lu_solve: Number of pivots per batch should be same as the dimension of "
                "the matrix"
            )
        shape = [*batch_of(lu, b), *b.shape[-2:]]  # from the right, the transpose is solved for
        return columned(shape, b) if left else TensorSpec(shape, b.dtype, b.device)

    def kernel(
        out: Tensor, lu: Tensor, pivots: Tensor, b: Tensor, left: bool, adjoint: bool
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        x, p, y = array_of(lu), array_of(pivots), array_of(b)
        if left:
            put(out, lu_solution(x, p, y, adjoint))
        else:  # X A = B is Aᴴ Xᴴ = Bᴴ
            r = lu_solution(x, p, np.conj(np.swapaxes(y, -1, -2)), not adjoint)
            put(out, np.conj(np.swapaxes(r, -1, -2)))

    def vjp(b: Any, g: Any, lu: Any, pivots: Any, rhs: Any, left: bool, adjoint: bool) -> Any:
        gb = (
            sum_batch(aten.linalg_lu_solve(lu, pivots, g, left=left, adjoint=not adjoint), rhs)
            if b.needs[2]
            else None
        )
        glu = None
        if b.needs[0]:
            p, low, up = aten.lu_unpack(lu, pivots)
            x = b.out
            whole = aten.linalg_lu_solve(lu, pivots, g, left=left, adjoint=not adjoint)
            # ga: the gradient of A = P L U itself, carried on to L and U
            if left != adjoint:
                ga = -aten.matmul(whole, x.mH) if left else -aten.matmul(whole.mH, x)
            else:
                ga = -aten.matmul(x, whole.mH) if left else -aten.matmul(x.mH, whole)
            pa = aten.matmul(p.mT, ga)
            glu = aten.matmul(pa, up.mH).tril(-1) + aten.matmul(low.mH, pa).triu()
            glu = sum_batch(glu, lu)
        return glu, None, gb


class TorchLuSolve(Composite):
    """linalg.lu_solve with the right-hand side first."""

    schema = "lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor"
    out = "out"

    def decompose(b: Tensor, lu: Tensor, pivots: Tensor) -> Tensor:
        return aten.linalg_lu_solve(lu, pivots, b)


class LuWithInfo(Composite):
    """What torch.lu calls."""

    schema = (
        "_lu_with_info(Tensor self, bool pivot=True, bool check_errors=True) "
        "-> (Tensor LU, Tensor pivots, Tensor info)"
    )
    public = "function"

    def decompose(a: Tensor, pivot: bool, check: bool) -> Any:
        return tuple(aten.linalg_lu_factor_ex(a, pivot=pivot, check_errors=False))


# ---- pseudo-inverse and least squares ----


def _tolerances(a: Tensor, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """torch's defaults: rtol is eps max(m, n) unless an atol above 0 is given."""
    kind = real_dtype(a)
    if rtol is None:
        eps = 2.0**-52 if kind is dt.float64 else 2.0**-23
        standard = eps * max(a.shape[-2:])
        if atol is None:
            rtol = standard
        elif isinstance(atol, Tensor):
            rtol = aten.where(
                atol > 0, aten.zeros((), dtype=kind), aten.full((), standard, dtype=kind)
            )
        else:
            rtol = 0.0 if atol > 0 else standard
    given = [
        v if isinstance(v, Tensor) else aten.full((), 0.0 if v is None else float(v), dtype=kind)
        for v in (atol, rtol)
    ]
    return given[0], given[1]


class PinvTensor(Opaque):
    """The Moore-Penrose inverse; singular values below max(atol, rtol σ₁) count as 0."""

    takes16 = False
    schema = (
        "linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool "
        "hermitian=False) -> Tensor"
    )
    public = ""
    out = "atol_rtol_tensor_out"
    node_name = "LinalgPinv"

    def meta(a: Tensor, atol: Any, rtol: Any, hermitian: bool) -> TensorSpec:
        check_pinv(a)
        *batch, m, n = a.shape
        return TensorSpec([*batch, n, m], a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor, atol: Any, rtol: Any, hermitian: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        at, rt = (array_of(t)[..., None] for t in _tolerances(a, atol, rtol))
        x = array_of(a)
        if hermitian:
            s, v = np.linalg.eigh(x)
            size = np.abs(s)
            keep = size > np.maximum(at, rt * size.max(-1, keepdims=True))
            put(
                out,
                np.matmul(
                    v * np.where(keep, 1 / np.where(keep, s, 1), 0)[..., None, :],
                    np.conj(np.swapaxes(v, -1, -2)),
                ),
            )
            return
        u, s, vh = np.linalg.svd(x, False)
        keep = s > np.maximum(at, rt * s.max(-1, keepdims=True))
        inverse = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(s.dtype)
        put(out, np.matmul(_adjoint(vh) * inverse[..., None, :], _adjoint(u)))

    def vjp(b: Any, g: Any, a: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
        rest = [None] * ((atol is not None) + (rtol is not None))
        return pinv_gradient(g, b.out, a), *rest

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 3), (4, 3), (2, 3, 4)):
            yield s.sample(s.tensor(shape))


def pinv_gradient(g: Any, p: Any, a: Any) -> Any:
    """The gradient of A⁺ for constant rank (Golub and Pereyra 1973)."""
    mm, ph, gh = aten.matmul, p.mH, g.mH
    if a.shape[-2] <= a.shape[-1]:
        k = mm(gh, p)
        kph = mm(k, ph)
        eye = aten.eye(a.shape[-1], dtype=a.dtype)
        return -mm(p, k).mH + kph - mm(mm(a, p), kph) + mm(mm(ph, p), mm(gh, eye - mm(p, a)))
    k = mm(p, gh)
    phk = mm(ph, k)
    return (
        -mm(k, p).mH
        + mm(aten.eye(a.shape[-2], dtype=a.dtype) - mm(a, p), mm(gh, mm(p, ph)))
        + phk
        - mm(phk, mm(p, a))
    )


class PinvFloat(Composite):
    """The Moore-Penrose inverse with tolerances as numbers."""

    schema = (
        "linalg_pinv.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool "
        "hermitian=False) -> Tensor"
    )
    public = ""
    out = "atol_rtol_float_out"

    def decompose(a: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
        check_pinv(a)
        at, rt = _tolerances(a, atol, rtol)
        return aten.linalg_pinv(a, atol=at, rtol=rt, hermitian=hermitian)


class Pinv(Composite):
    """The Moore-Penrose inverse; singular values below rcond σ₁ count as 0."""

    schema = "linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor"
    overloads = (
        "linalg_pinv.rcond_tensor(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor",
    )
    public = ""
    out = True

    def decompose(a: Tensor, rcond: Any, hermitian: bool) -> Tensor:
        check_pinv(a)
        at, rt = _tolerances(a, 0.0, rcond)
        return aten.linalg_pinv(a, atol=at, rtol=rt, hermitian=hermitian)


class Pinverse(Composite):
    """linalg.pinv under its old name."""

    schema = "pinverse(Tensor self, float rcond=1e-15) -> Tensor"

    def decompose(a: Tensor, rcond: float) -> Tensor:
        check_pinv(a)
        at, rt = _tolerances(a, 0.0, rcond)
        return aten.linalg_pinv(a, atol=at, rtol=rt, hermitian=False)


class Lstsq(Opaque):
    """The least-squares solution of A X = B, with residuals, ranks and singular values."""

    schema = (
        "linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> "
        "(Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)"
    )
    public = ""
    out = "out"
    out_args = ("solution", "residuals", "rank", "singular_values")
    out_rows = True
    out_fresh = (0,)
    differentiable = (0, 1)
    undefined_grads = True

    def meta(a: Tensor, b: Tensor, rcond: Any, driver: Any) -> Any:
        if a.dim() < 2:
            raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
        check_wide(a)
        if b.dim() < 1:
            raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
        if a.dtype is not b.dtype:
            raise RuntimeError(
                "torch.linalg.lstsq: Expected input and other to have the same dtype, but got "
                f"input's dtype {dt.scalar_name(a.dtype)} and other's dtype "
                f"{dt.scalar_name(b.dtype)}"
            )
        if a.dim() - b.dim() not in (0, 1):
            raise RuntimeError(
                "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and "
                "(input.dim() - other.dim()) <= 1"
            )
        if driver is not None and driver not in ("gels", "gelsy", "gelsd", "gelss"):
            raise RuntimeError(
                "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, "
                f"gelss), received {driver}"
            )
        vector = is_vector(a, b) and a.dim() - b.dim() == 1
        rows = b.shape[-1] if vector else b.shape[-2]
        if rows != a.shape[-2]:
            raise RuntimeError(
                "torch.linalg.lstsq: input.size(-2) should match "
                f"other.size({-1 if vector else -2})"
            )
        columns = a.dim() - b.dim() == 1
        shape = [*b.shape, 1] if columns else list(b.shape)
        *own, m, n = a.shape
        batch = broadcast_shape([a.shape[:-2], shape[:-2]])
        full = [*batch, n, shape[-1]]
        driver = driver or "gelsy"
        stat = TensorSpec((0,), real_dtype(a), a.device)
        residuals = (
            TensorSpec([*batch, shape[-1]], real_dtype(a), a.device)
            if m > n and driver != "gelsy"
            else stat
        )
        ranks = (
            TensorSpec(own, dt.int64, a.device)
            if driver != "gels"
            else TensorSpec((0,), dt.int64, a.device)
        )
        values = (
            TensorSpec([*own, min(m, n)], real_dtype(a), a.device)
            if driver in ("gelsd", "gelss")
            else stat
        )
        # LAPACK leaves the solution in the first rows of what held B
        rows = columned([*batch, max(m, n), shape[-1]], a).stride
        solution = TensorSpec(full, a.dtype, a.device, rows)
        if columns:
            solution = TensorSpec(full[:-1], a.dtype, a.device)
        return solution, residuals, ranks, values

    def by_value(extent: Any, a: Tensor, b: Tensor, rcond: Any, driver: Any) -> Any:
        return Lstsq.meta(a, b, rcond, driver)  # torch's tag says so, but no extent depends on one

    def kernel(outs: Any, a: Tensor, b: Tensor, rcond: Any, driver: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        x, y = array_of(a), array_of(b)
        columns = a.dim() - b.dim() == 1
        y = y[..., None] if columns else y
        if not outs[0].numel():
            return
        if not x.size:
            put(outs[0], 0)
            return
        rcond = np.finfo(x.dtype).eps * max(x.shape[-2:]) if rcond is None else rcond
        u, s, vh = np.linalg.svd(x, False)
        keep = s > rcond * s.max(-1, keepdims=True)
        inverse = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(s.dtype)
        r = np.matmul(_adjoint(vh), inverse[..., None] * np.matmul(_adjoint(u), y))
        put(outs[0], r[..., 0] if columns else r)
        if outs[1].numel():
            put(outs[1], (np.abs(np.matmul(x, r) - y) ** 2).sum(-2))
        put(outs[2], keep.sum(-1))
        put(outs[3], s)

    def vjp(b: Any, g: Any, a: Any, rhs: Any, rcond: Any, driver: Any) -> Any:
        gx, gr = g[:2]
        columns = a.dim() - rhs.dim() == 1
        y = rhs.unsqueeze(-1) if columns else rhs
        ga = gb = None
        if gx is not None:
            gx = gx.unsqueeze(-1) if columns else gx
            p = aten.linalg_pinv(a, 1e-15)
            if b.needs[0]:
                ga = pinv_gradient(sum_batch(aten.matmul(gx, y.mH), p), p, a)
            if b.needs[1]:
                gb = sum_batch(aten.matmul(p.mH, gx), y)
        if gr is not None:
            # of |A X - B|²; what X adds is 0, the residual being orthogonal to A's columns
            x = b.outs[0].unsqueeze(-1) if columns else b.outs[0]
            away = aten.matmul(a, x) - y
            if not gr.numel():
                return ga, gb.squeeze(-1) if gb is not None and columns else gb
            away = 2 * gr.unsqueeze(-2) * away
            if b.needs[0]:
                part = sum_batch(aten.matmul(away, x.mH), a)
                ga = part if ga is None else ga + part
            if b.needs[1]:
                gb = sum_batch(-away, y) if gb is None else gb - sum_batch(away, y)
        return ga, gb.squeeze(-1) if gb is not None and columns else gb
