"""What kernels written with NumPy share: tensors as arrays to compute in, results rounded once."""

from __future__ import annotations

from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of, share_array
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.kinds import SIXTEEN


def wide_dtype(t: Tensor) -> dt.dtype:
    """The dtype in which t's elements are computed: float32 for 16-bit floats."""
    return dt.float32 if t.dtype in SIXTEEN else t.dtype


def wide(t: Tensor) -> Any:
    """t as an array to compute in."""
    return array_of(slot("cast_to")(t, dt.float32) if t.dtype in SIXTEEN else t)


def store(out: Tensor, values: Any) -> None:
    """Write an array into out, rounded once."""
    import numpy as np  # lazy: NumPy is heavy

    if not out.numel():
        return
    if out.dtype in SIXTEEN:
        slot("copy_into")(
            out,
            share_array(np.ascontiguousarray(values, dtype=np.float32).reshape(tuple(out.shape))),
        )
    else:
        array_of(out)[...] = values


def not_implemented(kernel: str, t: Tensor) -> NotImplementedError:
    """The error for a dtype that a kernel does not serve."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{dt.scalar_name(t.dtype)}'")
