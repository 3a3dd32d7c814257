"""In-place changes of views: the base gets the history, and views find theirs through the base."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.autograd.hooks import move_retained
from flambeau._src.core import layout
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.record import refused_view, set_new_history
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
        inner, geometry, base = node.ctx
        whole = aten.new_empty_strided(g, base.shape, base.stride())
        aten.copy_(whole, g)
        part = part_of(whole, geometry)
        results = inner.op.backward(
            inner, (aten.clone(part, memory_format=layout.contiguous_format),)
        )
        if node.edges[0][0] is None:
            return (None, *results[1:])
        aten.copy_(part, aten.zeros_like(part) if results[0] is None else results[0])
        return (whole, *results[1:])


class _PartOfBase:
    """The operator of a view of another dtype than its base's (real parts of complex numbers): it
    cannot be a node of `as_strided`."""

    decl = None

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        (g,) = grads
        geometry, base = node.ctx
        if g is None:
            return (None,)
        whole = aten.zeros(base.shape, dtype=base.dtype, device=g.device)
        aten.copy_(part_of(whole, geometry), g)
        return (whole,)


Geometry = tuple[tuple[int, ...], tuple[int, ...], int, Any]


def geometry_in(t: Tensor, base: Tensor) -> Geometry:
    """Where t lies in base: shape, strides and offset in t's elements, and t's dtype."""
    start = base.storage_offset() * base.element_size() // t.element_size()
    return tuple(t.shape), t.stride(), t.storage_offset() - start, t.dtype


def part_of(whole: Tensor, geometry: Geometry) -> Tensor:
    """The part of `whole` with that geometry."""
    size, stride, offset, dtype = geometry
    if whole.dtype is not dtype:
        if whole.dtype.is_complex:
            whole = aten.view_as_real(whole)
        else:  # complex numbers out of pairs of reals
            count = whole.untyped_storage().nbytes() // whole.element_size()
            whole = aten.view_as_complex(aten.as_strided(whole, (count // 2, 2), (2, 1), 0))
    return aten.as_strided(whole, size, stride, offset)


PART_OF_BASE = _PartOfBase()
PartOfBase = type(
    "AsStridedBackward0", (_native.Node,), {"__slots__": (), "__module__": "torch.autograd.graph"}
)


def _release(self: Any) -> None:
    """The inner node's saved tensors go when this node's would."""
    if self.ctx is not None:
        self.ctx[0].release()


COPY_SLICES = _CopySlices()
CopySlices = type(
    "CopySlices", (_native.Node,),
    {
        "__slots__": (), "__module__": "torch.autograd.graph", "release": _release,
        "name": lambda self: "torch::autograd::CopySlices",
    },
)  # fmt: skip


def rebase_view(t: Tensor, node: Any) -> None:
    """t, a view, was changed in place by what `node` records."""
    base = t._base
    edges = node.edges
    outer = _native.node(CopySlices, COPY_SLICES, [base, *[None] * (len(edges) - 1)])
    for i, (target, nr) in enumerate(edges[1:], 1):
        outer._set_edge(i, target, nr)
    outer.ctx = (node, geometry_in(t, base), _native.geometry(base))
    if edges and edges[0][0] is None:
        node._set_edge(0, None, 0)
    set_new_history(base, outer)
    old, nr = t._history, t.output_nr
    refresh_view(t)
    if t._autograd is not None and t._autograd.retains:
        move_retained(t, old, nr)


def refresh_view(t: Tensor) -> None:
    """The base changed after t was made: t's history is now a part of the base's."""
    if t._view_kind:
        raise refused_view(t, "its base or another view of its base has been")
    base = t._base
    if t.dtype is not base.dtype:
        part = _native.node(PartOfBase, PART_OF_BASE, [base])
        part.ctx = (geometry_in(t, base), _native.geometry(base))
        t._set_history(part, 0, True)
        return
    op = packet("as_strided").ops[0]
    node = _native.node(op.node_type, op, [base])
    node.args = (
        _native.geometry(base), tuple(t.shape), t.stride(), t.storage_offset(),
    )  # fmt: skip
    t._set_history(node, 0, True)


fill("rebase_view", rebase_view)
fill("refresh_view", refresh_view)
