"""Tags of operators (`torch.Tag`): what passes and modes ask of them beside their signature."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

__all__ = ["Tag", "tags_of"]


class Tag(IntEnum):
    """A property of an operator."""

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19

    def __repr__(self) -> str:
        return f"<Tag.{self.name}: {self.value}>"

    def __str__(self) -> str:
        return f"Tag.{self.name}"


Tag.__module__ = "torch"

# Operators whose results' shapes, or whose result, are read from the values of a tensor.
DYNAMIC_SHAPE = frozenset(
    "index.Tensor repeat_interleave.Tensor linalg_lstsq.out unique_dim_consecutive "
    "masked_select.out linalg_lstsq _ctc_loss.Tensor bincount _unique2 argwhere one_hot "
    "nonzero.out nonzero masked_select unique_dim _unique unique_consecutive _ctc_loss".split()
)
DATA_DEPENDENT = frozenset("_local_scalar_dense item equal allclose".split())
INPLACE_VIEWS = frozenset(
    "as_strided_ detach_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_ resize_ set_ "
    "resize_as_".split()
)


def tags_of(op: Any) -> list[Tag]:
    """The operator's tags, from its declaration and the lists above."""
    decl, name = op.decl, op.name
    found = []
    if name in DATA_DEPENDENT:
        found.append(Tag.data_dependent_output)
    if op.key in DYNAMIC_SHAPE:
        found.append(Tag.dynamic_output_shape)
    if name in INPLACE_VIEWS:
        found.append(Tag.inplace_view)
    if decl.random:
        found.append(Tag.nondeterministic_seeded)
    if decl.kind == "pointwise":
        found.append(Tag.pointwise)
    if decl.kind == "reduction":
        found.append(Tag.reduction)
    for t in decl.tags:
        tag = t if isinstance(t, Tag) else Tag[t]
        if tag not in found:
            found.append(tag)
    if op.namespace == "aten" or decl.__dict__.get("custom") is not None:
        found.append(Tag.pt2_compliant_tag)
    return sorted(found)
