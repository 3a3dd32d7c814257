"""Shape operators that dissolve into views and copies: reshape, flatten, chunk, broadcast_to, …"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops import views as v
from flambeau._src.ops.call import aten, overridable, resize_output, write_out
from flambeau._src.ops.kinds import Composite, wrap_dim
from flambeau._src.ops.op import Op, packet
from flambeau._src.ops.pointwise import same_out
from flambeau._src.ops.promote import broadcast_shape
from flambeau._src.ops.strided import AsStrided, as_copies, as_copy

call_bits = _native.call_bits
_PUBLIC = state.FUNCTION | state.FUNCTION_MODE

for _view in (
    v.ViewDtype, v.ViewSize, v.Expand, v.Permute, v.Transpose, v.T, v.Select, v.Slice, v.Unsqueeze,
    v.Squeeze, v.SqueezeDim, v.SqueezeDims, v.Diagonal, v.Unfold, v.Alias, v.ReshapeAlias,
    v.ViewAsReal, v.ViewAsComplex, AsStrided,
):  # fmt: skip
    as_copy(_view)
as_copies(v.Split, resizes=False)
as_copies(v.SplitWithSizes)
as_copies(v.Unbind)


class FastComposite(Composite):
    """A composite whose plain call C makes, recorded as the view that it dissolves into."""

    fast_kind = ""
    recorded_as: tuple[str, str] = ("", "")

    @classmethod
    def fast(cls, op: Op) -> Any:
        if op.variant != "functional":
            return None
        name, overload = cls.recorded_as
        view = packet(name).overload(overload)
        fast = _native.Fast(cls.fast_kind, 1)
        fast.set_node(view, view.node_type)  # type: ignore[union-attr]
        return fast


class Reshape(FastComposite):
    """Other extents over the same elements: a view where strides allow it, else a copy."""

    schema = "reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)"
    fast_kind = "reshape"
    recorded_as = ("view", "")

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "is invalid for input of size 6", s.tensor((2, 3)), [4])

    def decompose(self: Tensor, shape: Sequence[int]) -> Tensor:
        size = v.infer_size(shape, self.numel())
        stride = _native.view_strides(self, size)
        if stride is not None:
            if self._contiguous() or self._bits or state.get_active() & ~state.get_suspended():
                return aten.view(self, size)
            return aten._reshape_alias(self, size, stride)
        return aten._unsafe_view(aten.clone(self, memory_format=layout.contiguous_format), size)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4)), (4, -1))
        yield s.sample(s.tensor((2, 3)), (6,))
        yield s.sample(s.tensor(()), (1, 1))
        yield s.sample(s.tensor((0, 3)), (3, 0, 2))
        yield s.sample(s.tensor((2, 3, 4, 5)), (2, 3, 20))


class ReshapeAs(Composite):
    """self with the extents of other."""

    schema = "reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)"
    public = "method"

    def decompose(self: Tensor, other: Tensor) -> Tensor:
        return aten.reshape(self, other.shape)


class ViewAs(Composite):
    """self viewed with the extents of other."""

    schema = "view_as(Tensor(a) self, Tensor other) -> Tensor(a)"
    public = "method"

    def decompose(self: Tensor, other: Tensor) -> Tensor:
        return aten.view(self, other.shape)


class ExpandAs(Composite):
    """self expanded to the extents of other."""

    schema = "expand_as(Tensor(a) self, Tensor other) -> Tensor(a)"
    public = "method"

    def decompose(self: Tensor, other: Tensor) -> Tensor:
        return aten.expand(self, other.shape)


class BroadcastTo(Composite):
    """self expanded to size."""

    schema = "broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)"

    def decompose(self: Tensor, size: Sequence[int]) -> Tensor:
        return aten.expand(self, size)


class Flatten(FastComposite):
    """The dimensions from start_dim to end_dim made one."""

    fast_kind = "flatten"
    recorded_as = ("view", "")

    schema = "flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)"

    def decompose(self: Tensor, start_dim: int, end_dim: int) -> Tensor:
        a, b = wrap_dim(start_dim, self.dim()), wrap_dim(end_dim, self.dim())
        if a > b:
            raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
        if not self.dim():
            return aten.reshape(self, (1,))
        if a == b:
            return self
        n = 1
        for s in self.shape[a : b + 1]:
            n *= s
        return aten.reshape(self, (*self.shape[:a], n, *self.shape[b + 1 :]))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4)))
        yield s.sample(s.tensor((2, 3, 4)), 1)
        yield s.sample(s.tensor(()))


class Unflatten(Composite):
    """Dimension dim split into the given extents."""

    schema = "unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)"

    def decompose(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
        d = wrap_dim(dim, self.dim())
        if not sizes:
            raise RuntimeError("unflatten: sizes must be non-empty")
        n = self.shape[d] if self.dim() else 1
        try:
            inner = v.infer_size(sizes, n)
        except RuntimeError as error:
            if "is invalid for input of size" in str(error):
                raise RuntimeError(
                    f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim "
                    f"{d} ({n}) in the input tensor"
                ) from None
            raise RuntimeError(f"unflatten got an unexpected error:\n{error}") from None
        return aten.view(self, (*self.shape[:d], *inner, *self.shape[d + 1 :]))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 6)), 1, (2, -1))


class Ravel(Composite):
    """All elements in one dimension, contiguous."""

    schema = "ravel(Tensor(a) self) -> Tensor(a)"
    reference = "numpy.ravel"

    def decompose(self: Tensor) -> Tensor:
        return aten.view(aten.contiguous(self), (-1,))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)))


class SwapAxes(Composite):
    """Two dimensions exchanged."""

    schema = "swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)"
    reference = "numpy.swapaxes"
    inplace = "swapaxes_(Tensor(a!) self, int axis0, int axis1) -> Tensor(a!)"

    def decompose(self: Tensor, axis0: int, axis1: int) -> Tensor:
        return aten.transpose(self, axis0, axis1)

    def decompose_inplace(self: Tensor, axis0: int, axis1: int) -> Tensor:
        return aten.transpose_(self, axis0, axis1)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4)), 0, 2)


class SwapDims(Composite):
    """Two dimensions exchanged."""

    schema = "swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"
    inplace = "swapdims_(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)"

    def decompose(self: Tensor, dim0: int, dim1: int) -> Tensor:
        return aten.transpose(self, dim0, dim1)

    def decompose_inplace(self: Tensor, dim0: int, dim1: int) -> Tensor:
        return aten.transpose_(self, dim0, dim1)


def _moved(self: Tensor, source: Sequence[int], destination: Sequence[int]) -> Tensor:
    if len(source) != len(destination):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should "
            f"contain the same number of dims as destination ({list(destination)} dims)"
        )
    n = self.dim()
    src, dst = [wrap_dim(d, n) for d in source], [wrap_dim(d, n) for d in destination]
    if len(set(src)) != len(src):
        raise RuntimeError(f"movedim: repeated dim in `source` ({list(source)})")
    if len(set(dst)) != len(dst):
        raise RuntimeError(f"movedim: repeated dim in `destination` ({list(destination)})")
    if not n:
        return aten.alias(self)
    rest = iter([d for d in range(n) if d not in src])
    to = dict(zip(dst, src, strict=True))
    return aten.permute(self, tuple(to[i] if i in to else next(rest) for i in range(n)))


class MoveDim(Composite):
    """One dimension moved to another place."""

    schema = "movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)"
    reference = "numpy.moveaxis"
    aliases = ("moveaxis",)

    def decompose(self: Tensor, source: int, destination: int) -> Tensor:
        return _moved(self, (source,), (destination,))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 4)), 0, -1)


class MoveDims(Composite):
    """Several dimensions moved to other places."""

    schema = "movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)"

    def decompose(self: Tensor, source: Sequence[int], destination: Sequence[int]) -> Tensor:
        return _moved(self, source, destination)


def _when_running(start: Any, n: int, length: int) -> tuple[Any, Any]:
    """The ends of a part whose start only running tells: that it lies within is asserted then."""
    if not length:
        return 0, 0
    v.sym_true(start >= -n)
    v.sym_true(start < n)
    v.assert_index(start % n, n - (length - 1))
    return start % n, start % n + length


class Narrow(FastComposite):
    """length indices of a dimension from start on."""

    fast_kind = "narrow"
    recorded_as = ("slice", "Tensor")

    schema = "narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)"

    def decompose(self: Tensor, dim: int, start: int, length: int) -> Tensor:
        if not self.dim():
            raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
        if length < 0:
            raise RuntimeError("narrow(): length must be non-negative.")
        n = self.shape[wrap_dim(dim, self.dim())]
        if v.unknown(start < 0):
            return aten.slice(self, dim, *_when_running(start, n, length), 1)
        if not -n <= start <= n:
            raise IndexError(
                f"start out of range (expected to be in range of [-{n}, {n}], but got {start})"
            )
        if start < 0:
            start += n
        if start + length > n:
            raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
        return aten.slice(self, dim, start, start + length, 1)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 1, 1, 2)


class NarrowTensor(Composite):
    """`narrow` whose start is a tensor."""

    schema = "narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)"

    def decompose(self: Tensor, dim: int, start: Tensor, length: int) -> Tensor:
        if start.dim() or not dt.is_integral(start.dtype, with_bool=False):
            raise RuntimeError("start must be an 0-dim integral Tensor.")
        return aten.narrow(self, dim, start.item(), length)


class MT(Composite):
    """Each matrix transposed."""

    schema = "mT(Tensor(a) self) -> Tensor(a)"
    public = ""

    def decompose(self: Tensor) -> Tensor:
        _matrices(self, "mT", "")
        return aten.transpose(self, -2, -1) if self.dim() else self


class MH(Composite):
    """Each matrix transposed and conjugated."""

    schema = "mH(Tensor(a) self) -> Tensor(a)"
    public = ""

    def decompose(self: Tensor) -> Tensor:
        _matrices(self, "mH", "")
        return _adjoint(self)


class Adjoint(Composite):
    """Each matrix transposed and conjugated."""

    schema = "adjoint(Tensor(a) self) -> Tensor(a)"

    def decompose(self: Tensor) -> Tensor:
        _matrices(self, "adjoint()", " Consider using x.conj()")
        return _adjoint(self)


class MatrixH(Composite):
    """A matrix transposed and conjugated."""

    schema = "matrix_H(Tensor(a) self) -> Tensor(a)"
    public = ""

    def decompose(self: Tensor) -> Tensor:
        n = self.dim()
        if not n:
            _native.unrepeatable()
            warnings.warn(
                "Tensor.H is deprecated on 0-D tensors. Consider using x.conj().", stacklevel=4
            )
            return self
        if n != 2:
            raise RuntimeError(
                f"tensor.H is only supported on matrices (2-D tensors). Got {n}-D tensor."
                + (" For batches of matrices, consider using tensor.mH" if n > 2 else "")
            )
        return _adjoint(self)


class NumpyT(Composite):
    """The dimensions in reverse order."""

    schema = "numpy_T(Tensor(a) self) -> Tensor(a)"
    public = ""

    def decompose(self: Tensor) -> Tensor:
        n = self.dim()
        if n not in (0, 2):
            _native.unrepeatable()
            warnings.warn(
                "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
                "deprecated and it will throw an error in a future release. Consider `x.mT` to "
                "transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` "
                "to "
                "reverse the dimensions of a tensor.",
                stacklevel=4,
            )
        return aten.permute(self, tuple(range(n - 1, -1, -1)))


def _matrices(t: Tensor, name: str, hint: str) -> None:
    if t.dim() == 1:
        raise RuntimeError(
            f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    if not t.dim():
        _native.unrepeatable()
        warnings.warn(
            f"Tensor.{name} is deprecated on 0-D tensors.{hint or ' Consider using x.'}",
            stacklevel=5,
        )


def _adjoint(t: Tensor) -> Tensor:
    if not t.dim():
        return t
    t = aten.transpose(t, -2, -1)
    return aten.conj(t)


class SplitSizes(Composite):
    """Parts of the given extents along dim."""

    schema = "split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]"
    public = "method"

    def decompose(self: Tensor, split_size: Sequence[int], dim: int) -> Any:
        return aten.split_with_sizes(self, split_size, dim)


def _chunk_extents(self: Tensor, chunks: int, dim: int) -> tuple[int, int]:
    if not self.dim():
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = self.shape[wrap_dim(dim, self.dim())]
    return n, (n + chunks - 1) // chunks


class Chunk(FastComposite):
    """At most `chunks` parts of equal extent (the last may be smaller) along dim."""

    fast_kind = "chunk"
    recorded_as = ("split", "Tensor")

    schema = "chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]"

    def decompose(self: Tensor, chunks: int, dim: int) -> Any:
        n, size = _chunk_extents(self, chunks, dim)
        if not n:
            return aten.split_with_sizes(self, (0,) * chunks, dim)
        return aten.split(self, size, dim)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 3, 1)


class UnsafeChunk(Composite):
    """`chunk` whose parts are taken for tensors of their own."""

    schema = "unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]"

    def decompose(self: Tensor, chunks: int, dim: int) -> Any:
        n, size = _chunk_extents(self, chunks, dim)
        if not n:
            return aten.unsafe_split_with_sizes(self, (0,) * chunks, dim)
        return aten.unsafe_split(self, size, dim)


def _cut(self: Tensor, ends: Sequence[int], d: int) -> tuple[Tensor, ...]:
    """The stretches of dimension d between the ends; the first begins at 0."""
    begin, parts = 0, []
    for end in ends:
        parts.append(aten.slice(self, d, begin, end, 1))
        begin = end
    return (*parts, aten.slice(self, d, begin, self.shape[d], 1))


def _check_tensor_split(self: Tensor) -> None:
    if not self.dim():
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with "
            f"{self.dim()} dims"
        )


class TensorSplit(Composite):
    """`sections` parts whose extents differ by at most one."""

    schema = "tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]"

    def decompose(self: Tensor, sections: int, dim: int) -> Any:
        _check_tensor_split(self)
        d = wrap_dim(dim, self.dim())
        if sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
        small, more = divmod(self.shape[d], sections)
        ends, at = [], 0
        for i in range(sections - 1):
            at += small + (i < more)
            ends.append(at)
        return _cut(self, ends, d)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((5, 2)), 3)


class TensorSplitAt(Composite):
    """Parts that end before each of the indices."""

    schema = "tensor_split.indices(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]"

    def decompose(self: Tensor, indices: Sequence[int], dim: int) -> Any:
        _check_tensor_split(self)
        return _cut(self, indices, wrap_dim(dim, self.dim()))


class TensorSplitTensor(Composite):
    """`tensor_split` whose sections or indices stand in a tensor."""

    schema = (
        "tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor "
        "tensor_indices_or_sections, int dim=0) -> Tensor(a)[]"
    )

    def decompose(self: Tensor, at: Tensor, dim: int) -> Any:
        _check_tensor_split(self)
        if at.device.type != "cpu":
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on "
                f"{at.device}"
            )
        if at.dtype is not dt.int64:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                f"{dt.scalar_name(at.dtype)}"
            )
        if at.dim() > 1:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                f"one-dimensional tensor, but got a tensor with {at.dim()} dims"
            )
        if not at.dim():
            return TensorSplit.decompose(self, int(at.item()), dim)
        return TensorSplitAt.decompose(self, at.tolist(), dim)


def _check_split(t: Tensor, name: str, least: int, d: int, sections: int | None) -> None:
    if t.dim() < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
            "with "
            f"{t.dim()} dimensions!"
        )
    if sections is not None and (sections == 0 or t.shape[d] % sections):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {d}, but the size of the dimension "
            f"{t.shape[d]} is not divisible by the split_size {sections}!"
        )


def _axis_split(name: str, least: int, dim_of: Any) -> None:
    def by_sections(self: Tensor, sections: int) -> Any:
        d = dim_of(self)
        _check_split(self, name, least, d, sections)
        return aten.tensor_split(self, sections, d)

    def by_indices(self: Tensor, indices: Sequence[int]) -> Any:
        d = dim_of(self)
        _check_split(self, name, least, d, None)
        return aten.tensor_split(self, indices, d)

    doc = f"Parts along the dimension of {name}."
    for overload, argument, body in (
        ("int", "int sections", by_sections),
        ("array", "int[] indices", by_indices),
    ):
        text = f"{name}.{overload}(Tensor(a -> *) self, {argument}) -> Tensor(a)[]"
        type(
            name,
            (Composite,),
            {
                "schema": text,
                "decompose": staticmethod(body),
                "__doc__": doc,
                "__module__": __name__,
            },
        )


_axis_split("hsplit", 1, lambda t: 0 if t.dim() == 1 else 1)
_axis_split("vsplit", 2, lambda t: 0)
_axis_split("dsplit", 3, lambda t: 2)


class Real(Composite):
    """The real parts, as a view; self when it is real."""

    schema = "real(Tensor(a) self) -> Tensor(a)"
    public = "function"

    def decompose(self: Tensor) -> Tensor:
        return (
            aten.select(aten.view_as_real(self), self.dim(), 0) if self.dtype.is_complex else self
        )


class Imag(Composite):
    """The imaginary parts, as a view."""

    schema = "imag(Tensor(a) self) -> Tensor(a)"
    public = "function"

    def decompose(self: Tensor) -> Tensor:
        if not self.dtype.is_complex:
            raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
        return aten.select(aten.view_as_real(self), self.dim(), 1)


class AtLeast1d(Composite):
    """self with at least one dimension."""

    schema = "atleast_1d(Tensor self) -> Tensor"
    public = ""

    def decompose(self: Tensor) -> Tensor:
        return self if self.dim() else aten.reshape(self, (1,))


class AtLeast2d(Composite):
    """self with at least two dimensions."""

    schema = "atleast_2d(Tensor self) -> Tensor"
    public = ""

    def decompose(self: Tensor) -> Tensor:
        if not self.dim():
            return aten.reshape(self, (1, 1))
        return aten.unsqueeze(self, 0) if self.dim() == 1 else self


class AtLeast3d(Composite):
    """self with at least three dimensions."""

    schema = "atleast_3d(Tensor self) -> Tensor"
    public = ""

    def decompose(self: Tensor) -> Tensor:
        if not self.dim():
            return aten.reshape(self, (1, 1, 1))
        if self.dim() == 1:
            return aten.unsqueeze(aten.unsqueeze(self, 0), -1)
        return aten.unsqueeze(self, -1) if self.dim() == 2 else self


def _at_least_sequence(n: int, one: Any) -> None:
    type(
        f"AtLeast{n}dSequence", (Composite,),
        {
            "schema": f"atleast_{n}d.Sequence(Tensor[] tensors) -> Tensor[]", "public": "",
            "decompose": staticmethod(lambda tensors: tuple(one.decompose(t) for t in tensors)),
            "__doc__": f"atleast_{n}d of each.", "__module__": __name__,
        },
    )  # fmt: skip


for _n, _one in ((1, AtLeast1d), (2, AtLeast2d), (3, AtLeast3d)):
    _at_least_sequence(_n, _one)


class BroadcastTensors(Composite):
    """Each tensor expanded to the common extents."""

    schema = "broadcast_tensors(Tensor[] tensors) -> Tensor[]"
    public = ""

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        shape = broadcast_shape([t.shape for t in tensors])
        return tuple(t if tuple(t.shape) == shape else aten.expand(t, shape) for t in tensors)

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor((3, 1)), s.tensor(4)])


class ResolveConj(Composite):
    """self with its conjugation carried out (flambeau carries it out at once)."""

    schema = "resolve_conj(Tensor(a) self) -> Tensor(a)"

    def decompose(self: Tensor) -> Tensor:
        return self


class ResolveNeg(Composite):
    """self with its negation carried out (flambeau carries it out at once)."""

    schema = "resolve_neg(Tensor(a) self) -> Tensor(a)"

    def decompose(self: Tensor) -> Tensor:
        return self


class Conj(Composite):
    """The complex conjugate; self when it is real."""

    schema = "conj(Tensor(a) self) -> Tensor(a)"

    def decompose(self: Tensor) -> Tensor:
        return aten._conj(self) if self.dtype.is_complex else self


class ConjPhysical(Composite):
    """The complex conjugate in fresh bytes; self when it is real."""

    schema = "conj_physical(Tensor self) -> Tensor"

    out = True

    def decompose(self: Tensor) -> Tensor:
        return aten._conj_physical(self) if self.dtype.is_complex else self

    def decompose_out(self: Tensor, out: Tensor) -> Tensor:
        if out.dtype is not self.dtype:
            same_out(self.dtype, out.dtype)
        if not self.dtype.is_complex:  # a fresh order, where decompose gives self itself
            resize_output(out, *slot("broadcast_geometry")([self]))
        write_out(out, ConjPhysical.decompose(self))
        return out


# ---- what is Python on every path ----


def _property(name: str, body: Any, setter: Any = None) -> property:
    """A property that modes and subclasses see as `Tensor.name.__get__`."""

    def get(self: Tensor) -> Any:
        if (self._bits or state.get_active()) and call_bits((self,), {}, 0) & _PUBLIC:
            return slot("function_layer")(made.__get__, (self,), {})
        return body(self)

    made = _Property(get, setter, doc=body.__doc__)
    made.__name__ = name
    return made


class _Property(property):
    """A property that knows its name, as those of types written in C do."""

    __name__ = ""


def _set_part(part: str) -> Any:
    def put(self: Tensor, value: Any) -> None:
        target = getattr(aten, part)(self)
        if isinstance(value, Tensor):
            target.copy_(value)
        else:
            target.fill_(value)

    return put


@overridable
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts along dim: of one extent, or of the listed ones. Views of the tensor."""
    parts: tuple[Tensor, ...] = tensor.split(split_size_or_sections, dim)
    return parts


@overridable
def split_method(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """See `split`."""
    parts: tuple[Tensor, ...]
    if isinstance(split_size, Tensor):
        split_size = split_size.tolist() if split_size.dim() else int(split_size)
    if isinstance(split_size, int) or hasattr(split_size, "__sym_int__"):
        parts = aten.split(self, split_size, dim)
    else:
        parts = aten.split_with_sizes(self, split_size, dim)
    return parts


def _fast_split() -> Any:
    """The method `split`: C takes one extent, Python the rest."""
    fresh = True

    def slow(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
        nonlocal fresh
        if fresh:
            fresh = False
            method._set_fast(packet("split").overload("Tensor").fast)  # type: ignore[union-attr]
        parts: tuple[Tensor, ...] = split_method(self, split_size, dim)
        return parts

    method = _native.Method("split", slow)
    return method


@overridable
def unflatten_method(self: Tensor, dim: int, sizes: Any) -> Tensor:
    """Dimension dim split into the given extents (one may be -1)."""
    if not sizes and not isinstance(sizes, Tensor):
        raise RuntimeError("unflatten: sizes must be non-empty")
    return aten.unflatten(self, dim, sizes)


def gathered(tensors: tuple[Any, ...]) -> Any:
    """The arguments of f(*tensors), which may also be called as f([...])."""
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        return tensors[0]
    return tensors


@overridable
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors expanded to their common extents; views."""
    grown: tuple[Tensor, ...] = aten.broadcast_tensors(list(gathered(tensors)))
    return grown


def _at_least(name: str) -> Any:
    @overridable
    def function(*tensors: Any) -> Any:
        given = gathered(tensors) if len(tensors) == 1 else tensors
        operator = getattr(aten, name)
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return operator(tensors[0])
        return operator(list(given) if isinstance(given, (list, tuple)) else given)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Each tensor with at least {name[8]} dimension(s); views."
    return function


def broadcast_shapes(*shapes: Any) -> Any:
    """The extents to which tensors of the given ones broadcast."""
    from flambeau._src.core.size import Size  # a cold path

    given = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    n = max((len(s) for s in given), default=0)
    out = [1] * n
    for at, shape in enumerate(given):
        for i in range(-1, -1 - len(shape), -1):
            if shape[i] < 0:
                raise RuntimeError(
                    f"Trying to create tensor with negative dimension ({shape[i]}): ({shape[i]})"
                )
            if shape[i] == 1 or shape[i] == out[i]:
                continue
            if out[i] != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {shape[i]} at {i}! Mismatching "
                    f"argument at index {at} had {shape}; but expected shape should be "
                    f"broadcastable to {out}"
                )
            out[i] = shape[i]
    return Size(out)


def is_conj(self: Tensor) -> bool:
    """Whether a conjugation is only marked: never, flambeau carries it out at once."""
    return bool(self._conj_flag)


def is_neg(self: Tensor) -> bool:
    """Whether a negation is only marked: never, flambeau carries it out at once."""
    return bool(self._neg_flag)


METHODS: dict[str, Any] = {
    "is_conj": is_conj, "is_neg": is_neg,
    "T": _property("T", NumpyT.decompose), "mT": _property("mT", MT.decompose),
    "H": _property("H", MatrixH.decompose), "mH": _property("mH", MH.decompose),
    "real": _property("real", Real.decompose, _set_part("real")),
    "imag": _property("imag", Imag.decompose, _set_part("imag")), "split": _fast_split(),
    "unflatten": unflatten_method,
}  # fmt: skip
FUNCTIONS: dict[str, Any] = {
    "is_conj": is_conj, "is_neg": is_neg, "split": split,
    "broadcast_tensors": broadcast_tensors, "broadcast_shapes": broadcast_shapes,
    "atleast_1d": _at_least("atleast_1d"), "atleast_2d": _at_least("atleast_2d"),
    "atleast_3d": _at_least("atleast_3d"),
}  # fmt: skip
