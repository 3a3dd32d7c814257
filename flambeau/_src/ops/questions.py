"""Small methods of Tensor that compute nothing: questions about its geometry, callbacks an element
at a time, what only other layouts or devices have, and names from before in-place `resize_`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, overridable

# ---- geometry ----


@overridable
def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return bool(self.shape == other.shape)


@overridable
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same elements of the same storage in the same order."""
    return (
        self.untyped_storage() is tensor.untyped_storage()
        and self.storage_offset() == tensor.storage_offset()
        and self.shape == tensor.shape
        and self.stride() == tensor.stride()
    )


@overridable
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost.

    Args:
        ambiguity_check: True refuses tensors of which several orders are true; memory formats,
            given in a list, refuse those that have several (or none) of them.
    """
    if self.layout is not layout.strided:
        raise AttributeError(f"Can't get dim order on layout {self.layout}")
    order = sorted(range(self.dim()), key=lambda d: -self.stride(d))
    sizes, strides = self.shape, self.stride()
    if isinstance(ambiguity_check, (list, tuple)):
        if not all(isinstance(f, layout.memory_format) for f in ambiguity_check):
            raise TypeError(
                "The ambiguity_check argument must be a bool or a list of memory formats."
            )
        several = sum(self.is_contiguous(memory_format=f) for f in ambiguity_check) != 1
    elif not isinstance(ambiguity_check, bool):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    else:
        if ambiguity_check and 0 in strides:
            raise RuntimeError("The tensor does not have unique dim order.")
        equal = any(strides[a] == strides[b] for a, b in itertools.pairwise(order))
        several = ambiguity_check and (equal or 1 in sizes)
    if several:
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given "
            "memory formats."
        )
    return tuple(order)


@overridable
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """self summed over the dimensions that broadcasting `size` to self's shape would repeat."""
    wanted = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    shape, extra = tuple(self.shape), self.dim() - len(wanted)
    if extra < 0 or any(w not in (1, n) for w, n in zip(wanted, shape[extra:], strict=False)):
        raise RuntimeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(shape)}}}.")
    kept = [extra + i for i, w in enumerate(wanted) if w == 1 and shape[extra + i] != 1]
    dims = [*range(extra), *kept]
    if not wanted:
        return self.sum()
    out = self.sum(dims, keepdim=True) if dims else self
    return out.view(wanted) if extra else out


# ---- an element at a time ----


def _positions(t: Tensor) -> list[int]:
    """The offset of each element from the first, in the order of the indices."""
    found = [0]
    for n, s in zip(t.shape, t.stride(), strict=True):
        found = [base + i * s for base in found for i in range(n)]
    return found


def _refuse_recorded(name: str, t: Tensor) -> None:
    if t.requires_grad:
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() "
            "instead."
        )
    if t.device.type != "cpu":
        raise TypeError(f"{name} is only implemented on CPU tensors")


def _store_all(t: Tensor, values: list[Any]) -> Tensor:
    for at, value in zip(_positions(t), values, strict=True):
        if not _native.store(t, at, value):
            whole = not (t.dtype.is_floating_point or t.dtype.is_complex)
            _native.store(t, at, int(value) if whole and t.dtype is not dt.bool_ else bool(value))
    return t


def _flat(t: Tensor) -> list[Any]:
    values: list[Any] = t.reshape(-1).tolist()
    return values


@overridable
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by callable(element).

    Slow: a Python call an element, on the CPU only.
    """
    _refuse_recorded("apply_", self)
    return _store_all(self, [callable(v) for v in _flat(self)])


def _mapped(
    name: str, self: Tensor, others: tuple[Tensor, ...], callable: Callable[..., Any]
) -> Tensor:
    for t in (self, *others):
        _refuse_recorded(name, t)
    for label, t in zip(("other",) if len(others) == 1 else ("x", "y"), others, strict=True):
        if t.dtype is not self.dtype:
            raise TypeError(
                f"{name}: expected {dt.type_name(self.dtype)} for '{label}' (got "
                f"{dt.type_name(t.dtype)})"
            )
    spread = [_flat(t.expand(self.shape)) for t in others]
    return _store_all(
        self, [callable(*values) for values in zip(_flat(self), *spread, strict=True)]
    )


@overridable
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by callable(element, tensor's element). Slow, on the CPU only."""
    return _mapped("map_", self, (tensor,), callable)


@overridable
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace each element by callable(element, x's, y's). Slow, on the CPU only."""
    return _mapped("map2_", self, (x, y), callable)


# ---- what other layouts have ----

_SPARSE = {
    "values": "sparse tensor", "indices": "sparse coordinate tensor",
    "coalesce": "sparse coordinate tensor",
    "is_coalesced": "sparse coordinate tensor", "crow_indices": "sparse row compressed tensor",
    "col_indices": "sparse row compressed tensor",
    "ccol_indices": "sparse column compressed tensor",
    "row_indices": "sparse column compressed tensor",
}  # fmt: skip


def _only_sparse(name: str) -> Callable[[Tensor], Any]:
    def method(self: Tensor) -> Any:
        raise RuntimeError(f"{name} expected {_SPARSE[name]} layout but got Strided")

    method.__name__ = name
    method.__doc__ = "Of sparse tensors, which flambeau has none of: RuntimeError."
    return method


@overridable
def sparse_dim(self: Tensor) -> int:
    """0: all dimensions are dense."""
    return 0


@overridable
def dense_dim(self: Tensor) -> int:
    """How many dimensions are dense: all."""
    return int(self.dim())


@overridable
def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    """self, which is dense, in another dtype if one is given."""
    return self if dtype is None else self.to(dtype)


# ---- memory and devices ----


@overridable
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the bytes are page-locked: never without an accelerator."""
    return False


@overridable
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The same elements in page-locked memory; RuntimeError where no accelerator would use it."""
    raise RuntimeError("Cannot access accelerator device when none is available.")


def record_stream(self: Tensor, s: Any) -> None:
    """Say that a stream uses the bytes: of a device that has streams."""
    if not hasattr(s, "stream_id"):
        raise RuntimeError("unknown parameter type")


def _cuda_interface(self: Tensor) -> Any:
    raise AttributeError(
        f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA data "
        "is required use tensor.cuda() to copy tensor to device memory."
    )


def _unlinked(kind: str) -> Callable[..., Any]:
    def method(self: Tensor, device: Any = None, non_blocking: bool = False, **_: Any) -> Tensor:
        if kind == "xpu":
            raise AssertionError("Torch not compiled with XPU enabled")
        raise RuntimeError(f"PyTorch is not linked with support for {kind} devices")

    method.__name__ = kind
    method.__doc__ = f"self on the {kind} device, which this build has not: an error."
    return method


# ---- older names ----


def _deprecated(name: str) -> None:
    import warnings  # lazy: rarely needed

    warnings.warn(f"non-inplace {name} is deprecated", UserWarning, stacklevel=3)


def resize(self: Tensor, *sizes: Any) -> Tensor:
    """self under another shape with as many elements. Deprecated: reshape."""
    _deprecated("resize")
    wanted = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    count = 1
    for n in wanted:
        count *= n
    if count != self.numel():
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, wanted))} ({count} elements in total), but "
            f"the given tensor has a size of {'x'.join(map(str, self.shape))} ({self.numel()} "
            "elements). autograd's resize can only change the shape of a given tensor, while "
            "preserving the number of elements. "
        )
    return self.contiguous().view(*wanted)


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """self under the shape of another tensor. Deprecated: reshape."""
    _deprecated("resize_as")
    return self.contiguous().view(tensor.shape)


@overridable
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `load_state_dict` puts in self's place when tensors are swapped:
    other's values, detached."""
    if assign:
        return other.detach()
    aten.copy_(self.detach(), other)
    return self.detach()


METHODS: dict[str, Any] = {
    **{f.__name__: f for f in (
        is_same_size, is_set_to, dim_order, sum_to_size, apply_, map_, map2_, sparse_dim, dense_dim,
        to_dense, is_pinned, pin_memory, record_stream, resize, resize_as, module_load,
    )},
    **{name: _only_sparse(name) for name in _SPARSE},
    **{kind: _unlinked(kind) for kind in ("xpu", "ipu", "mtia")},
    "__cuda_array_interface__": property(_cuda_interface),
    "is_distributed": overridable(lambda self: False),
    "const_data_ptr": Tensor.data_ptr, "mutable_data_ptr": Tensor.data_ptr,
    "_cdata": property(id),
    "_has_symbolic_sizes_strides": property(lambda self: self._sym is not None),
}  # fmt: skip
FUNCTIONS: dict[str, Any] = {
    "is_same_size": is_same_size, "get_device": overridable(lambda input: input.get_device()),
    "is_distributed": METHODS["is_distributed"], "is_vulkan_available": lambda: False,
    "is_inference": overridable(lambda input: input.is_inference()),
}  # fmt: skip
