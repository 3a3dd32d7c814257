"""Elements put in another order or repeated: repeat, flip, roll, triangles, diagonals, padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, copy_into
from flambeau._src.ops.copying import fill_with
from flambeau._src.ops.creation import OPTIONS, Factory, spec
from flambeau._src.ops.joining import suggested_format
from flambeau._src.ops.kinds import Composite, Opaque, wrap_dim, wrap_dims
from flambeau._src.ops.op import Declaration, TensorSpec
from flambeau._src.ops.views import Diagonal


class Repeat(Opaque):
    """The tensor copied repeats[i] times along dimension i."""

    schema = "repeat(Tensor self, SymInt[] repeats) -> Tensor"
    reference = "numpy.tile"
    public = "method"

    def meta(t: Tensor, repeats: Sequence[int]) -> TensorSpec:
        new = len(repeats) - t.dim()
        if new < 0:
            raise RuntimeError(
                "Number of dimensions of repeat dims can not be smaller than number of dimensions "
                "of tensor"
            )
        size = [s * r for s, r in zip([1] * new + list(t.shape), repeats, strict=True)]
        for s, r in zip(size, repeats, strict=True):
            if r < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension {s}: {size}")
        return TensorSpec(size, t.dtype, t.device)

    def kernel(out: Tensor, t: Tensor, repeats: Sequence[int]) -> None:
        if not out.numel():
            return
        new = len(repeats) - t.dim()
        size: list[int] = []
        to: list[int] = []
        source: list[int] = []
        for i, (r, step) in enumerate(zip(repeats, out.stride(), strict=True)):
            s, st = (t.shape[i - new], t.stride(i - new)) if i >= new else (1, 0)
            size += [r, s]
            to += [s * step, step]
            source += [0, st]
        copy_into(
            _native.alias(Tensor, out, size, to, None),
            _native.alias(Tensor, t, size, source, None),
        )

    def decompose(t: Tensor, repeats: Sequence[int]) -> Tensor:
        size = Repeat.meta(t, repeats).shape
        new = len(repeats) - t.dim()
        alone: list[int] = []
        wide: list[int] = []
        for i, r in enumerate(repeats):
            s = t.shape[i - new] if i >= new else 1
            alone += [1, s]
            wide += [r, s]
        made = aten.expand(aten.reshape(t, alone), wide)
        return aten.reshape(aten.clone(made, memory_format=layout.contiguous_format), size)

    def vjp(b: Any, g: Tensor, t: Tensor, repeats: Sequence[int]) -> Tensor:
        if 0 in repeats:
            return aten.zeros(t.shape, dtype=g.dtype, device=g.device)
        new = len(repeats) - t.dim()
        if new:
            g = aten.sum(g, list(range(new)))
        size: list[int] = []
        dims = []
        for s, r in zip(t.shape, repeats[new:], strict=True):
            if r != 1:
                dims.append(len(size))
                size.append(r)
            size.append(s)
        return aten.sum(aten.reshape(g, size), dims) if dims else g

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), (2, 1, 3))
        yield s.sample(s.tensor(2), (0,))


class Tile(Composite):
    """`repeat` that takes fewer repeats than dimensions."""

    schema = "tile(Tensor self, SymInt[] dims) -> Tensor"

    def decompose(self: Tensor, dims: Sequence[int]) -> Tensor:
        return aten.repeat(self, (1,) * (self.dim() - len(dims)) + tuple(dims))


class RepeatIndices(Declaration):
    """Each index i repeats[i] times."""

    schema = "repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor"
    differentiable = False
    kind = "index"

    def run(repeats: Tensor, output_size: int | None) -> Tensor:
        import numpy as np  # lazy: NumPy is heavy

        from flambeau._src.core.interchange import array_of, share_array  # lazy: with it

        if repeats.dtype not in (dt.int32, dt.int64):
            name = dt.scalar_name(repeats.dtype)
            raise NotImplementedError(f"\"repeat_interleave_cpu\" not implemented for '{name}'")
        if repeats.dim() != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        counts = array_of(repeats)
        if counts.size and counts.min() < 0:
            raise RuntimeError("repeats can not be negative")
        made = np.repeat(np.arange(counts.size), counts)
        if output_size is not None and output_size != made.size:
            raise RuntimeError("allocated size does not match required size")
        out = _native.empty((made.size,), repeats.dtype, repeats.device)
        copy_into(out, share_array(made))
        return out

    def by_value(extent: Any, repeats: Tensor, output_size: Any) -> TensorSpec:
        n = extent(0) if output_size is None else output_size
        return TensorSpec((n,), repeats.dtype, repeats.device)


def _interleaved(self: Tensor, repeats: Tensor, dim: int | None, output_size: int | None) -> Tensor:
    t = aten.flatten(self) if dim is None else self
    d = wrap_dim(0 if dim is None else dim, self.dim())
    n = t.shape[d]
    if not repeats.dim() or (repeats.dim() == 1 and repeats.shape[0] == 1):
        repeats = aten.expand(aten.reshape(repeats, (1,)), (n,))
    elif repeats.dim() == 1:
        if repeats.shape[0] != n:
            raise RuntimeError(
                "repeats must have the same size as input along dim, but got repeats.size(0) = "
                f"{repeats.shape[0]} and input.size({d}) = {n}"
            )
    else:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    return aten.index_select(t, d, aten.repeat_interleave(repeats, output_size=output_size))


class RepeatInterleave(Composite):
    """Each index of dim repeated (of the flattened tensor when dim is None)."""

    schema = (
        "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, "
        "SymInt? output_size=None) -> Tensor"
    )

    def decompose(
        self: Tensor, repeats: Tensor, dim: int | None, output_size: int | None
    ) -> Tensor:
        return _interleaved(self, repeats, dim, output_size)


class RepeatInterleaveInt(Composite):
    """Each index of dim repeated the same number of times."""

    schema = (
        "repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, "
        "SymInt? output_size=None) -> Tensor"
    )

    def decompose(self: Tensor, repeats: int, dim: int | None, output_size: int | None) -> Tensor:
        t = aten.flatten(self) if dim is None else self
        d = wrap_dim(0 if dim is None else dim, t.dim())
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        t = aten.reshape(t, (1,)) if not t.dim() else t
        size = list(t.shape)
        wide = aten.expand(aten.unsqueeze(t, d + 1), (*size[: d + 1], repeats, *size[d + 1 :]))
        made = aten.flatten(aten.clone(wide, memory_format=layout.contiguous_format), d, d + 1)
        if output_size is not None and made.shape[d] != output_size:
            raise RuntimeError(
                f"repeat_interleave: Invalid output_size, expected {made.shape[d]} but got "
                f"{output_size}"
            )
        return made

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 2, 1)


class Flip(Opaque):
    """The given dimensions in reverse."""

    schema = "flip(Tensor self, int[] dims) -> Tensor"
    reference = "numpy.flip"
    out = "out"

    def meta(t: Tensor, dims: Sequence[int]) -> TensorSpec:
        wrap_dims(dims, t.dim(), empty_is_all=False)
        return TensorSpec(t.shape, t.dtype, t.device, layout.strides_like(t, None))

    def kernel(out: Tensor, t: Tensor, dims: Sequence[int]) -> None:
        from flambeau._src.core.interchange import array_of  # lazy: NumPy is heavy

        back = wrap_dims(dims, t.dim(), empty_is_all=False)
        at = tuple(slice(None, None, -1 if i in back else 1) for i in range(t.dim()))
        array_of(out)[...] = array_of(t)[at]

    def vjp(b: Any, g: Tensor, t: Tensor, dims: Sequence[int]) -> Tensor:
        return aten.flip(g, dims)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), (0, -1))


class FlipLR(Composite):
    """Columns in reverse."""

    schema = "fliplr(Tensor self) -> Tensor"

    def decompose(self: Tensor) -> Tensor:
        if self.dim() < 2:
            raise RuntimeError("Input must be >= 2-d.")
        return aten.flip(self, (1,))


class FlipUD(Composite):
    """Rows in reverse."""

    schema = "flipud(Tensor self) -> Tensor"

    def decompose(self: Tensor) -> Tensor:
        if self.dim() < 1:
            raise RuntimeError("Input must be >= 1-d.")
        return aten.flip(self, (0,))


class Roll(Opaque):
    """Elements moved along dimensions, what leaves at the end entering at the beginning; without
    dims the flattened tensor is rolled."""

    schema = "roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor"

    def meta(t: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> TensorSpec:
        if not shifts and (len(dims) != 1):
            raise RuntimeError("`shifts` required")
        if len(shifts) != len(dims) and not (not dims and len(shifts) == 1):
            raise RuntimeError(
                f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}"
            )
        if not t.numel():
            return TensorSpec(t.shape, t.dtype, t.device, layout.strides_like(t, None))
        if dims and not t.dim():
            raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
        for d in dims:
            wrap_dim(d, t.dim())
        fmt = suggested_format(t)
        return TensorSpec(t.shape, t.dtype, t.device, layout.strides_for(t.shape, fmt))

    def kernel(out: Tensor, t: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> None:
        import numpy as np  # lazy: NumPy is heavy

        from flambeau._src.core.interchange import array_of  # lazy: with it

        if t.numel():
            array_of(out)[...] = np.roll(
                array_of(t), tuple(shifts) if dims else shifts[0], tuple(dims) if dims else None
            )

    def decompose(t: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
        Roll.meta(t, shifts, dims)
        if not t.numel():
            return aten.clone(t)
        if not dims:
            line = aten.reshape(t, (-1,))
            return aten.reshape(aten.roll(line, shifts, (0,)), t.shape)
        made = t
        for s, d in zip(shifts, dims, strict=True):
            n = t.shape[d]
            start = (n - s) % n
            if start:
                head, tail = aten.narrow(made, d, 0, start), aten.narrow(made, d, start, n - start)
                made = aten.cat([tail, head], d)
        return aten.clone(made) if made is t else made

    def vjp(b: Any, g: Tensor, t: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
        return aten.roll(g, tuple(-s for s in reversed(shifts)), tuple(reversed(dims)))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), (1, -2), (0, 1))
        yield s.sample(s.tensor((3, 4)), 5)


class Rot90(Declaration):
    """A plane of two dimensions turned by k quarters, from dims[0] towards dims[1]."""

    schema = "rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor"
    reference = "numpy.rot90"
    kind = "copy"
    out = "out"

    def run(t: Tensor, k: int, dims: Sequence[int]) -> Tensor:
        if len(dims) != 2:
            raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
        if t.dim() < 2:
            raise RuntimeError(f"expected total dims >= 2, but got total dims = {t.dim()}")
        if dims[0] == dims[1] or abs(dims[0] - dims[1]) == t.dim():
            raise RuntimeError(
                f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = "
                f"{dims[1]}"
            )
        for d, name in zip(dims, "01", strict=True):
            if not -t.dim() <= d < t.dim():
                raise RuntimeError(f"Rotation dim{name} out of range, dim{name} = {d}")
        k %= 4
        if k == 1:
            return aten.transpose_(aten.flip(t, (dims[1],)), dims[0], dims[1])
        if k == 2:
            return aten.flip(t, dims)
        if k == 3:
            return aten.transpose_(aten.flip(t, (dims[0],)), dims[0], dims[1])
        return aten.clone(t, memory_format=layout.contiguous_format)

    def meta(t: Tensor, k: int, dims: Sequence[int]) -> TensorSpec:
        size, stride = list(t.shape), list(layout.strides_like(t, None))
        if k % 2:
            for v in (size, stride):
                v[dims[0]], v[dims[1]] = v[dims[1]], v[dims[0]]
        elif k % 4 == 0:
            stride = list(layout.contiguous_strides(size))
        return TensorSpec(size, t.dtype, t.device, stride)

    def decompose(t: Tensor, k: int, dims: Sequence[int]) -> Tensor:
        k %= 4
        if k == 2:
            return aten.flip(t, dims)
        if k == 0:
            return aten.clone(t, memory_format=layout.contiguous_format)
        return aten.transpose(aten.flip(t, (dims[1 if k == 1 else 0],)), dims[0], dims[1])

    def vjp(b: Any, g: Tensor, t: Tensor, k: int, dims: Sequence[int]) -> Tensor:
        return aten.rot90(g, -k, dims)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)))
        yield s.sample(s.tensor((3, 4)), -1, (0, 1))
        yield s.sample(s.tensor((3, 4)), 2, (1, 0))


class Triangle(Opaque):
    """One triangle of each matrix; zeros in the other. `upper` says which."""

    out = "out"
    inplace = True
    upper = False

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        t = args[0]
        if t.dim() < 2:
            raise RuntimeError(f"{cls.op.name}: input tensor must have at least 2 dimensions")
        return TensorSpec(t.shape, t.dtype, t.device)

    @classmethod
    def compute(cls, op: Any, out: Tensor, args: tuple[Any, ...]) -> None:
        import numpy as np  # lazy: NumPy is heavy

        from flambeau._src.core.interchange import array_of  # lazy: with it

        t, diagonal = args
        if not t.numel():
            return
        n, m = t.shape[-2:]
        copy_into(out, t)
        if n * m > 65536:
            rows = array_of(out)
            for i in range(n):
                edge = min(max(i + diagonal + (not cls.upper), 0), m)
                rows[(..., i, slice(0, edge) if cls.upper else slice(edge, m))] = 0
            return
        gone = np.arange(m) - np.arange(n)[:, None]
        gone = gone < diagonal if cls.upper else gone > diagonal
        np.copyto(array_of(out), array_of(out).dtype.type(0), where=gone)


def _triangle(t: Tensor, diagonal: int, upper: bool) -> Tensor:
    """A choice by each element's place."""
    if t.dim() < 2:
        raise RuntimeError(
            f"{'triu' if upper else 'tril'}: input tensor must have at least 2 dimensions"
        )
    n, m = t.shape[-2:]
    row = aten.unsqueeze(aten.arange(n, device=t.device), 1)
    off = aten.arange(m, device=t.device) - row
    zero = aten.zeros((), dtype=t.dtype, device=t.device)
    return aten.where(off >= diagonal if upper else off <= diagonal, t, zero)


class Tril(Triangle):
    """What lies on and below a diagonal."""

    schema = "tril(Tensor self, SymInt diagonal=0) -> Tensor"
    reference = "numpy.tril"

    def decompose(t: Tensor, diagonal: int) -> Tensor:
        return _triangle(t, diagonal, False)

    def vjp(b: Any, g: Tensor, t: Tensor, diagonal: int) -> Tensor:
        return aten.tril(g, diagonal)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 1)
        yield s.sample(s.tensor((2, 3, 4)))


class Triu(Triangle):
    """What lies on and above a diagonal."""

    schema = "triu(Tensor self, SymInt diagonal=0) -> Tensor"
    reference = "numpy.triu"
    upper = True

    def decompose(t: Tensor, diagonal: int) -> Tensor:
        return _triangle(t, diagonal, True)

    def vjp(b: Any, g: Tensor, t: Tensor, diagonal: int) -> Tensor:
        return aten.triu(g, diagonal)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), -1)
        yield s.sample(s.tensor((2, 3, 4)))


def _triangle_indices(
    row: int, col: int, offset: int, dtype: Any, device: Any, upper: bool
) -> Tensor:
    import numpy as np  # lazy: NumPy is heavy

    from flambeau._src.core.interchange import share_array  # lazy: with it

    for name, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{name} must be non-negative, got{n}")
    at = np.triu_indices(row, offset, col) if upper else np.tril_indices(row, offset, col)
    made = np.stack(at) if row and col else np.zeros((2, 0), np.int64)
    out = _native.empty(made.shape, dtype or dt.int64, spec((), dtype, None, device).device)
    copy_into(out, share_array(made))
    return out


class TrilIndices(Factory):
    """Row and column indices of the lower triangle, in rows' order."""

    schema = (
        "tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, "
        + OPTIONS.split(", ", 1)[1] + ") -> Tensor"
    )  # fmt: skip

    @staticmethod
    def run(
        row: int, col: int, offset: int, dtype: Any, layout_: Any, device: Any, pin_memory: Any
    ) -> Tensor:
        return _triangle_indices(row, col, offset, None if dtype == 4 else dtype, device, False)


class TriuIndices(Factory):
    """Row and column indices of the upper triangle, in rows' order."""

    schema = (
        "triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=4, "
        + OPTIONS.split(", ", 1)[1] + ") -> Tensor"
    )  # fmt: skip

    @staticmethod
    def run(
        row: int, col: int, offset: int, dtype: Any, layout_: Any, device: Any, pin_memory: Any
    ) -> Tensor:
        return _triangle_indices(row, col, offset, None if dtype == 4 else dtype, device, True)


class DiagEmbed(Opaque):
    """The last dimension as the diagonal of two new ones."""

    schema = "diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor"
    out = "out"

    def meta(t: Tensor, offset: int, dim1: int, dim2: int) -> TensorSpec:
        n = t.dim() + 1
        a, b = wrap_dim(dim1, n), wrap_dim(dim2, n)
        if a == b:
            raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
        wide = abs(offset) + t.shape[-1]
        size = list(t.shape[:-1])
        for d in sorted((a, b)):
            size.insert(d, wide)
        return TensorSpec(size, t.dtype, t.device)

    def kernel(out: Tensor, t: Tensor, offset: int, dim1: int, dim2: int) -> None:
        fill_with(out, 0)
        copy_into(_native.alias(Tensor, out, *Diagonal.view(out, offset, dim1, dim2)), t)

    def decompose(t: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
        size = DiagEmbed.meta(t, offset, dim1, dim2).shape
        blank = aten.zeros(size, dtype=t.dtype, device=t.device)
        return aten.diagonal_scatter(blank, t, offset, dim1, dim2)

    def vjp(b: Any, g: Tensor, t: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
        return aten.diagonal(g, offset, dim1, dim2)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3)), 1)
        yield s.sample(s.tensor(3), 0, 0, 1)


class Diag(Composite):
    """The diagonal of a matrix (a copy), or the matrix with a vector as its diagonal."""

    schema = "diag(Tensor self, int diagonal=0) -> Tensor"
    reference = "numpy.diag"
    out = "out"

    def decompose(self: Tensor, diagonal: int) -> Tensor:
        return Diag.body(self)(self, diagonal)

    def decompose_out(self: Tensor, diagonal: int, out: Tensor) -> Tensor:
        body = Diag.body(self)
        if not dt.can_cast(self.dtype, out.dtype):
            raise RuntimeError(
                f"diag: result type {dt.scalar_name(self.dtype)} can't be cast to the desired out= "
                f"type {dt.scalar_name(out.dtype)}"
            )
        return body(self, diagonal, out=out)

    def body(self: Tensor) -> Callable[..., Tensor]:
        """The operator for self's number of dimensions."""
        n = self.dim()
        if n not in (1, 2):
            raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {n}D")
        made: Callable[..., Tensor] = aten.diag_embed if n == 1 else aten.diagonal_copy
        return made

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor(3), -1)
        yield s.sample(s.tensor((3, 4)))


class DiagFlat(Composite):
    """The matrix with all elements as its diagonal."""

    schema = "diagflat(Tensor self, int offset=0) -> Tensor"
    reference = "numpy.diagflat"

    def decompose(self: Tensor, offset: int) -> Tensor:
        return aten.diag_embed(aten.view(aten.contiguous(self), (-1,)), offset)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 2)))


class Trace(Opaque):
    """The sum of a matrix's diagonal."""

    schema = "trace(Tensor self) -> Tensor"
    reference = "numpy.trace"
    out = "out"

    def meta(t: Tensor) -> TensorSpec:
        if t.dim() != 2:
            raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {t.dim()}")
        whole = dt.is_integral(t.dtype)
        return TensorSpec((), dt.int64 if whole else t.dtype, t.device)

    def kernel(out: Tensor, t: Tensor) -> None:
        if t.dtype is dt.bool_:
            raise NotImplementedError("\"trace\" not implemented for 'Bool'")
        copy_into(out, aten.sum(_native.alias(Tensor, t, *Diagonal.view(t, 0, 0, 1))))

    def decompose(t: Tensor) -> Tensor:
        Trace.meta(t)
        return aten.sum(aten.diagonal(t))

    def vjp(b: Any, g: Tensor, t: Tensor) -> Tensor:
        n, m = t.shape
        flat = aten.zeros((n * m,), dtype=g.dtype, device=g.device)
        at = aten.arange(0, n * m, m + 1, dtype=dt.int64, device=g.device)
        at = aten.slice(at, 0, 0, min(n, m))
        return aten.view(aten.index_fill(flat, 0, at, g), (n, m))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)))


class PixelShuffle(Declaration):
    """Channels spread over space: (*, C r r, H, W) to (*, C, H r, W r)."""

    schema = "pixel_shuffle(Tensor self, int upscale_factor) -> Tensor"
    kind = "copy"

    def run(t: Tensor, r: int) -> Tensor:
        spec_of = PixelShuffle.meta(t, r)
        *batch, c, h, w = spec_of.shape
        n = len(batch)
        parts = aten.reshape(t, (*batch, c, r, r, h // r, w // r))
        order = (*range(n + 1), n + 3, n + 1, n + 4, n + 2)
        made = aten.clone(aten.permute(parts, order), memory_format=layout.contiguous_format)
        return aten._unsafe_view(made, spec_of.shape)

    def meta(t: Tensor, r: int) -> TensorSpec:
        if t.dim() < 3:
            raise RuntimeError(
                "pixel_shuffle expects input to have at least 3 dimensions, but got input with "
                f"{t.dim()} dimension(s)"
            )
        if r <= 0:
            raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
        *batch, c, h, w = t.shape
        if c % (r * r):
            raise RuntimeError(
                "pixel_shuffle expects its input's 'channel' dimension to be divisible by the "
                "square "
                f"of upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
            )
        return TensorSpec((*batch, c // (r * r), h * r, w * r), t.dtype, t.device)

    decompose = run

    def vjp(b: Any, g: Tensor, t: Tensor, r: int) -> Tensor:
        return aten.pixel_unshuffle(g, r)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 8, 2, 3)), 2)


class PixelUnshuffle(Declaration):
    """Space gathered into channels: (*, C, H r, W r) to (*, C r r, H, W)."""

    schema = "pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor"
    kind = "copy"

    def run(t: Tensor, r: int) -> Tensor:
        spec_of = PixelUnshuffle.meta(t, r)
        *batch, c, h, w = t.shape
        n = len(batch)
        parts = aten.reshape(t, (*batch, c, h // r, r, w // r, r))
        order = (*range(n + 1), n + 2, n + 4, n + 1, n + 3)
        made = aten.clone(aten.permute(parts, order), memory_format=layout.contiguous_format)
        return aten._unsafe_view(made, spec_of.shape)

    def meta(t: Tensor, r: int) -> TensorSpec:
        if t.dim() < 3:
            raise RuntimeError(
                "pixel_unshuffle expects input to have at least 3 dimensions, but got input "
                f"with {t.dim()} dimension(s)"
            )
        if r <= 0:
            raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
        *batch, c, h, w = t.shape
        for name, n in (("height", h), ("width", w)):
            if n % r:
                raise RuntimeError(
                    f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but "
                    f"input.size({-2 if name == 'height' else -1})={n} is not divisible by {r}"
                )
        return TensorSpec((*batch, c * r * r, h // r, w // r), t.dtype, t.device)

    decompose = run

    def vjp(b: Any, g: Tensor, t: Tensor, r: int) -> Tensor:
        return aten.pixel_shuffle(g, r)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 2, 4, 6)), 2)


class ChannelShuffle(Declaration):
    """Channels interleaved between groups."""

    schema = "channel_shuffle(Tensor self, SymInt groups) -> Tensor"
    kind = "copy"

    def run(t: Tensor, groups: int) -> Tensor:
        ChannelShuffle.meta(t, groups)
        n, c, *rest = t.shape
        parts = aten.transpose(aten.reshape(t, (n, groups, c // groups, *rest)), 1, 2)
        return aten._unsafe_view(aten.clone(parts, memory_format=layout.contiguous_format), t.shape)

    def meta(t: Tensor, groups: int) -> TensorSpec:
        if t.dim() <= 2:
            raise RuntimeError(
                "channel_shuffle expects input with > 2 dims, but got input with sizes "
                f"{list(t.shape)}"
            )
        if groups <= 0:
            raise RuntimeError(
                f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
            )
        if t.shape[1] % groups:
            raise RuntimeError(
                "Number of channels must be divisible by groups. Got "
                f"{t.shape[1]} channels and {groups} groups."
            )
        return TensorSpec(t.shape, t.dtype, t.device)

    decompose = run

    def vjp(b: Any, g: Tensor, t: Tensor, groups: int) -> Tensor:
        return aten.channel_shuffle(g, t.shape[1] // groups)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 4, 2, 2)), 2)
