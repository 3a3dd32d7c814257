"""Making, filling, copying and converting tensors."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, run
from flambeau._src.ops.kinds import Pointwise, scalar_tensor
from flambeau._src.ops.op import Declaration, TensorSpec, packet


class _Identity(Pointwise):
    """The kernel behind every copy and conversion; not public."""

    schema = "_identity(Tensor self) -> Tensor"
    public = ""

    def expr(k: Any, a: Any) -> Any:
        return a


def copy_into(target: Tensor, source: Tensor) -> None:
    """target[...] = source: broadcast, converted, any strides. No layer sees it."""
    if not target.numel():
        return
    from flambeau._src.ops.kinds import Split, kernel_for  # one module: kinds calls back through a slot

    op = _Identity.op  # type: ignore[attr-defined]
    parts = Split(op, (source,))
    address = kernel_for(op, _Identity.expr, "map", parts, [source], (target,), _common(source.dtype, target.dtype))
    if address is None:
        slot("evaluate")(parts.adapter(_Identity.expr), "map", (target,), [source], [], None, target.dtype)
        return
    _native.run_map(address, (target,), (source,), None)


def _common(source: dt.dtype, target: dt.dtype) -> dt.dtype:
    return target if target.is_complex else source


def cast_to(t: Tensor, dtype: dt.dtype) -> Tensor:
    """A copy of t in another dtype, strides kept where t is dense."""
    shape, stride = _native.geometry_of([t])
    out = _native.empty(shape, dtype, t.device, stride)
    copy_into(out, t)
    return out


fill("copy_into", copy_into)
fill("cast_to", cast_to)
fill("broadcast_geometry", _native.geometry_of)
fill("clone_plain", lambda t: cast_to(t, t.dtype))


class Copy_(Declaration):
    """self[...] = src, broadcast and converted."""

    schema = "copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
    public = "method"
    kind = "copy"

    @staticmethod
    def run(self: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
        slot("expand_check")(src, self.shape)
        copy_into(self, src)
        return self
