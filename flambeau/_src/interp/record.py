"""The recording layer: a call whose arguments require gradients leaves a node behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import LAYERS, below, call_bits, dispatch
from flambeau._src.ops.op import Op, packet
from flambeau._src.ops.vjp import flat_tensors, known_saves, reads_number, saved_sets

_NOTHING: frozenset[int] = frozenset()


def record_layer(op: Op, args: tuple[Any, ...]) -> Any:
    """Run beneath, then record when something requires gradients."""
    own = getattr(op.decl, "record", None)
    if own is not None:
        return own(op, args)
    if not state.get_grad() or state.get_inference():  # hooks keep this layer awake
        return below(state.RECORD, op, args)
    tensors = flat_tensors(op, args)
    needs = tuple(t.requires_grad for t in tensors)
    if op.base.decl.constants:
        check_constants(op.base, args)
    if op.variant == "out" or (
        op.variant == "functional" and op.schema.mutates and op.decl.vjp is None
    ):
        if any(needs) and op.variant == "out" and _refuse_out(op, args):
            pass
        if any(needs) and op.variant == "functional":
            own = getattr(op.decl, "check_recorded", None)
            if own is not None:
                own(*args)
            else:
                for i in op.schema.mutates:
                    if isinstance(args[i], Tensor):
                        check_inplace(args[i])
        return below(state.RECORD, op, args)
    if op.variant == "inplace" or (op.schema.mutates == (0,) and op.schema.returns[0].mutates):
        return _record_inplace(op, args, tensors, needs)
    if state.thread.saved_hooks and any(needs) and op.decl.kind != "view":
        node = _saved_first(op, args, tensors, needs)
        if node is not None:
            return _run_saved(op, args, node)
    result = below(state.RECORD, op, args)
    if any(needs):
        outs = result if isinstance(result, (tuple, list)) else (result,)
        attach(op, args, tensors, needs, tuple(outs))
    return result


def check_constants(op: Op, args: tuple[Any, ...]) -> None:
    """Refuse gradients that are asked for where there are none."""
    for a, v in zip(op.schema.args, args, strict=False):
        if a.name in op.decl.constants and isinstance(v, Tensor) and v.requires_grad:
            raise RuntimeError(
                f"The function '{op.name}' is not differentiable with respect to argument "
                f"'{a.name}'. This input cannot have requires_grad True."
            )


def _refuse_out(op: Op, args: tuple[Any, ...]) -> bool:
    raise RuntimeError(
        f"{op.base.name}(): functions with out=... arguments don't support automatic "
        "differentiation, but one of the arguments requires grad."
    )


def differentiable_outputs(op: Op, outs: tuple[Any, ...]) -> tuple[bool, ...]:
    d = op.decl.differentiable
    return tuple(
        isinstance(o, Tensor)
        and (o.dtype.is_floating_point or o.dtype.is_complex)
        and (d if isinstance(d, bool) else i in d)
        for i, o in enumerate(outs)
    )


def attach(
    op: Op,
    args: tuple[Any, ...],
    tensors: list[Any],
    needs: tuple[bool, ...],
    outs: tuple[Any, ...],
) -> None:
    """Make the node of a functional call and give it to the outputs."""
    carries = differentiable_outputs(op, outs)
    if not any(carries):
        return
    node = make_node(op, args, tensors, needs, outs)
    for i, (o, c) in enumerate(zip(outs, carries, strict=True)):
        if c:
            o._set_history(node, i, True)


def _saved_first(op: Op, args: tuple[Any, ...], tensors: list[Any], needs: tuple[bool, ...]) -> Any:
    """A node with its inputs saved before the operator runs: a hook may then stop it (as early
    stopping of checkpoints does). None when it is not known yet what is saved."""
    base = op.base
    if base.decl.vjp is None or known_saves(base, needs, args) is None:
        return None
    node = make_node(op, args, tensors, needs, ())
    node.ctx = needs
    return node


def _run_saved(op: Op, args: tuple[Any, ...], node: Any) -> Any:
    """The operator under the node of `_saved_first`."""
    result = below(state.RECORD, op, args)
    outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    carries = differentiable_outputs(op, outs)
    if not any(carries):
        return result
    node.num_outputs = len(outs)
    kept = saved_sets(op.base, node.ctx, args, outs)[1]
    node.ctx = None
    node.outs = _keep_outputs(op.base, node, outs, kept, carries)
    for i, (o, c) in enumerate(zip(outs, carries, strict=True)):
        if c:
            o._set_history(node, i, True)
    return result


def make_node(
    op: Op, args: tuple[Any, ...], tensors: list[Any], needs: tuple[bool, ...],
    outs: tuple[Any, ...], clone_self: bool = False,
) -> Any:  # fmt: skip
    """A node with what its vjp needs, as `saved_sets` found."""
    named = op if op.variant == "inplace" and op.decl.kind == "view" else op.base
    op = op.base
    node = _native.node(
        named.node_type, op, [t if n else None for t, n in zip(tensors, needs, strict=True)]
    )
    node.num_outputs = len(outs)
    if op.decl.vjp is None and not op.composes_gradient:
        node.args, node.outs = (), ()
        return node
    if op.decl.kind == "view":
        ins = results = _NOTHING
    else:
        ins, results = saved_sets(op, needs, args, outs)
    carries = differentiable_outputs(op, outs)
    number = 0
    kept: list[Any] = []
    waiting: Waiting = []
    for v, a in zip(args, op.schema.args, strict=False):
        if isinstance(v, Tensor):
            clone = clone_self and number == 0
            kept.append(_keep(v, number in ins, clone, a.name, waiting))
            number += 1
        elif isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v):
            items = []
            for x in v:
                if isinstance(x, Tensor):
                    x = _keep(x, number in ins, False, a.name, waiting)
                    number += 1
                items.append(x)
            kept.append(tuple(items))
        else:
            kept.append(v)
    node.args = tuple(kept)
    _pack_in_order(waiting)
    node.outs = _keep_outputs(op, node, outs, results, carries)
    if op.decl.numbers and reads_number(op, needs, args, outs):
        node.keeps_number = 1
    _offer_fast(op, args, needs, ins, results)
    if state.thread.anomaly[0]:
        slot("remember_traceback")(node)
    return node


def record_of(
    op: Op, flat: tuple[Any, ...], args: tuple[Any, ...], result: Any
) -> tuple[Any, ...] | None:
    """What a call like this one records, for C to repeat: the operator, its node's type, for each
    argument (True, its place in `flat`) or (False, a constant), a mask of what is saved (outputs
    from bit 16 on; bit 15: a number counts), and one of the outputs that carry gradients. None:
    only Python can."""
    base = op.base
    if op.variant != "functional" or base.decl.kind == "view" or op.schema.mutates:
        return None
    if getattr(base.decl, "record", None) is not None:
        return None
    outs = result if isinstance(result, (tuple, list)) else (result,)
    carries = differentiable_outputs(op, tuple(outs))
    tensors = flat_tensors(op, args)
    if not any(carries):
        return (None, None, None, 0, 0)
    if base.decl.vjp is None:
        return None
    if len(outs) > 15 or len(tensors) > 15:
        return None
    needs = tuple(t.requires_grad for t in tensors)
    known = known_saves(base, needs, args)
    if known is None:
        return None
    template: list[Any] = []
    for v in args:
        if isinstance(v, Tensor):
            places = [i for i, f in enumerate(flat) if f is v]
            if not places:
                return None
            template.append((True, places[0]))
        elif isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v):
            return None
        else:
            template.append((False, v))
    mask = sum(1 << i for i in known[0]) | sum(1 << (16 + i) for i in known[1])
    if base.decl.numbers and reads_number(base, needs, args, tuple(outs)):
        mask |= 1 << 15
    return (
        base,
        base.node_type,
        tuple(template),
        mask,
        sum(1 << i for i, c in enumerate(carries) if c),
    )


fill("record_of", record_of)


Waiting = list[tuple[str, Callable[[], None]]]  # for saved-tensor hooks: a name, and its packing


def _pack_in_order(waiting: Waiting) -> None:
    """Saved-tensor hooks see the arguments, and after them the results, in the order of names."""
    for _, run in sorted(waiting, key=lambda item: item[0]):
        run()


def _keep_outputs(
    op: Op, node: Any, outs: tuple[Any, ...], kept: frozenset[int], carries: tuple[bool, ...]
) -> tuple[Any, ...]:
    waiting: Waiting = []
    names = [r.name for r in op.schema.returns]
    results = tuple(
        o
        if not isinstance(o, Tensor)
        else keep_output(o, i, node, names[i] if i < len(names) else "", waiting, carries[i])
        if i in kept
        else _native.geometry(o)
        for i, o in enumerate(outs)
    )
    _pack_in_order(waiting)
    return results


def _keep(t: Any, values: bool, clone: bool, name: str, waiting: Waiting) -> Any:
    if not values:
        return _native.geometry(t)
    if clone:
        old = t
        t = (
            below(state.RECORD, _named("clone"), (t, None))
            if seen_below(t)
            else slot("clone_plain")(t)
        )
        if old.grad_fn is not None:  # the old values, with the old history
            t._set_history(old.grad_fn, old.output_nr, True)
    saved = _native.saved(t)
    if state.thread.saved_hooks:
        waiting.append((name, lambda: pack(saved, t)))
    return saved


def keep_output(
    t: Any, i: int, node: Any, name: str, waiting: Waiting, carries: bool = True
) -> Any:
    if not carries and seen_below(t):
        return _keep(t, True, False, name, waiting)  # no history of its own: it is kept as it is
    saved = _native.saved(t, True)
    saved.output_nr = i
    if seen_below(t):
        # Inside `grad` the graph is the transform's own business: nothing shows.
        kept = (
            slot("twin")(t)
            if state.thread.grad_levels
            else below(state.RECORD, _named("detach"), (t,))
        )
        if state.thread.saved_hooks:
            waiting.append((name, lambda: pack(saved, kept)))
        else:
            saved.pack((kept, kept._current_version()), _unchanged)
    elif state.thread.saved_hooks:
        waiting.append(
            (name, lambda: _pack_output(saved, saved.tensor, i, node if carries else None))
        )
    return saved


def _pack_output(saved: Any, alias: Any, i: int, node: Any) -> None:
    """Give a result to the hooks, with its history where it has one."""
    if node is not None:
        alias._set_history(node, i, True)
    pack(saved, alias)
    if saved.packed is alias:  # else the node would hold itself; unpacking gives it back
        alias._set_history(None, 0, False)


def seen_below(t: Any) -> bool:
    """Whether layers beneath this one want to see what is done to t."""
    return bool((state.get_active() | t._bits) & ~state.get_suspended() & state.BELOW_RECORD)


def _unchanged(packed: tuple[Any, int]) -> Any:
    """A saved result as it was kept; an error when it was changed since."""
    t, version = packed
    if t._current_version() != version and not t._inference:
        slot("version_error")(t, version, None, 0)
    return t


def _named(name: str) -> Op:
    return packet(name).ops[0]


def pack(saved: Any, t: Any, hooks: tuple[Any, Any] | None = None) -> None:
    """Give the saved tensor t to the innermost saved-tensor hooks (or to these)."""
    pack_hook, unpack_hook = hooks or state.thread.saved_hooks[-1]
    version, before = t._current_version(), state.set_grad(False)
    try:
        packed = pack_hook(t)
    finally:
        state.set_grad(before)
    if t._current_version() != version:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input "
            "to pack hook cannot be modified by in-place operations as this can lead to unexpected "
            "side-effects. Please open an issue if you need to perform in-place operations on the "
            "input to a pack hook."
        )
    saved.pack(packed, unpack_hook)


def _offer_fast(
    op: Op,
    args: tuple[Any, ...],
    needs: tuple[bool, ...],
    ins: frozenset[int],
    outs: frozenset[int],
) -> None:
    """Tell C what to save, so that the next call like this one need not come here."""
    fasts = [f for f, _ in op.__dict__.get("fasts", ())]
    if not fasts or len(needs) > 3:
        return
    positions = [i for i, v in enumerate(args) if isinstance(v, Tensor)]
    if positions != list(range(len(positions))):
        return
    mask = sum(1 << i for i in ins) | (128 if outs else 0)
    for f in fasts:
        if len(positions) == sum(a.is_tensor for a in op.schema.args):
            f.set_save(sum(1 << i for i, n in enumerate(needs) if n), mask)


def short_name(node: Any) -> str:
    """'Exp' for ExpBackward0: how messages name what made a tensor."""
    name, _, number = type(node).__name__.rpartition("Backward")
    return name if not number or number.isdigit() else type(node).__name__


def refused_view(t: Tensor, what: str) -> RuntimeError:
    """The error for a view whose history cannot follow a change: one of several views made at
    once, or one made without recording. `what`: 'is being', or what happened to its base."""
    node = t._history
    mode = "inference_mode" if t._inference_view else "no_grad"
    if t._inference_view or t._nograd_view or node is None:
        text = "A view was created in"
        if node is not None:
            text = (
                f"Output {t.output_nr} of {short_name(node)} is a view of a view which was created "
                "in"
            )
        text += (
            f" inference mode and {what} modified inplace in normal mode." if t._inference_view
            else f" no_grad mode and {what} modified inplace with grad mode enabled."
        )  # fmt: skip
    else:
        text = f"Output {t.output_nr} of {short_name(node)} is a view and {what} modified inplace."
    if t._custom_view and not t._multi_view:
        return RuntimeError(
            f"{text} This view was created inside a custom Function (or because an input was "
            "returned as-is) and the autograd logic to handle view+inplace would override the "
            "custom backward associated with the custom Function, leading to incorrect gradients. "
            "This behavior is forbidden. You can fix this by cloning the output of the custom "
            "Function."
        )
    if t._nograd_view or t._inference_view:
        return RuntimeError(
            f"{text} Given that this use case is ambiguous and error-prone, it is forbidden. You "
            "can clarify your code by moving both the view and the inplace either both inside the "
            f"{mode} block (if you don't want the inplace to be tracked) or both outside (if you "
            "want the inplace to be tracked)."
        )
    return RuntimeError(
        f"{text} This view is the output of a function that returns multiple views. Such functions "
        "do not allow the output views to be modified inplace. You should replace the inplace "
        "operation by an out-of-place one."
    )


def check_inplace(t: Tensor) -> None:
    """Refuse in-place changes that autograd cannot follow."""
    base = t._base
    if base is not None:
        if t._view_kind:
            raise refused_view(t, "is being")
        if t.requires_grad and base.is_leaf:
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )
    if t.requires_grad and t.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )


def _record_inplace(
    op: Op, args: tuple[Any, ...], tensors: list[Any], needs: tuple[bool, ...]
) -> Any:
    target = args[0]
    if not any(needs):
        return below(state.RECORD, op, args)
    check_inplace(target)
    if not (target.dtype.is_floating_point or target.dtype.is_complex):
        return below(state.RECORD, op, args)
    base_op = op.base
    clone = False
    if base_op.decl.kind == "view":
        node = make_node(op, args, tensors, needs, (target,))
        result = below(state.RECORD, op, args)
        target._set_history(node, 0, True)
        return result
    if base_op.decl.vjp is not None:
        clone = 0 in saved_sets(base_op, needs, args, (target,))[0]
    # The node is made before the write, so that edges and saved values are those of the old self.
    node = make_node(base_op, args, tensors, needs, (), clone_self=clone)
    node.num_outputs = 1
    result = below(state.RECORD, op, args)
    _, results = (
        saved_sets(base_op, needs, args, (target,)) if base_op.decl.vjp else (None, frozenset())
    )
    node.outs = _keep_outputs(op.base, node, (target,), results, (True,))
    rebase(target, node)
    return result


def rebase(target: Tensor, node: Any) -> None:
    """Give an in-place result its history: through the base when target is a view."""
    if target._base is not None:
        slot("rebase_view")(target, node)
    else:
        set_new_history(target, node)


def set_new_history(t: Tensor, node: Any) -> None:
    """t was changed in place: node is its history now, and where its gradient is retained."""
    old, nr = t._history, t.output_nr
    t._set_history(node, 0, True)
    if t._autograd is not None and t._autograd.retains:
        slot("move_retained")(t, old, nr)


LAYERS[state.RECORD] = record_layer


def composite_layer(op: Op, args: tuple[Any, ...]) -> Any:
    """A composite dissolves: its body's calls meet the layers below this one."""
    if state.get_inference() and call_bits(args, {}, 0) & state.DISPATCH:
        return below(state.COMPOSITE, op, args)  # as in torch, where autograd is what dissolves it
    return dissolved(op, args)


def dissolved(op: Op, args: tuple[Any, ...]) -> Any:
    """A composite's result by its body."""
    decl = op.decl
    if op.variant == "functional":
        if _native.pending(args):
            return _native.run_taped(args, decl.decompose, *args)  # type: ignore[arg-type]
        return decl.decompose(*args)  # type: ignore[misc]
    if op.variant == "inplace":
        inplace = getattr(decl, "decompose_inplace", None)
        if inplace is not None:
            return inplace(*args)
        return dispatch(_COPY(), (args[0], decl.decompose(*args), False))  # type: ignore[misc]
    into = getattr(decl, "decompose_out", None)
    if into is not None:
        return into(*args)
    n = len(decl.out_args)
    outs = args[-n:]
    results = decl.decompose(*args[:-n])  # type: ignore[misc]
    results = results if isinstance(results, tuple) else (results,)
    for i, (o, r) in enumerate(zip(outs, results, strict=True)):
        slot("write_out")(o, r, decl, i)
    return outs[0] if n == 1 else outs


def _COPY() -> Op:
    found: Op = slot("copy_op")()
    return found


LAYERS[state.COMPOSITE] = composite_layer
