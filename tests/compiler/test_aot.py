"""Compiled functions: the same results, gradients, writes, views and random numbers as eager."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._functorch.aot_autograd import aot_function as through_back_ends
from flambeau._src import _native
from flambeau._src.compiler import stages
from flambeau._src.compiler.aot import aot_function, own_compiler
from flambeau._src.util.log import counters

F = torch.nn.functional


def leaves(*shapes: Any) -> list[Any]:
    made = [torch.arange(float(torch.Size(s).numel())).reshape(s) / 7 - 1 for s in shapes]
    return [t.requires_grad_() for t in made]


def both(f: Callable[..., Any], inputs: list[Any], compiled: Any = None) -> None:
    compiled = compiled or aot_function(f)
    outs = []
    for fn in (f, compiled):
        torch.manual_seed(3)
        given = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
        out = fn(*given)
        flat = list(out) if isinstance(out, (tuple, list)) else [out]
        grown = [t for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]
        if grown:
            torch.autograd.backward(grown, [torch.ones_like(t) for t in grown])
        outs.append([*flat, *[t.grad for t in given], *given])
    for a, b in zip(*outs, strict=True):
        if isinstance(a, torch.Tensor):
            assert a.shape == b.shape and a.dtype is b.dtype and a.stride() == b.stride()
            assert torch.allclose(a.double(), b.double(), 1e-5, 1e-6)
        else:
            assert a == b


def mlp(x: Any, w: Any, b: Any) -> Any:
    return F.gelu(F.linear(x, w, b)).softmax(-1).sum(0)


def with_writes(x: Any) -> Any:
    y = x * 2
    y[0].add_(1)
    y.view(-1)[::2].mul_(3)
    return y.t()


def residual(x: Any, g: Any, b: Any) -> Any:
    y = x + F.dropout(x * 2, 0.5)
    return F.layer_norm(y, (y.shape[-1],), g, b), y.sum(-1)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (mlp, [(4, 3), (5, 3), (5,)]),
        (with_writes, [(2, 3)]),
        (residual, [(4, 8), (8,), (8,)]),
        (lambda x: x.expand(3, 4).exp().log_softmax(0)[1], [(4,)]),
        (lambda x: (x.max(1).values, x.argmax(0), x.shape[0]), [(3, 5)]),
        (lambda x, y: torch.where(x > y, x, y.detach() * 2).cumsum(1), [(3, 5), (3, 5)]),
        (lambda x: F.conv2d(x, torch.ones(2, 2, 3, 3), padding=1).relu(), [(1, 2, 5, 5)]),
        (lambda x: x.to(torch.float64).mul(3).add(1).float().sum(), [(7, 3)]),
    ],
)
def test_as_eager(f: Any, shapes: Any) -> None:
    both(f, leaves(*shapes))


def test_inputs_are_written_and_returned_themselves() -> None:
    def f(x: Any, running: Any) -> Any:
        running.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x * running, running, x

    c = aot_function(f)
    x, running = torch.ones(4, 3, requires_grad=True), torch.zeros(3)
    version = running._version
    y, same, itself = c(x, running)
    assert same is running and itself is x and running._version > version
    assert torch.allclose(running, torch.full((3,), 0.1))
    y.sum().backward()
    assert torch.allclose(x.grad, torch.full((4, 3), 0.1))


def test_views_of_inputs_are_views() -> None:
    c = aot_function(lambda x: (x.t(), x * 2))
    x = torch.ones(2, 3, requires_grad=True)
    v, _ = c(x)
    assert v._base is x and v.untyped_storage() is x.untyped_storage()


def test_an_entry_for_each_signature() -> None:
    c = aot_function(lambda x, k: x * k)
    assert c(torch.ones(2), 3).tolist() == [3, 3] and c(torch.ones(2), 4).tolist() == [4, 4]
    assert (
        c(torch.ones(3), 3).shape == (3,)
        and c(torch.ones(3, dtype=torch.int64), 3).dtype is torch.int64
    )
    with torch.no_grad():
        assert not c(torch.ones(2, requires_grad=True), 3).requires_grad
    assert len(c.entries) == 5


def test_saved_tensors_are_checked() -> None:
    c = aot_function(lambda x: x.exp() * x)
    x = torch.ones(3, requires_grad=True)
    z = x * 1
    y = c(z)
    z.data = z.data
    with torch.no_grad():
        z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_double_backward_is_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    y = aot_function(lambda x: x.sin())(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert g.requires_grad
    torch.testing.assert_close(g, x.cos())
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        g.sum().backward()


def test_a_saved_result_holds_no_cycle() -> None:
    """Without a backward the memory of what was saved goes with the result, not with the collector;
    and who goes back through the gradient is refused still."""
    f = aot_function(lambda x: (x * 2).exp())
    x = leaves((64, 64))[0]
    for hooks in (False, True):
        f(x)
        gc.collect()
        gc.disable()
        try:
            if hooks:
                with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.clone()):
                    out = f(x)
            else:
                out = f(x)
            gone = weakref.ref(out.grad_fn)
            del out
            assert gone() is None
        finally:
            gc.enable()
    y = f(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.equal(g, 2 * y)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(g.sum(), x)
    f(x).add_(1)  # a result that nobody goes back through may be changed
    out = f(x)
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_what_is_spent_is_written_over() -> None:
    """An elementwise result takes the bytes of an operand that is not needed later."""

    def f(x: Any, w: Any) -> Any:
        a, b, c = x @ w, x @ w.t(), x * 2
        part = b[1:]
        return a.relu() - 1, b.sigmoid() * x, part, c.t() + c, c

    x, w = (t.detach() for t in leaves((4, 4), (4, 4)))
    compiled = aot_function(f)
    for _ in range(3):
        for got, wanted in zip(compiled(x, w), f(x, w), strict=True):
            assert torch.equal(got, wanted)
    assert torch.equal(x, leaves((4, 4))[0])
    (entry,) = compiled.entries.values()
    assert entry is not None
    source = str(entry.forward.program)  # type: ignore[attr-defined]
    assert "reuse(mm)" in source
    assert "reuse(primals" not in source


def test_bytes_that_somebody_holds_are_not_reused() -> None:
    def fresh() -> Any:
        return torch.zeros(4, 4)

    t = fresh()
    assert _native.reuse(t) is t
    other = t
    made = _native.reuse(t)
    assert made is not t
    assert (made.shape, made.stride(), made.dtype) == (t.shape, t.stride(), t.dtype)
    assert other is t
    viewed = fresh()
    part = viewed.view(16)
    assert _native.reuse(viewed) is not viewed
    assert part.sum() == 0
    half = fresh()[2:]
    assert _native.reuse(half) is not half
    foreign = torch.from_numpy(np.zeros((4, 4), np.float32))
    assert _native.reuse(foreign) is not foreign
    leaf = fresh().requires_grad_()
    assert _native.reuse(leaf) is not leaf


def test_what_had_begun_apart_is_one_kernel() -> None:
    """An optimizer's step for one parameter: its parts meet only at the end."""

    def f(p: Any, m: Any, v: Any, x: Any, w: Any) -> Any:
        kept = p * 0.9
        g = x @ w
        first = m.lerp(g, 0.1)
        second = v * 0.99 + g * g * 0.01
        return kept - first / (second.sqrt() + 1e-8), first, second

    tensors = [t.detach() for t in leaves(*[(6, 6)] * 5)]
    tensors[2].abs_()
    compiled = aot_function(f)
    for got, wanted in zip(compiled(*tensors), f(*tensors), strict=True):
        assert torch.equal(got, wanted)
    (entry,) = compiled.entries.values()
    assert entry is not None
    assert str(entry.forward.program).count("run_map(") == 1  # type: ignore[attr-defined]


def test_groups_with_another_between_them_stay_apart() -> None:
    def f(x: Any, y: Any) -> Any:
        early = x * 2
        other = y.exp()
        between = early @ other
        late = other + 1
        return (between * early + late) * other, early.cos() @ late

    x, y = (t.detach() for t in leaves((5, 5), (5, 5)))
    for got, wanted in zip(aot_function(f)(x, y), f(x, y), strict=True):
        torch.testing.assert_close(got, wanted)


def test_a_written_input_is_computed_where_it_lies(monkeypatch: Any) -> None:
    texts = []
    write = stages.assemble.write

    def noted(*args: Any) -> Any:
        texts.append(str(write(*args)))
        return write(*args)

    monkeypatch.setattr(stages.assemble, "write", noted)

    def f(p: Any, m: Any, x: Any) -> Any:
        with torch.no_grad():
            m.mul_(0.9).add_(x.t())
            p.sub_(m * 0.1)
        return (x * p).sum()

    def given() -> list[Any]:
        p, m, x = leaves((8, 8), (8, 8), (8, 8))
        return [p, m.detach(), x.detach()]

    compiled = torch.compile(f)
    wanted, own = given(), given()
    for _ in range(3):
        places = [t.data_ptr() for t in own]
        versions = [t._version for t in own]
        compiled(*own).backward()
        f(*wanted).backward()
        assert torch.equal(own[0].grad, wanted[0].grad)
        assert all(torch.equal(a, b) for a, b in zip(own, wanted, strict=True))
        assert [t.data_ptr() for t in own] == places
        assert [t._version > v for t, v in zip(own, versions, strict=True)] == [True, True, False]
    assert own[0].is_leaf
    assert own[0].requires_grad
    assert texts[0].count("over(") == 2


def test_a_written_input_that_others_look_at() -> None:
    """A view of its bytes, in the program or outside, sees its value change once, at the end."""

    def f(p: Any, x: Any) -> Any:
        turned = p.t()
        before = turned @ x
        with torch.no_grad():
            p.mul_(x).add_(turned)
        return before, p

    def given() -> tuple[Any, ...]:
        p, x = (t.detach() for t in leaves((4, 4), (4, 4)))
        return p, x, p[1:]

    compiled = torch.compile(f)
    p, x, part = given()
    q, y, other = given()
    for _ in range(3):
        got, same = compiled(p, x)
        wanted, _ = f(q, y)
        assert same is p
        assert torch.equal(got, wanted)
        assert torch.equal(p, q)
        assert torch.equal(part, other)


def _read_later(p: Any, m: Any, g: Any) -> Any:
    old = p.clone() + p @ g
    p.mul_(2).add_(m)
    return old, (p @ m).relu()


def _turned(p: Any, m: Any, g: Any) -> Any:
    p.copy_(p.t() + 1)
    return (p.sum(),)


def _shown(p: Any, m: Any, g: Any) -> Any:
    made = g * 3 + 1
    p.copy_(made)
    m.copy_(made.t())
    return made.view(16), made


def _exchanged(p: Any, m: Any, g: Any) -> Any:
    old = p + 0
    p.copy_(m * 1)
    m.copy_(old)
    return (g + 1,)


def _same_value(p: Any, m: Any, g: Any) -> Any:
    made = p * 2
    p.mul_(2)
    return made.t(), made[1:]


def _turned_twice(p: Any, m: Any, g: Any) -> Any:
    same = p.t().as_strided((4, 4), (4, 1))
    loss = (p * p).sum()
    p.copy_(p * 0.5)
    return loss, same.clone() @ g


@pytest.mark.parametrize(
    "f", [_read_later, _turned, _shown, _exchanged, _same_value, _turned_twice]
)
def test_written_inputs_whose_bytes_are_read_and_shown(f: Callable[..., Any]) -> None:
    torch.compiler.reset()
    compiled = torch.compile(f, fullgraph=True)
    got, wanted = ([t.detach() for t in leaves((4, 4), (4, 4), (4, 4))] for _ in range(2))
    for _ in range(3):
        before = [t._version for t in got]
        for a, b in zip(compiled(*got), f(*wanted), strict=True):
            assert torch.equal(a, b)
        for a, b, version in zip(got, wanted, before, strict=True):
            assert torch.equal(a, b)
            assert (a._version > version) == (b._version > 0)


def test_one_value_for_two_written_inputs() -> None:
    def f(p: Any, q: Any, x: Any) -> Any:
        made = p * x
        p.copy_(made)
        q.copy_(made)
        return made

    p, q, x = (t.detach() for t in leaves((4, 4), (4, 4), (4, 4)))
    wanted = p * x
    made = torch.compile(f)(p, q, x)
    assert torch.equal(p, wanted)
    assert torch.equal(q, wanted)
    p.zero_()
    assert torch.equal(made, wanted)
    assert torch.equal(q, wanted)


def test_gradients_of_symbolic_sizes_as_they_come() -> None:
    """Laid out as traced, otherwise, or missing; saved for a second backward; sizes that change."""

    def f(x: Any, w: Any) -> Any:
        y = (x @ w).relu()
        return y, (x * 2).exp()

    torch.compiler.reset()
    compiled = torch.compile(f, dynamic=True, fullgraph=True)
    for n in (3, 5, 4):
        x, w = leaves((n, 4), (4, 4))
        given = torch.rand(4, n).t()
        assert not given.is_contiguous()
        for grads in ((given, given.contiguous()), (None, given), (given, None)):
            found = []
            for call in (compiled, f):
                ends = [(o, g) for o, g in zip(call(x, w), grads, strict=True) if g is not None]
                outs, wanted = [o for o, _ in ends], [g for _, g in ends]
                for keep in (True, False):
                    found.append(
                        torch.autograd.grad(
                            outs, (x, w), wanted, retain_graph=keep, allow_unused=True,
                            materialize_grads=True,
                        )
                    )  # fmt: skip
            for a, b in zip(found[0] + found[1], found[2] + found[3], strict=True):
                torch.testing.assert_close(a, b)


def test_tensors_apart() -> None:
    x, y = torch.rand(4), torch.rand(4)
    many = [torch.rand(2) for _ in range(200)]
    assert _native.apart([])
    assert _native.apart((x, y, *many))
    assert not _native.apart([x, y, *many, y[1:]])
    assert not _native.apart([x, y, x])
    assert not _native.apart([x, 3])
    with pytest.raises(TypeError):
        _native.apart(3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_hooks_around_a_compiled_function(backend: str) -> None:
    """Each runs once a pass, with eager's gradients, and only where its gradient is wanted."""

    def f(x: Any, y: Any) -> Any:
        return x.sin() * y, (x * y).cos()

    def run(f: Any) -> Any:
        log: list[Any] = []
        x, y = (torch.arange(1.0, 4.0).requires_grad_() for _ in range(2))
        inner = y * 1
        for name, t in (("x", x), ("y", y), ("inner", inner)):
            t.register_hook(lambda g, name=name: log.append((name, g.clone())))
        x.register_hook(lambda g: g * 3)
        x.register_post_accumulate_grad_hook(lambda t: log.append(("after", t.grad.clone())))
        a, b = f(x, inner)
        a.register_hook(lambda g: log.append(("a", g.clone())))
        a.retain_grad()
        (a + b).sum().backward(retain_graph=True)
        (a * b).sum().backward(inputs=[x], retain_graph=True)
        some = torch.autograd.grad((a * 2 + b).sum(), [x], retain_graph=True)
        some += torch.autograd.grad(b.sum(), [inner, y])
        return sorted(log, key=lambda kv: kv[0]), some, x.grad, y.grad, a.grad

    torch._dynamo.reset()
    expected = run(f)
    found = run(torch.compile(f, backend=backend, fullgraph=True))
    assert [name for name, _ in found[0]] == [name for name, _ in expected[0]]
    values = [[t for _, t in v[0]] + [*v[1], *v[2:]] for v in (found, expected)]
    for a, b in zip(*values, strict=True):
        torch.testing.assert_close(a, b)


def test_fusion() -> None:
    """Pointwise chains are one kernel, also with the row operators that they feed."""
    c = aot_function(lambda x, w, b: F.layer_norm((x * 2 + 1).tanh(), (8,), w, b).mul(3))
    with torch.no_grad():
        c(torch.ones(32, 8), torch.ones(8), torch.zeros(8))
    (entry,) = c.entries.values()
    program = entry.forward.program
    assert (
        len(program.kernels) == 1
        and "run_rows" in program.source
        and program.source.count("empty(") == 1
    )


def test_exact() -> None:
    """The switch: every operator rounds as in eager."""

    def exact(graph: Any, attributes: Any, fakes: Any, backward: bool) -> Any:
        return own_compiler(graph, attributes, fakes, backward, exact=True)

    def f(x: Any) -> Any:
        return ((x.bfloat16() * 3).exp() + 1).sqrt()

    x = torch.arange(300.0).reshape(3, 100) / 100
    assert torch.equal(aot_function(f, exact)(x), f(x))
    assert not torch.equal(aot_function(f)(x), f(x))  # intermediate results are kept in float32


def test_back_ends_of_users() -> None:
    graphs = []

    def back_end(gm: Any, inputs: Any) -> Any:
        graphs.append((gm, len(inputs)))
        return gm

    f = through_back_ends(mlp, back_end)
    x, w, b = leaves((4, 3), (5, 3), (5,))
    f(x, w, b).sum().backward()
    (forward, n), (backward, m) = graphs
    assert n == 3 and [p.name for p in forward.graph.nodes if p.op == "placeholder"] == [
        "primals_1",
        "primals_2",
        "primals_3",
    ]
    assert "aten.gelu_backward.default" in [str(p.target) for p in backward.graph.nodes]
    assert torch.allclose(w.grad, torch.autograd.grad(mlp(x, w, b).sum(), w)[0])
    assert m == len([p for p in backward.graph.nodes if p.op == "placeholder"])


def test_shared_inputs_run_as_they_are() -> None:
    def f(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    x = torch.zeros(4)
    assert aot_function(f)(x[:2], x[1:3]).tolist() == [2, 0]


# ---- writes, views and bytes that are shared ----


def test_geometry_changed_in_place_is_changed_outside() -> None:
    def f(x: Any) -> Any:
        x.unsqueeze_(0)
        x.add_(1)
        return x.t_() * 2

    a, b = torch.arange(3.0), torch.arange(3.0)
    expected, got = f(a), aot_function(f)(b)
    assert torch.equal(expected, got) and torch.equal(a, b) and a.stride() == b.stride()


def test_a_leaf_written_under_no_grad_keeps_its_gradient() -> None:
    def f(x: Any) -> Any:
        with torch.no_grad():
            x.add_(1)
        return x * x

    x = torch.arange(3.0, requires_grad=True)
    aot_function(f)(x).sum().backward()
    assert x.is_leaf and x.tolist() == [1, 2, 3] and x.grad.tolist() == [2, 4, 6]


def test_views_of_one_result_stay_views_of_it() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y, y.view(-1), y.detach(), y[0]

    y, flat, apart, row = aot_function(f)(torch.ones(2, 2, requires_grad=True))
    assert flat._base is y and row._base is y and not apart.requires_grad
    assert apart.untyped_storage() is y.untyped_storage()
    with torch.no_grad():
        y.zero_()
    assert flat.tolist() == [0, 0, 0, 0] and apart.sum() == 0


def shared(kind: str) -> list[Any]:
    b = torch.arange(6.0)
    if kind == "overlap":
        return [b[:4], b[2:]]
    if kind == "base":
        return [b, b[2:].view(2, 2)]
    if kind == "transposed":
        b = b.view(2, 3)
        return [b, b.t()]
    c = b.requires_grad_() * 1
    return [c, c[2:]]


@pytest.mark.parametrize("kind", ["overlap", "base", "transposed", "grad"])
@pytest.mark.parametrize("written", [0, 1])
def test_a_write_shows_in_what_shares_the_bytes(kind: str, written: int) -> None:
    def f(a: Any, b: Any) -> Any:
        (a, b)[written].mul_(3)
        return b * 2, a.exp(), b[1:]

    fallen = counters().get("fallback.aot", 0)
    ours, theirs = shared(kind), shared(kind)
    outs, expected = aot_function(f)(*ours), f(*theirs)
    for x, y in zip([*outs, *ours], [*expected, *theirs], strict=True):
        assert x.tolist() == y.tolist() and x.requires_grad == y.requires_grad
    with torch.no_grad():
        ours[1].zero_(), theirs[1].zero_()
    assert outs[2].tolist() == expected[2].tolist()
    assert counters().get("fallback.aot", 0) == fallen


def test_what_cannot_be_compiled_is_counted() -> None:
    b = torch.arange(4.0)
    fallen = counters().get("fallback.aot", 0)
    out = aot_function(lambda x, y: (x.mul_(3), y * 2)[1])(b, b.view(torch.int32))
    assert out.dtype is torch.int32 and b.tolist() == [0, 3, 6, 9]
    assert counters()["fallback.aot"] == fallen + 1


@pytest.mark.parametrize("grad", [False, True])
def test_running_statistics_are_written(grad: bool) -> None:
    def f(x: Any, mean: Any, var: Any) -> Any:
        return F.batch_norm(x, mean, var, training=True)

    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(2), requires_grad=grad)
    ours, theirs = [[torch.zeros(3), torch.ones(3)] for _ in range(2)]
    compiled = aot_function(f)
    assert torch.allclose(compiled(x, *ours), f(x, *theirs))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    (entry,) = compiled.entries.values()
    assert [i for i, _ in entry.joint.written] == [1, 2]


def sized(x: Any, y: Any, scale: float = 2.0) -> Any:
    return (x @ y).sin().reshape(-1) * scale, x.sum(0) / x.shape[0]


def test_dynamic_sizes_make_graphs_anew_only_where_they_rely_on_them() -> None:
    graphs: list[Any] = []

    def back_end(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    f = through_back_ends(sized, back_end, dynamic=True)
    for made, shapes in (
        (2, ((3, 4), (4, 5))),
        (2, ((6, 7), (7, 8))),
        (2, ((4, 4), (4, 4))),
        (4, ((1, 4), (4, 5))),  # broadcasting treats a size of 1 apart
        (4, ((2, 9), (9, 3))),
        (4, ((1, 6), (6, 2))),
    ):
        both(sized, leaves(*shapes), f)
        assert len(graphs) == made, shapes
    transposed = [leaves((4, 3))[0].detach().t().requires_grad_(), leaves((4, 5))[0]]
    both(sized, transposed, f)
    assert len(graphs) == 6  # strides are relied on
    both(sized, [transposed[0], leaves((4, 6))[0]], f)
    assert len(graphs) == 6
    text = graphs[0].print_readable(print_output=False)
    assert "sym_size" in text and "12" not in text


def test_dynamic_sizes_of_other_dtypes_numbers_and_shared_inputs() -> None:
    f = aot_function(lambda x, y: x.add_(y), dynamic=True)
    for n in (3, 5):
        for other in (torch.Tensor.detach, torch.clone):
            x = torch.arange(float(n))
            expected = x + x
            assert torch.equal(f(x, other(x)), expected) and torch.equal(x, expected)
    g = aot_function(sized, dynamic=True)
    for dtype, scale in ((torch.float32, 2.0), (torch.float64, 2.0), (torch.float32, 3.0)):
        x = torch.ones(3, 4, dtype=dtype)
        out = g(x, x.t(), scale)
        assert torch.equal(out[0], sized(x, x.t(), scale)[0]) and out[0].dtype is dtype


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("compiled", ["aot", "aot_eager", "inductor"])
def test_inputs_that_share_bytes_may_share_others_next_time(compiled: str, dynamic: bool) -> None:
    def f(x: Any, y: Any) -> Any:
        return x.add_(1), y * 2

    torch._dynamo.reset()
    g = aot_function(f, dynamic=dynamic)
    if compiled != "aot":
        g = torch.compile(f, backend=compiled, dynamic=dynamic, fullgraph=True)
    for n in (4, 5):
        for i, j, total in ((0, 3, 10), (3, 1, 10), (2, 5, 10), (0, 0, 10), (0, 0, n), (0, 4, 9)):
            x, y = (torch.arange(float(total)) for _ in range(2))
            for a, b in zip(
                g(x[i : i + n], x[j : j + n]), f(y[i : i + n], y[j : j + n]), strict=True
            ):
                assert torch.equal(a, b), (n, i, j, total)
            assert torch.equal(x, y)


def test_gradients_through_a_base_of_another_shape() -> None:
    def f(x: Any, y: Any) -> Any:
        return x.mul_(2), y.sin()

    g = aot_function(f)
    for rows in (2, 4):
        grads = []
        for fn in (f, g):
            leaf = (torch.arange(8.0) / 8).requires_grad_()
            root = leaf.reshape(rows, 8 // rows) * 1
            a, b = fn(root.view(-1)[:2], root.view(-1)[:2])
            grads += torch.autograd.grad((a * 3 + b).sum() + root.sum(), leaf)
        assert torch.allclose(*grads), rows


def test_equal_results_keep_bytes_of_their_own() -> None:
    """Equal computations are made once, but a program writes one result without the other."""

    def f(p: Any) -> Any:
        whole = torch.zeros_like(p)
        return whole, torch.zeros_like(p), torch.zeros_like(p)[1:], whole[1:], p.sin(), p.sin()

    found = aot_function(f)(torch.ones(3))
    places = [t.untyped_storage().data_ptr() for t in found]
    assert places[0] == places[3] and len(set(places)) == 5
