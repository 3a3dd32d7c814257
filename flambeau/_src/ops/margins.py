"""Losses with margins, and the other losses of torch.nn.functional that are operators.

reduction: 0 none, 1 mean, 2 sum, as ATen numbers them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import store, wide
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec, unbroadcast
from flambeau._src.ops.linalg import VectorNorm
from flambeau._src.ops.loss import MEAN, NONE, reduce
from flambeau._src.ops.promote import refuse, result_type


class PoissonNllLoss(Composite):
    """exp(x) - y x, or x - y log(x + eps); `full` adds Stirling's
    approximation of log(y!) for y > 1."""

    schema = (
        "poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, float eps, int "
        "reduction) -> Tensor"
    )
    public = "function"

    def decompose(
        x: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
    ) -> Tensor:
        loss = aten.exp(x) - target * x if log_input else x - target * aten.log(x + eps)
        if full:
            stirling = target * aten.log(target) - target + 0.5 * aten.log(2 * math.pi * target)
            loss = loss + stirling.masked_fill(target <= 1, 0)
        return reduce(loss, reduction)


class HingeEmbeddingLoss(Composite):
    """x where the target is 1, max(0, margin - x) where it is -1."""

    schema = (
        "hinge_embedding_loss(Tensor self, Tensor target, float margin=1., int reduction=1) "
        "-> Tensor"
    )
    public = "function"

    def decompose(x: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
        zeros = aten.zeros_like(x)
        low = (margin - x).clamp_min(0)
        loss = aten.where(target != 1, low, zeros) + aten.where(target != -1, x, zeros)
        return reduce(loss, reduction)


class CosineEmbeddingLoss(Composite):
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""

    schema = (
        "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0., int "
        "reduction=1) -> Tensor"
    )
    public = "function"

    def decompose(x1: Tensor, x2: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
        if target.dim() not in (0, 1):
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        wanted = 2 if target.dim() == 1 else 1
        if x1.dim() != wanted or x2.dim() != wanted:
            raise RuntimeError(
                f"{target.dim()}D target tensor expects {wanted}D input tensors, but found inputs "
                f"with sizes {list(x1.shape)} and {list(x2.shape)}."
            )
        dim, tiny = target.dim(), 1e-12
        dot = (x1 * x2).sum(dim)
        size = ((x1 * x1).sum(dim) + tiny) * ((x2 * x2).sum(dim) + tiny)
        cos = dot / size.sqrt()
        zeros = aten.zeros_like(cos)
        loss = aten.where(target == 1, 1 - cos, zeros) + aten.where(
            target == -1, (cos - margin).clamp_min(0), zeros
        )
        return reduce(loss, reduction)


class MarginRankingLoss(Composite):
    """max(0, -y (x1 - x2) + margin)."""

    schema = (
        "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0., int "
        "reduction=1) -> Tensor"
    )
    public = "function"

    def decompose(x1: Tensor, x2: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
        return reduce((-target * (x1 - x2) + margin).clamp_min(0), reduction)


class TripletMarginLoss(Composite):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)); with swap the negative's
    distance is the smaller of those to anchor and positive (Balntas et al. 2016)."""

    schema = (
        "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1., "
        "float p=2., float eps=1e-06, bool swap=False, int reduction=1) -> Tensor"
    )
    public = "function"

    def decompose(
        a: Tensor,
        positive: Tensor,
        negative: Tensor,
        margin: float,
        p: float,
        eps: float,
        swap: bool,
        reduction: int,
    ) -> Tensor:
        if not a.dim() == positive.dim() == negative.dim():
            raise RuntimeError(
                "The anchor, positive, and negative tensors are expected to have the same number "
                f"of dimensions, but got: anchor {a.dim()}D, positive {positive.dim()}D, and "
                f"negative {negative.dim()}D inputs"
            )
        near, far = (
            aten.pairwise_distance(a, positive, p, eps),
            aten.pairwise_distance(a, negative, p, eps),
        )
        if swap:
            far = aten.minimum(far, aten.pairwise_distance(positive, negative, p, eps))
        return reduce((margin + near - far).clamp_min(0), reduction)


class SoftMarginLoss(Opaque):
    """log(1 + exp(-y x))."""

    schema = "soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"
    constants = ("target",)
    public = "nn"
    out = "out"

    def meta(x: Tensor, target: Tensor, reduction: int) -> TensorSpec:
        shape, stride = slot("broadcast_geometry")([x, target])
        return TensorSpec(
            shape if reduction == NONE else (),
            x.dtype,
            x.device,
            stride if reduction == NONE else None,
        )

    def kernel(out: Tensor, x: Tensor, target: Tensor, reduction: int) -> None:
        slot("copy_into")(out, reduce(aten.log1p(aten.exp(-target * x)), reduction))

    def decompose(x: Tensor, target: Tensor, reduction: int) -> Tensor:
        return reduce(aten.log1p(aten.exp(-target * x)), reduction)

    def vjp(b: Any, g: Any, x: Any, target: Any, reduction: int) -> Any:
        return aten.soft_margin_loss_backward(g, x, target, reduction), None

    def samples(s: Any) -> Iterator[Any]:
        for reduction in (0, 1, 2):
            yield s.sample(s.tensor((3, 4)), s.tensor((3, 4)).sign().detach(), reduction)


class SoftMarginLossBackward(Opaque):
    """The gradient of soft_margin_loss."""

    schema = (
        "soft_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) "
        "-> Tensor"
    )
    public = "nn"
    constants = ("target",)

    def meta(g: Tensor, x: Tensor, target: Tensor, reduction: int) -> TensorSpec:
        shape, stride = slot("broadcast_geometry")([x, target])
        return TensorSpec(shape, x.dtype, x.device, stride)

    def kernel(out: Tensor, g: Tensor, x: Tensor, target: Tensor, reduction: int) -> None:
        slot("copy_into")(out, SoftMarginLossBackward.decompose(g, x, target, reduction))

    def decompose(g: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
        share = 1.0 / x.numel() if reduction == MEAN and x.numel() else 1.0
        return -target * aten.sigmoid(-target * x) * g * share

    def vjp(b: Any, gg: Any, g: Any, x: Any, target: Any, reduction: int) -> Any:
        of_g = of_x = None
        if b.needs[0]:
            of_g = gg * aten.soft_margin_loss_backward(aten.ones_like(g), x, target, reduction)
            of_g = of_g if reduction == NONE else aten.sum(of_g)
        if b.needs[1]:
            m = target * x  # both sigmoids: 1 - sigmoid(m) leaves nothing of a large m
            of_x = gg * g * (target * target) * aten.sigmoid(m) * aten.sigmoid(-m)
            of_x = of_x / x.numel() if reduction == MEAN and x.numel() else of_x
        return of_g, of_x, None

    def samples(s: Any) -> Iterator[Any]:
        for reduction in (0, 1, 2):
            yield s.sample(
                s.tensor((3, 4) if reduction == NONE else ()), s.tensor((3, 4), -9, 9),
                s.tensor((3, 4)).sign().detach(), reduction,
            )  # fmt: skip


def _multi_margin_shape(x: Tensor, target: Tensor, weight: Any) -> tuple[int, int]:
    """(samples, classes), arguments checked."""
    if x.dim() > 2 or (x.dim() == 2 and not x.shape[1]) or (x.dim() == 1 and not x.shape[0]):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(x.shape)}"
        )
    rows, classes = (x.shape[0], x.shape[1]) if x.dim() == 2 else (1, x.numel())
    if target.dim() > 1 or target.numel() != rows:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
            f"samples (batch size). Expected target size [{rows}], but got {list(target.shape)}. "
            f"Input has shape {list(x.shape)}."
        )
    if weight is not None and (weight.dim() > 1 or weight.numel() != classes):
        raise RuntimeError(
            f"inconsistent weight size, expected {classes} but got {list(weight.shape)}"
        )
    return rows, classes


def _check_loss_dtype(x: Tensor, name: str) -> None:
    """These losses have kernels for float32 and float64 alone."""
    if x.dtype not in (dt.float32, dt.float64):
        refuse(name, x.dtype)


def _check_dtype(given: Tensor | None, wanted: dt.dtype) -> None:
    if given is not None and given.dtype is not wanted:
        raise RuntimeError(
            f"expected scalar type {dt.scalar_name(wanted)} but found {dt.scalar_name(given.dtype)}"
        )


def _multi_margin(name: str, x: Tensor, target: Tensor, p: Any, margin: Any, weight: Any) -> Any:
    """(what exceeds the margin, the class of each row, its weight), as arrays."""
    import numpy as np  # lazy: NumPy is heavy

    rows, classes = _multi_margin_shape(x, target, weight)
    _check_loss_dtype(x, name)
    _check_dtype(target, dt.int64)
    _check_dtype(weight, x.dtype)
    a, t = wide(x).reshape(rows, classes), array_of(target).reshape(rows)
    if ((t < 0) | (t >= classes)).any():
        raise RuntimeError("target out of range")
    own = np.take_along_axis(a, t[:, None], 1)
    over = np.maximum(a - own + a.dtype.type(margin), 0)
    np.put_along_axis(over, t[:, None], 0, 1)
    factor = np.ones(rows, a.dtype) if weight is None else wide(weight).reshape(-1)[t]
    return over, t, factor[:, None]


class MultiMarginLoss(Opaque):
    """The sum over the wrong classes of max(0, margin - x[y] + x[i])^p, over
    the number of classes."""

    constants = ("weight",)
    schema = (
        "multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? "
        "weight=None, int reduction=1) -> Tensor"
    )
    public = "nn"
    out = "out"

    def meta(
        x: Tensor, target: Tensor, p: Any, margin: Any, weight: Any, reduction: int
    ) -> TensorSpec:
        if p not in (1, 2):
            raise RuntimeError("only p == 1 and p == 2 supported")
        _multi_margin_shape(x, target, weight)
        shape = target.shape if reduction == NONE else ()
        return TensorSpec(shape, x.dtype, x.device)

    def kernel(
        out: Tensor, x: Tensor, target: Tensor, p: Any, margin: Any, weight: Any, reduction: int
    ) -> None:
        if not x.numel():
            out.zero_()
            return
        name = "multi_margin_loss_cpu_kernel"
        over, _, factor = _multi_margin(name, x, target, p, margin, weight)
        loss = ((over if p == 1 else over * over) * factor).sum(1) / over.shape[1]
        if reduction == NONE:
            store(out, loss.reshape(tuple(out.shape)))
        else:
            store(out, loss.mean() if reduction == MEAN and loss.size else loss.sum())

    def decompose(
        x: Tensor, target: Tensor, p: Any, margin: Any, weight: Any, reduction: int
    ) -> Tensor:
        rows, classes = _multi_margin_shape(x, target, weight)
        scores, at = aten.reshape(x, (rows, classes)), aten.reshape(target, (rows, 1))
        over = aten.clamp(scores - aten.gather(scores, 1, at) + margin, min=0)
        over = over if p == 1 else over * over
        if weight is not None:
            over = over * aten.gather(aten.expand(weight, (rows, classes)), 1, at)
        own = aten.arange(classes, device=x.device) == at
        loss = aten.sum(aten.masked_fill(over, own, 0), [1]) / classes
        return reduce(aten.reshape(loss, target.shape), reduction)

    def vjp(
        b: Any, g: Any, x: Any, target: Any, p: Any, margin: Any, weight: Any, reduction: int
    ) -> Any:
        got = aten.multi_margin_loss_backward(g, x, target, p, margin, weight, reduction)
        return (got, None) if weight is None else (got, None, None)


class MultiMarginLossBackward(Opaque):
    """The gradient of multi_margin_loss."""

    schema = (
        "multi_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, Scalar p, "
        "Scalar margin, Tensor? weight=None, int reduction=1) -> Tensor"
    )
    public = "nn"

    def meta(
        g: Tensor, x: Tensor, target: Tensor, p: Any, margin: Any, weight: Any, reduction: int
    ) -> TensorSpec:
        return TensorSpec(x.shape, x.dtype, x.device)

    def kernel(
        out: Tensor,
        g: Tensor,
        x: Tensor,
        target: Tensor,
        p: Any,
        margin: Any,
        weight: Any,
        reduction: int,
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        name = "multi_margin_loss_backward_cpu_kernel"
        over, t, factor = _multi_margin(name, x, target, p, margin, weight)
        slope = (over > 0).astype(over.dtype) if p == 1 else 2 * over
        slope = slope * factor / over.shape[1]
        np.put_along_axis(slope, t[:, None], -slope.sum(1, keepdims=True), 1)
        gs = wide(g)
        gs = (
            gs.reshape(-1, 1)
            if reduction == NONE
            else gs / (over.shape[0] if reduction == MEAN else 1)
        )
        store(out, (slope * gs).reshape(tuple(out.shape)))


def _targets(target: Any, classes: int) -> tuple[Any, Any]:
    """(mask of listed places, mask of target classes): each row lists
    classes up to the first -1."""
    import numpy as np  # lazy: NumPy is heavy

    listed = np.cumsum(target < 0, 1) == 0
    own = np.zeros((target.shape[0], classes), bool)
    rows, places = np.nonzero(listed)
    own[rows, target[rows, places]] = True
    return listed, own


class MultilabelMarginLossForward(Opaque):
    """Hinge loss of several classes a sample, with the mask of target classes."""

    schema = (
        "multilabel_margin_loss_forward(Tensor self, Tensor target, int reduction) "
        "-> (Tensor output, Tensor is_target)"
    )
    public = "nn"
    differentiable = (0,)
    node_name = "MultilabelMarginLoss"

    def meta(x: Tensor, target: Tensor, reduction: int) -> Any:
        if x.dim() > 2 or (x.dim() == 2 and not x.shape[1]) or (x.dim() == 1 and not x.shape[0]):
            raise RuntimeError(
                "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
                f"{list(x.shape)}"
            )
        fits = (
            target.shape == x.shape
            if x.dim() == 2
            else target.dim() <= 1 and target.numel() == x.numel()
        )
        if not fits:
            raise RuntimeError(
                f"inconsistent target size: {list(target.shape)} for input of size: {list(x.shape)}"
            )
        shape = (x.shape[0],) if reduction == NONE and x.dim() == 2 else ()
        return TensorSpec(shape, x.dtype, x.device), TensorSpec(target.shape, x.dtype, x.device)

    def kernel(outs: Any, x: Tensor, target: Tensor, reduction: int) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if x.numel():
            _check_loss_dtype(x, "multilabel_margin_loss_forward_out_frame")
        _check_dtype(target, dt.int64)
        classes = x.shape[-1] if x.dim() else 1
        a, t = wide(x).reshape(-1, classes), array_of(target).reshape(-1, classes)
        if ((t < -1) | (t >= classes)).any():
            raise RuntimeError("argument #2 'target' is out of range")
        listed, own = _targets(t, classes)
        picked = np.take_along_axis(a, np.where(listed, t, 0), 1)
        over = (
            np.maximum(1 - picked[:, :, None] + a[:, None, :], 0)
            * listed[:, :, None]
            * ~own[:, None, :]
        )
        loss = over.sum((1, 2)) / classes
        if reduction == NONE:
            store(outs[0], loss.reshape(tuple(outs[0].shape)))
        else:
            store(outs[0], loss.mean() if reduction == MEAN and loss.size else loss.sum())
        store(outs[1], own.reshape(tuple(outs[1].shape)))

    def vjp(b: Any, g: Any, x: Any, target: Any, reduction: int) -> Any:
        return aten.multilabel_margin_loss_backward(g[0], x, target, reduction, b.outs[1]), None


class MultilabelMarginLossBackward(Opaque):
    """The gradient of multilabel_margin_loss."""

    schema = (
        "multilabel_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int "
        "reduction, Tensor is_target) -> Tensor"
    )
    public = "nn"

    def meta(g: Tensor, x: Tensor, target: Tensor, reduction: int, own: Tensor) -> TensorSpec:
        return TensorSpec(x.shape, x.dtype, x.device)

    def kernel(
        out: Tensor, g: Tensor, x: Tensor, target: Tensor, reduction: int, own: Tensor
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        _check_loss_dtype(x, "multilabel_margin_loss_backward_out_frame")
        classes = x.shape[-1] if x.dim() else 1
        a, t = wide(x).reshape(-1, classes), array_of(target).reshape(-1, classes)
        listed, mask = _targets(t, classes)
        safe = np.where(listed, t, 0)
        picked = np.take_along_axis(a, safe, 1)
        hit = (1 - picked[:, :, None] + a[:, None, :] > 0) & listed[:, :, None] & ~mask[:, None, :]
        slope = hit.sum(1).astype(a.dtype)
        rows = np.broadcast_to(np.arange(a.shape[0])[:, None], safe.shape)
        np.subtract.at(slope, (rows, safe), hit.sum(2).astype(a.dtype))
        gs = wide(g)
        gs = (
            gs.reshape(-1, 1)
            if reduction == NONE
            else gs / (a.shape[0] if reduction == MEAN else 1)
        )
        store(out, (slope / classes * gs).reshape(tuple(out.shape)))


class MultilabelMarginLoss(Composite):
    """Hinge loss of several classes a sample; `target` lists them, then -1."""

    schema = "multilabel_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"
    public = "nn"

    def decompose(x: Tensor, target: Tensor, reduction: int) -> Tensor:
        return aten.multilabel_margin_loss_forward(x, target, reduction)[0]


class Dist(Opaque):
    """The p-norm of self - other."""

    schema = "dist(Tensor self, Tensor other, Scalar p=2) -> Tensor"

    def meta(x: Tensor, y: Tensor, p: Any) -> TensorSpec:
        slot("broadcast_geometry")([x, y])
        dtype = result_type((x, y))
        if not (dtype.is_floating_point or dtype.is_complex):
            raise RuntimeError(
                "norm(): input dtype should be either floating point or complex. Got "
                f"{dt.scalar_name(dtype)} instead."
            )
        return TensorSpec((), dt.REAL_OF.get(dtype, dtype), x.device)

    def kernel(out: Tensor, x: Tensor, y: Tensor, p: Any) -> None:
        slot("copy_into")(out, aten.linalg_vector_norm(x - y, p))

    def decompose(x: Tensor, y: Tensor, p: Any) -> Tensor:
        return aten.linalg_vector_norm(x - y, p)

    saves_by = ("p",)

    def vjp(b: Any, g: Any, x: Any, y: Any, p: Any) -> Any:
        # Each for itself: sums over one of the two, as second gradients take them, round apart.
        def share() -> Any:
            return VectorNorm.vjp(b, g, x - y, p, None, False, None)

        first = share() if b.needs[0] else None
        second = share() if b.needs[1] else None
        return (
            None if first is None else unbroadcast(first, x),
            None if second is None else unbroadcast(-second, y),
        )


class Renorm(Opaque):
    """Slices along dim scaled down to norms of at most maxnorm."""

    schema = "renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor"
    inplace = True
    out = "out"

    def meta(x: Tensor, p: Any, dim: int, maxnorm: Any) -> TensorSpec:
        if isinstance(p, complex):
            raise RuntimeError("renorm: p must be real-valued")
        if p <= 0:
            raise RuntimeError("renorm: non-positive-norm not supported")
        if isinstance(maxnorm, complex):
            raise RuntimeError("renorm: maxnorm must be real-valued")
        if maxnorm < 0:
            raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
        if x.dim() < 2:
            raise RuntimeError(
                f"renorm: input needs at least 2 dimensions, got {x.dim()} dimensions"
            )
        return TensorSpec(x.shape, x.dtype, x.device)

    def kernel(out: Tensor, x: Tensor, p: Any, dim: int, maxnorm: Any) -> None:
        half = x.dtype in (dt.bfloat16, dt.float16)
        slot("copy_into")(out, Renorm.decompose(x.to(dt.float32) if half else x, p, dim, maxnorm))

    def decompose(x: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
        dims = [i for i in range(x.dim()) if i != dim % x.dim()]
        norm = aten.linalg_vector_norm(x.abs() if x.is_complex() else x, p, dims, True)
        factor = aten.where(norm > maxnorm, maxnorm / (norm + 1e-7), aten.ones_like(norm))
        return x * factor

    def vjp(b: Any, g: Any, x: Any, p: Any, dim: int, maxnorm: Any) -> Any:
        dims = [i for i in range(x.dim()) if i != dim % x.dim()]
        norm = aten.linalg_vector_norm(x.abs() if x.is_complex() else x, p, dims, True)
        if p == 2:
            slope = x / norm
        elif math.isinf(p):
            hit = (x.abs() == norm).to(x.dtype)
            slope = x.sgn() * hit / hit.sum(dims, True)
        else:
            slope = x.sgn() * (x.abs() / norm).pow(p - 1)
        slope = aten.masked_fill(slope, norm == 0, 0)
        inverse = 1 / (norm + 1e-7)
        along = (g * x.conj()).real if x.is_complex() else g * x
        scaled = maxnorm * inverse * (g - inverse * slope * along.sum(dims, True))
        return aten.where(norm > maxnorm, scaled, g)

    saves_by = ("p",)
