"""The recorded graph: its nodes and edges, and hooks on what it saves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import flambeau as torch
from flambeau import Tensor
from flambeau._src.autograd import saved
from flambeau._src.autograd.graph import GradientEdge, Node, gradient_edge
from flambeau._src.autograd.hooks import RemovableHandle

__all__ = [
    "GradientEdge",
    "Node",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "save_on_cpu",
    "saved_tensors_hooks",
]


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor arrives: ``autograd.grad(out, edge)`` is
    ``autograd.grad(out, tensor)``.

    Raises:
        RuntimeError: the tensor does not require gradients.
    """
    return gradient_edge(tensor)


def increment_version(tensor: Any) -> None:
    """Tell autograd that the data of a tensor (or of several) was changed in place."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._bump_version()


class saved_tensors_hooks:
    """Inside, what operators save for backward goes through a pair of hooks.

    Args:
        pack_hook: ``tensor -> anything``, called when a tensor is saved; must not change it.
        unpack_hook: ``anything -> tensor``, called when backward needs it.
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        saved.push_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *args: object) -> None:
        saved.pop_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Inside, saved tensors are kept in CPU memory and copied back when backward needs them.

    Args:
        pin_memory: copy into pinned memory, without waiting, where the device can.
        device_type: the device whose tensors these are.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[torch.device, Tensor]:
            if not pin_memory or tensor.device.type == "cpu":
                return tensor.device, tensor.cpu()
            packed = torch.empty(
                tensor.size(), dtype=tensor.dtype, layout=tensor.layout, pin_memory=True
            )
            packed.copy_(tensor)
            return tensor.device, packed

        def unpack(packed: tuple[torch.device, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, entering `saved_tensors_hooks` raises RuntimeError with this message."""
    saved.disable_hooks(error_message)
    try:
        yield
    finally:
        saved.enable_hooks()


_Handle = (RemovableHandle, Sequence, Literal)
