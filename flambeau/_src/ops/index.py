"""Several index tensors at once: index (x[i, j]), index_put; masks: masked_fill, masked_select,
masked_scatter, nonzero, where with a condition alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.interchange import array_of, share_array
from flambeau._src.core.size import Size
from flambeau._src.core.symint import SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, check_no_self_overlap, overridable
from flambeau._src.ops.gather import INDEX_TYPES, Written, check_apart, dense_copy, owned
from flambeau._src.ops.kinds import Composite, Opaque, Pointwise
from flambeau._src.ops.op import Declaration, TensorSpec
from flambeau._src.ops.promote import broadcast_shape, check_number
from flambeau._src.ops.strided import to_dtype_of
from flambeau._src.ops.views import sum_to

_MASKS = (dt.uint8, dt.bool_)


def _warn_bytes() -> None:
    _native.unrepeatable()
    warnings.warn(
        "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.",
        stacklevel=8,
    )


def check_indices(t: Tensor, indices: Sequence[Any]) -> None:
    """IndexError for dtypes that cannot index, masks that do not fit, and too many indices."""
    for i in indices:
        if i is not None and i.dtype not in INDEX_TYPES and i.dtype not in _MASKS:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    d = 0
    for i in indices:
        if i is None or i.dtype not in _MASKS:
            d += 1
            continue
        for k in range(i.dim()):
            if d + k < t.dim() and i.shape[k] != t.shape[d + k]:
                raise IndexError(
                    f"The shape of the mask {list(i.shape)} at index {k} does not match the shape "
                    f"of the indexed tensor {list(t.shape)} at index {d + k}"
                )
        d += i.dim()
    if d > t.dim():
        raise IndexError(f"too many indices for tensor of dimension {t.dim()} (got {d})")
    if all(i is None for i in indices):
        raise RuntimeError("sym_strides() called on an undefined Tensor")


def mask_places(mask: Tensor) -> list[Tensor]:
    """The indices of a mask's true elements, a tensor a dimension."""
    if not mask.dim():
        return []
    found = places_of(mask)
    n, (row, column) = found.shape[0], found.stride()
    return [_native.alias(Tensor, found, (n,), (row,), d * column) for d in range(mask.dim())]


def places_of(mask: Tensor) -> Tensor:
    """The indices of the true elements: a row each, a dimension's side by side in memory."""
    mask = dense_copy(mask)
    n = _native.count_true(mask)
    found = _native.empty((n, mask.dim()), dt.int64, mask.device, (1, n))
    _native.true_places(found, mask)
    return found


def without_masks(indices: Sequence[Any]) -> list[Any]:
    """The indices with each mask replaced by the places of its true elements. A stand-in of a
    mask (shape only) counts as all true."""
    found: list[Any] = []
    for i in indices:
        if i is None or i.dtype not in _MASKS:
            found.append(i)
            continue
        if i.dtype is dt.uint8:
            _warn_bytes()
        if i.untyped_storage().is_fake:
            if not i._bits & state.GEOMETRY:
                raise RuntimeError(
                    "the result's shape depends on the values of a mask, which are not known here"
                )
            places = _native.empty((i.numel(),), dt.int64, _native.device("meta"))
            found.extend([places] * i.dim())
        else:
            found.extend(mask_places(i))
    return found


class Layout:
    """How index tensors address t: the result's shape, and the operands of the walk.

    shape    of the result: the broadcast of the indices in the place of the first indexed
             dimension, or in front where the indexed dimensions are not adjacent
    source   t seen over shape, with stride 0 where the indices move it
    """

    __slots__ = ("shape", "source", "indices", "dims", "own", "wide", "first")

    def __init__(self, t: Tensor, indices: Sequence[Any]) -> None:
        self.dims = [d for d, i in enumerate(indices) if i is not None]
        self.indices = [i for i in indices if i is not None]
        try:
            self.wide = broadcast_shape([i.shape for i in self.indices])
        except RuntimeError:
            shapes = ", ".join(str(list(i.shape)) for i in self.indices)
            raise IndexError(
                "shape mismatch: indexing tensors could not be broadcast together with shapes "
                f"{shapes}"
            ) from None
        dims, size, stride = self.dims, t.shape, t.stride()
        adjacent = bool(dims) and dims[-1] - dims[0] + 1 == len(dims)
        self.first = dims[0] if adjacent else 0
        rest = [d for d in range(t.dim()) if d not in dims]
        before = rest[: self.first]
        after = rest[self.first :]
        self.shape = (*(size[d] for d in before), *self.wide, *(size[d] for d in after))
        zeros = [0] * len(self.wide)
        own = [*(stride[d] for d in before), *zeros, *(stride[d] for d in after)]
        self.own = own
        self.source = _native.alias(Tensor, t, self.shape, own, None)

    def spread(self, i: Tensor) -> Tensor:
        """An index tensor (of the broadcast shape or less) seen over the result's shape."""
        n = len(self.wide)
        new = n - i.dim()
        st = [0] * new + [
            0 if s == 1 and w != 1 else x
            for s, x, w in zip(i.shape, i.stride(), self.wide[new:], strict=True)
        ]
        full = [0] * len(self.shape)
        full[self.first : self.first + n] = st
        return _native.alias(Tensor, i, self.shape, full, None)

    def result_strides(self) -> Any:
        """Of a fresh result, by the iterator's rule over the source and the indices."""
        operands = [self.source, *(self.spread(i) for i in self.indices)]
        return _native.geometry_of(operands)[1] if len(operands) <= 16 else None

    def check_range(self, t: Tensor) -> None:
        for d, i in zip(self.dims, self.indices, strict=True):
            n = t.shape[d]
            if not n and i.numel() and self._any():
                raise IndexError("index is out of bounds for dimension with size 0")
            if not self._any():
                continue
            bad = _native.beyond(i, -n, n)
            if bad is not None:
                raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {n}")

    def _any(self) -> bool:
        return all(self.shape)

    def walk(self, op: str, a: Tensor, t: Tensor) -> None:
        """`op` between a (of the result's shape) and the places of t."""
        stride = t.stride()
        if len(self.indices) == 1:
            d = self.dims[0]
            _native.indexed(op, a, self.source, self.spread(self.indices[0]), stride[d], t.shape[d])
            return
        import numpy as np  # lazy: NumPy is heavy

        total: Any = None
        for d, i in zip(self.dims, self.indices, strict=True):
            at = array_of(i).astype(np.int64, copy=False)
            if _native.beyond(i, 0, t.shape[d]) is not None:
                at = np.where(at < 0, at + t.shape[d], at)
            at = at * stride[d]
            total = at if total is None else total + at
        places = share_array(np.ascontiguousarray(total))
        if not places.dim() and not self.wide:
            places = _native.alias(Tensor, places, (), (), 0)
        _native.indexed(op, a, self.source, self.spread(places), 1, 0)


def layout_of(t: Tensor, indices: Sequence[Any]) -> Layout:
    check_indices(t, indices)
    return Layout(t, without_masks(indices))


class Index(Opaque):
    """x[i, j, …] with index tensors (None: the whole dimension)."""

    schema = "index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
    public = ""
    out = "Tensor_out"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            IndexError, "too many indices", s.tensor((2,)), [s.ints((2,), 0, 2), s.ints((2,), 0, 2)]
        )
        yield s.error(
            IndexError,
            "index 5 is out of bounds for dimension 0 with size 2",
            s.tensor((2,)),
            [s.ints((1,), 5, 6)],
        )

    def meta(t: Tensor, indices: Sequence[Any]) -> TensorSpec:
        where = layout_of(t, indices)
        return TensorSpec(where.shape, t.dtype, t.device, where.result_strides())

    def run(t: Tensor, indices: Sequence[Any]) -> Tensor:
        only = indices[-1]
        if plain_index(t, indices):
            return along_one(t, len(indices) - 1, only)
        check_indices(t, indices)
        whole = len(indices) == 1 and only is not None and only.dtype is dt.bool_
        if whole and t.dim() and only.dim() == t.dim():
            return chosen(t, only)
        where = Layout(t, without_masks(indices))
        where.check_range(t)
        out = _native.empty(where.shape, t.dtype, t.device, where.result_strides())
        where.walk("get", out, t)
        return out

    def by_value(extent: Any, t: Tensor, indices: Sequence[Any]) -> TensorSpec:
        check_indices(t, indices)
        found: list[Any] = []
        for i in indices:
            if i is None or i.dtype not in _MASKS:
                found.append(i)
            else:
                if i.dtype is dt.uint8:
                    _warn_bytes()
                found.extend(aten.nonzero_numpy(i))  # whose extent is known by then, or is made
        where = Layout(t, found)
        return TensorSpec(where.shape, t.dtype, t.device, where.result_strides())

    def vjp(b: Any, g: Tensor, t: Tensor, indices: Sequence[Any]) -> Any:
        zeros = aten.new_zeros(g, t.shape)
        return aten.index_put(zeros, indices, g, True), [None] * len(indices)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), [s.ints(5, -3, 3)])
        yield s.sample(s.tensor((2, 3, 4)), [s.ints(3, 0, 2), None, s.ints(3, 0, 4)])
        yield s.sample(s.tensor((3, 4)), [None, s.ints((2, 2), 0, 4)])
        yield s.sample(s.tensor((3, 4)), [s.ints((3, 4), 0, 2) > 0])


def plain_index(t: Tensor, indices: Sequence[Any]) -> bool:
    """Whether one contiguous int64 tensor indexes the contiguous t, along one dimension."""
    only = indices[-1] if len(indices) else None
    return (
        only is not None
        and only.dtype is dt.int64
        and len(indices) <= t.dim()
        and t._contiguous()
        and only._contiguous()
        and all(i is None for i in indices[:-1])
    )


def one_walk(t: Tensor, d: int, index: Tensor) -> tuple[Any, Tensor, Tensor]:
    """For one index along d: the extents walked (the index flat), t and the index over them."""
    size, stride, n = t.shape, t.stride(), t.shape[d]
    bad = _native.beyond(index, -n, n)
    if bad is not None and 0 not in (*size[:d], *size[d + 1 :]):
        if not n:
            raise IndexError("index is out of bounds for dimension with size 0")
        raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {n}")
    flat = (*size[:d], index.numel(), *size[d + 1 :])
    walk = [0] * len(flat)
    walk[d] = 1
    source = _native.alias(
        Tensor, t, flat, (*stride[:d], 0, *stride[d + 1 :]), None
    )  # fmt: skip
    return flat, source, _native.alias(Tensor, index, flat, walk, None)


def along_one(t: Tensor, d: int, index: Tensor) -> Tensor:
    """t indexed by one tensor along dimension d; both contiguous."""
    flat, source, at = one_walk(t, d, index)
    out = _native.empty((*flat[:d], *index.shape, *flat[d + 1 :]), t.dtype, t.device)
    seen = _native.alias(Tensor, out, flat, layout.contiguous_strides(flat), 0)
    _native.indexed("get", seen, source, at, t.stride(d), t.shape[d])
    return out


def put_along_one(op: str, t: Tensor, d: int, index: Tensor, values: Tensor) -> bool:
    """The way back: values (one number, or contiguous and of the whole shape) into t; False when
    they have another shape."""
    shape = (*t.shape[:d], *index.shape, *t.shape[d + 1 :])
    if values.numel() != 1 and (tuple(values.shape) != shape or not values._contiguous()):
        return False
    if values.numel() == 1 and values.dim() > len(shape):
        return False
    flat, target, at = one_walk(t, d, index)
    step = (0,) * len(flat) if values.numel() == 1 else layout.contiguous_strides(flat)
    source = _native.alias(Tensor, values, flat, step, None)
    _native.indexed(op, source, target, at, t.stride(d), t.shape[d])
    return True


class UnsafeIndex(Opaque):
    """`index` whose indices are known to be in range."""

    schema = "_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
    public = ""
    meta = Index.meta
    run = Index.run
    whole = True

    def decompose(t: Tensor, indices: Sequence[Any]) -> Tensor:
        return aten.index(t, indices)

    def vjp(b: Any, g: Tensor, t: Tensor, indices: Sequence[Any]) -> Any:
        zeros = aten.new_zeros(g, t.shape)
        return aten._unsafe_index_put(zeros, indices, g, True), [None] * len(indices)


def chosen(t: Tensor, mask: Tensor) -> Tensor:
    """t's elements where mask (of t's shape) is true, in order."""
    t, mask = dense_copy(t), dense_copy(mask)
    out = _native.empty((_native.count_true(mask),), t.dtype, t.device)
    if out.numel():
        _native.compress(out, t, mask)
    return out


class IndexPut(Written):
    """self with values written (or added) at the places of index tensors."""

    schema = (
        "index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor"
    )
    dense = True

    # The last argument is that of `_index_put_impl`.
    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "shape mismatch: value tensor of shape",
            s.tensor((3,)),
            [s.ints((2,), 0, 2)],
            s.tensor((3,)),
        )

    def check(
        t: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool, unsafe: bool = False
    ) -> None:
        check_indices(t, indices)
        if values.dtype is not t.dtype:
            raise RuntimeError(
                "Index put requires the source and destination dtypes match, got "
                f"{dt.scalar_name(t.dtype)} for the destination and {dt.scalar_name(values.dtype)} "
                "for the source."
            )

    def write(
        out: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool, unsafe: bool = False
    ) -> None:
        mask = indices[0] if len(indices) == 1 else None
        if (
            mask is not None and mask.dtype is dt.bool_ and mask.dim() == out.dim() and out.dim()
            and values.numel() == 1 and not accumulate
        ):  # fmt: skip
            check_indices(out, indices)
            aten.masked_fill_(out, mask, aten.reshape(values, ()))
            return
        if plain_index(out, indices) and put_along_one(
            "add" if accumulate else "put", out, len(indices) - 1, indices[-1], values
        ):
            return
        where = Layout(out, without_masks([owned(i, out) if i is not None else i for i in indices]))
        try:
            fits = broadcast_shape([where.shape, values.shape]) == tuple(where.shape)
        except RuntimeError:
            fits = False
        if not fits:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast "
                f"to indexing result of shape {list(where.shape)}"
            )
        where.check_range(out)
        new = len(where.shape) - values.dim()
        st = [0] * new + [
            0 if s == 1 else x for s, x in zip(values.shape, values.stride(), strict=True)
        ]
        source = _native.alias(Tensor, values, where.shape, st, None)
        where.walk("add" if accumulate else "put", source, out)

    def vjp(
        b: Any, g: Tensor, t: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool,
        unsafe: bool = False,
    ) -> Any:  # fmt: skip
        own = part = None
        if b.needs[0]:
            own = g
            if not accumulate:
                zeros = aten.zeros(values.shape, dtype=g.dtype, device=g.device)
                own = aten.index_put(g, indices, zeros, False)
        if b.needs[-1]:
            part = _taken(g, indices, values)
        return own, [None] * len(indices), part

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), [s.ints(5, 0, 3)], s.tensor((5, 4)), True)
        yield s.sample(s.tensor((3, 4)), [None, s.ints(1, 0, 4)], s.tensor(1))


def _taken(g: Tensor, indices: Sequence[Any], values: Tensor) -> Tensor:
    """The gradient of what `index_put` wrote. With one mask no shape depends on how many places
    are true: `values` says it, or has no extent for them.
    """
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.dtype is not dt.bool_:
        return fit(aten.index(g, indices), values.shape)
    rest = g.dim() - mask.dim()
    if values.dim() > rest and values.shape[0] != 1:
        places = aten.unbind(aten.nonzero_static(mask, size=values.shape[0]), 1)
        return sum_to(aten.index(g, list(places)), values.shape)
    zero = aten.scalar_tensor(0, dtype=g.dtype, device=g.device)
    kept = aten.where(aten.reshape(mask, [*mask.shape, *[1] * rest]), g, zero)
    if mask.dim():
        kept = aten.sum(kept, list(range(mask.dim())))
    inner = values.shape[max(values.dim() - rest, 0) :]
    return aten.reshape(sum_to(kept, inner), values.shape)


def fit(g: Tensor, shape: Sequence[int]) -> Tensor:
    """sum_to for a g whose extents may be those of a stand-in (a mask counted as all true)."""
    return aten.sum(g) if not len(shape) and g.dim() else sum_to(g, shape)


class UnsafeIndexPut(IndexPut):
    """`index_put` whose indices are known to be in range."""

    schema = (
        "_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) "
        "-> Tensor"
    )
    public = ""
    inplace = False
    out = False
    whole = True

    def decompose(t: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool) -> Tensor:
        return aten.index_put(t, indices, values, accumulate)


class IndexPutImpl(IndexPut):
    """What index_put_ is underneath."""

    schema = (
        "_index_put_impl(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False, "
        "bool unsafe=False) -> Tensor"
    )
    whole = True

    def decompose(
        t: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool, unsafe: bool
    ) -> Tensor:
        return aten.index_put(t, indices, values, accumulate)


# ---- masks ----


class _MaskedFill(Pointwise):
    """Shared by both overloads: a contiguous result of self's dtype; the mask is boolean."""

    keep = ("mask",)
    apart = ("mask", "value")

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        t, mask, value = args
        shape = broadcast_shape([mask.shape, t.shape])
        if mask.dtype is not dt.bool_:
            raise RuntimeError(
                "masked_fill_ only supports boolean masks, but got mask with dtype "
                f"{dt.c_name(mask.dtype)}"
            )
        if isinstance(value, Tensor) and value.dim():
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.dim()} dimension(s)."
            )
        if not isinstance(value, Tensor):
            check_number(value, t.dtype)
        elif value.dtype is not t.dtype and not value.untyped_storage().is_fake:
            check_number(value.item(), t.dtype)
        return TensorSpec(shape, t.dtype, t.device)


class MaskedFillTensor(_MaskedFill):
    """self with a 0-dim tensor's value where mask is true."""

    schema = "masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor"

    def expr(k: Any, x: Any, mask: Any, value: Any) -> Any:
        return k.where(mask, value, x)

    def vjp(b: Any, g: Tensor, t: Tensor, mask: Tensor, value: Tensor) -> Any:
        part = None
        if b.needs[2]:
            zero = aten.scalar_tensor(0, dtype=g.dtype, device=g.device)
            part = to_dtype_of(aten.sum(aten.where(mask, g, zero)), value)
        return aten.masked_fill(g, mask, 0) if b.needs[0] else None, None, part

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.ints((3, 1), 0, 2) > 0, s.tensor(()))


class MaskedFillScalar(_MaskedFill):
    """self with a number where mask is true; mask and self broadcast against each other."""

    schema = "masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor"

    def expr(k: Any, x: Any, mask: Any, value: Any) -> Any:
        return k.where(mask, value != 0 if x.dtype == "bool" else value, x)

    def vjp(b: Any, g: Tensor, t: Tensor, mask: Tensor, value: Any) -> Any:
        return aten.masked_fill(g, mask, 0), None


class MaskedSelect(Opaque):
    """The elements where mask is true, in one dimension."""

    schema = "masked_select(Tensor self, Tensor mask) -> Tensor"
    out = "out"
    whole = True

    def compute_out(op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        (target,), (t, mask) = outs, args
        if mask.dtype is dt.bool_ and target.dtype is not t.dtype:
            raise RuntimeError("masked_select(): self and result must have the same scalar type")
        check_no_self_overlap(target)
        check_apart(target, args)
        return False

    def decompose(t: Tensor, mask: Tensor) -> Tensor:
        if mask.dtype is not dt.bool_:
            raise RuntimeError("masked_select: expected BoolTensor for mask")
        shape = broadcast_shape([mask.shape, t.shape])
        flat = aten.reshape(aten.expand(t, shape), (-1,))
        return aten.index(flat, [aten.reshape(aten.expand(mask, shape), (-1,))])

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        """For stand-ins, as if mask were all true: how many there are is known to `run` alone."""
        t, mask = args
        if not mask._bits & state.GEOMETRY:
            raise RuntimeError(
                "the result's shape depends on the values of a mask, which are not known here"
            )
        n = 1
        for s in broadcast_shape([t.shape, mask.shape]):
            n *= s
        return TensorSpec((n,), t.dtype, t.device)

    def run(t: Tensor, mask: Tensor) -> Tensor:
        if mask.dtype is not dt.bool_:
            raise RuntimeError("masked_select: expected BoolTensor for mask")
        shape = broadcast_shape([mask.shape, t.shape])
        return chosen(aten.expand(t, shape), aten.expand(mask, shape))

    def by_value(extent: Any, t: Tensor, mask: Tensor) -> TensorSpec:
        if mask.dtype is not dt.bool_:
            raise RuntimeError("masked_select: expected BoolTensor for mask")
        most = Size(broadcast_shape([t.shape, mask.shape])).numel()
        return TensorSpec((extent(0, most),), t.dtype, t.device)

    def vjp(b: Any, g: Tensor, t: Tensor, mask: Tensor) -> Any:
        shape = broadcast_shape([t.shape, mask.shape])
        zeros = aten.zeros_like(aten.expand(t, shape), memory_format=layout.preserve_format)
        return sum_to(aten.masked_scatter(zeros, mask, g), t.shape), None

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.ints((3, 4), 0, 2) > 0)


def _nth_true(mask: Tensor) -> tuple[Tensor, Tensor]:
    """How many true elements stand before each in a mask, and it; both in one dimension."""
    flat = aten.reshape(mask, (-1,))
    return aten.sub(aten.cumsum(flat.to(dt.int64), 0), 1), flat


class MaskedScatter(Written):
    """self with the elements of source, in order, where mask is true."""

    schema = "masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor"
    whole = True

    def decompose(t: Tensor, mask: Tensor, source: Tensor) -> Tensor:
        MaskedScatter.check(t, mask, source)
        shape, n = broadcast_shape([mask.shape, t.shape]), source.numel()
        t = aten.expand(t, shape)
        at, mask = _nth_true(aten.expand(mask, shape))
        short = "Number of elements of source < number of ones in mask"
        aten._assert_async(aten.le(aten.sum(mask), n), short)
        if not n:
            return aten.clone(t, memory_format=layout.contiguous_format)
        taken = aten.index_select(aten.reshape(source, (-1,)), 0, aten.clamp(at, 0, n - 1))
        made = aten.where(mask, taken, aten.reshape(t, (-1,)))
        return aten.view(made, shape)

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        t, mask, _ = args
        cls.check(*args)
        shape = broadcast_shape([mask.shape, t.shape])
        return TensorSpec(shape, t.dtype, t.device)

    def check(t: Tensor, mask: Tensor, source: Tensor) -> None:
        if t.dtype is not source.dtype:
            raise RuntimeError(
                "masked_scatter: expected self and source to have same dtypes but got"
                f"{dt.scalar_name(t.dtype)} and {dt.scalar_name(source.dtype)}"
            )
        if mask.dtype is not dt.bool_:
            broadcast_shape([mask.shape, t.shape])
            raise RuntimeError(
                "masked_scatter_ only supports boolean masks, but got mask with dtype "
                f"{dt.scalar_name(mask.dtype)}"
            )

    def write(out: Tensor, mask: Tensor, source: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if broadcast_shape([mask.shape, out.shape]) != tuple(out.shape):
            raise RuntimeError(
                f"output with shape {list(out.shape)} doesn't match the broadcast shape "
                f"{list(broadcast_shape([mask.shape, out.shape]))}"
            )
        where = np.broadcast_to(array_of(mask), tuple(out.shape))
        n = int(np.count_nonzero(where))
        if n > source.numel():
            raise RuntimeError("Number of elements of source < number of ones in mask")
        if n:
            array_of(out)[where] = array_of(dense_copy(source)).reshape(-1)[:n]

    def vjp(b: Any, g: Tensor, t: Tensor, mask: Tensor, source: Tensor) -> Any:
        return (
            sum_to(aten.masked_fill(g, mask, 0), t.shape) if b.needs[0] else None,
            None,
            aten.masked_scatter_backward(g, mask, source.shape) if b.needs[2] else None,
        )

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.ints((3, 4), 0, 2) > 0, s.tensor(12))


class MaskedScatterBackward(Opaque):
    """The elements of grad_output where mask is true, then zeros, in the given extents."""

    schema = "masked_scatter_backward(Tensor grad_output, Tensor mask, SymInt[] sizes) -> Tensor"
    public = ""
    whole = True

    def decompose(g: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
        n = Size(sizes).numel()
        at, mask = _nth_true(aten.expand(mask, g.shape))
        at = aten.where(mask, at, aten.full((), n, dtype=dt.int64, device=g.device))
        blank = aten.zeros((n + 1,), dtype=g.dtype, device=g.device)  # the last: what mask hides
        made = aten.scatter(blank, 0, at, aten.reshape(g, (-1,)))
        return aten.view(aten.slice(made, 0, 0, n), sizes)

    def meta(g: Tensor, mask: Tensor, sizes: Sequence[int]) -> TensorSpec:
        return TensorSpec(sizes, g.dtype, g.device)

    def kernel(out: Tensor, g: Tensor, mask: Tensor, sizes: Sequence[int]) -> None:
        import numpy as np  # lazy: NumPy is heavy

        found = array_of(g)[np.broadcast_to(array_of(mask), tuple(g.shape))]
        flat = array_of(out).reshape(-1)
        flat[: found.size] = found
        flat[found.size :] = 0

    def vjp(b: Any, gg: Tensor, g: Tensor, mask: Tensor, sizes: Any) -> Any:
        return aten.masked_scatter(
            aten.zeros(g.shape, dtype=gg.dtype, device=gg.device), mask, gg
        ), None


# ---- where something is ----


class Nonzero(Declaration):
    """The indices of the elements that are not zero, a row each."""

    schema = "nonzero(Tensor self) -> Tensor"
    public = ""
    differentiable = False
    out = "out"

    def compute_out(op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        if outs[0].dtype is not dt.int64:
            raise RuntimeError(
                "nonzero: Expected out tensor to have scalar type Long but got scalar type"
                + dt.scalar_name(outs[0].dtype)
            )
        return False

    def run(t: Tensor) -> Tensor:
        mask = t if t.dtype is dt.bool_ else aten.ne(t, 0)
        if not t.dim():
            n = int(mask.item())
            return _native.empty((n, 0), dt.int64, t.device, (1, n))
        return places_of(mask)

    def by_value(extent: Any, t: Tensor) -> TensorSpec:
        n = extent(0, t.numel())
        return TensorSpec((n, t.dim()), dt.int64, t.device, (1, n))

    def samples(s: Any) -> Any:
        yield s.sample(s.ints((3, 4), 0, 2))


class NonzeroStatic(Opaque):
    """`nonzero` cut or filled up to `size` rows."""

    schema = "nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor"
    differentiable = False

    def meta(t: Tensor, size: int, fill_value: int) -> TensorSpec:
        if size < 0:
            raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
        return TensorSpec((size, t.dim()), dt.int64, t.device)

    def kernel(out: Tensor, t: Tensor, size: int, fill_value: int) -> None:
        if out.numel():
            found, rows = array_of(Nonzero.run(t)), array_of(out)
            rows[: found.shape[0]] = found[:size]
            rows[found.shape[0] :] = fill_value

    def samples(s: Any) -> Any:
        yield s.sample(s.ints((3, 4), 0, 2), size=7)


class NonzeroNumpy(Composite):
    """The indices of the elements that are not zero, a tensor a dimension."""

    schema = "nonzero_numpy(Tensor self) -> Tensor[]"
    public = ""

    def decompose(self: Tensor) -> tuple[Tensor, ...]:
        t = self if self.dim() else aten.unsqueeze(self, 0)
        return tuple(aten.unbind(aten.nonzero(t), 1))


class Argwhere(Composite):
    """The indices of the elements that are not zero, a row each."""

    schema = "argwhere(Tensor self) -> Tensor"

    def decompose(self: Tensor) -> Tensor:
        return aten.nonzero(self)


class WhereCondition(Composite):
    """The indices of the true elements, a tensor a dimension."""

    schema = "where(Tensor condition) -> Tensor[]"

    def decompose(condition: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = aten.nonzero_numpy(condition)
        return found


@overridable
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates, an integer tensor a dimension of `shape`, of places in a flat tensor."""
    if indices.dtype.is_complex or indices.dtype.is_floating_point or indices.dtype is dt.bool_:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, SymInt, Sequence)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes: list[Any] = list(shape) if isinstance(shape, Sequence) else [shape]
    for size in sizes:
        if not isinstance(size, (int, SymInt)):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(size)}")
    if any(size < 0 for size in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    if not sizes:
        return ()
    at = indices.to(dt.int64)
    if not at.numel():  # extents may be 0 then
        return tuple(aten.stack([at] * len(sizes), -1).unbind(-1))
    out, step = [], 1
    for size in reversed(sizes):
        out.append(at.div(step, rounding_mode="floor").remainder(size))
        step = step * size
    return tuple(aten.stack(out[::-1], -1).unbind(-1))  # side by side in memory, as in torch


FUNCTIONS: dict[str, Any] = {"unravel_index": unravel_index}
