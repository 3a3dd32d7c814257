"""What checkpoints and user programs look for under this name: rebuilding, errors across processes.

The names here are part of the checkpoint format: a pickled tensor is a call of
``_rebuild_tensor_v2`` with a storage and a geometry.
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import os
import sys
import threading
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src import _native


class KeyErrorMessage(str):
    """A message whose repr is itself: KeyError prints the repr of its argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception with its traceback as text, so that it can go to another process.

    Made in an ``except`` block. The exception object is not kept: its traceback would keep frames
    alive, and it need not be picklable.

    Args:
        exc_info: as of ``sys.exc_info()``, the default.
        where: completes "Caught <type> ...", e.g. "in DataLoader worker process 0".
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        if exc_info is None:
            exc_info = sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self) -> None:
        """Raise an exception of the same type, its text being the whole traceback.

        RuntimeError where the type cannot be made from one text.
        """
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        try:
            if getattr(self.exc_type, "message", None):
                exception = self.exc_type(message=message)
            else:
                exception = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise exception


def cpu_count() -> int | None:
    """The CPUs that this process may use, None where that cannot be told."""
    if hasattr(os, "sched_getaffinity"):
        try:
            return len(os.sched_getaffinity(0))
        except OSError:
            pass
    return os.cpu_count()


# Tensors from checkpoints.


def _element_size(dtype: Any) -> int:
    """Bytes in a number of this dtype."""
    return dtype.itemsize


def _check_inside(nbytes: int, itemsize: int, offset: int, size: Any, stride: Any) -> None:
    """RuntimeError where a geometry reaches beyond its storage: the file is not to be trusted."""
    last = offset
    for n, step in zip(size, stride, strict=True):
        if n < 0 or step < 0:
            raise RuntimeError(
                f"sizes {tuple(size)} and strides {tuple(stride)} must not be negative"
            )
        last += (n - 1) * step
    if offset < 0 or (0 not in size and (last + 1) * itemsize > nbytes):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and "
            f"itemsize {itemsize} requiring a storage size of {(last + 1) * itemsize} are out of "
            f"bounds for storage of size {nbytes}"
        )


def _over(untyped: Any, dtype: Any, offset: int, size: Any, stride: Any) -> Any:
    _check_inside(untyped.nbytes(), dtype.itemsize, offset, size, stride)
    return _native.wrap(Tensor, untyped, dtype, tuple(size), tuple(stride), offset)


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
    """A tensor over a TypedStorage, of its dtype."""
    return _over(storage._untyped_storage, storage.dtype, storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Any:
    """A tensor over a TypedStorage; hooks are not saved and the argument is an empty dict."""
    tensor = _rebuild_tensor(storage, storage_offset, size, stride)
    return _finished(tensor, requires_grad, metadata)


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Any:
    """A tensor over an untyped storage, for the dtypes that have no typed one."""
    tensor = _over(storage._untyped_storage, dtype, storage_offset, size, stride)
    return _finished(tensor, requires_grad, metadata)


def _finished(tensor: Any, requires_grad: bool, metadata: Any) -> Any:
    if requires_grad:
        tensor.requires_grad_(True)
    if metadata:
        set_tensor_metadata(tensor, metadata)
    return tensor


def get_tensor_metadata(tensor: Any) -> dict[str, bool]:
    """The lazy flags of a tensor: "conj" and "neg", where they are set."""
    flags = {}
    if tensor._conj_flag:
        flags["conj"] = True
    if tensor._neg_flag:
        flags["neg"] = True
    return flags


def set_tensor_metadata(tensor: Any, metadata: dict[str, bool]) -> None:
    """Set the lazy flags."""
    if metadata.get("conj"):
        tensor._conj_flag = True
    if metadata.get("neg"):
        tensor._neg_flag = True


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    """A Parameter of these values."""
    return torch.nn.Parameter(data, requires_grad)


def _rebuild_parameter_with_state(
    data: Any, requires_grad: bool, backward_hooks: Any, state: Any
) -> Any:
    """A Parameter of these values that has attributes."""
    return _set_obj_state(torch.nn.Parameter(data, requires_grad), state)


def _rebuild_from_type_v2(func: Callable[..., Any], new_type: type, args: Any, state: Any) -> Any:
    """A tensor of a subclass, or one with attributes."""
    tensor = func(*args)
    if type(tensor) is not new_type:
        tensor = tensor.as_subclass(new_type)
    own = getattr(type(tensor), "__setstate__", None)
    if own is not None and own is not getattr(Tensor, "__setstate__", None):
        tensor.__setstate__(state)
        return tensor
    return _set_obj_state(tensor, state)


# Where torch has it, and where pickles say it is.
_rebuild_from_type_v2.__module__ = f"{torch.__name__}._tensor"


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Any:
    """A tensor without bytes."""
    tensor = torch.empty_strided(size, stride, dtype=dtype, device="meta")
    return _finished(tensor, requires_grad, None)


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    """A sparse tensor from its indices, values and size."""
    if layout is torch.sparse_coo:
        indices, values, size, *coalesced = data
        is_coalesced = coalesced[0] if coalesced else None
        return torch.sparse_coo_tensor(indices, values, size, is_coalesced=is_coalesced)
    compressed, plain, values, size = data
    return torch.sparse_compressed_tensor(compressed, plain, values, size, layout=layout)


def _rebuild_device_tensor_from_cpu_tensor(
    data: Any, dtype: Any, device: Any, requires_grad: bool
) -> Any:
    """A tensor of a device whose bytes were saved from the CPU."""
    where = getattr(_loading, "map_location", None) or device
    return _finished(data.to(device=where, dtype=dtype), requires_grad, None)


def _rebuild_device_tensor_from_numpy(
    data: Any, dtype: Any, device: Any, requires_grad: bool
) -> Any:
    """The same from a NumPy array."""
    tensor = torch.from_numpy(data)
    return _rebuild_device_tensor_from_cpu_tensor(tensor, dtype, device, requires_grad)


def _rebuild_wrapper_subclass(
    cls: Any,
    dtype: Any,
    size: Any,
    stride: Any,
    storage_offset: int,
    layout: Any,
    device: Any,
    requires_grad: bool,
) -> Any:
    """A tensor subclass that has no bytes of its own."""
    return Tensor._make_wrapper_subclass(
        cls,
        size,
        strides=stride,
        dtype=dtype,
        storage_offset=storage_offset,
        layout=layout,
        device=getattr(_loading, "map_location", None) or device,
        requires_grad=requires_grad,
    )


class _Loading(threading.local):
    """What the `load` that is going on in this thread was told."""

    map_location: Any = None


_loading = _Loading()


def _get_obj_state(obj: Any) -> Any:
    """The attributes of an object, as pickle takes them: a dict, or a pair of it and slots."""
    # object.__getstate__ (3.11) does this, but Tensor has a meaning of its own for None.
    state = getattr(obj, "__dict__", None) or None
    own = getattr(type(obj), "__getstate__", None)
    if own is not None and own is not object.__getstate__:
        return obj.__getstate__()
    slots: dict[str, Any] = {}
    for name in copyreg._slotnames(type(obj)):  # type: ignore[attr-defined]
        if hasattr(obj, name):
            slots[name] = getattr(obj, name)
    return (state, slots) if slots else state


def _set_obj_state(obj: Any, state: Any) -> Any:
    """Give an object the attributes that `_get_obj_state` took."""
    if isinstance(state, tuple):
        if len(state) != 2:
            raise RuntimeError(f"Invalid serialized state: {state}")
        attributes, slots = state
    else:
        attributes, slots = state, None
    for part in (attributes, slots):
        for name, value in (part or {}).items():
            setattr(obj, name, value)
    return obj


def _reduce_tensor(tensor: Any, proto: int) -> tuple[Any, ...]:
    """``Tensor.__reduce_ex__``: a call that builds the tensor over its storage again."""
    state = _get_obj_state(tensor)
    kind = type(tensor)
    if kind is Tensor and not state:
        return _reduce_plain(tensor)
    if kind is Tensor or kind.__reduce_ex__ is Tensor.__reduce_ex__:
        function, args = _reduce_plain(tensor)
        return _rebuild_from_type_v2, (function, kind, args, state)
    return _reduce_plain(tensor)


def _reduce_plain(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    _warn_of_hooks(tensor)
    requires_grad = tensor.requires_grad
    if tensor.layout is not torch.strided:
        return _reduce_sparse(tensor)
    size, stride = tuple(tensor.size()), tensor.stride()
    if tensor.device.type == "meta":
        return _rebuild_meta_tensor_no_storage, (tensor.dtype, size, stride, requires_grad)
    untyped = tensor.untyped_storage()
    typed = tensor.dtype in _typed_dtypes()
    dtype = tensor.dtype if typed else torch.uint8
    storage: Any = torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)
    if not typed:
        storage = untyped
    args = storage, tensor.storage_offset(), size, stride, requires_grad, OrderedDict()
    if not typed:
        args = (*args, tensor.dtype)
    metadata = get_tensor_metadata(tensor)
    if metadata:
        args = (*args, metadata)
    return (_rebuild_tensor_v2 if typed else _rebuild_tensor_v3), args


@functools.cache
def _typed_dtypes() -> frozenset[Any]:
    return frozenset(torch.storage._dtype_to_storage_type_map())


def _reduce_sparse(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    if tensor.layout is torch.sparse_coo:
        parts = (tensor._indices(), tensor._values(), tensor.size(), tensor.is_coalesced())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values(), tensor.size())
    else:
        parts = (tensor.ccol_indices(), tensor.row_indices(), tensor.values(), tensor.size())
    return _rebuild_sparse_tensor, (tensor.layout, parts)


def _warn_of_hooks(tensor: Any) -> None:
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not getattr(hook, "__torch_unserializable__", False):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, "
                "you can decorate the function with @torch.utils.hooks.unserializable_hook to "
                "suppress this warning",
                stacklevel=6,
            )


# Lists of tensors.


def _flatten_dense_tensors(tensors: Iterable[Any]) -> Any:
    """All elements of tensors of one dtype, in one tensor of one dimension."""
    flat = [t.contiguous().view(-1) for t in tensors]
    return flat[0].clone() if len(flat) == 1 else torch.cat(flat)


def _unflatten_dense_tensors(flat: Any, tensors: Iterable[Any]) -> tuple[Any, ...]:
    """Views of a flat tensor with the shapes of `tensors`, one after the other."""
    views, at = [], 0
    for t in tensors:
        count = t.numel()
        views.append(flat.narrow(0, at, count).view_as(t))
        at += count
    return tuple(views)


def _import_dotted_name(name: str) -> Any:
    """The object of a dotted name whose first part is a module."""
    first, *rest = name.split(".")
    found: Any = importlib.import_module(first)
    for part in rest:
        found = getattr(found, part)
    return found


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device given as a number, a string or a device.

    Args:
        optional: None, and a device without an index, mean the current one.
        allow_cpu: the CPU counts, as -1.

    Raises:
        ValueError: where there is no index.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu" and not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        index = -1 if device.type == "cpu" else device.index
    else:
        index = device
    if isinstance(index, int):
        return index
    if not optional:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got:{device}"
        )
    return torch.accelerator.current_device_index()
