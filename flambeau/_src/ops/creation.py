"""Tensors from data, shapes and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.interchange import array_of, share_array
from flambeau._src.core.slots import slot
from flambeau._src.core.symint import SymFloat, SymInt, sym_int
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, overridable, requiring, resize_output
from flambeau._src.ops.copying import fill_with
from flambeau._src.ops.op import Declaration, TensorSpec
from flambeau._src.ops.promote import number_type, overflow

OPTIONS = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
LIKE = OPTIONS + ", MemoryFormat? memory_format=None"


def pick_device(device: Any) -> Any:
    """The device asked for, or the default; an error where flambeau has none of that kind."""
    if device is None:
        stack = state.thread.devices
        return stack[-1] if stack else state.process.default_device
    if device.type not in ("cpu", "meta") and not state.thread.fake:
        slot_error(device)
    return device if device.type != "cpu" or device.index is None else _native.cpu


def slot_error(device: Any) -> None:
    if device.type == "cuda":
        raise AssertionError("Torch not compiled with CUDA enabled")
    raise RuntimeError(f"PyTorch is not linked with support for {device.type} devices")


def pick_layout(layout_: Any) -> None:
    if layout_ is not None and layout_ is not layout.strided and layout_ != "strided":
        raise RuntimeError(
            f"{layout_} tensors are not supported: flambeau has strided tensors only"
        )


def spec(size: Any, dtype: Any, layout_: Any, device: Any, fmt: Any = None) -> TensorSpec:
    pick_layout(layout_)
    for s in size:
        if isinstance(s, int) and s < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {s}: {list(size)}")
    stride = (
        None if fmt is None or fmt is layout.contiguous_format else layout.strides_for(size, fmt)
    )
    return TensorSpec(size, dtype or state.process.default_dtype, pick_device(device), stride)


def _unset(s: TensorSpec, pin: Any) -> Tensor:
    """Unset bytes of that geometry."""
    stride = layout.strides_for(s.shape, layout.contiguous_format) if s.stride is None else s.stride
    return aten.empty_strided(s.shape, stride, dtype=s.dtype, device=s.device, pin_memory=pin)


class Factory(Declaration):
    """Makes a tensor from no tensor."""

    kind = "factory"
    out_dtype = "factory"
    public = "function"
    differentiable = False
    out: bool | str = "out"


class Empty(Factory):
    """Unset bytes."""

    schema = f"empty.memory_format(int[] size, *, {LIKE}) -> Tensor"
    whole = True

    def decompose(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Tensor:
        return _unset(Empty.meta(size, dtype, layout_, device, pin, fmt), pin)

    def meta(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> TensorSpec:
        return spec(size, dtype, layout_, device, fmt)

    def kernel(out: Tensor, *rest: Any) -> None:
        return None


class EmptyStrided(Factory):
    """Unset bytes under the given strides."""

    schema = f"empty_strided(int[] size, int[] stride, *, {OPTIONS}) -> Tensor"

    def meta(size: Any, stride: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        s = spec(size, dtype, layout_, device)
        if len(size) != len(stride):
            raise RuntimeError(
                f"dimensionality of sizes ({len(size)}) must match dimensionality of strides "
                f"({len(stride)})"
            )
        s.stride = tuple(stride)
        return s

    def kernel(out: Tensor, *rest: Any) -> None:
        return None


class EmptyPermuted(Factory):
    """Unset bytes, dimensions in memory in the given order."""

    schema = f"empty_permuted(int[] size, int[] physical_layout, *, {OPTIONS}) -> Tensor"
    whole = True

    def decompose(size: Any, order: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        return _unset(EmptyPermuted.meta(size, order, dtype, layout_, device, pin), pin)

    def meta(size: Any, order: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        n = len(size)
        s = spec(size, dtype, layout_, device)
        if n != len(order):
            raise RuntimeError(
                "Number of dimensions in size does not match the length of the physical_layout; "
                f"i.e. len(size) = {n} is not equal to len(physical_layout) = {len(order)}"
            )
        for at, i in enumerate(order):
            if not 0 <= i < n:
                raise RuntimeError(
                    f"Dimension out of range (expected to be between 0 and {n - 1}, but got {i} at "
                    f"index {at}).  NB: negative dims not currently supported; file an issue if "
                    "you want it."
                )
            if i in order[:at]:
                raise RuntimeError("Duplicate dim not allowed")
        stride, c = [0] * n, 1
        for i in reversed(order):
            stride[i] = c
            c *= max(size[i], 1)
        s.stride = tuple(stride)
        return s

    def kernel(out: Tensor, *rest: Any) -> None:
        return None


class Zeros(Factory):
    """Zeros."""

    schema = f"zeros(int[] size, *, {OPTIONS}) -> Tensor"
    whole = True

    def decompose(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        dtype = dtype or state.process.default_dtype
        return aten.full(size, 0, dtype=dtype, layout=layout_, device=device, pin_memory=pin)

    def meta(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        return spec(size, dtype, layout_, device)

    def kernel(out: Tensor, *rest: Any) -> None:
        fill_with(out, 0)


class Ones(Factory):
    """Ones."""

    schema = f"ones(int[] size, *, {OPTIONS}) -> Tensor"

    def meta(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        return spec(size, dtype, layout_, device)

    def kernel(out: Tensor, *rest: Any) -> None:
        fill_with(out, 1)

    def decompose(size: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        dtype = dtype or state.process.default_dtype
        return aten.full(size, 1, dtype=dtype, layout=layout_, device=device, pin_memory=pin)


class Full(Factory):
    """One number everywhere; the number's type gives the dtype."""

    schema = f"full(int[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor"

    def meta(size: Any, value: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        return spec(size, dtype or number_type(value), layout_, device)

    def kernel(out: Tensor, size: Any, value: Any, *rest: Any) -> None:
        fill_with(out, value)


class ScalarTensor(Factory):
    """A 0-dim tensor holding a number."""

    schema = f"scalar_tensor(Scalar s, *, {OPTIONS}) -> Tensor"

    def meta(s: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        return spec((), dtype, layout_, device)

    def kernel(out: Tensor, s: Any, *rest: Any) -> None:
        fill_with(out, s)

    def decompose(s: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        dtype = dtype or state.process.default_dtype
        return aten.full((), s, dtype=dtype, layout=layout_, device=device, pin_memory=pin)


def arange_length(start: Any, end: Any, step: Any, dtype: dt.dtype) -> Any:
    """The number of elements; int64 ranges are counted in integers, all others in float64."""
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if any(isinstance(v, SymInt) for v in (start, end, step)):
        return _symbolic_length(start, end, step)
    if dtype is dt.int64 and math.isfinite(start) and math.isfinite(end):
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (step > 0 and end < start) or (step < 0 and end > start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if all(isinstance(v, int) for v in (start, end, step)):
        return int(-((start - end) // step))
    return math.ceil((float(end) - float(start)) / float(step))


def _symbolic_length(start: Any, end: Any, step: Any) -> Any:
    """The same of symbolic ints. With a float among them the length is counted in floats."""
    if (step > 0 and end < start) or (step < 0 and end > start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if any(isinstance(v, float) for v in (start, end, step)):
        return sym_int(math.ceil((end - start) / step))
    return -((start - end) // step)


def arange_spec(
    start: Any, end: Any, step: Any, dtype: Any, layout_: Any, device: Any
) -> TensorSpec:
    values = (start, end, step)
    if dtype is None:
        whole = all(isinstance(v, (int, SymInt)) for v in values)
        dtype = dt.int64 if whole else state.process.default_dtype
    return spec((arange_length(*values, dtype),), dtype, layout_, device)


RUN = 16  # how many elements torch computes from one rounded start


def fill_range(out: Tensor, start: Any, step: Any) -> None:
    """out[i] = start + i * step in float64 or int64; for 16-bit floats each run of elements starts
    from a rounded number, as torch's vectors do."""
    if out.dtype is dt.bool_ or out.dtype.is_complex:
        raise NotImplementedError(
            f"\"arange_cpu\" not implemented for '{dt.scalar_name(out.dtype)}'"
        )
    n = out.numel()
    whole_numbers = dt.is_integral(out.dtype)
    if whole_numbers:
        start, step = int(start), int(step)
    if _native.count_up(out, start, step):
        return
    import numpy as np  # lazy: NumPy is heavy

    if whole_numbers:
        values = np.arange(n, dtype=np.int64) * int(step) + int(start)
    else:
        values = np.float64(start) + np.arange(n, dtype=np.float64) * np.float64(step)
        if out.dtype in (dt.bfloat16, dt.float16):
            whole = n - n % (4 * RUN)
            first = _native.empty((whole // RUN,), out.dtype, _native.cpu)
            slot_copy(first, share_array(np.ascontiguousarray(values[:whole:RUN])))
            rounded = _native.empty(first.shape, dt.float64, _native.cpu)
            slot_copy(rounded, first)
            steps = np.arange(RUN, dtype=np.float64) * np.float64(step)
            values[:whole] = (array_of(rounded)[:, None] + steps).reshape(-1)
    shaped = np.ascontiguousarray(values).reshape(tuple(out.shape))
    slot_copy(out, share_array(shaped))


def slot_copy(out: Tensor, source: Tensor) -> None:
    from flambeau._src.ops.copying import copy_into  # same folder, kept beside its use

    copy_into(out, source)


class Counted(Factory):
    """What arange, linspace and logspace share: so many numbers, into `out=` of any shape."""

    meta: Callable[..., TensorSpec]
    kernel: Callable[..., None]

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        """out= decides the dtype; its shape stays when it has the right number of elements."""
        *range_, dtype, layout_, device, pin = args
        (out,) = outs
        if dtype is not None and dtype is not out.dtype:
            raise RuntimeError(
                f"dtype {dt.scalar_name(dtype)} does not match dtype of out parameter "
                f"({dt.scalar_name(out.dtype)})"
            )
        made = cls.meta(*range_, out.dtype, layout_, device, pin)
        if out.numel() != made.shape[0]:
            resize_output(out, made.shape)
        cls.kernel(out, *range_)
        return True


class ArangeEnd(Counted):
    """0, 1, … below end."""

    schema = f"arange(Scalar end, *, {OPTIONS}) -> Tensor"

    def meta(end: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        return arange_spec(0, end, 1, dtype, layout_, device)

    def kernel(out: Tensor, end: Any, *rest: Any) -> None:
        fill_range(out, 0, 1)

    def decompose(end: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        return aten.arange(0, end, 1, dtype=dtype, layout=layout_, device=device, pin_memory=pin)


class ArangeStart(Counted):
    """start, start + 1, … below end."""

    schema = f"arange.start(Scalar start, Scalar end, *, {OPTIONS}) -> Tensor"
    out = "start_out"

    def meta(start: Any, end: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        return arange_spec(start, end, 1, dtype, layout_, device)

    def kernel(out: Tensor, start: Any, end: Any, *rest: Any) -> None:
        fill_range(out, start, 1)

    def decompose(start: Any, end: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        return aten.arange(
            start, end, 1, dtype=dtype, layout=layout_, device=device, pin_memory=pin
        )


class Arange(Counted):
    """start, start + step, … before end."""

    schema = f"arange.start_step(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor"
    out = "start_out"

    def meta(
        start: Any, end: Any, step: Any, dtype: Any, layout_: Any, device: Any, pin: Any
    ) -> TensorSpec:
        return arange_spec(start, end, step, dtype, layout_, device)

    def kernel(out: Tensor, start: Any, end: Any, step: Any, *rest: Any) -> None:
        fill_range(out, start, step)


class Eye(Factory):
    """Ones on the diagonal of an n × n matrix."""

    schema = f"eye(int n, *, {OPTIONS}) -> Tensor"

    @staticmethod
    def meta(n: int, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        return EyeM.meta(n, n, dtype, layout_, device, pin)

    def kernel(out: Tensor, n: int, *rest: Any) -> None:
        EyeM.kernel(out, n, n)

    @staticmethod
    def decompose(n: int, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        return EyeM.decompose(n, n, dtype, layout_, device, pin)


class EyeM(Factory):
    """Ones on the diagonal of an n × m matrix."""

    schema = f"eye.m(int n, int m, *, {OPTIONS}) -> Tensor"
    out = "m_out"

    @staticmethod
    def meta(n: int, m: int, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        for name, v in (("n", n), ("m", m)):
            if v < 0:
                raise RuntimeError(f"{name} must be greater or equal to 0, got {v}")
        return spec((n, m), dtype, layout_, device)

    def kernel(out: Tensor, n: int, m: int, *rest: Any) -> None:
        fill_with(out, 0)
        diagonal = _native.alias(Tensor, out, (min(n, m),), (sum(out.stride()),), None)
        fill_with(diagonal, 1)

    @staticmethod
    def decompose(n: int, m: int, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        made = EyeM.meta(n, m, dtype, layout_, device, pin)
        row = aten.unsqueeze(aten.arange(n, device=made.device), 1)
        same = aten.eq(aten.arange(m, device=made.device), row)
        return aten._to_copy(same, dtype=made.dtype)


class Like(Declaration):
    """Makes a tensor in the shape of another; reads nothing of it but geometry."""

    kind = "like"
    public = "function"
    geometry_only = True
    differentiable = False
    out: bool | str = False


def like_spec(t: Tensor, dtype: Any, layout_: Any, device: Any, fmt: Any) -> TensorSpec:
    pick_layout(layout_)
    device = t.device if device is None else pick_device(device)
    return TensorSpec(t.shape, dtype or t.dtype, device, layout.strides_like(t, fmt))


class EmptyLike(Like):
    """Unset bytes in self's shape."""

    schema = f"empty_like(Tensor self, *, {LIKE}) -> Tensor"
    whole = True

    def meta(t: Tensor, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> TensorSpec:
        return like_spec(t, dtype, layout_, device, fmt)

    def kernel(out: Tensor, *rest: Any) -> None:
        return None

    def decompose(t: Tensor, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Tensor:
        return _unset(like_spec(t, dtype, layout_, device, fmt), pin)


class ZerosLike(EmptyLike):
    """Zeros in self's shape."""

    schema = f"zeros_like(Tensor self, *, {LIKE}) -> Tensor"
    whole = False

    def kernel(out: Tensor, *rest: Any) -> None:
        fill_with(out, 0)

    def decompose(t: Tensor, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Tensor:
        return aten.full_like(
            t, 0, dtype=dtype, layout=layout_, device=device, pin_memory=pin, memory_format=fmt
        )


class OnesLike(EmptyLike):
    """Ones in self's shape."""

    schema = f"ones_like(Tensor self, *, {LIKE}) -> Tensor"
    whole = False

    def kernel(out: Tensor, *rest: Any) -> None:
        fill_with(out, 1)

    def decompose(t: Tensor, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any) -> Tensor:
        return aten.full_like(
            t, 1, dtype=dtype, layout=layout_, device=device, pin_memory=pin, memory_format=fmt
        )


class FullLike(Like):
    """A number in self's shape."""

    schema = f"full_like(Tensor self, Scalar fill_value, *, {LIKE}) -> Tensor"
    whole = True

    def meta(
        t: Tensor, value: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any
    ) -> TensorSpec:
        return like_spec(t, dtype, layout_, device, fmt)

    def kernel(out: Tensor, t: Tensor, value: Any, *rest: Any) -> None:
        fill_with(out, value)

    def decompose(
        t: Tensor, value: Any, dtype: Any, layout_: Any, device: Any, pin: Any, fmt: Any
    ) -> Tensor:
        s = like_spec(t, dtype, layout_, device, fmt)
        n, options = t.numel(), {"dtype": s.dtype, "device": s.device, "pin_memory": pin}
        return aten.as_strided(aten.full((n,), value, **options), s.shape, s.stride, 0)


class New(Like):
    """Methods that make a tensor of another shape with self's dtype and device: what `maker` makes
    of the same arguments, with both given where the user gave none."""

    public = "method"
    maker = ""

    @classmethod
    def meta(cls, t: Tensor, size: Any, *rest: Any) -> TensorSpec:
        dtype, layout_, device, _ = rest[-4:]
        return spec(size, dtype or t.dtype, layout_, t.device if device is None else device)

    def kernel(out: Tensor, *rest: Any) -> None:
        return None

    @classmethod
    def decompose(cls, t: Tensor, *rest: Any) -> Tensor:
        *given, dtype, layout_, device, pin = rest
        made: Tensor = getattr(aten, cls.maker)(
            *given,
            dtype=dtype or t.dtype,
            layout=layout_,
            device=t.device if device is None else device,
            pin_memory=pin,
        )
        return made


class NewEmpty(New):
    """Unset bytes with self's dtype and device."""

    schema = f"new_empty(Tensor self, int[] size, *, {OPTIONS}) -> Tensor"
    maker = "empty"


class NewZeros(New):
    """Zeros with self's dtype and device."""

    schema = f"new_zeros(Tensor self, int[] size, *, {OPTIONS}) -> Tensor"
    maker = "zeros"

    def kernel(out: Tensor, *rest: Any) -> None:
        fill_with(out, 0)


class NewOnes(New):
    """Ones with self's dtype and device."""

    schema = f"new_ones(Tensor self, int[] size, *, {OPTIONS}) -> Tensor"
    maker = "ones"

    def kernel(out: Tensor, *rest: Any) -> None:
        fill_with(out, 1)


class NewFull(New):
    """A number with self's dtype and device."""

    schema = f"new_full(Tensor self, int[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor"
    maker = "full"

    def kernel(out: Tensor, t: Tensor, size: Any, value: Any, *rest: Any) -> None:
        fill_with(out, value)


class NewEmptyStrided(New):
    """Unset bytes under the given strides with self's dtype and device."""

    schema = f"new_empty_strided(Tensor self, int[] size, int[] stride, *, {OPTIONS}) -> Tensor"
    maker = "empty_strided"

    @classmethod
    def meta(cls, t: Tensor, size: Any, *rest: Any) -> TensorSpec:
        made = super().meta(t, size, *rest)
        made.stride = tuple(rest[0])
        return made


# ---- from data ----


def _shape_of(data: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(data, (list, tuple)) or (isinstance(data, Tensor) and data.dim()):
        shape.append(len(data))
        if not shape[-1]:
            break
        data = data[0]
    return tuple(shape)


def _leaf_types(data: Any, found: set[Any], depth: int = 0) -> None:
    if isinstance(data, (list, tuple)):
        if depth > 127:
            raise ValueError(f"too many dimensions '{type(data).__name__}'")
        for x in data:
            _leaf_types(x, found, depth + 1)
    elif isinstance(data, Tensor):
        found.add(data.dtype)
    elif hasattr(data, "dtype") and hasattr(data, "__array_interface__"):
        found.add(share_array(data if getattr(data, "ndim", 0) else data.reshape(1)).dtype)
    elif isinstance(data, (bool, int, float, complex)):
        found.add(number_type(data))
    elif hasattr(data, "__sym_int__"):
        found.add(dt.int64)
    elif hasattr(data, "__sym_float__"):
        found.add(state.process.default_dtype)
    elif data is None:
        raise RuntimeError("Could not infer dtype of NoneType")
    elif isinstance(data, str):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    else:
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")


def infer_dtype(data: Any) -> dt.dtype:
    """The dtype that torch.tensor gives nested data."""
    types: set[Any] = set()
    _leaf_types(data, types)
    chosen = None
    for d in types:
        chosen = d if chosen is None else dt.promote_types(chosen, d)
    return state.process.default_dtype if chosen is None else chosen


def _flatten(data: Any, depth: int, shape: tuple[int, ...], out: list[Any]) -> None:
    if depth == len(shape):
        if isinstance(data, (list, tuple)):
            raise ValueError(
                f"expected scalar at dim {depth} (got {type(data).__name__})"
                if False
                else "only one element tensors can be converted to Python scalars"
            )
        out.append(data.item() if hasattr(data, "item") else data)
        return
    if not isinstance(data, (list, tuple)) and not isinstance(data, Tensor):
        raise TypeError("not a sequence")
    if len(data) != shape[depth]:
        raise ValueError(
            f"expected sequence of length {shape[depth]} at dim {depth} (got {len(data)})"
        )
    for x in data:
        _flatten(x, depth + 1, shape, out)


def from_nested(data: Any, dtype: Any) -> Tensor:
    """A contiguous CPU tensor with the numbers of nested lists."""
    shape = _shape_of(data)
    if dtype is None:
        dtype = infer_dtype(data)
    t = _native.empty(shape, dtype, _native.cpu)
    if _native.fill_nested(t, data):
        return t
    flat: list[Any] = []
    _flatten(data, 0, shape, flat)
    if any(isinstance(v, (SymInt, SymFloat)) for v in flat):  # numbers that are not fixed yet
        parts = [aten.scalar_tensor(v, dtype=dtype) for v in flat]
        return aten.reshape(aten.stack(parts), shape) if shape else parts[0]
    for i, v in enumerate(flat):
        if not isinstance(v, (bool, int, float, complex)):
            v = float(v) if dtype.is_floating_point else int(v)
        _store(t, i, v, dtype)
    return t


def _store(t: Tensor, i: int, v: Any, dtype: Any) -> None:
    if isinstance(v, complex) and not dtype.is_complex:
        raise TypeError(
            "can't convert complex to float"
            if dtype.is_floating_point
            else "can't convert complex to int"
        )
    if dtype is dt.bool_:
        v = bool(v)
    elif dt.is_integral(dtype):
        v = int(v)
        low = -(2 ** (8 * dtype.itemsize - 1)) if dtype.is_signed else 0
        high = 2 ** (8 * dtype.itemsize - (1 if dtype.is_signed else 0))
        if not low <= v < high:
            raise overflow(dtype)
    _native.store(t, i, v)


def _device_arg(device: Any) -> Any:
    if device is None or isinstance(device, _native.device):
        return pick_device(device)
    return pick_device(_native.device(device))


@overridable
def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of data (numbers, nested lists, arrays, tensors)."""
    dtype = dt.as_dtype(dtype, "tensor")
    if isinstance(data, Tensor):
        slot_warn_copy()
        t = data.detach().clone() if dtype is None else data.detach().to(dtype=dtype, copy=True)
        if device is not None:
            t = t.to(device)
    else:
        t = _new(data, dtype)
        t = _lifted(_placed(t, _device_arg(device)))
    if requires_grad:
        requiring(t)
    return t


def _lifted(t: Tensor) -> Tensor:
    """A tensor of numbers as the layers that are active see it."""
    if state.get_active() & ~state.get_suspended():
        t = aten.lift_fresh(t)
        t = t.detach() if t.requires_grad else t
    return t


def slot_warn_copy() -> None:
    import warnings  # lazy: rarely needed

    warnings.warn(
        "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() "
        "or sourceTensor.detach().clone().requires_grad_(True), rather than "
        "torch.tensor(sourceTensor).",
        UserWarning,
        stacklevel=4,
    )


def _new(data: Any, dtype: Any) -> Tensor:
    plain = _native.of_numbers(data, dtype, state.process.default_dtype)
    if plain is not None:
        return plain
    if hasattr(data, "__array_interface__") or (
        hasattr(data, "__array__") and not isinstance(data, (list, tuple))
    ):
        import numpy as np  # lazy: NumPy is heavy

        t = share_array(np.array(data))
        own = _native.empty(t.shape, dtype or t.dtype, _native.cpu)
        slot_copy(own, t)
        return own
    if (
        isinstance(data, (list, tuple))
        and data
        and hasattr(data[0], "__array_interface__")
        and not isinstance(data[0], Tensor)
    ):
        import numpy as np  # lazy: NumPy is heavy

        return _new(np.array(data), dtype or infer_dtype(data))
    if isinstance(data, (list, tuple, bool, int, float, complex, SymInt, SymFloat)):
        return from_nested(data, dtype)
    if hasattr(data, "__dlpack__"):
        raise TypeError(f"use torch.from_dlpack for {type(data).__name__}")
    if (
        hasattr(data, "__len__")
        and hasattr(data, "__getitem__")
        and not isinstance(data, (str, bytes))
    ):
        return from_nested(list(data), dtype)
    if hasattr(data, "__float__") and not isinstance(data, str):
        return from_nested(float(data), dtype)
    infer_dtype(data)
    raise TypeError(f"tensor(): cannot make a tensor of {type(data).__name__}")


def _placed(t: Tensor, device: Any) -> Tensor:
    return t if device.type == "cpu" else t.to(device)


@overridable
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """data as a tensor, sharing its bytes when nothing has to change."""
    dtype = dt.as_dtype(dtype, "as_tensor")
    if isinstance(data, Tensor):
        return data.to(device=device if device is None else _device_arg(device), dtype=dtype)
    if hasattr(data, "__array_interface__"):
        import numpy as np  # lazy: NumPy is heavy

        t = share_array(np.asarray(data))
        return t.to(device=None if device is None else _device_arg(device), dtype=dtype)
    return _lifted(_placed(_new(data, dtype), _device_arg(device)))


def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor with a copy of data, in self's dtype and on self's device."""
    dtype = dt.as_dtype(dtype, "new_tensor")
    return tensor(
        data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad
    )


def _names_dtype(value: Any) -> bool:
    return type(value) is _native.dtype or (isinstance(value, type) and value in dt.FROM_PYTHON)


def _dtype_of_to(value: Any) -> Any:
    if not _names_dtype(value):
        raise _no_form_of_to(f"dtype={type(value).__name__}, ")
    return dt.as_dtype(value, "to")


def _no_form_of_to(got: str) -> TypeError:
    return TypeError(
        f"to() received an invalid combination of arguments - got ({got}), but expected one of:"
        "\n * "
        "(torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, "
        "bool copy = False, *, torch.memory_format memory_format = None)\n * (torch.dtype "
        "dtype, bool non_blocking = False, bool copy = False, *, torch.memory_format "
        "memory_format = None)\n * (Tensor tensor, bool non_blocking = False, bool copy = "
        "False, *, torch.memory_format memory_format = None)\n"
    )


@overridable
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """self with another dtype, device or memory format; self itself when nothing changes."""
    dtype, device = kwargs.pop("dtype", None), kwargs.pop("device", None)
    other = kwargs.pop("other", None)
    rest = list(args)
    form = "dtype_layout"
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and _names_dtype(rest[0]):
        dtype, form = rest.pop(0), "dtype"
    elif (
        rest
        and (rest[0] is None or isinstance(rest[0], (str, int, _native.device)))
        and not isinstance(rest[0], bool)
    ):
        device, *rest = rest
        if rest and (rest[0] is None or _names_dtype(rest[0])):
            dtype = rest.pop(0)
    elif rest:
        raise _no_form_of_to(", ".join(type(a).__name__ for a in args))
    non_blocking = rest.pop(0) if rest else kwargs.pop("non_blocking", False)
    copy = rest.pop(0) if rest else kwargs.pop("copy", False)
    fmt = kwargs.pop("memory_format", None)
    if kwargs or rest:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs), 'args')}'")
    if other is not None:
        return aten.to(self, other, non_blocking, copy, memory_format=fmt)
    if device is not None:
        device = _device_arg(device)
    if dtype is not None:
        dtype = _dtype_of_to(dtype)
    if form == "dtype" and device is None:
        return aten.to(self, dtype, non_blocking, copy, memory_format=fmt)
    return aten.to(
        self, dtype=dtype, device=device, non_blocking=non_blocking, copy=copy, memory_format=fmt
    )


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of a Module.to call."""
    dtype, device = kwargs.pop("dtype", None), kwargs.pop("device", None)
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        device, dtype = rest[0].device, rest.pop(0).dtype
    elif rest and _names_dtype(rest[0]):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or _names_dtype(rest[0])):
            dtype = rest.pop(0)
    non_blocking = rest.pop(0) if rest else kwargs.pop("non_blocking", False)
    kwargs.pop("copy", None)
    fmt = kwargs.pop("memory_format", None)
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if dtype is not None:
        dtype = _dtype_of_to(dtype)
    return None if device is None else _device_arg(device), dtype, non_blocking, fmt


def _caster(name: str, dtype: dt.dtype) -> Any:
    def method(self: Tensor, memory_format: Any = None) -> Tensor:
        return (
            to(self, dtype, memory_format=memory_format)
            if memory_format is not None
            else to(self, dtype)
        )

    method.__name__ = name
    method.__doc__ = f"self as {dtype}."
    return method


def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """self on the CPU."""
    return (
        to(self, _native.cpu)
        if memory_format is None
        else to(self, _native.cpu, memory_format=memory_format)
    )


def cuda(
    self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
    """self on a CUDA device."""
    return to(self, _native.device("cuda" if device is None else device), non_blocking=non_blocking)


def data_get(self: Tensor) -> Tensor:
    """The same bytes outside the graph, with a version of its own."""
    if state.thread.functorch:
        slot("check_data_read")(self)
    with state.Suspended(state.FUNCTION | state.FUNCTION_MODE):
        t = self.detach()
    t._fresh_version()
    return t


def data_set(self: Tensor, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    if state.thread.functorch:
        slot("check_data_set")(self, value)
    if self.requires_grad and not (value.is_floating_point() or value.is_complex()):
        raise RuntimeError(
            "data set to a tensor that requires gradients must be floating point or complex dtype"
        )
    version = self._current_version()
    self._take(value)
    # The version stays self's own: writes into value are none of its business.
    self._fresh_version()
    self._set_version(version)


def set_default_dtype(d: Any, /) -> None:
    """The floating dtype of new tensors made from Python floats."""
    if not isinstance(d, _native.dtype):
        raise TypeError(
            f"invalid dtype object: expected torch.dtype, not {type(d).__name__}"
            if not isinstance(d, type)
            else "invalid dtype object: only floating-point types are supported as the default type"
        )
    if not d.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    state.process.default_dtype = d


def get_default_dtype() -> Any:
    """The floating dtype of new tensors made from Python floats."""
    return state.process.default_dtype


_SHORT_NAMES = {"bool": "bool", "byte": "uint8", "char": "int8", "bfloat16": "bfloat16"}
METHODS: dict[str, Any] = {
    "to": to, "cpu": cpu, "cuda": cuda, "new_tensor": new_tensor,
    "data": property(data_get, data_set), "layout": property(lambda self: layout.strided),
    "is_contiguous": layout.is_contiguous,
    **{n: _caster(n, dt.ALIASES.get(n) or dt.DTYPES[_SHORT_NAMES[n]])
       for n in ("float", "double", "half", "bfloat16", "int", "long", "short", "byte", "char",
                 "bool", "cfloat", "cdouble", "chalf")},
}  # fmt: skip
FUNCTIONS: dict[str, Any] = {
    "tensor": tensor, "as_tensor": as_tensor,
    "set_default_dtype": set_default_dtype, "get_default_dtype": get_default_dtype,
}  # fmt: skip
