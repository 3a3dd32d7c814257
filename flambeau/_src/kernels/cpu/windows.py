"""Convolution and pooling on the CPU: sliding windows over padded arrays, products through BLAS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of, share_array
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor

_HALF = (dt.bfloat16, dt.float16)


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

    gs, xs = wide(g), wide(x)
    n, o = gs.shape[:2]
    if not gs.size or not xs.size:
        slot("fill_with")(gw, 0)
        return
    kernel, size = tuple(gw.shape[2:]), gs.shape[2:]
    cols = columns(xs, groups, kernel, stride, padding, dilation, size)
    flat = gs.reshape(n, groups, o // groups, -1)
    r = np.matmul(flat, cols.transpose(0, 1, 3, 2)).sum(0)
    store(gw, r.reshape(tuple(gw.shape)))


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
