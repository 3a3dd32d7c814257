"""Saved tensors: hooks that pack them, save_on_cpu, what nodes show of them, memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any


def _leaf(t: Any, *values: float) -> Any:
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def pack_and_unpack(t: Any, say: Any) -> None:
    x = _leaf(t)
    order: list[Any] = []

    def pack(v: Any) -> Any:
        order.append(["pack", v.tolist(), v.requires_grad])
        return v * 1

    def unpack(v: Any) -> Any:
        order.append(["unpack", v.tolist()])
        return v

    with t.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).exp() * 3
    z = y.sum()
    z.backward(retain_graph=True)
    z.backward()
    say(order, x.grad)


def hooks_nest(t: Any, say: Any) -> None:
    x = _leaf(t)
    hooks = t.autograd.graph.saved_tensors_hooks
    with hooks(lambda v: v * 2, lambda v: v / 2):
        with hooks(lambda v: (say("inner", v), v)[1], lambda v: v):
            y = x.exp()
        z = x.exp()
    (y + z).sum().backward()
    say(x.grad)


def hooks_may_pack_anything(t: Any, say: Any) -> None:
    x = _leaf(t)
    box: dict[int, Any] = {}

    def pack(v: Any) -> Any:
        box[len(box)] = v.detach().clone()
        return len(box) - 1

    with t.autograd.graph.saved_tensors_hooks(pack, lambda k: box[k]):
        y = x**3
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    say(g, len(box))
    say(t.autograd.grad(g.sum(), x))


def errors_of_hooks(t: Any, say: Any) -> None:
    x = _leaf(t)
    hooks = t.autograd.graph.saved_tensors_hooks

    def fails(v: Any) -> Any:
        raise ValueError("mine")

    with hooks(fails, lambda v: v):
        say.error(lambda: x * x)
    with hooks(lambda v: v, fails):
        y = x * x
    say.error(y.sum().backward)
    with hooks(lambda v: v, lambda v: 3):
        y = x * x
    say.error(y.sum().backward)
    with hooks(lambda v: v.add_(1), lambda v: v):
        say.error(lambda: (x * 1) * (x * 1))
    say.error(lambda: hooks(1, 2).__enter__() and x * x)


def disabled_hooks(t: Any, say: Any) -> None:
    x = _leaf(t)
    graph = t.autograd.graph
    with graph.disable_saved_tensors_hooks("not here"):
        say.error(lambda: graph.saved_tensors_hooks(lambda v: v, lambda v: v).__enter__())
        (x * x).sum().backward()
    with graph.saved_tensors_hooks(lambda v: v, lambda v: v):
        (x * x).sum().backward()
    say(x.grad)


def save_on_cpu(t: Any, say: Any) -> None:
    x = _leaf(t)
    with t.autograd.graph.save_on_cpu():
        y = (x * x).sin()
    y.sum().backward()
    say(x.grad)


def hooks_by_hand(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * x
    node = y.grad_fn
    node._raw_saved_self.register_hooks(lambda v: v * 10, lambda v: v)
    y.sum().backward()
    say(x.grad)
    say.error(lambda: node._raw_saved_self.register_hooks(lambda v: v, lambda v: v))
    y = x.exp()
    raw = y.grad_fn._raw_saved_result
    raw.register_hooks(lambda v: v + 1, lambda v: v)
    say.error(lambda: raw.register_hooks(lambda v: v, lambda v: v))
    y.sum().backward()
    say(x.grad)


def saved_attributes(t: Any, say: Any) -> None:
    x, w = _leaf(t), t.ones(3)
    y = x * w
    say(y.grad_fn._saved_self, y.grad_fn._saved_other)
    y = (x * 1).exp()
    say(y.grad_fn._saved_result, y.grad_fn._saved_result.grad_fn is y.grad_fn)
    y.sum().backward()
    say.error(lambda: y.grad_fn._saved_result)
    s = x.sum(0)
    say(x.softmax(0).grad_fn._saved_dim, s.grad_fn.name())
    say.error(lambda: x.exp().grad_fn._saved_nothing)
    p = x**2
    say(p.grad_fn._saved_exponent, p.grad_fn._saved_self is x)
    say(x[1:].grad_fn._saved_start)
    say((x * 2).grad_fn._saved_other if False else x.clamp(0, 1).grad_fn._saved_min)


def what_is_saved(t: Any, say: Any) -> None:
    x, m = _leaf(t), t.ones(3, 3, requires_grad=True)
    functional = t.nn.functional
    for name, f in (
        ("add", lambda: x + x),
        ("mul", lambda: x * x),
        ("mul plain", lambda: x * x.detach()),
        ("exp", lambda: x.exp()),
        ("sum", lambda: x.sum()),
        ("relu", lambda: x.relu()),
        ("matmul", lambda: m @ m),
        ("mv", lambda: m @ x),
        ("scale", lambda: x * 2),
        ("pow", lambda: x**2),
        ("div", lambda: x / x),
        ("tanh", lambda: x.tanh()),
        ("log", lambda: x.log()),
        ("softmax", lambda: x.softmax(0)),
        ("cat", lambda: t.cat([x, x])),
        ("index", lambda: x[t.tensor([0])]),
        ("where", lambda: t.where(x > 0, x, x)),
        ("linear", lambda: functional.linear(x[None], m)),
        ("layer_norm", lambda: functional.layer_norm(x, (3,))),
        ("max", lambda: x.max()),
        ("view", lambda: x.view(3, 1)),
        ("sort", lambda: x.sort()[0]),
        ("gelu", lambda: functional.gelu(x)),
        ("dropout", lambda: functional.dropout(x, 0.5)),
        ("abs", lambda: x.abs()),
        ("mean", lambda: x.mean()),
        ("norm", lambda: x.norm()),
        ("sigmoid", lambda: x.sigmoid()),
        ("conv", lambda: functional.conv1d(x[None, None], x[None, None])),
        ("addmm", lambda: t.addmm(m, m, m)),
        ("cross_entropy", lambda: functional.cross_entropy(m, t.tensor([0, 1, 2]))),
        ("sqrt", lambda: x.sqrt()),
        ("embedding", lambda: functional.embedding(t.tensor([0]), m)),
        ("cumsum", lambda: x.cumsum(0)),
        ("std", lambda: x.std()),
        ("atan2", lambda: t.atan2(x, x)),
        ("silu", lambda: functional.silu(x)),
        ("clamp", lambda: x.clamp(0, 1)),
        ("bmm", lambda: t.bmm(m[None], m[None])),
        ("sin", lambda: x.sin()),
    ):
        saved: list[Any] = []
        with t.autograd.graph.saved_tensors_hooks(
            lambda v, saved=saved: (saved.append([list(v.shape), str(v.dtype)]), v)[1], lambda v: v
        ):
            f()
        say(name, sorted(saved))


def memory_is_freed(t: Any, say: Any) -> None:
    x = _leaf(t)
    gc.collect()
    gc.disable()
    try:
        a = x * 2
        b = a.exp()
        c = b.sum()
        refs = [weakref.ref(v) for v in (a, b, c)]
        del a, b
        say([r() is None for r in refs])
        c.backward()
        del c
        say([r() is None for r in refs])
        a = x * 2
        (g,) = t.autograd.grad((a * a).sum(), x, create_graph=True)
        refs = [weakref.ref(a), weakref.ref(g)]
        del a, g
        say([r() is None for r in refs])
        y = x.clone()
        v = y[0]
        v.mul_(2)
        refs = [weakref.ref(y), weakref.ref(v)]
        del y, v
        say([r() is None for r in refs])
        y = (x * 2).sigmoid()
        with t.no_grad():
            r = weakref.ref(y)
        y.backward(t.ones(3))
        del y
        say(r() is None)
        h = x * 2
        h.register_hook(lambda g: g)
        h.retain_grad()
        r = weakref.ref(h)
        h.sum().backward()
        del h
        say(r() is None)
    finally:
        gc.enable()


def values_are_released(t: Any, say: Any) -> None:
    x = _leaf(t)
    a = x * 2
    b = a * a
    r = weakref.ref(a)
    c = b.sum()
    del a
    say(r() is None)
    c.backward()
    say(r() is None, b.grad_fn is not None)


def deep_graphs(t: Any, say: Any) -> None:
    x = t.ones((), requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1e-6
    y.backward()
    say(x.grad)
    z = x
    for _ in range(5000):
        z = z * 1.0
    del z
    w = t.ones(2, requires_grad=True)
    v = w * 1
    for _ in range(300):
        v[0].mul_(1.0)
    v.sum().backward()
    say(w.grad)
