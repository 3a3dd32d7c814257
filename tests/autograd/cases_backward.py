"""backward and grad: accumulation, arguments, errors, create_graph, re-entrance, threads."""

from __future__ import annotations

import threading
from typing import Any


def _leaf(t: Any, *values: float) -> Any:
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def accumulation(t: Any, say: Any) -> None:
    x = _leaf(t)
    for i in range(3):
        (x * x * (i + 1)).sum().backward()
        say(x.grad)
    first = x.grad
    x.grad = None
    (x * 2).sum().backward()
    say(first, x.grad, first is x.grad)
    x.grad.zero_()
    kept = x.grad
    (x * 3).sum().backward()
    say(kept, kept is x.grad)


def accumulation_with_create_graph(t: Any, say: Any) -> None:
    x = _leaf(t)
    say.warned(lambda: (x**3).sum().backward(create_graph=True))
    old = x.grad
    say(old.requires_grad, type(old.grad_fn).__name__)
    (x * 2).sum().backward(create_graph=True)
    say(x.grad is old, x.grad, old, type(x.grad.grad_fn).__name__)
    x.grad = None


def one_tensor_many_times(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * x + x * x - x / x + x.exp() * x
    y.backward(t.ones(3))
    say(x.grad)
    z = x
    for _ in range(5):
        z = z * x
    (g,) = t.autograd.grad(z.sum(), x)
    say(g)


def diamonds(t: Any, say: Any) -> None:
    x = _leaf(t, 0.5, -1.0)
    y = x
    for _ in range(12):
        y = y * 0.5 + y.sin() * 0.25
    y.sum().backward()
    say(x.grad)


def retain_graph(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    say(x.grad)
    say.error(y.backward)
    z = x.exp().sum()
    z.backward()
    say.error(lambda: t.autograd.grad(z, x))


def twice_through_what_saves_nothing(t: Any, say: Any) -> None:
    x = _leaf(t)
    for name, f in (
        ("scale", lambda v: v * 2),
        ("shift", lambda v: v + 1),
        ("neg", lambda v: -v),
        ("sum", lambda v: v.sum()),
        ("view", lambda v: v.view(3, 1)),
        ("clone", lambda v: v.clone()),
        ("mul", lambda v: v * v),
        ("exp", lambda v: v.exp()),
        ("div", lambda v: v / 2),
        ("rdiv", lambda v: 2 / v),
        ("pow", lambda v: v**2),
        ("mean", lambda v: v.mean()),
        ("cat", lambda v: t.cat([v, v])),
        ("index", lambda v: v[t.tensor([0, 1])]),
        ("relu", lambda v: v.relu()),
        ("select", lambda v: v[0]),
        ("max", lambda v: v.max()),
        ("to", lambda v: v.double()),
        ("add", lambda v: v + v),
        ("expand", lambda v: v.expand(2, 3)),
        ("mul_", lambda v: v.clone().mul_(2)),
        ("where", lambda v: t.where(v > 0, v, 0.0)),
        ("stack", lambda v: t.stack([v, v])),
        ("permute", lambda v: v[None].permute(1, 0)),
        ("repeat", lambda v: v.repeat(2)),
        ("clamp", lambda v: v.clamp(0)),
        ("sub", lambda v: v - 2),
    ):
        y = f(x)
        y.sum().backward(retain_graph=False)
        first = f(x)
        t.autograd.grad(first, x, t.ones_like(first))
        try:
            t.autograd.grad(first, x, t.ones_like(first))
            say(name, "again")
        except RuntimeError as error:
            say(name, str(error)[:60])


def backward_of_non_scalars(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x * 2
    say.error(y.backward)
    y.backward(t.tensor([1.0, 10.0, 100.0]), retain_graph=True)
    say(x.grad)
    say.error(lambda: y.backward(t.ones(2)))
    say.error(lambda: y.backward(t.ones(3, dtype=t.complex64)))
    say.error(lambda: y.backward(3.0))
    say.error(lambda: y.backward([t.ones(3), t.ones(3)]))
    say.error(lambda: t.autograd.backward([y, y], [t.ones(3)]))
    y.backward([t.ones(3)], retain_graph=True)
    t.autograd.backward([y, y.sum()], [t.ones(3), None], retain_graph=True)
    say(x.grad)
    say.error(lambda: t.autograd.backward([y, y], [None, t.ones(3)]))
    z = x[:1] * 3
    z.backward()
    say(x.grad)


def backward_without_history(t: Any, say: Any) -> None:
    say.error(lambda: t.ones(()).backward())
    say.error(lambda: t.autograd.grad(t.ones(()), t.ones((), requires_grad=True)))
    x = _leaf(t)
    say.error(lambda: t.autograd.grad((x * 2).sum(), t.ones(3)))
    leaf = t.ones((), requires_grad=True)
    leaf.backward()
    say(leaf.grad)
    leaf.backward(t.tensor(3.0))
    say(leaf.grad)
    say(t.autograd.grad(leaf, leaf))
    say.error(lambda: (t.arange(3).sum() + 0).backward())
    say.error(lambda: t.autograd.backward([]))
    say.error(lambda: t.autograd.grad([], [x]))
    say.error(lambda: t.autograd.grad(x.sum(), []))


def grad_arguments(t: Any, say: Any) -> None:
    x, y = _leaf(t), _leaf(t, 4.0, 5.0, 6.0)
    out = (x * x).sum()
    say.error(lambda: t.autograd.grad(out, [x, y], retain_graph=True))
    say.error(lambda: t.autograd.grad(out, y, retain_graph=True))
    say(t.autograd.grad(out, [x, y], retain_graph=True, allow_unused=True))
    say(t.autograd.grad(out, [x, y], retain_graph=True, materialize_grads=True))
    say.error(lambda: t.autograd.grad(out, [x, y], allow_unused=False, materialize_grads=True))
    say(t.autograd.grad([out, (x * y).sum()], [x, y], retain_graph=True))
    say(t.autograd.grad([x * y, x], [x, y], [t.ones(3), 2 * t.ones(3)]))
    say(x.grad, y.grad)
    z = (x * y).sum()
    say(t.autograd.grad(z, (x, x, y)))
    say.error(lambda: t.autograd.grad(x * y, x, [t.ones(3), t.ones(3)]))
    say.warned(lambda: t.autograd.grad((x * y).sum(), x, only_inputs=False))


def grad_of_inner_tensors(t: Any, say: Any) -> None:
    x = _leaf(t)
    a = x * 2
    b = a.exp()
    c = (b * a).sum()
    say(t.autograd.grad(c, [a, b, x], retain_graph=True))
    say(t.autograd.grad(c, b, retain_graph=True), x.grad)
    say(t.autograd.grad(c, c, retain_graph=True))
    say(t.autograd.grad([c, b], [b], [None, t.ones(3)]))


def grads_batched(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x**2
    eye = t.eye(3)
    (jacobian,) = t.autograd.grad(y, x, eye, is_grads_batched=True, retain_graph=True)
    say(jacobian)
    say.error(lambda: t.autograd.grad(y, x, t.ones(3), is_grads_batched=True))
    say.error(lambda: t.autograd.grad(y, x, t.ones(2, 2), is_grads_batched=True))
    z = (x.sin() * x).exp()
    (rows,) = t.autograd.grad(z, x, eye * 2, is_grads_batched=True)
    say(rows)


def backward_inputs(t: Any, say: Any) -> None:
    x, y = _leaf(t), _leaf(t, 4.0, 5.0, 6.0)
    z = x * y
    z.sum().backward(inputs=[x], retain_graph=True)
    say(x.grad, y.grad)
    z.sum().backward(inputs=y, retain_graph=True)
    say(x.grad, y.grad)
    say.error(lambda: z.sum().backward(inputs=[]))
    w = x * 3
    (w * y).sum().backward(inputs=[w])
    say(w.grad, x.grad)
    say.error(lambda: z.sum().backward(inputs=[t.ones(3)]))
    q = z.sum()
    q.backward(inputs=[z])
    say(z.grad)


def double_and_triple(t: Any, say: Any) -> None:
    x = _leaf(t, 0.3, 0.7)
    y = (x**4).sum()
    for _ in range(4):
        (g,) = t.autograd.grad(y, x, create_graph=True)
        say(g, g.requires_grad)
        y = g.sum()
    x = _leaf(t, 0.3, 0.7)
    y = (x.tanh() * x.exp()).sum()
    for _ in range(3):
        (g,) = t.autograd.grad(y, x, create_graph=True)
        say(g)
        y = (g * g).sum()


def double_of_many(t: Any, say: Any) -> None:
    for name, f in (
        ("sigmoid", t.sigmoid),
        ("softmax", lambda v: v.softmax(0)),
        ("log", lambda v: v.abs().log()),
        ("norm", lambda v: v.norm()),
        ("prod", lambda v: v.prod()),
        ("cumprod", lambda v: v.cumprod(0)),
        ("logsumexp", lambda v: v.logsumexp(0)),
        ("std", lambda v: v.std()),
        ("gelu", t.nn.functional.gelu),
        ("silu", t.nn.functional.silu),
        ("layer_norm", lambda v: t.nn.functional.layer_norm(v, (3,))),
        ("matmul", lambda v: v.outer(v) @ v),
        ("div", lambda v: 1 / v),
        ("sqrt", lambda v: v.sqrt()),
        ("max", lambda v: v.max()),
        ("sort", lambda v: v.sort()[0]),
        ("atan2", lambda v: t.atan2(v, v + 1)),
        ("where", lambda v: t.where(v > 1.5, v * v, v**3)),
        ("cumsum", lambda v: v.cumsum(0) ** 2),
        ("mish", t.nn.functional.mish),
        ("softplus", t.nn.functional.softplus),
        ("erf", t.erf),
        ("dist", lambda v: t.dist(v, v * 2)),
        ("det", lambda v: (v.outer(v) / 9 + t.eye(3)).det()),
        ("inv", lambda v: (v.outer(v) / 9 + t.eye(3)).inverse()),
        ("lgamma", t.lgamma),
    ):
        x = _leaf(t)
        (g,) = t.autograd.grad((f(x) ** 2).sum(), x, create_graph=True)
        say(name, g, t.autograd.grad(g.sum(), x))


def reentrant(t: Any, say: Any) -> None:
    class Inner(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with t.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = ctx.x * ctx.x
            return ctx.y.detach()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            with t.enable_grad():
                ctx.y.backward(g)
            return ctx.x.grad

    x = _leaf(t)
    (Inner.apply(x * 2) * Inner.apply(x)).sum().backward()
    say(x.grad)


def reentrant_deeply(t: Any, say: Any) -> None:
    class Deep(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, n: int) -> Any:
            ctx.n = n
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if ctx.n:
                v = g.detach().requires_grad_()
                with t.enable_grad():
                    w = Deep.apply(v, ctx.n - 1).sum()
                w.backward()
                return g + v.grad, None
            return g, None

    x = _leaf(t)
    Deep.apply(x, 30).sum().backward()
    say(x.grad)


def error_in_the_middle(t: Any, say: Any) -> None:
    class Fails(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise KeyError("mine")

    x, y = _leaf(t), _leaf(t)
    say.error(lambda: (Fails.apply(x) * y).sum().backward())
    say(x.grad, y.grad, t.is_grad_enabled())
    (x * y).sum().backward()
    say(x.grad, y.grad)


def threads(t: Any, say: Any) -> None:
    x = _leaf(t)
    failed: list[str] = []

    def work(k: int) -> None:
        try:
            say_grad = t.is_grad_enabled()
            (g,) = t.autograd.grad((x * k).exp().sum(), x)
            assert say_grad and t.allclose(g, k * (x * k).exp())
            with t.no_grad():
                assert not (x * 2).requires_grad
        except BaseException as error:
            failed.append(repr(error))

    with t.no_grad():  # another thread has its own mode
        workers = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    say(failed)


def dtypes_and_shapes_of_gradients(t: Any, say: Any) -> None:
    x = t.ones(2, 1, dtype=t.float64, requires_grad=True)
    y = t.ones(3, requires_grad=True)
    z = t.ones((), dtype=t.float16, requires_grad=True)
    (x * y * z).sum().backward()
    say(x.grad, x.grad.dtype, y.grad, y.grad.dtype, z.grad, z.grad.dtype, z.grad.shape)
    w = t.ones(2, 3, requires_grad=True)
    v = w.t().contiguous().t()
    v.sum().backward()
    say(w.grad.stride())
    u = t.ones(3, 2).t().requires_grad_()
    (u * 2).sum().backward()
    say(u.grad.stride())
    s = t.ones(4, 4)[::2, ::2].requires_grad_()
    (s * 2).sum().backward()
    say(s.grad.stride())
    e = t.ones(1, 3).expand(2, 3).requires_grad_()
    (e * 2).sum().backward()
    say(e.grad.stride(), e.grad)


def assigning_grad(t: Any, say: Any) -> None:
    x = _leaf(t)
    say.error(lambda: setattr(x, "grad", t.ones(2)))
    say.error(lambda: setattr(x, "grad", t.ones(3, dtype=t.float64)))
    say.error(lambda: setattr(x, "grad", 3))
    say.error(lambda: setattr(x, "grad", x))
    x.grad = t.ones(3)
    (x * 2).sum().backward()
    say(x.grad)
    del x.grad
    say(x.grad)
    y = x * 2
    say.warned(lambda: y.grad)
    y.grad = t.ones(3)
    y.retain_grad()
    y.sum().backward()
    say(y.grad)


def requires_grad_flags(t: Any, say: Any) -> None:
    x = t.ones(3)
    say(x.requires_grad, x.is_leaf, x.requires_grad_() is x, x.requires_grad)
    y = x * 2
    say(y.requires_grad, y.is_leaf, y.detach().requires_grad, y.detach().is_leaf)
    say.error(lambda: y.requires_grad_(False))
    say.error(lambda: setattr(y, "requires_grad", False))
    say.error(lambda: setattr(y, "requires_grad", True))
    say(y.requires_grad_() is y)
    say.error(lambda: t.ones(3, dtype=t.int64).requires_grad_())
    say.error(lambda: t.ones(3, dtype=t.int64, requires_grad=True))
    say.error(lambda: t.tensor([1], requires_grad=True))
    say.error(lambda: setattr(x, "requires_grad", 1))
    say.error(lambda: x.requires_grad_(1))
    z = y.detach_() if False else (x * 1).detach_()
    say(z.requires_grad, z.is_leaf, z.grad_fn)
    say.error(lambda: (x * 1)[0].detach_())
    say(t.ones(3, requires_grad=True).to(t.float64).is_leaf, x.to(t.float32) is x)
    say((x > 1).requires_grad, x.argmax().requires_grad, x.long().requires_grad)
    say.error(lambda: x.numpy())
    say.error(lambda: (x * 2).tolist())
    say.error(lambda: x.data.numpy().sum().item())


def nothing_to_differentiate(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = t.zeros(0, requires_grad=True)
    (x.sum() + y.sum()).backward()
    say(x.grad, y.grad, y.grad.shape)
    i = x.argmax()
    say.error(lambda: t.autograd.grad(x[i], y))
    m = t.max(x, 0)
    m.values.backward()
    say(x.grad, m.indices.requires_grad)


def undefined_gradients_of_outputs(t: Any, say: Any) -> None:
    x = _leaf(t)
    _, b, _ = x.unbind()
    b.backward(retain_graph=True)
    say(x.grad)
    values, _ = x.sort(descending=True)
    values[0].backward()
    say(x.grad)
    _, r = t.linalg.qr(t.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True))
    (g,) = t.autograd.grad(r.sum(), r)
    say(g)
    p = t.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    r = t.linalg.qr(p)[1]
    r.sum().backward()
    say(p.grad)
    s = t.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    t.linalg.eigh(s)[0].sum().backward()
    say(s.grad)


def names_of_nodes(t: Any, say: Any) -> None:
    x = _leaf(t)
    m = t.ones(3, 3, requires_grad=True)
    for y in (
        x + 1,
        x * 2,
        x - x,
        2 - x,
        x / 2,
        2 / x,
        x**2,
        2**x,
        x**x,
        -x,
        x.sum(),
        x.sum(0),
        x.mean(),
        x.mean(0),
        x.view(3, 1),
        x.reshape(3, 1),
        x.t(),
        m.t(),
        m @ m,
        m @ x,
        x @ x,
        x[0],
        x[1:],
        x[None],
        x[t.tensor([0])],
        x[x > 1],
        x.max(),
        x.max(0)[0],
        t.cat([x, x]),
        t.stack([x, x]),
        x.exp(),
        x.relu(),
        x.softmax(0),
        x.log_softmax(0),
        x.clone(),
        x.double(),
        x.expand(2, 3),
        m.transpose(0, 1),
        m.permute(1, 0),
        m.squeeze(),
        x.unsqueeze(0),
        x.clamp(0, 1),
        x.abs(),
        x.norm(),
        x.var(),
        x.std(),
        x.prod(),
        x.cumsum(0),
        x.repeat(2),
        m.diagonal(),
        x.flip(0),
        x.masked_fill(x > 1, 0.0),
        t.where(x > 1, x, x),
        x.gather(0, t.tensor([0])),
        x.flatten(),
        t.nn.functional.linear(x, m),
        t.nn.functional.linear(x, m, x),
        t.addmm(m, m, m),
        x.outer(x),
        t.nn.functional.gelu(x),
        x.add_(1) if False else x.sin(),
        m.unbind()[0],
        m.split(1)[0],
        m.chunk(2)[0],
        x.narrow(0, 0, 1),
        m.triu(),
        x.sqrt(),
        x.logsumexp(0),
        t.nn.functional.cross_entropy(m, t.tensor([0, 1, 2])),
        t.einsum("ij,jk", m, m),
        x.select(0, 0),
        x.index_select(0, t.tensor([0])),
        x.sort()[0],
        x.topk(1)[0],
        x.amax(),
        x.dot(x),
        t.nn.functional.dropout(x, 0.5),
        t.nn.functional.layer_norm(x, (3,)),
        t.lerp(x, x, 0.5),
        x.erf(),
        t.nn.functional.embedding(t.tensor([0]), m),
        t.nn.functional.pad(x, (1, 1)),
        x.detach() * x,
        m.tril(),
        m.trace(),
        m.det(),
        m.inverse() if False else m.abs(),
        t.bmm(m[None], m[None]),
        x.float(),
        x.to(t.bfloat16),
        m.view(-1),
        m.as_strided((2,), (1,)),
        m.unfold(0, 2, 1),
        x.sign(),
        x.floor(),
    ):
        say(y.grad_fn.name() if y.grad_fn is not None else None)


def next_functions(t: Any, say: Any) -> None:
    def names(y: Any) -> Any:
        return [None if f is None else f.name() for f, _ in y.grad_fn.next_functions]

    x, w = _leaf(t), t.ones(2, 3, requires_grad=True)
    c = t.ones(3)
    for y in (
        x * 2,
        x + x,
        x * c,
        c * x,
        t.nn.functional.linear(x, w),
        t.cat([x, c]),
        x.sum(),
        t.nn.functional.linear(x, w, t.ones(2)),
        t.addmm(t.ones(2, 2), w, w.t()),
        x[t.tensor([0])],
        t.where(x > 0, x, c),
        t.where(x > 0, c, x),
        x.detach() * x,
        (x * 2).exp(),
        x / c,
        c / x,
    ):
        say(y.grad_fn.name(), names(y))
    node = (x * 2).grad_fn.next_functions[0][0]
    say(node.variable is x, node.next_functions)
    y = x * 2
    say((y + 1).grad_fn.next_functions[0][0] is y.grad_fn, y.grad_fn == y.grad_fn)


def gradient_edges(t: Any, say: Any) -> None:
    edge = t.autograd.graph.get_gradient_edge
    x = _leaf(t)
    y = x * 2
    z = y.exp().sum()
    say(t.autograd.grad(z, [edge(y), edge(x)], retain_graph=True))
    e = edge(z)
    say(e.node.name(), e.output_nr)
    say(t.autograd.grad(e, x, t.tensor(2.0), retain_graph=True))
    say.error(lambda: t.autograd.grad(edge(y), x, retain_graph=True))
    say.error(lambda: edge(t.ones(3)))
    t.autograd.backward(z, inputs=[edge(x)])
    say(x.grad)
    t.autograd.backward(edge(x * 3), t.ones(3))
    say(x.grad)


def graph_of_inplace_results(t: Any, say: Any) -> None:
    x = _leaf(t)
    y = x.clone()
    y.mul_(2).add_(x).exp_()
    say(y.grad_fn.name(), [f.name() for f, _ in y.grad_fn.next_functions])
    y.sum().backward()
    say(x.grad)
    a = x.clone()
    b = a.mul_(a)
    b.sum().backward()
    say(x.grad, a is b)
    c = x.clone()
    c.add_(c, alpha=2)
    c.sum().backward()
    say(x.grad)


def accumulate_grad_order(t: Any, say: Any) -> None:
    order: list[str] = []
    leaves = [t.ones((), requires_grad=True) for _ in range(4)]
    for i, leaf in enumerate(leaves):
        leaf.register_hook(lambda g, i=i: order.append(f"leaf {i}"))
    y = leaves[0] * leaves[1]
    y.register_hook(lambda g: order.append("y"))
    z = y * leaves[2]
    z.register_hook(lambda g: order.append("z"))
    (z + leaves[3]).backward()
    say(order)


def set_multithreading(t: Any, say: Any) -> None:
    x = _leaf(t)
    with t.autograd.set_multithreading_enabled(False):
        say(t._C._is_multithreading_enabled())
        (x * 2).sum().backward()
    say(x.grad, t._C._is_multithreading_enabled())


def complex_gradients(t: Any, say: Any) -> None:
    z = t.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    say.error(lambda: (z * z).sum().backward())
    for f in (
        lambda v: v.abs().sum(),
        lambda v: (v * v.conj()).real.sum(),
        lambda v: v.imag.sum(),
        lambda v: (v**2).real.sum(),
        lambda v: t.view_as_real(v).prod(),
        lambda v: v.exp().abs().sum(),
        lambda v: v.real.sum(),
        lambda v: (v / (1 + v)).imag.sum(),
    ):
        say(t.autograd.grad(f(z), z))
    x = t.tensor([1.0, 2.0], requires_grad=True)
    (x * (1 + 1j)).abs().sum().backward()
    say(x.grad, x.grad.dtype)
    (z * x).sum().backward(t.tensor(1 + 0j))
    say(x.grad, z.grad)


def callbacks_at_the_end(t: Any, say: Any) -> None:
    engine = t.autograd.Variable._execution_engine
    say.error(lambda: engine.queue_callback(lambda: None))
    order: list[str] = []
    x = _leaf(t)
    y = x * 2

    def hook(g: Any) -> None:
        engine.queue_callback(lambda: order.append("end"))
        order.append("hook")

    y.register_hook(hook)
    x.register_post_accumulate_grad_hook(lambda p: order.append("leaf"))
    y.sum().backward()
    say(order, t._C._current_graph_task_id())


def dtype_of_accumulated_gradients(t: Any, say: Any) -> None:
    x = _leaf(t)
    x.grad_dtype = t.float64
    (x * 2).sum().backward()
    say(x.grad, x.grad.dtype, x.grad_dtype)
    (x * 3).sum().backward()
    say(x.grad, x.grad.dtype)
    say(t.autograd.grad((x * 2).sum(), x)[0].dtype)
    say.error(lambda: setattr(x, "grad_dtype", t.float32))


def slopes_at_odd_places(t: Any, say: Any) -> None:
    z = t.tensor([0.0, 1.0], requires_grad=True)
    for f in (
        t.sqrt,
        t.log,
        lambda v: v**0,
        lambda v: v**0.5,
        lambda v: v.norm(),
        lambda v: (v * 0).norm(),
        t.asin,
        lambda v: t.atan2(v, v * 0),
        lambda v: t.atan2(v * 0, v * 0),
        lambda v: v.prod(),
        lambda v: v**v,
        lambda v: t.fmod(v, 1),
        lambda v: (v - 1).abs(),
        lambda v: v.relu(),
        lambda v: t.stack([v, v]).max(0)[0],
        lambda v: t.stack([v, v]).amax(0),
        lambda v: v.std(),
        lambda v: v.clamp(0, 1),
        lambda v: v.cummax(0)[0],
    ):
        say(t.autograd.grad(f(z).sum(), z))
