"""Masked operations: what is masked out gives way to the operation's identity, the rest is the
operation itself.

A `mask` is True where an element counts; it is broadcast to the input's shape (IndexError for one
of more dimensions, RuntimeError where sizes do not fit). A reduction of nothing is the identity: 0
for a sum, -inf for `amax`, the least number of an integer type; NaN where there is none (`mean`,
`median`, `var`, `std`, `softmax`). `dim` is one dimension, several, or None for all; without
dimensions, `()`, it is all too. Strided tensors only.
"""

from __future__ import annotations

from collections.abc import Callable

import flambeau as torch
from flambeau import Tensor

Dims = int | tuple[int, ...] | None

_SMALL_INTEGERS = (torch.uint8, torch.bool, torch.int8, torch.int16, torch.int32)


def _lowest(name: str, dtype: torch.dtype) -> float:
    if dtype is torch.bool:
        raise NotImplementedError(f"identity of {name} on {dtype} input")
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _highest(name: str, dtype: torch.dtype) -> float:
    if dtype is torch.bool:
        raise NotImplementedError(f"identity of {name} on {dtype} input")
    return torch.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def _log_of_zero(name: str, dtype: torch.dtype) -> complex:
    return -torch.inf if dtype.is_complex else _lowest(name, dtype)


def _zero(name: str, dtype: torch.dtype) -> int:
    return 0


def _one(name: str, dtype: torch.dtype) -> int:
    return 1


def _nan(name: str, dtype: torch.dtype) -> float:
    return torch.nan


def _infinity(name: str, dtype: torch.dtype) -> float:
    assert dtype.is_floating_point, f"input must be floating point, got {dtype}"
    return torch.inf


def _dims_of(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The dimensions meant, counted from the front and in their order."""
    if dim is None or (isinstance(dim, (tuple, list)) and len(dim) == 0):
        return tuple(range(ndim))
    ndim = max(ndim, 1)
    dims: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if d in dims:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        if d >= ndim or d < -ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], "
                f"but got {d})"
            )
        dims.append(d % ndim)
    return tuple(sorted(dims))


def _mask_for(input: Tensor, mask: Tensor) -> Tensor:
    """The mask as booleans of the input's shape."""
    if mask.shape != input.shape:
        if mask.ndim > input.ndim:
            raise IndexError(
                "_input_mask expected broadcastable mask "
                "(got mask dimensionality higher than of the input)"
            )
        mask = torch.broadcast_to(mask.clone(), input.shape)
    return mask.to(dtype=torch.bool)


Identity = Callable[[str, torch.dtype], complex]


def _filled(name: str, input: Tensor, mask: Tensor | None, identity: Identity) -> Tensor:
    """The input with the identity of `name` where it is masked out."""
    if mask is None:
        return input
    mask = _mask_for(input, mask)
    value = identity(name, input.dtype)
    return torch.where(mask, input, torch.tensor(value, dtype=input.dtype, device=input.device))


def _sum_dtype(input: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return torch.int64 if input.dtype in _SMALL_INTEGERS else input.dtype


def sum(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The sum over `dim`; narrow integers and booleans are summed as int64."""
    dtype = _sum_dtype(input, dtype)
    dims = _dims_of(dim, input.ndim)
    return torch.sum(_filled("sum", input, mask, _zero), dims, bool(keepdim), dtype=dtype)


def prod(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The product over `dim`; narrow integers and booleans are multiplied as int64."""
    dtype = _sum_dtype(input, dtype)
    dims = _dims_of(dim, input.ndim)
    result = _filled("prod", input, mask, _one).to(dtype=dtype)
    for d in reversed(dims):
        result = result.prod(d, bool(keepdim))
    return result


def cumsum(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The running sum along `dim`, in the input's dtype."""
    along = _dims_of(dim, input.ndim)[0]
    return torch.cumsum(_filled("cumsum", input, mask, _zero), along, dtype=dtype or input.dtype)


def cumprod(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The running product along `dim`, in the input's dtype."""
    along = _dims_of(dim, input.ndim)[0]
    return torch.cumprod(_filled("cumprod", input, mask, _one), along, dtype=dtype or input.dtype)


def amax(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The largest element over `dim`."""
    dtype = dtype or input.dtype
    filled = _filled("amax", input, mask, _lowest)
    dims = _dims_of(dim, filled.ndim)
    return torch.amax(filled, dims, bool(keepdim)).to(dtype=dtype)


def amin(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The smallest element over `dim`."""
    dtype = dtype or input.dtype
    filled = _filled("amin", input, mask, _highest)
    dims = _dims_of(dim, filled.ndim)
    return torch.amin(filled, dims, bool(keepdim)).to(dtype=dtype)


def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where the largest element along `dim` stands (of all: in the flattened input), in the
    *input's* dtype."""
    filled = _filled("argmax", input, mask, _lowest)
    return torch.argmax(filled, dim, bool(keepdim)).to(dtype=dtype or input.dtype)


def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Where the smallest element along `dim` stands (of all: in the flattened input), in the
    *input's* dtype."""
    filled = _filled("argmin", input, mask, _highest)
    return torch.argmin(filled, dim, bool(keepdim)).to(dtype=dtype or input.dtype)


def _counts(input: Tensor, dim: Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    """How many elements count, over `dim`; the mask has the input's shape."""
    if mask is None:
        ones = torch.ones(input.shape, dtype=torch.int64, device=input.device)
        return sum(ones, dim, keepdim=keepdim)
    return torch.sum(mask, dim=dim, keepdim=keepdim)


def mean(
    input: Tensor, dim: Dims = None, *, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The mean over `dim` of what counts. ValueError for dtypes without fractions."""
    source = "Input" if dtype is None else "Optional"
    dtype = dtype or input.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating "
            f"point or complex dtype. Got: {dtype}"
        )
    if mask is not None:
        mask = _mask_for(input, mask)
    count = _counts(input, dim, bool(keepdim), mask)
    return sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask) / count


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: torch.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The lower median along `dim`. NaN where nothing counts, which integer inputs cannot hold:
    ValueError. Floating-point results have the input's dtype."""
    dtype = dtype or input.dtype
    along = _dims_of(dim, input.ndim)[0]
    floating = torch.is_floating_point(input)
    if not floating:
        input = input.to(dtype=torch.float)
    found = torch.nanmedian(_filled("median", input, mask, _nan), along, keepdim).values
    if floating:
        return found
    if not torch.isnan(found).any():
        return found.to(dtype=dtype)
    raise ValueError(
        "masked median expects no fully masked out rows if dtype is not floating point"
    )


def norm(
    input: Tensor, ord: float | None = 2.0, dim: Dims = None, *, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The vector norm of order `ord` over `dim` (`torch.linalg.vector_norm`)."""
    dtype = dtype or input.dtype
    filled = _filled("norm", input, mask, _infinity if ord == -torch.inf else _zero)
    dims = _dims_of(dim, input.ndim)
    return torch.linalg.vector_norm(filled, ord, dims, bool(keepdim), dtype=dtype)


def _correction(unbiased: bool | None, correction: float | None) -> float:
    if unbiased is not None:
        assert correction is None, "Only one of unbiased and correction may be given"
        return 1.0 if unbiased else 0.0
    return 1.0 if correction is None else correction


def _variance(
    input: Tensor, dim: Dims, correction: float, keepdim: bool, dtype: torch.dtype | None,
    mask: Tensor | None,
) -> Tensor:  # fmt: skip
    """Two passes: the mean, then the squared distances from it, over count - `correction`."""
    if dtype is None:
        fractions = input.dtype.is_floating_point or input.dtype.is_complex
        dtype = input.dtype if fractions else torch.float32
    compute = dtype if dtype.is_floating_point or dtype.is_complex else torch.float32
    if mask is not None:
        mask = _mask_for(input, mask)
    count = _counts(input, dim, True, mask)
    away = input - sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / count
    total = sum(away * away.conj(), dim, keepdim=keepdim, dtype=compute, mask=mask)
    if not keepdim:
        count = count.reshape(total.shape)
    if correction != 0:
        count = count.to(compute.to_real()) - correction
        count = torch.maximum(count, count.new_zeros([]))
    return (total / count).to(dtype=dtype)


def var(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *,
    correction: float | None = None, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The variance over `dim` of the n elements that count, divided by max(n - `correction`, 0);
    integers as float32. AssertionError for both `unbiased` and `correction`."""
    less = _correction(unbiased, correction)
    return _variance(input, dim, less, bool(keepdim), dtype, mask)


def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *,
    correction: int | None = None, keepdim: bool | None = False,
    dtype: torch.dtype | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The square root of `var`."""
    less = _correction(unbiased, correction)
    return torch.sqrt(_variance(input, dim, less, bool(keepdim), dtype, mask))


def softmax(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; 0 where masked out."""
    along = _dims_of(dim, input.ndim)[0]
    filled = _filled("amax", input, mask, _lowest)
    return torch.nn.functional.softmax(filled, along, dtype=dtype or input.dtype)


def log_softmax(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """x - log(sum(exp(x))) along `dim`; -inf where masked out."""
    along = _dims_of(dim, input.ndim)[0]
    filled = _filled("amax", input, mask, _lowest)
    return torch.nn.functional.log_softmax(filled, along, dtype=dtype or input.dtype)


def softmin(
    input: Tensor, dim: int, *, dtype: torch.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """exp(-x) / sum(exp(-x)) along `dim`; 0 where masked out."""
    along = _dims_of(dim, input.ndim)[0]
    filled = _filled("amin", input, mask, _highest)
    return torch.nn.functional.softmin(filled, along, dtype=dtype or input.dtype)


def normalize(
    input: Tensor, ord: float, dim: Dims, *, eps: float = 1e-12, dtype: torch.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """x / max(norm(x), `eps`) along `dim`; 0 where masked out."""
    filled = _filled("sum", input, mask, _zero)
    length = norm(input, ord, dim, keepdim=True, dtype=dtype or input.dtype, mask=mask)
    least = torch.maximum(length, length.new_full([], eps))
    return filled / least


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: torch.dtype | None = None,
    input_mask: Tensor | None = None, other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """log(exp(input) + exp(other)), in the dtype of `input`."""
    dtype = dtype or input.dtype
    one = _filled("logaddexp", input, input_mask, _lowest)
    two = _filled("logaddexp", other, other_mask, _lowest)
    return torch.logaddexp(one, two).to(dtype=dtype)


def logsumexp(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: torch.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """log(sum(exp(x))) over `dim`, in the input's dtype."""
    dims = _dims_of(dim, input.ndim)
    filled = _filled("logsumexp", input, mask, _log_of_zero)
    return torch.logsumexp(filled, dims, keepdim).to(dtype=dtype or input.dtype)
