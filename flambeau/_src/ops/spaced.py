"""Evenly spaced numbers: logspace, range, and linspace between tensors."""

from __future__ import annotations

import math
import warnings
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.interchange import array_of, share_array
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.creation import OPTIONS, Counted, Factory, slot_copy, spec
from flambeau._src.ops.op import TensorSpec
from flambeau._src.ops.promote import C_NAMES, check_number


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


def _dtype(name: str, start: Any, end: Any, steps: int, dtype: Any) -> Any:
    """The dtype of so many numbers between two; complex ends need one that holds them."""
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    if not any(isinstance(v, complex) for v in (start, end)):
        return dtype
    inferred = dt.complex128 if state.process.default_dtype is dt.float64 else dt.complex64
    if dtype is not None and not dtype.is_complex:
        raise RuntimeError(
            f"torch.{name}(): inferred dtype {C_NAMES[inferred.name]} can't be safely cast to "
            f"passed dtype {dt.scalar_name(dtype)}"
        )
    return dtype or inferred


def _ends(name: str, out: Tensor, start: Any, end: Any) -> tuple[Any, Any]:
    """The ends as numbers that the dtype of out holds: whole ones for integers."""
    n = out.numel()
    if n > 1 and out.dtype is dt.bool_:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
    ends = []
    for v in (start, end)[: 2 if n else 0]:
        check_number(v, out.dtype)
        if out.dtype is dt.bool_:
            v = bool(v)
        elif dt.is_integral(out.dtype):
            v = int(v) if out.dtype.is_signed else int(v) % 2 ** (8 * out.dtype.itemsize)
        ends.append(v)
    return (ends[0], ends[1]) if ends else (0, 0)


def _line(n: int, kind: dt.dtype, start: Any, end: Any) -> Tensor:
    """n numbers from start to end, symmetric from both ends as torch has it."""
    made: Tensor = _native.empty((n,), kind, _native.cpu)
    _native.spread(made, start, end)
    return made


def _complex_line(n: int, start: Any, end: Any) -> Any:
    """Real and imaginary parts are lines of their own: complex128 in NumPy."""
    import numpy as np  # lazy: NumPy is heavy

    made = np.empty(n, np.complex128)
    ends = complex(start), complex(end)
    made.real = array_of(_line(n, dt.float64, *(v.real for v in ends)))
    made.imag = array_of(_line(n, dt.float64, *(v.imag for v in ends)))
    return made


class Linspace(Counted):
    """steps numbers from start to end, both included. Integers: between the ends without their
    fractions, rounded towards 0."""

    schema = f"linspace(Scalar start, Scalar end, int steps, *, {OPTIONS}) -> Tensor"

    def meta(
        start: Any, end: Any, steps: int, dtype: Any, layout_: Any, device: Any, pin: Any
    ) -> TensorSpec:
        return spec((steps,), _dtype("linspace", start, end, steps, dtype), layout_, device)

    def kernel(out: Tensor, start: Any, end: Any, steps: int, *rest: Any) -> None:
        start, end = _ends("linspace", out, start, end)
        if out.dtype.is_complex:
            slot_copy(out, share_array(_complex_line(steps, start, end).reshape(tuple(out.shape))))
        elif out.dtype not in (dt.float32, dt.float64) or not _native.spread(out, start, end):
            kind = dt.float64 if out.dtype is dt.float64 else dt.float32
            kind = dt.int64 if dt.is_integral(out.dtype) else kind
            line = array_of(_line(steps, kind, start, end))
            slot_copy(out, share_array(line.reshape(tuple(out.shape))))


class Logspace(Counted):
    """base to the powers that linspace gives."""

    schema = (
        f"logspace(Scalar start, Scalar end, int steps, float base=10.0, *, {OPTIONS}) -> Tensor"
    )

    def meta(
        start: Any, end: Any, steps: int, base: float, dtype: Any, layout_: Any, device: Any,
        pin: Any,
    ) -> TensorSpec:  # fmt: skip
        return spec((steps,), _dtype("logspace", start, end, steps, dtype), layout_, device)

    def kernel(out: Tensor, start: Any, end: Any, steps: int, base: float, *rest: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        low, high = _ends("logspace", out, start, end)
        low = start if steps == 1 else low  # alone it keeps its fraction, of integers too
        kind = np.complex128 if out.dtype.is_complex else np.float64
        step = (kind(high) - kind(low)) / max(steps - 1, 1)
        i = np.arange(steps)
        with np.errstate(all="ignore"):
            up, down = low + step * i, high - step * (steps - 1 - i)
            values = np.power(kind(base), np.where(i < max(steps // 2, 1), up, down))
        slot_copy(out, share_array(values.reshape(tuple(out.shape))))


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
