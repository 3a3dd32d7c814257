"""as_strided, the scatters of views, and the gradients of views that leave most of a tensor out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import (
    aten,
    check_out_dtype,
    copy_into,
    dispatch,
    overlaps_itself,
    resize_output,
)
from flambeau._src.ops.copying import check_expands, fill_with
from flambeau._src.ops.kinds import Opaque, View, cast, wrap_dim
from flambeau._src.ops.op import NODE_NUMBERS, Declaration, TensorSpec
from flambeau._src.ops.views import (
    Diagonal,
    Geometry,
    MultiView,
    ReshapedInPlace,
    Select,
    Slice,
    Unfold,
)


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements of a storage lie between a view's first and last one, both included."""
    if any(s == 0 for s in size):
        return 0
    return 1 + sum((s - 1) * st for s, st in zip(size, stride, strict=True))


def maybe_overlaps(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether two indices may mean the same element (no false negatives)."""
    furthest = 0
    for st, s in sorted(zip(stride, size, strict=True)):
        if s <= 1:
            continue
        if st <= furthest:
            return True
        furthest += st * (s - 1)
    return False


class AsStrided(ReshapedInPlace):
    """Any geometry over the tensor's storage; the offset counts from the storage's start."""

    schema = (
        "as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) "
        "-> Tensor(a)"
    )
    inplace = (
        "as_strided_(Tensor(a!) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) "
        "-> Tensor(a!)"
    )

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError, "mismatch in length of strides and shape", s.tensor((6,)), [2, 3], [1]
        )
        yield s.error(RuntimeError, "Negative strides are not supported", s.tensor((6,)), [2], [-1])

    def view(
        t: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
    ) -> Geometry:
        offset = t.storage_offset() if storage_offset is None else storage_offset
        if len(size) != len(stride):
            raise RuntimeError("mismatch in length of strides and shape")
        if any(s < 0 for s in stride):
            raise RuntimeError(
                "as_strided: Negative strides are not supported at the moment, got strides: "
                f"{list(stride)}"
            )
        if offset < 0:
            raise RuntimeError(f"Tensor: invalid storage offset {offset}")
        if any(s < 0 for s in size):
            raise RuntimeError(
                f"Storage size calculation overflowed with sizes={list(size)} and "
                f"strides={list(stride)}"
            )
        storage, item = t.untyped_storage(), t.element_size()
        needed = extent(size, stride)
        if needed and (needed + offset) * item > storage.nbytes() and not storage.is_fake:
            raise RuntimeError(
                f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, "
                f"and itemsize {item} requiring a storage size of {(needed + offset) * item} are "
                "out "
                f"of bounds for storage of size {storage.nbytes()}"
            )
        return size, stride, offset

    def vjp(b: Any, g: Tensor, t: Tensor, size: Any, stride: Any, storage_offset: Any) -> Tensor:
        offset = t.storage_offset() if storage_offset is None else storage_offset
        return strided_gradient(g, t, size, stride, offset)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4), layout="contiguous"), (2, 2), (1, 3), 1)
        yield s.sample(s.tensor((3, 4), layout="contiguous"), (3, 2), (2, 1))
        yield s.sample(s.tensor((3, 4), layout="contiguous"), (2, 4), (0, 1))


def strided_gradient(
    g: Tensor, t: Tensor, size: Sequence[int], stride: Sequence[int], offset: int
) -> Tensor:
    """The gradient of as_strided: g laid into a storage, which is then read with t's geometry.
    Elements that the result holds several times are summed; those that t holds several times
    share their gradient evenly."""
    if 0 in size or 0 in t.shape:
        return aten.new_zeros(g, t.shape)
    out_size, out_stride = [], []
    d = 0
    for s, st in zip(size, stride, strict=True):
        if s == 1:
            g = aten.squeeze(g, d)
        elif st == 0:
            g = aten.sum(g, [d])
        else:
            out_size.append(s)
            out_stride.append(st)
            d += 1
    kept = [(s, st) for s, st in zip(t.shape, t.stride(), strict=True) if s != 1 and st != 0]
    in_size, in_stride = [s for s, _ in kept], [st for _, st in kept]
    shared = min(t.storage_offset(), offset)
    start, offset = t.storage_offset() - shared, offset - shared
    n = max(start + extent(in_size, in_stride), offset + extent(out_size, out_stride))
    storage = aten.new_zeros(g, (n,))
    out_overlap, in_overlap = (
        maybe_overlaps(out_size, out_stride),
        maybe_overlaps(in_size, in_stride),
    )
    every = aten.arange(n, dtype=dt.int64, device=g.device) if out_overlap or in_overlap else None
    if out_overlap:
        at = aten.reshape(aten.as_strided(every, out_size, out_stride, offset), (-1,))
        storage = aten.index_add(storage, 0, at, aten.reshape(g, (-1,)))
    else:
        aten.copy_(aten.as_strided(storage, out_size, out_stride, offset), g)
    if in_overlap:
        at = aten.reshape(aten.as_strided(every, in_size, in_stride, start), (-1,))
        ones = aten.expand(aten.new_ones(g, (1,)), at.shape)
        storage = storage / aten.index_add(aten.zeros_like(storage), 0, at, ones)
    return aten.as_strided(storage, t.shape, t.stride(), start)


def keep_geometry(t: Tensor) -> Tensor:
    """A copy of t and of what lies between its elements: same strides and offset."""
    n = t.storage_offset() + extent(t.shape, t.stride())
    flat = _native.empty((n,), t.dtype, t.device)
    if n and not t.untyped_storage().is_fake:
        copy_into(flat, _native.alias(Tensor, t, (n,), (1,), 0))
    return _native.alias(Tensor, flat, t.shape, t.stride(), t.storage_offset())


def check_part(src: Tensor, size: Sequence[int]) -> None:
    if tuple(src.shape) != tuple(size):
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(size)}"
        )


class Scatter(Declaration):
    """A copy of self with a view of it overwritten by src. `of` is the view."""

    kind = "copy"
    out = "out"
    of: type[View]

    @classmethod
    def run(cls, self: Tensor, src: Tensor, *where: Any) -> Tensor:
        if overlaps_itself(self):  # an expanded tensor: every element gets its own bytes
            out = _native.empty(self.shape, self.dtype, self.device)
            copy_into(out, self)
        else:
            out = keep_geometry(self)
        size, stride, offset = cls.of.view(out, *where)
        check_part(src, size)
        if not out.untyped_storage().is_fake:
            copy_into(_native.alias(Tensor, out, size, stride, offset), src)
        return out

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        self, src, *where = args
        check_part(src, cls.of.view(self, *where)[0])
        stride = None if overlaps_itself(self) else self.stride()
        return TensorSpec(self.shape, self.dtype, self.device, stride)


def zeros_for(src: Tensor, g: Tensor) -> Tensor:
    return aten.zeros(src.shape, dtype=g.dtype, device=g.device)


def to_dtype_of(g: Tensor, t: Tensor) -> Tensor:
    """A gradient in the dtype of the tensor that it belongs to."""
    if g.dtype is t.dtype:
        return g
    if g.dtype.is_complex and not t.dtype.is_complex:
        g = aten.real(g)
    return aten._to_copy(g, dtype=t.dtype) if g.dtype is not t.dtype else g


class SelectScatter(Scatter):
    """self with one index of a dimension replaced."""

    schema = "select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor"
    of = Select
    whole = True

    def decompose(t: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
        check_expands(src, Select.view(t, dim, index)[0])
        d = wrap_dim(dim, t.dim())
        index = index + t.shape[d] if index < 0 else index
        return aten.slice_scatter(t, aten.unsqueeze(src, d), d, index, index + 1)

    def vjp(b: Any, g: Tensor, t: Tensor, src: Tensor, dim: int, index: int) -> Any:
        return (
            aten.select_scatter(g, zeros_for(src, g), dim, index) if b.needs[0] else None,
            to_dtype_of(aten.select(g, dim, index), src) if b.needs[1] else None,
        )

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.tensor(3), 1, 2)


class SliceScatter(Scatter):
    """self with a slice of a dimension replaced."""

    schema = (
        "slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, "
        "SymInt step=1) -> Tensor"
    )
    of = Slice

    def vjp(
        b: Any, g: Tensor, t: Tensor, src: Tensor, dim: int, start: Any, end: Any, step: int
    ) -> Any:
        return (
            aten.slice_scatter(g, zeros_for(src, g), dim, start, end, step) if b.needs[0] else None,
            to_dtype_of(aten.slice(g, dim, start, end, step), src) if b.needs[1] else None,
        )

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.tensor((3, 2)), 1, 0, 4, 2)


class DiagonalScatter(Scatter):
    """self with a diagonal replaced."""

    schema = (
        "diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor"
    )
    of = Diagonal

    def vjp(b: Any, g: Tensor, t: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Any:
        return (
            aten.diagonal_scatter(g, zeros_for(src, g), offset, dim1, dim2) if b.needs[0] else None,
            to_dtype_of(aten.diagonal(g, offset, dim1, dim2), src) if b.needs[1] else None,
        )

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), s.tensor(3), 1)


class AsStridedScatter(Scatter):
    """self with what as_strided would read replaced."""

    schema = (
        "as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, "
        "SymInt? storage_offset=None) -> Tensor"
    )
    of = AsStrided

    def vjp(
        b: Any, g: Tensor, t: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Any
    ) -> Any:
        """torch's: for a contiguous self; self gets the gradient of the part, not of the rest."""
        at = t.storage_offset() if storage_offset is None else storage_offset
        g = aten.contiguous(g)
        part = aten.as_strided(g, size, stride, at + g.storage_offset())
        own = None
        if b.needs[0]:
            own = aten.new_zeros(g, t.shape)
            aten.copy_(aten.as_strided(own, size, stride, at), part)
        return own, to_dtype_of(part, src) if b.needs[1] else None


def placed(whole: Tensor, part: Tensor, where: Sequence[tuple[int, int, int]]) -> Tensor:
    """whole with part in its place: (dimension, start, end), each dimension once."""
    if not where:
        return aten.copy(whole, part)
    (d, start, end), *rest = where
    if rest:
        part = placed(aten.slice(whole, d, start, end), part, rest)
    return aten.slice_scatter(whole, part, d, start, end)


# ---- gradients of views: a zero tensor with the gradient where the view lay ----


def _blank(g: Tensor, size: Any) -> Tensor:
    return aten.zeros(tuple(size), dtype=g.dtype, device=g.device)


class ViewGradient(Opaque):
    """Zeros of input_sizes with grad_output in the place of a view."""

    public = ""
    of: type[View]

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        return TensorSpec(args[1], args[0].dtype, args[0].device)

    @classmethod
    def compute(cls, op: Any, out: Tensor, args: tuple[Any, ...]) -> None:
        g, _, *where = args
        fill_with(out, 0)
        part = _native.alias(Tensor, out, *cls.of.view(out, *where))
        check_expands(g, part.shape)
        copy_into(part, g)


class SelectBackward(ViewGradient):
    """The gradient of select."""

    schema = (
        "select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor"
    )
    of = Select

    def decompose(g: Tensor, input_sizes: Any, dim: int, index: int) -> Tensor:
        return aten.select_scatter(_blank(g, input_sizes), g, dim, index)

    def vjp(b: Any, g: Tensor, x: Tensor, input_sizes: Any, dim: int, index: int) -> Tensor:
        return aten.select(g, dim, index)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor(3), (3, 4), 1, 2)


class SliceBackward(ViewGradient):
    """The gradient of slice."""

    schema = (
        "slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, "
        "SymInt end, SymInt step) -> Tensor"
    )
    of = Slice

    def decompose(g: Tensor, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Tensor:
        return aten.slice_scatter(_blank(g, input_sizes), g, dim, start, end, step)

    def vjp(
        b: Any, g: Tensor, x: Tensor, input_sizes: Any, dim: int, start: int, end: int, step: int
    ) -> Tensor:
        return aten.slice(g, dim, start, end, step)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 2)), (3, 4), 1, 0, 4, 2)


class DiagonalBackward(ViewGradient):
    """The gradient of diagonal."""

    schema = (
        "diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int dim1, "
        "int dim2) -> Tensor"
    )
    of = Diagonal

    def decompose(g: Tensor, input_sizes: Any, offset: int, dim1: int, dim2: int) -> Tensor:
        return aten.diagonal_scatter(_blank(g, input_sizes), g, offset, dim1, dim2)

    def vjp(
        b: Any, g: Tensor, x: Tensor, input_sizes: Any, offset: int, dim1: int, dim2: int
    ) -> Tensor:
        return aten.diagonal(g, offset, dim1, dim2)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor(3), (3, 4), 1, 0, 1)


class UnfoldBackward(Opaque):
    """The gradient of unfold: windows summed where they overlap."""

    schema = (
        "unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, int size, int step) "
        "-> Tensor"
    )
    public = ""

    def meta(g: Tensor, input_sizes: Any, dim: int, size: int, step: int) -> TensorSpec:
        return TensorSpec(input_sizes, g.dtype, g.device)

    def kernel(out: Tensor, g: Tensor, input_sizes: Any, dim: int, size: int, step: int) -> None:
        fill_with(out, 0)
        if not g.numel():
            return
        if step >= size or not out.dim():
            copy_into(_native.alias(Tensor, out, *Unfold.view(out, dim, size, step)), g)
            return
        from flambeau._src.core.interchange import array_of  # lazy: NumPy is heavy

        # The windows' later elements first: every sum then runs from the first window to the last.
        d, n = wrap_dim(dim, out.dim()), g.shape[wrap_dim(dim, out.dim())]
        small = out.dtype in (dt.float16, dt.bfloat16)
        wide = _native.empty(out.shape, dt.float32, out.device) if small else out
        if small:
            fill_with(wide, 0)
        total, windows = array_of(wide), array_of(cast(g, dt.float32) if small else g)
        for i in range(size - 1, -1, -1):
            at = (slice(None),) * d + (slice(i, i + (n - 1) * step + 1, step),)
            total[at] += windows[..., i]
            if small:
                copy_into(out, wide)
                copy_into(wide, out)

    def vjp(
        b: Any, g: Tensor, x: Tensor, input_sizes: Any, dim: int, size: int, step: int
    ) -> Tensor:
        return aten.unfold(g, dim, size, step)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, 3)), (2, 7), 1, 3, 2)


# ---- copies of views ----


class ViewCopy(Declaration):
    """What a view shows, in fresh contiguous bytes. `of` is the view."""

    kind = "copy"
    public = "function"
    out: bool | str = True
    of: type[View]

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        size, _, _, *dtype = cls.of.view(*args)
        return TensorSpec(size, dtype[0] if dtype else args[0].dtype, args[0].device)

    @classmethod
    def compute(cls, op: Any, out: Tensor, args: tuple[Any, ...]) -> None:
        copy_into(out, _native.alias(Tensor, args[0], *cls.of.view(*args)))


def as_copy(of: type[View], overload_of_out: bool | str = True) -> type[ViewCopy]:
    """Declare `name_copy` beside the view `name`."""
    head, _, rest = of.schema.partition("(")
    name, dot, overload = head.partition(".")
    text = f"{name}_copy{dot}{overload}({rest}".replace("Tensor(a)", "Tensor")
    number = NODE_NUMBERS.get((name, overload), 0)
    node = "".join(p.capitalize() for p in name.split("_")) + f"Backward{number}_copy"

    def decompose(*args: Any) -> Tensor:
        return aten.clone(dispatch(of.op, args), memory_format=layout.contiguous_format)

    body = {
        "decompose": decompose, "node_name": node, "schema": text, "of": of, "vjp": of.vjp,
        "__doc__": f"A copy of what {name} shows.",
        "differentiable": of.differentiable, "out": overload_of_out, "__module__": __name__,
    }  # fmt: skip
    return type(of.__name__ + "Copy", (ViewCopy,), body)


class ViewCopies(Declaration):
    """What several views show, each in fresh contiguous bytes. `of` declares the views."""

    kind = "copy"
    public = "function"
    of: type[MultiView]

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> tuple[TensorSpec, ...]:
        t = args[0]
        return tuple(TensorSpec(size, t.dtype, t.device) for size, _, _ in cls.of.views(*args))

    @classmethod
    def compute(cls, op: Any, outs: tuple[Tensor, ...], args: tuple[Any, ...]) -> None:
        for out, geometry in zip(outs, cls.of.views(*args), strict=True):
            copy_into(out, _native.alias(Tensor, args[0], *geometry))


def as_copies(of: type[MultiView], resizes: bool = True) -> None:
    """Declare `name_copy` beside the views `name`, and its overload that writes into a list.
    `resizes`: whether that gives each its shape, and wants its dtype; else it copies as copy_."""
    head, _, rest = of.schema.partition("(")
    name, dot, overload = head.partition(".")
    args = rest.rpartition(") ->")[0].replace("Tensor(a -> *)", "Tensor")
    into = f"{overload}_out" if overload else "out"

    def decompose(*args: Any) -> list[Tensor]:
        parts = dispatch(of.op, args)
        return [aten.clone(t, memory_format=layout.contiguous_format) for t in parts]

    def run(t: Tensor, *rest: Any) -> None:
        outs, parts = rest[-1], of.views(t, *rest[:-1])
        if len(outs) != len(parts):
            where = f"{name}_copy_{into}" + ("" if resizes else "()")
            raise RuntimeError(
                f"{where} expected an out= argument of size {len(parts)}, got size {len(outs)}"
            )
        for out, geometry in zip(outs, parts, strict=True):
            if resizes:
                check_out_dtype(made.op, t.dtype, out.dtype)
                resize_output(out, geometry[0])
            if out.device != t.device:
                raise RuntimeError(
                    f"Attempting to copy from device {t.device} to device {out.device}, but "
                    "cross-device copies are not allowed!"
                )
            shown = _native.alias(Tensor, t, *geometry)
            check_expands(shown, out.shape)
            copy_into(out, shown)

    both = {"kind": "copy", "public": "function", "__module__": __name__}
    made: type[Any] = type(of.__name__ + "Copy", (ViewCopies,), both | {
        "schema": f"{name}_copy{dot}{overload}({args}) -> Tensor[]", "of": of, "vjp": of.vjp,
        "node_name": "".join(p.capitalize() for p in name.split("_")) + "Backward0_copy",
        "decompose": decompose, "samples": of.samples, "__doc__": f"Copies of what {name} shows.",
    })  # fmt: skip
    type(of.__name__ + "CopyOut", (Declaration,), both | {
        "schema": f"{name}_copy.{into}({args}, *, Tensor(a!)[] out) -> ()", "run": run,
        "differentiable": False, "__doc__": f"Copies of what {name} shows, into tensors given.",
    })  # fmt: skip


class NarrowCopy(Declaration):
    """A copy of `length` indices of a dimension from start on."""

    schema = "narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor"
    kind = "copy"
    out = "out"

    def bounds(t: Tensor, dim: int, start: int, length: int) -> Geometry:
        if not t.dim():
            raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
        if dim >= t.dim():
            raise RuntimeError(
                "Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got "
                "false.  "
                "(Could this error message be improved?  If so, please report an enhancement "
                "request "
                "to PyTorch.)"
            )
        n = t.shape[wrap_dim(dim, t.dim())]
        if not -n <= start <= n:
            raise IndexError(
                f"start out of range (expected to be in range of [-{n}, {n}], but got {start})"
            )
        start += n if start < 0 else 0
        if length < 0 or start + length > n:
            raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
        return Slice.view(t, dim, start, start + length, 1)

    def meta(t: Tensor, dim: int, start: int, length: int) -> TensorSpec:
        return TensorSpec(NarrowCopy.bounds(t, dim, start, length)[0], t.dtype, t.device)

    def kernel(out: Tensor, t: Tensor, dim: int, start: int, length: int) -> None:
        copy_into(out, _native.alias(Tensor, t, *NarrowCopy.bounds(t, dim, start, length)))

    def decompose(t: Tensor, dim: int, start: int, length: int) -> Tensor:
        shown = aten.narrow(t, dim, start, length)
        return aten.clone(shown, memory_format=layout.contiguous_format)

    def vjp(b: Any, g: Tensor, t: Tensor, dim: int, start: int, length: int) -> Tensor:
        return aten.slice_backward(g, t.shape, dim, start, start + length, 1)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), 1, 1, 2)
