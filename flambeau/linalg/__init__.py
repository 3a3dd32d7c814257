"""torch.linalg: the operators whose names begin with `linalg_`, without that beginning."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._src.ops.call import aten as _aten
from flambeau._src.util.errors import LinAlgError

__all__ = [
    "cross", "cholesky", "cholesky_ex", "cond", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve",
    "lstsq",
    "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm",
    "matrix_power",
    "matrix_rank", "multi_dot", "norm",
    "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv",
    "tensorsolve", "vander", "vecdot", "vector_norm", "LinAlgError",
]  # fmt: skip

Tensor = torch.Tensor

_OPERATORS = [name for name in __all__ if name not in ("LinAlgError", "diagonal")]
globals().update((_name, getattr(_aten, f"linalg_{_name}")) for _name in _OPERATORS)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """The diagonals of matrices, as a view."""
    return torch.diagonal(A, offset, dim1, dim2)
