"""Python's functions of numbers on numbers that are not fixed: symbolic where the result is one."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau._src.capture.sizes import numbers
from flambeau._src.core.symint import (
    MATH,
    SymFloat,
    SymInt,
    SymNumber,
    of_math,
    sym_float,
    sym_int,
    sym_max,
    sym_min,
)

__all__ = ["handler"]

_NUMBERS = (int, float, bool, SymNumber, type(None))


def _log(x: Any, base: Any = None) -> Any:
    found = MATH["log"](x)
    return found if base is None else found / MATH["log"](base)


def _rounded(x: Any, ndigits: Any = None) -> Any:
    digits = numbers(ndigits)
    if type(x) is not SymFloat or not (digits is None or type(digits) is int):
        return round(numbers(x), digits)
    return round(x, digits)


def _extreme(name: str) -> Callable[..., Any]:
    """Of two floats; of other kinds the result's kind depends on the values."""
    plain, symbolic = getattr(builtins, name), sym_max if name == "max" else sym_min

    def extreme(*values: Any, **kwargs: Any) -> Any:
        floats = all(type(v) in (float, SymFloat) for v in values)
        if len(values) == 2 and floats and not kwargs:
            return symbolic(*values)
        return plain(*values, **kwargs)

    return extreme


def _int(x: Any, *rest: Any) -> Any:
    return int(numbers(x), *rest) if rest else sym_int(x)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    getattr(math, name): function for name, function in MATH.items()
} | {
    math.ceil: partial(of_math, "ceil"),
    math.floor: partial(of_math, "floor"),
    math.trunc: partial(of_math, "trunc"),
    math.log: _log,
    math.pow: lambda x, y: sym_float(x) ** sym_float(y),
    math.isnan: lambda x: bool(x != x),
    math.isinf: lambda x: bool(abs(x) == math.inf),
    math.isfinite: lambda x: bool(abs(x) < math.inf),
    round: _rounded,
    max: _extreme("max"),
    min: _extreme("min"),
    int: _int,
    float: sym_float,
    divmod: lambda x, y: (x // y, x % y),
    operator.truth: bool,
}
_ALSO_INTS = frozenset((int, float, max, min, divmod))  # others are as they were for ints


def handler(fn: Any, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """What to call in place of a function of Python; None: nothing else, or no number of these."""
    kinds = {type(v) for v in args}
    if not (SymFloat in kinds or (SymInt in kinds and fn in _ALSO_INTS)):
        return None
    found = _HANDLERS.get(fn)
    return found if found is not None and all(isinstance(v, _NUMBERS) for v in args) else None
