"""Activations with a threshold, a learned slope or a random one; gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import (
    SIXTEEN,
    Composite,
    Opaque,
    Pointwise,
    TensorSpec,
    cast,
    wrap_dim,
)
from flambeau._src.ops.op import like
from flambeau._src.ops.pointwise import unary_samples


class Hardshrink(Pointwise):
    """self where outside [-lambd, lambd], else 0."""

    schema = "hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor"
    inplace = False
    out = "out"
    public = "function, method"
    apart = ("lambd",)
    samples = unary_samples

    def expr(k: Any, x: Any, lambd: Any) -> Any:
        return k.where(k.logical_and(x >= -lambd, x <= lambd), 0.0, x)

    def vjp(b: Any, g: Any, x: Any, lambd: Any) -> Any:
        return aten.hardshrink_backward(g, x, lambd)


class Softshrink(Pointwise):
    """self moved by lambd towards 0, and 0 within [-lambd, lambd]."""

    schema = "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor"
    inplace = False
    out = "out"
    public = "nn"
    apart = ("lambd",)
    samples = unary_samples

    def check(x: Any, lambd: Any) -> None:
        top = {
            dt.float64: 1.7976931348623157e308,
            dt.float16: 65504.0,
            dt.bfloat16: 3.38953e38,
        }.get(x.dtype, 3.40282e38)
        if not 0 <= lambd <= top:
            raise RuntimeError(
                f"lambda must be in range [0, {top:g}] for input dtype {dt.scalar_name(x.dtype)}, "
                f"but found {lambd:g}"
            )

    def expr(k: Any, x: Any, lambd: Any) -> Any:
        return k.where(x > lambd, x - lambd, k.where(x < -lambd, x + lambd, x * 0.0))

    def vjp(b: Any, g: Any, x: Any, lambd: Any) -> Any:
        return aten.softshrink_backward(g, x, lambd)


def _shrink_backward(name: str, schema: str, public: str) -> None:
    def expr(k: Any, g: Any, x: Any, lambd: Any) -> Any:
        return k.where(k.logical_or(x < -lambd, x > lambd), g, 0.0)

    def vjp(b: Any, gg: Any, g: Any, x: Any, lambd: Any) -> Any:
        return getattr(aten, name)(gg, x, lambd), aten.zeros_like(gg) if b.needs[1] else None

    type(
        name,
        (Pointwise,),
        {
            "__doc__": "grad_output outside [-lambd, lambd].",
            "__module__": __name__,
            "schema": schema,
            "inplace": False,
            "apart": ("lambd",),
            "public": public,
            "expr": expr,
            "vjp": vjp,
            "out": "grad_input",
            "out_args": ("grad_input",),
        },
    )


_shrink_backward(
    "hardshrink_backward",
    "hardshrink_backward(Tensor grad_out, Tensor self, Scalar lambd) -> Tensor",
    "",
)
_shrink_backward(
    "softshrink_backward",
    "softshrink_backward(Tensor grad_output, Tensor self, Scalar lambd) -> Tensor",
    "nn",
)


class Relu6(Composite):
    """self within [0, 6]."""

    schema = "relu6(Tensor self) -> Tensor"
    inplace = True
    public = "nn"

    def decompose(x: Tensor) -> Tensor:
        return aten.hardtanh(x, 0, 6)

    def decompose_inplace(x: Tensor) -> Tensor:
        return aten.hardtanh_(x, 0, 6)


class Prelu(Composite):
    """self, scaled by a learned slope where negative; one slope or one a
    channel (He et al. 2015)."""

    schema = "prelu(Tensor self, Tensor weight) -> Tensor"

    def decompose(x: Tensor, weight: Tensor) -> Tensor:
        if x.dtype is not weight.dtype:
            raise RuntimeError(
                f"prelu: Type promoting not supported. Got {dt.scalar_name(x.dtype)} and "
                f"{dt.scalar_name(weight.dtype)}"
            )
        if weight.numel() != 1:
            if not x.dim():
                raise RuntimeError("Not allow zero-dim input tensor.")
            channels = x.shape[1] if x.dim() > 1 else 1
            if weight.dim() <= 1 and channels != weight.numel():
                raise RuntimeError(
                    "Mismatch of parameter numbers and input channel size. Found parameter numbers "
                    f"= {weight.numel()} and channel size = {channels}."
                )
        if weight.dim() > 1:
            raise RuntimeError(
                "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
                f"{weight.dim()}"
            )
        if weight.dim() != x.dim():
            if not x.dim():
                weight = weight.squeeze()
            else:
                shape = [1] * x.dim()
                if x.dim() > 1:
                    shape[1] = weight.numel()
                weight = weight.reshape(shape)
        return aten._prelu_kernel(x, weight)

    def samples(s: Any) -> Iterator[Any]:
        for shape, n in (((2, 3, 4), 3), ((4, 2), 2), ((2, 3), 1), ((5,), 1)):
            yield s.sample(s.tensor(shape), s.tensor((n,)))


class PreluKernel(Pointwise):
    """self where positive, weight self elsewhere."""

    schema = "_prelu_kernel(Tensor self, Tensor weight) -> Tensor"
    inplace = False
    out = False
    public = "function"

    def expr(k: Any, x: Any, w: Any) -> Any:
        return k.where(x > 0, x, w * x)

    def vjp(b: Any, g: Any, x: Any, w: Any) -> Any:
        return aten._prelu_kernel_backward(g, x, w)


class PreluKernelBackward(Opaque):
    """Both gradients of _prelu_kernel, of the broadcast shape."""

    schema = (
        "_prelu_kernel_backward(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)"
    )
    public = "function"
    undefined_grads = True

    def meta(g: Tensor, x: Tensor, w: Tensor) -> Any:
        shape, stride = slot("broadcast_geometry")([g, x, w])
        return TensorSpec(shape, x.dtype, x.device, stride), TensorSpec(
            shape, x.dtype, x.device, stride
        )

    def kernel(outs: Any, g: Tensor, x: Tensor, w: Tensor) -> None:
        slot("copy_into")(outs[0], aten.where(x > 0, g, w * g))
        slot("copy_into")(outs[1], aten.where(x > 0, aten.zeros((), dtype=x.dtype), x * g))

    def decompose(g: Tensor, x: Tensor, w: Tensor) -> Any:
        zero = aten.zeros((), dtype=x.dtype, device=x.device)
        return aten.where(x > 0, g, w * g), aten.where(x > 0, zero, x * g)

    def vjp(b: Any, gg: Any, g: Any, x: Any, w: Any) -> Any:
        into_x, into_w = gg
        zero = aten.zeros((), dtype=g.dtype, device=g.device)
        mask = x >= 0  # at 0 the other side than in the first derivative, as torch has it

        def kept(v: Any, other: Any, wanted: bool, like: Tensor) -> Any:
            return _sum_to(aten.where(mask, v, other), like) if wanted else None

        needs_g, needs_x, needs_w = b.needs
        by_w = None if into_w is None else into_w * x
        if into_x is None:
            of_g = kept(zero, by_w, needs_g, g)
        else:
            of_g = kept(into_x, into_x * w if by_w is None else into_x * w + by_w, needs_g, g)
        return (
            of_g,
            kept(zero, zero if into_w is None else into_w * g, needs_x, x),
            kept(zero, zero if into_x is None else into_x * g, needs_w, w),
        )


def _sum_to(g: Tensor, like: Tensor) -> Tensor:
    return slot("sum_to")(g, like) if g.shape != like.shape else g


class Glu(Opaque):
    """a sigmoid(b), a and b the halves along dim (Dauphin et al. 2017)."""

    schema = "glu(Tensor self, int dim=-1) -> Tensor"
    public = "nn"
    out = "out"

    def meta(x: Tensor, dim: int) -> TensorSpec:
        if not x.dim():
            raise RuntimeError("glu does not support 0-dimensional tensors")
        d = wrap_dim(dim, x.dim())
        if x.shape[d] % 2:
            raise RuntimeError(
                f"Halving dimension must be even, but dimension {d} is size {x.shape[d]}"
            )
        shape = list(x.shape)
        shape[d] //= 2
        first = aten.narrow(x, d, 0, shape[d])
        _, stride = slot("broadcast_geometry")([first, first])
        return TensorSpec(shape, x.dtype, x.device, stride)

    def kernel(out: Tensor, x: Tensor, dim: int) -> None:
        d = wrap_dim(dim, x.dim())
        wide = cast(x, dt.float32) if x.dtype in SIXTEEN else x
        n = x.shape[d] // 2
        slot("copy_into")(
            out, aten.narrow(wide, d, 0, n) * aten.sigmoid(aten.narrow(wide, d, n, n))
        )

    def decompose(x: Tensor, dim: int) -> Tensor:
        d = wrap_dim(dim, x.dim())
        n = Glu.meta(x, dim).shape[d]
        return aten.narrow(x, d, 0, n) * aten.sigmoid(aten.narrow(x, d, n, n))

    def vjp(b: Any, g: Any, x: Any, dim: int) -> Any:
        return aten.glu_backward(g, x, dim)

    def samples(s: Any) -> Iterator[Any]:
        for shape, dim in (((2, 4), -1), ((4, 3), 0), ((2, 6, 3), 1), ((0, 4), 1)):
            yield s.sample(s.tensor(shape), dim)


class GluBackward(Opaque):
    """The gradient of glu."""

    schema = "glu_backward(Tensor grad_output, Tensor self, int dim) -> Tensor"
    public = "nn"
    out = "grad_input"
    out_args = ("grad_input",)

    def meta(g: Tensor, x: Tensor, dim: int) -> TensorSpec:
        return TensorSpec(x.shape, x.dtype, x.device)

    def kernel(out: Tensor, g: Tensor, x: Tensor, dim: int) -> None:
        if x.dtype in SIXTEEN:
            g, x = cast(g, dt.float32), cast(x, dt.float32)
        slot("copy_into")(out, GluBackward.decompose(g, x, dim))

    def decompose(g: Tensor, x: Tensor, dim: int) -> Tensor:
        n = x.shape[dim] // 2
        a, s = aten.narrow(x, dim, 0, n), aten.sigmoid(aten.narrow(x, dim, n, n))
        return aten.cat([g * s, g * a * s * (1 - s)], dim)


class RreluWithNoise(Opaque):
    """self, scaled by a slope drawn for each negative element in training, and by the mean slope
    else. `noise` receives the slopes."""

    schema = (
        "rrelu_with_noise(Tensor self, Tensor(b!) noise, Scalar lower=0.125, Scalar "
        "upper=0.3333333333333333, bool training=False, Generator? generator=None) -> Tensor"
    )
    public = "nn"
    random = True

    def meta(
        x: Tensor, noise: Tensor, lower: Any, upper: Any, training: bool, generator: Any
    ) -> TensorSpec:
        if x.shape != noise.shape:
            raise RuntimeError(
                "noise tensor shape must match self tensor shape. Got self.shape = "
                f"{list(x.shape)} noise.shape = {list(noise.shape)}"
            )
        return like(x)

    def kernel(
        out: Tensor, x: Tensor, noise: Tensor, lower: Any, upper: Any, training: bool,
        generator: Any,
    ) -> None:  # fmt: skip
        if training:
            slopes = _slopes(x, lower, upper, generator)
            slot("copy_into")(noise, slopes)
            slot("copy_into")(out, x * slopes)
        else:
            slot("copy_into")(out, aten.leaky_relu(x, _mean(lower, upper)))

    def vjp(
        b: Any, g: Any, x: Any, noise: Any, lower: Any, upper: Any, training: bool, generator: Any
    ) -> Any:
        return aten.rrelu_with_noise_backward(g, x, noise, lower, upper, training, False), None


def _slopes(x: Tensor, lower: Any, upper: Any, generator: Any) -> Tensor:
    """Slopes of x's shape and dtype: drawn for each element that is not positive, in their order,
    and 1 for the others."""
    from flambeau._src.ops.random import fill  # the streams are drawn in the order of torch

    below = x <= 0
    drawn = aten.empty_like(aten.masked_select(x, below), dtype=dt.float64)
    fill(drawn, "uniform", float(lower), float(upper), generator=generator)
    ones = aten.ones(x.shape, dtype=dt.float64, device=x.device)
    slopes: Tensor = aten.masked_scatter(ones, below, drawn).to(x.dtype)
    return slopes


def _check_bounds(lower: Any, upper: Any) -> None:
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")


def _mean(lower: Any, upper: Any) -> float:
    return (float(lower) + float(upper)) / 2


class RreluBackward(Opaque):
    """The gradient of rrelu_with_noise."""

    schema = (
        "rrelu_with_noise_backward(Tensor grad_output, Tensor self, Tensor noise, Scalar lower, "
        "Scalar upper, bool training, bool self_is_result) -> Tensor"
    )
    public = "function"

    def meta(
        g: Tensor, x: Tensor, noise: Tensor, lower: Any, upper: Any, training: bool, is_result: bool
    ) -> TensorSpec:
        shape, stride = slot("broadcast_geometry")([g, x])
        return TensorSpec(shape, g.dtype, g.device, stride)

    def kernel(
        out: Tensor,
        g: Tensor,
        x: Tensor,
        noise: Tensor,
        lower: Any,
        upper: Any,
        training: bool,
        is_result: bool,
    ) -> None:
        slot("copy_into")(
            out, RreluBackward.decompose(g, x, noise, lower, upper, training, is_result)
        )

    def decompose(
        g: Tensor, x: Tensor, noise: Tensor, lower: Any, upper: Any, training: bool, is_result: bool
    ) -> Tensor:
        if training and upper - lower > 1e-6:
            return g * noise
        return aten.where(x > 0, g, g * _mean(lower, upper))

    def vjp(
        b: Any,
        gg: Any,
        g: Any,
        x: Any,
        noise: Any,
        lower: Any,
        upper: Any,
        training: bool,
        is_result: bool,
    ) -> Any:
        return (
            aten.rrelu_with_noise_backward(gg, x, noise, lower, upper, training, is_result),
            aten.zeros_like(x) if b.needs[1] else None,
            None,
        )


class Rrelu(Composite):
    """Leaky relu with random slopes in training (Xu et al. 2015)."""

    schema = (
        "rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool "
        "training=False, Generator? generator=None) -> Tensor"
    )
    inplace = True
    public = "function"

    def decompose(x: Tensor, lower: Any, upper: Any, training: bool, generator: Any) -> Tensor:
        _check_bounds(lower, upper)
        return aten.rrelu_with_noise(x, aten.empty_like(x), lower, upper, training, generator)

    def decompose_inplace(
        x: Tensor, lower: Any, upper: Any, training: bool, generator: Any
    ) -> Tensor:
        _check_bounds(lower, upper)
        if not training:
            return aten.leaky_relu_(x, _mean(lower, upper))
        return aten.copy_(x, x * _slopes(x.detach(), lower, upper, generator))
