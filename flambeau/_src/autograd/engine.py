"""The backward pass: nodes run when all gradients for them have arrived, newest first, in the
caller's thread. A pass keeps its state to itself, so a backward inside a backward is just a call.

A leaf stands at the end of its edges itself; its `AccumulateGrad` node is only made for those who
ask for it (`hooks.accumulator`). Leaves are waited for like nodes and written as soon as all
gradients for them have come.

A pass over nodes of operators without hooks, into leaves without hooks, runs in C
(`csrc/backward.c`), in the same order; what is here runs every other, and says what is right.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from flambeau._src import _native
from flambeau._src.autograd import anomaly
from flambeau._src.autograd.hooks import AccumulateGrad, call_user, run_tensor_hooks
from flambeau._src.core import state
from flambeau._src.core.layout import preserve_format
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.record import seen_below
from flambeau._src.ops.call import aten, called
from flambeau._src.ops.op import Op

Node = Any
Edge = tuple[Any, int]
_numbers = itertools.count()
_PUBLIC = state.FUNCTION | state.FUNCTION_MODE | state.PROFILE


def root_edge(t: Tensor) -> Edge:
    """Where gradients of t go: its node and output number, or the leaf itself."""
    fn = t.grad_fn
    return (t, 0) if fn is None else (fn, t.output_nr)


def task_number() -> int:
    """The number of the backward pass that runs, -1 outside of one."""
    this = state.thread.backward_pass
    return -1 if this is None else int(this.number)


def queue_callback(callback: Callable[[], Any]) -> None:
    """Call this at the end of the backward pass that runs.

    Raises:
        RuntimeError: none runs.
    """
    this = state.thread.backward_pass
    if this is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    this.callbacks.append(callback)


def first_gradient(out: Tensor) -> Any:
    """Ones, as torch's own Python code asks for them: modes see what it states.

    Raises:
        RuntimeError: out is complex.
    """
    if not out.dtype.is_floating_point:
        raise RuntimeError(
            f"grad can be implicitly created only for real scalar outputs but got {out.dtype}"
        )
    with state.Suspended(state.FUNCTION | state.FUNCTION_MODE):
        return called.ones_like(out, memory_format=preserve_format)


def leaf_of(target: Any) -> Any:
    """The leaf at an end of the graph, None when target is an inner node."""
    if isinstance(target, Tensor):
        return target
    return target.variable if type(target) is AccumulateGrad else None


def _count(roots: Sequence[Node]) -> dict[Any, int]:
    """For each node that can be reached, how many edges lead to it; leaves by their id."""
    counts: dict[Any, int] = {}
    seen = set(roots)
    stack = list(seen)
    while stack:
        for target, _ in stack.pop().edges:
            if target is None:
                continue
            leaf = leaf_of(target)
            if leaf is not None:
                counts[id(leaf)] = counts.get(id(leaf), 0) + 1
                continue
            counts[target] = counts.get(target, 0) + 1
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return counts


def _needed(roots: Sequence[Node], wanted: set[Any]) -> set[Node]:
    """The nodes that must run so that gradients come to what is wanted."""
    needed: set[Any] = set()
    order: list[Any] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(r, False) for r in roots]
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
            if target is not None and leaf_of(target) is None and target not in seen:
                stack.append((target, False))
    for node in order:  # inputs come before their consumers
        for target, nr in node.edges:
            if target is None:
                continue
            leaf = leaf_of(target)
            key = (target, nr) if leaf is None else id(leaf)
            if key in wanted or (leaf is None and target in needed):
                needed.add(node)
                break
    return needed


def key_of(edge: Edge) -> Any:
    """What stands for this place among the wanted and captured ones."""
    leaf = leaf_of(edge[0])
    return edge if leaf is None else id(leaf)


def run(
    roots: list[Edge],
    grads: list[Tensor | None],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    inputs: Sequence[Edge] | None = None,
    accumulate: bool = True,
) -> list[Any]:
    """Propagate grads from roots. With `inputs` and not `accumulate`, the gradients at the inputs
    are returned (None where unreached) and no `.grad` changes."""
    wanted = set() if inputs is None else {key_of(e) for e in inputs}
    thread = state.thread
    suspended, outer = state.get_suspended(), thread.user_suspended
    outside = thread.backward_pass
    # Gradients are made of operators, which no function mode sees; what the user wrote (hooks,
    # backward of Functions) runs under `user_suspended`.
    state.set_suspended(suspended | _PUBLIC)
    thread.user_suspended = suspended
    before = state.set_grad(create_graph)
    try:
        if inputs is None and not create_graph and not thread.anomaly[0]:
            thread.backward_pass = PassInC(roots)  # unpack hooks may ask for it
            if _native.backward(roots, grads, retain_graph):
                for callback in thread.backward_pass.callbacks:
                    call_user(callback)
                return []
        this = Pass(wanted, inputs is not None, accumulate, create_graph, retain_graph)
        thread.backward_pass = this
        this.start(roots, grads)
        this.loop()
        for callback in this.callbacks:
            call_user(callback)
    finally:
        thread.backward_pass = outside
        state.set_grad(before)
        state.set_suspended(suspended)
        thread.user_suspended = outer
    if inputs is None or accumulate:
        return []
    return [this.captured.get(key_of(e)) for e in inputs]


class PassInC:
    """A backward pass that C runs, as those see it who ask which one runs."""

    __slots__ = ("callbacks", "number", "roots")

    def __init__(self, roots: Sequence[Edge]) -> None:
        self.callbacks: list[Any] = []
        self.number = next(_numbers)
        self.roots = roots

    def will_run(self, node: Any) -> bool:
        """Whether gradients come to this node (or AccumulateGrad node) in this pass."""
        leaf = leaf_of(node)
        nodes = [t for t, _ in self.roots if leaf_of(t) is None]
        return (node if leaf is None else id(leaf)) in _count(nodes) or node in nodes


class Pass:
    """One backward pass: gradients that have arrived, and the nodes that are ready."""

    __slots__ = (
        "accumulate", "anomaly", "buffers", "callbacks", "captured", "counts", "create_graph",
        "heap", "leaves",
        "limited", "needed", "number", "reached", "retain_graph", "roots", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        wanted: set[Any],
        limited: bool,
        accumulate: bool,
        create_graph: bool,
        retain_graph: bool,
    ) -> None:
        self.wanted, self.limited, self.accumulate = wanted, limited, accumulate
        self.create_graph, self.retain_graph = create_graph, retain_graph
        self.buffers: dict[Any, Any] = {}
        self.heap: list[tuple[int, int, Node]] = []
        self.leaves: list[Tensor] = []
        self.captured: dict[Any, Any] = {}
        self.callbacks: list[Any] = []  # run when all is done; a callback may add another
        self.anomaly = state.thread.anomaly[0]
        self.number = next(_numbers)

    def start(self, roots: Sequence[Edge], grads: Sequence[Tensor | None]) -> None:
        """Put the first gradients where they belong."""
        self.roots = nodes = [t for t, _ in roots if leaf_of(t) is None]
        self.counts = _count(nodes)
        self.needed = _needed(nodes, self.wanted) if self.limited else None
        self.reached: set[Any] = set()  # in a limited pass no others get gradients, nor their hooks
        if self.needed is not None:
            self.reached = self.needed | {e[0] for e in self.wanted if isinstance(e, tuple)}
        for (target, nr), g in zip(roots, grads, strict=True):
            leaf = leaf_of(target)
            if leaf is not None:
                self.counts[id(leaf)] = self.counts.get(id(leaf), 0) + 1
                self.to_leaf(leaf, g)
                continue
            if target not in self.buffers:
                self.buffers[target] = [None] * target.num_outputs
                if target not in self.counts:
                    heappush(self.heap, (-target.seq, id(target), target))
            slots = self.buffers[target]
            slots[nr] = g if slots[nr] is None else slots[nr] + g
        if self.leaves:
            self.flush()

    def will_run(self, node: Any) -> bool:
        """Whether gradients come to this node (or AccumulateGrad node) in this pass."""
        leaf = leaf_of(node)
        key = node if leaf is None else id(leaf)
        if not self.limited:
            return key in self.counts or node in self.roots
        if leaf is not None:
            return key in self.wanted
        return node in self.needed or any(e[0] is node for e in self.wanted if isinstance(e, tuple))  # type: ignore[operator]

    def loop(self) -> None:
        """Run nodes until none is ready."""
        heap, buffers, needed = self.heap, self.buffers, self.needed
        plain = not self.limited and not self.anomaly
        while heap:
            node = heappop(heap)[2]
            grads = buffers.pop(node)
            hooks = node.hooks
            if hooks is None and plain:
                results = node.op.backward(node, tuple(grads))
            else:
                runs = not self.limited or node in needed  # type: ignore[operator]
                if not runs and hooks is not None:
                    hooks.on_tensors(grads)
                if self.limited:  # of a node that runs, what comes before its tensors' hooks
                    self.capture(node, grads)
                if not runs:
                    self.distribute(node, None)
                    continue
                if hooks is not None:
                    hooks.on_tensors(grads)
                results = self.run_node(node, grads, hooks)
            if not self.retain_graph:
                node.release()
            del grads
            self.distribute(node, results)
            results = None
            if self.leaves:
                self.flush()

    def run_node(self, node: Node, grads: list[Any], hooks: Any) -> Any:
        """The node with its hooks, and under anomaly mode."""
        if hooks is not None and hooks.pre:
            grads = hooks.before(grads)
        if not self.anomaly:
            results = node.op.backward(node, tuple(grads))
        else:
            outer = state.thread.running_node
            state.thread.running_node = node
            try:
                results = node.op.backward(node, tuple(grads))
                if anomaly.check_nan_enabled():
                    anomaly.check_nan(node, results)
            except Exception:
                anomaly.warn_of_forward(node)
                raise
            finally:
                state.thread.running_node = outer
        if hooks is not None and hooks.post:
            results = hooks.after(node, tuple(results), tuple(grads))
        return results

    def capture(self, node: Node, grads: list[Any]) -> None:
        """Take what was asked for."""
        if self.accumulate:
            return
        for nr, g in enumerate(grads):
            if (node, nr) in self.wanted and g is not None:
                self.captured[(node, nr)] = g

    def distribute(self, node: Node, results: Any) -> None:
        """Send results (None: nothing) along the node's edges."""
        buffers, counts = self.buffers, self.counts
        for i, (target, nr) in enumerate(node.edges):
            if target is None:
                continue
            g = None if results is None else results[i]
            if isinstance(target, Tensor):
                self.to_leaf(target, g)
                continue
            slots = buffers.get(target)
            if slots is None:
                if type(target) is AccumulateGrad:
                    self.to_leaf(target.variable, g)
                    continue
                if self.limited and target not in self.reached:
                    continue
                slots = buffers[target] = [None] * target.num_outputs
            if g is not None:
                slots[nr] = g if slots[nr] is None else slots[nr] + g
            left = counts[target] = counts[target] - 1
            if not left:
                heappush(self.heap, (-target.seq, id(target), target))

    def to_leaf(self, t: Tensor, g: Any) -> None:
        """One of the gradients of a leaf; when it is the last one the leaf is ready."""
        key = id(t)
        if self.limited and key not in self.wanted:
            return
        if g is not None:
            old = self.buffers.get(key)
            self.buffers[key] = g if old is None else old + g
        left = self.counts[key] = self.counts[key] - 1
        if not left:
            self.leaves.append(t)

    def flush(self) -> None:
        """Write the gradients of the leaves that are ready."""
        leaves, self.leaves = self.leaves, []
        for t in leaves:
            if id(t) in self.buffers:
                self.finish_leaf(t)

    def finish_leaf(self, t: Tensor) -> None:
        """All gradients for t have come: its hooks, and then `.grad` (or the captured result)."""
        meta = t._autograd
        node = None if meta is None or meta.accumulator is None else meta.accumulator()
        g = self.buffers.pop(id(t))
        if meta is not None and meta.grad_dtype and g.dtype is not meta.grad_dtype:
            g = aten._to_copy(g, dtype=meta.grad_dtype)
        if meta is not None and meta.hooks:
            g = run_tensor_hooks(meta.hooks, g)
        if self.limited:
            if id(t) not in self.wanted:
                return
            if not self.accumulate:
                self.captured[id(t)] = g
                return
        if node is not None and node.hooks is not None and node.hooks.pre:
            (g,) = node.hooks.before([g])
        if g is None:
            return
        accumulate(t, g, self.create_graph)
        if meta is not None and meta.post_accumulate:
            for hook in list(meta.post_accumulate.values()):
                call_user(hook, t)
        if node is not None and node.hooks is not None and node.hooks.post:
            node.hooks.after(node, (), (g,))


def accumulate(t: Tensor, g: Tensor, create_graph: bool) -> None:
    """Add g to t.grad. A fresh gradient that nobody else holds is taken as it is."""
    old = t._grad
    if old is not None:
        if create_graph:
            t.grad = old + g
        else:
            old.add_(g)
        return
    # Held by: the caller's name, this argument, and getrefcount's own.
    if not create_graph and sys.getrefcount(g) <= 3 and g.stride() == t.stride() and alone(g):
        t.grad = g if g.grad_fn is None and g._base is None and not seen_below(g) else g.detach()
        return
    accumulate_copy(t, g)


def accumulate_copy(t: Tensor, g: Tensor) -> None:
    """The first gradient of t, copied: laid out as t where t is dense."""
    if g._bits & state.DISPATCH and dense(t):  # of a class that makes what is like it
        t.grad = aten.new_empty_strided(g, t.shape, t.stride()).copy_(g)
    elif dense(t):
        fresh = aten.empty_strided(t.shape, t.stride(), dtype=g.dtype, device=g.device)
        t.grad = fresh.copy_(g)
    else:
        t.grad = aten.clone(g, memory_format=_contiguous())


def alone(g: Tensor) -> bool:
    """Whether nobody else holds the bytes of g: at most a base that only g refers to."""
    base = g._base
    holders = sys.getrefcount(g.untyped_storage()) - 1
    if base is None:
        return holders == 1
    return holders == 2 and sys.getrefcount(base) <= 3


def _contiguous() -> Any:
    from flambeau._src.core.layout import contiguous_format  # lazy: only odd leaves need it

    return contiguous_format


def dense(t: Tensor) -> bool:
    """Whether t's elements fill a block without gaps or overlaps."""
    expected = 1
    pairs = [(st, s) for s, st in zip(t.shape, t.stride(), strict=True) if s != 1]
    for st, s in sorted(pairs):
        if st != expected:
            return False
        expected *= s
    return True


fill("accumulate_copy", accumulate_copy)
_native.set_op_types((Op,))
