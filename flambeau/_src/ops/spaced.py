"""Evenly spaced numbers: logspace, range, and linspace between tensors."""

from __future__ import annotations

import math
import warnings
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.interchange import share_array
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.creation import OPTIONS, Counted, Factory, slot_copy, spec
from flambeau._src.ops.op import TensorSpec


def _number(name: str, what: str, v: Any) -> Any:
    """The end of a range as a number; tensors must have no dimensions."""
    if not isinstance(v, Tensor):
        return v
    if v.dim():
        raise RuntimeError(
            f"{name} only supports 0-dimensional start and end tensors, but got {what} with "
            f"{v.dim()} dimension(s)."
        )
    _native.unrepeatable()
    return v.item()


class Logspace(Counted):
    """base to the powers that linspace gives."""

    schema = (
        f"logspace(Scalar start, Scalar end, int steps, float base=10.0, *, {OPTIONS}) -> Tensor"
    )

    def meta(
        start: Any, end: Any, steps: int, base: float, dtype: Any, layout_: Any, device: Any,
        pin: Any,
    ) -> TensorSpec:  # fmt: skip
        if steps < 0:
            raise RuntimeError("number of steps must be non-negative")
        kind = dtype
        if dtype is None and any(isinstance(v, complex) for v in (start, end)):
            kind = dt.complex64
        return spec((steps,), kind, layout_, device)

    def kernel(out: Tensor, start: Any, end: Any, steps: int, base: float, *rest: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not steps:
            return
        wide = out.dtype is dt.float64 or dt.is_integral(out.dtype)
        kind: Any = np.complex128 if out.dtype.is_complex else np.float64 if wide else np.float32
        step = kind((end - start) / (steps - 1)) if steps > 1 else kind(0)
        i = np.arange(steps)
        low, high = kind(start) + step * i, kind(end) - step * (steps - 1 - i)
        powers = np.where(i < steps // 2, low, high) if steps > 1 else np.full(steps, start, kind)
        with np.errstate(all="ignore"):
            values = np.power(kind(base), powers.astype(kind))
        slot_copy(out, share_array(np.ascontiguousarray(values).reshape(tuple(out.shape))))


def _of_tensors(name: str, more: str) -> None:
    count = 4 if more else 3

    for overload, head in (
        ("Tensor_Tensor", "Tensor start, Tensor end"),
        ("Tensor_Scalar", "Tensor start, Scalar end"),
        ("Scalar_Tensor", "Scalar start, Tensor end"),
    ):

        def decompose(start: Any, end: Any, *rest: Any) -> Any:
            ends = _number(name, "start", start), _number(name, "end", end)
            dtype, layout_, device, pin = rest[count - 2 :]
            options = {"layout": layout_, "device": device, "pin_memory": pin}
            return getattr(aten, name)(*ends, *rest[: count - 2], dtype=dtype, **options)

        def compute_out(cls: Any, op: Any, outs: Any, args: Any) -> bool:
            start, end, *rest = args
            ends = _number(name, "start", start), _number(name, "end", end)
            dtype = rest[count - 2]
            getattr(aten, name)(*ends, *rest[: count - 2], dtype=dtype, out=outs[0])
            return True

        type(name, (Factory,), {
            "__doc__": f"{name} with ends that are tensors.", "__module__": __name__,
            "schema": f"{name}.{overload}({head}, int steps{more}, *, {OPTIONS}) -> Tensor",
            "decompose": decompose, "out": f"{overload}_out",
            "compute_out": classmethod(compute_out),
        })  # fmt: skip


_of_tensors("linspace", "")
_of_tensors("logspace", ", float base=10.0")


def _whole(start: Any, end: Any, step: Any, dtype: Any) -> Any:
    kind = dtype or state.process.default_dtype
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start:g} -> {end:g}")
    if (step > 0 and end < start) or (step < 0 and end > start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    return kind


class RangeStep(Counted):
    """start, start + step, … up to end, which counts (Python's range leaves it out)."""

    schema = f"range.step(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor"
    out = "out"

    def meta(
        start: Any, end: Any, step: Any, dtype: Any, layout_: Any, device: Any, pin: Any
    ) -> TensorSpec:
        kind = _whole(start, end, step, dtype)
        return spec((math.floor((end - start) / step) + 1,), kind, layout_, device)

    def kernel(out: Tensor, start: Any, end: Any, step: Any, *rest: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        warnings.warn(
            "torch.range is deprecated and will be removed in a future release because its "
            "behavior is inconsistent with Python's range builtin. Instead, use torch.arange, "
            "which produces values in [start, end).",
            UserWarning,
            stacklevel=6,
        )
        _native.unrepeatable()
        i = np.arange(out.numel())
        if dt.is_integral(out.dtype):
            values = int(start) + int(step) * i
        else:
            values = np.float64(start) + i * np.float64(step)
        slot_copy(out, share_array(np.ascontiguousarray(values).reshape(tuple(out.shape))))


class Range(Factory):
    """start, start + 1, … up to end, which counts."""

    schema = f"range(Scalar start, Scalar end, *, {OPTIONS}) -> Tensor"
    out = "out_"

    def decompose(start: Any, end: Any, dtype: Any, layout_: Any, device: Any, pin: Any) -> Any:
        return aten.range(start, end, 1, dtype=dtype, layout=layout_, device=device, pin_memory=pin)
