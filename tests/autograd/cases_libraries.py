"""Users' operators (torch.library) under transforms, autocast, and autograd."""

from __future__ import annotations

from typing import Any


def register_vmap(t: Any, say: Any) -> None:
    library = t.library
    with library._scoped_library("cases_vmap", "FRAGMENT") as lib:
        lib.define("twice(Tensor x, float k) -> Tensor")
        lib.impl("twice", lambda x, k: x * k, "CompositeExplicitAutograd")
        op = t.ops.cases_vmap.twice
        x = t.arange(6.0).reshape(2, 3)
        say(op(x, 2.0))
        say(t.func.vmap(lambda a: op(a, 2.0))(x))

        def rule(info: Any, in_dims: Any, a: Any, k: Any) -> Any:
            say(info.batch_size, info.randomness, in_dims, list(a.shape), k)
            return op(a, k), in_dims[0]

        library.register_vmap("cases_vmap::twice", rule, lib=lib)
        say(t.func.vmap(lambda a: op(a, 3.0))(x))
        say(t.func.vmap(lambda a: op(a, 3.0), in_dims=1)(x))
        say(t.func.vmap(t.func.vmap(lambda a: op(a, 3.0)))(x))
        say(t.func.vmap(lambda a: op(t.ones(2), 3.0) + a[:2])(x))


def vmap_of_custom_op(t: Any, say: Any) -> None:
    @t.library.custom_op("cases_vmap::sin", mutates_args=(), schema="(Tensor x) -> Tensor")
    def sin(x: Any) -> Any:
        return t.from_numpy(x.detach().numpy() * 1).sin()

    @sin.register_fake
    def _(x: Any) -> Any:
        return t.empty_like(x)

    @sin.register_vmap
    def _(info: Any, in_dims: Any, x: Any) -> Any:
        say(in_dims, list(x.shape))
        return sin(x), in_dims[0]

    sin.register_autograd(
        lambda ctx, g: g * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    x = t.arange(6.0).reshape(2, 3)
    say(t.func.vmap(sin)(x), t.func.vmap(sin, in_dims=1)(x))
    y = x.clone().requires_grad_()
    sin(y).sum().backward()
    say(y.grad)
    t.func.vmap(sin)(y).sum().backward()
    say(y.grad)
    say(t.func.grad(lambda a: sin(a).sum())(x))
    say(t.func.vmap(t.func.grad(lambda a: sin(a).sum()))(x))


def register_autocast(t: Any, say: Any) -> None:
    library = t.library
    with library._scoped_library("cases_autocast", "FRAGMENT") as lib:
        lib.define("show(Tensor x, Tensor[] more, int k) -> Tensor")

        def show(x: Any, more: Any, k: Any) -> Any:
            say(x.dtype, [m.dtype for m in more], k)
            return x.clone()

        lib.impl("show", show, "CompositeExplicitAutograd")
        op = t.ops.cases_autocast.show
        x, i = t.ones(2), t.ones(2, dtype=t.int64)
        op(x, [x, i], 3)
        with t.autocast("cpu", dtype=t.bfloat16):
            op(x, [x, i], 3)
        library.register_autocast("cases_autocast::show", "cpu", t.float16, lib=lib)
        with t.autocast("cpu", dtype=t.bfloat16):
            say(op(x, [x, i, x.double()], 3).dtype)
            with t.autocast("cpu", enabled=False):
                op(x, [x], 3)
        op(x, [x], 3)
        w = t.ones(2, requires_grad=True)
        say.error(lambda: library.register_autocast("cases_autocast::show", "abc", t.float16))
        say.error(lambda: library.register_autocast(3, "cpu", t.float16))
        del w


def autocast_of_custom_op(t: Any, say: Any) -> None:
    schema = "(Tensor x, Tensor y) -> Tensor"

    @t.library.custom_op("cases_autocast::mul", mutates_args=(), schema=schema)
    def mul(x: Any, y: Any) -> Any:
        say(x.dtype, y.dtype)
        return x * y

    mul.register_autocast("cpu", t.bfloat16)
    x = t.ones(2)
    mul(x, x)
    with t.autocast("cpu", dtype=t.float16):
        say(mul(x, x).dtype)


def autograd_of_library(t: Any, say: Any) -> None:
    library = t.library
    with library._scoped_library("cases_grad", "FRAGMENT") as lib:
        lib.define("cube(Tensor x) -> Tensor")
        lib.impl("cube", lambda x: x**3, "CPU")
        op = t.ops.cases_grad.cube
        x = t.tensor([1.0, 2.0], requires_grad=True)
        y = op(x)
        say(y.requires_grad)
        say.error(lambda: y.sum().backward())
        library.register_autograd(
            "cases_grad::cube",
            lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2,
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
            lib=lib,
        )
        y = op(x)
        y.sum().backward()
        say(x.grad, y.grad_fn.name())
        (g,) = t.autograd.grad(op(x).sum(), x, create_graph=True)
        say(t.autograd.grad(g.sum(), x))
        say(t.func.grad(lambda a: op(a).sum())(x.detach()))
    say(hasattr(t.ops.cases_grad, "cube"))


def implicit_composites(t: Any, say: Any) -> None:
    library = t.library
    with library._scoped_library("cases_implicit", "FRAGMENT") as lib:
        lib.define("twice(Tensor x) -> Tensor")
        lib.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
        op = t.ops.cases_implicit.twice
        x = t.tensor([1.0, 2.0], requires_grad=True)
        y = op(x)
        say(y.grad_fn.name())
        y.sum().backward()
        say(x.grad, t.func.vmap(op)(t.eye(2)), t.func.jvp(op, (t.ones(2),), (t.ones(2),)))
