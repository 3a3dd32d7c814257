"""Batching rules of losses, distances and searches."""

from __future__ import annotations

from math import prod
from typing import Any

from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.batching import Args, folded, rule, shifted
from flambeau._src.interp.vmap import Batch, loop
from flambeau._src.ops.call import aten, dispatch
from flambeau._src.ops.op import Op
from flambeau._src.ops.promote import broadcast_shape

# ---- losses of element and target, reduced ----

_ELEMENTWISE = ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")


def _aligned(b: Batch, tensors: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """The tensors over the whole batch with one shape, which follows."""
    shape = tuple(broadcast_shape([t.shape for t in tensors]))
    return [aten.expand(b.padded(t, len(shape)), (b.size, *shape)) for t in tensors], shape


def _reduction(op: Op, args: Args) -> int:
    at: int = [a.name for a in op.schema.args].index("reduction")
    return at


def _unreduced(b: Batch, op: Op, args: Args) -> tuple[Any, int, tuple[int, ...]]:
    """The operator over the whole batch without its reduction, which is told, and the shape."""
    at = _reduction(op, args)
    new = list(args)
    places = [i for i, v in enumerate(args) if isinstance(v, Tensor)]
    whole, shape = _aligned(b, [args[i] for i in places])
    for i, v in zip(places, whole, strict=True):
        new[i] = v
    new[at] = 0
    return dispatch(op, tuple(new)), args[at], shape


@rule(*_ELEMENTWISE)
def loss(b: Batch, op: Op, args: Args) -> Any:
    """Unreduced over the whole batch, then reduced for each element."""
    each, reduction, shape = _unreduced(b, op, args)
    if reduction == 0:
        return b.wrap(each)
    flat = each if len(shape) == 1 else aten.reshape(each, (b.size, -1))
    return b.wrap(aten.mean(flat, (-1,)) if reduction == 1 else aten.sum(flat, (-1,)))


@rule(*[f"{name}_backward" for name in _ELEMENTWISE])
def loss_backward(b: Batch, op: Op, args: Args) -> Any:
    """Each element of a mean has its part of the gradient."""
    each, reduction, shape = _unreduced(b, op, args)
    return b.wrap(aten.div(each, prod(shape)) if reduction == 1 else each)


# ---- classes ----


@rule("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(b: Batch, op: Op, args: Args) -> Any:
    x, target, w, reduction, ignore = args
    if b.has(w):
        return loop(b, op, args)
    single = x.dim() == 1
    rows = b.full(x) if single else folded(b, x)
    labels = b.full(target) if single else folded(b, target)
    losses = dispatch(op, (rows, labels, w, 0, ignore))[0]
    kept = aten.ne(labels, ignore)
    weights = (
        kept.to(x.dtype)
        if w is None
        else aten.where(kept, aten.index(w, [aten.where(kept, labels, 0)]), 0.0)
    )
    losses, weights = aten.reshape(losses, (b.size, -1)), aten.reshape(weights, (b.size, -1))
    total = aten.sum(weights, (1,))
    if reduction == 0:
        return b.wrap(aten.reshape(losses, (b.size, *target.shape))), aten.new_zeros(total, ())
    result = aten.sum(losses, (1,))
    return b.wrap((result / total if reduction == 1 else result, total))


@rule("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(b: Batch, op: Op, args: Args) -> Any:
    g, x, target, w, reduction, ignore, total = args
    if b.has(w):
        return loop(b, op, args)
    single = x.dim() == 1
    rows = b.full(x) if single else folded(b, x)
    labels = b.full(target) if single else folded(b, target)
    gv = b.full(g)
    if reduction == 1:
        gv = gv / b.full(total)
    gv = aten.reshape(gv, (b.size, -1))
    each = aten.reshape(aten.expand(gv, (b.size, labels.numel() // b.size)), labels.shape)
    out = dispatch(op, (each, rows, labels, w, 0, ignore, aten.new_zeros(each, ())))
    return b.wrap(aten.reshape(out, (b.size, *x.shape)))


# ---- distances ----


@rule("norm")
def norm(b: Batch, op: Op, args: Args) -> Any:
    given = dict(zip([a.name for a in op.schema.args], args, strict=True))
    x, dims = args[0], given.get("dim")
    v, n = b.front(x), x.dim()
    if n == 0:
        v = aten.unsqueeze(v, -1)
    keep = given.get("keepdim", False)
    physical = shifted(dims, n) if dims else tuple(range(1, max(n, 1) + 1))
    if n == 0:
        physical = (1,)
    options = {"dtype": given["dtype"]} if given.get("dtype") is not None else {}
    result = aten.norm(v, given.get("p"), physical, keep, **options)
    return b.wrap(aten.squeeze(result, 1) if n == 0 and keep else result)


@rule("dist")
def dist(b: Batch, op: Op, args: Args) -> Any:
    x, y, p = args
    (left, right), _ = _aligned(b, [x, y])
    return b.wrap(aten.norm(aten.reshape(aten.sub(left, right), (b.size, -1)), p, (1,)))


# ---- searches ----


@rule("bucketize")
def bucketize(b: Batch, op: Op, args: Args) -> Any:
    x, bounds, *options = args
    if not isinstance(x, Tensor) or b.has(bounds):
        return loop(b, op, args)
    return b.wrap(dispatch(op, (b.front(x), bounds, *options)))


@rule("searchsorted")
def searchsorted(b: Batch, op: Op, args: Args) -> Any:
    rows, x, *options, sorter = args
    if not isinstance(x, Tensor):
        return loop(b, op, args)
    if rows.dim() == 1 and not b.has(rows) and not b.has(sorter):
        return b.wrap(dispatch(op, (rows, b.front(x), *options, sorter)))
    whole = b.full(x)
    if rows.dim() == 1:
        whole = aten.reshape(whole, (b.size, -1))
    found = dispatch(op, (b.full(rows), whole, *options, b.full(sorter)))
    return b.wrap(aten.reshape(found, (b.size, *x.shape)))
