"""Filling, copying and converting tensors; leaving the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, check_no_self_overlap
from flambeau._src.ops.kinds import (
    Composite,
    Pointwise,
    Split,
    View,
    kernel_for,
    scalar_tensor,
    unbroadcast,
)
from flambeau._src.ops.op import Declaration, TensorSpec, packet


class _Identity(Pointwise):
    """The kernel behind every copy and conversion; not public."""

    schema = "_identity(Tensor self) -> Tensor"
    public = ""
    inplace = False
    out = False

    def expr(k: Any, a: Any) -> Any:
        return a


def copy_into(target: Tensor, source: Tensor) -> None:
    """target[...] = source: broadcast, converted, any strides. No layer sees it."""
    if not target.numel() or target.untyped_storage().is_fake:
        return
    if source.untyped_storage() is target.untyped_storage() and source is not target:
        source = _plain_clone(source)
    if target.dtype is source.dtype and _native.copy(target, source):
        return
    op = _Identity.op
    parts = Split(op, (source,))
    common = target.dtype if target.dtype.is_complex else source.dtype
    address = kernel_for(op, _Identity.expr, "map", parts, [source], (target,), common)
    if address is None:
        _copy_numpy(target, source)
        return
    _native.run_map(address, (target,), (source,), None)


def _copy_numpy(target: Tensor, source: Tensor) -> None:
    """A copy without kernels: for complex dtypes, and for machines that can build none."""
    import numpy as np  # lazy: NumPy is heavy

    from flambeau._src.core.interchange import array_of  # lazy: with it

    values = array_of(source)
    if source.dtype is dt.bfloat16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    elif source.dtype is dt.complex32:
        halves = np.ascontiguousarray(values).view(np.float16).astype(np.float32)
        values = halves.view(np.complex64).reshape(source.shape)
    if source.dtype.is_complex and not target.dtype.is_complex:
        values = values.real
    with np.errstate(all="ignore"):
        if target.dtype is dt.bfloat16:
            bits = np.asarray(values, np.float32, order="C").view(np.uint32)
            nan = (bits & 0x7FFFFFFF) > 0x7F800000
            values = np.where(nan, 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(
                np.uint16
            )
        elif target.dtype is dt.complex32:
            parts = np.ascontiguousarray(values, np.complex64).view(np.float32)
            values = parts.astype(np.float16).view(np.uint32).reshape(np.shape(values))
        array_of(target)[...] = values


def _plain_clone(t: Tensor) -> Tensor:
    shape, stride = _native.geometry_of([t])
    out = _native.empty(shape, t.dtype, t.device, stride)
    copy_into(out, t)
    return out


def cast_to(t: Tensor, dtype: dt.dtype) -> Tensor:
    """A copy of t in another dtype, strides kept where t is dense."""
    shape, stride = _native.geometry_of([t])
    out = _native.empty(shape, dtype, t.device, stride)
    copy_into(out, t)
    return out


def fill_with(target: Tensor, value: Any) -> None:
    """Every element becomes the number. No layer sees it."""
    if target.untyped_storage().is_fake or not target.numel():
        return
    if (
        value == 0
        and not isinstance(value, complex)
        and str(value) != "-0.0"
        and _native.zero(target)
    ):
        return
    if target.dtype.is_complex or not isinstance(value, complex):
        copy_into(target, scalar_tensor(value, _holder(value, target.dtype)))
        return
    raise RuntimeError("value cannot be converted to type without overflow")


def _holder(value: Any, target: dt.dtype) -> dt.dtype:
    """The dtype in which the number reaches the target unchanged."""
    if target.is_complex or target.is_floating_point:
        return target if target.is_complex else dt.float64 if target is dt.float64 else dt.float32
    if isinstance(value, float):
        return dt.float64
    if isinstance(value, bool):
        return dt.bool_
    return dt.int64 if -(2**63) <= value < 2**63 else dt.uint64


fill("copy_into", copy_into)
fill("fill_with", fill_with)
fill("sum_to", unbroadcast)
fill("cast_to", cast_to)
fill("broadcast_geometry", _native.geometry_of)
fill("clone_plain", _plain_clone)


def check_expands(source: Tensor, shape: Any) -> None:
    """torch's refusal of copies whose source does not broadcast to the target."""
    s, t = tuple(source.shape), tuple(shape)
    n = max(len(s), len(t))
    whole = [1] * (n - len(t)) + list(t)
    for back in range(1, len(s) + 1):
        have, want = whole[-back], s[-back]
        if have not in (1, want) and want != 1:
            raise RuntimeError(
                f"The size of tensor a ({have}) must match the size of tensor b ({want}) at "
                f"non-singleton dimension {n - back}"
            )
        whole[-back] = want if have == 1 else have
    if tuple(whole) != t:
        raise RuntimeError(f"output with shape {list(t)} doesn't match the broadcast shape {whole}")


class Copy(Declaration):
    """self with src written over it (broadcast, converted)."""

    schema = "copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor"
    node_name = "CopyBackwards"
    kind = "copy"
    public = "method"
    inplace = True

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)), s.tensor((5,)))
        yield s.sample(s.tensor((3, 4)), s.tensor((3, 4)).t().contiguous().t())
        yield s.sample(s.tensor(()), s.tensor(()))
        yield s.sample(s.tensor((0, 3)), s.tensor((1, 3)))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError, "must match the size of tensor b", s.tensor((2, 3)), s.tensor((2, 4))
        )

    def run(self: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
        check_expands(src, self.shape)
        out = _plain_clone(self)
        copy_into(out, src)
        return out

    def run_inplace(self: Tensor, src: Tensor, non_blocking: bool) -> None:
        check_expands(src, self.shape)
        check_no_self_overlap(self)
        copy_into(self, src)

    def meta(self: Tensor, src: Tensor, non_blocking: bool) -> TensorSpec:
        check_expands(src, self.shape)
        return TensorSpec(self.shape, self.dtype, self.device, layout.strides_like(self, None))

    def vjp(b: Any, g: Any, self: Tensor, src: Tensor, non_blocking: bool) -> Any:
        return (
            aten.zeros_like(g) if b.needs[0] else None,
            unbroadcast(g, src) if b.needs[1] else None,
        )


class FillScalar(Declaration):
    """self with every element replaced by a number."""

    schema = "fill.Scalar(Tensor self, Scalar value) -> Tensor"
    whole = True
    kind = "copy"
    inplace = True

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)), 2)
        yield s.sample(s.tensor(()), 1.5)
        yield s.sample(s.tensor((0, 3)), 1)

    def decompose(self: Tensor, value: Any) -> Tensor:
        return aten.full_like(self, value)

    def run(self: Tensor, value: Any) -> Tensor:
        out = _native.empty(self.shape, self.dtype, self.device, layout.strides_like(self, None))
        fill_with(out, value)
        return out

    def run_inplace(self: Tensor, value: Any) -> None:
        fill_with(self, value)

    def meta(self: Tensor, value: Any) -> TensorSpec:
        return TensorSpec(self.shape, self.dtype, self.device, layout.strides_like(self, None))

    def vjp(b: Any, g: Any, self: Tensor, value: Any) -> Any:
        return aten.zeros_like(g)


def _check_fill_value(value: Tensor) -> None:
    if value.dim():
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {value.dim()} "
            "dimensions."
        )


class FillTensor(Declaration):
    """self with every element replaced by a 0-dim tensor's value."""

    schema = "fill.Tensor(Tensor self, Tensor value) -> Tensor"
    whole = True
    kind = "copy"
    inplace = True

    def decompose(self: Tensor, value: Tensor) -> Tensor:
        _check_fill_value(value)
        return aten.copy(self, value)

    def run(self: Tensor, value: Tensor) -> Tensor:
        _check_fill_value(value)
        out = _native.empty(self.shape, self.dtype, self.device, layout.strides_like(self, None))
        copy_into(out, value)
        return out

    def run_inplace(self: Tensor, value: Tensor) -> None:
        _check_fill_value(value)
        copy_into(self, value)

    def meta(self: Tensor, value: Tensor) -> TensorSpec:
        _check_fill_value(value)
        return TensorSpec(self.shape, self.dtype, self.device, layout.strides_like(self, None))

    def vjp(b: Any, g: Any, self: Tensor, value: Tensor) -> Any:
        return (
            aten.zeros_like(g) if b.needs[0] else None,
            unbroadcast(aten.sum(g), value) if b.needs[1] else None,
        )


class Zero(Declaration):
    """self with every element zero."""

    schema = "zero(Tensor self) -> Tensor"
    whole = True
    kind = "copy"
    inplace = True
    public = ""
    public_inplace = "function, method"

    def decompose(self: Tensor) -> Tensor:
        return aten.full_like(self, 0)

    def run(self: Tensor) -> Tensor:
        return FillScalar.run(self, 0)

    def run_inplace(self: Tensor) -> None:
        fill_with(self, 0)

    def meta(self: Tensor) -> TensorSpec:
        return FillScalar.meta(self, 0)

    def vjp(b: Any, g: Any, self: Tensor) -> Any:
        return aten.zeros_like(g)


class Clone(Declaration):
    """A copy with its own bytes."""

    schema = "clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor"
    kind = "copy"
    out = "out"

    def meta(self: Tensor, memory_format: Any) -> TensorSpec:
        return TensorSpec(
            self.shape, self.dtype, self.device, layout.strides_like(self, memory_format)
        )

    def kernel(out: Tensor, self: Tensor, memory_format: Any) -> None:
        copy_into(out, self)

    def vjp(b: Any, g: Any, self: Tensor, memory_format: Any) -> Any:
        return g


class LiftFresh(View):
    """self; marks data that has just entered the program."""

    schema = "lift_fresh(Tensor(a) self) -> Tensor(a)"
    public = ""
    whole = True

    def decompose(self: Tensor) -> Tensor:
        return aten.alias(self)

    def view(self: Tensor) -> Any:
        return self.shape, self.stride(), self.storage_offset()

    def vjp(b: Any, g: Any, self: Tensor) -> Any:
        return g


class LiftFreshCopy(Declaration):
    """A copy of data that has just entered the program; what a trace shows of `lift_fresh`."""

    schema = "lift_fresh_copy(Tensor self) -> Tensor"
    kind = "copy"
    public = ""
    out = "out"

    def meta(self: Tensor) -> TensorSpec:
        return TensorSpec(self.shape, self.dtype, self.device, layout.strides_like(self, None))

    def kernel(out: Tensor, self: Tensor) -> None:
        copy_into(out, self)

    def decompose(self: Tensor) -> Tensor:
        return aten.clone(self)

    def vjp(b: Any, g: Any, self: Tensor) -> Any:
        return g


class Detach(View):
    """The same bytes and version, outside the graph."""

    schema = "detach(Tensor(a) self) -> Tensor(a)"
    whole = True
    differentiable = False
    gives_base = False

    def view(self: Tensor) -> Any:
        return self.shape, self.stride(), self.storage_offset()

    def decompose(self: Tensor) -> Tensor:
        return aten.alias(self)

    @classmethod
    def run(cls, *args: Any) -> Tensor:
        (source,) = args
        out = _native.alias(Tensor, source)
        out._bits = source._bits & _GEOMETRY
        return out

    @classmethod
    def fast(cls, op: Any) -> Any:
        return _native.Fast("detach", 1)


_GEOMETRY = 1 << 1


class ToCopy(Declaration):
    """A converted copy: what `to` is when something changes."""

    schema = (
        "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
        "device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? "
        "memory_format=None) -> Tensor"
    )
    kind = "copy"
    public = "function"
    out = "out"

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)))
        yield s.sample(s.tensor(()))
        yield s.sample(s.tensor((0, 3)), dtype=dt.int32)

    def meta(
        self: Tensor,
        dtype: Any,
        layout_: Any,
        device: Any,
        pin_memory: Any,
        non_blocking: bool,
        memory_format: Any,
    ) -> TensorSpec:
        return TensorSpec(
            self.shape,
            dtype or self.dtype,
            device or self.device,
            layout.strides_like(self, memory_format),
        )

    def kernel(out: Tensor, self: Tensor, *rest: Any) -> None:
        copy_into(out, self)

    def vjp(b: Any, g: Any, self: Tensor, *rest: Any) -> Any:
        if g.dtype.is_complex and not self.dtype.is_complex:
            g = aten.real(g)
        if (g.dtype, g.device) == (self.dtype, self.device):
            return g
        return aten._to_copy(g, dtype=self.dtype, layout=layout.strided, device=self.device)


def suggested_format(t: Tensor) -> Any:
    """The memory format of t's strides: channels last (2d, 3d), else contiguous."""
    if not layout.looks_channels_last(t):
        return layout.contiguous_format
    return layout.channels_last if t.dim() == 4 else layout.channels_last_3d


def _converted(
    self: Tensor, dtype: Any, device: Any, non_blocking: bool, copy: bool, memory_format: Any
) -> Tensor:
    same = (
        (dtype is None or dtype is self.dtype)
        and (
            device is None
            or device == self.device
            or (device.type == self.device.type and device.index is None)
        )
        and (
            memory_format is None
            or memory_format is layout.preserve_format
            or memory_format is suggested_format(self)
        )
    )
    if same and not copy:
        return self
    return aten._to_copy(
        self, dtype=dtype, device=device, non_blocking=non_blocking, memory_format=memory_format
    )


class ToDtype(Composite):
    """self in another dtype; self itself when nothing changes."""

    schema = (
        "to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, "
        "MemoryFormat? memory_format=None) -> Tensor(a)"
    )
    public = ""

    def decompose(
        self: Tensor, dtype: Any, non_blocking: bool, copy: bool, memory_format: Any
    ) -> Tensor:
        return _converted(self, dtype, None, non_blocking, copy, memory_format)


class ToDevice(Composite):
    """self on another device in another dtype."""

    schema = (
        "to.device(Tensor(a) self, Device device, ScalarType dtype, bool non_blocking=False, bool "
        "copy=False, MemoryFormat? memory_format=None) -> Tensor(a)"
    )
    public = ""

    def decompose(
        self: Tensor, device: Any, dtype: Any, non_blocking: bool, copy: bool, memory_format: Any
    ) -> Tensor:
        return _converted(self, dtype, device, non_blocking, copy, memory_format)


class ToOther(Composite):
    """self with the dtype and device of other."""

    schema = (
        "to.other(Tensor(a) self, Tensor other, bool non_blocking=False, bool copy=False, "
        "MemoryFormat? memory_format=None) -> Tensor(a)"
    )
    public = ""

    def decompose(
        self: Tensor, other: Tensor, non_blocking: bool, copy: bool, memory_format: Any
    ) -> Tensor:
        return _converted(self, other.dtype, other.device, non_blocking, copy, memory_format)


class ToDtypeLayout(Composite):
    """self with the options that are given changed."""

    schema = (
        "to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
        "device=None, bool? pin_memory=None, bool non_blocking=False, bool copy=False, "
        "MemoryFormat? memory_format=None) -> Tensor(a)"
    )
    public = ""

    def decompose(
        self: Tensor,
        dtype: Any,
        layout_: Any,
        device: Any,
        pin_memory: Any,
        non_blocking: bool,
        copy: bool,
        memory_format: Any,
    ) -> Tensor:
        return _converted(self, dtype, device, non_blocking, copy, memory_format)


class Contiguous(Composite):
    """self when it is contiguous in the memory format, else a copy that is."""

    schema = (
        "contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)"
    )
    public = "method"

    def decompose(self: Tensor, memory_format: Any) -> Tensor:
        fmt = layout.contiguous_format if isinstance(memory_format, str) else memory_format
        if fmt is layout.preserve_format:
            raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
        if layout.is_contiguous(self, fmt):
            return self
        return aten.clone(self, memory_format=fmt)


class TypeAs(Composite):
    """self in other's dtype and device."""

    schema = "type_as(Tensor self, Tensor other) -> Tensor"
    public = "method"

    def decompose(self: Tensor, other: Tensor) -> Tensor:
        return _converted(self, other.dtype, other.device, False, False, None)


class LocalScalarDense(Declaration):
    """The one element as a Python number."""

    schema = "_local_scalar_dense(Tensor self) -> Scalar"
    public = "function"
    differentiable = False

    def run(self: Tensor) -> Any:
        if self.device.type == "meta":
            raise RuntimeError("Tensor.item() cannot be called on meta tensors")
        return self.item()


fill("copy_op", lambda: packet("copy").ops[0].inplace_op)
fill("default_float", lambda: state.process.default_dtype)
fill("any_zero", lambda t: aten.any(t == 0))
fill("item", lambda t: aten._local_scalar_dense(t))
fill("tolist", lambda t: _tolist(t))


def _tolist(t: Tensor) -> Any:
    if t._bits & state.FUNCTORCH:
        t = slot("transformed_value")(t)
    plain = t.detach()
    if plain._bits or plain.device.type != "cpu":
        plain = plain.cpu()
    if not plain.dim():
        return plain.item()
    return [_tolist(x) for x in plain] if plain._bits else plain.tolist()
