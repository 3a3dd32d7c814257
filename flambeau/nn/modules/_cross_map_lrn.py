"""Local response normalisation across channels, as Lua Torch computed it."""

from __future__ import annotations

import flambeau as torch
from flambeau import Tensor


def cross_map_lrn(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """x / (k + alpha / size * sum of x² over (size - 1) / 2 channels on either side) ** beta.

    (N, C, H, W). The window is centred, so that an even size counts as the next odd one.
    """
    if input.dim() != 4:
        raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
    channels = input.size(1)
    reach = min(int((size - 1) / 2 + 1), channels) - 1
    squares = input.pow(2)
    window = squares
    for step in range(1, reach + 1):
        above = torch.zeros_like(squares)
        above = torch.cat([squares[:, step:], above[:, :step]], dim=1)
        below = torch.cat([torch.zeros_like(squares[:, :step]), squares[:, :-step]], dim=1)
        window = window + above + below
    scale = window * (alpha / size) + k
    return input * scale.pow(-beta)
