"""Small top-level functions that are no operators."""

from __future__ import annotations

import math
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import info, state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import overridable
from flambeau._src.ops.promote import result_type as _result_type
from flambeau._src.runtime import blas
from flambeau._src.util.config import config
from flambeau._src.util.log import warn_once


def is_tensor(obj: Any, /) -> bool:
    """Whether obj is a Tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: Any, /) -> bool:
    """Whether obj is a storage."""
    return isinstance(obj, _native.UntypedStorage) or hasattr(obj, "_untyped_storage")


@overridable
def is_floating_point(input: Tensor) -> bool:
    """Whether input's dtype is floating."""
    return bool(input.dtype.is_floating_point)


@overridable
def is_complex(input: Tensor) -> bool:
    """Whether input's dtype is complex."""
    return bool(input.dtype.is_complex)


@overridable
def is_signed(input: Tensor) -> bool:
    """Whether input's dtype is signed."""
    return bool(input.dtype.is_signed)


@overridable
def numel(input: Tensor) -> int:
    """The number of elements."""
    return int(input.numel())


@overridable
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero."""
    if input.numel() == 0:
        raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
    if input.numel() > 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(input.item())


def _assert(condition: Any, message: Any) -> None:
    """Assert that fx can record: a call, where Python's statement would ask
    a proxy for its truth."""
    if type(condition) is not Tensor and _native.call_bits((condition,), {}, 0) & state.FUNCTION:
        slot("function_layer")(_assert, (condition, message), {})
        return
    assert condition, message


def _bool(self: Tensor) -> bool:
    if self._bits & state.FUNCTORCH:
        return bool(slot("transformed_bool")(self))
    return bool(is_nonzero(self))


def _one_element(t: Tensor) -> Any:
    """Its number, for int(), float() and complex()."""
    if t.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return t.item()


def _int(self: Tensor) -> int:
    return int(_one_element(self).real)


def _warn_of_history(t: Tensor) -> None:
    if t.requires_grad:
        warn_once(
            "scalar of a recorded tensor",
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected "
            "behavior.\nConsider using tensor.detach() first.",
        )


def _float(self: Tensor) -> float:
    _warn_of_history(self)
    return float(_one_element(self).real)


def _complex(self: Tensor) -> complex:
    _warn_of_history(self)
    return complex(_one_element(self))


def _index(self: Tensor) -> int:
    if self.numel() != 1 or not dt.is_integral(self.dtype):
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(self.item())


def _iter(self: Tensor) -> Any:
    if not self.dim():
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def _contains(self: Tensor, element: Any) -> bool:
    if isinstance(element, (Tensor, bool, int, float, complex)):
        return bool((self == element).any().item())
    raise RuntimeError(
        f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}."
    )


def __format__(self: Tensor, spec: str) -> str:
    if not self.dim() and type(self) is Tensor and self.device.type != "meta":
        return format(self.item(), spec)
    return object.__format__(self, spec)


def result_type(tensor1: Any, tensor2: Any) -> dt.dtype:
    """The dtype of a result computed from both."""
    return _result_type((tensor1, tensor2))


def set_num_threads(n: int, /) -> None:
    """Threads for one operator, generated kernels and BLAS alike."""
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    _native.set_num_threads(n)
    blas.set_threads(n)


if config.num_threads:
    _native.set_num_threads(config.num_threads)  # BLAS takes its number from there when it loads


def get_num_threads() -> int:
    """Threads for one operator."""
    return _native.get_num_threads()


def get_default_device() -> Any:
    """The device of new tensors when none is given."""
    stack = state.thread.devices
    return stack[-1] if stack else state.process.default_device


def set_default_device(device: Any) -> None:
    """The device of new tensors when none is given."""
    state.process.default_device = _native.cpu if device is None else _native.device(device)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """flambeau's CPU operators are deterministic; the flag is kept and reported."""
    state.process.deterministic = (bool(mode), bool(warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    return state.process.deterministic[0]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    return state.process.deterministic[1]


def get_deterministic_debug_mode() -> int:
    on, warn = state.process.deterministic
    return (1 if warn else 2) if on else 0


def get_device_module(device: Any = None) -> Any:
    """The module of a kind of device (torch.cuda, torch.cpu); None: that of the accelerator."""
    if isinstance(device, _native.device):
        kind = device.type
    elif isinstance(device, str):
        kind = _native.device(device).type
    elif device is None:
        # Without an accelerator the CPU stands for it.
        kind = "cpu"
    else:
        raise RuntimeError(f"Invalid value of device '{device}', expect torch.device, str, or None")
    import importlib  # lazy: rarely needed

    try:
        return importlib.import_module(f"flambeau.{kind}")
    except ModuleNotFoundError:
        raise RuntimeError(
            f"Device '{device}' does not have a corresponding module registered as 'torch.{kind}'."
        ) from None


def typename(obj: Any, /) -> str:
    """The name of obj's type as torch prints it."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    module = getattr(obj, "__module__", "") or ""
    name = getattr(obj, "__qualname__", "") or type(obj).__name__
    return name if module in ("", "builtins", "__builtin__") else f"{module}.{name}"


def _device_enter(device: Any) -> Any:
    state.thread.devices.append(device)
    _native.set_scoped(True)
    return device


def _device_exit(device: Any) -> None:
    state.thread.devices.pop()
    _native.set_scoped(bool(state.thread.devices))


def _device_call(device: Any, function: Any) -> Any:
    import functools  # lazy: rarely needed

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with device:
            return function(*args, **kwargs)

    return wrapper


SLOTS: dict[str, Any] = {
    "device_enter": _device_enter, "device_exit": _device_exit, "device_call": _device_call,
}  # fmt: skip


def _on(kind: str) -> property:
    return property(
        lambda self: self.device.type == kind, doc=f"Whether the tensor is on a {kind} device."
    )


def _never(what: str) -> property:
    return property(lambda self: False, doc=f"False: flambeau has no {what} tensors.")


def _get_device(self: Tensor) -> int:
    """The index of the device, -1 on the CPU."""
    return -1 if self.device.index is None else self.device.index


METHODS: dict[str, Any] = {
    **{f"is_{k}": _on(k) for k in ("cpu", "cuda", "meta", "mps", "xpu", "ipu", "maia", "mtia",
                                   "vulkan", "xla", "hpu")},
    **{f"is_{k}": _never(k) for k in ("sparse", "sparse_csr", "quantized", "mkldnn", "nested")},
    "get_device": _get_device,
    "__iter__": _iter, "__contains__": _contains, "__format__": __format__, "__complex__": _complex,
    "is_nonzero": is_nonzero,
}  # fmt: skip
SCALARS: dict[str, Any] = {
    "__bool__": _bool,
    "__int__": _int,
    "__float__": _float,
    "__index__": _index,
}
FUNCTIONS: dict[str, Any] = {
    "is_tensor": is_tensor, "is_storage": is_storage, "is_floating_point": is_floating_point,
    "is_complex": is_complex,
    "is_signed": is_signed, "numel": numel, "is_nonzero": is_nonzero,
    "result_type": result_type, "set_num_threads": set_num_threads,
    "get_num_threads": get_num_threads,
    "get_default_device": get_default_device, "set_default_device": set_default_device,
    "typename": typename, "use_deterministic_algorithms": use_deterministic_algorithms,
    "are_deterministic_algorithms_enabled": are_deterministic_algorithms_enabled,
    "is_deterministic_algorithms_warn_only_enabled": is_deterministic_algorithms_warn_only_enabled,
    "get_deterministic_debug_mode": get_deterministic_debug_mode,
    "get_device_module": get_device_module,
    "has_openmp": False, "has_mkl": False, "has_lapack": True, "has_spectral": True,
    "_assert": _assert, "finfo": info.finfo, "iinfo": info.iinfo,
    "promote_types": info.promote_types, "can_cast": info.can_cast,
    "inf": math.inf, "nan": math.nan,
    "pi": math.pi, "e": math.e, "newaxis": None,
}  # fmt: skip
