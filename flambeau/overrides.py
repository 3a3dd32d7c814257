"""`__torch_function__`: what overrides functions of this library, and how to ask for it."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.tensor import _disabled_torch_function_impl
from flambeau._src.interp import function as _layer
from flambeau._src.interp.function import (
    DisableTorchFunctionSubclass as _DisableTorchFunctionSubclass,
)
from flambeau._src.interp.function import (
    EnableTorchFunction as _EnableTorchFunction,
)
from flambeau._src.ops.registry import FUNCTIONS as _LATE_FUNCTIONS

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

_call_bits = _native.call_bits
_PUBLIC = state.FUNCTION | state.FUNCTION_MODE
_NONE: dict[str, Any] = {}


# ---- asking ----


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is active or the class of one of the arguments overrides functions."""
    args = relevant_args if isinstance(relevant_args, tuple) else tuple(relevant_args)
    return has_torch_function_variadic(*args)


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function` of one argument."""
    if _call_bits((obj,), _NONE, 0) & _PUBLIC:
        return True
    return not isinstance(obj, Tensor) and _layer.is_overloaded(obj)


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of the arguments, given one by one."""
    if _call_bits(args, _NONE, 0) & _PUBLIC:
        return True
    return any(not isinstance(a, Tensor) and _layer.is_overloaded(a) for a in args)


_has_torch_function = has_torch_function
_has_torch_function_unary = has_torch_function_unary
_has_torch_function_variadic = has_torch_function_variadic


def _get_overloaded_args(
    relevant_args: Iterable[Any], get_type_fn: Callable[[Any], type] | None = None
) -> list[Any]:
    """The arguments whose classes have a say, in the order in which they are asked."""
    return _layer.overridden_args(tuple(relevant_args))


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Let modes and the classes of relevant_args do what public_api would.

    Raises:
        TypeError: all returned NotImplemented.
    """
    overloaded = _get_overloaded_args(relevant_args)
    kinds = tuple(map(type, overloaded))
    mode = None
    if _is_torch_function_mode_enabled():
        with _pop_mode_temporarily() as mode:
            result = mode.__torch_function__(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    for arg in overloaded:
        method = arg.__torch_function__
        if (
            getattr(method, "__self__", None) is arg
            and method.__func__ is not _disabled_torch_function_impl
        ):
            warnings.warn(
                "Defining your `__torch_function__ as a plain method is deprecated and will be an "
                "error in future, please define it as a classmethod.",
                DeprecationWarning,
                stacklevel=2,
            )
        result = method(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    text = (
        f"no implementation found for '{name}' on types that implement __torch_function__: "
        f"{[type(arg) for arg in overloaded]}"
    )
    if mode is not None:
        text += f" nor in mode {mode}"
    raise TypeError(text)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Decorator for functions outside this library: overrides are asked first.

    Args:
        dispatcher: gives, from the call's arguments, those whose classes count.
    """

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether inp is a Tensor or has a ``__torch_function__``."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Functions whose results the default ``__torch_function__`` leaves as they are."""
    return _layer.default_nowrap_functions()


# ---- modes ----


def _is_torch_function_mode_enabled() -> bool:
    return _layer.has_modes()


def _len_torch_function_stack() -> int:
    return len(state.thread.function_modes)


def _get_function_stack_at(index: int) -> Any:
    return state.thread.function_modes[index]


def _push_on_torch_function_stack(mode: Any) -> None:
    _layer.push_mode(mode)


def _pop_torch_function_stack() -> Any:
    return _layer.pop_mode()


def _get_current_function_mode() -> Any:
    stack = state.thread.function_modes
    return stack[-1] if stack else None


def _get_current_function_mode_stack() -> list[Any]:
    return list(state.thread.function_modes)


def _push_mode(mode: Any) -> None:
    _layer.push_mode(mode)


def _pop_mode() -> Any:
    return _layer.pop_mode()


@contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    mode = _pop_mode()
    try:
        yield mode
    finally:
        _push_mode(mode)


class TorchFunctionMode:
    """Inside ``with MyMode():`` every public call goes to the mode's ``__torch_function__``.

    Subclasses define ``__torch_function__(self, func, types, args=(), kwargs=None)``. While it runs
    the mode itself is off, so that it may call ``func(*args, **kwargs)``.
    """

    inner: Any

    def __init__(self) -> None:
        """Nothing; subclasses need not call it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(
            "a TorchFunctionMode must define __torch_function__(self, func, types, args, kwargs)"
        )

    def __enter__(self) -> Any:
        _push_mode(self)
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        _pop_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """Deprecated: make the mode and enter it with ``with``."""
        warnings.warn(
            "`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`",
            stacklevel=2,
        )
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """The mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _enable_torch_function() -> Iterator[None]:
    with _EnableTorchFunction():
        yield


@contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Inside a ``__torch_dispatch__``, let all outer layers see the calls again."""
    with state.Resumed((1 << 13) - 1):
        yield


class redispatch_function:
    """Call func with the overrides of subclasses off: what a handler does with its function."""

    def __new__(cls, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


# ---- what can be overridden ----

_PROPERTY_METHODS = ("__get__", "__set__", "__delete__")


def _namespaces() -> list[tuple[str, Any]]:
    return [
        ("torch", torch),
        ("torch.functional", torch),
        ("torch.nn.functional", torch.nn.functional),
        ("torch.nn.init", torch.nn.init),
        ("torch.Tensor", Tensor),
        ("torch.linalg", getattr(torch, "linalg", None)),
        ("torch.fft", getattr(torch, "fft", None)),
        ("torch.special", getattr(torch, "special", None)),
    ]


def _has_module(name: str) -> bool:
    try:
        getattr(torch, name)
    except (AttributeError, ImportError):
        return False
    return True


@functools.lru_cache(None)
def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that no override ever sees."""
    names = """
        typename is_tensor set_default_tensor_type set_rng_state get_rng_state manual_seed
        initial_seed seed save load set_printoptions fork get_default_dtype get_num_interop_threads
        get_num_threads init_num_threads import_ir_module is_anomaly_enabled is_grad_enabled
        merge_type_from_type_comment parse_ir parse_schema set_anomaly_enabled set_flush_denormal
        set_num_interop_threads set_num_threads wait as_tensor from_numpy tensor default_generator
        has_cuda empty_strided eye fill finfo from_file full arange asarray empty linspace logspace
        ones promote_types rand randn randint randperm range result_type scalar_tensor tril_indices
        triu_indices vander zeros can_cast set_grad_enabled no_grad enable_grad inference_mode
        is_inference_mode_enabled compile set_default_device get_default_device set_default_dtype
        use_deterministic_algorithms
    """.split()
    return {getattr(torch, n) for n in names if n in _names(torch) and callable(getattr(torch, n))}


def _names(space: Any) -> set[str]:
    """What a namespace holds, or (functions that are imported late) will hold."""
    return {*vars(space), *(_LATE_FUNCTIONS if space is torch else ())}


@functools.lru_cache(None)
def _overridable() -> tuple[dict[Any, list[Callable[..., Any]]], dict[Callable[..., Any], str]]:
    found: dict[Any, list[Callable[..., Any]]] = {}
    names: dict[Callable[..., Any], str] = {}
    ignored = get_ignored_functions()
    for prefix, space in _namespaces():
        if space is None:
            continue
        for name in sorted(_names(space)):
            if name.startswith("_") and not (space is Tensor and name.startswith("__")):
                continue
            value = getattr(space, name)
            if isinstance(value, (types.ModuleType, type)):
                continue
            if not callable(value) and hasattr(value, "__get__") and space is Tensor:
                found.setdefault(space, []).append(value.__get__)
                names[value.__get__] = f"{prefix}.{name}.__get__"
                continue
            if not callable(value) or value in ignored or value in names:
                continue
            if space is Tensor and name in (
                "__new__",
                "__init__",
                "__class__",
                "__torch_function__",
            ):
                continue
            found.setdefault(space, []).append(value)
            names[value] = f"{prefix}.{name}"
    return found, names


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Namespace → the functions in it that overrides see."""
    return _overridable()[0]


_get_overridable_functions = _overridable


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The public name of a function that an override was shown: 'torch.add', 'torch.Tensor.add'."""
    op = getattr(f, "_schema", None)
    if op is not None or hasattr(f, "overload"):
        return str(f)
    return _overridable()[1].get(f)


@functools.lru_cache(None)
def _get_tensor_methods() -> set[Callable[..., Any]]:
    return set(get_overridable_functions()[Tensor])


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether func is a method of Tensor, or reads or writes a property of it."""
    return func in _get_tensor_methods() or getattr(func, "__name__", "") in _PROPERTY_METHODS


@functools.lru_cache(None)
def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Overridable function → a function of the same parameters that returns -1."""

    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    return {f: dummy for fs in get_overridable_functions().values() for f in fs}
