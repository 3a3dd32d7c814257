"""What operands become together: their extents, and their type. Of mixed arguments tensors with
dimensions count first, then 0-dim tensors, then Python numbers; a lower group only counts when its
category (bool < int < float < complex) is higher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
