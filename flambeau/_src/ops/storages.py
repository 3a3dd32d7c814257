"""A tensor given other bytes or other extents in place: set_, resize_, resize_as_."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, resize_to
from flambeau._src.ops.kinds import Composite, Opaque
from flambeau._src.ops.op import Declaration, TensorSpec
from flambeau._src.ops.strided import extent


def point_at(
    t: Tensor, source: Any, offset: int, size: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """Make t a view of the storage, which grows where it is too small. t keeps its own version."""
    storage = getattr(source, "_untyped_storage", source)
    if not isinstance(storage, _native.UntypedStorage):
        raise TypeError(
            f"set_(): argument 'source' must be Storage or Tensor, not {type(source).__name__}"
        )
    if len(stride) != len(size):
        raise RuntimeError(f"unequal size length ({len(size)}) and stride length ({len(stride)})")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if any(s < 0 for s in size):
        raise RuntimeError("numel: integer multiplication overflow")
    if any(s < 0 for s in stride):
        raise RuntimeError(
            f"Storage size calculation overflowed with sizes={list(size)} and "
            f"strides={list(stride)}"
        )
    count = extent(size, stride)
    need = (offset + count) * t.element_size() if count else 0
    if need > storage.nbytes():
        storage.resize_(need)
    version = t._current_version()
    t._set(storage, offset, tuple(size), tuple(stride))
    t._fresh_version()
    for _ in range(version):
        t._bump_version()
    return t


class SetTensor(Declaration):
    """self becomes a view of what source shows."""

    schema = "set_.source_Tensor(Tensor(a!) self, Tensor source) -> Tensor(a!)"
    public = "method"
    kind = "set"

    def run(self: Tensor, source: Tensor) -> Tensor:
        if source.dtype is not self.dtype:
            raise RuntimeError(
                "Could not set tensor of type "
                f"{dt.c_name(source.dtype)} "
                f"to a tensor of type {dt.c_name(self.dtype)}"
            )
        return point_at(
            self, source.untyped_storage(), source.storage_offset(), source.shape, source.stride()
        )


class SetTensorPart(Declaration):
    """self becomes a part of source's storage."""

    schema = (
        "set_.source_Tensor_storage_offset(Tensor(a!) self, Tensor source, SymInt storage_offset, "
        "SymInt[] size, SymInt[] stride=[]) -> Tensor(a!)"
    )
    public = "method"
    kind = "set"

    def run(
        self: Tensor, source: Tensor, offset: int, size: Sequence[int], stride: Sequence[int]
    ) -> Tensor:
        stride = stride or layout.contiguous_strides(size)
        return point_at(self, source.untyped_storage(), offset, size, stride)


class SetNothing(Declaration):
    """self becomes empty, over a storage of its own."""

    schema = "set_(Tensor(a!) self) -> Tensor(a!)"
    public = "method"
    kind = "set"

    def run(self: Tensor) -> Tensor:
        fresh = _native.empty((0,), self.dtype, self.device)
        return point_at(self, fresh.untyped_storage(), 0, (0,), (1,))


class SetStorage(Declaration):
    """self becomes one dimension over all of the storage."""

    schema = "set_.source_Storage(Tensor(a!) self, Storage source) -> Tensor(a!)"
    public = "method"
    kind = "set"

    def run(self: Tensor, source: Any) -> Tensor:
        storage = getattr(source, "_untyped_storage", source)
        n = storage.nbytes() // self.element_size() if hasattr(storage, "nbytes") else 0
        return point_at(self, source, 0, (n,), (1,))


class SetStoragePart(Declaration):
    """self becomes a part of the storage."""

    schema = (
        "set_.source_Storage_storage_offset(Tensor(a!) self, Storage source, SymInt "
        "storage_offset, "
        "SymInt[] size, SymInt[] stride=[]) -> Tensor(a!)"
    )
    public = "method"
    kind = "set"

    def run(
        self: Tensor, source: Any, offset: int, size: Sequence[int], stride: Sequence[int]
    ) -> Tensor:
        return point_at(self, source, offset, size, stride or layout.contiguous_strides(size))


class Resize(Declaration):
    """self with other extents, dense; its storage grows where it is too small, and live views of
    the storage go on seeing it."""

    schema = (
        "resize_(Tensor(a!) self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor(a!)"
    )
    public = "method"
    kind = "set"

    def check_recorded(self: Tensor, *rest: Any) -> None:
        """Resizing has no gradient."""
        if self.requires_grad:
            raise RuntimeError("cannot resize variables that require grad")

    def run(self: Tensor, size: Sequence[int], memory_format: Any) -> Tensor:
        Resize.check_recorded(self)
        if any(s < 0 for s in size):
            raise RuntimeError("numel: integer multiplication overflow")
        if memory_format is layout.preserve_format:
            raise RuntimeError("Unsupported memory formatPreserve")
        if tuple(self.shape) == tuple(size) and memory_format is None:
            return self
        stride = None if memory_format is None else layout.strides_for(size, memory_format)
        resize_to(self, size, stride)
        return self


class ResizeAs(Declaration):
    """self with the extents of the template."""

    schema = (
        "resize_as_(Tensor(a!) self, Tensor the_template, *, MemoryFormat? memory_format=None) "
        "-> Tensor(a!)"
    )
    kind = "set"
    check_recorded = Resize.check_recorded

    def run(self: Tensor, template: Tensor, memory_format: Any) -> Tensor:
        if memory_format is layout.preserve_format:
            channels = template.dim() in (4, 5) and layout.looks_channels_last(template)
            last = layout.channels_last if template.dim() == 4 else layout.channels_last_3d
            memory_format = last if channels else layout.contiguous_format
        return Resize.run(self, tuple(template.shape), memory_format)


# ---- conjugates: carried out at once, not marked ----


class ConjNow(Opaque):
    """The complex conjugate."""

    schema = "_conj(Tensor self) -> Tensor"
    public = ""

    def meta(t: Tensor) -> TensorSpec:
        return TensorSpec(t.shape, t.dtype, t.device, layout.strides_like(t, None))

    def kernel(out: Tensor, t: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        from flambeau._src.core.interchange import array_of  # lazy: with it

        if t.numel():
            np.conjugate(array_of(t), out=array_of(out))

    def vjp(b: Any, g: Tensor, t: Tensor) -> Tensor:
        return aten._conj(g) if g.dtype.is_complex else g


class ConjPhysicalNow(Opaque):
    """The complex conjugate in fresh bytes."""

    schema = "_conj_physical(Tensor self) -> Tensor"
    public = ""
    meta = ConjNow.meta
    kernel = ConjNow.kernel

    def vjp(b: Any, g: Tensor, t: Tensor) -> Tensor:
        return aten._conj_physical(g) if g.dtype.is_complex else g


class ConjPhysicalInPlace(Composite):
    """self conjugated in place."""

    schema = "conj_physical_(Tensor(a!) self) -> Tensor(a!)"

    def decompose(self: Tensor) -> Tensor:
        return aten.copy_(self, aten._conj_physical(self)) if self.dtype.is_complex else self
