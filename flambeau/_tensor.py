"""What `Tensor` has from the libraries above the engine: storages, sharing, pickling, copying.

Importing this attaches it. Only names are here; what they do is loaded when it is called.
"""

from __future__ import annotations

import copy
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src import _native
from flambeau._src.core.tensor import attach

from ._utils import (
    _get_obj_state,
    _rebuild_from_type_v2,
    _reduce_tensor,
    _set_obj_state,
    get_tensor_metadata,
    set_tensor_metadata,
)

__all__ = ["Tensor", "_rebuild_from_type_v2"]


def _typed_storage(self: Any) -> Any:
    """The storage as numbers of this tensor's dtype."""
    untyped = self.untyped_storage()
    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=self.dtype, _internal=True)


def storage(self: Any) -> Any:
    """The storage as numbers of this tensor's dtype. Deprecated: use `untyped_storage`."""
    torch.storage._warn_typed_storage_removal(stacklevel=2)
    return self._typed_storage()


def share_memory_(self: Any) -> Any:
    """Move the bytes into memory that other processes can map; all views go with them."""
    torch.storage.share_memory(self.untyped_storage())
    return self


def is_shared(self: Any) -> bool:
    """Whether the bytes are in shared memory."""
    untyped = self.untyped_storage()
    return untyped.device.type == "cuda" or bool(untyped._shared)


def __reduce_ex__(self: Any, proto: int) -> tuple[Any, ...]:
    return _reduce_tensor(self, proto)


def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
            "because of a torch.nn.utils.weight_norm usage, see "
            "https://github.com/pytorch/pytorch/pull/103001"
        )
    if id(self) in memo:
        return memo[id(self)]
    with torch.no_grad():
        new = _copied_values(self, memo)
    if self.requires_grad:
        new.requires_grad_()
    if self.grad is not None:
        new.grad = copy.deepcopy(self.grad, memo)
    state = _get_obj_state(self)
    if state:
        _set_obj_state(new, copy.deepcopy(state, memo))
    memo[id(self)] = new
    return new


def _copied_values(tensor: Any, memo: dict[int, Any]) -> Any:
    """The tensor with bytes of its own; tensors that share bytes still share them in the copy."""
    kind = type(tensor)
    bare = tensor.layout is not torch.strided or tensor.device.type == "meta"
    if bare or (kind is not Tensor and tensor.data_ptr() == 0):
        new = tensor.clone()
        if type(new) is not kind:
            raise RuntimeError(
                "The default implementation of __deepcopy__() for wrapper subclasses only works "
                "for subclass types that implement clone() and for which cloning returns another "
                "instance of the same subclass. You should either properly implement clone() for "
                "your subclass or override __deepcopy__() if it is intended behavior for clone() "
                "to return an instance of a different type."
            )
        return new
    untyped = copy.deepcopy(tensor.untyped_storage(), memo)
    geometry = tuple(tensor.size()), tensor.stride(), tensor.storage_offset()
    new = _native.wrap(Tensor, untyped, tensor.dtype, *geometry)
    flags = get_tensor_metadata(tensor)
    if flags:
        set_tensor_metadata(new, flags)
        new = new.resolve_conj().resolve_neg()
    return new if kind is Tensor else new.as_subclass(kind)


METHODS: dict[str, Any] = {
    "_typed_storage": _typed_storage,
    "storage": storage,
    "share_memory_": share_memory_,
    "is_shared": is_shared,
    "__reduce_ex__": __reduce_ex__,
    "__deepcopy__": __deepcopy__,
}
attach({name: method for name, method in METHODS.items() if name not in vars(Tensor)})
