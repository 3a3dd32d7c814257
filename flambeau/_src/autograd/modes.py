"""The thread's switches: recording, inference, forward gradients, threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor

is_grad_enabled = state.get_grad
is_inference_mode_enabled = state.get_inference
is_multithreading_enabled = _native.get_multithread
set_multithreading = _native.set_multithread


def enter_inference(on: bool) -> tuple[bool, bool, bool]:
    """Enter (or, with False, leave) inference mode; what `exit_inference` restores."""
    before = (state.set_inference(on), state.set_grad(not on), state.thread.forward_grad)
    state.thread.forward_grad = not on
    return before


def exit_inference(before: tuple[bool, bool, bool]) -> None:
    """Back to what was before `enter_inference`."""
    state.set_inference(before[0])
    state.set_grad(before[1])
    state.thread.forward_grad = before[2]


def is_view_replay_enabled() -> bool:
    """The flag of `_force_original_view_tracking`."""
    return state.thread.view_replay


def set_view_replay(on: bool) -> bool:
    """Set that flag; the value before."""
    before = state.thread.view_replay
    state.thread.view_replay = on
    return before


def set_versions(tensors: Sequence[Tensor], versions: Sequence[int]) -> None:
    """Make the tensors' version counters what they were."""
    for t, version in zip(tensors, versions, strict=True):
        t._set_version(version)


FUNCTIONS: dict[str, Any] = {
    "is_grad_enabled": is_grad_enabled,
    "is_inference_mode_enabled": is_inference_mode_enabled,
}
