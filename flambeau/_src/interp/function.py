"""`__torch_function__`: function modes first, innermost first, then the
classes of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.state import FUNCTION, FUNCTION_MODE, thread
from flambeau._src.core.tensor import Tensor, _disabled_torch_function_impl

_NO_FUNCTION = frozenset(
    (int, float, bool, str, complex, type(None), list, tuple, dict, _native.dtype, _native.device)
)


def is_overloaded(x: Any) -> bool:
    """Whether x's class has a `__torch_function__` of its own (modes aside)."""
    kind = type(x)
    if kind is Tensor or kind in _NO_FUNCTION:
        return False
    if isinstance(x, Tensor):
        return bool(x._bits & FUNCTION) and not state.get_suspended() & FUNCTION
    if isinstance(x, type):
        return False
    handler = getattr(kind, "__torch_function__", None)
    return (
        handler is not None
        and handler is not _disabled_torch_function_impl
        and not state.get_suspended() & FUNCTION
    )


def overloaded_args(values: Iterable[Any]) -> list[Any]:
    """One argument for each class that has a say: subclasses before their bases, else in order."""
    found: list[Any] = []
    kinds: list[type] = []
    for v in values:
        for x in v if isinstance(v, (list, tuple)) else (v,):
            kind = type(x)
            if kind is Tensor or kind in kinds or not is_overloaded(x):
                continue
            at = len(found)
            for i, other in enumerate(kinds):
                if issubclass(kind, other):
                    at = i
                    break
            found.insert(at, x)
            kinds.insert(at, kind)
    return found


def has_modes() -> bool:
    """Whether a function mode sees the next call."""
    return bool(state.get_active() & FUNCTION_MODE & ~state.get_suspended())


def push_mode(mode: Any) -> None:
    """Enter a function mode."""
    thread.function_modes.append(mode)
    state.activate(FUNCTION_MODE, True)


def pop_mode() -> Any:
    """Leave the innermost function mode; it is returned."""
    mode = thread.function_modes.pop()
    state.activate(FUNCTION_MODE, bool(thread.function_modes))
    return mode


def function_layer(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A public call that modes or subclasses want to see (slot 'function_layer')."""
    if state.get_active() & state.PROFILE & ~state.get_suspended():
        return slot("profile_layer")(func, args, kwargs)
    return handle(func, overloaded_args((*args, *kwargs.values())), args, kwargs)


def handle(
    func: Callable[..., Any], overloaded: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Ask the innermost mode, then the overloaded arguments, until one does not say NotImplemented.

    Raises:
        TypeError: all did.
    """
    types = tuple([type(a) for a in overloaded])
    mode = None
    if has_modes():
        mode = pop_mode()
        try:
            result = mode.__torch_function__(func, types, args, kwargs)
        finally:
            push_mode(mode)
        if result is not NotImplemented:
            return result
    for a in overloaded:
        result = a.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if mode is None and not overloaded:
        with state.Suspended(FUNCTION):
            return func(*args, **kwargs)
    raise TypeError(_refusal(func, mode, types))


def full_name(func: Any) -> str:
    """'torch.add', 'Tensor.add'…: how messages name a function."""
    name = getattr(func, "__name__", None) or str(func)
    module = getattr(func, "__module__", None)
    if isinstance(func, _native.Method):
        return f"torch.Tensor.{name}"
    if isinstance(func, _native.Function) or module is None:
        return f"torch.{name}"
    return f"{module.replace('flambeau', 'torch', 1)}.{name}"


def _refusal(func: Any, mode: Any, types: tuple[type, ...]) -> str:
    lines = [
        f"Multiple dispatch failed for '{full_name(func)}'; all __torch_function__ handlers "
        "returned NotImplemented:\n"
    ]
    if mode is not None:
        lines.append(f"  - mode object {mode!r}")
    lines += [f"  - tensor subclass {t!r}" for t in types]
    lines.append("\nFor more information, try re-running with TORCH_LOGS=not_implemented")
    return "\n".join(lines)


def override_layer(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As `function_layer`, for functions written in Python: plain tensors count among the types, as
    torch's Python functions have it (slot 'override_layer')."""
    return handle(func, overridden_args((*args, *kwargs.values())), args, kwargs)


def override_with(
    func: Callable[..., Any], values: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """As `override_layer`, asking these values (slot 'override_with')."""
    return handle(func, overridden_args(values), args, kwargs)


def overridden_args(values: Iterable[Any]) -> list[Any]:
    """`overloaded_args`, with plain tensors, which have the default handler."""
    found: list[Any] = []
    if state.get_suspended() & FUNCTION:
        return found
    kinds: list[type] = []
    for x in values:
        kind = type(x)
        if kind in kinds or not (kind is Tensor or is_overloaded(x)):
            continue
        at = next((i for i, other in enumerate(kinds) if issubclass(kind, other)), len(found))
        found.insert(at, x)
        kinds.insert(at, kind)
    return found


def property_layer(name: str, t: Tensor, *value: Any) -> Any:
    """A public property of a tensor, read or written (slot 'property_layer')."""
    descriptor = getattr(Tensor, name)
    accessor = descriptor.__set__ if value else descriptor.__get__
    return handle(accessor, overridden_args((t,)), (t, *value), {})


def method_layer(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A method of Tensor that is written in C (slot 'method_layer')."""
    choose = overloaded_args if name in ("size", "stride") else overridden_args
    return handle(getattr(Tensor, name), choose(args), args, kwargs)


class DisableTorchFunctionSubclass:
    """Inside, `__torch_function__` of subclasses is not asked; modes still are."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = state.set_suspended(state.get_suspended() | FUNCTION)

    def __exit__(self, *exc: object) -> None:
        state.set_suspended(self._before)


class DisableTorchFunction:
    """Inside, neither function modes nor `__torch_function__` of subclasses are asked."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = state.set_suspended(state.get_suspended() | FUNCTION | FUNCTION_MODE)

    def __exit__(self, *exc: object) -> None:
        state.set_suspended(self._before)


class EnableTorchFunction:
    """Inside, both are asked again."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = state.set_suspended(state.get_suspended() & ~(FUNCTION | FUNCTION_MODE))

    def __exit__(self, *exc: object) -> None:
        state.set_suspended(self._before)


_NOWRAP: set[Any] = set()


def default_nowrap_functions() -> set[Any]:
    """Functions whose results keep their class in the default `__torch_function__`."""
    if not _NOWRAP:
        _NOWRAP.update(getattr(Tensor, name).__get__ for name in ("_base", "grad", "_grad"))
    return _NOWRAP


fill("function_layer", function_layer)
fill("overloaded_args", overloaded_args)
fill("override_layer", override_layer)
fill("override_with", override_with)
fill("property_layer", property_layer)
fill("method_layer", method_layer)
fill("default_nowrap_functions", default_nowrap_functions)
