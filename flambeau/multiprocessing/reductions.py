"""How tensors and storages are pickled for another process of this machine."""

from __future__ import annotations

import os
import weakref
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

import flambeau as torch
from flambeau._storage_memory import SharedMemory

__all__ = ["StorageWeakRef", "init_reductions", "rebuild_tensor", "reduce_storage", "reduce_tensor"]


class StorageWeakRef:
    """A reference to a storage that does not keep it; equal for the same storage.

    Attributes:
        cdata: the number of the storage.
    """

    __slots__ = ("_ref", "cdata")

    def __init__(self, storage: Any) -> None:
        storage = getattr(storage, "_untyped_storage", storage)
        self.cdata = storage._cdata
        self._ref = weakref.ref(storage)

    def expired(self) -> bool:
        """Whether the storage is gone."""
        return self._ref() is None

    def __hash__(self) -> int:
        return self.cdata

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StorageWeakRef):
            return NotImplemented
        return self.cdata == other.cdata


#: Storages in shared memory that this process has, by the memory's (device, inode): memory that
#: comes twice, or comes back, is one storage.
shared_cache: weakref.WeakValueDictionary[tuple[int, int], Any] = weakref.WeakValueDictionary()


def fd_id(fd: int) -> tuple[int, int]:
    """What is the same for all descriptors of one file."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def rebuild_storage_fd(cls: Any, df: Any, size: int) -> Any:
    """The storage over memory whose descriptor was sent."""
    fd = df.detach()
    key = fd_id(fd)
    known = shared_cache.get(key)
    if known is not None:
        os.close(fd)
        return known
    storage = torch.storage.of_shared(SharedMemory(fd, size))
    shared_cache[key] = storage
    return storage


def rebuild_storage_empty(cls: Any) -> Any:
    """A storage without bytes."""
    return cls(0)


def rebuild_meta_storage(nbytes: int) -> Any:
    """A storage on the meta device."""
    return torch.UntypedStorage(nbytes, device=torch.device("meta"))


def reduce_storage(storage: Any) -> tuple[Any, tuple[Any, ...]]:
    """Move a storage into shared memory, and say how the receiver gets it.

    Raises:
        RuntimeError: for a device whose memory cannot be shared this way.
    """
    if storage.device.type == "meta":
        return rebuild_meta_storage, (storage.nbytes(),)
    if storage.device.type != "cpu":
        raise RuntimeError(
            f"Cannot pickle {storage.device.type.upper()} storage; try pickling a "
            f"{storage.device.type.upper()} tensor instead"
        )
    if storage.nbytes() == 0:
        return rebuild_storage_empty, (type(storage),)
    if not isinstance(storage._owner, SharedMemory):
        torch.storage.share_memory(storage, again=True)
    memory = storage._owner
    shared_cache[fd_id(memory.descriptor)] = storage
    return rebuild_storage_fd, (type(storage), reduction.DupFd(memory.descriptor), memory.size)


def rebuild_typed_storage(storage: Any, dtype: Any) -> Any:
    """A typed view of a storage."""
    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def reduce_typed_storage(storage: Any) -> tuple[Any, tuple[Any, ...]]:
    """The storage, and its dtype."""
    return rebuild_typed_storage, (storage._untyped_storage, storage.dtype)


def rebuild_tensor(cls: Any, storage: Any, metadata: tuple[Any, ...]) -> Any:
    """A tensor, or Parameter, over a storage."""
    offset, size, stride, requires_grad = metadata
    tensor = torch._utils._rebuild_tensor(storage, offset, size, stride)
    if cls is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    tensor.requires_grad = requires_grad
    return tensor


def check_sendable(tensor: Any) -> None:
    """RuntimeError for a tensor with a history, which cannot go with it."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )


def reduce_tensor(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """How the receiver gets a tensor over the same bytes."""
    check_sendable(tensor)
    if tensor.layout is not torch.strided or tensor._conj_flag or tensor._neg_flag:
        return torch._utils._reduce_tensor(tensor, 2)
    if tensor.device.type not in ("cpu", "meta"):
        device = tensor.device
        args = tensor.detach().cpu(), tensor.dtype, device, tensor.requires_grad
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, args
    storage = rebuild_typed_storage(tensor.untyped_storage(), tensor.dtype)
    metadata = tensor.storage_offset(), tuple(tensor.size()), tensor.stride(), tensor.requires_grad
    return rebuild_tensor, (type(tensor), storage, metadata)


def init_reductions() -> None:
    """Make multiprocessing's pickler send tensors by sharing."""
    register: Any = ForkingPickler.register
    register(torch.Tensor, reduce_tensor)
    register(torch.nn.Parameter, reduce_tensor)
    register(torch.UntypedStorage, reduce_storage)
    register(torch.storage.TypedStorage, reduce_typed_storage)
