"""Models of the usual kinds, compiled: one graph each, training step included, equal to eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import flambeau as torch
from tests.compiler.models import MODELS

BACK_ENDS = ("eager", "aot_eager", "inductor")


def _step(call: Any, model: Any, x: Any, optimizer: Any) -> list[Any]:
    """One training step: the result, and the gradients that it left."""
    torch.manual_seed(3)
    out = call(x)
    out.float().pow(2).mean().backward()
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    optimizer.step()
    optimizer.zero_grad()
    return [out.detach().clone(), *grads]


def _close(a: Any, b: Any, what: str) -> None:
    if a is None or b is None:
        assert a is b, what
        return
    a, b = a.detach(), b.detach()
    assert a.shape == b.shape and a.dtype is b.dtype, what
    bound = 2e-5 * max(1.0, float(b.abs().max())) if b.numel() else 0.0
    assert float((a - b).abs().max()) <= bound if b.numel() else True, what


@pytest.mark.parametrize("name", MODELS)
def test_one_graph_without_breaks(name: str) -> None:
    torch.compiler.reset()
    make, inputs = MODELS[name]
    found = torch._dynamo.explain(make())(inputs())
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("name", MODELS)
def test_the_whole_step_in_one_graph(name: str, back_end: str) -> None:
    """Forward, backward and the optimiser's step under one `compile`."""
    torch.compiler.reset()
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    eager = make()
    compiled = copy.deepcopy(eager)
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    optimizers = [torch.optim.SGD(m.parameters(), **options) for m in (eager, compiled)]

    def step(model: Any, optimizer: Any, x: Any) -> Any:
        loss = model(x).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    fast = torch.compile(step, backend=back_end)
    for _ in range(3):
        x = inputs()
        torch.manual_seed(3)
        expected = step(eager, optimizers[0], x)
        torch.manual_seed(3)
        _close(fast(compiled, optimizers[1], x), expected, "loss")
    for (key, a), b in zip(compiled.state_dict().items(), eager.state_dict().values(), strict=True):
        _close(a.float(), b.float(), key)
    assert not torch._dynamo.utils.counters["contained"], "no stage may have failed"


def test_a_history_that_the_step_went_back_is_spent() -> None:
    torch.compiler.reset()
    model = torch.nn.Linear(3, 2)

    @torch.compile
    def step(x: Any) -> Any:
        loss = model(x).sum()
        loss.backward()
        return loss

    loss = step(torch.randn(4, 3))
    assert loss.requires_grad and model.weight.grad is not None
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("name", MODELS)
def test_training_in_one_graph(name: str, back_end: str) -> None:
    torch.compiler.reset()
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    eager = make()
    compiled = copy.deepcopy(eager)
    call = torch.compile(compiled, backend=back_end, fullgraph=True)
    first = torch.optim.SGD(eager.parameters(), lr=0.05)
    second = torch.optim.SGD(compiled.parameters(), lr=0.05)
    for _ in range(2):
        x = inputs()
        expected = _step(eager, eager, x, first)
        found = _step(call, compiled, x, second)
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            _close(a, b, f"value {i}")
    state = zip(compiled.state_dict().items(), eager.state_dict().values(), strict=True)
    for (key, a), b in state:
        _close(a.float(), b.float(), key)
    eager.eval(), compiled.eval()
    x = inputs()
    torch.manual_seed(4)
    expected = eager(x)
    torch.manual_seed(4)
    _close(call(x), expected, "evaluation")


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_checkpoint_stays_eager_inside(back_end: str, reentrant: bool) -> None:
    """What is run twice is run alike both times: a break, and nothing compiled inside."""
    torch.compiler.reset()
    layer = torch.nn.Linear(4, 4)

    def f(x: Any) -> Any:
        inner = torch.utils.checkpoint.checkpoint(
            lambda t: torch.tanh(layer(t)), x * 1, use_reentrant=reentrant
        )
        return (inner * 2).sum()

    x = torch.randn(3, 4, requires_grad=True)
    found = torch.compile(f, backend=back_end)(x)
    (a,) = torch.autograd.grad(found, x) if not reentrant else (None,)
    if reentrant:
        found.backward()
        a, x.grad = x.grad, None
    (torch.tanh(layer(x)) * 2).sum().backward()
    _close(a, x.grad, "gradient")
