"""In-place changes of views and of their bases, and the views that forbid them."""

from __future__ import annotations

from typing import Any


def _leaf(t: Any, *values: float) -> Any:
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def _matrix(t: Any) -> Any:
    return (t.arange(6.0).reshape(2, 3) + 1).requires_grad_()


def write_to_a_view(t: Any, say: Any) -> None:
    x = _leaf(t)
    base = x * 1
    v = base[1:]
    v.mul_(10)
    say(base, base.grad_fn.name(), v.grad_fn.name(), v._base is base)
    (base * base).sum().backward()
    say(x.grad)
    x.grad = None
    base = x * 1
    v = base[1:]
    v.mul_(x[:2])
    (v.sum() + base.sum()).backward()
    say(x.grad)


def write_to_the_base(t: Any, say: Any) -> None:
    x = _leaf(t)
    base = x * 1
    v = base[1:]
    name = v.grad_fn.name()
    base.mul_(10)
    say(name, v.grad_fn.name(), v)
    (v * v).sum().backward()
    say(x.grad)


def chains_of_views(t: Any, say: Any) -> None:
    x = _matrix(t)
    base = x * 1
    v = base.t()[1:].unsqueeze(0)
    w = base.view(-1)
    v.mul_(3)
    w[0] = 7.0
    base[1].mul_(2)
    say(base)
    (base * t.arange(6.0).reshape(2, 3)).sum().backward()
    say(x.grad)
    say(v.grad_fn.name(), w.grad_fn.name(), v._base is base, w._base is base)


def overlapping_views(t: Any, say: Any) -> None:
    x = _leaf(t, 1.0, 2.0, 3.0, 4.0)
    base = x * 1
    a, b = base[:3], base[1:]
    a.mul_(2)
    b.mul_(3)
    a.add_(b)
    (base * base).sum().backward()
    say(base, x.grad, a, b)


def setitem(t: Any, say: Any) -> None:
    x, y = _matrix(t), _leaf(t, 7.0, 8.0, 9.0)
    base = x * 1
    base[0] = y
    base[1, 1] = y[0] * 2
    base[:, 2] *= 3
    base[t.tensor([0, 1]), t.tensor([0, 0])] = y[1:]
    base[base > 100] = 0
    say(base)
    (base * base).sum().backward()
    say(x.grad, y.grad)


def write_without_recording(t: Any, say: Any) -> None:
    x = _leaf(t)
    base = x * 1
    with t.no_grad():
        v = base[1:]
        say(v.requires_grad, v.grad_fn)
        v.mul_(2)
    say(base)
    say.error(lambda: v.mul_(2))
    w = base[1:]
    with t.no_grad():
        w.mul_(2)
    base.sum().backward()
    say(x.grad)
    with t.no_grad():
        u = x[1:]
        u.add_(1)
    say(x, u.requires_grad)
    say.error(lambda: u.add_(1))
    plain = t.ones(3)
    with t.no_grad():
        p = plain[1:]
    say.error(lambda: p.mul_(x[:2]))
    p.add_(1)
    say(plain)


def several_views_at_once(t: Any, say: Any) -> None:
    x = _matrix(t)
    for make in (
        lambda b: b.unbind(),
        lambda b: b.split(1),
        lambda b: b.chunk(2),
        lambda b: t.split(b, [1, 1]),
        lambda b: b.tensor_split(2),
        lambda b: tuple(b),
        lambda b: b.unsafe_split(1),
    ):
        base = x * 1
        views = make(base)
        say.error(lambda views=views: views[0].mul_(2))
        base = x * 1
        views = make(base)
        base.mul_(2)
        say.error(lambda views=views: views[0].grad_fn)
        say.error(lambda views=views: views[0] * 2)
        base = x * 1
        with t.no_grad():
            views = make(base)
            views[0].mul_(2)
        say(base)


def views_of_several_views(t: Any, say: Any) -> None:
    x = _matrix(t)
    base = x * 1
    v = base.unbind()[0][1:]
    say.error(lambda: v.mul_(2))
    with t.no_grad():
        a = base.unbind()[0]
    say.error(lambda: a[1:].mul_(2))
    b = base[0]
    c = b.unbind()
    b.mul_(2)
    say.error(lambda: c[0] + 1)
    base.sum().backward()
    say(x.grad)


def leaf_views(t: Any, say: Any) -> None:
    x = _leaf(t)
    say.error(lambda: x[0].mul_(2))
    say.error(lambda: x.view(3, 1).mul_(2))
    say.error(lambda: x.detach().mul_(2))
    y = t.ones(3)
    v = y[1:]
    v.requires_grad_()
    say(v.is_leaf, y.requires_grad, v.requires_grad)
    (v * 2).sum().backward()
    say(v.grad)
    say.error(lambda: v.mul_(2))
    say.error(lambda: y.mul_(2))
    z = t.ones(3)
    w = z[1:]
    z.mul_(x)
    say(w.requires_grad, w.grad_fn.name(), z.grad_fn.name())
    w.sum().backward()
    say(x.grad)


def view_becomes_recorded(t: Any, say: Any) -> None:
    x = _leaf(t)
    base = t.zeros(2, 3)
    v = base[0]
    v.add_(x)
    say(base.requires_grad, base.grad_fn.name(), v.grad_fn.name(), base[1].requires_grad)
    base[1] = x * x
    (base * base).sum().backward()
    say(x.grad)


def in_place_chain(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x.clone()
    for k in range(5):
        y[k % 3].mul_(x[k % 3] + k)
    y.sum().backward()
    say(y, x.grad)


def double_backward_through_views(t: Any, say: Any) -> None:
    x = _leaf(t)
    base = x * x
    v = base[:2]
    v.mul_(x[1:])
    (g,) = t.autograd.grad((base**2).sum(), x, create_graph=True)
    say(g)
    say(t.autograd.grad(g.sum(), x))


def expanded_and_strided(t: Any, say: Any) -> None:
    x = _leaf(t)
    e = (x * 1).expand(2, 3)
    say.error(lambda: e.mul_(2))
    base = x * 1
    s = base.as_strided((2, 2), (1, 1))
    say.error(lambda: s.mul_(2))
    s = base.as_strided((2,), (2,))
    s.mul_(5)
    (base * base).sum().backward()
    say(x.grad, s.grad_fn.name())
    x.grad = None
    o = (x * 1).as_strided((2, 2), (1, 1))
    (o * t.tensor([[1.0, 10.0], [100.0, 1000.0]])).sum().backward()
    say(x.grad)
    d = (x.expand(3, 3) * 1).diagonal()
    d.mul_(4)
    say(d.grad_fn.name())
    d._base.sum().backward()
    say(x.grad)


def real_and_complex_views(t: Any, say: Any) -> None:
    x = _leaf(t, 1.0, 2.0)
    z = t.view_as_complex(t.stack([x, x * 3], -1))
    z.real.mul_(2)
    t.view_as_real(z)[..., 1].add_(1)
    say(z)
    (z * z.conj()).real.sum().backward()
    say(x.grad)
    r = (t.stack([x, x * x], -1) * 1).contiguous()
    t.view_as_complex(r).mul_(2j)
    say(r, r.grad_fn.name())
    (r * t.tensor([1.0, 10.0])).sum().backward()
    say(x.grad)
    z = t.view_as_complex(t.stack([x, x], -1)) * 1
    real = z.real
    z.mul_(1 + 1j)
    say(real)
    real.sum().backward()
    say(x.grad)


def transposed_in_place(t: Any, say: Any) -> None:
    x = _matrix(t)
    y = x * 1
    y.t_()
    say(y.shape, y.grad_fn.name())
    y.unsqueeze_(0)
    y.squeeze_(0)
    y.transpose_(0, 1)
    say(y.shape, y.grad_fn.name())
    (y * t.arange(6.0).view(2, 3)).sum().backward()
    say(x.grad)
    z = (x * 1)[0]
    z.unsqueeze_(0)
    say(z.grad_fn.name(), z._base is not None)
    z.mul_(3)
    z._base.sum().backward()
    say(x.grad)


def copy_and_fill(t: Any, say: Any) -> None:
    x, y = _leaf(t), _leaf(t, 4.0, 5.0, 6.0)
    a = x * 1
    a.copy_(y)
    a.sum().backward()
    say(x.grad, y.grad, a.grad_fn.name())
    a = x * 1
    a.fill_(3.0)
    say(a.requires_grad)
    a.sum().backward()
    say(x.grad)
    a = x * 1
    a.fill_(y[0])
    a.sum().backward()
    say(y.grad)
    a = x * 1
    a.zero_()
    a.add_(y)
    a.sum().backward()
    say(x.grad, y.grad)
    a = x * 1
    a.masked_fill_(a > 1.5, 0.0)
    a.sum().backward()
    say(x.grad)
    a = t.zeros(3, dtype=t.float64)
    a.copy_(y)
    a.sum().backward()
    say(y.grad, y.grad.dtype)
    a = x * 1
    a.normal_()
    a.sum().backward()
    say(x.grad)


def swapped_and_scattered(t: Any, say: Any) -> None:
    x = _leaf(t)
    a = x * 1
    a.scatter_(0, t.tensor([0, 2]), x[1:] * 5)
    a.index_add_(0, t.tensor([1, 1]), x[:2])
    a.index_fill_(0, t.tensor([0]), 9.0)
    a.index_copy_(0, t.tensor([2]), x[:1] * 7)
    a.clamp_(max=20)
    say(a)
    a.sum().backward()
    say(x.grad)


def in_place_of_own_inputs(t: Any, say: Any) -> None:
    x = _leaf(t)
    a = x * 1
    a *= a
    a += a
    a -= a * 0.5
    a /= a + 1
    a **= 2
    say(a)
    a.sum().backward()
    say(x.grad)
    b = x * 1
    b.sigmoid_().tanh_().exp_().sqrt_()
    b.sum().backward()
    say(x.grad)
    c = x.clone()
    say.error(lambda: c.relu_().log_().sum().backward())
    d = x * 1
    t.nn.functional.relu(d, inplace=True)
    t.nn.functional.dropout(d, 0.0, inplace=True)
    d.sum().backward()
    say(x.grad)


def broadcast_in_place(t: Any, say: Any) -> None:
    x, m = _leaf(t), _matrix(t)
    a = m * 1
    a.mul_(x).add_(x[0])
    a.sum().backward()
    say(x.grad, m.grad)
    say.error(lambda: (x * 1).mul_(m))
    say.error(lambda: (x * 1).long().add_(x))
    i = t.ones(3, dtype=t.int64)
    say.error(lambda: i.add_(x))
    h = t.ones(3, dtype=t.float16)
    h.add_(x)
    say(h, h.requires_grad, h.dtype)


def outs(t: Any, say: Any) -> None:
    x = _leaf(t)
    say.error(lambda: t.add(x, x, out=t.ones(3)))
    say.error(lambda: t.mul(t.ones(3), 2, out=x))
    with t.no_grad():
        say(t.mul(x, 2, out=t.ones(3)))
    o = x * 1
    say.error(lambda: t.mul(t.ones(3), 2, out=o))


def view_functions(t: Any, say: Any) -> None:
    x = _matrix(t)
    base = x * 1
    for v in (
        base.view(-1),
        base[0],
        base.t(),
        base.detach(),
        base.expand(2, 2, 3),
        base.diagonal(),
        base.unbind()[0],
        base.reshape(3, 2),
        base.narrow(1, 0, 2),
        base.contiguous(),
        base.view_as(base),
        base.flatten(),
        base.clone(),
        base.to(t.float32),
        base.squeeze(),
        base.data,
        base.real,
        base.chunk(2)[0],
        base.movedim(0, 1),
        base.unfold(1, 2, 1),
        base.as_strided((2,), (1,)),
        base.mT,
    ):
        say(
            v._is_view(),
            v._base is base,
            v is base,
            None if v.grad_fn is None else v.grad_fn.name(),
        )
