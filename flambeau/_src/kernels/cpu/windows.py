"""Convolution and pooling on the CPU: windows gathered into columns, products through BLAS.

Floats go through `csrc/windows.c`; integers and complex numbers through NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
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
    side then (channels, N, places). Otherwise both have the images outermost. `plain`: windows are
    single elements, so x is the columns.
    """

    def __init__(self, x: Tensor, groups: int, kernel: Any, size: Any, plain: bool = False) -> None:
        self.n, self.c, self.groups = x.shape[0], x.shape[1], groups
        self.kernel, self.size = tuple(kernel), tuple(size)
        self.taps, self.places = prod(self.kernel), prod(self.size)
        self.together = self.places < _FEW_PLACES and not plain
        self.rows, self.plain, self.cols = self.c * self.taps, plain, x
        if not plain:
            self.cols = _native.empty((self.rows * self.n * self.places,), x.dtype, x.device)

    def strides(self, rows: int) -> tuple[int, int]:
        """From one image to the next, and from one row to the next, of `rows` rows."""
        p = self.places
        return (p, self.n * p) if self.together else (rows * p, p)

    def move(self, x: Tensor, stride: Any, padding: Any, dilation: Any, add: bool) -> None:
        """Gather the columns from x, or add them up in it."""
        if self.plain:
            return
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
_DEEPEST = 2048  # elements of a window: what one image's are taken from stays in the cache
_MOST = 64  # places from which on a product an image is faster than tiles
_PHASES = 1024  # remainders of steps that have weights of their own
_TILE = 12  # filters that a tile holds at most
_ROOM = 1 << 20  # elements that are laid out for images side by side


@cache
def _vector_bytes() -> int:
    from flambeau._src.loops.source import host_target  # lazy: the code generator

    return host_target().vector_bytes


class Work:
    """One call of a kernel of `codegen/convolution.py`: `x` (N, C, *in) holds the windows, `w` has
    the kernel's extents, `size` are those of the places, `steps` (stride, padding, dilation)."""

    def __init__(self, x: Tensor, w: Tensor, size: Any, steps: Any, groups: int) -> None:
        self.x, self.steps, self.groups = x, steps, groups
        self.high, self.wide = self.two(size, 1)
        self.kernel, self.places = self.two(w.shape[2:], 1), prod(size)
        self.taps = prod(self.kernel)
        self.images, self.channels = x.shape[0], x.shape[1] // groups
        self.vector = _vector_bytes() // x.element_size()

    def two(self, values: Any, first: int) -> tuple[int, ...]:
        return tuple(values) if len(values) == 2 else (first, *values)

    def laid(self, turned: bool) -> tuple[int, int, int, int]:
        """Places of a phase, and elements of a channel of an image: lines and columns of both."""
        stride, _, dilation = (self.two(v, f) for v, f in zip(self.steps, (1, 0, 1), strict=True))
        both = []
        for out, k, s, d in zip((self.high, self.wide), self.kernel, stride, dilation, strict=True):
            count, span = (-(-out // s), 2) if turned else (out, 0)
            length = count + span + (k - 1) * d // s
            both.append((count, length * (1 if turned else min(k, s))))
        return both[0][0], both[1][0], both[0][1], both[1][1]

    def span(self, turned: bool) -> int:
        """How much longer than the result's a line is that is laid out."""
        stride, _, dilation = self.steps
        most = (self.kernel[1] - 1) * int(dilation[-1]) // int(stride[-1])
        return most + (turned and stride[-1] > 1)

    def run(self, kind: str, out: Tensor, ins: tuple[Tensor, ...], numbers: Any) -> bool:
        """False where there is no kernel; `numbers` are filters, turned, biased, lines of the
        result at once, filters or channels of a piece, images side by side, and pieces."""
        filters, turned, biased, lines, some, side, pieces = numbers
        name = self.x.dtype.name
        address = slot("kernel_address")(
            f"{kind}_{name}", None, kind, (name,) * len(ins), (name,), (), None
        )
        if address is None:
            return False
        stride, padding, dilation = self.steps
        params = (
            self.images, self.channels, filters, self.groups, *self.two(self.x.shape[2:], 1),
            self.high, self.wide, *self.kernel, *self.two(padding, 0), *self.two(dilation, 1),
            *self.two(stride, 1), turned, biased, lines, some, side,
        )  # fmt: skip
        at = _native.empty((pieces,), dt.int64, self.x.device)
        _native.count_up(at, 0, 1)
        cost = self.x.numel() * self.taps * filters // pieces
        _native.run_rows(
            address, (view(out, (pieces, 1), (0, 0)),),
            (view(at, (pieces, cost), (1, 0)), *(view(t, (pieces, cost), (0, 0)) for t in ins)),
            1, pack_params(list(params), [False] * len(params)),
        )  # fmt: skip
        return True


def tiled(x: Tensor) -> bool:
    """Whether there are kernels for convolutions of x."""
    return x.dim() in (3, 4) and x.dtype in (dt.float32, dt.float64)


def conv_in_tiles(
    out: Tensor, x: Tensor, w: Tensor, bias: Any, steps: Any, groups: int, turned: bool = False
) -> bool:
    """Convolution by the tile; False where it is left to columns. `turned`: with w (C, O, *kernel)
    it is the gradient of the input of a convolution by these steps."""
    if not tiled(x) or (turned and prod(steps[0]) > _PHASES):
        return False
    work, filters = Work(x, w, out.shape[2:], steps, groups), out.shape[1] // groups
    high, wide, tall, length = work.laid(turned)
    deep, tile = work.taps * work.channels, 2 * work.vector
    # How much of the tiles is used: by one image's lines, or by images side by side.
    lines = max(1, min(high, _AT_ONCE // wide))
    long = (lines - 1) * (wide + work.span(turned)) + wide
    used, side = lines * wide / (-(-long // tile) * tile), 1
    for count in (tile, tile // 2):
        once = tile // count
        room = work.channels * tall * length * count
        part = work.images / (-(-work.images // count) * count) * wide / (-(-wide // once) * once)
        if part > used and room <= _ROOM and work.places * count * _TILE <= _ROOM:
            used, side = part, count
    deepest = 4 * _DEEPEST // (1 + turned)
    if side == 1 and (deep > deepest or (groups == 1 and (filters < 4 or deep < 32))):
        return False  # few of anything leave tiles empty
    some, bands = filters, -(-high // lines)
    if side > 1:
        lines, bands = high, 1
        some = filters if filters < 4 * _TILE else -(-filters // 2 // _TILE) * _TILE
    blocks = -(-work.images // side)
    pieces = blocks * groups * -(-filters // some) * bands
    ins = (x, w, w if bias is None else dense(bias))
    numbers = (filters, int(turned), int(bias is not None), lines, some, side, pieces)
    return work.run("convolution", out, ins, numbers)


def weight_in_tiles(gw: Tensor, g: Tensor, x: Tensor, steps: Any, groups: int) -> bool:
    """The gradient of the weight by the tile; False where it is left to columns."""
    if not tiled(x):
        return False
    work, filters = Work(x, gw, g.shape[2:], steps, groups), g.shape[1] // groups
    high, wide, tall, length = work.laid(False)
    lines = max(1, min(high, _AT_ONCE // wide))
    some = max(-(-work.channels // 4), min(work.channels, -(-64 // work.taps)))
    # Sums are taken up and put down once for lines of one image, or for a place of all images.
    side = min(work.images, 64)
    whole = -(-filters // (2 * work.vector)) * 2 * work.vector
    room = max(some * tall * length, work.places * whole) * side
    waste = 1 - lines * wide / ((lines - 1) * (wide + work.span(False)) + wide)
    if side < 4 or room > _ROOM or 2 / side > waste or filters < work.vector // 2:
        side = 1
    if side == 1 and (work.taps * work.channels > _DEEPEST or (groups == 1 and filters < 4)):
        return False
    if side > 1:
        lines = high
    pieces = groups * -(-work.channels // some)
    return work.run("convolution_weight", gw, (g, x), (filters, 0, 0, lines, some, side, pieces))


def is_plain(x: Tensor, w: Tensor, steps: Any) -> bool:
    """Whether each window is an element of x, and a product an image the fastest way."""
    stride, padding, _ = steps
    places = prod(x.shape[2:])
    return prod(w.shape[2:]) == 1 and set(stride) == {1} and not any(padding) and places >= _MOST


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
        x, w, made, steps = dense(x), dense(w), place_for(out), (stride, padding, dilation)
        plain = is_plain(x, w, steps)
        if not plain and conv_in_tiles(made, x, w, bias, steps, groups):
            finished(out, made)
            return
        cols = Columns(x, groups, w.shape[2:], out.shape[2:], plain)
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
        steps = (stride, padding, dilation)
        plain = bias is None and is_plain(g, w, steps)
        if not plain and conv_in_tiles(made, g, w, bias, steps, groups, True):
            finished(gx, made)
            return
        cols = Columns(made, groups, w.shape[2:], g.shape[2:], plain)
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
        if weight_in_tiles(made, g, x, (stride, padding, dilation), groups):
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


def divisor(
    shape: Sequence[int], size: Sequence[int], windows: Any, include: bool, override: Any
) -> Any:
    """What each window's sum is divided by, over `shape`; `windows`: kernel, stride, padding."""
    import numpy as np  # lazy: NumPy is heavy

    if override:
        return float(override)
    d, total = len(size), np.ones(tuple(size))
    for i, (n, places, k, s, p) in enumerate(zip(shape, size, *windows, strict=True)):
        start = np.arange(places) * s - p
        end = np.minimum(start + k, n + p)
        if not include:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        total = total * (end - start).reshape([-1 if j == i else 1 for j in range(d)])
    return total


def avg_pool(
    out: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, include: bool, override: Any
) -> None:
    """The mean of each window."""
    if not out.numel():
        return
    ones = [1] * len(kernel)
    if x.dtype in _FLOATS:
        made, by = place_for(out), float(override or 0)
        _native.averages(made, dense(x), kernel, stride, padding, ones, include, by, False)
        finished(out, made)
        return
    xs, size = wide(x), tuple(out.shape[2:])
    w = pool_windows(xs, kernel, stride, padding, ones, size, 0.0)
    by = divisor(xs.shape[2:], size, (kernel, stride, padding), include, override)
    store(out, w.sum(tuple(range(-len(kernel), 0))) / by)


def avg_pool_backward(
    gx: Tensor, g: Tensor, kernel: Any, stride: Any, padding: Any, include: bool, override: Any
) -> None:
    """Each window's elements get its share."""
    import numpy as np  # lazy: NumPy is heavy

    if g.dtype in _FLOATS:
        made, by, ones = place_for(gx), float(override or 0), [1] * len(kernel)
        _native.averages(dense(g), made, kernel, stride, padding, ones, include, by, True)
        finished(gx, made)
        return
    size = tuple(g.shape[2:])
    gs = wide(g) / divisor(gx.shape[2:], size, (kernel, stride, padding), include, override)
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
    store(gx, whole[(slice(None), slice(None), *inside)])


fill("conv", conv)
fill("conv_input", conv_input)
fill("conv_weight", conv_weight)
fill("max_pool", max_pool)
fill("scatter_planes", scatter_planes)
fill("avg_pool", avg_pool)
fill("avg_pool_backward", avg_pool_backward)
