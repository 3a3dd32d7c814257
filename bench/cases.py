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

# Small calls of every common kind: what a training script does around its large products.
_WIDE_SETUP = """
x = torch.rand(8, 8); y = torch.rand(8, 8); m = x > 0.5; v = torch.rand(8)
n = torch.arange(8); i = torch.tensor([3, 1, 2]); one = torch.tensor(2.0)
x3 = torch.rand(2, 4, 8); w = torch.rand(8, 8); b = torch.rand(8); e = torch.rand(10, 8)
p = torch.nn.Parameter(torch.rand(8, 8)); z = torch.rand(8, 8); labels = torch.arange(8)
r = torch.rand(8, 8, requires_grad=True); h = torch.rand(8, 8, dtype=torch.float64)
drop = torch.nn.Dropout(0.1); loss = torch.nn.CrossEntropyLoss(); norm = torch.nn.LayerNorm(8)
parameters = [torch.nn.Parameter(torch.rand(8)) for _ in range(10)]
optimizer = torch.optim.SGD(parameters, lr=0.1)
"""

_WIDE = [
    ("x > 0", "x > 0"),
    ("x == y", "x == y"),
    ("x ** 2", "x ** 2"),
    ("x ** 2, recorded", "r ** 2"),
    ("2 - x", "2 - x"),
    ("1 / x", "1 / x"),
    ("n + 1", "n + 1"),
    ("n * 0.5", "n * 0.5"),
    ("x + one", "x + one"),
    ("Parameter + 1", "p + 1"),
    ("Parameter * y", "p * y"),
    ("where", "torch.where(m, x, y)"),
    ("add, out=", "torch.add(x, y, out=z)"),
    ("matmul, out=", "torch.mm(x, y, out=z)"),
    ("torch.ops add", "torch.ops.aten.add.Tensor(x, y)"),
    ("masked_fill", "x.masked_fill(m, 0.0)"),
    ("clamp", "x.clamp(0.2, 0.8)"),
    ("mean", "x.mean()"),
    ("mean(-1)", "x.mean(-1)"),
    ("mean, recorded", "r.mean()"),
    ("sum(dim=0)", "x.sum(dim=0)"),
    ("max", "x.max()"),
    ("max(-1)", "x.max(-1)"),
    ("argmax(-1)", "x.argmax(-1)"),
    ("any", "m.any()"),
    ("var", "x.var()"),
    ("norm", "x.norm()"),
    ("gelu", "F.gelu(x)"),
    ("tanh", "torch.tanh(x)"),
    ("sigmoid, recorded", "torch.sigmoid(r)"),
    ("softmax", "torch.softmax(x, -1)"),
    ("softmax, recorded", "F.softmax(r, dim=-1)"),
    ("log_softmax", "F.log_softmax(x, dim=-1)"),
    ("layer_norm", "F.layer_norm(x, (8,), v, b)"),
    ("nn.LayerNorm", "norm(x)"),
    ("cross entropy", "loss(x, labels)"),
    ("mse_loss", "F.mse_loss(x, y)"),
    ("x.T", "x.T"),
    ("reshape", "x.reshape(4, 16)"),
    ("permute", "x3.permute(0, 2, 1)"),
    ("x[1:3]", "x[1:3]"),
    ("x[:, 0]", "x[:, 0]"),
    ("x[mask]", "x[m]"),
    ("x[index]", "x[i]"),
    ("x[1:3] = y[1:3]", "z[1:3] = y[1:3]"),
    ("x += 1", "z += 1"),
    ("x.mul_(y)", "z.mul_(y)"),
    ("cat", "torch.cat([x, y])"),
    ("stack", "torch.stack([v, b])"),
    ("dropout", "drop(x)"),
    ("embedding", "F.embedding(i, e)"),
    ("linear, 3-D", "F.linear(x3, w, b)"),
    ("bmm", "torch.bmm(x3, x3.transpose(1, 2))"),
    ("to float64", "x.to(torch.float64)"),
    ("float()", "h.float()"),
    ("item", "one.item()"),
    ("clone", "x.clone()"),
    ("detach", "r.detach()"),
    ("contiguous", "x.t().contiguous()"),
    ("chain", "((x > 0.2) & (x < 0.8)).sum()"),
    ("zeros", "torch.zeros(8, 8)"),
    ("ones", "torch.ones(8)"),
    ("empty", "torch.empty(8, 8)"),
    ("full", "torch.full((8,), 2.0)"),
    ("tensor", "torch.tensor([1.0, 2.0, 3.0])"),
    ("arange", "torch.arange(8)"),
    ("randn", "torch.randn(8, 8)"),
    ("rand", "torch.rand(8)"),
    ("zeros_like", "torch.zeros_like(x)"),
    ("no_grad", "with torch.no_grad(): x + y"),
    ("zero_grad", "optimizer.zero_grad()"),
    ("backward of a sum", "(r * y).sum().backward()"),
]

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
    *(Case(f"wide: {name}", "wide", "small", _WIDE_SETUP, text) for name, text in _WIDE),
    *(Case(name, "large", "(4096, 1024)", _LARGE_SETUP, statement) for name, statement in _LARGE),
    Case("matmul 1024³", "matmul", "(1024, 1024)", _SQUARE_SETUP, "x @ y"),
    Case("fresh 64 MB", "large", "(4096, 4096)", "x = torch.ones(4096, 4096)", "x + 1.0"),
]
