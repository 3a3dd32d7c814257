"""Rows of a table summed in bags, and reductions by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.gather import reduced_gradients
from flambeau._src.ops.index import Index
from flambeau._src.ops.kinds import Composite, Opaque, wrap_dim
from flambeau._src.ops.op import TensorSpec
from flambeau._src.ops.promote import broadcast_shape

SUM, MEAN, MAX = 0, 1, 2


def _check_bags(
    weight: Tensor, at: Tensor, offsets: Tensor, mode: int, per_sample: Tensor | None,
    include_last: bool,
) -> None:  # fmt: skip
    for name, t in (("input", at), ("offsets", offsets)):
        if t.dim() != 1:
            raise RuntimeError(
                f"{name} has to be a 1D Tensor, but got Tensor of dimension {t.dim()}"
            )
    if per_sample is not None:
        if mode != SUM:
            raise RuntimeError("embedding_bag: per_sample_weights only supported with mode='sum'")
        if per_sample.numel() != at.numel():
            raise RuntimeError(
                "Expected per_sample_weights.value().numel() == indices.numel() to be true, but "
                "got false.  (Could this error message be improved?  If so, please report an "
                "enhancement request to PyTorch.)"
            )
    if include_last and not offsets.shape[0]:
        raise RuntimeError("include_last_offset: number of offsets should be at least 1")
    if offsets.shape[0] and not offsets.untyped_storage().is_fake:
        first, last = int(offsets[0].item()), int(offsets[-1].item())
        if first:
            raise RuntimeError(
                "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start "
                f"from position 0. However, got {first}"
            )
        if last > at.shape[0]:
            raise RuntimeError(
                f"offsets[-1] can not be greater than input's length {at.shape[0]} but got "
                f"offsets[-1] of {last}"
            )
    if at.numel() and not at.untyped_storage().is_fake:
        bad = _native.beyond(aten._to_copy(at, dtype=dt.int64), 0, weight.shape[0])
        if bad is not None:
            raise RuntimeError(
                "Expected i < index_size to be true, but got false.  (Could this error message be "
                "improved?  If so, please report an enhancement request to PyTorch.)"
            )


def _summed_in(dtype: dt.dtype, mode: int, per_sample: Tensor | None) -> dt.dtype:
    """The dtype of a bag's running sum: no product in it is rounded on its own."""
    if mode == MAX:
        return dtype
    if dtype in (dt.bfloat16, dt.float16):
        return dt.float32
    return dt.float64 if dtype is dt.float32 and per_sample is not None else dtype


def bagged(
    weight: Tensor, at: Tensor, offsets: Tensor, by_frequency: bool, mode: int, sparse: bool,
    per_sample: Tensor | None, include_last: bool, padding: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(the bags' rows, each index's bag, the bags' sizes, the rows of the largest elements)."""
    _check_bags(weight, at, offsets, mode, per_sample, include_last)
    kind = at.dtype
    bags = offsets.shape[0] - (1 if include_last else 0)
    place = aten.arange(at.shape[0], dtype=offsets.dtype, device=at.device)
    starts = aten.narrow(offsets, 0, 0, bags) if include_last else offsets
    bag = aten._to_copy(aten.searchsorted(starts, place, right=True), dtype=dt.int64) - 1
    counts = aten.ne(at, padding) if padding >= 0 else aten.ones_like(at, dtype=dt.bool_)
    zero = aten.zeros((bags,), dtype=dt.int64, device=at.device)
    size = aten.index_add(zero, 0, bag, aten._to_copy(counts, dtype=dt.int64))
    rows = aten.index_select(weight, 0, aten._to_copy(at, dtype=dt.int64))
    wide = aten.unsqueeze(counts, 1)
    computed = _summed_in(weight.dtype, mode, per_sample)
    if computed is not weight.dtype:
        rows = aten._to_copy(rows, dtype=computed)
    blank = aten.zeros((bags, weight.shape[1]), dtype=computed, device=weight.device)
    largest = size
    if mode == MAX:
        low = aten.full((), -float("inf"), dtype=weight.dtype, device=weight.device)
        where = aten.expand(aten.unsqueeze(bag, 1), rows.shape)
        held = aten.where(wide, rows, low)
        made = aten.scatter_reduce(blank, 0, where, held, "amax", include_self=False)
        made = aten.masked_fill(made, aten.unsqueeze(aten.eq(size, 0), 1), 0)
    else:
        if per_sample is not None:
            rows = rows * aten.unsqueeze(aten._to_copy(per_sample, dtype=computed), 1)
        rows = aten.where(wide, rows, aten.zeros((), dtype=rows.dtype, device=rows.device))
        made = aten.index_add(blank, 0, bag, rows)
        if mode == MEAN:
            made = made / aten.unsqueeze(aten.clamp(size, min=1), 1)
    if computed is not weight.dtype:
        made = aten._to_copy(made, dtype=weight.dtype)
    return made, aten._to_copy(bag, dtype=kind), aten._to_copy(size, dtype=kind), largest


_BAG = (
    "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, "
    "bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, "
    "int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)"
)


class EmbeddingBagWhole(Opaque):
    """Bags of rows: their sums (mode 0), means (1) or largest elements (2)."""

    schema = f"_embedding_bag{_BAG}"
    public = "function"
    differentiable = (0,)
    node_name = "EmbeddingBag"
    decompose = bagged


class EmbeddingBagForward(Opaque):
    """Bags of rows where no gradient is wanted."""

    schema = f"_embedding_bag_forward_only{_BAG}"
    public = "function"
    differentiable = False
    decompose = bagged


class EmbeddingBag(Composite):
    """Bags of rows of a table."""

    schema = (
        "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, "
        "bool scale_grad_by_freq=False, int mode=0, bool sparse=False, "
        "Tensor? per_sample_weights=None, bool include_last_offset=False) "
        "-> (Tensor, Tensor, Tensor, Tensor)"
    )
    public = "function"

    def decompose(*args: Any) -> Any:
        return aten._embedding_bag(*args, -1)


class EmbeddingBagPadded(Composite):
    """Bags of rows of a table, one index of which does not count."""

    schema = (
        "embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, "
        "bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, "
        "bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)"
    )
    public = "function"

    def decompose(weight: Tensor, *rest: Any) -> Any:
        *middle, padding = rest
        if padding is None:
            padding = -1
        else:
            n = weight.shape[0]
            if not -n <= padding < n:
                raise RuntimeError(
                    f"padding_idx must be within the number of embeddings, -{n} through {n - 1}, "
                    f"but got {padding}"
                )
            padding += n if padding < 0 else 0
        return aten._embedding_bag(weight, *middle, padding)


class IndexReduce(Opaque):
    """self with the slices that index names reduced with those of source."""

    schema = (
        "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, "
        "bool include_self=True) -> Tensor"
    )
    inplace = True
    out = "out"

    def decompose(
        x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
    ) -> Tensor:
        d = wrap_dim(dim, x.dim())
        _check_index_reduce(x, d, dim, index, source, reduce)
        rows = IndexReduce.spread(x, d, index, source)
        return aten.scatter_reduce(x, d, rows, source, reduce, include_self=include_self)

    def meta(
        x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
    ) -> TensorSpec:
        _check_index_reduce(x, wrap_dim(dim, x.dim()), dim, index, source, reduce)
        return TensorSpec(x.shape, x.dtype, x.device)

    def spread(x: Tensor, d: int, index: Tensor, source: Tensor) -> Tensor:
        """index, in source's shape."""
        rows = aten._to_copy(index, dtype=dt.int64) if index.dtype is not dt.int64 else index
        rows = aten.view(rows, [-1 if i == d else 1 for i in range(x.dim())])
        return aten.expand(rows, source.shape)

    def vjp(
        b: Any, g: Tensor, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str,
        include_self: bool,
    ) -> Any:  # fmt: skip
        d = wrap_dim(dim, x.dim())
        rows = IndexReduce.spread(x, d, index, source)
        own, theirs = reduced_gradients(b, g, x, d, rows, source, reduce, include_self)
        if own is not None and b.needs[0] and not include_self:
            own = aten.scatter(own, d, rows, 0)
        return own if b.needs[0] else None, None, theirs if b.needs[2] else None

    saves_by = ("reduce", "include_self")

    def samples(s: Any) -> Iterator[Any]:
        for reduce in ("prod", "mean", "amax", "amin"):
            yield s.sample(s.tensor((3, 4)), 0, s.ints(5, 0, 3), s.tensor((5, 4)), reduce)
        at = s.ints(2, 0, 4)
        yield s.sample(s.tensor((3, 4)), 1, at, s.tensor((3, 2)), "mean", include_self=False)
        yield s.sample(s.tensor(()), 0, s.ints(1, 0, 1), s.tensor(()), "amax")

    def error_samples(s: Any) -> Iterator[Any]:
        x, at = s.tensor((3, 4)), s.ints(3, 0, 3)
        yield s.error(RuntimeError, "Expected reduce to be one of", x, 0, at, x, "sum")
        yield s.error(RuntimeError, "should be equal to source.size", x, 0, s.ints(2, 0, 3), x,
                      "prod")  # fmt: skip


def _check_index_reduce(
    x: Tensor, d: int, dim: int, index: Tensor, source: Tensor, reduce: str
) -> None:
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    if index.dim() > 1:
        raise IndexError(
            f"index_reduce_(): Index is supposed to be a vector, but got dim: {index.dim()} with "
            f"type: {dt.scalar_name(index.dtype)} and size: {list(index.shape)}"
        )
    if index.dtype not in (dt.int32, dt.int64):
        raise RuntimeError(
            "index_reduce_(): Expected dtype int32/int64 for index but got: "
            f"{dt.scalar_name(index.dtype)}"
        )
    if x.dtype is not source.dtype:
        raise RuntimeError(
            f"index_reduce_(): self ({dt.scalar_name(x.dtype)}) and source "
            f"({dt.scalar_name(source.dtype)}) must have the same scalar type"
        )
    n = source.shape[d] if source.dim() else 1
    if index.numel() != n:
        raise RuntimeError(
            f"index_reduce_(): Number of indices ({index.numel()}) should be equal to "
            f"source.size(dim): ({n}), for dim: {dim}"
        )
    own, theirs = list(x.shape), list(source.shape)
    if own[:d] + own[d + 1 :] != theirs[:d] + theirs[d + 1 :]:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {own} source.shape = {theirs}"
        )
    size = x.shape[d] if x.dim() else 1
    if index.untyped_storage().is_fake or not index.numel():
        return
    if _native.beyond(aten._to_copy(index, dtype=dt.int64), 0, size) is not None:
        raise IndexError("index out of range in self")


class FillDiagonal(Composite):
    """A number written on the diagonal; with wrap, on those below it in a tall matrix too."""

    schema = "fill_diagonal_(Tensor(a!) self, Scalar fill_value, bool wrap=False) -> Tensor(a!)"
    public = "method"

    def decompose(x: Tensor, value: Any, wrap: bool) -> Any:
        if x.dim() < 2:
            raise RuntimeError("dimensions must larger than 1")
        rows, columns = x.shape[0], x.shape[1]
        if x.dim() > 2 and any(n != rows for n in x.shape):
            raise RuntimeError("all dimensions of input must be of equal length")
        step, n = sum(x.stride()), min(x.shape)
        line = aten.as_strided(x, (n,), (step,), x.storage_offset())
        aten.fill_(line, value)
        if x.dim() == 2 and wrap and rows > columns + 1:
            period = columns + 1
            for start in range(period, rows, period):
                count = min(columns, rows - start)
                offset = x.storage_offset() + start * x.stride(0)
                aten.fill_(aten.as_strided(x, (count,), (step,), offset), value)
        return x


class IntMm(Opaque):
    """The product of two int8 matrices in int32."""

    schema = "_int_mm(Tensor self, Tensor mat2) -> Tensor"
    public = "function"
    differentiable = False
    out = "out"

    def decompose(a: Tensor, b: Tensor) -> Tensor:
        for t, name in ((a, "self"), (b, "mat2")):
            if t.dtype is not dt.int8:
                raise RuntimeError(
                    f"Expected {name}.dtype() == at::kChar to be true, but got false.  (Could this "
                    "error message be improved?  If so, please report an enhancement request to "
                    "PyTorch.)"
                )
        return aten.mm(aten._to_copy(a, dtype=dt.int32), aten._to_copy(b, dtype=dt.int32))


class MaskedScale(Opaque):
    """self where mask, times a number."""

    schema = "_masked_scale(Tensor self, Tensor mask, float scale) -> Tensor"
    public = "function"
    differentiable = False

    def decompose(x: Tensor, mask: Tensor, scale: float) -> Tensor:
        return aten.mul(x, aten.mul(aten._to_copy(mask, dtype=x.dtype), scale))


class UnsafeMaskedIndex(Opaque):
    """self at indices, `fill` where the mask is not set; those indices may be anything."""

    schema = (
        "_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor"
    )
    public = "function"

    def decompose(x: Tensor, mask: Tensor, indices: Any, fill: Any) -> Tensor:
        safe = in_range(x, indices)
        if not x.numel():
            got = aten.index(aten.new_ones(x, [max(n, 1) for n in x.shape]), safe)
        else:
            got = aten.index(x, safe)
        return aten.masked_fill(got, aten.logical_not(mask), fill)

    def meta(x: Tensor, mask: Tensor, indices: Any, fill: Any) -> TensorSpec:
        size = Index.meta(x, indices).shape
        return TensorSpec(broadcast_shape([mask.shape, size]), x.dtype, x.device)

    def vjp(b: Any, g: Tensor, x: Tensor, mask: Tensor, indices: Any, fill: Any) -> Any:
        own = None
        if b.needs[0]:
            zeros = aten.zeros(x.shape, dtype=g.dtype, device=g.device)
            own = aten._unsafe_masked_index_put_accumulate(zeros, mask, indices, g)
        return own, None, [None] * len(indices)

    def samples(s: Any) -> Iterator[Any]:
        mask = s.ints((3, 2), 0, 2) > 0
        yield s.sample(s.tensor((3, 4)), mask, [s.ints((3, 1), -9, 9), s.ints(2, -9, 9)], 0)
        yield s.sample(s.tensor((3, 4)), s.ints((3, 2), 0, 2) > 0, [None, s.ints(2, -9, 9)], 2)


def in_range(x: Tensor, indices: Any) -> list[Any]:
    """The indices, those beyond x moved to its edges."""
    return [
        i if i is None else aten.clamp(i, -x.shape[d], x.shape[d] - 1)
        for d, i in enumerate(indices)
    ]


class UnsafeMaskedIndexPut(Opaque):
    """self with values added at indices where the mask is set; the others may be anything."""

    schema = (
        "_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, "
        "Tensor values) -> Tensor"
    )
    node_name = "UnsafeMaskedIndexPutAccumulate"
    public = "function"

    def decompose(x: Tensor, mask: Tensor, indices: Any, values: Tensor) -> Tensor:
        if not x.numel():
            return aten.clone(x)
        kept = aten.masked_fill(values, aten.logical_not(mask), 0)
        return aten._unsafe_index_put(x, in_range(x, indices), kept, True)

    def meta(x: Tensor, mask: Tensor, indices: Any, values: Tensor) -> TensorSpec:
        return TensorSpec(x.shape, x.dtype, x.device, layout.strides_like(x, None))

    def vjp(b: Any, g: Tensor, x: Tensor, mask: Tensor, indices: Any, values: Tensor) -> Any:
        part = aten._unsafe_masked_index(g, mask, indices, 0) if b.needs[-1] else None
        return g, None, [None] * len(indices), part

    def samples(s: Any) -> Iterator[Any]:
        mask = s.ints((3, 2), 0, 2) > 0
        yield s.sample(
            s.tensor((3, 4)), mask, [s.ints((3, 1), -9, 9), s.ints(2, -9, 9)], s.tensor((3, 2))
        )


class NoTraining(Opaque):
    """Normalisation by running statistics."""

    schema = (
        "_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, "
        "Tensor running_mean, Tensor running_var, float momentum, float eps) "
        "-> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    differentiable = (0,)

    def decompose(
        x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
    ) -> Any:
        return aten.native_batch_norm(x, weight, bias, mean, var, False, momentum, eps)
