"""Reverse differentiation inside function transforms: `autograd.grad` on batched and dual tensors.

Gradients at a `grad` level are those of the one recorded graph. Its leaves are the values behind
the level's inputs; examples of a batch do not depend on each other, so that the gradient of a whole
batch is the batch of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.autograd import engine
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.state import thread
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import Batched, Dual, Level, batch, dual, info, innermost, twin
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import packet


def physical(t: Tensor) -> Tensor:
    """The recorded tensor behind batched and dual ones."""
    i = info(t)
    while i is not None:
        t = i.value if isinstance(i, Batched) else i.primal
        i = info(t)
    return t


def recorded(t: Tensor) -> list[Tensor]:
    """All recorded tensors behind t: primals and tangents."""
    i = info(t)
    if i is None:
        return [t]
    if isinstance(i, Batched):
        return recorded(i.value)
    return recorded(i.primal) + recorded(i.tangent)


def reaches(tensors: Sequence[Tensor], serial: int) -> bool:
    """Whether the history of one of the tensors leads to a leaf that was made before the level of
    that serial number."""
    stack: list[Any] = []
    for t in tensors:
        if not t.requires_grad:
            continue
        if t.grad_fn is None:
            if t._born < serial:
                return True
        else:
            stack.append(t.grad_fn)
    seen = set(stack)
    while stack:
        for target, _ in stack.pop().edges:
            if target is None:
                continue
            leaf = engine.leaf_of(target)
            if leaf is not None:
                if leaf._born < serial:
                    return True
            elif target not in seen:
                seen.add(target)
                stack.append(target)
    return False


def lowered(t: Any, level: Level) -> Any:
    """t with the level's batch as dimension 0 of what it is, repeated where it is not batched."""
    i = info(t)
    if i is None or i.level.number < level.number:
        return aten.expand(aten.unsqueeze(t, 0), (level.batch_size, *t.shape))
    if i.level is level:
        return i.value if i.dim == 0 else aten.movedim(i.value, i.dim, 0)
    if isinstance(i, Batched):
        return batch(lowered(i.value, level), i.dim + 1, i.level)
    return dual(lowered(i.primal, level), lowered(i.tangent, level), i.level)


def raised(t: Any, dim: int, level: Level) -> Any:
    """The other way: dimension dim of t becomes the level's batch, inside of inner levels."""
    i = info(t)
    if i is None or i.level.number < level.number:
        return batch(t, dim, level)
    if isinstance(i, Dual):
        return dual(raised(i.primal, dim, level), raised(i.tangent, dim, level), i.level)
    at = dim if dim < i.dim else dim + 1
    return batch(raised(i.value, at, level), i.dim - (at < i.dim), i.level)


def spread(t: Tensor, levels: Sequence[Level]) -> Tensor:
    """t, batched at all these levels (innermost first): each example gets its own gradient."""
    if not levels:
        return t
    level, i = levels[0], info(t)
    if isinstance(i, Dual) and i.level.number > level.number:
        return dual(spread(i.primal, levels), i.tangent, i.level)
    if isinstance(i, Batched) and i.level is level:
        return batch(spread(i.value, levels[1:]), i.dim, level)
    whole = aten.expand(aten.unsqueeze(t, 0), (level.batch_size, *t.shape))
    return batch(spread(whole, levels[1:]), 0, level)


def mapped(t: Tensor, change: Any) -> Tensor:
    """t with `change` applied to the recorded tensor behind it (tangents stay)."""
    i = info(t)
    if i is None:
        return change(t)
    if isinstance(i, Batched):
        return batch(mapped(i.value, change), i.dim, i.level)
    return dual(mapped(i.primal, change), i.tangent, i.level)


def everywhere(t: Tensor, change: Any) -> Tensor:
    """`mapped`, on tangents too."""
    i = info(t)
    if i is None:
        return change(t)
    if isinstance(i, Batched):
        return batch(everywhere(i.value, change), i.dim, i.level)
    return dual(everywhere(i.primal, change), everywhere(i.tangent, change), i.level)


def without_history(t: Tensor) -> Tensor:
    """t, a leaf that requires no gradients, tangents and batches kept."""
    return everywhere(t, lambda x: twin(x) if x.requires_grad else x)


def pull(
    outputs: Sequence[Tensor],
    grads: Sequence[Any],
    inputs: Sequence[Tensor],
    create_graph: bool = True,
) -> list[Any]:
    """The gradients of outputs (with `grads` coming in) by inputs, None where there is none. The
    graph is kept."""
    level = innermost((*outputs, *inputs))
    if level is None:
        thread.grad_levels += 1
        try:
            return _plain(outputs, grads, inputs, create_graph)
        finally:
            thread.grad_levels -= 1
    if level.kind == "vmap":
        return _pull_batched(level, outputs, grads, inputs, create_graph)
    return _pull_dual(level, outputs, grads, inputs, create_graph)


def _plain(
    outputs: Sequence[Tensor], grads: Sequence[Any], inputs: Sequence[Tensor], create_graph: bool
) -> list[Any]:
    pairs = [
        (o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad and g is not None
    ]
    if not pairs:
        return [None] * len(inputs)
    return engine.run(
        [engine.root_edge(o) for o, _ in pairs], [g for _, g in pairs], retain_graph=True,
        create_graph=create_graph, inputs=[engine.root_edge(x) for x in inputs], accumulate=False,
    )  # fmt: skip


def _pull_batched(
    level: Level,
    outputs: Sequence[Tensor],
    grads: Sequence[Any],
    inputs: Sequence[Tensor],
    create: bool,
) -> list[Any]:
    def has(t: Any) -> bool:
        i = info(t)
        return isinstance(i, Batched) and i.level is level

    kept = [(o, g) for o, g in zip(outputs, grads, strict=True) if has(o)]
    values = [info(x).value if has(x) else x for x in inputs]
    found = pull(
        [lowered(o, level) for o, _ in kept],
        [None if g is None else lowered(g, level) for _, g in kept], values, create,
    )  # fmt: skip
    return [
        None if g is None else raised(g, info(x).dim, level) if has(x) else g
        for g, x in zip(found, inputs, strict=True)
    ]


def _pull_dual(
    level: Level,
    outputs: Sequence[Tensor],
    grads: Sequence[Any],
    inputs: Sequence[Tensor],
    create: bool,
) -> list[Any]:
    outs, gs = [parted(o, level) for o in outputs], [parted(g, level) for g in grads]
    ins = [parted(x, level)[0] for x in inputs]
    primal = pull([o for o, _ in outs], [g for g, _ in gs], ins, create)
    # The tangent of the gradient: by the product rule, from both parts of outputs and gradients.
    more = [(o, t) for (o, _), (_, t) in zip(outs, gs, strict=True) if t is not None]
    more += [
        (d, g) for (_, d), (g, _) in zip(outs, gs, strict=True) if d is not None and g is not None
    ]
    tangent = pull([o for o, _ in more], [g for _, g in more], ins, create)
    return [
        None if p is None and t is None
        else joined(aten.zeros_like(t) if p is None else p, aten.zeros_like(p) if t is None else t,
                    level)
        for p, t in zip(primal, tangent, strict=True)
    ]  # fmt: skip


def parted(t: Any, level: Level) -> tuple[Any, Any]:
    """Primal and tangent (or None) at a level, inside of inner levels."""
    i = info(t)
    if i is None or i.level.number < level.number:
        return t, None
    if isinstance(i, Batched):
        p, d = parted(i.value, level)
        return batch(p, i.dim, i.level), None if d is None else batch(d, i.dim, i.level)
    if i.level is level:
        return i.primal, i.tangent
    p, d = parted(i.primal, level)
    q, e = parted(i.tangent, level)
    if d is None and e is None:
        return t, None
    zero = aten.zeros_like
    return dual(p, q, i.level), dual(
        zero(p) if d is None else d, zero(q) if e is None else e, i.level
    )


def joined(p: Tensor, t: Tensor, level: Level) -> Tensor:
    """The dual of p and t at a level, inside of inner levels."""
    inner = innermost((p, t))
    if inner is None or inner.number < level.number:
        return dual(p, t, level)
    if inner.kind == "vmap":
        return batch(joined(lowered(p, inner), lowered(t, inner), level), 0, inner)
    (a, b), (c, d) = parted(p, inner), parted(t, inner)
    b = aten.zeros_like(a) if b is None else b
    d = aten.zeros_like(c) if d is None else d
    return dual(joined(a, c, level), joined(b, d, level), inner)


def batch_levels(t: Tensor) -> set[Level]:
    """The levels at which t, or a tangent of it, is batched."""
    i = info(t)
    if i is None:
        return set()
    if isinstance(i, Batched):
        return {i.level} | batch_levels(i.value)
    return batch_levels(i.primal) | batch_levels(i.tangent)


def fresh_zeros(like: Tensor) -> Tensor:
    """Zeros of like's shape, batched wherever it or a tangent of it is, whose gradient can be asked
    for (slot 'fresh_zeros')."""
    levels = sorted(batch_levels(like), key=lambda level: level.number)
    if not levels:
        with state.GradMode(False):
            z = aten.zeros_like(physical(like))
        z._set_history(None, 0, True)
        return z
    size = (*[level.batch_size for level in levels], *like.shape)
    z = aten.zeros(size, dtype=like.dtype, device=like.device)
    z._set_history(None, 0, True)
    for level in levels:
        z = batch(z, 0, level)
    return z


class GradLevel:
    """One active `grad` or `vjp`: its inputs become fresh leaves (or, when they are recorded
    themselves, fresh branches) of the graph."""

    def __init__(self) -> None:
        self.outer = state.get_grad()
        self.batches = [lv for lv in reversed(thread.functorch) if lv.kind == "vmap"]
        self.level = Level("grad")
        self.mode = state.GradMode(True)

    def __enter__(self) -> GradLevel:
        self.level.__enter__()
        self.mode.__enter__()
        thread.grad_levels += 1
        for level in self.batches:
            level.graded += 1
        return self

    def __exit__(self, *exc: object) -> None:
        for level in self.batches:
            level.graded -= 1
        thread.grad_levels -= 1
        self.mode.__exit__()
        self.level.__exit__()

    def enter(self, t: Tensor) -> Tensor:
        """An input of the function that is differentiated.

        Raises:
            RuntimeError: its dtype has no gradients.
        """
        if not (t.dtype.is_floating_point or t.dtype.is_complex):
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        return mapped(spread(t, self.batches), self._leaf)

    def _leaf(self, t: Tensor) -> Tensor:
        fresh = twin(t)
        fresh._born = self.level.serial
        if self.outer and t.requires_grad:  # a branch of its history
            op = packet("alias").ops[0]
            node = _native.node(op.node_type, op, [t])
            node.args = (_native.geometry(t),)
            fresh._set_history(node, 0, True)
            return fresh
        fresh._set_history(None, 0, True)
        return fresh

    def beyond(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the tensors depend on something outside of this level that requires gradients."""
        return self.outer and reaches([r for t in tensors for r in recorded(t)], self.level.serial)

    def leave(self, t: Any) -> Any:
        """A result: without the history that is this level's alone."""
        if not isinstance(t, Tensor) or not any(r.requires_grad for r in recorded(t)):
            return t
        return t if self.beyond([t]) else without_history(t)


fill("pull", pull)
fill("fresh_zeros", fresh_zeros)
fill("without_history", without_history)
