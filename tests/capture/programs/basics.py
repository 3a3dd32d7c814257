"""Straight lines: arguments, results, constants, globals, closures."""

from __future__ import annotations

import flambeau as torch
from tests.capture.comparing import program

SCALE = 2.5
TABLE = {"a": 1, "b": [2, 3]}
BOX = [1.0, 2.0]
COUNT = 0


def x():
    return torch.randn(3, 4)


def grad():
    return torch.randn(3, 4, requires_grad=True)


@program(lambda: (x(), x()), graphs=1)
def add(a, b):
    return a + b


@program(lambda: (grad(), grad()), graphs=1)
def add_with_gradients(a, b):
    return torch.sin(a) * b + a


@program(lambda: (x(),), graphs=1)
def returns_tuple(a):
    return a, a + 1, (a * 2, 5, "text", None)


@program(lambda: (x(),), graphs=1)
def returns_nested(a):
    return {"k": [a + 1, {"z": (a - 1,)}], 3: a}


@program(lambda: (x(),), graphs=0)
def returns_argument(a):
    return a


@program(lambda: (x(),), graphs=0)
def returns_constant(a):
    return 5


@program(lambda: (x(),), graphs=1)
def same_tensor_twice(a):
    y = a + 1
    return [y, y]


@program(lambda: ((x(),), {"k": 3}), graphs=1)
def keywords(a, *, k=2, j=4):
    return a * k + j


@program(lambda: ((x(), x(), x()), {"p": 1, "q": x()}), graphs=1)
def star_arguments(a, *rest, **named):
    return a + rest[0] * rest[1] + named["q"] * named["p"], len(rest), list(named)


@program(lambda: (x(),), graphs=1)
def reads_global(a):
    return a * SCALE + TABLE["a"] + TABLE["b"][1] + BOX[0]


@program(lambda: (x(),), graphs=1)
def writes_global(a):
    global COUNT
    COUNT = COUNT + 0
    return a + COUNT


def outer(k):
    def inner(a):
        return a * k

    return inner


TIMES = outer(3)


@program(lambda: (x(),), graphs=1)
def calls_closure(a):
    return TIMES(a)


@program(lambda: (x(),), graphs=1)
def nested_function(a):
    k = 4

    def inner(b, m=2):
        return b * k + m

    return inner(a) + inner(a, m=1)


@program(lambda: (x(),), graphs=1)
def nonlocal_variable(a):
    n = 0

    def step(b):
        nonlocal n
        n += 1
        return b + n

    a = step(a)
    a = step(a)
    return a, n


@program(lambda: (x(),))
def returns_function(a):
    b = a + 1

    def later(c=3):
        return b * c

    return later() + 1, later


@program(lambda: (x(),), graphs=1)
def lambdas(a):
    f = lambda v, s=2: v * s  # noqa: E731
    return f(a), f(a, s=3)


def positional(a, b, /, c, *, d):
    return a + b * c - d


@program(lambda: (x(),), graphs=1)
def all_kinds_of_parameters(a):
    return positional(a, 2, 3, d=4) + positional(a, 2, c=a, d=1)


@program(lambda: (x(), 3, 2.5, True, "s", None), graphs=1)
def constants_as_arguments(a, i, f, b, s, n):
    if b and n is None and s == "s":
        return a * i + f
    return a


@program(lambda: (x(), [1, 2, 3], (4, 5), {"a": 6}), graphs=1)
def containers_as_arguments(a, items, pair, table):
    return a * items[1] + pair[0] + table["a"]


@program(lambda: ([x(), x()], {"w": x(), "b": [x()]}), graphs=1)
def tensors_in_containers(items, table):
    return items[0] + items[1] * table["w"] + table["b"][0]


@program(lambda: (x(),), graphs=1)
def many_operators(a):
    return (-a) ** 2 / 3 - a // 2 + a % 2 + abs(a) + (a > 0) * 1 + (~(a > 0)) + (a @ a.T).sum()


@program(lambda: (x(),), graphs=1)
def inplace_on_new(a):
    b = a.clone()
    b += 1
    b *= 2
    b.sub_(3)
    return b


@program(lambda: (x(),), graphs=1)
def inplace_on_input(a):
    a += 1
    a.mul_(2)
    return a


@program(lambda: (x(),), graphs=1)
def index_and_assign(a):
    b = a.clone()
    b[0] = 1
    b[:, 1] = b[:, 2]
    b[b > 0] = 0
    return b, b[..., 1], b[1:2, ::2], b[None]


@program(lambda: (x(),), graphs=1)
def shapes(a):
    n, m = a.shape
    return a.reshape(m, n) * a.size(0) + a.dim() + len(a) + a.numel(), a.shape, a.size()


@program(lambda: (x(),), graphs=1)
def facts(a):
    return (a + 1, a.dtype, a.device, a.requires_grad, a.is_leaf, a.ndim, a.is_floating_point(),
            torch.is_tensor(a), a.stride(), a.is_contiguous(), a.element_size(), a.T.shape)  # fmt: skip


@program(lambda: (x(),), graphs=1)
def creates(a):
    return torch.zeros(3, 4) + torch.ones_like(a) + torch.arange(4) + torch.tensor([1.0, 2, 3, 4])


@program(lambda: (x(),), graphs=1)
def draws(a):
    return a + torch.rand(3, 4) + torch.randn_like(a) + torch.nn.functional.dropout(a, 0.5, True)


@program(lambda: (x(),), graphs=1)
def splits(a):
    u, v = a.split(2, dim=1)
    p, q, r = a.unbind(0)
    return u * v, p + q, r, torch.chunk(a, 2)[0], a.max(dim=1).values, a.sort(1)


@program(lambda: (x(),), graphs=1)
def joins(a):
    return torch.cat([a, a + 1], dim=0), torch.stack((a, a)), torch.einsum("ij,kj->ik", a, a)


@program(lambda: (x(), x()), graphs=1)
def same_object_twice(a, b):
    return a + b, a is b, a is not b


def _twice():
    a = x()
    return a, a


@program(_twice, graphs=1)
def aliases(a, b):
    a.add_(1)
    return a * b, a is b


@program(lambda: (x(),), graphs=1)
def conversions(a):
    return a.to(torch.float64), a.double().float(), a.int(), a.bool(), a.type_as(a), a.half()


@program(lambda: (grad(),), graphs=1)
def detaches(a):
    b = a.detach()
    return (a * b).sum(), b.requires_grad, (a * 2).requires_grad, (a * 2).is_leaf


@program(lambda: (grad(),), graphs=1)
def views_of_inputs(a):
    return a.view(4, 3), a[0], a.T, a.expand(2, 3, 4)
