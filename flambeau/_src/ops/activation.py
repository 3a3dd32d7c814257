"""Activations, with their backward operators as torch names them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.ops.call import aten, by_number
from flambeau._src.ops.kinds import SIXTEEN, Composite, Pointwise
from flambeau._src.ops.pointwise import conj, unary_samples


class Relu(Pointwise):
    """max(self, 0); NaN stays."""

    schema = "relu(Tensor self) -> Tensor"
    out = "out"
    samples = unary_samples
    reference = "tests.ops.references:relu"

    def check(x: Any) -> None:
        if x.dtype is dt.bool_:
            raise RuntimeError("Boolean inputs not supported for relu")

    def expr(k: Any, a: Any) -> Any:
        return k.maximum(a, 0)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return aten.threshold_backward(g, b.out, 0)


class Threshold(Pointwise):
    """self where above the threshold, the value elsewhere."""

    schema = "threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor"
    out = "out"
    apart = ("threshold", "value")
    public = "function"
    takes_overlap = True

    def expr(k: Any, a: Any, t: Any, v: Any) -> Any:
        return k.where(a <= t, v, a)

    def vjp(b: Any, g: Any, x: Any, t: Any, v: Any) -> Any:
        return aten.threshold_backward(g, x, t)


class ThresholdBackward(Pointwise):
    """grad_output where self is above the threshold."""

    schema = "threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor"
    inplace = False
    apart = ("threshold",)
    public = "function"

    def expr(k: Any, g: Any, a: Any, t: Any) -> Any:
        return k.where(a <= t, g * 0 if False else k.cast(k.const(0), g.dtype), g)

    def vjp(b: Any, gg: Any, g: Any, x: Any, t: Any) -> Any:
        return aten.threshold_backward(gg, x, t), aten.zeros_like(gg) if b.needs[1] else None


class TanhBackward(Pointwise):
    """grad_output (1 - output²)."""

    schema = "tanh_backward(Tensor grad_output, Tensor output) -> Tensor"
    inplace = False
    public = "function"

    def expr(k: Any, g: Any, o: Any) -> Any:
        if o.dtype.startswith("complex"):
            o = k.conj(o)
        return g * (1 - o * o)

    def vjp(b: Any, gg: Any, g: Any, o: Any) -> Any:
        own = aten.tanh_backward(gg, conj(o))
        return own, conj(gg) * (by_number("mul", conj(o), -2) * g) if b.needs[1] else None


class SigmoidBackward(Pointwise):
    """grad_output (1 - output) output."""

    schema = "sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor"
    inplace = False
    public = "function"

    def expr(k: Any, g: Any, o: Any) -> Any:
        if o.dtype.startswith("complex"):
            o = k.conj(o)
        return g * ((1 - o) * o)

    def vjp(b: Any, gg: Any, g: Any, o: Any) -> Any:
        own = aten.sigmoid_backward(gg, conj(o))
        return own, conj(gg) * g * (1 - 2 * conj(o)) if b.needs[1] else None


SQRT1_2 = 0.7071067811865476
SQRT_2_PI = 0.7978845608028654
INV_SQRT_2PI = 0.3989422804014327


class Gelu(Pointwise):
    """x Φ(x), Φ the normal distribution function (Hendrycks and Gimpel 2016); 'tanh' is their
    approximation."""

    schema = "gelu(Tensor self, *, str approximate='none') -> Tensor"
    inplace = True
    public = "nn"
    out = "out"

    def check(x: Any, approximate: str) -> None:
        if approximate not in ("none", "tanh"):
            raise RuntimeError("approximate argument must be either none or tanh.")
        if not x.dtype.is_floating_point:
            raise NotImplementedError(
                f"\"GeluKernelImpl\" not implemented for '{dt.scalar_name(x.dtype)}'"
            )

    def expr(k: Any, x: Any, approximate: str) -> Any:
        if approximate == "none":
            return 0.5 * x * (1 + k.erf(x * SQRT1_2))
        # (1 + tanh(u)) / 2 is sigmoid(2u), which does not cancel where x is far below 0
        return x * k.sigmoid(2 * SQRT_2_PI * (x + 0.044715 * x * x * x))

    def vjp(b: Any, g: Any, x: Any, approximate: str) -> Any:
        return aten.gelu_backward(g, x, approximate=approximate)

    def samples(s: Any) -> Iterator[Any]:
        for approximate in ("none", "tanh"):
            yield s.sample(s.tensor((3, 5)), approximate=approximate)
        for shape in ((), (0, 3), (2, 3, 4, 5)):
            yield s.sample(s.tensor(shape))


class GeluBackward(Pointwise):
    """grad (Φ(x) + x φ(x))."""

    schema = "gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none') -> Tensor"
    inplace = False
    public = "nn"
    out = "grad_input"
    out_args = ("grad_input",)

    def expr(k: Any, g: Any, x: Any, approximate: str) -> Any:
        if approximate == "none":
            return g * (0.5 * (1 + k.erf(x * SQRT1_2)) + x * (k.exp(x * x * -0.5) * INV_SQRT_2PI))
        # with e = exp(-2|u|): 1 / cosh(u)^2 is 4e / (1+e)^2, which 1 - tanh(u)^2 loses in the tails
        u = SQRT_2_PI * (x + 0.044715 * x * x * x)
        e = k.exp(-2 * k.abs(u))
        near = 1 / (1 + e)
        far = e * near
        slope = 2 * far * near * (SQRT_2_PI * (1 + 3 * 0.044715 * x * x))
        return g * (k.where(u < 0, far, near) + x * slope)

    def vjp(b: Any, gg: Any, g: Any, x: Any, approximate: str) -> Any:
        gx = None
        if b.needs[1]:
            if approximate == "none":
                gx = gg * g * aten.exp(x * x * -0.5) * INV_SQRT_2PI * (2 - x * x)
            else:
                u = SQRT_2_PI * (x + 0.044715 * x * x * x)
                # the square of 1 / cosh(u) as a product of two tails: 1 - t * t cancels
                sech = 4 * aten.sigmoid(2 * u) * aten.sigmoid(-2 * u)
                du = SQRT_2_PI * (1 + 3 * 0.044715 * x * x)
                ddu = SQRT_2_PI * 6 * 0.044715 * x
                gx = gg * g * sech * (du + x * (0.5 * ddu - aten.tanh(u) * du * du))
        return aten.gelu_backward(gg, x, approximate=approximate), gx


class Silu(Pointwise):
    """x sigmoid(x)."""

    schema = "silu(Tensor self) -> Tensor"
    public = "function, nn"
    out = "out"

    def expr(k: Any, x: Any) -> Any:
        return x / (1 + k.exp(-x))

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return aten.silu_backward(g, x)


class SiluBackward(Pointwise):
    """The slope of silu times grad_output."""

    schema = "silu_backward(Tensor grad_output, Tensor self) -> Tensor"
    inplace = False
    public = "nn"

    def expr(k: Any, g: Any, x: Any) -> Any:
        s = k.sigmoid(x)
        return g * s * (1 + x * (1 - s))

    def vjp(b: Any, gg: Any, g: Any, x: Any) -> Any:
        gx = None
        if b.needs[1]:
            s = aten.sigmoid(x)
            gx = gg * g * s * (1 - s) * (2 + x * (1 - 2 * s))
        return aten.silu_backward(gg, x), gx


class LeakyRelu(Pointwise):
    """self, scaled where negative."""

    schema = "leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor"
    public = "nn"
    out = "out"
    apart = ("negative_slope",)

    def expr(k: Any, x: Any, slope: Any) -> Any:
        return k.where(x > 0, x, x * slope)

    def vjp(b: Any, g: Any, x: Any, slope: Any) -> Any:
        return aten.leaky_relu_backward(g, x, slope, False)


class Softplus(Pointwise):
    """log(1 + exp(beta x)) / beta; x itself above the threshold."""

    schema = "softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor"
    public = "nn"
    inplace = False
    out = "out"
    apart = ("beta", "threshold")

    def expr(k: Any, x: Any, beta: Any, threshold: Any) -> Any:
        return k.where(x * beta > threshold, x, k.log1p(k.exp(x * beta)) / beta)

    def vjp(b: Any, g: Any, x: Any, beta: Any, threshold: Any) -> Any:
        return aten.softplus_backward(g, x, beta, threshold)


class Elu(Pointwise):
    """scale (x where positive, alpha (exp(input_scale x) - 1) elsewhere)."""

    schema = "elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor"
    public = "nn"
    out = "out"
    apart = ("alpha", "scale", "input_scale")

    def expr(k: Any, x: Any, alpha: Any, scale: Any, inner: Any) -> Any:
        return k.where(x > 0, x * scale, alpha * scale * k.expm1(x * inner))

    def vjp(b: Any, g: Any, x: Any, alpha: Any, scale: Any, inner: Any) -> Any:
        return aten.elu_backward(g, alpha, scale, inner, False, x)


class Hardtanh(Pointwise):
    """self within two numbers."""

    schema = "hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor"
    lies_like_self = True
    public = "nn"
    out = "out"
    apart = ("min_val", "max_val")

    def expr(k: Any, x: Any, low: Any, high: Any) -> Any:
        return k.minimum(k.maximum(x, low), high)

    def vjp(b: Any, g: Any, x: Any, low: Any, high: Any) -> Any:
        return aten.hardtanh_backward(g, x, low, high)


class Hardsigmoid(Pointwise):
    """relu6(x + 3) / 6."""

    schema = "hardsigmoid(Tensor self) -> Tensor"
    public = "nn"
    out = "out"

    def expr(k: Any, x: Any) -> Any:
        return k.minimum(k.maximum(x + 3, 0), 6) / 6

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return aten.hardsigmoid_backward(g, x)


class Hardswish(Pointwise):
    """x relu6(x + 3) / 6."""

    schema = "hardswish(Tensor self) -> Tensor"
    public = "nn"
    out = "out"

    def expr(k: Any, x: Any) -> Any:
        return x * k.minimum(k.maximum(x + 3, 0), 6) / 6

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return aten.hardswish_backward(g, x)


class Mish(Pointwise):
    """x tanh(softplus(x))."""

    schema = "mish(Tensor self) -> Tensor"
    public = "nn, function"
    out = "out"

    def expr(k: Any, x: Any) -> Any:
        return x * k.tanh(k.log1p(k.exp(x)))

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return aten.mish_backward(g, x)


class LogSigmoid(Composite):
    """log(sigmoid(self))."""

    schema = "log_sigmoid(Tensor self) -> Tensor"
    public = "nn"
    out = "out"

    def decompose(self: Any) -> Any:
        return aten.log_sigmoid_forward(self.contiguous())


class LogSigmoidForward(Pointwise):
    """min(x, 0) - log1p(exp(-|x|))."""

    schema = "log_sigmoid_forward(Tensor self) -> Tensor"
    public = ""
    inplace = False

    def expr(k: Any, x: Any) -> Any:
        return k.minimum(x, 0) - k.log1p(k.exp(-k.abs(x)))

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return aten.log_sigmoid_backward(g, x, x)


class LogSigmoidBackward(Pointwise):
    """grad_output sigmoid(-self). `buffer`, where PyTorch keeps exp(-|self|), is not read."""

    schema = "log_sigmoid_backward(Tensor grad_output, Tensor self, Tensor buffer) -> Tensor"
    inplace = False
    out = "grad_input"
    out_args = ("grad_input",)
    public = ""

    def expr(k: Any, g: Any, x: Any, buffer: Any) -> Any:
        return g * k.sigmoid(-x)

    def vjp(b: Any, gg: Any, g: Any, x: Any, buffer: Any) -> Any:
        gx = None
        if b.needs[1]:
            wide = dt.float32 if x.dtype in SIXTEEN else x.dtype  # gradients of x and -x may cancel
            z = aten.sigmoid(x.to(wide))
            gx = (gg.to(wide) * g.to(wide) * (z - 1) * z).to(x.dtype)
        return aten.log_sigmoid_backward(gg, x, x), gx, None

    def samples(s: Any) -> Iterator[Any]:
        x = s.tensor((3, 4))
        yield s.sample(s.tensor((3, 4)), x, x.exp())


class Selu(Composite):
    """elu with the self-normalising constants (Klambauer et al. 2017)."""

    schema = "selu(Tensor self) -> Tensor"
    inplace = True
    public = "function"

    def decompose(self: Any) -> Any:
        return aten.elu(self, 1.6732632423543772, 1.0507009873554805)

    def decompose_inplace(self: Any) -> Any:
        return aten.elu_(self, 1.6732632423543772, 1.0507009873554805)


class Celu(Composite):
    """elu continuous in alpha (Barron 2017)."""

    schema = "celu(Tensor self, Scalar alpha=1.0) -> Tensor"
    inplace = True
    public = "function"

    def decompose(self: Any, alpha: Any) -> Any:
        if alpha == 0:
            raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
        return aten.elu(self, alpha, 1.0, 1.0 / alpha)

    def decompose_inplace(self: Any, alpha: Any) -> Any:
        if alpha == 0:
            raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
        return aten.elu_(self, alpha, 1.0, 1.0 / alpha)
