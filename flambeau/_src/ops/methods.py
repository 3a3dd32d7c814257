"""Methods whose Python stands in the way of no family: what they call is imported when they run.

`torch.norm`, `unique` and so on are Python on every path, in their methods' form too; a method has
to be there when Tensor is made, the operators behind it not yet.
"""

from __future__ import annotations

from typing import Any

from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, method, overridable
from flambeau._src.util.log import warn_once


@overridable
def nonzero(input: Tensor, *, out: Any = None, as_tuple: bool = False) -> Any:
    """Where input is not zero: a row of indices each, or (as_tuple) a tensor a dimension."""
    if out is not None and not isinstance(out, Tensor):
        kind = type(out).__name__
        raise TypeError(f"nonzero(): argument 'out' must be Tensor, not {kind}")
    if as_tuple:
        if out is not None:
            raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
        return aten.nonzero_numpy(input)
    return aten.nonzero(input) if out is None else aten.nonzero(input, out=out)


@overridable
def nonzero_method(self: Tensor, *, as_tuple: bool = False) -> Any:
    """See `nonzero`."""
    return aten.nonzero_numpy(self) if as_tuple else aten.nonzero(self)


@overridable
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Tensor | None = None,
    dtype: Any = None,
) -> Tensor:
    """The p-norm of input over dim (all elements when None): 'fro' and None
    are 2, 'nuc' is the matrix norm."""
    one = dim is None or isinstance(dim, int) or len(dim) <= 2
    if p == "fro" and one:
        return aten.linalg_vector_norm(input, 2, dim, keepdim, dtype=dtype, **_given(out))
    if isinstance(p, str):
        where = (
            tuple(range(input.dim()))
            if dim is None
            else (dim,)
            if isinstance(dim, int)
            else tuple(dim)
        )
        return aten.linalg_matrix_norm(input, p, where, keepdim, dtype=dtype, **_given(out))
    return aten.linalg_vector_norm(
        input, 2.0 if p is None else p, dim, keepdim, dtype=dtype, **_given(out)
    )


def _given(out: Any) -> dict[str, Any]:
    return {} if out is None else {"out": out}


def norm_method(
    self: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """torch.norm of this tensor."""
    return norm(self, p, dim, keepdim, dtype=dtype)


norm_method.__name__ = norm_method.__qualname__ = "norm"


@overridable
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Any:  # fmt: skip
    """The distinct elements (slices along dim) in ascending order; with them, when asked for, each
    element's place among them and the counts."""
    if dim is None:
        found = aten._unique2(input, sorted, return_inverse, return_counts)
    else:
        found = aten.unique_dim(input, dim, sorted, return_inverse, return_counts)
    return _asked(found, return_inverse, return_counts)


@overridable
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements (slices along dim) that differ from the one before."""
    found = aten.unique_consecutive(input, return_inverse, return_counts, dim)
    return _asked(found, return_inverse, return_counts)


def _asked(found: Any, inverse: bool, counts: bool) -> Any:
    if not inverse and not counts:
        return found[0]
    return (found[0], *((found[1],) if inverse else ()), *((found[2],) if counts else ()))


def _where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where the condition holds, other elsewhere."""
    return aten.where(condition, self, other)


@overridable
def lu(
    A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None
) -> tuple[Tensor, ...]:
    """LU factors of A (..., m, n) in one matrix, the pivots counted from 1 and, if asked for, 0 or
    the first zero pivot of each (deprecated: `linalg.lu_factor`)."""
    warn_once(
        "lu",
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and "
        "will be removed in a future PyTorch release.",
    )
    made = aten._lu_with_info(A, pivot, False)  # a zero pivot is no error here
    count = 3 if get_infos else 2
    if out is not None:
        for given, result in zip(out, tuple(made)[:count], strict=True):
            given.resize_as_(result).copy_(result)
        return tuple(out)
    return made if get_infos else tuple(made)[:count]


def lu_method(self: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """See `lu`."""
    return tuple(lu(self, pivot=pivot, get_infos=get_infos))


FUNCTIONS: dict[str, Any] = {
    "nonzero": nonzero, "norm": norm, "unique": unique, "unique_consecutive": unique_consecutive,
    "lu": lu,
}  # fmt: skip
METHODS: dict[str, Any] = {
    "nonzero": nonzero_method, "norm": norm_method, "unique": unique,
    "unique_consecutive": unique_consecutive, "lu": method("lu", lu_method),
    "where": method("where", _where),
    # The operator has its tensor second.
    "polygamma": method("polygamma", lambda x, n: aten.polygamma(n, x)),
}  # fmt: skip
