"""`torch.func` in captured programs: each transformed function is a graph of its own."""

from __future__ import annotations

import flambeau as torch
from flambeau import nn
from flambeau.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, vmap
from tests.capture.comparing import program


def x():
    return torch.randn(4, 3, requires_grad=True)


@program(lambda: (x(), x()), graphs=1)
def mapped_with_closure(a, b):
    c = b.sum(0)
    return vmap(lambda row: row.sin() * c)(a)


@program(lambda: (x(), x()), graphs=1)
def mapped_along(a, b):
    def f(row, t, k):
        return {"s": row * t["p"] + k, "m": (row.max(), row)}

    out = vmap(f, in_dims=(1, 1, None), out_dims=-1)(a, {"p": b}, 2.0)
    return out["s"], out["m"]


@program(lambda: (torch.randn(4, 3),), graphs=1)
def gradient(a):
    scale = a.exp()
    return grad(lambda v: (v * v * scale).sum())(a) + 1


@program(lambda: (x(),), graphs=1)
def gradient_of_a_gradient(a):
    return grad(lambda v: grad(lambda w: (w**3).sum())(v).sum())(a)


@program(lambda: (torch.randn(4, 3), torch.randn(3)), graphs=1)
def gradients_of_examples(a, w):
    def loss(w, row):
        return (row * w).tanh().sum(), row

    (found, aux), value = vmap(grad_and_value(loss, has_aux=True), in_dims=(None, 0))(w, a), w
    return found, aux, value


@program(lambda: (nn.Linear(3, 2), torch.randn(4, 3)), graphs=1)
def gradients_of_a_module(m, a):
    params = {k: v.detach() for k, v in m.named_parameters()}
    return grad(lambda p: functional_call(m, p, (a,)).square().sum())(params)


@program(lambda: (torch.randn(3),), graphs=1)
def jacobians(a):
    return jacrev(torch.sin)(a), jacfwd(lambda v: v * a)(a), hessian(lambda v: (v**3).sum())(a)


@program(lambda: (nn.Linear(3, 2), torch.randn(4, 3)), graphs=1)
def module_with_other_parameters(m, a):
    before = m(a)
    return functional_call(m, {k: v * 2 for k, v in m.named_parameters()}, (a,)), before, m(a)


@program(lambda: (torch.randn(4, 3), []), breaks=2)
def mapped_with_effects(a, seen):
    def f(row):
        seen.append(1)
        return row * 2

    return vmap(f)(a)
