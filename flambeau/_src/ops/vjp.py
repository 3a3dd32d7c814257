"""Running an operator's vjp, and finding out what it must save.

What is saved is derived, not declared: the vjp is run once on stand-ins that have only geometry,
and whatever it touches beyond shapes is saved from then on. The result is kept on the Op
(`op.saves`) and printed by `describe_saves`.
"""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.layout import contiguous_strides
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import LAYERS, dispatch, functional
from flambeau._src.ops.op import Op, TensorSpec, packet


class Backward:
    """What a vjp is told besides its arguments: `needs` and the outputs.

    needs   for each tensor argument (lists flattened), whether its gradient is wanted; a number
            that stands for a tensor counts, as False
    out, outs   the saved outputs
    """

    __slots__ = ("needs", "outs", "op")

    def __init__(self, op: Op, needs: tuple[bool, ...], outs: tuple[Any, ...]) -> None:
        self.op = op
        self.needs = needs
        self.outs = outs

    @property
    def out(self) -> Any:
        return self.outs[0]


class LazyBackward:
    """`Backward` for a node: outputs are unpacked when they are asked for."""

    __slots__ = ("needs", "node", "op")

    def __init__(self, op: Op, needs: tuple[bool, ...], node: Any) -> None:
        self.op = op
        self.needs = needs
        self.node = node

    @property
    def outs(self) -> Any:
        return self.node.unpack_outs() or ()

    @property
    def out(self) -> Any:
        return self.node.unpack_outs()[0]


def flat_tensors(op: Op, args: tuple[Any, ...]) -> list[Any]:
    """The tensor arguments in order, lists flattened; numbers in tensor positions left out."""
    found: list[Any] = []
    for i in op.schema.tensor_positions:
        if i >= len(args):
            break
        v = args[i]
        if isinstance(v, Tensor):
            found.append(v)
        elif isinstance(v, (list, tuple)):
            found.extend(x for x in v if isinstance(x, Tensor))
    return found


def with_numbers(op: Op, needs: tuple[bool, ...], args: tuple[Any, ...]) -> tuple[bool, ...]:
    """needs, with False where a number stands in a tensor's place."""
    it = iter(needs)
    return tuple(isinstance(args[i], Tensor) and next(it) for i in op.schema.tensor_positions)


def call_vjp(
    op: Op,
    needs: tuple[bool, ...],
    grads: tuple[Any, ...],
    args: tuple[Any, ...],
    outs: tuple[Any, ...],
) -> tuple[Any, ...]:
    """Gradients for flat_tensors(args)."""
    decl = op.decl
    if op.composes_gradient:
        found: tuple[Any, ...] = slot("vjp_by_decomposition")(op, needs, grads, args)
        return found
    if decl.vjp is None:
        raise RuntimeError(f"derivative for {op.namespace}::{op.base.name} is not implemented")
    g = grads[0] if len(grads) == 1 else grads
    r = decl.vjp(
        Backward(op, with_numbers(op, needs, args) if decl.numbers else needs, outs), g, *args
    )
    return finish_vjp(op, needs, r if isinstance(r, tuple) else (r,), args)


def finish_vjp(
    op: Op, needs: tuple[bool, ...], r: tuple[Any, ...], args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """What a vjp returned, aligned with the tensor arguments."""
    decl = op.decl
    flat: list[Any] = []
    for x in r:
        if isinstance(x, list):
            flat.extend(x)
        else:
            flat.append(x)
    tensors = flat_tensors(op, args)
    if len(flat) > len(tensors):  # numbers stood where tensors might
        keep: list[Any] = []
        j = 0
        for i in op.schema.tensor_positions:
            v = args[i] if i < len(args) else None
            n = len(v) if isinstance(v, (list, tuple)) else 1
            if isinstance(v, (list, tuple)):
                keep.extend(
                    x for x, y in zip(flat[j : j + n], v, strict=False) if isinstance(y, Tensor)
                )
            elif isinstance(v, Tensor):
                keep.append(flat[j])
            j += n
        flat = keep
    if len(flat) != len(tensors):
        raise RuntimeError(
            f"{op}: vjp gave {len(flat)} gradients for {len(tensors)} tensor arguments"
        )
    return decl.fix_gradients(
        op, tuple(x if n else None for x, n in zip(flat, needs, strict=True)), args
    )


def run_backward(op: Op, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Autograd's protocol: gradients of the outputs in, gradients along the edges out."""
    base = op.base
    decl = base.decl
    vjp = decl.vjp
    if vjp is None and not base.composes_gradient:
        if base.decl.no_gradient:
            raise NotImplementedError(f"the derivative for '{base.name}' is not implemented.")
        raise RuntimeError(f"derivative for {base.namespace}::{base.name} is not implemented")
    needs = node.needs_input
    if len(grads) == 1:
        g = grads[0]
        if g is None:
            return (None,) * len(needs)
        args = node.unpack()
        if (
            vjp is not None
        ):  # the common case: one output, tensors only where the schema has tensors
            wanted = with_numbers(base, needs, args) if decl.numbers and len(needs) == 1 else needs
            r = vjp(LazyBackward(base, wanted, node), g, *args)
            if type(r) is not tuple:
                r = (r,)
            if len(r) == len(needs) and list not in map(type, r):
                if False in needs:
                    r = tuple(x if n else None for x, n in zip(r, needs, strict=True))
                return decl.fix_gradients(base, r, args)
            return finish_vjp(base, needs, r, args)
        return call_vjp(base, needs, grads, args, node.unpack_outs() or ())
    if all(g is None for g in grads):
        return (None,) * len(needs)
    args, outs = node.unpack(), node.unpack_outs() or ()
    if decl.refuse_backward is not None:
        decl.refuse_backward(grads, *args)
    full = grads
    if not decl.__dict__.get("undefined_grads"):
        full = tuple(materialize(g, o) for g, o in zip(grads, outs, strict=True))
    return call_vjp(base, needs, full, args, outs)


def materialize(g: Any, out: Any) -> Any:
    """Zeros for an undefined output gradient (None stays for outputs that carry none)."""
    if g is not None or not isinstance(out, Tensor):
        return g
    if not (out.dtype.is_floating_point or out.dtype.is_complex):
        return None
    zeros = packet("zeros").ops[0]
    return dispatch(zeros, (tuple(out.shape), out.dtype, None, out.device, None))


# ---- what is saved ----


class Spy:
    """Notes which stand-ins' values an operator touched."""

    def __init__(self) -> None:
        self.origin: dict[int, frozenset[int]] = {}
        self.alive: list[Any] = []
        self.touched: set[int] = set()

    def watch(self, t: Any, *numbers: int) -> Any:
        """t holds values of these stand-ins."""
        self.origin[id(t)] = frozenset(numbers)
        self.alive.append(t)
        return t

    def origins(self, tensors: list[Any]) -> set[int]:
        """The stand-ins whose values the tensors hold."""
        return {n for t in tensors for n in self.origin.get(id(t), ())}


_spies: list[Spy] = []


def geometry_layer(op: Op, args: tuple[Any, ...]) -> Any:
    """Operators on stand-ins: geometry comes out; values may be touched only under a spy."""
    tensors = flat_tensors(op, args)
    stand_ins = [t for t in tensors if t._bits & state.GEOMETRY]
    spy = _spies[-1] if _spies else None
    before = state.set_suspended(state.get_suspended() | state.GEOMETRY)
    try:
        if not op.decl.geometry_only:
            if spy is None:
                raise RuntimeError(
                    f"{op} reads the values of a tensor of which a backward kept only the shape: "
                    "the saved set of its vjp is incomplete (see Declaration.saves_by)"
                )
            spy.touched.update(spy.origins(stand_ins))
        if op.decl.kind == "view":
            out = op.decl.run(*args)  # type: ignore[attr-defined]
            for o in out if isinstance(out, (tuple, list)) else (out,):
                o._bits |= state.GEOMETRY
                if spy:
                    spy.watch(o, *spy.origins(stand_ins))
            return out
        if spy is None and op.decl.geometry_only:
            return functional(op, args) if op.variant == "functional" else args[0]
        if op.variant == "inplace":
            return args[0]
        results = fake_results(op, args)
        if spy and op.decl.geometry_only and op.decl.kind != "like":
            # Values that are only moved (cat, flip) are those of the arguments, once they are read.
            for o in results if isinstance(results, tuple) else (results,):
                spy.watch(o, *spy.origins(stand_ins))
        return results
    finally:
        state.set_suspended(before)


def fake_results(op: Op, args: tuple[Any, ...]) -> Any:
    """Stand-ins for the results, from the declaration's shapes alone."""
    decl = op.decl
    if decl.meta is None and decl.kind in ("opaque", "composite") and decl.only_decomposes():
        # its operators see the stand-ins again: there are no bytes for their kernels
        state.set_suspended(state.get_suspended() & ~state.GEOMETRY)
        return decl.decompose(*args)  # type: ignore[misc]
    specs = decl.infer(op, args)
    if isinstance(specs, TensorSpec):
        return stand_in(specs)
    return tuple(stand_in(s) if isinstance(s, TensorSpec) else s for s in specs)


def stand_in(spec: TensorSpec) -> Tensor:
    """A tensor of that geometry without bytes."""
    stride = contiguous_strides(spec.shape) if spec.stride is None else spec.stride
    bytes_ = _native.UntypedStorage.fake(0, spec.device)
    t = _native.wrap(Tensor, bytes_, spec.dtype, spec.shape, stride, 0)
    t._bits = state.GEOMETRY
    return t


LAYERS[state.GEOMETRY] = geometry_layer


def saved_sets(
    op: Op, needs: tuple[bool, ...], args: tuple[Any, ...], outs: tuple[Any, ...]
) -> tuple[frozenset[int], frozenset[int]]:
    """Which tensor arguments and which outputs the vjp reads the values of."""
    decl = op.decl
    if decl.vjp is None:
        read = range(len(needs)) if op.composes_gradient else ()
        return frozenset(read), frozenset()
    key = _saves_key(op, needs, args)
    found = op.saves.get(key)
    if found is None:
        found = op.saves[key] = _derive(op, needs, args, outs)
    return found


def reads_number(
    op: Op, needs: tuple[bool, ...], args: tuple[Any, ...], outs: tuple[Any, ...]
) -> bool:
    """Whether the vjp reads a number that stands where a tensor may: it counts among what is saved
    (a second backward through ``x * 2`` is refused, through ``x + 2`` it is not)."""
    schema = op.schema
    places = [i for i in schema.tensor_positions if isinstance(args[i], (int, float, complex))]
    if not places or op.decl.vjp is None:
        return False
    key = _saves_key(op, needs, args)
    known = op.__dict__.setdefault("reads_number", {})
    found = known.get(key)
    if found is None:
        outs = outs or (flat_tensors(op, args)[0],)  # in place: the result is as the first argument
        wants, number = iter(needs), 0
        filled, full, places_of = list(args), [], []
        for i in schema.tensor_positions:
            if i in places:
                filled[i] = stand_in(TensorSpec((), outs[0].dtype))
                places_of.append(number)
                full.append(False)
                number += 1
                continue
            n = len(flat_tensors(op, (*[None] * i, args[i])))
            full += [next(wants) for _ in range(n)]
            number += n
        read = _derive(op, tuple(full), tuple(filled), outs)[0]
        found = known[key] = any(n in read for n in places_of)
    return bool(found)


def known_saves(
    op: Op, needs: tuple[bool, ...], args: tuple[Any, ...]
) -> tuple[frozenset[int], frozenset[int]] | None:
    """`saved_sets` of a call like one that was seen before, None for the first of its kind."""
    return op.saves.get(_saves_key(op, needs, args))


def _few(t: Tensor) -> tuple[int, ...]:
    """The element's size and the extents as far as they are 0 or 1, where a formula may have
    another way."""
    return t.dtype.itemsize, *(2 if n > 1 else int(n) for n in t.shape)


def _saves_key(op: Op, needs: tuple[bool, ...], args: tuple[Any, ...]) -> Any:
    decl = op.decl
    extra = tuple(
        v if isinstance(v, (str, bool, type(None))) or a.name in decl.saves_by else None
        for a, v in zip(op.schema.args, args, strict=False)
        if not a.is_tensor
    )
    shape = tuple(
        (a.dim() == 0, a.dtype.is_complex, op.schema.args[i].name in decl.saves_by and _few(a))
        if isinstance(a, Tensor)
        else len(a)
        if isinstance(a, (list, tuple))
        else "none"
        if a is None
        else "number"
        for i, a in ((i, args[i]) for i in op.schema.tensor_positions)
    )
    return (needs, extra if all(not isinstance(x, (list, Tensor)) for x in extra) else None, shape)


def _derive(
    op: Op, needs: tuple[bool, ...], args: tuple[Any, ...], outs: tuple[Any, ...]
) -> tuple[frozenset[int], frozenset[int]]:
    spy = Spy()
    number = 0
    replaced: list[Any] = []
    for v in args:
        if isinstance(v, Tensor):
            replaced.append(spy.watch(_native.geometry(v), number))
            number += 1
        elif isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v):
            items = []
            for x in v:
                if isinstance(x, Tensor):
                    x = spy.watch(_native.geometry(x), number)
                    number += 1
                items.append(x)
            replaced.append(items)
        else:
            replaced.append(v)
    results, grads = [], []
    for i, o in enumerate(outs):
        if isinstance(o, Tensor):
            results.append(spy.watch(_native.geometry(o), number + i))
            floating = o.dtype.is_floating_point or o.dtype.is_complex
            grads.append(_native.geometry(o) if floating else None)
        else:
            results.append(o)
            grads.append(None)
    _spies.append(spy)
    suspended = state.set_suspended((1 << 13) - 1 & ~(state.GEOMETRY | state.COMPOSITE))
    grad = state.set_grad(False)
    try:
        call_vjp(op, needs, tuple(grads), tuple(replaced), tuple(results))
    finally:
        state.set_grad(grad)
        state.set_suspended(suspended)
        _spies.pop()
    return (
        frozenset(i for i in spy.touched if i < number),
        frozenset(i - number for i in spy.touched if i >= number),
    )


def describe_saves(op: Op) -> str:
    """What has been derived so far, as text."""
    lines = [f"{op}:"]
    for (needs, _, _), (ins, outs) in op.saves.items():
        want = ", ".join(str(i) for i, n in enumerate(needs) if n)
        lines.append(
            f"  gradients of {want or 'nothing'}: inputs {sorted(ins)}, outputs {sorted(outs)}"
        )
    return "\n".join(lines)


fill("run_backward", run_backward)
