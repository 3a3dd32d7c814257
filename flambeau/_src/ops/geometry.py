"""The geometry of a tensor as numbers: what a graph reads a size with."""

from __future__ import annotations

from typing import Any

from flambeau._src.core.layout import contiguous_format, is_contiguous
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.op import Declaration


class Question(Declaration):
    """An operator that answers with numbers."""

    kind = "question"
    public = ""
    differentiable = False


class SymSize(Question):
    """All extents."""

    schema = "sym_size(Tensor self) -> SymInt[]"

    def run(self: Tensor) -> Any:
        return list(self.size())


class SymSizeInt(Question):
    """The extent of one dimension."""

    schema = "sym_size.int(Tensor self, int dim) -> SymInt"

    def run(self: Tensor, dim: int) -> Any:
        return self.size(dim)


class SymStride(Question):
    """All strides."""

    schema = "sym_stride(Tensor self) -> SymInt[]"

    def run(self: Tensor) -> Any:
        return list(self.stride())


class SymStrideInt(Question):
    """The stride of one dimension."""

    schema = "sym_stride.int(Tensor self, int dim) -> SymInt"

    def run(self: Tensor, dim: int) -> Any:
        return self.stride(dim)


class SymNumel(Question):
    """The number of elements."""

    schema = "sym_numel(Tensor self) -> SymInt"

    def run(self: Tensor) -> Any:
        return self.numel()


class SymStorageOffset(Question):
    """Elements before the first."""

    schema = "sym_storage_offset(Tensor self) -> SymInt"

    def run(self: Tensor) -> Any:
        return self.storage_offset()


class SymIsContiguous(Question):
    """Whether the elements stand in the memory format's order without gaps."""

    schema = (
        "sym_is_contiguous(Tensor self, MemoryFormat memory_format=contiguous_format) -> SymBool"
    )

    def run(self: Tensor, memory_format: Any = contiguous_format) -> Any:
        return is_contiguous(self, memory_format)
