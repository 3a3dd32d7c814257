"""The checkpoint formats before the zip file: a row of pickles and bytes, and before it a tar file.

The row: a magic number, the protocol version, facts of the machine, the object (storages as
persistent ids), the keys of the storages, and for each its number of elements (int64) and bytes.
"""

from __future__ import annotations

import inspect
import io
import pickle
import struct
import sys
import tarfile
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch

from . import locations, names, restricted
from .storages import Saved, StorageType, bytes_of

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
_SYSTEM = {
    "protocol_version": PROTOCOL_VERSION,
    "little_endian": sys.byteorder == "little",
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
_CHUNK = 1 << 24


def save(obj: Any, file: Any, pickle_module: Any, protocol: int) -> None:
    """Write `obj` as a row of pickles."""
    saved = Saved(lambda storage: str(storage._cdata))
    sources: set[type] = set()

    def persistent_id(o: Any) -> Any:
        if isinstance(o, type) and issubclass(o, torch.nn.Module):
            return _module_id(o, sources)
        found = saved.persistent_id(o)
        return None if found is None else (*found, None)

    for header in (MAGIC_NUMBER, PROTOCOL_VERSION, _SYSTEM):
        pickle_module.dump(header, file, protocol=protocol)
    names.dump(obj, file, pickle_module, protocol, persistent_id)
    keys = sorted(saved.storages)
    pickle_module.dump(keys, file, protocol=protocol)
    for key in keys:
        storage, itemsize = saved.storages[key], saved.itemsizes[key]
        file.write(struct.pack("<q", storage.nbytes() // itemsize))
        view = bytes_of(storage.cpu())
        for start in range(0, view.nbytes, _CHUNK):
            file.write(view[start : start + _CHUNK])
    file.flush()


def _module_id(cls: type, known: set[type]) -> Any:
    """A module's class goes with its source, which a reader may compare."""
    if cls in known:
        return None
    known.add(cls)
    path = source = None
    try:
        path, source = inspect.getsourcefile(cls), inspect.getsource(cls)
    except (OSError, TypeError):
        warnings.warn(
            f"Couldn't retrieve source code for container of type {cls.__name__}. It won't be "
            "checked for correctness upon loading.",
            stacklevel=2,
        )
    return "module", cls, path, source


class _Loader:
    """Reads one file; `module` has ``load`` and ``Unpickler``."""

    def __init__(self, map_location: Any, module: Any, load_args: dict[str, Any]) -> None:
        self.restore = locations.restorer(map_location)
        self.module = module
        self.load_args = load_args
        self.objects: dict[Any, Any] = {}

    def unpickle(self, file: Any) -> Any:
        return self.module.load(file, **self.load_args)

    def unpickle_with_storages(self, file: Any, persistent_load: Callable[[Any], Any]) -> Any:
        unpickler = new_unpickler(self.module, file, persistent_load, self.load_args)
        return unpickler.load()

    def persistent_load(self, saved_id: Any) -> Any:
        """The storage of an id, still without its bytes."""
        if not isinstance(saved_id, tuple):
            raise AssertionError(f"saved_id must be a tuple, got {type(saved_id).__name__}")
        kind = _text(saved_id[0])
        if kind == "module":
            return saved_id[1]
        if kind != "storage":
            raise RuntimeError(f"Unknown saved id type: {kind}")
        storage_type, key, location, count, view = saved_id[1:]
        key = _text(key)
        dtype = torch.uint8 if storage_type is torch.UntypedStorage else storage_type.dtype
        if key not in self.objects:
            storage = torch.UntypedStorage(count * dtype.itemsize)
            self.objects[key] = _typed(self.restore(storage, _text(location)), dtype)
        if view is None:
            return self.objects[key]
        view_key, offset, size = view
        if view_key not in self.objects:
            start, stop = offset * dtype.itemsize, (offset + size) * dtype.itemsize
            whole = self.objects[key]._untyped_storage
            self.objects[view_key] = _typed(whole[start:stop], dtype)
        return self.objects[view_key]

    def fill(self, key: str, file: Any) -> None:
        """Read the bytes of a storage."""
        if key not in self.objects:
            raise AssertionError(f"storage key {key!r} not found in deserialized_objects")
        typed = self.objects[key]
        storage = typed._untyped_storage
        (count,) = struct.unpack("<q", _exactly(file, 8))
        size = count * typed.dtype.itemsize
        if size != storage.nbytes():
            raise RuntimeError(
                f"storage has wrong byte size: expected {storage.nbytes()} got {size}"
            )
        if storage.device.type == "meta":
            file.seek(size, io.SEEK_CUR)
            return
        target = storage if storage.device.type == "cpu" else torch.UntypedStorage(size)
        _read_into(file, bytes_of(target))
        if target is not storage:
            storage.copy_(target)


def _typed(storage: Any, dtype: Any) -> Any:
    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def _text(value: Any) -> Any:
    return value.decode("ascii") if isinstance(value, bytes) else value


def _exactly(file: Any, size: int) -> bytes:
    data: bytes = file.read(size)
    if len(data) != size:
        raise RuntimeError("unexpected EOF. The file might be corrupted.")
    return data


def _read_into(file: Any, view: memoryview) -> None:
    for start in range(0, view.nbytes, _CHUNK):
        part = view[start : start + _CHUNK]
        part[:] = _exactly(file, part.nbytes)


def new_unpickler(
    module: Any, file: Any, persistent_load: Callable[[Any], Any], load_args: dict[str, Any]
) -> Any:
    """An unpickler of `module` for which torch's names are ours, and storages are looked up."""
    if module is restricted:
        own = restricted.Unpickler(file, **load_args)
        own.persistent_load = persistent_load  # type: ignore[method-assign]
        return own

    class Unpickler(module.Unpickler):
        def find_class(self, mod_name: str, name: str) -> Any:
            if name.endswith("Storage") and names.is_torch(mod_name):
                try:
                    return StorageType(name)
                except KeyError:
                    pass
            if names.is_torch(mod_name):
                return names.find_global(mod_name, name)
            return super().find_class(mod_name, name)

        def persistent_load(self, saved_id: Any) -> Any:
            return persistent_load(saved_id)

    return Unpickler(file, **load_args)


def load(file: Any, map_location: Any, module: Any, load_args: dict[str, Any]) -> Any:
    """Read an object from a row of pickles, or from a tar file."""
    loader = _Loader(map_location, module, load_args)
    if file.tell() == 0 and _is_tar(file):
        return _load_tar(file, loader)
    if loader.unpickle(file) != MAGIC_NUMBER:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version = loader.unpickle(file)
    if version != PROTOCOL_VERSION:
        raise RuntimeError(f"Invalid protocol version: {version}")
    loader.unpickle(file)
    result = loader.unpickle_with_storages(file, loader.persistent_load)
    for key in loader.unpickle(file):
        loader.fill(_text(key), file)
    return result


def _is_tar(file: Any) -> bool:
    header = file.read(tarfile.BLOCKSIZE)
    file.seek(0)
    try:
        tarfile.TarInfo.frombuf(header, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _load_tar(file: Any, loader: _Loader) -> Any:
    """The oldest format: members "storages", "tensors" and "pickle" of a tar file."""
    if loader.module is restricted:
        raise RuntimeError(
            "Cannot use ``weights_only=True`` with files saved in the legacy .tar format. "
            + restricted.UNSAFE_MESSAGE
        )
    with tarfile.open(fileobj=file, mode="r:", format=tarfile.PAX_FORMAT) as tar:
        members = {name: io.BytesIO(_member(tar, name)) for name in ("storages", "tensors")}
        _tar_storages(members["storages"], loader)
        _tar_tensors(members["tensors"], loader)
        objects = loader.objects

        def persistent_load(saved_id: Any) -> Any:
            if isinstance(saved_id, tuple):
                return saved_id[0]
            return objects[int(saved_id)]

        return loader.unpickle_with_storages(io.BytesIO(_member(tar, "pickle")), persistent_load)


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise RuntimeError(f"{name} is missing in the file")
    return file.read()


def _tar_storages(file: io.BytesIO, loader: _Loader) -> None:
    old = _Loader(None, pickle, loader.load_args)
    for _ in range(old.unpickle(file)):
        key, location, storage_type = old.unpickle_with_storages(file, old.persistent_load)
        (count,) = struct.unpack("<q", _exactly(file, 8))
        storage = torch.UntypedStorage(count * storage_type.dtype.itemsize)
        _read_into(file, bytes_of(storage))
        loader.objects[key] = _typed(loader.restore(storage, location), storage_type.dtype)
    for target, root_key, offset, count in old.unpickle(file):
        root = loader.objects[root_key]
        size = root.dtype.itemsize
        part = root._untyped_storage[offset * size : (offset + count) * size]
        loader.objects[target] = _typed(part, root.dtype)


def _tar_tensors(file: io.BytesIO, loader: _Loader) -> None:
    old = _Loader(None, pickle, loader.load_args)
    for _ in range(old.unpickle(file)):
        key, storage_id, _ = old.unpickle_with_storages(file, old.persistent_load)
        storage = loader.objects[storage_id]
        ndim, _unused = struct.unpack("<2i", _exactly(file, 8))
        size = struct.unpack(f"<{ndim}q", _exactly(file, 8 * ndim))
        stride = struct.unpack(f"<{ndim}q", _exactly(file, 8 * ndim))
        (offset,) = struct.unpack("<q", _exactly(file, 8))
        loader.objects[key] = torch._utils._rebuild_tensor(storage, offset, size, stride)
