"""Reductions of the segments of a dimension, and of a tensor to a hash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import not_implemented, store, wide
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Opaque, reduced_shape, wrap_dim, wrap_dims
from flambeau._src.ops.op import TensorSpec, like

REDUCTIONS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf")}


def _segmented(
    data: Tensor, reduce: str, lengths: Tensor | None, indices: Tensor | None,
    offsets: Tensor | None, axis: int, unsafe: bool,
) -> tuple[int, int]:  # fmt: skip
    """(the dimension, how many segments it has), once the arguments' geometry is right."""
    d = wrap_dim(axis, data.dim())
    if reduce not in REDUCTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    told, name = (lengths, "lengths") if lengths is not None else (offsets, "offsets")
    if told is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if data.dim() < told.dim():
        raise RuntimeError(
            f"Expected data.dim() >= {name}_value.dim() to be true, but got false.  (Could this "
            "error message be improved?  If so, please report an enhancement request to PyTorch.)"
        )
    if d != told.dim() - 1:
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of {name} but got {axis}."
        )
    if not (data.dtype.is_floating_point and data.dtype.itemsize > 1):
        raise not_implemented("_segment_reduce_cpu", data)
    if told.dtype not in (dt.int32, dt.int64):
        raise not_implemented(f"_segment_reduce_{name}_cpu_kernel1", told)
    if lengths is not None and not unsafe and not lengths.numel():
        raise RuntimeError(
            "min(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
            "reduction dim with the 'dim' argument."
        )
    return d, told.shape[d] - (0 if lengths is not None else 1)


def _check_lengths(lengths: Tensor, n: int) -> None:
    told = array_of(lengths)
    if told.min() < 0:
        raise RuntimeError("lengths contains negative value!")
    if (told.sum(-1) != n).any():
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to "
            "data.size(lengths.dim()-1) when !unsafe."
        )


class Segments:
    """Where the segments lie among the rows of `data` seen as [outer * n, inner].

    starts, sizes   of each segment, in the order of the result's rows
    """

    def __init__(
        self, data: Tensor, lengths: Tensor | None, offsets: Tensor | None, d: int
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        self.shape = tuple(data.shape)
        self.n = n = self.shape[d]
        outer = int(np.prod(self.shape[:d], dtype=np.int64))
        self.inner = int(np.prod(self.shape[d + 1 :], dtype=np.int64))
        told = array_of(lengths if lengths is not None else offsets)
        told = told.reshape(-1, told.shape[-1]).astype(np.int64)[:outer]
        if told.shape[0] < outer:
            raise RuntimeError(
                f"segment_reduce(): the segments of {told.shape[0]} rows are told, data has {outer}"
            )
        if lengths is not None:
            ends = np.clip(told.cumsum(1), 0, n)
            begins = np.clip(ends - told, 0, n)
        else:
            begins, ends = np.clip(told[:, :-1], 0, n), np.clip(told[:, 1:], 0, n)
        first = np.arange(outer)[:, None] * n
        self.starts = (begins + first).reshape(-1)
        self.sizes = np.maximum(ends - begins, 0).reshape(-1)

    def rows(self, t: Tensor) -> Any:
        """A tensor's elements in the rows that `starts` counts (or one row a segment)."""
        return wide(t).reshape(-1, self.inner)

    def reduced(self, values: Any, ufunc: Any, identity: float) -> Any:
        """Each segment's rows reduced by a NumPy ufunc; empty ones give the identity."""
        import numpy as np  # lazy: NumPy is heavy

        if not self.sizes.size:
            return values[:0]
        rows = np.concatenate([values, np.full_like(values[:1], 0, shape=(1, self.inner))])
        bounds = np.stack([self.starts, self.starts + self.sizes], 1).reshape(-1)
        found = ufunc.reduceat(rows, bounds, axis=0)[::2]
        return np.where((self.sizes == 0)[:, None], values.dtype.type(identity), found)

    def members(self) -> tuple[Any, Any]:
        """(rows, the segment of each), of all rows that are in a segment."""
        import numpy as np  # lazy: NumPy is heavy

        segment = np.repeat(np.arange(self.sizes.size), self.sizes)
        passed = np.cumsum(self.sizes) - self.sizes
        return np.arange(segment.size) + np.repeat(self.starts - passed, self.sizes), segment


class SegmentReduce(Opaque):
    """Each segment of dimension `axis` reduced to one element.

    `lengths` tells the segments' sizes, or `offsets` where each begins and the last one ends; they
    have data's dimensions up to `axis`, which is their last. `initial` takes part in each
    reduction, and is what an empty segment gives (without it: the reduction's identity, NaN for
    "mean"). Unless `unsafe`, lengths must be non-negative and add up to data's size.
    """

    schema = (
        "segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, "
        "Tensor? offsets=None, int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor"
    )
    public = "function"
    aliases = ("_segment_reduce",)
    out = "out"
    saves_by = ("reduce",)

    def meta(
        data: Tensor, reduce: str, lengths: Any, indices: Any, offsets: Any, axis: int,
        unsafe: bool, initial: Any,
    ) -> TensorSpec:  # fmt: skip
        d, count = _segmented(data, reduce, lengths, indices, offsets, axis, unsafe)
        return like(data, (*data.shape[:d], count, *data.shape[d + 1 :]))

    def kernel(
        out: Tensor, data: Tensor, reduce: str, lengths: Any, indices: Any, offsets: Any,
        axis: int, unsafe: bool, initial: Any,
    ) -> None:  # fmt: skip
        import numpy as np  # lazy: NumPy is heavy

        d = wrap_dim(axis, data.dim())
        if lengths is not None and not unsafe:
            _check_lengths(lengths, data.shape[d])
        parts = Segments(data, lengths, offsets, d)
        steps = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}
        step = steps.get(reduce, np.add)
        with np.errstate(all="ignore"):
            found = parts.reduced(parts.rows(data), step, REDUCTIONS[reduce])
            if initial is not None:
                found = step(found, found.dtype.type(initial))
            if reduce == "mean":
                size = parts.sizes if initial is None else np.maximum(parts.sizes, 1)
                found = found / size[:, None].astype(found.dtype)
        store(out, found.reshape(tuple(out.shape)))

    def vjp(
        b: Any, g: Tensor, data: Tensor, reduce: str, lengths: Any, indices: Any, offsets: Any,
        axis: int, unsafe: bool, initial: Any,
    ) -> Any:  # fmt: skip
        given = aten._segment_reduce_backward(
            g, b.out, data, reduce, lengths=lengths, offsets=offsets, axis=axis, initial=initial
        )
        return given, None, None, None

    def samples(s: Any) -> Iterator[Any]:
        sizes = aten.arange(4)  # the first segment is empty
        starts = aten.stack([aten.arange(0, 5, 2)] * 2)
        for reduce in REDUCTIONS:
            if reduce in ("sum", "prod"):
                yield s.sample(s.tensor((6, 3)), reduce, lengths=sizes)
            yield s.sample(s.tensor((2, 4, 2)), reduce, offsets=starts, axis=1)
            yield s.sample(s.tensor((6,)), reduce, lengths=sizes, axis=-1, initial=0.5)

    def error_samples(s: Any) -> Iterator[Any]:
        x, sizes = s.tensor((5,)), aten.arange(3)
        yield s.error(RuntimeError, "must be either sum", x, "all", lengths=sizes)
        yield s.error(RuntimeError, "Either lengths or offsets", x, "sum")
        yield s.error(RuntimeError, "not supported yet", x, "sum", indices=sizes)
        yield s.error(RuntimeError, "sum to data.size", x, "sum", lengths=sizes)
        yield s.error(RuntimeError, "negative value", x, "sum", lengths=aten.arange(-1, 2))
        yield s.error(RuntimeError, "last dimension of", s.tensor((2, 5)), "sum", lengths=sizes,
                      axis=1)  # fmt: skip


class SegmentReduceBackward(Opaque):
    """The gradient of `segment_reduce`: largest and smallest elements share theirs."""

    schema = (
        "_segment_reduce_backward(Tensor grad, Tensor output, Tensor data, str reduce, *, "
        "Tensor? lengths=None, Tensor? offsets=None, int axis=0, Scalar? initial=None) -> Tensor"
    )
    public = ""
    out = "out"
    no_formula = True

    def meta(
        grad: Tensor, output: Tensor, data: Tensor, reduce: str, lengths: Any, offsets: Any,
        axis: int, initial: Any,
    ) -> TensorSpec:  # fmt: skip
        _segmented(data, reduce, lengths, None, offsets, axis, True)
        return like(data)

    def kernel(
        out: Tensor, grad: Tensor, output: Tensor, data: Tensor, reduce: str, lengths: Any,
        offsets: Any, axis: int, initial: Any,
    ) -> None:  # fmt: skip
        import numpy as np  # lazy: NumPy is heavy

        parts = Segments(data, lengths, offsets, wrap_dim(axis, data.dim()))
        rows, segment = parts.members()
        x = parts.rows(data)
        given = np.zeros_like(x)
        share = parts.rows(grad)[segment]
        with np.errstate(all="ignore"):
            if reduce == "mean":
                share = share / parts.sizes[segment, None].astype(x.dtype)
            elif reduce in ("max", "min"):
                hit = np.zeros_like(x)
                hit[rows] = (x[rows] == parts.rows(output)[segment]) | np.isnan(x[rows])
                ways = parts.reduced(hit, np.add, 0)[segment]
                share = np.where(hit[rows] != 0, share / np.maximum(ways, 1), 0)
            elif reduce == "prod":
                whole = parts.rows(output)[segment]
                share = share * _others(x[rows], whole, segment, 1 if initial is None else initial)
        given[rows] = share
        store(out, given.reshape(parts.shape))


def _others(x: Any, whole: Any, segment: Any, initial: float) -> Any:
    """For each element the product of the rest of its segment, whose whole product is given."""
    import numpy as np  # lazy: NumPy is heavy

    found = whole / x
    for row, column in zip(*np.nonzero((x == 0) | np.isnan(x)), strict=True):
        low, high = np.searchsorted(segment, segment[row]), row + 1
        last = np.searchsorted(segment, segment[row], side="right")
        rest = np.concatenate([x[low:row, column], x[high:last, column]])
        found[row, column] = rest.prod() * x.dtype.type(initial)
    return found


class HashTensor(Opaque):
    """The exclusive or of the elements' 64 bits, floating-point ones as float64, as uint64.

    Mode 0 is the only one.
    """

    schema = "hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor"
    out = "out"
    differentiable = False

    def check_out(source: Any, to: Any) -> None:
        if to is not source:
            raise RuntimeError(
                f"Expected result to be of dtype uint64, but got {dt.scalar_name(to)}"
            )

    def meta(x: Tensor, dim: Any, keepdim: bool, mode: int) -> TensorSpec:
        dims = wrap_dims(dim, x.dim())
        if mode:
            raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
        if not x.numel() and not dim:
            raise RuntimeError(
                "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument."
            )
        for d in dims:
            if not x.shape[d]:
                raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
        if x.dtype.is_complex or x.dtype in _UNHASHED:
            raise not_implemented("xor_sum_cpu", x)
        return TensorSpec(reduced_shape(x.shape, dims, keepdim), dt.uint64, x.device)

    def kernel(out: Tensor, x: Tensor, dim: Any, keepdim: bool, mode: int) -> None:
        import numpy as np  # lazy: NumPy is heavy

        kind = np.float64 if x.dtype.is_floating_point else np.int64
        bits = wide(x).astype(kind).view(np.uint64)
        found = np.bitwise_xor.reduce(bits, axis=wrap_dims(dim, x.dim()))
        array_of(out)[...] = np.reshape(found, tuple(out.shape))

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)))
        yield s.sample(s.tensor((2, 3, 4)), [0, 2], keepdim=True)
        yield s.sample(s.tensor(()))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "Unknown hash_tensor mode", s.tensor((2,)), mode=1)
        yield s.error(IndexError, "non-zero size", s.tensor((0, 2)), [0])


_UNHASHED = (dt.uint16, dt.uint32, dt.uint64, dt.float8_e5m2, dt.float8_e4m3fn)
