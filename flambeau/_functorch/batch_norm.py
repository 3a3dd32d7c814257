"""Batch norm under vmap: without running statistics, which one batch cannot write for all."""

from __future__ import annotations

import flambeau as torch

__all__ = ["replace_all_batch_norm_modules_"]


def replace_all_batch_norm_modules_(root: torch.nn.Module) -> torch.nn.Module:
    """Take the running statistics away from all batch-norm modules of root, in place.

    They then normalise by the statistics of what they are given, in evaluation too. Returns root.
    """
    for module in root.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.running_mean = None
            module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return root
