"""Calling modules in parallel, one a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj: Any) -> Tensor | None:
    """The first tensor in nested containers."""
    if isinstance(obj, Tensor):
        return obj
    values: Any = ()
    if isinstance(obj, (list, tuple)):
        values = obj
    elif isinstance(obj, dict):
        values = obj.items()
    for value in values:
        found = get_a_var(value)
        if isinstance(found, Tensor):
            return found
    return None


def parallel_apply(
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """``module(*input, **kwargs)`` of each, at the same time; grad mode and autocast are kept."""
    if len(modules) != len(inputs):
        raise AssertionError(
            f"The number of modules {len(modules)} is not equal to the number of inputs"
            f" {len(inputs)}"
        )
    kwargs = list(kwargs_tup) if kwargs_tup is not None else [{}] * len(modules)
    results: dict[int, Any] = {}
    errors: dict[int, Exception] = {}
    recording = torch.is_grad_enabled()

    def work(i: int) -> None:
        args = inputs[i] if isinstance(inputs[i], (list, tuple)) else (inputs[i],)
        try:
            with torch.set_grad_enabled(recording):
                results[i] = modules[i](*args, **kwargs[i])
        except Exception as error:
            errors[i] = error

    if len(modules) == 1:
        work(0)
    else:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(modules))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for i in range(len(modules)):
        if i in errors:
            raise errors[i]
    return [results[i] for i in range(len(modules))]
