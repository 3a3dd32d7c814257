"""NumPy, DLPack and the buffer protocol: views of the same bytes, no copies."""

from __future__ import annotations

import sys
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor

_NUMPY = {
    "uint8": "|u1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "float16": "<f2",
    "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16", "bool": "|b1",
    "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
}  # fmt: skip
_FROM_NUMPY = {v: dt.DTYPES[k] for k, v in _NUMPY.items()}
_RAW = {"bfloat16": "<u2", "float8_e5m2": "|u1", "float8_e4m3fn": "|u1", "complex32": "<u4"}


def array_of(t: Tensor) -> Any:
    """The ndarray over t's bytes, for kernels: no checks, bfloat16 as uint16.

    Shape and strides are t's.
    """
    import numpy as np  # lazy: NumPy is heavy

    name = t.dtype.name
    code = _NUMPY.get(name) or _RAW[name]
    size = t.element_size()
    if not t.numel():
        return np.empty(tuple(t.shape), np.dtype(code))
    return np.ndarray(
        tuple(t.shape), np.dtype(code), t.untyped_storage(), t.storage_offset() * size,
        tuple(s * size for s in t.stride()),
    )  # fmt: skip


class _Warned:
    """Which of the warnings that come once a process have come."""

    numpy = False
    buffer = False
    asarray = False


def warn_once(which: str, message: str, stacklevel: int = 4) -> None:
    """Warn the first time only; `which` is an attribute of `_Warned`."""
    if not getattr(_Warned, which):
        import warnings  # lazy: rarely needed

        setattr(_Warned, which, True)
        warnings.warn(message, UserWarning, stacklevel=stacklevel)


def numpy(self: Tensor, *, force: bool = False) -> Any:
    """The tensor as an ndarray that shares its bytes (with force, copied where it must be).

    The storage cannot be resized any more: the array looks at its bytes.
    """
    if self._bits & state.FUNCTORCH:
        return slot("transformed_value")(self).numpy(force=force)
    if force:
        self = self.detach().cpu().resolve_conj().resolve_neg()
    if self.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if self.device.type != "cpu":
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    if self._conj_flag:
        raise RuntimeError(
            "Can't call numpy() on Tensor that has conjugate bit set. Use "
            "tensor.resolve_conj().numpy() instead."
        )
    if self._neg_flag:
        raise RuntimeError(
            "Can't call numpy() on Tensor that has negative bit set. Use "
            "tensor.resolve_neg().numpy() instead."
        )
    if self.dtype.name not in _NUMPY:
        raise TypeError(f"Got unsupported ScalarType {dt.scalar_name(self.dtype)}")
    self.untyped_storage()._fixed = True
    return array_of(self)


def full_type_name(kind: type) -> str:
    """'numpy.ndarray', 'list': a type's name as torch's messages have it."""
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def from_numpy(ndarray: Any, /) -> Tensor:
    """A tensor over the array's bytes; writes on either side show on the other."""
    import numpy as np  # lazy: NumPy is heavy

    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {full_type_name(type(ndarray))})")
    return share_array(ndarray)


def share_array(a: Any, *, warn: bool = True) -> Tensor:
    """from_numpy without the type check."""
    foreign = a.dtype.byteorder == ">" or (a.dtype.byteorder == "=" and sys.byteorder == "big")
    found = None if foreign else _FROM_NUMPY.get(a.dtype.str)
    if found is None:
        if foreign and a.dtype.kind in "iufcb":
            raise ValueError(
                "given numpy array has byte order different from the native byte order. Conversion "
                "between byte orders is currently not supported."
            )
        raise TypeError(
            f"can't convert np.ndarray of type {full_type_name(a.dtype.type)}. The only supported "
            "types are: float64, float32, float16, complex64, complex128, int64, int32, int16, "
            "int8, uint64, uint32, uint16, uint8, and bool."
        )
    if any(s < 0 for s in a.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array  with array.copy().) "
        )
    if any(s % a.itemsize for s in a.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy "
            "array to reallocate the memory."
        )
    if warn and not a.flags.writeable:
        warn_once(
            "numpy",
            "The given NumPy array is not writable, and PyTorch does not support non-writable "
            "tensors. This means writing to this tensor will result in undefined behavior. You may "
            "want to copy the array to protect its data or make it writable before converting it "
            "to a tensor. This type of warning will be suppressed for the rest of this program.",
        )
    address, _ = a.__array_interface__["data"]
    span = a.itemsize if a.size else 0
    for n, s in zip(a.shape, a.strides, strict=True):
        span += max(n - 1, 0) * s if a.size else 0
    storage = _native.UntypedStorage.from_pointer(address, span, a, False)
    return _native.wrap(Tensor, storage, found, a.shape, [s // a.itemsize for s in a.strides], 0)


def __array__(self: Tensor, dtype: Any = None) -> Any:
    """The bytes as an ndarray; a copy where another dtype is asked for."""
    a = self.numpy()
    return a if dtype is None else a.astype(dtype, copy=False)


def __array_wrap__(self: Tensor, array: Any) -> Any:
    """What a NumPy function returns when a tensor was among its arguments: a tensor again."""
    if array.dtype == bool:
        # NumPy's truth values become bytes, as they always have.
        array = array.astype("uint8")
    return from_numpy(array)


fill("array_operand", lambda array: from_numpy(array) if array.shape else array.item())

METHODS: dict[str, Any] = {
    "numpy": numpy, "__array__": __array__, "__array_wrap__": __array_wrap__,
    "__array_priority__": 1000,
}  # fmt: skip
FUNCTIONS: dict[str, Any] = {"from_numpy": from_numpy}
