"""Losses. Each takes `reduction`: "none", "mean" or "sum" (and the deprecated pair of flags)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import Tensor, _nn
from flambeau._src.ir.shape_env import GuardOnDataDependentSymNode
from flambeau._src.ops.kinds import SIXTEEN
from flambeau.overrides import handle_torch_function, has_torch_function_variadic

from .. import _reduction
from .overridable import overridable

_REDUCTIONS = ("none", "mean", "sum")


def _code(size_average: bool | None, reduce: bool | None, reduction: str) -> int:
    if size_average is not None or reduce is not None:
        return _reduction.legacy_get_enum(size_average, reduce)
    return _reduction.get_enum(reduction)


def _name(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    if size_average is not None or reduce is not None:
        return _reduction.legacy_get_string(size_average, reduce)
    return reduction


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _same_size_or_warn(input: Tensor, target: Tensor) -> None:
    if target.size() != input.size():
        warnings.warn(
            f"Using a target size ({target.size()}) that is different to the input size"
            f" ({input.size()}). This will likely lead to incorrect results due to broadcasting."
            " Please ensure they have the same size.",
            stacklevel=4,
        )


@overridable("log_probs", "targets", "input_lengths", "target_lengths")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification (Graves et al. 2006).

    Args:
        log_probs: (T, N, C) or (T, C), log-softmaxed.
        targets: (N, S), or all targets one after the other.
        input_lengths, target_lengths: (N,).
        blank: the class of the blank.
        zero_infinity: infinite losses (targets too long) count as 0.
    """
    return torch.ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank,
        _reduction.get_enum(reduction),
        zero_infinity,
    )


@overridable("input", "target", "weight")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-input[target] of log probabilities (N, C, ...) and class indices (N, ...).

    "mean" divides by the sum of the classes' weights of the targets that are not ignored.
    """
    code = _code(size_average, reduce, reduction)
    return _nn.nll_loss_nd(input, target, weight, code, ignore_index)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of logits (N, C, ...) and class indices (N, ...) or probabilities.

    Args:
        input: logits, (C,), (N, C) or (N, C, d1, ...).
        target: int64 indices of the shape without C, or probabilities of the input's shape.
        weight: (C,), a factor for each class.
        ignore_index: a target that does not count.
        label_smoothing: the share that is spread over all classes, in [0, 1].
    """
    if has_torch_function_variadic(input, target, weight):
        return handle_torch_function(
            cross_entropy,
            (input, target, weight),
            input,
            target,
            weight=weight,
            size_average=size_average,
            ignore_index=ignore_index,
            reduce=reduce,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
    code = _code(size_average, reduce, reduction)
    return _nn.cross_entropy_loss(input, target, weight, code, ignore_index, label_smoothing)


@overridable("input", "target")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - y x (or x - y log(x + eps)); `full` adds Stirling's term for log(y!)."""
    reduction = _name(size_average, reduce, reduction)
    if reduction not in _REDUCTIONS:
        raise ValueError(reduction + " is not a valid value for reduction")
    code = _reduction.get_enum(reduction)
    return torch.poisson_nll_loss(input, target, log_input, full, eps, code)


def _fitting_variance(input: Tensor, var: Any) -> Tensor:
    if isinstance(var, (float, torch.SymFloat)):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        return var * torch.ones_like(input)
    negative = torch.any(var < 0)
    try:
        refused = bool(negative)
    except GuardOnDataDependentSymNode:  # one graph for all values: it sees for itself
        torch._assert_async(~negative, "var has negative entry/entries")
        refused = False
    if refused:
        raise ValueError("var has negative entry/entries")
    shape, wanted = var.size(), input.size()
    if shape == wanted:
        return var
    if wanted[:-1] == shape:  # the same variance for all of the last dimension
        return torch.unsqueeze(var, -1)
    if len(shape) == len(wanted):
        different = [size for size, full in zip(shape, wanted, strict=True) if size != full]
        if different == [1]:  # the same variance along one dimension
            return var
    raise ValueError("var is of incorrect size")


def _widened(*tensors: Any) -> tuple[torch.dtype | None, tuple[Any, ...]]:
    """The dtype that a loss of many steps is rounded to once, and its arguments in float32, where
    the floating ones among them are of one 16-bit dtype; else None, and as they are. Under autocast
    the operators know."""
    floating = [t.dtype for t in tensors if t is not None and t.is_floating_point()]
    kind = floating[0]
    if (
        kind not in SIXTEEN
        or any(d is not kind for d in floating)
        or torch.is_autocast_enabled(tensors[0].device.type)
    ):
        return None, tensors
    return kind, tuple(t.float() if t is not None and t.is_floating_point() else t for t in tensors)


@overridable("input", "target", "var")
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log v + (x - y)² / v) / 2 with v = max(var, eps); `full` adds log(2 pi) / 2."""
    var = _fitting_variance(input, var)
    if reduction not in _REDUCTIONS:
        raise ValueError(reduction + " is not valid")
    kind, (input, target, var) = _widened(input, target, var)
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss += 0.5 * math.log(2 * math.pi)
    loss = _reduce(loss, reduction)
    return loss if kind is None else loss.to(kind)


@overridable("input", "target")
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log target - input), the input being log probabilities.

    "batchmean" divides the sum by the batch size, as the definition has it; "mean" by all elements.
    """
    if size_average is not None or reduce is not None:
        code = _reduction.legacy_get_enum(size_average, reduce)
    else:
        if reduction == "mean":
            warnings.warn(
                "reduction: 'mean' divides the total loss by both the batch size and the support"
                " size.'batchmean' divides only by the batch size, and aligns with the KL div math"
                " definition.'mean' will be changed to behave the same as 'batchmean' in the next"
                " major release.",
                stacklevel=3,
            )
        code = _reduction.get_enum("sum" if reduction == "batchmean" else reduction)
    loss = torch.kl_div(input, target, code, log_target=log_target)
    if reduction == "batchmean" and input.dim() != 0:
        loss = loss / input.size()[0]
    return loss


@overridable("input", "target", "weight")
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(y log x + (1 - y) log(1 - x)) of probabilities x; the logs are not below -100."""
    code = _code(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size"
            f" ({input.size()}) is deprecated. Please ensure they have the same size."
        )
    if weight is not None:
        weight = weight.expand(torch.broadcast_shapes(target.size(), weight.size()))
    return _nn.binary_cross_entropy(input, target, weight, code)


@overridable("input", "target", "weight", "pos_weight")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(x), computed stably; `pos_weight` scales y's term."""
    code = _code(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(
            f"Target size ({target.size()}) must be the same as input size ({input.size()})"
        )
    return torch.binary_cross_entropy_with_logits(input, target, weight, pos_weight, code)


@overridable("input", "target")
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d² / (2 beta) where d = |x - y| < beta, else d - beta / 2 (Girshick 2015)."""
    _same_size_or_warn(input, target)
    code = _code(size_average, reduce, reduction)
    input, target = torch.broadcast_tensors(input, target)
    if beta == 0.0:
        return _nn.l1_loss(input, target, code)
    return _nn.smooth_l1_loss(input, target, code, beta)


def _weighted(loss: Tensor, input: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """The loss with a factor an element; "mean" is the weighted mean."""
    if weight.size() != input.size():
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    if reduction == "none":
        return loss
    if reduction == "sum":
        return torch.sum(loss)
    if reduction == "mean":
        return torch.sum(loss) / torch.sum(weight)
    raise ValueError(f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'.")


@overridable("input", "target", "weight")
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d² / 2 where d = |x - y| <= delta, else delta * (d - delta / 2) (Huber 1964)."""
    _same_size_or_warn(input, target)
    left, right = torch.broadcast_tensors(input, target)
    if weight is None:
        return _nn.huber_loss(left, right, _reduction.get_enum(reduction), delta)
    loss = _nn.huber_loss(left, right, 0, delta)
    if reduction == "mean":  # of this loss alone the mean is over all elements
        return _weighted(loss, input, weight, "none").mean()
    return _weighted(loss, input, weight, reduction)


@overridable("input", "target", "weight")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|x - y|; with `weight` (the input's shape) "mean" is the weighted mean."""
    _same_size_or_warn(input, target)
    reduction = _name(size_average, reduce, reduction)
    left, right = torch.broadcast_tensors(input, target)
    if weight is None:
        return _nn.l1_loss(left, right, _reduction.get_enum(reduction))
    return _weighted(torch.abs(left - right), input, weight, reduction)


@overridable("input", "target", "weight")
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(x - y)²; with `weight` (the input's shape) "mean" is the weighted mean."""
    _same_size_or_warn(input, target)
    reduction = _name(size_average, reduce, reduction)
    left, right = torch.broadcast_tensors(input, target)
    if weight is None:
        return _nn.mse_loss(left, right, _reduction.get_enum(reduction))
    return _weighted(torch.pow(left - right, 2), input, weight, reduction)


@overridable("input1", "input2", "target")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -y (x1 - x2) + margin), y being 1 or -1."""
    code = _code(size_average, reduce, reduction)
    if input1.dim() != input2.dim() or input1.dim() != target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return torch.margin_ranking_loss(input1, input2, target, margin, code)


@overridable("input", "target")
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """x where y = 1, max(0, margin - x) where y = -1."""
    code = _code(size_average, reduce, reduction)
    return torch.hinge_embedding_loss(input, target, margin, code)


@overridable("input", "target")
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge loss of several classes a sample; `target` lists them, then -1."""
    return _nn.multilabel_margin_loss(input, target, _code(size_average, reduce, reduction))


@overridable("input", "target")
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-y x)), y being 1 or -1."""
    return _nn.soft_margin_loss(input, target, _code(size_average, reduce, reduction))


@overridable("input", "target", "weight")
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of the binary cross entropy of logits (N, C)."""
    reduction = _name(size_average, reduce, reduction)
    loss = -(target * _nn.log_sigmoid(input) + (1 - target) * _nn.log_sigmoid(-input))
    if weight is not None:
        loss = loss * weight
    class_dim = input.dim() - 1
    loss = loss.sum(dim=class_dim) / input.size(class_dim)  # over the classes
    if reduction not in _REDUCTIONS:
        raise ValueError(reduction + " is not valid")
    return _reduce(loss, reduction)


@overridable("input1", "input2", "target")
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos(x1, x2) where y = 1, max(0, cos(x1, x2) - margin) where y = -1."""
    code = _code(size_average, reduce, reduction)
    return torch.cosine_embedding_loss(input1, input2, target, margin, code)


@overridable("input", "target", "weight")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of max(0, margin - x[y] + x[i]) ** p, i != y."""
    code = _code(size_average, reduce, reduction)
    if p != 1 and p != 2:
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    return _nn.multi_margin_loss(input, target, p, margin, weight, code)


@overridable("anchor", "positive", "negative")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin) of p-norm distances (Balntas et al. 2016)."""
    code = _code(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return torch.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, code)


@overridable("anchor", "positive", "negative")
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with a distance of one's own."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = torch.pairwise_distance if distance_function is None else distance_function
    dims = anchor.ndim, positive.ndim, negative.ndim
    if not dims[0] == dims[1] == dims[2]:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have "
            f"the same number of dimensions, but got: anchor {dims[0]}D, "
            f"positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    near = distance(anchor, positive)
    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return _reduce(torch.clamp_min(margin + near - far, 0), reduction)


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if weight.dim() < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {weight.dim()}"
        )
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if input.size(-1) != weight.size(-1):
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got"
            f" {input.size(-1)} and {weight.size(-1)}, respectively"
        )
    shape = tuple(weight.shape[:-1])
    if bias is not None and tuple(bias.shape) != shape:
        raise RuntimeError(f"expected linear_bias shape {shape}, got {tuple(bias.shape)}")
    if len(shape) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires"
            f" batched input, (N, {input.size(-1)}), got unbatched input with shape"
            f" {tuple(input.shape)}"
        )


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy` of the logits ``linear(input, linear_weight, linear_bias)``.

    Args:
        input: (N, in) or (in,).
        linear_weight: (C, in), or (C, d1, ..., in) for targets (N, d1, ...).
        linear_bias: the weight's shape without its last dimension.
        options: a `LinearCrossEntropyOptions`; does not change the result.
    """
    tensors = (input, linear_weight, target, linear_bias, weight)
    if has_torch_function_variadic(*tensors):
        return handle_torch_function(
            linear_cross_entropy,
            tensors,
            input,
            linear_weight,
            target,
            linear_bias=linear_bias,
            weight=weight,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            options=options,
        )
    _check_linear(input, linear_weight, linear_bias)
    if ignore_index is None:
        ignore_index = -100
    elif target.is_floating_point() and ignore_index >= 0:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    shape = linear_weight.shape[:-1]
    flat_bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = _nn.linear(input, linear_weight.reshape(-1, linear_weight.size(-1)), flat_bias)
    if len(shape) > 1:
        logits = logits.reshape(*input.shape[:-1], *shape)
    code = _reduction.get_enum(reduction)
    kind, (logits, target, weight) = _widened(logits, target, weight)
    loss = _nn.cross_entropy_loss(logits, target, weight, code, ignore_index, label_smoothing)
    return loss if kind is None else loss.to(kind)
