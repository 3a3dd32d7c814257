"""What is timed: name, code that prepares it, and the one statement that is timed.

The same text runs under either runtime, which is called `torch` in it; `F` is its
`nn.functional`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`group` decides which limit holds for the ratio; `work` is the size that is meant."""

    name: str
    group: str
    work: str
    setup: str
    statement: str


_TINY = [
    ("add", "(8,)", "x = torch.rand(8); y = torch.rand(8)", "x + y"),
    ("mul", "(8,)", "x = torch.rand(8); y = torch.rand(8)", "x * y"),
    ("add scalar", "(8,)", "x = torch.rand(8)", "x + 1.0"),
    ("matmul", "(4, 4)", "x = torch.rand(4, 4); y = torch.rand(4, 4)", "x @ y"),
    ("relu", "(8,)", "x = torch.rand(8)", "torch.relu(x)"),
    ("sum", "(8,)", "x = torch.rand(8)", "x.sum()"),
    ("view", "(8,)", "x = torch.rand(8)", "x.view(2, 4)"),
    ("x[0]", "(8,)", "x = torch.rand(8)", "x[0]"),
]

_MLP = """
model = torch.nn.Sequential(
    torch.nn.Linear(8, 8), torch.nn.ReLU(),
    torch.nn.Linear(8, 8), torch.nn.ReLU(),
    torch.nn.Linear(8, 8))
x = torch.rand(4, 8)
"""

_ADAMW = """
parameters = [torch.nn.Parameter(torch.rand(8, 8)) for _ in range(20)]
for parameter in parameters:
    parameter.grad = torch.rand(8, 8)
optimizer = torch.optim.AdamW(parameters)
"""

_LARGE = [
    ("gelu", "F.gelu(x)"),
    ("softmax", "torch.softmax(x, -1)"),
    ("layer_norm", "F.layer_norm(x, (1024,), w, b)"),
    ("exp", "torch.exp(x)"),
    ("transposed copy", "x.t().contiguous()"),
    ("x + x", "x + x"),
]

_LARGE_SETUP = "x = torch.randn(4096, 1024); w = torch.rand(1024); b = torch.rand(1024)"
_SQUARE_SETUP = "x = torch.randn(1024, 1024); y = torch.randn(1024, 1024)"

CASES: list[Case] = [
    *(Case(name, "tiny", work, setup, statement) for name, work, setup, statement in _TINY),
    *(
        Case(f"{name}, recorded", "tiny", work, setup + "; x.requires_grad_()", statement)
        for name, work, setup, statement in _TINY
    ),
    Case(
        "MLP training step",
        "tiny",
        "3 layers 8-8-8, batch 4",
        _MLP,
        "model.zero_grad(); model(x).sum().backward()",
    ),
    Case("AdamW.step", "tiny", "20 parameters (8, 8)", _ADAMW, "optimizer.step()"),
    *(Case(name, "large", "(4096, 1024)", _LARGE_SETUP, statement) for name, statement in _LARGE),
    Case("matmul 1024³", "matmul", "(1024, 1024)", _SQUARE_SETUP, "x @ y"),
    Case("fresh 64 MB", "large", "(4096, 4096)", "x = torch.ones(4096, 4096)", "x + 1.0"),
]
