"""Trading time for memory: a part of a model is run again in backward instead of being saved."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.interp import levels
from flambeau.utils._checkpoint_frames import (
    CheckpointError,
    ForwardHooks,
    Frame,
    HeldArguments,
    SavedArguments,
    SaveInputs,
    debug_contexts,
    marker,
    rng_restored,
)
from flambeau.utils._checkpoint_selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

Context = AbstractContextManager[Any]


class _Settings:
    """What the `set_checkpoint_*` contexts change."""

    early_stop: bool | None = None
    debug: bool | None = None


_settings = _Settings()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Inside, checkpoints stop (or not) their recomputation once all tensors are there."""
    before, _settings.early_stop = _settings.early_stop, enable
    try:
        yield
    finally:
        _settings.early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Inside, the `debug` argument of checkpoints is this; None: what they are given."""
    before, _settings.debug = _settings.debug, enabled
    try:
        yield
    finally:
        _settings.debug = before


class DefaultDeviceType:
    """The device type whose random state is saved when no argument is on a device."""

    _default_device_type: str | None = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """Get it: the accelerator's, or "cuda"."""
        return DefaultDeviceType._default_device_type or "cuda"


def _tensors(args: Iterable[Any]) -> Iterator[Tensor]:
    for a in args:
        if isinstance(a, Tensor):
            yield a
        elif isinstance(a, (list, tuple)):
            yield from _tensors(a)
        elif isinstance(a, dict):
            yield from _tensors(a.values())


def _infer_device_type(*args: Any) -> str:
    kinds = {t.device.type for t in _tensors(args)} - {"cpu"}
    if len(kinds) > 1:
        warnings.warn(
            "Tensor arguments, excluding CPU tensors, are detected on at least two types of "
            "devices. Device state will only be saved for devices of a single device type, and the "
            "remaining devices will be ignored. Consequently, if any checkpointed functions "
            "involve randomness, this may result in incorrect gradients. (Note that if CUDA "
            "devices are among the devices detected, it will be prioritized; otherwise, the first "
            f"device encountered will be selected.)\nDevice types: {sorted(kinds)} first device "
            f"type: {sorted(kinds)[0]}",
            stacklevel=3,
        )
    if not kinds:
        return DefaultDeviceType.get_device_type()
    return "cuda" if "cuda" in kinds else sorted(kinds)[0]


def _device_module(kind: str) -> Any:
    return None if kind in ("cpu", "meta") else getattr(torch, kind, None)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The devices (other than the CPU) of the tensors in args, and their random states."""
    devices = sorted(
        {t.device.index or 0 for t in _tensors(args) if t.device.type not in ("cpu", "meta")}
    )
    if not devices:
        return [], []
    module = _device_module(_infer_device_type(*args))
    return devices, [module.get_rng_state(d) for d in devices]


def set_device_states(
    devices: list[int], states: list[Tensor], *, device_type: str | None = None
) -> None:
    """Put random states back."""
    if not devices:
        return
    module = _device_module(device_type or DefaultDeviceType.get_device_type())
    for device, drawn in zip(devices, states, strict=True):
        module.set_rng_state(drawn, device)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The inputs with tensors detached, `requires_grad` as they had it."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            "Only tuple of tensors is supported. Got Unsupported input type: ",
            type(inputs).__name__,
        )
    out = []
    for x in inputs:
        if isinstance(x, Tensor):
            fresh = x.detach()
            fresh.requires_grad = x.requires_grad
            x = fresh
        out.append(x)
    return tuple(out)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn when nothing among the inputs requires gradients."""
    if not any(t.requires_grad for t in inputs if isinstance(t, Tensor)):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3
        )


def _autocast_contexts(device_type: str) -> Callable[[], contextlib.ExitStack]:
    """A maker of contexts in which autocast is as it is now."""
    asks = getattr(torch, "is_autocast_enabled", None)
    if asks is None:
        return contextlib.ExitStack
    kept = [
        {
            "device_type": kind, "enabled": asks(kind), "dtype": torch.get_autocast_dtype(kind),
            "cache_enabled": torch.is_autocast_cache_enabled(),
        }
        for kind in dict.fromkeys((device_type,
                                   "cpu")) if kind == "cpu" or _device_module(kind) is not None
    ]  # fmt: skip

    def make() -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        for kwargs in kept:
            if kwargs["enabled"] != asks(kwargs["device_type"]) or kwargs["enabled"]:
                stack.enter_context(torch.amp.autocast(**kwargs))
        return stack

    return make


class CheckpointFunction(torch.autograd.Function):
    """The reentrant form: forward without recording; backward runs it again, recorded, and calls
    backward on that."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.device_type = _infer_device_type(*args)
        ctx.autocast = _autocast_contexts(ctx.device_type)
        ctx.rng = None
        if preserve_rng_state:
            ctx.rng = (torch.get_rng_state(), get_device_states(*args))
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.tensor_indices = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.tensor_indices])
        with torch.no_grad():
            return _eagerly(run_function, *args)

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can "
                "either set use_reentrant=False, or call .backward() without passing the `inputs` "
                "argument."
            )
        inputs = list(ctx.inputs)
        for i, tensor in zip(ctx.tensor_indices, ctx.saved_tensors, strict=True):
            inputs[i] = tensor
        detached = detach_variable(tuple(inputs))
        with contextlib.ExitStack() as stack:
            if ctx.rng is not None:
                stack.enter_context(rng_restored(*ctx.rng, set_device_states))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(ctx.autocast())
            outputs = _eagerly(ctx.run_function, *detached)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [
            (o, g)
            for o, g in zip(outputs, args, strict=True)
            if isinstance(o, Tensor) and o.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        grads = tuple(x.grad if isinstance(x, Tensor) else None for x in detached)
        return (None, None, *grads)


def noop_context_fn() -> tuple[Context, Context]:
    """Contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def _eagerly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, nothing inside compiled: both runs must save the same."""
    before = _native.frame_set(None)
    try:
        return function(*args, **kwargs)
    finally:
        _native.frame_set(before)


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Context, Context]] = noop_context_fn,
    determinism_check: str = "default", debug: bool = False, early_stop: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """Call ``function(*args, **kwargs)`` without saving what is inside; backward calls it again.

    Args:
        function: must do the same each time it is called.
        use_reentrant: True: the older way, which runs a backward inside backward and supports
            neither keyword arguments nor ``autograd.grad``. False is recommended.
        context_fn: gives two contexts, for the first run and for the second.
        determinism_check: "default": shapes, dtypes and devices of both runs are compared; "none".
        debug: errors show the operators of both runs.
        early_stop: the second run ends as soon as all that backward needs is there.
        preserve_rng_state: the second run draws the same random numbers (default True).

    Raises:
        CheckpointError: in backward, when the second run differs from the first.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
            "Starting in PyTorch 2.9, calling checkpoint without use_reentrant will raise an "
            "exception. use_reentrant=False is recommended, but if you need to preserve the "
            "current default behavior, you can pass use_reentrant=True. Refer to docs for more "
            "details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve, *args)
    runs = _without_reentrancy(
        function, preserve, context_fn, determinism_check, debug, early_stop, args, kwargs
    )
    next(runs)
    result = _eagerly(function, *args, **kwargs)
    try:
        next(runs)
    except StopIteration:
        return result
    raise AssertionError("a checkpoint has one forward")


# A capture holds a checkpoint as an operator over the graph of the function.
fill("checkpoint", checkpoint)

_METADATA: dict[str, Callable[[Tensor], dict[str, Any]]] = {
    "default": lambda t: {"shape": t.shape, "dtype": t.dtype, "device": t.device},
    "none": lambda t: {},
}


def _without_reentrancy(
    function: Callable[..., Any], preserve: bool, context_fn: Any, determinism_check: str,
    debug: bool, early_stop: bool, args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Iterator[None]:  # fmt: skip
    """Yields once, with the hooks of the first run in place."""
    wrap_error = None
    if _settings.debug if _settings.debug is not None else debug:
        if context_fn is not noop_context_fn:
            raise ValueError("debug=True is incompatible with non-default context_fn")
        context_fn, wrap_error = debug_contexts()
    if determinism_check not in _METADATA:
        raise ValueError(
            f"determinism_check should be one of {list(_METADATA)}, but got {determinism_check}"
        )
    device_type = _infer_device_type(*args)
    first, second = context_fn()
    autocast = _autocast_contexts(device_type)
    active = list(state.thread.functorch)
    rng = (torch.get_rng_state(), get_device_states(*args)) if preserve else None

    def recompute(*inputs: Any) -> None:
        inner_kwargs, *inner_args = inputs
        with contextlib.ExitStack() as stack:
            if rng is not None:
                stack.enter_context(rng_restored(*rng, set_device_states))
            stack.enter_context(autocast())
            stack.enter_context(levels.resumed(active))
            stack.enter_context(second)
            _eagerly(function, *inner_args, **inner_kwargs)

    stop = early_stop if _settings.early_stop is None else _settings.early_stop
    frame = Frame(recompute, stop, _METADATA[determinism_check])
    if active:  # the arguments are theirs: what is saved stands behind these
        node, frame.inputs = None, HeldArguments((kwargs, *args))
    else:
        node = SaveInputs.apply(marker(), kwargs, *args).grad_fn
        frame.inputs = SavedArguments(node)
    if node is None and not (active and torch.is_grad_enabled()):  # nothing is recorded
        yield
        return
    with ForwardHooks(frame, wrap_error), first:
        yield
    frame.forward_done = True


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a list of functions (or a Sequential) on input, in segments that are checkpointed; the
    last segment is not.

    Args:
        functions: called one after the other.
        segments: how many.
        input: what the first one gets.
        use_reentrant, preserve_rng_state: as in `checkpoint`.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be "
            "passed explicitly. In version 2.9 we will raise an exception if use_reentrant is not "
            "passed. use_reentrant=False is recommended, but if you need to preserve the current "
            "default behavior, you can pass use_reentrant=True. Refer to docs for more details on "
            "the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if isinstance(functions, torch.nn.Sequential):
        functions = list(functions.children())
    size = len(functions) // segments

    def segment(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for j in range(start, end + 1):
                x = functions[j](x)
            return x

        return run

    end = -1
    for start in range(0, size * (segments - 1), size):
        end = start + size - 1
        input = checkpoint(
            segment(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve
        )
    return segment(end + 1, len(functions) - 1)(input)
