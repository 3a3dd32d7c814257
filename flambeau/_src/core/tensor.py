"""The `Tensor` type. The record is C; methods come from the operator table and from the ranks
above, attached by the composition root through `attach`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flambeau._src import _native
from flambeau._src._native import Tensor, UntypedStorage, cpu, device
from flambeau._src.core.dtype import dtype
from flambeau._src.core.size import Size
from flambeau._src.core.slots import slot
from flambeau._src.core.state import FUNCTION, Suspended

__all__ = ["Tensor", "UntypedStorage", "attach", "cpu", "device", "empty"]


def _disabled_torch_function_impl(
    func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """`__torch_function__` of classes that want none: the call goes straight on."""
    with Suspended(FUNCTION):
        return func(*args, **(kwargs or {}))


def _tensor_function(
    cls: type, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """The default `__torch_function__`: run the call, and give results the subclass's type."""
    kwargs = kwargs or {}
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with Suspended(FUNCTION):
        result = func(*args, **kwargs)
    if func in slot("default_nowrap_functions")():
        return result
    return _convert(result, cls)


def _convert(result: Any, cls: type) -> Any:
    if cls is Tensor:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        items = [_convert(r, cls) for r in result]
        make = getattr(result, "_make", None) or type(result)
        return make(items)
    return result


_native.set_types(Size, _disabled_torch_function_impl)
Tensor.__torch_function__ = classmethod(_tensor_function)


def attach(methods: Mapping[str, Any]) -> None:
    """Give Tensor the methods and properties of a rank above."""
    for name, value in methods.items():
        if getattr(value, "__name__", "") == f"{name}_method":
            value.__name__ = name  # beside a function of the same name
        if not _native.set_operator(name, value):
            setattr(Tensor, name, value)


def empty(size: Any, dtype_: dtype, device_: device = cpu, stride: Any = None) -> Tensor:
    """Fresh bytes under a geometry; no layer sees this."""
    return _native.empty(size, dtype_, device_, stride)
