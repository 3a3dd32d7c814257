"""Arithmetic and elementary functions, element by element."""

from __future__ import annotations

from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.kinds import Pointwise


def check_alpha(result_integral: bool, other: Any, alpha: Any) -> None:
    """torch's rules for alpha of add and sub."""
    if isinstance(alpha, bool) and not isinstance(other, bool):
        if not (isinstance(other, Tensor) and other.dtype is dt.bool_):
            raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if result_integral and isinstance(alpha, float):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")


class Add(Pointwise):
    """self + alpha * other."""

    schema = "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    overloads = ("add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",)
    out = "out"
    numbers = True

    def expr(k: Any, a: Any, b: Any, alpha: Any) -> Any:
        return (a | (b & (alpha != 0))) if a.dtype == "bool" else a + b * alpha

    def vjp(b: Any, g: Any, x: Any, y: Any, alpha: Any) -> Any:
        return g, g if alpha == 1 else g * alpha


class Mul(Pointwise):
    """self * other."""

    schema = "mul.Tensor(Tensor self, Tensor other) -> Tensor"
    overloads = ("mul.Scalar(Tensor self, Scalar other) -> Tensor",)
    out = "out"
    numbers = True
    aliases = ("multiply",)

    def expr(k: Any, a: Any, b: Any) -> Any:
        return a & b if a.dtype == "bool" else a * b

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return g * y if b.needs[0] else None, g * x if b.needs[-1] else None


class Exp(Pointwise):
    """e to the power of self."""

    schema = "exp(Tensor self) -> Tensor"
    promotion = "int_to_float"

    def expr(k: Any, a: Any) -> Any:
        return k.exp(a)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return g * b.out
