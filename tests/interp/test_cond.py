"""torch.cond: eager, traced, with gradients, compiled."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._src.compiler.aot import aot_function
from flambeau.fx.experimental.proxy_tensor import make_fx

x = torch.arange(6.0).reshape(2, 3) / 4


def choose(p: Any, x: Any) -> Any:
    return torch.cond(p, lambda a: a.sin(), lambda a: a.cos() + 1, (x,))


def test_eager() -> None:
    assert torch.equal(choose(True, x), x.sin()) and torch.equal(
        choose(x.sum() < 0, x), x.cos() + 1
    )
    out = torch.cond(x.sum() > 0, lambda a: (a + 1, {"q": a}), lambda a: (a, {"q": a}), (x,))
    assert torch.equal(out[0], x + 1) and torch.equal(out[1]["q"], x)
    with pytest.raises(RuntimeError, match="Expected pred to be bool or single-element tensor"):
        torch.cond(torch.ones(2), lambda a: a, lambda a: a, (x,))


def test_traced() -> None:
    gm = make_fx(choose)(torch.tensor(True), x)
    names = [n.name for n in gm.graph.nodes]
    assert names == ["p_1", "x_1", "true_graph_0", "false_graph_0", "cond", "getitem", "output"]
    assert torch.equal(gm(torch.tensor(False), x), x.cos() + 1)
    with pytest.raises(RuntimeError, match="expected same dim but got 2 and 0"):
        make_fx(lambda p, x: torch.cond(p, lambda a: a * 2, lambda a: a.sum(), (x,)))(
            torch.tensor(True), x
        )


def test_gradients_compiled() -> None:
    compiled = aot_function(
        lambda p, a: torch.cond(p, lambda a: a.sin() * 2, lambda a: a.cos(), (a,)).sum()
    )
    for p, want in ((True, 2 * x.cos()), (False, -x.sin())):
        a = x.clone().requires_grad_()
        compiled(torch.tensor(p), a).backward()
        assert torch.allclose(a.grad, want)
    assert len(compiled.entries) == 1
