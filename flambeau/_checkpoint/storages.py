"""Storages on their way into and out of checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch

from . import locations


class StorageType:
    """What a name such as FloatStorage in a checkpoint means: a dtype."""

    def __init__(self, name: str) -> None:
        if name == "UntypedStorage":
            self._dtype = torch.uint8
        else:
            self._dtype = torch.storage._get_dtype_from_pickle_storage_type(name)

    @property
    def dtype(self) -> Any:
        """The dtype."""
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def bytes_of(storage: Any) -> memoryview:
    """The bytes of a storage on the CPU, to read and write."""
    return memoryview(storage)


class Saved:
    """The storages met while an object is pickled.

    Args:
        new_key: gives the key of a storage that is met first.

    Attributes:
        storages: by their keys, in the order in which they were met.
        itemsizes: bytes in an element of each.
    """

    def __init__(self, new_key: Callable[[Any], str]) -> None:
        self._new_key = new_key
        self._key_of: dict[int, str] = {}
        self._dtype_at: dict[int, Any] = {}
        self.storages: dict[str, Any] = {}
        self.itemsizes: dict[str, int] = {}

    def persistent_id(self, obj: Any) -> tuple[Any, ...] | None:
        """What stands for a storage in the pickle; None for everything else.

        ``("storage", class, key, location, number of elements)``.

        Raises:
            RuntimeError: where two storages see the same bytes as different dtypes.
        """
        if isinstance(obj, torch.storage.TypedStorage):
            storage, dtype = obj._untyped_storage, obj.dtype
            kind = getattr(torch.storage, obj._pickle_storage_type())
            count = obj._size()
        elif isinstance(obj, torch.UntypedStorage):
            storage, dtype, kind, count = obj, torch.uint8, torch.UntypedStorage, obj.nbytes()
        else:
            return None
        address = 0 if storage.device.type == "meta" else storage.data_ptr()
        if address and self._dtype_at.setdefault(address, dtype) != dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                "types"
            )
        key = self._key_of.get(storage._cdata)
        if key is None:
            key = self._key_of[storage._cdata] = self._new_key(storage)
            # Held: the number of a storage that is gone may be that of another.
            self.storages[key] = storage
            self.itemsizes[key] = dtype.itemsize
        return "storage", kind, key, locations.location_tag(storage), count
