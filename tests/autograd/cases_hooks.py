"""Hooks: of tensors, of leaves after accumulation, of nodes, of several tensors, of modules."""

from __future__ import annotations

import gc
import weakref
from typing import Any


def _leaf(t: Any, *values: float) -> Any:
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def tensor_hooks(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * 2
    y.register_hook(lambda g: say("y", g))
    handle = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: say("y again", g))
    x.register_hook(lambda g: say("x", g))
    x.register_hook(lambda g: g + 1)
    y.sum().backward(retain_graph=True)
    say(x.grad)
    handle.remove()
    y.sum().backward()
    say(x.grad)


def tensor_hook_errors(t: Any, say: Any) -> None:
    x = _leaf(t)
    say.error(lambda: t.ones(3).register_hook(print))
    for bad in (lambda g: 3, lambda g: t.ones(2), lambda g: g.double()):
        y = x * 2
        y.register_hook(bad)
        say.error(y.sum().backward)
    y = x * 2

    def raises(g: Any) -> None:
        raise ValueError("from a hook")

    y.register_hook(raises)
    say.error(y.sum().backward)


def hooks_on_leaves_see_the_sum(t: Any, say: Any) -> None:
    x = _leaf(t)
    x.register_hook(lambda g: say("sum", g))
    (x * 2 + x * 3).sum().backward()
    a, b = x * 2, x * 3
    t.autograd.grad((a + b).sum(), x)
    x.grad = None
    (x * 5).sum().backward()
    say(x.grad)


def hooks_and_grad(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * 2
    y.register_hook(lambda g: g * 100)
    z = y * 3
    say(t.autograd.grad(z.sum(), y, retain_graph=True))
    say(t.autograd.grad(z.sum(), [x, y], retain_graph=True))
    x.register_hook(lambda g: -g)
    say(t.autograd.grad(z.sum(), x))


def hooks_after_in_place(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * 2
    y.register_hook(lambda g: say("before", g))
    y.mul_(3)
    y.register_hook(lambda g: say("after", g))
    y.sum().backward()
    say(x.grad)


def retain_grad(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * 2
    say(y.retains_grad, x.retains_grad)
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    z = y * 3
    z.retain_grad()
    z.sum().backward(retain_graph=True)
    say(y.grad, z.grad, x.grad, y.retains_grad)
    z.sum().backward()
    say(y.grad, z.grad, x.grad)
    say.error(lambda: t.ones(3).retain_grad())
    x.retain_grad()
    w = x * 2
    w.retain_grad()
    w.mul_(5)
    w.sum().backward()
    say(w.grad, x.grad)


def retain_grad_then_in_place(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x.clone()
    y.retain_grad()
    v = y[:2]
    v.mul_(3)
    (y * t.tensor([1.0, 10.0, 100.0])).sum().backward()
    say(y.grad, x.grad)


def post_accumulate(t: Any, say: Any) -> None:
    x = _leaf(t)
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    say(seen)
    handle.remove()

    def step(p: Any) -> None:
        with t.no_grad():
            p.sub_(p.grad)
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * 3).sum().backward()
    say(x, x.grad)
    say.error(lambda: (x * 2).register_post_accumulate_grad_hook(step))
    say.error(lambda: t.ones(3).register_post_accumulate_grad_hook(step))
    t.autograd.grad((x * 2).sum(), x)
    say(x)
    (x * 2).sum().backward(inputs=[x])
    say(x)


def node_hooks(t: Any, say: Any) -> None:
    x, w = _leaf(t), _leaf(t, 4.0, 5.0, 6.0)
    y = x * w
    y.grad_fn.register_hook(lambda gi, go: say("post", gi, go))
    y.grad_fn.register_prehook(lambda go: say("pre", go))
    y.sum().backward(retain_graph=True)
    handle = y.grad_fn.register_hook(lambda gi, go: (gi[0] * 2, gi[1] * 3))
    y.sum().backward(retain_graph=True)
    say(x.grad, w.grad)
    handle.remove()
    y.grad_fn.register_prehook(lambda go: (go[0] * 100,))
    y.sum().backward()
    say(x.grad, w.grad)


def node_hook_errors(t: Any, say: Any) -> None:
    x = _leaf(t)
    for hook in (
        lambda gi, go: gi[0],
        lambda gi, go: (gi[0], gi[0], gi[0]),
        lambda gi, go: (3, None),
        lambda gi, go: (t.ones(2), None),
        lambda gi, go: (None, None),
    ):
        y = x * 2
        y.grad_fn.register_hook(hook)
        say.error(y.sum().backward)
        say(x.grad)


def node_hooks_of_leaves(t: Any, say: Any) -> None:
    x = _leaf(t)
    node = x.view_as(x).grad_fn.next_functions[0][0]
    say(node.name(), node.variable is x)
    node.register_hook(lambda gi, go: say("post", gi, go, x.grad))
    node.register_prehook(lambda go: (go[0] * 7,))
    (x * 2).sum().backward()
    say(x.grad)
    say(t.autograd.grad((x * 2).sum(), x))


def order_of_hooks(t: Any, say: Any) -> None:
    x = _leaf(t, 1.0)
    y = x * 2
    order: list[str] = []
    y.register_hook(lambda g: order.append("tensor y"))
    y.grad_fn.register_prehook(lambda g: order.append("pre y"))
    y.retain_grad()
    y.register_hook(lambda g: order.append("tensor y 2"))
    y.grad_fn.register_hook(lambda gi, go: order.append("post y"))
    x.register_hook(lambda g: order.append("tensor x"))
    node = y.grad_fn.next_functions[0][0]
    node.register_prehook(lambda g: order.append("pre x"))
    node.register_hook(lambda gi, go: order.append("post x"))
    x.register_post_accumulate_grad_hook(lambda p: order.append("accumulated x"))
    y.sum().backward()
    say(order)


def multi_grad_hooks(t: Any, say: Any) -> None:
    register = t.autograd.graph.register_multi_grad_hook
    a, b, c, d = (_leaf(t, float(i)) for i in range(4))
    handle = register((a, b, c, d), lambda gs: say("all", gs))
    (a * b * c).sum().backward()
    (a * 2 + d).sum().backward()
    handle.remove()
    (a * b).sum().backward()
    handle = register((a, b), lambda g: say("any", g), mode="any")
    (a * b).sum().backward()
    (b * 2).sum().backward()
    handle.remove()
    x = a * 2
    y = b * 3
    register((x, y), lambda gs: say("inner", gs))
    (x * y).sum().backward()
    say.error(lambda: register((a, b), print, mode="some"))


def handles(t: Any, say: Any) -> None:
    x = _leaf(t)
    h = x.register_hook(lambda g: g * 2)
    with h:
        (x * 1).sum().backward()
    (x * 1).sum().backward()
    say(x.grad)
    h.remove()
    a = x.register_hook(lambda g: say("a"))
    b = x.register_hook(lambda g: say("b"))
    say(b.id > a.id)
    x.sum().backward()


def hooks_may_change_hooks(t: Any, say: Any) -> None:
    x = _leaf(t)
    handles: list[Any] = []

    def once(g: Any) -> Any:
        say("once", g)
        handles[0].remove()
        return g * 2

    handles.append(x.register_hook(once))
    x.sum().backward()
    x.sum().backward()
    say(x.grad)


def hook_runs_backward(t: Any, say: Any) -> None:
    x = _leaf(t)
    other = _leaf(t)

    def hook(g: Any) -> None:
        with t.enable_grad():
            (other * g).sum().backward()

    x.register_hook(hook)
    (x * 3).sum().backward()
    say(other.grad, x.grad)


def hooks_and_create_graph(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * x
    y.register_hook(lambda g: say("grad mode", t.is_grad_enabled(), g.requires_grad))
    t.autograd.grad(y.sum(), x, retain_graph=True)
    t.autograd.grad((y * y).sum(), x, create_graph=True)
    y.register_hook(lambda g: g * x)
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    say(g, t.autograd.grad(g.sum(), x))


def hooks_live_with_the_graph(t: Any, say: Any) -> None:
    class Token:
        pass

    token = Token()
    ref = weakref.ref(token)
    x = _leaf(t)
    y = x * 2
    y.register_hook(lambda g, token=token: None)
    del token
    say(ref() is None)
    z = y.sum()
    del y
    say(ref() is None)
    z.backward()
    del z
    gc.collect()
    say(ref() is None)


def metadata(t: Any, say: Any) -> None:
    y = _leaf(t) * 2
    y.grad_fn.metadata["mine"] = 3
    say(y.grad_fn.metadata, (y + 1).grad_fn.next_functions[0][0].metadata["mine"])


def module_forward_hooks(t: Any, say: Any) -> None:
    m = t.nn.Linear(2, 2, bias=False)
    with t.no_grad():
        m.weight.copy_(t.tensor([[1.0, 2.0], [3.0, 4.0]]))
    m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    m.register_forward_hook(lambda mod, args, out: out + 1)
    h = m.register_forward_hook(
        lambda mod, args, kwargs, out: say("kwargs", kwargs), with_kwargs=True, prepend=True
    )
    say(m(t.ones(1, 2)))
    h.remove()
    m.register_forward_pre_hook(lambda mod, a, k: ((a[0] + 1,), k), with_kwargs=True, prepend=True)
    say(m(t.ones(1, 2)))

    def broken(mod: Any, args: Any) -> None:
        raise RuntimeError("pre")

    m.register_forward_pre_hook(broken)
    m.register_forward_hook(lambda mod, args, out: say("always", out), always_call=True)
    say.error(lambda: m(t.ones(1, 2)))


def module_backward_hooks(t: Any, say: Any) -> None:
    m = t.nn.Linear(2, 2)
    with t.no_grad():
        m.weight.copy_(t.tensor([[1.0, 2.0], [3.0, 4.0]]))
        m.bias.zero_()
    m.register_full_backward_pre_hook(lambda mod, go: say("pre", go))
    m.register_full_backward_hook(lambda mod, gi, go: say("full", gi, go))
    x = t.ones(1, 2, requires_grad=True)
    m(x).sum().backward()
    m(t.ones(1, 2)).sum().backward()
    h = m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,))
    p = m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    x.grad = None
    m(x).sum().backward()
    say(x.grad, m.weight.grad)
    h.remove()
    p.remove()
    with t.no_grad():
        m(x)
    say.error(lambda: m(x).add_(1))


def module_backward_hook_errors(t: Any, say: Any) -> None:
    m = t.nn.Identity()
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0], gi[0]))
    say.error(lambda: m(_leaf(t) * 1).sum().backward())
    m = t.nn.Identity()
    m.register_full_backward_pre_hook(lambda mod, go: 3)
    say.error(lambda: m(_leaf(t) * 1).sum().backward())
    m = t.nn.Identity()
    m.register_full_backward_hook(lambda mod, gi, go: None)
    say.error(lambda: m.register_backward_hook(lambda mod, gi, go: None))


def module_with_several_outputs(t: Any, say: Any) -> None:
    class Two(t.nn.Module):
        def forward(self, x: Any, y: Any, flag: Any = None) -> Any:
            return x * y, x + y

    m = Two()
    m.register_full_backward_hook(lambda mod, gi, go: say(gi, go))
    x, y = _leaf(t), _leaf(t, 4.0, 5.0, 6.0)
    a, b = m(x, y)
    a.sum().backward()
    a, b = m(x, y.detach())
    (a + b).sum().backward()
    say(type(a.grad_fn).__name__, x.grad, y.grad)


def global_module_hooks(t: Any, say: Any) -> None:
    module = t.nn.modules.module
    m = t.nn.Identity()
    handles = [
        module.register_module_forward_pre_hook(lambda mod, a: say("pre", a)),
        module.register_module_forward_hook(lambda mod, a, o: say("forward", o)),
        module.register_module_full_backward_hook(lambda mod, gi, go: say("backward", gi, go)),
        module.register_module_full_backward_pre_hook(lambda mod, go: say("backward pre", go)),
    ]
    m(_leaf(t)).sum().backward()
    for h in handles:
        h.remove()
    m(_leaf(t)).sum().backward()
