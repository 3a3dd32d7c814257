"""Ahead-of-time autograd: a function compiled with its backward, called like the function.

`AotFunction` keeps an entry for each signature it is called with. An entry is a forward, a
backward (compiled when first needed), and what to do around them: writes into inputs, outputs that
are views of inputs, the node that autograd records.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.capture import frames
from flambeau._src.capture.checker import Checker
from flambeau._src.compiler import replay
from flambeau._src.compiler.assemble import Program, assemble
from flambeau._src.compiler.extents import geometry, is_input, row_major
from flambeau._src.compiler.joint import Joint, Output, Slot, Unsupported, sharing
from flambeau._src.compiler.numbers import assertions, inline
from flambeau._src.compiler.partition import Cut, default_partition
from flambeau._src.compiler.passes import tidy
from flambeau._src.compiler.symbolic_inputs import SymbolicInputs, named
from flambeau._src.compiler.whole import traced
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.functionalize import Step
from flambeau._src.interp.record import pack
from flambeau._src.ir.graph import Graph
from flambeau._src.ops.call import ALL, aten, dispatch
from flambeau._src.ops.op import packet
from flambeau._src.util import pytree
from flambeau._src.util.log import fallback

__all__ = ["AotFunction", "Compile", "aot_function"]

# graph, its attributes, the fake inputs, whether it is a backward → a callable of the inputs
Compile = Callable[[Graph, dict[str, Any], list[Any], bool], Callable[[Sequence[Any]], Any]]


def own_compiler(
    graph: Graph,
    attributes: dict[str, Any],
    fakes: list[Any],
    backward: bool,
    *,
    exact: bool = False,
) -> Callable[[Sequence[Any]], Any]:
    """flambeau's own: fused kernels in a flat program."""
    program = assemble(graph, attributes, exact=exact)
    return beneath(program, program.call)


def beneath(program: Program, run: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    """A program over kernels as a function of its inputs: no layer sees what `run` does."""
    call = functools.partial(_native.beneath, ALL, run)
    call.program = program  # type: ignore[attr-defined]
    return call


class _Compiled:
    """The operator of a compiled function's nodes (autograd's protocol)."""

    decl = None

    def __repr__(self) -> str:
        return "CompiledFunction"

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run the compiled backward on what was saved and the gradients that came."""
        found: tuple[Any, ...] = node.ctx.backward(node, grads)
        return found


COMPILED = _Compiled()
_native.set_op_types((*_native.set_op_types(()), _Compiled))  # C runs passes with such nodes
CompiledFunctionBackward = type(
    "CompiledFunctionBackward",
    (_native.Node,),
    {"__slots__": (), "__module__": "torch.autograd.graph"},
)


class _Second:
    """The operator behind the gradients of a compiled function: they have no gradients."""

    decl = None

    def __repr__(self) -> str:
        return "CompiledFunctionBackward"

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Refuse."""
        raise RuntimeError(
            "torch.compile with aot_autograd does not currently support double backward"
        )


SECOND = _Second()


def _refusing(run: Callable[..., Any], given: list[Any], through: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients under `create_graph`: an error for who goes back through them."""
    with state.GradMode(False), state.Suspended(state.AUTOCAST):
        found = tuple(run(given))
    inputs = [t for t in through if isinstance(t, Tensor) and t.requires_grad]
    if inputs:
        node = _native.node(CompiledFunctionBackward, SECOND, inputs)
        node.num_outputs = len(found)
        for nr, g in enumerate(found):
            if g is not None:
                g._set_history(node, nr, True)
    return found


class Entry:
    """One signature of a function, compiled."""

    def __init__(self, joint: Joint, cut: Cut, compile_: Compile) -> None:
        self.joint, self.cut, self.compile = joint, cut, compile_
        self.n_outputs = len(joint.outputs)
        fakes = [n.meta["val"] for n in joint.primals]
        self.forward = compile_(cut.forward, joint.attributes, fakes, False)
        self._backward: Callable[[Sequence[Any]], Any] | None = None
        self.tangents = [n.meta["val"] for n in joint.tangents]
        self.sized = any(t._sym is not None for t in self.tangents)  # geometry is the call's own
        self.places = [(t.shape, t.stride()) for t in self.tangents]
        # What is saved is tensors alone, and gradients are to lie in a way that C can tell.
        self.plain = all(isinstance(n.meta.get("val"), Tensor) for n in cut.saved) and not (
            self.sized and any(map(_permuted, self.tangents))
        )
        # Nothing to do around the forward: what it returns is what the function returns.
        self.direct = not (joint.bases or joint.written or joint.reshaped) and all(
            r.slot == i and not r.steps for i, r in enumerate(joint.results)
        )
        self.quiet = not (joint.carrying or joint.spent)
        # C records the node, and puts together what its backward is given.
        self.recorded_in_c = self.plain and not joint.spent and bool(joint.carrying)
        self.simple = self.direct and self.recorded_in_c
        # The node saves results of its own, as bytes: they don't ask for its gradient themselves.
        saved = set(cut.saved)
        self.saves_results = any(joint.outputs[place] in saved for place in joint.carrying)
        self.wanted, self.carrying = tuple(joint.wanted), tuple(joint.carrying)
        self.strides: tuple[tuple[int, ...] | None, ...] = tuple(
            None if self.sized else tuple(stride) for _, stride in self.places
        )

    def __call__(self, inputs: Sequence[Tensor]) -> Any:
        return pytree.tree_unflatten(self.flat(inputs), self.joint.out_spec)

    def flat(self, inputs: Sequence[Tensor]) -> list[Any]:
        """The leaves of what the function returns. The graph holds the casts of autocast already:
        its operators don't see the mode."""
        if state.get_active() & state.AUTOCAST:
            with state.Suspended(state.AUTOCAST):
                return self._flat(inputs)
        if not self.simple:
            return self._flat(inputs)
        return self._recorded(inputs, self.forward(inputs))

    def _flat(self, inputs: Sequence[Tensor]) -> list[Any]:
        joint = self.joint
        if self.direct:
            return self._recorded(inputs, self.forward(inputs))
        sources: Sequence[Tensor] = inputs
        if joint.bases:
            sources = [*inputs, *[b.make(inputs) for b in joint.bases]]
            inputs = [sources[i] for i in joint.order]  # type: ignore[union-attr]
        outs = self._recorded(sources, self.forward(inputs))
        if joint.written:
            _write(joint.written, sources, outs)
        for i, steps in joint.reshaped:
            for step in steps:
                dispatch(_inplace(step.op), (sources[i], *Slot.filled(step.rest, outs)))
        return [_result(r, sources, outs) for r in joint.results]

    def _recorded(self, sources: Sequence[Tensor], found: Sequence[Any]) -> list[Any]:
        """The outputs among what the forward gave, with their history."""
        n = self.n_outputs
        if self.quiet or not state.get_grad():
            return list(found[:n]) if len(found) > n else found  # type: ignore[return-value]
        if self.recorded_in_c and not state.thread.saved_hooks:
            outs = _native.recorded(
                CompiledFunctionBackward, COMPILED, self, sources, self.wanted, found, n,
                self.carrying,
            )  # fmt: skip
            if self.sized:
                node = outs[self.carrying[0]].grad_fn
                node.args = (*node.args, self._sizes(outs))
            return outs
        outs = list(found[:n])
        self._record(sources, outs, found[n:])
        self._mark_spent(outs)
        return outs

    def _record(self, sources: Sequence[Tensor], outs: list[Any], saved: Sequence[Any]) -> None:
        joint = self.joint
        if not joint.carrying:
            return
        node = _native.node(CompiledFunctionBackward, COMPILED, [sources[i] for i in joint.wanted])
        node.num_outputs = len(joint.carrying)
        node.ctx = self
        node.args = self._kept(outs, saved)
        others = [*map(id, sources), *map(id, outs)]
        for nr, place in enumerate(joint.carrying):
            out = outs[place]
            if out.requires_grad or others.count(id(out)) > 1:
                out = outs[place] = _native.alias(Tensor, out)
            out._set_history(node, nr, True)

    def _kept(self, outs: list[Any], saved: Sequence[Any]) -> tuple[Any, ...]:
        kept: list[Any] = []
        own = set(map(id, outs))
        for t in saved:
            if isinstance(t, Tensor):
                # Of a result the bytes, not the object: that one holds the node.
                t = _native.alias(Tensor, t) if id(t) in own else t
                s = _native.saved(t)
                if state.thread.saved_hooks:
                    pack(s, t)
                kept.append(s)
            else:
                kept.append(t)
        if self.sized:
            kept.append(self._sizes(outs))
        return tuple(kept)

    def _sizes(self, outs: list[Any]) -> tuple[Any, ...]:
        return tuple((tuple(outs[i].shape), outs[i].stride()) for i in self.carrying)

    def _mark_spent(self, outs: list[Any]) -> None:
        """Outputs that the program went back from: they require gradients, and have none left."""
        for place in self.joint.spent:
            node = _native.node(CompiledFunctionBackward, COMPILED, [])
            node.ctx, node.released = self, 1
            outs[place]._set_history(node, 0, True)

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients of the inputs that want one."""
        if self._backward is not None and self.plain:
            ready = _native.came(node, grads, self.strides)
            if ready is not None:
                return tuple(self._backward(ready))
        if all(map(_is_none, grads)):
            return (None,) * len(self.joint.wanted)
        saved = node.unpack()
        if self._backward is None:
            cut = self.cut
            fakes = [n.meta["val"] for n in (*cut.saved, *self.joint.tangents)]
            self._backward = self.compile(cut.backward, self.joint.attributes, fakes, True)
        places: Any = self.places
        if self.sized:
            *saved, places = saved
        given = [*saved, *map(_as_traced, grads, self.tangents, places)]
        run = self._backward
        tensors = given if self.plain else [t for t in given if isinstance(t, Tensor)]
        if any(map(_bits, tensors)) and _seen(tensors):
            run = self._by_operators
        if state.get_grad():
            through = [*grads, *saved]
            if self.saves_results:
                result = _native.alias(Tensor, given[-1])
                result._set_history(node, 0, True)
                through.append(result)
            return _refusing(run, given, through)
        if state.get_active() & state.AUTOCAST:
            with state.Suspended(state.AUTOCAST):
                return tuple(run(given))
        return tuple(run(given))

    @functools.cached_property
    def _by_operators(self) -> Callable[[Sequence[Any]], Any]:
        """The backward for tensors that are not plain bytes (batched by vmap, of a subclass, …):
        its operators one by one, so that each layer sees them; kernels see bytes only."""
        fallback(
            "compiler.backward_by_operators",
            "the backward of a compiled graph runs operator by operator: its gradients are batched "
            "by vmap, or of a tensor subclass",
        )
        run = replay.printed(self.cut.backward, self.joint.attributes)
        return lambda given: run(*given)


def _permuted(t: Tensor) -> bool:
    """Whether a tangent of symbolic sizes is laid out in another way than row after row."""
    shape, stride, _ = geometry(t)
    return bool(stride != row_major(shape))


_is_none, _bits = functools.partial(operator.is_, None), operator.attrgetter("_bits")


def _seen(tensors: Sequence[Tensor]) -> int:
    """The layers that these tensors ask for; `__torch_function__` has been asked already."""
    bits = 0
    for t in tensors:
        bits |= t._bits
    return bits & ~state.FUNCTION


class WholeEntry(Entry):
    """A signature with tensors of users' classes: taken apart around the graph. Autograd's node is
    between the whole tensors."""

    def _flat(self, inputs: Sequence[Tensor]) -> list[Any]:
        callback = frames.set_callback(None)  # for what the classes run
        try:
            return self._run(inputs)
        finally:
            frames.set_callback(callback)

    def _run(self, inputs: Sequence[Tensor]) -> list[Any]:
        layout, joint, n = self.joint.layout, self.joint, self.n_outputs
        sources = layout.sources(inputs)
        with state.GradMode(False):
            values = list(self.forward(sources))
            outs, saved = values[:n], values[n:]
            for i, place in joint.written:
                aten.copy_(sources[i], outs[place])
            parts = [_result(r, sources, outs) for r in joint.results]
        leaves: list[Any] = layout.results(parts, inputs)
        if state.get_grad() and layout.carrying:
            wanted = [inputs[i] for i in layout.wanted]
            node = _native.node(CompiledFunctionBackward, COMPILED, wanted)
            node.num_outputs, node.ctx = len(layout.carrying), self
            node.args = self._kept(outs, saved)
            for nr, place in enumerate(layout.carrying):
                leaves[place]._set_history(node, nr, True)
        return leaves

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients of the inputs that want one, whole."""
        callback = frames.set_callback(None)
        try:
            if state.get_grad():
                run = functools.partial(self._gradients, node)
                return _refusing(run, list(grads), (*grads, *node.unpack()))
            return self._gradients(node, grads)
        finally:
            frames.set_callback(callback)

    def _gradients(self, node: Any, given: Any) -> tuple[Any, ...]:
        layout = self.joint.layout
        parts = layout.tangents_of(given)
        if self._backward is None:
            cut = self.cut
            fakes = [n.meta["val"] for n in (*cut.saved, *self.joint.tangents)]
            self._backward = self.compile(cut.backward, self.joint.attributes, fakes, True)
        traced = map(_as_traced, parts, self.tangents, self.places)
        with state.Suspended(state.AUTOCAST):
            found = list(self._backward([*node.unpack(), *traced]))
        return tuple(layout.gradients_of(found))


def entry_for(joint: Joint, cut: Cut, compile_: Compile) -> Entry:
    """The entry of a traced signature."""
    return (Entry if joint.layout is None else WholeEntry)(joint, cut, compile_)


def _write(
    places: Sequence[tuple[int, int]], sources: Sequence[Tensor], outs: Sequence[Tensor]
) -> None:
    """Written inputs get their values; what has no history is written without one. A value that
    was computed in its place (`Joint.in_place`) is only counted."""
    grad = state.set_grad(False)
    try:
        for i, place in places:
            target, value = sources[i], outs[place]
            if value is target:
                target._bump_version()
                continue
            state.set_grad(grad and value.requires_grad)
            aten.copy_(target, value)
    finally:
        state.set_grad(grad)


def _inplace(op: Any) -> Any:
    """The operator that looks at a tensor in another way in place: `t` → `t_`."""
    return packet(op.name + "_").overload(op.overload or "default")


def _result(r: Output, sources: Sequence[Tensor], outs: list[Any]) -> Any:
    if r.source is not None:
        t = sources[r.source]
    elif r.slot is not None:
        t = outs[r.slot]
    else:
        return r.constant
    for step in r.steps:
        if r.sized:
            step = Step(step.op, Slot.filled(step.rest, outs), step.index)
        t = step.forward(t, False)
    return t


class Region:
    """A compiled graph: called with its inputs, it returns its outputs in a tuple.

    Written inputs may share bytes otherwise than when the graph was traced: each way of sharing
    has an entry, made by `make(inputs)` when it is first met.
    """

    def __init__(self, make: Callable[[Sequence[Any]], Entry], inputs: Sequence[Any]) -> None:
        self.make = make
        self.places = [i for i, v in enumerate(inputs) if is_input(v)]
        tensors = [inputs[i] for i in self.places]
        self.entry = make(inputs)
        self.only_tensors = len(tensors) == len(inputs)
        self.entries: dict[Any, Entry] = {}
        if not self.entry.joint.apart:
            self.entries[sharing(tensors)] = self.entry
        self.sized = any(isinstance(v, Tensor) and v._sym is not None for v in tensors)
        # Without a write it does not show who shares bytes with whom.
        self.alike = not self.entry.joint.written or len(tensors) < 2

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        tensors: Sequence[Any] = inputs
        if not self.only_tensors:
            tensors = [inputs[i] for i in self.places]
        if self.alike:
            return tuple(self.entry.flat(tensors))
        shared: Any = () if _native.apart(tensors) else sharing(tensors)
        entry = self.entries.get(shared)
        if entry is None and self.sized:  # traced for symbolic sizes without this sharing
            shared = (shared, *(tuple(v.shape) if isinstance(v, Tensor) else v for v in tensors))
            entry = self.entries.get(shared)
        if entry is None:
            entry = self.entries[shared] = self.make(inputs)
        return tuple(entry.flat(tensors))


def _as_traced(g: Any, like: Any, place: tuple[Any, Any]) -> Tensor:
    """A gradient with the geometry that the backward was traced for."""
    shape, stride = place
    if g is not None and g.stride() == stride:
        return g
    made = aten.empty_strided(shape, stride, dtype=like.dtype, device=like.device)
    return aten.zero_(made) if g is None else aten.copy_(made, g)


class AotFunction:
    """A function, compiled for every signature that it is called with.

    With `dynamic` the sizes of tensors (but 0 and 1) are symbols, and a signature is what was
    relied on of them.
    """

    def __init__(
        self, fn: Callable[..., Any], compile_: Compile = own_compiler, *,
        partition: Callable[[Joint], Cut] = default_partition, decompositions: Any = None,
        dynamic: bool = False,
    ) -> None:  # fmt: skip
        self.fn, self.compile, self.partition, self.decompositions = (
            fn,
            compile_,
            partition,
            decompositions,
        )
        self.dynamic = dynamic
        self.entries: dict[Any, Entry | None] = {}
        self.sized: dict[Any, list[tuple[Checker, Entry]] | None] = {}  # None: sizes are numbers
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [v for v in leaves if isinstance(v, Tensor)]
        rest = spec, state.get_grad(), _autocast(), sharing(tensors)
        entry = self._sized(leaves, tensors, rest) if self.dynamic else None
        if entry is None:
            key = *rest, tuple(_signature(v, True) for v in leaves)
            if key not in self.entries:
                joint = self._traced(leaves, spec, tensors)
                self.entries[key] = None if joint is None else self._entry(joint)
            entry = self.entries[key]
        return self.fn(*args, **kwargs) if entry is None else entry(tensors)

    def _sized(self, leaves: list[Any], tensors: list[Tensor], rest: Any) -> Entry | None:
        """The entry for these inputs that has symbols for sizes; None where there can be none."""
        key = *rest, tuple(_signature(v, False) for v in leaves)
        known = self.sized.setdefault(key, [])
        if known is None:
            return None
        given = named(tensors)
        for checker, entry in known:
            if checker.check(given, {}):
                return entry
        inputs = SymbolicInputs(tensors)
        joint = self._traced(leaves, rest[0], inputs.fakes)
        if joint is None or joint.apart:
            self.sized[key] = None
            return None
        made = self._entry(joint)
        known.append((inputs.checker(), made))
        return made

    def _traced(self, leaves: list[Any], spec: Any, inputs: Sequence[Tensor]) -> Joint | None:
        places = [i for i, v in enumerate(leaves) if isinstance(v, Tensor)]

        def flat(*given: Tensor) -> Any:
            filled = list(leaves)
            for i, t in zip(places, given, strict=True):
                filled[i] = t
            args, kwargs = pytree.tree_unflatten(filled, spec)
            return self.fn(*args, **kwargs)

        try:
            joint = traced(flat, inputs, self.decompositions)
        except Unsupported as why:
            fallback("aot", f"{getattr(self.fn, '__name__', self.fn)} runs eager: {why}")
            return None
        cleaned(joint)
        return joint

    def _entry(self, joint: Joint) -> Entry:
        return entry_for(joint, self.partition(joint), self.compile)


def cleaned(joint: Joint) -> None:
    """Tidy the joint graph; what it says of its ends follows."""
    inline(joint.graph)
    assertions(joint.graph)
    tidy(joint.graph, sorted({r.slot for r in joint.results if r.slot is not None}))
    ends = list(joint.graph.output_node().args[0])
    n = len(joint.outputs)
    joint.outputs, joint.gradients = ends[:n], ends[n:]


def _signature(v: Any, sizes: bool) -> Any:
    if isinstance(v, Tensor):
        geometry = (tuple(v.shape), v.stride()) if sizes else v.dim()
        return (geometry, v.dtype, v.device, v.requires_grad, v.is_leaf, type(v))
    try:
        hash(v)
    except TypeError:
        return id(v)
    return (type(v), v)


def _autocast() -> Any:
    found = state.thread.autocast.get("region")
    return () if found is None else tuple(found.enabled.items()) + tuple(found.dtypes.items())


def aot_function(
    fn: Callable[..., Any], compile_: Compile = own_compiler, **options: Any
) -> AotFunction:
    """`fn` compiled with its backward when it is first called, for each signature anew.

    Raises when called: DataDependentOutputException, DynamicOutputShapeException where the program
    depends on values.
    """
    return AotFunction(fn, compile_, **options)
