"""Optimizers under compile: one graph for all steps, whatever a scheduler does."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._dynamo.testing import CompileCounterWithBackend

NAMES = (
    ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD")
    + ("Rprop", "Adafactor")
)  # fmt: skip
SCHEDULERS = {
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e)),
}


def _train(name: str, compiled: Any, scheduler: Any, steps: int = 8) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    extra = {} if name in ("Adafactor",) else {"foreach": False}
    opt = getattr(torch.optim, name)(m.parameters(), lr=torch.tensor(0.05), **extra)
    plan = scheduler(opt)
    x = torch.randn(16, 3)

    def step() -> None:
        opt.step()

    run = compiled(step)
    for _ in range(steps):
        opt.zero_grad()
        m(x).square().mean().backward()
        run()
        plan.step()
    return [p.detach() for p in m.parameters()], opt


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", NAMES)
def test_one_graph_for_all_rates(name: str, backend: str) -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend(backend)
    make = SCHEDULERS["StepLR"]
    want, _ = _train(name, lambda f: f, make)
    got, opt = _train(name, lambda f: torch.compile(f, backend=counted, fullgraph=True), make)
    # The first step makes the state, the second finds it made.
    assert counted.frame_count == (1 if name in ("SGD", "Adagrad") else 2)
    assert float(opt.param_groups[0]["lr"]) == pytest.approx(0.05 / 16)
    for a, b in zip(want, got, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6), (a - b).abs().max()


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_schedulers(kind: str) -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend("eager")
    want, _ = _train("AdamW", lambda f: f, SCHEDULERS[kind])
    got, _ = _train("AdamW", lambda f: torch.compile(f, backend=counted), SCHEDULERS[kind])
    assert counted.frame_count == 2
    for a, b in zip(want, got, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-7)


def test_lbfgs_breaks_and_goes_on() -> None:
    """Its line of steps depends on values: the graph ends there, and the result is eager's."""
    results = []
    for compiled in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        m, x = nn.Linear(3, 1), torch.randn(8, 3)
        opt = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=4)

        def closure(m: Any = m, x: Any = x, opt: Any = opt) -> Any:
            opt.zero_grad()
            loss = (m(x) - 1).square().mean()
            loss.backward()
            return loss

        def step(opt: Any = opt, closure: Any = closure) -> Any:
            return opt.step(closure)

        run = torch.compile(step, backend="aot_eager") if compiled else step
        losses = [float(run()) for _ in range(3)]
        results.append((losses, [p.detach() for p in m.parameters()]))
    (want, params), (got, others) = results
    assert got == pytest.approx(want, rel=1e-4)
    assert all(torch.allclose(a, b, rtol=1e-4) for a, b in zip(params, others, strict=True))
