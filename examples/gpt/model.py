"""A small GPT: a stack of pre-norm transformer blocks over word pieces.

Shapes are named by letters: B sequences, T tokens, C channels, H heads, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    """Sizes of the model."""

    vocab: int
    block: int = 128
    layers: int = 4
    heads: int = 4
    width: int = 128
    dropout: float = 0.1


class Attention(nn.Module):
    """Causal self-attention with one projection for queries, keys and values together."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.proj = nn.Linear(shape.width, shape.width)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        B, T, C = x_BTC.shape
        q, k, v = (
            part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            for part in self.qkv(x_BTC).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(mixed.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.norm2 = nn.LayerNorm(shape.width)
        self.mlp = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(),
            nn.Linear(4 * shape.width, shape.width),
        )
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        x_BTC = x_BTC + self.dropout(self.attention(self.norm1(x_BTC)))
        return x_BTC + self.dropout(self.mlp(self.norm2(x_BTC)))


class GPT(nn.Module):
    """Tokens to the logits of the next token; the output layer shares the embedding's weight."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocab, shape.width)
        self.positions = nn.Embedding(shape.block, shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocab, bias=False)
        self.apply(self._init)
        # Each block adds to the stream twice; keep its variance from growing with the depth
        # (Radford et al. 2019, section 2.3).
        for name, parameter in self.named_parameters():
            if name.endswith(("proj.weight", "mlp.2.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * shape.layers))
        self.head.weight = self.tokens.weight

    @staticmethod
    def _init(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(
        self, tokens_BT: torch.Tensor, targets_BT: torch.Tensor | None = None
    ) -> torch.Tensor:
        """int64 (B, T) with T <= block, to float (B, T, V); with targets the mean cross entropy
        of them instead, in nats a token."""
        T = tokens_BT.size(1)
        if T > self.shape.block:
            raise ValueError(f"{T} tokens, but the model has {self.shape.block} positions")
        place_T = torch.arange(T, device=tokens_BT.device)
        x_BTC = self.dropout(self.tokens(tokens_BT) + self.positions(place_T))
        for block in self.blocks:
            x_BTC = block(x_BTC)
        logits_BTV = self.head(self.norm(x_BTC))
        if targets_BT is None:
            return logits_BTV
        return F.cross_entropy(logits_BTV.view(-1, self.shape.vocab), targets_BT.reshape(-1))

    @torch.no_grad()
    def continue_text(
        self, tokens: list[int], count: int, generator: torch.Generator, warmth: float = 0.7
    ) -> list[int]:
        """`tokens` with `count` more, each drawn from softmax(logits / warmth).

        A draw is the largest logit after Gumbel noise is added (Maddison et al. 2014).
        """
        device = self.tokens.weight.device
        tokens = list(tokens)
        for _ in range(count):
            seen_1T = torch.tensor([tokens[-self.shape.block :]], device=device)
            logits_V = self(seen_1T)[0, -1].float().cpu()
            uniform_V = torch.rand(logits_V.shape, generator=generator).clamp(1e-9, 1 - 1e-7)
            noise_V = -torch.log(-torch.log(uniform_V))
            tokens.append(int((logits_V / warmth + noise_V).argmax()))
        return tokens
