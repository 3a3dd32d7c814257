"""Orthogonal polynomials of degree n (truncated; 0 below zero) by their recurrences
(Abramowitz and Stegun 22.7), element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.numeric import Computed, refuse
from flambeau._src.ops.promote import result_type

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
for _kind in "tuvw":
    _first, _step = _RULES[f"chebyshev_polynomial_{_kind}"]
    _RULES[f"shifted_chebyshev_polynomial_{_kind}"] = (
        lambda x, f=_first: f(2 * x - 1),  # type: ignore[misc]
        lambda x, n, p, q: 2 * (2 * x - 1) * p - q,
    )


def polynomial(name: str, x: Any, degree: Any) -> Any:
    """All elements up to their own degrees at once."""
    import numpy as np  # lazy: NumPy is heavy

    first, step = _RULES[name]
    kind = np.result_type(x, degree) if not np.isscalar(degree) else np.asarray(x).dtype
    x, degree = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(degree, np.float64))
    n = np.where(np.isfinite(degree), np.trunc(degree), -1).astype(np.int64)
    before, latest = np.ones_like(x), first(x)
    out = np.where(n == 0, before, np.where(n == 1, latest, 0.0))
    for i in range(2, int(n.max()) + 1 if n.size else 0):
        before, latest = latest, step(x, i, latest, before)
        out = np.where(n == i, latest, out)
    return out.astype(kind)


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
            """The polynomial that is not shifted, at 2x - 1; all are computed in float64."""
            check(x, n)
            kind = result_type((x, n))
            kind = kind if kind.is_floating_point else state.process.default_dtype
            at = aten.sub(aten.mul(x.to(dt.float64), 2), 1)
            return getattr(aten, f"special_{name.removeprefix('shifted_')}")(at, n).to(kind)

        body = decompose if overload else plain if name.startswith("shifted_") else None
        type(name, (Computed,), {
            "__doc__": f"The {name.replace('_', ' ')} of degree n at x.", "__module__": __name__,
            "schema": f"special_{name}{overload}({arguments}) -> Tensor", "inplace": False,
            "out": out, "promotion": "int_to_float", "public": "", "check": check,
            "values": staticmethod(values), "differentiable": False, "number_operands": True,
            "takes16": False, "decompose": body, "whole": body is plain,
        })  # fmt: skip


for _name in _RULES:
    _declare(_name)
