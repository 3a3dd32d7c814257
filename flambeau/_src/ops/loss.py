"""Losses. reduction: 0 none, 1 mean, 2 sum, as ATen numbers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import SIXTEEN, Composite, Opaque, TensorSpec
from flambeau._src.ops.promote import result_type

NONE, MEAN, SUM = 0, 1, 2


def reduce(loss: Tensor, reduction: int) -> Tensor:
    return loss if reduction == NONE else loss.mean() if reduction == MEAN else loss.sum()


def check_targets(x: Tensor, target: Tensor, weight: Any, two: bool) -> None:
    if two:
        if target.dim() != 3:
            raise RuntimeError(
                "only batches of spatial targets supported (3D tensors) but got targets of "
                f"dimension: {target.dim()}"
            )
        if x.dim() != 4:
            raise RuntimeError(
                "only batches of spatial inputs supported (4D tensors), but got input of "
                f"dimension: {x.dim()}"
            )
        if x.shape[0] != target.shape[0] or x.shape[2:] != target.shape[1:]:
            raise RuntimeError(
                f"size mismatch (got input: {list(x.shape)} , target: {list(target.shape)}"
            )
    else:
        if not 1 <= x.dim() <= 2:
            raise RuntimeError("input tensor should be 1D or 2D")
        if target.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if not (x.dim() == 1 and target.dim() == 0) and x.shape[0] != (
            target.shape[0] if target.dim() else 1
        ):
            raise RuntimeError(
                f"size mismatch (got input: {list(x.shape)}, target: {list(target.shape)})"
            )
    classes = x.shape[1] if x.dim() > 1 else x.shape[0]
    if weight is not None and (weight.dim() != 1 or weight.numel() != classes):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes but "
            f"got weight tensor of shape: {list(weight.shape)}"
        )
    if target.dtype not in (dt.int64, dt.uint8):
        raise RuntimeError(
            "expected target dtype to be Long or Byte, but got " + dt.scalar_name(target.dtype)
        )
    if two and target.dtype is dt.uint8:
        raise RuntimeError("expected scalar type Long but found Byte")


def _check_classes(name: str, x: Tensor, target: Tensor, weight: Any) -> None:
    """What the kernels of nll_loss take."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.scalar_name(x.dtype)}'")
    if weight is not None and weight.dtype != x.dtype:
        raise RuntimeError(
            f"expected scalar type {dt.scalar_name(x.dtype)} but found "
            f"{dt.scalar_name(weight.dtype)}"
        )


def _inside(outside: int | None) -> None:
    if outside is not None:
        raise IndexError(f"Target {outside} is out of bounds.")


def wide_of(t: Tensor) -> Tensor:
    """t in the dtype in which sums are made."""
    return t if t.dtype is dt.float64 else t.to(dt.float32)


def _classes(x: Tensor, target: Tensor, weight: Any, ignore: int) -> Any:
    """Of the rows of x (one row, for a vector): the dimension of classes, each row's class, whether
    it is left out, and its weight."""
    at = target.to(dt.int64)
    if x.dim() == 1:
        at = aten.reshape(at, (1,))
    skipped = aten.eq(at, ignore)
    at = aten.masked_fill(at, skipped, 0)
    if weight is None:
        each = aten.ones(at.shape, dtype=wide_of(x).dtype, device=x.device)
    else:
        each = aten.view(aten.index_select(wide_of(weight), 0, aten.reshape(at, (-1,))), at.shape)
    return 1, at, skipped, each


_NLL_ARGS = "Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index"


def _nll(two: bool) -> None:
    name = "nll_loss2d" if two else "nll_loss"

    def meta(x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int) -> Any:
        check_targets(x, target, weight, two)
        shape = target.shape if reduction == NONE and (two or x.dim() == 2) else ()
        return TensorSpec(shape, x.dtype, x.device), TensorSpec((), x.dtype, x.device)

    def decompose(x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int) -> Any:
        shape = meta(x, target, weight, reduction, ignore)[0].shape
        _check_classes(f"{name}{'_forward' * two}_out_frame", x, target, weight)
        c, at, skipped, each = _classes(x, target, weight, ignore)
        rows = wide_of(x) if x.dim() > 1 else aten.unsqueeze(wide_of(x), 0)
        value = -aten.squeeze(aten.gather(rows, c, aten.unsqueeze(at, c)), c) * each
        value = aten.masked_fill(value, skipped, 0)
        total = aten.zeros((), dtype=x.dtype, device=x.device)
        if len(shape) or (reduction == NONE and x.dim() > 1):
            return value.to(x.dtype), total
        weights = aten.sum(aten.masked_fill(each, skipped, 0))
        value = aten.sum(value) / weights if reduction == MEAN else aten.sum(value)
        return value.to(x.dtype), weights.to(x.dtype)

    def kernel(
        outs: Any, x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int
    ) -> None:
        _check_classes(f"{name}{'_forward' * two}_out_frame", x, target, weight)
        mean = reduction == MEAN
        _inside(_native.chosen(outs[0], outs[1], x, target, weight, ignore, -1.0, mean))

    def vjp(b: Any, g: Any, x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
        got = getattr(aten, name + "_backward")(
            g[0], x, target, weight, reduction, ignore, b.outs[1]
        )
        return (got, None) if weight is None else (got, None, None)

    def plain(x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int) -> Tensor:
        return getattr(aten, name + "_forward")(x, target, weight, reduction, ignore)[0]

    common = {"__module__": __name__, "public": "nn"}
    type(
        name + "_f",
        (Opaque,),
        {
            "__doc__": "Minus the log-probability of the target class.",
            "schema": f"{name}_forward({_NLL_ARGS}) -> (Tensor output, Tensor total_weight)",
            "meta": meta,
            "kernel": kernel,
            "decompose": decompose,
            "whole": True,
            "vjp": vjp,
            "differentiable": (0,),
            "constants": ("weight",),
            "out": "output",
            "out_args": ("output", "total_weight"),
            "node_name": "NllLoss2D" if two else "NllLoss",
            **common,
        },
    )
    type(
        name,
        (Composite,),
        {
            "__doc__": "Minus the log-probability of the target class.",
            "decompose": plain,
            "out": "out",
            "schema": f"{name}(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
            "int ignore_index=-100) -> Tensor",
            **common,
        },
    )


def _nll_backward(name: str) -> None:
    def meta(g: Tensor, x: Tensor, *rest: Any) -> Any:
        return TensorSpec(x.shape, x.dtype, x.device)

    def kernel(
        out: Tensor,
        g: Tensor,
        x: Tensor,
        target: Tensor,
        weight: Any,
        reduction: int,
        ignore: int,
        total: Tensor,
    ) -> None:
        _native.zero(out)
        total = total if reduction == MEAN else None
        _inside(_native.put_chosen(out, g, target, weight, ignore, -1.0, total))

    def decompose(
        g: Tensor, x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int,
        total: Tensor,
    ) -> Tensor:  # fmt: skip
        c, at, skipped, each = _classes(x, target, weight, ignore)
        value = -each * wide_of(g)
        if reduction == MEAN:
            value = value / wide_of(total)
        value = aten.masked_fill(value, skipped, 0).to(x.dtype)
        shape = x.shape if x.dim() > 1 else (1, *x.shape)
        blank = aten.zeros(shape, dtype=x.dtype, device=x.device)
        made = aten.scatter(blank, c, aten.unsqueeze(at, c), aten.unsqueeze(value, c))
        return aten.reshape(made, x.shape)

    def vjp(
        b: Any,
        gg: Any,
        g: Any,
        x: Any,
        target: Any,
        weight: Any,
        reduction: int,
        ignore: int,
        total: Any,
    ) -> Any:
        go = getattr(aten, name)(gg, target, weight, reduction, ignore)
        rest = [None] * (2 if weight is None else 3)
        return (go, aten.zeros_like(x) if b.needs[1] else None, *rest)

    type(
        name + "_b",
        (Opaque,),
        {
            "__doc__": "The gradient of nll_loss.",
            "schema": f"{name}_backward(Tensor grad_output, {_NLL_ARGS}, Tensor total_weight) "
            "-> Tensor",
            "meta": meta,
            "kernel": kernel,
            "decompose": decompose,
            "whole": True,
            "vjp": vjp,
            "out": "grad_input",
            "out_args": ("grad_input",),
            "__module__": __name__,
            "public": "nn",
        },
    )


_nll(False)
_nll(True)
_nll_backward("nll_loss")
_nll_backward("nll_loss2d")


class NllLossNd(Composite):
    """nll_loss for inputs (C), (N, C) or (N, C, *)."""

    schema = (
        "nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int "
        "ignore_index=-100) -> Tensor"
    )
    public = "nn"

    def decompose(x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int) -> Tensor:
        if x.dim() < 1:
            raise ValueError(f"Expected 1 or more dimensions (got {x.dim()})")
        batch = target.shape[0] if target.dim() else 0
        if x.dim() != 1 and x.shape[0] != batch:
            raise ValueError(
                f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({batch})."
            )
        if x.dim() <= 2:
            return aten.nll_loss(x, target, weight, reduction, ignore)
        if x.dim() == 4:
            return aten.nll_loss2d(x, target, weight, reduction, ignore)
        n, c = x.shape[0], x.shape[1]
        out_shape = [n, *x.shape[2:]]
        if list(target.shape[1:]) != list(x.shape[2:]):
            raise RuntimeError(f"Expected target size {out_shape}, got {list(target.shape)}")
        x = x.contiguous().view(n, c, 1, -1) if x.numel() else x.contiguous().view(n, c, 0, 0)
        target = (
            target.contiguous().view(n, 1, -1)
            if target.numel()
            else target.contiguous().view(n, 0, 0)
        )
        out = aten.nll_loss2d(x, target, weight, reduction, ignore)
        return out.view(out_shape) if reduction == NONE else out


class CrossEntropyLoss(Composite):
    """Cross entropy of logits with class indices or class probabilities."""

    schema = (
        "cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, int "
        "ignore_index=-100, float label_smoothing=0.0) -> Tensor"
    )
    public = "nn"

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), s.ints((3,), 0, 4))
        yield s.sample(s.tensor((2, 3, 4, 5)), s.ints((2, 4, 5), 0, 3), None, 2)
        yield s.sample(s.tensor((3, 4)), s.ints((3,), 0, 4), None, 0, -100, 0.1)
        yield s.sample(s.tensor((4,)), s.ints((), 0, 4))

    def decompose(
        x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int, smoothing: float
    ) -> Tensor:
        dim = 0 if x.dim() == 1 else 1
        if x.shape == target.shape:
            if not target.dtype.is_floating_point:
                raise RuntimeError(
                    "Expected floating point type for target with class probabilities, got "
                    f"{dt.scalar_name(target.dtype)}"
                )
            if ignore >= 0:
                raise RuntimeError("ignore_index is not supported for floating point target")
            return _probabilities(x, target, weight, reduction, smoothing, dim)
        if smoothing > 0:
            return _smoothed(x, target, weight, reduction, ignore, smoothing, dim)
        return aten.nll_loss_nd(
            aten.log_softmax(x, dim, x.dtype), target, weight, reduction, ignore
        )


def _class_weight(weight: Tensor, x: Tensor) -> Tensor:
    shape = [1] * x.dim()
    shape[0 if x.dim() == 1 else 1] = weight.shape[0]
    return weight.view(shape)


def _probabilities(
    x: Tensor, target: Tensor, weight: Any, reduction: int, smoothing: float, dim: int
) -> Tensor:
    classes = x.shape[dim]
    log = aten.log_softmax(x, dim, x.dtype)
    if smoothing > 0:
        if not 0 <= smoothing <= 1:
            raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
        target = target * (1 - smoothing) + smoothing / classes
    if weight is not None:
        if weight.dim() != 1 or weight.numel() != classes:
            raise RuntimeError(
                f"cross_entropy: weight tensor should be defined either for all {classes} classes "
                f"or no classes but got weight tensor of shape: {list(weight.shape)}"
            )
        weighted = log * target * _class_weight(weight, x)
    else:
        weighted = log * target
    if reduction == MEAN:
        n = x.numel() // classes if x.numel() else 0
        return -weighted.sum() / n if n else -weighted.sum() * float("nan")
    return -weighted.sum() if reduction == SUM else -weighted.sum(dim)


def _smoothed(
    x: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int, smoothing: float, dim: int
) -> Tensor:
    if not 0 <= smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {smoothing}")
    classes = x.shape[dim]
    log = aten.log_softmax(x, dim, x.dtype)
    nll = aten.nll_loss_nd(log, target, weight, reduction, ignore)
    smooth = -(log * _class_weight(weight, x)).sum(dim) if weight is not None else -log.sum(dim)
    mask = target == ignore
    smooth = smooth.masked_fill(mask, 0.0)
    if reduction == MEAN:
        if weight is not None:
            safe = target.masked_fill(mask, 0)
            total = weight.gather(0, safe.flatten()).view_as(safe).masked_fill(mask, 0.0).sum()
            smooth = smooth.sum() / total
        else:
            smooth = smooth.sum() / (~mask).sum()
    elif reduction == SUM:
        smooth = smooth.sum()
    return (1 - smoothing) * nll + smooth * (smoothing / classes)


def _elementwise(
    name: str, value: Any, slope: Any, extra: str = "", check: Any = None, more: Any = None
) -> None:
    """A loss of input and target, element by element, then reduced; slope(x, t, *) is that of the
    loss by x, more(x, t, *) the second one."""
    arguments = "Tensor grad_output, Tensor self, Tensor target, int reduction"

    def shape_of(x: Tensor, t: Tensor, reduction: int) -> TensorSpec:
        shape, stride = slot("broadcast_geometry")([x, t])
        kind = result_type((x, t))
        return TensorSpec(shape, kind, x.device, stride) if reduction == NONE else (
            TensorSpec((), kind, x.device)
        )  # fmt: skip

    def meta(x: Tensor, t: Tensor, reduction: int, *rest: Any) -> TensorSpec:
        if check:
            check(*rest)
        return shape_of(x, t, reduction)

    def decompose(x: Tensor, t: Tensor, reduction: int, *rest: Any) -> Tensor:
        if check:
            check(*rest)
        return reduce(value(x, t, *rest), reduction)

    def vjp(b: Any, g: Any, x: Any, t: Any, reduction: int, *rest: Any) -> Any:
        of = getattr(aten, f"{name}_backward")
        gx = of(g, x, t, reduction, *rest) if b.needs[0] else None
        # x and t only ever meet as a difference
        gt = -gx if gx is not None else -of(g, x, t, reduction, *rest) if b.needs[1] else None
        both = gx, gt if b.needs[1] else None
        return tuple(
            v if v is None else slot("sum_to")(v, like) if v.shape != like.shape else v
            for v, like in zip(both, (x, t), strict=True)
        )

    def backward_meta(g: Tensor, x: Tensor, t: Tensor, reduction: int, *rest: Any) -> TensorSpec:
        return shape_of(x, t, NONE)

    def backward(g: Tensor, x: Tensor, t: Tensor, reduction: int, *rest: Any) -> Tensor:
        made = slope(x, t, *rest) * g
        n = made.numel()
        return made * (1.0 / n) if reduction == MEAN and n else made

    def second(b: Any, gg: Any, g: Any, x: Any, t: Any, reduction: int, *rest: Any) -> Any:
        n = gg.numel() if reduction == MEAN else 1
        gg = gg / n if n > 1 else gg
        own = None
        if b.needs[0]:
            own = gg * slope(x, t, *rest)
            own = own if reduction == NONE else aten.sum(own)
        gx = gg * g * more(x, t, *rest) if b.needs[1] or b.needs[2] else None
        return own, gx, None if gx is None else -gx

    common = {"__module__": __name__, "public": "nn"}
    type(name, (Opaque,), {
        "__doc__": f"{name}, element by element, then reduced.", "meta": meta, "vjp": vjp,
        "schema": f"{name}(Tensor self, Tensor target, int reduction=1{extra}) -> Tensor",
        "decompose": decompose, "out": "out", **common,
    })  # fmt: skip
    type(f"{name}_b", (Opaque,), {
        "__doc__": f"The gradient of {name}.", "meta": backward_meta, "decompose": backward,
        "vjp": second, "out": "grad_input", "out_args": ("grad_input",),
        "schema": f"{name}_backward({arguments}{extra.partition('=')[0]}) -> Tensor", **common,
    })  # fmt: skip


def _smooth_l1(x: Tensor, t: Tensor, beta: float) -> Tensor:
    d = (x - t).abs()
    return aten.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta) if beta else d


def _smooth_l1_slope(x: Tensor, t: Tensor, beta: float) -> Tensor:
    d = x - t
    return aten.where(d.abs() < beta, d / beta, aten.sgn(d)) if beta else aten.sgn(d)


def _check_beta(beta: float) -> None:
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")


def _huber(x: Tensor, t: Tensor, delta: float) -> Tensor:
    d = (x - t).abs()
    return aten.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))


def _check_delta(delta: float) -> None:
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")


def _within(x: Tensor, t: Tensor, limit: float) -> Tensor:
    d = x - t
    return (d.abs() < limit).to(d.dtype)


_elementwise(
    "mse_loss", lambda x, t: (x - t).pow(2), lambda x, t: 2.0 * (x - t), more=lambda x, t: 2.0
)
_elementwise(
    "smooth_l1_loss", _smooth_l1, _smooth_l1_slope, ", float beta=1.0", _check_beta,
    lambda x, t, beta: _within(x, t, beta) / beta if beta else aten.zeros_like(x),
)  # fmt: skip
_elementwise(
    "huber_loss", _huber, lambda x, t, delta: aten.clamp(x - t, -delta, delta),
    ", float delta=1.0", _check_delta, _within,
)  # fmt: skip


class L1Loss(Composite):
    """|input - target|, reduced."""

    schema = "l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor"
    public = "nn"

    def decompose(x: Tensor, target: Tensor, reduction: int) -> Tensor:
        return reduce((x - target).abs(), reduction)


def refuse_gradient(name: str, **given: Tensor | None) -> None:
    """What torch has no derivative for, where it is one operator there and several here."""
    for argument, t in given.items():
        if t is not None and t.requires_grad:
            raise RuntimeError(
                f"The function '{name}' is not differentiable with respect to argument "
                f"'{argument}'. This input cannot have requires_grad True."
            )


def _check_shares(x: Tensor) -> None:
    if x.numel() and not x.untyped_storage().is_fake and bool(((x < 0) | (x > 1)).any()):
        raise RuntimeError("all elements of input should be between 0 and 1")


class BinaryCrossEntropy(Opaque):
    """-(t log x + (1 - t) log(1 - x)), logs no smaller than -100."""

    schema = (
        "binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) "
        "-> Tensor"
    )
    public = "nn"
    out = "out"
    constants = ("weight",)

    def meta(x: Tensor, target: Tensor, weight: Any, reduction: int) -> TensorSpec:
        shape, stride = slot("broadcast_geometry")([x, target])
        if reduction == NONE:
            return TensorSpec(shape, x.dtype, x.device, stride)
        return TensorSpec((), x.dtype, x.device)

    def decompose(x: Tensor, target: Tensor, weight: Any, reduction: int) -> Tensor:
        _check_shares(x)
        loss = (target - 1) * aten.clamp(aten.log1p(-x), min=-100) - target * aten.clamp(
            aten.log(x), min=-100
        )
        return reduce(loss if weight is None else loss * weight, reduction)

    def vjp(b: Any, g: Any, x: Any, target: Any, weight: Any, reduction: int) -> Any:
        gx = gt = None
        if b.needs[0]:
            gx = aten.binary_cross_entropy_backward(g, x, target, weight, reduction)
        if b.needs[1]:
            gt = -aten.logit(x) * g
            gt = gt if weight is None else gt * weight
            gt = gt / x.numel() if reduction == MEAN else gt
        return (gx, gt) if weight is None else (gx, gt, None)

    def samples(s: Any) -> Iterator[Any]:
        for reduction in (0, 1, 2):
            yield s.sample(
                s.tensor((3, 4), 0.1, 0.9), s.tensor((3, 4), 0.1, 0.9), reduction=reduction
            )


class BinaryCrossEntropyBackward(Opaque):
    """The gradient of binary_cross_entropy; x (1 - x) no smaller than 1e-12."""

    schema = (
        "binary_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, "
        "Tensor? weight=None, int reduction=1) -> Tensor"
    )
    public = "nn"
    out = "grad_input"
    out_args = ("grad_input",)
    constants = ("weight",)

    def meta(g: Tensor, x: Tensor, target: Tensor, weight: Any, reduction: int) -> TensorSpec:
        return BinaryCrossEntropy.meta(x, target, weight, NONE)

    def decompose(g: Tensor, x: Tensor, target: Tensor, weight: Any, reduction: int) -> Tensor:
        made = g * (x - target) / aten.clamp(x * (1 - x), min=1e-12)
        made = made if weight is None else made * weight
        return made / x.numel() if reduction == MEAN and x.numel() else made

    def vjp(b: Any, gg: Any, g: Any, x: Any, target: Any, weight: Any, reduction: int) -> Any:
        def shared(v: Tensor) -> Tensor:
            v = v if weight is None else v * weight
            return v / x.numel() if reduction == MEAN and x.numel() else v

        kind = x.dtype
        if kind in SIXTEEN:  # many steps, rounded once
            g, gg, x, target, weight = (
                t if t is None else t.to(dt.float32) for t in (g, gg, x, target, weight)
            )
        near, far = x + 1e-12, 1 - x + 1e-12
        of_g = of_x = of_t = None
        if b.needs[0]:
            of_g = shared((x - target) / (near * far) * gg)
            of_g = of_g if reduction == NONE else aten.sum(of_g)
        if b.needs[1]:  # without the cancellation of the quotient's rule near 0 and 1
            bend = (x * x - 2 * x * target + target) / (near.pow(2) * far.pow(2))
            of_x = shared(bend * (gg * g))
        if b.needs[2]:
            of_t = shared(-gg * g) / aten.clamp(x * (1 - x), min=1e-12)
        made = tuple(t if t is None else t.to(kind) for t in (of_g, of_x, of_t))
        return made if weight is None else (*made, None)

    def samples(s: Any) -> Iterator[Any]:
        for reduction in (0, 1, 2):
            yield s.sample(
                s.tensor((3, 4) if reduction == NONE else ()), s.tensor((3, 4), 0.1, 0.9),
                s.tensor((3, 4), 0.1, 0.9), reduction=reduction,
            )  # fmt: skip


class BinaryCrossEntropyLogits(Composite):
    """Binary cross entropy of sigmoid(input), computed in logarithms."""

    schema = (
        "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? "
        "pos_weight=None, int reduction=1) -> Tensor"
    )
    public = "function"

    def decompose(
        x: Tensor, target: Tensor, weight: Any, pos_weight: Any, reduction: int
    ) -> Tensor:
        name = "binary_cross_entropy_with_logits"
        refuse_gradient(name, weight=weight, pos_weight=pos_weight)
        log = aten.log_sigmoid(x)
        if pos_weight is not None:
            loss = (1 - target) * x - ((pos_weight - 1) * target + 1) * log
        else:
            loss = (1 - target) * x - log
        return reduce(loss if weight is None else loss * weight, reduction)


class KlDiv(Composite):
    """target (log target - input), input a log-probability."""

    schema = (
        "kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor"
    )
    public = "function"

    def decompose(x: Tensor, target: Tensor, reduction: int, log_target: bool) -> Tensor:
        if log_target:
            loss = target.exp() * (target - x)
        else:
            loss = aten.xlogy(target, target) - target * x
        return reduce(loss, reduction)
