"""One compiled version for modules that are built alike, and what tells them apart."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn

Graphs = list[Any]


class Block(nn.Module):
    """A residual block with a buffer that it writes, a flag and a child that may be missing."""

    def __init__(self, width: int = 8, *, norm: bool = True) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width) if norm else None
        self.register_buffer("calls", torch.zeros(()))
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = x if self.norm is None else self.norm(x)
        y = torch.relu(self.inner(y)) * self.scale
        if self.training:
            y = y + 1
        if hasattr(self, "extra"):
            y = y * self.extra
        return x + y


@pytest.fixture
def graphs() -> Graphs:
    torch._dynamo.reset()
    return []


def keeping(graphs: Graphs) -> Callable[..., Any]:
    def back_end(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    return back_end


def agree(block: Any, compiled: Callable[..., Any], x: torch.Tensor) -> None:
    """Values, gradients and the buffer, compiled as eager."""
    before = block.calls.clone()
    expected = block(x)
    wanted = torch.autograd.grad(expected.sum(), list(block.parameters()), allow_unused=True)
    block.calls.copy_(before)
    got = compiled(x)
    found = torch.autograd.grad(got.sum(), list(block.parameters()), allow_unused=True)
    assert torch.equal(got, expected)
    assert torch.equal(block.calls, before + 1)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


@pytest.mark.parametrize("way", ["around", "in place", "function"])
def test_blocks_share_a_version(graphs: Graphs, way: str) -> None:
    """One is compiled for itself, and one version for all others, as often as they are called."""
    back_end = keeping(graphs)
    x = torch.randn(3, 8, requires_grad=True)
    run = torch.compile(lambda block, x: block(x), backend=back_end)
    for block in [Block() for _ in range(12)] * 2:
        if way == "in place":
            block.compile(backend=back_end)
            assert torch.equal(block(x), block.forward(x))
        elif way == "around":
            agree(block, torch.compile(block, backend=back_end), x)
        else:
            agree(block, functools.partial(run, block), x)
    assert len(graphs) == 2


def test_a_compiled_child_is_part_of_the_graph(graphs: Graphs) -> None:
    for way in ("in place", "around"):
        block = Block()
        if way == "in place":
            block.inner.compile(backend="eager")
        else:
            block.inner = torch.compile(block.inner, backend="eager")
        agree(
            block, torch.compile(block, backend=keeping(graphs), fullgraph=True), torch.ones(3, 8)
        )
    assert len(graphs) == 2


@pytest.fixture
def shared(graphs: Graphs) -> Iterator[tuple[Callable[[Any], Callable[..., Any]], Graphs]]:
    """A way to compile a block, after two, which live on, made the version for all."""
    back_end = keeping(graphs)

    def compiled(block: Any) -> Callable[..., Any]:
        return torch.compile(block, backend=back_end)

    x = torch.randn(3, 8, requires_grad=True)
    blocks = [Block(), Block()]
    for block in blocks:
        agree(block, compiled(block), x)
    assert len(graphs) == 2
    yield compiled, graphs


def no_norm(block: Any) -> None:
    block.norm = None


def evaluated(block: Any) -> None:
    block.eval()


def other_scale(block: Any) -> None:
    block.scale = 3.0


def with_extra(block: Any) -> None:
    block.extra = 5.0


def extra_parameter(block: Any) -> None:
    block.extra = nn.Parameter(torch.randn(8))


def frozen(block: Any) -> None:
    block.inner.weight.requires_grad_(False)
    block.inner.weight.requires_grad_(True)
    block.norm.weight.requires_grad_(True)
    block.norm.eps = 0.5


def without_bias(block: Any) -> None:
    block.inner = nn.Linear(8, 8, bias=False)


def hooked(block: Any) -> None:
    block.inner.register_forward_hook(lambda m, args, out: out * 2)


def hooked_itself(block: Any) -> None:
    block.register_forward_pre_hook(lambda m, args: (args[0] + 1,))


def tied(block: Any) -> None:
    block.norm.bias = block.norm.weight


def own_forward(block: Any) -> None:
    block.inner.forward = lambda x: x * 7


def of_a_subclass(block: Any) -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 2

    block.inner = Doubled(8, 8)


def compiled_inner(block: Any) -> None:
    block.inner.compile(backend="eager")


@pytest.mark.parametrize(
    "change",
    [
        no_norm, evaluated, other_scale, with_extra, extra_parameter, frozen, without_bias, hooked,
        hooked_itself, tied, own_forward, of_a_subclass, compiled_inner,
    ],
)  # fmt: skip
def test_what_differs_is_seen(shared: Any, change: Callable[[Any], None]) -> None:
    compile_, graphs = shared
    x = torch.randn(3, 8, requires_grad=True)
    block = Block()
    change(block)
    agree(block, compile_(block), x)
    plain = Block()
    number = len(graphs)
    agree(plain, compile_(plain), x)
    assert len(graphs) == number, "the version for all is still there"
    change(plain)  # after it was compiled
    agree(plain, compile_(plain), x)


def test_hooks_for_all_modules_are_seen(shared: Any) -> None:
    compile_, _ = shared
    x = torch.randn(3, 8)
    block = Block()
    fast = compile_(block)
    before = fast(x)
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, args, out: out * 2 if isinstance(m, nn.Linear) else None
    )
    try:
        assert torch.equal(fast(x), block(x))
        assert not torch.equal(fast(x), before)
    finally:
        handle.remove()
    assert torch.equal(fast(x), before)


def test_a_global_hook_is_seen_where_no_module_is_known(graphs: Graphs) -> None:
    run = torch.compile(lambda block, x: block(x), backend=keeping(graphs))
    x = torch.randn(3, 8)
    blocks = [Block() for _ in range(3)]
    before = [run(b, x) for b in blocks]
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, args, out: out * 2 if isinstance(m, nn.Linear) else None
    )
    try:
        for block, old in zip(blocks, before, strict=True):
            assert torch.equal(run(block, x), block(x))
            assert not torch.equal(run(block, x), old)
    finally:
        handle.remove()


def test_shared_children_are_told_from_separate_ones(graphs: Graphs) -> None:
    class Pair(nn.Module):
        def __init__(self, *, one: bool) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = self.a if one else nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.a(x) - self.b(x)

    back_end = keeping(graphs)
    x = torch.randn(2, 4)
    for one in (True, True, True, False, False, True):
        pair = Pair(one=one)
        assert torch.equal(torch.compile(pair, backend=back_end)(x), pair(x))


def test_blocks_of_many_widths_are_all_compiled(graphs: Graphs) -> None:
    """Versions for modules of their own do not count against the limit of each other."""
    back_end = keeping(graphs)
    blocks = [Block(width) for width in range(2, 22)]
    for _ in range(2):
        for block in blocks:
            x = torch.randn(3, block.inner.in_features, requires_grad=True)
            agree(block, torch.compile(block, backend=back_end), x)
    assert len(graphs) == len(blocks)


def test_one_module_has_its_limit(graphs: Graphs) -> None:
    block = Block()
    fast = torch.compile(block, backend=keeping(graphs), dynamic=False)
    for n in range(1, 20):
        assert torch.equal(fast(torch.ones(n, 8)), block(torch.ones(n, 8)))
    # the call, and once that has its versions the function that it calls
    assert len(graphs) <= 3 * torch._dynamo.config.recompile_limit


def test_models_made_one_after_the_other(graphs: Graphs) -> None:
    """The second, too, has the quick guard; all from the third on share a version."""
    back_end = keeping(graphs)
    x = torch.randn(3, 8)
    kinds = []
    for _ in range(12):
        block = Block()
        fast = torch.compile(block, backend=back_end)
        assert torch.equal(fast(x), block(x))
        kinds.append(len(graphs))
        del block, fast
        gc.collect()
    assert kinds == [1, 2, *[3] * 10]


def test_versions_keep_no_module_alive(graphs: Graphs) -> None:
    back_end = keeping(graphs)
    x = torch.randn(3, 8)
    refs = []
    for _ in range(4):
        block = Block()
        torch.compile(block, backend=back_end)(x)
        refs.append(weakref.ref(block))
    del block
    graphs.clear()
    gc.collect()
    assert [r() is None for r in refs] == [True] * 4


def test_a_loop_with_breaks_over_blocks(graphs: Graphs) -> None:
    class Broken(Block):
        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            torch._dynamo.graph_break()
            return x + torch.relu(self.inner(y))

    class Stack(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Broken() for _ in range(n)])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    stack = Stack(12)
    x = torch.randn(3, 8)
    fast = torch.compile(stack, backend=keeping(graphs))
    expected = stack(x)
    assert torch.equal(fast(x), expected)
    number = len(graphs)
    assert number <= 6
    assert torch.equal(fast(x), expected)
    assert len(graphs) == number
