"""Hooks that come after the compile: the guards see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn


@pytest.fixture(params=["eager", "aot_eager", "inductor"])
def compiled_step(request: pytest.FixtureRequest) -> tuple[nn.Linear, Callable[[], Any]]:
    """A layer, and a step over it that has run often enough to be compiled for good."""
    torch._dynamo.reset()
    layer = nn.Linear(3, 2)
    x = torch.ones(4, 3)

    @torch.compile(backend=request.param, fullgraph=True)
    def step() -> None:
        layer.zero_grad()
        layer(x).sum().backward()

    for _ in range(3):
        step()
    return layer, step


def test_a_hook_on_the_gradient(compiled_step: Any) -> None:
    layer, step = compiled_step
    handle = layer.weight.register_hook(lambda g: g * 2)
    step()
    assert layer.weight.grad.unique().tolist() == [8.0]
    handle.remove()
    step()
    assert layer.weight.grad.unique().tolist() == [4.0]


def test_a_hook_in_place_of_another(compiled_step: Any) -> None:
    layer, step = compiled_step
    layer.weight.register_hook(lambda g: g * 2).remove()
    layer.weight.register_hook(lambda g: g * 5)
    step()
    assert layer.weight.grad.unique().tolist() == [20.0]


def test_a_hook_after_accumulation(compiled_step: Any) -> None:
    layer, step = compiled_step
    seen = []

    def hook(p: Any) -> None:
        seen.append(p.grad.clone())
        p.grad.mul_(3)

    layer.bias.register_post_accumulate_grad_hook(hook)
    step()
    assert layer.bias.grad.tolist() == [12.0, 12.0]
    assert [t.tolist() for t in seen] == [[4.0, 4.0]]


def test_a_hook_on_the_node(compiled_step: Any) -> None:
    """One on the node that accumulates the gradient ends the graph."""
    layer, step = compiled_step
    node = layer.bias.view_as(layer.bias).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_: None)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="node that accumulates"):
        step()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_the_same_order_as_eager(backend: str) -> None:
    """The hooks of a training step come in the order in which the gradients arrive."""

    def run(through: Callable[[Any], Any]) -> tuple[list[str], Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 1))
        log: list[str] = []
        for name, p in model.named_parameters():
            p.register_hook(lambda g, name=name: log.append(name))
            p.register_post_accumulate_grad_hook(lambda p, name=name: log.append("after " + name))

        def step() -> None:
            model(torch.ones(2, 3)).sum().backward()

        step = through(step)
        step()
        step()
        return log, [p.grad for p in model.parameters()]

    torch._dynamo.reset()
    log, grads = run(lambda f: f)
    found, others = run(lambda f: torch.compile(f, backend=backend, fullgraph=True))
    assert found == log
    for a, b in zip(grads, others, strict=True):
        torch.testing.assert_close(a, b)
