"""Core ATen: what `run_decompositions` leaves, and how the operators outside of it come there.

Which overloads are core says their tag (`ops/tags.py`). An operator outside gets there by the
function here that is entered for it, else by the decomposition of its declaration. What `_LEFT`
names has one as well and stays a node: programs that read such graphs know these operators.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src.compiler.decompose import aten as first_set
from flambeau._src.compiler.decompose import functional
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout as layouts
from flambeau._src.core import state
from flambeau._src.core.info import finfo
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import PACKETS, Op, packet, resolve_lazy
from flambeau._src.ops.overload import overload_of
from flambeau._src.ops.slopes import SIXTH
from flambeau._src.ops.tags import CORE

__all__ = ["core_decompositions"]

Body = Callable[..., Any]

#: By overload: takes the operator's arguments, complete; NotImplemented leaves the operator.
BODIES: dict[str, Body] = {}

# Not core, with a decomposition of their own, and nodes all the same.
_LEFT = frozenset(
    "addbmm addmv dist median median.dim nanmedian nanmedian.dim mode bucketize.Tensor "
    "bucketize.Scalar searchsorted.Scalar unfold masked_select put index_reduce polygamma lcm "
    "_int_mm _trilinear _embedding_bag_forward_only _assert_async empty_permuted "
    "masked_scatter_backward upsample_nearest1d_backward upsample_nearest2d_backward "
    "upsample_nearest3d_backward upsample_linear1d_backward upsample_bilinear2d_backward "
    "upsample_trilinear3d_backward upsample_bicubic2d_backward rand_like randn_like randint "
    "randint.low randint_like randint_like.low_dtype rand_like.generator randn_like.generator "
    "rand.generator randn.generator randint.generator randint.low_generator "
    "randint_like.generator randint_like.low_generator_dtype random.to normal.Tensor_Tensor "
    "normal.Tensor_float normal.float_Tensor normal.float_float grid_sampler_2d_backward "
    "grid_sampler_3d grid_sampler_3d_backward _adaptive_avg_pool3d_backward "
    "_adaptive_avg_pool2d_backward range new_empty_strided sym_constrain_range_for_size "
    "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward".split()
)
_LEFT_FAMILIES = ("_foreach_", "special_", "bartlett_", "blackman_", "hamming_", "kaiser_", "fft_")
# Core, and taken apart all the same.
_KEPT = frozenset(["upsample_bilinear2d.vec", "upsample_nearest2d.vec"])  # composites that are core
_TAKEN = frozenset(
    "embedding_dense_backward fill.Scalar native_group_norm_backward reflection_pad1d "
    "reflection_pad2d reflection_pad3d replication_pad2d replication_pad3d select_scatter".split()
)


def core_decompositions(*, composites: bool = True) -> dict[Any, Body]:
    """Overload → function of core operators, for those that no core graph holds."""
    return dict(_table(composites, sum(len(p.ops) for p in PACKETS.values())))


@functools.cache
def _table(composites: bool, known: int) -> dict[Any, Body]:
    """`known`: how many overloads there are, as programs may declare more."""
    found: dict[Any, Body] = {}
    for op in first_set():
        body = BODIES.get(op.key)
        if body is None and _declared(op):
            body = op.decl.decompose
        if body is not None:
            found[overload_of(op)] = _as_called(op, body)
    for op in functional() if composites else ():
        if op.decl.level == "composite" and op.key not in _KEPT:
            body = BODIES.get(op.key) or op.decl.decompose
            assert body is not None  # composites have nothing else
            found[overload_of(op)] = _as_called(op, body)
    return found


def _declared(op: Op) -> bool:
    if op.decl.decompose is None or op.key in _LEFT or op.key.startswith(_LEFT_FAMILIES):
        return False
    return op.key not in CORE or op.key in _TAKEN


def _as_called(op: Op, body: Body) -> Body:
    """A body as a function of the operator's signature."""
    bound = overload_of(op)._bound

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        return body(*bound(args, kwargs))

    return decomposition


def _enter(*keys: str) -> Callable[[Body], Body]:
    def enter(fn: Body) -> Body:
        BODIES.update(dict.fromkeys(keys, fn))
        return fn

    return enter


def _to(x: Any, dtype: Any) -> Any:
    return x if x.dtype is dtype else aten._to_copy(x, dtype=dtype)


def _wide(dtype: Any) -> Any:
    """What values of a dtype are computed in: 16 bits are widened."""
    return dt.float32 if dtype in (dt.float16, dt.bfloat16) else dtype


def _elementwise(*keys: str) -> Callable[[Body], Body]:
    """Enter a formula of elements. Tensors come to it in the dtype that the declaration infers for
    the result, 16-bit floats wider; its result is brought back to the declared one."""

    def enter(fn: Body) -> Body:
        for key in keys:
            BODIES[key] = functools.partial(_typed, key, fn)
        return fn

    return enter


@functools.cache
def _op(key: str) -> Op:
    return next(o for o in resolve_lazy(packet(key.partition(".")[0])) if o.key == key)


def _typed(key: str, fn: Body, *args: Any) -> Any:
    op = _op(key)
    want = op.decl.infer(op, args).dtype
    inner = _wide(want)
    given = [_to(a, inner) if hasattr(a, "dtype") else a for a in args]
    found = fn(*given)
    return found if found is NotImplemented else _to(found, want)


def _number(v: Any, like: Any) -> Any:
    """A number as a tensor of no dimensions."""
    return aten.scalar_tensor(v, dtype=like.dtype, device=like.device)


def _choose(condition: Any, v: Any, other: Any) -> Any:
    """v (a number) where the condition holds."""
    return aten.where(condition, _number(v, other), other)


# ---- activations ----


@_elementwise("silu")
def _silu(x: Any) -> Any:
    return aten.mul(x, aten.sigmoid(x))


@_elementwise("silu_backward")
def _silu_backward(g: Any, x: Any) -> Any:
    s = aten.sigmoid(x)
    return aten.mul(aten.mul(g, s), aten.add(aten.mul(x, aten.sub(1, s)), 1))


@_elementwise("sigmoid_backward")
def _sigmoid_backward(g: Any, y: Any) -> Any:
    return aten.mul(g, aten.mul(y, aten.sub(1, y)))


@_elementwise("tanh_backward")
def _tanh_backward(g: Any, y: Any) -> Any:
    return aten.mul(g, aten.sub(1, aten.mul(y, y)))


@_elementwise("softplus")
def _softplus(x: Any, beta: Any, threshold: Any) -> Any:
    scaled = x if beta == 1 else aten.mul(x, beta)
    soft = aten.log1p(aten.exp(scaled))
    return aten.where(aten.gt(scaled, threshold), x, soft if beta == 1 else aten.div(soft, beta))


@_elementwise("softplus_backward")
def _softplus_backward(g: Any, x: Any, beta: Any, threshold: Any) -> Any:
    scaled = aten.mul(x, beta)
    return aten.where(aten.gt(scaled, threshold), g, aten.mul(g, aten.sigmoid(scaled)))


@_elementwise("mish")
def _mish(x: Any) -> Any:
    return aten.mul(x, aten.tanh(_softplus(x, 1, 20)))


def _ramp(x: Any) -> Any:
    """x + 3 between 0 and 6."""
    return aten.clamp(aten.add(x, 3), 0, 6)


@_elementwise("hardswish")
def _hardswish(x: Any) -> Any:
    return aten.div(aten.mul(x, _ramp(x)), 6)


@_elementwise("hardsigmoid")
def _hardsigmoid(x: Any) -> Any:
    return aten.div(_ramp(x), 6)


@_elementwise("log_sigmoid_forward")
def _log_sigmoid(x: Any) -> Any:
    least = aten.minimum(aten.full((), 0, dtype=x.dtype, device=x.device), x)
    return aten.sub(least, aten.log1p(aten.exp(aten.neg(aten.abs(x)))))


@_elementwise("softshrink")
def _softshrink(x: Any, lambd: Any) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    less = aten.sub(x, aten.mul(aten.sign(x), lambd))
    return aten.where(aten.gt(aten.abs(x), lambd), less, aten.mul(x, 0))


@_elementwise("hardshrink")
def _hardshrink(x: Any, lambd: Any) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    return _choose(aten.le(aten.abs(x), lambd), 0, x)


@_elementwise("threshold")
def _threshold(x: Any, threshold: Any, value: Any) -> Any:
    return _choose(aten.le(x, threshold), value, x)


@_elementwise("threshold_backward")
def _threshold_backward(g: Any, x: Any, threshold: Any) -> Any:
    return _choose(aten.le(x, threshold), 0, g)


@_elementwise("leaky_relu_backward")
def _leaky_relu_backward(g: Any, x: Any, slope: Any, is_result: Any) -> Any:
    return aten.where(aten.gt(x, 0), g, aten.mul(g, slope))


@_elementwise("_prelu_kernel")
def _prelu(x: Any, weight: Any) -> Any:
    return aten.where(aten.gt(x, 0), x, aten.mul(weight, x))


@_elementwise("elu_backward")
def _elu_backward(g: Any, alpha: Any, scale: Any, rate: Any, is_result: bool, y: Any) -> Any:
    if not y.dtype.is_floating_point:
        return NotImplemented
    steep = alpha * scale
    slope = aten.add(y, steep) if is_result else aten.mul(aten.exp(aten.mul(y, rate)), steep)
    low = aten.mul(aten.mul(g, rate), slope)
    return aten.where(aten.le(y, 0), low, aten.mul(g, scale))


@_elementwise("gelu_backward")
def _gelu_backward(g: Any, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        rate, cube = math.sqrt(2 / math.pi), 0.044715
        square = aten.mul(x, x)
        t = aten.tanh(aten.mul(aten.mul(x, aten.add(aten.mul(square, cube), 1)), rate))
        share = aten.mul(aten.add(t, 1), 0.5)
        bend = aten.mul(aten.add(aten.mul(square, 3 * cube), 1), rate)
        slope = aten.mul(aten.mul(aten.mul(x, 0.5), aten.sub(1, aten.mul(t, t))), bend)
        return aten.mul(g, aten.add(share, slope))
    share = aten.mul(aten.add(aten.erf(aten.mul(x, math.sqrt(0.5))), 1), 0.5)
    density = aten.mul(aten.exp(aten.mul(aten.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return aten.mul(g, aten.add(share, aten.mul(x, density)))


@_elementwise("hardtanh_backward")
def _hardtanh_backward(g: Any, x: Any, least: Any, most: Any) -> Any:
    return _choose(aten.logical_or(aten.le(x, least), aten.ge(x, most)), 0, g)


@_elementwise("hardsigmoid_backward")
def _hardsigmoid_backward(g: Any, x: Any) -> Any:
    inside = aten.logical_and(aten.gt(x, -3), aten.lt(x, 3))
    return aten.where(inside, aten.mul(g, SIXTH), _number(0, g))


@_elementwise("hardswish_backward")
def _hardswish_backward(g: Any, x: Any) -> Any:
    middle = aten.mul(g, aten.add(aten.div(x, 3), 0.5))
    return _choose(aten.le(x, -3), 0, aten.where(aten.lt(x, 3), middle, g))


@_elementwise("mish_backward")
def _mish_backward(g: Any, x: Any) -> Any:
    t = aten.tanh(_softplus(x, 1, 20))
    bend = aten.mul(aten.mul(x, aten.sigmoid(x)), aten.sub(1, aten.mul(t, t)))
    return aten.mul(g, aten.add(t, bend))


@_elementwise("native_dropout_backward")
def _dropout_backward(g: Any, mask: Any, scale: Any) -> Any:
    return aten.mul(g, aten.mul(mask, scale))


@_enter("_softmax_backward_data")
def _softmax_backward(g: Any, y: Any, dim: int, dtype: Any) -> Any:
    wide = _wide(g.dtype)
    g, y = _to(g, wide), _to(y, wide)
    share = aten.mul(g, y)
    return _to(aten.sub(share, aten.mul(y, aten.sum(share, [dim], True))), dtype)


@_enter("_log_softmax_backward_data")
def _log_softmax_backward(g: Any, y: Any, dim: int, dtype: Any) -> Any:
    wide = _wide(g.dtype)
    g, y = _to(g, wide), _to(y, wide)
    return _to(aten.sub(g, aten.mul(aten.exp(y), aten.sum(g, [dim], True))), dtype)


# ---- elementary functions ----


@_elementwise("frac")
def _frac(x: Any) -> Any:
    return aten.sub(x, aten.trunc(x))


@_enter("sgn")
def _sgn(x: Any) -> Any:
    return NotImplemented if x.dtype.is_complex else aten.sign(x)


@_elementwise("sinc")
def _sinc(x: Any) -> Any:
    turned = aten.mul(x, math.pi)
    return _choose(aten.eq(turned, 0), 1, aten.div(aten.sin(turned), turned))


@_elementwise("rad2deg")
def _rad2deg(x: Any) -> Any:
    return aten.mul(x, 180 / math.pi)


@_elementwise("deg2rad")
def _deg2rad(x: Any) -> Any:
    return aten.mul(x, math.pi / 180)


@_enter("nan_to_num")
def _nan_to_num(x: Any, nan: Any, most: Any, least: Any) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    if not x.dtype.is_floating_point:
        return aten.clone(x)
    ends = finfo(x.dtype)
    out = _choose(aten.isnan(x), 0.0 if nan is None else nan, x)
    out = _choose(aten.eq(x, -math.inf), ends.min if least is None else least, out)
    return _choose(aten.eq(x, math.inf), ends.max if most is None else most, out)


@_elementwise("logit")
def _logit(x: Any, eps: Any) -> Any:
    if eps is not None:
        x = _choose(aten.gt(x, 1 - eps), 1 - eps, _choose(aten.lt(x, eps), eps, x))
    return aten.log(aten.div(x, aten.sub(1, x)))


@_elementwise("logit_backward")
def _logit_backward(g: Any, x: Any, eps: Any) -> Any:
    least, outside = (0.0, math.nan) if eps is None else (eps, 0.0)
    inside = aten.logical_and(aten.ge(x, least), aten.le(x, 1 - least))
    return aten.where(inside, aten.div(g, aten.mul(x, aten.sub(1, x))), _number(outside, x))


@_enter("isposinf")
def _isposinf(x: Any) -> Any:
    return aten.eq(x, math.inf)


@_enter("isneginf")
def _isneginf(x: Any) -> Any:
    return aten.eq(x, -math.inf)


@_enter("isfinite")
def _isfinite(x: Any) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    if not x.dtype.is_floating_point:
        return aten.full_like(x, True, dtype=dt.bool_)
    return aten.mul(aten.eq(x, x), aten.ne(aten.abs(x), math.inf))


def _times_log(x: Any, y: Any, log: Body) -> Any:
    """x log(y), which is 0 where x is, and NaN where y is; one of them may be a number."""
    x = x if hasattr(x, "dtype") else _number(x, y)
    y = y if hasattr(y, "dtype") else _number(y, x)
    product = _choose(aten.eq(x, 0), 0, aten.mul(x, log(y)))
    return _choose(aten.isnan(y), math.nan, product)


@_elementwise("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def _xlogy(x: Any, y: Any) -> Any:
    return _times_log(x, y, aten.log)


@_elementwise(
    "special_xlog1py", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar"
)  # fmt: skip
def _xlog1py(x: Any, y: Any) -> Any:
    return _times_log(x, y, aten.log1p)


@_elementwise("special_entr")
def _entr(x: Any) -> Any:
    inside = aten.where(aten.gt(x, 0), aten.neg(aten.mul(x, aten.log(x))), _number(-math.inf, x))
    return aten.where(aten.isnan(x), x, _choose(aten.eq(x, 0), 0, inside))


@_elementwise("special_log_ndtr")
def _log_ndtr(x: Any) -> Any:
    """log of the normal distribution function, whose left tail is that of a scaled erfc."""
    t = aten.mul(x, math.sqrt(0.5))
    left = aten.sub(aten.log(aten.div(aten.special_erfcx(aten.neg(t)), 2)), aten.mul(t, t))
    right = aten.log1p(aten.div(aten.neg(aten.erfc(t)), 2))
    return aten.where(aten.lt(x, 1), left, right)


@_elementwise("logaddexp")
def _logaddexp(x: Any, y: Any) -> Any:
    first = aten.ge(x, y)
    most, least = aten.where(first, x, y), aten.where(first, y, x)
    same = aten.logical_and(aten.eq(aten.abs(x), math.inf), aten.eq(x, y))
    return aten.where(same, x, aten.add(most, aten.log1p(aten.exp(aten.sub(least, most)))))


@_elementwise("logaddexp2")
def _logaddexp2(x: Any, y: Any) -> Any:
    first = aten.ge(x, y)
    most, least = aten.where(first, x, y), aten.where(first, y, x)
    same = aten.logical_and(aten.isinf(x), aten.eq(x, y))
    soft = aten.mul(aten.log1p(aten.exp2(aten.sub(least, most))), 1 / math.log(2))
    return aten.where(same, x, aten.add(most, soft))


@_elementwise("heaviside")
def _heaviside(x: Any, values: Any) -> Any:
    step = aten.where(aten.logical_or(aten.lt(x, 0), aten.isnan(x)), _number(0, x), _number(1, x))
    return aten.where(aten.eq(x, 0), values, step)


# ---- arithmetic ----


@_elementwise("addcmul")
def _addcmul(x: Any, a: Any, b: Any, value: Any) -> Any:
    product = aten.mul(a, b)
    return aten.add(x, product if value == 1 else aten.mul(product, value))


@_elementwise("addcdiv")
def _addcdiv(x: Any, a: Any, b: Any, value: Any) -> Any:
    quotient = aten.div(a, b)
    return aten.add(x, quotient if value == 1 else aten.mul(quotient, value))


@_elementwise("lerp.Tensor")
def _lerp(x: Any, end: Any, weight: Any) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    far = aten.ge(aten.abs(weight), 0.5)
    factor = aten.where(far, aten.sub(weight, 1), weight)
    return aten.add(aten.where(far, end, x), aten.mul(factor, aten.sub(end, x)))


@_elementwise("lerp.Scalar")
def _lerp_number(x: Any, end: Any, weight: Any) -> Any:
    return _lerp(x, end, aten.full((), weight, dtype=x.dtype, device=x.device))


@_enter("rsub.Tensor", "rsub.Scalar")
def _rsub(x: Any, other: Any, alpha: Any) -> Any:
    return aten.sub(other, x, alpha=alpha)


@_enter("floor_divide", "floor_divide.Scalar")
def _floor_divide(x: Any, y: Any) -> Any:
    if x.dtype is dt.bool_:
        return NotImplemented
    return aten.div(x, y, rounding_mode="floor")


@_enter("clamp_min", "clamp_min.Tensor")
def _clamp_min(x: Any, least: Any) -> Any:
    return aten.clamp(x, least, None)


@_enter("clamp_max", "clamp_max.Tensor")
def _clamp_max(x: Any, most: Any) -> Any:
    return aten.clamp(x, None, most)


@_enter("masked_fill.Scalar")
def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return _choose(mask, value, x)


@_enter("masked_fill.Tensor")
def _masked_fill_tensor(x: Any, mask: Any, value: Any) -> Any:
    return aten.where(mask, _to(value, x.dtype), x)


# ---- reductions ----


@_enter("sum")
def _sum(x: Any, dtype: Any) -> Any:
    return aten.sum(x, [], dtype=dtype)


@_enter("all")
def _all(x: Any) -> Any:
    return _negated(x, aten.any(aten.logical_not(x), dim=None))


@_enter("all.dim", "all.dims")
def _all_along(x: Any, dim: Any, keepdim: Any) -> Any:
    return _negated(x, aten.any(aten.logical_not(x), dim=dim, keepdim=keepdim))


def _negated(x: Any, result: Any) -> Any:
    """Of the dtype that the declaration infers."""
    op = _op("all")
    return _to(aten.logical_not(result), op.decl.infer(op, (x,)).dtype)


@_enter("std.correction")
def _std(x: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    return aten.sqrt(aten.var(x, dim, correction=correction, keepdim=keepdim))


@_enter("std_mean.correction")
def _std_mean(x: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    spread, mean = aten.var_mean(x, dim, correction=correction, keepdim=keepdim)
    return aten.sqrt(spread), mean


@_enter("aminmax")
def _aminmax(x: Any, dim: Any, keepdim: Any) -> Any:
    dims = [] if dim is None else [dim]
    return aten.amin(x, dims, keepdim), aten.amax(x, dims, keepdim)


@_enter("nansum")
def _nansum(x: Any, dim: Any, keepdim: Any, dtype: Any) -> Any:
    if not dt.is_integral(x.dtype) and x.dtype is not dt.bool_:
        x = _choose(aten.isnan(x), 0, x)
    return aten.sum(x, dim, keepdim, dtype=dtype)


@_enter("logsumexp")
def _logsumexp(x: Any, dim: Any, keepdim: Any) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    if not x.dtype.is_floating_point:
        x = _to(x, state.process.default_dtype)
    if x.numel() == 0:
        return aten.log(aten.sum(aten.exp(x), dim, keepdim))
    most = aten.amax(x, dim, True)
    shift = _choose(aten.eq(aten.abs(most), math.inf), 0, most)
    total = aten.log(aten.sum(aten.exp(aten.sub(x, shift)), dim, keepdim))
    if not keepdim and x.ndim:
        shift = aten.squeeze(shift, [d % x.ndim for d in dim] or list(range(x.ndim)))
    return aten.add(total, shift)


# ---- products ----


@_enter("dot")
def _dot(x: Any, y: Any) -> Any:
    return aten.sum(aten.mul(x, y), [0])


@_enter("mv")
def _mv(x: Any, y: Any) -> Any:
    return aten.sum(aten.mul(x, y), [1])


def _scaled(x: Any, factor: Any) -> Any:
    return x if factor == 1 else aten.mul(x, factor)


@_enter("baddbmm")
def _baddbmm(x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    product = _scaled(aten.bmm(a, b), alpha)
    return product if beta == 0 else aten.add(_scaled(x, beta), product)


# ---- views and joins ----


@_enter("squeeze.dim")
def _squeeze_dim(x: Any, dim: int) -> Any:
    return aten.squeeze(x, [dim])


@_enter("split.Tensor", "unsafe_split.Tensor")
def _split(x: Any, size: Any, dim: int) -> Any:
    extent = x.shape[dim]
    if not isinstance(extent, int) or not isinstance(size, int):  # as many as there are
        declared: Any = _op("split.Tensor").decl.decompose
        return declared(x, size, dim)
    if extent == 0 or size == 0:
        return aten.split_with_sizes(x, [extent], dim)
    whole, rest = divmod(extent, size)
    return aten.split_with_sizes(x, [size] * whole + [rest] * (rest > 0), dim)


@_enter("unsafe_split_with_sizes")
def _unsafe_split_with_sizes(x: Any, sizes: Any, dim: int) -> Any:
    return aten.split_with_sizes(x, sizes, dim)


@_enter("unbind.int")
def _unbind(x: Any, dim: int) -> Any:
    return [aten.squeeze(aten.slice(x, dim, i, i + 1), [dim]) for i in range(int(x.shape[dim]))]


@_enter("index_add")
def _index_add(x: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    if x.ndim == 0:
        return NotImplemented
    places = [None] * (dim % x.ndim) + [aten.view(index, [-1]) if index.ndim == 0 else index]
    return aten.index_put(x, places, _scaled(source, alpha), True)


# ---- normalisation and losses ----


@_enter("native_batch_norm")
def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: Any, eps: Any
) -> Any:  # fmt: skip
    if training and mean is None and var is None:
        return aten._native_batch_norm_legit(x, weight, bias, training, momentum, eps)
    if training or mean is None or var is None:
        return NotImplemented
    return aten._native_batch_norm_legit_no_training(x, weight, bias, mean, var, momentum, eps)


@_enter("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(x: Any, target: Any, weight: Any, reduction: int, ignored: int) -> Any:
    at = 0 if x.ndim < 2 else 1
    if weight is not None:
        shape = [1] * x.ndim
        shape[at] = -1
        x = aten.mul(x, aten.view(weight, shape))
    counted = aten.ne(target, ignored)
    safe = aten.where(counted, target, _number(0, target))
    chosen = aten.gather(x, at, aten.unsqueeze(safe, at))
    each = aten.neg(aten.squeeze(chosen, [at]))
    each = aten.where(counted, each, _number(0, each))
    if reduction == 0 and x.ndim > 1:
        return each, aten.full((), 0, dtype=x.dtype, device=x.device)
    if weight is None:
        total = _to(aten.sum(counted, []), x.dtype)
    else:
        spread = aten.expand(aten.view(weight, shape), x.shape)
        own = aten.squeeze(aten.gather(spread, at, aten.unsqueeze(safe, at)), [at])
        total = aten.sum(aten.where(counted, own, _number(0, own)), [])
    summed = aten.sum(each, [])
    return (aten.div(summed, total) if reduction == 1 else summed), total


# ---- what is set out along positions ----


@_enter("diag_embed")
def _diag_embed(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    n = x.ndim + 1
    first, second = dim1 % n, dim2 % n
    if first == second:
        return NotImplemented
    if first > second:
        first, second, offset = second, first, -offset
    length = x.shape[-1]
    full = length + abs(offset)
    right = max(offset, 0)
    wide = aten.constant_pad_nd(aten.unsqueeze(x, -2), [right, full - length - right], 0)
    rows = aten.unsqueeze(_places(full, x), -1)
    columns = aten.unsqueeze(_places(full, x), 0)
    on = aten.eq(aten.add(rows, offset), columns)
    square = aten.where(on, wide, _number(0, wide))
    order = list(range(n - 2))
    order.insert(first, n - 2)
    order.insert(second, n - 1)
    return aten.permute(square, order)


def _places(n: Any, x: Any) -> Any:
    return aten.arange(0, n, 1, dtype=dt.int64, device=x.device)


@_enter("roll")
def _roll(x: Any, shifts: Sequence[int], dims: Sequence[int]) -> Any:
    if not dims:
        flat = aten.reshape(x, [-1])
        return aten.view(_roll(flat, shifts, [0]), list(x.shape))
    for shift, dim in zip(shifts, dims, strict=True):
        n = x.shape[dim]
        if n:
            start = aten.add(_places(n, x), (n - shift) % n)
            x = aten.index_select(x, dim, aten.fmod(start, n))
    return x if any(x.shape[d] for d in dims) else aten.clone(x)


def _kept(x: Any, diagonal: int, inside: Body) -> Any:
    """x where its column, less its row, stands so to the diagonal; 0 elsewhere."""
    rows, columns = _places(x.shape[-2], x), _places(x.shape[-1], x)
    offset = aten.sub(aten.unsqueeze(columns, -2), aten.unsqueeze(rows, -1))
    return aten.where(inside(offset, diagonal), x, _number(0, x))


@_enter("tril")
def _tril(x: Any, diagonal: int) -> Any:
    return _kept(x, diagonal, aten.le)


@_enter("triu")
def _triu(x: Any, diagonal: int) -> Any:
    return _kept(x, diagonal, aten.ge)


@_enter("addr")
def _addr(x: Any, first: Any, second: Any, beta: Any, alpha: Any) -> Any:
    outer = aten.mul(aten.view(first, [first.shape[0], 1]), second)
    product = _scaled(outer, alpha)
    if beta == 0:
        return product
    return aten.add(_scaled(aten.expand(x, list(outer.shape)), beta), product)


@_enter("linspace")
def _linspace(start: Any, end: Any, steps: int, dtype: Any, *rest: Any) -> Any:
    """Counted from the nearer end."""
    layout, device, _ = rest
    out = state.process.default_dtype if dtype is None else dtype
    numbers = all(isinstance(v, (int, float)) for v in (start, end, steps))
    if not numbers or layout is not None or not out.is_floating_point:
        return NotImplemented
    inner = _wide(out)
    if steps < 2:
        return aten.full([steps], start, dtype=out, device=device)
    step = (end - start) / (steps - 1)
    at = aten.arange(0, steps, 1, device=device)
    first = aten.add(aten.mul(_to(at, inner), step), start)
    last = aten.sub(end, aten.mul(_to(aten.sub(steps - 1, at), inner), step))
    return _to(aten.where(aten.lt(at, steps / 2), first, last), out)


@_enter("im2col")
def _im2col(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if not all(isinstance(n, int) for n in x.shape[-2:]):
        return NotImplemented
    whole = x if x.ndim == 4 else aten.unsqueeze(x, 0)
    around = [padding[1], padding[1], padding[0], padding[0]]
    wide = aten.constant_pad_nd(whole, around, 0.0)
    found, windows = [], 1
    for d in (0, 1):
        reach = dilation[d] * (kernel[d] - 1) + 1
        starts = aten.arange(0, wide.shape[2 + d] - reach + 1, stride[d], device=x.device)
        taps = aten.arange(0, dilation[d] * kernel[d], dilation[d], device=x.device)
        found.append(aten.add(aten.unsqueeze(starts, 0), aten.unsqueeze(taps, -1)))
        windows *= starts.shape[0]
    rows = aten.unsqueeze(aten.unsqueeze(found[0], -1), -1)
    picked = aten.index(wide, [None, None, rows, found[1]])
    order = aten.clone(
        aten.permute(picked, [0, 1, 2, 4, 3, 5]), memory_format=layouts.contiguous_format
    )
    n, c = whole.shape[:2]
    out = aten.view(order, [n, c * kernel[0] * kernel[1], windows])
    return out if x.ndim == 4 else aten.squeeze(out, [0])


# ---- attention ----


@_enter("_safe_softmax")
def _safe_softmax(x: Any, dim: int, dtype: Any) -> Any:
    """softmax, and 0 for rows of nothing but -∞."""
    x = x if dtype is None else _to(x, dtype)
    weights = aten._softmax(x, dim, False)
    alive = aten.any(aten.logical_not(aten.eq(x, -math.inf)), dim, True)
    return aten.where(aten.logical_not(alive), aten.full_like(weights, 0), weights)


@_enter("_scaled_dot_product_flash_attention_for_cpu")
def _attention(
    q: Any, k: Any, v: Any, dropout: float, causal: bool, mask: Any, scale: Any
) -> Any:  # fmt: skip
    """Both factors are scaled by the root, so that neither product grows."""
    out, wide = q.dtype, _wide(q.dtype)
    q, k, v = _to(q, wide), _to(k, wide), _to(v, wide)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    by = overload_of(_op("mul.Scalar"))
    root = math.sqrt(abs(scale))
    turned = by(aten.permute(k, [0, 1, 3, 2]), root)
    scores = aten.matmul(by(q, math.copysign(root, scale)), turned)
    if causal:
        rows, columns = _places(scores.shape[-2], q), _places(scores.shape[-1], q)
        ahead = aten.sub(aten.unsqueeze(columns, -2), aten.unsqueeze(rows, -1))
        ban = aten.where(aten.le(ahead, 0), _number(0, q), _number(-math.inf, q))
        scores = aten.add(scores, ban)
    if mask is not None:
        scores = aten.add(scores, _to(mask, wide))
    found = aten.matmul(_safe_softmax(scores, -1, None), v)
    laid = aten.clone(aten.permute(found, [2, 0, 1, 3]), memory_format=layouts.contiguous_format)
    return _to(aten.permute(laid, [1, 2, 0, 3]), out), _logsumexp(scores, [-1], False)


# ---- slopes of normalisation ----


def _slopes(
    g: Any, x: Any, mean: Any, rstd: Any, weight: Any, over: list[int], kept: list[int],
    centred: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients of (x - mean) rstd weight + bias, the mean and the deviation taken along `over`
    where `centred`; those of weight and bias are sums along `kept`."""
    normal = aten.mul(aten.sub(x, mean), rstd)
    inner = g if weight is None else aten.mul(g, weight)
    if centred:
        shared = aten.add(
            aten.mean(inner, over, True),
            aten.mul(normal, aten.mean(aten.mul(inner, normal), over, True)),
        )
        inner_rest = aten.sub(inner, shared)
    else:
        inner_rest = inner
    return (
        aten.mul(inner_rest, rstd),
        aten.sum(aten.mul(g, normal), kept) if kept else aten.mul(g, normal),
        aten.sum(g, kept) if kept else g,
    )


def _masked(mask: Sequence[bool], values: Sequence[Any], dtypes: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        _to(v, d) if wanted else None for wanted, v, d in zip(mask, values, dtypes, strict=True)
    )


@_enter("native_layer_norm_backward")
def _layer_norm_backward(
    g: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:  # fmt: skip
    if x.numel() == 0:
        return NotImplemented
    wide = _wide(x.dtype)
    outer = x.ndim - len(shape)
    over, kept = list(range(outer, x.ndim)), list(range(outer))
    wider = None if weight is None else _to(weight, wide)
    g, normal, mean, rstd = (_to(v, wide) for v in (g, x, mean, rstd))
    values = _slopes(g, normal, mean, rstd, wider, over, kept, True)
    own = [x.dtype if v is None else v.dtype for v in (weight, bias)]
    return _masked(mask, values, (x.dtype, *own))


@_enter("native_batch_norm_backward")
def _batch_norm_backward(
    g: Any, x: Any, weight: Any, running_mean: Any, running_var: Any, mean: Any, rstd: Any,
    train: bool, eps: float, mask: Any,
) -> Any:  # fmt: skip
    if x.numel() == 0:
        return NotImplemented
    wide = _wide(x.dtype)
    over = [d for d in range(x.ndim) if d != 1]
    if not train:
        mean = running_mean
        rstd = aten.rsqrt(aten.add(_to(running_var, wide), eps))
    shape = [1, -1] + [1] * (x.ndim - 2)
    mean, rstd, wider = (
        None if v is None else aten.view(_to(v, wide), shape) for v in (mean, rstd, weight)
    )
    values = _slopes(_to(g, wide), _to(x, wide), mean, rstd, wider, over, over, train)
    own = x.dtype if weight is None else weight.dtype
    return _masked(mask, values, (x.dtype, own, own))


# ---- composites ----


@_enter("dropout")
def _dropout(x: Any, p: float, train: bool) -> Any:
    return aten.native_dropout(x, p, True)[0] if train and p else aten.clone(x)
