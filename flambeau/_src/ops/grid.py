"""Images read at points: grid_sampler in two and three dimensions, affine grids.

Spatial transformer networks, Jaderberg et al. 2015. Everything is gathers and arithmetic.

interpolation_mode: 0 bilinear, 1 nearest, 2 bicubic; padding_mode: 0 zeros, 1 border, 2 reflection.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.promote import refuse


def check_grid(x: Tensor, grid: Tensor, mode: int) -> None:
    """Shapes and dtypes that go together."""
    if grid.shape[0] != x.shape[0] or grid.dim() != x.dim() or x.dim() not in (4, 5):
        if x.shape[0] == grid.shape[0] and grid.shape[-1] != x.dim() - 2:
            _refuse_points(x, grid)
        if x.shape[0] != grid.shape[0] or x.dim() == grid.dim():
            raise RuntimeError(
                "grid_sampler(): expected grid and input to have same batch size, but got input "
                f"with sizes {list(x.shape)} and grid with sizes {list(grid.shape)}"
            )
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {list(x.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != x.dim() - 2:
        _refuse_points(x, grid)
    for i in range(2, x.dim()):
        if not x.shape[i]:
            raise RuntimeError(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input "
                f"has sizes {list(x.shape)} with dimension {i} being empty"
            )
    if x.dim() == 5 and mode == 2:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


def _refuse_points(x: Tensor, grid: Tensor) -> None:
    raise RuntimeError(
        f"grid_sampler(): expected grid to have size {x.dim() - 2} in last dimension, but got grid "
        f"with sizes {list(grid.shape)}"
    )


class GridSampler(Composite):
    """input (N, C, spatial…) read at grid (N, points…, x y [z]), in [-1, 1]."""

    schema = (
        "grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, "
        "bool align_corners) -> Tensor"
    )
    public = "function"

    def decompose(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Any:
        check_grid(x, grid, mode)
        two = x.dim() == 4
        return (aten.grid_sampler_2d if two else aten.grid_sampler_3d)(
            x, grid, mode, padding, align
        )


def _clipped(c: Tensor, size: int) -> Tensor:
    """Within the image. On its very border nothing pulls any more, and NaN is its first pixel."""
    last = aten.scalar_tensor(size - 1, dtype=c.dtype, device=c.device)
    zero = aten.zeros((), dtype=c.dtype, device=c.device)
    return aten.where(c > 0, aten.where(c < size - 1, c, last), zero)


def _reflected(c: Tensor, size: int, align: bool) -> Tensor:
    """Folded back at the border pixels' centres (align) or at their outer edges."""
    low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
    if not span:
        return aten.zeros_like(c)
    off = aten.abs(c - low)
    turns = aten.floor(off / span)
    rest = off - turns * span
    even = aten.eq(aten.remainder(turns, 2), 0)
    return aten.where(even, rest + low, span - rest + low)


def _padded(c: Tensor, size: int, padding: int, align: bool) -> Tensor:
    if padding == 2:
        c = _reflected(c, size, align)
    return c if padding == 0 else _clipped(c, size)


def _pixels(c: Tensor, size: int, align: bool) -> Tensor:
    """Coordinates in pixels, of points in [-1, 1]."""
    return (c + 1) * ((size - 1) / 2) if align else ((c + 1) * size - 1) / 2


def _read(x: Tensor, at: Sequence[Tensor]) -> Tensor:
    """x (N, C, spatial…) at whole coordinates (N, points…), zero outside: (N, C, points…)."""
    sizes = x.shape[2:]
    inside, flat = None, None
    for c, n in zip(at, sizes, strict=True):
        ok = aten.logical_and(c >= 0, c <= n - 1)
        inside = ok if inside is None else aten.logical_and(inside, ok)
        i = aten.clamp(aten._to_copy(aten.clamp(c, -1, n), dtype=dt.int64), 0, n - 1)
        flat = i if flat is None else flat * n + i
    batch, channels = x.shape[:2]
    points = list(at[0].shape[1:])
    assert flat is not None and inside is not None
    rows = aten.expand(aten.reshape(flat, (batch, 1, -1)), (batch, channels, flat[0].numel()))
    got = aten.gather(aten.reshape(x, (batch, channels, -1)), 2, rows)
    got = aten.reshape(got, [batch, channels, *points])
    keep = aten.unsqueeze(inside, 1)
    return aten.where(keep, got, aten.zeros((), dtype=x.dtype, device=x.device))


def _nearby(x: Tensor, at: Sequence[Tensor], mode: int) -> Tensor:
    """The pixel next to the points, or the mean of those around them by their distance."""
    if mode == 1:
        return _read(x, [aten.round(c) for c in at])
    low = [aten.floor(c) for c in at]
    total: Any = None
    for corner in itertools.product((0, 1), repeat=len(at)):
        weight: Any = None
        for step, c, base in zip(corner, at, low, strict=True):
            w = c - base if step else base + 1 - c
            weight = w if weight is None else weight * w
        part = _read(x, [b + s for b, s in zip(low, corner, strict=True)])
        part = part * aten.unsqueeze(weight, 1)
        total = part if total is None else total + part
    return total


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Keys' kernel (1981) with a = -3/4 at the four pixels around a point."""
    a = -0.75

    def far(s: Tensor) -> Tensor:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    def near(s: Tensor) -> Tensor:
        return ((a + 2) * s - (a + 3)) * s * s + 1

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _cubic(x: Tensor, at: Sequence[Tensor], padding: int, align: bool) -> Tensor:
    (y, x_), (height, width) = at, x.shape[2:]
    y0, x0 = aten.floor(y), aten.floor(x_)
    rows, columns = _cubic_weights(y - y0), _cubic_weights(x_ - x0)
    total: Any = None
    for i in range(4):
        line: Any = None
        r = _padded(y0 + (i - 1), height, padding, align)
        for j in range(4):
            c = _padded(x0 + (j - 1), width, padding, align)
            part = _read(x, [r, c]) * aten.unsqueeze(columns[j], 1)
            line = part if line is None else line + part
        line = line * aten.unsqueeze(rows[i], 1)
        total = line if total is None else total + line
    return total


def sampled(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    """The whole operator as gathers; 16-bit floats are worked on in float32."""
    if not x.dtype.is_floating_point:
        refuse(f"grid_sampler_{x.dim() - 2}d_cpu_kernel_impl", x.dtype)
    if x.dtype is not grid.dtype:
        raise RuntimeError(
            f"expected scalar type {dt.scalar_name(x.dtype)} but found {dt.scalar_name(grid.dtype)}"
        )
    own = x.dtype
    if own in (dt.float16, dt.bfloat16):
        x, grid = aten._to_copy(x, dtype=dt.float32), aten._to_copy(grid, dtype=dt.float32)
    sizes = x.shape[2:]
    n = len(sizes)
    at = [_pixels(aten.select(grid, -1, n - 1 - i), sizes[i], align) for i in range(n)]
    if mode == 2:
        made = _cubic(x, at, padding, align)
    else:
        at = [_padded(c, s, padding, align) for c, s in zip(at, sizes, strict=True)]
        made = _nearby(x, at, mode)
    return aten._to_copy(made, dtype=own) if own is not made.dtype else made


def _samplers(n: int) -> None:
    name = f"grid_sampler_{n}d"
    arguments = (
        "Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners"
    )

    def decompose(x: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Any:
        check_grid(x, grid, mode)
        return sampled(x, grid, mode, padding, align)

    def vjp(b: Any, g: Any, x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
        needs = [bool(v) for v in b.needs]
        made = getattr(aten, f"{name}_backward")(g, x, grid, mode, padding, align, needs)
        return tuple(v if wanted else None for v, wanted in zip(made, needs, strict=True))

    def backward(
        g: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, align: bool, mask: Any
    ) -> Any:
        wanted = (bool(mask[0]), True)
        if state.get_suspended() & state.RECORD:  # a kernel; else gradients go through this again
            x, grid = x.detach(), grid.detach()
        with state.Resumed(state.RECORD | state.COMPOSITE):
            found = slot("vjp_by_decomposition")(
                forward.op, wanted, (g,), (x, grid, mode, padding, align)
            )
        of_x, of_grid = found
        if of_grid is None:  # nearest pixels: zeros, whose gradients are zeros and not undefined
            of_grid = aten.masked_fill(grid, aten.ones_like(grid, dtype=dt.bool_), 0)
        return of_x, of_grid

    def backward_meta(g: Tensor, x: Tensor, grid: Tensor, *rest: Any) -> Any:
        of_x = TensorSpec(x.shape, x.dtype, x.device) if rest[-1][0] else None
        return of_x, TensorSpec(grid.shape, grid.dtype, grid.device)

    def samples(s: Any) -> Iterator[Any]:
        image = (2, 3, 4, 5) if n == 2 else (1, 2, 3, 4, 2)
        points = (2, 3, 2, 2) if n == 2 else (1, 2, 2, 2, 3)
        for mode, padding, align in ((0, 0, False), (0, 1, True), (1, 2, False), (2, 0, True)):
            if mode < 2 or n == 2:
                yield s.sample(s.tensor(image), s.tensor(points, -0.9, 0.95), mode, padding, align)

    def error_samples(s: Any) -> Iterator[Any]:
        image = (1, 1, 3, 3, 3)[: n + 2]
        yield s.error(
            RuntimeError,
            "same batch size",
            s.tensor(image),
            s.tensor((2,) * (n + 1) + (n,)),
            0,
            0,
            False,
        )

    common = {"__module__": __name__, "public": "function"}
    forward: Any = type(f"GridSampler{n}d", (Opaque,), {
        "__doc__": f"Images of {n} dimensions read at points.", "decompose": decompose, "vjp": vjp,
        "schema": f"{name}({arguments}) -> Tensor", "samples": samples,
        "error_samples": error_samples, "reference": f"tests.ops.references:grid_sample_{n}d",
        **common,
    })  # fmt: skip
    type(f"GridSampler{n}dBackward", (Opaque,), {
        "__doc__": f"The gradients of {name}.", "decompose": backward, "meta": backward_meta,
        "schema": f"{name}_backward(Tensor grad_output, {arguments}, bool[2] output_mask) "
        "-> (Tensor, Tensor)", **common,
    })  # fmt: skip


_samplers(2)
_samplers(3)


def _line(n: int, align: bool, like: Tensor) -> Tensor:
    """The centres of n pixels in [-1, 1], or with `align` points from end to end."""
    if n <= 1:
        return aten.zeros((n,), dtype=like.dtype, device=like.device)
    made = aten.linspace(-1.0, 1.0, n, dtype=like.dtype, device=like.device)
    return made if align else made * ((n - 1) / n)


class AffineGridGenerator(Opaque):
    """The points of an image under affine maps theta (N, n, n + 1): (N, spatial…, n)."""

    schema = "affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor"
    out = "out"
    public = "function"

    def decompose(theta: Tensor, size: Sequence[int], align: bool) -> Any:
        spatial = list(size[2:])
        n = len(spatial)
        parts = []
        for i in range(n):  # x varies last
            d = n - 1 - i
            line = aten.view(
                _line(spatial[d], align, theta), [-1 if j == d else 1 for j in range(n)]
            )
            parts.append(aten.expand(line, spatial))
        ones = aten.ones(spatial, dtype=theta.dtype, device=theta.device)
        base = aten.reshape(aten.stack([*parts, ones], -1), (1, -1, n + 1))
        batch = theta.shape[0]
        points = aten.expand(base, (batch, base.shape[1], n + 1))
        made = aten.bmm(points, aten.transpose(theta, 1, 2))
        return aten.view(made, [batch, *spatial, n])

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 2, 3)), (2, 3, 4, 5), False)
        yield s.sample(s.tensor((1, 3, 4)), (1, 1, 2, 3, 2), True)
