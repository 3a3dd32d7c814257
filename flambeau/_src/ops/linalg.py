"""Norms, and what else of linear algebra needs no LAPACK."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import (
    SIXTEEN,
    Composite,
    Opaque,
    Reduction,
    TensorSpec,
    reduced_shape,
    wrap_dim,
    wrap_dims,
)
from flambeau._src.ops.promote import broadcast_shape, result_type
from flambeau._src.ops.reduce import even_share, reduction_samples


class VectorNorm(Reduction):
    """(sum |x|^ord)^(1/ord) over dimensions; ord inf, -inf and 0 as limits."""

    schema = (
        "linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, "
        "ScalarType? dtype=None) -> Tensor"
    )
    out = "out"
    out_dtype = "exact"
    public = "function"
    result_types = ("real",)

    def check(x: Tensor, order: Any, dim: Any, keepdim: bool, dtype: Any) -> None:
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            raise RuntimeError(
                "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
                f"{dt.scalar_name(x.dtype)}"
            )
        if x.numel() == 0 and (order < 0 or order == math.inf):
            for d in wrap_dims(dim, x.dim()):
                if not x.shape[d]:
                    raise RuntimeError(
                        f"linalg.vector_norm cannot compute the {order:g} norm on an empty tensor "
                        "because the operation does not have an identity"
                    )

    @classmethod
    def baked(cls, n: dict[str, Any]) -> list[Any]:
        return [float(n["ord"])]

    def expr(k: Any, x: Any, order: float) -> Any:
        a = k.abs(x)
        if order == 2:
            return k.sqrt(k.sum(a * a))
        if order == 1:
            return k.sum(a)
        if order == 0:
            return k.sum(k.where(a == 0, 0.0, a * 0 + 1))
        if math.isinf(order):
            return k.max(a) if order > 0 else k.min(a)
        # in float32 the root is of the power that was taken: of -2.1 as float32 has it
        inverse = 1.0 / order if (2 * order).is_integer() else 1.0 / k.const(order)
        of_many = k.pow(k.sum(k.pow(a, order)), inverse)
        return k.where(k.count() == 1, k.sum(a), of_many)  # of one element: itself, exactly

    def vjp(b: Any, g: Any, x: Any, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
        n = b.out
        if not keepdim and x.dim():
            for d in wrap_dims(dim, x.dim()):
                n, g = n.unsqueeze(d), g.unsqueeze(d)
        if order == 0:
            return None
        if order == 1:
            return g * aten.sgn(x)
        if order == 2:
            return g * aten.masked_fill(x / n, n == 0, 0)
        if math.isinf(order):
            return (
                even_share(g, x.abs(), n, None, True) * aten.sgn(x)
                if x.dim() == 0
                else _shared(g, x, n, dim)
            )
        if order < 1:
            part = aten.masked_fill(x.abs().pow(order - 1), x == 0, 0) * aten.sgn(x)
            return part * g * n.pow(1 - order)
        if order < 2:
            part = x.abs().pow(order - 1) * aten.sgn(x)
        else:
            part = x * x.abs().pow(order - 2)
        return part * aten.masked_fill(g / n.pow(order - 1), n == 0, 0)

    saves_by = ("ord",)

    def samples(s: Any) -> Iterator[Any]:
        for x in reduction_samples(s):
            tensor, dim, keep = x.args
            if tensor.dim():
                yield s.sample(tensor, 2, dim, keep)
                yield s.sample(tensor, 1, dim, keep)
                yield s.sample(tensor, 3, dim, keep)


def _shared(g: Any, x: Any, n: Any, dim: Any) -> Any:
    mask = (x.abs() == n).to(g.dtype)
    count = mask.sum(list(wrap_dims(dim, x.dim())), True)
    return g * aten.sgn(x) * mask / count


def _norm(schema: str, pick: Any, out: Any) -> None:
    """One overload of `norm`: `pick(*args)` gives (self, p, dim, keepdim, dtype)."""

    def meta(*args: Any) -> Any:
        x, p, dim, keepdim, dtype = pick(*args)
        VectorNorm.check(x, p, dim, keepdim, dtype)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise RuntimeError(
                "norm(): the desired output dtype should be either floating point or complex. Got "
                f"{dt.scalar_name(dtype)} instead."
            )
        shape = reduced_shape(x.shape, wrap_dims(dim, x.dim()), keepdim)
        kind = dt.REAL_OF.get(dtype or x.dtype, dtype or x.dtype)
        return TensorSpec(shape, kind, x.device)

    def kernel(result: Tensor, *args: Any) -> None:
        x, p, dim, keepdim, dtype = pick(*args)
        slot("copy_into")(result, aten.linalg_vector_norm(x, p, dim, keepdim, dtype=dtype))

    def decompose(*args: Any) -> Tensor:
        x, p, dim, keepdim, dtype = pick(*args)
        return aten.linalg_vector_norm(x, p, dim, keepdim, dtype=dtype)

    def vjp(b: Any, g: Any, *args: Any) -> Any:
        return VectorNorm.vjp(b, g, *pick(*args))

    type(
        schema.partition("(")[0],
        (Opaque,),
        {
            "__doc__": "The p-norm.",
            "__module__": __name__,
            "schema": schema,
            "public": "",
            "out": out,
            "meta": meta,
            "kernel": kernel,
            "decompose": decompose,
            "vjp": vjp,
            "saves_by": ("p",),
        },
    )


_norm(
    "norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor",
    lambda x, p, dtype: (x, 2 if p is None else p, None, False, dtype),
    "ScalarOpt_dtype_out",
)
_norm(
    "norm.Scalar(Tensor self, Scalar p=2) -> Tensor",
    lambda x, p: (x, p, None, False, None),
    "Scalar_out",
)
_norm(
    "norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType "
    "dtype) -> Tensor",
    lambda x, p, dim, keepdim, dtype: (
        x,
        2 if p is None else p,
        tuple(dim) or None,
        keepdim,
        dtype,
    ),
    "dtype_out",
)
_norm(
    "norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
    lambda x, p, dim, keepdim: (x, 2 if p is None else p, tuple(dim) or None, keepdim, None),
    "out",
)


def _matrix_dims(a: Tensor, dim: Any, name: str = "linalg.matrix_norm") -> tuple[int, int]:
    if a.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    dim = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    rows, cols = wrap_dim(dim[0], a.dim()), wrap_dim(dim[1], a.dim())
    if rows == cols:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    return rows, cols


def _check_float(a: Tensor, name: str) -> None:
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got "
            f"{dt.scalar_name(a.dtype)}"
        )


class MatrixNorm(Composite):
    """The norms induced by vector norms (1, -1, 2, -2, inf, -inf) over two dimensions."""

    schema = (
        "linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2,-1], bool keepdim=False, *, "
        "ScalarType? dtype=None) -> Tensor"
    )
    public = ""
    out = "out"
    out_rows = True

    def decompose(a: Tensor, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
        _check_float(a, "linalg.matrix_norm")
        size = abs(float(order))
        if size not in (1, 2, math.inf):
            raise RuntimeError(f"linalg.matrix_norm: Order {order} not supported.")
        rows, cols = _matrix_dims(a, dim)
        pick = aten.amax if order > 0 else aten.amin
        if size == 2:
            a = a if dtype is None else a.to(dtype)
            order_ = [i for i in range(a.dim()) if i not in (rows, cols)] + [rows, cols]
            r = pick(aten.linalg_svdvals(a.permute(order_)), [-1], keepdim)
            return _put_back(r, order_) if keepdim else r
        first, second = (rows, cols) if size == 1 else (cols, rows)
        if not keepdim and second > first:
            second -= 1
        sums = aten.linalg_vector_norm(a, 1.0, [first], keepdim, dtype=dtype)
        return pick(sums, [second], keepdim)


def _put_back(r: Tensor, order: list[int]) -> Tensor:
    """A result whose last dimension is 1, with two of them, in the order before the permutation."""
    back = [order.index(d) for d in range(len(order))]
    return r.unsqueeze(-1).permute(back)


class MatrixNormStr(Composite):
    """The Frobenius ('fro') or nuclear ('nuc') norm over two dimensions."""

    schema = (
        "linalg_matrix_norm.str_ord(Tensor self, str ord='fro', int[] dim=[-2,-1], bool "
        "keepdim=False, *, ScalarType? dtype=None) -> Tensor"
    )
    public = ""
    out = "str_ord_out"
    out_rows = True

    def decompose(a: Tensor, order: str, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
        _check_float(a, "linalg.matrix_norm")
        if order not in ("fro", "nuc"):
            raise RuntimeError(f"linalg.matrix_norm: Order {order} not supported.")
        rows, cols = _matrix_dims(a, dim)
        if order == "fro":
            return aten.linalg_vector_norm(a, 2, [rows, cols], keepdim, dtype=dtype)
        a = a if dtype is None else a.to(dtype)
        order_ = [i for i in range(a.dim()) if i not in (rows, cols)] + [rows, cols]
        r = aten.linalg_svdvals(a.permute(order_)).sum(-1, keepdim)
        return _put_back(r, order_) if keepdim else r


class LinalgNorm(Composite):
    """A vector norm, or the matrix norm that ord and dim ask for."""

    schema = (
        "linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, "
        "ScalarType? dtype=None) -> Tensor"
    )
    public = ""
    out = "out"

    def decompose(x: Tensor, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
        if dim is not None:
            if len(dim) not in (1, 2):
                raise RuntimeError(
                    "linalg.norm: If dim is specified, it must be of length 1 or 2. Got "
                    f"{list(dim)}"
                )
        elif order is not None and x.dim() not in (1, 2):
            raise RuntimeError(
                "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                f"{x.dim()}D."
            )
        if order is not None and (
            (dim is not None and len(dim) == 2) or (dim is None and x.dim() == 2)
        ):
            return aten.linalg_matrix_norm(
                x, order, (0, 1) if dim is None else dim, keepdim, dtype=dtype
            )
        return aten.linalg_vector_norm(x, 2 if order is None else order, dim, keepdim, dtype=dtype)


class LinalgNormStr(Composite):
    """The matrix norm of that name."""

    schema = (
        "linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, "
        "ScalarType? dtype=None) -> Tensor"
    )
    public = ""
    out = "ord_str_out"

    def decompose(x: Tensor, order: str, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
        if dim is not None and len(dim) not in (1, 2):
            raise RuntimeError(
                f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}"
            )
        if dim is None and x.dim() != 2:
            raise RuntimeError(
                "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                f"{x.dim()}D."
            )
        return aten.linalg_matrix_norm(
            x, order, (0, 1) if dim is None else dim, keepdim, dtype=dtype
        )


class CosineSimilarity(Composite):
    """The cosine of the angle between x1 and x2 along dim."""

    schema = "cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor"
    public = "function"

    def decompose(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
        kind = result_type((x1, x2))
        if not kind.is_floating_point:
            raise RuntimeError(
                "expected common dtype to be floating point, yet common dtype is "
                f"{dt.scalar_name(kind)}"
            )
        if kind in SIXTEEN:  # sums of products that cancel, rounded once
            x1, x2 = (aten._to_copy(x, dtype=dt.float32) for x in (x1, x2))
            return aten._to_copy(aten.cosine_similarity(x1, x2, dim, eps), dtype=kind)
        shape = broadcast_shape([x1.shape, x2.shape])  # lengths are those along the common dim
        x1, x2 = (aten.expand(aten._to_copy(x, dtype=kind) if x.dtype is not kind else x, shape)
                  for x in (x1, x2))  # fmt: skip
        n1, n2 = (aten.clone(aten.linalg_vector_norm(x, 2, [dim], True)) for x in (x1, x2))
        least = aten.scalar_tensor(eps, dtype=kind, device=x1.device)
        n1, n2 = aten.clamp_min_(n1, least), aten.clamp_min_(n2, least)
        return aten.sum((x1 / n1) * (x2 / n2), [dim])

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), s.tensor((3, 4)))
        yield s.sample(s.tensor((1, 2, 3)), s.tensor((2, 1, 3)), dim=-2)
