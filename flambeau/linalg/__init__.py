"""torch.linalg: norms so far."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._src.ops.call import aten

__all__ = ["matmul", "norm", "vecdot", "vector_norm", "matrix_norm"]

Tensor = torch.Tensor
matmul = aten.linalg_matmul


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """The ord-norm of x over dim (all elements when None)."""
    return torch.linalg_vector_norm(x, ord, dim, keepdim, dtype=dtype, out=out)


def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """'fro', or the induced norms of ord 1, -1, inf and -inf, over two dimensions."""
    if ord == "fro":
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    rows, cols = dim
    if ord in (1, -1, float("inf"), float("-inf")):
        first, second = (rows, cols) if ord in (1, -1) else (cols, rows)
        sums = vector_norm(A, 1, first, True, dtype=dtype)
        pick = torch.amax if ord > 0 else torch.amin
        result = pick(sums, second, True)
        return result if keepdim else result.squeeze(tuple(dim))
    raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, out: Any = None, dtype: Any = None) -> Tensor:
    """A vector norm, or a matrix norm where ord or dim ask for one."""
    two = isinstance(dim, (tuple, list)) and len(dim) == 2
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str) or two or (dim is None and A.dim() == 2):
        return matrix_norm(A, ord, dim if dim is not None else (-2, -1), keepdim, dtype=dtype)
    return vector_norm(A, ord, dim, keepdim, dtype=dtype, out=out)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Inner products along dim."""
    return (x * y).sum(dim)
