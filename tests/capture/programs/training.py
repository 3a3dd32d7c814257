"""Training steps: backward and the optimiser's step in one graph."""

from __future__ import annotations

import flambeau as torch
from flambeau import nn
from tests.capture.comparing import program


def x():
    return torch.randn(4, 3)


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def with_grads(make, steps=1):
    def made():
        m = net()
        opt = make(m.parameters())
        for _ in range(steps):
            opt.zero_grad()
            m(x()).square().sum().backward()
            if _ < steps - 1:
                opt.step()
        return m, opt

    return made


@program(lambda: (net(), x()), graphs=1)
def backward(m, a):
    loss = m(a).square().mean()
    loss.backward()
    return loss.detach(), [p.grad * 1 for p in m.parameters()]


def accumulating():
    m = net()
    m(x()).sum().backward()
    return m, x()


@program(accumulating, graphs=1)
def backward_accumulates(m, a):
    m(a).sum().backward()
    return a


@program(lambda: (torch.randn(3, requires_grad=True),), graphs=1)
def gradient_of_input(a):
    (g,) = torch.autograd.grad((a * a).sum(), [a])
    (a * 3).sum().backward()
    return g, a.grad + 1


def _step(m, opt):
    opt.step()
    return [p.detach() for p in m.parameters()]


def optimizers():
    o = torch.optim
    yield "sgd", lambda p: o.SGD(p, lr=0.1)
    yield "sgd_momentum", lambda p: o.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)
    yield "sgd_nesterov", lambda p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True)
    yield "adam", lambda p: o.Adam(p, lr=0.1)
    yield "adamw", lambda p: o.AdamW(p, lr=0.1, weight_decay=0.1)
    yield "adam_foreach", lambda p: o.Adam(p, lr=0.1, foreach=True)
    yield "adam_amsgrad", lambda p: o.Adam(p, lr=0.1, amsgrad=True, foreach=False)
    yield "rmsprop", lambda p: o.RMSprop(p, lr=0.1)
    yield "adagrad", lambda p: o.Adagrad(p, lr=0.1)
    yield "adam_fused", lambda p: o.Adam(p, lr=0.1, fused=True)
    yield "rmsprop_centered", lambda p: o.RMSprop(p, lr=0.1, momentum=0.9, centered=True)
    for name in ("Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"):
        kind = getattr(o, name)
        yield name.lower(), lambda p, kind=kind: kind(p, lr=0.1)
        yield f"{name.lower()}_foreach", lambda p, kind=kind: kind(p, lr=0.1, foreach=True)
    yield "nadam_decoupled", lambda p: o.NAdam(p, weight_decay=0.1, decoupled_weight_decay=True)
    yield "adafactor", lambda p: o.Adafactor(p)
    for name in (
        ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam")
        + ("ASGD", "Rprop", "Adafactor")
    ):  # fmt: skip
        kind, more = getattr(o, name), {"foreach": False}
        rate = lambda p, k=kind, more=more: k(p, lr=torch.tensor(0.01), **more)  # noqa: E731
        yield f"{name.lower()}_rate", rate


def _register(name, make):
    for steps in (1, 2):

        def step(m, opt):
            opt.step()
            return [p.detach() for p in m.parameters()]

        step.__name__ = f"{name}_step_{steps}"
        # Numbers made of the step count are 0-dim tensors in a graph: divided by, not multiplied.
        plain = name.startswith(("sgd", "rms")) and not name.endswith("_rate")
        rounding = 0.0 if plain else 2e-7
        program(with_grads(make, steps), graphs=1, rounding=rounding)(step)


for _name, _make in optimizers():
    _register(_name, _make)


def training():
    m = net()
    return m, torch.optim.SGD(m.parameters(), lr=0.1), x(), torch.randn(4, 2)


@program(training, graphs=1)
def whole_step(m, opt, a, target):
    opt.zero_grad()
    loss = nn.functional.mse_loss(m(a), target)
    loss.backward()
    opt.step()
    return loss.detach()


def adam_training():
    m = net()
    return m, torch.optim.AdamW(m.parameters(), lr=0.1), x(), torch.randn(4, 2)


@program(adam_training, graphs=1, rounding=2e-7)
def whole_adam_step(m, opt, a, target):
    loss = nn.functional.mse_loss(m(a), target)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    return loss.detach()


def leaf(n):
    return torch.randn(n, requires_grad=True)


def strided():
    return torch.randn(4, 4)[::2, ::2].requires_grad_()


@program(lambda: (leaf(4), leaf(4)), graphs=1)
def gradients_have_their_bytes_for_themselves(a, b):
    (a + b).sum().backward()
    a.grad.mul_(2)
    return a.grad.is_contiguous(), a.grad.stride()


@program(lambda: (leaf(4), torch.ones(4), []), graphs=1)
def a_given_gradient_is_not_taken(a, g, log):
    (a + 0).backward(g)
    g.mul_(5)


@program(lambda: (torch.randn(3, 2).t().requires_grad_(), leaf(6), strided()), graphs=1)
def gradients_are_laid_out_as_their_leaves(a, b, gaps):
    (a * b.reshape(2, 3)).sum().backward()
    gaps.sum().backward()
    return a.grad.stride(), gaps.grad.stride()


@program(lambda: (leaf(4), []), graphs=1)
def a_hook_keeps_the_gradient(a, log):
    a.register_hook(log.append)
    (a * a).sum().backward()
    a.grad.zero_()


@program(lambda: (net(), x()), graphs=1)
def data_set_by_hand(m, a):
    m(a).square().sum().backward()
    for p in m.parameters():
        p.data = p.data - 0.1 * p.grad.data
    for p in m.parameters():
        p.data.add_(p.grad.data, alpha=-0.1)
    return [p.data * 1 for p in m.parameters()]


@program(lambda: (net(), x()), breaks=None)
def data_set_and_used(m, a):
    before = m[0].weight.data
    m[0].weight.data = before * 2
    out = m(a)
    m[0].weight.data = m[0].weight.data + 1
    return out, m(a), before


def averages():
    m = net()
    return m, net().requires_grad_(False), x()


@program(averages, graphs=1)
def data_of_averages_set(m, slow, a):
    for p, q in zip(m.parameters(), slow.parameters()):
        q.data = q.data * 0.9 + p.data * 0.1
    return slow(a) + m(a), slow[0].weight.data.sum()
