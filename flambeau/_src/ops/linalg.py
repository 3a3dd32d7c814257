"""Norms, and what else of linear algebra needs no LAPACK."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Reduction, wrap_dims
from flambeau._src.ops.reduce import even_share, reduction_samples


class VectorNorm(Reduction):
    """(sum |x|^ord)^(1/ord) over dimensions; ord inf, -inf and 0 as limits."""

    schema = "linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
    out = "out"
    public = "function"

    def check(x: Tensor, order: Any, dim: Any, keepdim: bool, dtype: Any) -> None:
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            raise RuntimeError(
                f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {dt.scalar_name(x.dtype)}"
            )
        if x.numel() == 0 and (order < 0 or order == math.inf):
            for d in wrap_dims(dim, x.dim()):
                if not x.shape[d]:
                    raise RuntimeError(
                        f"linalg.vector_norm cannot compute the {order:g} norm on an empty tensor because the operation does not have an identity"
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
        return k.pow(k.sum(k.pow(a, order)), 1.0 / order)

    def vjp(b: Any, g: Any, x: Any, order: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
        n = b.out
        if not keepdim and x.dim():
            for d in wrap_dims(dim, x.dim()):
                n, g = n.unsqueeze(d), g.unsqueeze(d)
        if order == 0:
            return aten.zeros_like(x)
        if order == 1:
            return g * aten.sgn(x)
        if order == 2:
            return g * aten.masked_fill(x / n, n == 0, 0)
        if math.isinf(order):
            return even_share(g, x.abs(), n, None, True) * aten.sgn(x) if x.dim() == 0 else _shared(g, x, n, dim)
        if order < 1:
            part = aten.sgn(x) * x.abs().pow(order - 1)
            return aten.masked_fill(part, x == 0, 0) * (g * n.pow(1 - order))
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


class NormScalar(Composite):
    """The p-norm of all elements."""

    schema = "norm.Scalar(Tensor self, Scalar p=2) -> Tensor"
    public = ""

    def decompose(x: Tensor, p: Any) -> Tensor:
        return aten.linalg_vector_norm(x, p)


class NormDim(Composite):
    """The p-norm over dimensions."""

    schema = "norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor"
    public = ""

    def decompose(x: Tensor, p: Any, dim: Any, keepdim: bool) -> Tensor:
        return aten.linalg_vector_norm(x, 2 if p is None else p, list(dim) or None, keepdim)


class CosineSimilarity(Composite):
    """The cosine of the angle between x1 and x2 along dim."""

    schema = "cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor"
    public = "function"

    def decompose(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
        n1 = aten.linalg_vector_norm(x1, 2, [dim], True).clamp_min(eps)
        n2 = aten.linalg_vector_norm(x2, 2, [dim], True).clamp_min(eps)
        return ((x1 / n1) * (x2 / n2)).sum(dim)


