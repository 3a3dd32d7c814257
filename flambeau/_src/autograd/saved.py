"""Saved tensors: hooks that pack them, what comes back, and the errors about their versions."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.autograd.anomaly import keep_recording_in_python
from flambeau._src.autograd.hooks import accumulator
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import twin
from flambeau._src.interp.record import pack, seen_below, short_name
from flambeau._src.ops.call import below
from flambeau._src.ops.op import packet
from flambeau._src.ops.vjp import flat_tensors, saved_sets

_FREED = (
    "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values "
    "of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to "
    "access saved variables after calling backward."
)


class SavedTensor:
    """What a node holds of a tensor; `register_hooks` has it packed."""

    __slots__ = ("_node", "_saved")
    __module__ = "torch._C._autograd"

    def __init__(self, saved: Any, node: Any) -> None:
        self._saved = saved
        self._node = node

    @property
    def data(self) -> Any:
        """What is held: the tensor, or what the pack hook made of it."""
        saved = self._saved
        if saved is None:
            return None
        return saved.packed if saved.unpack_hook is not None else saved.tensor

    def register_hooks(self, pack_hook: Any, unpack_hook: Any) -> None:
        """Pack the tensor now, and unpack it when backward needs it."""
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError(
                "register_hooks(): incompatible function arguments. The following argument types "
                "are supported:\n    1. (self: torch._C._autograd.SavedTensor, arg0: "
                "collections.abc.Callable, arg1: collections.abc.Callable) -> None\n\nInvoked "
                f"with: {self!r}, {pack_hook!r}, {unpack_hook!r}"
            )
        if self._node.released:
            raise RuntimeError(_FREED)
        saved = self._saved
        if not isinstance(saved, _native.Saved):
            raise RuntimeError(
                "Calling register_hooks on a saved tensor with value None is forbidden. Hint: try "
                "accessing the saved tensor directly."
            )
        if saved.unpack_hook is not None:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: "
                "only one pair of hooks is allowed at a time."
            )
        pack(saved, saved.tensor, (pack_hook, unpack_hook))


def unpacked(value: Any, history: Any, nr: int) -> Any:
    """What an unpack hook returned, with the history of what was packed (slot 'unpacked')."""
    if not isinstance(value, Tensor):
        raise TypeError(
            "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
            f"{type(value).__name__}"
        )
    if history is None:
        return value
    if not isinstance(history, _native.Node):  # a weak reference to a leaf
        leaf = history()
        if leaf is None:
            return value
        if leaf is value:
            return value
        history, nr = accumulator(leaf), 0
    if state.thread.grad_levels:
        result = twin(value)
    elif seen_below(value):
        result = below(state.RECORD, packet("detach").ops[0], (value,))
    else:
        result = _native.alias(type(value), value)
    result._set_history(history, nr, True)
    return result


def version_error(t: Tensor, expected: int, node: Any, nr: int) -> None:
    """A saved tensor was changed since (slot 'version_error'); node: what made it, of an output.

    Raises:
        RuntimeError: always.
    """
    made, nr = (t.grad_fn, t.output_nr) if node is None else (node, nr)
    what = f"[{t.type()} {list(t.shape)}]"
    if made is not None:
        what += f", which is output {nr} of {short_name(made)},"
    hint = (
        "Hint: the backtrace further above shows the operation that failed to compute its "
        "gradient. The variable in question was changed in there or anywhere later. Good luck!"
        if state.thread.anomaly[0]
        else "Hint: enable anomaly detection to find the operation that failed to compute its "
        "gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {what} is at version {t._current_version()}; expected version {expected} "
        "instead. " + hint
    )


def push_hooks(pack_hook: Any, unpack_hook: Any) -> None:
    """From now on what this thread saves is packed by this pair.

    Raises:
        RuntimeError: with the text given to `disable_hooks`.
    """
    if not callable(pack_hook) or not callable(unpack_hook):
        raise TypeError(
            "_push_saved_tensors_default_hooks(): incompatible function arguments. The following "
            "argument types are supported:\n    1. (arg0: collections.abc.Callable, arg1: "
            f"collections.abc.Callable) -> None\n\nInvoked with: {pack_hook!r}, {unpack_hook!r}"
        )
    off = state.thread.saved_hooks_off
    if off:
        raise RuntimeError(off[-1])
    state.thread.saved_hooks.append((pack_hook, unpack_hook))
    keep_recording_in_python()


def pop_hooks() -> None:
    """End of `push_hooks`."""
    state.thread.saved_hooks.pop()
    keep_recording_in_python()


def disable_hooks(message: str) -> None:
    """Refuse saved-tensor hooks, with this text."""
    if state.thread.saved_hooks:
        raise RuntimeError(message)
    state.thread.saved_hooks_off.append(message)


def enable_hooks() -> None:
    """End of `disable_hooks`."""
    state.thread.saved_hooks_off.pop()


def node_members(op: Any) -> dict[str, Any]:
    """`_saved_*` and `_raw_saved_*` of an operator's nodes."""
    members: dict[str, Any] = {}
    for i, a in enumerate(op.schema.args):
        members[f"_saved_{a.name}"] = property(_reader(i, False))
        if a.is_tensor:
            members[f"_raw_saved_{a.name}"] = property(_raw_reader(i, False))
    returns = op.schema.returns
    for i, r in enumerate(returns):
        name = r.name or ("result" if len(returns) == 1 else f"result{i}")
        if f"_saved_{name}" not in members:
            members[f"_saved_{name}"] = property(_reader(i, True))
            members[f"_raw_saved_{name}"] = property(_raw_reader(i, True))
    return members


def _reader(i: int, out: bool) -> Any:
    def read(node: Any) -> Any:
        values = node.unpack_outs() if out else node.unpack()
        value = values[i] if values is not None and i < len(values) else None
        if isinstance(value, Tensor) and value._bits & state.GEOMETRY:
            if not out and _could_be_saved(node, i):
                return None
            raise AttributeError(f"'{type(node).__name__}' object has no such saved tensor")
        return value

    return read


def _could_be_saved(node: Any, i: int) -> bool:
    """Whether the i-th argument is saved when all gradients are wanted."""
    op, args, outs = node.op.base, node.args, node.outs or ()
    shapes = tuple(_native.geometry(v.tensor) if type(v) is _native.Saved else v for v in args)
    tensors = flat_tensors(op, shapes)
    number = len(flat_tensors(op, shapes[:i]))
    results = tuple(_native.geometry(v.tensor) if type(v) is _native.Saved else v for v in outs)
    return number in saved_sets(op, tuple(True for _ in tensors), shapes, results)[0]


def _raw_reader(i: int, out: bool) -> Any:
    def read(node: Any) -> Any:
        if node.released:
            return SavedTensor(None, node)
        saved = (node.outs if out else node.args)[i]
        if isinstance(saved, tuple):
            return tuple(SavedTensor(s, node) for s in saved)
        if isinstance(saved, Tensor):
            raise AttributeError(f"'{type(node).__name__}' object has no such saved tensor")
        return SavedTensor(saved, node)

    return read


fill("unpacked", unpacked)
fill("version_error", version_error)
fill("node_members", node_members)
