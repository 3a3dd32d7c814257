"""What `Tensor` has from the libraries above the engine: storages, sharing, pickling.

Importing this attaches it. What the methods do is loaded when they are called.
"""

from __future__ import annotations

import copyreg
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src import _native
from flambeau._src.core.tensor import attach

__all__ = ["Tensor"]


def _typed_storage(self: Any) -> Any:
    """The storage as numbers of this tensor's dtype."""
    untyped = self.untyped_storage()
    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=self.dtype, _internal=True)


def storage(self: Any) -> Any:
    """The storage as numbers of this tensor's dtype. Deprecated: use `untyped_storage`."""
    torch.storage._warn_typed_storage_removal(stacklevel=3)
    return self._typed_storage()


def storage_type(self: Any) -> Any:
    """The class of the typed storage of this dtype. Deprecated."""
    torch.storage._warn_typed_storage_removal(stacklevel=3)
    return getattr(torch.storage, self._typed_storage()._pickle_storage_type())


def share_memory_(self: Any) -> Any:
    """Move the bytes into memory that other processes can map; all views go with them."""
    torch.storage.share_memory(self.untyped_storage())
    return self


def is_shared(self: Any) -> bool:
    """Whether the bytes are in shared memory."""
    return torch.storage.is_shared(self.untyped_storage())


def __reduce_ex__(self: Any, proto: int) -> tuple[Any, ...]:
    return torch._utils._reduce_tensor(self, proto)


def __setstate__(self: Any, state: Any) -> None:
    if not self.is_leaf:
        raise RuntimeError("__setstate__ can be only called on leaf Tensors")
    if len(state) == 4:
        self.set_(*state)
        return
    if len(state) == 5:
        self.data = state[0]
        state = (state[3], state[4], state[2])
    self.requires_grad = state[0]


def __getattr__(name: str) -> Any:
    # Checkpoints name this function here.
    if name == "_rebuild_from_type_v2":
        return torch._utils._rebuild_from_type_v2
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


METHODS: dict[str, Any] = {
    "_typed_storage": _typed_storage,
    "storage": storage,
    "storage_type": storage_type,
    "share_memory_": share_memory_,
    "is_shared": is_shared,
    "__reduce_ex__": __reduce_ex__,
    "__setstate__": __setstate__,
}
attach(METHODS)
# A method is pickled as an attribute of Tensor, as torch's are.
copyreg.pickle(_native.Method, lambda method: (getattr, (Tensor, method.__name__)))
