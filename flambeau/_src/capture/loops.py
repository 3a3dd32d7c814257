"""Loops as operators: `while_loop`, `scan`, `map`.

`scan` and `map` go along dimension 0 of their inputs. The gradients of a `map` are a `map`, those
of the others a `scan` from the last step to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flambeau._src.capture.higher_order import (
    Call,
    HigherOrderOperator,
    is_differentiable,
    like,
    vjp,
)
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.integers import Range
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import unknown
from flambeau._src.ops.call import aten
from flambeau._src.util import pytree

__all__ = ["map_", "map_op", "scan", "scan_op", "while_loop", "while_loop_op"]


def _slices(values: Sequence[Any]) -> tuple[Any, ...]:
    """What stands for one of each tensor's slices along dimension 0: their geometry."""
    return tuple(
        [aten.empty_strided(x.shape[1:], x.stride()[1:], dtype=x.dtype, device=x.device)
         for x in values]
    )  # fmt: skip


def _stacked(t: Any, n: Any) -> Any:
    """What n tensors like t make, stacked along a new dimension 0."""
    return aten.empty((n, *t.shape), dtype=t.dtype, device=t.device)


def _check_same(name: str, before: Sequence[Any], after: Sequence[Any]) -> None:
    if len(before) != len(after):
        raise RuntimeError(f"{name}: {len(before)} values are carried, and {len(after)} come back")
    for a, b in zip(before, after, strict=True):
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
            continue
        for what, x, y in (
            ("dtype", a.dtype, b.dtype),
            ("shape", tuple(a.shape), tuple(b.shape)),
            ("device", a.device, b.device),
        ):
            if x != y:
                raise RuntimeError(f"Expected {name} to return the same {what}, got {x} and {y}")


# ---- while_loop ----------------------------------------------------------------------------------


class WhileLoop(HigherOrderOperator):
    """`while_loop(cond_fn, body_fn, carried, additional)`: the last carried values."""

    bodies = ("while_loop_cond_graph", "while_loop_body_graph")

    def apart(self, *args: Any) -> Call:
        cond_fn, body_fn, carried, *rest = args
        return Call((cond_fn, body_fn), (*carried, *(rest[0] if rest else ())), (len(carried),))

    def together(self, call: Call) -> tuple[Any, ...]:
        n = call.counts[0]
        return (*call.bodies, tuple(call.operands[:n]), tuple(call.operands[n:]))

    def own(self, call: Call) -> int:
        return call.counts[0]

    def results(self, call: Call, outs: Sequence[Any]) -> tuple[Any, ...]:
        carried = call.operands[: call.counts[0]]
        _check_same("body_fn", carried, tuple(outs[1]))
        return tuple([like(t) for t in carried])

    def run(self, call: Call) -> tuple[Any, ...]:
        n = call.counts[0]
        cond_fn, body_fn = call.bodies
        carried, rest = call.operands[:n], call.operands[n:]
        while bool(cond_fn(*carried, *rest)):
            carried = tuple(body_fn(*carried, *rest))
        return carried

    def forward(self, call: Call) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """With the values carried into each step, stacked."""
        n = call.counts[0]
        found = tuple(while_loop_stack_output(*self.together(call)))
        return found[:n], found[n:]

    def gradients(
        self, call: Call, kept: tuple[Any, ...], grads: list[Any], places: list[int],
        wanted: list[bool],
    ) -> list[Any]:  # fmt: skip
        """Those of a scan over what was carried into each step."""
        steps = replace(call, bodies=(call.bodies[1],), counts=(call.counts[0], 0))
        return scan_op.gradients(steps, kept, grads, places, wanted)


class WhileLoopStackOutput(WhileLoop):
    """`while_loop`, and after its results what was carried into each step, stacked."""

    def results(self, call: Call, outs: Sequence[Any]) -> tuple[Any, ...]:
        found = super().results(call, outs)
        mode = found[0].fake_mode
        if mode.shape_env is None:
            mode.shape_env = ShapeEnv()
        steps = unknown(mode.shape_env, "int", Range(0, None))
        return (*found, *[_stacked(t, steps) for t in found])

    def run(self, call: Call) -> tuple[Any, ...]:
        n = call.counts[0]
        cond_fn, body_fn = call.bodies
        carried, rest = call.operands[:n], call.operands[n:]
        steps: list[tuple[Any, ...]] = []
        while bool(cond_fn(*carried, *rest)):
            steps.append(carried)
            carried = tuple(body_fn(*carried, *rest))
        if not steps:
            return (*carried, *[aten.new_empty(t, (0, *t.shape)) for t in carried])
        return (*carried, *[aten.stack(list(ts), 0) for ts in zip(*steps, strict=True)])


while_loop_op = WhileLoop("while_loop")
while_loop_stack_output = WhileLoopStackOutput("while_loop_stack_output")


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> Any:
    """`body_fn` on the carried values as long as `cond_fn` of them holds; the last values.

    RuntimeError where the values' structure changes.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            f"Expect carried_inputs to be a tuple or list but got {type(carried_inputs)}."
        )
    leaves, spec = pytree.tree_flatten(tuple(carried_inputs))

    def flat_cond(*values: Any) -> Any:
        return cond_fn(*pytree.tree_unflatten(list(values), spec))

    def flat_body(*values: Any) -> tuple[Any, ...]:
        out = body_fn(*pytree.tree_unflatten(list(values), spec))
        items, out_spec = pytree.tree_flatten(
            tuple(out) if isinstance(out, (tuple, list)) else (out,)
        )
        if out_spec != spec:
            raise RuntimeError("body_fn should return the same structure as carried_inputs")
        return tuple(items)

    if all(not isinstance(t, Tensor) for t in leaves) or any(
        isinstance(t, (bool, int, float)) for t in leaves
    ):  # numbers are known while the program runs
        values = tuple(leaves)
        while flat_cond(*values):
            values = flat_body(*values)
        return pytree.tree_unflatten(list(values), spec)
    return pytree.tree_unflatten(list(while_loop_op(flat_cond, flat_body, tuple(leaves), ())), spec)


# ---- scan ----------------------------------------------------------------------------------------


class Scan(HigherOrderOperator):
    """`scan(combine_fn, init, xs, additional)` along dimension 0: the last carried values, then
    what each step gave, stacked."""

    bodies = ("scan_combine_graph",)

    def apart(self, *args: Any) -> Call:
        fn, init, xs, *rest = args
        additional = rest[0] if rest else ()
        return Call((fn,), (*init, *xs, *additional), (len(init), len(xs)))

    def together(self, call: Call) -> tuple[Any, ...]:
        n, m = call.counts
        o = call.operands
        return (*call.bodies, list(o[:n]), list(o[n : n + m]), list(o[n + m :]))

    def own(self, call: Call) -> int:
        return sum(call.counts)

    def given(self, call: Call, body: int) -> tuple[Any, ...]:
        n, m = call.counts
        o = call.operands
        return (*o[:n], *_slices(o[n : n + m]), *o[n + m :])

    def results(self, call: Call, outs: Sequence[Any]) -> tuple[Any, ...]:
        n, _ = call.counts
        found = tuple(outs[0])
        _check_same("combine_fn", call.operands[:n], found[:n])
        length = call.operands[n].shape[0]
        return (*[like(t) for t in found[:n]], *[_stacked(t, length) for t in found[n:]])

    def run(self, call: Call) -> tuple[Any, ...]:
        n, m = call.counts
        (fn,) = call.bodies
        o = call.operands
        carried, xs, rest = o[:n], o[n : n + m], o[n + m :]
        steps: list[tuple[Any, ...]] = []
        for i in range(xs[0].shape[0]):
            out = tuple(fn(*carried, *[aten.select(x, 0, i) for x in xs], *rest))
            carried = out[:n]
            steps.append(out[n:])
        return (*carried, *[aten.stack(list(ys), 0) for ys in zip(*steps, strict=True)])

    def forward(self, call: Call) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """With the values carried into each step, stacked."""
        n, _ = call.counts
        (fn,) = call.bodies

        def noting(*values: Any) -> tuple[Any, ...]:
            out = tuple(fn(*values))
            return (*out[:n], *[aten.clone(c) for c in values[:n]], *out[n:])

        outs = tuple(self(*self.together(Call((noting,), call.operands, call.counts))))
        return (*outs[:n], *outs[2 * n :]), outs[n : 2 * n]

    def gradients(
        self, call: Call, kept: tuple[Any, ...], grads: list[Any], places: list[int],
        wanted: list[bool],
    ) -> list[Any]:  # fmt: skip
        """A scan from the last step to the first, which makes each step again for its gradients.

        Carried are the gradients of what was carried, and the sums of those of `additional`.
        """
        n, m = call.counts
        (fn,) = call.bodies
        o = call.operands
        init, xs, rest = o[:n], o[n : n + m], o[n + m :]
        carried = [i for i in range(n) if is_differentiable(init[i])]
        tensors = [t for t in o if isinstance(t, Tensor)]
        flags = dict(zip(map(id, tensors), wanted, strict=True))
        of_xs = [is_differentiable(x) and flags[id(x)] for x in xs]
        of_rest = [is_differentiable(t) and flags[id(t)] for t in rest]
        sums = [aten.zeros_like(t) for t, w in zip(rest, of_rest, strict=True) if w]
        asked = [is_differentiable(c) for c in init] + of_xs
        asked += [w for t, w in zip(rest, of_rest, strict=True) if isinstance(t, Tensor)]
        nc, ns, ng = len(carried), len(sums), len(places) - len(carried)

        def step(*values: Any) -> tuple[Any, ...]:
            taken = iter(values)

            def take(count: int) -> list[Any]:
                return [next(taken) for _ in range(count)]

            of_carried, so_far = take(nc), take(ns)
            before, x, of_ys, more = take(n), take(m), take(ng), list(taken)
            found = vjp(fn, (*before, *x, *more), (*of_carried, *of_ys), asked, places)
            fresh, of_x, of_more = found[:nc], found[nc : len(found) - ns], found[len(found) - ns :]
            return (*fresh, *[a + b for a, b in zip(so_far, of_more, strict=True)], *of_x)

        def back(values: Sequence[Any]) -> list[Any]:
            return [aten.flip(v, (0,)) for v in values]

        start = [*grads[:nc], *sums]
        along = back([*kept, *xs, *grads[nc:]])
        found = scan_op(step, start, along, list(rest))
        of_init = iter(found[:nc])
        out = [next(of_init) if i in carried else None for i in range(n)]
        of_x = iter(back(found[nc + ns :]))
        out += [next(of_x) if w else None for w in of_xs]
        of_more = iter(found[nc : nc + ns])
        out += [next(of_more) if w else None for w in of_rest]
        return [g for g, t in zip(out, o, strict=True) if isinstance(t, Tensor) and flags[id(t)]]


scan_op = Scan("scan")


def scan(
    combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> Any:
    """`combine_fn(carry, x)` for each slice of `xs` along `dim`, in order (or from the last one).

    It returns (the next carry, an output); the result is the last carry, and the outputs stacked
    along dimension 0.

    Raises:
        RuntimeError: no inputs, inputs of other lengths, a carry that changes its structure,
            shape or dtype.
    """
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(dim, int):
        raise RuntimeError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    carried, init_spec = pytree.tree_flatten(init)
    along, xs_spec = pytree.tree_flatten(xs)
    if not carried:
        raise RuntimeError("scan() operator requires init leaves.")
    for what, leaves in (("init", carried), ("xs", along)):
        for t in leaves:
            if not isinstance(t, Tensor):
                raise RuntimeError(f"All {what} leaves must be a Tensor but got {t}")
    if not along:
        return init, xs
    if any(not -x.dim() <= dim < x.dim() or not x.shape[dim] for x in along):
        raise RuntimeError(
            "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0"
        )
    along = [x.movedim(dim, 0) for x in along]
    if any(x.shape[0] != along[0].shape[0] for x in along):
        raise RuntimeError("All xs leaves must have the same number of slices.")
    if reverse:
        along = [x.flip([0]) for x in along]
    specs: list[Any] = []
    n = len(carried)

    def flat(*values: Any) -> tuple[Any, ...]:
        carry = pytree.tree_unflatten(list(values[:n]), init_spec)
        out = combine_fn(carry, pytree.tree_unflatten(list(values[n:]), xs_spec))
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise RuntimeError("combine_fn must return a tuple of a carry and an output.")
        following, spec = pytree.tree_flatten(out[0])
        if spec != init_spec:
            raise RuntimeError(
                "The tree structure of the inits and the carries are not identical!\n"
                f"init: {init_spec}\ncarry: {spec}"
            )
        ys, ys_spec = pytree.tree_flatten(out[1])
        specs.append(ys_spec)
        return (*following, *ys)

    outs = list(scan_op(flat, carried, along, []))
    ys = [y.flip([0]) for y in outs[n:]] if reverse else outs[n:]
    return (
        pytree.tree_unflatten(outs[:n], init_spec),
        pytree.tree_unflatten(ys, specs[0]),
    )


# ---- map -----------------------------------------------------------------------------------------


class Map(HigherOrderOperator):
    """`map_impl(fn, xs, args)`: the results for each slice along dimension 0, stacked."""

    bodies = ("body_graph",)

    def apart(self, *args: Any) -> Call:
        fn, xs, rest = args
        return Call((fn,), (*xs, *rest), (len(xs),))

    def together(self, call: Call) -> tuple[Any, ...]:
        n = call.counts[0]
        return (*call.bodies, list(call.operands[:n]), list(call.operands[n:]))

    def own(self, call: Call) -> int:
        return call.counts[0]

    def given(self, call: Call, body: int) -> tuple[Any, ...]:
        n = call.counts[0]
        return (*_slices(call.operands[:n]), *call.operands[n:])

    def results(self, call: Call, outs: Sequence[Any]) -> tuple[Any, ...]:
        length = call.operands[0].shape[0]
        return tuple([_stacked(t, length) for t in outs[0]])

    def run(self, call: Call) -> tuple[Any, ...]:
        n = call.counts[0]
        (fn,) = call.bodies
        xs, rest = call.operands[:n], call.operands[n:]
        steps = [
            tuple(fn(*[aten.select(x, 0, i) for x in xs], *rest)) for i in range(xs[0].shape[0])
        ]
        return tuple([aten.stack(list(ys), 0) for ys in zip(*steps, strict=True)])

    def gradients(
        self, call: Call, kept: tuple[Any, ...], grads: list[Any], places: list[int],
        wanted: list[bool],
    ) -> list[Any]:  # fmt: skip
        """A map over the gradients of the steps; those of what all steps see are added up."""
        n = call.counts[0]
        (fn,) = call.bodies
        xs, rest = call.operands[:n], call.operands[n:]

        def step(*values: Any) -> tuple[Any, ...]:
            x, of_ys, more = values[:n], values[n : n + len(grads)], values[n + len(grads) :]
            return tuple(vjp(fn, (*x, *more), of_ys, wanted, places))

        found = list(map_op(step, [*xs, *grads], list(rest)))
        tensors = [t for t in call.operands if isinstance(t, Tensor)]
        asked = [i for i, w in enumerate(wanted) if w]
        first = len([t for t in xs if isinstance(t, Tensor)])
        return [
            g if i < first else aten.sum(g, [0]).view(tensors[i].shape)
            for i, g in zip(asked, found, strict=True)
        ]


map_op = Map("map_impl")


def map_(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(x, *args)` for each slice x of `xs` along dimension 0, the results stacked.

    Raises:
        RuntimeError: no inputs, or inputs of other lengths.
    """
    along, xs_spec = pytree.tree_flatten(xs)
    rest, rest_spec = pytree.tree_flatten(args)
    if not along or not all(isinstance(x, Tensor) for x in along):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {along}.")
    if any(x.dim() == 0 or x.shape[0] != along[0].shape[0] for x in along):
        raise RuntimeError(
            "Leading dimensions of mapped xs must be consistent. Got shapes "
            f"{[x.shape for x in along]}."
        )
    if not along[0].shape[0]:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    places = [i for i, t in enumerate(rest) if isinstance(t, Tensor)]
    specs: list[Any] = []
    n = len(along)

    def flat(*values: Any) -> tuple[Any, ...]:
        more = list(rest)
        for i, t in zip(places, values[n:], strict=True):
            more[i] = t
        x = pytree.tree_unflatten(list(values[:n]), xs_spec)
        out = f(x, *pytree.tree_unflatten(more, rest_spec))
        items, spec = pytree.tree_flatten(out)
        specs.append(spec)
        return tuple(items)

    outs = map_op(flat, along, [rest[i] for i in places])
    return pytree.tree_unflatten(list(outs), specs[0])
