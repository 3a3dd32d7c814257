"""Gradients of operators that have no vjp of their own: through their decomposition."""

from __future__ import annotations

from typing import Any

from flambeau._src.autograd import engine
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import Op


def vjp_by_decomposition(
    op: Op, needs: tuple[bool, ...], grads: tuple[Any, ...], args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Run the decomposition once more, recorded, and pull the gradients back through it. Under
    create_graph the aliases keep the history, so the result can be differentiated again."""
    outer = state.get_grad()
    number, fresh = 0, []

    def enter(t: Any) -> Any:
        nonlocal number
        want = needs[number]
        number += 1
        if outer and t.requires_grad:
            a = aten.alias(t)
        else:
            a = t.detach()
            if want:
                a.requires_grad = True
        if want:
            fresh.append(a)
        return a

    with state.GradMode(True):
        entered = [
            enter(v)
            if isinstance(v, Tensor)
            else [enter(x) if isinstance(x, Tensor) else x for x in v]
            if isinstance(v, (list, tuple)) and any(isinstance(x, Tensor) for x in v)
            else v
            for v in args
        ]
        outs = op.decl.decompose(*entered)  # type: ignore[misc]
    outs = outs if isinstance(outs, (tuple, list)) else (outs,)
    pairs = [
        (o, g)
        for o, g in zip(outs, grads, strict=True)
        if g is not None and isinstance(o, Tensor) and o.requires_grad
    ]
    found = engine.run(
        [engine.root_edge(o) for o, _ in pairs], [g for _, g in pairs], retain_graph=True,
        create_graph=outer, inputs=[engine.root_edge(t) for t in fresh], accumulate=False,
    ) if pairs else [None] * len(fresh)  # fmt: skip
    it = iter(found)
    return tuple(next(it) if n else None for n in needs)


fill("vjp_by_decomposition", vjp_by_decomposition)
