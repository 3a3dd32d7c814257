"""Switches of recording: for a block, a function, or from here on."""

from __future__ import annotations

from typing import Any

from flambeau._src.autograd import modes
from flambeau._src.core.state import set_grad
from flambeau.utils._contextlib import (
    _DecoratorContextManager,
    _NoParamDecoratorContextManager,
)

__all__ = [
    "enable_grad",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


class no_grad(_NoParamDecoratorContextManager):
    """Inside, nothing is recorded: results have ``requires_grad=False``, whatever their inputs.

    Works as a context manager and as a decorator, for this thread only. Factory functions that
    are asked for ``requires_grad=True`` still give leaves that require gradients.
    """

    def __enter__(self) -> None:
        self.prev = set_grad(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        set_grad(self.prev)


class enable_grad(_NoParamDecoratorContextManager):
    """Inside, operators are recorded again, under `no_grad` too. Context manager and decorator."""

    def __enter__(self) -> None:
        self.prev = set_grad(True)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        set_grad(self.prev)


class set_grad_enabled(_DecoratorContextManager):
    """Recording on or off, at once when called, and back again at the end of a ``with`` block.

    Args:
        mode: whether to record.
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.prev = set_grad(mode)

    def __call__(self, orig_func: Any) -> Any:
        set_grad(self.prev)  # a decorator acts when the function runs, not where it is written
        return super().__call__(orig_func)

    def __enter__(self) -> None:
        set_grad(self.mode)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        set_grad(self.prev)

    def __str__(self) -> str:
        kind = type(self)
        home = kind.__module__.removeprefix("flambeau").lstrip(".")
        return f"{home}.{kind.__name__}(mode={self.mode})"

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}(mode={self.mode})"

    def clone(self) -> set_grad_enabled:
        """A fresh one of the same mode."""
        return self.__class__(self.mode)


class inference_mode(_DecoratorContextManager):
    """Inside, nothing is recorded and new tensors are inference tensors, which track neither views
    nor versions and may never take part in recording.

    Args:
        mode: True (or nothing, when used as ``@inference_mode``); False leaves inference mode, and
            turns recording on.
    """

    def __new__(cls, mode: Any = True) -> Any:
        if isinstance(mode, bool):
            return super().__new__(cls)
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self._before = modes.enter_inference(self.mode)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        modes.exit_inference(self._before)

    def clone(self) -> inference_mode:
        """A fresh one of the same mode."""
        return self.__class__(self.mode)


def _enter_inference_mode(mode: bool) -> inference_mode:
    context = inference_mode(mode)
    context.__enter__()
    return context


def _exit_inference_mode(mode: inference_mode) -> None:
    mode.__exit__(None, None, None)


class set_multithreading_enabled(_DecoratorContextManager):
    """Whether backward may use one thread a device, at once and until the end of a ``with`` block.

    Backward runs in the caller's thread here; the flag is kept for those who ask for it.

    Args:
        mode: the flag.
    """

    def __init__(self, mode: bool) -> None:
        self.prev = modes.set_multithreading(mode)
        self.mode = mode

    def __enter__(self) -> None:
        """Nothing: the constructor did it."""

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        modes.set_multithreading(self.prev)

    def clone(self) -> set_multithreading_enabled:
        """A fresh one of the same mode."""
        return self.__class__(self.mode)


class _force_original_view_tracking(_DecoratorContextManager):
    """Whether views are replayed from their base (kept for those who ask; views always are).

    Args:
        mode: the flag.
    """

    def __init__(self, mode: bool) -> None:
        self.prev = modes.set_view_replay(mode)
        self.mode = mode

    def __enter__(self) -> None:
        """Nothing: the constructor did it."""

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        modes.set_view_replay(self.prev)

    def clone(self) -> _force_original_view_tracking:
        """A fresh one of the same mode."""
        return self.__class__(self.mode)


class _unsafe_preserve_version_counter(_DecoratorContextManager):
    """In-place changes inside do not count: the tensors' versions are set back at the end.

    Args:
        tensors: a tensor or a tuple of tensors. A backward that saved them will not notice.
    """

    def __init__(self, tensors: Any) -> None:
        self.tensors = tensors if isinstance(tensors, tuple) else (tensors,)
        self.prev_versions = tuple(t._version for t in self.tensors)

    def __enter__(self) -> None:
        """Nothing: the versions were read when this was made."""

    def __exit__(self, *args: Any) -> None:
        modes.set_versions(self.tensors, self.prev_versions)
