"""The constructors from before factories: `torch.Tensor(2, 3)`, `torch.FloatTensor([1, 2])`,
`t.new(…)`, and the tensor types that name a dtype and a device at once."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, overridable
from flambeau._src.ops.creation import from_nested, tensor
from flambeau._src.ops.creation import to as to_

_SIGNATURES = """
 * (*, torch.device device = None)
 * (torch.Storage storage)
 * (Tensor other)
 * (tuple of ints size, *, torch.device device = None)
 * (object data, *, torch.device device = None)
"""


def construct(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Tensor:
    """torch.Tensor(...): sizes, nested data, a storage, or another tensor of any dtype (slot)."""
    made = _legacy(args, kwargs or {}, None)
    return made if cls is Tensor else made.as_subclass(cls)


def _legacy(args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> Tensor:
    """The legacy constructor in `dtype` (None: the default dtype, and other
    tensors as they are)."""
    wanted = dtype or state.process.default_dtype
    rest = dict(kwargs)
    device = rest.pop("device", None)
    args += tuple([rest.pop(n) for n in ("data", "size", "other", "storage") if n in rest])
    if rest:
        got = ", ".join(
            [type(a).__name__ for a in args] + [f"{k}={_type_text(v)}" for k, v in kwargs.items()]
        )
        raise TypeError(
            f"new() received an invalid combination of arguments - got ({got}), but expected one "
            f"of:{_SIGNATURES}"
        )
    if device is not None:
        device = _native.device(device)
        if device.type != "cpu":
            raise RuntimeError(
                f"legacy constructor expects device type: cpu but device type: {device.type} was "
                "passed"
            )
    if not args:
        return _native.empty((0,), wanted, _native.cpu)
    first = args[0]
    if len(args) == 1 and not (isinstance(first, Tensor) and "data" in kwargs):
        if isinstance(first, Tensor):
            return _of_tensor(first, dtype)
        storage = getattr(first, "_untyped_storage", first)
        if isinstance(storage, _native.UntypedStorage):
            _check_storage(first, wanted)
            count = storage.nbytes() // wanted.itemsize
            return _native.wrap(Tensor, storage, wanted, (count,), (1,), 0)
        if type(first).__name__ == "Size" or _is_extent(first):
            return _native.empty(
                first if isinstance(first, tuple) else (int(first),), wanted, _native.cpu
            )
        return _of_data(first, wanted)
    if all(map(_is_extent, args)):
        return _native.empty(tuple(map(int, args)), wanted, _native.cpu)
    return _of_data(first, wanted)


def _is_extent(x: Any) -> bool:
    if isinstance(x, (bool, str, float)):
        return False
    if isinstance(x, Tensor):
        return not x.dim() and dt.is_integral(x.dtype, with_bool=False)
    return isinstance(x, int) or (hasattr(x, "__index__") and getattr(x, "ndim", 0) == 0)


def _type_text(v: Any) -> str:
    return "torch.dtype" if isinstance(v, _native.dtype) else type(v).__name__


def _of_tensor(t: Tensor, dtype: Any) -> Tensor:
    if dtype is not None and t.dtype is not dtype:
        raise TypeError(f"expected {_options(dtype)} (got {_options(t.dtype)})")
    return aten.alias(t)


def _options(d: Any) -> str:
    return (
        f"TensorOptions(dtype={dt.c_name(d)}, device=cpu, layout=Strided, requires_grad=false "
        "(default), pinned_memory=false (default), memory_format=(nullopt))"
    )


def _check_storage(given: Any, wanted: Any) -> None:
    own = getattr(given, "dtype", None)
    if own is not None and own is not wanted:
        raise RuntimeError(
            f"Expected a Storage of type {dt.scalar_name(wanted)} or an UntypedStorage, but got "
            f"type {dt.scalar_name(own)} for argument 1 'storage'"
        )


def _of_data(data: Any, dtype: Any) -> Tensor:
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if (
        isinstance(data, Tensor)
        or not (hasattr(data, "__len__") and hasattr(data, "__getitem__"))
        or not getattr(data, "ndim", 1)
    ):
        kind = type(data)
        name = (
            kind.__name__
            if kind.__module__ in ("builtins", "flambeau", "torch")
            else f"{kind.__module__}.{kind.__name__}"
        )
        raise TypeError(f"new(): data must be a sequence (got {name})")
    if hasattr(data, "__array_interface__"):
        return tensor(data, dtype=dtype)
    return from_nested(list(data), dtype)


@overridable
def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A tensor of self's dtype: of given sizes, data, storage or tensor.

    Use `new_empty` and the like.
    """
    return _legacy(args, kwargs, self.dtype)


# ---- the types ----


class tensortype(type):
    """The metaclass of torch.FloatTensor and the like: isinstance asks for dtype and device."""

    __module__ = "torch"
    dtype: Any
    _device: str

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        for base in bases:
            if isinstance(base, tensortype):
                raise TypeError(
                    f"type '{base.__module__}.{base.__name__}' is not an acceptable base type"
                )
        return super().__new__(mcs, name, bases, namespace)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype is cls.dtype
            and instance.device.type == cls._device
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls._device != "cpu":
            raise TypeError(
                f"type {cls.__module__}.{cls.__name__} not available. Torch not compiled with CUDA "
                "enabled."
            )
        return _legacy(args, kwargs, cls.dtype)

    def __getattr__(cls, name: str) -> Any:
        return getattr(Tensor, name)


_TYPES = "Float Double Half BFloat16 Byte Char Short Int Long Bool".split()
_BY_SCALAR: dict[str, Any] = {name: dt.DTYPES[key] for key, name in dt.SCALAR_NAMES.items()}


def types_for(device: str) -> dict[str, Any]:
    """Name → legacy tensor type of one device ('cpu', 'cuda')."""
    place = {"__module__": "torch" if device == "cpu" else f"torch.{device}", "_device": device}
    flags = {"is_cuda": device == "cuda", "is_sparse": False, "layout": layout.strided}
    return {
        f"{n}Tensor": tensortype(f"{n}Tensor", (), {"dtype": _BY_SCALAR[n], **place, **flags})
        for n in _TYPES
    }


CPU_TYPES = types_for("cpu")


def _parse_type(name: str) -> tuple[Any, str]:
    """(dtype, device type) of 'torch.FloatTensor' or 'torch.cuda.FloatTensor'."""
    root, *where, last = name.split(".") if name.count(".") else ("", name)
    found = _BY_SCALAR.get(last.removesuffix("Tensor"))
    if (
        root not in ("torch", "flambeau")
        or len(where) > 1
        or not last.endswith("Tensor")
        or found is None
    ):
        raise ValueError(f"invalid type: '{name}'")
    if where and where[0] not in ("cuda", "meta", "xpu", "mps"):
        raise ValueError(f"invalid type: '{name}'")
    return found, where[0] if where else "cpu"


@overridable
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The legacy type's name, or self converted to a dtype or to a legacy
    type (given or by name)."""
    if dtype is None:
        return dt.type_name(self.dtype, self.device.type)
    if isinstance(dtype, _native.dtype):
        return to_(self, dtype, non_blocking=non_blocking)
    if isinstance(dtype, str):
        wanted, device = _parse_type(dtype)
    elif isinstance(dtype, tensortype):
        wanted, device = dtype.dtype, dtype._device
    elif isinstance(dtype, type):
        raise ValueError(f"invalid type: '{dtype.__name__}'")
    else:
        raise TypeError("dtype must be a type, str, or dtype object")
    return to_(self, _native.device(device), wanted, non_blocking=non_blocking)


def set_default_tensor_type(t: Any, /) -> None:
    """Set the default dtype by a floating legacy type, or its name.

    Deprecated: set_default_dtype.
    """
    if isinstance(t, str):
        wanted, device = _parse_type(t)
    elif isinstance(t, tensortype):
        wanted, device = t.dtype, t._device
    else:
        raise TypeError(
            "invalid type object: only floating-point types are supported as the default type"
        )
    if not wanted.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if device != "cpu":
        raise TypeError(
            f"type {dt.type_name(wanted, device)} not available. Torch not compiled with CUDA "
            "enabled."
        )
    state.process.default_dtype = wanted


fill("new_tensor", construct)

METHODS: dict[str, Any] = {"new": new, "type": type_}
FUNCTIONS: dict[str, Any] = {**CPU_TYPES, "set_default_tensor_type": set_default_tensor_type}
