"""The gradients of activations, as the operators that torch has for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Pointwise

SIXTH = 0.16666667163372040  # PyTorch's is a float32 in every precision


class Slope(Pointwise):
    """grad_output times the slope at self (at the result, where it is told to be one)."""

    inplace: bool | str = False
    out: bool | str = "grad_input"
    out_args = ("grad_input",)
    public = "nn"

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 4), (), (0, 2), (2, 3, 4, 5)):
            yield s.sample(s.tensor(shape), s.tensor(shape, -4.0, 4.0))


class LeakyReluBackward(Slope):
    """The gradient of leaky_relu."""

    schema = (
        "leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, "
        "bool self_is_result) -> Tensor"
    )
    apart = ("negative_slope",)

    def check(g: Any, x: Any, slope: Any, is_result: bool) -> None:
        if is_result and slope < 0:
            raise RuntimeError(
                "In-place leakyReLu backward calculation is triggered with a negative slope which "
                "is not supported. This is caused by calling in-place forward function with a "
                "negative slope, please call out-of-place version instead. File an issue at "
                "https://github.com/pytorch/pytorch if you do require supporting in-place "
                "leakRelu backward calculation with negative slope"
            )

    def expr(k: Any, g: Any, x: Any, slope: Any, is_result: bool) -> Any:
        return k.where(x > 0, g, g * slope)

    def vjp(b: Any, gg: Any, g: Any, x: Any, slope: Any, is_result: bool) -> Any:
        own = aten.leaky_relu_backward(gg, x, slope, is_result)
        return own, aten.zeros_like(gg) if b.needs[1] else None

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), s.tensor((3, 4)), 0.1, False)
        yield s.sample(s.tensor((0, 4)), s.tensor((0, 4)), 0.1, True)


class SoftplusBackward(Slope):
    """The gradient of softplus."""

    schema = (
        "softplus_backward(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold) "
        "-> Tensor"
    )
    apart = ("beta", "threshold")

    def expr(k: Any, g: Any, x: Any, beta: Any, threshold: Any) -> Any:
        return k.where(x * beta > threshold, g, g * k.sigmoid(x * beta))

    def vjp(b: Any, gg: Any, g: Any, x: Any, beta: Any, threshold: Any) -> Any:
        gx = None
        if b.needs[1]:
            s = aten.sigmoid(x * beta)
            gx = aten.masked_fill(gg * g * s * (1 - s) * beta, x * beta > threshold, 0)
        return aten.softplus_backward(gg, x, beta, threshold), gx

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), s.tensor((3, 4)), 2.0, 3.0)
        yield s.sample(s.tensor((0, 4)), s.tensor((0, 4)), 1, 20)


class EluBackward(Slope):
    """The gradient of elu."""

    schema = (
        "elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, "
        "bool is_result, Tensor self_or_result) -> Tensor"
    )
    apart = ("alpha", "scale", "input_scale")
    saves_by = ("alpha", "scale", "input_scale")

    @classmethod
    def fast(cls, op: Any) -> Any:
        return None

    def check(g: Any, alpha: Any, scale: Any, inner: Any, is_result: bool, x: Any) -> None:
        if is_result and alpha < 0:
            raise RuntimeError(
                "In-place elu backward calculation is triggered with a negative slope which is not "
                "supported. This is caused by calling in-place forward function with a negative "
                "slope, please call out-of-place version instead."
            )

    def expr(k: Any, g: Any, alpha: Any, scale: Any, inner: Any, is_result: bool, x: Any) -> Any:
        if is_result:
            low = g * inner * (x + alpha * scale)
        else:
            low = g * (alpha * scale * inner) * k.exp(x * inner)
        return k.where(x > 0, g * scale, low)

    def vjp(
        b: Any, gg: Any, g: Any, alpha: Any, scale: Any, inner: Any, is_result: bool, x: Any
    ) -> Any:
        gx = None
        if b.needs[1]:
            if is_result:
                part = gg * g * inner
            else:
                part = gg * g * (alpha * scale * inner * inner) * aten.exp(x * inner)
            gx = aten.masked_fill(part, x >= 0, 0)
        return aten.elu_backward(gg, alpha, scale, inner, is_result, x), gx

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), 1.5, 0.5, 0.8, False, s.tensor((3, 4)))
        yield s.sample(s.tensor((3, 4)), 1.5, 0.5, 0.8, True, s.tensor((3, 4), -0.7, 2.0))


class HardtanhBackward(Slope):
    """The gradient of hardtanh."""

    schema = (
        "hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val) "
        "-> Tensor"
    )
    apart = ("min_val", "max_val")

    def expr(k: Any, g: Any, x: Any, low: Any, high: Any) -> Any:
        return k.where((x <= low) | (x >= high), g - g, g)

    def vjp(b: Any, gg: Any, g: Any, x: Any, low: Any, high: Any) -> Any:
        own = aten.hardtanh_backward(gg, x, low, high)
        return own, aten.zeros_like(gg) if b.needs[1] else None

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), s.tensor((3, 4)), -1, 1)
        yield s.sample(s.tensor((0, 4)), s.tensor((0, 4)), -1, 1)


class HardsigmoidBackward(Slope):
    """The gradient of hardsigmoid."""

    schema = "hardsigmoid_backward(Tensor grad_output, Tensor self) -> Tensor"

    def expr(k: Any, g: Any, x: Any) -> Any:
        return k.where((x > -3) & (x < 3), g * SIXTH, 0.0)

    def vjp(b: Any, gg: Any, g: Any, x: Any) -> Any:
        return aten.hardsigmoid_backward(gg, x), aten.zeros_like(gg) if b.needs[1] else None


class HardswishBackward(Slope):
    """The gradient of hardswish."""

    schema = "hardswish_backward(Tensor grad_output, Tensor self) -> Tensor"
    out = "out"
    out_args = ("out",)

    def expr(k: Any, g: Any, x: Any) -> Any:
        return k.where(x <= -3, 0.0, k.where(x < 3, g * (x / 3 + 0.5), g))

    def vjp(b: Any, gg: Any, g: Any, x: Any) -> Any:
        gx = None
        if b.needs[1]:
            gx = aten.masked_fill(gg * g / 3, (x <= -3) | (x >= 3), 0)
        return aten.hardswish_backward(gg, x), gx


class MishBackward(Slope):
    """The gradient of mish."""

    schema = "mish_backward(Tensor grad_output, Tensor self) -> Tensor"
    out = False

    def expr(k: Any, g: Any, x: Any) -> Any:
        s, t = k.sigmoid(x), k.tanh(k.where(x > 20, x, k.log1p(k.exp(x))))
        return g * (t + x * s * (1 - t * t))

    def vjp(b: Any, gg: Any, g: Any, x: Any) -> Any:
        gx = None
        if b.needs[1]:
            # the chain of tanh(log1p(exp(x))), step by step: it overflows where PyTorch's does
            e, s, both = aten.exp(x), aten.sigmoid(x), gg * g
            t = aten.tanh(aten.log1p(e))
            slope = 1 - t * t
            outer = both - 2 * t * (both * x * s)
            gx = outer * slope / (e + 1) * e + both * s * slope
            gx = gx + both * x * slope * (s * (1 - s))
        return aten.mish_backward(gg, x), gx
