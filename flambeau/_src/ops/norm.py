"""Softmax and the normalisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, call_bits
from flambeau._src.ops.copying import copy_into
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec, cast, run_rows, wrap_dim


def softmax_samples(s: Any) -> Iterator[Any]:
    for shape, dim in (
        ((3, 5), 1),
        ((3, 5), 0),
        ((2, 3, 4), -2),
        ((), 0),
        ((0, 4), 1),
        ((4, 33), 1),
    ):
        yield s.sample(s.tensor(shape), dim)


class Softmax(Composite):
    """exp(self) over its sum along dim; `dtype` converts first."""

    schema = "softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor"
    out = "int_out"
    autocast = "fp32"
    samples = softmax_samples
    reference = "scipy.special.softmax"

    def decompose(self: Tensor, dim: int, dtype: Any) -> Tensor:
        return aten._softmax(self if dtype is None else self.to(dtype), dim, False)


class LogSoftmax(Composite):
    """log of softmax, computed without leaving logarithms."""

    schema = "log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor"
    out = "int_out"
    autocast = "fp32"
    samples = softmax_samples
    reference = "scipy.special.log_softmax"

    def decompose(self: Tensor, dim: int, dtype: Any) -> Tensor:
        return aten._log_softmax(self if dtype is None else self.to(dtype), dim, False)


def softmax_meta(name: str, x: Tensor, dim: int) -> TensorSpec:
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        raise NotImplementedError(
            f"\"{name}_lastdim_kernel_impl\" not implemented for '{dt.scalar_name(x.dtype)}'"
        )
    wrap_dim(dim, x.dim())
    return TensorSpec(x.shape, x.dtype, x.device)


class _Softmax(Opaque):
    """exp(self - max) over its sum along dim."""

    schema = "_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"
    public = "function"
    out = "out"
    node_name = "Softmax"

    def expr(k: Any, x: Any) -> Any:
        e = k.exp(x - k.max(x))
        return e / k.sum(e)

    def rows(x: Any, dim: int, half_to_float: bool) -> Any:
        return _Softmax.expr, [x], dim, []

    def meta(x: Tensor, dim: int, half_to_float: bool) -> TensorSpec:
        if half_to_float:
            raise RuntimeError("softmax with half to float conversion is not supported on CPU")
        return softmax_meta("softmax", x, dim)

    def kernel(out: Tensor, x: Tensor, dim: int, half_to_float: bool) -> None:
        run_rows(_Softmax.op, _Softmax.expr, (out,), [x], wrap_dim(dim, x.dim()), [], [], x.dtype)

    def vjp(b: Any, g: Any, x: Any, dim: int, half_to_float: bool) -> Any:
        return aten._softmax_backward_data(g, b.out, dim, x.dtype)


class _LogSoftmax(Opaque):
    """self - max - log(sum(exp(self - max))) along dim."""

    schema = "_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"
    public = "function"
    out = "out"
    node_name = "LogSoftmax"

    def expr(k: Any, x: Any) -> Any:
        d = x - k.max(x)
        return d - k.log(k.sum(k.exp(d)))

    def rows(x: Any, dim: int, half_to_float: bool) -> Any:
        return _LogSoftmax.expr, [x], dim, []

    def meta(x: Tensor, dim: int, half_to_float: bool) -> TensorSpec:
        if half_to_float:
            raise RuntimeError("softmax with half to float conversion is not supported on CPU")
        return softmax_meta("log_softmax", x, dim)

    def kernel(out: Tensor, x: Tensor, dim: int, half_to_float: bool) -> None:
        run_rows(
            _LogSoftmax.op, _LogSoftmax.expr, (out,), [x], wrap_dim(dim, x.dim()), [], [], x.dtype
        )

    def vjp(b: Any, g: Any, x: Any, dim: int, half_to_float: bool) -> Any:
        return aten._log_softmax_backward_data(g, b.out, dim, x.dtype)


class SoftmaxBackward(Opaque):
    """output (grad_output - sum(grad_output output))."""

    schema = (
        "_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType "
        "input_dtype) -> Tensor"
    )
    public = "function"
    out = "out"
    out_args = ("grad_input",)

    def expr(k: Any, g: Any, o: Any) -> Any:
        return o * (g - k.dot(g, o))

    def rows(g: Any, o: Any, dim: int, input_dtype: Any) -> Any:
        return SoftmaxBackward.expr, [g, o], dim, []

    def meta(g: Tensor, o: Tensor, dim: int, input_dtype: Any) -> TensorSpec:
        wrap_dim(dim, g.dim())
        return TensorSpec(o.shape, input_dtype, o.device)

    def kernel(out: Tensor, g: Tensor, o: Tensor, dim: int, input_dtype: Any) -> None:
        run_rows(
            SoftmaxBackward.op,
            SoftmaxBackward.expr,
            (out,),
            [g, o],
            wrap_dim(dim, g.dim()),
            [],
            [],
            o.dtype,
        )

    def vjp(b: Any, gg: Any, g: Any, o: Any, dim: int, input_dtype: Any) -> Any:
        inner = (gg * o).sum(dim, True)
        go = None
        if b.needs[1]:
            # gg (g - mean) - g inner, from differences to the means, which are smaller
            mean = (g * o).sum(dim, True)
            go = (gg - inner) * (g - mean) - inner * mean
        return aten._softmax_backward_data(gg, o, dim, input_dtype) if b.needs[0] else None, go


class LogSoftmaxBackward(Opaque):
    """grad_output - exp(output) sum(grad_output)."""

    schema = (
        "_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType "
        "input_dtype) -> Tensor"
    )
    public = "function"
    out = "out"

    def expr(k: Any, g: Any, o: Any) -> Any:
        return k.fma(-k.exp(o), k.sum(g), g)

    def rows(g: Any, o: Any, dim: int, input_dtype: Any) -> Any:
        return LogSoftmaxBackward.expr, [g, o], dim, []

    def meta(g: Tensor, o: Tensor, dim: int, input_dtype: Any) -> TensorSpec:
        wrap_dim(dim, g.dim())
        return TensorSpec(o.shape, input_dtype, o.device)

    def kernel(out: Tensor, g: Tensor, o: Tensor, dim: int, input_dtype: Any) -> None:
        run_rows(
            LogSoftmaxBackward.op,
            LogSoftmaxBackward.expr,
            (out,),
            [g, o],
            wrap_dim(dim, g.dim()),
            [],
            [],
            o.dtype,
        )

    def vjp(b: Any, gg: Any, g: Any, o: Any, dim: int, input_dtype: Any) -> Any:
        p = o.exp()
        return (
            gg - (gg * p).sum(dim, True) if b.needs[0] else None,
            # the sum first: where one p is near 1, what rounding it loses cancels in the next step
            -gg * (p * g.sum(dim, True)) if b.needs[1] else None,
        )


# ---- layer norm ----


def check_normalized(name: str, x: Tensor, shape: Any, weight: Any, bias: Any) -> None:
    n = len(shape)
    if n < 1:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            f"element, but got normalized_shape = {list(shape)}"
        )
    for what, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != tuple(shape):
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape "
                f"{list(t.shape)} and normalized_shape = {list(shape)}"
            )
    if x.dim() < n or tuple(x.shape[x.dim() - n :]) != tuple(shape):
        wanted = ", ".join(map(str, shape))
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {wanted}], but "
            f"got input of size{list(x.shape)}"
        )


class LayerNorm(Composite):
    """Zero mean and unit variance over the last dimensions, then weight and
    bias (Ba et al. 2016)."""

    schema = (
        "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-05, bool cudnn_enable=True) -> Tensor"
    )
    public = "function"
    autocast = "fp32"

    def decompose(
        x: Tensor, shape: Any, weight: Any, bias: Any, eps: float, cudnn_enable: bool
    ) -> Tensor:
        return aten.native_layer_norm(x, shape, weight, bias, eps)[0]

    def samples(s: Any) -> Iterator[Any]:
        for shape, n in (((3, 8), 1), ((2, 3, 4), 2), ((0, 4), 1), ((5, 33), 1)):
            norm = shape[len(shape) - n :]
            yield s.sample(s.tensor(shape), norm, s.tensor(norm), s.tensor(norm))
            yield s.sample(s.tensor(shape), norm)


def rows_of(x: Tensor, n: int) -> tuple[int, int]:
    rows = cols = 1
    for i, s in enumerate(x.shape):
        if i < x.dim() - n:
            rows *= s
        else:
            cols *= s
    return rows, cols


def as_matrix(t: Tensor, rows: int, cols: int) -> Tensor:
    """A contiguous tensor's bytes as (rows, cols)."""
    return _native.alias(Tensor, t, (rows, cols), (cols, 1), t.storage_offset())


def dense(t: Tensor) -> Tensor:
    if t._contiguous():
        return t
    out = _native.empty(t.shape, t.dtype, t.device)
    copy_into(out, t)
    return out


def _with(k: Any, y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _norm_expr(has_weight: bool, has_bias: bool) -> Any:
    def expr(k: Any, x: Any, *rest: Any) -> Any:
        rest_ = list(rest)
        weight = rest_.pop(0) if has_weight else None
        bias = rest_.pop(0) if has_bias else None
        eps = rest_.pop(0)
        mean = k.sum(x) / k.count()
        d = x - mean
        rstd = 1.0 / k.sqrt(k.sum(d * d) / k.count() + eps)
        return _with(k, d * rstd, weight, bias), mean, rstd

    return expr


class NativeLayerNorm(Opaque):
    """Layer norm with the mean and reciprocal deviation of each row."""

    schema = (
        "native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, "
        "float eps) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    out = "out"
    out_args = ("out0", "out1", "out2")
    differentiable = (0,)

    def meta(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[TensorSpec, ...]:
        check_normalized("layer_norm", x, shape, weight, bias)
        stats = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
        kind = weight.dtype if weight is not None else bias.dtype if bias is not None else x.dtype
        return (
            TensorSpec(x.shape, x.dtype, x.device),
            TensorSpec(stats, kind, x.device),
            TensorSpec(stats, kind, x.device),
        )

    def rows(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        if len(shape) != 1:
            return None
        operands = [t for t in (x, weight, bias) if t is not None]
        return _norm_expr(weight is not None, bias is not None), operands, -1, [eps]

    def kernel(outs: Any, x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> None:
        rows, cols = rows_of(x, len(shape))
        ins = [as_matrix(dense(x), rows, cols)]
        ins += [as_matrix(dense(t), 1, cols) for t in (weight, bias) if t is not None]
        views = (
            as_matrix(outs[0], rows, cols),
            as_matrix(outs[1], rows, 1),
            as_matrix(outs[2], rows, 1),
        )
        if not cols:
            return
        flags = (weight is not None, bias is not None)
        run_rows(
            NativeLayerNorm.op,
            _dropping_flags(_norm_expr(*flags)),
            views,
            ins,
            1,
            [eps],
            [flags],
            x.dtype,
        )

    def vjp(b: Any, g: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        needs = iter(b.needs)
        mask = [
            next(needs),
            next(needs) if weight is not None else False,
            next(needs) if bias is not None else False,
        ]
        got = aten.native_layer_norm_backward(
            g[0], x, shape, b.outs[1], b.outs[2], weight, bias, mask
        )
        return tuple(r for r, t in zip(got, (x, weight, bias), strict=True) if t is not None)


def _dropping_flags(expr: Any) -> Any:
    """The flags are baked into the kernel's key; the expression has them in its closure."""

    def inner(k: Any, *values: Any) -> Any:
        return expr(k, *values[:-1])

    return inner


def _input_expr(has_weight: bool) -> Any:
    def expr(k: Any, g: Any, x: Any, mean: Any, rstd: Any, *weight: Any) -> Any:
        g = g * weight[0] if has_weight else g
        h = (x - mean) * rstd
        n = k.count()
        return rstd * (g - k.sum(g) / n - h * (k.sum(g * h) / n))

    return expr


def _weight_expr(k: Any, g: Any, x: Any, mean: Any, rstd: Any) -> Any:
    return k.sum(g * ((x - mean) * rstd)), k.sum(g)


class NativeLayerNormBackward(Opaque):
    """Gradients of layer norm for input, weight and bias, as output_mask asks."""

    schema = (
        "native_layer_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor "
        "mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, "
        "Tensor)"
    )
    public = "function"

    def meta(
        g: Tensor, x: Tensor, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
    ) -> Any:
        return (
            TensorSpec(x.shape, x.dtype, x.device) if mask[0] else None,
            TensorSpec(shape, (weight if weight is not None else x).dtype, x.device)
            if mask[1]
            else None,
            TensorSpec(shape, (bias if bias is not None else x).dtype, x.device)
            if mask[2]
            else None,
        )

    def kernel(
        outs: Any,
        g: Tensor,
        x: Tensor,
        shape: Any,
        mean: Any,
        rstd: Any,
        weight: Any,
        bias: Any,
        mask: Any,
    ) -> None:
        rows, cols = rows_of(x, len(shape))
        if not rows or not cols:
            for o in outs:
                if o is not None:
                    _native.zero(o)
            return
        op = NativeLayerNormBackward.op
        ins = [as_matrix(dense(t), rows, cols) for t in (g, x)] + [
            as_matrix(dense(t), rows, 1) for t in (mean, rstd)
        ]
        if outs[0] is not None:
            more = [as_matrix(dense(weight), 1, cols)] if weight is not None else []
            expr = _dropping_flags(_input_expr(weight is not None))
            run_rows(
                op,
                expr,
                (as_matrix(outs[0], rows, cols),),
                [*ins, *more],
                1,
                [],
                [("x", weight is not None)],
                x.dtype,
            )
        if outs[1] is not None or outs[2] is not None:
            kind = (outs[1] if outs[1] is not None else outs[2]).dtype
            pair = [
                as_matrix(o, 1, cols) if o is not None else _native.empty((1, cols), kind, x.device)
                for o in outs[1:]
            ]
            run_rows(op, _dropping_flags(_weight_expr), tuple(pair), ins, 0, [], [("w",)], x.dtype)

    def decompose(
        g: Tensor, x: Tensor, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
    ) -> Any:
        dims = list(range(x.dim() - len(shape), x.dim()))
        outer = list(range(x.dim() - len(shape)))
        centre = x - x.mean(dims, True)
        eps = (1 / (rstd * rstd) - (centre * centre).mean(dims, True)).detach()
        r = ((centre * centre).mean(dims, True) + eps).rsqrt()
        h = centre * r
        gw = g if weight is None else g * weight
        dx = r * (gw - gw.mean(dims, True) - h * (gw * h).mean(dims, True)) if mask[0] else None
        dw = ((g * h).sum(outer) if outer else g * h) if mask[1] else None
        db = (g.sum(outer) if outer else g) if mask[2] else None
        return dx, dw, db


# ---- batch norm ----


def channel_shape(x: Tensor) -> list[int]:
    return [1, x.shape[1], *[1] * (x.dim() - 2)]


class BatchNorm(Composite):
    """Zero mean and unit variance over all but the channel dimension (Ioffe and Szegedy 2015)."""

    schema = (
        "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? "
        "running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor"
    )
    public = "function"

    def decompose(
        x: Tensor,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        training: bool,
        momentum: float,
        eps: float,
        cudnn: bool,
    ) -> Tensor:
        for name, t in (("running_mean", mean), ("running_var", var)):
            if not training and t is None:
                raise RuntimeError(f"{name} must be defined in evaluation mode")
        if call_bits((x,), {}, 0) & state.BELOW_RECORD:
            # Where cuDNN keeps what its backward needs; all devices make it, and modes see that.
            aten.empty((0,), dtype=dt.uint8, layout=layout.strided, device=x.device)
        return aten.native_batch_norm(x, weight, bias, mean, var, training, momentum, eps)[0]


class NativeBatchNorm(Opaque):
    """Batch norm with the statistics that the backward needs; running
    statistics change in place."""

    schema = (
        "native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
        "Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    out = "out"
    out_args = ("out", "save_mean", "save_invstd")
    differentiable = (0,)

    def meta(
        x: Tensor,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Any:
        c = x.shape[1] if x.dim() > 1 else 0
        for name, t in (
            ("running_mean", mean),
            ("running_var", var),
            ("weight", weight),
            ("bias", bias),
        ):
            if t is not None and t.numel() != c:
                raise RuntimeError(f"{name} should contain {c} elements not {t.numel()}")
        kind = weight.dtype if weight is not None else x.dtype
        n = c if training else 0
        stride = None if x._contiguous() else _native.geometry_of([x])[1]
        return (
            TensorSpec(x.shape, x.dtype, x.device, stride),
            TensorSpec((n,), kind, x.device),
            TensorSpec((n,), kind, x.device),
        )

    def kernel(
        outs: Any,
        x: Tensor,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        training: bool,
        momentum: float,
        eps: float,
    ) -> None:
        out, save_mean, save_invstd = outs
        wide = cast(x, dt.float32) if x.dtype in (dt.bfloat16, dt.float16) else x
        shape = channel_shape(x)
        if training:
            dims = [i for i in range(x.dim()) if i != 1]
            v, m = aten.var_mean(wide, dims, correction=0)
            invstd = aten.rsqrt(v + eps)
            copy_into(save_mean, m)
            copy_into(save_invstd, invstd)
            count = x.numel() // max(x.shape[1], 1)
            for running, new in ((mean, m), (var, v * (count / max(count - 1, 1)))):
                if running is not None:
                    copy_into(running, running * (1 - momentum) + momentum * new)
                    running._bump_version()
        else:
            m, invstd = cast(mean, wide.dtype), aten.rsqrt(cast(var, wide.dtype) + eps)
        alpha = invstd if weight is None else invstd * cast(weight, wide.dtype)
        beta = -m * alpha if bias is None else cast(bias, wide.dtype) - m * alpha
        copy_into(out, aten.addcmul(aten.view(beta, shape), wide, aten.view(alpha, shape)))

    def vjp(
        b: Any,
        g: Any,
        x: Any,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Any:
        needs = iter(b.needs)
        mask = [
            next(needs),
            next(needs) if weight is not None else False,
            next(needs) if bias is not None else False,
        ]
        got = aten.native_batch_norm_backward(
            g[0], x, weight, mean, var, b.outs[1], b.outs[2], training, eps, mask
        )
        args = (x, weight, bias)
        return (
            *[r for r, t in zip(got, args, strict=True) if t is not None],
            *[None for t in (mean, var) if t is not None],
        )


class NativeBatchNormFunctional(Opaque):
    """Batch norm that returns the new running statistics: for graphs without writes."""

    schema = (
        "_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor "
        "running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, "
        "Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)"
    )
    differentiable = (0,)
    vjp = NativeBatchNorm.vjp

    def meta(
        x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool,
        momentum: float, eps: float,
    ) -> Any:  # fmt: skip
        own = NativeBatchNorm.meta(x, weight, bias, mean, var, training, momentum, eps)
        return (*own, *[TensorSpec(t.shape, t.dtype, t.device) for t in (mean, var)])

    def kernel(
        outs: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool,
        momentum: float, eps: float,
    ) -> None:  # fmt: skip
        copy_into(outs[3], mean)
        copy_into(outs[4], var)
        stats = outs[3], outs[4]
        NativeBatchNorm.kernel(outs[:3], x, weight, bias, *stats, training, momentum, eps)


class NativeBatchNormBackward(Opaque):
    """Gradients of batch norm for input, weight and bias."""

    schema = (
        "native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? "
        "running_mean, Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool train, "
        "float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"

    def run(
        g: Tensor,
        x: Tensor,
        weight: Any,
        mean: Any,
        var: Any,
        save_mean: Any,
        save_invstd: Any,
        train: bool,
        eps: float,
        mask: Any,
    ) -> Any:
        half = x.dtype in (dt.bfloat16, dt.float16)
        wide = dt.float32 if half else x.dtype
        gw, xw = cast(g, wide), cast(x, wide)
        shape = channel_shape(x)
        dims = [i for i in range(x.dim()) if i != 1]
        if train:
            m, r = cast(save_mean, wide), cast(save_invstd, wide)
        else:
            m, r = cast(mean, wide), aten.rsqrt(cast(var, wide) + eps)
        m, r = aten.view(m, shape), aten.view(r, shape)
        h = (xw - m) * r
        total = aten.sum(gw, dims)
        dot = aten.sum(gw * h, dims)
        dx = dw = db = None
        if mask[0]:
            scale = r if weight is None else r * aten.view(cast(weight, wide), shape)
            if train:
                n = max(x.numel() // max(x.shape[1], 1), 1)
                dx = (gw - aten.view(total, shape) / n - h * (aten.view(dot, shape) / n)) * scale
            else:
                dx = gw * scale
            dx = cast(dx, x.dtype)
        if mask[1]:
            dw = cast(dot, weight.dtype if weight is not None else x.dtype)
        if mask[2]:
            db = cast(total, weight.dtype if weight is not None else x.dtype)
        return dx, dw, db

    def meta(
        g: Tensor,
        x: Tensor,
        weight: Any,
        mean: Any,
        var: Any,
        save_mean: Any,
        save_invstd: Any,
        train: bool,
        eps: float,
        mask: Any,
    ) -> Any:
        kind = weight.dtype if weight is not None else x.dtype
        return (
            TensorSpec(x.shape, x.dtype, x.device) if mask[0] else None,
            TensorSpec((x.shape[1],), kind, x.device) if mask[1] else None,
            TensorSpec((x.shape[1],), kind, x.device) if mask[2] else None,
        )

    def decompose(
        g: Tensor,
        x: Tensor,
        weight: Any,
        mean: Any,
        var: Any,
        save_mean: Any,
        save_invstd: Any,
        train: bool,
        eps: float,
        mask: Any,
    ) -> Any:
        shape = channel_shape(x)
        dims = [i for i in range(x.dim()) if i != 1]
        if train:
            centre = x - x.mean(dims, True)
            r = ((centre * centre).mean(dims, True) + eps).rsqrt()
        else:
            centre, r = x - mean.view(shape), (var.view(shape) + eps).rsqrt()
        h = centre * r
        total, dot = g.sum(dims, True), (g * h).sum(dims, True)
        scale = r if weight is None else r * weight.view(shape)
        n = max(x.numel() // max(x.shape[1], 1), 1)
        dx = None
        if mask[0]:
            dx = (g - total / n - h * (dot / n)) * scale if train else g * scale
        return dx, dot.reshape(-1) if mask[1] else None, total.reshape(-1) if mask[2] else None
