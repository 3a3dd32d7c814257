"""Checkpointing without reentrant backward: saved tensors are placeholders, and the first one that
backward unpacks runs the forward again to fill them all."""

from __future__ import annotations

import contextlib
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau._src.core.state import thread
from flambeau._src.core.tensor import empty as bare
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.utils._python_dispatch import TorchDispatchMode

Context = AbstractContextManager[Any]
Meta = Callable[[Tensor], dict[str, Any]]

_TIP = (
    "\n\nTip: To see a more detailed error message, either pass `debug=True` to\n"
    "`torch.utils.checkpoint.checkpoint(...)` or wrap the code block\n"
    "with `with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` to\n"
    "enable checkpoint‑debug mode globally.\n"
)


class CheckpointError(RuntimeError):
    """The recomputation did not do what the forward did."""


class StopRecomputation(Exception):
    """All that was saved has been recomputed: the rest of the function need not run."""


class Holder:
    """Stands for one saved tensor; `handles` has, by pass, the key to the recomputed one."""

    __slots__ = ("__weakref__", "handles")

    def __init__(self) -> None:
        self.handles: dict[int, _Key] = {}


class _Key:
    __slots__ = ("__weakref__",)


class Frame:
    """One call of checkpoint: what it saved, and how to run it again."""

    def __init__(self, recompute: Callable[..., None], early_stop: bool, meta: Meta) -> None:
        self.recompute = recompute
        self.inputs: Any = None  # the node that saved the arguments
        self.early_stop = early_stop
        self.meta = meta
        self.forward_done = False
        self.holders: list[weakref.ref[Holder]] = []
        self.metadata: list[dict[str, Any]] = []
        # By pass: recomputed tensors under the keys that their holders keep alive.
        self.recomputed: dict[int, weakref.WeakKeyDictionary[_Key, Tensor]] = {}
        self.counts: dict[int, int] = {}
        self.finished: dict[int, bool] = {}

    def fail_unless_same(self, number: int) -> None:
        """Compare what forward saved with what the recomputation saved.

        Raises:
            CheckpointError: in number or in metadata.
        """
        if self.early_stop and self.counts[number] == len(self.holders):
            pass  # the rest was not run
        elif len(self.holders) != self.counts[number]:
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.holders)}\n"
                f"Number of tensors saved during recomputation: {self.counts[number]}.{_TIP}"
            )
        lines = []
        for i, ref in enumerate(self.holders):
            holder = ref()
            if holder is None:
                continue  # freed before the recomputation
            found = self.meta(self.recomputed[number][holder.handles[number]])
            if found != self.metadata[i]:
                lines.append(
                    f"tensor at position {i}:\nsaved metadata: {self.metadata[i]}\n"
                    f"recomputed metadata: {found}"
                )
        if lines:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                "different metadata than during the forward "
                "pass.\n" + "\n".join(lines) + f"\n.{_TIP}"
            )


def _pass_number() -> int:
    this = thread.backward_pass
    return -1 if this is None else this.number


class RecomputeHooks(saved_tensors_hooks):
    """While forward runs again: what it saves goes to the placeholders of the first run."""

    def __init__(self, frame: Frame, number: int) -> None:
        def pack(tensor: Tensor) -> Any:
            frame.counts[number] += 1
            at = frame.counts[number] - 1
            if at >= len(frame.holders):
                if frame.forward_done and not frame.early_stop:
                    # More than forward saved: an error, but only once all has run.
                    return tensor.detach()
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than "
                    f"during the original forward pass.{_TIP}"
                )
            holder = frame.holders[at]()
            if holder is not None:
                key = holder.handles.get(number)
                if key is None:
                    key = holder.handles[number] = _Key()
                tensor = frame.recomputed[number][key] = tensor.detach()
            if frame.early_stop and frame.counts[number] == len(frame.holders):
                raise StopRecomputation
            return tensor

        super().__init__(pack, lambda tensor: tensor)


class ForwardHooks(saved_tensors_hooks):
    """While forward runs: nothing is saved but placeholders."""

    def __init__(
        self, frame: Frame, wrap_error: Callable[[CheckpointError], Exception] | None
    ) -> None:
        def pack(tensor: Tensor) -> Holder:
            holder = Holder()
            frame.holders.append(weakref.ref(holder))
            with torch.no_grad():
                frame.metadata.append(frame.meta(tensor))
            return holder

        def unpack(holder: Holder) -> Tensor:
            number = _pass_number()
            lone = number < 0
            if lone:  # read outside of backward: a pass of its own
                number = -id(holder) - 1
            if not frame.finished.get(number, False):
                _run_again(frame, number)
            key = holder.handles.get(number)
            tensor = None if key is None else frame.recomputed[number].get(key)
            if key is None or tensor is None:
                raise CheckpointError(
                    "torch.utils.checkpoint: Unpack is being triggered for a tensor that was "
                    "already unpacked once. If you are calling ctx.saved_tensors in backward, make "
                    "sure to do so only once. Otherwise please open an issue with details on your "
                    "use case."
                )
            holder.handles[number] = _Key()  # the old key goes, and with it the tensor
            if lone:
                for table in (frame.recomputed, frame.counts, frame.finished):
                    table.pop(number, None)
            return tensor

        def checked(holder: Holder) -> Tensor:
            try:
                return unpack(holder)
            except CheckpointError as error:
                if wrap_error is None:
                    raise
                raise wrap_error(error) from error

        super().__init__(pack, checked)


def _run_again(frame: Frame, number: int) -> None:
    frame.recomputed[number] = weakref.WeakKeyDictionary()
    frame.counts[number] = 0
    args = frame.inputs.saved_tensors
    try:
        with RecomputeHooks(frame, number), torch.autograd.enable_grad():
            frame.recompute(*args)
    except StopRecomputation:
        pass
    frame.finished[number] = True
    frame.fail_unless_same(number)


def _empty() -> Tensor:
    """A tensor without elements; no mode sees how it is made."""
    return bare((0,), torch.float32)


def marker() -> Tensor:
    """What makes the node of `SaveInputs` be recorded."""
    leaf = _empty()
    leaf.requires_grad = True
    return leaf


class SaveInputs(torch.autograd.Function):
    """Saves the arguments of a checkpoint as a node's tensors, so that outer hooks see them."""

    @staticmethod
    def forward(*tensors: Any) -> Tensor:
        return _empty()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        rest = inputs[1:]
        places = [i for i, x in enumerate(rest) if isinstance(x, Tensor)]
        others = [None if isinstance(x, Tensor) else x for x in rest]
        ctx.restore = (places, others)
        ctx.save_for_backward(*[rest[i] for i in places])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("the arguments of a checkpoint got a gradient")


class SavedArguments:
    """`saved_tensors` with the other arguments in their places."""

    def __init__(self, node: Any) -> None:
        self.node = node

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """All arguments, in order."""
        places, others = self.node.restore
        full = list(others)
        for i, tensor in zip(places, self.node.saved_tensors, strict=True):
            full[i] = tensor
        return tuple(full)


class HeldArguments:
    """All arguments, of a checkpoint inside of function transforms."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.saved_tensors = args


# ---- what ran, for error messages ----


class _OperatorLog(TorchDispatchMode):
    """Notes operators and where they were called."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.stacks: list[str] = []
        self.names: dict[int, str] = {}
        self.alive: list[Any] = []

    def _name(self, value: Any) -> str:
        if isinstance(value, Tensor):
            if id(value) not in self.names:
                self.names[id(value)] = f"${len(self.names)}"
                self.alive.append(value)
            return self.names[id(value)]
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(self._name(v) for v in value) + "]"
        return repr(value)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        shown = [self._name(a) for a in args] + [f"{k}={self._name(v)}" for k, v in kwargs.items()]
        result = func(*args, **kwargs)
        outs = result if isinstance(result, (list, tuple)) else (result,)
        names = ", ".join(
            f"{self._name(o)}: {o.dtype}{list(o.shape)}" if isinstance(o, Tensor) else self._name(o)
            for o in outs
        )
        self.lines.append(f"{names} = {func}({', '.join(shown)})")
        self.stacks.append("".join(traceback.format_stack()[:-1]))
        return result


def debug_contexts() -> tuple[Callable[[], tuple[Context, Context]], Callable[[Any], Exception]]:
    """Contexts that log the operators of both runs, and the error that shows the logs."""
    first, second = _OperatorLog(), _OperatorLog()

    def with_logs(error: CheckpointError) -> Exception:
        parts = [
            " An error happened while unpacking tensors; the operators of both runs follow, "
            "because `debug=True` was passed to `torch.utils.checkpoint.checkpoint()`.\n"
        ]
        for title, log in (("original forward", first), ("recomputation", second)):
            parts.append(f"\nStack traces of the operators of the {title}:\n")
            n = len(log.lines)
            for i, (line, stack) in enumerate(zip(log.lines, log.stacks, strict=True)):
                parts.append(f"{line}   ({i + 1} of {n})\n{stack}\n")
        parts.append("\nOperations executed during the original forward:\n\n")
        parts.append("\n".join(first.lines))
        parts.append("\n\nOperations executed during recomputation:\n\n")
        parts.append("\n".join(second.lines))
        parts.append(
            "\n\nERROR: Detected non-determinism while running activation checkpointing\n\n"
        )
        parts.append(str(error))
        return CheckpointError("".join(parts))

    return lambda: (first, second), with_logs


@contextlib.contextmanager
def rng_restored(cpu: Any, devices: Any, restore: Callable[..., None]) -> Iterator[None]:
    """Run with the random states of the forward; the present ones come back."""
    now = torch.get_rng_state()
    torch.set_rng_state(cpu)
    if devices is not None:
        restore(*devices)
    try:
        yield
    finally:
        torch.set_rng_state(now)
