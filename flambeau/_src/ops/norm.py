"""Softmax and the normalisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.copying import copy_into
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec, run_rows, wrap_dim


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

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)), 1, False)
        yield s.sample(s.tensor((3, 4)), -1, False)
        yield s.sample(s.tensor(()), 0, False)
        yield s.sample(s.tensor((0, 3)), 1, False)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), 2, False)

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

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)), 1, False)
        yield s.sample(s.tensor((3, 4)), -1, False)
        yield s.sample(s.tensor(()), 0, False)
        yield s.sample(s.tensor((0, 3)), 1, False)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), 2, False)

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


class SafeSoftmax(Opaque):
    """softmax with zeros, not NaN, for rows that are -∞ throughout."""

    schema = "_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor"
    public = "function"

    def decompose(x: Tensor, dim: int, dtype: Any) -> Tensor:
        out = aten.softmax(x, dim, dtype)
        dead = aten.all(aten.eq(x, float("-inf")), dim, True)
        return aten.where(dead, aten.zeros((), dtype=out.dtype, device=out.device), out)

    def vjp(b: Any, g: Any, x: Any, dim: int, dtype: Any) -> Any:
        return aten._softmax_backward_data(g, b.out, dim, x.dtype)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), -1)
        yield s.sample(s.tensor((2, 3, 4)), 1)


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
    return _native.alias(Tensor, t, (rows, cols), (cols, 1), None)


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

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)), [5], s.tensor((5,)), s.tensor((5,)), 1e-5)
        yield s.sample(s.tensor((3, 4)), [3, 4], None, None, 1e-5)
        yield s.sample(s.tensor((0, 4)), [4], s.tensor((4,)), None, 1e-5)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError, "Given normalized_shape", s.tensor((2, 3)), [4], None, None, 1e-5
        )

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
        n, mean, rstd = k.count(), k.of_row(mean), k.of_row(rstd)
        gw = g * weight[0] if has_weight else g
        if x.dtype == "float64":
            # In short rows the gradient all but vanishes and rounding is what is left of it. In
            # double that is held to torch's own, so its order of operations is kept.
            gx, slope, total = g * x, rstd * g, k.sum(gw)
            dot = k.sum(gx * weight[0] if has_weight else gx)
            b = k.fma(total, mean, -dot) * rstd * rstd * rstd / n
            c = k.fma(-b, mean, -(total * rstd / n))
            return k.fma(b, x, slope * weight[0] if has_weight else slope) + c
        # rstd (gw - mean(gw) - h mean(gw h)), h = (x - mean) rstd: what a row has in common apart.
        # gw - mean(gw) as it stands: in a row of one element it is nothing, to the last bit.
        d = x - mean
        slope = k.dot(gw, d) / n * rstd * rstd * rstd
        return k.fma(-slope, d, (gw - k.sum(gw) / n) * rstd)

    return expr


def _weight_expr(k: Any, g: Any, x: Any, mean: Any, rstd: Any) -> Any:
    # In double as torch rounds it, see above: a row of equal elements gives that, not zero.
    wide = x.dtype == "float64"
    if wide:
        return k.sum(g * k.fma(x, rstd, -(mean * rstd))), k.sum(g)
    return k.dot(g, (x - mean) * rstd), k.sum(g)


class NativeLayerNormBackward(Opaque):
    """Gradients of layer norm for input, weight and bias, as output_mask asks."""

    schema = (
        "native_layer_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor "
        "mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, "
        "Tensor)"
    )
    public = "function"
    undefined_grads = True

    def refuse_backward(gg: Any, *args: Any) -> None:
        refuse_bias_alone(gg, args[5])

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

    def vjp(
        b: Any, gg: Any, g: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any,
        mask: Any,
    ) -> Any:  # fmt: skip
        dims = list(range(x.dim() - len(shape), x.dim()))
        grads = second_gradients(gg, g, x, mean, rstd, weight, dims, "rows")
        stats = (None,) * sum(t is not None for t in (mean, rstd))
        last = () if bias is None else (None,)
        first = grads[:2]
        return (*first, *stats, *(() if weight is None else grads[2:]), *last)


FEW = 4


def added(t: Any, dims: Any) -> Any:
    """t summed over dims, which stay; up to FEW terms of one dimension one after the other, as
    torch does: in gradients that nearly cancel that decides the digits that are left."""
    if len(dims) != 1 or t.shape[dims[0]] > FEW or not t.shape[dims[0]]:
        return t.sum(dims, True)
    first, *rest = t.split(1, dims[0])
    for part in rest:
        first = first + part
    return first


def refuse_bias_alone(gg: Any, weight: Any) -> None:
    """torch's second backward cannot do with a bias and no weight, and says so."""
    if weight is None and gg[0] is not None and gg[2] is not None:
        raise RuntimeError(
            "Expected a proper Tensor but got None (or an undefined Tensor in C++) for argument #1 "
            "'other'"
        )


def second_gradients(
    gg: Any, g: Any, x: Any, mean: Any, rstd: Any, weight: Any, dims: Any, over: str
) -> tuple[Any, Any, Any]:
    """Gradients for g, x and weight of the backward of (x - mean) rstd weight + bias.

    `dims` are normalised, with their mean and rstd: over="rows" when the weight varies along them
    (layer norm), "channels" when it is one number for each group (batch norm), "constants" when
    mean and rstd do not depend on x. `gg` has the gradients of the three results, None where there
    is none. From the second derivatives of the norm (Ioffe and Szegedy 2015, section 3, twice).
    What nearly cancels here is rounding in the end, so terms are added in torch's order.
    """
    v, u, shift = gg
    if weight is None and shift is not None and v is None:
        return None, None, None
    rows, moving = over == "rows", over != "constants"
    n = 1
    for d in dims:
        n *= x.shape[d]
    if u is not None and not rows:
        u = u.view(mean.shape)
    c = x - mean
    gw = g * weight if rows and weight is not None else g
    to_g = to_x = to_weight = None
    if v is not None:
        if moving:
            to_g, to_x = _of_moving_rows(v, gw, c, rstd, dims, n)
            scaled = rstd if weight is None else weight * rstd
            slope = to_g
            to_g = scaled / n * slope
            if not rows and weight is not None:
                to_x = weight * to_x
        else:
            to_g = v * rstd if weight is None else v * rstd * weight
        if weight is not None:
            others = [d for d in range(x.dim()) if d not in dims] if rows else dims
            if rows:
                each = g * (rstd / n * slope)
            elif moving:
                each = v * (rstd / n * _deviation(g, c, rstd, dims, n))
            else:
                each = v * g * rstd
            to_weight = (each.sum(others) if others else each).view(weight.shape)
    if u is not None:
        part = u * c * rstd
        to_g = part if to_g is None else to_g + part
        part = _of_weight(u, g, c, rstd, dims, n, rows) if moving else u * rstd * g
        to_x = part if to_x is None else to_x + part
    if shift is not None:
        shift = shift if rows else shift.view(mean.shape)
        to_g = shift.expand(g.shape) if to_g is None else to_g + shift
    return to_g, to_x, to_weight


def _deviation(v: Any, c: Any, rstd: Any, dims: Any, n: int) -> Any:
    """n v less its mean and its projection on the normalised x, which is c rstd."""
    return n * v - added(v, dims) - c * rstd**2 * added(v * c, dims)


def _of_moving_rows(v: Any, gw: Any, c: Any, rstd: Any, dims: Any, n: int) -> tuple[Any, Any]:
    """What the gradient v of the input's gradient gives for gw (before its factor) and for x."""
    cubed = rstd**3
    along, total = added(gw * c, dims), added(gw, dims)
    v_total, v_along = added(v, dims), added(v * c, dims)
    inner = v_total * total / n - added(v * gw, dims)
    inner = inner + rstd**2 * along * v_along * (3 / n)
    to_x = c * cubed * inner / n
    to_x = to_x + v_along * cubed / n * (total / n - gw)
    to_x = to_x + along * cubed / n * (v_total / n - v)
    return _deviation(v, c, rstd, dims, n), to_x


def _of_weight(u: Any, g: Any, c: Any, rstd: Any, dims: Any, n: int, rows: bool) -> Any:
    """What the gradient u of the weight's gradient gives for x."""
    q = g * u if rows else g
    part = q * rstd + rstd * added(q, dims) / -n
    part = part + c * rstd**3 * added(q * c, dims) / -n
    return part if rows else u * part
