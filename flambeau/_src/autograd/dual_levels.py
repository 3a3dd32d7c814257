"""The level of `torch.autograd.forward_ad`: one at a time in a thread."""

from __future__ import annotations

from typing import Any

from flambeau._src.autograd import transforms
from flambeau._src.core.state import thread
from flambeau._src.interp.levels import Level

__all__ = [
    "enter_dual_level",
    "exit_dual_level",
    "is_forward_grad_enabled",
    "make_dual",
    "set_forward_grad",
    "unpack_dual",
]


def enter_dual_level() -> int:
    """Start a level; RuntimeError where one is active. Returns 0."""
    if thread.forward_ad:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    level = Level("dual")
    level.__enter__()
    thread.forward_ad.append(level)
    return 0


def exit_dual_level(level: int | None) -> None:
    """End the level; RuntimeError where it is not the current one."""
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


def make_dual(tensor: Any, tangent: Any, level: int | None) -> Any:
    """The tensor with a tangent; RuntimeError where no level is active, or the shapes differ."""
    at = _current(level)
    if at is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    return transforms.make_dual(tensor, tangent, at)


def unpack_dual(tensor: Any, level: int | None) -> tuple[Any, Any]:
    """The primal, and the tangent or None."""
    at = _current(level)
    if at is None:
        return transforms.primal_of(tensor), None
    return transforms.unpack(tensor, at)


def is_forward_grad_enabled() -> bool:
    """Whether tangents are computed."""
    return thread.forward_grad


def set_forward_grad(on: bool) -> bool:
    """Whether tangents are computed from here on; returns what it was."""
    before = thread.forward_grad
    thread.forward_grad = on
    return before
