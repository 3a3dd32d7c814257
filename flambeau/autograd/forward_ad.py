"""Forward-mode differentiation: tensors that carry a tangent along."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau import Tensor
from flambeau._src.autograd import dual_levels
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
    return dual_levels.enter_dual_level()


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: tangents are gone.

    Raises:
        RuntimeError: it is not the current one.
    """
    dual_levels.exit_dual_level(level)


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """tensor with a tangent of the same shape: operators on it compute tangents too.

    Raises:
        RuntimeError: no level is active, or the shapes differ.
        ValueError: a dtype has no gradients.
    """
    return dual_levels.make_dual(tensor, tangent, level)  # type: ignore[no-any-return]


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The primal and the tangent of a tensor; the tangent is None where there is none."""
    return UnpackedDualTensor(*dual_levels.unpack_dual(tensor, level))


class dual_level(_DecoratorContextManager):
    """Inside, tensors can be dual: `make_dual`, `unpack_dual`."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        exit_dual_level()


def _is_fwd_grad_enabled() -> bool:
    return dual_levels.is_forward_grad_enabled()


class _set_fwd_grad_enabled(_DecoratorContextManager):
    """Whether tangents are computed, at once and until the end of a ``with`` block."""

    def __init__(self, mode: bool) -> None:
        self.prev = dual_levels.set_forward_grad(mode)
        self.mode = mode

    def __enter__(self) -> None:
        """Nothing: the constructor did it."""

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        dual_levels.set_forward_grad(self.prev)

    def clone(self) -> _set_fwd_grad_enabled:
        """A fresh one of the same mode."""
        return self.__class__(self.mode)
