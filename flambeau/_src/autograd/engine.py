"""The backward pass: nodes run when all gradients for them have arrived, newest first, in the
caller's thread. The engine keeps no state of its own, so a backward inside a backward is just a call."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten

Node = Any


class LeafHooks:
    """What a leaf (or a retained tensor) carries beside its gradient; stands in `Tensor._autograd`."""

    __slots__ = ("hooks", "post_accumulate", "accumulator", "extra")

    def __init__(self) -> None:
        self.hooks: dict[int, Any] = {}
        self.post_accumulate: dict[int, Any] = {}
        self.accumulator: Any = None
        self.extra: dict[str, Any] = {}


class NodeHooks:
    """Hooks of a node: on the gradients of its outputs (`tensor_pre`, by output number), before
    and after it runs, and the tensors that retain their gradient."""

    __slots__ = ("tensor_pre", "pre", "post", "retained")

    def __init__(self) -> None:
        self.tensor_pre: dict[int, dict[int, Any]] = {}
        self.pre: dict[int, Any] = {}
        self.post: dict[int, Any] = {}
        self.retained: dict[int, Any] = {}  # output number -> weak reference to the tensor

    def before(self, grads: list[Any]) -> list[Any]:
        for nr, hooks in self.tensor_pre.items():
            for hook in list(hooks.values()):
                if grads[nr] is None:
                    continue
                r = hook(grads[nr])
                if r is not None:
                    check_hook_result(grads[nr], r)
                    grads[nr] = r
        for nr, ref in self.retained.items():
            t = ref()
            if t is not None and grads[nr] is not None:
                t.grad = grads[nr] if t.grad is None else t.grad + grads[nr]
        for hook in list(self.pre.values()):
            r = hook(tuple(grads))
            if r is not None:
                grads = list(r) if isinstance(r, (tuple, list)) else [r]
        return grads


def check_hook_result(before: Tensor, after: Any) -> None:
    """A hook may only return something of the gradient's kind."""
    if not isinstance(after, Tensor):
        raise TypeError(f"expected Tensor, but hook returned '{type(after).__name__}'")
    if after.shape != before.shape:
        raise RuntimeError("hook has changed the size of value")
    if after.dtype is not before.dtype:
        raise RuntimeError(f"hook has changed the type of value (was {before.type()} got {after.type()})")


def node_hooks(node: Node) -> NodeHooks:
    """The node's hooks, made when missing."""
    if node.hooks is None:
        node.hooks = NodeHooks()
    return node.hooks


def leaf_hooks(t: Tensor) -> LeafHooks:
    """The leaf's hooks, made when missing."""
    if t._autograd is None:
        t._autograd = LeafHooks()
    return t._autograd


def root_edge(t: Tensor) -> tuple[Any, int]:
    """Where gradients of t go: its node and output number, or the leaf itself."""
    fn = t.grad_fn
    return (t, 0) if fn is None else (fn, t.output_nr)


def _count(roots: Sequence[Any]) -> dict[Any, int]:
    """For each reachable node, how many edges lead to it."""
    counts: dict[Any, int] = {}
    stack = [r for r in roots if not isinstance(r, Tensor)]
    seen = set(stack)
    while stack:
        for target, _ in stack.pop().edges:
            if target is None or isinstance(target, Tensor):
                continue
            counts[target] = counts.get(target, 0) + 1
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return counts


def _needed(roots: Sequence[Any], wanted: set[Any]) -> set[Any]:
    """The nodes from which a wanted node or leaf can be reached (wanted nodes' inputs excluded)."""
    needed: set[Any] = set()
    order: list[Any] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(r, False) for r in roots if not isinstance(r, Tensor)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        for target, _ in node.edges:
            if target is not None and not isinstance(target, Tensor) and target not in seen:
                stack.append((target, False))
    for node in order:  # inputs come before their consumers
        for target, nr in node.edges:
            if target is None:
                continue
            key = id(target) if isinstance(target, Tensor) else (target, nr)
            if key in wanted or (not isinstance(target, Tensor) and target in needed):
                needed.add(node)
                break
    return needed


def run(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
    accumulate: bool = True,
) -> list[Any]:
    """Propagate grads from roots. With `inputs` and not `accumulate`, the gradients of the inputs
    are returned (None where unreached) and no `.grad` changes."""
    captured: dict[Any, Any] = {}
    wanted: set[Any] = set()
    if inputs is not None:
        for t in inputs:
            node, nr = root_edge(t)
            wanted.add(id(node) if isinstance(node, Tensor) else (node, nr))
    buffers: dict[Any, list[Any]] = {}
    heap: list[tuple[int, int, Any]] = []
    starts = [root_edge(t) for t in roots]
    before = state.set_grad(create_graph)
    try:
        counts = _count([s for s, _ in starts])
        needed = _needed([s for s, _ in starts], wanted) if inputs is not None else None
        engine = _Pass(buffers, heap, counts, needed, wanted, captured, accumulate, create_graph)
        pending = []
        for (target, nr), g in zip(starts, grads, strict=True):
            if isinstance(target, Tensor):
                engine.leaf(target, g, False)
                continue
            if target not in buffers:
                buffers[target] = [None] * target.num_outputs
                pending.append(target)
            engine.add(target, nr, g)
        for target in pending:
            if not counts.get(target):
                heappush(heap, (-target.seq, id(target), target))
            else:
                counts[target] += 0
        engine.loop(retain_graph)
    finally:
        state.set_grad(before)
    if inputs is None or accumulate:
        return []
    out = []
    for t in inputs:
        node, nr = root_edge(t)
        out.append(captured.get(id(node) if isinstance(node, Tensor) else (node, nr)))
    return out


class _Pass:
    """One backward pass: gradients that have arrived, and the nodes that are ready."""

    __slots__ = ("buffers", "heap", "counts", "needed", "wanted", "captured", "accumulate", "create_graph")

    def __init__(
        self, buffers: Any, heap: Any, counts: Any, needed: Any, wanted: Any, captured: Any,
        accumulate: bool, create_graph: bool,
    ) -> None:  # fmt: skip
        self.buffers, self.heap, self.counts = buffers, heap, counts
        self.needed, self.wanted, self.captured = needed, wanted, captured
        self.accumulate, self.create_graph = accumulate, create_graph

    def add(self, node: Any, nr: int, g: Any) -> None:
        slots = self.buffers[node]
        slots[nr] = g if slots[nr] is None else slots[nr] + g

    def loop(self, retain_graph: bool) -> None:
        buffers, heap, counts, wanted = self.buffers, self.heap, self.counts, self.wanted
        while heap:
            node = heappop(heap)[2]
            grads = buffers.pop(node)
            hooks = node.hooks
            if hooks is not None:
                grads = hooks.before(grads)
            if wanted:
                for nr, g in enumerate(grads):
                    if (node, nr) in wanted and g is not None:
                        if self.accumulate:
                            _accumulate_retained(node, nr, g)
                        else:
                            self.captured[(node, nr)] = g
            if self.needed is not None and node not in self.needed:
                self.skip(node)
                continue
            results = node.op.backward(node, tuple(grads))
            if hooks is not None and hooks.post:
                for hook in list(hooks.post.values()):
                    r = hook(results, tuple(grads))
                    if r is not None:
                        results = r if isinstance(r, tuple) else (r,)
            if not retain_graph:
                node.release()
            del grads
            for i, (target, nr) in enumerate(node.edges):
                if target is None:
                    continue
                g = results[i]
                if isinstance(target, Tensor):
                    if g is not None:
                        self.leaf(target, g, sys.getrefcount(g) <= 3)
                    continue
                if target not in buffers:
                    buffers[target] = [None] * target.num_outputs
                if g is not None:
                    self.add(target, nr, g)
                counts[target] -= 1
                if not counts[target]:
                    heappush(heap, (-target.seq, id(target), target))
            results = None

    def skip(self, node: Any) -> None:
        """A node off the way to the inputs: its consumers' counts still go down."""
        for target, _ in node.edges:
            if target is None or isinstance(target, Tensor):
                continue
            if target not in self.buffers:
                self.buffers[target] = [None] * target.num_outputs
            self.counts[target] -= 1
            if not self.counts[target]:
                heappush(self.heap, (-target.seq, id(target), target))

    def leaf(self, t: Tensor, g: Any, ours: bool) -> None:
        meta = t._autograd
        if meta is not None and meta.hooks:
            for hook in list(meta.hooks.values()):
                r = hook(g)
                if r is not None:
                    check_hook_result(g, r)
                    g, ours = r, False
        if self.wanted:
            if id(t) not in self.wanted:
                return
            if not self.accumulate:
                old = self.captured.get(id(t))
                self.captured[id(t)] = g if old is None else old + g
                return
        accumulate(t, g, ours and sys.getrefcount(g) <= 5, self.create_graph)
        if meta is not None and meta.post_accumulate:
            for hook in list(meta.post_accumulate.values()):
                hook(t)


def _accumulate_retained(node: Any, nr: int, g: Any) -> None:
    """`backward(inputs=...)` asked for a non-leaf: its gradient goes to the tensor that retains it."""
    hooks = node.hooks
    ref = hooks.retained.get(nr) if hooks is not None else None
    t = ref() if ref is not None else None
    if t is not None and t._grad is None:
        t.grad = g


def accumulate(t: Tensor, g: Tensor, ours: bool, create_graph: bool) -> None:
    """Add g to t.grad. A fresh gradient that nobody else holds is taken as it is."""
    old = t._grad
    if old is not None:
        if create_graph:
            t.grad = old + g
        else:
            with state.GradMode(False):
                old.add_(g)
        return
    if create_graph:
        t.grad = g.clone() if g is t else g
        return
    if ours and g.stride() == t.stride() and sys.getrefcount(g.untyped_storage()) <= 2 and g._base is None:
        t.grad = g if g.grad_fn is None else g.detach()
        return
    fresh = aten.empty_strided(t.shape, t.stride(), dtype=g.dtype, device=g.device) if _dense(t) else aten.empty_like(t)
    with state.GradMode(False):
        fresh.copy_(g)
    t.grad = fresh


def _dense(t: Tensor) -> bool:
    """Whether t's elements fill a block without gaps or overlaps."""
    expected = 1
    for st, s in sorted((st, s) for s, st in zip(t.shape, t.stride(), strict=True) if s != 1):
        if st != expected:
            return False
        expected *= s
    return True
