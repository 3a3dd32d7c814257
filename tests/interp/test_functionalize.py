"""Functionalisation: programs with writes and views give what they give in eager."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._src.interp.functionalize import functionalize
from flambeau.fx.experimental.proxy_tensor import make_fx


def chain(t: Any) -> Any:
    y = t.clone()
    y[0].add_(1)
    y.view(-1).mul_(2)
    return y.t()


def shapes(t: Any) -> Any:
    y = torch.zeros(2, 3)
    y.copy_(t)
    y.t_()
    y[1].fill_(3)
    a, b = y.split(2)
    a.zero_()
    torch.add(b, 1, out=y[2:])
    y.unsqueeze_(0).squeeze_()
    return y, a, b


def strided(t: Any) -> Any:
    y = t.clone()
    y.as_strided((2, 2), (3, 2), 0).mul_(10)
    y.diagonal().sub_(1)
    y.transpose(0, 1)[2].neg_()
    y.unbind(0)[1].add_(y[0])
    return y


def indexed(t: Any) -> Any:
    y = t.clone()
    y[torch.tensor([1, 0])] = t * 2
    y[y > 2] = 0
    y[:, 1:] += 5
    return y


@pytest.mark.parametrize("f", [chain, shapes, strided, indexed])
@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_same_results(f: Any, remove: str) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    want, got = f(x), functionalize(f, remove=remove)(x)
    want, got = (v if isinstance(v, tuple) else (v,) for v in (want, got))
    for a, b in zip(want, got, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("f", [chain, shapes, strided, indexed])
def test_no_writes_are_left(f: Any) -> None:
    gm = make_fx(functionalize(f))(torch.arange(6.0).reshape(2, 3))
    assert not [
        n for n in gm.graph.nodes if hasattr(n.target, "_schema") and n.target._schema.is_mutable
    ]


def test_inputs_are_written_once_at_the_end() -> None:
    x = torch.ones(2, 3)
    gm = make_fx(functionalize(lambda t: t.add_(1).mul_(2)))(x.clone())
    writes = [
        str(n.target)
        for n in gm.graph.nodes
        if hasattr(n.target, "_schema") and n.target._schema.is_mutable
    ]
    assert writes == ["aten.copy_.default"]
    y = x.clone()
    assert functionalize(lambda t: t.add_(1))(y).sum() == 12 and y.sum() == 12


def test_errors() -> None:
    outside = torch.ones(3)
    with pytest.raises(
        RuntimeError,
        match="mutating a non-functional tensor with a functional tensor is not allowed",
    ):
        functionalize(lambda t: outside.add_(t))(torch.ones(3))
    with pytest.raises(RuntimeError, match="received invalid argument for remove="):
        functionalize(lambda t: t, remove="views")
