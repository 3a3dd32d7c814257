"""Functions of square matrices: the exponential and whole powers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.factor import check_floating, check_matrix
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec


def _expm(a: Any) -> Any:
    """exp of matrices: scaling, a (13, 13) Padé quotient, squaring (Higham 2005)."""
    import numpy as np  # lazy: NumPy is heavy

    coefficients = (
        64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
        129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0,
        40840800.0, 960960.0, 16380.0, 182.0, 1.0,
    )  # fmt: skip
    kind = a.dtype
    a = a.astype(np.complex128 if kind.kind == "c" else np.float64)
    flat = a.reshape(-1, *a.shape[-2:])
    eye = np.eye(a.shape[-1], dtype=a.dtype)
    out = np.empty_like(flat)
    for i, x in enumerate(flat):
        size = np.abs(x).sum(0).max() if x.size else 0.0
        if not np.isfinite(size):
            out[i] = np.nan
            continue
        squarings = max(0, math.ceil(math.log2(size / 5.371920351148152))) if size > 0 else 0
        x = x / 2.0**squarings
        x2 = x @ x
        x4, x6 = x2 @ x2, x2 @ x2 @ x2
        c = coefficients
        u = x @ (
            x6 @ (c[13] * x6 + c[11] * x4 + c[9] * x2)
            + c[7] * x6
            + c[5] * x4
            + c[3] * x2
            + c[1] * eye
        )
        v = (
            x6 @ (c[12] * x6 + c[10] * x4 + c[8] * x2)
            + c[6] * x6
            + c[4] * x4
            + c[2] * x2
            + c[0] * eye
        )
        r = np.linalg.solve(v - u, v + u)
        for _ in range(squarings):
            r = r @ r
        out[i] = r
    return out.reshape(a.shape).astype(kind)


class LinalgMatrixExp(Opaque):
    """exp of square matrices."""

    schema = "linalg_matrix_exp(Tensor self) -> Tensor"
    public = ""
    out = "out"

    def meta(a: Tensor) -> TensorSpec:
        check_matrix(a, "linalg.matrix_exp", square=True, types=False)
        if a.dtype not in (dt.bfloat16, dt.float16):
            check_floating(a, "linalg.matrix_exp")
        return TensorSpec(a.shape, a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor) -> None:
        from flambeau._src.ops.arrays import store, wide  # lazy: with NumPy

        if out.numel():
            store(out, _expm(wide(a)))

    def vjp(b: Any, g: Any, a: Any) -> Any:
        h, n = a.mH, a.shape[-1]
        upper = aten.cat([h, g], -1)
        lower = aten.cat([aten.zeros_like(h), h], -1)
        whole = aten.linalg_matrix_exp(aten.cat([upper, lower], -2))
        return aten.narrow(aten.narrow(whole, -2, 0, n), -1, n, n)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 3), (2, 2, 2), (1, 1)):
            yield s.sample(s.tensor(shape))


class MatrixExp(Composite):
    """exp of square matrices."""

    schema = "matrix_exp(Tensor self) -> Tensor"

    def decompose(a: Tensor) -> Tensor:
        return aten.linalg_matrix_exp(a)


class LinalgMatrixPower(Composite):
    """A multiplied by itself n times; of negative n, its inverse."""

    schema = "linalg_matrix_power(Tensor self, int n) -> Tensor"
    public = ""
    out = "out"
    out_rows = True

    def decompose(a: Tensor, n: int) -> Tensor:
        check_matrix(a, "linalg.matrix_power", square=True, types=False)
        if n == 0:
            eye = aten.eye(a.shape[-1], dtype=a.dtype, device=a.device)
            return aten.copy_(aten.clone(a, memory_format=layout.contiguous_format), eye)
        if n < 0:
            a, n = aten.linalg_inv(a), -n
        if n == 1:
            return a.clone()
        if n == 2:
            return aten.matmul(a, a)
        if n == 3:
            return aten.matmul(aten.matmul(a, a), a)
        power, result = None, None
        while n > 0:
            power = a if power is None else aten.matmul(power, power)
            if n & 1:
                result = power if result is None else aten.matmul(result, power)
            n >>= 1
        return result


class MatrixPower(Composite):
    """linalg.matrix_power."""

    schema = "matrix_power(Tensor self, int n) -> Tensor"

    def decompose(a: Tensor, n: int) -> Tensor:
        return aten.linalg_matrix_power(a, n)
