"""torch.func: grad, vjp, jvp, Jacobians, functional_call, functionalize, and their nestings."""

from __future__ import annotations

from typing import Any


def _vector(t: Any) -> Any:
    return t.tensor([1.0, 2.0, 3.0])


def grad(t: Any, say: Any) -> None:
    x, y = _vector(t), t.tensor([4.0, 5.0, 6.0])
    f = lambda a, b: (a * a * b).sum()  # noqa: E731
    g = t.func.grad
    say(g(f)(x, y), g(f, argnums=1)(x, y), g(f, argnums=(0, 1))(x, y), g(f, argnums=-1)(x, y))
    say(g(lambda a: (a.sin().sum(), a * 2), has_aux=True)(x))
    say(t.func.grad_and_value(f)(x, y))
    say(t.func.grad_and_value(lambda a: (a.sin().sum(), {"k": a * 2}), has_aux=True)(x))
    say(g(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": [y]}))
    say(g(lambda a, k=2.0: (a * k).sum())(x, k=5.0))
    say(x.requires_grad, g(f)(x, y).requires_grad)


def grad_errors(t: Any, say: Any) -> None:
    x = _vector(t)
    g = t.func.grad
    say.error(lambda: g(lambda a: a * 2)(x))
    say.error(lambda: g(lambda a: 3.0)(x))
    say.error(lambda: g(lambda a: (a.sum(), a))(x))
    say.error(lambda: g(lambda a: a.sum(), has_aux=True)(x))
    say.error(lambda: g(lambda a: a.sum())(x.long()))
    say.error(lambda: g(lambda a: a.sum())(3.0))
    say.error(lambda: g(lambda a: a.sum(), argnums=3)(x))
    say.error(lambda: g(lambda a: a.sum(), argnums=())(x))
    say.error(lambda: g(lambda a: a.sum(), argnums=(0, 0))(x))
    say.error(lambda: g(lambda a: a.sum(), argnums="a")(x))
    say.error(lambda: g(lambda a: a.sum().item() * a.sum())(x))
    say.error(lambda: g(lambda a: a.requires_grad_().sum())(x))
    say.error(lambda: g(lambda a: (a.sum().backward(), a.sum())[1])(x))


def what_a_function_sees(t: Any, say: Any) -> None:
    x = _vector(t)

    def f(a: Any) -> Any:
        say(a.requires_grad, a.is_leaf, a.grad_fn is None, a.shape, t.is_grad_enabled())
        b = a * 2
        say(b.requires_grad, b.grad_fn is None)
        say(t.autograd.grad(b.sum(), a)[0] if False else None)
        say(a.detach().requires_grad, (a > 0).tolist(), float(a.sum()), a.numpy() is not None)
        return b.sum()

    say.error(lambda: t.func.grad(f)(x))
    with t.no_grad():
        say(t.func.grad(lambda a: (a * a).sum())(x))
    say(t.func.grad(lambda a: a.detach().sum() * a.sum())(x))

    def stopped(a: Any) -> Any:
        with t.no_grad():
            b = a * a
        return (b * a).sum()

    say(t.func.grad(stopped)(x), t.func.grad(lambda a: t.ones(3).sum())(x))


def captured_tensors_may_not_change(t: Any, say: Any) -> None:
    x, outside = _vector(t), t.ones(3)
    view = outside[1:]

    def write(a: Any, f: Any) -> Any:
        f(a)
        return (a * 1).sum()

    for f in (
        lambda a: outside.add_(1),
        lambda a: outside.mul_(a),
        lambda a: view.zero_(),
        lambda a: outside.copy_(a),
        lambda a: outside.__setitem__(0, 5.0),
        lambda a: t.add(outside, 1, out=outside),
        lambda a: t.nn.init.ones_(outside),
        lambda a: outside.uniform_(),
        lambda a: outside[0].add_(1),
        lambda a: outside.view(3, 1).add_(1),
        lambda a: outside.detach().add_(1),
        lambda a: outside.clone().add_(a),
        lambda a: t.zeros(3).add_(a),
        lambda a: t.zeros(3)[1:].add_(1),
        lambda a: a.clone().add_(1),
        lambda a: outside.unsqueeze_(0) if False else None,
    ):
        say.error(lambda f=f: t.func.grad(lambda a: write(a, f))(x))
    for transform in (
        lambda f: t.func.vjp(f, x)[0],
        lambda f: t.func.jvp(f, (x,), (x,)),
        lambda f: t.func.jacrev(f)(x),
        lambda f: t.func.jacfwd(f)(x),
        lambda f: t.func.grad(t.func.grad(lambda a: f(a) * a.sum()))(t.tensor(1.0)),
        lambda f: t.func.vmap(f)(x),
    ):
        say.error(lambda tr=transform: tr(lambda a: (outside.add_(1), a.sum())[1]))
    say(outside)


def writing_to_arguments(t: Any, say: Any) -> None:
    x = _vector(t)

    def f(a: Any) -> Any:
        b = a.clone()
        b.mul_(a)
        b[0] = 7.0
        b[1:].add_(a[:2])
        return b.sum()

    say(t.func.grad(f)(x))
    y = _vector(t)
    say(t.func.grad(lambda a: a.mul_(2).pow(2).sum())(y), y)
    say(t.func.grad(lambda a: a[:2].mul_(3).sum() + a.sum())(y), y)
    say(t.func.vjp(lambda a: a.add_(1), y)[0], y)
    say(t.func.jvp(lambda a: a.mul_(2), (y,), (t.ones(3),)), y)


def nested_levels_and_writes(t: Any, say: Any) -> None:
    x = t.tensor(2.0)

    def outer(a: Any) -> Any:
        held = a * 1

        def inner(b: Any) -> Any:
            held.mul_(2)
            return b * held

        return t.func.grad(inner)(a)

    say.error(lambda: t.func.grad(outer)(x))

    def fine(a: Any) -> Any:
        g = t.func.grad(lambda b: b**3)(a)
        g.mul_(a)
        return g

    say(t.func.grad(fine)(x))


def vjp(t: Any, say: Any) -> None:
    x, y = _vector(t), t.tensor([4.0, 5.0, 6.0])
    out, f = t.func.vjp(lambda a: a.sin(), x)
    say(out, f(t.ones(3)), f(x), out.requires_grad)
    out, f = t.func.vjp(lambda a, b: (a * b, a + b), x, y)
    say(out, f((t.ones(3), t.zeros(3))))
    out, f, aux = t.func.vjp(lambda a: (a * 2, a * 3), x, has_aux=True)
    say(out, f(t.ones(3)), aux)
    out, f = t.func.vjp(lambda d: {"o": d["a"] * 2}, {"a": x})
    say(out, f({"o": t.ones(3)}))
    say.error(lambda: f(t.ones(3)))
    say.error(lambda: t.func.vjp(lambda a: a * 2, x)[1](t.ones(2)))
    say.error(lambda: t.func.vjp(lambda a: 3, x))
    say.error(lambda: t.func.vjp(lambda a: [], x))
    say.error(lambda: t.func.vjp(lambda a: a, 3))
    out, f = t.func.vjp(lambda a: t.ones(3), x)
    say(f(t.ones(3)))
    say(t.func.vmap(t.func.vjp(lambda a: a**2, x)[1])(t.eye(3)))


def jvp(t: Any, say: Any) -> None:
    x, v = _vector(t), t.tensor([1.0, 0.5, 0.0])
    say(t.func.jvp(lambda a: a.sin(), (x,), (v,)))
    say(t.func.jvp(lambda a, b: a * b, (x, x * 2), (v, v * 3)))
    say(t.func.jvp(lambda a: (a * 2, a.sum()), (x,), (v,)))
    say(t.func.jvp(lambda a: (a * 2, a * 3), (x,), (v,), has_aux=True))
    say(t.func.jvp(lambda a: t.ones(2), (x,), (v,)))
    say.error(lambda: t.func.jvp(lambda a: t.ones(2), (x,), (v,), strict=True))
    say.error(lambda: t.func.jvp(lambda a: a, x, v))
    say.error(lambda: t.func.jvp(lambda a: a, (x,), (v, v)))
    say.error(lambda: t.func.jvp(lambda a: a, (x,), (v[:2],)))
    say.error(lambda: t.func.jvp(lambda a: a, (x,), (v.double(),)))
    say.error(lambda: t.func.jvp(lambda a: a, (3.0,), (v,)))
    say.error(lambda: t.func.jvp(lambda a: 3, (x,), (v,)))
    say.error(lambda: t.func.jvp(lambda a: a, (), ()))


def jvp_of_many(t: Any, say: Any) -> None:
    x, v = _vector(t), t.tensor([1.0, 0.5, -1.0])
    m = t.tensor([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]])
    functional = t.nn.functional
    for name, f in (
        ("exp", t.exp),
        ("softmax", lambda a: a.softmax(0)),
        ("matmul", lambda a: m @ a),
        ("outer", lambda a: a.outer(a) @ a),
        ("norm", lambda a: a.norm()),
        ("prod", lambda a: a.prod()),
        ("max", lambda a: a.max()),
        ("sort", lambda a: a.sort(descending=True)[0]),
        ("cumsum", lambda a: a.cumsum(0)),
        ("cumprod", lambda a: a.cumprod(0)),
        ("index", lambda a: a[t.tensor([2, 0])]),
        ("where", lambda a: t.where(a > 1.5, a * a, a)),
        ("cat", lambda a: t.cat([a, a * 2])),
        ("stack", lambda a: t.stack([a, a * 2], 1)),
        ("layer_norm", lambda a: functional.layer_norm(a, (3,))),
        ("gelu", functional.gelu),
        ("linear", lambda a: functional.linear(a, m, a)),
        ("std", lambda a: a.std()),
        ("logsumexp", lambda a: a.logsumexp(0)),
        ("setitem", lambda a: (b := a.clone(), b.__setitem__(0, a[1] * a[2]), b)[2]),
        ("solve", lambda a: t.linalg.solve(m, a)),
        ("inv", lambda a: (m * a).inverse() @ a),
        ("det", lambda a: (m * a).det()),
        ("conv", lambda a: functional.conv1d(a[None, None], a[None, None, :2])),
        ("cross_entropy", lambda a: functional.cross_entropy(a[None], t.tensor([1]))),
        ("masked_fill", lambda a: a.masked_fill(a > 2, 0.0)),
        ("clamp", lambda a: a.clamp(1.5, 2.5)),
        ("pow", lambda a: a**a),
        ("atan2", lambda a: t.atan2(a, a * a)),
        ("einsum", lambda a: t.einsum("i,ij,j->", a, m, a)),
        ("mean", lambda a: a.mean()),
        ("var", lambda a: a.var()),
        ("gather", lambda a: a.gather(0, t.tensor([1, 1]))),
        ("scatter", lambda a: t.zeros(4).scatter(0, t.tensor([0, 2, 3]), a)),
        ("roll", lambda a: a.roll(1) * a),
        ("mse", lambda a: functional.mse_loss(a, a.flip(0))),
        ("attention", lambda a: functional.scaled_dot_product_attention(m * a, m, m)),
    ):
        say(name, t.func.jvp(f, (x,), (v,))[1], t.func.jacrev(f)(x).shape)


def jacobians(t: Any, say: Any) -> None:
    x, y = _vector(t), t.tensor([4.0, 5.0])
    for j in (t.func.jacrev, t.func.jacfwd):
        say(j(lambda a: a**2)(x))
        say(j(lambda a, b: t.outer(a, b), argnums=(0, 1))(x, y))
        say(j(lambda a: (a * 2, a.sum()))(x))
        say(j(lambda a: {"p": a * 2})(x))
        say(j(lambda a: (a**2, a * 3), has_aux=True)(x))
        say(j(lambda d: d["k"] ** 2)({"k": y}))
        say(j(lambda a: a.sum())(x), j(lambda a: t.ones(2))(x))
        say.error(lambda j=j: j(lambda a: a, argnums=2)(x))
        say.error(lambda j=j: j(lambda a: 3)(x))
    say(t.func.jacrev(lambda a: a**2, chunk_size=2)(x), t.func.jacrev(lambda a: a, chunk_size=1)(x))
    say.error(lambda: t.func.jacrev(lambda a: a, chunk_size=0))


def hessians(t: Any, say: Any) -> None:
    x = _vector(t)
    f = lambda a: (a**3).sum() + a.prod()  # noqa: E731
    say(t.func.hessian(f)(x))
    for outer in (t.func.jacrev, t.func.jacfwd):
        for inner in (t.func.jacrev, t.func.jacfwd):
            say(outer(inner(f))(x))
    say(t.func.hessian(lambda a, b: (a * b).sum() ** 2, argnums=(0, 1))(x[:2], x[1:]))
    say(t.func.vmap(t.func.hessian(lambda a: a.sin().prod()))(t.stack([x, x * 2])))


def autograd_functional(t: Any, say: Any) -> None:
    x = _vector(t)
    f = lambda a: (a**3).sum() * a[0]  # noqa: E731
    api = t.autograd.functional
    say(api.jacobian(lambda a: a**2, x), api.hessian(f, x))
    say(api.vjp(lambda a: a**2, x, t.ones(3)), api.jvp(lambda a: a**2, x, t.ones(3)))
    say(api.vhp(f, x, t.ones(3)), api.hvp(f, x, t.ones(3)))
    say(api.jacobian(lambda a: a**2, x, vectorize=True), api.hessian(f, x, vectorize=True))
    say(api.jacobian(lambda a: a**2, x, vectorize=True, strategy="forward-mode"))
    say(api.hessian(f, x, vectorize=True, outer_jacobian_strategy="forward-mode"))
    say(api.jacobian(lambda a, b: a * b, (x, x * 2)))
    say.error(lambda: api.hessian(f, x, outer_jacobian_strategy="forward-mode"))
    say.error(lambda: api.jacobian(lambda a: a**2, x, strategy="forward-mode"))
    say.error(lambda: api.jacobian(lambda a: t.ones(3), x, strict=True))
    say.error(lambda: api.hessian(lambda a: a.sum(), x, strict=True))
    say.error(lambda: api.hessian(lambda a: a, x))
    say.error(lambda: api.vjp(lambda a: a**2, x))
    say(api.jacobian(lambda a: a**2, x, create_graph=True).requires_grad)


def with_recorded_arguments(t: Any, say: Any) -> None:
    w = _vector(t).requires_grad_()
    x = _vector(t)
    out = t.func.grad(lambda a: (a * a * w).sum())(x)
    say(out, out.requires_grad)
    out.sum().backward()
    say(w.grad)
    out = t.func.grad(lambda a: (a**3).sum())(w)
    say(out.requires_grad)
    say(t.autograd.grad(out.sum(), w))
    o, f = t.func.vjp(lambda a: a**2, w)
    say(o.requires_grad, f(t.ones(3))[0].requires_grad)
    p, q = t.func.jvp(lambda a: a**2, (w,), (x,))
    say(p.requires_grad, q.requires_grad, t.autograd.grad(q.sum(), w))
    j = t.func.jacrev(lambda a: a**2 * w)(x)
    say(j.requires_grad, t.autograd.grad(j.sum(), w))
    with t.no_grad():
        say(t.func.grad(lambda a: (a**3).sum())(w).requires_grad)


def nestings(t: Any, say: Any) -> None:
    x, m = _vector(t), t.arange(6.0).reshape(2, 3) / 3
    g, v, j = t.func.grad, t.func.vmap, t.func.jvp
    f = lambda a: (a.sin() * a).sum()  # noqa: E731
    say(v(g(f))(m), g(lambda a: v(f)(a).sum())(m))
    say(g(lambda a: g(f)(a).sum())(x), g(lambda a: g(lambda b: g(f)(b).sum())(a).sum())(x))
    say(j(g(f), (x,), (x,)), g(lambda a: j(f, (a,), (a,))[1])(x))
    say(v(lambda a: j(f, (a,), (a,))[1])(m), j(lambda a: v(f)(a), (m,), (m,)))
    say(v(lambda a: g(lambda b: j(f, (b,), (a,))[1])(a))(m))
    say(j(lambda a: v(g(f))(a), (m,), (m,))[1])
    say(v(v(lambda a: a * 2))(m), v(v(g(lambda a: a**3)))(m))
    say(g(lambda w: v(lambda a: (a * w).sum())(m).prod())(x))
    say(v(g(lambda w, a: (a * w).sum() ** 2), in_dims=(None, 0))(x, m))
    say(v(lambda a: g(lambda w: (w * a).sum())(x))(m))
    say(j(lambda a: j(f, (a,), (a,))[1], (x,), (x,)))
    say(v(t.func.jacrev(lambda a: a**2))(m)[0], v(t.func.jacfwd(lambda a: a**2))(m)[1])
    say(t.func.jacrev(v(lambda a: a**2))(m).shape)


def functional_call(t: Any, say: Any) -> None:
    model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.Tanh(), t.nn.Linear(2, 1))
    with t.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_((t.arange(float(p.numel())).reshape(p.shape) - i) / 7)
    params = dict(model.named_parameters())
    x = _vector(t)
    say(t.func.functional_call(model, params, x), model(x))
    half = {k: p * 0.5 for k, p in params.items()}
    say(t.func.functional_call(model, half, (x,)), model(x))
    loss = lambda p, a: t.func.functional_call(model, p, (a,)).pow(2).sum()  # noqa: E731
    detached = {k: p.detach() for k, p in params.items()}
    say(t.func.grad(loss)(detached, x))
    say(t.func.vmap(t.func.grad(loss), in_dims=(None, 0))(detached, t.stack([x, -x]))["0.bias"])
    say.error(lambda: t.func.functional_call(model, {"nothing": x}, x))
    say.error(lambda: t.func.functional_call(model, 3, x))
    say.error(lambda: t.func.functional_call(model, {**params, "extra": x}, x, strict=True))
    say.error(lambda: t.func.functional_call(model, {"0.bias": x[:2]}, x, strict=True))
    bn = t.nn.BatchNorm1d(3)
    buffers = {k: b.clone() for k, b in bn.named_buffers()}
    t.func.functional_call(bn, (dict(bn.named_parameters()), buffers), t.stack([x, x * 2]))
    say(buffers["running_mean"], bn.running_mean)


def ensembles(t: Any, say: Any) -> None:
    t.manual_seed(1)
    models = [t.nn.Linear(3, 2) for _ in range(3)]
    params, buffers = t.func.stack_module_state(models)
    say({k: list(p.shape) for k, p in params.items()}, buffers)
    base = models[0]
    x = _vector(t)
    out = t.func.vmap(lambda p, b: t.func.functional_call(base, (p, b), (x,)))(params, buffers)
    say(out, t.stack([m(x) for m in models]))
    say.error(lambda: t.func.stack_module_state([]))
    say.error(lambda: t.func.stack_module_state([models[0], t.nn.ReLU()]))


def linearize(t: Any, say: Any) -> None:
    x, v = _vector(t), t.ones(3)
    out, f = t.func.linearize(lambda a: a.sin() * a, x)
    say(out, f(v), f(v * 2))
    out, f = t.func.linearize(lambda a, b: (a * b, a + b), x, x * 2)
    say(out, f(v, v))
    say.error(lambda: f(v))


def functionalize(t: Any, say: Any) -> None:
    x = _vector(t)

    def f(a: Any) -> Any:
        b = a.clone()
        b[0].mul_(5)
        b.view(3, 1).add_(1)
        return b

    say(t.func.functionalize(f)(x), x)
    y = _vector(t)
    say(t.func.functionalize(lambda a: a.add_(1).view(3, 1))(y), y)
    say(t.func.functionalize(f, remove="mutations_and_views")(x))
    say(t.func.grad(lambda a: t.func.functionalize(f)(a).sum())(x))
    say(t.func.vmap(t.func.functionalize(f))(t.stack([x, x * 2])))
    say.error(lambda: t.func.functionalize(f, remove="all"))


def batch_norm_replaced(t: Any, say: Any) -> None:
    net = t.nn.Sequential(t.nn.BatchNorm1d(2), t.nn.Sequential(t.nn.BatchNorm2d(3)))
    out = t.func.replace_all_batch_norm_modules_(net)
    say(out is net, net[0].running_mean, net[1][0].track_running_stats, net[1][0].running_var)


def sums_of_higher_order(t: Any, say: Any) -> None:
    f = lambda a: a.sin()  # noqa: E731
    for _ in range(5):
        say(f(t.tensor(0.7)))
        f = t.func.grad(f)
    h = lambda a: a.exp() * a  # noqa: E731
    for _ in range(4):
        say(h(t.tensor(0.3)))
        h = (lambda q: lambda a: t.func.jvp(q, (a,), (t.ones(()),))[1])(h)


def writes_under_hessians(t: Any, say: Any) -> None:
    x = _vector(t)

    def pieces(a: Any) -> Any:
        b = a.clone()
        b[0] *= b[1].clone()
        b[1:].add_(a[:2])
        b.view(-1)[2] = a[0] ** 2
        return (b * a).sum()

    def whole(a: Any) -> Any:
        b = a.clone()
        b.mul_(a)
        return (b * a).sum()

    for f in (pieces, whole):
        say(
            t.func.hessian(f)(x), t.func.jacrev(t.func.grad(f))(x), t.func.jacfwd(t.func.grad(f))(x)
        )
        say(t.func.vmap(t.func.hessian(f))(t.stack([x, x * 2])))


def refused_inside(t: Any, say: Any) -> None:
    x = _vector(t)
    g = t.func.grad
    say.error(lambda: g(lambda a: ((b := a * 2), b.retain_grad(), b.sum())[2])(x))
    say.error(lambda: g(lambda a: (a.sum(), 3), has_aux=True)(x))
    say.error(lambda: t.func.jvp(lambda a: (a, None), (x,), (x,), has_aux=True))
    say.error(lambda: g(lambda z: (z * z).sum())(t.tensor([1 + 2j])))
    say(g(lambda a: ((b := a * 2), b.register_hook(lambda q: q * 10), b.sum())[2])(x))
    say(g(lambda a: t.autograd.grad((a**3).sum(), a, create_graph=True)[0].sum())(x))
    say.error(lambda: t.func.vmap(lambda a: t.autograd.grad((a * a).sum(), a))(x[None]))
    hooks = t.autograd.graph.saved_tensors_hooks
    with hooks(lambda v: v, lambda v: v):
        say.error(lambda: g(lambda a: (a * a).sum())(x))
    bn = t.nn.BatchNorm1d(3)
    say.error(lambda: g(lambda a: bn(a).sum())(t.ones(4, 3)))
    say(g(lambda a: t.nn.BatchNorm1d(3)(a).pow(2).sum())(t.ones(4, 3)).requires_grad)


def printing(t: Any, say: Any) -> None:
    x, m = _vector(t), t.arange(6.0).reshape(2, 3)

    def f(a: Any) -> Any:
        say(repr(a), repr(a * 2), repr(t.ones(1)))
        return a.sum()

    t.func.grad(f)(x)
    t.func.vmap(f)(m)
    t.func.vmap(t.func.grad(f))(m)
    t.func.grad(lambda a: t.func.vmap(f)(a).sum())(m)
    t.func.grad(lambda a: t.func.grad(f)(a).sum())(x)
    t.func.jvp(f, (x,), (x,))
    outside = x * 1
    t.func.grad(lambda a: (say(repr(outside)), a.sum())[1])(x)
