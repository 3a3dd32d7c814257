"""Storages: the bytes that tensors share (`UntypedStorage`), and the older typed view of them.

The cell itself is the engine's: its bytes, its address, ``nbytes``, ``resize_`` and the buffer
protocol. This module gives it what is not mechanism: indexing, copies, files, sharing between
processes, pickling. Importing it attaches all of that to the type.
"""

from __future__ import annotations

import copy
import functools
import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor, UntypedStorage
from flambeau._src import _native
from flambeau._src.core.slots import fill as _fill_slot

from ._storage_memory import SharedMemory, map_file

__all__ = ["TypedStorage", "UntypedStorage"]

#: dtype name -> name of the typed storage that checkpoints know it by.
_NAMES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "bfloat16": "BFloat16Storage",
    "complex128": "ComplexDoubleStorage",
    "complex64": "ComplexFloatStorage",
    "quint8": "QUInt8Storage",
    "qint8": "QInt8Storage",
    "qint32": "QInt32Storage",
    "quint4x2": "QUInt4x2Storage",
    "quint2x4": "QUInt2x4Storage",
}

#: Casts of a storage, by the name of the method.
_CASTS = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "bool": "bool",
    "bfloat16": "bfloat16",
    "complex_double": "complex128",
    "complex_float": "complex64",
    "float8_e5m2": "float8_e5m2",
    "float8_e4m3fn": "float8_e4m3fn",
}


@functools.cache
def _dtype_to_storage_type_map() -> dict[Any, str]:
    """dtype -> name of its typed storage, for the dtypes that have one."""
    return {getattr(torch, d): name for d, name in _NAMES.items() if hasattr(torch, d)}


@functools.cache
def _storage_type_to_dtype_map() -> dict[str, Any]:
    """Name of a typed storage -> dtype."""
    return {name: getattr(torch, d) for d, name in _NAMES.items() if hasattr(torch, d)}


def _get_dtype_from_pickle_storage_type(pickle_storage_type: str) -> Any:
    return _storage_type_to_dtype_map()[pickle_storage_type]


def _new_dtypes() -> set[Any]:
    """The dtypes that have no typed storage: checkpoints hold them as untyped ones."""
    names = (
        "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu "
        "float4_e2m1fn_x2 bits8 bits16 bits1x8 bits2x4 bits4x2 complex32 uint16 uint32 uint64"
    )
    return {getattr(torch, name) for name in names.split() if hasattr(torch, name)}


def _over(storage: Any, dtype: Any) -> Any:
    """A tensor of one dimension over all of a storage."""
    count = storage.nbytes() // dtype.itemsize
    return _native.wrap(Tensor, storage, dtype, (count,), (1,), 0)


# What the cell is given.


def _new(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """`UntypedStorage(size or bytes, device=…)` in all its forms (slot 'new_storage')."""
    device = torch.device("cpu")
    given = list(args)
    for name, value in (kwargs or {}).items():
        if name == "device":
            device = torch.device("cpu" if value is None else value)
        elif name in ("size", "nbytes") and not given:
            given.append(value)
        else:
            raise RuntimeError(
                f"torch.UntypedStorage(): got an unexpected keyword argument '{name}'"
            )
    if len(given) == 2 and isinstance(given[1], torch.device):
        device = given.pop()
    if len(given) > 1:
        raise RuntimeError("torch.UntypedStorage() takes one positional argument: a size or bytes")
    source = given[0] if given else 0
    if isinstance(source, int):
        return cls.allocate(source, device)  # type: ignore[attr-defined]
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise TypeError(
            f"torch.UntypedStorage(): expected an int or a sequence, but got "
            f"{type(source).__name__}"
        )
    for item in source:
        if not isinstance(item, int):
            raise RuntimeError(
                "torch.UntypedStorage(): tried to construct a storage from a sequence "
                f"({type(source).__name__}), but one of the items was of type "
                f"{type(item).__name__} instead of int"
            )
    made = cls.allocate(len(source), torch.device("cpu"))  # type: ignore[attr-defined]
    memoryview(made)[:] = bytes(item & 0xFF for item in source)
    return made if device.type == "cpu" else _to(made, device=device)


_fill_slot("new_storage", _new)


def _bounds(storage: Any, index: slice) -> tuple[int, int]:
    start, stop, step = index.indices(storage.nbytes())
    if step != 1:
        raise RuntimeError(
            f"Trying to slice with a step of {step}, but only a step of 1 is supported"
        )
    return start, max(start, stop)


def _getitem(self: Any, index: Any) -> Any:
    """Byte `index`, or the bytes of a slice as a storage that shares them."""
    if isinstance(index, slice):
        start, stop = _bounds(self, index)
        return UntypedStorage.from_pointer(self.data_ptr() + start, stop - start, self)
    return _bytes(self)[_checked_index(self, index)]


def _bytes(storage: Any) -> memoryview:
    """The bytes, to be read and written."""
    if storage.device.type != "cpu":
        raise NotImplementedError(f"Not available for '{storage.device.type}' device type")
    return memoryview(storage)


def _checked_index(storage: Any, index: Any) -> int:
    size = storage.nbytes()
    if not isinstance(index, int):
        raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
    if not -size <= index < size:
        # Counted from the end once, as torch's message has it.
        at = index + size if index < 0 else index
        raise IndexError(f"index {at} out of range for storage of size {size}")
    return index % size


def _setitem(self: Any, index: Any, value: Any) -> None:
    view = _bytes(self)
    if not isinstance(value, int):
        raise RuntimeError(
            f"can only set storage content with a int types, but got {type(value).__name__} instead"
        )
    if isinstance(index, slice):
        start, stop = _bounds(self, index)
        view[start:stop] = bytes([value & 0xFF]) * (stop - start)
        return
    if isinstance(index, int) and not -len(view) <= index < len(view):
        raise RuntimeError("out of bounds")
    view[_checked_index(self, index)] = value & 0xFF


def _iter(self: Any) -> Iterator[int]:
    return iter(_bytes(self))


def _repr(self: Any) -> str:
    info = f"[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"
    if self.device.type == "meta":
        return "...\n" + info
    return " " + "\n ".join(map(str, memoryview(self))) + "\n" + info


def _copy_into(self: Any, source: Any, non_blocking: bool | None = None) -> Any:
    """Copy the bytes of another storage of the same size."""
    if self.nbytes() != source.nbytes():
        raise RuntimeError(
            f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} "
            "bytes"
        )
    _over(self, torch.uint8).copy_(_over(source, torch.uint8), bool(non_blocking))
    return self


def _clone(self: Any) -> Any:
    """A storage of its own with the same bytes."""
    return _copy_into(UntypedStorage(self.nbytes(), device=self.device), self)


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    return memo.setdefault(id(self), _clone(self))


def _reduce(self: Any) -> tuple[Any, ...]:
    buffer = io.BytesIO()
    torch.save(self, buffer, _use_new_zipfile_serialization=False)
    return _load_from_bytes, (buffer.getvalue(),)


def _load_from_bytes(b: bytes) -> Any:
    """A storage from what its ``__reduce__`` wrote."""
    return torch.load(io.BytesIO(b), weights_only=False)


def _to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
    """The same bytes on a device: itself if it is there."""
    device = torch.device(device)
    if self.device == device:
        return self
    if device.type == "meta":
        return UntypedStorage(self.nbytes(), device=device)
    return _over(self, torch.uint8).to(device, non_blocking).untyped_storage()


def _cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    """The same bytes on a CUDA device."""
    where = torch.device("cuda") if device is None else torch.device("cuda", device)
    return _to(self, device=where, non_blocking=non_blocking)


def _fill(self: Any, value: int) -> Any:
    """Set all bytes."""
    if not isinstance(value, int):
        raise RuntimeError(f"fill_ expects int, but got {type(value).__name__}")
    _over(self, torch.uint8).fill_(value & 0xFF)
    return self


def _byteswap(self: Any, dtype: Any) -> None:
    """Reverse the bytes of each number of that dtype, in place."""
    size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    if size == 1:
        return
    swapped = bytearray(self)
    view = memoryview(self)
    for byte in range(size):
        view[byte::size] = swapped[size - 1 - byte :: size]


def share_memory(self: Any, again: bool = False) -> Any:
    """Move the bytes into memory that other processes can map; live tensors go with them.

    `again`: also where they are in shared memory already, but in some that cannot be sent on.
    """
    if self.device.type != "cpu" or (self.is_shared() and not again):
        return self
    shared = SharedMemory.create(self.nbytes())
    if self.nbytes():
        UntypedStorage.from_pointer(shared.address, shared.size, shared).copy_(self)
    _adopt(self, shared)
    return self


def _adopt(storage: Any, shared: SharedMemory) -> None:
    storage.repoint(shared.address, shared.size, shared, True)


def is_shared(self: Any) -> bool:
    """Whether other processes can map these bytes."""
    return self.device.type == "cuda" or bool(self._shared)


def _new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
    """A fresh storage of `size` bytes in shared memory."""
    if torch.device(device).type != "cpu":
        return UntypedStorage(size, device=torch.device(device))
    return of_shared(SharedMemory.create(size))


def of_shared(shared: SharedMemory) -> Any:
    """A storage over shared memory."""
    storage = UntypedStorage(0)
    _adopt(storage, shared)
    return storage


def _from_file(cls: Any, filename: Any, shared: bool = False, nbytes: int = 0) -> Any:
    """The bytes of a file, mapped.

    Args:
        filename: path.
        shared: whether writing changes the file; it is made, or made longer, if need be.
        nbytes: how many of its bytes.
    """
    mapping = map_file(filename, shared, nbytes)
    storage = UntypedStorage.from_pointer(mapping.address, mapping.size, mapping)
    storage._filename = str(filename)
    return storage


def _from_buffer(
    cls: Any,
    buffer: Any,
    byte_order: str | None = None,
    count: int = -1,
    offset: int = 0,
    dtype: Any = None,
) -> Any:
    """A storage with a copy of the bytes of a buffer.

    Args:
        buffer: what has the buffer protocol.
        byte_order: "native", "little" or "big": how the numbers in it are written.
        count: of numbers to take; all for -1.
        offset: of the first one, in bytes.
        dtype: of the numbers.
    """
    dtype = torch.uint8 if dtype is None else dtype
    if byte_order not in (None, "native", "little", "big"):
        raise ValueError(
            f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')"
        )
    source = memoryview(buffer).cast("B")
    if offset < 0 or offset > source.nbytes:
        raise ValueError(
            f"offset must be non-negative and no greater than buffer length ({source.nbytes}) , "
            f"but got {offset}"
        )
    size = dtype.itemsize
    if count < 0:
        if (source.nbytes - offset) % size:
            raise ValueError(
                f"buffer size ({source.nbytes}) must be a multiple of element size ({size})"
            )
        count = (source.nbytes - offset) // size
    if offset + count * size > source.nbytes:
        raise ValueError(
            f"buffer has only {source.nbytes - offset} elements after offset {offset}, "
            f"but specified a size of {count}"
        )
    storage = UntypedStorage(count * size)
    memoryview(storage)[:] = source[offset : offset + count * size]
    if byte_order not in (None, "native", sys.byteorder):
        _byteswap(storage, dtype)
    return storage


def _get_device(self: Any) -> int | None:
    return self.device.index


def _pin_memory(self: Any, device: Any = None) -> Any:
    """The same bytes in page-locked memory."""
    return _over(self, torch.uint8).pin_memory().untyped_storage()


def _cast_method(dtype_name: str) -> Any:
    def cast(self: Any) -> Any:
        return TypedStorage(wrap_storage=self, dtype=torch.uint8)._cast(getattr(torch, dtype_name))

    return cast


def _attach() -> None:
    methods: dict[str, Any] = {
        "__getitem__": _getitem,
        "__setitem__": _setitem,
        "__iter__": _iter,
        "__repr__": _repr,
        "__str__": _repr,
        "__copy__": _clone,
        "__deepcopy__": _deepcopy,
        "__reduce__": _reduce,
        "__reduce_ex__": lambda self, proto: _reduce(self),
        "__sizeof__": lambda self: object.__sizeof__(self) + self.nbytes(),
        "copy_": _copy_into,
        "clone": _clone,
        "tolist": lambda self: list(_bytes(self)),
        "fill_": _fill,
        "to": _to,
        "cpu": lambda self: _to(self, device="cpu"),
        "cuda": _cuda,
        "new": lambda self: UntypedStorage(0, device=self.device),
        "element_size": lambda self: 1,
        "untyped": lambda self: self,
        "resizable": lambda self: not self._fixed,
        "byteswap": _byteswap,
        "share_memory_": lambda self: share_memory(self),
        "is_shared": is_shared,
        "is_pinned": lambda self, device=None: False,
        "is_hpu": property(lambda self: self.device.type == "hpu"),
        "pin_memory": _pin_memory,
        "get_device": _get_device,
        "type": lambda self, dtype=None, non_blocking=False: (
            "torch.storage.UntypedStorage" if dtype is None else self
        ),
        "is_cuda": property(lambda self: self.device.type == "cuda"),
        "is_sparse": False,
        "is_sparse_csr": False,
        "filename": property(lambda self: getattr(self, "_filename", None)),
        "_cdata": property(id),
        "_new_shared": classmethod(_new_shared),
        "from_file": classmethod(_from_file),
        "from_buffer": classmethod(_from_buffer),
    }
    methods.update({name: _cast_method(dtype) for name, dtype in _CASTS.items()})
    for name, method in methods.items():
        setattr(UntypedStorage, name, method)


# The typed view.


def _warn_typed_storage_removal(stacklevel: int = 3) -> None:
    warnings.warn(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be "
        "the only storage class. This should only matter to you if you are using storages "
        "directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead of "
        "tensor.storage()",
        UserWarning,
        stacklevel=stacklevel,
    )


class TypedStorage:
    """A storage seen as numbers of one dtype. Deprecated; checkpoints are written in terms of it.

    Args:
        *args: a number of elements, or a sequence of their values.
        wrap_storage: the bytes, instead.
        dtype: of the elements (default: the default dtype).
        device: where new bytes are.
    """

    is_sparse = False
    _fake_device = None
    dtype: Any

    def __init__(
        self,
        *args: Any,
        device: Any = None,
        dtype: Any = None,
        wrap_storage: Any = None,
        _internal: bool = False,
    ) -> None:
        if wrap_storage is None:
            self.dtype = torch.get_default_dtype() if dtype is None else dtype
            self._untyped_storage = _bytes_for(args, self.dtype, device)
            return
        if args:
            raise RuntimeError("No positional arguments should be given when using 'wrap_storage'")
        if dtype is None:
            raise RuntimeError("Argument 'dtype' must be specified")
        if not isinstance(wrap_storage, UntypedStorage):
            raise TypeError(
                f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}"
            )
        self.dtype = dtype
        self._untyped_storage = wrap_storage

    @property
    def device(self) -> Any:
        """Where the bytes are."""
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether the bytes are on a CUDA device."""
        return self.device.type == "cuda"

    @property
    def filename(self) -> str | None:
        """The file that is mapped, if one is."""
        return self._untyped_storage.filename

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def untyped(self) -> Any:
        """The bytes."""
        return self._untyped_storage

    def _size(self) -> int:
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    def size(self) -> int:
        """Number of elements."""
        return self._size()

    def __len__(self) -> int:
        return self._size()

    def nbytes(self) -> int:
        """Number of bytes."""
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        """Bytes in an element."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the bytes."""
        return self._untyped_storage.data_ptr()

    _data_ptr = data_ptr

    def _tensor(self) -> Any:
        return _over(self._untyped_storage, self.dtype)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._tensor()[self._index(index)].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._tensor()[index if isinstance(index, slice) else self._index(index)] = value

    def _index(self, index: Any) -> int:
        size = self._size()
        if not -size <= index < size:
            raise IndexError(f"index {index} out of range for storage of size {size}")
        return index

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        return self._tensor().tolist()

    def __repr__(self) -> str:
        info = (
            f"[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) "
            f"of size {len(self)}]"
        )
        if self.device.type == "meta":
            return "...\n" + info
        return "".join(f" {value}\n" for value in self.tolist()) + info

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TypedStorage) and self._cdata == other._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def _wrapped(self, storage: Any) -> TypedStorage:
        return TypedStorage(wrap_storage=storage, dtype=self.dtype, _internal=True)

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        """Copy the elements of another storage, converted."""
        if isinstance(source, TypedStorage):
            self._tensor().copy_(source._tensor(), bool(non_blocking))
        else:
            self._untyped_storage.copy_(source, non_blocking)
        return self

    def clone(self) -> TypedStorage:
        """A storage of its own with the same elements."""
        return self._wrapped(self._untyped_storage.clone())

    __copy__ = clone

    def __deepcopy__(self, memo: dict[int, Any]) -> TypedStorage:
        return self._wrapped(copy.deepcopy(self._untyped_storage, memo))

    def fill_(self, value: Any) -> TypedStorage:
        """Set all elements."""
        self._tensor().fill_(value)
        return self

    def resize_(self, size: int) -> None:
        """Change the number of elements; the common ones are kept."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def resizable(self) -> bool:
        """Whether `resize_` is possible."""
        return self._untyped_storage.resizable()

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """The same elements on a device."""
        return self._wrapped(self._untyped_storage.to(device=device, non_blocking=non_blocking))

    def cpu(self) -> TypedStorage:
        """The same elements in main memory."""
        return self._wrapped(self._untyped_storage.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """The same elements on a CUDA device."""
        return self._wrapped(self._untyped_storage.cuda(device, non_blocking))

    def get_device(self) -> int:
        """The index of the device, -1 for the CPU."""
        return self._untyped_storage.get_device()

    def share_memory_(self) -> TypedStorage:
        """Move the bytes into shared memory."""
        self._untyped_storage.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether the bytes are in shared memory."""
        return self._untyped_storage.is_shared()

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the bytes are page-locked."""
        return self._untyped_storage.is_pinned(device)

    def pin_memory(self, device: Any = None) -> TypedStorage:
        """The same elements in page-locked memory."""
        return self._wrapped(self._untyped_storage.pin_memory(device))

    def _new_shared(self, size: int, *, device: Any = None) -> TypedStorage:
        where = "cpu" if device is None else device
        return self._wrapped(UntypedStorage._new_shared(size * self.dtype.itemsize, device=where))

    def _new_wrapped_storage(self, untyped_storage: Any) -> TypedStorage:
        return self._wrapped(untyped_storage)

    def _cast(self, dtype: Any) -> TypedStorage:
        if dtype == self.dtype:
            return self
        storage = self._tensor().to(dtype).untyped_storage()
        return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    def _pickle_storage_type(self) -> str:
        try:
            return _dtype_to_storage_type_map()[self.dtype]
        except KeyError:
            raise KeyError(f"dtype {self.dtype} is not recognized") from None

    pickle_storage_type = _pickle_storage_type

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the typed storage of this dtype, or a conversion to another."""
        if dtype is None:
            return f"torch.{self._pickle_storage_type()}"
        if isinstance(dtype, str):
            dtype = _storage_type_to_dtype_map()[dtype.rsplit(".", 1)[-1]]
        return self._cast(getattr(dtype, "dtype", dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        buffer = io.BytesIO()
        torch.save(self, buffer, _use_new_zipfile_serialization=False)
        return _load_from_bytes, (buffer.getvalue(),)

    @classmethod
    def from_buffer(cls, *args: Any, dtype: Any = None, **kwargs: Any) -> TypedStorage:
        """A storage with a copy of the numbers in a buffer: (buffer, byte_order, count, offset)."""
        dtype = getattr(cls, "dtype", dtype) or torch.get_default_dtype()
        storage = UntypedStorage.from_buffer(*args, dtype=dtype, **kwargs)
        return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> Any:
        """The elements of a file, mapped."""
        if cls is TypedStorage:
            raise RuntimeError("from_file can only be called on derived classes")
        itemsize = cls.dtype.itemsize
        storage = UntypedStorage.from_file(filename, shared, size * itemsize)
        return TypedStorage(wrap_storage=storage, dtype=cls.dtype, _internal=True)


def _typed_cast(dtype_name: str) -> Any:
    return lambda self: self._cast(getattr(torch, dtype_name))


for _name, _dtype_name in _CASTS.items():
    setattr(TypedStorage, _name, _typed_cast(_dtype_name))


def _bytes_for(args: tuple[Any, ...], dtype: Any, device: Any) -> Any:
    """Fresh bytes for a typed storage made with these positional arguments."""
    where = torch.device("cpu" if device is None else device)
    if len(args) > 1:
        raise RuntimeError(f"Too many positional arguments, got {len(args)}")
    if not args:
        return UntypedStorage(0, device=where)
    if isinstance(args[0], Sequence):
        return torch.tensor(args[0], dtype=dtype, device=where).untyped_storage()
    return UntypedStorage(args[0] * dtype.itemsize, device=where)


class _LegacyStorageMeta(type):
    """Makes ``isinstance(storage, FloatStorage)`` a question of the dtype."""

    dtype: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        if type(instance) is not TypedStorage:
            return type.__instancecheck__(cls, instance)
        return instance.dtype == cls.dtype


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    """The base of FloatStorage and the like: calling one gives a TypedStorage of its dtype."""

    def __new__(cls, *args: Any, wrap_storage: Any = None, **kwargs: Any) -> Any:
        if wrap_storage is not None:
            if isinstance(wrap_storage, TypedStorage):
                wrap_storage = wrap_storage._untyped_storage
            return TypedStorage(wrap_storage=wrap_storage, dtype=cls.dtype, _internal=True)
        return TypedStorage(*args, dtype=cls.dtype, **kwargs)


def _legacy_classes() -> dict[str, type]:
    made = {}
    for name, dtype in _storage_type_to_dtype_map().items():
        made[name] = _LegacyStorageMeta(
            name, (_LegacyStorage,), {"dtype": dtype, "__module__": torch.__name__}
        )
    return made


_LEGACY = _legacy_classes()
globals().update(_LEGACY)
#: What stands in the root of the package too.
PUBLIC: dict[str, Any] = {
    "TypedStorage": TypedStorage,
    "Storage": _LEGACY["FloatStorage"],
    **_LEGACY,
}
_attach()
