"""Operators that take functions through every back end; checkpoints in the cut of a joint graph."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._dynamo.testing import CompileCounterWithBackend
from flambeau._src.compiler.driver import COMPILERS
from flambeau.utils.checkpoint import checkpoint
from tests.capture.comparing import PROGRAMS, Program, differences
from tests.capture.programs import higher_order

MINE = [p for p in PROGRAMS if p.function.__module__ == higher_order.__name__ and p.graphs]


def _run(program: Program, fn: Any) -> Any:
    torch.manual_seed(7)
    args = program.arguments()
    torch.manual_seed(11)
    value = fn(*args)
    leaves = [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
    grown = [t.sin().sum() for t in leaves if t.requires_grad and t.grad_fn is not None]
    if grown:
        sum(grown).backward()
    given = [t for a in args for t in (a.parameters() if isinstance(a, nn.Module) else [a])]
    return [t.detach() for t in leaves], [t.grad for t in given if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", MINE, ids=lambda p: p.name)
def test_backends(program: Program, backend: str) -> None:
    torch._dynamo.reset()
    want = _run(program, program.function)
    counted = CompileCounterWithBackend(backend)
    got = _run(program, torch.compile(program.function, backend=counted, fullgraph=True))
    assert counted.frame_count == 1
    seen = {"rounding": 2e-6}
    for a, b in zip(want, got, strict=True):
        assert not (found := differences(a, b, "value", seen)), found


def _checkpointed(m: Any, x: Any) -> Any:
    return checkpoint(m, x, use_reentrant=False).sin()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_is_checkpointed_is_not_saved(backend: str) -> None:
    """The backward gets the inputs of the checkpoint and what leaves it, and runs the products
    again, each just before its gradient."""
    torch._dynamo.reset()
    m = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8))
    x = torch.randn(16, 8, requires_grad=True)
    compiled = torch.compile(_checkpointed, backend=backend)
    compiled(m, x)
    (found,) = [e for c in COMPILERS.values() for e in c.entries]
    cut = next(s.artefact for s in found.history if s.stage == "partition")
    saved = [n.meta["val"] for n in cut.saved]
    given = {tuple(p.shape) for p in (*m.parameters(), x)}
    assert {tuple(t.shape) for t in saved} <= given | {(16, 8)}
    again = [n for n in cut.backward.nodes if str(n.target).startswith("aten.addmm")]
    assert len(again) == 2  # the last product is the end of the checkpoint: nobody needs it


def test_random_numbers_of_a_checkpoint_are_saved() -> None:
    torch._dynamo.reset()
    m = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    results = []
    for fn in (_checkpointed, torch.compile(_checkpointed, backend="aot_eager")):
        m.zero_grad()
        torch.manual_seed(0)
        fn(m, x).sum().backward()
        results.append([p.grad.clone() for p in m.parameters()])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*results, strict=True))


def test_graph() -> None:
    """The nodes that back ends see."""
    torch._dynamo.reset()
    graphs: list[Any] = []

    def keep(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    y = torch.ones(3)

    def f(x: Any) -> Any:
        z = torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos() + y, (x,))
        return checkpoint(lambda v: v * 2, z, use_reentrant=False)

    torch.compile(f, backend=keep)(torch.ones(3))
    (gm,) = graphs
    calls = [n for n in gm.graph.nodes if n.target is torch.ops.higher_order.cond]
    _, true, false, operands = calls[0].args
    assert [str(true), str(false)] == ["cond_true_0", "cond_false_0"] and len(operands) == 2
    assert len([n for n in gm.cond_true_0.graph.nodes if n.op == "placeholder"]) == 2
    tag = torch.ops.higher_order.tag_activation_checkpoint
    (node,) = [n for n in gm.graph.nodes if n.target is tag]
    assert node.kwargs == {"use_reentrant": False} and str(node.args[0]) == "wrap_body_0"
