"""`torch._check` and its kind: conditions on a program's arguments, with
errors of several types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt

_DEFAULT = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please "
    "report an enhancement request to PyTorch.)"
)
Message = Callable[[], str] | None


def _check_with(error_type: type[Exception], cond: Any, message: Message = None) -> None:
    """Raise error_type where cond is false.

    Args:
        cond: a bool, or a symbolic one.
        message: makes the text; called only where it is needed.
    """
    if not isinstance(cond, bool) and not hasattr(cond, "__sym_bool__"):
        if isinstance(cond, _native.Tensor):
            raise TypeError(
                "cond must be a bool, but got a Tensor. For tensor conditions, use "
                "torch._check_tensor_all() to assert that all elements are true."
            )
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if message is not None and not callable(message):
        raise TypeError("message must be a callable")
    if not _expected(cond):
        raise error_type(_DEFAULT if message is None else str(message()))


def _expected(cond: Any) -> bool:
    """Whether cond holds; what only running would tell is asserted when it runs."""
    if isinstance(cond, bool) or cond.node.hint is not None:
        return bool(cond)
    return not cond.node.statically_known_false() and bool(cond.node.expect_true("", 0))


def _check(cond: Any, message: Message = None) -> None:
    """RuntimeError where cond is false."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Message = None) -> None:
    """IndexError where cond is false."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Message = None) -> None:
    """ValueError where cond is false."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Message = None) -> None:
    """TypeError where cond is false."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Message = None) -> None:
    """NotImplementedError where cond is false."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Message = None, *, max: Any = None) -> None:
    """RuntimeError where i cannot be an extent. Deprecated: `_check(i >= 0)`."""
    import warnings  # lazy: rarely needed

    warnings.warn(
        "_check_is_size will be removed in a future PyTorch release along with "
        "guard_size_oblivious.     Use _check(i >= 0) instead.",
        FutureWarning,
        stacklevel=2,
    )
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Message = None) -> None:
    """Raise error_type where an element of the bool tensor cond is false."""
    if not isinstance(cond, _native.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not dt.bool_:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all().item()), message)


def _check_tensor_all(cond: Any, message: Message = None) -> None:
    """RuntimeError where an element of the bool tensor cond is false."""
    _check_tensor_all_with(RuntimeError, cond, message)


FUNCTIONS: dict[str, Any] = {
    f.__name__: f
    for f in (
        _check_with, _check, _check_index, _check_value, _check_type, _check_not_implemented,
        _check_is_size, _check_tensor_all_with, _check_tensor_all,
    )
}  # fmt: skip
