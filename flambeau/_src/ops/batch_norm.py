"""Batch normalisation: one mean and deviation a channel (Ioffe and Szegedy 2015)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, call_bits, resize_output
from flambeau._src.ops.copying import copy_into
from flambeau._src.ops.kinds import (
    SIXTEEN,
    Composite,
    Opaque,
    TensorSpec,
    cast,
    merge_dims,
    pack_params,
    run_elements,
    run_rows,
)
from flambeau._src.ops.norm import FEW, added, refuse_bias_alone, second_gradients


def channel_shape(x: Tensor) -> list[int]:
    return [1, x.shape[1], *[1] * (x.dim() - 2)]


def all_but_channels(x: Tensor) -> list[int]:
    return [i for i in range(x.dim()) if i != 1]


def _check_lengths(channels: int, **given: Any) -> None:
    for name, t in given.items():
        if t is not None and t.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {t.numel()}")


class BatchNorm(Composite):
    """Zero mean and unit variance over all but the channel dimension; an empty input is only scaled
    and shifted, by the first weight and bias."""

    schema = (
        "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
        "Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) "
        "-> Tensor"
    )
    public = "function"

    def decompose(
        x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
        eps: float, cudnn: bool,
    ) -> Tensor:  # fmt: skip
        if not x.numel():
            out = x.clone()
            out = out if weight is None else out * weight[0]
            return out if bias is None else out + bias[0]
        for name, t in (("running_mean", mean), ("running_var", var)):
            if not training and t is None:
                raise RuntimeError(f"{name} must be defined in evaluation mode")
        channels = x.shape[1] if x.dim() > 1 else 0
        _check_lengths(channels, running_mean=mean, running_var=var, weight=weight, bias=bias)
        if call_bits((x,), {}, 0) & state.BELOW_RECORD:
            # Where cuDNN keeps what its backward needs; all devices make it, and modes see that.
            aten.empty((0,), dtype=dt.uint8, layout=layout.strided, device=x.device)
        return aten.native_batch_norm(x, weight, bias, mean, var, training, momentum, eps)[0]


def _forward_meta(
    x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    c = x.size(1)
    if (mean is None) != (var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    if mean is None and not training:
        raise RuntimeError("running_mean must be defined in evaluation mode")
    _check_lengths(c, running_mean=mean, running_var=var, weight=weight, bias=bias)
    if training and not x.numel():
        raise RuntimeError(
            f"input tensor must have at least one element, but got input_sizes = {list(x.shape)}"
        )
    kind = weight.dtype if weight is not None else x.dtype
    n = c if training else 0
    stride = None if x._contiguous() else _native.geometry_of([x])[1]
    return (
        TensorSpec(x.shape, x.dtype, x.device, stride),
        TensorSpec((n,), kind, x.device),
        TensorSpec((n,), kind, x.device),
    )


def _sum_cells(k: Any, x: Any, tag: str, wide: str) -> Any:
    return (k.sum(k.cast(x, wide)),)


def _sum_squares(k: Any, x: Any, mean: Any, tag: str, wide: str) -> Any:
    d = x - mean
    return (k.dot(d, d),)


def _sum_products(k: Any, g: Any, x: Any, mean: Any, tag: str, wide: str) -> Any:
    return k.sum(g), k.sum(g * (x - mean))


def _by_channel(
    kind: str, outs: list[Tensor], cells: list[Tensor], values: list[Tensor], *, full: bool = False
) -> bool:
    """Run a kernel of `codegen/channels.py` on the channels of `cells`; False where there is none
    for them. `values` have one number a channel, and so have `outs`, unless they are `full`."""
    x = cells[0]
    images = [*cells, *outs] if full else cells
    if x.dim() < 3 or not all(t._contiguous() and t.dtype is dt.float32 for t in images):
        return False
    n, c = x.shape[:2]
    m = x.numel() // max(n * c, 1)
    names = tuple(tuple(t.dtype.name for t in side) for side in ((*cells, *values), outs))
    address = slot("kernel_address")(kind, None, kind, *names, (), None)
    if address is None:
        return False

    def seen(t: Tensor, step: int, times: int) -> Tensor:
        return _native.alias(Tensor, t, (c, times), (step, 0), None)

    _native.run_rows(
        address, tuple(seen(t, m if full else 1, 1) for t in outs),
        (*(seen(t, m, n * m) for t in cells), *(seen(t, 1, n * m) for t in values)), 1,
        pack_params([n, m, c * m], [False] * 3),
    )  # fmt: skip
    return True


def _channel_sums(
    expr: Any, cells: list[Tensor], values: list[Tensor], wide: dt.dtype, count: int = 1
) -> list[Tensor]:
    """The `count` sums that the row expression gives for each channel of `cells`, in dtype `wide`;
    `values` have one number a channel. No tensor that lies as usual is copied: the sum goes along
    the cells of each sample first, then over the samples."""
    op, x = NativeBatchNormBackward.op, cells[0]
    if expr is _sum_products:
        sums = [_native.empty((x.shape[1],), wide, x.device) for _ in range(2)]
        if _by_channel("channel_products", sums, cells, values):
            return sums
    c, tag = x.shape[1], [expr.__name__, wide.name]
    if x.dim() > 2 and all(t._contiguous() for t in cells):
        n, m = x.shape[0], x.numel() // max(x.shape[0] * c, 1)
        rows = [_native.alias(Tensor, t, (n, c, m), (c * m, m, 1), None) for t in cells]
        rows += [aten.view(v, (1, c, 1)) for v in values]
        parts = [_native.empty((n, c, 1), wide, x.device) for _ in range(count)]
        run_rows(op, expr, tuple(parts), rows, 2, [], tag, wide)
        return [aten.view(aten.sum(p, [0]), (c,)) for p in parts]
    if expr is _sum_products and x.dim() == 2 and x.shape[0] <= FEW:
        # what is left of the gradient is rounding: torch's order of additions
        products = cells[0] * (cells[1] - aten.view(values[0], (1, c)))
        return [aten.view(added(t, [0]), (c,)) for t in (cast(cells[0], wide), products)]
    lines = [merge_dims(t, tuple(all_but_channels(x))) for t in cells]
    lines += [aten.view(v, (c, 1)) for v in values]
    both = [_native.empty((c, 1), wide, x.device) for _ in range(count)]
    run_rows(op, expr, tuple(both), lines, 1, [], tag, wide)
    return [aten.view(t, (c,)) for t in both]


def _statistics(x: Tensor, kind: dt.dtype) -> tuple[Tensor, Tensor]:
    """Means, and sums of the squared distances from them, a channel each. torch keeps both in the
    parameters' type `kind` where that is bfloat16, which shows in all that follows; not in float16.
    """
    wide = dt.float32 if x.dtype in SIXTEEN else dt.float64
    kept = kind if kind is dt.bfloat16 else wide
    moments = [_native.empty((x.shape[1],), dt.float64, x.device) for _ in range(2)]
    if kept is dt.float64 and _by_channel("channel_moments", moments, [x], []):
        return moments[0], moments[1]
    m = _channel_sums(_sum_cells, [x], [], wide)[0] / max(x.numel() // max(x.shape[1], 1), 1)
    m = cast(m, kept)
    return m, cast(_channel_sums(_sum_squares, [x], [m], wide)[0], kept)


def _move(running: Tensor, new: Tensor, momentum: float, *, round_first: bool) -> None:
    """running ← (1 - momentum) running + momentum new, all rounded to the type of `running`, but
    float16 only at the end. `round_first`: the second product too, before it is added."""
    kind = dt.float32 if running.dtype is dt.float16 else running.dtype
    move = aten.scalar_tensor(momentum, dtype=kind, device=running.device)
    stays, new = cast(running, kind) * (1 - move), cast(new, kind)
    copy_into(running, stays + new * move if round_first else aten.addcmul(stays, new, move))


def _forward(
    outs: Any, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
    momentum: float, eps: float,
) -> None:  # fmt: skip
    """Fill (out, save_mean, save_invstd); running statistics move in place."""
    out, save_mean, save_invstd = outs
    wide = cast(x, dt.float32) if x.dtype in SIXTEEN else x
    shape = channel_shape(x)
    if training:
        m, squares = _statistics(x, save_mean.dtype)
        count = x.numel() // max(x.shape[1], 1)
        copy_into(save_mean, m)
        copy_into(save_invstd, 1 / aten.sqrt(cast(squares / count, dt.float64) + eps))
        if mean is not None:
            _move(mean, m, momentum, round_first=True)
        if var is not None:
            _move(var, squares / max(count - 1, 1), momentum, round_first=False)
        m, invstd = cast(save_mean, wide.dtype), cast(save_invstd, wide.dtype)
    else:
        m, invstd = cast(mean, wide.dtype), aten.rsqrt(cast(var, wide.dtype) + eps)
    alpha = invstd if weight is None else invstd * cast(weight, wide.dtype)
    beta = -m * alpha if bias is None else cast(bias, wide.dtype) - m * alpha
    if not _by_channel("channel_scaled", [out], [x], [alpha, beta], full=True):
        copy_into(out, aten.addcmul(aten.view(beta, shape), wide, aten.view(alpha, shape)))


def _forward_vjp(
    b: Any, g: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    needs = iter(b.needs)
    mask = [
        next(needs),
        next(needs) if weight is not None else False,
        next(needs) if bias is not None else False,
    ]
    got = aten.native_batch_norm_backward(
        g[0], x, weight, mean, var, b.outs[1], b.outs[2], training, eps, mask
    )
    return (
        *[r for r, t in zip(got, (x, weight, bias), strict=True) if t is not None],
        *[None for t in (mean, var) if t is not None],
    )


def _forward_out(cls: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
    """`out=`: in evaluation there are no statistics to give, and theirs stay as they are."""
    specs = cls.meta(*args)
    for o, s in zip(outs, specs, strict=True):
        if o.dtype is not s.dtype:
            wanted, got = dt.scalar_name(s.dtype), dt.scalar_name(o.dtype)
            raise RuntimeError(f"expected scalar type {wanted} but found {got}")
        if not s.shape[0] and s is not specs[0] and o.dim() != 1:
            raise RuntimeError(f"TensorAccessor expected 1 dims but tensor has {o.dim()}")
    fresh = tuple(s.allocate() for s in specs)
    cls.kernel(fresh, *args)
    for o, r, s in zip(outs, fresh, specs, strict=True):
        if s.shape[0] or s is specs[0]:
            resize_output(o, r.shape, r.stride())
            copy_into(o, r)
    return True


class NativeBatchNorm(Opaque):
    """Batch norm with the statistics that the backward needs; running ones change in place."""

    constants = ("running_mean", "running_var")
    schema = (
        "native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
        "Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    out = "out"
    out_args = ("out", "save_mean", "save_invstd")
    differentiable = (0,)
    meta = _forward_meta
    kernel = _forward  # running statistics are written without a new version, as torch has it
    vjp = _forward_vjp

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(
            s.tensor((2, 3, 4, 5)), s.tensor((3,)), s.tensor((3,)), None, None, True, 0.1, 1e-5
        )
        yield s.sample(s.tensor((4, 3)), None, None, None, None, True, 0.1, 1e-5)

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        return _forward_out(cls, outs, args)


class NativeBatchNormLegit(Opaque):
    """native_batch_norm whose schema says that it writes the running statistics."""

    schema = (
        "_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, "
        "Tensor(a!) running_mean, Tensor(b!) running_var, bool training, float momentum, "
        "float eps) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    out = "out"
    out_args = ("out", "save_mean", "save_invstd")
    differentiable = (0,)
    new_version = False
    meta = _forward_meta
    kernel = _forward
    vjp = _forward_vjp

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        return _forward_out(cls, outs, args)


class NativeBatchNormNoStats(Opaque):
    """native_batch_norm without running statistics."""

    schema = (
        "_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, "
        "bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    out = "no_stats_out"
    out_args = ("out", "save_mean", "save_invstd")
    differentiable = (0,)

    def meta(x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
        return _forward_meta(x, weight, bias, None, None, training, momentum, eps)

    def kernel(
        outs: Any, x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
    ) -> None:
        _forward(outs, x, weight, bias, None, None, training, momentum, eps)

    def vjp(
        b: Any, g: Any, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
    ) -> Any:
        return _forward_vjp(b, g, x, weight, bias, None, None, training, momentum, eps)

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        return _forward_out(cls, outs, args)


class NativeBatchNormFunctional(Opaque):
    """Batch norm that returns the new running statistics: for graphs without writes."""

    schema = (
        "_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor "
        "running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, "
        "Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)"
    )
    differentiable = (0,)
    vjp = _forward_vjp

    def meta(
        x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool,
        momentum: float, eps: float,
    ) -> Any:  # fmt: skip
        own = _forward_meta(x, weight, bias, mean, var, training, momentum, eps)
        return (*own, *[TensorSpec(t.shape, t.dtype, t.device) for t in (mean, var)])

    def kernel(
        outs: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool,
        momentum: float, eps: float,
    ) -> None:  # fmt: skip
        copy_into(outs[3], mean)
        copy_into(outs[4], var)
        _forward(outs[:3], x, weight, bias, outs[3], outs[4], training, momentum, eps)


def _input_cells(
    k: Any, g: Any, x: Any, mean: Any, slope: Any, shift: Any, r: Any, *weight: Any
) -> Any:
    return _scaled((g - shift - (x - mean) * slope), r, weight)


def _input_scaled(k: Any, g: Any, r: Any, *weight: Any) -> Any:
    return _scaled(g, r, weight)


def _scaled(v: Any, r: Any, weight: tuple[Any, ...]) -> Any:
    """v r weight; the last value says whether there is a weight."""
    return v * r * weight[0] if weight[-1] == "weight" else v * r


class NativeBatchNormBackward(Opaque):
    """Gradients of batch norm for input, weight and bias. A channel of few cells leaves little of
    the input's but rounding, so it is computed in torch's order."""

    schema = (
        "native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, "
        "Tensor? running_mean, Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, "
        "bool train, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    undefined_grads = True

    def refuse_backward(gg: Any, *args: Any) -> None:
        refuse_bias_alone(gg, args[2])

    def meta(
        g: Tensor, x: Tensor, weight: Any, mean: Any, var: Any, save_mean: Any, save_invstd: Any,
        train: bool, eps: float, mask: Any,
    ) -> Any:  # fmt: skip
        kind = weight.dtype if weight is not None else x.dtype
        stride = None if x._contiguous() else _native.geometry_of([x])[1]
        return (
            TensorSpec(x.shape, x.dtype, x.device, stride) if mask[0] else None,
            TensorSpec((x.shape[1],), kind, x.device) if mask[1] else None,
            TensorSpec((x.shape[1],), kind, x.device) if mask[2] else None,
        )

    def kernel(
        outs: Any, g: Tensor, x: Tensor, weight: Any, mean: Any, var: Any, save_mean: Any,
        save_invstd: Any, train: bool, eps: float, mask: Any,
    ) -> None:  # fmt: skip
        op, wide = NativeBatchNormBackward.op, dt.float32 if x.dtype in SIXTEEN else x.dtype
        if train:
            m, r = cast(save_mean, wide), cast(save_invstd, wide)
        else:
            m, r = cast(mean, wide), aten.rsqrt(cast(var, wide) + eps)
        g = cast(g, x.dtype)
        total = dot = None
        if train or mask[1] or mask[2]:
            total, dot = _channel_sums(_sum_products, [g, x], [m], wide, 2)
            for out, value in ((outs[1], dot * r), (outs[2], total)):
                if out is not None:
                    copy_into(out, value)
        if outs[0] is None:
            return
        shape = channel_shape(x)
        last = [r] if weight is None else [r, cast(weight, wide)]
        tag = ["plain" if weight is None else "weight"]
        if not train:
            last = [aten.view(t, shape) for t in last]
            run_elements(op, _input_scaled, (outs[0],), [g, *last], [], tag, x.dtype)
            return
        n = max(x.numel() // max(x.shape[1], 1), 1)
        numbers = [m, dot * r * r / n, total / n, *last]
        every = numbers if weight is not None else [*numbers, aten.ones_like(r)]
        if _by_channel("channel_slopes", [outs[0]], [g, x], every, full=True):
            return
        small = [aten.view(t, shape) for t in numbers]
        run_elements(op, _input_cells, (outs[0],), [g, x, *small], [], tag, x.dtype)

    def vjp(
        b: Any, gg: Any, g: Any, x: Any, weight: Any, mean: Any, var: Any, save_mean: Any,
        save_invstd: Any, train: bool, eps: float, mask: Any,
    ) -> Any:  # fmt: skip
        shape = channel_shape(x)
        if train:
            m, r = save_mean, save_invstd
        else:
            m, r = mean, (var + eps) ** -0.5
        grads = second_gradients(
            gg, g, x, m.view(shape), r.view(shape),
            None if weight is None else weight.view(shape),
            all_but_channels(x), "channels" if train else "constants",
        )  # fmt: skip
        to_weight = None if grads[2] is None else grads[2].view(weight.shape)
        first = [*grads[:2], *(() if weight is None else (to_weight,))]
        rest = [t for t in (mean, var, save_mean, save_invstd) if t is not None]
        return (*first, *[None for _ in rest])


# ---- the same with a place for what a device's library keeps for its backward: `reserve` ----


def _reserve(x: Tensor) -> TensorSpec:
    """Empty here: nothing is kept that the other results do not hold."""
    return TensorSpec((0,), dt.uint8, x.device)


def _reserved_vjp(
    b: Any, g: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, update: bool, eps: float
) -> Any:
    """The gradients through batch_norm_backward, which asks for a weight."""
    if weight is None:
        return _forward_vjp(b, g, x, weight, bias, mean, var, update, 0.0, eps)
    needs = iter(b.needs)
    mask = [next(needs), next(needs), next(needs) if bias is not None else False]
    got = aten.batch_norm_backward(
        g[0], x, weight, mean, var, b.outs[1], b.outs[2], update, eps, mask, aten.clone(b.outs[3])
    )
    given = [*got[:2], *(() if bias is None else got[2:])]
    return (*given, *[None for t in (mean, var) if t is not None])


class BatchNormWithUpdate(Opaque):
    """Batch norm by the input's own statistics; the running ones move in place."""

    schema = (
        "_batch_norm_with_update(Tensor input, Tensor? weight, Tensor? bias, "
        "Tensor(a!) running_mean, Tensor(b!) running_var, float momentum, float eps) "
        "-> (Tensor, Tensor, Tensor, Tensor)"
    )
    public = ""
    out = "out"
    out_args = ("out", "save_mean", "save_invstd", "reserve")
    differentiable = (0,)
    new_version = False

    def meta(
        x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
    ) -> Any:
        return (*_forward_meta(x, weight, bias, mean, var, True, momentum, eps), _reserve(x))

    def kernel(
        outs: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float,
        eps: float,
    ) -> None:  # fmt: skip
        _forward(outs[:3], x, weight, bias, mean, var, True, momentum, eps)

    def vjp(
        b: Any, g: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float,
        eps: float,
    ) -> Any:  # fmt: skip
        return _reserved_vjp(b, g, x, weight, bias, mean, var, True, eps)

    def samples(s: Any) -> Iterator[Any]:
        for weight in (s.tensor((3,)), None):
            yield s.sample(
                s.tensor((2, 3, 4)),
                weight,
                None,
                s.tensor((3,)).detach(),
                s.tensor((3,), 0.5, 2).detach(),
                0.1,
                1e-5,
            )


class BatchNormWithUpdateFunctional(Opaque):
    """_batch_norm_with_update that returns the new running statistics."""

    schema = (
        "_batch_norm_with_update_functional(Tensor input, Tensor? weight, Tensor? bias, "
        "Tensor running_mean, Tensor running_var, float momentum, float eps) -> "
        "(Tensor, Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)"
    )
    public = ""
    differentiable = (0,)
    vjp = BatchNormWithUpdate.vjp

    def meta(
        x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
    ) -> Any:
        own = BatchNormWithUpdate.meta(x, weight, bias, mean, var, momentum, eps)
        return (*own, *[TensorSpec(t.shape, t.dtype, t.device) for t in (mean, var)])

    def kernel(
        outs: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float,
        eps: float,
    ) -> None:  # fmt: skip
        copy_into(outs[4], mean)
        copy_into(outs[5], var)
        _forward(outs[:3], x, weight, bias, outs[4], outs[5], True, momentum, eps)


class BatchNormNoUpdate(Opaque):
    """Batch norm by the running statistics."""

    schema = (
        "_batch_norm_no_update(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
        "Tensor? running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)"
    )
    public = ""
    out = "out"
    out_args = ("out0", "out1", "out2", "out3")
    differentiable = (0,)
    constants = ("running_mean", "running_var")

    def meta(
        x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
    ) -> Any:
        return (*_forward_meta(x, weight, bias, mean, var, False, momentum, eps), _reserve(x))

    def kernel(
        outs: Any, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, momentum: float,
        eps: float,
    ) -> None:  # fmt: skip
        _forward(outs[:3], x, weight, bias, mean, var, False, momentum, eps)

    def vjp(
        b: Any, g: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float,
        eps: float,
    ) -> Any:  # fmt: skip
        return _reserved_vjp(b, g, x, weight, bias, mean, var, False, eps)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(
            s.tensor((2, 3, 4)), s.tensor((3,)), s.tensor((3,)), s.tensor((3,)).detach(),
            s.tensor((3,), 0.5, 2).detach(), 0.1, 1e-5,
        )  # fmt: skip


class BatchNormBackward(Opaque):
    """native_batch_norm_backward with `reserve`."""

    schema = (
        "batch_norm_backward(Tensor grad_out, Tensor input, Tensor weight, Tensor? running_mean, "
        "Tensor? running_var, Tensor? save_mean, Tensor? save_var, bool update, float eps, "
        "bool[3] output_mask, Tensor reserve) -> (Tensor, Tensor, Tensor)"
    )
    public = ""
    undefined_grads = True

    def refuse_backward(gg: Any, *args: Any) -> None:
        refuse_bias_alone(gg, args[2])

    def meta(*args: Any) -> Any:
        return NativeBatchNormBackward.meta(*args[:-1])

    def kernel(outs: Any, *args: Any) -> None:
        NativeBatchNormBackward.kernel(outs, *args[:-1])

    def vjp(b: Any, gg: Any, *args: Any) -> Any:
        return (*NativeBatchNormBackward.vjp(b, gg, *args[:-1]), None)
