"""`torch._dynamo.export`: by default the module holds for other sizes too, as PyTorch 2.13's."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch


def shifted(x: Any) -> Any:
    return x.sin() + x.shape[0]


def told(x: Any, y: Any) -> Any:
    return {"product": x @ y.t(), "sizes": (x.shape[0] * 2, y.shape[0]), "two": 2}


def branching(x: Any) -> Any:
    return x + 1 if x.shape[0] > 2 else x


@pytest.mark.parametrize("aten_graph", [False, True])
def test_other_sizes(aten_graph: bool) -> None:
    gm = torch._dynamo.export(shifted, aten_graph=aten_graph)(torch.ones(3)).graph_module
    assert torch.equal(gm(torch.ones(5)), shifted(torch.ones(5)))
    gm = torch._dynamo.export(told, aten_graph=aten_graph)(torch.ones(3, 4), torch.ones(2, 4))
    x, y = torch.ones(6, 4), torch.ones(5, 4)
    found, expected = gm.graph_module(x, y), told(x, y)
    assert torch.equal(found["product"], expected["product"])
    assert found["sizes"] == (12, 5) and found["two"] == 2
    assert all(type(n) is int for n in found["sizes"])


@pytest.mark.parametrize("given", [{"tracing_mode": "fake"}, {"assume_static_by_default": True}])
def test_these_sizes(given: dict[str, Any]) -> None:
    gm = torch._dynamo.export(shifted, **given)(torch.ones(3)).graph_module
    assert torch.equal(gm(torch.ones(5)), torch.ones(5).sin() + 3)


def test_equal_sizes_are_one() -> None:
    def sizes(x: Any, y: Any) -> Any:
        return x.shape[0], y.shape[0], x + 1

    x, y = torch.ones(3), torch.ones(3)
    gm = torch._dynamo.export(sizes)(x, y).graph_module
    assert gm(torch.ones(6), torch.ones(5))[:2] == (6, 6)
    gm = torch._dynamo.export(sizes)(x, torch.ones(4)).graph_module
    assert gm(torch.ones(6), torch.ones(5))[:2] == (6, 5)
    assert "_dynamo_weak_dynamic_indices" not in x.__dict__


def test_parameters_keep_their_sizes() -> None:
    m = torch.nn.Linear(4, 2)
    gm = torch._dynamo.export(m, aten_graph=True)(torch.ones(3, 4)).graph_module
    assert torch.equal(gm(torch.ones(7, 4)), m(torch.ones(7, 4)))
    result = torch._dynamo.export(branching)(torch.ones(3))
    assert result.guards
    assert result.graph_module(torch.ones(1)).item() == 2.0
