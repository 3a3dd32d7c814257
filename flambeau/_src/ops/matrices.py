"""Products of vectors and matrices, and what is made of factorisations:
ranks, conditions, tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, overridable
from flambeau._src.ops.factor import check_matrix, check_wide
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec, cast, wrap_dim
from flambeau._src.ops.promote import result_type
from flambeau._src.ops.solve import _tolerances
from flambeau._src.util.log import warn_once

HALF = (dt.bfloat16, dt.float16)


def _up(*tensors: Any) -> Any:
    return tuple(cast(t, dt.float32) if t.dtype in HALF else t for t in tensors)


class Vdot(Opaque):
    """The inner product of two vectors, the first conjugated."""

    schema = "vdot(Tensor self, Tensor other) -> Tensor"
    out = "out"

    def meta(a: Tensor, b: Tensor) -> TensorSpec:
        if a.dim() != 1 or b.dim() != 1:
            raise RuntimeError(f"1D tensors expected, but got {a.dim()}D and {b.dim()}D tensors")
        if a.dtype is not b.dtype:
            raise RuntimeError(
                "dot : expected both vectors to have same dtype, but found "
                f"{dt.scalar_name(a.dtype)} and {dt.scalar_name(b.dtype)}"
            )
        if a.numel() != b.numel():
            raise RuntimeError(
                f"inconsistent tensor size, expected tensor [{a.numel()}] and src [{b.numel()}] to "
                f"have the same number of elements, but got {a.numel()} and {b.numel()} elements "
                "respectively"
            )
        return TensorSpec((), a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor, b: Tensor) -> None:
        slot("copy_into")(out, aten.dot(a.conj().resolve_conj() if a.dtype.is_complex else a, b))

    def decompose(a: Tensor, b: Tensor) -> Tensor:
        return aten.dot(aten.resolve_conj(aten.conj(a)) if a.dtype.is_complex else a, b)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return g.conj() * y if b.needs[0] else None, g * x if b.needs[1] else None


class Inner(Composite):
    """Sums of products over the last dimensions."""

    schema = "inner(Tensor self, Tensor other) -> Tensor"
    out = "out"

    def decompose(a: Tensor, b: Tensor) -> Tensor:
        if not a.dim() or not b.dim():
            return a * b
        if a.shape[-1] != b.shape[-1]:
            raise RuntimeError(
                "inner() the last dimension must match on both input tensors but got shapes "
                f"{list(a.shape)} and {list(b.shape)}"
            )
        return aten.tensordot(a, b, [-1], [-1])

    def decompose_out(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        if a.dim() and b.dim() and a.shape[-1] == b.shape[-1]:
            return aten.tensordot(a, b, [-1], [-1], out=out)
        slot("write_out")(out, Inner.decompose(a, b))
        return out


class Kron(Composite):
    """The Kronecker product."""

    schema = "kron(Tensor self, Tensor other) -> Tensor"
    out = "out"

    def decompose(a: Tensor, b: Tensor) -> Tensor:
        n = max(a.dim(), b.dim())
        left = [1] * (n - a.dim()) + list(a.shape)
        right = [1] * (n - b.dim()) + list(b.shape)
        spread_a = [v for s in left for v in (s, 1)]
        spread_b = [v for s in right for v in (1, s)]
        product = aten._unsafe_view(a.contiguous(), spread_a) * aten._unsafe_view(
            b.contiguous(), spread_b
        )
        return aten._unsafe_view(
            product.contiguous(), [x * y for x, y in zip(left, right, strict=True)]
        )


class Tensordot(Composite):
    """Sums of products over pairs of dimensions."""

    schema = "tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor"
    out = "out"
    public = ""

    def decompose(a: Tensor, b: Tensor, dims_a: Sequence[int], dims_b: Sequence[int]) -> Tensor:
        if len(dims_a) != len(dims_b):
            raise RuntimeError("both dimension lists should have same length")
        if a.dtype is not b.dtype:
            raise RuntimeError("both inputs should have same dtype")
        first, second = [], []
        for da, db in zip(dims_a, dims_b, strict=True):
            i, j = wrap_dim(da, a.dim()), wrap_dim(db, b.dim())
            na, nb = a.shape[i], b.shape[j]
            if nb == 1:
                a = a.sum(i, True)
            elif na == 1:
                b = b.sum(j, True)
            elif na != nb:
                raise RuntimeError(
                    f"contracted dimensions need to match, but first has size {na} in dim {da} and "
                    f"second has size {nb} in dim {db}"
                )
            first.append(i)
            second.append(j)
        free_a = [i for i in range(a.dim()) if i not in first]
        free_b = [i for i in range(b.dim()) if i not in second]
        size_a, size_b = [a.shape[i] for i in free_a], [b.shape[i] for i in free_b]
        inner = 1
        for i in first:
            inner *= a.shape[i]
        left = a.permute([*free_a, *first]).reshape([math.prod(size_a), inner])
        right = b.permute([*second, *free_b]).reshape([inner, math.prod(size_b)])
        return aten.mm(left, right).reshape([*size_a, *size_b])

    def decompose_out(
        a: Tensor, b: Tensor, dims_a: Sequence[int], dims_b: Sequence[int], out: Tensor
    ) -> Tensor:
        made = Tensordot.decompose(a, b, dims_a, dims_b)
        if out.dtype is not made.dtype:
            raise RuntimeError(
                "tensordot: Expected the output tensor to have dtype "
                f"{dt.scalar_name(made.dtype)}, but got an output tensor with dtype "
                f"{dt.scalar_name(out.dtype)}"
            )
        slot("write_out")(out, made)
        return out


@overridable
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Sums of products: over the last `dims` dimensions of a and the first of b, or over the two
    lists of dimensions in `dims`."""
    if isinstance(dims, Tensor):
        count = dims.numel()
        if count > 1:
            if dims.shape[0] != 2:
                raise AssertionError(
                    f"dims tensor must have shape [2, ...], got shape {dims.shape}"
                )
            first, second = dims[0].tolist(), dims[1].tolist()
            first, second = ([v] if isinstance(v, int) else v for v in (first, second))
        else:
            value = int(dims.item())
            if value < 0:
                raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
            first, second = list(range(-value, 0)), list(range(value))
    elif isinstance(dims, (tuple, list)):
        if len(dims) != 2:
            raise RuntimeError(
                "tensordot expects dims to be int or tuple[list[int], list[int]] or "
                f"list[list[int]] containing two lists, but got dims={dims}"
            )
        first, second = list(dims[0]), list(dims[1])
    else:
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        first, second = list(range(-dims, 0)), list(range(dims))
    if out is None:
        return aten.tensordot(a, b, first, second)
    return aten.tensordot(a, b, first, second, out=out)


def _plus(x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta x + alpha product; with beta 0 what is in x does not count. Both are numbers of the
    product's dtype: of integers their fractions are dropped.
    """
    if dt.is_integral(product.dtype):
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (x if beta == 1 else x * beta)


class Addmv(Opaque):
    """beta self + alpha mat @ vec."""

    old_form = True
    schema = (
        "addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor"
    )
    inplace = True
    out = "out"

    def meta(x: Tensor, mat: Tensor, vec: Tensor, beta: Any, alpha: Any) -> TensorSpec:
        if not (mat.dim() == 2 and vec.dim() == 1 and x.dim() <= 1):
            raise RuntimeError(
                f"vector + matrix @ vector expected, got {x.dim()}, {mat.dim()}, {vec.dim()}"
            )
        if mat.shape[1] != vec.shape[0] or x.numel() not in (1, mat.shape[0]):
            raise RuntimeError(
                f"size mismatch, got input ({x.numel()}), mat ({mat.shape[0]}x{mat.shape[1]}), vec "
                f"({vec.shape[0]})"
            )
        return TensorSpec((mat.shape[0],), vec.dtype, vec.device)

    def kernel(out: Tensor, x: Tensor, mat: Tensor, vec: Tensor, beta: Any, alpha: Any) -> None:
        x, mat, vec = _up(x, mat, vec)
        slot("copy_into")(out, aten.expand(_plus(x, aten.mv(mat, vec), beta, alpha), out.shape))

    def decompose(x: Tensor, mat: Tensor, vec: Tensor, beta: Any, alpha: Any) -> Tensor:
        return aten.expand(_plus(x, aten.mv(mat, vec), beta, alpha), (mat.shape[0],))

    def vjp(b: Any, g: Any, x: Any, mat: Any, vec: Any, beta: Any, alpha: Any) -> Any:
        return (
            slot("sum_to")(g * _conj(beta), x) if b.needs[0] else None,
            aten.outer(g, vec.conj()) * _conj(alpha) if b.needs[1] else None,
            aten.mv(mat.mH, g) * _conj(alpha) if b.needs[2] else None,
        )


def _conj(v: Any) -> Any:
    return v.conjugate() if isinstance(v, complex) else v


class Addr(Opaque):
    """beta self + alpha times the outer product of two vectors."""

    old_form = True
    schema = (
        "addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"
    )
    inplace = True
    out = "out"

    def meta(x: Tensor, v1: Tensor, v2: Tensor, beta: Any, alpha: Any) -> TensorSpec:
        for name, v in (("vec1", v1), ("vec2", v2)):
            if v.dim() != 1:
                raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {v.dim()}-D")
        shape = (v1.shape[0], v2.shape[0])
        aten.expand(x, shape)
        return TensorSpec(shape, result_type((x, v1, v2)), x.device)

    out_dtype = "cast"

    def kernel(out: Tensor, x: Tensor, v1: Tensor, v2: Tensor, beta: Any, alpha: Any) -> None:
        x, v1, v2 = _up(x, v1, v2)
        if out.dtype is dt.bool_:
            r = aten.outer(v1, v2) if alpha else aten.zeros(out.shape, dtype=dt.bool_)
            slot("copy_into")(out, aten.logical_or(r, x) if beta else r)
            return
        slot("copy_into")(out, _plus(x, aten.outer(v1, v2), beta, alpha))

    def vjp(b: Any, g: Any, x: Any, v1: Any, v2: Any, beta: Any, alpha: Any) -> Any:
        return (
            slot("sum_to")(g * _conj(beta), x) if b.needs[0] else None,
            aten.mv(g, v2.conj()) * _conj(alpha) if b.needs[1] else None,
            aten.mv(g.t(), v1.conj()) * _conj(alpha) if b.needs[2] else None,
        )


class Addbmm(Opaque):
    """beta self + alpha times the sum of the products of a batch."""

    old_form = True
    schema = (
        "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) "
        "-> Tensor"
    )
    inplace = True
    out = "out"

    def meta(x: Tensor, b1: Tensor, b2: Tensor, beta: Any, alpha: Any) -> TensorSpec:
        for name, v in (("batch1", b1), ("batch2", b2)):
            if v.dim() != 3:
                raise RuntimeError(f"{name} must be a 3D tensor")
        if b1.shape[0] != b2.shape[0]:
            raise RuntimeError(
                f"batch1 and batch2 must have same number of batches, got {b1.shape[0]} and "
                f"{b2.shape[0]}"
            )
        if b1.shape[2] != b2.shape[1]:
            raise RuntimeError(
                f"Incompatible matrix sizes for bmm ({b1.shape[1]}x{b1.shape[2]} and "
                f"{b2.shape[1]}x{b2.shape[2]})"
            )
        shape = (b1.shape[1], b2.shape[2])
        aten.expand(x, shape)
        return TensorSpec(shape, x.dtype, x.device)

    def kernel(out: Tensor, x: Tensor, b1: Tensor, b2: Tensor, beta: Any, alpha: Any) -> None:
        x, b1, b2 = _up(x, b1, b2)
        slot("copy_into")(
            out, aten.expand(_plus(x, aten.bmm(b1, b2).sum(0), beta, alpha), out.shape)
        )

    def decompose(x: Tensor, b1: Tensor, b2: Tensor, beta: Any, alpha: Any) -> Tensor:
        made = _plus(x, aten.sum(aten.bmm(b1, b2), [0]), beta, alpha)
        return aten.expand(made, (b1.shape[1], b2.shape[2]))

    def vjp(b: Any, g: Any, x: Any, b1: Any, b2: Any, beta: Any, alpha: Any) -> Any:
        many = g.unsqueeze(0).expand(b1.shape[0], *g.shape)
        return (
            slot("sum_to")(g * _conj(beta), x) if b.needs[0] else None,
            aten.bmm(many, b2.mH) * _conj(alpha) if b.needs[1] else None,
            aten.bmm(b1.mH, many) * _conj(alpha) if b.needs[2] else None,
        )


class LinalgCross(Opaque):
    """The vector product along a dimension of extent 3."""

    schema = "linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor"
    public = ""
    out = "out"

    def meta(a: Tensor, b: Tensor, dim: int) -> TensorSpec:
        if a.dim() != b.dim():
            raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
        d = wrap_dim(dim, a.dim())
        if a.shape[d] != 3 or b.shape[d] != 3:
            raise RuntimeError(
                f"linalg.cross: inputs dimension {dim} must have length 3. Got {a.shape[d]} and "
                f"{b.shape[d]}"
            )
        shape, _ = slot("broadcast_geometry")([a, b])
        return TensorSpec(shape, result_type((a, b)), a.device)

    def kernel(out: Tensor, a: Tensor, b: Tensor, dim: int) -> None:
        a, b = _up(a, b)
        slot("copy_into")(out, _cross(a, b, dim))

    def decompose(a: Tensor, b: Tensor, dim: int) -> Tensor:
        LinalgCross.meta(a, b, dim)
        return _cross(a, b, dim)

    def vjp(b: Any, g: Any, x: Any, y: Any, dim: int) -> Any:
        return (
            slot("sum_to")(aten.linalg_cross(y.conj(), g, dim=dim), x) if b.needs[0] else None,
            slot("sum_to")(aten.linalg_cross(g, x.conj(), dim=dim), y) if b.needs[1] else None,
        )


def _cross(a: Tensor, b: Tensor, dim: int) -> Tensor:
    (ax, ay, az), (bx, by, bz) = ([aten.narrow(t, dim, i, 1) for i in range(3)] for t in (a, b))
    return aten.cat([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], dim)


class Cross(Composite):
    """linalg.cross along the first dimension of extent 3, or the one given."""

    schema = "cross(Tensor self, Tensor other, int? dim=None) -> Tensor"
    out = "out"

    def decompose(a: Tensor, b: Tensor, dim: int | None) -> Tensor:
        return aten.linalg_cross(a, b, dim=_first_of_three(a) if dim is None else dim)

    def decompose_out(a: Tensor, b: Tensor, dim: int | None, out: Tensor) -> Tensor:
        return aten.linalg_cross(a, b, dim=_first_of_three(a) if dim is None else dim, out=out)


def _first_of_three(a: Tensor) -> int:
    for i, n in enumerate(a.shape):
        if n == 3:
            return i
    raise RuntimeError("no dimension of size 3 in input")


class Vecdot(Composite):
    """Inner products along a dimension, the first operand conjugated."""

    schema = "linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor"
    public = ""
    out = "out"

    def decompose(x: Tensor, y: Tensor, dim: int) -> Tensor:
        for t in (x, y):
            if not (t.dtype.is_floating_point or t.dtype.is_complex):
                raise RuntimeError(
                    "linalg.vecdot: Expected a floating point or complex tensor as input. Got "
                    f"{dt.scalar_name(t.dtype)}"
                )
        if x.dim() == y.dim() == 1:
            return aten.vdot(x, y)
        return x.conj().mul(y).sum(dim)


class MultiDot(Composite):
    """A chain of matrix products in the cheapest order."""

    schema = "linalg_multi_dot(Tensor[] tensors) -> Tensor"
    public = ""
    out = "out"

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> Tensor:
        n = len(tensors)
        if n < 2:
            raise RuntimeError("multi_dot(): expected at least 2 tensors but got " + str(n))
        shape: list[int] = []
        mats = list(tensors)
        if mats[0].dim() == 1:
            mats[0] = mats[0].unsqueeze(0)
        elif mats[0].dim() == 2:
            shape.append(mats[0].shape[0])
        else:
            raise RuntimeError(
                f"multi_dot(): the first tensor must be 1D or 2D but got {mats[0].dim()}D"
            )
        if mats[-1].dim() == 1:
            mats[-1] = mats[-1].unsqueeze(-1)
        elif mats[-1].dim() == 2:
            shape.append(mats[-1].shape[1])
        else:
            raise RuntimeError(
                f"multi_dot(): the last tensor must be 1D or 2D but got {mats[-1].dim()}D"
            )
        for i, m in enumerate(mats):
            if m.dim() != 2:
                raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {m.dim()}D")
            if m.dtype is not mats[0].dtype:
                raise RuntimeError(
                    "multi_dot(): all tensors must have be the same dtype but tensor 0 is "
                    f"{mats[0].dtype} and tensor {i} {m.dtype}"
                )
            if i and mats[i - 1].shape[1] != m.shape[0]:
                raise RuntimeError(
                    f"multi_dot(): tensors {i - 1} and {i} with shapes {list(mats[i - 1].shape)} "
                    f"and {list(m.shape)} cannot be multiplied"
                )
        return _chain(mats).view(shape)

    @staticmethod
    def decompose_out(tensors: Sequence[Tensor], out: Tensor) -> Tensor:
        made = MultiDot.decompose(tensors)
        if out.dtype is not made.dtype:
            raise RuntimeError(
                f"multi_dot(): expected out tensor to have dtype {dt.c_name(made.dtype)} but got "
                f"{dt.c_name(out.dtype)}"
            )
        slot("write_out")(out, made)
        return out


def _chain(mats: list[Tensor]) -> Tensor:
    """The product in the order of fewest multiplications (Cormen et al., 15.2)."""
    n = len(mats)
    if n == 2:
        return aten.mm(mats[0], mats[1])
    if n == 3:
        a, b = mats[0].shape
        c, d = mats[2].shape
        if (a * c) * (b + d) < (b * d) * (a + c):
            return aten.mm(aten.mm(mats[0], mats[1]), mats[2])
        return aten.mm(mats[0], aten.mm(mats[1], mats[2]))
    p = [mats[0].shape[0], *(m.shape[1] for m in mats)]
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], cut[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + p[i] * p[k + 1] * p[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        return mats[i] if i == j else aten.mm(product(i, cut[i][j]), product(cut[i][j] + 1, j))

    return product(0, n - 1)


# ---- made of factorisations ----


class MatrixRank(Composite):
    """How many singular values exceed max(atol, rtol σ₁)."""

    schema = (
        "linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? atol=None, Tensor? "
        "rtol=None, bool hermitian=False) -> Tensor"
    )
    overloads = (
        "linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, "
        "bool hermitian=False) -> Tensor",
    )
    public = ""
    out = True

    def decompose(a: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
        check_matrix(a, "torch.linalg.matrix_rank", "input", square=hermitian, types=False)
        check_wide(a)
        at, rt = _tolerances(a, atol, rtol)
        return _rank(a, at, rt, hermitian)


class MatrixRankTol(Composite):
    """How many singular values exceed tol."""

    schema = "linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> Tensor"
    overloads = (
        "linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool hermitian=False) -> Tensor",
    )
    public = ""
    out = True

    def decompose(a: Tensor, tol: Any, hermitian: bool) -> Tensor:
        check_matrix(a, "torch.linalg.matrix_rank", "input", square=hermitian, types=False)
        check_wide(a)
        at, rt = _tolerances(a, tol, 0.0)
        return _rank(a, at, rt, hermitian)


def _rank(a: Tensor, atol: Tensor, rtol: Tensor, hermitian: bool) -> Tensor:
    if not a.numel():
        return aten.zeros(a.shape[:-2], dtype=dt.int64)
    a = a.detach()
    values = aten.linalg_eigvalsh(a).abs() if hermitian else aten.linalg_svdvals(a)
    top = aten.amax(values, [-1]) if hermitian else values[..., 0]
    bound = aten.maximum(atol.unsqueeze(-1), rtol.unsqueeze(-1) * top.unsqueeze(-1))
    return (values > bound).sum(-1)


class Cond(Composite):
    """The condition number in the norm p (None: 2)."""

    schema = "linalg_cond(Tensor self, Scalar? p=None) -> Tensor"
    public = ""
    out = "out"

    def decompose(a: Tensor, p: Any) -> Tensor:
        if a.dim() < 2:
            raise RuntimeError("linalg.cond: The input tensor A must have at least 2 dimensions.")
        if p is None or abs(p) == 2:
            values = aten.linalg_svdvals(a)
            if not a.numel():
                return values.new_zeros(a.shape[:-2])
            high, low = values.narrow(-1, 0, 1), values.narrow(-1, -1, 1)
            return (low / high if p == -2 else high / low).squeeze(-1)
        return _condition(a, p)


class CondStr(Composite):
    """The condition number in the norm 'fro' or 'nuc'."""

    schema = "linalg_cond.p_str(Tensor self, str p) -> Tensor"
    public = ""
    out = "p_str_out"

    def decompose(a: Tensor, p: str) -> Tensor:
        if a.dim() < 2:
            raise RuntimeError("linalg.cond: The input tensor A must have at least 2 dimensions.")
        if p == "nuc":
            values = aten.linalg_svdvals(a)
            return values.sum(-1) * (1 / values).sum(-1)
        return _condition(a, p)


def _condition(a: Tensor, p: Any) -> Tensor:
    check_matrix(a, f"linalg.cond(ord={p})", square=True)
    inverse, info = aten.linalg_inv_ex(a)
    singular = (info > 0).unsqueeze(-1).unsqueeze(-1)
    inverse = inverse.masked_fill(singular, math.inf)
    return aten.linalg_matrix_norm(a, p) * aten.linalg_matrix_norm(inverse, p)


class Tensorinv(Composite):
    """The inverse of a tensor as a map of its last dimensions to its first `ind`."""

    schema = "linalg_tensorinv(Tensor self, int ind=2) -> Tensor"
    public = ""
    out = "out"
    out_rows = True

    def decompose(a: Tensor, ind: int) -> Tensor:
        if ind <= 0:
            raise RuntimeError("Expected a strictly positive integer for 'ind'")
        first, last = list(a.shape[:ind]), list(a.shape[ind:])
        n, m = math.prod(first), math.prod(last)
        if n != m:
            raise RuntimeError(
                "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
                f"prod(self.shape[:ind]), but got {m} != {n}"
            )
        return aten.linalg_inv(a.reshape(m, n)).reshape([*last, *first])


class Tensorsolve(Composite):
    """X with tensordot(A, X, X.dim()) = B."""

    schema = "linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor"
    public = ""
    out = "out"

    def decompose(a: Tensor, b: Tensor, dims: Any) -> Tensor:
        if dims is not None:
            moved = [wrap_dim(d, a.dim()) for d in dims]
            a = a.permute([*(i for i in range(a.dim()) if i not in moved), *moved])
        shape = list(a.shape[b.dim() :])
        n = math.prod(shape)
        if n != math.prod(b.shape):
            raise RuntimeError(
                "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
                f"prod(self.shape[:other.ndim]), but got {n} != {math.prod(b.shape)}"
            )
        return aten.linalg_solve(a.reshape(n, n), b.flatten()).reshape(shape)


class LinalgVander(Composite):
    """Powers 0 to N - 1 of x along a new last dimension."""

    schema = "linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor"
    public = ""

    def decompose(x: Tensor, n: int | None) -> Tensor:
        x = x if x.dim() else x.unsqueeze(0)
        n = x.shape[-1] if n is None else n
        if n <= 1:
            raise RuntimeError("N must be greater than 1.")
        kind = dt.int64 if dt.is_integral(x.dtype) else x.dtype
        powers = x.unsqueeze(-1).expand([*x.shape, n - 1]).cumprod(-1, dtype=kind)
        return aten.cat([powers.new_ones([*powers.shape[:-1], 1]), powers], -1)


class Vander(Composite):
    """Powers N - 1 to 0 of the elements of a vector, or in increasing order."""

    schema = "vander(Tensor x, int? N=None, bool increasing=False) -> Tensor"
    public = "function"

    def decompose(x: Tensor, n: int | None, increasing: bool) -> Tensor:
        if x.dim() != 1:
            raise RuntimeError("x must be a one-dimensional tensor.")
        n = x.shape[0] if n is None else n
        if n < 0:
            raise RuntimeError("N must be non-negative.")
        kind = dt.int64 if dt.is_integral(x.dtype) else x.dtype
        ones = aten.ones([x.shape[0], 1], dtype=kind)
        parts = [ones] if n > 0 else []
        if n > 1:
            parts.append(x.unsqueeze(-1).expand([x.shape[0], n - 1]).cumprod(-1, dtype=kind))
        r = aten.cat(parts, -1) if parts else aten.empty([x.shape[0], 0], dtype=kind)
        return r if increasing else r.flip([1])


# ---- bilinear forms, weight norm ----


class Trilinear(Opaque):
    """Sums of products of three tensors, each first given extents of 1 at its `expand` places."""

    schema = (
        "_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, "
        "int[] sumdim, int unroll_dim=1) -> Tensor"
    )
    public = "function"

    def meta(
        a: Tensor, b: Tensor, c: Tensor, ea: Any, eb: Any, ec: Any, sumdim: Any, unroll: int
    ) -> TensorSpec:
        total = a.dim() + len(ea)
        shape = []
        parts = [_extents(t, e) for t, e in ((a, ea), (b, eb), (c, ec))]
        for i in range(total):
            if i not in sumdim:
                extents = [p[i] for p in parts]
                shape.append(max(extents) if min(extents) else 0)
        return TensorSpec(shape, a.dtype, a.device)

    whole = True

    def decompose(
        a: Tensor, b: Tensor, c: Tensor, ea: Any, eb: Any, ec: Any, sumdim: Any, unroll: int
    ) -> Tensor:
        kind = a.dtype if a.dtype.itemsize > 2 else dt.float32
        parts = ((a, ea), (b, eb), (c, ec))
        a, b, c = (_spread_at(t.to(kind), e) for t, e in parts)
        made = aten.mul(aten.mul(a, b), c)
        made = aten.sum(made, list(sumdim)) if sumdim else made
        return aten.contiguous(made.to(parts[0][0].dtype))

    def kernel(
        out: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        ea: Any,
        eb: Any,
        ec: Any,
        sumdim: Any,
        unroll: int,
    ) -> None:
        a, b, c = (_spread_at(t, e) for t, e in zip(_up(a, b, c), (ea, eb, ec), strict=True))
        slot("copy_into")(out, (a * b * c).sum(list(sumdim)) if sumdim else a * b * c)

    def vjp(
        b: Any, g: Any, x: Any, y: Any, z: Any, ex: Any, ey: Any, ez: Any, sumdim: Any, unroll: int
    ) -> Any:
        wide = [*sumdim]
        return (
            aten._trilinear(g, y, z, wide, ey, ez, ex) if b.needs[0] else None,
            aten._trilinear(x, g, z, ex, wide, ez, ey) if b.needs[1] else None,
            aten._trilinear(x, y, g, ex, ey, wide, ez) if b.needs[2] else None,
        )


def _extents(t: Tensor, places: Sequence[int]) -> list[int]:
    it = iter(t.shape)
    return [1 if i in places else next(it) for i in range(t.dim() + len(places))]


def _spread_at(t: Tensor, places: Sequence[int]) -> Tensor:
    for i in sorted(places):
        t = t.unsqueeze(i)
    return t


class Bilinear(Composite):
    """x1 W x2 + bias for each output feature."""

    schema = "bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor"
    public = "function"

    def decompose(x1: Tensor, x2: Tensor, weight: Tensor, bias: Any) -> Tensor:
        if x1.dim() != x2.dim():
            raise RuntimeError(
                f"bilinear(): input dimensions do not match: got {x1.dim()} and {x2.dim()}"
            )
        for i in range(x1.dim() - 1):
            if x1.shape[i] != x2.shape[i]:
                raise RuntimeError(
                    f"bilinear(): input batch dimensions do not match at dim {i}: got "
                    f"{x1.shape[i]} and {x2.shape[i]}"
                )
        for name, t, d in (("input1", x1, 1), ("input2", x2, 2)):
            if t.shape[-1] != weight.shape[d]:
                raise RuntimeError(
                    f"bilinear(): {name} size does not match weight size: got {t.shape[-1]} but "
                    f"expected {weight.shape[d]}"
                )
        if bias is not None and bias.shape[0] != weight.shape[0]:
            raise RuntimeError(
                f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but "
                f"expected {weight.shape[0]}"
            )
        shape = [*x1.shape[:-1], weight.shape[0]]
        a = (
            x1.reshape(-1, x1.shape[-1])
            if x1.numel()
            else x1.reshape(math.prod(x1.shape[:-1]), x1.shape[-1])
        )
        b = x2.reshape(a.shape[0], x2.shape[-1])
        out = aten._trilinear(a, b, weight, [1, 3], [1, 2], [0], [2, 3]).reshape(shape)
        return out if bias is None else out + bias


class NormExceptDim(Composite):
    """Norms of the slices of v along dim, with v's number of dimensions."""

    schema = "norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor"
    public = "function"

    def decompose(v: Tensor, power: int, dim: int) -> Tensor:
        if dim == -1:
            return aten.norm(v, power)
        if dim == 0:
            return aten.norm(v.contiguous().view(v.shape[0], -1), power, [1]).view(
                [v.shape[0], *[1] * (v.dim() - 1)]
            )
        if dim == v.dim() - 1:
            return aten.norm(v.contiguous().view(-1, v.shape[-1]), power, [0]).view(
                [*[1] * (v.dim() - 1), v.shape[-1]]
            )
        return aten.norm_except_dim(v.transpose(0, dim), power, 0).transpose(0, dim)


class WeightNorm(Composite):
    """v scaled to norms g along dim (Salimans and Kingma 2016)."""

    schema = "_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor"
    public = "function"

    def decompose(v: Tensor, g: Tensor, dim: int) -> Tensor:
        v, g = v.contiguous(), g.contiguous()
        if dim in (0, v.dim() - 1):
            return aten._weight_norm_interface(v, g, dim)[0]
        return v * (g / aten.norm_except_dim(v, 2, dim))


class WeightNormInterface(Opaque):
    """The scaled weight and the norms it was divided by."""

    schema = "_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)"
    public = "function"
    differentiable = (0,)

    def meta(v: Tensor, g: Tensor, dim: int) -> Any:
        if v.device != g.device:
            raise RuntimeError(
                f"weight_norm: expected v and g to be on the same device, but v is on {v.device} "
                f"and g is on {g.device}"
            )
        kind = dt.float32 if g.dtype is dt.bfloat16 else g.dtype
        return TensorSpec(v.shape, v.dtype, v.device), TensorSpec(g.shape, kind, g.device)

    def kernel(outs: Any, v: Tensor, g: Tensor, dim: int) -> None:
        v, g = _up(v, g)
        norms = aten.norm_except_dim(v, 2, dim)
        slot("copy_into")(outs[1], norms)
        slot("copy_into")(outs[0], v * (g / norms))

    def vjp(b: Any, g: Any, v: Any, scale: Any, dim: int) -> Any:
        return aten._weight_norm_interface_backward(g[0], v, scale, b.outs[1], dim)


class WeightNormInterfaceBackward(Opaque):
    """Gradients of v and g."""

    schema = (
        "_weight_norm_interface_backward(Tensor grad_w, Tensor saved_v, Tensor saved_g, Tensor "
        "saved_norms, int dim) -> (Tensor, Tensor)"
    )
    public = "function"

    def meta(w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
        return TensorSpec(v.shape, v.dtype, v.device), TensorSpec(g.shape, g.dtype, g.device)

    def kernel(outs: Any, w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> None:
        w, v, g, norms = _up(w, v, g, norms)
        for o, r in zip(outs, _weight_gradients(w, v, g, norms, dim), strict=True):
            slot("copy_into")(o, r)

    def decompose(w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
        return _weight_gradients(w, v, g, aten.norm_except_dim(v, 2, dim), dim)


def _weight_gradients(w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
    dims = [i for i in range(v.dim()) if i != dim % v.dim()]
    dot = (w * v).sum(dims, True)
    return (g / norms) * (w - v * (dot / (norms * norms))), dot / norms


class WeightNormDifferentiable(Composite):
    """The same gradients from operators that can be differentiated again."""

    schema = (
        "_weight_norm_differentiable_backward(Tensor grad_w, Tensor saved_v, Tensor saved_g, "
        "Tensor saved_norms, int dim) -> (Tensor, Tensor)"
    )
    public = "function"

    def decompose(w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
        return _weight_gradients(w, v, g, aten.norm_except_dim(v, 2, dim), dim)


@overridable
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices, in the cheapest order (deprecated: `linalg.multi_dot`)."""
    warn_once(
        "chain_matmul",
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
        "torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather than "
        "multiple parameters.",
    )
    made: Tensor = (
        aten.chain_matmul(list(matrices)) if out is None
        else aten.chain_matmul(list(matrices), out=out)
    )  # fmt: skip
    return made


FUNCTIONS: dict[str, Any] = {"tensordot": tensordot, "chain_matmul": chain_matmul}
