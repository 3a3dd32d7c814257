"""Borders around the last dimensions: constant, reflected, replicated, wrapped around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, copy_into
from flambeau._src.ops.copying import fill_with
from flambeau._src.ops.joining import suggested_format
from flambeau._src.ops.kinds import Composite, Opaque
from flambeau._src.ops.op import TensorSpec
from flambeau._src.ops.strided import placed


class ConstantPad(Opaque):
    """A border of `value`; pad holds (before, after) from the last dimension on; negative: cut."""

    schema = "constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor"
    public = "function"

    def meta(t: Tensor, pad: Sequence[int], value: Any) -> TensorSpec:
        if len(pad) % 2:
            raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
        if len(pad) // 2 > t.dim():
            raise RuntimeError(
                "Length of pad should be no more than twice the number of dimensions of the input. "
                f"Pad length is {len(pad)} while the input has {t.dim()} dimensions."
            )
        size = list(t.shape)
        for i in range(len(pad) // 2):
            d = t.dim() - 1 - i
            cut = sum(min(p, 0) for p in pad[2 * i : 2 * i + 2])
            if size[d] + cut < 0:
                raise RuntimeError("narrow(): length must be non-negative.")
            size[d] += pad[2 * i] + pad[2 * i + 1]
        if all(p <= 0 for p in pad):
            stride = layout.strides_like(_inner(t, pad), None)
            return TensorSpec(size, t.dtype, t.device, stride)
        return TensorSpec(size, t.dtype, t.device, layout.strides_for(size, suggested_format(t)))

    whole = True

    def decompose(t: Tensor, pad: Sequence[int], value: Any) -> Tensor:
        size, inner, where = ConstantPad.meta(t, pad, value).shape, t, []
        for i in range(len(pad) // 2):
            d, before, after = t.dim() - 1 - i, pad[2 * i], pad[2 * i + 1]
            if before < 0 or after < 0:
                inner = aten.slice(inner, d, -min(before, 0), t.shape[d] + min(after, 0))
            if before > 0 or after > 0:
                where.append((d, max(before, 0), size[d] - max(after, 0)))
        if not where:
            return aten.clone(inner)
        made = {"dtype": t.dtype, "device": t.device}
        blank = aten.empty(size, memory_format=suggested_format(t), **made)
        return placed(aten.fill(blank, value), inner, where)

    def kernel(out: Tensor, t: Tensor, pad: Sequence[int], value: Any) -> None:
        if any(p > 0 for p in pad):
            fill_with(out, value)
        copy_into(_inner(out, [-p for p in pad]), _inner(t, pad))

    def vjp(b: Any, g: Tensor, t: Tensor, pad: Sequence[int], value: Any) -> Tensor:
        return aten.constant_pad_nd(g, tuple(-p for p in pad))

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), (1, 2), 3.0)
        yield s.sample(s.tensor((3, 4)), (-1, 2, 0, 1))
        yield s.sample(s.tensor((3, 4)), (-1, -1))


def _inner(t: Tensor, pad: Sequence[int]) -> Tensor:
    """t without what negative entries of pad cut away; no layer sees it."""
    size, stride, offset = list(t.shape), t.stride(), t.storage_offset()
    for i in range(len(pad) // 2):
        d = t.dim() - 1 - i
        before, after = min(pad[2 * i], 0), min(pad[2 * i + 1], 0)
        offset -= before * stride[d]
        size[d] += before + after
    return _native.alias(Tensor, t, size, stride, offset)


# ---- borders from the tensor's own elements ----


def reflected(n: int, before: int, i: Any) -> Any:
    """Which of n elements stands at place i of the padded line: mirrored, the edge not repeated."""
    i = abs(i - before)
    return (n - 1) - abs((n - 1) - i)


def replicated(n: int, before: int, i: Any) -> Any:
    """Which of n elements stands at place i of the padded line: the edge repeated."""
    return (i - before).clip(0, n - 1)


class Border(Opaque):
    """Each of the last `dims` dimensions extended by elements of its own. `place` says which."""

    public = "nn"
    dims = 1
    place: Any = None
    reach = True  # whether a border must be narrower than the dimension

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        t, pad = args
        n, k = t.dim(), cls.dims
        if n not in (k + 1, k + 2) or any(not s for s in t.shape[n - k - 1 :]):
            raise RuntimeError(
                f"Expected {k + 1}D or {k + 2}D (batch mode) tensor with possibly 0 batch size and "
                f"other non-zero dimensions for input, but got: {list(t.shape)}"
            )
        size = list(t.shape)
        for i in range(k):
            d, (before, after) = n - 1 - i, pad[2 * i : 2 * i + 2]
            if cls.reach and (before >= size[d] or after >= size[d]):
                raise RuntimeError(
                    f"Argument #{4 + 2 * i}: Padding size should be less than the corresponding "
                    "input "
                    f"dimension, but got: padding ({before}, {after}) at dimension {d} of input "
                    f"{list(t.shape)}"
                )
            size[d] += before + after
            if size[d] < 1:
                raise RuntimeError(
                    f"input ({', '.join(map(str, t.shape[n - k :]))}) is too small. Calculated "
                    "output "
                    f"size: {size[n - k :]}"
                )
        return TensorSpec(size, t.dtype, t.device, layout.strides_for(size, suggested_format(t)))

    @classmethod
    def check_dtype(cls, t: Tensor) -> None:
        if t.dtype is dt.bool_:
            raise NotImplementedError(f"\"{cls.op.name}\" not implemented for 'Bool'")

    @classmethod
    def places(cls, t: Tensor, size: Sequence[int], pad: Sequence[int]) -> list[Any]:
        """Index tensors of the padded tensor's elements in t."""
        n, k = t.dim(), cls.dims
        found: list[Any] = [None] * n
        for i in range(k):
            d = n - 1 - i
            at = cls.place(t.shape[d], pad[2 * i], aten.arange(size[d], device=t.device))
            found[d] = aten.reshape(at, (-1,) + (1,) * i)
        return found

    whole = True

    @classmethod
    def decompose(cls, t: Tensor, pad: Sequence[int]) -> Tensor:
        size = cls.infer(cls.op, (t, pad)).shape
        cls.check_dtype(t)
        made = aten._unsafe_index(t, cls.places(t, size, pad))
        return aten.contiguous(made, memory_format=suggested_format(t))

    @classmethod
    def compute(cls, op: Any, out: Tensor, args: tuple[Any, ...]) -> None:
        t, pad = args
        cls.check_dtype(t)
        if out.numel():
            cls.walk("get", out, t, pad)

    @classmethod
    def walk(cls, how: str, padded: Tensor, t: Tensor, pad: Sequence[int]) -> None:
        """Move between the padded tensor and t, whose places are worked out for the last dims."""
        import numpy as np  # lazy: NumPy is heavy

        from flambeau._src.core.interchange import share_array  # lazy: with it

        n, k = t.dim(), cls.dims
        grid: Any = np.zeros((1,) * k, np.int64)
        for i in range(k):
            d = n - 1 - i
            at = cls.place(t.shape[d], pad[2 * i], np.arange(padded.shape[d])) * t.stride(d)
            grid = grid + at.reshape((-1,) + (1,) * i)
        places = share_array(np.ascontiguousarray(grid))
        own = (*t.stride()[: n - k], *[0] * k)
        _native.indexed(
            how, padded, _native.alias(Tensor, t, padded.shape, own, None),
            _native.alias(Tensor, places, padded.shape, (*[0] * (n - k), *places.stride()), 0),
            1, 0,
        )  # fmt: skip


class BorderBackward(Opaque):
    """The gradient of a border: what was taken several times is summed. `of` is the border."""

    public = "nn"
    of: type[Border]

    @classmethod
    def infer(cls, op: Any, args: tuple[Any, ...]) -> TensorSpec:
        t = args[1]
        return TensorSpec(
            t.shape, t.dtype, t.device, layout.strides_for(t.shape, suggested_format(t))
        )

    whole = True

    @classmethod
    def decompose(cls, g: Tensor, t: Tensor, pad: Sequence[int]) -> Tensor:
        made = {"dtype": t.dtype, "device": t.device}
        blank = aten.empty(t.shape, memory_format=suggested_format(t), **made)
        at = cls.of.places(t, g.shape, pad)
        return aten._unsafe_index_put(aten.fill(blank, 0), at, g, True)

    @classmethod
    def compute(cls, op: Any, out: Tensor, args: tuple[Any, ...]) -> None:
        g, _, pad = args
        fill_with(out, 0)
        if g.numel():
            cls.of.walk("add", g, out, pad)


def _border(name: str, dims: int, place: Any, reach: bool) -> None:
    title = f"{name.capitalize()}Pad{dims}D"
    full, back = f"{name}_pad{dims}d", f"{name}_pad{dims}d_backward"

    def vjp(b: Any, g: Tensor, t: Tensor, padding: Any) -> Tensor:
        return getattr(aten, back)(g, t, padding)

    def second(b: Any, gg: Tensor, g: Tensor, t: Tensor, padding: Any) -> Any:
        none = aten.zeros_like(t) if b.needs[1] else None  # t's extents alone count
        return getattr(aten, full)(gg, padding), none

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((2, 3, *[4] * dims)), (1, 2) * dims)
        yield s.sample(s.tensor((3, *[4] * dims)), (2, -1) * dims)

    forward = type(title, (Border,), {
        "__doc__": f"{name} borders around the last {dims} dimension(s).", "__module__": __name__,
        "schema": f"{full}(Tensor self, SymInt[{2 * dims}] padding) -> Tensor", "dims": dims,
        "place": staticmethod(place), "reach": reach, "vjp": vjp, "node_name": title,
        "samples": samples, "out": "out",
    })  # fmt: skip
    type(title + "Backward", (BorderBackward,), {
        "__doc__": f"The gradient of {full}.", "__module__": __name__, "of": forward, "vjp": second,
        "schema": f"{back}(Tensor grad_output, Tensor self, SymInt[{2 * dims}] padding) -> Tensor",
    })  # fmt: skip


for _dims in (1, 2, 3):
    _border("reflection", _dims, reflected, True)
    _border("replication", _dims, replicated, False)


def wrapped_around(t: Tensor, pad: Sequence[int]) -> Tensor:
    """Borders taken from the other end of each dimension."""
    k = len(pad) // 2
    n = t.dim()
    size = list(t.shape)
    for i in range(k):
        d, (before, after) = n - 1 - i, pad[2 * i : 2 * i + 2]
        if before > t.shape[d] or after > t.shape[d]:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        size[d] += before + after
        if size[d] < 0:
            raise RuntimeError("Negative padding value is resulting in an empty dimension")
    out = aten.new_empty(t, size)
    to, source = out, t
    for i in range(k):
        d, (before, after) = n - 1 - i, pad[2 * i : 2 * i + 2]
        to = aten.slice(to, d, max(before, 0), size[d] - max(after, 0))
        source = aten.slice(source, d, max(-before, 0), t.shape[d] - max(-after, 0))
    aten.copy_(to, source)
    for i in range(k):
        d, (before, after) = n - 1 - i, pad[2 * i : 2 * i + 2]
        inner = size[d] - max(after, 0)
        if before > 0:
            aten.copy_(aten.slice(out, d, 0, before), aten.slice(out, d, inner - before, inner))
        if after > 0:
            begin = max(before, 0)
            aten.copy_(aten.slice(out, d, inner, size[d]), aten.slice(out, d, begin, begin + after))
    return out


class Pad(Composite):
    """Borders of the given widths, (before, after) from the last dimension on; mode is 'constant',
    'reflect', 'replicate' or 'circular'."""

    schema = 'pad(Tensor self, SymInt[] pad, str mode="constant", float? value=None) -> Tensor'
    public = "nn"

    def decompose(self: Tensor, pad: Sequence[int], mode: str, value: float | None) -> Tensor:
        if len(pad) % 2:
            raise RuntimeError("Padding length must be divisible by 2")
        if mode == "constant":
            if len(pad) > 2 * self.dim():
                raise RuntimeError(
                    "Padding length should be less than or equal to two times the input dimension "
                    f"but got padding length {len(pad)} and input of dimension {self.dim()}"
                )
            return aten.constant_pad_nd(self, pad, 0.0 if value is None else value)
        if value is not None and value != 0:
            raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
        if mode not in ("reflect", "replicate", "circular"):
            raise NotImplementedError(f"Unrecognised padding mode {mode}")
        k = len(pad) // 2
        if k not in (1, 2, 3) or self.dim() not in (k + 1, k + 2):
            raise NotImplementedError(
                f"Padding size {len(pad)} is not supported for {self.dim()}D input tensor.\n"
                "Supported combinations for non-constant padding:\n"
                "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
                "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
                "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
            )
        if mode == "circular":
            return wrapped_around(self, pad)
        name = "reflection" if mode == "reflect" else "replication"
        return getattr(aten, f"{name}_pad{k}d")(self, pad)

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((3, 4)), (1, 2))
        yield s.sample(s.tensor((1, 2, 4)), (2, 1), "circular")
