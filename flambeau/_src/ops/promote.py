"""What operands become together: their extents, and their type. Of mixed arguments tensors with
dimensions count first, then 0-dim tensors, then Python numbers; a lower group only counts when its
category (bool < int < float < complex) is higher."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor


def number_type(v: Any) -> dt.dtype:
    """The dtype that a Python number stands for."""
    if isinstance(v, bool):
        return dt.bool_
    if isinstance(v, int) or hasattr(v, "__sym_int__"):
        return dt.int64
    if isinstance(v, complex):
        return dt.COMPLEX_OF[state.process.default_dtype]
    return state.process.default_dtype


def _combine(high: dt.dtype | None, low: dt.dtype | None) -> dt.dtype | None:
    if high is None or low is None:
        return high or low
    if high.is_complex:
        return high
    if high.is_floating_point:
        return dt.COMPLEX_OF[high] if low.is_complex else high
    if high is dt.bool_ or low.is_floating_point or low.is_complex:
        return dt.promote_types(high, low)
    return high


def result_type(values: Iterable[Any]) -> dt.dtype:
    """The dtype in which the values (tensors and numbers) are computed together."""
    dim: dt.dtype | None = None
    zero: dt.dtype | None = None
    number: dt.dtype | None = None
    for v in values:
        if isinstance(v, Tensor):
            if v._is_wrapped_number:
                d = v.dtype
                d = (
                    state.process.default_dtype
                    if d.is_floating_point
                    else number_type(1j)
                    if d.is_complex
                    else d
                )
                number = d if number is None else dt.promote_types(number, d)
            elif v.dim():
                dim = v.dtype if dim is None else dt.promote_types(dim, v.dtype)
            else:
                zero = v.dtype if zero is None else dt.promote_types(zero, v.dtype)
        elif v is not None:
            d = number_type(v)
            number = d if number is None else dt.promote_types(number, d)
    r = _combine(dim, _combine(zero, number))
    return state.process.default_dtype if r is None else r


def broadcast_shape(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The common extents of broadcast operands."""
    n = max((len(s) for s in shapes), default=0)
    out = [1] * n
    for s in shapes:
        for i in range(1, len(s) + 1):
            have, want = out[-i], s[-i]
            if want == 1 or want == have:
                continue
            if have != 1:
                raise RuntimeError(
                    f"The size of tensor a ({have}) must match the size of tensor b ({want}) at "
                    f"non-singleton dimension {n - i}"
                )
            out[-i] = want
    return tuple(out)


# ---- numbers that a dtype cannot hold ----

_LARGEST = {
    "float16": 65504.0, "complex32": 65504.0, "bfloat16": 255 * 2.0**120,
    "float32": (2 - 2.0**-23) * 2.0**127, "complex64": (2 - 2.0**-23) * 2.0**127,
}  # fmt: skip
C_NAMES = {
    "int8": "int8_t", "int16": "int16_t", "int32": "int", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "float16": "c10::Half",
    "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
    "complex32": "c10::complex<c10::Half>", "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}  # fmt: skip


def overflow(dtype: dt.dtype) -> RuntimeError:
    """torch's refusal of a number that dtype cannot hold."""
    name = C_NAMES.get(dtype.name, dtype.name)
    return RuntimeError(f"value cannot be converted to type {name} without overflow")


def check_number(value: Any, dtype: dt.dtype) -> None:
    """Raise RuntimeError for a number outside dtype's range. Fractions are dropped, infinities and
    NaN are values of floating dtypes, and whole negative numbers wrap around in unsigned ones."""
    if dtype is dt.bool_ or not isinstance(value, (int, float, complex)):
        return
    if isinstance(value, complex):
        if not dtype.is_complex and value.imag != 0:
            raise overflow(dtype)
        parts: tuple[float, ...] = (value.real, value.imag)
    else:
        parts = (value,)
    for x in parts:
        if not _holds(x, dtype):
            raise overflow(dtype)


def _holds(x: float, dtype: dt.dtype) -> bool:
    if dtype.is_complex or dtype.is_floating_point:
        largest = _LARGEST.get(dtype.name)
        return largest is None or math.isinf(x) or math.isnan(x) or abs(x) <= largest
    most = 2 ** (8 * dtype.itemsize - dtype.is_signed) - 1
    least = -most - 1 if dtype.is_signed else -most if isinstance(x, int) else 0
    return bool(least <= x <= most)


def refuse(kernel: str, dtype: dt.dtype) -> None:
    """The error of a kernel that this dtype does not have."""
    raise NotImplementedError(f"\"{kernel}\" not implemented for '{dt.scalar_name(dtype)}'")


def only_floating(kernel: str) -> Callable[..., None]:
    """A check: the common type of all operands is a real floating one."""

    def check(*args: Any) -> None:
        common = result_type(args)
        if not common.is_floating_point:
            refuse(kernel, common)

    return check


def floating_or_complex(kernel: str) -> Callable[..., None]:
    """A check: the common type of all operands is a floating or complex one."""

    def check(*args: Any) -> None:
        common = result_type(args)
        if not (common.is_floating_point or common.is_complex):
            refuse(kernel, common)

    return check
