"""What programs ask about dtypes: their limits, and which one holds the values of two."""

from __future__ import annotations

from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import state

_FLOATS: dict[str, tuple[int, int, int]] = {  # bits, mantissa bits, exponent bits
    "float64": (64, 52, 11), "float32": (32, 23, 8), "float16": (16, 10, 5), "bfloat16": (16, 7, 8),
    "float8_e5m2": (8, 2, 5), "float8_e4m3fn": (8, 3, 4),
}  # fmt: skip


class finfo:
    """bits, eps, max, min, tiny, smallest_normal, resolution of a floating dtype."""

    __slots__ = ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype")

    def __init__(self, type: Any = None) -> None:
        d = dt.as_dtype(type, "finfo", "argument 'type' (position 1)")
        d = state.process.default_dtype if d is None else d
        if not (d.is_floating_point or d.is_complex):
            raise TypeError(
                "torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'{getattr(d, 'name', d)}'"
            )
        d = dt.REAL_OF.get(d, d)
        bits, m, e = _FLOATS[d.name]
        bias = 2 ** (e - 1) - 1
        self.bits, self.dtype = bits, d.name
        self.eps = 2.0**-m
        top = 2.0**bias * (2 - 2.0**-m)
        self.max = 448.0 if d.name == "float8_e4m3fn" else top
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (1 - bias)
        digits = int(m * 0.30102999566398114)
        self.resolution = float(f"1e-{digits}") if digits else 1.0

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(("finfo", self.dtype))


class iinfo:
    """bits, max, min of an integer dtype."""

    __slots__ = ("bits", "max", "min", "dtype")

    def __init__(self, type: Any) -> None:
        type = dt.as_dtype(type, "iinfo", "argument 'type' (position 1)")
        if type is None or not dt.is_integral(type, with_bool=False):
            if type is dt.bool_:
                raise TypeError("torch.bool is not supported by torch.iinfo")
            raise TypeError(
                "torch.iinfo() requires an integer input type. Use torch.finfo to handle "
                f"'{getattr(type, 'name', type)}'"
            )
        self.bits, self.dtype = 8 * type.itemsize, type.name
        self.max = 2 ** (self.bits - (1 if type.is_signed else 0)) - 1
        self.min = -(2 ** (self.bits - 1)) if type.is_signed else 0

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(("iinfo", self.dtype))


def promote_types(type1: Any, type2: Any) -> Any:
    """The smallest dtype that both convert to. Raises TypeError for what is no dtype."""
    first = dt.as_dtype(type1, "promote_types", "argument 'type1' (position 1)")
    second = dt.as_dtype(type2, "promote_types", "argument 'type2' (position 2)")
    return dt.promote_types(first, second)


def can_cast(from_: Any, to: Any) -> bool:
    """Whether a result of one dtype may be written into the other without losing its category."""
    first = dt.as_dtype(from_, "can_cast", "argument 'from_' (position 1)")
    return dt.can_cast(first, dt.as_dtype(to, "can_cast", "argument 'to' (position 2)"))
