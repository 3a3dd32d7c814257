"""NumPy, DLPack and the buffer protocol: views of the same bytes, no copies."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor

_NUMPY = {
    "uint8": "|u1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "float16": "<f2",
    "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16", "bool": "|b1",
    "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
}  # fmt: skip
_FROM_NUMPY = {v: dt.DTYPES[k] for k, v in _NUMPY.items()}
_RAW = {"bfloat16": "<u2", "float8_e5m2": "|u1", "float8_e4m3fn": "|u1", "complex32": "<u4"}


def array_of(t: Tensor) -> Any:
    """The ndarray over t's bytes, for kernels: no checks, bfloat16 as uint16. Shape and strides are t's."""
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


def numpy(self: Tensor, *, force: bool = False) -> Any:
    """The tensor as an ndarray that shares its bytes (with force, copied where it must be)."""
    if force:
        self = self.detach().cpu().resolve_conj().resolve_neg()
    if self.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if self.device.type != "cpu":
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        )
    if self.dtype.name not in _NUMPY:
        raise TypeError(f"Got unsupported ScalarType {dt.scalar_name(self.dtype)}")
    return array_of(self)


def from_numpy(ndarray: Any) -> Tensor:
    """A tensor over the array's bytes; writes on either side show on the other."""
    import numpy as np  # lazy: NumPy is heavy

    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return share_array(ndarray)


def share_array(a: Any) -> Tensor:
    """from_numpy without the type check."""
    code = a.dtype.str if a.dtype.byteorder != ">" else ""
    d = _FROM_NUMPY.get(code)
    if d is None:
        if a.dtype.byteorder == ">":
            raise ValueError(
                "given numpy array has byte order different from the native byte order. Conversion "
                "between byte orders is currently not supported."
            )
        raise TypeError(
            f"can't convert np.ndarray of type {a.dtype.type}. The only supported types are: float64, "
            "float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, "
            "uint16, uint8, and bool."
        )
    if any(s < 0 for s in a.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a copy "
            "of your array  with array.copy().) "
        )
    if any(s % a.itemsize for s in a.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array "
            "to reallocate the memory."
        )
    address, _ = a.__array_interface__["data"]
    span = a.itemsize if a.size else 0
    for n, s in zip(a.shape, a.strides, strict=True):
        span += max(n - 1, 0) * s if a.size else 0
    storage = _native.UntypedStorage.from_pointer(address, span, a, not a.flags.writeable)
    return _native.wrap(Tensor, storage, d, a.shape, [s // a.itemsize for s in a.strides], 0)


def __array__(self: Tensor, dtype: Any = None, copy: Any = None) -> Any:
    a = self.numpy()
    return a if dtype is None else a.astype(dtype, copy=False)


METHODS: dict[str, Any] = {"numpy": numpy, "__array__": __array__, "__array_priority__": 1000}
FUNCTIONS: dict[str, Any] = {"from_numpy": from_numpy}
