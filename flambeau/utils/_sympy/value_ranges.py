"""Ranges of numbers, both ends included."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flambeau._src.ir.integers import Range

__all__ = ["ValueRangeError", "ValueRanges"]


class ValueRangeError(RuntimeError):
    """A range without a number."""


@dataclass(frozen=True)
class ValueRanges:
    """The numbers from lower to upper; infinite ends are `±math.inf`.

    Raises ValueRangeError where lower > upper.
    """

    lower: Any
    upper: Any

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise ValueRangeError(f"Invalid ranges [{self.lower}:{self.upper}]")

    def __contains__(self, x: Any) -> bool:
        return bool(self.lower <= x <= self.upper)

    def __and__(self, other: ValueRanges) -> ValueRanges:
        return ValueRanges(max(self.lower, other.lower), min(self.upper, other.upper))

    def __or__(self, other: ValueRanges) -> ValueRanges:
        return ValueRanges(min(self.lower, other.lower), max(self.upper, other.upper))

    def is_singleton(self) -> bool:
        """Whether there is one number in it."""
        return bool(self.lower == self.upper)

    def issubset(self, other: ValueRanges) -> bool:
        """Whether the other has all of its numbers."""
        return bool(other.lower <= self.lower and self.upper <= other.upper)

    @staticmethod
    def unknown() -> ValueRanges:
        """All numbers."""
        return ValueRanges(-math.inf, math.inf)

    @staticmethod
    def unknown_int() -> ValueRanges:
        """All ints."""
        return ValueRanges(-math.inf, math.inf)

    @staticmethod
    def wrap(arg: Any) -> ValueRanges:
        """A number as the range that is just it."""
        return arg if isinstance(arg, ValueRanges) else ValueRanges(arg, arg)

    def as_range(self) -> Range:
        """The ints in it, as the engine holds them."""
        low = None if self.lower == -math.inf else int(self.lower)
        return Range(low, None if self.upper == math.inf else int(self.upper))
