"""cond and a user's operator through every consumer: they are no declarations with samples, so that
the battery does not drive them. The reference is the same arithmetic written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import Tensor, library
from flambeau._src.compiler.aot import aot_function
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.func import functionalize, jvp, vmap
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.overrides import TorchFunctionMode
from flambeau.utils._python_dispatch import TorchDispatchMode

Fn = Callable[..., Any]


@library.custom_op("tests_consumers::bend", mutates_args=())
def bend(x: Tensor, a: float) -> Tensor:
    return x * x * a


bend.register_autograd(
    lambda ctx, g: (2 * ctx.a * ctx.saved_tensors[0] * g, None),
    setup_context=lambda ctx, inputs, output: (
        ctx.save_for_backward(inputs[0]),
        setattr(ctx, "a", inputs[1]),
    ),
)
bend.register_fake(lambda x, a: torch.empty_like(x))
bend.register_vmap(lambda info, dims, x, a: (bend(x, a), dims[0]))


def chosen(x: Tensor) -> Tensor:
    """cond, its first branch where the sum is positive."""
    return torch.cond(x.sum() > 0, lambda t: t * t * 3, lambda t: t.sin(), (x,))


def chosen_plainly(x: Tensor) -> Tensor:
    """What `chosen` computes."""
    return x * x * 3 if bool(x.sum() > 0) else x.sin()


def bent(x: Tensor) -> Tensor:
    """The user's operator among others."""
    return bend(x + 1, 0.5)


def bent_plainly(x: Tensor) -> Tensor:
    """What `bent` computes."""
    return (x + 1) * (x + 1) * 0.5


BOTH = [pytest.param(chosen, chosen_plainly, id="cond"), pytest.param(bent, bent_plainly, id="own")]
DTYPES = ["float32", "float64", "bfloat16"]
LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: torch.arange(24.0).reshape(2, 3, 4) / 8 - 1,
    "negative": lambda: torch.arange(24.0).reshape(2, 3, 4) / 8 - 3,
    "permuted": lambda: (torch.arange(24.0).reshape(4, 3, 2) / 8 - 1).permute(2, 1, 0),
    "channels_last": lambda: (torch.arange(24.0).reshape(1, 2, 3, 4) / 8 - 1).contiguous(
        memory_format=torch.channels_last
    ),
    "empty": lambda: torch.ones(0, 3),
    "scalar": lambda: torch.tensor(0.75),
}


def same(a: Tensor, b: Tensor) -> None:
    """Equal up to what rounding once more or less makes."""
    assert a.shape == b.shape and a.dtype is b.dtype
    bound = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 0.02}[str(a.dtype).rpartition(".")[2]]
    assert torch.allclose(a.double(), b.double(), bound, bound)


def gradients(fn: Fn, x: Tensor) -> list[Tensor]:
    """Value, gradient, and gradient of the gradient."""
    x = x.detach().clone().requires_grad_()
    y = fn(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first * first).sum(), x)
    return [y.detach(), first.detach(), second]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("fn", "plainly"), BOTH)
def test_consumers(fn: Fn, plainly: Fn, dtype: str, layout: str) -> None:
    """Eager with both gradients, fake with strides, traced, functionalised, compiled."""
    x = LAYOUTS[layout]().to(getattr(torch, dtype))
    value, first, second = gradients(plainly, x)
    for got, want in zip(gradients(fn, x), (value, first, second), strict=True):
        same(got, want)
    eager = fn(x)
    with FakeTensorMode() as mode:
        fake = fn(mode.from_tensor(x))
    assert (fake.shape, fake.dtype, fake.stride()) == (eager.shape, eager.dtype, eager.stride())
    for other in (make_fx(fn)(x), functionalize(fn)):
        same(other(x), value)
    leaf = x.detach().clone().requires_grad_()
    compiled = aot_function(fn)(leaf)
    compiled = compiled[0] if isinstance(compiled, (tuple, list)) else compiled
    same(compiled.detach(), value)
    same(torch.autograd.grad(compiled.sum(), leaf)[0], first)


@pytest.mark.parametrize(("fn", "plainly"), BOTH)
def test_vmap_and_jvp(fn: Fn, plainly: Fn) -> None:
    x = LAYOUTS["plain"]()
    if fn is bent:
        same(vmap(fn)(x), plainly(x))
        same(vmap(fn, in_dims=1, out_dims=1)(x), plainly(x))
        return
    on = torch.tensor([True, False])
    both = vmap(lambda p, t: torch.cond(p, lambda v: v * 2, lambda v: v.sin(), (t,)))(on, x)
    same(both, torch.stack([x[0] * 2, x[1].sin()]))
    own = vmap(lambda t: torch.cond(t.sum() > 3, lambda v: v * 2, lambda v: v.sin(), (t,)))(x)
    same(own, torch.stack([t * 2 if t.sum() > 3 else t.sin() for t in x]))
    value, tangent = jvp(fn, (x,), (torch.ones_like(x),))
    same(value, plainly(x))
    same(tangent, 6 * x)


class Calls(TorchDispatchMode):
    """Notes what a dispatch mode is shown."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Notes what a function mode is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("fn", "plainly"), BOTH)
def test_modes(fn: Fn, plainly: Fn) -> None:
    """One call to each kind of mode."""
    x = LAYOUTS["plain"]()
    name = "cond" if fn is chosen else "tests_consumers.bend.default"
    with Calls() as calls:
        same(fn(x), plainly(x))
    assert calls.seen.count(name) == 1
    with Functions() as functions:
        same(fn(x), plainly(x))
    assert functions.seen
    assert [str(n.target) for n in make_fx(fn)(x).graph.nodes].count(name) == 1
