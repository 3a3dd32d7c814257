"""Small models of the kinds that people compile: each with its inputs, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

__all__ = ["MODELS"]


class Block(nn.Module):
    """A residual block of a ResNet-18."""

    def __init__(self, inner: int, outer: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.downsample = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Any) -> Any:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """The 18 layers, with fewer channels."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        stages, inner = [], width
        for i in range(4):
            outer = width * 2**i
            stages.append(nn.Sequential(Block(inner, outer, 1 + (i > 0)), Block(outer, outer)))
            inner = outer
        self.layers = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inner, classes)

    def forward(self, x: Any) -> Any:
        x = self.pool(self.layers(self.stem(x)))
        return self.fc(torch.flatten(x, 1))


class Recurrent(nn.Module):
    """An LSTM of two layers over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 7, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(14, 3)

    def forward(self, tokens: Any) -> Any:
        out, (h, _) = self.lstm(self.embed(tokens))
        return self.head(out[:, -1]) + h.sum()


class UNet(nn.Module):
    """Down, up, and a shortcut."""

    def __init__(self, c: int = 4) -> None:
        super().__init__()
        self.down1, self.down2 = self.double(3, c), self.double(c, 2 * c)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.merge = self.double(2 * c, c)
        self.out = nn.Conv2d(c, 2, 1)

    @staticmethod
    def double(a: int, b: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.SiLU(), nn.Conv2d(b, b, 3, 1, 1)
        )

    def forward(self, x: Any) -> Any:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        b = F.interpolate(self.up(b), size=a.shape[-2:], mode="nearest")
        return self.out(self.merge(torch.cat([a, b], dim=1)))


class VAE(nn.Module):
    """Encoder, noise, decoder; returns the loss's parts."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 6))
        self.decode = nn.Sequential(nn.Linear(3, 8), nn.ELU(), nn.Linear(8, 12))

    def forward(self, x: Any) -> Any:
        mean, log_var = self.encode(x).chunk(2, dim=-1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        kl = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(-1).mean()
        return F.mse_loss(self.decode(z), x) + 0.1 * kl


class Experts(nn.Module):
    """A mixture of experts: each token to the two that its router prefers, weights renormalised."""

    def __init__(self, experts: int = 4, width: int = 6) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, width))
            for _ in range(experts)
        )

    def forward(self, x: Any) -> Any:
        weights, chosen = torch.topk(self.router(x).softmax(-1), 2)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            share = (weights * (chosen == i)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        return out


class Attention(nn.Module):
    """A GPT block: causal attention and a feed-forward part."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.n2(x))


def _encoder() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _digits() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)
    )


#: name → (what makes the model, what makes its input)
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "digits": (_digits, lambda: torch.randn(5, 1, 8, 8)),
    "gpt_block": (Attention, lambda: torch.randn(2, 6, 8)),
    "resnet18": (ResNet18, lambda: torch.randn(2, 3, 32, 32)),
    "lstm": (Recurrent, lambda: torch.randint(0, 11, (3, 5))),
    "unet": (UNet, lambda: torch.randn(2, 3, 8, 8)),
    "vae": (VAE, lambda: torch.randn(6, 12)),
    "transformer_encoder": (_encoder, lambda: torch.randn(2, 5, 8)),
    "mixture_of_experts": (Experts, lambda: torch.randn(7, 6)),
}
