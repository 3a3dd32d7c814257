"""autograd.Function: everything that a user's class may do."""

from __future__ import annotations

import gc
import weakref
from typing import Any


def _leaf(t: Any, *values: float) -> Any:
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def save_for_backward(t: Any, say: Any) -> None:
    class Mul(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: Any) -> Any:
            ctx.save_for_backward(x, y)
            ctx.k = k
            say(ctx.needs_input_grad)
            return x * y * k

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            say(ctx.needs_input_grad, x.requires_grad, y.requires_grad)
            return g * y * ctx.k, g * x * ctx.k, None

    x, y = _leaf(t), t.tensor([4.0, 5.0, 6.0])
    z = Mul.apply(x, y, 2.0)
    say(z, z.grad_fn.name(), type(z.grad_fn).__name__, z.requires_grad)
    z.sum().backward()
    say(x.grad)
    say.error(z.sum().backward)
    say.error(lambda: z.grad_fn.saved_tensors)
    say(Mul.apply(x.detach(), y, 2.0).requires_grad)
    with t.no_grad():
        say(Mul.apply(x, y, 2.0).requires_grad)


def saving_odd_things(t: Any, say: Any) -> None:
    class Odd(t.autograd.Function):
        what: Any = None

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x * 2
            inner = x + 1
            ctx.save_for_backward(
                *(out if v == "out" else inner if v == "inner" else v for v in Odd.what)
            )
            return out

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            say([None if v is None else v.requires_grad for v in ctx.saved_tensors])
            say([None if v is None else v for v in ctx.saved_tensors])
            return g

    x = _leaf(t)
    for Odd.what in ((None,), ("out",), ("inner",), (), (None, "out", "inner")):
        Odd.apply(x).sum().backward()
    Odd.what = (3,)
    say.error(lambda: Odd.apply(x))
    Odd.what = ("out",)
    y = Odd.apply(x)
    y.data.zero_()
    y.sum().backward()
    y = Odd.apply(x)
    y.mul_(2)
    say.error(y.sum().backward)


def materialize_grads(t: Any, say: Any) -> None:
    class Two(t.autograd.Function):
        flag = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(Two.flag)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            say(a, b)
            return a if a is not None else b

    x = _leaf(t)
    Two.apply(x)[0].sum().backward()
    Two.apply(x)[1].sum().backward()
    Two.flag = False
    Two.apply(x)[0].sum().backward()
    Two.apply(x)[1].sum().backward()
    say(x.grad)


def mark_dirty(t: Any, say: Any) -> None:
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    leaf = _leaf(t)
    x = leaf * 1
    y = Double.apply(x)
    say(y is x, x, x._version, x.grad_fn.name())
    x.sum().backward()
    say(leaf.grad)
    say.error(lambda: Double.apply(leaf))
    base = leaf * 1
    v = base[:2]
    w = Double.apply(v)
    say(w is v, base, base.grad_fn.name(), v.grad_fn.name())
    base.sum().backward()
    say(leaf.grad)
    plain = t.ones(3)
    say(Double.apply(plain) is plain, plain.requires_grad)


def mark_dirty_wrongly(t: Any, say: Any) -> None:
    class NotReturned(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    class NotInput(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.mark_dirty(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = _leaf(t)
    say.error(lambda: NotReturned.apply(x * 1))
    say.warned(lambda: NotInput.apply(x * 1).sum().backward())
    say(x.grad)


def mark_non_differentiable(t: Any, say: Any) -> None:
    class Sort(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            values, index = x.sort()
            ctx.mark_non_differentiable(index)
            half = x * 0.5
            ctx.mark_non_differentiable(half)
            ctx.save_for_backward(index)
            return values, index, half

        @staticmethod
        def backward(ctx: Any, g: Any, gi: Any, gh: Any) -> Any:
            say(g, gi, gi.dtype, gh)
            (index,) = ctx.saved_tensors
            return t.zeros_like(g).scatter_(0, index, g)

    x = _leaf(t, 3.0, 1.0, 2.0)
    v, i, h = Sort.apply(x)
    say(v.requires_grad, i.requires_grad, h.requires_grad, h.grad_fn)
    (v * t.tensor([1.0, 10.0, 100.0])).sum().backward()
    say(x.grad)


def returning_inputs(t: Any, say: Any) -> None:
    class Same(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 10

    class View(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x[:2]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return t.cat([g * 10, g.new_zeros(1)])

    x = _leaf(t)
    y = Same.apply(x)
    say(y is x, y.grad_fn.name(), y._is_view(), y.data_ptr() == x.data_ptr())
    y.sum().backward()
    say(x.grad)
    z = View.apply(x * 1)
    say(z._is_view(), z.grad_fn.name())
    say.error(lambda: z.mul_(2))
    say.error(lambda: Same.apply(x * 1).mul_(2))
    base = x * 1
    v = View.apply(base)
    base.mul_(2)
    say.error(lambda: v.grad_fn)
    with t.no_grad():
        say(Same.apply(x) is x, View.apply(x).requires_grad)


def wrong_backward(t: Any, say: Any) -> None:
    class Wrong(t.autograd.Function):
        result: Any = None

        @staticmethod
        def forward(ctx: Any, x: Any, k: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return Wrong.result(g)

    x = _leaf(t)
    for Wrong.result in (
        lambda g: g,
        lambda g: (g, g),
        lambda g: (g, None, None),
        lambda g: (g, None, g),
        lambda g: (3, None),
        lambda g: (t.ones(2), None),
        lambda g: (t.ones(1, 3), None),
        lambda g: (t.ones(4, 3), None),
        lambda g: (g.double(), None),
        lambda g: (None, None),
        lambda g: (g.to(t.complex64), None),
        lambda g: [g, None],
    ):
        x.grad = None
        say.error(Wrong.apply(x, 2).sum().backward)
        say(x.grad, x.grad.dtype if x.grad is not None else None)


def incomplete_classes(t: Any, say: Any) -> None:
    class Nothing(t.autograd.Function):
        pass

    class NoBackward(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    class Both(NoBackward):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g

    class Vjp(NoBackward):
        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * 2

    x = _leaf(t)
    say.error(lambda: Nothing.apply(x))
    say.error(lambda: NoBackward.apply(x).sum().backward())
    say.error(lambda: Both.apply(x).sum().backward())
    Vjp.apply(x).sum().backward()
    say(x.grad)
    say(say.warned(lambda: isinstance(Vjp(), t.autograd.Function)))
    say.error(lambda: Vjp()(x))
    say.error(lambda: Vjp.apply(x=x))


def once_differentiable(t: Any, say: Any) -> None:
    class Cube(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @t.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            say(t.is_grad_enabled())
            return g * 3 * ctx.saved_tensors[0] ** 2

    x = _leaf(t)
    (g,) = t.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    say(g, g.requires_grad)
    (g,) = t.autograd.grad((Cube.apply(x) * x).sum(), x, create_graph=True)
    say.error(g.sum().backward)


def double_backward(t: Any, say: Any) -> None:
    class Cube(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    class Exp(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x.exp()
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    x = _leaf(t, 0.5, 1.5)
    for f in (Cube, Exp):
        y = f.apply(x).sum()
        for _ in range(3):
            (g,) = t.autograd.grad(y, x, create_graph=True)
            say(g)
            y = g.sum()


def setup_context(t: Any, say: Any) -> None:
    class Mul(t.autograd.Function):
        @staticmethod
        def forward(x: Any, y: Any) -> Any:
            return x * y, x + y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, y = inputs
            say(len(output))
            ctx.save_for_backward(x, y)

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            x, y = ctx.saved_tensors
            return a * y + b, a * x + b

    x, y = _leaf(t), _leaf(t, 4.0, 5.0, 6.0)
    p, s = Mul.apply(x, y)
    (p + s).sum().backward()
    say(x.grad, y.grad)


def keyword_and_nested_arguments(t: Any, say: Any) -> None:
    class Sum(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, xs: Any, scale: Any = 2.0) -> Any:
            return xs[0] * scale + xs[1]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None, None

    x = _leaf(t)
    say(Sum.apply([x, x]).requires_grad, Sum.apply([x, x], 3.0))


def outputs_of_other_kinds(t: Any, say: Any) -> None:
    class Kinds(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, "text", None, x.argmax(), 3

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            say(len(grads), grads[0], grads[1], grads[2], grads[4])
            return grads[0]

    x = _leaf(t)
    out = Kinds.apply(x)
    say(out[1:], out[3].requires_grad)
    out[0].sum().backward()
    say(x.grad)


def lists_are_not_tuples(t: Any, say: Any) -> None:
    class Lists(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return [x * 2, x * 3]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0]

    say.error(lambda: [v.requires_grad for v in Lists.apply(_leaf(t))])


def modes_inside(t: Any, say: Any) -> None:
    class Modes(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            say(t.is_grad_enabled(), (x * 2).requires_grad, x.requires_grad)
            with t.enable_grad():
                y = x * 2
                say(y.requires_grad)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            say(t.is_grad_enabled())
            return g * 7

    x = _leaf(t)
    y = Modes.apply(x)
    say(y.grad_fn.name())
    y.sum().backward()
    say(x.grad)


def attributes_of_ctx(t: Any, say: Any) -> None:
    class Ctx(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mine = {"a": 1}
            ctx.tensor = x
            say(type(ctx).__name__, isinstance(ctx, t.autograd.Function), hasattr(ctx, "nothing"))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            say(ctx.mine, ctx.name(), [f[0].name() for f in ctx.next_functions])
            return g

    x = _leaf(t)
    y = Ctx.apply(x)
    say(
        y.grad_fn.mine, y.grad_fn.tensor is x, y.grad_fn.dirty_tensors, y.grad_fn.non_differentiable
    )
    say.error(lambda: y.grad_fn.materialize_grads)
    say(y.grad_fn.saved_tensors, y.grad_fn.to_save)
    y.sum().backward()


def raises_in_forward(t: Any, say: Any) -> None:
    class Fails(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            raise ValueError("forward")

    say.error(lambda: Fails.apply(_leaf(t)))
    say(t.is_grad_enabled())


def jvp_of_function(t: Any, say: Any) -> None:
    fwd = t.autograd.forward_ad

    class Mul(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_forward(x, y)
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y, g * x

        @staticmethod
        def jvp(ctx: Any, dx: Any, dy: Any) -> Any:
            x, y = ctx.saved_tensors
            say(dx, dy)
            return (0 if dx is None else dx * y) + (0 if dy is None else x * dy)

    x, y = _leaf(t), _leaf(t, 4.0, 5.0, 6.0)
    with fwd.dual_level():
        d = fwd.make_dual(x, t.ones(3))
        out = Mul.apply(d, y)
        p, q = fwd.unpack_dual(out)
        say(p, q, out.requires_grad)
        out.sum().backward()
    say(x.grad, y.grad)

    class NoJvp(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    with fwd.dual_level():
        say.error(lambda: NoJvp.apply(fwd.make_dual(t.ones(3), t.ones(3))))


def vmap_staticmethod(t: Any, say: Any) -> None:
    class Scale(t.autograd.Function):
        @staticmethod
        def forward(x: Any, k: Any) -> Any:
            return x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.k, None

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, k: Any) -> Any:
            say(info.batch_size, info.randomness, in_dims, list(x.shape))
            return Scale.apply(x, k), in_dims[0]

    x = t.arange(6.0).reshape(2, 3)
    say(t.func.vmap(lambda r: Scale.apply(r, 3.0))(x))
    say(t.func.vmap(lambda r: Scale.apply(r, 3.0), in_dims=1)(x))
    say(t.func.vmap(t.func.grad(lambda r: Scale.apply(r, 3.0).pow(2).sum()))(x))
    say(t.func.grad(lambda v: Scale.apply(v, 3.0).pow(2).sum())(x))

    class Without(t.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

    say.error(lambda: t.func.vmap(Without.apply)(x))


def generated_vmap(t: Any, say: Any) -> None:
    class Cube(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

        @staticmethod
        def jvp(ctx: Any, dx: Any) -> Any:
            (x,) = ctx.saved_tensors
            return dx * 3 * x**2

    x = t.arange(6.0).reshape(2, 3)
    f = lambda r: Cube.apply(r).sum()  # noqa: E731
    say(t.func.vmap(Cube.apply)(x), t.func.vmap(t.func.grad(f))(x))
    say(t.func.grad(lambda v: t.func.vmap(f)(v).sum())(x))
    say(t.func.jacrev(Cube.apply)(x[0]), t.func.jacfwd(Cube.apply)(x[0]))
    say(t.func.hessian(f)(x[0] + 1))
    say(t.func.grad(t.func.grad(lambda v: Cube.apply(v)))(t.tensor(2.0)))


def functions_under_transforms(t: Any, say: Any) -> None:
    class Old(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = t.ones(3)
    say.error(lambda: t.func.grad(lambda v: Old.apply(v).sum())(x))
    say.error(lambda: t.func.vmap(Old.apply)(x))
    say.error(lambda: t.func.jvp(Old.apply, (x,), (x,)))


def no_leaks(t: Any, say: Any) -> None:
    class Keep(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x.exp()
            ctx.save_for_backward(x, out)
            return out

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[1]

    gc.collect()
    gc.disable()
    try:
        x = _leaf(t) * 1
        y = Keep.apply(x)
        refs = [weakref.ref(x), weakref.ref(y)]
        del x, y
        say([r() is None for r in refs])
        x = _leaf(t) * 1
        y = Keep.apply(x)
        y.sum().backward()
        refs = [weakref.ref(x), weakref.ref(y)]
        del x, y
        say([r() is None for r in refs])
    finally:
        gc.enable()


def nested_functions(t: Any, say: Any) -> None:
    class Inner(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            say("inner")
            return g * 2

    class Outer(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return Inner.apply(x) + 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 5

    x = _leaf(t)
    Outer.apply(Inner.apply(x)).sum().backward()
    say(x.grad)


def nested_io(t: Any, say: Any) -> None:
    class Nested(t.autograd.function.NestedIOFunction):
        @staticmethod
        def forward_extended(self: Any, args: Any) -> Any:
            return [args[0] * 2, (args[1] * 3,)]

    say(hasattr(Nested, "forward_extended"))
    say([issubclass(c, t.autograd.Function) for c in (t.autograd.function.InplaceFunction, Nested)])
