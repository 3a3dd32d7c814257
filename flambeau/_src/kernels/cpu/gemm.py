"""Matrix products through BLAS; what BLAS does not take goes through NumPy."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.runtime import blas

_BLAS = (dt.float32, dt.float64)


def dense(t: Tensor) -> Tensor:
    out = _native.empty(t.shape, t.dtype, t.device)
    slot("copy_into")(out, t)
    return out


def gemm(out: Tensor, a: Tensor, b: Tensor, alpha: Any, beta: Any) -> None:
    """out = alpha a b + beta out, for matrices or equal batches of them."""
    if not out.numel():
        return
    if not a.shape[-1]:
        if beta == 0:
            slot("fill_with")(out, 0)
        elif beta != 1:
            raise RuntimeError("gemm: an empty product cannot scale its output")
        return
    if out.dtype in _BLAS and blas.load():
        if _native.gemm(out, a, b, float(alpha), float(beta)):
            return
        a2, b2 = dense(a), dense(b)
        if _native.gemm(out, a2, b2, float(alpha), float(beta)):
            return
        full = dense(out)
        _native.gemm(full, a2, b2, float(alpha), float(beta))
        slot("copy_into")(out, full)
        return
    if out.dtype in (dt.bfloat16, dt.float16):
        wide = (
            slot("cast_to")(out, dt.float32)
            if beta
            else _native.empty(out.shape, dt.float32, out.device)
        )
        gemm(wide, slot("cast_to")(a, dt.float32), slot("cast_to")(b, dt.float32), alpha, beta)
        slot("copy_into")(out, wide)
        return
    import numpy as np  # lazy: NumPy is heavy

    with np.errstate(all="ignore"):
        x = array_of(a) @ array_of(b)
        o = array_of(out)
        x = x * alpha if alpha != 1 else x
        o[...] = x + o * beta if beta else x


def gemm_add(out: Tensor, c: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> None:
    """out = beta c + alpha a b, c broadcast to out; factors of integers are cut to integers."""
    if not out.numel():
        return
    if dt.is_integral(out.dtype):
        beta, alpha = int(beta), int(alpha)
    if out.dtype in (dt.bfloat16, dt.float16):
        wide = _native.empty(out.shape, dt.float32, out.device)
        cast = slot("cast_to")
        gemm_add(wide, cast(c, dt.float32), cast(a, dt.float32), cast(b, dt.float32), beta, alpha)
        slot("copy_into")(out, wide)
        return
    if beta == 0:
        gemm(out, a, b, alpha, 0)
        return
    slot("copy_into")(out, c)
    if not a.shape[-1]:
        slot("scale")(out, beta)
        return
    if out.dtype in _BLAS:
        gemm(out, a, b, alpha, beta)
        return
    gemm(out, a, b, alpha, beta)


def scale(out: Tensor, by: Any) -> None:
    if by != 1:
        import numpy as np  # lazy: NumPy is heavy

        o = array_of(out)
        np.multiply(o, by, out=o, casting="unsafe")


fill("gemm", gemm)
fill("gemm_add", gemm_add)
fill("scale", scale)
