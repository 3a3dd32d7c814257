"""Programs that call torch.func, captured whole: PyTorch 2.13 captures each of those in `WHOLE`
with fullgraph=True. Values, gradients and shared bytes are those of the program run eagerly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import func as F

Program = Callable[[Any, Any], Any]
WHOLE: dict[str, Program] = {}
LINEAR = torch.nn.Linear(3, 2)
NET = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def whole(fn: Program) -> Program:
    WHOLE[fn.__name__] = fn
    return fn


def f(v: Any) -> Any:
    return v.sin() * v


def total(v: Any) -> Any:
    return f(v).sum()


@whole
def vjp(x: Any, y: Any) -> Any:
    out, fn = F.vjp(f, x)
    return out, fn(y)


@whole
def vjp_called_twice(x: Any, y: Any) -> Any:
    out, fn = F.vjp(f, x)
    return fn(y), fn(out)


@whole
def vjp_of_trees(x: Any, y: Any) -> Any:
    out, fn = F.vjp(lambda a, b: {"product": a * b, "pair": (a.exp(), b)}, x, y)
    return out, fn(out)


@whole
def vjp_with_aux(x: Any, y: Any) -> Any:
    out, fn, aux = F.vjp(lambda a: (a * y, a.cos()), x, has_aux=True)
    return out, fn(out), aux


@whole
def vjp_in_vjp(x: Any, y: Any) -> Any:
    def inner(a: Any) -> Any:
        out, fn = F.vjp(f, a)
        return fn(out)[0]

    out, fn = F.vjp(inner, x)
    return out, fn(y)


@whole
def vjp_in_vmap(x: Any, y: Any) -> Any:
    def row(a: Any) -> Any:
        out, fn = F.vjp(f, a)
        return fn(out * y[0])[0]

    return F.vmap(row)(x)


@whole
def vmapped_vjp(x: Any, y: Any) -> Any:
    _, fn = F.vjp(f, x)
    return F.vmap(fn)(torch.stack([x, y, x * y]))


@whole
def vjp_of_module(x: Any, y: Any) -> Any:
    out, fn = F.vjp(LINEAR, x)
    return fn(out)


@whole
def vjp_of_identity(x: Any, y: Any) -> Any:
    out, fn = F.vjp(lambda a: a, x)
    return out, fn(y)


@whole
def jvp(x: Any, y: Any) -> Any:
    return F.jvp(f, (x,), (y,))


@whole
def jvp_with_aux(x: Any, y: Any) -> Any:
    return F.jvp(lambda a: (f(a), {"cos": a.cos()}), (x,), (y,), has_aux=True)


@whole
def jvp_of_trees(x: Any, y: Any) -> Any:
    return F.jvp(lambda a, d: (a * d["b"], a), (x, {"b": y}), (y, {"b": x}), strict=True)


@whole
def jvp_in_jvp(x: Any, y: Any) -> Any:
    return F.jvp(lambda a: F.jvp(f, (a,), (y,))[1], (x,), (y,))


@whole
def grad_of_jvp(x: Any, y: Any) -> Any:
    return F.grad(lambda a: F.jvp(f, (a,), (y,))[1].sum())(x)


@whole
def jvp_of_grad(x: Any, y: Any) -> Any:
    return F.jvp(F.grad(total), (x,), (y,))


@whole
def vmapped_jvp(x: Any, y: Any) -> Any:
    return F.vmap(lambda t: F.jvp(f, (x,), (t,))[1])(torch.stack([x, y]))


@whole
def linearize(x: Any, y: Any) -> Any:
    out, fn = F.linearize(lambda a, b: (a * b, a.sin()), x, y)
    return out, fn(y, x), fn(x, x)


@whole
def grad_with_aux(x: Any, y: Any) -> Any:
    return F.grad(lambda a: (total(a * y), {"twice": a * 2}), has_aux=True)(x)


@whole
def grad_and_value_of_two(x: Any, y: Any) -> Any:
    return F.grad_and_value(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, y)


@whole
def grad_of_keywords_and_none(x: Any, y: Any) -> Any:
    def g(a: Any, nothing: Any, b: Any) -> Any:
        return (a * b).sum()

    return F.grad(g)(x, None, b=y)


@whole
def grad_of_dict(x: Any, y: Any) -> Any:
    return F.grad(lambda d: (d["a"] * d["b"]).sum())({"a": x, "b": y})


@whole
def grad_of_grad(x: Any, y: Any) -> Any:
    return F.grad(lambda a: (F.grad(total)(a) * y).sum())(x)


@whole
def grad_of_partial(x: Any, y: Any) -> Any:
    return F.grad(functools.partial(lambda a, b: (a * b).sum(), b=y))(x)


@whole
def grad_around_no_grad(x: Any, y: Any) -> Any:
    def g(a: Any) -> Any:
        with torch.no_grad():
            c = a * y
        return (c * a).sum()

    return F.grad(g)(x)


@whole
def grad_that_writes(x: Any, y: Any) -> Any:
    def g(a: Any) -> Any:
        b = a * 1
        b.mul_(y)
        return (b * a).sum()

    return F.grad(g)(x)


@whole
def grad_around_parameters(x: Any, y: Any) -> Any:
    return F.grad(lambda a: NET(a).sum())(x)


@whole
def vmap_along_other_dimensions(x: Any, y: Any) -> Any:
    return F.vmap(lambda a, b: (a * 2, b.sum()), in_dims=(1, 0), out_dims=(1, 0))(x, y.t())


@whole
def vmap_of_trees(x: Any, y: Any) -> Any:
    return F.vmap(lambda d: d["a"] * d["b"][0], in_dims=({"a": 0, "b": None},))({"a": x, "b": y})


@whole
def vmap_in_vmap(x: Any, y: Any) -> Any:
    return F.vmap(F.vmap(lambda a, b: a.sin() + b))(x, y)


@whole
def vmap_in_chunks(x: Any, y: Any) -> Any:
    return F.vmap(lambda a: (a * y[0]).sum(), chunk_size=1)(x)


@whole
def vmap_of_the_same_numbers(x: Any, y: Any) -> Any:
    return F.vmap(lambda a: a + torch.rand(3), randomness="same")(x)


@whole
def vmap_of_different_numbers(x: Any, y: Any) -> Any:
    return F.vmap(torch.nn.functional.dropout, randomness="different")(x)


@whole
def vmap_that_writes(x: Any, y: Any) -> Any:
    def row(a: Any) -> Any:
        return a.clone().mul_(2)

    return F.vmap(row)(x)


@whole
def vmap_of_views(x: Any, y: Any) -> Any:
    return F.vmap(lambda a: (a[:2], a))(x)


@whole
def vmap_of_grad(x: Any, y: Any) -> Any:
    return F.vmap(F.grad(total))(x)


@whole
def jacobians(x: Any, y: Any) -> Any:
    return F.jacrev(f)(x), F.jacfwd(f)(y)


@whole
def jacobians_with_aux(x: Any, y: Any) -> Any:
    both = F.jacrev(lambda a: (f(a), a * 2), has_aux=True)(x)
    return both, F.jacfwd(lambda a, b: (a * b, b), argnums=(0, 1), has_aux=True)(x, y)


@whole
def jacobian_in_chunks(x: Any, y: Any) -> Any:
    return F.jacrev(f, chunk_size=2)(x)


@whole
def jacobian_of_parameters(x: Any, y: Any) -> Any:
    return F.jacrev(lambda p: F.functional_call(NET, p, (x,)))(dict(NET.named_parameters()))


@whole
def hessians(x: Any, y: Any) -> Any:
    return F.hessian(total)(x[0]), F.hessian(lambda a, b: (a * b * a).sum(), (0, 1))(x[0], y[0])


@whole
def nested_jacobians(x: Any, y: Any) -> Any:
    return F.jacrev(F.jacrev(total))(x[0]), F.jacfwd(F.jacfwd(total))(y[0])


@whole
def per_sample_gradients(x: Any, y: Any) -> Any:
    def loss(p: Any, row: Any) -> Any:
        return F.functional_call(LINEAR, p, (row,)).pow(2).sum()

    return F.vmap(F.grad(loss), in_dims=(None, 0))(dict(LINEAR.named_parameters()), x)


@whole
def second_derivative(x: Any, y: Any) -> Any:
    a = x.detach().clone().requires_grad_()
    g = F.grad(lambda v: (v**3 * y).sum())(a)
    return torch.autograd.grad(g.sum(), a)[0]


@whole
def batched_gradients(x: Any, y: Any) -> Any:
    a = x[0].detach().clone().requires_grad_()
    return torch.autograd.grad(f(a), a, torch.eye(3), is_grads_batched=True)


@whole
def functionalized(x: Any, y: Any) -> Any:
    return F.functionalize(lambda a: a.clone().mul_(y))(x)


def leaves(tree: Any) -> list[Any]:
    return [v for v in torch.utils._pytree.tree_leaves(tree) if isinstance(v, torch.Tensor)]


def run(fn: Program, shape: tuple[int, ...], wanted: bool) -> list[Any]:
    """What a program gives: results, which of its inputs they share, gradients."""
    torch.manual_seed(3)
    inputs = [torch.randn(shape).requires_grad_(wanted) for _ in range(2)]
    LINEAR.zero_grad()
    NET.zero_grad()
    outs = leaves(fn(*inputs))
    shared = [
        [o.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in inputs]
        for o in outs
    ]
    found = [(tuple(o.shape), o.stride(), o.requires_grad) for o in outs]
    if any(o.requires_grad for o in outs):
        sum((o.sin().sum() for o in outs if o.requires_grad), torch.zeros(())).backward()
    parameters = [*LINEAR.parameters(), *NET.parameters()]
    return [shared, found, [o.detach() for o in outs], [t.grad for t in (*inputs, *parameters)]]


#: Eager `vmap` of `grad` records whole products, whose gradient by a weight lies transposed; a
#: trace records them as called (interp/batched_nodes.py), and has PyTorch's strides.
LAID_OTHERWISE = {"per_sample_gradients"}


def check(
    compiled: Program, fn: Program, shape: tuple[int, ...], wanted: bool, traced: bool = True
) -> None:
    got, expected = run(compiled, shape, wanted), run(fn, shape, wanted)
    assert got[0] == expected[0]
    assert (got[1] == expected[1]) != (traced and fn.__name__ in LAID_OTHERWISE)
    assert [(s, r) for s, _, r in got[1]] == [(s, r) for s, _, r in expected[1]]
    for a, b in zip(got[2] + got[3], expected[2] + expected[3], strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, 1e-5, 1e-5)


@pytest.mark.parametrize("wanted", [False, True], ids=["plain", "gradients"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", WHOLE)
def test_captured_whole(name: str, backend: str, wanted: bool) -> None:
    torch._dynamo.reset()
    fn = WHOLE[name]
    compiled = torch.compile(fn, backend=backend, fullgraph=True)
    check(compiled, fn, (2, 3), wanted, traced=backend != "eager")


@pytest.mark.parametrize("name", WHOLE)
def test_captured_with_symbolic_sizes(name: str) -> None:
    torch._dynamo.reset()
    fn = WHOLE[name]
    compiled = torch.compile(fn, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (2, 4):
        check(compiled, fn, (rows, 3), True)


def counted(fn: Program) -> tuple[Any, int]:
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(fn, backend=counter)
    return compiled, counter


def test_a_gradient_function_leaves_the_graph() -> None:
    """It takes the gradient anew: PyTorch raises under the back ends that differentiate."""

    def program(x: Any, y: Any) -> Any:
        out, fn = F.vjp(f, x * 2)
        return out, fn

    compiled, counter = counted(program)
    x = torch.linspace(-1, 1, 6)
    out, fn = compiled(x, x)
    expected, plain = program(x, x)
    assert torch.equal(out, expected)
    assert torch.equal(fn(x)[0], plain(x)[0])
    assert counter.frame_count == 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_a_break_between_vjp_and_its_gradients() -> None:
    def program(x: Any, y: Any) -> Any:
        out, fn = F.vjp(f, x * 2)
        torch._dynamo.graph_break()
        return out, fn(y)

    compiled, _ = counted(program)
    x = torch.linspace(-1, 1, 6)
    assert torch.equal(compiled(x, x)[1][0], program(x, x)[1][0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("by_method", [True, False])
def test_a_leaf_made_in_a_graph_does_not_leave_it(by_method: bool, backend: str) -> None:
    """PyTorch refuses it with fullgraph=True, and breaks the graph else."""

    def program(x: Any) -> Any:
        leaf = x * 2
        if by_method:
            leaf.requires_grad_()
        else:
            leaf.requires_grad = True
        return leaf * 3, leaf

    torch._dynamo.reset()
    x = torch.ones(3)
    out, leaf = torch.compile(program, backend=backend)(x)
    assert leaf.is_leaf and leaf.requires_grad
    out.sum().backward()
    assert leaf.grad.tolist() == [3.0, 3.0, 3.0]
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="told to require gradients"):
        torch.compile(program, backend=backend, fullgraph=True)(x)


def test_a_leaf_that_stays_in_the_graph() -> None:
    def program(x: Any) -> Any:
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad((leaf * leaf).sum(), leaf)[0]

    torch._dynamo.reset()
    assert torch.compile(program, fullgraph=True)(torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_functions_see_leaves_that_record(requires_grad: bool) -> None:
    """As PyTorch's eager transforms show them; its captured ones say that they do not record."""

    def program(x: Any, y: Any) -> Any:
        def outer(a: Any) -> Any:
            def inner(b: Any) -> Any:
                c = a * b
                told = [a, b, c]
                return c.sum(), [torch.tensor([t.requires_grad, t.is_leaf]) for t in told]

            g, told = F.grad(inner, has_aux=True)(a)
            return g.sum(), [*told, torch.tensor([g.requires_grad, g.is_leaf])]

        return F.grad(outer, has_aux=True)(x)[1]

    x = torch.ones(3).requires_grad_(requires_grad)
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    assert [t.tolist() for t in compiled(x, x)] == [
        [True, True], [True, True], [True, False], [True, False],
    ]  # fmt: skip


def test_elements_of_a_batch_do_not_record() -> None:
    def program(x: Any, y: Any) -> Any:
        return F.vmap(lambda v: v * v.requires_grad + v.is_leaf)(x)

    x = torch.ones(2, 3, requires_grad=True)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x, x), program(x, x))
    assert torch.equal(compiled(x, x), torch.ones(2, 3))
