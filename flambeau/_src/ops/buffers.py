"""Tensors over, or from, what other libraries hold: `asarray` and `frombuffer`."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.dlpack import from_dlpack
from flambeau._src.core.interchange import share_array, warn_once
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import requiring
from flambeau._src.ops.creation import tensor

_UNWRITABLE = (
    "The given buffer is not writable, and PyTorch does not support non-writable tensors. This "
    "means you can write to the underlying (supposedly non-writable) buffer using the tensor. You "
    "may want to copy the buffer to protect its data or make it writable before converting it to a "
    "tensor. This type of warning will be suppressed for the rest of this program."
)
_NOW_KEPT = (
    "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. "
    "Pass requires_grad=False explicitly to get the old behavior and silence this warning."
)


class _Exported:
    """Holds a buffer open while a storage looks at its bytes."""

    def __init__(self, view: memoryview) -> None:
        import ctypes  # lazy: heavy, and only for the address

        self.view = view
        if view.readonly:
            # ctypes takes the address of writable buffers only.
            holder = ctypes.py_object(view)
            raw = (ctypes.c_byte * 128)()
            ctypes.pythonapi.PyObject_GetBuffer(holder, ctypes.byref(raw), 0)
            self.address = ctypes.cast(raw, ctypes.POINTER(ctypes.c_void_p))[0] or 0
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(raw))
        else:
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0


def frombuffer(
    buffer: Any, *, dtype: Any = None, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-D tensor over the bytes of an object that has the buffer protocol.

    Args:
        dtype: of the elements.
        count: how many; negative: all that are there.
        offset: bytes to skip.
    """
    if dtype is None:
        raise TypeError('frombuffer() missing 1 required positional arguments: "dtype"')
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    size, length = dtype.itemsize, view.nbytes
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({length} bytes) minus 1"
        )
    if count < 0:
        if (length - offset) % size:
            raise ValueError(
                f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a "
                f"multiple of element size ({size})"
            )
        count = (length - offset) // size
    if offset + count * size > length:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must "
            f"not be greater than actual buffer length ({length} bytes)"
        )
    if view.readonly:
        warn_once("buffer", _UNWRITABLE, 3)
    held = _Exported(view.cast("B") if view.c_contiguous else view)
    storage = _native.UntypedStorage.from_pointer(held.address + offset, count * size, held, False)
    made = _native.wrap(Tensor, storage, dtype, (count,), (1,), 0)
    if requires_grad:
        requiring(made)
    return made


def from_file(
    filename: str, shared: bool | None = None, size: int = 0, *, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A 1-D tensor over the mapped bytes of a file.

    Args:
        filename: path.
        shared: whether writing changes the file (which is made, or made longer, if need be).
        size: how many elements.
        dtype: of the elements.
    """
    if not isinstance(filename, str):
        raise TypeError(
            "from_file(): argument 'filename' (position 1) must be str, not "
            f"{type(filename).__name__}"
        )
    kind = dtype or state.process.default_dtype
    storage = _native.UntypedStorage.from_file(filename, bool(shared), size * kind.itemsize)
    made = _native.wrap(Tensor, storage, kind, (size,), (1,), 0)
    return requiring(made) if requires_grad else made


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """obj as a tensor that shares its bytes where it can.

    Args:
        obj: a tensor, a NumPy array or number, what has DLPack or the buffer protocol, a
            storage, or nested sequences of numbers (which are always copied).
        copy: True always copies; False never, and it is an error where that cannot be.
        requires_grad: None keeps that of a tensor.
    """
    wanted = dtype = dt.as_dtype(dtype, "asarray")
    found = _shared(obj, dtype)
    if found is None:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        made = tensor(obj, dtype=dtype, device=device)
    else:
        made = _placed(found, wanted, device, copy)
    if isinstance(obj, Tensor):
        if requires_grad is None:
            if obj.requires_grad:
                warn_once("asarray", _NOW_KEPT, 3)
        elif made.requires_grad and not requires_grad:
            made = made.detach()
        elif requires_grad and not made.requires_grad:
            made = (
                made.detach() if made is obj and copy is None and not made.is_leaf else made
            ).requires_grad_(True)
    elif requires_grad:
        requiring(made)
    return made


def _shared(obj: Any, dtype: Any) -> Tensor | None:
    """A tensor over obj's bytes, None where obj has none."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, (bool, int, float, complex, list, tuple, str)):
        return None
    if hasattr(obj, "__array_interface__"):
        import numpy as np  # lazy: NumPy is heavy

        if isinstance(obj, np.ndarray):
            return share_array(obj)
        return share_array(np.asarray(obj)) if isinstance(obj, np.generic) else None
    if hasattr(obj, "__dlpack__"):
        return from_dlpack(obj)
    storage = getattr(obj, "_untyped_storage", obj)
    if isinstance(storage, _native.UntypedStorage):
        kind = dtype or getattr(obj, "dtype", None) or state.process.default_dtype
        return _native.wrap(Tensor, storage, kind, (storage.nbytes() // kind.itemsize,), (1,), 0)
    try:
        memoryview(obj)
    except TypeError:
        return None
    return frombuffer(obj, dtype=dtype or state.process.default_dtype)


def _placed(found: Tensor, dtype: Any, device: Any, copy: bool | None) -> Tensor:
    where = found.device if device is None else _native.device(device)
    kind = found.dtype if dtype is None else dtype
    if copy is False:
        if where != found.device and not (where.type == "cpu" and found.device.type == "cpu"):
            raise ValueError(f"can't alias tensor from device '{found.device}' to '{where}'.")
        if kind is not found.dtype:
            raise ValueError(
                f"can't alias tensor with dtype '{dt.scalar_name(found.dtype)}' into dtype "
                f"'{dt.scalar_name(kind)}'."
            )
        return found
    moved = found.to(device=where, dtype=kind)
    return moved.clone() if copy and moved is found else moved


FUNCTIONS: dict[str, Any] = {"asarray": asarray, "frombuffer": frombuffer, "from_file": from_file}
