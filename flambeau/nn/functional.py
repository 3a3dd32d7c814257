"""Functions of neural networks, without state.

What is one operator is that operator's function itself; what combines several, or has defaults and
checks of its own, is written in `_functional/`.
"""

# ruff: noqa: F401 (the names are what this file is for)
from __future__ import annotations

import flambeau as _torch
from flambeau import _nn

from ._functional import activation as _activation
from ._functional import attention as _attention
from ._functional import dropout as _dropout
from ._functional import loss as _loss
from ._functional import norm as _norm
from ._functional import pooling as _pooling
from ._functional import vision as _vision
from ._functional.activation import (
    _get_softmax_dim,
    _threshold,
    celu,
    elu,
    glu,
    gumbel_softmax,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    mish,
    relu,
    relu6,
    rrelu,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softsign,
    tanh,
    tanhshrink,
    threshold,
)
from ._functional.attention import (
    _canonical_mask,
    _in_projection,
    _in_projection_packed,
    _mha_shape_check,
    _none_or_dtype,
    multi_head_attention_forward,
)
from ._functional.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from ._functional.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    ctc_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    linear_cross_entropy,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from ._functional.norm import (
    _no_grad_embedding_renorm_,
    _verify_batch_size,
    _verify_spatial_size,
    batch_norm,
    embedding,
    embedding_bag,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    normalize,
    rms_norm,
)
from ._functional.operators import operator
from ._functional.pooling import (
    _unpool_output_size,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from ._functional.vision import (
    GRID_SAMPLE_INTERPOLATION_MODES,
    GRID_SAMPLE_PADDING_MODES,
    _is_integer,
    _pad,
    affine_grid,
    fold,
    grid_sample,
    interpolate,
    pad,
    unfold,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from .modules._ntuple import _list_with_default, _pair, _single, _triple

# Functions that are one operator, by where PyTorch keeps them.
_OF_TORCH = (
    "adaptive_avg_pool1d",
    "avg_pool1d",
    "bilinear",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "hardshrink",
    "native_channel_shuffle",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "relu_",
    "rrelu_",
    "selu_",
    "threshold_",
)
_OF_NN = (
    "avg_pool2d",
    "avg_pool3d",
    "elu_",
    "gelu",
    "hardtanh_",
    "leaky_relu_",
    "linear",
    "one_hot",
    "scaled_dot_product_attention",
    "softplus",
    "softshrink",
)
globals().update((_name, operator(_torch, _name)) for _name in _OF_TORCH)
globals().update((_name, operator(_nn, _name)) for _name in _OF_NN)
logsigmoid = operator(_nn, "log_sigmoid")

__all__ = [
    _name
    for _name in dir()
    if not _name.startswith("_") and _name not in ("annotations", "operator")
]

for _module in (_activation, _attention, _dropout, _loss, _norm, _pooling, _vision):
    for _fn in vars(_module).values():
        if getattr(_fn, "__module__", None) == _module.__name__:
            _fn.__module__ = __name__  # where pickles, tracebacks and users know them
