"""Small parts of the learning-rate schedules: options per group, checks, the phases of a cycle."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from flambeau import Tensor

from ._stepping import _to_scalar
from .optimizer import Optimizer


def copied(value: Any) -> Any:
    """`value` itself, or a copy of it where it is a tensor."""
    return value.clone() if isinstance(value, Tensor) else value


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """`value` for each group: one for all of them, or a list with one for each."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        value = [value] * groups
    elif len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {groups}."
        )
    return [copied(v) for v in value]


def values(optimizer: Optimizer, key: str) -> list[Any]:
    """The option `key` of each group, tensors copied."""
    return [copied(group[key]) for group in optimizer.param_groups]


def put(group: dict[str, Any], key: str, value: Any) -> None:
    """Set an option. A tensor is filled, so that who holds it (a CUDA graph) sees the change."""
    if isinstance(group[key], Tensor):
        group[key].fill_(_to_scalar(value))
    else:
        group[key] = value


def check_optimizer(optimizer: Any) -> None:
    """TypeError where `optimizer` is none."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def note_steps(optimizer: Optimizer) -> None:
    """Wrap ``optimizer.step`` once, so that a schedule can tell whether it was called."""
    step: Any = optimizer.step
    if hasattr(step, "_wrapped_by_lr_sched"):
        return
    function = step.__func__
    # The optimizer must not keep itself alive through its own attribute.
    owner = weakref.ref(optimizer)

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        opt: Any = owner()
        opt._opt_called = True
        return function.__get__(opt, type(opt))(*args, **kwargs)

    noted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = noted  # type: ignore[method-assign]


def count_steps(total: int | None, epochs: int | None, per_epoch: int | None) -> int:
    """The number of steps of a cycle, given in one of two ways; ValueError otherwise."""
    if total is not None:
        if total <= 0 or not isinstance(total, int):
            raise ValueError(f"Expected positive integer total_steps, but got {total}")
        return total
    if epochs is None or per_epoch is None:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    if not isinstance(epochs, int) or epochs <= 0:
        raise ValueError(f"Expected positive integer epochs, but got {epochs}")
    if not isinstance(per_epoch, int) or per_epoch <= 0:
        raise ValueError(f"Expected positive integer steps_per_epoch, but got {per_epoch}")
    return epochs * per_epoch


def phases(pct_start: float, total: int, three_phase: bool) -> list[dict[str, Any]]:
    """The parts of one cycle: the step where each ends, and which options it goes between."""

    def phase(end: float, lrs: tuple[str, str], momenta: tuple[str, str]) -> dict[str, Any]:
        return {
            "end_step": end,
            "start_lr": lrs[0],
            "end_lr": lrs[1],
            "start_momentum": momenta[0],
            "end_momentum": momenta[1],
        }

    high, low = "max_momentum", "base_momentum"
    up = phase(float(pct_start * total) - 1, ("initial_lr", "max_lr"), (high, low))
    if not three_phase:
        return [up, phase(total - 1, ("max_lr", "min_lr"), (low, high))]
    return [
        up,
        phase(float(2 * pct_start * total) - 2, ("max_lr", "initial_lr"), (low, high)),
        phase(total - 1, ("initial_lr", "min_lr"), (high, high)),
    ]
