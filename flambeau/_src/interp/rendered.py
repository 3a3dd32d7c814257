"""How tensors print inside of transforms."""

from __future__ import annotations

from textwrap import indent

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.printing import describe
from flambeau._src.core.slots import fill
from flambeau._src.core.state import thread
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import Batched, Dual, Level, info
from flambeau._src.ops.call import ALL


def transformed_repr(t: Tensor) -> str:
    """How tensors of transforms print (slot 'transformed_repr'): a wrapping a level, the innermost
    outside."""
    return _rendered(t, thread.functorch[::-1], False)


def _rendered(t: Tensor, levels: list[Level], tracked: bool) -> str:
    i = info(t)
    for k, level in enumerate(levels):
        if isinstance(i, Batched) and i.level is level:
            return _wrapping(i, _rendered(i.value, levels[k + 1 :], tracked))
        if level.serial and t._born >= level.serial:
            value = i.primal if isinstance(i, Dual) and i.level is level else t
            inner = indent(_rendered(value, levels[k + 1 :], True), "    ")
            return f"GradTrackingTensor(lvl={level.number}, value=\n{inner}\n)"
    if isinstance(i, Batched):
        return _wrapping(i, _rendered(i.value, levels, tracked))
    if isinstance(i, Dual):
        text = _rendered(i.primal, levels, tracked)
        return text[:-1] + ", tangent=" + _rendered(i.tangent, levels, tracked) + ")"
    with state.Suspended(ALL):
        return describe(_native.alias(type(t), t) if tracked else t)


def _wrapping(i: Batched, inner: str) -> str:
    return f"BatchedTensor(lvl={i.level.number}, bdim={i.dim}, value=\n{indent(inner, '    ')}\n)"


fill("transformed_repr", transformed_repr)
