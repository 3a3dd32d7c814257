"""Compiled functions under the transforms of torch.func, and their backwards with batched
gradients: kernels see bytes only, so what is wrapped must not reach them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch

x = torch.linspace(-1, 1, 6).reshape(2, 3)


def batched(f: Any) -> Any:
    y = x[0].clone().requires_grad_()
    return torch.autograd.grad(f(y), y, torch.eye(3), is_grads_batched=True)[0]


def vmapped_backward(f: Any) -> Any:
    y = x[0].clone().requires_grad_()
    out = f(y)
    return torch.vmap(lambda g: torch.autograd.grad(out, y, g, retain_graph=True)[0])(torch.eye(3))


TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda f: torch.vmap(f)(x),
    "grad": lambda f: torch.func.grad(lambda v: f(v).sum())(x[0]),
    "vmap of grad": lambda f: torch.vmap(torch.func.grad(lambda v: f(v).sum()))(x),
    "grad of vmap": lambda f: torch.func.grad(lambda v: torch.vmap(f)(v).sum())(x),
    "jvp": lambda f: torch.func.jvp(f, (x[0],), (x[1],))[1],
    "jacrev": lambda f: torch.func.jacrev(f)(x[0]),
    "jacfwd": lambda f: torch.func.jacfwd(f)(x[0]),
    "hessian": lambda f: torch.func.hessian(lambda v: f(v).sum())(x[0]),
    "batched gradients": batched,
    "vmapped backward": vmapped_backward,
    "jacobian": lambda f: torch.autograd.functional.jacobian(f, x[0], vectorize=True),
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sine": lambda v: v.sin() + 1,
    "sum": lambda v: (v * v).cumsum(0),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_inside_a_transform(function: str, name: str, warm: bool, backend: str) -> None:
    torch._dynamo.reset()
    plain, transformed = FUNCTIONS[function], TRANSFORMED[name]
    compiled = torch.compile(plain, backend=backend)
    if warm:
        compiled(x[0])
        compiled(x[0].clone().requires_grad_())
    assert torch.allclose(transformed(compiled), transformed(plain), 1e-6, 1e-6)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_transform_inside_what_is_compiled(name: str, backend: str) -> None:
    torch._dynamo.reset()
    transformed = TRANSFORMED[name]
    compiled = torch.compile(lambda: transformed(FUNCTIONS["sum"]), backend=backend, fullgraph=True)
    assert torch.allclose(compiled(), transformed(FUNCTIONS["sum"]), 1e-6, 1e-6)


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian", "grad"])
def test_a_transformed_function_compiled(transform: str) -> None:
    torch._dynamo.reset()
    body: Any = (lambda v: v.sin().sum()) if transform in ("hessian", "grad") else FUNCTIONS["sum"]
    transformed = getattr(torch.func, transform)(body)
    assert torch.allclose(torch.compile(transformed)(x[0]), transformed(x[0]), 1e-6, 1e-6)
