"""Arithmetic, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, overridable
from flambeau._src.ops.kinds import SIXTEEN, Composite, Pointwise, number_type
from flambeau._src.ops.op import Op


def dtype_of(v: Any) -> dt.dtype:
    return v.dtype if isinstance(v, Tensor) else number_type(v)


def conj(t: Any) -> Any:
    """The conjugate where t is complex; t itself elsewhere."""
    if isinstance(t, Tensor):
        return aten.conj(t) if t.dtype.is_complex else t
    return t.conjugate() if isinstance(t, complex) else t


def check_alpha(x: Any, y: Any, alpha: Any) -> None:
    """torch's rules for alpha of add and sub."""
    types = (dtype_of(x), dtype_of(y))
    if isinstance(alpha, bool) and any(d is not dt.bool_ for d in types):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and all(dt.is_integral(d) for d in types):
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if isinstance(alpha, complex) and not any(d.is_complex for d in types):
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )


def binary_samples(s: Any) -> Iterator[Any]:
    """Shapes that every binary operator should meet."""
    for a, b in (
        ((3, 4), (3, 4)),
        ((3, 1), (1, 4)),
        ((), (2,)),
        ((2, 3, 4), (4,)),
        ((2, 3, 4, 5), (2, 3, 4, 5)),
        ((2, 3, 4, 5), (3, 1, 1)),
        ((0, 3), (3,)),
        ((), ()),
    ):
        yield s.sample(s.tensor(a), s.tensor(b, low=0.5))


def broadcast_errors(s: Any) -> Iterator[Any]:
    """Shapes that no binary operator takes."""
    text = r"The size of tensor a \(\d\) must match the size of tensor b \(\d\)"
    yield s.error(RuntimeError, text, s.tensor((2, 3)), s.tensor((2, 4)))


def unary_samples(s: Any) -> Iterator[Any]:
    for shape in ((3, 4), (), (0, 2), (2, 3, 4, 5), (67,)):
        yield s.sample(s.tensor(shape))


class Binary(Pointwise):
    """Two operands, numbers welcome on the right."""

    numbers = True
    number_operands = True
    samples = binary_samples
    error_samples = broadcast_errors


class Add(Binary):
    """self + alpha * other."""

    old_form = True
    schema = "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    overloads = ("add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",)
    out = "out"
    reference = "numpy.add"

    def check(x: Any, y: Any, alpha: Any) -> None:
        if alpha != 1 or isinstance(alpha, (bool, float)):
            check_alpha(x, y, alpha)

    def expr(k: Any, a: Any, b: Any, alpha: Any) -> Any:
        return (a | (b & (alpha != 0))) if a.dtype == "bool" else a + b * alpha

    def vjp(b: Any, g: Any, x: Any, y: Any, alpha: Any) -> Any:
        return g, g if alpha == 1 else g * conj(alpha)


class Sub(Binary):
    """self - alpha * other."""

    old_form = True
    schema = "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    overloads = ("sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",)
    out = "out"
    aliases = ("subtract",)
    reference = "numpy.subtract"

    def check(x: Any, y: Any, alpha: Any) -> None:
        bools = dtype_of(x) is dt.bool_, dtype_of(y) is dt.bool_
        if all(bools):
            raise RuntimeError(
                "Subtraction, the `-` operator, with two bool tensors is not supported. Use the "
                "`^` or `logical_xor()` operator instead."
            )
        if any(bools):
            raise RuntimeError(
                "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
                "trying to invert a mask, use the `~` or `logical_not()` operator instead."
            )
        check_alpha(x, y, alpha)

    def expr(k: Any, a: Any, b: Any, alpha: Any) -> Any:
        return a - b * alpha

    def vjp(b: Any, g: Any, x: Any, y: Any, alpha: Any) -> Any:
        return g, (-g if alpha == 1 else g * -conj(alpha)) if b.needs[-1] else None


class Rsub(Binary):
    """other - alpha * self: what `number - tensor` means."""

    schema = "rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    overloads = ("rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",)
    inplace = False
    out = False
    numbers = False
    public = "function, method"
    node_name = "Rsub"

    def check(x: Any, y: Any, alpha: Any) -> None:
        Sub.check(y, x, alpha)

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> Any:
        if not isinstance(args[1], Tensor):
            return super().infer(op, args)
        cls.check(*args)
        return Sub.infer(Sub.op, (args[1], args[0], 1))  # strides as of other - self

    @classmethod
    def fast(cls, op: Any) -> Any:
        return super().fast(op) if op.overload == "Scalar" else None

    def expr(k: Any, a: Any, b: Any, alpha: Any) -> Any:
        return b - a * alpha

    def vjp(b: Any, g: Any, x: Any, y: Any, alpha: Any) -> Any:
        return (-g if alpha == 1 else g * -conj(alpha)), g


class Mul(Binary):
    """self * other."""

    schema = "mul.Tensor(Tensor self, Tensor other) -> Tensor"
    overloads = ("mul.Scalar(Tensor self, Scalar other) -> Tensor",)
    out = "out"
    aliases = ("multiply",)
    reference = "numpy.multiply"

    def expr(k: Any, a: Any, b: Any) -> Any:
        return a & b if a.dtype == "bool" else a * b

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        other = g * conj(x) if b.needs[-1] and isinstance(y, Tensor) else None  # torch's order
        return g * conj(y) if b.needs[0] else None, other


def no_complex_half(name: str, common: dt.dtype) -> dt.dtype:
    if common is dt.complex32:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'ComplexHalf'")
    return common


class Div(Binary):
    """self / other, true division."""

    schema = "div.Tensor(Tensor self, Tensor other) -> Tensor"
    overloads = ("div.Scalar(Tensor self, Scalar other) -> Tensor",)
    promotion = "int_to_float"
    out = "out"
    aliases = ("divide", "true_divide")
    reference = "numpy.true_divide"

    @classmethod
    def common_dtype(cls, op: Any, args: tuple[Any, ...]) -> dt.dtype:
        return no_complex_half("div", super().common_dtype(op, args))

    def expr(k: Any, a: Any, b: Any) -> Any:
        return a / b

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return (
            g / conj(y) if b.needs[0] else None,
            -g * conj((x / y) / y) if b.needs[-1] and isinstance(y, Tensor) else None,
        )


class DivMode(Binary):
    """self / other, rounded to zero ('trunc'), down ('floor') or not (None)."""

    schema = "div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor"
    overloads = ("div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",)
    out = "out_mode"
    aliases = ("divide",)
    saves_by = ("rounding_mode",)

    def check(x: Any, y: Any, mode: Any) -> None:
        if mode not in (None, "trunc", "floor"):
            raise RuntimeError(
                "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '"
                + str(mode)
                + "'"
            )
        if mode is not None and dtype_of(x) is dt.bool_ and dtype_of(y) is dt.bool_:
            raise NotImplementedError(f"\"div_{mode}_cpu\" not implemented for 'Bool'")
        if mode is not None and dtype_of(x).is_complex:
            raise RuntimeError("div(): complex numbers cannot be rounded")
        check_zero_division(x, y, mode)

    @classmethod
    def common_dtype(cls, op: Any, args: tuple[Any, ...]) -> dt.dtype:
        common = super().common_dtype(op, args)
        return slot("default_float")() if args[2] is None and dt.is_integral(common) else common

    @classmethod
    def settle(cls, op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """torch rounds the quotient of 16-bit tensors before it drops the fraction, unless the
        divisor is one number."""
        x, y, mode = args
        common = cls.common_dtype(op, args)
        rounds = mode == "trunc" and common in SIXTEEN and isinstance(y, Tensor) and y.numel() != 1
        return (x, y, common.name) if rounds else args

    def expr(k: Any, a: Any, b: Any, mode: Any) -> Any:
        if mode is None:
            return a / b
        if mode == "floor":
            return k.floor_divide(a, b)
        return k.trunc_divide(a, b) if mode == "trunc" else k.trunc(k.cast(a / b, mode))

    def vjp(b: Any, g: Any, x: Any, y: Any, mode: Any) -> Any:
        if mode is None:
            return Div.vjp(b, g, x, y)
        zero = aten.zeros_like(g)
        return zero, zero


def check_zero_division(x: Any, y: Any, mode: Any) -> None:
    """Integer division by zero is an error, as in torch."""
    if mode is None or not dt.is_integral(dtype_of(x)) or not dt.is_integral(dtype_of(y)):
        return
    if isinstance(y, Tensor):
        if y.untyped_storage().is_fake or not y.numel():
            return
        if bool(slot("any_zero")(y)):
            raise RuntimeError("ZeroDivisionError")
    elif y == 0:
        raise RuntimeError("ZeroDivisionError")


class FloorDivide(Binary):
    """self / other rounded down."""

    schema = "floor_divide(Tensor self, Tensor other) -> Tensor"
    overloads = ("floor_divide.Scalar(Tensor self, Scalar other) -> Tensor",)
    out = "out"
    differentiable = False

    def check(x: Any, y: Any) -> None:
        if dtype_of(x) is dt.bool_ and dtype_of(y) is dt.bool_:
            raise NotImplementedError("\"div_floor_cpu\" not implemented for 'Bool'")
        check_zero_division(x, y, "floor")

    def expr(k: Any, a: Any, b: Any) -> Any:
        return k.floor_divide(a, b)


def check_modulus(name: str, x: Any, y: Any) -> None:
    if dtype_of(x) is dt.bool_ and dtype_of(y) is dt.bool_:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
    check_zero_division(x, y, "floor")


def _quotients(g: Any, x: Any, y: Any, mode: str) -> Any:
    """-g times the whole part of x / y, which 16 bits may round up to the next number."""
    if g.dtype not in SIXTEEN:
        return -g * aten.div(x, y, rounding_mode=mode)
    x, y = (aten._to_copy(t, dtype=dt.float32) if isinstance(t, Tensor) else t for t in (x, y))
    return aten._to_copy(-g * aten.div(x, y, rounding_mode=mode), dtype=g.dtype)


class Remainder(Binary):
    """self modulo other with the sign of other."""

    schema = "remainder.Tensor(Tensor self, Tensor other) -> Tensor"
    overloads = ("remainder.Scalar(Tensor self, Scalar other) -> Tensor",)
    numbers = False
    fast_numbers = False

    @classmethod
    def check(cls, x: Any, y: Any) -> None:
        check_modulus(cls.schema.partition(".")[0], x, y)

    def expr(k: Any, a: Any, b: Any) -> Any:
        return k.remainder(a, b)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return g, _quotients(g, x, y, "floor") if b.needs[-1] and isinstance(y, Tensor) else None


class Fmod(Remainder):
    """self modulo other with the sign of self."""

    schema = "fmod.Tensor(Tensor self, Tensor other) -> Tensor"
    overloads = ("fmod.Scalar(Tensor self, Scalar other) -> Tensor",)

    def expr(k: Any, a: Any, b: Any) -> Any:
        return k.fmod(a, b)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return g, _quotients(g, x, y, "trunc") if b.needs[-1] and isinstance(y, Tensor) else None


_SPECIAL_EXPONENTS = (0, 1, 2, 3, 0.5, -1, -2, -0.5)


def check_integer_power(x: Any, e: Any) -> None:
    if isinstance(e, int) and not isinstance(e, bool) and e < 0 and dt.is_integral(dtype_of(x)):
        raise RuntimeError("Integers to negative integer powers are not allowed.")


def power(k: Any, a: Any, e: Any) -> Any:
    """a ** e; the exponents that torch computes by multiplication are computed so here."""
    if not isinstance(e, (int, float)):
        return k.pow(a, e)
    if e == 0:
        return k.cast(k.const(1), a.dtype) if a.dtype != "bool" else a | ~a
    simple = {1: lambda: a, 2: lambda: a * a, 3: lambda: a * a * a, 0.5: lambda: k.sqrt(a)}
    if e in simple:
        return simple[e]()
    return {-1: lambda: 1.0 / a, -2: lambda: 1.0 / (a * a), -0.5: lambda: 1.0 / k.sqrt(a)}[e]()


def check_power(x: Any, e: Any) -> None:
    if dtype_of(x) is dt.bool_ and dtype_of(e) is dt.bool_:
        raise NotImplementedError("\"pow\" not implemented for 'Bool'")


class PowTensor(Pointwise):
    """self to the power of exponent."""

    schema = "pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor"

    check = check_power
    error_samples = broadcast_errors

    def samples(s: Any) -> Iterator[Any]:
        for a, b in (((3, 4), (3, 4)), ((3, 1), (1, 4)), ((), (2,)), ((0, 3), (3,))):
            yield s.sample(s.tensor(a, low=0.2), s.tensor(b))

    @classmethod
    def common_dtype(cls, op: Any, args: tuple[Any, ...]) -> dt.dtype:
        return no_complex_half("pow", super().common_dtype(op, args))

    def expr(k: Any, a: Any, e: Any) -> Any:
        return k.pow(a, e)

    def vjp(b: Any, g: Any, x: Any, e: Any) -> Any:
        gx = ge = None
        if b.needs[0]:
            gx = aten.where(
                e == 0, aten.zeros((), dtype=g.dtype, device=g.device), g * conj(e * x.pow(e - 1))
            )
        if b.needs[1]:
            cond = aten.logical_and(x == 0, e >= 0) if not e.dtype.is_complex else x == 0
            ge = g * conj(
                aten.where(
                    cond, aten.zeros((), dtype=b.out.dtype, device=g.device), b.out * x.log()
                )
            )
        return gx, ge


class PowScalar(Pointwise):
    """self to the power of a number."""

    schema = "pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor"
    saves_by = ("exponent",)
    node_name = "Pow"

    def check(x: Any, e: Any) -> None:
        check_integer_power(x, e)

    @classmethod
    def bakes(cls, name: str, value: Any) -> bool:
        return value in _SPECIAL_EXPONENTS

    @classmethod
    def fast(cls, op: Any) -> Any:
        return None

    @classmethod
    def common_dtype(cls, op: Any, args: tuple[Any, ...]) -> dt.dtype:
        return no_complex_half("pow", super().common_dtype(op, args))

    def expr(k: Any, a: Any, e: Any) -> Any:
        return power(k, a, e)

    def vjp(b: Any, g: Any, x: Any, e: Any) -> Any:
        if e == 0:
            return aten.zeros_like(x)
        return g * conj(e * x.pow(e - 1))

    def samples(s: Any) -> Iterator[Any]:
        for e in (2, 3, 0.5, -1.5, 0, 1, -1):
            yield s.sample(s.tensor((3, 4), low=0.5), e)
        for shape in ((), (0, 3), (2, 3, 4, 5)):
            yield s.sample(s.tensor(shape, low=0.5), 3)


class PowNumber(Pointwise):
    """A number to the power of exponent."""

    schema = "pow.Scalar(Scalar self, Tensor exponent) -> Tensor"
    public = "function"
    inplace = False
    out = "Scalar_out"
    saves_by = ("self",)

    check = check_power

    @classmethod
    def iterated(cls, operands: Any) -> Any:  # the exponent's strides count for nothing
        (exponent,) = operands
        return exponent.shape, None

    @classmethod
    def fast(cls, op: Any) -> Any:
        return None

    def expr(k: Any, a: Any, e: Any) -> Any:
        return k.pow(a, e)

    def vjp(b: Any, g: Any, x: Any, e: Any) -> Any:
        if x == 0:
            zero = aten.zeros((), dtype=g.dtype, device=g.device)
            return g * aten.where(e == 0, zero, zero)
        import cmath  # lazy: only for complex and negative bases
        import math  # lazy: with it

        log = (
            math.log(x)
            if not isinstance(x, complex) and x > 0
            else cmath.log(x)
            if g.dtype.is_complex
            else math.nan
        )
        return g * conj(b.out * log)


class RemainderNumber(Pointwise):
    """A number modulo other, with the sign of other; torch gives it no derivative."""

    schema = "remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor"
    inplace = False
    out = False
    public = "function"
    number_operands = True

    def check(x: Any, y: Any) -> None:
        check_modulus("remainder", x, y)

    @classmethod
    def fast(cls, op: Any) -> Any:
        return None

    def expr(k: Any, a: Any, b: Any) -> Any:
        return k.remainder(a, b)


def same_out(source: Any, to: Any) -> None:
    """`check_out` of those whose out= is never converted."""
    raise RuntimeError(f"Found dtype {dt.scalar_name(to)} but expected {dt.scalar_name(source)}")


class Neg(Pointwise):
    """-self."""

    check_out = staticmethod(same_out)

    schema = "neg(Tensor self) -> Tensor"
    aliases = ("negative",)
    samples = unary_samples
    reference = "numpy.negative"

    def check(x: Any) -> None:
        if x.dtype is dt.bool_:
            raise RuntimeError(
                "Negation, the `-` operator, on a bool tensor is not supported. If you are trying "
                "to invert a mask, use the `~` or `logical_not()` operator instead."
            )

    def expr(k: Any, a: Any) -> Any:
        return -a

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return -g


class Abs(Pointwise):
    """|self|."""

    schema = "abs(Tensor self) -> Tensor"
    aliases = ("absolute",)
    promotion = "complex_to_real"
    samples = unary_samples
    reference = "numpy.abs"

    def check(x: Any) -> None:
        if x.dtype is dt.bool_:
            raise NotImplementedError("\"abs_cpu\" not implemented for 'Bool'")

    @classmethod
    def compute_into(cls, op: Op, target: Tensor, args: tuple[Any, ...]) -> None:
        if target.dtype.is_complex:
            raise RuntimeError("In-place abs is not supported for complex tensors.")
        super().compute_into(op, target, args)

    @classmethod
    def compute_out(cls, op: Op, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        if not args[0].dtype.is_complex and outs[0].dtype is not args[0].dtype:
            same_out(args[0].dtype, outs[0].dtype)
        return super().compute_out(op, outs, args)

    def expr(k: Any, a: Any) -> Any:
        return k.abs(a)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return g * aten.sgn(x)


class Sign(Pointwise):
    """-1, 0 or 1."""

    check_out = staticmethod(same_out)

    schema = "sign(Tensor self) -> Tensor"
    samples = unary_samples

    def expr(k: Any, a: Any) -> Any:
        return a if a.dtype == "bool" else k.sign(a)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return aten.zeros_like(g)


class Sgn(Pointwise):
    """self / |self|, 0 at 0."""

    schema = "sgn(Tensor self) -> Tensor"
    samples = unary_samples
    check_out = staticmethod(same_out)

    def expr(k: Any, a: Any) -> Any:
        if a.dtype == "bool":
            return a
        if not a.dtype.startswith("complex"):
            return k.sign(a)
        length = k.cast(k.abs(a), a.dtype)
        return k.where(k.abs(a) == 0, length, a / length)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        if not x.dtype.is_complex:
            return aten.zeros_like(g)
        # Across the unit circle's radius nothing changes: (g - s Re(conj(s) g)) / |x|.
        length, s = aten.abs(x), b.out
        across = g - s * aten.real(aten.conj(s) * g)
        return aten.where(length == 0, aten.zeros_like(g), across / length)


class Square(Composite):
    """self * self."""

    schema = "square(Tensor self) -> Tensor"
    inplace = True
    out = True

    def decompose(self: Tensor) -> Tensor:
        return aten.pow(self, 2)

    def decompose_inplace(self: Tensor) -> Tensor:
        return aten.pow_(self, 2)


class Reciprocal(Pointwise):
    """1 / self."""

    schema = "reciprocal(Tensor self) -> Tensor"
    promotion = "int_to_float"
    samples = unary_samples

    def expr(k: Any, a: Any) -> Any:
        return 1.0 / a

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return -g * conj(b.out * b.out)


def check_extreme(name: str) -> Any:
    def check(x: Any, y: Any) -> None:
        if x.dtype.is_complex or y.dtype.is_complex:
            raise RuntimeError(f"{name} does not support complex inputs.")

    return check


def _extreme(name: str) -> tuple[Any, Any]:
    def expr(k: Any, a: Any, b: Any) -> Any:
        if a.dtype == "bool":
            return a | b if name in ("maximum", "fmax") else a & b
        return getattr(k, name)(a, b)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        lose = x < y if name in ("maximum", "fmax") else x > y
        if name in ("fmax", "fmin"):
            wins = (x >= y if name == "fmax" else x <= y).logical_or(y.isnan())
            return aten.masked_fill(g, wins.logical_not(), 0), aten.masked_fill(g, wins, 0)
        tie = x == y
        half = aten.where(tie, g / 2, g)
        return (
            aten.masked_fill(half, lose, 0) if b.needs[0] else None,
            aten.masked_fill(half, (x > y) if name == "maximum" else (x < y), 0)
            if b.needs[1]
            else None,
        )

    return expr, vjp


class Maximum(Pointwise):
    """The larger of two; NaN wins. Ties share the gradient."""

    schema = "maximum(Tensor self, Tensor other) -> Tensor"
    check = check_extreme("maximum")
    inplace = False
    expr, vjp = _extreme("maximum")
    samples = binary_samples
    reference = "numpy.maximum"


class Minimum(Pointwise):
    """The smaller of two; NaN wins. Ties share the gradient."""

    schema = "minimum(Tensor self, Tensor other) -> Tensor"
    check = check_extreme("minimum")
    inplace = False
    expr, vjp = _extreme("minimum")
    samples = binary_samples
    reference = "numpy.minimum"


class Fmax(Pointwise):
    """The larger of two; NaN loses."""

    schema = "fmax(Tensor self, Tensor other) -> Tensor"
    inplace = False
    expr, vjp = _extreme("fmax")


class Fmin(Pointwise):
    """The smaller of two; NaN loses."""

    schema = "fmin(Tensor self, Tensor other) -> Tensor"
    inplace = False
    expr, vjp = _extreme("fmin")


class Addcmul(Pointwise):
    """self + value * tensor1 * tensor2."""

    old_form = True
    schema = "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"

    def expr(k: Any, a: Any, b: Any, c: Any, v: Any) -> Any:
        return k.fma(v * b, c, a)

    def vjp(b: Any, g: Any, x: Any, y: Any, z: Any, v: Any) -> Any:
        return (
            g,
            g * conj(z * v) if b.needs[1] else None,
            g * conj(y * v) if b.needs[2] else None,
        )


class Addcdiv(Pointwise):
    """self + value * tensor1 / tensor2."""

    old_form = True
    schema = "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor"

    def check(x: Any, y: Any, z: Any, v: Any) -> None:
        if dt.is_integral(y.dtype) and dt.is_integral(z.dtype):
            raise RuntimeError(
                "Integer division with addcdiv is no longer supported, and in a future  release "
                "addcdiv will perform a true division of tensor1 and tensor2. The historic addcdiv "
                "behavior can be implemented as (input + value * torch.trunc(tensor1 / "
                "tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / "
                "tensor2) for float inputs. The future addcdiv behavior is just the latter "
                "implementation: (input + value * tensor1 / tensor2), for all dtypes."
            )

    def expr(k: Any, a: Any, b: Any, c: Any, v: Any) -> Any:
        return a + v * b / c

    def vjp(b: Any, g: Any, x: Any, y: Any, z: Any, v: Any) -> Any:
        return (
            g,
            g * conj(v / z) if b.needs[1] else None,
            -g * conj(v * y / (z * z)) if b.needs[2] else None,
        )


def lerp(k: Any, a: Any, b: Any, w: Any) -> Any:
    """From the nearer end, so that w = 0 and w = 1 give the ends exactly."""
    far = k.abs(w) >= 0.5
    return k.fma(k.where(far, w - 1, w), b - a, k.where(far, b, a))


class LerpTensor(Pointwise):
    """self + weight * (end - self), weight a tensor."""

    schema = "lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor"

    def expr(k: Any, a: Any, b: Any, w: Any) -> Any:
        return lerp(k, a, b, w)

    def vjp(b: Any, g: Any, x: Any, y: Any, w: Any) -> Any:
        return (
            g * (1 - conj(w)) if b.needs[0] else None,
            g * conj(w) if b.needs[1] else None,
            g * conj(y - x) if b.needs[2] else None,
        )


class LerpScalar(Pointwise):
    """self + weight * (end - self)."""

    schema = "lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor"
    apart = ("weight",)

    def expr(k: Any, a: Any, b: Any, w: Any) -> Any:
        return lerp(k, a, b, w)

    def vjp(b: Any, g: Any, x: Any, y: Any, w: Any) -> Any:
        return g * (1 - conj(w)), g * conj(w)


def _clamp(k: Any, a: Any, low: Any, high: Any) -> Any:
    if low is not None:
        a = k.maximum(a, low)
    return a if high is None else k.minimum(a, high)


class ClampTensor(Pointwise):
    """self kept within tensors."""

    schema = "clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor"
    aliases = ("clip",)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)), s.tensor((5,), -1, 0), s.tensor((5,), 0, 1))
        yield s.sample(s.tensor((3, 4)), s.tensor((4,)))
        yield s.sample(s.tensor((3, 4)), None, s.tensor((3, 1)))
        yield s.sample(s.tensor(()), s.tensor(()))
        yield s.sample(s.tensor((0, 3)), s.tensor((3,)))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "At least one of .min. or .max. must not be None",
            s.tensor((2,)),
            None,
            None,
        )

    def check(x: Any, low: Any, high: Any) -> None:
        if low is None and high is None:
            raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")

    def expr(k: Any, a: Any, low: Any, high: Any) -> Any:
        return _clamp(k, a, low, high)

    def vjp(b: Any, g: Any, x: Any, low: Any, high: Any) -> Any:
        zero = aten.zeros((), dtype=g.dtype, device=g.device)
        inside = None
        if low is not None:
            inside = x >= low
        if high is not None:
            inside = x <= high if inside is None else aten.logical_and(inside, x <= high)
        grads = [aten.where(inside, g, zero) if b.needs[0] else None]
        if low is not None:
            below = None
            if b.needs[1]:
                below = x < low if high is None else (x < low).logical_and_(low < high)
            grads.append(None if below is None else aten.where(below, g, zero))
        if high is not None:
            above = None
            if b.needs[-1]:
                above = x > high if low is None else (x > high).logical_or_(high < low)
            grads.append(None if above is None else aten.where(above, g, zero))
        return tuple(grads)


class Clamp(Pointwise):
    """self kept within numbers; NaN stays."""

    schema = "clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"
    out = "out"
    aliases = ("clip",)

    def check(x: Any, low: Any, high: Any) -> None:
        if low is None and high is None:
            raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
        if x.dtype.is_complex:
            raise RuntimeError("clamp is not supported for complex types")

    def expr(k: Any, a: Any, low: Any, high: Any) -> Any:
        return _clamp(k, a, low, high)

    def vjp(b: Any, g: Any, x: Any, low: Any, high: Any) -> Any:
        if low is None:
            mask = x <= high
        elif high is None:
            mask = x >= low
        else:
            mask = aten.logical_and(x >= low, x <= high)
        return aten.where(mask, g, aten.zeros((), dtype=g.dtype, device=g.device))

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), -0.5, 0.5)
        yield s.sample(s.tensor((3, 4)), min=0.25)
        yield s.sample(s.tensor((0, 4)), max=0.25)
        yield s.sample(s.tensor(()), 0.0)
        yield s.sample(s.tensor((2, 3, 4, 5)), -1, 1)


class ClampMinTensor(Pointwise):
    """self, at least another tensor."""

    schema = "clamp_min.Tensor(Tensor self, Tensor min) -> Tensor"

    def expr(k: Any, a: Any, low: Any) -> Any:
        return k.maximum(a, low)

    def vjp(b: Any, g: Any, x: Any, low: Any) -> Any:
        zero = aten.zeros((), dtype=g.dtype, device=g.device)
        return aten.where(x >= low, g, zero), aten.where(x < low, g, zero)


class ClampMin(Pointwise):
    """self, at least a number."""

    schema = "clamp_min(Tensor self, Scalar min) -> Tensor"
    out = "out"

    def expr(k: Any, a: Any, low: Any) -> Any:
        return k.maximum(a, low)

    def vjp(b: Any, g: Any, x: Any, low: Any) -> Any:
        return aten.where(x >= low, g, aten.zeros((), dtype=g.dtype, device=g.device))


class ClampMaxTensor(Pointwise):
    """self, at most another tensor."""

    schema = "clamp_max.Tensor(Tensor self, Tensor max) -> Tensor"

    def expr(k: Any, a: Any, high: Any) -> Any:
        return k.minimum(a, high)

    def vjp(b: Any, g: Any, x: Any, high: Any) -> Any:
        zero = aten.zeros((), dtype=g.dtype, device=g.device)
        return aten.where(x <= high, g, zero), aten.where(x > high, g, zero)


class ClampMax(Pointwise):
    """self, at most a number."""

    schema = "clamp_max(Tensor self, Scalar max) -> Tensor"
    out = "out"

    def expr(k: Any, a: Any, high: Any) -> Any:
        return k.minimum(a, high)

    def vjp(b: Any, g: Any, x: Any, high: Any) -> Any:
        return aten.where(x <= high, g, aten.zeros((), dtype=g.dtype, device=g.device))


# ---- what Python's reflected operators are: functions, as in torch, and no operators ----


def _reflected(name: str, body: Any, aliases: tuple[str, ...] = ()) -> None:
    """`other op self`; operands that body refuses are left to other's class."""

    def reflected(self: Tensor, other: Any) -> Any:
        try:
            return body(self, other)
        except TypeError:
            return NotImplemented

    reflected.__name__, reflected.__qualname__ = name, f"Tensor.{name}"
    for n in (name, *aliases):
        METHODS[n] = overridable(reflected)
    OPERATORS[name] = _native.Function(name, METHODS[name])


METHODS: dict[str, Any] = {}
OPERATORS: dict[str, Any] = {}
_reflected("__rsub__", lambda x, y: aten.rsub(x, y))
_reflected("__rdiv__", lambda x, y: x.reciprocal() * y, ("__rtruediv__",))
_reflected("__rpow__", lambda x, y: aten.pow(y, x))
_reflected("__rmod__", lambda x, y: aten.remainder(y, x))
_reflected("__rfloordiv__", lambda x, y: aten.floor_divide(y, x))
_reflected("__rmatmul__", lambda x, y: aten.matmul(y, x))
