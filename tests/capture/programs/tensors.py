"""Tensor programs: grad modes, contexts, autograd.Function, in-place, attributes."""

from __future__ import annotations

import contextlib

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


def grad():
    return torch.randn(3, 4, requires_grad=True)


@program(lambda: (grad(),), graphs=1)
def no_grad(a):
    with torch.no_grad():
        b = a * 2
    return a * b, b.requires_grad, torch.is_grad_enabled()


@torch.no_grad()
def quiet(a):
    return a * 3


@program(lambda: (grad(),), graphs=1)
def no_grad_decorator(a):
    b = quiet(a)
    return a * b, b.requires_grad


@program(lambda: (grad(),), graphs=1)
def nested_grad_modes(a):
    with torch.no_grad():
        with torch.enable_grad():
            b = a * 2
        with torch.set_grad_enabled(False):
            c = a * 3
    return b.requires_grad, c.requires_grad, b + c


@program(lambda: (grad(),), graphs=1)
def returns_inside_no_grad(a):
    with torch.no_grad():
        return a + 1


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, k):
        ctx.save_for_backward(v)
        ctx.k = k
        return v * v * k

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g * 100 * v * ctx.k, None


@program(lambda: (grad(),))
def autograd_function(a):
    return Double.apply(a, 3) + 1


@program(lambda: (x(),))
def autocast(a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = a @ a.T
    return b, b.dtype


@contextlib.contextmanager
def scaled(log, k):
    log.append("in")
    try:
        yield k * 2
    finally:
        log.append("out")


@program(lambda: (x(), []), graphs=1)
def generator_context(a, log):
    with scaled(log, 3) as k:
        a = a * k
    return a


@program(lambda: (x(),), graphs=1)
def null_and_suppress(a):
    with contextlib.nullcontext(5) as n:
        a = a + n
    return a


@program(lambda: (x(),), graphs=1)
def writes_views(a):
    b = torch.zeros(3, 4)
    v = b[1]
    v.add_(2)
    v[0] = 5
    b.view(-1)[2] = 7
    a[0].copy_(v)
    return b, v


@program(lambda: (x(), torch.zeros(3, 4)), graphs=1)
def out_argument(a, out):
    torch.add(a, 1, out=out)
    return out * 2


@program(lambda: (x(),), graphs=1)
def functional_forms(a):
    f = torch.nn.functional
    return (
        f.relu(a),
        f.softmax(a, -1),
        f.gelu(a),
        f.layer_norm(a, (4,)),
        f.pad(a, (1, 1)),
        f.normalize(a),
    )


@program(lambda: (x(),), graphs=1)
def where_and_masks(a):
    m = a > 0
    return (
        torch.where(m, a, 0),
        a.masked_fill(m, 1.0),
        a.clamp(min=0),
        m.any(),
        m.sum(),
        a[:, m[0].long()],
    )


@program(lambda: (x(),), graphs=1)
def reductions(a):
    return (
        a.sum(),
        a.mean(0),
        a.std(),
        a.max(),
        a.argmax(1),
        a.norm(),
        a.cumsum(0),
        a.var(1, keepdim=True),
    )


@program(lambda: (grad(),), graphs=1)
def data_attribute(a):
    return a.data + 1, a.mT, a.T


@program(lambda: (x(),), graphs=1)
def new_tensors(a):
    return (
        a.new_zeros(2),
        a.new_full((2,), 3.0),
        torch.full_like(a, 2),
        torch.empty_like(a).fill_(1),
        torch.eye(3),
    )


class Sub:
    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "handled", func.__name__


@program(lambda: (x(),), breaks=None)
def torch_function(a):
    return torch.add(Sub(a), a), a + 1


@program(lambda: (grad(),), graphs=1)
def user_attributes(a):
    a.tag = "mark"
    return a + 1, a.tag


@program(lambda: (x(), 2, 1.5), graphs=1)
def scalars(a, n, f):
    return (
        a * n + f,
        a.add(1, alpha=n),
        a.sum(dim=n - 1),
        torch.full((n, n), f),
        a.repeat(n, 1),
        a.pow(n),
    )


@program(lambda: (x(),), graphs=1)
def generator_of_numbers(a):
    return (
        torch.cat([a[i : i + 1] * i for i in range(3)]),
        torch.stack(list(a)),
        a.tolist is not None,
    )


@program(lambda: ([grad(), grad()],), graphs=1)
def foreach(items):
    return torch._foreach_add(items, 1), torch._foreach_mul(items, [2, 3])


@program(lambda: (x(), torch.tensor(3)), graphs=1)
def tensor_index(a, i):
    return (
        a[i.new_tensor([0, 1])],
        torch.index_select(a, 0, torch.tensor([0, 2])),
        a.gather(1, a.argsort(1)),
    )


@program(lambda: (x(),), graphs=1)
def dtype_objects(a):
    return (
        a.to(torch.float16).dtype,
        torch.finfo(a.dtype).max,
        torch.float32.is_floating_point,
        str(a.dtype),
    )


@program(lambda: (x(),), graphs=1)
def compiling(a):
    return a + 1 if torch.compiler.is_compiling() or True else a
