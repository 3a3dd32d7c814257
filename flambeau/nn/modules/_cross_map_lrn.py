"""Local response normalisation across channels, as Lua Torch computed it."""

from __future__ import annotations

import flambeau as torch
from flambeau import Tensor


def cross_map_lrn(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """x / (k + alpha / size * sum of x² over (size - 1) / 2 channels on either side) ** beta.

    (N, C, H, W). The sum slides along the channels; channel 0 never leaves it, as in the original.
    """
    if input.dim() != 4:
        raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
    squares = input.pow(2).unbind(1)
    channels = len(squares)
    reach = int((size - 1) / 2 + 1)
    window = squares[0]
    for square in squares[1 : min(reach, channels)]:
        window = window + square
    sums = [window]
    for c in range(1, channels):
        if c + reach - 1 < channels:
            window = window + squares[c + reach - 1]
        if c > reach:
            window = window - squares[c - reach]
        sums.append(window)
    scale = torch.stack(sums, 1) * (alpha / size) + k
    return scale.pow(-beta) * input
