"""vmap: dimensions, randomness, chunks, writes, errors, and rules of operators."""

from __future__ import annotations

from typing import Any


def _matrix(t: Any) -> Any:
    return t.arange(6.0).reshape(2, 3)


def dimensions(t: Any, say: Any) -> None:
    x, y = _matrix(t), t.tensor([1.0, 2.0])
    v = t.func.vmap
    say(v(lambda a: a * 2)(x), v(lambda a: a.sum(), in_dims=1)(x), v(lambda a: a, out_dims=1)(x))
    say(v(lambda a, b: a * b)(x, y), v(lambda a, b: a * b, in_dims=(0, None))(x, x[0]))
    say(v(lambda a, b: a + b, in_dims=(1, None))(x, y), v(lambda a: a, in_dims=-1, out_dims=-1)(x))
    say(v(lambda d: d["a"] * d["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": x[0]}))
    say(v(lambda a: (a, a.sum()), out_dims=(1, 0))(x), v(lambda a: {"k": a}, out_dims={"k": 1})(x))
    say(v(lambda a: (a, 3), out_dims=(0, None))(x), v(lambda a: t.ones(2))(x))
    say(v(v(lambda a, b: a * b, in_dims=(None, 0)), in_dims=(0, None))(y, y))
    say(t.vmap is t.func.vmap, v(lambda a, k=1: a * k)(x, k=3))


def errors(t: Any, say: Any) -> None:
    x = _matrix(t)
    v = t.func.vmap

    def f(a: Any) -> Any:
        return a

    say.error(lambda: v(f)())
    say.error(lambda: v(f, in_dims=2)(x))
    say.error(lambda: v(f, in_dims=None)(x))
    say.error(lambda: v(f, in_dims="a")(x))
    say.error(lambda: v(f, in_dims=(0, 0))(x))
    say.error(lambda: v(f)(3))
    say.error(lambda: v(f, in_dims=(None,))(x))
    say.error(lambda: v(lambda a, b: a)(x, t.ones(3)))
    say.error(lambda: v(lambda a: 3)(x))
    say.error(lambda: v(f, out_dims=3)(x))
    say.error(lambda: v(f, out_dims=None)(x))
    say.error(lambda: v(f, out_dims=(0, 0))(x))
    say.error(lambda: v(f, out_dims="a")(x))
    say.error(lambda: v(f, chunk_size=0)(x))
    say.error(lambda: v(f, randomness="some")(x))
    say.error(lambda: v(lambda a: a.item())(x[0]))
    say.error(lambda: v(lambda a: a if a.sum() > 0 else -a)(x))
    say.error(lambda: v(lambda a: a[a > 1])(x))
    say.error(lambda: v(lambda a: t.nonzero(a))(x))
    say.error(lambda: v(lambda a: a.unique())(x))
    say.error(lambda: v(lambda a: a.numpy())(x))
    say.error(lambda: v(lambda a: a.tolist())(x))
    say.error(lambda: v(lambda a: a.data_ptr())(x))
    say.error(lambda: v(lambda a: t.rand(3))(x))
    say.error(lambda: v(lambda a: t.masked_select(a, a > 1))(x))
    say.error(lambda: v(f)(t.ones(0, 3)).shape)
    say.error(lambda: v(lambda a: t.nn.functional.dropout(a, 0.5))(x))


def what_a_function_sees(t: Any, say: Any) -> None:
    x = _matrix(t).requires_grad_()

    def f(a: Any) -> Any:
        say(a.shape, a.dim(), a.stride(), a.dtype, a.requires_grad, a.numel(), a.is_contiguous())
        say(len(a), a.size(0), [b.shape for b in a], t.is_tensor(a), type(a).__name__)
        return a * 2

    out = t.func.vmap(f, in_dims=1)(x)
    say(out.requires_grad)
    out.sum().backward()
    say(x.grad)


def randomness(t: Any, say: Any) -> None:
    x = t.ones(3, 4)
    v = t.func.vmap
    for mode in ("same", "different"):
        t.manual_seed(0)
        say(v(lambda a: t.rand(2), randomness=mode)(x))
        say(v(lambda a: t.rand_like(a), randomness=mode)(x))
        say(v(lambda a: t.nn.functional.dropout(a, 0.5), randomness=mode)(x))
        say(v(lambda a: t.bernoulli(a * 0.5), randomness=mode)(x) if mode == "different" else None)
        say(v(lambda a: t.randperm(4), randomness=mode)(x))
        say(v(lambda a: a.clone().uniform_(), randomness=mode)(x))
        say(v(lambda a: t.randint(10, (2,)), randomness=mode)(x))
        say(v(lambda a: t.normal(0.0, 1.0, (2,)), randomness=mode)(x))


def chunks(t: Any, say: Any) -> None:
    x = t.arange(10.0).reshape(5, 2)
    v = t.func.vmap
    sizes: list[int] = []

    def f(a: Any) -> Any:
        sizes.append(1)
        return a * 2

    for size in (1, 2, 3, 5, 7, None):
        sizes.clear()
        say(v(f, chunk_size=size)(x), len(sizes))
    say(v(lambda a: (a, a.sum()), chunk_size=2, out_dims=(1, 0))(x))
    say(v(lambda a, b: a * b, in_dims=(0, None), chunk_size=2)(x, x[0]))
    t.manual_seed(0)
    say(v(lambda a: t.rand(2), randomness="different", chunk_size=2)(x))


def writes(t: Any, say: Any) -> None:
    x = _matrix(t)
    v = t.func.vmap
    y = x.clone()
    say(v(lambda a: a.add_(1))(y), y)
    say(v(lambda a: a[0].mul_(5))(y), y)
    say.error(lambda: v(lambda a: t.zeros(3).add_(a))(x))
    say.error(lambda: v(lambda a: t.zeros(3).copy_(a))(x))
    say.error(lambda: v(lambda a: t.zeros(3).__setitem__(0, a[0]))(x))
    say(v(lambda a: t.zeros_like(a).add_(a))(x), v(lambda a: a.new_zeros(2).fill_(3))(x))
    say(v(lambda a: a.new_zeros(3).copy_(a))(x))
    outside = t.zeros(3)
    v(lambda a: (outside.add_(1), a)[1])(x)
    say(outside)
    say.error(lambda: v(lambda a: (outside.add_(a), a)[1])(x))

    def index_put(a: Any) -> Any:
        b = a.clone()
        b[t.tensor([0, 2])] = a[:2] * 10
        b[1:2] = -1.0
        return b

    say(v(index_put)(x))


def operators(t: Any, say: Any) -> None:
    x, m = _matrix(t) + 1, t.arange(24.0).reshape(2, 3, 4) / 10
    functional = t.nn.functional
    i = t.tensor([[0, 2], [1, 1]])
    for name, f, args in (
        ("matmul", lambda a, b: a @ b, (x, m)),
        ("mm", lambda a: a @ a.t(), (m,)),
        ("dot", lambda a: a @ a, (x,)),
        ("linear", lambda a: functional.linear(a, x, x[:, 0]), (x,)),
        ("sum", lambda a: a.sum(-1, keepdim=True), (m,)),
        ("max", lambda a: a.max(0)[1], (m,)),
        ("argmax", lambda a: a.argmax(), (m,)),
        ("sort", lambda a: a.sort(descending=True)[0], (x,)),
        ("topk", lambda a: a.topk(2)[0], (x,)),
        ("cumsum", lambda a: a.cumsum(0), (m,)),
        ("softmax", lambda a: a.softmax(-1), (m,)),
        ("layer_norm", lambda a: functional.layer_norm(a.double(), (4,)), (m,)),
        ("gather", lambda a, j: a.gather(0, j), (x, i)),
        ("index", lambda a, j: a[j], (x, i)),
        ("index rows", lambda a: a[t.tensor([0, 0])], (m,)),
        ("index both", lambda a, j: a[j, j], (m, i)),
        ("embedding", lambda j: functional.embedding(j, m[0]), (i,)),
        ("where", lambda a: t.where(a > 2, a, -a), (x,)),
        ("cat", lambda a: t.cat([a, t.ones(2)]), (x,)),
        ("stack", lambda a: t.stack([a, a], -1), (x,)),
        ("pad", lambda a: functional.pad(a, (1, 2)), (x,)),
        ("conv", lambda a: functional.conv1d(a[None], m[:, :, :2]), (m,)),
        ("conv weights", lambda w: functional.conv1d(m[:1], w[None]), (m[..., :2],)),
        ("max_pool", lambda a: functional.max_pool1d(a[None], 2), (m,)),
        ("cross_entropy", lambda a, j: functional.cross_entropy(a[:2], j), (m[:, :2], i)),
        ("norm", lambda a: a.norm(), (m,)),
        ("var", lambda a: a.var(0), (m,)),
        ("prod", lambda a: a.prod(), (x,)),
        ("flip", lambda a: a.flip(0), (m,)),
        ("roll", lambda a: a.roll(1, 1), (m,)),
        ("permute", lambda a: a.permute(1, 0), (m,)),
        ("unfold", lambda a: a.unfold(0, 2, 1), (x,)),
        ("diag", lambda a: a.diag(), (x,)),
        ("trace", lambda a: a[:3, :3].trace(), (m,)),
        ("inverse", lambda a: (a.outer(a) + t.eye(3)).inverse(), (x,)),
        ("det", lambda a: (a.outer(a) + t.eye(3)).det(), (x,)),
        ("einsum", lambda a: t.einsum("ij,kj->ik", a, a), (m,)),
        ("attention", lambda a: functional.scaled_dot_product_attention(a, a, a), (m[:, None],)),
        ("one_hot", lambda j: functional.one_hot(j, 3), (i,)),
        ("scatter", lambda a, j: t.zeros(3).scatter(0, j, a[:2]), (x, i)),
        ("clamp", lambda a: a.clamp(1, 3), (x,)),
        ("promotion", lambda a: (a[0] * t.ones(2, dtype=t.float64)).dtype == t.float64, ()),
        ("scalar", lambda a: a[0] + a, (x,)),
        ("expand", lambda a: a.expand(2, 3), (x,)),
        ("squeeze", lambda a: a[None].squeeze(), (x,)),
        ("split", lambda a: a.split(2)[1], (x,)),
        ("tril", lambda a: a.tril(), (m,)),
        ("any", lambda a: (a > 5).any(), (x,)),
        ("bucketize", lambda a: t.searchsorted(t.tensor([1.0, 3.0]), a), (x,)),
        ("bmm", lambda a: t.bmm(a[None], a.t()[None]), (m,)),
        ("addmm", lambda a: t.addmm(t.ones(3), a, a.t(), beta=2), (m,)),
        ("masked_fill", lambda a: a.masked_fill(a > 3, 0.0), (x,)),
        ("repeat", lambda a: a.repeat(2), (x,)),
        ("interpolate", lambda a: functional.interpolate(a[None], scale_factor=2), (m,)),
        ("logical", lambda a: (a > 2) & (a < 5), (x,)),
        ("float", lambda a: a.double().half().float(), (x,)),
    ):
        if args:
            say(name, t.func.vmap(f)(*args))


def per_sample_gradients(t: Any, say: Any) -> None:
    model = t.nn.Sequential(t.nn.Conv2d(1, 2, 2), t.nn.ReLU(), t.nn.Flatten(), t.nn.Linear(8, 2))
    with t.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_((t.arange(float(p.numel())).reshape(p.shape) % 5 - i) / 9)
    params = {k: p.detach() for k, p in model.named_parameters()}
    x = t.arange(27.0).reshape(3, 1, 3, 3) / 27
    y = t.tensor([0, 1, 1])

    def loss(p: Any, a: Any, b: Any) -> Any:
        out = t.func.functional_call(model, p, (a[None],))
        return t.nn.functional.cross_entropy(out, b[None])

    grads = t.func.vmap(t.func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
    say({k: list(g.shape) for k, g in grads.items()}, grads["3.bias"], grads["0.weight"])


def fallbacks(t: Any, say: Any) -> None:
    x = t.arange(6.0).reshape(2, 3) + 1
    say(
        t.func.vmap(lambda a: t.histc(a, 2, 0, 10) if hasattr(t, "histc") else t.ones(1))(x).shape[
            0
        ]
    )
    say(t.func.vmap(lambda a: t.linalg.cholesky(a.outer(a) + t.eye(3)))(x)[0])
    say(t.func.vmap(lambda a: a.renorm(2, 0, 1.0) if False else a.kthvalue(2)[0])(x))
