"""The functions of the root that stand under this older name as well."""

from __future__ import annotations

import flambeau as torch

_NAMES = (
    "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod "
    "cdist chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft svd_lowrank tensordot "
    "unique unique_consecutive unravel_index"
).split()
__all__ = [name for name in _NAMES if hasattr(torch, name)]
globals().update({name: getattr(torch, name) for name in __all__})
