"""Memory formats and layouts, and what strides they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core.tensor import Tensor


class memory_format:
    """An order of dimensions in memory."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout:
    """How elements are stored; flambeau has strided tensors only."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
_mkldnn = layout("_mkldnn")
jagged = layout("jagged")
FORMATS: dict[str, Any] = {
    f.name: f
    for f in (
        contiguous_format, preserve_format, channels_last, channels_last_3d, strided, sparse_coo,
        sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, _mkldnn, jagged,
    )
}  # fmt: skip


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides; extents of 0 count as 1."""
    out, c = [0] * len(shape), 1
    for i in range(len(shape) - 1, -1, -1):
        out[i] = c
        c = c * max(shape[i], 1)
    return tuple(out)


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides with dimension 1 (channels) innermost, for N C H W or N C D H W."""
    order = [0, *range(2, len(shape)), 1]
    out, c = [0] * len(shape), 1
    for i in reversed(order):
        out[i] = c
        c *= max(shape[i], 1)
    return tuple(out)


def is_dense(t: Tensor) -> bool:
    """Whether t's elements fill a block of memory, without gaps or overlaps, in some order."""
    if not t.numel():
        return True
    expected = 1
    for st, s in sorted((st, s) for s, st in zip(t.shape, t.stride(), strict=True) if s != 1):
        if st != expected:
            return False
        expected *= s
    return True


def is_channels_last(t: Tensor, dims: int = 4) -> bool:
    """Whether t's strides are those of channels-last (extents of 1 are ignored)."""
    if t.dim() != dims:
        return False
    expected = 1
    shape, strides = t.shape, t.stride()
    for i in (1, *range(dims - 1, 1, -1), 0):
        if shape[i] != 1 and strides[i] != expected:
            return False
        expected *= shape[i]
    return True


def looks_channels_last(t: Tensor) -> bool:
    """Whether strides say channels-last even where extents of 1 leave it
    open (torch's suggestion)."""
    shape, strides = t.shape, t.stride()
    n = t.dim()
    if n not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for i in (1, *range(n - 1, 1, -1), 0):
        if shape[i] == 0 or strides[i] < least:
            return False
        if i == 0 and least == strides[1]:
            return False
        least = strides[i]
        if shape[i] > 1:
            least *= shape[i]
    return True


def strides_for(shape: Sequence[int], fmt: Any) -> tuple[int, ...]:
    """The strides of a fresh tensor in the memory format."""
    if fmt is channels_last:
        if len(shape) != 4:
            raise RuntimeError("required rank 4 tensor to use channels_last format")
        return channels_last_strides(shape)
    if fmt is channels_last_3d:
        if len(shape) != 5:
            raise RuntimeError("required rank 5 tensor to use channels_last_3d format")
        return channels_last_strides(shape)
    return contiguous_strides(shape)


def strides_like(t: Tensor, fmt: Any) -> tuple[int, ...]:
    """The strides of a fresh tensor of t's shape; preserve_format keeps t's order."""
    if fmt is None or fmt is preserve_format:
        if is_dense(t):
            return tuple(t.stride())
        return tuple(_native.geometry_of([t])[1])
    return strides_for(t.shape, fmt)


def is_contiguous(self: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Whether the elements stand in the memory format's order without gaps."""
    if memory_format is contiguous_format or memory_format is preserve_format:
        plain: bool = self._contiguous()
        return plain
    if memory_format is channels_last:
        return is_channels_last(self, 4)
    if memory_format is channels_last_3d:
        return is_channels_last(self, 5)
    raise TypeError(
        "is_contiguous(): argument 'memory_format' must be torch.memory_format, not "
        f"{type(memory_format).__name__}"
    )
