"""The nestings: a few operators under every pair of layers that users combine."""

from __future__ import annotations

from typing import Any

from tests.oracle.nestings import Probe, nesting


def _inputs(p: Probe, grad: bool = False) -> tuple[Any, Any]:
    x = p.rt.arange(6.0).reshape(2, 3) / 4
    w = p.rt.arange(12.0).reshape(4, 3) / 8 - 0.5
    return x.requires_grad_(grad), w.requires_grad_(grad)


# -- modes alone ----------------------------------------------------------------------------------


@nesting
def function_mode(p: Probe) -> None:
    """Functions, methods, operators, properties."""
    x, w = _inputs(p)
    with p.functions():
        y = p.rt.add(x, 1) + x.mul(2) - 3 * x
        _ = y.shape, y.T, y.dtype, y.requires_grad
        p.rt.nn.functional.linear(x, w).sum(-1).exp_()
        y[0], y.size(0), len(y), p.rt.zeros(2), p.rt.ones_like(y), y @ w.t()


@nesting
def function_modes_nested(p: Probe) -> None:
    """The inner mode sees a call first."""
    x, _ = _inputs(p)
    with p.functions("outer"), p.functions("inner"):
        p.rt.exp(x) * 2


@nesting
def function_mode_composites(p: Probe) -> None:
    """What a function mode sees inside nn.functional: the outermost call alone."""
    x, _ = _inputs(p)
    functional = p.rt.nn.functional
    with p.functions():
        functional.dropout(x, 0.5, training=False)
        functional.layer_norm(x, (3,))
        functional.cross_entropy(x, p.rt.tensor([0, 2]))
        functional.softmax(x, -1)
        functional.gelu(x)


@nesting
def dispatch_mode(p: Probe) -> None:
    """Operators as ATen overloads, scalars included."""
    x, _ = _inputs(p)
    with p.operators():
        y = x + 1 - x * x / 2
        y.view(3, 2).t().sum(0, keepdim=True)
        p.rt.where(y > 0, y, 0.0)
        p.rt.cat([x, y]).to(p.rt.float64)
        x.to(p.rt.float32)
        x.reshape(3, 2), x.t().reshape(6), x.contiguous(), x.t().contiguous()


@nesting
def dispatch_mode_composites(p: Probe) -> None:
    """Composites dissolve before a dispatch mode."""
    x, w = _inputs(p)
    functional = p.rt.nn.functional
    with p.operators():
        functional.linear(x, w)
        functional.linear(x, w, w[:, 0])
        p.rt.matmul(x.expand(5, 2, 3), w.t())
        p.rt.einsum("ij,kj->ik", x, w)
        functional.layer_norm(x, (3,), w[0], w[1])
        functional.softmax(x, -1)
        functional.log_softmax(x, -1)
        functional.cross_entropy(x, p.rt.tensor([0, 2]))
        functional.gelu(x)
        functional.embedding(p.rt.tensor([1, 3]), w)


@nesting
def dispatch_mode_layers(p: Probe) -> None:
    """Convolution, pooling, batch norm, dropout, attention."""
    functional = p.rt.nn.functional
    image = p.rt.rand(2, 3, 6, 6)
    weight = p.rt.rand(4, 3, 3, 3)
    q = p.rt.rand(2, 2, 4, 8)
    with p.operators():
        y = functional.conv2d(image, weight, padding=1)
        functional.max_pool2d(y, 2)
        functional.batch_norm(y, p.rt.zeros(4), p.rt.ones(4), training=True)
        functional.dropout(y, 0.5)
        functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        functional.conv1d(image[:, :, 0], weight[..., 0])


@nesting
def dispatch_modes_nested(p: Probe) -> None:
    """The inner mode sees an operator first."""
    x, w = _inputs(p)
    with p.operators("outer"), p.operators("inner"):
        p.rt.nn.functional.linear(x, w)


@nesting
def dispatch_mode_index(p: Probe) -> None:
    """Reading and writing through indices."""
    x, _ = _inputs(p)
    at = p.rt.tensor([1, 0])
    with p.operators():
        x[0], x[:, 1:], x[..., None], x[at], x[:, at], x[at, at], x[x > 0.5]
        x[0] = 1.0
        x[at] = 2.0
        x[:, 1] = x[:, 0]
        x[x > 5] = 0


@nesting
def function_mode_index(p: Probe) -> None:
    """The same under a function mode."""
    x, _ = _inputs(p)
    with p.functions():
        x[0], x[:, 1:]
        x[0] = 1.0
        x[:, 1] = x[:, 0]


@nesting
def dispatch_mode_in_place_and_out(p: Probe) -> None:
    """In-place forms and out= are their own overloads."""
    x, _ = _inputs(p)
    out = p.rt.empty(2, 3)
    with p.operators():
        x.add_(1).mul_(x).exp_()
        p.rt.add(x, x, out=out)
        p.rt.sum(x, 0, out=p.rt.empty(3))
        x.copy_(out).zero_().fill_(3)
        x.uniform_()
        p.rt.randn(3)


# -- recording ------------------------------------------------------------------------------------


@nesting
def dispatch_mode_and_backward(p: Probe) -> None:
    """Forward and backward inside one mode."""
    x, w = _inputs(p, grad=True)
    with p.operators():
        y = p.rt.nn.functional.linear(x, w).tanh().sum()
        p.say("backward")
        y.backward()


@nesting
def dispatch_mode_backward_only(p: Probe) -> None:
    """The mode sees the backward of what was recorded outside."""
    x, _ = _inputs(p, grad=True)
    y = (p.rt.exp(x) * x).softmax(-1)[:, 0].sum()
    with p.operators():
        y.backward()


@nesting
def function_mode_and_backward(p: Probe) -> None:
    """A function mode sees backward as one call, nothing inside it."""
    x, _ = _inputs(p, grad=True)
    with p.functions():
        y = (x * x).sum()
        y.backward()
        p.rt.autograd.grad((x * 2).sum(), x)


@nesting
def double_backward_in_dispatch_mode(p: Probe) -> None:
    """create_graph records the backward."""
    x, _ = _inputs(p, grad=True)
    y = (x * x.tanh()).sum()
    with p.operators():
        (g,) = p.rt.autograd.grad(y, x, create_graph=True)
        p.say("again")
        g.sum().backward()


@nesting
def no_grad_in_dispatch_mode(p: Probe) -> None:
    """Nothing is saved without recording."""
    x, w = _inputs(p, grad=True)
    with p.operators():
        with p.rt.no_grad():
            y = p.rt.nn.functional.linear(x, w).exp()
            p.say("no_grad", y, y.requires_grad)
            with p.rt.enable_grad():
                z = x.exp()
                p.say("enabled", z, z.requires_grad)
        x.detach().add_(1)


@nesting
def inference_mode_in_dispatch_mode(p: Probe) -> None:
    """Inference mode: composites still dissolve?"""
    x, w = _inputs(p, grad=True)
    with p.operators(), p.rt.inference_mode():
        y = p.rt.nn.functional.linear(x, w).exp()
        p.say("inside", y, y.requires_grad, y.is_inference())


@nesting
def in_place_on_view_in_dispatch_mode(p: Probe) -> None:
    """The history of a base after a write to its view."""
    x, _ = _inputs(p, grad=True)
    with p.operators():
        base = x * 2
        base[0].mul_(3)
        p.say("name", base.grad_fn.name())
        base.sum().backward()


@nesting
def custom_function_in_dispatch_mode(p: Probe) -> None:
    """A user's Function: the operators of its two bodies."""
    rt = p.rt

    class Cube(rt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 3 * x * x

    x, _ = _inputs(p, grad=True)
    with p.operators():
        y = Cube.apply(x).sum()
        p.say("backward")
        y.backward()


@nesting
def saved_tensor_hooks_in_dispatch_mode(p: Probe) -> None:
    """Packing and unpacking are seen where they happen."""
    x, _ = _inputs(p, grad=True)
    with p.operators():
        with p.rt.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t + 0):
            y = (x * x).sum()
        y.backward()


@nesting
def checkpoint_in_dispatch_mode(p: Probe) -> None:
    """Recomputation in backward."""
    x, _ = _inputs(p, grad=True)
    with p.operators():
        y = p.rt.utils.checkpoint.checkpoint(lambda t: t.sin().cos(), x, use_reentrant=False)
        p.say("backward")
        y.sum().backward()


# -- autocast -------------------------------------------------------------------------------------


@nesting
def autocast_in_dispatch_mode(p: Probe) -> None:
    """Casts are operators; the cast of a leaf weight is kept for its second use."""
    x, w = _inputs(p, grad=True)
    functional = p.rt.nn.functional
    with p.operators(), p.rt.autocast("cpu", dtype=p.rt.bfloat16):
        y = functional.linear(x, w)
        z = functional.linear(x, w)
        p.say("out", functional.softmax(y + z, -1))
        functional.layer_norm(y, (4,))
        p.rt.mm(x, w.t()).exp()


@nesting
def autocast_and_backward(p: Probe) -> None:
    """Backward of an autocast region, outside it."""
    x, w = _inputs(p, grad=True)
    with p.rt.autocast("cpu", dtype=p.rt.bfloat16):
        y = p.rt.mm(x, w.t()).float().sum()
    with p.operators():
        y.backward()


@nesting
def autocast_in_function_mode(p: Probe) -> None:
    """A function mode is outside autocast."""
    x, w = _inputs(p)
    with p.functions(), p.rt.autocast("cpu", dtype=p.rt.bfloat16):
        p.say("out", p.rt.mm(x, w.t()))
        with p.rt.autocast("cpu", enabled=False):
            p.say("out", p.rt.mm(x, w.t()))


# -- transforms -----------------------------------------------------------------------------------


@nesting
def vmap_in_dispatch_mode(p: Probe) -> None:
    """Batching rules as operators."""
    x, w = _inputs(p)
    with p.operators():
        p.rt.func.vmap(lambda r: p.rt.exp(r) * 2 + r.sum())(x)
        p.say("matmul")
        p.rt.func.vmap(lambda r: w @ r)(x)
        p.say("softmax")
        p.rt.func.vmap(lambda r: p.rt.softmax(r, 0), in_dims=1)(x)


@nesting
def vmap_in_function_mode(p: Probe) -> None:
    """A function mode sees the calls on batched tensors."""
    x, _ = _inputs(p)

    def inner(r: Any) -> Any:
        with p.functions():
            return p.rt.exp(r).sum()

    p.rt.func.vmap(inner)(x)


@nesting
def dispatch_mode_in_vmap(p: Probe) -> None:
    """A mode pushed inside the mapped function."""
    x, _ = _inputs(p)

    def inner(r: Any) -> Any:
        with p.operators():
            return p.rt.exp(r) + 1

    p.rt.func.vmap(inner)(x)


@nesting
def grad_in_dispatch_mode(p: Probe) -> None:
    """func.grad: forward and backward."""
    x, _ = _inputs(p)
    with p.operators():
        p.rt.func.grad(lambda t: (t.tanh() * t).sum())(x)


@nesting
def vmap_of_grad(p: Probe) -> None:
    """Gradients of each sample."""
    x, _ = _inputs(p)
    with p.operators():
        p.rt.func.vmap(p.rt.func.grad(lambda r: (r * r).sum().exp()))(x)


@nesting
def grad_of_vmap(p: Probe) -> None:
    """The gradient of a mapped function."""
    x, _ = _inputs(p)
    with p.operators():
        p.rt.func.grad(lambda t: p.rt.func.vmap(lambda r: (r * r).sum())(t).sum())(x)


@nesting
def grad_of_grad(p: Probe) -> None:
    """Two levels of recording."""
    x = p.rt.tensor(0.5)
    with p.operators():
        p.rt.func.grad(p.rt.func.grad(lambda t: t.sin() * t))(x)


@nesting
def jvp_in_dispatch_mode(p: Probe) -> None:
    """Tangents as operators."""
    x, _ = _inputs(p)
    with p.operators():
        out, tangent = p.rt.func.jvp(lambda t: t.exp() * t, (x,), (p.rt.ones_like(x),))
        p.say("out", out, tangent)


@nesting
def grad_of_jvp(p: Probe) -> None:
    """Reverse over forward."""
    x, _ = _inputs(p)

    def directional(t: Any) -> Any:
        return p.rt.func.jvp(lambda u: u.sin(), (t,), (p.rt.ones_like(t),))[1].sum()

    with p.operators():
        p.rt.func.grad(directional)(x)


@nesting
def dual_numbers(p: Probe) -> None:
    """forward_ad by hand."""
    forward = __import__(f"{p.rt.__name__}.autograd.forward_ad", fromlist=["dual_level"])
    x, w = _inputs(p)
    with p.operators(), forward.dual_level():
        dual = forward.make_dual(x, p.rt.ones_like(x))
        other = forward.make_dual(w.t(), p.rt.ones(4, 3).t())
        out = forward.unpack_dual(p.rt.mm(dual, other).tanh())
        p.say("out", out.primal, out.tangent)


@nesting
def jacfwd_and_jacrev(p: Probe) -> None:
    """Both Jacobians of a small function."""
    x = p.rt.arange(3.0)
    with p.operators():
        p.rt.func.jacrev(lambda t: t * t)(x)
        p.say("forward")
        p.rt.func.jacfwd(lambda t: t * t)(x)


@nesting
def vmap_randomness(p: Probe) -> None:
    """Random operators under vmap."""
    x, _ = _inputs(p)
    with p.operators():
        p.rt.func.vmap(lambda r: r + p.rt.rand(3), randomness="same")(x)
        p.say("different")
        p.rt.func.vmap(lambda r: r + p.rt.rand(3), randomness="different")(x)


@nesting
def grad_and_no_grad(p: Probe) -> None:
    """no_grad inside and outside func.grad."""
    x, _ = _inputs(p)

    def f(t: Any) -> Any:
        with p.rt.no_grad():
            scale = t.sum()
        return (t * scale).sum()

    with p.operators():
        p.rt.func.grad(f)(x)
        with p.rt.no_grad():
            p.say("inside")
            p.rt.func.grad(lambda t: t.exp().sum())(x)


# -- subclasses -----------------------------------------------------------------------------------


@nesting
def function_subclass(p: Probe) -> None:
    """A subclass sees the calls it is part of, and results take its class."""
    x, _ = _inputs(p)
    y = x.as_subclass(p.logged)
    z = p.rt.exp(y) + x
    p.say("types", type(z).__name__, type(z.sum()).__name__, type(x + 1).__name__)
    z.shape, z.add_(1), p.rt.cat([x, y]), y[0], y.unbind()


@nesting
def two_function_subclasses(p: Probe) -> None:
    """The derived class is asked first."""
    x, _ = _inputs(p)
    p.rt.add(x.as_subclass(p.logged), x.as_subclass(p.derived))
    p.rt.add(x.as_subclass(p.derived), x)


@nesting
def function_subclass_in_function_mode(p: Probe) -> None:
    """Modes come before subclasses."""
    x, _ = _inputs(p)
    y = x.as_subclass(p.logged)
    with p.functions():
        p.rt.exp(y) * 2


@nesting
def function_subclass_in_dispatch_mode(p: Probe) -> None:
    """Subclasses come before dispatch modes."""
    x, w = _inputs(p)
    y = x.as_subclass(p.logged)
    with p.operators():
        p.rt.nn.functional.linear(y, w)


@nesting
def function_subclass_disabled(p: Probe) -> None:
    """DisableTorchFunctionSubclass."""
    x, _ = _inputs(p)
    y = x.as_subclass(p.logged)
    with p.functions(), p.rt._C.DisableTorchFunctionSubclass():
        p.say("type", type(p.rt.exp(y)).__name__)


@nesting
def wrapper_subclass(p: Probe) -> None:
    """A __torch_dispatch__ subclass, forward and backward."""
    x, w = _inputs(p)
    y = p.wrapper(x).requires_grad_()
    z = p.rt.nn.functional.linear(y, w).exp()
    p.say("out", z, type(z.grad_fn).__name__)
    z.sum().backward()
    p.say("grad", y.grad)


@nesting
def wrapper_subclass_in_dispatch_mode(p: Probe) -> None:
    """Dispatch modes come before dispatch subclasses."""
    x, _ = _inputs(p)
    y = p.wrapper(x)
    with p.operators():
        y * 2 + x


@nesting
def wrapper_subclass_in_function_mode(p: Probe) -> None:
    """All four kinds of seeing at once."""
    x, w = _inputs(p)
    y = p.wrapper(x)
    with p.functions(), p.operators():
        p.rt.nn.functional.linear(y, w)


@nesting
def wrapper_subclass_and_views(p: Probe) -> None:
    """Views, in-place and metadata calls of a wrapper."""
    x, _ = _inputs(p)
    y = p.wrapper(x)
    y.view(3, 2).t().add_(1)
    p.say("meta", list(y.shape), y.stride(), y.dtype, y.numel(), y.is_contiguous())
    y.detach(), y.clone(), y.to(p.rt.float64)


# -- functionalise, fake, trace -------------------------------------------------------------------


@nesting
def functionalize_in_dispatch_mode(p: Probe) -> None:
    """Writes become new values; views are replayed."""
    x, _ = _inputs(p)

    def f(t: Any) -> Any:
        y = t.clone()
        y[0].add_(1)
        y.view(-1).mul_(2)
        return y.t()

    with p.operators():
        p.rt.func.functionalize(f)(x)
        p.say("without views")
        p.rt.func.functionalize(f, remove="mutations_and_views")(x)


@nesting
def functionalize_input_mutation(p: Probe) -> None:
    """A written input is copied back at the end."""
    x, _ = _inputs(p)
    with p.operators():
        p.rt.func.functionalize(lambda t: t.add_(1).mul_(2))(x)
    p.say("x", x.sum().item())


@nesting
def grad_of_functionalize(p: Probe) -> None:
    """Functionalisation below recording."""
    x, _ = _inputs(p)

    def f(t: Any) -> Any:
        y = t.clone()
        y.mul_(t)
        return y.sum()

    with p.operators():
        p.rt.func.grad(p.rt.func.functionalize(f))(x)


@nesting
def vmap_of_functionalize(p: Probe) -> None:
    """Functionalisation below batching."""
    x, _ = _inputs(p)

    def f(r: Any) -> Any:
        return r.clone().add_(1)[1:]

    with p.operators():
        p.rt.func.vmap(p.rt.func.functionalize(f))(x)


def _trace(p: Probe, f: Any, *args: Any, **options: Any) -> None:
    make_fx = __import__(
        f"{p.rt.__name__}.fx.experimental.proxy_tensor", fromlist=["make_fx"]
    ).make_fx
    graph = make_fx(f, **options)(*args)
    for node in graph.graph.nodes:
        target = node.target if isinstance(node.target, str) else str(node.target)
        shown = ", ".join(str(a) for a in node.args)
        p.say(f"{node.op} {node.name} = {target}({shown})")


@nesting
def make_fx_forward(p: Probe) -> None:
    """A traced composite."""
    x, w = _inputs(p)
    _trace(p, lambda a, b: p.rt.nn.functional.linear(a, b).softmax(-1) + 1, x, w)


@nesting
def make_fx_of_grad(p: Probe) -> None:
    """A traced gradient."""
    x, _ = _inputs(p)
    _trace(p, p.rt.func.grad(lambda t: (t.tanh() * t).sum()), x)


@nesting
def make_fx_of_autograd(p: Probe) -> None:
    """A traced torch.autograd.grad: the joint graph."""
    x, w = _inputs(p, grad=True)

    def joint(a: Any, b: Any) -> Any:
        y = p.rt.nn.functional.linear(a, b).exp()
        return p.rt.autograd.grad(y.sum(), (a, b))

    _trace(p, joint, x, w)


@nesting
def make_fx_of_vmap(p: Probe) -> None:
    """A traced batch."""
    x, w = _inputs(p)
    _trace(p, p.rt.func.vmap(lambda r: (w @ r).exp()), x)


@nesting
def make_fx_of_functionalize(p: Probe) -> None:
    """A traced functionalisation."""
    x, _ = _inputs(p)

    def f(t: Any) -> Any:
        y = t.clone()
        y[0].fill_(1)
        return y.view(3, 2)

    _trace(p, p.rt.func.functionalize(f), x)


@nesting
def make_fx_with_mutation(p: Probe) -> None:
    """Writes stay writes in a trace."""
    x, _ = _inputs(p)
    _trace(p, lambda t: t.clone().add_(1).mul_(t), x)


@nesting
def make_fx_fake(p: Probe) -> None:
    """A trace on fake tensors."""
    x, w = _inputs(p)
    _trace(p, lambda a, b: (a @ b.t()).relu().sum(0), x, w, tracing_mode="fake")


@nesting
def make_fx_in_dispatch_mode(p: Probe) -> None:
    """An outer mode sees what the trace runs."""
    x, _ = _inputs(p)
    with p.operators():
        _trace(p, lambda t: t.exp() * 2, x)


@nesting
def dispatch_mode_in_make_fx(p: Probe) -> None:
    """A mode pushed in the traced function."""
    x, _ = _inputs(p)

    def f(t: Any) -> Any:
        with p.operators():
            return t.exp() * 2

    _trace(p, f, x)


@nesting
def make_fx_constants_and_random(p: Probe) -> None:
    """Constants are lifted; random operators stay."""
    x, _ = _inputs(p)
    _trace(p, lambda t: t + p.rt.tensor([1.0, 2.0, 3.0]) + p.rt.rand(3), x)


@nesting
def fake_mode_in_dispatch_mode(p: Probe) -> None:
    """Fake tensors below a dispatch mode."""
    fake = __import__(
        f"{p.rt.__name__}._subclasses.fake_tensor", fromlist=["FakeTensorMode"]
    ).FakeTensorMode
    x, w = _inputs(p)
    with fake() as mode:
        a, b = mode.from_tensor(x), mode.from_tensor(w)
        with p.operators():
            c = p.rt.nn.functional.linear(a, b)
        p.say("out", c, c.stride(), str(c.device))
        p.say("made", p.rt.zeros(2))
        try:
            c.sum().item()
        except Exception as error:
            p.say(f"item: {type(error).__name__}")


@nesting
def custom_operator_in_modes(p: Probe) -> None:
    """A user's operator stays whole."""
    rt = p.rt
    library = rt.library.Library("nestings", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    x, _ = _inputs(p)
    with p.functions(), p.operators():
        rt.ops.nestings.twice(x)
    _trace(p, lambda t: rt.ops.nestings.twice(t) + 1, x)


@nesting
def cond_in_dispatch_mode(p: Probe) -> None:
    """cond is one call to a mode that takes higher-order operators."""
    x, _ = _inputs(p)
    with p.operators():
        out = p.rt.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))
    p.say("out", out)
