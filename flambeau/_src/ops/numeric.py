"""Functions of numbers as such: signs, exponents, divisors, angles, parts of complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import info
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import store, wide
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Pointwise, cast, scalar_tensor
from flambeau._src.ops.op import Op
from flambeau._src.ops.pointwise import binary_samples, broadcast_errors, conj, unary_samples
from flambeau._src.ops.promote import only_floating, refuse, result_type

PI = 3.141592653589793


class Computed(Pointwise):
    """A function of elements that takes loops of its own: `values(*arrays)` gives the results."""

    values: Callable[..., Any]

    @classmethod
    def fast(cls, op: Op) -> Any:
        return None

    @classmethod
    def compute(cls, op: Op, outs: Any, args: tuple[Any, ...]) -> None:
        import numpy as np  # lazy: NumPy is heavy

        outs = outs if isinstance(outs, tuple) else (outs,)
        common = cls.common_dtype(op, args)
        arrays = [wide(cast(a, common)) if isinstance(a, Tensor) else a for a in args]
        with np.errstate(all="ignore"):
            found = cls.values(*arrays)
        for out, value in zip(outs, found if isinstance(found, tuple) else (found,), strict=True):
            store(out, value)


# ---- degrees, signs, neighbours ----


def _angle_unit(name: str, factor: float) -> None:
    def check(x: Any) -> None:
        if x.dtype.is_complex:
            raise RuntimeError(f"{name} is not supported for complex tensors.")

    def expr(k: Any, a: Any) -> Any:
        return a * factor

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return g * factor

    def iterated(cls: Any, operands: Any) -> Any:  # of a product with a number
        return slot("broadcast_geometry")([*operands, scalar_tensor(factor, dt.float32)])

    type(name.capitalize(), (Pointwise,), {
        "__doc__": f"{name}(self).", "__module__": __name__, "promotion": "int_to_float",
        "schema": f"{name}(Tensor self) -> Tensor", "reference": f"numpy.{name}",
        "check": check, "expr": expr, "vjp": vjp, "samples": unary_samples,
        "lies_like_self": True, "iterated": classmethod(iterated),
    })  # fmt: skip


_angle_unit("deg2rad", PI / 180)
_angle_unit("rad2deg", 180 / PI)


class Copysign(Pointwise):
    """|self| with the sign of other."""

    schema = "copysign.Tensor(Tensor self, Tensor other) -> Tensor"
    promotion = "int_to_float"
    out = "out"
    samples = binary_samples
    error_samples = broadcast_errors
    reference = "numpy.copysign"

    def check(x: Any, y: Any) -> None:
        common = result_type((x, y))
        if common.is_complex:
            refuse("copysign_cpu", common)

    def expr(k: Any, a: Any, b: Any) -> Any:
        return k.copysign(a, b)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        gx = None
        if b.needs[0]:  # the sign, as the quotient that it is: NaN where x is infinite
            gx = g * aten.masked_fill(aten.div(b.out, x), aten.eq(x, 0), 0)
        return gx, aten.zeros_like(g) if b.needs[-1] and isinstance(y, Tensor) else None


class CopysignNumber(Copysign):
    """|self| with the sign of a number."""

    schema = "copysign.Scalar(Tensor self, Scalar other) -> Tensor"
    number_operands = True
    out = "Scalar_out"

    @classmethod
    def fast(cls, op: Op) -> Any:
        return None

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), -1.5)
        yield s.sample(s.tensor((0, 4)), 2)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(TypeError, "invalid combination", s.tensor((2,)), None)


class Heaviside(Pointwise):
    """0 below zero, 1 above it, `values` at it."""

    schema = "heaviside(Tensor self, Tensor values) -> Tensor"
    no_formula = True
    samples = binary_samples
    reference = "numpy.heaviside"

    def error_samples(s: Any) -> Iterator[Any]:
        yield from broadcast_errors(s)
        x = s.tensor((3,), dtype=dt.float32)
        wide = s.tensor((3,), dtype=dt.float64)
        yield s.error(RuntimeError, "tensors with different dtypes", x, x, out=wide)

    def check(x: Any, y: Any) -> None:
        if x.dtype.is_complex or y.dtype.is_complex:
            raise RuntimeError("heaviside is not yet implemented for complex tensors.")
        if x.dtype is not y.dtype:
            raise RuntimeError(
                "heaviside is not yet implemented for tensors with different dtypes."
            )

    @staticmethod
    def check_out(source: dt.dtype, to: dt.dtype) -> None:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")

    def expr(k: Any, a: Any, b: Any) -> Any:
        if a.dtype == "bool":
            return a | b
        return k.where(a == 0, b, k.cast(a > 0, a.dtype))


class Nextafter(Computed):
    """The number next to self on the way to other, in the operands' own format."""

    schema = "nextafter(Tensor self, Tensor other) -> Tensor"
    error_samples = broadcast_errors
    check = only_floating("nextafter_cpu")

    @classmethod
    def compute(cls, op: Op, outs: Any, args: tuple[Any, ...]) -> None:
        import numpy as np  # lazy: NumPy is heavy

        common = cls.common_dtype(op, args)
        x, y = (cast(a, common) for a in args)
        with np.errstate(all="ignore"):
            if common is dt.bfloat16:
                store(outs, _next_bfloat16(wide(x), wide(y)))
            elif common is dt.float16:
                narrow = (wide(v).astype(np.float16) for v in (x, y))
                store(outs, np.nextafter(*narrow).astype(np.float32))
            else:
                store(outs, np.nextafter(wide(x), wide(y)))

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return aten.where(aten.ne(x, y), g, 0.0), aten.zeros_like(g)


def _next_bfloat16(x: Any, y: Any) -> Any:
    """bfloat16 neighbours: the upper half of float32's bits, one more or one less."""
    import numpy as np  # lazy: NumPy is heavy

    x, y = np.broadcast_arrays(x, y)
    bits = (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.int64)
    sign, size = bits >> 15, bits & 0x7FFF
    away = (y > x) == (sign == 0)
    moved = np.where(away, size + 1, size - 1) | (sign << 15)
    moved = np.where(size == 0, np.where(y < 0, 0x8001, 1), moved)
    near = (moved.astype(np.uint32) << 16).view(np.float32)
    return np.where(np.isnan(x) | np.isnan(y), np.float32(np.nan), np.where(x == y, y, near))


# ---- exponents ----


class Ldexp(Pointwise):
    """self * 2 ** other."""

    schema = "ldexp.Tensor(Tensor self, Tensor other) -> Tensor"
    promotion = "int_to_float"
    out = "out"
    samples = binary_samples
    error_samples = broadcast_errors
    reference = "tests.ops.references:times_power"

    def check(x: Tensor, n: Tensor) -> None:
        if n.dtype is dt.bool_ and not dt.is_integral(x.dtype):
            refuse("ldexp_cpu_exp", n.dtype)

    def expr(k: Any, a: Any, n: Any) -> Any:
        return a * (k.pow(k.const(2.0), n) if n.dtype.startswith("complex") else k.exp2(n))

    def vjp(b: Any, g: Any, x: Any, n: Any) -> Any:
        gx = g * conj(aten.pow(2.0, n)) if b.needs[0] else None
        return gx, g * conj(b.out) * 0.6931471805599453 if b.needs[1] else None


class Frexp(Computed):
    """self as mantissa in ±[1/2, 1) times two to an exponent."""

    schema = "frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)"
    inplace = False
    out = "Tensor_out"
    out_args = ("mantissa", "exponent")
    differentiable = (0,)
    n_outputs = 2
    lies_like_self = True
    samples = unary_samples
    reference = "tests.ops.references:mantissa"

    def check(x: Any) -> None:
        if not x.dtype.is_floating_point:
            raise RuntimeError("torch.frexp() only supports floating-point dtypes")

    @classmethod
    def infer(cls, op: Op, args: tuple[Any, ...]) -> Any:
        first, second = super().infer(op, args)
        return first, type(second)(second.shape, dt.int32, second.device, second.stride)

    def values(x: Any) -> Any:
        import numpy as np  # lazy: NumPy is heavy

        return np.frexp(x)

    def vjp(b: Any, grads: Any, x: Any) -> Any:
        return grads[0] / aten.pow(2.0, b.outs[1].detach())


class Logaddexp2(Pointwise):
    """log2(2 ** self + 2 ** other), from the larger of the two."""

    schema = "logaddexp2(Tensor self, Tensor other) -> Tensor"
    inplace = False
    samples = binary_samples
    error_samples = broadcast_errors
    check = only_floating("logaddexp2_cpu")
    reference = "numpy.logaddexp2"

    def expr(k: Any, a: Any, b: Any) -> Any:
        m = k.maximum(a, b)
        more = k.log1p(k.exp2(-k.abs(a - b))) * 1.4426950408889634
        return k.where(k.isinf(a) & (a == b), m, m + more)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return (
            g / (1 + aten.exp2(y - x)) if b.needs[0] else None,
            g / (1 + aten.exp2(x - y)) if b.needs[1] else None,
        )


def _float_power(schema: str, public: str, inplace: str | bool) -> None:
    def powers(x: Any, e: Any) -> tuple[Any, Any]:
        wanted = dt.complex128 if result_type((x, e)).is_complex else dt.float64
        moved = [
            v.to(wanted) if isinstance(v, Tensor) else complex(v) if wanted.is_complex else float(v)
            for v in (x, e)
        ]
        return moved[0], moved[1]

    def decompose(x: Any, e: Any) -> Any:
        return aten.pow(*powers(x, e))

    def decompose_inplace(x: Any, e: Any) -> Any:
        wanted = dt.complex128 if result_type((x, e)).is_complex else dt.float64
        if x.dtype is not wanted:
            raise RuntimeError(
                f"the base given to float_power_ has dtype {dt.scalar_name(x.dtype)} but the "
                f"operation's result requires dtype {dt.scalar_name(wanted)}"
            )
        return aten.pow_(*powers(x, e))

    type("FloatPower", (Composite,), {
        "__doc__": "self ** exponent in double precision.", "__module__": __name__,
        "schema": schema, "decompose": decompose, "decompose_inplace": decompose_inplace,
        "public": public, "inplace": inplace, "out": True,
    })  # fmt: skip


for _name, _head, _inplace in (
    ("Tensor_Tensor", "Tensor self, Tensor exponent", "Tensor"),
    ("Tensor_Scalar", "Tensor self, Scalar exponent", "Scalar"),
    ("Scalar", "Scalar self, Tensor exponent", ""),
):
    _float_power(
        f"float_power.{_name}({_head}) -> Tensor",
        "function, method" if _inplace else "function",
        f"float_power_.{_inplace}(Tensor(a!) {_head[7:]}) -> Tensor(a!)" if _inplace else False,
    )


# ---- divisors ----


def _divisors(name: str, decompose: Any = None) -> None:
    def check(x: Any, y: Any) -> None:
        common = result_type((x, y))
        if not dt.is_integral(common) or common is dt.bool_:
            refuse(f"{name}_cpu", common)

    def values(x: Any, y: Any) -> Any:
        import numpy as np  # lazy: NumPy is heavy

        return getattr(np, name)(x, y)

    def samples(s: Any) -> Iterator[Any]:
        for a, b in (((3, 4), (3, 4)), ((3, 1), (1, 4)), ((), (2,)), ((0, 3), (3,))):
            yield s.sample(s.ints(a, -30, 30), s.ints(b, 0, 30))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(NotImplementedError, f"{name}_cpu", s.tensor((2,)), s.tensor((2,)))

    type(name, (Computed,), {
        "__doc__": f"The {name} of integers.", "__module__": __name__, "check": check,
        "schema": f"{name}(Tensor self, Tensor other) -> Tensor", "values": staticmethod(values),
        "samples": samples, "error_samples": error_samples, "reference": f"numpy.{name}",
        "differentiable": False, "whole": decompose is not None, "decompose": decompose,
    })  # fmt: skip


def _least_multiple(x: Tensor, y: Tensor) -> Tensor:
    shared = aten.gcd(x, y)
    part = aten.div(x, aten.masked_fill(shared, aten.eq(shared, 0), 1), rounding_mode="trunc")
    return aten.abs(aten.mul(part, y))


_divisors("gcd")
_divisors("lcm", _least_multiple)


# ---- what is no number made one ----


class NanToNum(Pointwise):
    """NaN and the infinities replaced: by 0 and the format's extremes, or by what is given."""

    schema = (
        "nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor"
    )
    reference = "numpy.nan_to_num"
    lies_like_self = True

    @staticmethod
    def check_out(source: dt.dtype, to: dt.dtype) -> None:
        raise RuntimeError(
            f"nan_to_num: dtype of out: {dt.scalar_name(to)} should be same as input: "
            f"{dt.scalar_name(source)}"
        )

    def samples(s: Any) -> Iterator[Any]:
        x = s.tensor((3, 4))
        x[0, 0], x[1, 1], x[2, 2] = float("nan"), float("inf"), float("-inf")
        yield s.sample(x, nan=1.0, posinf=2.0, neginf=3.0)
        yield s.sample(x, posinf=1.5, neginf=0.5)
        yield s.sample(s.tensor(()))
        yield s.sample(s.tensor((0, 2)), nan=1.0)

    @classmethod
    def fast(cls, op: Op) -> Any:
        return None

    @classmethod
    def bakes(cls, name: str, value: Any) -> bool:
        return True

    @classmethod
    def settle(cls, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x, nan, high, low = args
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            return args
        own: Any = info.finfo(dt.REAL_OF.get(x.dtype, x.dtype))
        return (
            x,
            0.0 if nan is None else float(nan),
            own.max if high is None else float(high),
            own.min if low is None else float(low),
        )

    def expr(k: Any, a: Any, nan: Any, high: Any, low: Any) -> Any:
        if a.dtype.startswith("complex"):
            parts = (_mended(k, p, nan, high, low) for p in (k.real(a), k.imag(a)))
            return k.complex(*parts)
        return _mended(k, a, nan, high, low) if a.dtype.startswith("float") else a

    def vjp(b: Any, g: Any, x: Any, *numbers: Any) -> Any:
        if x.dtype.is_complex:
            real, imag = aten.real(x), aten.imag(x)
            return aten.complex(aten.real(g) * real.isfinite(), aten.imag(g) * imag.isfinite())
        return g * aten.isfinite(x)


def _mended(k: Any, a: Any, nan: Any, high: Any, low: Any) -> Any:
    big = k.where(a > 0, k.const(high), k.const(low))
    return k.where(k.isnan(a), nan, k.where(k.isinf(a), big, a))


# ---- complex numbers ----


class Angle(Pointwise):
    """The argument of a complex number; 0 or π of real ones."""

    schema = "angle(Tensor self) -> Tensor"
    promotion = "int_to_float"
    inplace = False
    samples = unary_samples
    reference = "numpy.angle"

    @classmethod
    def result_dtype(cls, common: dt.dtype) -> dt.dtype:
        return dt.REAL_OF.get(common, common)

    def expr(k: Any, a: Any) -> Any:
        if a.dtype.startswith("complex"):
            return k.atan2(k.imag(a), k.real(a))
        return k.where(k.isnan(a), a, k.where(a < 0, PI, 0.0))

    def vjp(b: Any, g: Any, x: Any) -> Any:
        if not x.dtype.is_complex:
            return aten.zeros_like(g)
        across = g * x / aten.square(aten.abs(x)) * 1j
        return aten.where(x == 0, aten.zeros((), dtype=x.dtype, device=x.device), across)


_COMPLEX = {dt.float16: dt.complex32, dt.float32: dt.complex64, dt.float64: dt.complex128}


def check_parts(x: Tensor, y: Tensor) -> None:
    """Two real tensors of one floating type."""
    if x.dtype not in _COMPLEX or y.dtype not in _COMPLEX:
        raise RuntimeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{dt.scalar_name(x.dtype)} and {dt.scalar_name(y.dtype)}"
        )
    if x.dtype is not y.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {dt.scalar_name(x.dtype)} but got scalar type "
            f"{dt.scalar_name(y.dtype)} for second argument"
        )


class Parts(Pointwise):
    """A complex tensor of two real ones."""

    inplace = False
    out = True
    out_dtype = "exact"
    public = "function"
    takes16 = False
    check = check_parts

    @classmethod
    def fast(cls, op: Op) -> Any:
        return None

    @classmethod
    def result_dtype(cls, common: dt.dtype) -> dt.dtype:
        return _COMPLEX[common]

    def check_out(source: Any, to: Any) -> None:
        raise RuntimeError(
            f"Expected object of scalar type {dt.scalar_name(source)} but got scalar type "
            f"{dt.scalar_name(to)} for argument 'out'"
        )


class Complex(Parts):
    """real + i imag."""

    schema = "complex(Tensor real, Tensor imag) -> Tensor"
    samples = binary_samples
    error_samples = broadcast_errors
    reference = "tests.ops.references:cartesian"

    def expr(k: Any, a: Any, b: Any) -> Any:
        return k.complex(a, b)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return aten.real(g) if b.needs[0] else None, aten.imag(g) if b.needs[1] else None


class Polar(Parts):
    """abs (cos angle + i sin angle)."""

    schema = "polar(Tensor abs, Tensor angle) -> Tensor"
    samples = binary_samples
    error_samples = broadcast_errors
    reference = "tests.ops.references:polar"

    def check(x: Tensor, y: Tensor) -> None:
        check_parts(x, y)
        if x.dtype is dt.float16:
            refuse("polar_cpu", x.dtype)

    def expr(k: Any, a: Any, t: Any) -> Any:
        return k.complex(a * k.cos(t), a * k.sin(t))

    def vjp(b: Any, g: Any, x: Any, t: Any) -> Any:
        back = aten.conj(g)
        gx = aten.real(back * aten.sgn(b.out)) if b.needs[0] else None
        return gx, aten.real(back * (b.out * 1j)) if b.needs[1] else None


class Isreal(Composite):
    """Whether the imaginary part is zero."""

    schema = "isreal(Tensor self) -> Tensor"

    def decompose(x: Tensor) -> Any:
        if x.dtype.is_complex:
            return aten.imag(x) == 0
        return aten.ones_like(x, dtype=dt.bool_)


class Positive(Composite):
    """self itself; refused for truth values."""

    schema = "positive(Tensor(a) self) -> Tensor(a)"

    def decompose(x: Tensor) -> Any:
        if x.dtype is dt.bool_:
            raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
        return x
