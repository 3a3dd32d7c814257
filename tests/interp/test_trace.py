"""make_fx: the nodes that torch 2.13 records."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

x = torch.ones(2, 3)


def targets(gm: Any) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op not in ("placeholder", "output")]


def test_several_results_are_taken_apart() -> None:
    gm = make_fx(lambda x: torch.max(x, 0)[0])(x)
    assert [n.name for n in gm.graph.nodes] == ["x_1", "max_1", "getitem", "getitem_1", "output"]
    assert list(gm.graph.nodes)[1].meta["val"][1].dtype is torch.int64
    assert torch.equal(gm(x * 2), x[0] * 2)


def test_nested_arguments() -> None:
    def f(d: Any, y: Any) -> Any:
        return {"a": d["x"] + y[0], "b": [y[1]]}

    gm = make_fx(f)({"x": x}, [x * 2, x * 3])
    out = gm({"x": x}, [x, x])
    assert torch.equal(out["a"], x * 2) and torch.equal(out["b"][0], x)


def test_constants_and_parameters() -> None:
    c, p = torch.ones(3), torch.nn.Parameter(torch.ones(3))
    gm = make_fx(lambda x: x + c + c * p)(x)
    names = [n.name for n in gm.graph.nodes]
    assert names == [
        "x_1",
        "_tensor_constant0",
        "add",
        "_tensor_constant0_1",
        "_param_constant0",
        "mul",
        "add_1",
        "output",
    ]
    assert gm._param_constant0 is p
    gm = make_fx(lambda x: x * torch.tensor(3).item())(x)
    assert targets(gm) == ["_tensor_constant0", "aten.lift_fresh_copy.default", "aten.mul.Tensor"]


def test_values_are_refused() -> None:
    with pytest.raises(
        RuntimeError, match="It appears that you're trying to get value out of a tracing tensor"
    ):
        make_fx(lambda x: x * 2 if x.sum() > 0 else x)(x)
    with pytest.raises(AssertionError, match="tracing_mode must be real/fake/symbolic, got none"):
        make_fx(lambda x: x, tracing_mode="none")


def test_decompositions_and_modes() -> None:
    table = {torch.ops.aten.exp.default: lambda t: t.sin() + 1}
    assert targets(make_fx(lambda x: x.exp(), decomposition_table=table)(x)) == [
        "aten.sin.default",
        "aten.add.Tensor",
    ]
    seen = []
    gm = make_fx(
        lambda a, b: (seen.append(get_proxy_mode()), (a @ b.t()).relu())[1], tracing_mode="fake"
    )(x, x)
    assert targets(gm) == ["aten.t.default", "aten.mm.default", "aten.relu.default"]
    assert seen[0] is not None and get_proxy_mode() is None


def test_gradients_are_traced() -> None:
    def joint(a: Any) -> Any:
        return torch.autograd.grad((a.tanh() * a).sum(), a)

    a = x.clone().requires_grad_()
    gm = make_fx(joint)(a)
    assert "aten.tanh_backward.default" in targets(gm) and not hasattr(gm, "_tensor_constant0")
    assert torch.allclose(gm(a)[0], joint(a)[0])


def test_in_place_results_go_on() -> None:
    gm = make_fx(lambda t: t.clone().add_(1).mul_(t))(x)
    last = list(gm.graph.nodes)[3]
    assert str(last.target) == "aten.mul_.Tensor" and str(last.args[0]) == "add_"
