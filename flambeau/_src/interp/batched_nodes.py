"""What `grad` inside of `vmap` records where modes or a trace look on.

Examples of a batch do not depend on each other, so that elsewhere the operators on whole values are
what is recorded, as plainly as without `vmap`. To see the operators that PyTorch shows, a call on
batched tensors leaves one node: that of the operator as it was called, whose vjp runs on batched
tensors again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.state import thread
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import Batched, Level, batch, info
from flambeau._src.interp.record import differentiable_outputs, keep_output, seen_below
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import Op
from flambeau._src.ops.vjp import call_vjp, flat_tensors, materialize, saved_sets

__all__ = ["record", "shows"]


def shows(level: Level, op: Op, args: tuple[Any, ...]) -> bool:
    """Whether the call is to be recorded here: a `grad` level is inside of this one, what requires
    gradients is batched at this level alone, and somebody looks on."""
    decl = op.base.decl
    if (
        op.variant != "functional" or op.schema.mutates or decl.kind == "view" or decl.vjp is None
        or decl.constants or getattr(decl, "record", None) is not None or op.decl.random
        or not state.get_grad() or state.get_inference() or thread.saved_hooks
    ):  # fmt: skip
        return False
    found = False
    for t in flat_tensors(op, args):
        i = info(t)
        if i is None:
            if t.requires_grad:
                return False
        elif not isinstance(i, Batched) or i.level is not level or info(i.value) is not None:
            return False
        elif i.value.requires_grad:
            found = found or seen_below(i.value)
    return found


def record(level: Level, op: Op, args: tuple[Any, ...], run: Callable[[], Any]) -> Any:
    """The results of `run`, the call beneath autograd, with a history."""
    with state.GradMode(False):
        result = run()
    outs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    carries = differentiable_outputs(op, outs)
    tensors = flat_tensors(op, args)
    values = [_value(t) for t in tensors]
    if not any(carries) or any(_value(o) is v for o in outs for v in values):
        return result
    base = op.base
    needs = tuple(v.requires_grad for v in values)
    ins, kept = saved_sets(base, needs, args, outs)
    node = _native.node(
        base.node_type, _RULE, [v if n else None for v, n in zip(values, needs, strict=True)]
    )
    node.num_outputs = len(outs)
    number = iter(range(len(tensors)))

    def keep(v: Any) -> Any:
        if isinstance(v, Tensor):
            return _native.saved(_value(v)) if next(number) in ins else _native.geometry(v)
        if isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v):
            return tuple([keep(x) for x in v])
        return v

    node.args = tuple([keep(v) for v in args])
    node.outs = tuple(
        [
            keep_output(_value(o), i, node, "", [], carries[i]) if i in kept
            else _native.geometry(o) if isinstance(o, Tensor) else o
            for i, o in enumerate(outs)
        ]
    )  # fmt: skip
    dims, out_dims = [_dim(t) for t in tensors], [_dim(o) for o in outs]
    node.ctx = (base, level.batch_size, needs, dims, ins, out_dims, kept)
    for i, (o, c) in enumerate(zip(outs, carries, strict=True)):
        if c:
            value = _value(o)
            value._set_history(node, i, True)
            if value is not o:
                o._set_history(node, i, True)  # what the user's function is told
    return result


def _value(t: Any) -> Any:
    i = info(t)
    return t if i is None else i.value


def _dim(t: Any) -> int | None:
    i = info(t)
    return None if i is None else i.dim


class _Rule:
    """The operator of these nodes (autograd's protocol)."""

    decl = None

    def __repr__(self) -> str:
        return "batched"

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients of whole values, from those of whole results."""
        op, size, needs, dims, ins, out_dims, kept = node.ctx
        number = iter(range(len(dims)))
        with Level("vmap", size) as level:

            def enter(v: Any) -> Any:
                if isinstance(v, Tensor):
                    n = next(number)
                    return v if dims[n] is None or n not in ins else batch(v, dims[n], level)
                return tuple([enter(x) for x in v]) if isinstance(v, tuple) else v

            args = tuple([enter(v) for v in node.unpack()])
            outs = tuple(
                [
                    batch(o, d, level) if i in kept and d is not None else o
                    for i, (o, d) in enumerate(zip(node.unpack_outs(), out_dims, strict=True))
                ]
            )
            given = [
                g if g is None or d is None else batch(g, d, level)
                for g, d in zip(grads, out_dims, strict=True)
            ]
            if len(given) > 1 and not op.decl.__dict__.get("undefined_grads"):
                given = [materialize(g, o) for g, o in zip(given, outs, strict=True)]
            found = call_vjp(op, needs, tuple(given), args, outs)
            return tuple(
                [
                    None if g is None else _whole(g, d, level)
                    for g, d in zip(found, dims, strict=True)
                ]
            )


def _whole(g: Tensor, dim: int | None, level: Level) -> Tensor:
    """A gradient as that of the whole value, whose dimension `dim` is the batch."""
    i = info(g)
    if dim is None:  # what is not batched requires no gradients here
        return g
    if isinstance(i, Batched) and i.level is level:
        return i.value if i.dim == dim else aten.movedim(i.value, i.dim, dim)
    shape = list(g.shape)
    return aten.expand(aten.unsqueeze(g, dim), [*shape[:dim], level.batch_size, *shape[dim:]])


_RULE = _Rule()
