"""Tags of operators (`torch.Tag`): what passes and modes ask of them beside their signature."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

__all__ = ["CORE", "Tag", "tags_of"]


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

# Core ATen IR: the overloads that PyTorch's documentation of that name lists.
CORE = frozenset(
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _cdist_forward "
    "_embedding_bag _fft_c2r _fft_r2c _local_scalar_dense _log_softmax _native_batch_norm_legit "
    "_native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training _pdist_forward "
    "_softmax _to_copy abs acos acosh add.Scalar add.Tensor addmm alias amax amin any any.dim "
    "any.dims arange.start_step argmax argmin as_strided asin asinh atan atan2 atan2.out atanh "
    "avg_pool2d avg_pool2d_backward avg_pool3d bitwise_and.Scalar bitwise_and.Tensor "
    "bitwise_not bitwise_or.Scalar bitwise_or.Tensor bitwise_xor.Scalar bitwise_xor.Tensor bmm "
    "cat ceil clamp clamp.Tensor clone col2im constant_pad_nd convolution convolution_backward "
    "copy cos cosh cumsum diagonal div.Scalar div.Scalar_mode div.Tensor div.Tensor_mode elu "
    "embedding embedding_dense_backward empty.memory_format empty_strided eq.Scalar eq.Tensor "
    "erf exp expand expm1 fill.Scalar flip floor fmod.Scalar fmod.Tensor full full_like gather "
    "ge.Scalar ge.Tensor gelu grid_sampler_2d gt.Scalar gt.Tensor hardtanh index.Tensor "
    "index_put index_select isinf isnan le.Scalar le.Tensor leaky_relu log log10 log1p log2 "
    "logical_and logical_not logical_or logical_xor lt.Scalar lt.Tensor masked_scatter max.dim "
    "max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices maximum "
    "mean mean.dim min.dim minimum mm mul.Scalar mul.Tensor native_dropout native_group_norm "
    "native_group_norm_backward native_layer_norm native_layer_norm_backward ne.Scalar "
    "ne.Tensor neg nonzero permute pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prod "
    "prod.dim_int rand randn randperm reciprocal reflection_pad1d reflection_pad2d "
    "reflection_pad3d relu remainder.Scalar remainder.Tensor repeat replication_pad2d "
    "replication_pad3d round rsqrt scalar_tensor scatter.src scatter.value scatter_add "
    "scatter_reduce.two select.int select_scatter sigmoid sign sin sinh slice.Tensor "
    "slice_scatter sort split_with_sizes sqrt squeeze.dim squeeze.dims sub.Scalar sub.Tensor "
    "sum.dim_IntList sym_numel sym_size.int sym_storage_offset sym_stride.int tan tanh topk "
    "trunc unsqueeze upsample_bilinear2d.vec upsample_nearest2d.vec var.correction var.dim view "
    "where.self".split()
)


def tags_of(op: Any) -> list[Tag]:
    """The operator's tags, from its declaration and the lists above."""
    decl, name = op.decl, op.name
    found = [Tag.core] if op.key in CORE and op.namespace == "aten" else []
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
