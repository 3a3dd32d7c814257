"""What is outside of the program: NumPy, random numbers, time, files, buffers."""

from __future__ import annotations

import logging
import os
import random
import time
import types
import warnings
import weakref

import numpy as np

import flambeau as torch
from flambeau import nn
from tests.capture.comparing import program

TABLE = np.arange(12.0).reshape(3, 4)


def x():
    return torch.arange(12.0).reshape(3, 4)


@program(lambda: (x(), np.ones((3, 4), np.float32)), breaks=None)
def from_numpy(a, n):
    return a + torch.from_numpy(n)


@program(lambda: (x(), np.ones((3, 4), np.float32)), breaks=None)
def tensor_of_array(a, n):
    return a + torch.tensor(n) + torch.as_tensor(n)


@program(lambda: (x(), np.ones((3, 4))), breaks=None)
def array_functions(a, n):
    m = np.sin(n) + n.mean(axis=0)
    return a * torch.from_numpy(m)


@program(lambda: (x(),), breaks=None)
def global_array(a):
    return a + torch.from_numpy(TABLE)


@program(lambda: (x(),), breaks=None)
def through_numpy(a):
    n = a.numpy()
    m = np.maximum(n, 2) * 3
    return torch.from_numpy(m) + a


@program(lambda: (x(), np.zeros(4)), breaks=None)
def array_changed(a, n):
    n[1] = 5
    n += 1
    return a + torch.from_numpy(n)


@program(lambda: (x(), np.arange(3)), breaks=None)
def array_attributes(a, n):
    if n.ndim == 1 and n.shape[0] == 3 and n.dtype == np.int64:
        a = a * n.size
    return a


@program(lambda: (x(), np.float32(2.5), np.int64(3)), breaks=None)
def numpy_scalars(a, f, n):
    return a * f + n


@program(lambda: (x(),), breaks=None)
def seeded_random(a):
    random.seed(3)
    return a * random.random() + random.randint(1, 5)


@program(lambda: (x(),), breaks=None)
def own_generator(a):
    r = random.Random(5)
    return a + r.choice([1, 2, 3]) * r.uniform(0, 1)


@program(lambda: (x(),), breaks=None)
def times_passes(a):
    start = time.perf_counter()
    b = a * 2
    return b, time.perf_counter() >= start


@program(lambda: (x(),), breaks=None)
def environment(a):
    if os.environ.get("FLAMBEAU_NO_SUCH_VARIABLE") is None:
        a = a + 1
    return a, os.path.join("p", "q"), os.path.splitext("a.b")[1]


logger = logging.getLogger("flambeau.tests.programs")


@program(lambda: (x(),), breaks=None)
def logs(a):
    logger.debug("not shown %s", a.shape)
    return a + 1


@program(lambda: (x(),), breaks=None)
def warns(a):
    warnings.warn("careful", stacklevel=2)
    return a + 1


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.history = []

    def forward(self, a):
        self.steps += 1
        self.mean.mul_(0.5).add_(a.mean(0), alpha=0.5)
        self.history.append(int(a.shape[0]))
        return a - self.mean


@program(lambda: (x(), Buffered()), graphs=1)
def buffers_in_place(a, m):
    return m(m(a))


@program(lambda: (x(), x()), graphs=1)
def inputs_in_place(a, b):
    a.add_(1)
    a[0].mul_(2)
    v = a.view(-1)
    v[1:3] = 0
    b.copy_(a * 2)
    a.t().sub_(1)
    return v.sum() + b


@program(lambda: (torch.zeros(4),), graphs=1)
def resized_views(a):
    b = a[1:3]
    b.fill_(3)
    c = a.unsqueeze(0)
    c += 1
    return a, b, c.squeeze(0)


@program(lambda: (x(),), graphs=1)
def resized_within_its_bytes(a):
    b = a * 2
    whole = b.view(-1)
    b.resize_(2, 3).add_(1)
    c = torch.resize_as_(a.t().clone(), torch.empty(12))
    d = (a + 1).resize_((3, 4))
    e = a.exp().resize_(1, 2, 2, 3, memory_format=torch.channels_last)
    return b, whole, c, d, e, (b.stride(), c.stride(), e.stride(), d.is_contiguous())


@program(lambda: (x().requires_grad_(),), graphs=None, breaks=None)
def resized_with_a_gradient(a):
    try:
        (a * 2).resize_(2, 6)
    except RuntimeError as e:
        return a.sin(), str(e)


@program(lambda: (x(),), graphs=None, breaks=None)
def resized_to_what_cannot_be(a):
    said = []
    for size, order in (
        ((3, 4), torch.preserve_format),
        ((3, 4), torch.channels_last),
        ((-3, 4), None),
        ("a", None),
        ((3.5,), None),
    ):
        try:
            (a * 2).resize_(size, memory_format=order)
        except (RuntimeError, TypeError) as e:
            said.append(f"{type(e).__name__}: {e}")
    last = torch.empty(1, 2, 2, 3).to(memory_format=torch.channels_last)
    b = torch.resize_as_(a + 1, last, memory_format=torch.preserve_format)
    return said, b, b.stride()


@program(lambda: (x(),), breaks=None)
def resized_beyond_its_bytes(a):
    b = a * 2
    b.resize_(20)
    b[12:] = 1
    return b


@program(lambda: (x(),), breaks=None)
def resized_from_outside(a):
    a.resize_(6)
    return a + 1


@program(lambda: (x(),), graphs=1)
def draws_random(a):
    d = torch.dropout(a, 0.5, True)
    n = torch.randn_like(a) + torch.rand(4) + torch.randint(0, 5, (4,))
    p = torch.randperm(3)
    b = torch.bernoulli(torch.full((4,), 0.5))
    e = torch.empty(4).normal_().uniform_(0, 1)
    return d + n + b + e, p


@program(lambda: (x(),))
def seeds(a):
    torch.manual_seed(5)
    return a + torch.rand(4)


@program(lambda: (x(),), breaks=None)
def generators(a):
    g = torch.Generator().manual_seed(3)
    return a + torch.rand(4, generator=g)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.cache = None

    def forward(self, v):
        if self.cache is None:
            self.cache = v.detach().clone()
        return self.a(v) + self.cache


@program(lambda: (Net(), x()), graphs=1)
def module_state(m, a):
    first = m(a)
    m.note = first.dim()
    return first + m(a * 2)


@program(lambda: (x(),), graphs=1)
def module_made_inside(a):
    m = nn.ReLU()
    return m(a - 3)


@program(lambda: (x(),), graphs=1)
def loss_made_inside(a):
    return nn.MSELoss()(a, a * 2) + nn.Flatten()(a).sum()


@program(lambda: (x(),), breaks=None)
def linear_made_inside(a):
    m = nn.Linear(4, 2)
    return m(a)


@program(lambda: (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), x()), graphs=1)
def module_questions(m, a):
    names = [n for n, _ in m.named_parameters()]
    count = sum(p.numel() for p in m.parameters())
    kinds = [type(c).__name__ for c in m.children()]
    frozen = [p.requires_grad for p in m.parameters()]
    return m(a) * count, names, kinds, len(m), frozen, isinstance(m[0], nn.Linear), m.training


class Handle:
    pass


@program(lambda: (x(), Handle()), breaks=None)
def weak_references(a, h):
    r = weakref.ref(h)
    return a + (1 if r() is h else 2)


@program(lambda: (x(),), breaks=None)
def identities(a):
    b = a
    return a + (id(a) == id(b)), a is b


@program(lambda: (x(), types.ModuleType("made")), breaks=None)
def module_objects(a, m):
    m.k = 3
    return a * m.k, torch.nn.functional.relu(a), hasattr(m, "zz")


@program(lambda: (x(),), breaks=None)
def hashes(a):
    return a + (hash("k") == hash("k")), hash(3), hash((1, 2)) == hash((1, 2))


@program(lambda: (x(),), breaks=None)
def writes_file(a):
    with open(os.devnull, "w") as f:
        f.write("text")
    return a + 1


@program(lambda: (x(),), breaks=None)
def evaluates(a):
    return a + eval("1 + 2")


@program(lambda: (x(), [1]), breaks=None)
def state_dicts(a, items):
    m = Buffered()
    m.load_state_dict({"steps": torch.ones(()), "mean": torch.ones(4)})
    return a + m.state_dict()["mean"]


@program(lambda: (torch.randn(3), torch.Generator()), graphs=1)
def device_of_a_generator(a, g):
    if g.device.type == "cpu" and g.device == a.device:
        return torch.ones(3, device=g.device) + a, g.device
    return a - 1, None
