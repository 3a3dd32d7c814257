"""Values found and counted: unique, unique_consecutive, bincount, searchsorted, bucketize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of, share_array
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, copy_into
from flambeau._src.ops.kinds import Opaque, cast, reduced_shape, scalar_tensor, wrap_dim, wrap_dims
from flambeau._src.ops.op import Declaration, TensorSpec

_WIDE = ("bfloat16", "float8_e5m2", "float8_e4m3fn")


def _values(t: Tensor) -> Any:
    """t's elements as an array that NumPy orders rightly."""
    return array_of(cast(t, dt.float32) if t.dtype.name in _WIDE else t)


def made_of(a: Any, d: dt.dtype) -> Tensor:
    """A tensor with its own bytes holding the array's values in the dtype."""
    import numpy as np  # lazy: NumPy is heavy

    out = _native.empty(a.shape, d, _native.cpu)
    if a.size:
        copy_into(out, share_array(np.ascontiguousarray(a)))
    return out


def turned(a: Any, d: dt.dtype, dim: int) -> Tensor:
    """made_of, with dimension dim outermost in memory."""
    import numpy as np  # lazy: NumPy is heavy

    made = made_of(np.moveaxis(a, dim, 0), d)
    size, stride = list(made.shape), list(made.stride())
    for v in (size, stride):
        v.insert(dim, v.pop(0))
    return _native.alias(Tensor, made, size, stride, 0)


def _places(a: Any) -> Tensor:
    import numpy as np  # lazy: NumPy is heavy

    return made_of(np.asarray(a, dtype=np.int64), dt.int64)


def _nothing() -> Tensor:
    return _native.empty((0,), dt.int64, _native.cpu)


class Unique2(Declaration):
    """The distinct elements in order; for each element where it stands among them, and how often
    each occurs."""

    schema = (
        "_unique2(Tensor self, bool sorted=True, bool return_inverse=False, "
        "bool return_counts=False) -> (Tensor, Tensor, Tensor)"
    )
    no_gradient = True
    public = "function"

    def run(t: Tensor, sorted_: bool, inverse: bool, counts: bool) -> Any:
        import numpy as np  # lazy: NumPy is heavy

        if t.dtype.is_complex:
            raise NotImplementedError(f"\"unique\" not implemented for '{dt.scalar_name(t.dtype)}'")
        found = np.unique(
            _values(t).reshape(-1), return_inverse=True, return_counts=True, equal_nan=False
        )
        return (
            made_of(found[0], t.dtype),
            _places(found[1].reshape(tuple(t.shape))) if inverse or counts else _nothing(),
            _places(found[2]) if counts else _nothing(),
        )

    def by_value(extent: Any, t: Tensor, sorted_: bool, inverse: bool, counts: bool) -> Any:
        return _distinct(extent, t, None, inverse or counts, counts)


def _distinct(extent: Any, t: Tensor, dim: int | None, inverse: bool, counts: bool) -> Any:
    """(the distinct elements or slices, where each stands, how often each occurs)."""
    shape = list(t.shape)
    line: list[Any] = shape
    n = extent(0)
    if dim is None:
        found: list[Any] = [n]
    else:
        d = wrap_dim(dim, t.dim())
        found, line = [*shape], shape[d : d + 1]
        found[d] = n
    return (
        TensorSpec(tuple(found), t.dtype, t.device),
        TensorSpec(tuple(line) if inverse else (0,), dt.int64, t.device),
        TensorSpec((n,) if counts else (0,), dt.int64, t.device),
    )


class Unique(Declaration):
    """The distinct elements; for each element where it stands among them."""

    schema = "_unique(Tensor self, bool sorted=True, bool return_inverse=False) -> (Tensor, Tensor)"
    no_gradient = True
    public = "function"

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> Any:
        """For stand-ins, as if no element occurred twice."""
        t = args[0]
        return TensorSpec((t.numel(),), t.dtype, t.device), TensorSpec(t.shape, dt.int64, t.device)

    def run(t: Tensor, sorted_: bool, inverse: bool) -> Any:
        return Unique2.run(t, sorted_, inverse, False)[:2]

    def by_value(extent: Any, t: Tensor, sorted_: bool, inverse: bool) -> Any:
        return _distinct(extent, t, None, inverse, False)[:2]


class UniqueDim(Declaration):
    """The distinct slices along dim, in lexicographic order."""

    schema = (
        "unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, "
        "bool return_counts=False) -> (Tensor, Tensor, Tensor)"
    )
    no_gradient = True
    public = ""

    def run(t: Tensor, dim: int, sorted_: bool, inverse: bool, counts: bool) -> Any:
        import numpy as np  # lazy: NumPy is heavy

        d = wrap_dim(dim, t.dim())
        zeros = sum(s == 0 for s in t.shape)
        if t.dim() and not t.shape[d]:
            if zeros != 1:
                raise RuntimeError(
                    "Number of zero sized dimensions is more than one, so unique cannot be applied "
                )
            return _native.empty(t.shape, t.dtype, t.device), _nothing(), _nothing()
        if zeros:
            raise RuntimeError(
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
                "applied"
            )
        found = np.unique(
            _values(t), return_inverse=True, return_counts=True, axis=d, equal_nan=False
        )
        return (
            turned(found[0], t.dtype, d),
            _places(found[1].reshape(-1)),
            _places(found[2]) if counts else _nothing(),
        )

    def by_value(
        extent: Any, t: Tensor, dim: int, sorted_: bool, inverse: bool, counts: bool
    ) -> Any:
        return _distinct(extent, t, dim, True, counts)


class UniqueConsecutive(Declaration):
    """The elements (or slices along dim) that differ from the one before."""

    schema = (
        "unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, "
        "int? dim=None) -> (Tensor, Tensor, Tensor)"
    )
    no_gradient = True
    public = ""

    @staticmethod
    def run(t: Tensor, inverse: bool, counts: bool, dim: int | None) -> Any:
        import numpy as np  # lazy: NumPy is heavy

        a = _values(t)
        d = (
            None
            if dim is None or (t.dim() == 1 and not wrap_dim(dim, 1))
            else wrap_dim(dim, t.dim())
        )
        if d is None:
            line = a.reshape(-1)
            fresh = np.ones(line.size, bool)
            fresh[1:] = line[1:] != line[:-1]
            out, shape = line[fresh], tuple(t.shape)
        else:
            if not t.shape[d]:
                return _native.empty(t.shape, t.dtype, t.device), _nothing(), _nothing()
            line = np.moveaxis(a, d, 0)
            fresh = np.ones(line.shape[0], bool)
            rows = line.reshape(line.shape[0], -1)
            fresh[1:] = (rows[1:] != rows[:-1]).any(1)
            out, shape = np.moveaxis(line[fresh], 0, d), (line.shape[0],)
        starts = np.flatnonzero(fresh)
        return (
            made_of(out, t.dtype) if d is None else turned(out, t.dtype, d),
            _places((np.cumsum(fresh) - 1).reshape(shape)) if inverse else _nothing(),
            _places(np.diff(np.append(starts, fresh.size))) if counts else _nothing(),
        )

    def by_value(extent: Any, t: Tensor, inverse: bool, counts: bool, dim: int | None) -> Any:
        whole = dim is None or (t.dim() == 1 and not wrap_dim(dim, 1))
        return _distinct(extent, t, None if whole else dim, inverse, counts)


class Bincount(Declaration):
    """How often each non-negative integer occurs, or the sums of weights."""

    schema = "bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor"
    differentiable = False

    def run(t: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
        import numpy as np  # lazy: NumPy is heavy

        if not dt.is_integral(t.dtype) or t.dtype is dt.bool_:
            raise NotImplementedError(
                f"\"bincount_cpu\" not implemented for '{dt.scalar_name(t.dtype)}'"
            )
        if minlength < 0:
            raise RuntimeError("minlength should be >= 0")
        if t.dim() == 1 and not t.numel():
            return made_of(np.zeros(minlength, np.int64), dt.int64)
        values = array_of(t)
        if t.dim() != 1 or values.min() < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        if weights is None:
            return _places(np.bincount(values, minlength=minlength))
        if weights.dim() != 1 or weights.shape[0] != t.shape[0]:
            raise RuntimeError("weights should be 1-d and have the same length as input")
        d = dt.float32 if weights.dtype is dt.float32 else dt.float64
        out = np.zeros(max(minlength, int(values.max()) + 1), "f4" if d is dt.float32 else "f8")
        np.add.at(out, values, _values(cast(weights, d)))
        return made_of(out, d)

    def by_value(extent: Any, t: Tensor, weights: Tensor | None, minlength: Any) -> TensorSpec:
        d = dt.int64
        if weights is not None:
            d = dt.float32 if weights.dtype is dt.float32 else dt.float64
        return TensorSpec((extent(minlength),), d, t.device)


class CountNonzeroDims(Opaque):
    """How many elements are not zero, over the given dimensions."""

    schema = "count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor"
    differentiable = False
    out = True

    def meta(t: Tensor, dim: Sequence[int]) -> TensorSpec:
        gone = wrap_dims(dim, t.dim())
        return TensorSpec(reduced_shape(t.shape, gone, False), dt.int64, t.device)

    def kernel(out: Tensor, t: Tensor, dim: Sequence[int]) -> None:
        hits = aten.ne(t, 0)
        copy_into(out, aten.sum(hits, list(dim)) if len(dim) else aten.sum(hits))

    def decompose(t: Tensor, dim: Sequence[int]) -> Tensor:
        return aten.sum(aten.ne(t, 0), list(dim))


class CountNonzero(Opaque):
    """How many elements are not zero, over one dimension or all."""

    schema = "count_nonzero(Tensor self, int? dim=None) -> Tensor"
    differentiable = False
    out = True

    def meta(t: Tensor, dim: int | None) -> TensorSpec:
        return CountNonzeroDims.meta(t, () if dim is None else (dim,))

    def kernel(out: Tensor, t: Tensor, dim: int | None) -> None:
        CountNonzeroDims.kernel(out, t, () if dim is None else (dim,))

    def decompose(t: Tensor, dim: int | None) -> Tensor:
        hits = aten.ne(t, 0)
        return aten.sum(hits) if dim is None else aten.sum(hits, [dim])


def check_bounds(
    bounds: Tensor, value: Any, out_int32: bool, right: bool, side: str | None, sorter: Any
) -> None:
    """torch.searchsorted's refusals."""
    if side is not None and side not in ("left", "right"):
        raise RuntimeError(
            f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
        )
    if right and side == "left":
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left "
            "while "
            "right was True"
        )
    if sorter is not None:
        if sorter.shape != bounds.shape:
            raise RuntimeError(
                "torch.searchsorted(): boundary and sorter must have the same size, but got "
                "boundary "
                f"tensor {list(bounds.shape)}and got sorter tensor {list(sorter.shape)}"
            )
        if sorter.dtype is not dt.int64:
            raise RuntimeError(
                "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype "
                f"{dt.scalar_name(sorter.dtype)}"
            )
    if not bounds.dim():
        raise RuntimeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
            "dimension is 1"
        )
    if isinstance(value, Tensor):
        if not value.dim() and bounds.dim() != 1:
            raise RuntimeError(
                "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
                f"dimension is 1, but we got boundaries tensor dim({bounds.dim()}) and input "
                f"value's dim({value.dim()}) numel({value.numel()})"
            )
        if bounds.dim() != 1 and (
            bounds.dim() != value.dim() or bounds.shape[:-1] != value.shape[:-1]
        ):
            raise RuntimeError(
                "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                "dimensions of boundaries tensor and input value tensor must match, but we got "
                f"boundaries tensor {list(bounds.shape)} and input value tensor {list(value.shape)}"
            )
    elif bounds.dim() != 1:
        raise RuntimeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
            "dimension "
            f"is 1, but we got boundaries tensor dim({bounds.dim()}) and input value's dim(0) "
            "numel(1)"
        )
    if out_int32 and bounds.numel() and bounds.shape[-1] >= 2**31:
        raise RuntimeError(
            "torch.searchsorted(): the size of boundaries' last dimension should be less than "
            f"{2**31 - 1}, but we got {bounds.shape[-1]}"
        )


def find(out: Tensor, bounds: Tensor, value: Tensor, right: bool, sorter: Any) -> None:
    """Where each value would be inserted into its row of bounds."""
    import numpy as np  # lazy: NumPy is heavy

    a, v, o = _values(bounds), _values(value), array_of(out)
    side: Literal["left", "right"] = "right" if right else "left"
    if a.ndim == 1:
        s = None if sorter is None else array_of(sorter)
        o[...] = np.searchsorted(a, v, side=side, sorter=s)
        return
    order = None if sorter is None else array_of(sorter)
    for at in np.ndindex(a.shape[:-1]):
        s = None if order is None else order[at]
        o[at] = np.searchsorted(a[at], v[at], side=side, sorter=s)


def check_types(bounds: Tensor, value: Any) -> None:
    for d in (bounds.dtype, getattr(value, "dtype", bounds.dtype)):
        if d is dt.bool_ or d.is_complex:
            raise NotImplementedError(
                f"\"searchsorted_out_cpu\" not implemented for '{dt.scalar_name(d)}'"
            )


class SearchSorted(Opaque):
    """Where each value would be inserted into the sorted (rows of) boundaries."""

    schema = (
        "searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, "
        "bool right=False, str? side=None, Tensor? sorter=None) -> Tensor"
    )
    public = "function"
    differentiable = False
    out = True

    def meta(
        bounds: Tensor, value: Tensor, out_int32: bool, right: bool, side: Any, sorter: Any
    ) -> TensorSpec:
        check_bounds(bounds, value, out_int32, right, side, sorter)
        return TensorSpec(value.shape, dt.int32 if out_int32 else dt.int64, value.device)

    def kernel(
        out: Tensor,
        bounds: Tensor,
        value: Tensor,
        out_int32: bool,
        right: bool,
        side: Any,
        sorter: Any,
    ) -> None:
        check_types(bounds, value)
        if out.numel():
            find(out, bounds, value, right or side == "right", sorter)


class SearchSortedScalar(Opaque):
    """Where a number would be inserted into the sorted boundaries."""

    schema = (
        "searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, "
        "bool right=False, str? side=None, Tensor? sorter=None) -> Tensor"
    )
    public = "function"
    differentiable = False
    out = True

    def meta(
        bounds: Tensor, value: Any, out_int32: bool, right: bool, side: Any, sorter: Any
    ) -> TensorSpec:
        check_bounds(bounds, value, out_int32, right, side, sorter)
        return TensorSpec((), dt.int32 if out_int32 else dt.int64, bounds.device)

    whole = True

    def decompose(
        bounds: Tensor, value: Any, out_int32: bool, right: bool, side: Any, sorter: Any
    ) -> Tensor:
        floating = isinstance(value, float) or bounds.dtype.is_floating_point
        kind = dt.float64 if floating else dt.int64
        at = aten.scalar_tensor(value, dtype=kind, device=bounds.device)
        options = {"out_int32": out_int32, "right": right, "side": side, "sorter": sorter}
        return aten.searchsorted(bounds.to(kind), at, **options)

    def kernel(
        out: Tensor,
        bounds: Tensor,
        value: Any,
        out_int32: bool,
        right: bool,
        side: Any,
        sorter: Any,
    ) -> None:
        d = dt.float64 if isinstance(value, float) else dt.int64
        find(out, bounds, scalar_tensor(value, d), right or side == "right", sorter)


def _check_bucketize(bounds: Tensor) -> None:
    if bounds.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({bounds.dim()})")


class Bucketize(Opaque):
    """Which interval between the sorted boundaries each element falls into."""

    schema = (
        "bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, "
        "bool right=False) -> Tensor"
    )
    public = "function"
    differentiable = False
    out = True

    def meta(t: Tensor, bounds: Tensor, out_int32: bool, right: bool) -> TensorSpec:
        _check_bucketize(bounds)
        return TensorSpec(t.shape, dt.int32 if out_int32 else dt.int64, t.device)

    def kernel(out: Tensor, t: Tensor, bounds: Tensor, out_int32: bool, right: bool) -> None:
        check_types(bounds, t)
        if out.numel():
            find(out, bounds, t, right, None)

    def decompose(t: Tensor, bounds: Tensor, out_int32: bool, right: bool) -> Tensor:
        _check_bucketize(bounds)
        return aten.searchsorted(bounds, t, out_int32=out_int32, right=right)


class BucketizeScalar(Opaque):
    """Which interval between the sorted boundaries a number falls into."""

    schema = (
        "bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, "
        "bool right=False) -> Tensor"
    )
    public = "function"
    differentiable = False

    def meta(value: Any, bounds: Tensor, out_int32: bool, right: bool) -> TensorSpec:
        _check_bucketize(bounds)
        return TensorSpec((), dt.int32 if out_int32 else dt.int64, bounds.device)

    def kernel(out: Tensor, value: Any, bounds: Tensor, out_int32: bool, right: bool) -> None:
        d = dt.float64 if isinstance(value, float) else dt.int64
        find(out, bounds, scalar_tensor(value, d), right, None)

    def decompose(value: Any, bounds: Tensor, out_int32: bool, right: bool) -> Tensor:
        _check_bucketize(bounds)
        return aten.searchsorted(bounds, value, out_int32=out_int32, right=right)
