"""Lazy modules: the first call runs as it is, and what follows is one graph."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
import flambeau.nn as nn
from flambeau._dynamo.testing import CompileCounterWithBackend


class Own(nn.Module):
    """Lazy modules as attributes, what draws random numbers before them."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.a, self.b = nn.Dropout(0.5), nn.LazyConv1d(4, 1), nn.LazyBatchNorm1d()

    def forward(self, x: Any) -> Any:
        """The tensor through all of them."""
        return self.b(self.a(self.drop(x)))


MAKES = {
    "sequential": lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)),
    "alone": lambda: nn.LazyLinear(3),
    "own": Own,
}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", MAKES)
def test_values_and_graphs(name: str, backend: str, fullgraph: bool) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    counted = CompileCounterWithBackend(backend)
    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model: Any = MAKES[name]()
        called = torch.compile(model, backend=counted, fullgraph=fullgraph) if compiles else model
        found.append([called(torch.ones(2, 3, 3)) for _ in range(3)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
    assert counted.frame_count == 1
    assert not torch._dynamo.utils.counters["contained"]
    assert type(model) is not Own or type(model.a) is nn.Conv1d
