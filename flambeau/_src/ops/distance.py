"""Distances between rows, and the norms of Tensor.norm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import store, wide
from flambeau._src.ops.call import aten, overridable
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.promote import broadcast_shape


class Cdist(Composite):
    """The p-norm distance of every row of x1 to every row of x2, in batches."""

    schema = "cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor"
    public = ""

    def decompose(x1: Tensor, x2: Tensor, p: float, mode: int | None) -> Tensor:
        for name, t in (("X1", x1), ("X2", x2)):
            if t.dim() < 2:
                raise RuntimeError(
                    f"cdist only supports at least 2D tensors, {name} got: {t.dim()}D"
                )
        if x1.shape[-1] != x2.shape[-1]:
            raise RuntimeError(
                f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: "
                f"{x2.shape[-1]}"
            )
        for name, t in (("X1", x1), ("X2", x2)):
            if not t.dtype.is_floating_point:
                raise RuntimeError(
                    f"cdist only supports floating-point dtypes, {name} got: "
                    f"{dt.scalar_name(t.dtype)}"
                )
        if p < 0:
            raise RuntimeError("cdist only supports non-negative p values")
        mode = 0 if mode is None else mode
        if not 0 <= mode <= 2:
            raise RuntimeError(f"possible modes: 0, 1, 2, but was: {mode}")
        batch = broadcast_shape([x1.shape[:-2], x2.shape[:-2]])
        r1, r2 = x1.shape[-2], x2.shape[-2]
        if (
            p == 2
            and x1.shape[-1]
            and r1
            and r2
            and 0 not in batch
            and (mode == 1 or (mode == 0 and (r1 > 25 or r2 > 25)))
        ):
            a = aten.expand(x1, [*batch, *x1.shape[-2:]]).reshape(-1, *x1.shape[-2:])
            c = aten.expand(x2, [*batch, *x2.shape[-2:]]).reshape(-1, *x2.shape[-2:])
            if not batch:
                a, c = a.view(x1.shape), c.view(x2.shape)
            return aten._euclidean_dist(a, c).view([*batch, r1, r2])
        return aten._cdist_forward(x1, x2, p, mode)


_MODES = (
    "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist",
)  # fmt: skip


@overridable
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:  # fmt: skip
    """The p-norm distance of every row of x1 (B, P, M) to every row of x2 (B, R, M): (B, P, R).

    Args:
        compute_mode: when Euclidean distances come of one matrix product, which is faster and less
            exact: with more than 25 rows, always, or never.
    """
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    made: Tensor = aten.cdist(x1, x2, p, _MODES.index(compute_mode))
    return made


class EuclideanDist(Opaque):
    """Euclidean distances through one matrix product: sqrt(|a|² - 2 a b + |b|²)."""

    schema = "_euclidean_dist(Tensor x1, Tensor x2) -> Tensor"
    public = "function"

    def decompose(x1: Tensor, x2: Tensor) -> Tensor:
        n1, n2 = x1.pow(2).sum(-1, True), x2.pow(2).sum(-1, True)
        left = aten.cat([x1 * -2, n1, aten.ones_like(n1)], -1)
        right = aten.cat([x2, aten.ones_like(n2), n2], -1)
        return aten.matmul(left, right.mT).clamp_min_(0).sqrt_()

    def meta(x1: Tensor, x2: Tensor) -> TensorSpec:
        return TensorSpec([*x1.shape[:-1], x2.shape[-2]], x1.dtype, x1.device)

    def vjp(b: Any, g: Any, x1: Any, x2: Any) -> Any:
        ratio = aten.masked_fill(g / b.out, b.out == 0, 0)
        return (
            x1 * ratio.sum(-1, True) - aten.matmul(ratio, x2) if b.needs[0] else None,
            x2 * ratio.sum(-2, False).unsqueeze(-1) - aten.matmul(ratio.mT, x1)
            if b.needs[1]
            else None,
        )


def _norms(d: Any, p: float) -> Any:
    """The p-norms of differences d along the last axis."""
    import numpy as np  # lazy: NumPy is heavy

    a = np.abs(d)
    if p == 0:
        return (a != 0).sum(-1).astype(d.dtype)
    if p == 1:
        return a.sum(-1)
    if p == 2:
        return np.sqrt((a * a).sum(-1))
    if math.isinf(p):
        return a.max(-1) if a.shape[-1] else np.zeros(a.shape[:-1], a.dtype)
    return (a**p).sum(-1) ** (1 / p)


def _slopes(d: Any, dist: Any, p: float) -> Any:
    """The derivative of the p-norm for each component of d; 0 where the norm is 0."""
    import numpy as np  # lazy: NumPy is heavy

    dist = dist[..., None]
    a, sign = np.abs(d), np.sign(d)
    with np.errstate(all="ignore"):
        if p == 0:
            return np.zeros_like(d)
        if p == 1:
            return sign
        if math.isinf(p):
            return sign * (a == dist)
        if p == 2:
            return np.where(dist == 0, 0, d / dist)
        if p < 1:
            r = sign * a ** (p - 1) * dist ** (1 - p)
            return np.where((dist == 0) | ((d == 0) & (p < 1)), 0, r)
        if p < 2:
            r = sign * a ** (p - 1) * dist ** (1 - p)
            return np.where(dist == 0, 0, r)
        return np.where(dist == 0, 0, d * a ** (p - 2) * dist ** (1 - p))


class CdistForward(Opaque):
    """Distances of all pairs of rows, one pair at a time."""

    schema = "_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor"
    public = "function"
    node_name = "Cdist"

    def meta(x1: Tensor, x2: Tensor, p: float, mode: Any) -> TensorSpec:
        batch = broadcast_shape([x1.shape[:-2], x2.shape[:-2]])
        return TensorSpec([*batch, x1.shape[-2], x2.shape[-2]], x1.dtype, x1.device)

    def kernel(out: Tensor, x1: Tensor, x2: Tensor, p: float, mode: Any) -> None:
        if out.numel():
            a, c = wide(x1), wide(x2)
            store(out, _norms(a[..., :, None, :] - c[..., None, :, :], p))

    def vjp(b: Any, g: Any, x1: Any, x2: Any, p: float, mode: Any) -> Any:
        first = aten._cdist_backward(g.contiguous(), x1, x2, p, b.out) if b.needs[0] else None
        second = None
        if b.needs[1]:
            second = aten._cdist_backward(g.mT.contiguous(), x2, x1, p, b.out.mT.contiguous())
        return first, second


class CdistBackward(Opaque):
    """The gradient of _cdist_forward for x1."""

    schema = "_cdist_backward(Tensor grad, Tensor x1, Tensor x2, float p, Tensor cdist) -> Tensor"
    public = "function"
    differentiable = True

    def meta(g: Tensor, x1: Tensor, x2: Tensor, p: float, dist: Tensor) -> TensorSpec:
        return TensorSpec(x1.shape, x1.dtype, x1.device)

    def kernel(out: Tensor, g: Tensor, x1: Tensor, x2: Tensor, p: float, dist: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        a, c = wide(x1), wide(x2)
        if not c.size or not a.size:
            slot("fill_with")(out, 0)
            return
        r = (
            wide(g)[..., None] * _slopes(a[..., :, None, :] - c[..., None, :, :], wide(dist), p)
        ).sum(-2)
        shape = tuple(out.shape)
        while r.ndim > len(shape):
            r = r.sum(0)
        for i, n in enumerate(shape[:-2]):
            if n == 1 and r.shape[i] != 1:
                r = r.sum(i, keepdims=True)
        store(out, np.broadcast_to(r, shape))


class PairwiseDistance(Composite):
    """The p-norm of x1 - x2 + eps along the last dimension."""

    schema = (
        "pairwise_distance(Tensor x1, Tensor x2, float p=2., float eps=1e-06, bool keepdim=False) "
        "-> Tensor"
    )
    public = "function"

    def decompose(x1: Tensor, x2: Tensor, p: float, eps: float, keepdim: bool) -> Tensor:
        dim = max(x1.dim(), x2.dim()) - 1
        return aten.norm(x1 - x2 + eps, p, [dim], keepdim)

    def samples(s: Any) -> Iterator[Any]:
        for p in (2.0, 1.0, 3.0):
            yield s.sample(s.tensor((3, 4)), s.tensor((3, 4)), p)


class Pdist(Composite):
    """Distances of all pairs of rows of one matrix: the upper triangle, flat."""

    schema = "pdist(Tensor self, float p=2.) -> Tensor"
    public = "function"

    def decompose(x: Tensor, p: float) -> Tensor:
        if x.dim() != 2:
            raise RuntimeError(f"pdist only supports 2D tensors, got: {x.dim()}D")
        if not x.dtype.is_floating_point:
            raise RuntimeError("pdist only supports floating-point dtypes")
        if p < 0:
            raise RuntimeError("pdist only supports non-negative p values")
        return aten._pdist_forward(x.contiguous(), p)

    def samples(s: Any) -> Iterator[Any]:
        for p in (2.0, 1.0, 3.0):
            yield s.sample(s.tensor((4, 3)), p)


class PdistForward(Opaque):
    """The condensed distances of `pdist`."""

    schema = "_pdist_forward(Tensor self, float p=2.) -> Tensor"
    public = "function"
    node_name = "Pdist"

    def meta(x: Tensor, p: float) -> TensorSpec:
        n = x.shape[0]
        return TensorSpec([n * (n - 1) // 2 if n > 1 else 0], x.dtype, x.device)

    def kernel(out: Tensor, x: Tensor, p: float) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if out.numel():
            a = wide(x)
            i, j = np.triu_indices(a.shape[0], 1)
            store(out, _norms(a[i] - a[j], p))

    def vjp(b: Any, g: Any, x: Any, p: float) -> Any:
        return aten._pdist_backward(g, x, p, b.out)


class PdistBackward(Opaque):
    """The gradient of _pdist_forward."""

    schema = "_pdist_backward(Tensor grad, Tensor self, float p, Tensor pdist) -> Tensor"
    no_gradient = True
    public = "function"

    def meta(g: Tensor, x: Tensor, p: float, dist: Tensor) -> TensorSpec:
        return TensorSpec(x.shape, x.dtype, x.device)

    def kernel(out: Tensor, g: Tensor, x: Tensor, p: float, dist: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        a = wide(x)
        r = np.zeros(a.shape, a.dtype)
        i, j = np.triu_indices(a.shape[0], 1)
        if i.size and a.size:
            part = wide(g)[:, None] * _slopes(a[i] - a[j], wide(dist), p)
            np.add.at(r, i, part)
            np.subtract.at(r, j, part)
        store(out, r)


FUNCTIONS: dict[str, Any] = {"cdist": cdist}
