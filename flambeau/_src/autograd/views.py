"""In-place changes of views: the base gets the history, and views find theirs through the base."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import packet


class _CopySlices:
    """The operator of a `CopySlices` node: an operator applied to a part of the base.

    Gradient of the base: outside the part as it came; the part's goes through the inner node."""

    decl = None

    def __repr__(self) -> str:
        return "CopySlices"

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        (g,) = grads
        if g is None:
            return (None,) * len(node.edges)
        inner, size, stride, offset, base = node.ctx
        g = like_base(g, base)
        offset += g.storage_offset()
        part = aten.as_strided(g, size, stride, offset)
        results = inner.op.backward(inner, (aten.clone(part),))
        first = results[0]
        first = aten.zeros_like(part) if first is None else first
        rest = aten.as_strided_scatter(g, aten.expand(first, size), size, stride, offset)
        inner.release()
        return (rest if node.edges[0][0] is not None else None, *results[1:])


COPY_SLICES = _CopySlices()
CopySlices = type("CopySlices", (_native.Node,), {"__slots__": (), "__module__": "torch.autograd.graph"})


def like_base(g: Tensor, base: Tensor) -> Tensor:
    """g with the strides of base, so that the view's geometry fits it."""
    if g.stride() == base.stride():
        return g
    fresh = aten.empty_strided(base.shape, base.stride(), dtype=g.dtype, device=g.device)
    return aten.copy(fresh, g)


def rebase_view(t: Tensor, node: Any) -> None:
    """t, a view, was changed in place by what `node` records."""
    base = t._base
    edges = node.edges
    outer = _native.node(CopySlices, COPY_SLICES, [base, *[None] * (len(edges) - 1)])
    for i, (target, nr) in enumerate(edges[1:], 1):
        outer._set_edge(i, target, nr)
    geometry = _native.geometry(base)
    outer.ctx = (node, tuple(t.shape), t.stride(), t.storage_offset() - base.storage_offset(), geometry)
    if edges and edges[0][0] is None:
        node._set_edge(0, None, 0)
    base._set_history(outer, 0, True)
    refresh_view(t)


def refresh_view(t: Tensor) -> None:
    """The base changed after t was made: t's history is now a part of the base's."""
    base = t._base
    op = packet("as_strided").ops[0]
    node = _native.node(op.node_type, op, [base])
    node.args = (
        _native.geometry(base), tuple(t.shape), t.stride(), t.storage_offset(),
    )  # fmt: skip
    t._set_history(node, 0, True)


fill("rebase_view", rebase_view)
fill("refresh_view", refresh_view)
