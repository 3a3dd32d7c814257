"""Elementary functions, element by element: each one line of value and one of slope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Pointwise
from flambeau._src.ops.pointwise import binary_samples, conj, same_out, unary_samples
from flambeau._src.ops.promote import floating_or_complex, only_floating


class Elementary(Pointwise):
    """A function of one floating argument; integers become the default dtype."""

    promotion = "int_to_float"
    samples = unary_samples


def _unary(name: str, slope: Any, value: Any = None, domain: Any = None, **more: Any) -> type:
    """slope(g, x, out) is the gradient; value(k, x) the expression (default: k.<name>)."""

    def expr(k: Any, a: Any) -> Any:
        return value(k, a) if value else getattr(k, name)(a)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return slope(g, x, b)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 4), (), (0, 2), (2, 3, 4, 5), (67,)):
            yield s.sample(s.tensor(shape, *domain))

    if domain:
        more["samples"] = samples
    return type(
        name.capitalize(),
        (Elementary,),
        {
            "__doc__": f"{name}(self).",
            "__module__": __name__,
            "schema": f"{name}(Tensor self) -> Tensor",
            "expr": expr,
            "vjp": vjp,
            "reference": f"numpy.{name}",
            **more,
        },
    )


_unary("exp", lambda g, x, b: g * conj(b.out))
_unary("exp2", lambda g, x, b: g * conj(b.out) * 0.6931471805599453)
_unary("expm1", lambda g, x, b: g * (conj(b.out) + 1))
_unary("log", lambda g, x, b: g / conj(x), domain=(0.1, 3.0))
_unary("log2", lambda g, x, b: g / conj(x * 0.6931471805599453), domain=(0.1, 3.0))
_unary("log10", lambda g, x, b: g / conj(x * 2.302585092994046), domain=(0.1, 3.0))
_unary("log1p", lambda g, x, b: g / conj(x + 1), domain=(-0.9, 3.0))
_unary("sqrt", lambda g, x, b: g / (2 * conj(b.out)), domain=(0.1, 3.0))
_unary(
    "rsqrt",
    lambda g, x, b: -0.5 * g * conj(b.out.pow(3)),
    reference="tests.ops.references:rsqrt",
    domain=(0.1, 3.0),
)
_unary("sin", lambda g, x, b: g * conj(x.cos()))
_unary("cos", lambda g, x, b: g * -conj(x.sin()))
_unary("tan", lambda g, x, b: g * conj(1 + b.out.pow(2)), domain=(-1.2, 1.2))
_unary(
    "asin",
    lambda g, x, b: g * conj((-x * x + 1).rsqrt()),
    aliases=("arcsin",),
    reference="numpy.arcsin",
    domain=(-0.9, 0.9),
)
_unary(
    "acos",
    lambda g, x, b: g * -conj((-x * x + 1).rsqrt()),
    aliases=("arccos",),
    reference="numpy.arccos",
    domain=(-0.9, 0.9),
)
_unary("atan", lambda g, x, b: g / conj(x * x + 1), aliases=("arctan",), reference="numpy.arctan")
_unary("sinh", lambda g, x, b: g * conj(x.cosh()))
_unary("cosh", lambda g, x, b: g * conj(x.sinh()))
_unary(
    "asinh",
    lambda g, x, b: g * conj((x.pow(2) + 1).rsqrt()),
    aliases=("arcsinh",),
    reference="numpy.arcsinh",
)
_unary(
    "acosh",
    lambda g, x, b: (
        g * conj((x - 1).rsqrt() * (x + 1).rsqrt())
        if x.dtype.is_complex  # the branch cut needs both roots
        else g * (x.pow(2) - 1).rsqrt()
    ),
    aliases=("arccosh",),
    reference="numpy.arccosh",
    domain=(1.1, 3.0),
)
_unary(
    "atanh",
    lambda g, x, b: g / conj(1 - x.pow(2)),
    aliases=("arctanh",),
    reference="numpy.arctanh",
    domain=(-0.9, 0.9),
)
_unary(
    "erf",
    lambda g, x, b: 1.1283791670955126 * aten.exp(-(x.pow(2))) * g,
    reference="scipy.special.erf",
)
_unary(
    "erfc",
    lambda g, x, b: -1.1283791670955126 * aten.exp(-(x.pow(2))) * g,
    reference="scipy.special.erfc",
)
_unary(
    "erfinv",
    lambda g, x, b: 0.886226925452758 * aten.exp(b.out.pow(2)) * g,
    reference="scipy.special.erfinv",
    domain=(-0.9, 0.9),
)
_unary(
    "lgamma",
    lambda g, x, b: g * aten.digamma(x),
    reference="scipy.special.gammaln",
    domain=(0.2, 3.0),
)


def trigamma(k: Any, x: Any) -> Any:
    """The second derivative of log Γ: reflected below 1/2, shifted by 8, then the asymptotic series
    (Abramowitz and Stegun 6.4.12)."""
    small = x < 0.5
    y = k.where(small, 1 - x, x)
    total = 1.0 / (y * y)  # no sum that starts with y * 0: y may be infinite
    y = y + 1
    for _ in range(7):
        total = total + 1.0 / (y * y)
        y = y + 1
    r = 1.0 / y
    q = r * r
    total = (
        total
        + r
        + q / 2
        + r * q * (1 / 6 - q * (1 / 30 - q * (1 / 42 - q * (1 / 30 - q * (5 / 66)))))
    )
    sine = k.sin(x * 3.141592653589793)
    return k.where(small, 9.869604401089358 / (sine * sine) - total, total)


def tetragamma(k: Any, x: Any) -> Any:
    """The third derivative of log Γ (ibid. 6.4.6, 6.4.13): shifted by 16, the small terms added
    first, and reflected below -6 only: the sum crosses 0 between poles, where the two parts of the
    reflection (its argument reduced first) would cancel. Beside a zero float32 has no digits left:
    it is computed in double."""
    kind = x.dtype
    x = k.cast(x, "float64")
    small = x < -6
    start = k.where(small, 1 - x, x)
    r = 1.0 / (start + 16)
    q = r * r
    total = q * (1 + r + q * (1 / 2 - q * (1 / 6 - q * (1 / 6 - q * (3 / 10 - q * (5 / 6))))))
    for n in reversed(range(16)):
        y = start + n
        total = total + 2.0 / (y * y * y)
    turn = (x - k.round(x)) * 3.141592653589793
    sine = k.sin(turn)
    reflected = -total - 62.01255336059963 * k.cos(turn) / (sine * sine * sine)
    value = k.where(small, reflected, k.where(k.isinf(x), float("nan"), -total))
    return k.cast(k.where((x <= 0) & (x == k.floor(x)), float("-inf"), value), kind)


_unary(
    "special_tetragamma",
    lambda g, x, b: g * aten.polygamma(3, x),
    tetragamma,
    public="",
    reference="tests.ops.references:tetragamma",
    domain=(-3.4, 3.0),
)
_unary(
    "special_trigamma",
    lambda g, x, b: g * aten.special_tetragamma(x),
    trigamma,
    public="",
    reference=None,
    domain=(0.2, 3.0),
)
_unary(
    "digamma",
    lambda g, x, b: g * aten.special_trigamma(x),
    reference="scipy.special.digamma",
    domain=(0.2, 3.0),
)


def _sinc_slope(g: Any, x: Any, turn: Any, square: Any) -> Any:
    sine = turn.sin()  # first: the sums of the second derivative are then in PyTorch's order
    slope = (turn * turn.cos() - sine) / square
    return aten.masked_fill(g * conj(slope), square == 0, 0)


_unary("tanh", lambda g, x, b: aten.tanh_backward(g, b.out))
_unary("sigmoid", lambda g, x, b: aten.sigmoid_backward(g, b.out), reference="scipy.special.expit")
_unary(
    "sinc",
    lambda g, x, b: _sinc_slope(g, x, x * 3.141592653589793, x * x * 3.141592653589793),
    lambda k, a: k.where(a == 0, a * 0 + 1, k.sin(a * 3.141592653589793) / (a * 3.141592653589793)),
)


class Rounding(Pointwise):
    """To a whole number; the slope is zero."""

    check_out = staticmethod(same_out)

    samples = unary_samples

    def vjp(b: Any, g: Any, x: Any, *rest: Any) -> Any:
        return aten.zeros_like(g)


def _rounding(name: str) -> None:
    def expr(k: Any, a: Any) -> Any:
        return getattr(k, name)(a) if a.dtype in ("float32", "float64") else a

    type(
        name,
        (Rounding,),
        {
            "schema": f"{name}(Tensor self) -> Tensor",
            "expr": expr,
            "__module__": __name__,
            "aliases": ("fix",) if name == "trunc" else (),
        },
    )


for _name in ("floor", "ceil", "trunc", "round"):
    _rounding(_name)


class RoundDecimals(Rounding):
    """Rounded to so many decimals."""

    schema = "round.decimals(Tensor self, *, int decimals=0) -> Tensor"
    apart = ("decimals",)

    @classmethod
    def bakes(cls, name: str, value: Any) -> bool:
        return True

    def expr(k: Any, a: Any, decimals: int) -> Any:
        if a.dtype not in ("float32", "float64"):
            return a
        scale = 10.0 ** abs(decimals)
        return k.round(a * scale) / scale if decimals >= 0 else k.round(a / scale) * scale


class Frac(Pointwise):
    """The part after the point."""

    check_out = staticmethod(same_out)

    schema = "frac(Tensor self) -> Tensor"

    def expr(k: Any, a: Any) -> Any:
        return a - k.trunc(a)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return g


class Atan2(Pointwise):
    """The angle of (other, self)."""

    schema = "atan2(Tensor self, Tensor other) -> Tensor"
    promotion = "int_to_float"
    aliases = ("arctan2",)
    samples = binary_samples
    reference = "numpy.arctan2"

    def expr(k: Any, a: Any, b: Any) -> Any:
        return k.atan2(a, b)

    def vjp(b: Any, g: Any, y: Any, x: Any) -> Any:
        square = x * x + y * y
        r = square.reciprocal().masked_fill(square == 0, 0)  # no direction at the origin
        return g * x * r if b.needs[0] else None, g * -y * r if b.needs[1] else None


class Hypot(Pointwise):
    """sqrt(self² + other²)."""

    schema = "hypot(Tensor self, Tensor other) -> Tensor"
    samples = binary_samples
    check = only_floating("hypot_cpu")
    reference = "numpy.hypot"

    def expr(k: Any, a: Any, b: Any) -> Any:
        return k.hypot(a, b)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return g * x / b.out if b.needs[0] else None, g * y / b.out if b.needs[1] else None


class Logaddexp(Pointwise):
    """log(exp(self) + exp(other)), from the larger of the two."""

    schema = "logaddexp(Tensor self, Tensor other) -> Tensor"
    check = floating_or_complex("logaddexp_cpu")
    inplace = False
    samples = binary_samples
    reference = "numpy.logaddexp"

    def expr(k: Any, a: Any, b: Any) -> Any:
        if a.dtype.startswith("complex"):
            less = k.real(a) < k.real(b)
            m = k.where(less, b, a)
            return m + k.log1p(k.exp(k.where(less, a, b) - m))
        m = k.maximum(a, b)
        return k.where(k.isinf(a) & (a == b), m, m + k.log1p(k.exp(-k.abs(a - b))))

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return (
            g / conj(1 + aten.exp(y - x)) if b.needs[0] else None,
            g / conj(1 + aten.exp(x - y)) if b.needs[1] else None,
        )
