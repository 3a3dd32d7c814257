"""vmap's own options."""

from __future__ import annotations

import flambeau as torch


def test_same_randomness_holds_over_chunks() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2)

    x = torch.zeros(5, 2)
    torch.manual_seed(7)
    chunked = torch.vmap(f, randomness="same", chunk_size=2)(x)
    torch.manual_seed(7)
    assert torch.equal(chunked, torch.rand(2).expand(5, 2))
