"""The cut of a joint graph: minimal by brute force, the same results, nothing dear done twice."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.compiler.aot import AotFunction, cleaned, own_compiler
from flambeau._src.compiler.flow import Network
from flambeau._src.compiler.joint import trace_joint
from flambeau._src.compiler.partition import Cut, default_partition, min_cut_partition
from flambeau._src.compiler.passes import op_of

F = torch.nn.functional


def by_hand(n: int, arcs: list[tuple[int, int, int]]) -> int:
    """The least capacity over all subsets that hold vertex 0 and not vertex 1."""
    rest = range(2, n)
    best = None
    for size in range(n - 1):
        for chosen in itertools.combinations(rest, size):
            near = {0, *chosen}
            value = sum(c for a, b, c in arcs if a in near and b not in near)
            best = value if best is None else min(best, value)
    assert best is not None
    return best


@pytest.mark.parametrize("seed", range(60))
def test_the_flow_is_the_least_cut(seed: int) -> None:
    draw = random.Random(seed)
    n = draw.randint(2, 8)
    arcs = [
        (a, b, draw.randint(0, 9))
        for a in range(n)
        for b in range(n)
        if a != b and draw.random() < 0.5
    ]
    network = Network(n)
    for arc in arcs:
        network.add(*arc)
    value = network.maximum(0, 1)
    far = network.far(1)
    assert value == by_hand(n, arcs)
    assert value == sum(c for a, b, c in arcs if a not in far and b in far)


def block(x: Any, w: Any, b: Any) -> Any:
    h = F.layer_norm(x, (x.shape[-1],))
    h = F.dropout(F.gelu(F.linear(h, w, b)), 0.25)
    return (h * h + h.relu()).softmax(-1).sum(0)


def chain(x: Any) -> Any:
    y = ((x * 2 + 1).relu() - x).clamp(-1, 3)
    return (y * y * (x > 0)).sum()


def written(x: Any, running: Any) -> Any:
    running.mul_(0.9).add_(x.detach().mean(0))
    return (x * running).exp()


CASES = [
    (block, [(4, 8), (8, 8), (8,)]),
    (chain, [(5, 7)]),
    (lambda x: (x.t() @ x).tril().cumsum(0)[1:], [(4, 4)]),
    (lambda x: torch.stack(x.split(2)).max(0).values * x.shape[0], [(4, 3)]),
    (lambda x: F.batch_norm(x, None, None, training=True).tanh(), [(6, 3)]),
]


def inputs(shapes: Any) -> list[Any]:
    g = torch.Generator().manual_seed(1)
    return [torch.randn(*s, generator=g).requires_grad_() for s in shapes]


def joint_of(f: Any, shapes: Any) -> Any:
    made = trace_joint(f, inputs(shapes))
    cleaned(made)
    return made


def saved_bytes(cut: Cut) -> int:
    vals = [n.meta["val"] for n in cut.saved if n.op != "placeholder"]
    return sum(v.numel() * v.element_size() for v in vals if isinstance(v, torch.Tensor))


@pytest.mark.parametrize(("f", "shapes"), CASES)
@pytest.mark.parametrize("aggressive", [False, True])
def test_the_same_results_with_no_more_saved(f: Any, shapes: Any, aggressive: bool) -> None:
    def cut(joint: Any) -> Cut:
        return min_cut_partition(joint, aggressive)

    results = []
    for partition in (default_partition, cut):
        fn = AotFunction(f, own_compiler, partition=partition)
        given = inputs(shapes)
        torch.manual_seed(7)
        out = fn(*given)
        out.sum().backward()
        results.append([out, *[t.grad for t in given]])
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, 1e-5, 1e-6)
    assert saved_bytes(cut(joint_of(f, shapes))) <= saved_bytes(
        default_partition(joint_of(f, shapes))
    )


def names(graph: Any) -> list[str]:
    return [op.name for op in map(op_of, graph.nodes) if op is not None]


def test_of_equal_cuts_the_one_that_computes_least_again() -> None:
    """What the backward reads is saved rather than what it is made of, where both cost the same."""

    def relu_of_a_sum(x: Any, w: Any) -> Any:
        return F.max_pool1d((x @ w).relu(), 2).sum()

    cut = min_cut_partition(joint_of(relu_of_a_sum, [(2, 4, 4), (4, 4)]))
    assert "relu" in names(cut.forward)
    assert "relu" not in names(cut.backward)


def test_cheap_values_are_made_again_and_dear_ones_are_not() -> None:
    cut = min_cut_partition(joint_of(chain, [(5, 7)]))
    assert [n.op for n in cut.saved] == ["placeholder"]  # x alone: all else is cheap
    cut = min_cut_partition(joint_of(lambda x: x.exp() * x, [(5,)]))
    assert "exp" not in names(cut.backward)
    cut = min_cut_partition(joint_of(lambda x: x.exp() * x, [(5,)]), aggressive=True)
    assert "exp" in names(cut.backward)


def test_random_numbers_are_drawn_once() -> None:
    for aggressive in (False, True):
        cut = min_cut_partition(joint_of(block, CASES[0][1]), aggressive)
        drawn = [op.name for op in map(op_of, cut.backward.nodes) if op and op.decl.random]
        assert not drawn and any(op.decl.random for op in map(op_of, cut.forward.nodes) if op)


def test_what_is_written_is_not_saved_as_it_was() -> None:
    given = [torch.ones(4, 3, requires_grad=True), torch.zeros(3)]
    fn = AotFunction(written, own_compiler, partition=min_cut_partition)
    fn(*given).sum().backward()
    plain = [torch.ones(4, 3, requires_grad=True), torch.zeros(3)]
    written(*plain).sum().backward()
    assert torch.allclose(given[0].grad, plain[0].grad) and torch.equal(given[1], plain[1])
