"""Programs about recording: accumulation, hooks, modes, versions, custom functions, operators."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def _said(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def accumulation(rt: ModuleType) -> Any:
    """backward() twice, retain_graph, and gradients that add up."""
    x = rt.arange(3.0, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    message = _said(lambda: y.backward())
    (x * 2).sum().backward()
    return [first, x.grad, message, x.is_leaf, y.is_leaf, y.grad_fn.name()]


def backward_errors(rt: ModuleType) -> Any:
    """What backward() refuses, and how."""
    x = rt.ones(3, requires_grad=True)
    y = x * 2
    return [
        _said(lambda: y.backward()),
        _said(lambda: rt.ones(1).backward()),
        _said(lambda: rt.autograd.grad(y.sum(), rt.ones(2, requires_grad=True))),
        _said(lambda: rt.autograd.grad(y.sum(), rt.ones(2))),
        _said(lambda: x.add_(1)),
        _said(lambda: y.backward(rt.ones(4))),
        _said(lambda: rt.ones(2, dtype=rt.int64, requires_grad=True)),
        _said(lambda: y.detach().requires_grad_(False).sum().backward()),
        _said(lambda: setattr(y, "requires_grad", False)),
        _said(lambda: y.numpy()),
        _said(lambda: rt.autograd.grad(y.sum(), x, grad_outputs=rt.ones(2))),
    ]


def version_errors(rt: ModuleType) -> Any:
    """A saved tensor that was written to."""

    def modified(op: Callable[[Any], Any]) -> Any:
        x = rt.rand(3, requires_grad=True)
        y = op(x * 1)
        y.add_(1)
        return _said(lambda: y.sum().backward() or x.grad.shape)

    w = rt.ones(3, requires_grad=True)
    a = w * 2
    b = a * a
    a.mul_(3)
    return [
        modified(rt.exp), modified(rt.tanh), modified(rt.sigmoid), modified(lambda t: t * 3),
        _said(lambda: b.sum().backward()), a._version,
    ]  # fmt: skip


def in_place_on_views(rt: ModuleType) -> Any:
    """Writing to a view changes the base's history, and the other views'."""
    x = rt.arange(6.0, requires_grad=True)
    base = x * 2
    view, other = base[:3], base.view(2, 3)
    view.mul_(10)
    base[4] = 0
    other[1].exp_()
    names = [t.grad_fn.name() for t in (base, view, other)]
    base.sum().backward()
    leaf = rt.ones(4, requires_grad=True)
    return [x.grad, base, names, _said(lambda: leaf[:2].mul_(2)),
            _said(lambda: base.unbind()[0].mul_(2)), base._is_view(), view._is_view(),
            view._base is base]  # fmt: skip


def modes(rt: ModuleType) -> Any:
    """no_grad, enable_grad, inference_mode, set_grad_enabled: nested, and as decorators."""
    x = rt.ones(2, requires_grad=True)
    flags = []
    with rt.no_grad():
        flags.append((x * 2).requires_grad)
        with rt.enable_grad():
            flags.append((x * 2).requires_grad)
        flags.append(rt.is_grad_enabled())
    with rt.set_grad_enabled(False):
        flags.append((x * 2).requires_grad)
    with rt.inference_mode():
        inside = x * 2
        flags += [inside.is_inference(), inside.requires_grad, rt.is_inference_mode_enabled()]
    flags.append(inside.is_inference())
    quiet = rt.no_grad()(lambda t: t * 2)
    flags.append(quiet(x).requires_grad)
    return [flags, _said(lambda: (inside * x).sum().backward()), _said(lambda: inside.add_(1)),
            _said(lambda: inside.requires_grad_())]  # fmt: skip


def hooks(rt: ModuleType) -> Any:
    """Tensor hooks change gradients and run in order; retain_grad; accumulate hooks."""
    seen: list[Any] = []
    x = rt.ones(3, requires_grad=True)
    y = x * 3
    y.retain_grad()
    y.register_hook(lambda g: seen.append(("y", g.tolist())))
    handle = y.register_hook(lambda g: seen.append("removed"))
    handle.remove()
    x.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("post", t.grad.tolist())))
    (y * y).sum().backward()
    return [x.grad, y.grad, seen]


def custom_function(rt: ModuleType) -> Any:
    """autograd.Function: contexts, several outputs, non-differentiable ones."""

    class Split(rt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float) -> Any:
            ctx.save_for_backward(x)
            ctx.scale = scale
            index = (x > 0).long()
            ctx.mark_non_differentiable(index)
            ctx.set_materialize_grads(False)
            return x * scale, x.exp(), index

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, _: Any) -> Any:
            (x,) = ctx.saved_tensors
            total = rt.zeros_like(x) if a is None else a * ctx.scale
            if b is not None:
                total = total + b * x.exp()
            return (total, None) if ctx.needs_input_grad[0] else (None, None)

    x = rt.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    a, b, index = Split.apply(x, 3.0)
    (one,) = rt.autograd.grad(a.sum(), x, retain_graph=True)
    (two,) = rt.autograd.grad((a * b).sum(), x, create_graph=True)
    (three,) = rt.autograd.grad(two.sum(), x)
    return [a, b, index, one, two, three, a.grad_fn.name(), index.requires_grad]


def saved_tensor_hooks(rt: ModuleType) -> Any:
    """Packing to float64 and back; what is packed, in order."""
    packed: list[Any] = []

    def pack(t: Any) -> Any:
        packed.append(list(t.shape))
        return t.double()

    x = rt.randn(2, 3, requires_grad=True)
    with rt.autograd.graph.saved_tensors_hooks(pack, lambda t: t.float()):
        y = rt.tanh(x @ rt.ones(3, 2)) * x.sum()
    y.sum().backward()
    return [packed, x.grad]


def checkpointed(rt: ModuleType) -> Any:
    """Checkpointing recomputes with the same random numbers."""
    checkpoint = rt.utils.checkpoint.checkpoint
    x = rt.randn(5, requires_grad=True)
    calls = []

    def block(t: Any) -> Any:
        calls.append(1)
        return rt.nn.functional.dropout(t.tanh(), 0.5) * t

    y = checkpoint(block, x, use_reentrant=False)
    after = rt.rand(1)
    y.sum().backward()
    return [y, x.grad, len(calls), after, rt.rand(1)]


def higher_order(rt: ModuleType) -> Any:
    """jacobian, hessian, vjp, jvp of the functional interface and of torch.func."""
    x = rt.tensor([0.3, -0.7, 1.1])

    def f(t: Any) -> Any:
        return (t.sin() * t.cumsum(0)).tanh()

    functional, func = rt.autograd.functional, rt.func
    return [
        functional.jacobian(f, x),
        functional.hessian(lambda t: f(t).sum(), x),
        func.grad(lambda t: f(t).sum())(x),
        func.jacrev(f)(x),
        func.jacfwd(f)(x),
        func.vmap(func.grad(lambda t: f(t).sum()))(rt.stack([x, x * 2])),
        func.jvp(f, (x,), (rt.ones(3),)),
        func.vjp(f, x)[1](rt.ones(3))[0],
        func.hessian(lambda t: f(t).sum())(x),
    ]


def vmap_forms(rt: ModuleType) -> Any:
    """in_dims, out_dims, nesting, randomness."""
    vmap = rt.func.vmap
    a, b = rt.randn(4, 3), rt.randn(3, 5)
    return [
        vmap(lambda r: r @ b)(a),
        vmap(lambda c: a @ c, in_dims=1, out_dims=1)(b),
        vmap(vmap(lambda s, t: s * t, in_dims=(None, 0)), in_dims=(0, None))(a[:, 0], b[0]),
        vmap(lambda r: r.sum().expand(2))(a),
        vmap(lambda r: rt.softmax(r, -1))(a),
        vmap(lambda r: r[rt.tensor([0, 2])])(a),
        vmap(lambda r: rt.where(r > 0, r, 0.0))(a),
        _said(lambda: vmap(lambda r: r.item())(a[:, 0])),
        _said(lambda: vmap(lambda r: rt.rand(2))(a)),
        vmap(lambda r: rt.rand(2), randomness="same")(a),
    ]


def conditional(rt: ModuleType) -> Any:
    """cond: both branches, a tensor and a Python predicate, gradients."""

    def choose(t: Any) -> Any:
        return rt.cond(t.sum() > 0, lambda u: u.sin() * 2, lambda u: u.cos(), (t,))

    x = rt.tensor([0.5, 1.0], requires_grad=True)
    up, down = choose(x), choose(-x)
    grads = rt.autograd.grad(up.sum(), x), rt.autograd.grad(down.sum(), x)
    return [up, down, *grads, _said(lambda: rt.cond(1, lambda u: u, lambda u: u, (x,)))]


def custom_operator(rt: ModuleType) -> Any:
    """library.custom_op: eager, gradient, in-place argument, the fake kernel."""
    library = rt.library

    def plain(x, scale=2.0):
        return rt.sin(x) * scale

    plain.__annotations__ = {"x": rt.Tensor, "scale": float, "return": rt.Tensor}
    scaled_sin = library.custom_op("oracle::scaled_sin", plain, mutates_args=())

    @scaled_sin.register_fake
    def _(x, scale=2.0):
        return rt.empty_like(x)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def back(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * rt.cos(x) * ctx.scale, None

    scaled_sin.register_autograd(back, setup_context=keep)

    @library.custom_op("oracle::bump", mutates_args={"x"}, schema="(Tensor(a!) x) -> ()")
    def bump(x):
        x.add_(1)

    x = rt.arange(3.0, requires_grad=True)
    y = rt.ops.oracle.scaled_sin(x, 3.0)
    y.sum().backward()
    z = rt.zeros(2)
    bump(z)
    return [y, x.grad, z, z._version, scaled_sin(rt.ones(2))]


def training_step(rt: ModuleType) -> Any:
    """A small network, SGD with momentum, AdamW: the parameters after five steps."""
    functional = rt.nn.functional
    results = []
    for name in ("SGD", "AdamW"):
        rt.manual_seed(3)
        model = rt.nn.Sequential(
            rt.nn.Linear(6, 16), rt.nn.GELU(), rt.nn.LayerNorm(16), rt.nn.Linear(16, 4)
        )
        extra = {"momentum": 0.9} if name == "SGD" else {"weight_decay": 0.1}
        optimiser = getattr(rt.optim, name)(model.parameters(), lr=0.05, **extra)
        x, target = rt.randn(32, 6), rt.randint(4, (32,))
        losses = []
        for _ in range(5):
            loss = functional.cross_entropy(model(x), target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        results += [rt.stack(losses), *(p.detach() for p in model.parameters())]
    return results
