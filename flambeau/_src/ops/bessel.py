"""Bessel, Airy and related functions, element by element.

Chebyshev series (coefficients in `series.py`) on both sides of a border; beyond it with the leading
behaviour taken out (Abramowitz and Stegun, 9.2, 9.7 and 10.4). Computed in double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau._src.core import info
from flambeau._src.ops import series
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import SIXTEEN, Composite, Pointwise
from flambeau._src.ops.numeric import PI
from flambeau._src.ops.promote import refuse

INFINITY = float("inf")
EXP_END = 88.722839  # exp of more is no float32: torch's I overflow there, before they need to


def chebyshev(t: Any, coefficients: Sequence[float]) -> Any:
    """The sum of c[i] T_i(t), by Clenshaw's recurrence."""
    later, latest = t * 0, t * 0
    twice = t + t
    for c in reversed(coefficients[1:]):
        later, latest = twice * later - latest + c, later
    return t * later - latest + coefficients[0]


def wide(k: Any, x: Any) -> Any:
    """x in double precision."""
    return k.cast(x, "float64")


def beyond(x: Any, border: float) -> Any:
    """The variable of a series in 1/x on [border, ∞): it runs from 1 to -1."""
    return 2 * border / x - 1


def scaled_i(k: Any, order: int, a: Any) -> Any:
    """exp(-a) I(a) of order 0 or 1, for a ≥ 0."""
    near_c, far_c = (series.I1_NEAR, series.I1_FAR) if order else (series.I0_NEAR, series.I0_FAR)
    near = chebyshev(k.minimum(a, 8.0) / 4 - 1, near_c)
    near = near * a if order else near
    b = k.maximum(a, 8.0)
    return k.where(a <= 8, near, chebyshev(beyond(b, 8.0), far_c) / k.sqrt(b))


def modified_i(k: Any, order: int, x: Any, scaled: bool) -> Any:
    a = k.abs(x)
    value = scaled_i(k, order, a)
    value = value if scaled else k.where(k.isinf(a), float("nan"), value * k.exp(a))
    return k.where(k.isnan(x), x, k.where(x < 0, -value, value) if order else value)


def modified_k(k: Any, order: int, x: Any, scaled: bool) -> Any:
    """K(x) of order 0 or 1, times exp(x) where scaled; ∞ at 0, NaN below."""
    near_c, far_c = (series.K1_NEAR, series.K1_FAR) if order else (series.K0_NEAR, series.K0_FAR)
    a = k.minimum(k.abs(x), 2.0)
    product = k.log(a / 2) * scaled_i(k, order, a) * k.exp(a)
    smooth = chebyshev(a * a / 2 - 1, near_c)
    near = product + smooth / a if order else smooth - product
    b = k.maximum(x, 2.0)
    far = chebyshev(beyond(b, 2.0), far_c) / k.sqrt(b)
    near, far = (near * k.exp(a), far) if scaled else (near, far * k.exp(-b))
    value = k.where(x <= 2, near, far)
    return k.where(x == 0, INFINITY, k.where(x < 0, float("nan"), k.where(k.isnan(x), x, value)))


def _waves(k: Any, order: int, a: Any) -> tuple[Any, Any, Any]:
    """(√(2/πa), P, Q) with J = √(2/πa) (P cos θ - Q sin θ), for a ≥ 8."""
    p, q = (series.J1_P, series.J1_Q) if order else (series.J0_P, series.J0_Q)
    t = 128.0 / (a * a) - 1
    return k.sqrt(2 / PI / a), chebyshev(t, p), chebyshev(t, q) / a


def bessel_j(k: Any, order: int, x: Any) -> Any:
    a = k.abs(x)
    s = k.minimum(a, 8.0)
    near = chebyshev(s * s / 32 - 1, series.J1_NEAR if order else series.J0_NEAR)
    near = near * s if order else near
    b = k.maximum(a, 8.0)
    size, p, q = _waves(k, order, b)
    angle = b - (0.75 * PI if order else 0.25 * PI)
    far = size * (p * k.cos(angle) - q * k.sin(angle))
    value = k.where(a <= 8, near, k.where(k.isinf(a), float("nan"), far))
    value = k.where(x < 0, -value, value) if order else value
    return k.where(k.isnan(x), x, value)


def bessel_y(k: Any, order: int, x: Any) -> Any:
    s = k.minimum(k.abs(x), 8.0)
    near = chebyshev(s * s / 32 - 1, series.Y1_NEAR if order else series.Y0_NEAR)
    turn = k.log(s) * bessel_j(k, order, s)
    near = near * s + 2 / PI * (turn - 1.0 / s) if order else near + 2 / PI * turn
    b = k.maximum(x, 8.0)
    size, p, q = _waves(k, order, b)
    angle = b - (0.75 * PI if order else 0.25 * PI)
    far = size * (p * k.sin(angle) + q * k.cos(angle))
    value = k.where(x <= 8, near, k.where(k.isinf(b), float("nan"), far))
    value = k.where(x == 0, -INFINITY, k.where(x < 0, float("nan"), value))
    return k.where(k.isnan(x), x, value)


_AIRY = 2.09


def airy(k: Any, x: Any) -> Any:
    """Ai: a series around 0, decay above it, a wave below (Abramowitz and Stegun 10.4.59-60)."""
    zeta_0 = 2 / 3 * _AIRY**1.5
    mid = chebyshev(k.maximum(k.minimum(x, _AIRY), -_AIRY) / _AIRY, series.AIRY_MID)
    b = k.maximum(k.abs(x), _AIRY)
    root = k.sqrt(b)
    zeta = 2 / 3 * b * root
    quarter = k.sqrt(root)
    up = chebyshev(beyond(zeta, zeta_0), series.AIRY_UP)
    up = up * k.exp(-zeta) / (2 * PI**0.5 * quarter)
    t = 2 * zeta_0 * zeta_0 / (zeta * zeta) - 1
    f, g = chebyshev(t, series.AIRY_F), chebyshev(t, series.AIRY_G) / zeta
    angle = zeta + PI / 4
    down = (f * k.sin(angle) - g * k.cos(angle)) / (PI**0.5 * quarter)
    value = k.where(x > _AIRY, up, k.where(x < -_AIRY, down, mid))
    value = k.where(k.isinf(x), k.where(x > 0, 0.0, float("nan")), value)
    return k.where(k.isnan(x), x, value)


def spherical_j0(k: Any, x: Any) -> Any:
    """sin x / x, near 0 by its series."""
    q = x * x
    small = 1 - q / 6 * (1 - q / 20 * (1 - q / 42))
    value = k.where(k.abs(x) < 0.02, small, k.sin(x) / x)
    return k.where(k.isinf(x), 0.0, value)


# ---- the operators ----


class SpecialFunction(Pointwise):
    """A function in torch.special of one floating argument."""

    promotion = "int_to_float"
    inplace: bool | str = False
    out = "out"
    public = ""
    narrow = False  # whether 16-bit floats are served


def declare(
    name: str, body: Callable[[Any, Any], Any], *, slope: Any = None, like: str | None = None,
    narrow: bool = False, argument: str = "self", domain: tuple[float, float] = (-12.0, 12.0),
    public: str = "", inplace: bool = False, doc: str = "", family: str = __name__,
    grows: bool = False,
) -> None:  # fmt: skip
    """An operator from body(k, x), worked out in double precision. slope(g, x, out) is its
    gradient; without one the results carry none. `family` is the module that says so; one that
    `grows` is made of exp(|x|), and infinite where that is."""

    def check(x: Any) -> None:
        d = x.dtype
        if d.is_complex or (not narrow and d in SIXTEEN):
            refuse(f"{name.removeprefix('special_')}_{'vml_' if name == 'i0' else ''}cpu", d)

    def expr(k: Any, x: Any) -> Any:
        value = k.cast(body(k, wide(k, x)), x.dtype)
        if grows and str(x.dtype) != "float64":
            value = k.where(k.abs(x) > EXP_END, value * INFINITY, value)
        return value

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return slope(g, x, b.out)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 4), (), (0, 2), (41,)):
            yield s.sample(s.tensor(shape, *domain))

    type(name, (SpecialFunction,), {
        "__doc__": doc or f"{name}(self).", "__module__": family, "check": check, "expr": expr,
        "schema": f"{name}(Tensor {argument}) -> Tensor", "samples": samples, "takes16": narrow,
        "reference": f"scipy.special.{like}" if like else None, "public": public,
        "inplace": inplace, "differentiable": slope is not None,
        **({"vjp": vjp} if slope else {}),
    })  # fmt: skip


def _share(name: str, g: Any, x: Any, whole: Any) -> Any:
    """whole(x), and 1/2 where x is next to 0 (as torch has it, where it is NaN too)."""
    if x.dtype in SIXTEEN:
        refuse(f"{name}_backward", x.dtype)
    eps, kind = info.finfo(x.dtype).eps, {"dtype": x.dtype, "device": x.device}
    far = aten.abs(x) > eps
    some = aten.where(far, x, aten.full((), eps, **kind))
    return g * aten.where(far, whole(some), aten.full((), 0.5, **kind))


declare(
    "i0", lambda k, x: modified_i(k, 0, x, False), like="i0", narrow=True,
    public="function, method", grows=True,
    slope=lambda g, x, out: g * aten.special_i1(x), inplace=True,
)  # fmt: skip
declare(
    "special_i0e", lambda k, x: modified_i(k, 0, x, True), like="i0e", narrow=True,
    slope=lambda g, x, out: g * (aten.special_i1e(x) - aten.sgn(x) * out),
)  # fmt: skip
declare(
    "special_i1", lambda k, x: modified_i(k, 1, x, False), like="i1", narrow=True, grows=True,
    slope=lambda g, x, out: _share(
        "i1", g, x, lambda y: aten.i0(y) - out * aten.reciprocal(y)
    ),
)  # fmt: skip
declare(
    "special_i1e", lambda k, x: modified_i(k, 1, x, True), like="i1e", narrow=True,
    slope=lambda g, x, out: _share(
        "i1e", g, x, lambda y: aten.special_i0e(y) - out * (aten.sgn(y) + aten.reciprocal(y))
    ),
)  # fmt: skip
for _order in (0, 1):

    def _of(f: Any, scaled: bool | None = None, order: int = _order) -> Any:
        return (lambda k, x: f(k, order, x)) if scaled is None else (
            lambda k, x: f(k, order, x, scaled)
        )  # fmt: skip

    declare(f"special_bessel_j{_order}", _of(bessel_j), like=f"j{_order}")
    declare(f"special_bessel_y{_order}", _of(bessel_y), like=f"y{_order}", domain=(0.1, 30.0))
    declare(
        f"special_modified_bessel_i{_order}", _of(modified_i, False), like=f"i{_order}", grows=True
    )
    declare(
        f"special_modified_bessel_k{_order}", _of(modified_k, False), like=f"k{_order}",
        domain=(0.1, 9.0),
    )  # fmt: skip
    declare(
        f"special_scaled_modified_bessel_k{_order}", _of(modified_k, True), like=f"k{_order}e",
        domain=(0.1, 9.0), argument="x",
    )  # fmt: skip
declare("special_airy_ai", airy, argument="x", like=None, domain=(-9.0, 9.0))
declare("special_spherical_bessel_j0", spherical_j0, argument="x")


class SpecialI0(Composite):
    """i0 under its name in torch.special."""

    schema = "special_i0(Tensor self) -> Tensor"
    public = ""
    out = "out"

    def decompose(x: Any) -> Any:
        return aten.i0(x)
