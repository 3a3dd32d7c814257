"""Tensors joined along a dimension: cat, stack and what dissolves into them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import (
    aten,
    check_no_self_overlap,
    copy_into,
    overridable,
    resize_output,
)
from flambeau._src.ops.copying import fill_with
from flambeau._src.ops.gather import check_apart
from flambeau._src.ops.kinds import Composite, Opaque, device_of, wrap_dim
from flambeau._src.ops.op import TensorSpec
from flambeau._src.ops.promote import result_type
from flambeau._src.ops.shapes import gathered
from flambeau._src.ops.strided import placed, to_dtype_of


def _left_out(t: Tensor) -> bool:
    """Whether cat ignores it: a vector without elements."""
    return t.dim() == 1 and not t.shape[0]


def suggested_format(t: Tensor) -> Any:
    """The memory format that t's strides speak for."""
    if t.dim() in (4, 5) and layout.looks_channels_last(t):
        return layout.channels_last if t.dim() == 4 else layout.channels_last_3d
    return layout.contiguous_format


def common_format(tensors: Sequence[Tensor]) -> Any:
    """The one memory format of all, else contiguous."""
    first = suggested_format(tensors[0])
    same = all(suggested_format(t) is first for t in tensors[1:])
    return first if same else layout.contiguous_format


def cat_geometry(tensors: Sequence[Tensor], dim: int) -> tuple[tuple[int, ...], int]:
    """The extents of cat's result, and dim from the front."""
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for i, t in enumerate(tensors):
        if not t.dim():
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    counted = [(i, t) for i, t in enumerate(tensors) if not _left_out(t)]
    if not counted:
        return (0,), wrap_dim(dim, 1)
    first = counted[0][1]
    n = first.dim()
    d = wrap_dim(dim, n)
    size = list(first.shape)
    for i, t in counted[1:]:
        if t.dim() != n:
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {n} and {t.dim()}"
            )
        for k, s in enumerate(t.shape):
            if k != d and s != first.shape[k]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {d}. Expected size "
                    f"{first.shape[k]} but got size {s} for tensor number {i} in the list."
                )
        size[d] += t.shape[d]
    return tuple(size), d


def cat_spec(tensors: Sequence[Tensor], dim: int) -> TensorSpec:
    size, _ = cat_geometry(tensors, dim)
    fmt = common_format(tensors)
    stride = layout.strides_for(size, fmt) if len(size) in (4, 5) else None
    return TensorSpec(size, result_type(tensors), device_of(tuple(tensors)), stride)


def cat_into(out: Tensor, tensors: Sequence[Tensor], d: int) -> None:
    """Copy the tensors side by side into out."""
    size, stride, offset = list(out.shape), out.stride(), out.storage_offset()
    for t in tensors:
        if _left_out(t):
            continue
        size[d] = t.shape[d]
        copy_into(_native.alias(Tensor, out, size, stride, offset), t)
        offset += t.shape[d] * stride[d]


class Joined(Opaque):
    """What cat and stack share: out= takes every dtype to which the result may be cast."""

    out = "out"

    @classmethod
    def fast(cls, op: Any) -> Any:
        """C joins plain tensors."""
        return _native.Fast(op.name, 1) if op.variant == "functional" else None

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        (target,) = outs
        spec = cls.infer(op, args)
        if not dt.can_cast(spec.dtype, target.dtype):
            raise TypeError(
                "torch.cat(): input types can't be cast to the desired output type "
                f"{dt.scalar_name(target.dtype)}"
            )
        resize_output(target, spec.shape, spec.stride)
        check_no_self_overlap(target)
        check_apart(target, args)
        cls.compute(op, target, args)
        return True


class Cat(Joined):
    """The tensors one after the other along dim."""

    schema = "cat(Tensor[] tensors, int dim=0) -> Tensor"
    public = "function"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "Sizes of tensors must match except in dimension 0",
            [s.tensor((2, 3)), s.tensor((2, 4))],
        )
        yield s.error(IndexError, "Dimension out of range", [s.tensor((2, 3))], 2)
        yield s.error(RuntimeError, "zero-dimensional tensor", [s.tensor(())])

    @staticmethod
    def meta(tensors: Sequence[Tensor], dim: int) -> TensorSpec:
        return cat_spec(tensors, dim)

    def kernel(out: Tensor, tensors: Sequence[Tensor], dim: int) -> None:
        cat_into(out, tensors, wrap_dim(dim, out.dim()))

    def vjp(b: Any, g: Tensor, tensors: Sequence[Tensor], dim: int) -> list[Any]:
        d, at, grads = wrap_dim(dim, g.dim()), 0, []
        for t, need in zip(tensors, b.needs, strict=True):
            if _left_out(t):
                grads.append(aten.zeros((0,), dtype=t.dtype, device=t.device) if need else None)
                continue
            n = t.shape[d]
            grads.append(to_dtype_of(aten.slice(g, d, at, at + n), t) if need else None)
            at += n
        return grads

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor((2, 3)), s.tensor((1, 3))])
        yield s.sample([s.tensor((2, 3)), s.tensor((2, 1))], -1)
        yield s.sample([s.tensor(0), s.tensor((2, 3))])
        yield s.sample([s.tensor((2, 3, 4, 5)), s.tensor((2, 1, 4, 5))], 1)


def _chunk_dim(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> int:
    """dim from the front, where the arguments are what `_chunk_cat` takes."""
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    first = tensors[0]
    for t in tensors:
        if not t.numel():
            raise RuntimeError("_chunk_cat expects non-empty tensor")
        if t.dtype is not first.dtype:
            raise RuntimeError("_chunk_cat expects all input tensors with the same dtype")
    if all(t.dim() == first.dim() for t in tensors):
        dim = wrap_dim(dim, first.dim())
    elif dim < 0:
        raise RuntimeError(
            "_chunk_cat expects non-negative dim when input tensors have different ndims"
        )
    for t in tensors:
        if dim >= t.dim():
            raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
        if t.shape[:dim] != first.shape[:dim]:
            raise RuntimeError(
                "_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors"
            )
    return dim


def _chunk_rows(t: Tensor, d: int, count: int) -> Tensor:
    """t filled with zeros up to a multiple of count along d: (*before d, count, all the rest)."""
    missing = -t.shape[d] % count
    if missing:
        t = aten.constant_pad_nd(t, [0, 0] * (t.dim() - d - 1) + [0, missing], 0)
    return aten.reshape(t, (*t.shape[:d], count, -1))


class ChunkCat(Joined):
    """Each tensor in num_chunks rows along dim (the last ones filled with zeros); these side by
    side: (*before dim, num_chunks, all the rest). FSDP lays out gradients so."""

    schema = "_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor"
    public = "function"
    no_formula = True

    @classmethod
    def fast(cls, op: Any) -> Any:
        return None

    @staticmethod
    def meta(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> TensorSpec:
        d, first = _chunk_dim(tensors, dim, num_chunks), tensors[0]
        wide = 0
        for t in tensors:
            part = -(-t.shape[d] // num_chunks)
            for s in t.shape[d + 1 :]:
                part = part * s
            wide = wide + part
        return TensorSpec((*first.shape[:d], num_chunks, wide), first.dtype, first.device)

    def kernel(out: Tensor, tensors: Sequence[Tensor], dim: int, num_chunks: int) -> None:
        d = _chunk_dim(tensors, dim, num_chunks)
        cat_into(out, [_chunk_rows(t, d, num_chunks) for t in tensors], d + 1)

    @staticmethod
    def decompose(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
        d = _chunk_dim(tensors, dim, num_chunks)
        return aten.cat([_chunk_rows(t, d, num_chunks) for t in tensors], d + 1)

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor((3, 2)), s.tensor((1, 4, 2))], 0, 2)
        yield s.sample([s.tensor((2, 3, 3)), s.tensor((2, 3, 7))], 1, 3)
        yield s.sample([s.tensor((2, 3)), s.tensor((2, 7))], -1, 5)

    def error_samples(s: Any) -> Iterator[Any]:
        x = s.tensor((2, 3))
        yield s.error(RuntimeError, "expects positive num_chunks", [x], 0, 0)
        yield s.error(RuntimeError, "expects non-negative dim", [x, s.tensor(4)], -1, 3)
        yield s.error(RuntimeError, "expects dim < ndim", [x, s.tensor(4)], 1, 3)


class Concat(Composite):
    """See cat."""

    schema = "concat(Tensor[] tensors, int dim=0) -> Tensor"
    public = "function"
    out = "out"

    @staticmethod
    def decompose(tensors: Sequence[Tensor], dim: int) -> Tensor:
        return aten.cat(tensors, dim)

    @staticmethod
    def decompose_out(tensors: Sequence[Tensor], dim: int, out: Tensor) -> Tensor:
        return aten.cat(tensors, dim, out=out)


class Concatenate(Composite):
    """See cat."""

    schema = "concatenate(Tensor[] tensors, int dim=0) -> Tensor"
    public = "function"
    out = "out"

    @staticmethod
    def decompose(tensors: Sequence[Tensor], dim: int) -> Tensor:
        return aten.cat(tensors, dim)

    @staticmethod
    def decompose_out(tensors: Sequence[Tensor], dim: int, out: Tensor) -> Tensor:
        return aten.cat(tensors, dim, out=out)


def _unsqueezed(t: Tensor, d: int) -> Tensor:
    size, stride = list(t.shape), list(t.stride())
    stride.insert(d, size[d] * stride[d] if d < len(size) else 1)
    size.insert(d, 1)
    v = _native.alias(Tensor, t, size, stride, None)
    v._bits = t._bits
    return v


class Stack(Joined):
    """The tensors, all of one shape, along a new dimension."""

    schema = "stack(Tensor[] tensors, int dim=0) -> Tensor"
    public = "function"
    whole = True

    @staticmethod
    def decompose(tensors: Sequence[Tensor], dim: int) -> Tensor:
        size, n = Stack.meta(tensors, dim).shape, tensors[0].dim()
        d = wrap_dim(dim, n + 1)
        if d == n:
            return aten.cat([aten.unsqueeze(t, d) for t in tensors], d)
        return aten.view(aten.cat(tensors, d), size)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "stack expects each tensor to be equal size",
            [s.tensor((2, 3)), s.tensor((2, 4))],
        )

    @staticmethod
    def meta(tensors: Sequence[Tensor], dim: int) -> TensorSpec:
        if not tensors:
            raise RuntimeError("stack expects a non-empty TensorList")
        n = tensors[0].dim()
        d = wrap_dim(dim, n + 1)
        for i, t in enumerate(tensors):
            if t.shape != tensors[0].shape:
                raise RuntimeError(
                    f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} "
                    f"at entry 0 and {list(t.shape)} at entry {i}"
                )
        size = list(tensors[0].shape)
        size.insert(d, len(tensors))
        if d == n:
            return cat_spec([_unsqueezed(t, d) for t in tensors], d)
        joined = cat_spec(tensors, d)
        stride = None
        if joined.stride is not None:
            v = _native.wrap(
                Tensor, _native.UntypedStorage.fake(0, joined.device), joined.dtype, joined.shape,
                joined.stride, 0,
            )  # fmt: skip
            stride = _native.view_strides(v, size)
        return TensorSpec(size, joined.dtype, joined.device, stride)

    def kernel(out: Tensor, tensors: Sequence[Tensor], dim: int) -> None:
        d = wrap_dim(dim, out.dim())
        size, stride = list(out.shape), list(out.stride())
        step, offset = stride.pop(d), out.storage_offset()
        del size[d]
        for i, t in enumerate(tensors):
            copy_into(_native.alias(Tensor, out, size, stride, offset + i * step), t)

    def vjp(b: Any, g: Tensor, tensors: Sequence[Tensor], dim: int) -> list[Any]:
        return [
            to_dtype_of(aten.select(g, dim, i), t) if need else None
            for i, (t, need) in enumerate(zip(tensors, b.needs, strict=True))
        ]

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor((2, 3)), s.tensor((2, 3))], 1)
        yield s.sample([s.tensor(()), s.tensor(())])


def _nonempty(tensors: Sequence[Tensor], name: str) -> None:
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")


class HStack(Composite):
    """Side by side: along dimension 1, vectors along their own."""

    schema = "hstack(Tensor[] tensors) -> Tensor"
    public = "function"
    out = "out"

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> Tensor:
        return aten.cat(*HStack.operands(tensors))

    @staticmethod
    def decompose_out(tensors: Sequence[Tensor], out: Tensor) -> Tensor:
        return aten.cat(*HStack.operands(tensors), out=out)

    @staticmethod
    def operands(tensors: Sequence[Tensor]) -> tuple[list[Tensor], int]:
        """What cat is called with."""
        _nonempty(tensors, "hstack")
        rows = aten.atleast_1d(tensors)
        return list(rows), 0 if rows[0].dim() == 1 else 1

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor((2, 3)), s.tensor((2, 1))])


class VStack(Composite):
    """One above the other; vectors are rows."""

    schema = "vstack(Tensor[] tensors) -> Tensor"
    public = "function"
    out = "out"

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> Tensor:
        _nonempty(tensors, "vstack")
        return aten.cat(list(aten.atleast_2d(tensors)), 0)

    @staticmethod
    def decompose_out(tensors: Sequence[Tensor], out: Tensor) -> Tensor:
        _nonempty(tensors, "vstack")
        return aten.cat(list(aten.atleast_2d(tensors)), 0, out=out)

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor(3), s.tensor((2, 3))])


class RowStack(Composite):
    """See vstack."""

    schema = "row_stack(Tensor[] tensors) -> Tensor"
    public = "function"
    out = "out"

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> Tensor:
        return aten.vstack(tensors)

    @staticmethod
    def decompose_out(tensors: Sequence[Tensor], out: Tensor) -> Tensor:
        return aten.vstack(tensors, out=out)


class DStack(Composite):
    """One behind the other, along dimension 2."""

    schema = "dstack(Tensor[] tensors) -> Tensor"
    public = "function"
    out = "out"

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> Tensor:
        _nonempty(tensors, "dstack")
        return aten.cat(list(aten.atleast_3d(tensors)), 2)

    @staticmethod
    def decompose_out(tensors: Sequence[Tensor], out: Tensor) -> Tensor:
        _nonempty(tensors, "dstack")
        return aten.cat(list(aten.atleast_3d(tensors)), 2, out=out)

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor((2, 3)), s.tensor((2, 3))])


class ColumnStack(Composite):
    """Side by side; vectors are columns."""

    schema = "column_stack(Tensor[] tensors) -> Tensor"
    public = "function"
    out = "out"

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> Tensor:
        return aten.hstack(ColumnStack.columns(tensors))

    @staticmethod
    def decompose_out(tensors: Sequence[Tensor], out: Tensor) -> Tensor:
        return aten.hstack(ColumnStack.columns(tensors), out=out)

    @staticmethod
    def columns(tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors, vectors as columns."""
        _nonempty(tensors, "column_stack")
        return [aten.reshape(t, (t.numel(), 1)) if t.dim() <= 1 else t for t in tensors]

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor(3), s.tensor((3, 2))])


class BlockDiag(Opaque):
    """The matrices along a diagonal, zeros elsewhere."""

    schema = "block_diag(Tensor[] tensors) -> Tensor"
    public = ""
    out = "out"
    whole = True

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> Tensor:
        s = BlockDiag.meta(tensors)
        made = aten.zeros(s.shape, dtype=s.dtype, device=s.device)
        row = column = 0
        for t in tensors:
            n, m = _matrix_shape(t)
            part = aten.reshape(t.to(s.dtype), (n, m))
            made = placed(made, part, [(0, row, row + n), (1, column, column + m)])
            row, column = row + n, column + m
        return made

    @staticmethod
    def meta(tensors: Sequence[Tensor]) -> TensorSpec:
        for i, t in enumerate(tensors):
            if t.dim() > 2:
                raise RuntimeError(
                    "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                    f"{i} has {t.dim()} dimensions"
                )
        if not tensors:
            return TensorSpec((1, 0), state.process.default_dtype)
        shapes = [_matrix_shape(t) for t in tensors]
        size = (sum(s[0] for s in shapes), sum(s[1] for s in shapes))
        return TensorSpec(size, result_type(tensors), tensors[0].device)

    def kernel(out: Tensor, tensors: Sequence[Tensor]) -> None:
        fill_with(out, 0)
        offset, stride = out.storage_offset(), out.stride()
        for t in tensors:
            size = _matrix_shape(t)
            copy_into(_native.alias(Tensor, out, size, stride, offset), t)
            offset += size[0] * stride[0] + size[1] * stride[1]

    def vjp(b: Any, g: Tensor, tensors: Sequence[Tensor]) -> list[Any]:
        row = column = 0
        grads = []
        for t, need in zip(tensors, b.needs, strict=True):
            n, m = _matrix_shape(t)
            block = aten.slice(aten.slice(g, 0, row, row + n), 1, column, column + m)
            grads.append(to_dtype_of(aten.reshape(block, t.shape), t) if need else None)
            row, column = row + n, column + m
        return grads

    def samples(s: Any) -> Any:
        yield s.sample([s.tensor((2, 3)), s.tensor(2)])


def _matrix_shape(t: Tensor) -> tuple[int, int]:
    return (1, t.numel()) if t.dim() < 2 else (t.shape[0], t.shape[1])


@overridable
def block_diag(*tensors: Any) -> Tensor:
    """The matrices (vectors are rows, numbers 1 x 1) along a diagonal, zeros elsewhere."""
    return aten.block_diag(list(tensors))


def _grid(tensors: Sequence[Tensor], indexing: str) -> tuple[Tensor, ...]:
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for t in tensors:
        if t.dim() > 1:
            raise RuntimeError(
                f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t}"
            )
    if any(t.dtype is not tensors[0].dtype for t in tensors):
        raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    if any(t.device != tensors[0].device for t in tensors):
        raise RuntimeError("meshgrid expects all tensors to have the same device")
    if indexing not in ("xy", "ij"):
        raise RuntimeError(
            f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    order = list(range(len(tensors)))
    swap = indexing == "xy" and len(tensors) >= 2
    if swap:
        order[:2] = [1, 0]
    shape = tuple(tensors[i].numel() for i in order)
    grids = []
    for k, i in enumerate(order):
        at = tuple(-1 if j == k else 1 for j in range(len(order)))
        grids.append(aten.expand(aten.view(tensors[i], at), shape))
    if not swap:
        return tuple(grids)
    # The tensors' own order, and the first two dimensions exchanged back.
    grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


class MeshGrid(Composite):
    """Coordinates of a grid from those of its axes; views."""

    schema = "meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]"
    public = ""

    @staticmethod
    def decompose(tensors: Sequence[Tensor], indexing: str) -> tuple[Tensor, ...]:
        return _grid(tensors, indexing)


class MeshGridPlain(Composite):
    """Coordinates of a grid, the first tensor along dimension 0; views."""

    schema = "meshgrid(Tensor[] tensors) -> Tensor[]"
    public = ""

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        _native.unrepeatable()
        warnings.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            "argument.",
            stacklevel=5,
        )
        return _grid(tensors, "ij")


@overridable
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of the given axes; `indexing` is 'ij' (matrix order) or 'xy'."""
    given = list(gathered(tensors))
    if indexing is None:
        plain: tuple[Tensor, ...] = aten.meshgrid(given)
        return plain
    made: tuple[Tensor, ...] = aten.meshgrid(given, indexing=indexing)
    return made


class CartesianProd(Composite):
    """Every combination of one element of each tensor, a row each."""

    schema = "cartesian_prod(Tensor[] tensors) -> Tensor"
    public = ""

    @staticmethod
    def decompose(tensors: Sequence[Tensor]) -> Tensor:
        for t in tensors:
            if t.dim() != 1:
                raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
        if len(tensors) == 1:
            return tensors[0]
        flat = [aten.flatten(t) for t in _grid(tensors, "ij")]
        return aten.stack(flat, 1)


@overridable
def cartesian_prod(*tensors: Any) -> Tensor:
    """Every combination of one element of each of the vectors: a row each."""
    return aten.cartesian_prod(list(tensors))


class Combinations(Composite):
    """All choices of r elements of a vector, a row each."""

    schema = "combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor"

    def decompose(self: Tensor, r: int, with_replacement: bool) -> Tensor:
        if self.dim() != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(self.shape)}")
        if r < 0:
            raise RuntimeError(f"Expect a non-negative number, but got {r}")
        if r == 0:
            return aten.empty((0,), dtype=self.dtype, device=self.device)
        n = self.shape[0]
        grids = _grid([self] * r, "ij")
        places = _grid([aten.arange(n, dtype=dt.int64, device=self.device)] * r, "ij")
        keep = aten.full((n,) * r, True, dtype=dt.bool_, device=self.device)
        for i in range(r - 1):
            compare = aten.le if with_replacement else aten.lt
            keep = aten.mul_(keep, compare(places[i], places[i + 1]))
        return aten.stack([aten.masked_select(t, keep) for t in grids], 1)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor(4))
        yield s.sample(s.tensor(3), 2, True)


FUNCTIONS: dict[str, Any] = {
    "block_diag": block_diag, "meshgrid": meshgrid, "cartesian_prod": cartesian_prod,
}  # fmt: skip
