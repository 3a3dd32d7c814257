"""The recorded graph: its nodes and edges, and hooks on what it saves."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import flambeau as torch
from flambeau import Tensor
from flambeau._src.autograd import saved
from flambeau._src.autograd.graph import GradientEdge, Node, gradient_edge
from flambeau._src.autograd.hooks import RemovableHandle
from flambeau._src.core.state import thread
from flambeau.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_warn_on_accumulate_grad_stream_mismatch",
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


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: Literal["all", "any"] = "all"
) -> RemovableHandle:
    """Call fn when the gradients of several tensors are there.

    Args:
        tensors: tensors that require gradients.
        fn: with mode "all" called with the gradients (None for tensors that this backward does not
            reach) once the last one is there; with "any", with the first gradient.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    nodes = [_get_grad_fn_or_grad_acc(t) for t in tensors]
    seen: dict[int, list[Any]] = {}  # pass → how many came, how many will, the gradients

    def one(at: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            this = thread.backward_pass
            if mode == "any":
                if seen.get(0) != this.number:
                    seen[0] = this.number
                    fn(grad)
                return
            state = seen.get(this.number)
            if state is None:
                expected = sum(this.will_run(node) for node in nodes)
                state = seen[this.number] = [0, expected, [None] * len(nodes)]
            state[0] += 1
            state[2][at] = grad
            if state[0] == state[1]:
                del seen[this.number]
                fn(state[2])

        return hook

    return _MultiHandle(tuple(t.register_hook(one(i)) for i, t in enumerate(tensors)), nodes)


class _MultiHandle(RemovableHandle):
    """Several handles as one; keeps the nodes, so that leaves keep theirs."""

    def __init__(self, handles: tuple[RemovableHandle, ...], nodes: Sequence[Any] = ()) -> None:
        self.handles = handles
        self.nodes = nodes

    def remove(self) -> None:
        """Take all the hooks away."""
        for handle in self.handles:
            handle.remove()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.handles

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.handles = state
        self.nodes = ()


def _get_grad_fn_or_grad_acc(t: Any) -> Node:
    if isinstance(t, GradientEdge):
        return t.node
    if not t.requires_grad:
        raise AssertionError("Expected gradient function to be set")
    return gradient_edge(t).node


class _Handle:
    """What stands for a saved tensor whose bytes may change."""

    __slots__ = ("__weakref__", "cloned", "context", "tensor")

    def __init__(self, tensor: Tensor, context: _AllowMutationOnSavedContext) -> None:
        self.tensor = tensor
        self.context = context
        self.cloned = False


class _AllowMutationOnSavedContext:
    """Saved tensors by storage; those about to be overwritten are copied."""

    def __init__(self) -> None:
        self.handles: dict[Any, weakref.WeakSet[_Handle]] = {}
        self.active = True

    def pack(self, tensor: Tensor) -> _Handle:
        """The pack hook."""
        handle = _Handle(tensor, self)
        self.handles.setdefault(id(tensor.untyped_storage()), weakref.WeakSet()).add(handle)
        return handle

    def unpack(self, handle: _Handle) -> Tensor:
        """The unpack hook."""
        if not self.active:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"
                "in which the graph was originally recorded."
            )
        return handle.tensor

    def before_write(self, tensor: Tensor) -> None:
        """Copy the saved tensors that share tensor's bytes."""
        for handle in self.handles.get(id(tensor.untyped_storage()), ()):
            if not handle.cloned:
                handle.cloned = True
                with torch.no_grad():
                    handle.tensor = handle.tensor.detach().clone()

    def clear(self) -> None:
        """Forget all."""
        self.handles.clear()
        self.active = False


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutationOnSavedContext]:
    """Inside, tensors that were saved for backward may be changed in place: they are copied first.

    Backward must run inside too. Changes that are no operators (``set_``, ``.data``) go unnoticed.
    """
    context = _AllowMutationOnSavedContext()

    class CloneBeforeWrite(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            arguments = func._schema.arguments
            for i, argument in enumerate(arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    value = args[i] if i < len(args) else kwargs.get(argument.name)
                    for t in value if isinstance(value, (list, tuple)) else (value,):
                        if isinstance(t, Tensor):
                            context.before_write(t)
            return func(*args, **kwargs)

    try:
        with CloneBeforeWrite(), saved_tensors_hooks(context.pack, context.unpack):
            yield context
    finally:
        context.clear()


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Whether to warn when a gradient is accumulated on another stream than it was made on."""
    thread.stream_warning = enabled
