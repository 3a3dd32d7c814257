"""`associative_scan`: values against a loop, messages as PyTorch 2.13 gives them."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._higher_order_ops.associative_scan import associative_scan

X = torch.linspace(-1, 1, 30).reshape(2, 5, 3)


def scan(fn: Any, xs: Any, dim: int, **options: Any) -> Any:
    return associative_scan(fn, xs, dim, combine_mode="generic", **options)


def loop(fn: Any, x: Any, dim: int, reverse: bool = False) -> Any:
    parts = list(x.unbind(dim))
    parts = parts[::-1] if reverse else parts
    found = parts[:1]
    for part in parts[1:]:
        found.append(fn(found[-1], part))
    return torch.stack(found[::-1] if reverse else found, dim)


def add(a: Any, b: Any) -> Any:
    return a + b


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_every_length(length: int, reverse: bool) -> None:
    x = torch.linspace(0.5, 1.5, 2 * length).reshape(length, 2)
    found = scan(lambda a, b: a * b, x, 0, reverse=reverse)
    assert torch.allclose(found, loop(lambda a, b: a * b, x, 0, reverse))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_every_dimension(dim: int) -> None:
    found = scan(add, X, dim)
    assert torch.allclose(found, X.cumsum(dim), atol=1e-6)
    assert scan(add, X, 1).stride() == (3, 6, 1)  # as PyTorch lays it out


def test_of_matrices() -> None:
    m = torch.arange(12.0).reshape(3, 2, 2)
    assert torch.equal(scan(torch.matmul, m, 0), loop(torch.matmul, m, 0))


def test_of_trees() -> None:
    """A linear recurrence: h = a * h + b."""
    a, b = X[0], X[1]

    def step(left: Any, right: Any) -> Any:
        return {"a": left["a"] * right["a"], "b": right["a"] * left["b"] + right["b"]}

    found = scan(step, {"a": a, "b": b}, 0)["b"]
    h = torch.zeros(3)
    for i in range(5):
        h = a[i] * h + b[i]
        assert torch.allclose(found[i], h, atol=1e-6)


def test_gradients_and_transforms() -> None:
    x = X[0].clone().requires_grad_()
    (found,) = torch.autograd.grad(scan(lambda a, b: a * b, x, 0).sum(), x)
    (expected,) = torch.autograd.grad(x.cumprod(0).sum(), x)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(torch.vmap(lambda v: scan(add, v, 0))(X), X.cumsum(1), atol=1e-6)
    grad = torch.func.grad(lambda v: scan(add, v, 0).sum())(X[0])
    assert grad.tolist() == [[5.0 - i] * 3 for i in range(5)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_captured_whole(backend: str, dynamic: bool) -> None:
    torch._dynamo.reset()

    def program(x: Any, w: Any) -> Any:
        return scan(lambda a, b: a + b * w[0, 0], x, 1)

    w = torch.full((1, 1), 0.5, requires_grad=True)
    compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)
    for x in (X, X[:, :4]):
        out, expected = compiled(x, w), program(x, w)
        assert torch.allclose(out, expected, atol=1e-6)
        found = torch.autograd.grad(out.sum(), w)[0]
        assert torch.allclose(found, torch.autograd.grad(expected.sum(), w)[0])


GENERIC = {"combine_mode": "generic"}
RANGE = "Dimension out of range (expected to be in range of [-3, 2], but got 5)"
MODE = "Combine_mode must either 'pointwise' or 'generic', but got x"
DEVICE = "For combine_mode='pointwise', all input tensors need to be on CUDA or XPU"
EMPTY = "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0"
MORE = "Combine_fn received wrong number of arguments, expected 2, but got 3"


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((3, X, 1), {}, ValueError, "Combine_fn must be a callable, but got 3"),
        ((add, X, 5), {}, IndexError, RANGE),
        ((add, X, 1.0), {}, ValueError, "Dim must be an int, but got <class 'float'>"),
        ((add, X, 1), {"combine_mode": "x"}, ValueError, MODE),
        ((add, X, 1, "x"), {}, RuntimeError, "Reverse must be a bool, but got <class 'str'>"),
        ((add, X, 1), {}, ValueError, DEVICE),
        ((add, (), 1), {}, IndexError, "list index out of range"),
        ((add, (X, 3), 1), {}, ValueError, "xs leaves must be a Tensor"),
        ((add, X[:, :0], 1), GENERIC, ValueError, EMPTY),
        ((lambda a, b: (a, b), X, 2), GENERIC, AssertionError, MORE),
    ],
)
def test_refusals(args: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        associative_scan(*args, **options)
    assert str(caught.value) == message
    assert not hasattr(torch, "associative_scan")
