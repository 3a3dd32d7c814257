"""Splitting arguments over devices, and joining results. Both are differentiable."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau import Tensor

__all__ = ["scatter", "scatter_kwargs", "gather"]


def is_namedtuple(obj: Any) -> bool:
    """Whether obj is an instance of a named tuple (deprecated)."""
    warnings.warn(
        "is_namedtuple is deprecated, please use the python checks instead",
        FutureWarning,
        stacklevel=2,
    )
    return _is_namedtuple(obj)


def _is_namedtuple(obj: Any) -> bool:
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def _device(target: Any) -> Any:
    return torch.device("cuda", target) if isinstance(target, int) else torch.device(target)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Tensors in pieces along `dim`, one a device; containers of such; all else repeated."""
    n = len(target_gpus)

    def split(obj: Any) -> list[Any]:
        if isinstance(obj, Tensor):
            pieces = obj.chunk(n, dim)
            return [
                piece.to(_device(target), non_blocking=True)
                for piece, target in zip(pieces, target_gpus, strict=False)
            ]
        if _is_namedtuple(obj):
            return [type(obj)(*args) for args in zip(*map(split, obj), strict=False)]
        if isinstance(obj, tuple) and len(obj) > 0:
            return list(zip(*map(split, obj), strict=False))
        if isinstance(obj, list) and len(obj) > 0:
            return [list(i) for i in zip(*map(split, obj), strict=False)]
        if isinstance(obj, dict) and len(obj) > 0:
            return [type(obj)(i) for i in zip(*map(split, obj.items()), strict=False)]
        return [obj for _ in target_gpus]

    return split(inputs)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Any, dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and keyword arguments for each device."""
    args = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    args += [() for _ in range(len(named) - len(args))]
    named += [{} for _ in range(len(args) - len(named))]
    return tuple(args), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Join the results of all devices on one; 0-dim tensors become a vector."""
    target = torch.device("cpu") if target_device in (-1, "cpu") else _device(target_device)

    def join(outputs: Any) -> Any:
        out = outputs[0]
        if isinstance(out, Tensor):
            if all(t.dim() == 0 for t in outputs) and dim == 0:
                warnings.warn(
                    "Was asked to gather along dimension 0, but all "
                    "input tensors were scalars; will instead unsqueeze "
                    "and return a vector.",
                    stacklevel=4,
                )
                outputs = [t.view(1) for t in outputs]
            return torch.cat([t.to(target) for t in outputs], dim)
        if out is None:
            return None
        if isinstance(out, dict):
            if not all(len(out) == len(d) for d in outputs):
                raise ValueError("All dicts must have the same number of keys")
            return type(out)((k, join([d[k] for d in outputs])) for k in out)
        if _is_namedtuple(out):
            return type(out)._make(map(join, zip(*outputs, strict=True)))
        return type(out)(map(join, zip(*outputs, strict=True)))

    return join(outputs)
