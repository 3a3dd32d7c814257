"""Tensors and the language: contexts, functions of the user's, gradients."""

from __future__ import annotations

import functools

import flambeau as torch
from flambeau.nn import functional as F
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


def grad():
    return torch.randn(3, 4, requires_grad=True)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, k):
        ctx.k = k
        ctx.save_for_backward(v)
        return v * k

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g * ctx.k + v * 0, None


class TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.set_materialize_grads(False)
        return v * 2, v + 1

    @staticmethod
    def backward(ctx, p, q):
        total = 0
        if p is not None:
            total = total + p * 2
        if q is not None:
            total = total + q
        return total


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        out = v.round()
        return out

    @staticmethod
    def backward(ctx, g):
        return g


@program(lambda: (grad(), 3), breaks=0)
def scale_function(a, k):
    return Scale.apply(a, k) * 2


@program(lambda: (grad(),), breaks=0)
def function_of_two(a):
    p, q = TwoOutputs.apply(a)
    return p * q


@program(lambda: (grad(),), breaks=0)
def straight_through(a):
    return Marked.apply(a * 2) + a


@program(lambda: (grad(),), breaks=0)
def function_in_loop(a):
    for k in range(3):
        a = Scale.apply(a, k + 1)
    return a


@program(lambda: (grad(),), graphs=1)
def grad_modes_as_decorators(a):
    @torch.no_grad()
    def f(v):
        return v * 2

    @torch.enable_grad()
    def g(v):
        return v * 3

    with torch.no_grad():
        h = g(a)
    return f(a), h, torch.is_grad_enabled()


@program(lambda: (grad(),), graphs=1)
def set_grad_mode(a):
    torch.set_grad_enabled(False)
    b = a * 2
    torch.set_grad_enabled(True)
    with torch.set_grad_enabled(a.dim() == 1):
        c = a * 3
    return b, c, a * 4


@program(lambda: (x(),), graphs=1)
def autocast_nested(a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = a @ a.t()
        with torch.autocast("cpu", enabled=False):
            c = a @ a.t()
        d = F.softmax(b, -1)
    return b, c, d, torch.is_autocast_enabled("cpu")


@torch.autocast("cpu", dtype=torch.bfloat16)
def cast(v):
    return v @ v.t()


@program(lambda: (x(),), graphs=1)
def autocast_decorator(a):
    return cast(a)


class Timer:
    def __init__(self):
        self.depth = 0
        self.most = 0

    def __enter__(self):
        self.depth += 1
        self.most = max(self.most, self.depth)
        return self

    def __exit__(self, *e):
        self.depth -= 1


@program(lambda: (x(), Timer()), graphs=1)
def own_contexts(a, t):
    with t, t:
        a = a + t.depth
        with t as u:
            a = a * u.depth
    return a, t.most


@program(lambda: (grad(), grad()), graphs=1)
def gradients_asked(a, b):
    y = (a * b).sum()
    ga, gb = torch.autograd.grad(y, (a, b))
    return ga * gb.detach()


@program(lambda: (grad(),), graphs=1)
def detaching(a):
    b = a.detach().requires_grad_()
    c = (b * 2).sum()
    return a * c.detach(), b.requires_grad, a.grad_fn is None, c.is_leaf


@program(lambda: (x(),), graphs=1)
def indexing_all(a):
    i = torch.tensor([2, 0])
    m = a > 0
    b = a.clone()
    b[m] = 0
    b[i] = b[i] + 1
    b[..., -1] = 5
    b[:, None][0] = 1
    return a[i], a[i, i], a[:, 1:3], a[..., 0], a[None].shape, a[-1, ::2], torch.where(m, a, b), b


@program(lambda: (x(),), graphs=1)
def shapes_all(a):
    n, m = a.shape
    b = a.view(n * m).reshape(m, -1).permute(1, 0).contiguous()
    c = a.unsqueeze(1).expand(n, 2, m).flatten(0, 1)
    parts = a.split([1, 2]), a.chunk(2, 1), torch.unbind(a, 1)
    return b, c, [p.shape for p in parts[0]], len(parts[2]), a.size(-1), a.numel(), a.stride()


@program(lambda: (x(), {"p": torch.ones(4), "q": [torch.zeros(4)]}), graphs=1)
def trees_of_tensors(a, tree):
    def walk(t, f):
        if isinstance(t, dict):
            return {k: walk(v, f) for k, v in t.items()}
        if isinstance(t, (list, tuple)):
            return type(t)(walk(v, f) for v in t)
        return f(t)

    return walk(tree, lambda v: v + a)


@program(lambda: (x(),), graphs=1)
def chosen_functions(a):
    table = {"relu": F.relu, "tanh": torch.tanh, "own": lambda v: v * 2}
    for name in ("relu", "own", "tanh"):
        a = table[name](a)
    for fn in (torch.sin, torch.Tensor.cos, functools.partial(torch.clamp, min=0)):
        a = fn(a)
    return getattr(torch, "abs")(a), getattr(a, "neg")()


@program(lambda: (x(), 2), graphs=1)
def numbers_and_tensors(a, n):
    return (
        n * a + a**n - n / (a.abs() + 1),
        a // n,
        a % n,
        -a,
        abs(a),
        a == n,
        ~(a > n),
        n > a,
        2**n,
        (a > 0) & (a < 1) | (a > 5),
        a.dim() + n,
    )


@program(lambda: (x(),), graphs=1)
def facts_of_tensors(a):
    if a.is_floating_point() and not a.is_complex() and a.device.type == "cpu":
        a = a + a.element_size()
    if a.dtype == torch.float32 and a.layout is torch.strided and a.is_contiguous():
        a = a * 2
    return a, a.ndim, len(a), a.is_leaf, a.requires_grad, a.dtype.itemsize, torch.numel(a)


@program(lambda: (x(),), graphs=1)
def converting(a):
    b = a.to(torch.float64).to("cpu").half().float()
    c = a.type(torch.int32).bool().long().type_as(a)
    return b + c, a.double().dtype, a.to(dtype=torch.bfloat16), a.to(b), a.int()


@program(lambda: (x(), torch.zeros(3, 4)), graphs=1)
def out_arguments(a, out):
    torch.add(a, 1, out=out)
    torch.mul(out, 2, out=out)
    return out


@program(lambda: (x(),), graphs=1)
def attributes_of_tensors(a):
    b = a + 1
    b.tag = "mine"
    b.parent = a
    return b.parent * 2, b.tag, hasattr(a, "tag"), getattr(a, "zz", 3)


@program(lambda: (torch.randn(2, 3, 4, requires_grad=True),), graphs=1, rounding=1e-6)
def einsum_and_friends(a):
    b = torch.einsum("bij,bkj->bik", a, a)
    return F.softmax(b, dim=-1) @ a, torch.cat([a, a], -1), torch.stack([a[0], a[1]]), a.mT


@program(lambda: (grad(),), graphs=1)
def checkpointless_recompute(a):
    def block(v, n):
        return v if n == 0 else block(torch.tanh(v) + v, n - 1)

    return block(a, 3).sum()


@program(lambda: (grad(),), breaks=None)
def hooks_on_tensors(a):
    b = a * 2
    b.register_hook(lambda g: g * 10)
    return b + 1


@program(lambda: ([torch.randn(2, requires_grad=True) for _ in range(3)],), graphs=1)
def sgd_by_hand(params):
    loss = sum((p**2).sum() for p in params)
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        for p, g in zip(params, grads):
            p -= 0.1 * g
    return loss.detach()
