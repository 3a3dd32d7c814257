"""`torch.autograd.forward_ad` in captured programs, and gradient functions of `vjp` that leave the
graph. Values are those of the program run eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau._dynamo.testing import CompileCounterWithBackend
from flambeau.autograd import forward_ad as ad
from flambeau.func import grad, vjp, vmap

Program = Callable[..., Any]
WHOLE: dict[str, Program] = {}
LINEAR = torch.nn.Linear(3, 2)


def whole(fn: Program) -> Program:
    WHOLE[fn.__name__] = fn
    return fn


def values() -> tuple[Any, Any]:
    return torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.0, 2.0])


@whole
def product(x: Any, t: Any) -> Any:
    with ad.dual_level() as level:
        d = ad.make_dual(x * 2, t, level=level)
        found = ad.unpack_dual(d.sin() * d)
    return found.primal, found.tangent, type(found).__name__, level


@whole
def by_calls(x: Any, t: Any) -> Any:
    ad.enter_dual_level()
    found = ad.unpack_dual(ad.make_dual(x, t).exp())
    ad.exit_dual_level()
    return tuple(found)


@whole
def without_tangent(x: Any, t: Any) -> Any:
    with ad.dual_level():
        d = ad.make_dual(x, t)
        rest = [ad.unpack_dual(v).tangent is None for v in (d.detach(), d > 1, x)]
    return rest, ad.unpack_dual(x).tangent


@whole
def in_place(x: Any, t: Any) -> Any:
    with ad.dual_level():
        d = ad.make_dual(x.clone(), t.clone())
        d.mul_(3)
        d[0] = 0.0
        z = torch.zeros(3)
        z.add_(d)
        return (*ad.unpack_dual(d), *ad.unpack_dual(z))


@whole
def over_transforms(x: Any, t: Any) -> Any:
    with ad.dual_level():
        d = ad.make_dual(x, t)
        a = ad.unpack_dual(vmap(lambda v: v.sin() * v)(d))
        b = ad.unpack_dual(grad(lambda v: (v**3).sum())(d))
    return (*a, *b)


@whole
def of_a_module(x: Any, t: Any) -> Any:
    with ad.dual_level():
        found = ad.unpack_dual(LINEAR(ad.make_dual(x, t)))
    return found.primal.detach(), found.tangent.detach()


@whole
def told_off(x: Any, t: Any) -> Any:
    said = []
    try:
        with ad.dual_level(), ad.dual_level():
            pass
    except RuntimeError as error:
        said.append(str(error))
    try:
        with ad.dual_level():
            ad.make_dual(x, t[:2])
    except RuntimeError as error:
        said.append(str(error))
    return said, x + 1


class Cube(torch.autograd.Function):
    """With a rule of its own for tangents."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3 * ctx.saved_tensors[0] ** 2

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return t * SCALE[0] * ctx.saved_tensors[0] ** 2


SCALE = [3.0]


@whole
def own_rule(x: Any, t: Any) -> Any:
    with ad.dual_level():
        found = ad.unpack_dual(Cube.apply(ad.make_dual(x, t)))
    return tuple(found)


@ad.dual_level()
def decorated(x: Any, t: Any) -> Any:
    return ad.unpack_dual(ad.make_dual(x, t) * 2).tangent


WHOLE["decorated"] = decorated


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype is b.dtype and torch.equal(a, b) and a.requires_grad == b.requires_grad
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", WHOLE)
def test_whole(name: str, backend: str) -> None:
    torch._dynamo.reset()
    fn = WHOLE[name]
    assert same(torch.compile(fn, backend=backend, fullgraph=True)(*values()), fn(*values()))
    assert not torch._dynamo.utils.counters["contained"]


def test_rules_for_tangents_are_guarded() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(own_rule, backend="eager", fullgraph=True)
    for scale in (3.0, 5.0):
        SCALE[0] = scale
        assert same(compiled(*values()), own_rule(*values()))
    SCALE[0] = 3.0


def test_level_outside() -> None:
    """Whether a level is active around the program is guarded."""
    torch._dynamo.reset()

    def tangent(x: Any) -> Any:
        return ad.unpack_dual(x).tangent, x * 2

    compiled = torch.compile(tangent, backend="eager")
    x, t = values()
    assert compiled(x)[0] is None
    with ad.dual_level():
        found, _ = compiled(ad.make_dual(x, t))
        assert torch.equal(found, t)
        assert compiled(x)[0] is None
    with ad.dual_level(), pytest.raises(RuntimeError, match="Nested forward mode AD"):
        torch.compile(by_calls, backend="eager")(x, t)


def breaking(x: Any, t: Any) -> Any:
    y = x * 2
    with ad.dual_level():
        d = ad.make_dual(y, t)
        z = d.sin()
        print("inside")
        found = ad.unpack_dual(z * 2)
    return found.primal + 1, found.tangent


def leaving(x: Any, t: Any) -> Any:
    with ad.dual_level():
        z = ad.make_dual(x, t).sin()
    return z


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [breaking, leaving])
def test_graphs_end_before_the_level(fn: Program, backend: str) -> None:
    torch._dynamo.reset()
    assert same(torch.compile(fn, backend=backend)(*values()), fn(*values()))
    with ad.dual_level():  # none was left open
        pass
    what = "`print` is called" if fn is breaking else "given a tangent leaves the graph"
    with pytest.raises(torch._dynamo.exc.Unsupported, match=what):
        torch.compile(fn, backend=backend, fullgraph=True)(*values())
    with ad.dual_level():
        pass


# ---- gradient functions of `vjp` outside of the graph --------------------------------------------

WEIGHT = torch.tensor([2.0, 3.0, 4.0], requires_grad=True)


def pulled(x: Any) -> Any:
    y = x * 2
    return vjp(lambda a, b: {"p": a * b * WEIGHT, "s": (a + y).sin()}, x, y)


def pulled_with_casts(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return vjp(lambda a: a.view(1, 3) @ a.view(3, 1), x)


def pulled_with_aux(x: Any) -> Any:
    out, fn, aux = vjp(lambda a: (a * 2, a + 1), x, has_aux=True)
    return (out, aux), lambda u: fn(u[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [pulled, pulled_with_casts, pulled_with_aux])
def test_gradient_functions_leave(fn: Program, backend: str) -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend(backend)
    compiled = torch.compile(fn, backend=counted, fullgraph=True)
    found = []
    for run in (fn, compiled):
        out, back = run(values()[0])
        first, second = back(out), back(out)
        assert type(back).__name__ == "function"
        found.append((torch.utils._pytree.tree_leaves(out), *first, *second))
    assert same(*found)
    assert counted.frame_count == 1


def test_gradient_functions_differentiate() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(pulled, backend="aot_eager", fullgraph=True)
    found = []
    for run in (pulled, compiled):
        x = values()[0].requires_grad_()
        out, back = run(x)
        rows = vmap(back)({"p": torch.eye(3), "s": torch.zeros(3, 3)})
        total = sum(g.sum() for g in back(out)) + out["p"].sum()
        found.append((*torch.autograd.grad(total, (x, WEIGHT)), *rows))
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=1e-6)


def test_gradient_functions_notice_writes() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: vjp(torch.sin, x), backend="eager", fullgraph=True)
    x = values()[0]
    _, back = compiled(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.* is at version 1"):
        back(x)
    with pytest.raises(RuntimeError, match="Expected pytree structure of cotangents"):
        compiled(x)[1]((x, x))


def test_gradient_functions_that_draw_stay() -> None:
    """Drawing again would give other numbers."""
    torch._dynamo.reset()

    def dropped(x: Any) -> Any:
        return vjp(lambda a: torch.nn.functional.dropout(a, 0.5), x)

    x, found = torch.ones(64), []
    for run in (dropped, torch.compile(dropped, backend="aot_eager")):
        torch.manual_seed(0)
        out, back = run(x)
        found.append((out, *back(x)))
    assert same(*found)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="draws random numbers"):
        torch.compile(dropped, backend="eager", fullgraph=True)(x)


# ---- contexts of custom functions ----------------------------------------------------------------


class Asking(torch.autograd.Function):
    """Asks its context all that there is."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.needed = ctx.needs_input_grad
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        whole = x.long()
        ctx.mark_non_differentiable(whole)
        return x * 2, whole

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        if h is not None:
            raise AssertionError
        return g * 2 * ctx.needed[0]


class Doubling(torch.autograd.Function):
    """Writes its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def asked(x: Any) -> Any:
    a, b = Asking.apply(x)
    y = x * 1
    z = Doubling.apply(y)
    return a * 3, b, z + y, z is y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_contexts(requires_grad: bool, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(asked, backend=backend, fullgraph=True)
    found = []
    for run in (asked, compiled):
        x = values()[0].requires_grad_(requires_grad)
        out = run(x)
        if requires_grad:
            (out[0].sum() + out[2].sum()).backward()
        found.append((*[v.detach() if isinstance(v, torch.Tensor) else v for v in out], x.grad))
    assert same(*found) if requires_grad else same(found[0][:-1], found[1][:-1])


def test_nothing_of_a_node_is_captured() -> None:
    """What the graph runs of the program's own Python is not offered again."""
    torch._dynamo.reset()
    x = values()[0].requires_grad_()
    torch.compile(lambda v: Cube.apply(v) * 2, backend="eager", fullgraph=True)(x)
    assert dict(torch._dynamo.utils.counters["frames"]) == {"total": 1, "ok": 1}
