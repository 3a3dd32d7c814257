"""Orthogonal polynomials of degree n (truncated; 0 below zero) by their recurrences
(Abramowitz and Stegun 22.7), element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.numeric import Computed
from flambeau._src.ops.promote import refuse, result_type

#: name -> (P1 of x, P(n) from x, n, P(n-1), P(n-2))
_RULES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, int, Any, Any], Any]]] = {
    "chebyshev_polynomial_t": (lambda x: x, lambda x, n, p, q: 2 * x * p - q),
    "chebyshev_polynomial_u": (lambda x: 2 * x, lambda x, n, p, q: 2 * x * p - q),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, lambda x, n, p, q: 2 * x * p - q),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, lambda x, n, p, q: 2 * x * p - q),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda x, n, p, q: 2 * x * p - 2 * (n - 1) * q),
    "hermite_polynomial_he": (lambda x: x, lambda x, n, p, q: x * p - (n - 1) * q),
    "laguerre_polynomial_l": (
        lambda x: 1 - x, lambda x, n, p, q: ((2 * n - 1 - x) * p - (n - 1) * q) / n
    ),
    "legendre_polynomial_p": (
        lambda x: x, lambda x, n, p, q: ((2 * n - 1) * x * p - (n - 1) * q) / n
    ),
}  # fmt: skip
#: name -> its value at ±1: (x, n, whether n is even) -> P(n)
_AT_ONE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "chebyshev_polynomial_t": lambda x, n, sign: sign,
    "chebyshev_polynomial_u": lambda x, n, sign: sign * (n + 1),
    "chebyshev_polynomial_v": lambda x, n, sign: sign * _choose(x > 0, 1, 2 * n + 1),
    "chebyshev_polynomial_w": lambda x, n, sign: sign * _choose(x > 0, 2 * n + 1, 1),
    "legendre_polynomial_p": lambda x, n, sign: sign,
}
#: name -> the degree from which |x| < 1 takes the trigonometric form (22.3.15-16), and that of the
#: angle and n
_BY_ANGLE: dict[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "chebyshev_polynomial_t": (7, lambda a, n: _np().cos(n * a)),
    "chebyshev_polynomial_u": (9, lambda a, n: _np().sin((n + 1) * a) / _np().sin(a)),
    "chebyshev_polynomial_v": (9, lambda a, n: _np().cos((n + 0.5) * a) / _np().cos(a / 2)),
    "chebyshev_polynomial_w": (9, lambda a, n: _np().sin((n + 0.5) * a) / _np().sin(a / 2)),
}


def _np() -> Any:
    import numpy  # lazy: NumPy is heavy

    return numpy


def _choose(where: Any, a: Any, b: Any) -> Any:
    return _np().where(where, a, b)


def polynomial(name: str, x: Any, degree: Any) -> Any:
    """All elements up to their own degrees at once, in double. Where a term leaves the operands'
    type NaN comes out, as it does when the recurrence runs in it."""
    np = _np()
    kind = np.result_type(x, degree) if not np.isscalar(degree) else np.asarray(x).dtype
    x, degree = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(degree, np.float64))
    shape, x, degree = x.shape, x.reshape(-1), degree.reshape(-1)
    if name.startswith("shifted_"):
        # rounded as the same steps of the operands' type are
        x, name = (2 * x - 1).astype(kind).astype(np.float64), name.removeprefix("shifted_")
    first = _RULES[name][0]
    with np.errstate(all="ignore"):
        n = np.where(np.abs(degree) < 2.0**63, degree, -1).astype(np.int64)
        out = np.where(n == 0, 1, np.where(n == 1, first(x), 0.0))
        out[(n > 1) & np.isnan(x)] = np.nan
        left = (n > 1) & ~np.isnan(x)
        if name in _AT_ONE:
            ends = left & (np.abs(x) == 1)
            sign = np.where((x > 0) | (n % 2 == 0), 1, -1)
            out[ends] = _AT_ONE[name](x, n, sign)[ends]
            left &= ~ends
        if name in _BY_ANGLE:
            least, form = _BY_ANGLE[name]
            inside = left & (np.abs(x) < 1) & (n >= least)
            out[inside] = form(np.arccos(x[inside]), n[inside])
            left &= ~inside
        if name.startswith("hermite"):
            far = left & (n > (128 if kind == np.float32 else 512))  # beyond any finite value
            out[far] = np.nan
            left &= ~far
        if name.startswith("laguerre"):
            zero = left & (x == 0)
            out[zero] = 1
            left &= ~zero
        _recur(out, np.flatnonzero(left), x, n, _RULES[name], np.finfo(kind).max)
        return out.reshape(shape).astype(kind)


def _recur(out: Any, at: Any, x: Any, n: Any, rule: Any, top: float) -> None:
    """out[at] by the recurrence; elements leave when their degree is reached or at a NaN. Beyond
    `top` terms are infinite."""
    np, (first, step) = _np(), rule
    x, n = x[at], n[at]
    before, latest, i = np.ones_like(x), first(x), 1
    while at.size:
        if at.size <= _FEW and top == np.finfo(np.float64).max:
            for j, point, degree, p, q in zip(at, x, n, latest, before, strict=True):
                out[j] = _alone(float(point), i, int(degree), float(p), float(q), step)
            return
        i += 1
        before, latest = latest, step(x, i, latest, before)
        latest = np.where(np.abs(latest) > top, np.copysign(np.inf, latest), latest)
        done = (n == i) | np.isnan(latest)
        if done.any():
            out[at[done]] = latest[done]
            at, x, n, before, latest = (v[~done] for v in (at, x, n, before, latest))


_FEW = 8  # as many elements or fewer are quicker one by one: degrees may be millions


def _alone(x: float, i: int, degree: int, latest: float, before: float, step: Any) -> float:
    """The recurrence of one element, from the degree i on; looks for a NaN now and then."""
    while i < degree and latest == latest:
        start, i = i + 1, min(degree, i + 1000)
        for j in range(start, i + 1):
            before, latest = latest, step(x, j, latest, before)
    return latest


def _declare(name: str) -> None:
    def check(*args: Any) -> None:
        common = result_type(args)
        if common.is_complex or common in (dt.float16, dt.bfloat16):
            refuse(f"{name}_cpu", common)

    def values(x: Any, n: Any) -> Any:
        return polynomial(name, x, n)

    for overload, arguments, out in (
        ("", "Tensor x, Tensor n", "out"),
        (".x_scalar", "Scalar x, Tensor n", "x_scalar_out"),
        (".n_scalar", "Tensor x, Scalar n", "n_scalar_out"),
    ):

        def decompose(x: Any, n: Any) -> Any:
            """The form for two tensors."""
            like = x if isinstance(x, Tensor) else n
            x, n = (
                v if isinstance(v, Tensor) else aten.scalar_tensor(v, device=like.device)
                for v in (x, n)
            )
            return getattr(aten, f"special_{name}")(x, n)

        def plain(x: Tensor, n: Tensor) -> Tensor:
            """The polynomial that is not shifted, at 2x - 1."""
            check(x, n)
            kind = result_type((x, n))
            kind = kind if kind.is_floating_point else state.process.default_dtype
            at = aten.sub(aten.mul(x.to(kind), 2), 1)
            return getattr(aten, f"special_{name.removeprefix('shifted_')}")(at, n.to(kind))

        body = decompose if overload else plain if name.startswith("shifted_") else None
        type(name, (Computed,), {
            "__doc__": f"The {name.replace('_', ' ')} of degree n at x.", "__module__": __name__,
            "schema": f"special_{name}{overload}({arguments}) -> Tensor", "inplace": False,
            "out": out, "promotion": "int_to_float", "public": "", "check": check,
            "values": staticmethod(values), "differentiable": False, "number_operands": True,
            "takes16": False, "decompose": body, "whole": body is plain,
        })  # fmt: skip


for _name in [*_RULES, *(f"shifted_chebyshev_polynomial_{kind}" for kind in "tuvw")]:
    _declare(_name)
