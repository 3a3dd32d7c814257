"""Modules: parameters and buffers lifted, containers, hooks, modes, buffers changed."""

from __future__ import annotations

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F
from tests.capture.comparing import program


def x():
    return torch.randn(4, 3)


def model(*layers):
    return nn.Sequential(*layers)


@program(lambda: (nn.Linear(3, 2), x()), graphs=1)
def linear(m, a):
    return m(a)


@program(lambda: (model(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), x()), graphs=1)
def sequential(m, a):
    for layer in m:
        a = layer(a)
    return a, len(m), m[0].weight.shape, m[-1](torch.ones(4))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.table = nn.ModuleDict({"p": nn.Linear(3, 3), "q": nn.Tanh()})
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.zeros(3))
        self.params = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))])
        self.k = 2
        self.names = ["p", "q"]

    def forward(self, a, double=False):
        for i, layer in enumerate(self.layers):
            a = F.relu(layer(a)) * (i + 1)
        for name in self.names:
            a = self.table[name](a)
        for name, m in self.table.items():
            a = a + len(name)
        a = a * self.scale + self.shift
        for p in self.params:
            a = a + p
        return a * self.k if double else a


@program(lambda: (Net(), x()), graphs=1)
def containers(m, a):
    return m(a, double=True)


@program(lambda: (nn.BatchNorm1d(3), x()), graphs=1)
def batch_norm(m, a):
    return m(a)


@program(lambda: (nn.BatchNorm1d(3).eval(), x()), graphs=1)
def batch_norm_eval(m, a):
    return m(a), m.training


@program(lambda: (model(nn.Linear(3, 3), nn.Dropout(0.5)), x()), graphs=1)
def dropout(m, a):
    return m(a)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(()))
        self.calls = 0
        self.last = None

    def forward(self, a):
        self.n += 1
        self.calls += 1
        self.last = a * 2
        return a + self.n


@program(lambda: (Counts(), x()), graphs=1)
def changes_itself(m, a):
    return m(a) + m(a), m.calls


class Replaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, a):
        self.mean = self.mean * 0.9 + a.mean(0).detach() * 0.1
        return a - self.mean


@program(lambda: (Replaces(), x()), graphs=1)
def replaces_buffer(m, a):
    return m(a)


def hooked():
    m = nn.Linear(3, 3)
    m.register_forward_hook(lambda mod, args, out: out * 2)
    m.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    return m, x()


@program(hooked, graphs=1)
def forward_hooks(m, a):
    return m(a)


@program(lambda: (nn.MultiheadAttention(4, 2), torch.randn(5, 2, 4)))
def attention(m, a):
    return m(a, a, a)


@program(lambda: (nn.LayerNorm(3), nn.Embedding(5, 3), torch.tensor([1, 4])), graphs=1)
def embedding(norm, table, i):
    return norm(table(i))


@program(lambda: (model(nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.Flatten()),
                  torch.randn(2, 1, 4, 4)), graphs=1)  # fmt: skip
def convolution(m, a):
    return m(a)


@program(lambda: (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
                  torch.randn(2, 3, 8)))  # fmt: skip
def transformer_layer(m, a):
    return m(a)


@program(lambda: (nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)))
def lstm(m, a):
    return m(a)


@program(lambda: (nn.Linear(3, 3), x(), torch.randn(4, 3)), graphs=1)
def loss(m, a, target):
    return F.mse_loss(m(a), target) + nn.CrossEntropyLoss()(m(a), target.softmax(-1))


@program(lambda: (Net(), x()), graphs=1)
def walks(m, a):
    total = sum(p.sum() for p in m.parameters())
    names = [n for n, _ in m.named_parameters()]
    return total + a.sum(), names, [type(c).__name__ for c in m.children()], len(list(m.modules()))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Linear(3, 3)
        self.q = nn.Linear(3, 3)
        self.q.weight = self.p.weight

    def forward(self, a):
        return self.q(self.p(a))


@program(lambda: (Tied(), x()), graphs=1)
def tied_weights(m, a):
    return m(a)


class Modes(nn.Module):
    def forward(self, a):
        return a * 2 if self.training else a * 3


@program(lambda: (Modes().eval(), x()), graphs=1)
def training_mode(m, a):
    return m(a)


def parametrised():
    m = nn.Linear(3, 3)
    torch.nn.utils.parametrize.register_parametrization(m, "weight", Symmetric())
    return m, x()


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T


@program(parametrised, graphs=1)
def parametrisation(m, a):
    return m(a)


class Sub(nn.Linear):
    def forward(self, a):
        return super().forward(a) + 1


@program(lambda: (Sub(3, 3), x()), graphs=1)
def subclass_of_layer(m, a):
    return m(a)
