"""`associative_scan`: all prefixes of an associative combination, in logarithmically many steps.

The combination runs on pairs of neighbours, then the same on their results, and once more for the
places between: a recursion on half the length each time (Blelloch, "Prefix sums and their
applications", 1990). It is made of operators alone, and so it is captured and differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.vmap_api import vmap
from flambeau._src.ops.call import aten
from flambeau._src.util import pytree

__all__ = ["associative_scan"]

Combine = Callable[[list[Any], list[Any]], list[Any]]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """For each place along `dim` the combination of all up to it (with `reverse`: from it on).

    Args:
        combine_fn: associative; takes two slices, and returns one of the same structure.
        xs: tensors, of one length along dim.
        combine_mode: "pointwise" (on CUDA alone) or "generic": any combination.

    Raises:
        ValueError: what is no function, tensor, mode; a dimension that xs do not have.
        IndexError: dim is out of range.
    """
    leaves, spec = pytree.tree_flatten(xs)
    dim = _dimension(leaves[0].ndim, dim)
    _check(combine_fn, leaves, dim, reverse, combine_mode)
    mapped = vmap(combine_fn)
    n = len(leaves)

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        given = len(left) + len(right)
        if given != 2 * n:
            raise AssertionError(
                f"Combine_fn received wrong number of arguments, expected {2 * n}, but got {given}"
            )
        out = mapped(pytree.tree_unflatten(left, spec), pytree.tree_unflatten(right, spec))
        return pytree.tree_leaves(out)

    if leaves[0].shape[dim] < 2:
        return xs
    along = [t.movedim(dim, 0) for t in leaves]
    if reverse:
        along = [t.flip([0]) for t in along]
    found = _scan(combine, along)
    if reverse:
        found = [t.flip([0]) for t in found]
    return pytree.tree_unflatten([t.movedim(0, dim) for t in found], spec)


def _dimension(rank: int, dim: Any) -> Any:
    rank = max(rank, 1)
    if not (dim >= -rank and dim < rank):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{dim})"
        )
    return dim if dim >= 0 else dim + rank


def _check(fn: Any, leaves: list[Any], dim: Any, reverse: Any, mode: Any) -> None:
    if not callable(fn):
        raise ValueError(f"Combine_fn must be a callable, but got {fn}")
    if not isinstance(dim, int):
        raise ValueError(f"Dim must be an int, but got {type(dim)}")
    if not isinstance(reverse, bool):
        raise RuntimeError(f"Reverse must be a bool, but got {type(reverse)}")
    if mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {mode}")
    for t in leaves:
        if not isinstance(t, Tensor):
            raise ValueError("xs leaves must be a Tensor")
        if t.is_sparse:
            raise ValueError("xs leaves must dense Tensors, consider using `to_dense()`")
    if mode == "pointwise" and any(t.device.type not in ("cuda", "xpu") for t in leaves):
        raise ValueError(
            "For combine_mode='pointwise', all input tensors need to be on CUDA or XPU"
        )
    if any(t.dim() <= dim or t.shape[dim] == 0 for t in leaves):
        raise ValueError(
            "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0"
        )


def _scan(combine: Combine, elems: list[Any]) -> list[Any]:
    """All prefixes along dimension 0."""
    length = elems[0].shape[0]
    if length < 2:
        return elems
    pairs = combine([t[:-1:2] for t in elems], [t[1::2] for t in elems])
    odd = _scan(combine, pairs)  # the results at places 1, 3, 5, …
    before = odd if length % 2 else [t[:-1] for t in odd]
    between = combine(before, [t[2::2] for t in elems])
    return [_woven(aten.cat([t[:1], e]), o) for t, e, o in zip(elems, between, odd, strict=True)]


def _woven(even: Tensor, odd: Tensor) -> Tensor:
    """even[0], odd[0], even[1], …; even may be one longer."""
    count = odd.shape[0]
    paired = aten.stack([even[:count], odd], 1)
    woven = paired.flatten(0, 1)
    return woven if even.shape[0] == count else aten.cat([woven, even[count:]])
