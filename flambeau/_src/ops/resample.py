"""Resizing: nearest, linear, cubic and anti-aliased interpolation of the spatial dimensions.

Every mode is a linear map along each dimension: an output place is a weighted sum of a few input
places (`taps`). Coordinates are computed in float64, but for the nearest place, where rounding
decides, in the dtype in which values are (float32 for 16-bit)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import not_implemented, store, wide
from flambeau._src.ops.call import aten, dispatch
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.op import packet

_CUBIC = -0.75  # Keys 1981; the anti-aliased filter takes -0.5


def ratio(n_in: int, n_out: int, align: bool, scale: float | None, kind: Any) -> Any:
    """How far one goes in the input for a step in the output."""
    if align:
        return kind((n_in - 1) / (n_out - 1)) if n_out > 1 else kind(0)
    if scale is not None and scale > 0:
        return kind(1.0 / scale)
    return kind(n_in) / kind(n_out)


def _cubic_weights(t: Any, a: float) -> list[Any]:
    """The weights of the four neighbours of a point at t in [0, 1] after the second."""

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def taps(
    mode: str, n_in: int, n_out: int, align: bool, scale: float | None, kind: Any
) -> list[tuple[Any, Any]]:
    """[(places in the input, weights or None)], one pair a neighbour."""
    import numpy as np  # lazy: NumPy is heavy

    out = np.arange(n_out).astype(kind)
    if mode in ("nearest", "nearest-exact"):
        step = ratio(n_in, n_out, align, scale, kind)
        at = out * step if mode == "nearest" else (out + kind(0.5)) * step
        return [(np.minimum(np.floor(at.astype(np.float32)).astype(np.int64), n_in - 1), None)]
    out = np.arange(n_out, dtype=np.float64)
    step = ratio(n_in, n_out, align, scale, np.float64)
    at = out * step if align else (out + 0.5) * step - 0.5
    if mode == "linear":
        if n_in == n_out and (align or step == 1):
            return [(np.arange(n_in), None)]
        at = np.maximum(at, 0)
    low = np.minimum(np.floor(at).astype(np.int64), n_in - 1)
    t = np.clip(at - low, 0, 1)
    if mode == "linear":
        return [(low, (1 - t).astype(kind)), (np.minimum(low + 1, n_in - 1), t.astype(kind))]
    return [
        (np.clip(low - 1 + i, 0, n_in - 1), w.astype(kind))
        for i, w in enumerate(_cubic_weights(t, _CUBIC))
    ]


def _filter(mode: str, x: Any) -> Any:
    import numpy as np  # lazy: NumPy is heavy

    x = np.abs(x)
    if mode == "linear":
        return np.maximum(1 - x, 0)
    if mode == "cubic":
        a = -0.5
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x < 1, near, np.where(x < 2, far, 0))
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


def filtered(mode: str, n_in: int, n_out: int, align: bool, scale: float | None, kind: Any) -> Any:
    """The (n_out, n_in) matrix of anti-aliased interpolation: the filter widens with the step."""
    import numpy as np  # lazy: NumPy is heavy

    step = ratio(n_in, n_out, align, scale, kind)
    reach = {"linear": 2, "cubic": 4, "lanczos": 6}[mode] * 0.5
    support = kind(reach * step) if step >= 1 else kind(reach)
    inverse = kind(1.0 / step) if step >= 1 else kind(1)
    m = np.zeros((n_out, n_in), kind)
    for i in range(n_out):
        centre = kind(step * kind(i + 0.5))
        first = max(int(centre - support + kind(0.5)), 0)
        last = min(int(centre + support + kind(0.5)), n_in)
        w = _filter(mode, (np.arange(first, last) - centre + kind(0.5)).astype(kind) * inverse)
        total = w.sum()
        m[i, first:last] = w / total if total else w
    return m


def matrix(pairs: list[tuple[Any, Any]], n_in: int, kind: Any) -> Any:
    """The taps as a dense (n_out, n_in) matrix."""
    import numpy as np  # lazy: NumPy is heavy

    m = np.zeros((len(pairs[0][0]), n_in), kind)
    for at, w in pairs:
        np.add.at(m, (np.arange(len(at)), at), 1 if w is None else w)
    return m


def _along(a: Any, m: Any, axis: int) -> Any:
    import numpy as np  # lazy: NumPy is heavy

    return np.moveaxis(np.matmul(np.ascontiguousarray(np.moveaxis(a, axis, -1)), m), -1, axis)


def _check(x_shape: Sequence[int], size: Sequence[int], d: int) -> None:
    if len(size) != d:
        raise RuntimeError(f"It is expected output_size equals to {d}, but got size {len(size)}")
    if len(x_shape) != d + 2:
        raise RuntimeError(
            f"It is expected input_size equals to {d + 2}, but got size {len(x_shape)}"
        )
    names = "DHW"[3 - d :]
    if any(n < 1 for n in (*x_shape[2:], *size)):  # `min` would compare extents with each other
        before = ", ".join(f"{c}: {s}" for c, s in zip(names, x_shape[2:], strict=True))
        after = ", ".join(f"{c}: {s}" for c, s in zip(names, size, strict=True))
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input ({before}) "
            f"{'and ' if d == 1 else ''}output ({after})"
        )


def _times(n: Any, factor: float) -> Any:
    """floor(n factor), as floats multiply."""
    p, q = float(factor).as_integer_ratio()
    if p.bit_length() <= 24:  # then the product is exact, and n may be a symbol
        return n * p // q
    return math.floor(float(n) * factor)


def _stride(shape: Sequence[int], like: Tensor) -> Any:
    return (
        layout.channels_last_strides(shape)
        if len(shape) in (4, 5) and layout.looks_channels_last(like)
        else None
    )


# ---- the same by operators, for graphs ----


def in_(x: Tensor) -> dt.dtype:
    """The dtype in which x is resampled."""
    return dt.float64 if x.dtype is dt.float64 else dt.float32


def _step(x: Tensor, n: Any, m: Any, align: bool, scale: float | None, kind: dt.dtype) -> Any:
    """`ratio`, as a number of that dtype in a tensor."""

    def number(v: Any) -> Tensor:
        return aten.full((), v, dtype=kind, device=x.device)

    if align:
        wide = aten.full((), n - 1, dtype=dt.float64, device=x.device) / (m - 1) if m > 1 else None
        return number(0) if wide is None else wide.to(kind)
    if scale is not None and scale > 0:
        return number(1.0 / scale)
    return number(n) / number(m)


def _count(x: Tensor, m: Any, kind: dt.dtype) -> Tensor:
    return aten.arange(m, device=x.device).to(kind)


def nearest(mode: str, x: Tensor, n: Any, m: Any, scale: Any, kind: dt.dtype) -> Tensor:
    """The place in an input of n of each of m places."""
    out, step = _count(x, m, kind), _step(x, n, m, False, scale, kind)
    at = out * step if mode == "nearest" else (out + 0.5) * step
    return aten.clamp(aten.floor(at.to(dt.float32)).to(dt.int64), max=n - 1)


def neighbours(
    mode: str, x: Tensor, n: Any, m: Any, align: bool, scale: Any, kind: dt.dtype
) -> list[tuple[Tensor, Any]]:
    """`taps`, as tensors."""
    out, step = _count(x, m, dt.float64), _step(x, n, m, align, scale, dt.float64)
    if mode == "linear" and n == m and (align or scale is None or scale <= 0 or scale == 1):
        return [(aten.arange(n, device=x.device), None)]
    at = out * step if align else (out + 0.5) * step - 0.5
    if mode == "linear":
        at = aten.clamp(at, min=0)
    low = aten.clamp(aten.floor(at).to(dt.int64), max=n - 1)
    t = aten.clamp(at - low, 0, 1)
    if mode == "linear":
        return [(low, (1 - t).to(kind)), (aten.clamp(low + 1, max=n - 1), t.to(kind))]
    return [
        (aten.clamp(low - 1 + i, 0, n - 1), w.to(kind))
        for i, w in enumerate(_cubic_weights(t, _CUBIC))
    ]


def spread(pairs: list[tuple[Tensor, Any]], n: Any, kind: dt.dtype) -> Tensor:
    """`matrix`, as a tensor."""
    at = pairs[0][0]
    m = aten.zeros((at.shape[0], n), dtype=kind, device=at.device)
    rows = aten.arange(at.shape[0], device=at.device)
    for where, w in pairs:
        w = aten.ones((), dtype=kind, device=at.device) if w is None else w
        m = aten.index_put(m, [rows, where], w, True)
    return m


def _product(t: Tensor, m: Tensor, axis: int) -> Tensor:
    turned = aten.movedim(t, axis, -1)
    return aten.movedim(aten.matmul(aten.contiguous(turned), m), -1, axis)


class Resampling:
    """What one mode in d dimensions is: its operator, the backward and the composite `.vec`."""

    def __init__(self, name: str, d: int, mode: str, smooth: bool) -> None:
        self.name, self.d, self.mode = name, d, mode
        self.linear = mode in ("linear", "cubic", "lanczos")  # has align_corners
        self.smooth = smooth

    def parts(self, rest: tuple[Any, ...]) -> tuple[bool, tuple[Any, ...]]:
        """(align_corners, scales) of a call's tail."""
        return (rest[0], rest[1:]) if self.linear else (False, rest)

    def meta(self, x: Tensor, size: Any, *rest: Any) -> TensorSpec:
        _check(x.shape, size, self.d)
        if not all(x.shape[1:]):
            raise RuntimeError(
                f"Non-empty {self.d + 2}D data tensor expected but got a tensor with sizes "
                f"{list(x.shape)}"
            )
        if not x.dtype.is_floating_point and x.dtype is not dt.uint8:
            kernel = (
                f"{self.name}_channels_last"
                if self.mode == "linear" and self.d == 2
                else "compute_indices_weights_" + self.mode.partition("-")[0]
            )
            raise not_implemented(kernel, x)
        shape = [*x.shape[:2], *size]
        return TensorSpec(shape, x.dtype, x.device, _stride(shape, x))

    def kernel(self, out: Tensor, x: Tensor, size: Any, *rest: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        align, scales = self.parts(rest)
        a = wide(x)
        kind = np.float64 if a.dtype == np.float64 else np.float32
        if x.dtype is dt.uint8:
            a = a.astype(np.float32)
        for i in range(self.d - 1, -1, -1):
            axis = 2 + i
            if self.smooth:
                a = _along(
                    a, filtered(self.mode, a.shape[axis], size[i], align, scales[i], kind).T, axis
                )
                continue
            pairs = taps(self.mode, a.shape[axis], size[i], align, scales[i], kind)
            spread = [-1 if j == axis else 1 for j in range(a.ndim)]
            total = None
            for at, w in pairs:
                part = np.take(a, at, axis)
                if w is not None:
                    part *= w.reshape(spread)
                total = part if total is None else np.add(total, part, out=total)
            a = total
        store(out, np.clip(np.rint(a), 0, 255) if x.dtype is dt.uint8 else a)

    def decompose(self, x: Tensor, size: Any, *rest: Any) -> Tensor:
        """By operators: weighted sums of what index tensors name."""
        self.meta(x, size, *rest)
        align, scales = self.parts(rest)
        fmt = layout.channels_last if _stride(x.shape, x) and self.d == 2 else None
        fmt = layout.channels_last_3d if _stride(x.shape, x) and self.d == 3 else fmt
        fmt = layout.contiguous_format if fmt is None else fmt
        kind, made = in_(x), x
        if not self.linear:
            where = [None, None]
            for i in range(self.d):
                at = nearest(self.mode, x, x.shape[2 + i], size[i], scales[i], kind)
                where.append(aten.reshape(at, (-1,) + (1,) * (self.d - 1 - i)))
            return aten.contiguous(aten._unsafe_index(x, where), memory_format=fmt)
        made = x.to(kind)
        for i in range(self.d - 1, -1, -1):
            n, axis = x.shape[2 + i], 2 + i
            total = None
            for at, w in neighbours(self.mode, x, n, size[i], align, scales[i], kind):
                part = aten.index_select(made, axis, at)
                if w is not None:
                    part = part * aten.reshape(w, (-1,) + (1,) * (self.d - 1 - i))
                total = part if total is None else total + part
            made = total
        if x.dtype is dt.uint8:
            made = aten.clamp(aten.round(made), 0, 255)
        return aten.contiguous(made.to(x.dtype), memory_format=fmt)

    def vjp(self, b: Any, g: Any, x: Any, size: Any, *rest: Any) -> Any:
        return getattr(aten, self.name + "_backward")(g, size, x.shape, *rest)

    def back_meta(self, g: Tensor, size: Any, shape: Any, *rest: Any) -> TensorSpec:
        _check(shape, size, self.d)
        full = [*shape[:2], *size]
        if g.dim() != self.d + 2:
            raise RuntimeError(
                f"Expected grad_output to be a tensor of dimension {self.d + 2} but got: dimension "
                f"{g.dim()}"
            )
        for i, n in enumerate(full):
            if g.shape[i] != n:
                raise RuntimeError(
                    f"Expected grad_output to have the same shape as output; output.size({i}) = "
                    f"{n} but got grad_output.size({i}) = {g.shape[i]}"
                )
        return TensorSpec(shape, g.dtype, g.device, _stride(shape, g))

    def back_kernel(self, out: Tensor, g: Tensor, size: Any, shape: Any, *rest: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        align, scales = self.parts(rest)
        a = wide(g)
        kind = np.float64 if a.dtype == np.float64 else np.float32
        for i in range(self.d):
            n = shape[2 + i]
            if self.smooth:
                m = filtered(self.mode, n, size[i], align, scales[i], kind)
            else:
                m = matrix(taps(self.mode, n, size[i], align, scales[i], kind), n, kind)
            a = _along(a, m, 2 + i)
        store(out, a)

    def back_decompose(self, g: Tensor, size: Any, shape: Any, *rest: Any) -> Tensor:
        """By operators: products with the matrices of the forward."""
        self.back_meta(g, size, shape, *rest)
        align, scales = self.parts(rest)
        last = _stride(shape, g) is not None
        fmt = layout.channels_last if last and self.d == 2 else layout.contiguous_format
        fmt = layout.channels_last_3d if last and self.d == 3 else fmt
        kind = in_(g)
        made = g.to(kind)
        for i in range(self.d):
            n = shape[2 + i]
            if self.linear:
                m = spread(neighbours(self.mode, g, n, size[i], align, scales[i], kind), n, kind)
            else:
                m = spread([(nearest(self.mode, g, n, size[i], scales[i], kind), None)], n, kind)
            made = _product(made, m, 2 + i)
        return aten.contiguous(made.to(g.dtype), memory_format=fmt)

    def back_vjp(self, b: Any, gg: Any, g: Any, size: Any, shape: Any, *rest: Any) -> Any:
        return self.call(gg, size, *rest)

    def plain(self, x: Tensor, size: Any, *rest: Any) -> Tensor:
        """`.vec`: sizes or scale factors."""
        align, factors = rest if self.linear else (False, rest[0])
        if (size is None) == (factors is None):
            raise RuntimeError("Must specify exactly one of output_size and scale_factors")
        if size is None:
            spatial = x.shape[2:]
            if len(factors) != len(spatial):
                raise RuntimeError(
                    f"It is expected scale_factors equals to {len(spatial)}, but got size "
                    f"{len(factors)}"
                )
            size = [_times(n, f) for n, f in zip(spatial, factors, strict=True)]
            scales = tuple(factors)
        else:
            scales = (None,) * self.d
        head = (align,) if self.linear else ()
        return self.call(x, size, *head, *scales)

    def call(self, *args: Any) -> Any:
        """The overload that takes sizes (which of the two a call means, its
        arguments need not say)."""
        return dispatch(packet(self.name).ops[1], args)

    def samples(self, s: Any) -> Iterator[Any]:
        small, large = [2, 3, 4][: self.d], [7, 5, 6][: self.d]
        for align in (False, True) if self.linear else (None,):
            head = () if align is None else (align,)
            for size in (small, large):
                yield s.sample(s.tensor((2, 3, *[4, 5, 3][: self.d])), size, *head)


def declare_resampling(name: str, d: int, mode: str, smooth: bool = False) -> None:
    r = Resampling(name, d, mode, smooth)
    scales = (
        "float? scales=None"
        if d == 1
        else ", ".join(f"float? scales_{c}=None" for c in "dhw"[3 - d :])
    )
    head = "bool align_corners, " if r.linear else ""
    words = {"nearest-exact": "NearestExact"}.get(mode, "")
    node = "".join(p.capitalize() for p in name.strip("_").split("_"))
    node = (
        node.replace(f"{d}d", f"{d}D")
        if not words
        else node.replace(f"exact{d}d", f"Exact{d}D").replace(f"{d}d", f"{d}D")
    )
    common = {"__module__": __name__, "public": "nn", "geometry_only": False}
    type(
        name + "_vec",
        (Composite,),
        {
            "__doc__": f"Resize the spatial dimensions ({mode}).",
            "__module__": __name__,
            "public": "nn",
            "decompose": lambda *a: r.plain(*a),
            "schema": f"{name}.vec(Tensor input, SymInt[]? output_size, {head}float[]? "
            "scale_factors) -> Tensor",
        },
    )
    type(
        name,
        (Opaque,),
        {
            "__doc__": f"Resize the spatial dimensions ({mode}).",
            "meta": lambda *a: r.meta(*a),
            "kernel": lambda *a: r.kernel(*a),
            "decompose": None if smooth else lambda *a: r.decompose(*a),
            "whole": not smooth,
            "vjp": lambda *a: r.vjp(*a),
            "samples": lambda s: r.samples(s),
            "out": "out",
            "node_name": node,
            "schema": f"{name}(Tensor self, SymInt[{d}] output_size, {head}{scales}) -> Tensor",
            **common,
        },
    )
    type(
        name + "_backward",
        (Opaque,),
        {
            "__doc__": f"The gradient of {name}.",
            "meta": lambda *a: r.back_meta(*a),
            "kernel": lambda *a: r.back_kernel(*a),
            "decompose": None if smooth else lambda *a: r.back_decompose(*a),
            "whole": not smooth,
            "vjp": lambda *a: r.back_vjp(*a),
            "out": "grad_input",
            "out_args": ("grad_input",),
            "node_name": node + "Backward",
            "schema": f"{name}_backward(Tensor grad_output, SymInt[{d}] output_size, "
            f"SymInt[{d + 2}] input_size, {head}{scales}) -> Tensor",
            **common,
        },
    )


for _d in (1, 2, 3):
    declare_resampling(f"upsample_nearest{_d}d", _d, "nearest")
    declare_resampling(f"_upsample_nearest_exact{_d}d", _d, "nearest-exact")
    declare_resampling(f"upsample_{('linear', 'bilinear', 'trilinear')[_d - 1]}{_d}d", _d, "linear")
declare_resampling("upsample_bicubic2d", 2, "cubic")
for _mode, _kind in (("bilinear", "linear"), ("bicubic", "cubic"), ("lanczos", "lanczos")):
    declare_resampling(f"_upsample_{_mode}2d_aa", 2, _kind, True)
