"""Convolution and pooling on the CPU: windows gathered into columns, products through BLAS.

Floats go through `csrc/windows.c`; integers and complex numbers through NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of, share_array
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.kinds import pack_params

_HALF = (dt.bfloat16, dt.float16)
_FLOATS = (*_HALF, dt.float32, dt.float64)
# Products of images with fewer places than this are taken together.
_FEW_PLACES = 512


def dense(t: Tensor) -> Tensor:
    """t in row-major order, a copy where it lies otherwise; 16-bit floats in float32."""
    if t.dtype in _HALF:
        t = slot("cast_to")(t, dt.float32)
    if t._contiguous():
        return t
    out = _native.empty(t.shape, t.dtype, t.device)
    slot("copy_into")(out, t)
    return out


def view(t: Tensor, shape: Sequence[int], stride: Sequence[int], offset: int = 0) -> Tensor:
    """Other places of t's bytes, from its first element on."""
    return _native.alias(Tensor, t, shape, stride, t.storage_offset() + offset)


class Columns:
    """The windows of x (N, C, *in) as columns, and the products with them, a group at a time.

    Where images are small, one product serves all: columns (C * taps, N, places), as is the other
    side then (channels, N, places). Otherwise both have the images outermost.
    """

    def __init__(self, x: Tensor, groups: int, kernel: Any, size: Any) -> None:
        self.n, self.c, self.groups = x.shape[0], x.shape[1], groups
        self.kernel, self.size = tuple(kernel), tuple(size)
        self.taps, self.places = prod(self.kernel), prod(self.size)
        self.together = self.places < _FEW_PLACES
        self.rows = self.c * self.taps
        self.cols = _native.empty((self.rows * self.n * self.places,), x.dtype, x.device)

    def strides(self, rows: int) -> tuple[int, int]:
        """From one image to the next, and from one row to the next, of `rows` rows."""
        p = self.places
        return (p, self.n * p) if self.together else (rows * p, p)

    def move(self, x: Tensor, stride: Any, padding: Any, dilation: Any, add: bool) -> None:
        """Gather the columns from x, or add them up in it."""
        image, row = self.strides(self.rows)
        inner = [prod(self.size[i + 1 :]) for i in range(len(self.size))]
        cols = view(
            self.cols, (self.n, self.c, self.taps, *self.size),
            (image, self.taps * row, row, *inner),
        )  # fmt: skip
        _native.columns(cols, x, self.kernel, stride, padding, dilation, add)

    def side(self, t: Tensor, channels: int) -> Tensor:
        """t (N, channels, places) in the layout of the columns; a copy where it must be."""
        if not self.together:
            return t
        made = _native.empty((channels * self.n * self.places,), t.dtype, t.device)
        self.exchange(made, t, channels, False)
        return made

    def exchange(self, side: Tensor, t: Tensor, channels: int, back: bool) -> None:
        """Copy between t (N, channels, places) and its other layout."""
        image, row = self.strides(channels)
        p = self.places
        whole = (self.n, channels, p)
        a, b = view(side, whole, (image, row, 1)), view(t, whole, (channels * p, p, 1))
        slot("copy_into")(*((b, a) if back else (a, b)))

    def pieces(self, t: Tensor, channels: int, group: int) -> Tensor:
        """The matrices of one group of a side with so many channels: (1 or N, channels, places)."""
        each = channels // self.groups
        image, row = self.strides(channels)
        if self.together:
            return view(t, (1, each, self.n * self.places), (0, row, 1), group * each * row)
        return view(t, (self.n, each, self.places), (image, row, 1), group * each * row)


def weights_of(w: Tensor, columns: Columns, group: int, turned: bool) -> Tensor:
    """The weight of one group as a matrix, the same for all images."""
    each, width = w.shape[0] // columns.groups, columns.rows // columns.groups
    shape, stride = ((width, each), (1, width)) if turned else ((each, width), (width, 1))
    count = 1 if columns.together else columns.n
    return view(w, (count, *shape), (0, *stride), group * each * width)


_AT_ONCE = 256  # places of the result that are computed from lines laid out once
_DEEPEST = 2048  # elements of a window: what they are taken from stays in the cache


def in_tiles(
    kind: str, out: Tensor, ins: tuple[Tensor, ...], x: Tensor, w: Tensor, size: Any, steps: Any,
    numbers: tuple[int, int, int],
) -> bool:  # fmt: skip
    """Run a kernel of `codegen/convolution.py`; False where there is none for these tensors.

    `x` (N, C, *in) holds the windows, `w` has the kernel's extents, `size` are those of the
    places, `steps` (stride, padding, dilation); `numbers` are filters, turned, biased.
    """
    stride, padding, dilation = steps
    taps = prod(w.shape[2:])
    if x.dim() not in (3, 4) or x.dtype not in (dt.float32, dt.float64) or set(stride) != {1}:
        return False
    # One element a window is a product as it is; few of anything leave tiles empty.
    if taps < 2 or numbers[0] < 4 or not 32 <= taps * x.shape[1] <= _DEEPEST:
        return False
    name = x.dtype.name
    address = slot("kernel_address")(
        f"{kind}_{name}", None, kind, (name,) * len(ins), (name,), (), None
    )
    if address is None:
        return False

    def two(values: Any, first: int) -> tuple[int, ...]:
        return tuple(values) if len(values) == 2 else (first, *values)

    high, wide = two(size, 1)
    lines = max(1, min(high, _AT_ONCE // wide))
    some = min(x.shape[1], -(-64 // taps))
    if kind == "convolution":
        pieces = x.shape[0] * -(-high // lines)
    else:
        pieces = -(-x.shape[1] // some)
    params = (
        x.shape[0], x.shape[1], numbers[0], *two(x.shape[2:], 1), high, wide,
        *two(w.shape[2:], 1), *two(padding, 0), *two(dilation, 1), *numbers[1:], lines, some,
    )  # fmt: skip
    at = _native.empty((pieces,), dt.int64, x.device)
    _native.count_up(at, 0, 1)
    cost = x.shape[0] * prod(size) * numbers[0] * x.shape[1] * taps // pieces
    _native.run_rows(
        address, (view(out, (pieces, 1), (0, 0)),),
        (view(at, (pieces, cost), (1, 0)), *(view(t, (pieces, cost), (0, 0)) for t in ins)),
        1, pack_params(list(params), [False] * len(params)),
    )  # fmt: skip
    return True


def conv_in_tiles(
    out: Tensor, x: Tensor, w: Tensor, bias: Any, steps: Any, turned: bool = False
) -> bool:
    """Convolution by the tile; False where it is left to columns. `turned`: with w (C, O, *kernel)
    and its windows backwards."""
    ins = (x, w, w if bias is None else dense(bias))
    numbers = (out.shape[1], int(turned), int(bias is not None))
    return in_tiles("convolution", out, ins, x, w, out.shape[2:], steps, numbers)


def weight_in_tiles(gw: Tensor, g: Tensor, x: Tensor, steps: Any) -> bool:
    """The gradient of the weight by the tile; False where it is left to columns."""
    numbers = (g.shape[1], 0, 0)
    return in_tiles("convolution_weight", gw, (g, x), x, gw, g.shape[2:], steps, numbers)


def add_bias(out: Tensor, bias: Any) -> None:
    """out (N, C, ...) += bias (C)."""
    if bias is not None:
        array_of(out)[...] += wide(bias).reshape(1, -1, *[1] * (out.dim() - 2))


def finished(out: Tensor, made: Tensor) -> None:
    """out from what was computed in its place."""
    if made is not out:
        slot("copy_into")(out, made)


def place_for(out: Tensor) -> Tensor:
    """out itself where its bytes can be computed in, or something as large."""
    if out._contiguous() and out.dtype not in _HALF:
        return out
    kind = dt.float32 if out.dtype in _HALF else out.dtype
    return _native.empty(out.shape, kind, out.device)


def wide(t: Tensor) -> Any:
    """t as an array to compute in: 16-bit floats in float32."""
    return array_of(slot("cast_to")(t, dt.float32) if t.dtype in _HALF else t)


def store(out: Tensor, values: Any) -> None:
    """Write an array into out, rounded once."""
    import numpy as np  # lazy: NumPy is heavy

    if out.dtype in _HALF:
        slot("copy_into")(out, share_array(np.ascontiguousarray(values, dtype=np.float32)))
    elif out.numel():
        array_of(out)[...] = values


def padded(
    x: Any, padding: Sequence[int], value: float = 0.0, extra: Sequence[int] | None = None
) -> Any:
    import numpy as np  # lazy: NumPy is heavy

    extra = extra or [0] * len(padding)
    if not any(padding) and not any(extra):
        return x
    shape = [
        *x.shape[:2],
        *(s + 2 * p + e for s, p, e in zip(x.shape[2:], padding, extra, strict=True)),
    ]
    out = np.full(shape, value, x.dtype)
    inside = tuple(slice(p, p + s) for s, p in zip(x.shape[2:], padding, strict=True))
    out[(slice(None), slice(None), *inside)] = x
    return out


def windows(
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
) -> Any:
    """A view (N, C, *out, *kernel) of the padded x."""
    import numpy as np  # lazy: NumPy is heavy

    st = x.strides
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:2], *size, *kernel),
        (
            *st[:2],
            *(s * d for s, d in zip(st[2:], stride, strict=True)),
            *(s * d for s, d in zip(st[2:], dilation, strict=True)),
        ),
        writeable=False,
    )


def columns(
    x: Any, groups: int, kernel: Any, stride: Any, padding: Any, dilation: Any, size: Any
) -> Any:
    """(N, groups, C/groups * kernel, out) contiguous."""
    n, c = x.shape[:2]
    d = len(kernel)
    w = windows(padded(x, padding), kernel, stride, dilation, size)
    w = w.transpose(0, 1, *range(2 + d, 2 + 2 * d), *range(2, 2 + d))
    k = o = 1
    for v in kernel:
        k *= v
    for v in size:
        o *= v
    return w.reshape(n, groups, c // groups * k, o)


def conv(
    out: Tensor,
    x: Tensor,
    w: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> None:
    """out (N, O, *out) = x (N, C, *in) with w (O, C/groups, *kernel)."""
    if not out.numel():
        return
    if x.dtype in _FLOATS:
        x, w, made = dense(x), dense(w), place_for(out)
        if groups == 1 and conv_in_tiles(made, x, w, bias, (stride, padding, dilation)):
            finished(out, made)
            return
        cols = Columns(x, groups, w.shape[2:], out.shape[2:])
        cols.move(x, stride, padding, dilation, False)
        o = w.shape[0]
        side = made
        if cols.together:
            side = _native.empty((made.numel(),), made.dtype, made.device)
        if bias is not None:
            image, row = cols.strides(o)
            slot("copy_into")(
                view(side, (cols.n, o, cols.places), (image, row, 1)),
                view(dense(bias), (cols.n, o, cols.places), (0, 1, 0)),
            )
        for group in range(groups):
            slot("gemm")(
                cols.pieces(side, o, group), weights_of(w, cols, group, False),
                cols.pieces(cols.cols, cols.rows, group), 1, 0 if bias is None else 1,
            )  # fmt: skip
        if cols.together:
            cols.exchange(side, made, o, True)
        finished(out, made)
        return
    xs, ws = wide(x), wide(w)
    n, size, kernel = xs.shape[0], tuple(out.shape[2:]), ws.shape[2:]
    cols = columns(xs, groups, kernel, stride, padding, dilation, size)
    flat = ws.reshape(groups, ws.shape[0] // groups, -1)
    import numpy as np  # lazy: NumPy is heavy

    r = np.matmul(flat, cols).reshape(n, ws.shape[0], *size)
    if bias is not None:
        r += wide(bias).reshape(1, -1, *[1] * len(size))
    store(out, r)


def conv_input(
    gx: Tensor,
    g: Tensor,
    w: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    bias: Any = None,
) -> None:
    """The gradient of the input, which is also the transposed convolution: each window of gx gets
    its share of g."""
    import numpy as np  # lazy: NumPy is heavy

    if not gx.numel():
        return
    if g.dtype in _FLOATS and g.numel():
        g, w, made = dense(g), dense(w), place_for(gx)
        if groups == 1:
            around = [
                d * (k - 1) - p for d, k, p in zip(dilation, w.shape[2:], padding, strict=True)
            ]
            if conv_in_tiles(made, g, w, bias, (stride, around, dilation), True):
                finished(gx, made)
                return
        cols = Columns(made, groups, w.shape[2:], g.shape[2:])
        o = w.shape[0]
        side = cols.side(g, o)
        for group in range(groups):
            slot("gemm")(
                cols.pieces(cols.cols, cols.rows, group), weights_of(w, cols, group, True),
                cols.pieces(side, o, group), 1, 0,
            )  # fmt: skip
        cols.move(made, stride, padding, dilation, True)
        add_bias(made, bias)
        finished(gx, made)
        return
    gs, ws = wide(g), wide(w)
    n, o = gs.shape[:2]
    size, kernel = gs.shape[2:], ws.shape[2:]
    per = o // groups
    flat = ws.reshape(groups, per, -1)
    share = np.matmul(flat.transpose(0, 2, 1), gs.reshape(n, groups, per, -1))
    c = gx.shape[1]
    share = share.reshape(n, c, *kernel, *size)
    whole = np.zeros(
        (n, c, *(s + 2 * p for s, p in zip(gx.shape[2:], padding, strict=True))), gs.dtype
    )
    if whole.ndim:
        need = [
            max((s - 1) * st + (k - 1) * d + 1, have)
            for s, st, k, d, have in zip(
                size, stride, kernel, dilation, whole.shape[2:], strict=True
            )
        ]
        if tuple(need) != whole.shape[2:]:
            whole = np.zeros((n, c, *need), gs.dtype)
    for at in np.ndindex(*kernel):
        place = tuple(
            slice(a * d, a * d + (s - 1) * st + 1, st)
            for a, d, s, st in zip(at, dilation, size, stride, strict=True)
        )
        whole[(slice(None), slice(None), *place)] += share[(slice(None), slice(None), *at)]
    inside = tuple(slice(p, p + s) for s, p in zip(gx.shape[2:], padding, strict=True))
    r = whole[(slice(None), slice(None), *inside)]
    if bias is not None:
        r = r + wide(bias).reshape(1, -1, *[1] * len(kernel))
    store(gx, r)


def conv_weight(
    gw: Tensor, g: Tensor, x: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    """The gradient of the weight (O, C/groups, *kernel)."""
    import numpy as np  # lazy: NumPy is heavy

    if not g.numel() or not x.numel():
        slot("fill_with")(gw, 0)
        return
    if g.dtype in _FLOATS:
        g, x, made = dense(g), dense(x), place_for(gw)
        if groups == 1 and weight_in_tiles(made, g, x, (stride, padding, dilation)):
            finished(gw, made)
            return
        cols = Columns(x, groups, gw.shape[2:], g.shape[2:])
        cols.move(x, stride, padding, dilation, False)
        side = cols.side(g, g.shape[1])
        for group in range(groups):
            weight_of_group(made, cols, side, g.shape[1], group)
        finished(gw, made)
        return
    gs, xs = wide(g), wide(x)
    n, o = gs.shape[:2]
    kernel, size = tuple(gw.shape[2:]), gs.shape[2:]
    cols = columns(xs, groups, kernel, stride, padding, dilation, size)
    flat = gs.reshape(n, groups, o // groups, -1)
    r = np.matmul(flat, cols.transpose(0, 1, 3, 2)).sum(0)
    store(gw, r.reshape(tuple(gw.shape)))


def weight_of_group(gw: Tensor, cols: Columns, side: Tensor, channels: int, group: int) -> None:
    """gw's part of one group: the sum over images of side times the columns turned."""
    each, width = channels // cols.groups, cols.rows // cols.groups
    target = view(gw, (1, each, width), (0, width, 1), group * each * width)
    a, b = cols.pieces(side, channels, group), cols.pieces(cols.cols, cols.rows, group)
    for i in range(a.shape[0]):
        one = view(a, (1, *a.shape[1:]), a.stride(), i * a.stride(0))
        other = view(b, (1, b.shape[2], b.shape[1]), (0, b.stride(2), b.stride(1)), i * b.stride(0))
        slot("gemm")(target, one, other, 1, 1 if i else 0)


def pool_windows(
    x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, size: Any, value: float
) -> Any:
    need = [
        max((s - 1) * st + (k - 1) * d + 1 - n - 2 * p, 0)
        for s, st, k, d, n, p in zip(
            size, stride, kernel, dilation, x.shape[2:], padding, strict=True
        )
    ]
    return windows(padded(x, padding, value, need), kernel, stride, dilation, size)


def max_pool(
    out: Tensor, indices: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> None:
    """The largest of each window (NaN wins) and its flat place in the input plane."""
    import numpy as np  # lazy: NumPy is heavy

    if not out.numel():
        return
    if x.dtype in _FLOATS:
        made = place_for(out)
        at = indices
        if not at._contiguous():
            at = _native.empty(indices.shape, indices.dtype, indices.device)
        _native.largest(made, at, dense(x), kernel, stride, padding, dilation)
        finished(out, made)
        finished(indices, at)
        return
    xs = wide(x)
    size = tuple(out.shape[2:])
    lowest = -np.inf if xs.dtype.kind == "f" else np.iinfo(xs.dtype).min
    w = pool_windows(xs, kernel, stride, padding, dilation, size, lowest)
    n, c = xs.shape[:2]
    d = len(kernel)
    flat = w.reshape(n, c, *size, -1)
    inside = _inside(xs.shape[2:], kernel, stride, padding, dilation, size)
    if not inside.all():
        flat = np.where(inside, flat, lowest)
        low = (flat == lowest) & inside
        best = np.where(low.any(-1) & (flat.max(-1) == lowest), low.argmax(-1), flat.argmax(-1))
    else:
        best = flat.argmax(-1)
    store(out, np.take_along_axis(flat, best[..., None], -1)[..., 0])
    at = np.unravel_index(best, kernel)
    place = np.zeros(best.shape, np.int64)
    for i in range(d):
        base = (np.arange(size[i]) * stride[i] - padding[i]).reshape(
            [-1 if j == i + 2 else 1 for j in range(d + 2)]
        )
        place = place * xs.shape[2 + i] + base + at[i] * dilation[i]
    array_of(indices)[...] = place


def _inside(shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, size: Any) -> Any:
    """(*out, prod(kernel)): whether a window's element lies in the input."""
    import numpy as np  # lazy: NumPy is heavy

    d = len(kernel)
    ok = np.ones((*size, *kernel), bool)
    for i in range(d):
        at = (np.arange(size[i]) * stride[i] - padding[i])[:, None] + np.arange(
            kernel[i]
        ) * dilation[i]
        good = (at >= 0) & (at < shape[i])
        ok &= good.reshape(
            [size[j] if j == i else 1 for j in range(d)]
            + [kernel[j] if j == i else 1 for j in range(d)]
        )
    return ok.reshape(*size, -1)


def scatter_planes(gx: Tensor, g: Tensor, indices: Tensor) -> None:
    """gx = g added at flat places of each plane."""
    import numpy as np  # lazy: NumPy is heavy

    if g.dtype in _FLOATS and g.numel() and gx.numel():
        made = place_for(gx)
        _native.put_back(made, dense(g), dense(indices))
        finished(gx, made)
        return
    gs = wide(g)
    planes = gs.shape[0] * gs.shape[1]
    cells = 1
    for s in gx.shape[2:]:
        cells *= s
    if not gs.size or not cells:
        slot("fill_with")(gx, 0)
        return
    at = array_of(indices).reshape(planes, -1) + np.arange(planes)[:, None] * cells
    r = np.bincount(at.ravel(), weights=gs.reshape(-1), minlength=planes * cells)
    store(gx, r.reshape(tuple(gx.shape)).astype(gs.dtype))


def avg_pool(out: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, divisor: Any) -> None:
    """The sum of each window over the divisor (*out)."""
    if not out.numel():
        return
    xs = wide(x)
    d = len(kernel)
    w = pool_windows(xs, kernel, stride, padding, [1] * d, tuple(out.shape[2:]), 0.0)
    store(out, w.sum(tuple(range(-d, 0))) / divisor)


def avg_pool_backward(
    gx: Tensor, g: Tensor, kernel: Any, stride: Any, padding: Any, divisor: Any
) -> None:
    import numpy as np  # lazy: NumPy is heavy

    gs = wide(g) / divisor
    size = gs.shape[2:]
    d = len(kernel)
    need = [
        max((s - 1) * st + k, n + 2 * p)
        for s, st, k, n, p in zip(size, stride, kernel, gx.shape[2:], padding, strict=True)
    ]
    whole = np.zeros((*gs.shape[:2], *need), gs.dtype)
    for at in np.ndindex(*kernel):
        place = tuple(
            slice(a, a + (s - 1) * st + 1, st) for a, s, st in zip(at, size, stride, strict=True)
        )
        whole[(slice(None), slice(None), *place)] += gs
    inside = tuple(slice(p, p + s) for s, p in zip(gx.shape[2:], padding, strict=True))
    del d
    store(gx, whole[(slice(None), slice(None), *inside)])


fill("conv", conv)
fill("conv_input", conv_input)
fill("conv_weight", conv_weight)
fill("max_pool", max_pool)
fill("scatter_planes", scatter_planes)
fill("avg_pool", avg_pool)
fill("avg_pool_backward", avg_pool_backward)
