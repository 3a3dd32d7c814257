"""Geometry with symbolic ints: what C does for numbers, for sizes that are not numbers yet.

Such a tensor keeps (Size, strides, offset) beside the numbers of the call that is being captured
(the hints); C calls these functions where a decision depends on them. Comparing symbolic ints is a
guard unless the answer is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src.core.size import Size
from flambeau._src.core.slots import fill
from flambeau._src.core.symint import SymBool, SymInt
from flambeau._src.core.tensor import Tensor

__all__ = [
    "all_same", "broadcast", "contiguous", "geometry", "hints", "nbytes", "numel", "same",
    "view_strides",
]  # fmt: skip

_UNKNOWN = 4093  # stands for a size that only running will tell, where C needs some number


def _true(c: Any) -> bool:
    """A condition of sizes, as the tensor library asks it."""
    return bool(c.node.guard_size_oblivious("", 0)) if isinstance(c, SymBool) else bool(c)


def same(a: Any, b: Any) -> bool:
    """Whether two extents or strides are equal; those that only running tells are not 0 or 1."""
    if a is b:
        return True
    if type(a) is not SymInt:
        a, b = b, a
        if type(a) is not SymInt:
            return _true(a == b)
    found = a.node.same(b.node if type(b) is SymInt else b)
    return _true(a == b) if found is None else found


def hints(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The numbers that symbolic ints among the values stand for now; None where there are none."""
    if not any(isinstance(v, SymInt) for v in values):
        return None
    return tuple(_hint(v) if isinstance(v, SymInt) else v for v in values)


def _hint(v: SymInt) -> int:
    found = v.node.hint
    return _UNKNOWN if found is None else int(found)


def geometry(size: Sequence[Any], stride: Sequence[Any], offset: Any) -> tuple[Any, ...]:
    """What a tensor keeps: sizes that are numbers after all are numbers."""
    n: Any
    for n in size:  # an extent is not negative, whatever else is known of it
        if hasattr(n, "__sym_int__") and n.node.hint is None and n.node.maybe_as_int() is None:
            (n >= 0).node.expect_true("", 0)
    return (Size(map(_plain, size)), tuple(map(_plain, stride)), _plain(offset))


def _plain(v: Any) -> Any:
    if isinstance(v, SymInt):
        known = v.node.maybe_as_int()
        if known is None and v.node.of_floats():  # sizes are expressions of ints
            return int(v)
        return v if known is None else known
    return v


def numel(t: Tensor) -> Any:
    """The number of elements."""
    return t.shape.numel()


def nbytes(t: Tensor) -> Any:
    """The bytes that the elements take."""
    return t.shape.numel() * t.dtype.itemsize


def contiguous(t: Tensor) -> bool:
    """Whether the strides are row-major (sizes of 1 do not count; nothing is contiguous)."""
    expected: Any = 1
    for n, stride in zip(reversed(t.shape), reversed(t.stride()), strict=True):
        if not same(n, 1):
            if not same(stride, expected):
                return same(t.shape.numel(), 0)
            expected = expected * n
    return True


def view_strides(t: Tensor, size: Sequence[Any]) -> tuple[Any, ...] | None:
    """Strides of t seen with other sizes of the same number of elements; None: that needs a copy.

    Dimensions that are dense among themselves form a block, and each block must split into whole
    new dimensions. Blocks are compared by their products, so that equal symbols cancel.
    """
    shape, strides = t.shape, t.stride()
    if same(t.shape.numel(), 0):
        return _row_major(size)
    out: list[Any] = [0] * len(size)
    j = len(size) - 1
    block: Any = 1
    base: Any = strides[-1] if shape else 1
    filled: Any = 1
    for i in range(len(shape) - 1, -1, -1):
        block = block * shape[i]
        if i and (same(shape[i - 1], 1) or same(strides[i - 1], block * base)):
            continue
        while j >= 0 and (same(size[j], 1) or not same(filled, block)):
            out[j] = filled * base
            filled = filled * size[j]
            j -= 1
        if not same(filled, block):
            return None
        if i:
            base = strides[i - 1]
            block = filled = 1
    for at in range(j, -1, -1):
        if not same(size[at], 1):
            return None
        out[at] = filled * base if shape else 1
    return tuple(out)


def _row_major(size: Sequence[Any]) -> tuple[Any, ...]:
    out: list[Any] = []
    c: Any = 1
    for n in reversed(size):
        out.append(c)
        c = c * (1 if same(n, 0) else n)
    return tuple(reversed(out))


def broadcast(tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Broadcast shape of the operands and the strides of a fresh result, by the iterator's rule."""
    shape = _broadcast_shape(tensors)
    same = all(len(t.shape) == len(shape) and all_same(t.shape, shape) for t in tensors)
    if same and all(contiguous(t) for t in tensors):
        return shape, _row_major(shape)
    if (
        same
        and all(all_same(t.stride(), tensors[0].stride()) for t in tensors)
        and _dense(tensors[0])
    ):
        return shape, tensors[0].stride()
    order = _order([_strides_in(t, shape) for t in tensors], shape)
    out: list[Any] = [0] * len(shape)
    c: Any = 1
    for d in order:
        out[d] = c
        c = c * shape[d]
    return shape, tuple(out)


def _broadcast_shape(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    nd = max(t.dim() for t in tensors)
    shape: list[Any] = [1] * nd
    for i in range(nd):
        for t in tensors:
            j = i - (nd - t.dim())
            if j < 0:
                continue
            n, s = t.shape[j], shape[i]
            if n is s or same(n, 1) or (not same(s, 1) and _agree(n, s)):
                continue
            if not same(s, 1):
                raise RuntimeError(
                    f"The size of tensor a ({s}) must match the size of tensor b ({n}) at "
                    f"non-singleton dimension {i}"
                )
            shape[i] = n
    return tuple(shape)


def _agree(n: Any, s: Any) -> bool:
    """Whether two extents, neither of them 1, are equal. Where only running would tell they must
    be: it is asserted then."""
    same = n == s
    if isinstance(same, SymBool) and same.node.hint is None:
        return bool(same.node.expect_true("", 0))
    return _true(same)


def all_same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes (or strides) are equal."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def _dense(t: Tensor) -> bool:
    """Whether the elements fill a block of memory in some order."""
    left = [(s, n) for n, s in zip(t.shape, t.stride(), strict=True) if not same(n, 1)]
    expected: Any = 1
    while left:
        found = next((i for i, (s, _) in enumerate(left) if same(s, expected)), None)
        if found is None:
            return False
        expected = expected * left.pop(found)[1]
    return True


def _strides_in(t: Tensor, shape: Sequence[Any]) -> list[Any]:
    """t's strides in bytes among the broadcast dimensions, 0 where it is broadcast."""
    new = len(shape) - t.dim()
    out: list[Any] = [0] * new
    for n, s, full in zip(t.shape, t.stride(), shape[new:], strict=True):
        out.append(0 if same(n, 1) and not same(full, 1) else s * t.dtype.itemsize)
    return out


def _order(strides: Sequence[Sequence[Any]], shape: Sequence[Any]) -> list[int]:
    """Dimensions from the innermost: the first operand that tells two apart decides."""
    perm = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(perm)):
        at = i
        for j in range(i - 1, -1, -1):
            order = _compare(strides, shape, perm[j], perm[at])
            if order > 0:
                perm[j], perm[at] = perm[at], perm[j]
                at = j
            elif order < 0:
                break
    return perm


def _compare(strides: Sequence[Sequence[Any]], shape: Sequence[Any], a: int, b: int) -> int:
    for st in strides:
        x, y = st[a], st[b]
        if x is y:
            if not same(x, 0) and _true(shape[a] > shape[b]):
                return 1
            continue
        if same(x, 0) or same(y, 0):
            continue
        if _true(x < y):
            return -1
        if _true(x > y) or _true(shape[a] > shape[b]):
            return 1
    return 0


fill("size_hints", hints)
fill("symbolic_geometry", geometry)
fill("symbolic_numel", numel)
fill("symbolic_nbytes", nbytes)
fill("symbolic_contiguous", contiguous)
fill("symbolic_view_strides", view_strides)
fill("symbolic_broadcast", broadcast)
