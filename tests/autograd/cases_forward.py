"""Forward-mode differentiation by hand: dual levels, dual tensors, and what they forbid."""

from __future__ import annotations

from typing import Any


def _vector(t: Any) -> Any:
    return t.tensor([1.0, 2.0, 3.0])


def duals(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad
    x, v = _vector(t), t.tensor([1.0, 0.0, 2.0])
    with fwd.dual_level():
        d = fwd.make_dual(x, v)
        say(d, fwd.unpack_dual(d).tangent, fwd.unpack_dual(x).tangent, d.requires_grad)
        y = d.exp() * d + x
        p, q = fwd.unpack_dual(y)
        say(p, q, type(fwd.unpack_dual(y)).__name__)
        z = t.stack([y, y.detach()])
        say(fwd.unpack_dual(z).tangent)
    say(fwd.unpack_dual(y) if False else None, y)
    say.error(lambda: fwd.unpack_dual(y))


def levels(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad
    x = _vector(t)
    say.error(lambda: fwd.make_dual(x, x))
    say.error(lambda: fwd.unpack_dual(x))
    say.error(fwd.exit_dual_level)
    with fwd.dual_level():
        say.error(lambda: fwd.dual_level().__enter__())
    level = fwd.enter_dual_level()
    d = fwd.make_dual(x, x)
    fwd.exit_dual_level(level=level)
    with fwd.dual_level():
        say(fwd.unpack_dual(d).tangent)
    say.error(lambda: fwd.exit_dual_level(level=3))


def errors(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad
    x = _vector(t)
    with fwd.dual_level():
        say.error(lambda: fwd.make_dual(x, x[:2]))
        say.error(lambda: fwd.make_dual(x.long(), x))
        say.error(lambda: fwd.make_dual(x, x.long()))
        say.error(lambda: fwd.make_dual(x, x.double()))
        say.error(lambda: fwd.make_dual(x, 3))
        d = fwd.make_dual(x, x)
        say.error(lambda: fwd.make_dual(d, x))
        say.error(lambda: t.add(x, d, out=t.ones(3)))


def in_place(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad
    x, v = _vector(t), t.ones(3)
    with fwd.dual_level():
        d = fwd.make_dual(x.clone(), v.clone())
        d.mul_(d)
        say(d, fwd.unpack_dual(d).tangent)
        d[0] = 5.0
        say(fwd.unpack_dual(d).tangent)
        p = t.zeros(3)
        p.add_(d)
        say(p, fwd.unpack_dual(p).tangent)
        base = t.zeros(3)
        base[1:] = d[1:]
        say(fwd.unpack_dual(base).tangent)
        q = t.zeros(3)
        w = q.view(3, 1)
        w.copy_(d.view(3, 1))
        say(fwd.unpack_dual(q).tangent, fwd.unpack_dual(w).tangent)
        d.zero_()
        say(fwd.unpack_dual(d).tangent)
        e = fwd.make_dual(x.clone(), v.clone())
        e.view(-1)[0].mul_(10)
        say(e, fwd.unpack_dual(e).tangent)


def with_reverse_mode(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad
    x = _vector(t).requires_grad_()
    with fwd.dual_level():
        d = fwd.make_dual(x, t.ones(3))
        y = (d**3).sum()
        p, q = fwd.unpack_dual(y)
        say(p, q, q.requires_grad)
        say(t.autograd.grad(q, x))
        (g,) = t.autograd.grad((d**3).sum(), x, create_graph=True)
        say(g, fwd.unpack_dual(g).tangent)


def modules(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad
    m = t.nn.Linear(3, 2)
    with t.no_grad():
        m.weight.copy_(t.arange(6.0).reshape(2, 3))
        m.bias.zero_()
    with fwd.dual_level():
        d = fwd.make_dual(_vector(t), t.ones(3))
        say(fwd.unpack_dual(m(d).tanh()).tangent)
        w = fwd.make_dual(m.weight.detach(), t.ones(2, 3))
        say(fwd.unpack_dual(t.nn.functional.linear(_vector(t), w)).tangent)


def switched_off(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad
    with fwd.dual_level():
        d = fwd.make_dual(_vector(t), t.ones(3))
        with fwd._set_fwd_grad_enabled(False):
            say(fwd.unpack_dual(d * 2).tangent)
        with t.no_grad():
            say(fwd.unpack_dual(d * 2).tangent)
        with t.inference_mode():
            say(fwd.unpack_dual(d * 2).tangent)
        say(fwd.unpack_dual(d * 2).tangent)


def of_views_and_copies(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad
    with fwd.dual_level():
        d = fwd.make_dual(t.arange(6.0).reshape(2, 3), t.arange(6.0).reshape(2, 3) * 10)
        for v in (
            d[0],
            d.t(),
            d.view(-1),
            d.expand(2, 2, 3),
            d.unbind()[1],
            d.split(1)[0],
            d.clone(),
            d.double(),
            d.sum(0),
            d.max(1)[0],
            d.reshape(3, 2),
            d[d > 2],
            d.diagonal(),
            d.flip(0),
            d.contiguous(),
            d.to(t.float32),
            d.float(),
            d.squeeze(),
            d.repeat(2, 1),
        ):
            say(fwd.unpack_dual(v).tangent)


def gradcheck(t: Any, say: Any) -> None:
    x = t.tensor([0.5, -0.7, 1.2], dtype=t.float64, requires_grad=True)
    z = t.tensor([0.5 + 1j, -0.7 + 0.2j], dtype=t.complex128, requires_grad=True)
    check, double = t.autograd.gradcheck, t.autograd.gradgradcheck
    say(check(t.sin, (x,)), double(t.sin, (x,)), check(t.sin, (x,), check_forward_ad=True))
    say(check(lambda a: (a**2, a * 3), (x,)), check(lambda a: a.prod(), (x,), fast_mode=True))
    say(check(t.abs, (z,)), check(lambda a: a * a.conj(), (z,)), double(t.abs, (z,)))
    say(check(t.sgn, (z,)), check(lambda a: a.abs() ** 2 * a, (z,)), check(t.exp, (z,)))
    say(check(lambda a: t.view_as_real(a).prod(), (z,)), check(lambda a: a / (1 + a), (z,)))
    say(
        check(t.sin, (x,), check_batched_grad=True),
        check(t.sin, (x,), check_batched_forward_grad=True, check_forward_ad=True),
    )
    wrong = lambda a: a.detach() * a  # noqa: E731
    say(check(wrong, (x,), raise_exception=False))
    say.error(lambda: check(t.sin, (x.detach(),)), 200)
    say.warned(lambda: check(t.sin, (x.detach().float().requires_grad_(),), raise_exception=False))
