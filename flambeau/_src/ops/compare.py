"""Comparisons, logic, bits, choices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import (
    Composite,
    Opaque,
    Pointwise,
    TensorSpec,
    number_type,
    scalar_tensor,
)
from flambeau._src.ops.pointwise import binary_samples, broadcast_errors, same_out, unary_samples
from flambeau._src.ops.promote import result_type


class Comparison(Pointwise):
    """Two operands in their common type; the result is bool."""

    promotion = "bool"
    fast_numbers = 2
    number_operands = True
    differentiable = False
    samples = binary_samples
    error_samples = broadcast_errors


def _compare(name: str, operator: Any, aliases: tuple[str, ...] = ()) -> None:
    def expr(k: Any, a: Any, b: Any) -> Any:
        return operator(a, b)

    type(
        name.capitalize(),
        (Comparison,),
        {
            "__doc__": f"self {name} other, element by element.",
            "__module__": __name__,
            "schema": f"{name}.Tensor(Tensor self, Tensor other) -> Tensor",
            "overloads": (f"{name}.Scalar(Tensor self, Scalar other) -> Tensor",),
            "aliases": aliases,
            "expr": expr,
        },
    )


_compare("eq", lambda a, b: a == b)
_compare("ne", lambda a, b: a != b, ("not_equal",))
_compare("lt", lambda a, b: a < b, ("less",))
_compare("le", lambda a, b: a <= b, ("less_equal",))
_compare("gt", lambda a, b: a > b, ("greater",))
_compare("ge", lambda a, b: a >= b, ("greater_equal",))


def truth(k: Any, a: Any) -> Any:
    return a if a.dtype == "bool" else a != 0


class LogicalNot(Pointwise):
    """Whether self is zero."""

    schema = "logical_not(Tensor self) -> Tensor"
    promotion = "bool"
    differentiable = False

    def expr(k: Any, a: Any) -> Any:
        return ~truth(k, a)


def _logical(name: str, combine: Any) -> None:
    def expr(k: Any, a: Any, b: Any) -> Any:
        return combine(truth(k, a), truth(k, b))

    type(
        name,
        (Pointwise,),
        {
            "__doc__": f"{name} of truth values.",
            "__module__": __name__,
            "promotion": "bool",
            "differentiable": False,
            "schema": f"{name}(Tensor self, Tensor other) -> Tensor",
            "expr": expr,
        },
    )


_logical("logical_and", lambda a, b: a & b)
_logical("logical_or", lambda a, b: a | b)
_logical("logical_xor", lambda a, b: a ^ b)


class Bitwise(Pointwise):
    """Bits of integers; truth values of bools."""

    differentiable = False
    number_operands = True

    @classmethod
    def check(cls, *args: Any) -> None:
        common = result_type(args)
        if not dt.is_integral(common):
            raise NotImplementedError(
                f'"{cls.schema.partition("(")[0].partition(".")[0]}_cpu" not implemented for '
                f"'{dt.scalar_name(common)}'"
            )


def _bitwise(name: str, operator: Any, dunder: str) -> None:
    def expr(k: Any, a: Any, b: Any) -> Any:
        return operator(a, b)

    common = {"__module__": __name__, "expr": expr}
    type(name, (Bitwise,), {
        "schema": f"{name}.Tensor(Tensor self, Tensor other) -> Tensor",
        "overloads": (f"{name}.Scalar(Tensor self, Scalar other) -> Tensor",), **common,
    })  # fmt: skip

    def number_first(self: Any, other: Tensor) -> Any:
        return getattr(aten, name)(other, self)

    type(f"{name}Number", (Opaque,), {
        "__doc__": f"{name} with a number on the left.", "differentiable": False,
        "__module__": __name__, "decompose": number_first, "out": "Scalar_Tensor_out",
        "schema": f"{name}.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
        "public": "function",
    })  # fmt: skip

    def decompose(self: Tensor, other: Any) -> Any:
        return getattr(aten, name)(self, other)

    def reflected(self: Tensor, other: Any) -> Any:
        return getattr(aten, name)(self, other)

    for sign, body in ((f"__{dunder}__", decompose), (f"__r{dunder}__", reflected)):
        type(sign, (Composite,), {
            "schema": f"{sign}.Tensor(Tensor self, Tensor other) -> Tensor",
            "overloads": (f"{sign}.Scalar(Tensor self, Scalar other) -> Tensor",),
            "public": "method", "decompose": body, "__module__": __name__,
        })  # fmt: skip


_bitwise("bitwise_and", lambda a, b: a & b, "and")
_bitwise("bitwise_or", lambda a, b: a | b, "or")
_bitwise("bitwise_xor", lambda a, b: a ^ b, "xor")


class BitwiseNot(Bitwise):
    """~self."""

    schema = "bitwise_not(Tensor self) -> Tensor"
    check_out = staticmethod(same_out)

    def expr(k: Any, a: Any) -> Any:
        return ~a


class Invert(Composite):
    """~self."""

    schema = "__invert__(Tensor self) -> Tensor"
    public = "method"

    def decompose(self: Tensor) -> Any:
        return aten.bitwise_not(self)


class Where(Pointwise):
    """self where the condition holds, other elsewhere."""

    schema = "where.self(Tensor condition, Tensor self, Tensor other) -> Tensor"
    apart = ("condition",)
    keep = ("condition",)
    inplace = False
    out = "self_out"
    out_dtype = "exact"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "must match the size of tensor b",
            s.tensor((2, 3)) > 0,
            s.tensor((2, 4)),
            s.tensor((2, 4)),
        )
        yield s.error(
            RuntimeError,
            "where expected condition to be a boolean tensor",
            s.tensor((2,)),
            s.tensor((2,)),
            s.tensor((2,)),
        )

    def check(c: Any, a: Any, b: Any) -> None:
        if c.dtype is not dt.bool_ and c.dtype is not dt.uint8:
            raise RuntimeError(
                "where expected condition to be a boolean tensor, but got a tensor with dtype "
                f"{dt.scalar_name(c.dtype)}"
            )

    def expr(k: Any, c: Any, a: Any, b: Any) -> Any:
        return k.where(truth(k, c), a, b)

    def vjp(b: Any, g: Any, c: Any, x: Any, y: Any) -> Any:
        zero = aten.zeros((), dtype=g.dtype, device=g.device)
        return (
            None,
            aten.where(c, g, zero) if b.needs[1] else None,
            aten.where(c, zero, g) if b.needs[2] else None,
        )

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)) > 0, s.tensor((3, 4)), s.tensor((3, 4)))
        yield s.sample(s.tensor((3, 1)) > 0, s.tensor((4,)), s.tensor(()))
        yield s.sample(s.tensor((0, 3)) > 0, s.tensor((3,)), s.tensor((0, 3)))
        big = (2, 3, 4, 5)
        yield s.sample(s.tensor(big) > 0, s.tensor(big), s.tensor((3, 1, 1)))


def wrapped(v: Any) -> Tensor:
    """A number as a 0-dim tensor that promotes like the number."""
    t = aten.scalar_tensor(v, dtype=dt.float64 if isinstance(v, float) else number_type(v))
    t._is_wrapped_number = True
    return t


def _where_number(overload: str, args: str) -> None:
    def decompose(c: Any, a: Any, b: Any) -> Any:
        dtype = result_type((a, b))
        numbers = [
            v
            if isinstance(v, Tensor)
            else aten.scalar_tensor(v, dtype=dtype, layout=layout.strided, device=c.device)
            for v in (a, b)
        ]
        return aten.where(c, *numbers)

    type(f"Where{overload}", (Composite,), {
        "schema": f"where.{overload}(Tensor condition, {args}) -> Tensor", "decompose": decompose,
        "__module__": __name__,
    })  # fmt: skip


_where_number("ScalarOther", "Tensor self, Scalar other")
_where_number("ScalarSelf", "Scalar self, Tensor other")
_where_number("Scalar", "Scalar self, Scalar other")


def _test(name: str, body: Any, **more: Any) -> None:
    def expr(k: Any, a: Any) -> Any:
        return body(k, a)

    def check_out(source: Any, to: Any) -> None:
        raise RuntimeError(f"{name} does not support non-boolean outputs.")

    type(
        name,
        (Pointwise,),
        {
            "__doc__": f"{name}, element by element.",
            "__module__": __name__,
            "schema": f"{name}(Tensor self) -> Tensor",
            "promotion": "bool",
            "differentiable": False,
            "inplace": False,
            "expr": expr,
            "check_out": staticmethod(check_out),
            "samples": unary_samples,
            **more,
        },
    )


def _floating(k: Any, a: Any, test: str, otherwise: bool) -> Any:
    if a.dtype in ("float32", "float64"):
        return getattr(k, test)(a)
    return (a == a) if otherwise else (a != a)


_test("isnan", lambda k, a: _floating(k, a, "isnan", False))


def _as_equal(cls: Any, op: Any, args: tuple[Any, ...]) -> TensorSpec:
    """Of abs(self) == inf, the way of torch: an operand of no dimensions shows in the strides of
    what is empty. (Integers are never infinite and not compared.)"""
    (x,) = args
    ops = [x] if dt.is_integral(x.dtype) else [x, scalar_tensor(0, dt.float32)]
    shape, stride = slot("broadcast_geometry")(ops)
    return TensorSpec(shape, dt.bool_, x.device, stride)


_test("isinf", lambda k, a: _floating(k, a, "isinf", False), infer=classmethod(_as_equal))
_test("isfinite", lambda k, a: _floating(k, a, "isfinite", True))
_test(
    "signbit",
    lambda k, a: (
        k.signbit(a)
        if a.dtype in ("float32", "float64")
        else (a < 0 if a.dtype != "bool" else a != a)
    ),
)
_test("isposinf", lambda k, a: a == float("inf") if a.dtype in ("float32", "float64") else a != a)
_test("isneginf", lambda k, a: a == float("-inf") if a.dtype in ("float32", "float64") else a != a)


class Isclose(Composite):
    """|self - other| <= atol + rtol |other|."""

    schema = (
        "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool "
        "equal_nan=False) -> Tensor"
    )

    def decompose(self: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
        if self.dtype is not other.dtype:
            raise RuntimeError(
                f"{dt.scalar_name(self.dtype)} did not match {dt.scalar_name(other.dtype)}"
            )
        if rtol < 0:
            raise RuntimeError(f"rtol must be greater than or equal to zero, but got {rtol}")
        if atol < 0:
            raise RuntimeError(f"atol must be greater than or equal to zero, but got {atol}")
        close = self == other
        if equal_nan and self.dtype.is_floating_point:
            close = close | (aten.isnan(self) & aten.isnan(other))
        if rtol == 0 and atol == 0:
            return close
        a, b = (self, other) if not dt.is_integral(self.dtype) else (self.double(), other.double())
        error = aten.abs(a - b)
        allowed = atol + aten.abs(rtol * b)
        return close | (aten.isfinite(error) & (error <= allowed))
