"""What belongs to the normal distribution, and to the gamma and zeta functions: erfcx, log_ndtr,
ndtri, polygamma, zeta, the incomplete gamma functions, the multivariate log gamma."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops import series
from flambeau._src.ops.bessel import chebyshev, declare
from flambeau._src.ops.call import aten, check_cast
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.numeric import PI, Computed
from flambeau._src.ops.promote import only_floating, refuse, result_type

ROOT_HALF = 0.7071067811865476


def erfcx(k: Any, x: Any) -> Any:
    """exp(x²) erfc(x): (x + 1) times it is smooth in (x - 2) / (x + 2)."""
    a = k.minimum(k.abs(x), 1e300)
    positive = chebyshev((a - 2) / (a + 2), series.ERFCX) / (a + 1)
    negative = 2 * k.exp(x * x) - positive
    return k.where(k.isnan(x), x, k.where(x < 0, negative, k.where(k.isinf(x), 0.0, positive)))


def log_ndtr(k: Any, x: Any) -> Any:
    """log of the normal distribution function, through erfcx where it is small."""
    t = x * ROOT_HALF
    low = k.minimum(t, 0.0)
    tail = k.log(erfcx(k, -low) / 2) - low * low
    value = k.where(x < -1, tail, k.log1p(-k.erfc(k.maximum(t, -1.0)) / 2))
    return k.where(x == -math.inf, -math.inf, value)


def ndtri(k: Any, p: Any) -> Any:
    """The normal quantile: from Abramowitz and Stegun 26.2.23 by Halley steps in the lower half."""
    low = k.minimum(p, 1 - p)
    safe = k.maximum(low, 1e-307)
    y = k.sqrt(-2 * k.log(safe))
    x = -(y - (2.515517 + y * (0.802853 + y * 0.010328))
          / (1 + y * (1.432788 + y * (0.189269 + y * 0.001308))))  # fmt: skip
    for _ in range(3):
        off = k.erfc(-x * ROOT_HALF) / 2 - safe
        u = off * 2.5066282746310002 * k.exp(x * x / 2)
        x = x - u / (1 + x * u / 2)
    x = k.where(p > 0.5, -x, x)
    x = k.where(p == 0.5, 0.0, x)
    x = k.where(p == 0, -math.inf, k.where(p == 1, math.inf, x))
    return k.where((p < 0) | (p > 1) | k.isnan(p), math.nan, x)


declare(
    "special_erfcx", erfcx, like="erfcx", domain=(-3.0, 9.0), family=__name__,
    slope=lambda g, x, out: (2.0 * x * out - 2 / math.sqrt(PI)) * g,
)  # fmt: skip
declare(
    "special_log_ndtr", log_ndtr, like="log_ndtr", domain=(-9.0, 4.0), family=__name__,
    slope=lambda g, x, out: g / math.sqrt(2 * PI) * aten.exp(-(out + x.pow(2) / 2)),
)  # fmt: skip
declare(
    "special_ndtri", ndtri, like="ndtri", domain=(0.001, 0.999), family=__name__,
    slope=lambda g, x, out: g * math.sqrt(2 * PI) * aten.exp(aten.square(out) * 0.5),
)  # fmt: skip


# ---- Hurwitz' zeta, polygamma ----

#: B(2j) / (2j)!: the corrections of the Euler-Maclaurin formula.
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
    -174611 / 802857662698291200000,
)  # fmt: skip


def hurwitz(s: Any, q: Any) -> Any:
    """Σ (q + n)^-s over n ≥ 0: terms up to q + n ≥ 10, then Euler and Maclaurin's formula."""
    import numpy as np  # lazy: NumPy is heavy

    s, q = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(q, np.float64))
    whole = s == np.floor(s)
    known = (s > 1) & np.isfinite(q) & ((q > 0) | (whole & (q != np.floor(q))))
    a = np.where(known, q, 1.0)
    e = np.where(known, s, 2.0)

    def power(base: Any) -> Any:
        sign = np.where((base < 0) & (e % 2 == 1), -1.0, 1.0)
        return sign * np.abs(base) ** -e

    total = power(a)
    a, total = _near_zero(a, e, total)
    for _ in range(20):
        more = a < 10
        a = np.where(more, a + 1, a)
        total = np.where(more, total + power(a), total)
    last = power(a)
    summed = total  # where what follows is below its last bit (it may be no number)
    total = total + last * a / (e - 1) - last / 2
    factor, term = e, last / a
    for j, b in enumerate(_BERNOULLI):
        total = total + factor * b * term
        factor = factor * (e + 2 * j + 1) * (e + 2 * j + 2)
        term = term / (a * a)
    total = np.where(np.abs(last) < np.finfo(np.float64).eps * np.abs(summed), summed, total)
    pole = (q <= 0) & (q == np.floor(q))
    total = np.where(known, total, np.nan)
    total = np.where(pole & ~(s < 1), np.inf, total)  # torch looks here before at a NaN of s
    return np.where(s == 1, np.inf, total)


def _near_zero(a: Any, e: Any, total: Any) -> tuple[Any, Any]:
    """The walk of `hurwitz` from far below zero up to -9: one by one, many terms at once."""
    import numpy as np  # lazy: NumPy is heavy

    far = np.flatnonzero(a < -9)
    if not far.size:
        return a, total
    a, total = np.array(a), np.array(total)
    for i in far:
        start, count = a.flat[i], int(np.ceil(-9 - a.flat[i]))
        even = e.flat[i] % 2 != 1
        for first in range(1, count + 1, 1 << 18):
            terms = np.arange(first, min(first + (1 << 18), count + 1)) + start
            part = (np.abs(terms) ** -e.flat[i]).sum()
            total.flat[i] += part if even else -part
        a.flat[i] = start + count
    return a, total


def _zeta(overload: str, arguments: str, out: str) -> None:
    def check(*args: Any) -> None:
        common = result_type(args)
        if common.is_complex or common in (dt.float16, dt.bfloat16):
            refuse("zeta_cpu", common)

    def vjp(b: Any, g: Any, s: Any, q: Any) -> Any:
        if b.needs[0] and isinstance(s, Tensor):
            raise NotImplementedError("the derivative for 'zeta' is not implemented.")
        of_q = None
        if isinstance(q, Tensor) and b.needs[-1]:
            of_q = g * -s * aten.special_zeta(s + 1, q)
        return (None, of_q) if isinstance(s, Tensor) else of_q

    def decompose(s: Any, q: Any) -> Any:
        """The form for two tensors."""
        like = s if isinstance(s, Tensor) else q
        s, q = (
            v if isinstance(v, Tensor) else aten.scalar_tensor(v, device=like.device)
            for v in (s, q)
        )
        return aten.special_zeta(s, q)

    type(f"SpecialZeta{overload}", (Computed,), {
        "__doc__": "Hurwitz' zeta function of self and other.", "__module__": __name__,
        "schema": f"special_zeta{overload}({arguments}) -> Tensor", "inplace": False, "out": out,
        "promotion": "int_to_float", "public": "", "check": check, "values": staticmethod(hurwitz),
        "vjp": vjp, "number_operands": True, "takes16": False,
        **({"decompose": decompose} if overload else {}),
    })  # fmt: skip


_zeta("", "Tensor self, Tensor other", "out")
_zeta(".other_scalar", "Tensor self, Scalar other", "other_scalar_out")
_zeta(".self_scalar", "Scalar self, Tensor other", "self_scalar_out")


#: What has kernels of its own.
_FIRST = ("digamma", "special_trigamma", "special_tetragamma")


class Polygamma(Computed):
    """The n-th derivative of digamma: (-1)^(n+1) n! ζ(n + 1, x)."""

    schema = "polygamma(int n, Tensor self) -> Tensor"
    promotion = "int_to_float"
    inplace = False
    public = "function"
    saves_by = ("n",)
    reference = "scipy.special.polygamma"
    apart = ("n",)

    @staticmethod
    def check(n: int, x: Tensor) -> None:
        if n < 0:
            raise RuntimeError("polygamma(n, x) does not support negative n.")
        if x.dtype.is_complex:
            refuse("polygamma", x.dtype)

    @classmethod
    def compute(cls, op: Any, outs: Any, args: tuple[Any, ...]) -> None:
        n, x = args
        if n < 3:
            aten.copy_(outs, getattr(aten, _FIRST[n])(x))
            return
        super().compute(op, outs, args)

    def values(n: int, x: Any) -> Any:  # type: ignore[misc]
        return (-1.0) ** (n + 1) * math.gamma(n + 1) * hurwitz(float(n + 1), x)

    @staticmethod
    def decompose(n: int, x: Tensor) -> Tensor:
        Polygamma.check(n, x)
        if n < 3:
            return getattr(aten, _FIRST[n])(x)
        narrow = x.dtype in (dt.float16, dt.bfloat16)
        wide = aten._to_copy(x, dtype=dt.float32) if narrow else x
        made = aten.special_zeta(float(n + 1), wide) * ((-1.0) ** (n + 1) * math.gamma(n + 1))
        return aten._to_copy(made, dtype=x.dtype) if narrow else made

    def vjp(b: Any, g: Any, n: int, x: Any) -> Any:
        return g * aten.polygamma(n + 1, x)

    def samples(s: Any) -> Iterator[Any]:
        for n in (0, 1, 2, 4):
            yield s.sample(n, s.tensor((3, 4), 0.3, 4.0))
        yield s.sample(2, s.tensor((0, 4)))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "does not support negative n", -1, s.tensor((2,)))


class PolygammaInplace(Composite):
    """polygamma in place: its tensor stands first."""

    schema = "polygamma_(Tensor(a!) self, int n) -> Tensor(a!)"
    public = "method"

    def decompose(x: Tensor, n: int) -> Any:
        before = aten.clone(x) if x.requires_grad else x  # the gradient needs what it was
        made = aten.polygamma(n, before)
        check_cast(made.dtype, x.dtype)
        return aten.copy_(x, made)


class SpecialPolygamma(Composite):
    """polygamma under its name in torch.special."""

    schema = "special_polygamma(int n, Tensor self) -> Tensor"
    public = ""
    out = "out"

    @staticmethod
    def decompose(n: int, x: Tensor) -> Any:
        return aten.polygamma(n, x)


def _shifted(x: Tensor, p: int) -> Tensor:
    """x - i / 2 for i < p, along a new last dimension."""
    shifts = aten.arange(-p / 2 + 0.5, 0.5, 0.5, dtype=x.dtype, device=x.device)
    return aten.add(aten.unsqueeze(x, -1), shifts)


class Mvlgamma(Opaque):
    """log of the multivariate gamma function: C + Σ lgamma(x - i / 2), i < p."""

    schema = "mvlgamma(Tensor self, int p) -> Tensor"
    inplace = True
    out = "out"

    def decompose(x: Tensor, p: int) -> Any:
        if p < 1:
            raise RuntimeError("p has to be greater than or equal to 1")
        if x.dtype is dt.bool_ or x.dtype.is_complex:
            raise RuntimeError("mvlgamma: Expected a floating point tensor")
        x = x if x.dtype.is_floating_point else aten._to_copy(x, dtype=state.process.default_dtype)
        # in double: the sum crosses 0, where its terms' roundings are all that is left
        parts = aten.lgamma(_shifted(x.to(dt.float64), p))
        return aten.sum(parts, [-1]).add_(p * (p - 1) / 4 * math.log(PI)).to(x.dtype)

    def vjp(b: Any, g: Any, x: Any, p: int) -> Any:
        return g * aten.sum(aten.digamma(_shifted(x, p)), [-1])

    def meta(x: Tensor, p: int) -> TensorSpec:
        kind = x.dtype if x.dtype.is_floating_point else state.process.default_dtype
        return TensorSpec(x.shape, kind, x.device)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4), 2.0, 5.0), 3)
        yield s.sample(s.tensor((0, 4), 2.0, 5.0), 1)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "greater than or equal to 1", s.tensor((2,)), 0)


class SpecialMultigammaln(Composite):
    """mvlgamma under its name in torch.special."""

    schema = "special_multigammaln(Tensor self, int p) -> Tensor"
    public = ""
    out = "out"

    def decompose(x: Tensor, p: int) -> Any:
        return aten.mvlgamma(x, p)


# ---- incomplete gamma functions ----


def _series(a: Any, x: Any) -> Any:
    """P by its power series (Abramowitz and Stegun 6.5.29), without the factor x^a e^-x / Γ(a)."""
    import numpy as np  # lazy: NumPy is heavy

    term, total, n = 1 / a, 1 / a, a
    for _ in range(3000):
        n = n + 1
        term = term * x / n
        total = total + term
        if not np.any(np.abs(term) > np.abs(total) * 1e-17):
            break
    return total


def _fraction(a: Any, x: Any) -> Any:
    """Q by Lentz' evaluation of its continued fraction (6.5.31), without that factor."""
    import numpy as np  # lazy: NumPy is heavy

    tiny = 1e-290
    b = x + 1 - a
    c, d = np.full_like(x, 1 / tiny), 1 / np.where(b == 0, tiny, b)
    h = d
    for i in range(1, 3000):
        an = -i * (i - a)
        b = b + 2
        d = an * d + b
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + an / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        step = d * c
        h = h * step
        if not np.any(np.abs(step - 1) > 1e-16):
            break
    return h


_UNIFORM = 2e4  # from here on a by the expansion that is uniform in x / a
_TEMME = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760),
)  # of C_k(eta) / a^k


def _uniform(a: Any, x: Any) -> tuple[Any, Any]:
    """P and Q of a large first argument (Temme 1979; DLMF 8.12.3-8)."""
    import numpy as np  # lazy: NumPy is heavy

    with np.errstate(all="ignore"):
        m = x / a - 1
        m = np.where(np.abs(m) < 0.5, (x - a) / a, m)
        small = np.abs(m) < 0.02
        t = np.where(small, m, 0.0)
        near = sum((-t) ** k / k for k in range(12, 1, -1))  # m - log(1 + m)
        half = np.where(small, near, m - np.log1p(m))
        eta = np.copysign(np.sqrt(2 * half), m)
        clipped = np.clip(eta, -1, 1)
        rest = sum(np.polyval(c[::-1], clipped) / a**k for k, c in enumerate(_TEMME))
        rest = rest * np.exp(-a * half) / np.sqrt(2 * PI * a)
        tail = np.vectorize(math.erfc, otypes=[np.float64])
        where = eta * np.sqrt(a / 2)
        return 0.5 * tail(-where) - rest, 0.5 * tail(where) + rest


def incomplete_gamma(a: Any, x: Any, upper: bool) -> Any:
    """The regularised integrals P(a, x) and Q(a, x)."""
    import numpy as np  # lazy: NumPy is heavy

    narrow = np.result_type(a, x)
    a, x = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(x, np.float64))
    plain = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    a_, x_ = np.where(plain, a, 1.0), np.where(plain, x, 1.0)
    n = np.minimum(a_, _UNIFORM)
    y = np.where(a_ > _UNIFORM, n, x_)
    lgamma = np.vectorize(math.lgamma, otypes=[np.float64])(n) if n.size else n
    factor = np.exp(n * np.log(y) - y - lgamma)
    low = y < n + 1
    below = factor * _series(n, np.where(low, y, n))
    above = factor * _fraction(n, np.where(low, n + 2, y))
    p, q = np.where(low, below, 1 - above), np.where(low, 1 - below, above)
    if (a_ > _UNIFORM).any():
        far_p, far_q = _uniform(np.where(a_ > _UNIFORM, a_, 2 * _UNIFORM), x_)
        p, q = np.where(a_ > _UNIFORM, far_p, p), np.where(a_ > _UNIFORM, far_q, q)
    value = q if upper else p
    zero, one = (1.0, 0.0) if upper else (0.0, 1.0)
    # as torch has it where one of them is NaN: the other's end decides
    edge = np.where(np.isposinf(x) & ~np.isinf(a), one, np.nan)
    edge = np.where(np.isposinf(a) & ~np.isinf(x), zero, edge)
    edge = np.where(x == 0, zero, edge)
    edge = np.where(a == 0, np.where(x > 0, one, np.nan), edge)
    edge = np.where((a < 0) | (x < 0), np.nan, edge)
    return np.where(plain, value, edge).astype(narrow)


def _incomplete(name: str, upper: bool) -> None:
    def values(a: Any, x: Any) -> Any:
        return incomplete_gamma(a, x, upper)

    def vjp(b: Any, g: Any, a: Any, x: Any) -> Any:
        if b.needs[0]:
            raise NotImplementedError(f"the derivative for '{name}: input' is not implemented.")
        slope = aten.exp((a - 1) * aten.log(x) - x - aten.lgamma(a))
        return None, (-g if upper else g) * slope

    type(name.capitalize(), (Computed,), {
        "__doc__": f"The regularised {'upper' if upper else 'lower'} incomplete gamma function.",
        "__module__": __name__, "schema": f"{name}(Tensor self, Tensor other) -> Tensor",
        "check": only_floating(f"{name}_cpu"), "values": staticmethod(values), "vjp": vjp,
    })  # fmt: skip

    def decompose(a: Tensor, x: Tensor) -> Any:
        return getattr(aten, name)(a, x)

    type(f"Special{name}", (Composite,), {
        "__doc__": f"{name} under its name in torch.special.", "__module__": __name__,
        "schema": f"special_gammainc{'c' if upper else ''}(Tensor self, Tensor other) -> Tensor",
        "public": "", "out": "out", "decompose": decompose,
    })  # fmt: skip


_incomplete("igamma", False)
_incomplete("igammac", True)
