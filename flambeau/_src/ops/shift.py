"""Bit shifts, and the in-place forms that Python's augmented operators call.

A shift by a negative number, or by as many bits as there are, gives 0; to the right it gives the
sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Pointwise
from flambeau._src.ops.op import Declaration
from flambeau._src.ops.promote import result_type

_SHIFTED = frozenset({dt.uint8, dt.int8, dt.int16, dt.int32, dt.int64})


def _refuse_others(name: str, *args: Any) -> None:
    common = result_type(args)
    if common not in _SHIFTED:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{dt.scalar_name(common)}'")


def _declare(full: str, dunder: str, operator: Callable[[Any, Any], Any]) -> None:
    """The operators of one direction: the named one, and those of Python's operator."""

    def expr(k: Any, a: Any, b: Any) -> Any:
        return operator(a, b)

    def check(a: Any, b: Any) -> None:
        _refuse_others(dunder, a, b)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.ints((3, 4), -9, 9), s.ints((3, 4), 0, 5))
        yield s.sample(s.ints((3, 4), -9, 9), s.ints((4,), -1, 70))
        yield s.sample(s.ints((3,), -9, 9), 2)

    common = {
        "expr": expr, "check": check, "differentiable": False, "samples": samples,
        "__module__": __name__,
    }  # fmt: skip
    type(full, (Pointwise,), {
        **common, "schema": f"{full}.Tensor(Tensor self, Tensor other) -> Tensor",
        "overloads": (
            f"{full}.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
            f"{full}.Scalar_Tensor(Scalar self, Tensor other) -> Tensor",
        ),
        "__doc__": f"The bits of self moved by other ({dunder}).",
    })  # fmt: skip

    whole = f"__{dunder}__"
    type(whole, (Pointwise,), {
        **common, "schema": f"{whole}.Tensor(Tensor self, Tensor other) -> Tensor",
        "overloads": (f"{whole}.Scalar(Tensor self, Scalar other) -> Tensor",),
        "inplace": False, "public": "method", "__doc__": f"self {dunder} other.",
    })  # fmt: skip

    def reflected(self: Tensor, other: Any) -> Tensor:
        return getattr(aten, full)(other, self)

    type(f"__r{dunder}__", (Composite,), {
        "schema": f"__r{dunder}__(Tensor self, Scalar other) -> Tensor", "public": "method",
        "decompose": reflected, "__module__": __name__,
    })  # fmt: skip

    def run(self: Tensor, other: Any) -> Tensor:
        return getattr(aten, full + "_")(self, other)

    for overload, kind in (("Tensor", "Tensor"), ("Scalar", "Scalar")):
        type(f"__i{dunder}__", (Declaration,), {
            "schema": f"__i{dunder}__.{overload}(Tensor(a!) self, {kind} other) -> Tensor(a!)",
            "public": "method", "run": staticmethod(run), "__module__": __name__,
        })  # fmt: skip


_declare("bitwise_left_shift", "lshift", lambda a, b: a << b)
_declare("bitwise_right_shift", "rshift", lambda a, b: a >> b)


def _augmented(name: str, inplace: str) -> None:
    """`self op= other` as the in-place operator `inplace`."""

    def decompose(self: Tensor, other: Any) -> Tensor:
        return getattr(aten, inplace)(self, other)

    for overload, kind in (("Tensor", "Tensor"), ("Scalar", "Scalar")):
        type(name, (Composite,), {
            "schema": f"{name}.{overload}(Tensor(a!) self, {kind} other) -> Tensor(a!)",
            "public": "method", "decompose": decompose, "__module__": __name__,
        })  # fmt: skip


_augmented("__iand__", "bitwise_and_")
_augmented("__ior__", "bitwise_or_")
_augmented("__ixor__", "bitwise_xor_")
