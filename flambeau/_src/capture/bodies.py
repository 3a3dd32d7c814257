"""Functions given to operators: interpreted into a graph of their own, an attribute of the graph.

What a body uses of the program around it becomes operands of the operator. A body must leave the
objects and tensors outside as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import sizes
from flambeau._src.capture.effects import effects
from flambeau._src.capture.higher_order import HigherOrderOperator
from flambeau._src.capture.outcome import Raised, Unsupported
from flambeau._src.capture.recompute import (
    TagActivationCheckpoint,
    chooser,
    tag_activation_checkpoint,
)
from flambeau._src.capture.recorder import Held, Scope
from flambeau._src.capture.values.constant import is_plain
from flambeau._src.capture.values.tensors import TensorInfo, is_tensor
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.util import pytree

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "attribute", "checkpoint", "copy_of", "interpret", "module", "operator_call", "results",
]  # fmt: skip

#: The names of bodies in the graph, by operator.
_NAMES: dict[str, tuple[str, ...]] = {
    "cond": ("cond_true", "cond_false"),
    "while_loop": ("cond_fn", "body_fn"),
    "scan": ("scan_combine_fn",),
    "map_impl": ("map_body",),
}
_CHECKPOINT = frozenset(
    ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop")
)


def _changes(s: Session) -> list[Any]:
    return [(e.kind, e.target, e.name, id(e.value)) for e in effects(s)]


def _interpret(
    s: Session, what: str, fn: Any, args: Sequence[Any], kwargs: dict[str, Any], writes: bool
) -> tuple[Scope, Any]:
    """Run a function in a scope of its own: the scope, and the result.

    `writes`: it may write tensors of the program around it.
    """
    before = _changes(s)
    grad = state.get_grad()
    with s.recorder.scope() as scope:
        out = s.call(fn, tuple(args), kwargs)
    if state.get_grad() != grad:
        raise Unsupported(f"A function given to {what} leaves another grad mode.")
    if _changes(s) != before:
        raise Unsupported(
            f"A function given to {what} changes objects outside of it.",
            "Return what it computes.",
        )
    if not writes and any(scope.is_written(t) for t in scope.outer()):
        raise Unsupported(
            f"A function given to {what} writes a tensor of the program around it.",
            "Return a new tensor instead.",
        )
    return scope, out


def module(s: Session, scope: Scope, name: str, output: Any) -> Any:
    """The scope's graph as a module, an attribute under a fresh name."""
    scope.graph.output(output)
    made = slot("graph_module")(scope.attributes, scope.graph, "GraphModule")
    return attribute(s, made, name)


def attribute(s: Session, value: Any, name: str) -> Any:
    """Keep a value as an attribute of the graph under a fresh name: an argument of nodes."""
    recorder = s.recorder
    number = 0
    while f"{name}_{number}" in recorder.attributes:
        number += 1
    recorder.attributes[f"{name}_{number}"] = value
    recorder.modules[id(value)] = f"{name}_{number}"
    return value


def _give(s: Session, scope: Scope, t: Any) -> None:
    """A tensor that the function of the scope is called with."""
    info = s.tensors[id(t)] = TensorInfo(t, Tensor)
    info.node = scope.argument("child", t)
    scope.given.append((t, t._version))


def _check_unchanged(s: Session, what: str, scope: Scope, before: Any) -> None:
    """Refuse a function that changed an object or a tensor of the program around it."""
    if _changes(s) != before:
        raise Unsupported(f"{what} changes objects outside of it.", "Return what it computes.")
    if any(scope.is_written(t) for t in scope.outer()):
        raise Unsupported(
            f"{what} writes its operands or a tensor of the program around it.",
            "Return a new tensor instead.",
        )


def _refuse_held(s: Session, scope: Scope) -> None:
    if any(isinstance(v, Held) for v, _ in scope.lifted.values()):
        raise Unsupported(
            "A function given to an operator calls a gradient of the program around it.",
            "Take the gradient inside of the function.",
        )


def interpret(s: Session, what: str, fn: Any, leaves: list[Any], spec: Any) -> tuple[Scope, Any]:
    """Run a function on tensors of its own (with constants among them), which it must not write:
    the scope, and the result."""
    before = _changes(s)
    with s.recorder.scope() as scope:
        for t in leaves:
            if is_tensor(t):
                _give(s, scope, t)
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        out = s.call(fn, args, kwargs)
    _check_unchanged(s, f"A function under {what}", scope, before)
    return scope, out


def operator_call(s: Session, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a higher-order operator."""
    if isinstance(op, TagActivationCheckpoint):
        return checkpoint(s, args, kwargs)
    if kwargs:
        raise Unsupported(f"{op.name()} is called with keywords.")
    call = op.apart(*args)
    own = op.own(call)
    scopes, outs = [], []
    for i, fn in enumerate(call.bodies):
        scope, out = _body(s, op, call, i, fn)
        scopes.append(scope)
        outs.append(out)
    for scope in scopes:
        _refuse_held(s, scope)
    lifted = dict.fromkeys(key for scope in scopes for key in scope.lifted)
    values = {key: v for scope in scopes for key, (v, _) in scope.lifted.items()}
    modules = []
    for scope, out, name in zip(scopes, outs, _NAMES[op.name()], strict=True):
        scope.arrange(list(lifted), values)
        modules.append(module(s, scope, name, out))
    operands = (*call.operands[:own], *[values[key] for key in lifted])
    final = replace(call, bodies=tuple(modules), operands=operands)
    return s.recorder.call(op, op, op.together(final), {})


def _body(s: Session, op: HigherOrderOperator, call: Any, i: int, fn: Any) -> tuple[Scope, Any]:
    """A body of the operator: its scope, and its results as arguments of nodes."""
    what, own = op.name(), op.own(call)
    rest = list(call.operands[own:])
    with s.fake_mode, state.Suspended(state.FUNCTION_MODE):
        given = op.given(call, i)
        first = [copy_of(t) for t in given[: len(given) - len(rest)]]
    recorder = s.recorder
    before = _changes(s)
    with recorder.scope() as scope:
        for t in first:
            if is_tensor(t):
                _give(s, scope, t)
        out = s.call(fn, (*first, *rest), {})
        found = list(out) if isinstance(out, (tuple, list)) else out
        result = results(s, what, found)
    _check_unchanged(s, f"A function given to {what}", scope, before)
    return scope, result


def copy_of(t: Any) -> Any:
    """A tensor of the same geometry, which has a history where the original has."""
    if not is_tensor(t):
        return t
    made = aten.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
    if t.requires_grad and state.get_grad():
        made.requires_grad_()
        made = aten.alias(made)
    return made


def results(s: Session, what: str, out: Any) -> Any:
    if isinstance(out, list):
        return tuple([results(s, what, v) for v in out])
    if is_tensor(out) or sizes.is_symbolic(out):
        return s.recorder.argument(out)
    if is_plain(out):
        return out
    raise Unsupported(f"A function given to {what} returns a {type(out).__name__}.")


def _check_contexts(s: Session, contexts: Any, options: dict[str, Any]) -> None:
    """Whether the `context_fn` of a checkpoint says what to keep, and does nothing else."""
    cells = getattr(getattr(contexts, "func", contexts), "__closure__", None) or ()
    if options.get("use_reentrant", True) or any(is_tensor(c.cell_contents) for c in cells):
        raise Unsupported("`checkpoint` is called with a `context_fn` that needs more.")
    try:
        s.native(chooser, contexts)
    except Raised as raised:
        raise Unsupported(
            f"The `context_fn` of `checkpoint` gives contexts that do more: {raised.error}",
            "Use create_selective_checkpoint_contexts.",
        ) from None


# ---- checkpoint ----------------------------------------------------------------------------------


def checkpoint(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`checkpoint(function, *args, **kwargs)`, and the operator that stands for it."""
    if not args:
        raise Unsupported("`checkpoint` is called without a function.")
    function, *rest = args
    options = {k: v for k, v in kwargs.items() if k in _CHECKPOINT}
    given = {k: v for k, v in kwargs.items() if k not in _CHECKPOINT}
    contexts = given.pop("context_fn", None)
    if contexts is not None:
        _check_contexts(s, contexts, options)
    if given and options.get("use_reentrant", True):
        raise Unsupported("`checkpoint` with use_reentrant=True takes no keyword arguments.")
    if not all(is_plain(v) for v in options.values()):
        raise Unsupported("An option of `checkpoint` is no constant.")
    recorder = s.recorder
    scope, out = _interpret(s, "checkpoint", function, rest, given, True)
    _refuse_held(s, scope)
    own = [
        t for t in dict.fromkeys(v for v in pytree.tree_leaves(out) if is_tensor(v))
        if scope.made(s.tensors[id(t)])
    ]  # fmt: skip
    nodes = tuple([s.tensors[id(t)].node for t in own])
    made = module(s, scope, "wrap_body", nodes)
    operands = [v for v, _ in scope.lifted.values()]
    node_args = (recorder.argument(made), *[recorder.argument(v) for v in operands])
    if contexts is not None:
        options["context_fn"] = recorder.argument(attribute(s, contexts, "context_fn"))
    node = recorder.node(tag_activation_checkpoint, node_args, options, tuple(own))
    for i, t in enumerate(own):
        s.tensors[id(t)].node = recorder.item(node, i, t)
    return out
