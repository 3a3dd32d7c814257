"""Anomaly mode: where the forward of a failing backward stood, and gradients without NaN."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten

_KEY = "traceback_"
_PARENT = "parent_"


def is_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return state.thread.anomaly[0]


def check_nan_enabled() -> bool:
    """Whether gradients are searched for NaN."""
    return state.thread.anomaly[1]


def set_enabled(on: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode."""
    state.thread.anomaly = (on, check_nan)
    keep_recording_in_python()


def keep_recording_in_python() -> None:
    """C records the plain case by itself; saved-tensor hooks and anomaly
    mode must see every node."""
    thread = state.thread
    state.activate(state.RECORD, bool(thread.saved_hooks) or thread.anomaly[0])


def remember_traceback(node: Any) -> None:
    """Keep with the node where it was recorded, and the node in whose backward that was."""
    import traceback  # lazy: 3 ms, for anomaly mode only

    node.metadata[_KEY] = traceback.format_stack()[:-1]
    running = state.thread.running_node
    if running is not None:
        node.metadata[_PARENT] = running


def warn_of_forward(node: Any) -> None:
    """Say where the node that just failed was recorded, and its parents in turn."""
    stack = node.metadata.get(_KEY)
    name = node.name()
    if stack is None:
        warnings.warn(
            f"Error detected in {name}. No forward pass information available. Enable detect "
            "anomaly during forward pass for more information.",
            stacklevel=2,
        )
        return
    warnings.warn(
        f"Error detected in {name}. Traceback of forward call that caused the error:\n"
        + "".join(stack),
        stacklevel=2,
    )
    parent = node.metadata.get(_PARENT)
    while parent is not None:
        stack = parent.metadata.get(_KEY)
        if stack is None:
            warnings.warn(
                "\n\nPrevious calculation was induced by "
                f"{parent.name()}. No forward pass information available.",
                stacklevel=2,
            )
            return
        warnings.warn(
            f"\n\nPrevious calculation was induced by {parent.name()}. Traceback of forward call "
            "that induced the previous calculation:\n" + "".join(stack),
            stacklevel=2,
        )
        parent = parent.metadata.get(_PARENT)


def check_nan(node: Any, grads: Any) -> None:
    """Refuse NaN among the gradients that a node gave.

    Raises:
        RuntimeError: naming the node and the place.
    """
    before = state.set_grad(False)
    try:
        for i, g in enumerate(grads):
            if (
                isinstance(g, Tensor)
                and (g.dtype.is_floating_point or g.dtype.is_complex)
                and bool(aten.any(aten.ne(g, g)).item())
            ):
                raise RuntimeError(
                    f"Function '{node.name()}' returned nan values in its {i}th output."
                )
    finally:
        state.set_grad(before)


fill("remember_traceback", remember_traceback)
FUNCTIONS: dict[str, Any] = {
    "is_anomaly_enabled": is_enabled,
    "is_anomaly_check_nan_enabled": check_nan_enabled,
    "set_anomaly_enabled": set_enabled,
}
