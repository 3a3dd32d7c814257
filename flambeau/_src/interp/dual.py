"""Forward-mode differentiation: an operator on dual tensors, from its vjp.

A vjp is linear in the gradient u that comes in; the gradient, by u, of its product with the
tangents is the tangent that goes out. Linear operators (views, sums, copies) are simply applied to
the tangents.
"""

from __future__ import annotations

from typing import Any

from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import RULES, Beneath, Dual, Level, dual, info, twin
from flambeau._src.interp.record import differentiable_outputs, seen_below
from flambeau._src.ops.call import aten, dispatch
from flambeau._src.ops.op import Op
from flambeau._src.ops.vjp import Backward, call_vjp, flat_tensors, saved_sets

# Linear in all tensor arguments together: the tangents go the same way as the primals.
LINEAR = frozenset(
    """neg sum cat stack clone _to_copy real imag conj _conj _conj_physical repeat flip roll rot90
    trace tril triu diag_embed cumsum unsafe_split unsafe_split_with_sizes
    _unsafe_view select_backward slice_backward diagonal_backward unfold_backward lift_fresh_copy
    pixel_shuffle pixel_unshuffle channel_shuffle view_as_real view_as_complex reflection_pad1d
    reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    avg_pool2d avg_pool3d _adaptive_avg_pool2d sum mean add.Tensor sub.Tensor""".split()
)


class _Parts:
    """The arguments of a call apart: primals, and the tangents of this level."""

    def __init__(self, level: Level) -> None:
        self.level = level

    def primal(self, v: Any) -> Any:
        if isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v):
            return [self.primal(x) for x in v]
        i = info(v)
        return i.primal if isinstance(i, Dual) and i.level is self.level else v

    def tangent(self, v: Any) -> Any:
        i = info(v)
        return i.tangent if isinstance(i, Dual) and i.level is self.level else None


def jvp_rule(level: Level, op: Op, args: tuple[Any, ...]) -> Any:
    """Run op on the primals, and its derivative on the tangents."""
    parts = _Parts(level)
    primals = tuple([parts.primal(v) for v in args])
    tensors = flat_tensors(op.base if op.variant != "out" else op, args)
    tangents = [parts.tangent(t) for t in tensors]
    with Beneath(level):
        if not level.alive or not state.thread.forward_grad:
            result = dispatch(op, primals)
            return args[0] if op.variant == "inplace" else result
        if op.variant == "inplace":
            return _inplace(level, op, args, primals, tangents)
        if op.schema.mutates:
            return _mutate(op, primals, tangents)
        result = dispatch(op, primals)
        outs = result if isinstance(result, (tuple, list)) else (result,)
        made = tangents_of(op.base, primals, tangents, tuple(outs))
    if op.name == "detach" and level.serial:
        result._born = level.serial  # this level's own: it may be written
    wrapped = [o if t is None else dual(o, t, level) for o, t in zip(outs, made, strict=True)]
    return tuple(wrapped) if isinstance(result, (tuple, list)) else wrapped[0]


def _mutate(op: Op, primals: tuple[Any, ...], tangents: list[Any]) -> Any:
    if any(t is not None for t in tangents):
        name = f"{op.base.name}_out" if op.variant == "out" else op.base.name
        why = (
            "it is an out= function" if op.variant == "out" else "it has not been implemented yet."
        )
        raise NotImplementedError(
            f"Trying to use forward AD with {name} that does not support it because {why}"
        )
    return dispatch(op, primals)


def _inplace(
    level: Level, op: Op, args: tuple[Any, ...], primals: tuple[Any, ...], tangents: list[Any]
) -> Any:
    """The target's tangent is written too."""
    base, target = op.base, args[0]
    i = info(target)
    if base.decl.kind == "view":  # the geometry of primal and tangent
        dispatch(op, primals)
        dispatch(op, (i.tangent, *args[1:]))
        target._take(i.primal)
        return target
    old = (aten.clone(primals[0]), *primals[1:])
    own = tangents[0]
    if own is not None and state.thread.grad_levels:  # what is saved of it must not be written
        copy = aten.clone(own)
        tangents = [copy if t is own else t for t in tangents]
    dispatch(op, primals)
    if primals[0] is not target and primals[0].requires_grad:
        target._set_history(primals[0].grad_fn, primals[0].output_nr, True)
    (t,) = tangents_of(base, old, tangents, (primals[0],))
    if isinstance(i, Dual) and i.level is level:
        if t is None:
            aten.zero_(i.tangent)
        else:
            aten.copy_(i.tangent, t)
    elif t is not None:
        set_dual(target, primals[0], t, level)
    return target


def set_dual(target: Tensor, primal: Tensor, tangent: Tensor, level: Level) -> None:
    """A tensor becomes dual in place: its own record stays the primal's."""
    source = _alias(primal) if primal is target else primal
    base = target._base
    if base is None or target._bits & state.FUNCTORCH or base.dtype is not target.dtype:
        own = aten.clone(tangent)
    else:  # the base becomes dual too: the view's tangent is the same part of the base's
        i = info(base)
        if not (isinstance(i, Dual) and i.level is level):
            zeros = aten.zero_(aten.new_empty_strided(base, base.shape, base.stride()))
            i = base.__dict__["_transform"] = Dual(level, _alias(base), zeros)
            base._bits |= state.FUNCTORCH
        offset = target.storage_offset() - base.storage_offset()
        own = aten.as_strided(i.tangent, target.shape, target.stride(), offset)
        aten.copy_(own, tangent)
    target.__dict__["_transform"] = Dual(level, source, own)
    target._bits |= state.FUNCTORCH


def _alias(t: Tensor) -> Tensor:
    copy = twin(t)
    if t.requires_grad:
        copy._set_history(t.grad_fn, t.output_nr, True)
    return copy


def tangents_of(
    op: Op, args: tuple[Any, ...], tangents: list[Any], outs: tuple[Any, ...]
) -> list[Any]:
    """The tangents of the outputs, None where there is none."""
    nothing: list[Any] = [None] * len(outs)
    if all(t is None for t in tangents):
        return nothing
    carries = differentiable_outputs(op, outs)
    if not any(carries):
        return nothing
    decl = op.decl
    if op.name == "detach":
        return nothing
    if decl.kind == "view" or op.name in LINEAR or op.key in LINEAR:
        return _linear(op, args, tangents)
    if decl.vjp is None and (decl.decompose is None or decl.whole):
        raise NotImplementedError(
            f"Trying to use forward AD with {op.name} that does not support it because it has not "
            "been implemented yet.\nPlease file an issue to PyTorch at "
            "https://github.com/pytorch/pytorch/issues/new?template=feature-request.yml so that we "
            "can prioritize its implementation."
        )
    real = not any(
        t.dtype.is_complex for t in (*outs, *flat_tensors(op, args)) if isinstance(t, Tensor)
    )
    if decl.kind == "pointwise" and decl.vjp is not None and real and len(outs) == 1:
        needs = tuple(t is not None for t in tangents)
        if seen_below(outs[0]):
            args = _shown(args, tangents, saved_sets(op, needs, args, outs)[0])
        return [elementwise(op, args, tangents, outs[0])]
    if op.name in MULTILINEAR:
        if seen_below(outs[0]):
            args = _shown(args, tangents, frozenset(range(len(tangents))))
        return [multilinear(op, args, tangents)]
    return twice(op, args, tangents, outs, carries)


def _shown(args: tuple[Any, ...], tangents: list[Any], used: frozenset[int]) -> tuple[Any, ...]:
    """Primals that the derivative reads, as aliases: that is what modes see in torch."""
    new, number = list(args), 0
    for i, v in enumerate(args):
        if isinstance(v, Tensor):
            if tangents[number] is not None and number in used:
                new[i] = aten.alias(v)
            number += 1
    return tuple(new)


MULTILINEAR = frozenset(("mm", "bmm", "mv", "dot", "linalg_cross", "complex"))


def elementwise(op: Op, args: tuple[Any, ...], tangents: list[Any], out: Tensor) -> Tensor:
    """The derivative of a scalar function is symmetric: its vjp, given a tangent, is its jvp."""
    total: Any = None
    for i, t in enumerate(tangents):
        if t is None:
            continue
        needs = tuple(j == i for j in range(len(tangents)))
        found = op.decl.vjp(Backward(op, needs, (out,)), t, *args)  # type: ignore[misc]
        found = found if isinstance(found, tuple) else (found,)
        part = found[_place(op, args, i)] if len(found) > 1 else found[0]
        if part is not None:
            total = part if total is None else aten.add(total, part)
    if total is None:
        return aten.zeros_like(out)
    if total.shape != out.shape:
        total = aten.clone(aten.expand(total, out.shape))
    return total if total.dtype is out.dtype else aten._to_copy(total, dtype=out.dtype)


def _place(op: Op, args: tuple[Any, ...], number: int) -> int:
    """Where the gradient of the number-th tensor stands among those of all tensor positions."""
    for place, i in enumerate(op.schema.tensor_positions):
        if isinstance(args[i], Tensor):
            if not number:
                return place
            number -= 1
    raise RuntimeError(f"{op}: no such tensor")


def multilinear(op: Op, args: tuple[Any, ...], tangents: list[Any]) -> Tensor:
    """Linear in each argument: one term for each tangent."""
    total: Any = None
    number = 0
    for i, v in enumerate(args):
        if not isinstance(v, Tensor):
            continue
        t = tangents[number]
        number += 1
        if t is not None:
            term = dispatch(op, (*args[:i], t, *args[i + 1 :]))
            total = term if total is None else aten.add(total, term)
    return total


def _linear(op: Op, args: tuple[Any, ...], tangents: list[Any]) -> list[Any]:
    number = 0

    def swap(v: Any) -> Any:
        nonlocal number
        if isinstance(v, Tensor):
            t = tangents[number]
            number += 1
            return aten.zeros_like(v) if t is None else t
        if isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v):
            return [swap(x) for x in v]
        return v

    new = []
    for a, v in zip(op.schema.args, args, strict=True):
        if a.is_tensor and not isinstance(v, (Tensor, list, tuple)) and v is not None:
            new.append(0)  # a number added: no tangent
        elif a.is_tensor:
            new.append(swap(v))
        else:
            new.append(v)
    if op.name == "view" and op.overload != "dtype":  # the tangent may lie otherwise in memory
        return [aten.reshape(new[0], new[1])]
    result = dispatch(op, tuple(new))
    return list(result) if isinstance(result, (tuple, list)) else [result]


def twice(
    op: Op,
    args: tuple[Any, ...],
    tangents: list[Any],
    outs: tuple[Any, ...],
    carries: tuple[bool, ...],
) -> list[Any]:
    """Two reverse passes: the vjp is differentiated by the gradient that comes in."""
    needs = tuple(t is not None for t in tangents)
    outer = state.get_grad()
    with state.GradMode(True):
        seeds = [slot("fresh_zeros")(o) if c else None for o, c in zip(outs, carries, strict=True)]
        grads = call_vjp(op, needs, tuple(seeds), args, outs)
        pairs = [
            (g, aten.expand(t, g.shape) if t.shape != g.shape else t)
            for g, t in zip(grads, tangents, strict=True) if g is not None and t is not None
        ]  # fmt: skip
        found = slot("pull")(
            [g for g, _ in pairs], [t for _, t in pairs], [s for s in seeds if s is not None]
        )
    it = iter(found)
    made = []
    for o, c in zip(outs, carries, strict=True):
        t = next(it) if c else None
        if c and t is None:
            t = aten.zeros_like(o)
        made.append(t if outer or t is None else slot("without_history")(t))
    return made


RULES["jvp"] = jvp_rule
