"""One index along one dimension: gather, scatter and their sums; index_select, _add, _copy, _fill;
take and put. All run on `_native.indexed` (csrc/indexed.c)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, check_no_self_overlap, copy_into, resize_output
from flambeau._src.ops.copying import fill_with
from flambeau._src.ops.kinds import SIXTEEN, Composite, Opaque, cast, scalar_tensor, wrap_dim
from flambeau._src.ops.op import Op, TensorSpec
from flambeau._src.ops.promote import broadcast_shape
from flambeau._src.ops.strided import to_dtype_of

INDEX_TYPES = (dt.int32, dt.int64)


def at_least_1d(t: Tensor) -> Tensor:
    """t, or a number as a vector of one; no layer sees it."""
    return t if t.dim() else _native.alias(Tensor, t, (1,), (1,), None)


def strided(t: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """t's bytes from its own offset on, in another geometry; no layer sees it."""
    return _native.alias(Tensor, t, size, stride, None)


def along(op: str, a: Tensor, b: Tensor, index: Tensor, dim: int) -> None:
    """`op` between a[p] and b[p with p[dim] = index[p]] for every place p of index."""
    a, b, index = at_least_1d(a), at_least_1d(b), at_least_1d(index)
    size, stride = index.shape, list(b.stride())
    step, stride[dim] = stride[dim], 0
    _native.indexed(op, strided(a, size, a.stride()), strided(b, size, stride), index, step, 0)


def slices(op: str, a: Tensor, b: Tensor, index: Tensor, dim: int) -> None:
    """`op` between slice i of a and slice index[i] of b, both along dim."""
    a, b, index = at_least_1d(a), at_least_1d(b), at_least_1d(index)
    size, stride, at = a.shape, list(b.stride()), [0] * a.dim()
    step, stride[dim], at[dim] = stride[dim], 0, index.stride(0)
    _native.indexed(op, a, strided(b, size, stride), strided(index, size, at), step, b.shape[dim])


def expanded(t: Tensor, size: Sequence[int]) -> Tensor:
    """A number seen at every place of size; no layer sees it."""
    return strided(t, size, (0,) * len(size))


def check_range(index: Tensor, t: Tensor, dim: int) -> None:
    n = t.shape[dim] if t.dim() else 1
    bad = _native.beyond(index, 0, n)
    if bad is not None:
        raise RuntimeError(f"index {bad} is out of bounds for dimension {dim} with size {n}")


def owned(source: Tensor, target: Tensor) -> Tensor:
    """source, copied when it shares bytes with what is written."""
    if source.untyped_storage() is not target.untyped_storage():
        return source
    fresh = _native.empty(source.shape, source.dtype, source.device)
    copy_into(fresh, source)
    return fresh


def check_apart(out: Tensor, inputs: Sequence[Any]) -> None:
    """Refuse an output that shares bytes with an input (where both fill blocks of memory)."""
    storage, size = out.untyped_storage(), out.element_size()
    for t in inputs:
        if isinstance(t, (list, tuple)):
            check_apart(out, t)
            continue
        if not isinstance(t, Tensor) or t.untyped_storage() is not storage:
            continue
        if not t.numel() or not out.numel() or not (layout.is_dense(t) and layout.is_dense(out)):
            continue
        begin, other = out.storage_offset() * size, t.storage_offset() * t.element_size()
        if t is out or (begin < other + t.nbytes and other < begin + out.nbytes):
            raise RuntimeError(
                "unsupported operation: some elements of the input tensor and the written-to "
                "tensor "
                "refer to a single memory location. Please clone() the tensor before performing "
                "the "
                "operation."
            )


class Read(Opaque):
    """Elements picked from tensors; out= may not share their bytes."""

    out: bool | str = "out"

    @classmethod
    def compute_out(cls, op: Op, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        (target,) = outs
        spec = cls.infer(op, args)
        if spec.dtype is not target.dtype or spec.device != target.device:
            return False
        check_no_self_overlap(target)
        resize_output(target, spec.shape, spec.stride)
        check_apart(target, args)
        cls.compute(op, target, args)
        return True


class Written(Opaque):
    """self with some places overwritten: `check(self, …)` and `write(out, …)`, where out holds
    self's values. The in-place form writes into self."""

    inplace = True
    out: bool | str = True
    check: Callable[..., None]
    write: Callable[..., None]
    dense = False  # the result keeps self's order of dimensions instead of being contiguous

    @classmethod
    def infer(cls, op: Op, args: tuple[Any, ...]) -> TensorSpec:
        cls.check(*args)
        t = args[0]
        return TensorSpec(
            t.shape, t.dtype, t.device, layout.strides_like(t, None) if cls.dense else None
        )

    @classmethod
    def compute(cls, op: Op, out: Tensor, args: tuple[Any, ...]) -> None:
        copy_into(out, args[0])
        cls.write(out, *args[1:])

    @classmethod
    def compute_into(cls, op: Op, target: Tensor, args: tuple[Any, ...]) -> None:
        cls.check(*args)
        check_apart(target, args[1:])
        rest = [owned(a, target) if isinstance(a, Tensor) else a for a in args[1:]]
        if not target.untyped_storage().is_fake:
            cls.write(target, *rest)


# ---- gather ----


def check_index_shape(t: Tensor, dim: int, index: Tensor, name: str) -> int:
    """dim from the front; index must have t's rank and fit beside it."""
    d = wrap_dim(dim, t.dim())
    if max(index.dim(), 1) != max(t.dim(), 1):
        raise RuntimeError(f"Index tensor must have the same number of dimensions as {name} tensor")
    return d


class Gather(Read):
    """out[p] = self[p with p[dim] = index[p]]."""

    schema = "gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"
    out = "out"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError, "same number of dimensions", s.tensor((2, 3)), 0, s.ints((2,), 0, 2)
        )
        yield s.error(
            RuntimeError,
            "index 5 is out of bounds for dimension 0 with size 2",
            s.tensor((2,)),
            0,
            s.ints((1,), 5, 6),
        )

    def meta(t: Tensor, dim: int, index: Tensor, sparse_grad: bool) -> TensorSpec:
        d = wrap_dim(dim, t.dim())
        if index.numel():
            if index.dtype not in INDEX_TYPES:
                raise RuntimeError("gather(): Expected dtype int32/int64 for index")
            check_index_shape(t, dim, index, "input")
            for i, s in enumerate(index.shape):
                if i != d and t.dim() and s > t.shape[i]:
                    raise RuntimeError(
                        f"Size does not match at dimension {i} expected index {list(index.shape)} "
                        f"to be no larger than self {list(t.shape)} apart from dimension {d}"
                    )
        return TensorSpec(index.shape, t.dtype, t.device)

    def kernel(out: Tensor, t: Tensor, dim: int, index: Tensor, sparse_grad: bool) -> None:
        if not index.numel():
            return
        d = wrap_dim(dim, t.dim())
        check_range(index, t, d)
        along("get", out, t, index, d)

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor, sparse_grad: bool) -> Any:
        return aten.scatter_add(aten.new_zeros(g, t.shape), dim, index, g), None

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 0, s.ints((2, 3), 0, 3))
        yield s.sample(s.tensor((3, 4)), 1, s.ints((3, 5), 0, 4))
        yield s.sample(s.tensor(()), 0, s.ints((), 0, 1))
        yield s.sample(s.tensor((3, 4)), 0, s.ints((0, 3), 0, 3))
        yield s.sample(s.tensor((2, 3, 4, 5)), 1, s.ints((2, 2, 4, 5), 0, 3))


# ---- scatter ----


def check_scatter(t: Tensor, dim: int, index: Tensor, src: Tensor | None) -> None:
    d = wrap_dim(dim, t.dim())
    if index.numel() and index.dtype not in INDEX_TYPES:
        raise RuntimeError("scatter(): Expected dtype int32/int64 for index")
    if src is not None and src.dtype is not t.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if not index.numel():
        return
    check_index_shape(t, dim, index, "self")
    if src is not None and max(src.dim(), 1) < max(t.dim(), 1):
        wrap_dim(t.dim() - 1, src.dim())
    shape, own = index.shape or (1,), t.shape or (1,)
    too_big = any(s > own[i] for i, s in enumerate(shape) if i != d)
    if src is not None:
        theirs = src.shape or (1,)
        if len(theirs) == len(shape):
            too_big |= any(s > theirs[i] for i, s in enumerate(shape))
        else:
            raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
        if too_big:
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self {list(t.shape)} "
                "apart "
                f"from dimension {d} and to be no larger size than src {list(src.shape)}"
            )
    elif too_big:
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(t.shape)} apart "
            f"from dimension {d}"
        )


def scatter_into(op: str, out: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
    """out[p with p[dim] = index[p]] = (or op=) src[p]. Sums and products of 16-bit floats are
    taken in float32 and rounded once."""
    if not index.numel():
        return
    d = wrap_dim(dim, out.dim())
    check_range(index, out, d)
    if op in ("add", "mul") and out.dtype in SIXTEEN:
        wide = cast(out, dt.float32)
        along(op, cast(src, dt.float32), wide, index, d)
        copy_into(out, wide)
        return
    along(op, src, out, index, d)


def number_as(value: Any, t: Tensor) -> Tensor:
    """A Python number in t's dtype, for kernels."""
    return scalar_tensor(value, t.dtype)


def src_gradient(g: Tensor, dim: int, index: Tensor, src: Tensor, name: str) -> Tensor:
    """What the places of index get back; src may not be larger than index then."""
    if tuple(src.shape) != tuple(index.shape) and not g._bits & state.GEOMETRY:
        raise RuntimeError(
            f"Function {name} returned an invalid gradient at index 1 - got {list(index.shape)} "
            "but "
            f"expected shape compatible with {list(src.shape)}"
        )
    return aten.gather(g, dim, index)


class ScatterSrc(Written):
    """self with src written where index points along dim."""

    schema = "scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"

    def check(t: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
        check_scatter(t, dim, index, src)

    def write(out: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
        scatter_into("put", out, dim, index, src)

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
        return (
            aten.scatter(g, dim, index, 0) if b.needs[0] else None,
            None,
            src_gradient(g, dim, index, src, "ScatterBackward0") if b.needs[2] else None,
        )

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((4, 3)), 0, s.ints((1, 3), 0, 4), s.tensor((1, 3)))


def numbers_like(t: Tensor, index: Tensor, value: Any) -> Tensor:
    """A number as a source of scatter."""
    return aten.full(
        tuple(index.shape), cast_number(value, t.dtype), dtype=t.dtype, device=t.device
    )


class ScatterValue(Written):
    """self with a number written where index points along dim."""

    schema = "scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"

    def check(t: Tensor, dim: int, index: Tensor, value: Any) -> None:
        check_scatter(t, dim, index, None)

    def write(out: Tensor, dim: int, index: Tensor, value: Any) -> None:
        scatter_into("put", out, dim, index, expanded(number_as(value, out), index.shape))

    def decompose(t: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
        return aten.scatter(t, dim, index, numbers_like(t, index, value))

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor, value: Any) -> Any:
        return aten.scatter(g, dim, index, 0), None

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 0, s.ints((2, 3), 0, 3), 2.0)


_REDUCE = {"add": "add", "multiply": "mul"}


def _reduction(reduce: str) -> str:
    if reduce not in _REDUCE:
        raise RuntimeError("reduce argument must be either add or multiply.")
    return _REDUCE[reduce]


class ScatterSrcReduce(Written):
    """self combined ('add' or 'multiply') with src where index points along dim."""

    schema = (
        "scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor"
    )
    whole = True

    def decompose(t: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> Tensor:
        how = {"add": "sum", "mul": "prod"}[_reduction(reduce)]
        return aten.scatter_reduce(t, dim, index, src, how)

    def check(t: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> None:
        _reduction(reduce)
        check_scatter(t, dim, index, src)

    def write(out: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> None:
        scatter_into(_REDUCE[reduce], out, dim, index, src)


class ScatterValueReduce(Written):
    """self combined ('add' or 'multiply') with a number where index points along dim."""

    schema = (
        "scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) "
        "-> Tensor"
    )

    def check(t: Tensor, dim: int, index: Tensor, value: Any, reduce: str) -> None:
        _reduction(reduce)
        check_scatter(t, dim, index, None)

    def write(out: Tensor, dim: int, index: Tensor, value: Any, reduce: str) -> None:
        source = expanded(number_as(value, out), index.shape)
        scatter_into(_REDUCE[reduce], out, dim, index, source)

    def decompose(t: Tensor, dim: int, index: Tensor, value: Any, reduce: str) -> Tensor:
        _reduction(reduce)
        return aten.scatter(t, dim, index, numbers_like(t, index, value), reduce=reduce)


class ScatterAdd(Written):
    """self with src added where index points along dim."""

    schema = "scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"
    whole = True

    def decompose(t: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
        return aten.scatter_reduce(t, dim, index, src, "sum")

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "Expected self.dtype to be equal to src.dtype",
            s.tensor((2,)),
            0,
            s.ints((1,), 0, 1),
            s.ints((1,), 0, 1),
        )

    def check(t: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
        check_scatter(t, dim, index, src)

    def write(out: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
        scatter_into("add", out, dim, index, src)

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
        part = src_gradient(g, dim, index, src, "ScatterAddBackward0") if b.needs[2] else None
        return g if b.needs[0] else None, None, part

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 0, s.ints((2, 3), 0, 3), s.tensor((2, 3)))
        yield s.sample(s.tensor(()), 0, s.ints((), 0, 1), s.tensor(()))
        yield s.sample(s.tensor((3, 4)), 0, s.ints((0, 3), 0, 3), s.tensor((0, 3)))
        i = s.ints((2, 2, 4, 5), 0, 3)
        yield s.sample(s.tensor((2, 3, 4, 5)), 1, i, s.tensor((2, 2, 4, 5)))


_REDUCTIONS = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}


def _neutral(reduce: str, d: dt.dtype) -> Any:
    """What a place starts from when self does not take part."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod") if d is not dt.bool_ else reduce == "prod"
    if d.is_floating_point:
        return float("-inf") if reduce == "amax" else float("inf")
    if d is dt.bool_:
        return reduce == "amin"
    bits = 8 * d.itemsize - int(d.is_signed)
    low = -(2**bits) if d.is_signed else 0
    return low if reduce == "amax" else 2**bits - 1


class ScatterReduce(Written):
    """self reduced with src where index points along dim; without include_self, places that are
    met start from nothing."""

    schema = (
        "scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, "
        "bool include_self=True) -> Tensor"
    )

    def check(
        t: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
    ) -> None:
        if reduce not in _REDUCTIONS:
            raise RuntimeError(
                f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
            )
        check_scatter(t, dim, index, src)

    def write(
        out: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
    ) -> None:
        d = out.dtype
        if (reduce == "mean" and d is dt.bool_) or (reduce in ("amax", "amin") and d.is_complex):
            raise NotImplementedError(
                f'"scatter_gather_tensor_cpu_reduce_{reduce}" not implemented for '
                f"'{dt.scalar_name(d)}'"
            )
        if not index.numel():
            return
        if not include_self:
            start = scalar_tensor(_neutral(reduce, out.dtype), out.dtype)
            scatter_into("put", out, dim, index, expanded(start, index.shape))
        scatter_into(_REDUCTIONS[reduce], out, dim, index, src)
        if reduce != "mean":
            return
        count = _native.empty(out.shape, out.dtype, out.device)
        fill_with(count, int(include_self))
        scatter_into("add", count, dim, index, expanded(number_as(1, out), index.shape))
        count = aten.masked_fill(count, aten.eq(count, 0), 1)
        whole = dt.is_integral(out.dtype)
        copy_into(out, aten.div(out, count, rounding_mode="floor" if whole else None))

    def vjp(
        b: Any,
        g: Tensor,
        t: Tensor,
        dim: int,
        index: Tensor,
        src: Tensor,
        reduce: str,
        include_self: bool,
    ) -> Any:
        own, theirs = reduced_gradients(b, g, t, dim, index, src, reduce, include_self)
        if own is not None and b.needs[0] and not include_self:
            own = aten.scatter(own, dim, index, 0)
        return own if b.needs[0] else None, None, theirs if b.needs[2] else None

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 0, s.ints((2, 3), 0, 3), s.tensor((2, 3)), "sum")
        yield s.sample(s.tensor((3, 4)), 0, s.ints((2, 3), 0, 3), s.tensor((2, 3)), "mean")
        yield s.sample(s.tensor((3, 4)), 0, s.ints((2, 3), 0, 3), s.tensor((2, 3)), "prod")
        yield s.sample(s.tensor((3, 4)), 0, s.ints((2, 3), 0, 3), s.tensor((2, 3)), "amax")


def reduced_gradients(
    b: Any,
    g: Tensor,
    t: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    include_self: bool,
) -> tuple[Any, Any]:
    """Gradients of scatter_reduce for self (as if it always took part) and src."""
    if b.needs[2] and tuple(src.shape) != tuple(index.shape):
        src_gradient(g, dim, index, src, "ScatterReduceBackward0")
        src = _part(src, index.shape)  # only for finding out what is saved
    if reduce == "sum":
        return g, aten.gather(g, dim, index) if b.needs[2] else None
    if reduce == "mean":
        n = aten.ones_like(g) if include_self else aten.zeros_like(g)
        n = aten.scatter_add(n, dim, index, aten.ones_like(src))
        n = aten.masked_fill(n, aten.eq(n, 0), 1)
        own = g / n
        return own, aten.gather(g, dim, index) / aten.gather(n, dim, index)
    out = b.out
    if reduce == "prod":
        return _product_gradients(b, g, t, dim, index, src, include_self, out)
    value = aten.gather(out, dim, index)
    own_hit, src_hit = aten.eq(t, out).to(g.dtype), aten.eq(src, value).to(g.dtype)
    share = g / aten.scatter_add(own_hit, dim, index, src_hit)
    return share * own_hit, aten.gather(share, dim, index) * src_hit


def _part(src: Tensor, shape: Sequence[int]) -> Tensor:
    for d, n in enumerate(shape):
        src = aten.slice(src, d, 0, n)
    return src


def _product_gradients(
    b: Any,
    g: Tensor,
    t: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    include_self: bool,
    out: Tensor,
) -> tuple[Any, Any]:
    """Each factor gets the product of the others: the result divided by it, or, where it is the
    only zero, the product taken with one in its place."""
    own = theirs = None
    if b.needs[0]:
        ones = aten.masked_fill(t, aten.eq(t, 0), 1)
        product = aten.scatter_reduce(ones, dim, index, src, "prod", include_self=include_self)
        own = g * product / ones
    if b.needs[2]:
        zero = aten.eq(src, 0)
        zeros = aten.scatter_add(aten.zeros_like(t), dim, index, zero.to(t.dtype))
        single = aten.bitwise_and(zero, aten.eq(aten.gather(zeros, dim, index), 1))
        without = aten.scatter_reduce(
            t, dim, index, aten.masked_fill(src, single, 1), "prod", include_self=include_self
        )
        theirs = aten.where(
            single,
            aten.gather(g * without, dim, index),
            aten.gather(g * out, dim, index) / aten.masked_fill(src, zero, 1),
        )
    return own, theirs


# ---- whole slices along one dimension ----


class IndexSelect(Read):
    """The slices of a dimension that index names."""

    schema = "index_select(Tensor self, int dim, Tensor index) -> Tensor"
    out = "out"

    def meta(t: Tensor, dim: int, index: Tensor) -> TensorSpec:
        if index.dim() > 1:
            raise IndexError("index_select(): Index is supposed to be a vector")
        d = wrap_dim(dim, t.dim())
        if index.dtype not in INDEX_TYPES:
            raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
        n = index.numel()
        if not t.dim():
            if n != 1:
                raise RuntimeError(
                    f"index_select(): Index to scalar can have only 1 value, got {n} value(s)"
                )
            return TensorSpec((), t.dtype, t.device)
        size = list(t.shape)
        size[d] = n
        return TensorSpec(size, t.dtype, t.device)

    def kernel(out: Tensor, t: Tensor, dim: int, index: Tensor) -> None:
        d = wrap_dim(dim, t.dim())
        n = t.shape[d] if t.dim() else 1
        if _native.beyond(index, 0, n) is not None:
            raise IndexError("index out of range in self")
        slices("get", out, t, index, d)

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor) -> Any:
        return aten.index_add(aten.new_zeros(g, t.shape), dim, index, g), None

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 1, s.ints(5, 0, 4))
        yield s.sample(s.tensor(()), 0, s.ints(1, 0, 1))


def _chosen(g: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The slices of g that index names, in source's shape."""
    if not source.dim():
        return aten.index_select(g, dim, aten.squeeze(index, 0) if index.dim() else index)
    return aten.expand(aten.index_select(g, dim, index), source.shape)


class IndexAdd(Written):
    """self with alpha times the slices of source added to those that index names."""

    schema = (
        "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor"
    )

    def check(t: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> None:
        d = wrap_dim(dim, t.dim())
        n = index.numel()
        if index.dim() > 1:
            raise IndexError(
                f"index_add_(): Index is supposed to be a vector, but got dim: {index.dim()} with "
                f"type: {dt.scalar_name(index.dtype)} and size: {list(index.shape)}"
            )
        if index.dtype not in INDEX_TYPES:
            raise RuntimeError(
                "index_add_(): Expected dtype int32/int64 for index but got: "
                f"{dt.scalar_name(index.dtype)}"
            )
        if source.dtype is not t.dtype:
            raise RuntimeError(
                f"index_add_(): self ({dt.scalar_name(t.dtype)}) and source "
                f"({dt.scalar_name(source.dtype)}) must have the same scalar type"
            )
        if d and d >= source.dim():
            raise RuntimeError(
                f"index_add_(): Indexing dim {d} is out of bounds of the source tensor with dim "
                f"{source.dim()}"
            )
        have = source.shape[d] if source.dim() else 1
        if n != have:
            raise RuntimeError(
                f"index_add_(): Number of indices ({n}) should be equal to source.size(dim): "
                f"({have}), for dim: {d}"
            )
        own, theirs = list(t.shape), list(source.shape)
        if own and theirs:
            del own[d], theirs[d]
        if own != theirs:
            raise RuntimeError(
                "source tensor shape must match self tensor shape, excluding the specified "
                f"dimension. Got self.shape = {list(t.shape)} source.shape = {list(source.shape)}"
            )

    def write(out: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> None:
        d = wrap_dim(dim, out.dim())
        check_range(index, out, d)
        if alpha != 1:
            source = aten.mul(source, cast_number(alpha, source.dtype))
        slices("add", source, out, index, d)

    def vjp(
        b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any
    ) -> Any:
        part = None
        if b.needs[2]:
            part = _chosen(g, dim, index, source)
            part = part if alpha == 1 else aten.mul(part, alpha)
        return g if b.needs[0] else None, None, part

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 0, s.ints(5, 0, 3), s.tensor((5, 4)))


def cast_number(value: Any, d: dt.dtype) -> Any:
    """A Python number as the dtype holds it (integers lose their fraction)."""
    if d is dt.bool_:
        return bool(value)
    return int(value) if dt.is_integral(d) and not isinstance(value, complex) else value


class IndexCopy(Written):
    """self with the slices that index names replaced by those of source."""

    schema = "index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor"

    def check(t: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
        d = wrap_dim(dim, t.dim())
        if index.dim() > 1:
            raise IndexError(
                f"index_copy_(): Index should have dimension 1 or 0 (got {index.dim()})"
            )
        n = index.numel()
        if not source.dim() and n != 1:
            raise IndexError(
                f"index_copy_(): When source is scalar, index should have one element (got {n})"
            )
        if source.dim() != t.dim() and source.dim() and t.dim():
            raise IndexError(
                "index_copy_(): When source and destination are not scalars, their dimensionality "
                f"must match. Source dimensionality ({source.dim()}), destination dimensionality "
                f"({t.dim()})"
            )
        if index.dtype is not dt.int64:
            raise RuntimeError(
                "index_copy_(): Expected a long tensor for index, but got "
                f"{dt.scalar_name(index.dtype)}"
            )
        if source.dtype is not t.dtype:
            raise RuntimeError(
                "index_copy_(): self and source expected to have the same dtype, but got (self) "
                f"{dt.scalar_name(t.dtype)} and (source) {dt.scalar_name(source.dtype)}"
            )
        own, theirs = list(t.shape), list(source.shape)
        if own:
            del own[d]
        if theirs:
            del theirs[d]
        if own != theirs:
            first = " ".join(map(str, own))
            raise RuntimeError(
                "index_copy_(): Source/destination tensor must have same slice shapes. Destination "
                f"slice shape: {first} at dimension {d} and source slice shape: "
                f"{' '.join(map(str, theirs))} at dimension 0."
            )
        if source.dim() and n != source.shape[d]:
            raise IndexError(
                f"index_copy_(): Number of indices ({n}) should be equal to source.size(dim) "
                f"({source.shape[d]})"
            )

    def write(out: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
        d = wrap_dim(dim, out.dim())
        n = out.shape[d] if out.dim() else 1
        bad = _native.beyond(index, 0, n)
        if bad is not None:
            raise IndexError(
                f"index_copy_(): index {bad} is out of bounds for dimension {d} with size {n}"
            )
        slices("put", source, out, index, d)

    def decompose(t: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
        IndexCopy.check(t, dim, index, source)
        flat = t if t.dim() else aten.reshape(t, (1,))
        d = wrap_dim(dim, t.dim())
        size = list(flat.shape)
        size[d] = index.numel()
        at = [*[None] * d, aten.reshape(index, (-1,))]
        made = aten.index_put(flat, at, aten.reshape(source, size))
        return made if t.dim() else aten.reshape(made, ())

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
        return (
            aten.index_fill(g, dim, index, 0) if b.needs[0] else None,
            None,
            _chosen(g, dim, index, source) if b.needs[2] else None,
        )

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 1, s.ints(1, 0, 4), s.tensor((3, 1)))


def check_fill(t: Tensor, dim: int, index: Tensor, value: Any) -> None:
    if index.dtype is not dt.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    wrap_dim(dim, t.dim())
    if index.dim() > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    if isinstance(value, complex) and not t.dtype.is_complex:
        raise RuntimeError(
            "index_fill_(): Converting complex Scalar to non-complex type is not supported"
        )


def fill_slices(out: Tensor, dim: int, index: Tensor, value: Tensor) -> None:
    d = wrap_dim(dim, out.dim())
    n = out.shape[d] if out.dim() else 1
    bad = _native.beyond(index, -n, n)
    if bad is not None:
        raise IndexError(f"index {bad} is out of bounds for dimension {d} with size {n}")
    size = list(out.shape) or [1]
    size[d] = index.numel()
    slices("put", expanded(value, size), out, index, d)


class IndexFillTensor(Written):
    """self with the slices that index names filled with a 0-dim tensor's value."""

    schema = "index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor"
    dense = True

    def check(t: Tensor, dim: int, index: Tensor, value: Tensor) -> None:
        if value.dim():
            raise RuntimeError(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.dim()} dimension(s)."
            )
        check_fill(t, dim, index, None)

    def write(out: Tensor, dim: int, index: Tensor, value: Tensor) -> None:
        fill_slices(out, dim, index, cast(value, out.dtype))

    def decompose(t: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
        check_fill(t, dim, index, None)
        flat = t if t.dim() else aten.reshape(t, (1,))
        at = [*[None] * wrap_dim(dim, t.dim()), aten.reshape(index, (-1,))]
        made = aten.index_put(flat, at, to_dtype_of(value, t))
        return made if t.dim() else aten.reshape(made, ())

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor, value: Tensor) -> Any:
        part = None
        if b.needs[2]:
            # A slice counts once, however often it is named; no shape depends on the index.
            extents = [n if d == dim % max(g.dim(), 1) else 1 for d, n in enumerate(g.shape)]
            named = aten.zeros(extents, dtype=dt.bool_, device=g.device)
            named = aten.index_fill(named, dim, index, 1)
            zero = aten.scalar_tensor(0, dtype=g.dtype, device=g.device)
            part = to_dtype_of(aten.sum(aten.where(named, g, zero)), value)
        return aten.index_fill(g, dim, index, 0) if b.needs[0] else None, None, part

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 1, s.ints(2, 0, 4), s.tensor(()))


class IndexFillScalar(Written):
    """self with the slices that index names filled with a number."""

    schema = "index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"
    dense = True

    def check(t: Tensor, dim: int, index: Tensor, value: Any) -> None:
        check_fill(t, dim, index, value)

    def write(out: Tensor, dim: int, index: Tensor, value: Any) -> None:
        fill_slices(out, dim, index, number_as(value, out))

    def decompose(t: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
        check_fill(t, dim, index, value)
        filling = aten.full((), cast_number(value, t.dtype), dtype=t.dtype, device=t.device)
        return aten.index_fill(t, dim, index, filling)

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: Tensor, value: Any) -> Any:
        return aten.index_fill(g, dim, index, 0), None


# ---- places in the flattened tensor ----


def check_flat(t: Tensor, index: Tensor) -> None:
    n = t.numel()
    bad = _native.beyond(index, -n, n)
    if bad is not None:
        raise IndexError(f"out of range: tried to access index {bad} on a tensor of {n} elements.")


def flat_walk(op: str, a: Tensor, t: Tensor, index: Tensor) -> None:
    """`op` between a[p] and the element of t (contiguous) that index[p] counts."""
    a, index = at_least_1d(a), at_least_1d(index)
    _native.indexed(op, a, expanded(t, a.shape), index, 1, t.numel())


class Take(Read):
    """Elements by their place in the flattened tensor, in index's shape."""

    schema = "take(Tensor self, Tensor index) -> Tensor"
    reference = "numpy.take"
    out = "out"

    def meta(t: Tensor, index: Tensor) -> TensorSpec:
        if index.dtype is not dt.int64:
            raise RuntimeError(
                f"take(): Expected a long tensor for index, but got {dt.scalar_name(index.dtype)}"
            )
        if not t.numel() and index.numel():
            raise IndexError("take(): tried to take from an empty tensor")
        return TensorSpec(index.shape, t.dtype, t.device)

    def kernel(out: Tensor, t: Tensor, index: Tensor) -> None:
        if not index.numel():
            return
        check_flat(t, index)
        flat_walk("get", out, dense_copy(t), index)

    def decompose(t: Tensor, index: Tensor) -> Tensor:
        return aten.index(aten.reshape(t, (-1,)), [index])

    def vjp(b: Any, g: Tensor, t: Tensor, index: Tensor) -> Any:
        return aten.put(aten.zeros_like(t), index, g, True), None

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.ints((2, 2), -12, 12))


def dense_copy(t: Tensor) -> Tensor:
    """t, or a contiguous copy of it; no layer sees it."""
    if t._contiguous():
        return t
    fresh = _native.empty(t.shape, t.dtype, t.device)
    copy_into(fresh, t)
    return fresh


class Put(Written):
    """self with source written (or added) at places of the flattened tensor."""

    schema = "put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor"
    public_inplace = "method"
    dense = True

    def check(t: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> None:
        if source.numel() != index.numel():
            raise IndexError(
                "put_(): Expected source and index to have the same number of elements, but got "
                f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
            )
        if index.dtype is not dt.int64:
            raise RuntimeError(
                f"put_(): Expected a long tensor for index, but got {dt.scalar_name(index.dtype)}"
            )
        if source.dtype is not t.dtype:
            raise RuntimeError(
                "put_(): self and source expected to have the same dtype, but got self.dtype = "
                f"{dt.scalar_name(t.dtype)} and source.dtype = {dt.scalar_name(source.dtype)}"
            )
        if not t.numel() and index.numel():
            raise IndexError("put_(): tried to put elements into an empty tensor")

    def write(out: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> None:
        if not index.numel():
            return
        check_flat(out, index)
        flat = dense_copy(out)
        n = (index.numel(),)
        source, index = strided(dense_copy(source), n, (1,)), strided(dense_copy(index), n, (1,))
        flat_walk("add" if accumulate else "put", source, flat, index)
        if flat is not out:
            copy_into(out, flat)

    def decompose(t: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
        at, flat = aten.reshape(index, (-1,)), aten.reshape(t, (-1,))
        made = aten.index_put(flat, [at], aten.reshape(source, (-1,)), accumulate)
        return aten.reshape(made, t.shape)

    def vjp(b: Any, g: Tensor, t: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Any:
        own = part = None
        if b.needs[0]:
            zeros = None if accumulate else aten.zeros(source.shape, dtype=g.dtype, device=g.device)
            own = g if accumulate else aten.put(g, index, zeros, False)
        if b.needs[2]:
            part = aten.reshape(aten.take(g, index), source.shape)
        return own, None, part

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.ints(2, 0, 12), s.tensor(2), True)


class TakeAlongDim(Composite):
    """`gather` with input and indices broadcast against each other; without dim, flattened."""

    schema = "take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor"
    out = "out"

    def decompose(self: Tensor, indices: Tensor, dim: int | None) -> Tensor:
        return aten.gather(*TakeAlongDim.operands(self, indices, dim))

    def decompose_out(self: Tensor, indices: Tensor, dim: int | None, out: Tensor) -> Tensor:
        return aten.gather(*TakeAlongDim.operands(self, indices, dim), out=out)

    def operands(self: Tensor, indices: Tensor, dim: int | None) -> tuple[Tensor, int, Tensor]:
        """What gather is called with."""
        if indices.dtype is not dt.int64:
            raise RuntimeError(
                "torch.take_along_dim(): dtype of indices should be Long but got "
                f"{dt.scalar_name(indices.dtype)}"
            )
        if dim is None:
            return aten.view(self, (-1,)), 0, aten.view(indices, (-1,))
        if self.dim() != indices.dim():
            raise RuntimeError(
                "torch.take_along_dim(): input and indices should have the same number of "
                f"dimensions, but got {self.dim()} dimensions for input, and {indices.dim()} "
                "dimensions for indices"
            )
        d = wrap_dim(dim, self.dim())
        own, theirs = list(self.shape), list(indices.shape)
        if own:
            own[d], theirs[d] = indices.shape[d], self.shape[d]
        indices = aten.expand(indices, broadcast_shape([indices.shape, own]))
        wide = aten.expand(self, broadcast_shape([self.shape, theirs]))
        return wide, d, aten.remainder(indices, self.shape[d] if self.dim() else 1)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.ints((3, 2), 0, 4), 1)
