"""Tensor's methods about classes and history: subclasses, copies, leaving the graph."""

from __future__ import annotations

import copy
import copyreg
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.size import Size
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, overridable, requiring

_TYPE_BITS = state.FUNCTION | state.DISPATCH


def _check_class(cls: Any) -> None:
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not "
            "possible. Make sure your class inherits from Tensor."
        )


def retyped(cls: type, t: Tensor) -> Tensor:
    """t as an instance of cls: the same bytes, geometry and version, no history."""
    new = _native.alias(cls, t)
    inherited = t._bits & ~_TYPE_BITS
    if inherited:
        new._bits |= inherited
    return new


def _make_subclass(
    cls: type, data: Tensor, require_grad: bool = False, dispatch_sizes_strides_policy: Any = None,
    dispatch_device: bool = False, dispatch_layout: bool = False,
    device_for_backend_keys: Any = None,
) -> Any:  # fmt: skip
    """A leaf of class cls over data's bytes."""
    _check_class(cls)
    if not isinstance(data, Tensor):
        raise TypeError(
            "_make_subclass(): argument 'data' (position 1) must be Tensor, not "
            f"{type(data).__name__}"
        )
    new = retyped(cls, data)
    return requiring(new) if require_grad else new


def as_subclass(self: Tensor, cls: type) -> Any:
    """The same tensor as an instance of cls: shares bytes and history.

    Raises:
        TypeError: cls is no subclass of Tensor.
    """
    _check_class(cls)
    with state.Suspended(state.FUNCTION | state.FUNCTION_MODE | state.DISPATCH):
        return with_history(cls, aten.alias(self))


def with_history(cls: type, view: Tensor) -> Any:
    """view, a fresh alias, as cls with view's history and base."""
    new = retyped(cls, view)
    if view._base is not None:
        new._base = view._base
        new._nograd_view = view._nograd_view
    if view.grad_fn is not None:
        new._set_history(view.grad_fn, view.output_nr, True)
    else:
        new._set_history(None, 0, view.requires_grad)
    return new


def _dense_strides(size: Any, memory_format: Any) -> tuple[int, ...]:
    n = len(size)
    order = list(range(n))
    if memory_format is layout.channels_last and n == 4:
        order = [0, 2, 3, 1]
    elif memory_format is layout.channels_last_3d and n == 5:
        order = [0, 2, 3, 4, 1]
    strides, c = [0] * n, 1
    for i in reversed(order):
        strides[i] = c
        c *= max(size[i], 1)
    return tuple(strides)


def _hint(v: Any) -> int:
    return v if isinstance(v, int) else int(v.node.hint)


def _make_wrapper_subclass(
    cls: type, size: Any, strides: Any = None, storage_offset: Any = None,
    memory_format: Any = None,
    dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, dispatch_sizes_strides_policy: Any = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False, _extra_dispatch_keys: Any = None, storage_size: Any = None,
) -> Any:  # fmt: skip
    """A tensor of class cls with this geometry and no bytes: what it means is in the class's
    ``__torch_dispatch__``.

    Raises:
        RuntimeError: cls has no ``__torch_dispatch__``.
    """
    _check_class(cls)
    if not _native.layer_bits(cls) & state.DISPATCH:
        raise RuntimeError(
            f"{cls.__name__} must define __torch_dispatch__ to be made with _make_wrapper_subclass"
        )
    dtype = state.process.default_dtype if dtype is None else dtype
    device = state.process.default_device if device is None else _native.device(device)
    size = tuple(size)
    strides = _dense_strides(size, memory_format) if strides is None else tuple(strides)
    offset = storage_offset or 0
    symbolic = any(not isinstance(v, int) for v in (*size, *strides, offset))
    shown = (size, strides, offset)
    if symbolic:
        size, strides = tuple(map(_hint, size)), tuple(map(_hint, strides))
        offset = _hint(offset)
    if storage_size is None:
        span = offset + 1 + sum((s - 1) * st for s, st in zip(size, strides, strict=True))
        storage_size = 0 if 0 in size else span * dtype.itemsize
    bytes_ = _native.UntypedStorage.fake(int(storage_size), device)
    new = _native.wrap(cls, bytes_, dtype, size, strides, offset)
    if symbolic:
        new._sym = (Size(shown[0]), tuple(shown[1]), shown[2])
    if requires_grad:
        new.requires_grad = True
    return new


def _copy_storage(t: Tensor, memo: dict[Any, Any]) -> Any:
    """A copy of t's storage cell: one for all the tensors of a deepcopy that share it."""
    cell = t.untyped_storage()
    copies = memo.setdefault("torch", {})
    if id(cell) not in copies:
        if cell.is_fake:
            fresh = _native.UntypedStorage.fake(cell.nbytes(), cell.device)
        else:
            fresh = _native.UntypedStorage(cell.nbytes(), cell.device)
            if cell.nbytes():
                memoryview(fresh)[:] = memoryview(cell)
        copies[id(cell)] = (fresh, cell)  # the cell too: its id must not be another's meanwhile
    return copies[id(cell)][0]


@overridable
def __deepcopy__(self: Tensor, memo: dict[Any, Any]) -> Any:
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
            "because of a torch.nn.utils.weight_norm usage, see "
            "https://github.com/pytorch/pytorch/pull/103001"
        )
    if id(self) in memo:
        return memo[id(self)]
    with state.GradMode(False):
        if self._bits & state.DISPATCH:
            new = self.clone()
            if type(new) is not type(self):
                raise RuntimeError(
                    "The default implementation of __deepcopy__() for wrapper subclasses only "
                    "works for subclass types that properly implement clone(), that is, for which "
                    f"clone() returns an instance of the subclass: type {type(self).__name__} gave "
                    f"{type(new).__name__}"
                )
        else:
            new = _native.wrap(
                type(self), _copy_storage(self, memo), self.dtype, self.shape, self.stride(),
                self.storage_offset(),
            )  # fmt: skip
            new._conj_flag, new._neg_flag = self._conj_flag, self._neg_flag
        if self.requires_grad:
            new.requires_grad = True
        if self._grad is not None:
            new.grad = self._grad.__deepcopy__(memo)
        if type(self) is not Tensor:
            for slot_name in copyreg._slotnames(type(self)):  # type: ignore[attr-defined]
                if hasattr(self, slot_name) and not slot_name.startswith("__"):
                    setattr(new, slot_name, copy.deepcopy(getattr(self, slot_name), memo))
        new.__dict__.update(copy.deepcopy(self.__dict__, memo))
    memo[id(self)] = new
    return new


def is_inference(self: Tensor) -> bool:
    """Whether the tensor was made in inference mode."""
    return bool(self._inference)


def is_view(self: Tensor) -> bool:
    """Whether the tensor is a view of another, `_base`."""
    return self._base is not None


def detach_(self: Tensor) -> Tensor:
    """Leave the graph, in place: the tensor becomes a leaf that requires no gradient.

    Raises:
        RuntimeError: the tensor is a view.
    """
    if self._base is not None:
        raise RuntimeError(
            "Can't detach views in-place. Use detach() instead. If you are using "
            "DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as "
            "True, gradients are views of DDP buckets, and hence detach_() cannot be called on "
            "these gradients. To fix this error, please refer to the Optimizer.zero_grad() "
            "function in torch/optim/optimizer.py as the solution."
        )
    self._set_history(None, 0, False)
    return self


@overridable
def _dunder_iter(self: Tensor) -> Any:
    if not self.dim():
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@overridable
def _dunder_reversed(self: Tensor) -> Any:
    return self if not self.dim() else self.flip(0)


@overridable
def _dunder_contains(self: Tensor, element: Any) -> bool:
    if isinstance(element, (Tensor, int, float, bool, complex)):
        return bool((self == element).any().item())
    raise RuntimeError(
        f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}."
    )


for _f, _name in (
    (_dunder_iter, "__iter__"),
    (_dunder_reversed, "__reversed__"),
    (_dunder_contains, "__contains__"),
):
    _f.__name__ = _name

METHODS: dict[str, Any] = {
    "_make_subclass": staticmethod(_make_subclass),
    "_make_wrapper_subclass": staticmethod(_make_wrapper_subclass),
    "as_subclass": as_subclass,
    "__deepcopy__": __deepcopy__,
    "is_inference": is_inference,
    "_is_view": is_view,
    "detach_": detach_,
    "__iter__": _dunder_iter,
    "__reversed__": _dunder_reversed,
    "__contains__": _dunder_contains,
    "_grad_fn": property(lambda self: self.grad_fn),
    "name": property(lambda self: None),
    "volatile": property(lambda self: False),
}
_ = dt
