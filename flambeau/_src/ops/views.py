"""Views: other geometries over the same bytes. Each answers (size, stride, offset) for one tensor;
autograd, functionalisation and the C fast path need nothing more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.symint import SymBool, SymInt, sym_max, sym_min
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import View, make_view, wrap_dim
from flambeau._src.ops.op import Declaration, Op, TensorSpec, packet

LAST = 2**63 - 1  # the end of a slice that has none
Geometry = tuple[Sequence[int], Sequence[int], int]


class FastView(View):
    """A view whose plain call C makes. `fast_kind` names the C code."""

    fast_kind = ""

    @classmethod
    def fast(cls, op: Op) -> Any:
        return _native.Fast(cls.fast_kind, 1) if op.variant == "functional" else None


class ReshapedInPlace(View):
    """A view that also has an in-place form, which changes the tensor's own geometry."""

    @classmethod
    def run_inplace(cls, *args: Any) -> None:
        t = args[0]
        size, stride, offset = cls.view(*args)[:3]
        t._set(t.untyped_storage(), offset, tuple(size), tuple(stride))


def infer_size(shape: Sequence[int], numel: int) -> tuple[int, ...]:
    """shape with its -1 filled in; RuntimeError when it does not hold numel elements."""
    known, at = 1, -1
    for i, s in enumerate(shape):
        if s == -1:
            if at >= 0:
                raise RuntimeError("only one dimension can be inferred")
            at = i
        elif s < 0:
            raise RuntimeError(f"invalid shape dimension {s} at index {i} of shape {list(shape)}")
        else:
            known *= s
    if at < 0:
        if known == numel:
            return tuple(shape)
    elif known == 0:
        if numel == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(shape)} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
            )
    elif numel % known == 0:
        return (*shape[:at], numel // known, *shape[at + 1 :])
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


class ViewDtype(View):
    """The bytes read as another dtype; the last dimension takes up a change of the element size."""

    schema = "view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)"
    public = "method"
    differentiable = False

    def view(t: Tensor, dtype: dt.dtype) -> Any:
        old, new = t.dtype.itemsize, dtype.itemsize
        size, stride, offset = list(t.shape), list(t.stride()), t.storage_offset()
        if old == new:
            return size, stride, offset, dtype
        both = f"{dt.scalar_name(t.dtype)} as {dt.scalar_name(dtype)}"
        names = f"to view {both} (different element sizes)"
        if not size:
            raise RuntimeError(f"self.dim() cannot be 0 {names}")
        if stride[-1] != 1 and size[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 {names}, but got {stride[-1]}")
        if old > new:
            r = old // new
            size[-1] *= r
            stride = [s * r for s in stride[:-1]] + [1]
            return size, stride, offset * r, dtype
        r = new // old
        if size[-1] % r:
            raise RuntimeError(
                f"self.size(-1) must be divisible by {r} {names}, but got {size[-1]}"
            )
        if offset % r:
            raise RuntimeError(
                f"self.storage_offset() must be divisible by {r} {names}, but got {offset}"
            )
        for i, s in enumerate(stride[:-1]):
            if s % r:
                raise RuntimeError(
                    f"self.stride({i}) must be divisible by {r} {names}, but got {s}"
                )
        size[-1] //= r
        return size, [s // r for s in stride[:-1]] + [1], offset // r, dtype


class ViewSize(FastView):
    """Other extents over the same elements in the same order; never copies."""

    schema = "view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
    public = "method"
    fast_kind = "view"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "is invalid for input of size 6", s.tensor((2, 3)), [4])
        yield s.error(RuntimeError, "view size is not compatible", s.tensor((2, 3)).t(), [6])

    def view(t: Tensor, size: Sequence[int]) -> Geometry:
        size = infer_size(size, t.numel())
        stride = _native.view_strides(t, size)
        if stride is None:
            raise RuntimeError(
                "view size is not compatible with input tensor's size and stride (at least one "
                "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
            )
        return size, stride, t.storage_offset()

    def vjp(b: Any, g: Tensor, t: Tensor, size: Any) -> Tensor:
        return aten.reshape(g, t.shape)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4), layout="contiguous"), (6, 4))
        yield s.sample(s.tensor((), layout="contiguous"), (1, 1))
        yield s.sample(s.tensor((0, 3), layout="contiguous"), (3, 0))


class UnsafeView(Declaration):
    """`view` of a fresh tensor that nothing else sees: the result has no base."""

    schema = "_unsafe_view(Tensor self, SymInt[] size) -> Tensor"
    whole = True
    public = ""
    kind = "copy"
    geometry_only = True

    def meta(t: Tensor, size: Sequence[int]) -> TensorSpec:
        size, stride, _ = ViewSize.view(t, size)
        return TensorSpec(size, t.dtype, t.device, stride)

    def run(t: Tensor, size: Sequence[int]) -> Tensor:
        out = _native.alias(Tensor, t, *ViewSize.view(t, size))
        out._bits = t._bits & (1 << 1)
        return out

    def decompose(t: Tensor, size: Sequence[int]) -> Tensor:
        return aten.view(t, size)

    def vjp(b: Any, g: Tensor, t: Tensor, size: Any) -> Tensor:
        return aten.reshape(g, t.shape)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4), layout="contiguous"), (6, 4))


class ReshapeAlias(View):
    """The given extents and strides from the tensor's own offset."""

    schema = "_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)"
    whole = True
    public = ""

    def view(t: Tensor, size: Sequence[int], stride: Sequence[int]) -> Geometry:
        return size, stride, t.storage_offset()

    def decompose(t: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
        return aten.as_strided(t, size, stride, t.storage_offset())

    def vjp(b: Any, g: Tensor, t: Tensor, size: Any, stride: Any) -> Tensor:
        return aten.reshape(g, t.shape)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4), layout="contiguous"), (6, 4), (4, 1))


class Alias(View):
    """The tensor again, as a view of itself."""

    schema = "alias(Tensor(a) self) -> Tensor(a)"
    public = ""

    def view(t: Tensor) -> Geometry:
        return t.shape, t.stride(), t.storage_offset()

    def vjp(b: Any, g: Tensor, t: Tensor) -> Tensor:
        return g

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)))


def sum_to(g: Tensor, shape: Sequence[int]) -> Tensor:
    """The gradient of a broadcast: g summed over what was expanded."""
    extra = g.dim() - len(shape)
    if not extra and tuple(g.shape) == tuple(shape):
        return g
    dims = list(range(extra))
    dims += [i + extra for i, s in enumerate(shape) if s == 1 and g.shape[i + extra] != 1]
    if dims:
        g = aten.sum(g, dims, True)
    return aten.view(g, tuple(shape)) if extra else g


class Expand(FastView):
    """Dimensions of extent one (and new leading ones) repeated with stride 0."""

    schema = "expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)"
    reference = "numpy.broadcast_to"
    public = "method"
    fast_kind = "expand"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "must match the existing size", s.tensor((2, 3)), [4, 3])

    def view(t: Tensor, size: Sequence[int], implicit: bool = False) -> Geometry:
        new = len(size) - t.dim()
        if new < 0:
            raise RuntimeError(
                f"expand({dt.type_name(t.dtype)}{{{list(t.shape)}}}, size={list(size)}): the "
                "number "
                f"of sizes provided ({len(size)}) must be greater or equal to the number of "
                f"dimensions in the tensor ({t.dim()})"
            )
        if not t.dim():
            if any(s < 0 for s in size):
                i = next(i for i, s in enumerate(size) if s < 0)
                raise _leading(size[i], i)
            return size, [0] * len(size), t.storage_offset()
        old, strides = t.shape, t.stride()
        shape, out = list(size), [0] * len(size)
        for i in range(len(size) - 1, -1, -1):
            j = i - new
            want = size[i]
            if j < 0:
                if want < 0:
                    raise _leading(want, i)
                out[i] = shape[i + 1] * out[i + 1] if want == 1 else 0
                continue
            have = old[j]
            if want in (-1, have):
                shape[i], out[i] = have, strides[j]
            elif have != 1 or want < 0:
                raise RuntimeError(
                    f"The expanded size of the tensor ({want}) must match the existing size "
                    f"({have}) at non-singleton dimension {i}.  Target sizes: {list(size)}.  "
                    f"Tensor sizes: {list(old)}"
                )
        return shape, out, t.storage_offset()

    def vjp(b: Any, g: Tensor, t: Tensor, size: Any, implicit: bool = False) -> Tensor:
        return sum_to(g, t.shape)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 1)), (2, 3, 4))
        yield s.sample(s.tensor(()), (2,))


def _leading(size: int, i: int) -> RuntimeError:
    if size != -1:
        return RuntimeError("numel: integer multiplication overflow")
    return RuntimeError(
        f"The expanded size of the tensor ({size}) isn't allowed in a leading, non-existing "
        f"dimension {i}"
    )


class Permute(FastView):
    """The dimensions in another order."""

    schema = "permute(Tensor(a) self, int[] dims) -> Tensor(a)"
    reference = "numpy.transpose"
    fast_kind = "permute"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "number of dimensions in the tensor input does not match",
            s.tensor((2, 3)),
            [0],
        )
        yield s.error(RuntimeError, "duplicate dims are not allowed", s.tensor((2, 3)), [0, 0])

    def view(t: Tensor, dims: Sequence[int]) -> Geometry:
        if len(dims) != t.dim():
            raise RuntimeError(
                "permute(sparse_coo): number of dimensions in the tensor input does not match the "
                f"length of the desired ordering of dimensions i.e. input.dim() = {t.dim()} is not "
                f"equal to len(dims) = {len(dims)}"
            )
        order = [wrap_dim(d, t.dim()) for d in dims]
        if len(set(order)) != len(order):
            raise RuntimeError("permute(): duplicate dims are not allowed.")
        size, stride = t.shape, t.stride()
        return [size[d] for d in order], [stride[d] for d in order], t.storage_offset()

    def vjp(b: Any, g: Tensor, t: Tensor, dims: Sequence[int]) -> Tensor:
        back = [0] * len(dims)
        for i, d in enumerate(dims):
            back[d] = i
        return aten.permute(g, tuple(back))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4)), (2, 0, 1))
        yield s.sample(s.tensor((2, 1, 3, 2)), (0, -1, 1, 2))
        yield s.sample(s.tensor(()), ())


class Transpose(FastView, ReshapedInPlace):
    """Two dimensions exchanged."""

    schema = "transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"
    whole = True
    inplace = "transpose_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)"
    fast_kind = "transpose"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), 0, 2)

    def view(t: Tensor, dim0: int, dim1: int) -> Geometry:
        a, b = wrap_dim(dim0, t.dim()), wrap_dim(dim1, t.dim())
        size, stride = list(t.shape), list(t.stride())
        if size:
            size[a], size[b] = size[b], size[a]
            stride[a], stride[b] = stride[b], stride[a]
        return size, stride, t.storage_offset()

    def decompose(t: Tensor, dim0: int, dim1: int) -> Tensor:
        a, b = wrap_dim(dim0, t.dim()), wrap_dim(dim1, t.dim())
        order = list(range(t.dim()))
        if order:
            order[a], order[b] = b, a
        return aten.permute(t, order)

    def vjp(b: Any, g: Tensor, t: Tensor, dim0: int, dim1: int) -> Tensor:
        return aten.transpose(g, dim0, dim1)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4)), 0, 2)
        yield s.sample(s.tensor((2, 2)), 0, -1)
        yield s.sample(s.tensor(()), 0, 0)


class T(FastView, ReshapedInPlace):
    """A matrix transposed; vectors and numbers as they are."""

    schema = "t(Tensor(a) self) -> Tensor(a)"
    whole = True
    reference = "numpy.transpose"
    inplace = "t_(Tensor(a!) self) -> Tensor(a!)"
    fast_kind = "t"

    def view(t: Tensor) -> Geometry:
        if t.dim() > 2:
            raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {t.dim()}D")
        return t.shape[::-1], t.stride()[::-1], t.storage_offset()

    def decompose(t: Tensor) -> Tensor:
        return aten.permute(t, tuple(range(len(T.view(t)[0])))[::-1])

    def vjp(b: Any, g: Tensor, t: Tensor) -> Tensor:
        return aten.t(g)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)))
        yield s.sample(s.tensor(3))


class Select(FastView):
    """One index of a dimension, which disappears."""

    schema = "select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)"
    whole = True
    fast_kind = "select"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "index 5 out of range", s.tensor((2, 3)), 0, 5)
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), 2, 0)

    def view(t: Tensor, dim: int, index: int) -> Geometry:
        if not t.dim():
            raise IndexError("select() cannot be applied to a 0-dim tensor.")
        d = wrap_dim(dim, t.dim())
        size, stride = list(t.shape), list(t.stride())
        n = size[d]
        if unknown(index < n) or unknown(index >= -n):
            assert_index(index, n)
        elif not -n <= index < n:
            raise IndexError(
                f"select(): index {index} out of range for tensor of size {size} at dimension {d}"
            )
        offset = t.storage_offset() + (index + n if index < 0 else index) * stride[d]
        del size[d], stride[d]
        return size, stride, offset

    def decompose(t: Tensor, dim: int, index: int) -> Tensor:
        Select.view(t, dim, index)
        d = wrap_dim(dim, t.dim())
        index = index + t.shape[d] if index < 0 else index
        return aten.squeeze(aten.slice(t, d, index, index + 1), (d,))

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, index: int) -> Tensor:
        return aten.select_backward(g, t.shape, dim, index)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4)), 1, -1)
        yield s.sample(s.tensor(3), 0, 1)
        yield s.sample(s.tensor((2, 3, 4, 5)), 1, 0)
        yield s.sample(s.tensor((2, 0)), 0, 1)


def slice_bounds(n: int, start: int | None, end: int | None) -> tuple[int, int]:
    """A slice's first index and its end, in [0, n]."""
    b = 0 if start is None else start
    b = between(b + n if b < 0 else b, 0, n)
    if end is None or (not isinstance(end, SymInt) and end == LAST):
        return b, n
    return b, between(end + n if end < 0 else end, b, n)


def between(i: Any, low: Any, high: Any) -> Any:
    """i cut to [low, high]; an expression where only running will tell how it compares."""
    if unknown(i < low):
        i = sym_max(i, low)
    elif i < low:
        i = low
    if unknown(i > high):
        return sym_min(i, high)
    return high if i > high else i


def assert_index(index: Any, n: Any) -> None:
    """That an index which only running will tell stands in a dimension of n (from the front)."""
    sym_true(index >= 0)
    sym_true(index < n)


def sym_true(c: Any) -> None:
    """c is asserted when the program runs where nothing else tells."""
    if isinstance(c, SymBool):
        c.node.expect_true()


def unknown(c: Any) -> bool:
    """Whether only running will tell if a condition of sizes holds."""
    return (
        isinstance(c, SymBool)
        and c.node.hint is None
        and not c.node.statically_known_true()
        and not c.node.statically_known_false()
    )


class Slice(FastView):
    """Every step-th index of a dimension from start to before end."""

    schema = (
        "slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, "
        "SymInt step=1) -> Tensor(a)"
    )
    public = ""
    fast_kind = "slice"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), 2, 0, 1, 1)
        yield s.error(RuntimeError, "slice step must be positive", s.tensor((2, 3)), 0, 0, 2, 0)

    def view(t: Tensor, dim: int, start: int | None, end: int | None, step: int) -> Geometry:
        if not t.dim():
            raise IndexError("slice() cannot be applied to a 0-dim tensor.")
        d = wrap_dim(dim, t.dim())
        if step <= 0:
            raise RuntimeError("slice step must be positive")
        size, stride = list(t.shape), list(t.stride())
        b, e = slice_bounds(size[d], start, end)
        offset = t.storage_offset() + b * stride[d]
        size[d] = (e - b + step - 1) // step
        stride[d] *= step
        return size, stride, offset

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
        start, end = 0 if start is None else start, LAST if end is None else end
        return aten.slice_backward(g, t.shape, dim, start, end, step)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4)), 1, 1, 3)
        yield s.sample(s.tensor((7, 2)), 0, -5, None, 2)
        yield s.sample(s.tensor((3, 2)), 1, 2, 1)
        yield s.sample(s.tensor((2, 3, 4, 5)), 1, 0, 2)
        yield s.sample(s.tensor((0, 3)), 0, 0, 2)


class Unsqueeze(FastView, ReshapedInPlace):
    """A new dimension of extent one before dim."""

    schema = "unsqueeze(Tensor(a) self, int dim) -> Tensor(a)"
    inplace = "unsqueeze_(Tensor(a!) self, int dim) -> Tensor(a!)"
    fast_kind = "unsqueeze"

    def view(t: Tensor, dim: int) -> Geometry:
        d = wrap_dim(dim, t.dim() + 1)
        size, stride = list(t.shape), list(t.stride())
        step = size[d] * stride[d] if d < len(size) else 1
        size.insert(d, 1)
        stride.insert(d, step)
        return size, stride, t.storage_offset()

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int) -> Tensor:
        return aten.squeeze(g, dim)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 1)
        yield s.sample(s.tensor(()), -1)


def _squeezed(t: Tensor, gone: set[int]) -> Geometry:
    keep = [i for i, s in enumerate(t.shape) if i not in gone or s != 1]
    size, stride = t.shape, t.stride()
    return [size[i] for i in keep], [stride[i] for i in keep], t.storage_offset()


def _unsqueezed(g: Tensor, t: Tensor, gone: Sequence[int]) -> Tensor:
    for d in sorted(gone):
        if t.shape[d] == 1:
            g = aten.unsqueeze(g, d)
    return g


class Squeeze(FastView, ReshapedInPlace):
    """Without the dimensions of extent one."""

    schema = "squeeze(Tensor(a) self) -> Tensor(a)"
    whole = True
    reference = "numpy.squeeze"
    inplace = "squeeze_(Tensor(a!) self) -> Tensor(a!)"

    @classmethod
    def fast(cls, op: Op) -> Any:
        """C serves squeeze(dim) too, and records it under its own overload."""
        if op.variant != "functional":
            return None
        one, part = packet("squeeze").overload("dim"), _native.Fast("squeeze", 1)
        part.set_node(one, one.node_type)  # type: ignore[union-attr]
        fast = _native.Fast("squeeze", 1)
        fast.set_parts(part)
        return fast

    def view(t: Tensor) -> Geometry:
        return _squeezed(t, set(range(t.dim())))

    def decompose(t: Tensor) -> Tensor:
        return aten.squeeze(t, tuple(range(t.dim())))

    def vjp(b: Any, g: Tensor, t: Tensor) -> Tensor:
        return _unsqueezed(g, t, range(t.dim()))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((1, 3, 1)))
        yield s.sample(s.tensor((3, 4)))


class SqueezeDim(ReshapedInPlace):
    """Without dimension dim when its extent is one."""

    schema = "squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)"
    whole = True
    inplace = "squeeze_.dim(Tensor(a!) self, int dim) -> Tensor(a!)"

    def view(t: Tensor, dim: int) -> Geometry:
        return _squeezed(t, {wrap_dim(dim, t.dim())})

    def decompose(t: Tensor, dim: int) -> Tensor:
        return aten.squeeze(t, (dim,))

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int) -> Tensor:
        return _unsqueezed(g, t, [wrap_dim(dim, t.dim())] if t.dim() else ())

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((1, 3, 1)), 2)
        yield s.sample(s.tensor((3, 4)), 0)


class SqueezeDims(ReshapedInPlace):
    """Without those of the dimensions whose extent is one."""

    schema = "squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)"
    inplace = "squeeze_.dims(Tensor(a!) self, int[] dim) -> Tensor(a!)"

    def view(t: Tensor, dim: Sequence[int]) -> Geometry:
        gone: set[int] = set()
        for d in dim:
            w = wrap_dim(d, t.dim())
            if w in gone:
                raise RuntimeError(f"dim {w} appears multiple times in the list of dims")
            gone.add(w)
        return _squeezed(t, gone)

    def vjp(b: Any, g: Tensor, t: Tensor, dim: Sequence[int]) -> Tensor:
        return _unsqueezed(g, t, [wrap_dim(d, t.dim()) for d in dim] if t.dim() else ())

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((1, 3, 1)), (0, 2))
        yield s.sample(s.tensor((3, 4)), (0, 1))


class Diagonal(View):
    """The diagonal of two dimensions, as a new last one."""

    schema = "diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)"
    whole = True
    reference = "numpy.diagonal"

    def view(t: Tensor, offset: int, dim1: int, dim2: int) -> Geometry:
        a, b = wrap_dim(dim1, t.dim()), wrap_dim(dim2, t.dim())
        if a == b:
            raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
        size, stride, at = list(t.shape), list(t.stride()), t.storage_offset()
        if offset >= 0:
            n = max(min(size[a], size[b] - offset), 0)
            at += offset * stride[b] if n else 0
        else:
            n = max(min(size[a] + offset, size[b]), 0)
            at -= offset * stride[a] if n else 0
        step = stride[a] + stride[b]
        keep = [i for i in range(len(size)) if i not in (a, b)]
        return [*(size[i] for i in keep), n], [*(stride[i] for i in keep), step], at

    def decompose(t: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
        return aten.as_strided(t, *Diagonal.view(t, offset, dim1, dim2))

    def vjp(b: Any, g: Tensor, t: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
        return aten.diagonal_backward(g, t.shape, offset, dim1, dim2)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 1)
        yield s.sample(s.tensor((2, 3, 4)), -1, 2, 0)
        yield s.sample(s.tensor((2, 2)), 3)


class Unfold(View):
    """All windows of `size` elements of a dimension, `step` apart, along a new last dimension."""

    schema = "unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)"
    whole = True
    public = "method"

    def view(t: Tensor, dimension: int, size: int, step: int) -> Geometry:
        d = wrap_dim(dimension, t.dim())
        shape, stride = list(t.shape), list(t.stride())
        n = shape[d] if shape else 1
        if size < 0:
            raise RuntimeError(f"size is {size} but must be >= 0")
        if size > n:
            raise RuntimeError(
                f"maximum size for tensor at dimension {d} is {n} but size is {size}"
            )
        if step <= 0:
            raise RuntimeError(f"step is {step} but must be > 0")
        last = stride[d] if shape else 1
        if shape:
            shape[d] = (n - size) // step + 1
            stride[d] *= step
        return [*shape, size], [*stride, last], t.storage_offset()

    def decompose(t: Tensor, dimension: int, size: int, step: int) -> Tensor:
        return aten.as_strided(t, *Unfold.view(t, dimension, size, step))

    def vjp(b: Any, g: Tensor, t: Tensor, dimension: int, size: int, step: int) -> Tensor:
        return aten.unfold_backward(g, t.shape, dimension, size, step)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 7)), 1, 3, 2)
        yield s.sample(s.tensor((5, 2)), 0, 2, 1)
        yield s.sample(s.tensor(()), 0, 1, 1)


class ViewAsReal(View):
    """Complex numbers as pairs of real ones, along a new last dimension."""

    schema = "view_as_real(Tensor(a) self) -> Tensor(a)"
    public = "function"

    def view(t: Tensor) -> Any:
        if not t.dtype.is_complex:
            raise RuntimeError("view_as_real is only supported for complex tensors")
        stride = [s * 2 for s in t.stride()]
        return [*t.shape, 2], [*stride, 1], t.storage_offset() * 2, dt.REAL_OF[t.dtype]

    def vjp(b: Any, g: Tensor, t: Tensor) -> Tensor:
        return aten.view_as_complex(aten.contiguous(g))


class ViewAsComplex(View):
    """Pairs along the last dimension as complex numbers."""

    schema = "view_as_complex(Tensor(a) self) -> Tensor(a)"
    public = "function"

    def view(t: Tensor) -> Any:
        if t.dtype not in (dt.float16, dt.float32, dt.float64):
            raise RuntimeError(
                "view_as_complex is only supported for half, float and double tensors, but got a "
                f"tensor of scalar type: {dt.scalar_name(t.dtype)}"
            )
        size, stride, offset = list(t.shape), list(t.stride()), t.storage_offset()
        if not size:
            raise RuntimeError("Input tensor must have one or more dimensions")
        if size[-1] != 2:
            raise RuntimeError("Tensor must have a last dimension of size 2")
        if stride[-1] != 1:
            raise RuntimeError("Tensor must have a last dimension with stride 1")
        for i, s in enumerate(stride[:-1]):
            if s % 2:
                raise RuntimeError(
                    f"Tensor must have a stride divisible by 2 for all but last dimension (dim {i})"
                )
        if offset % 2:
            raise RuntimeError("Tensor must have a storage_offset divisible by 2")
        return size[:-1], [s // 2 for s in stride[:-1]], offset // 2, dt.COMPLEX_OF[t.dtype]

    def vjp(b: Any, g: Tensor, t: Tensor) -> Tensor:
        return aten.view_as_real(g)


# ---- several views at once: autograd refuses in-place changes of them ----


class MultiView(View):
    """Several views: `views(self, …) -> [(size, stride, offset), …]`."""

    fast_kind = ""
    views: Callable[..., list[Geometry]]

    @classmethod
    def fast(cls, op: Op) -> Any:
        return _native.Fast(cls.fast_kind, 1) if cls.fast_kind else None

    @classmethod
    def infer(cls, op: Op, args: tuple[Any, ...]) -> Any:
        t = args[0]
        return tuple(
            TensorSpec(size, t.dtype, t.device, stride) for size, stride, _ in cls.views(*args)
        )

    @classmethod
    def run(cls, *args: Any) -> tuple[Tensor, ...]:
        made = tuple(make_view(args[0], *v) for v in cls.views(*args))
        for v in made:
            v._multi_view = True
        return made


def all_of(g: Any) -> list[Tensor]:
    """The gradients of a list of results (one alone comes bare)."""
    return list(g) if isinstance(g, (tuple, list)) else [g]


def pieces(t: Tensor, sizes: Sequence[int], d: int) -> list[Geometry]:
    """Consecutive stretches of dimension d."""
    size, stride, offset = list(t.shape), t.stride(), t.storage_offset()
    found: list[Geometry] = []
    for n in sizes:
        found.append(([*size[:d], n, *size[d + 1 :]], stride, offset))
        offset += n * stride[d]
    return found


def sliced(t: Tensor, sizes: Sequence[int], dim: int) -> list[Tensor]:
    """Consecutive stretches of a dimension, as slices."""
    ends = list(itertools.accumulate(sizes))
    return [aten.slice(t, dim, e - n, e) for n, e in zip(sizes, ends, strict=True)]


def split_extents(t: Tensor, split_size: int, dim: int) -> list[int]:
    """Extents of the parts when each but the last holds split_size."""
    if not t.dim():
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    if split_size < 0:
        raise RuntimeError(
            f"split expects split_size be non-negative, but got split_size={split_size}"
        )
    n = t.shape[wrap_dim(dim, t.dim())]
    if not split_size:
        if n:
            raise RuntimeError(
                f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}"
            )
        return [0]
    count = max((n + split_size - 1) // split_size, 1)
    return [split_size] * (count - 1) + [n - split_size * (count - 1)]


class Split(MultiView):
    """Parts of split_size along dim; the last may be smaller."""

    schema = "split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]"
    whole = True
    public = "method"
    fast_kind = "split"

    def views(t: Tensor, split_size: int, dim: int) -> list[Geometry]:
        return pieces(t, split_extents(t, split_size, dim), wrap_dim(dim, t.dim()))

    def decompose(t: Tensor, split_size: int, dim: int) -> list[Tensor]:
        return sliced(t, split_extents(t, split_size, dim), dim)

    def vjp(b: Any, g: Any, t: Tensor, split_size: int, dim: int) -> Tensor:
        return aten.cat(all_of(g), dim)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((5, 2)), 2)
        yield s.sample(s.tensor((3, 4)), 3, -1)


def check_extents(t: Tensor, split_sizes: Sequence[int], dim: int) -> int:
    if not t.dim():
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = wrap_dim(dim, t.dim())
    if any(s < 0 for s in split_sizes):
        raise RuntimeError(
            "split_with_sizes expects split_sizes have only non-negative entries, but got "
            f"split_sizes={list(split_sizes)}"
        )
    if sum(split_sizes) != t.shape[d]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {t.shape[d]} (input tensor's "
            f"size at dimension {dim}), but got split_sizes={list(split_sizes)}"
        )
    return d


class SplitWithSizes(MultiView):
    """Parts of the given extents along dim."""

    schema = "split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]"
    whole = True

    def views(t: Tensor, split_sizes: Sequence[int], dim: int) -> list[Geometry]:
        return pieces(t, split_sizes, check_extents(t, split_sizes, dim))

    def decompose(t: Tensor, split_sizes: Sequence[int], dim: int) -> list[Tensor]:
        return sliced(t, split_sizes, check_extents(t, split_sizes, dim))

    def vjp(b: Any, g: Any, t: Tensor, split_sizes: Any, dim: int) -> Tensor:
        return aten.cat(all_of(g), dim)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((5, 2)), (1, 4))
        yield s.sample(s.tensor((3, 4)), (2, 0, 2), 1)


class Unbind(MultiView):
    """Every index of a dimension, each without it."""

    schema = "unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]"
    whole = True
    fast_kind = "unbind"

    def views(t: Tensor, dim: int) -> list[Geometry]:
        if not t.dim():
            raise IndexError("Dimension specified as 0 but tensor has no dimensions")
        d = wrap_dim(dim, t.dim())
        return [Select.view(t, d, i) for i in range(t.shape[d])]

    def decompose(t: Tensor, dim: int) -> list[Tensor]:
        return [aten.select(t, dim, i) for i in range(len(Unbind.views(t, dim)))]

    def vjp(b: Any, g: Any, t: Tensor, dim: int) -> Tensor:
        gs = all_of(g)
        return aten.stack(gs, dim) if gs else aten.new_zeros(t, t.shape)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)))
        yield s.sample(s.tensor((3, 4)), 1)


class UnsafeSplit(Declaration):
    """`split` whose parts are taken for tensors of their own."""

    schema = "unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]"
    whole = True
    kind = "copy"
    geometry_only = True

    def run(t: Tensor, split_size: int, dim: int) -> tuple[Tensor, ...]:
        return tuple(_native.alias(Tensor, t, *v) for v in Split.views(t, split_size, dim))

    vjp, decompose = Split.vjp, Split.decompose

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((5, 2)), 2)


class UnsafeSplitWithSizes(Declaration):
    """`split_with_sizes` whose parts are taken for tensors of their own."""

    schema = "unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]"
    whole = True
    kind = "copy"
    geometry_only = True

    def run(t: Tensor, split_sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
        return tuple(
            _native.alias(Tensor, t, *v) for v in SplitWithSizes.views(t, split_sizes, dim)
        )

    vjp, decompose = SplitWithSizes.vjp, SplitWithSizes.decompose

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((5, 2)), (1, 4))
