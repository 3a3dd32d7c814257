"""no_grad, enable_grad, inference mode, anomaly mode, and the version counter."""

from __future__ import annotations

from typing import Any


def _leaf(t: Any, *values: float) -> Any:
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def no_grad(t: Any, say: Any) -> None:
    x = _leaf(t)
    with t.no_grad():
        y = x * 2
        say(t.is_grad_enabled(), y.requires_grad, y.is_leaf)
        with t.enable_grad():
            z = x * 2
            say(z.requires_grad)
        x.add_(1)
    say(x, x.requires_grad, x._version, t.is_grad_enabled())

    @t.no_grad()
    def f(v: Any) -> Any:
        return v * 2

    @t.no_grad
    def g(v: Any) -> Any:
        return v * 3

    say(f(x).requires_grad, f.__name__, g(x).requires_grad)

    @t.no_grad()
    def numbers(v: Any) -> Any:
        for i in range(3):
            got = yield (v * i).requires_grad
            say("sent", got)

    for value in numbers(x):
        say(value, t.is_grad_enabled())
    it = numbers(x)
    say(next(it), it.send(5))
    it.close()


def set_grad_enabled(t: Any, say: Any) -> None:
    x = _leaf(t)
    for flag in (False, True):
        with t.set_grad_enabled(flag):
            say((x * 2).requires_grad)
    t.set_grad_enabled(False)
    say((x * 2).requires_grad)
    t.set_grad_enabled(True)

    @t.set_grad_enabled(False)
    def f(v: Any) -> Any:
        return v * 2

    say(t.is_grad_enabled(), f(x).requires_grad)
    try:
        with t.no_grad():
            raise ValueError
    except ValueError:
        say(t.is_grad_enabled())


def leaf_in_no_grad(t: Any, say: Any) -> None:
    with t.no_grad():
        w = t.ones(3, requires_grad=True)
        v = w.view(3, 1)
        say(w.requires_grad, v.requires_grad, v.is_leaf)
        p = t.nn.Parameter(w * 2)
        say(p.requires_grad)
    (w * 2).sum().backward()
    say(w.grad)


def inference_mode(t: Any, say: Any) -> None:
    x = _leaf(t)
    with t.inference_mode():
        y = x * 2
        say(y.requires_grad, y.is_inference(), t.is_inference_mode_enabled(), t.is_grad_enabled())
        say.error(lambda: y._version)
        y.add_(1)
        v = x.view(3, 1)
        say(v.is_inference(), v.requires_grad, x[0].is_inference())
        with t.inference_mode(False):
            say((x * 2).requires_grad)
        with t.enable_grad():
            say((x * 2).requires_grad, (x * 2).is_inference())
    say.error(lambda: y.add_(1))
    say.error(lambda: (x * y).sum().backward())
    say((y * 2).is_inference(), (y + 1).requires_grad)
    say.error(lambda: y.requires_grad_())
    z = y.clone()
    say(z.is_inference(), (z * x).requires_grad)
    say(y.view(3, 1).is_inference())
    say.error(lambda: x.clone().mul_(y).sum().backward())
    say.error(lambda: y.backward())
    say(y.detach().is_inference(), t.ones(3).is_inference())


def inference_views(t: Any, say: Any) -> None:
    x = _leaf(t)
    base = x * 1
    with t.inference_mode():
        v = base[:2]
        say(v.is_inference(), v.requires_grad)
        v.mul_(2)
    say(base, base._version)
    say.error(lambda: v.mul_(2))
    base.sum().backward()
    say(x.grad)

    @t.inference_mode()
    def f(v: Any) -> Any:
        return v * 2

    @t.inference_mode
    def g(v: Any) -> Any:
        return v * 2

    say(f(x).is_inference(), g(x).is_inference())


def in_place_on_leaves(t: Any, say: Any) -> None:
    x = _leaf(t)
    for f in (
        lambda: x.add_(1),
        lambda: x[0].mul_(2),
        lambda: x.__setitem__(0, 1.0),
        lambda: x.zero_(),
        lambda: x.view(3, 1).add_(1),
        lambda: x.copy_(t.zeros(3)),
        lambda: x.t_(),
        lambda: x.resize_(2),
        lambda: x.unsqueeze_(0),
        lambda: x.uniform_(),
        lambda: x.requires_grad_(False).add_(1),
        lambda: t.add(x, 1, out=t.ones(3, requires_grad=True)),
        lambda: x.set_(t.ones(2)),
        lambda: t.nn.init.ones_(x),
        lambda: x.data.add_(1),
    ):
        x.requires_grad_()
        say.error(f)
    say(x)


def version_counter(t: Any, say: Any) -> None:
    x = t.ones(3)
    v = x[1:]
    say(x._version, v._version)
    x.add_(1)
    say(x._version, v._version, x.detach()._version, x.data._version)
    v.mul_(2)
    say(x._version, v._version)
    x.data.add_(1)
    say(x._version)
    x.detach().add_(1)
    say(x._version)
    x.numpy()[0] = 5
    say(x._version, x)
    x[0] = 3.0
    say(x._version)
    with t.no_grad():
        x.add_(1)
    say(x._version)
    x.set_(t.zeros(2))
    say(x._version)
    with t.autograd._unsafe_preserve_version_counter(x):
        x.add_(1)
    say(x._version)
    y = t.ones(3)
    t.add(y, 1, out=y)
    say(y._version)
    y.copy_(t.zeros(3))
    y.resize_(2)
    y.t_()
    say(y._version)


def version_errors(t: Any, say: Any) -> None:
    x = _leaf(t)
    a = x * 2
    b = a * a
    a.add_(1)
    say.error(b.sum().backward)
    a = x * 2
    b = a.exp()
    b.mul_(2)
    say.error(b.sum().backward)
    a = x * 2
    b = a + 1
    a.add_(1)
    b.sum().backward()
    say(x.grad)
    w = t.ones(3)
    b = x * w
    w.zero_()
    say.error(b.sum().backward)
    m = t.ones(3, 3, requires_grad=True)
    y = m @ m
    with t.no_grad():
        m.add_(1)
    say.error(y.sum().backward)
    a = x * 2
    v = a[:2]
    c = v * v
    a.mul_(2)
    say.error(c.sum().backward)
    i = t.tensor([0, 1])
    s = (x * 2)[i]
    i.add_(1)
    say.error(s.sum().backward)
    r = (x * 2).relu_()
    r.sum().backward()
    say(x.grad)
    d = x * 2
    e = d.sigmoid()
    e.detach().add_(1)
    say.error(e.sum().backward)
    e = (x * 2).sigmoid()
    e.data.add_(1)
    e.sum().backward()
    say(x.grad)


def anomaly(t: Any, say: Any) -> None:
    x = t.tensor([0.0, 1.0], requires_grad=True)
    with t.autograd.detect_anomaly():
        y = x.sqrt() * 0
        say.warned(lambda: say.error(y.sum().backward))
    with t.autograd.set_detect_anomaly(True, check_nan=False):
        y = x.sqrt() * 0
        y.sum().backward()
        say(x.grad, t.is_anomaly_enabled(), t.is_anomaly_check_nan_enabled())
    say(t.is_anomaly_enabled())
    with t.autograd.set_detect_anomaly(True):
        a = x * 2
        b = a.exp()
        b.mul_(2)
        say.warned(lambda: say.error(b.sum().backward))


def anomaly_in_double_backward(t: Any, say: Any) -> None:
    x = t.tensor([0.0, 1.0], requires_grad=True)
    with t.autograd.set_detect_anomaly(True):
        y = (x**1.5).sum()
        (g,) = t.autograd.grad(y, x, create_graph=True)
        say.warned(lambda: say.error(lambda: t.autograd.grad((g * g.sqrt()).sum(), x)))
    z = (x.sqrt() * 0).sum()
    with t.autograd.set_detect_anomaly(True):
        say.warned(lambda: say.error(z.backward))


def grad_mode_in_backward(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * x
    y.register_hook(lambda g: say(t.is_grad_enabled(), g.requires_grad))
    with t.no_grad():
        say(y.sum().requires_grad)
    with t.no_grad():
        say.error(lambda: (y * 2).sum().backward())
    z = y.sum()
    with t.no_grad():
        z.backward()
        say(x.grad)
    (g,) = t.autograd.grad((x * x).sum(), x, create_graph=False)
    say(g.requires_grad)
    with t.no_grad():
        q = None
        with t.enable_grad():
            q = (x**3).sum()
        (g,) = t.autograd.grad(q, x, create_graph=True)
        say(g.requires_grad, t.is_grad_enabled())


def detach(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * 2
    d = y.detach()
    say(d.requires_grad, d.is_leaf, d._is_view(), d.data_ptr() == y.data_ptr())
    d.add_(1)
    say(y, y._version, d._version)
    z = y.data
    z.add_(1)
    say(y._version, z._version)
    y.data = t.zeros(3)
    say(y)
    x.data = t.tensor([5.0, 6.0])
    say(x, x.shape, x.requires_grad)
    w = _leaf(t)
    q = (w * w).detach() * w
    q.sum().backward()
    say(w.grad)
    say.error(lambda: setattr(x, "data", 3))


def modes_and_modules(t: Any, say: Any) -> None:
    m = t.nn.Linear(2, 1)
    m.requires_grad_(False)
    say([p.requires_grad for p in m.parameters()], m(t.ones(1, 2)).requires_grad)
    m.requires_grad_(True)
    m(t.ones(1, 2)).sum().backward()
    say([p.grad is None for p in m.parameters()])
    m.zero_grad()
    say([p.grad is None for p in m.parameters()])
    m(t.ones(1, 2)).sum().backward()
    m.zero_grad(set_to_none=False)
    say([p.grad for p in m.parameters()])
