"""Forward-mode differentiation: tensors that carry a tangent along."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau import Tensor
from flambeau._src.autograd import transforms
from flambeau._src.core.state import thread
from flambeau._src.interp.levels import Level
from flambeau.utils._contextlib import _DecoratorContextManager

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class UnpackedDualTensor(NamedTuple):
    """A primal, and its tangent or None."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Start a level, in which tensors can have tangents; there is one at a time. Returns 0.

    Raises:
        RuntimeError: one is active.
    """
    if thread.forward_ad:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = Level("dual")
    level.__enter__()
    thread.forward_ad.append(level)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: tangents are gone.

    Raises:
        RuntimeError: it is not the current one.
    """
    current = thread.forward_ad[-1] if thread.forward_ad else None
    if level is not None and (level != 0 or current is None):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is "
            "not supported."
        )
    if current is None:
        raise RuntimeError("Dual level must be a positive number.")
    thread.forward_ad.pop()
    current.__exit__()


def _current(level: int | None) -> Level | None:
    if level is not None and level != 0:
        raise RuntimeError("Dual level must be a positive number.")
    return thread.forward_ad[-1] if thread.forward_ad else None


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """tensor with a tangent of the same shape: operators on it compute tangents too.

    Raises:
        RuntimeError: no level is active, or the shapes differ.
        ValueError: a dtype has no gradients.
    """
    at = _current(level)
    if at is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    return transforms.make_dual(tensor, tangent, at)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The primal and the tangent of a tensor; the tangent is None where there is none."""
    at = _current(level)
    if at is None:
        return UnpackedDualTensor(transforms.primal_of(tensor), None)
    return UnpackedDualTensor(*transforms.unpack(tensor, at))


class dual_level(_DecoratorContextManager):
    """Inside, tensors can be dual: `make_dual`, `unpack_dual`."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        exit_dual_level()


def _is_fwd_grad_enabled() -> bool:
    return thread.forward_grad


class _set_fwd_grad_enabled(_DecoratorContextManager):
    """Whether tangents are computed, at once and until the end of a ``with`` block."""

    def __init__(self, mode: bool) -> None:
        self.prev = thread.forward_grad
        self.mode = mode
        thread.forward_grad = mode

    def __enter__(self) -> None:
        """Nothing: the constructor did it."""

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        thread.forward_grad = self.prev

    def clone(self) -> _set_fwd_grad_enabled:
        """A fresh one of the same mode."""
        return self.__class__(self.mode)
