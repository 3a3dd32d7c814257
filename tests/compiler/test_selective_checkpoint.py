"""Selective checkpoints in captured programs, and programs under a mode of the user's own.

How many values are saved is what PyTorch 2.13's partitions save of the same programs.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

import flambeau as torch
from flambeau._dynamo.backends.common import aot_autograd
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils.checkpoint import CheckpointPolicy, checkpoint
from flambeau.utils.checkpoint import create_selective_checkpoint_contexts as contexts

aten = torch.ops.aten
X = torch.linspace(-1, 1, 6).reshape(2, 3)


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    nn = torch.nn
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.Sigmoid())


def products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    if op == aten.addmm.default:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def always(policy: Any) -> Any:
    return lambda ctx, op, *args, **kwargs: policy


CONTEXTS: dict[str, tuple[Any, int]] = {  # and how many values the backward is given
    "none": (None, 6),
    "products": (functools.partial(contexts, products), 5),
    "nothing": (functools.partial(contexts, always(CheckpointPolicy.MUST_RECOMPUTE)), 6),
    "everything": (functools.partial(contexts, always(CheckpointPolicy.MUST_SAVE)), 5),
    "list": (functools.partial(contexts, [aten.addmm.default]), 5),
}


def run(net: Any, context_fn: Any, backend: Any, times: int = 1) -> list[Any]:
    given = {} if context_fn is None else {"context_fn": context_fn}

    def program(x: Any) -> Any:
        for _ in range(times):
            x = checkpoint(net, x, use_reentrant=False, **given)
        return x.sum()

    fn = program if backend is None else torch.compile(program, backend=backend, fullgraph=True)
    net.zero_grad()
    fn(X).backward()
    return [p.grad.clone() for p in net.parameters()]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_captured_whole(net: Any, name: str, backend: str) -> None:
    expected = run(net, CONTEXTS[name][0], None, 2)
    found = run(net, CONTEXTS[name][0], backend, 2)
    assert all(torch.allclose(a, b, 1e-5, 1e-6) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", CONTEXTS)
def test_what_is_saved(net: Any, name: str) -> None:
    graphs = []

    def keep(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph

    context_fn, saved = CONTEXTS[name]
    run(net, context_fn, aot_autograd(fw_compiler=keep, bw_compiler=keep))
    _, backward = graphs
    assert sum(n.op == "placeholder" for n in backward.graph.nodes) == saved
    again = sum(n.target is aten.addmm.default for n in backward.graph.nodes)
    assert (again == 0) == (name in ("products", "everything", "list"))


def test_contexts_that_do_more_break_the_graph(net: Any) -> None:
    def other() -> Any:
        return torch.no_grad(), torch.no_grad()

    def program(x: Any) -> Any:
        return checkpoint(net, x, use_reentrant=False, context_fn=other).sum()

    assert torch.equal(torch.compile(program, backend="eager")(X), program(X))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="gives contexts that do more"):
        torch.compile(program, backend="eager", fullgraph=True)(X)


# ---- modes ----


class Watching(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(op))
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_mode_sees_the_program_as_it_is(backend: str) -> None:
    """Nothing is captured under a mode of the program, and is again once the mode is left."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(lambda v: v.sin() + 1, backend=counter)
    with Watching() as watching:
        found = compiled(X)
    assert watching.seen == ["aten.sin.default", "aten.add.Tensor"]
    assert counter.frame_count == 0
    assert torch.allclose(compiled(X), found)
    assert counter.frame_count == 1
    with Watching() as watching:
        compiled(X)  # what is compiled stays so
    assert counter.frame_count == 1


def test_a_whole_graph_is_refused_under_a_mode() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda v: v.sin() + 1, backend="eager", fullgraph=True)
    with Watching(), pytest.raises(RuntimeError, match="non-infra torch dispatch mode present"):
        compiled(X)
