"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.pointwise import conj


def same_dtype(name: str, *ts: Tensor) -> None:
    for t in ts[1:]:
        if t.dtype is not ts[0].dtype:
            raise RuntimeError(
                f"expected m1 and m2 to have the same dtype, but got: {_c_name(ts[0].dtype)} != {_c_name(t.dtype)}"
            )


def _c_name(d: dt.dtype) -> str:
    return {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
            "int64": "long", "int32": "int", "bool": "bool"}.get(d.name, d.name)  # fmt: skip


def mm_shape(a: Tensor, b: Tensor) -> tuple[int, int]:
    if a.dim() != 2:
        raise RuntimeError("self must be a matrix")
    if b.dim() != 2:
        raise RuntimeError("mat2 must be a matrix")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )
    same_dtype("mm", a, b)
    return a.shape[0], b.shape[1]


class Mm(Opaque):
    """(n, m) times (m, p)."""

    schema = "mm(Tensor self, Tensor mat2) -> Tensor"
    out = "out"
    autocast = "lower"
    reference = "numpy.matmul"

    def meta(a: Tensor, b: Tensor) -> TensorSpec:
        return TensorSpec(mm_shape(a, b), a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor, b: Tensor) -> None:
        slot("gemm")(out, a, b, 1, 0)

    @classmethod
    def fast(cls, op: Any) -> Any:
        if op.variant != "functional":
            return None
        f = _native.Fast("mm", 2)
        op.__dict__.setdefault("fasts", []).append((f, False))
        return f

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return (
            aten.mm(g, conj(y).t()) if b.needs[0] else None,
            aten.mm(conj(x).t(), g) if b.needs[1] else None,
        )

    def samples(s: Any) -> Iterator[Any]:
        for n, m, p in ((3, 4, 5), (1, 1, 1), (0, 3, 2), (3, 0, 2), (7, 2, 3)):
            yield s.sample(s.tensor((n, m)), s.tensor((m, p)))
