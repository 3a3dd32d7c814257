"""Group, instance and root-mean-square normalisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec, cast, run_rows
from flambeau._src.ops.norm import as_matrix, check_normalized, dense, second_gradients

HALF = (dt.bfloat16, dt.float16)
_EPSILON = {dt.float64: 2.0**-52, dt.float32: 2.0**-23, dt.float16: 2.0**-10, dt.bfloat16: 2.0**-7}


def _moments(k: Any, x: Any, eps: Any) -> Any:
    mean = k.sum(x) / k.count()
    d = x - mean
    return mean, 1.0 / k.sqrt(k.sum(d * d) / k.count() + eps)


class GroupNorm(Composite):
    """Zero mean and unit variance over groups of channels of each sample (Wu and He 2018)."""

    schema = (
        "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float "
        "eps=1e-05, bool cudnn_enabled=True) -> Tensor"
    )
    public = "function"
    autocast = "fp32"

    def decompose(
        x: Tensor, groups: int, weight: Any, bias: Any, eps: float, cudnn: bool
    ) -> Tensor:
        n, c = x.size(0), x.size(1)
        if groups <= 0:
            raise RuntimeError(f"Expected num groups to be greater than 0, got {groups}")
        if c % groups:
            raise RuntimeError(
                "Expected number of channels in input to be divisible by num_groups, but got input "
                f"of shape {list(x.shape)} and num_groups={groups}"
            )
        for name, t in (("weight", weight), ("bias", bias)):
            if t is not None and (t.dim() != 1 or t.numel() != c):
                raise RuntimeError(
                    f"Expected {name} to be a vector of size equal to the number of channels in "
                    f"input, but got {name} of shape {list(t.shape)} and input of shape "
                    f"{list(x.shape)}"
                )
        cells = 1
        for s in x.shape[2:]:
            cells *= s
        if not layout.looks_channels_last(x):
            x = x.contiguous()
        return aten.native_group_norm(x, weight, bias, n, c, cells, groups, eps)[0]

    def samples(s: Any) -> Iterator[Any]:
        for shape, groups in (((2, 4, 3), 2), ((2, 6, 3, 2), 3), ((3, 4), 1), ((0, 4, 3), 2)):
            yield s.sample(s.tensor(shape), groups, s.tensor(shape[1]), s.tensor(shape[1]))
            yield s.sample(s.tensor(shape), groups)


class NativeGroupNorm(Opaque):
    """Group norm with the mean and reciprocal deviation of each group, both (N, groups)."""

    schema = (
        "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt "
        "HxW, int group, float eps) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    out = "out"
    out_args = ("out0", "out1", "out2")
    undefined_grads = True

    def meta(
        x: Tensor, weight: Any, bias: Any, n: int, c: int, cells: int, group: int, eps: float
    ) -> Any:
        kind = weight.dtype if weight is not None else bias.dtype if bias is not None else x.dtype
        stride = layout.channels_last_strides(x.shape) if layout.looks_channels_last(x) else None
        return (
            TensorSpec(x.shape, x.dtype, x.device, stride),
            TensorSpec((n, group), kind, x.device),
            TensorSpec((n, group), kind, x.device),
        )

    def kernel(
        outs: Any,
        x: Tensor,
        weight: Any,
        bias: Any,
        n: int,
        c: int,
        cells: int,
        group: int,
        eps: float,
    ) -> None:
        out, mean, rstd = outs
        rows, width = n * group, c // group * cells
        if not out.numel():
            if rows and not width:
                _native.zero(mean)
                aten.fill_(rstd, eps**-0.5 if eps else float("inf"))
            return
        stats = (as_matrix(mean, rows, 1), as_matrix(rstd, rows, 1))
        xs = as_matrix(dense(x), rows, width)
        if weight is None and bias is None and out._contiguous():
            run_rows(
                NativeGroupNorm.op,
                _norm_rows,
                (as_matrix(out, rows, width), *stats),
                [xs],
                1,
                [eps],
                [("all",)],
                x.dtype,
            )
            return
        wide = dt.float32 if x.dtype in HALF else x.dtype
        both = tuple(_native.empty((rows, 1), wide, x.device) for _ in range(2))
        run_rows(NativeGroupNorm.op, _stat_rows, both, [xs], 1, [eps], [("stats",)], x.dtype)
        for o, v in zip(stats, both, strict=True):
            aten.copy_(o, v)
        scale = aten.view(both[1], (n, group, 1))
        shift = aten.view(both[0], (n, group, 1))
        if weight is not None:
            scale = scale * aten.view(cast(weight, wide), (1, group, c // group))
        else:
            scale = aten.expand(scale, (n, group, c // group))
        offset = -shift * scale
        if bias is not None:
            offset = offset + aten.view(cast(bias, wide), (1, group, c // group))
        shape = (n, c, *[1] * (x.dim() - 2))
        scale, offset = aten.reshape(scale, shape), aten.reshape(offset, shape)
        aten.copy_(out, aten.addcmul(offset, cast(x, wide), scale))

    def vjp(
        b: Any,
        g: Any,
        x: Any,
        weight: Any,
        bias: Any,
        n: int,
        c: int,
        cells: int,
        group: int,
        eps: float,
    ) -> Any:
        needs = iter(b.needs)
        mask = [
            next(needs),
            next(needs) if weight is not None else False,
            next(needs) if bias is not None else False,
        ]
        got: Any = (None, None, None)
        if g[0] is not None:
            got = aten.native_group_norm_backward(
                g[0], x, b.outs[1], b.outs[2], weight, n, c, cells, group, mask
            )
        if mask[0] and (g[1] is not None or g[2] is not None):
            through = _through_statistics(g[1], g[2], x, b.outs[1], b.outs[2], n, group)
            whole = through if got[0] is None else got[0] + through
            got = (whole.to(x.dtype), *got[1:])
        return tuple(r for r, t in zip(got, (x, weight, bias), strict=True) if t is not None)


def _through_statistics(
    g_mean: Any, g_rstd: Any, x: Any, mean: Any, rstd: Any, n: int, group: int
) -> Any:
    """The input's gradient when the mean and the reciprocal deviation are used themselves; of 16
    bits in float32, since the sum that it is a part of may cancel."""
    if x.dtype in HALF:
        x, mean, rstd, g_mean, g_rstd = (
            t if t is None else t.to(dt.float32) for t in (x, mean, rstd, g_mean, g_rstd)
        )
    rows = x.reshape(n, group, x.numel() // max(n * group, 1))
    count = max(rows.shape[-1], 1)
    m, r = mean.reshape(n, group, 1), rstd.reshape(n, group, 1)
    total = aten.zeros_like(rows)
    if g_mean is not None:
        total = total + g_mean.reshape(n, group, 1) / count
    if g_rstd is not None:
        total = total - g_rstd.reshape(n, group, 1) * r * r * r * (rows - m) / count
    return total.reshape(x.shape)


def _norm_rows(k: Any, x: Any, eps: Any, *flags: Any) -> Any:
    mean, rstd = _moments(k, x, eps)
    return (x - mean) * rstd, mean, rstd


def _stat_rows(k: Any, x: Any, eps: Any, *flags: Any) -> Any:
    return _moments(k, x, eps)


class NativeGroupNormBackward(Opaque):
    """Gradients of group norm for input, weight and bias, as output_mask asks."""

    schema = (
        "native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, "
        "Tensor? weight, SymInt N, SymInt C, SymInt HxW, int group, bool[3] output_mask) -> "
        "(Tensor, Tensor, Tensor)"
    )
    public = "function"
    out = "out"
    out_args = ("out0", "out1", "out2")
    undefined_grads = True

    def meta(
        g: Tensor,
        x: Tensor,
        mean: Any,
        rstd: Any,
        weight: Any,
        n: int,
        c: int,
        cells: int,
        group: int,
        mask: Any,
    ) -> Any:
        kind = x.dtype if weight is None else weight.dtype
        stride = layout.channels_last_strides(x.shape) if layout.looks_channels_last(x) else None
        return (
            TensorSpec(x.shape, x.dtype, x.device, stride) if mask[0] else None,
            TensorSpec((c,), kind, x.device) if mask[1] else None,
            TensorSpec((c,), kind, x.device) if mask[2] else None,
        )

    def kernel(
        outs: Any,
        g: Tensor,
        x: Tensor,
        mean: Any,
        rstd: Any,
        weight: Any,
        n: int,
        c: int,
        cells: int,
        group: int,
        mask: Any,
    ) -> None:
        wide = dt.float32 if x.dtype in HALF else x.dtype
        g, x, mean, rstd = (cast(t, wide) for t in (g, x, mean, rstd))
        weight = None if weight is None else cast(weight, wide)
        made = _fast_gradients(g, x, mean, rstd, weight, n, c, cells, group, mask)
        for o, r in zip(outs, made, strict=True):
            if o is not None:
                aten.copy_(o, r)

    def decompose(
        g: Tensor,
        x: Tensor,
        mean: Any,
        rstd: Any,
        weight: Any,
        n: int,
        c: int,
        cells: int,
        group: int,
        mask: Any,
    ) -> Any:
        wide = dt.float32 if x.dtype in HALF else x.dtype
        kinds = x.dtype, *[x.dtype if weight is None else weight.dtype] * 2
        g, x, mean, rstd = (cast(t, wide) for t in (g, x, mean, rstd))
        weight = None if weight is None else cast(weight, wide)
        made = _gradients(g, x, mean, rstd, weight, n, c, cells, group, mask)
        return tuple(
            None if t is None else cast(t, kind) for t, kind in zip(made, kinds, strict=True)
        )

    def vjp(
        b: Any, gg: Any, g: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: int, c: int,
        cells: int, group: int, mask: Any,
    ) -> Any:  # fmt: skip
        """A group is a row: with the weight multiplied into g first, it is layer norm's."""
        shape, m, r = (n * group, c // group * cells), mean.reshape(-1, 1), rstd.reshape(-1, 1)

        def spread(t: Any) -> Any:
            return t.reshape(1, c, 1).expand(n, c, cells).reshape(shape)

        v, u, shift = gg
        rows, xs = g.reshape(shape), x.reshape(shape)
        of_g = of_x = of_w = None
        if v is not None:
            w = None if weight is None else spread(weight)
            of_g, of_x, _ = second_gradients(
                (v.reshape(shape), None, None), rows if w is None else rows * w, xs, m, r, None,
                [1], "rows",
            )  # fmt: skip
            if w is not None:
                of_w = (of_g * rows).reshape(n, c, cells).sum((0, 2)).reshape(weight.shape)
                of_g = of_g * w
        if u is not None:
            more_g, more_x, _ = second_gradients(
                (None, spread(u), None), rows, xs, m, r, None, [1], "rows"
            )
            of_g = more_g if of_g is None else of_g + more_g
            of_x = more_x if of_x is None else of_x + more_x
        if shift is not None:
            of_g = spread(shift) if of_g is None else of_g + spread(shift)
        first = [None if t is None else t.reshape(x.shape) for t in (of_g, of_x)]
        return (*first, None, None, *(() if weight is None else (of_w,)))


def _fast_gradients(
    g: Tensor,
    x: Tensor,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: int,
    c: int,
    cells: int,
    group: int,
    mask: Any,
) -> Any:
    """`_gradients` from two sums a channel: dx is linear in g and x with coefficients a group."""
    per = c // group
    g4, x4 = g.reshape(n, group, per, cells), x.reshape(n, group, per, cells)
    m, r = mean.reshape(n, group, 1), rstd.reshape(n, group, 1)
    along, plain = (g4 * x4).sum(-1), g4.sum(-1)  # (n, group, per)
    dx = dw = db = None
    if mask[0]:
        share = 1.0 / max(per * cells, 1)
        w = None if weight is None else weight.reshape(1, group, per)
        ds = (along if w is None else along * w).sum(-1, True)
        total = (plain if w is None else plain * w).sum(-1, True)
        slope = (total * m - ds) * r * r * r * share
        offset = -slope * m - total * r * share
        first = aten.unsqueeze(r if w is None else r * w, -1)
        dx = (first * g4 + slope.unsqueeze(-1) * x4 + offset.unsqueeze(-1)).reshape(x.shape)
    if mask[1]:
        dw = ((along - plain * m) * r).sum(0).reshape(c)
    if mask[2]:
        db = plain.sum(0).reshape(c)
    return dx, dw, db


def _gradients(
    g: Tensor,
    x: Tensor,
    mean: Any,
    rstd: Any,
    weight: Any,
    n: int,
    c: int,
    cells: int,
    group: int,
    mask: Any,
) -> Any:
    """The three gradients as expressions of the statistics."""
    per = c // group
    g4, x4 = g.reshape(n, group, per, cells), x.reshape(n, group, per, cells)
    m, r = mean.reshape(n, group, 1, 1), rstd.reshape(n, group, 1, 1)
    h = (x4 - m) * r
    dx = dw = db = None
    if mask[0]:
        gw = g4 if weight is None else g4 * weight.view(1, group, per, 1)
        count = max(per * cells, 1)
        total, dot = gw.sum((2, 3), True), (gw * h).sum((2, 3), True)
        dx = ((gw - total / count - h * (dot / count)) * r).reshape(x.shape)
    if mask[1]:
        dw = (g4 * h).sum((0, 3)).reshape(c)
    if mask[2]:
        db = g4.sum((0, 3)).reshape(c)
    return dx, dw, db


class InstanceNorm(Composite):
    """Zero mean and unit variance over each channel of each sample, through
    batch norm of (1, N C, …)."""

    schema = (
        "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? "
        "running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> "
        "Tensor"
    )
    public = "function"

    def decompose(
        x: Tensor,
        weight: Any,
        bias: Any,
        mean: Any,
        var: Any,
        use_input: bool,
        momentum: float,
        eps: float,
        cudnn: bool,
    ) -> Tensor:
        if not use_input and (mean is None or var is None):
            raise RuntimeError(
                "Expected running_mean and running_var to be defined when use_input_stats is false"
            )
        n, c = x.size(0), x.size(1)
        shape = [1, n * c, *x.shape[2:]]
        weight, bias, many_mean, many_var = (
            None if t is None else aten.repeat(t, [n]) for t in (weight, bias, mean, var)
        )
        fmt = (
            layout.channels_last
            if layout.looks_channels_last(x) and x.dim() == 4
            else layout.contiguous_format
        )
        if x.dim() == 5 and layout.looks_channels_last(x):
            fmt = layout.channels_last_3d
        flat = aten.view(aten.contiguous(x), shape)
        out = aten.batch_norm(
            flat, weight, bias, many_mean, many_var, use_input, momentum, eps, cudnn
        )
        for running, many in ((mean, many_mean), (var, many_var)):
            if running is not None:
                aten.alias(running).copy_(aten.mean(aten.view(many, [n, c]), [0], False))
        del fmt
        return aten.view(out, x.shape)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((2, 3, 5), (2, 3, 4, 2)):
            yield s.sample(
                s.tensor(shape), s.tensor(3), s.tensor(3), None, None, True, 0.1, 1e-5, True
            )
            yield s.sample(s.tensor(shape), None, None, None, None, True, 0.1, 1e-5, True)


def _check_rms(x: Tensor, shape: Sequence[int], weight: Any) -> None:
    n = len(shape)
    if (
        n
        and (x.dim() < n or tuple(x.shape[x.dim() - n :]) != tuple(shape))
        and (weight is None or tuple(weight.shape) == tuple(shape))
    ):
        wanted = "".join(f", {s}" if i else f"{s}" for i, s in enumerate(shape))
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*{wanted}], but got "
            f"input of size{list(x.shape)}"
        )
    check_normalized("rms_norm", x, shape, weight, None)


def _rms(x: Tensor, shape: Sequence[int], weight: Any, eps: float | None) -> tuple[Tensor, Tensor]:
    """(result, reciprocal root mean square); 16-bit floats are computed in float32."""
    eps = _EPSILON[dt.REAL_OF.get(x.dtype, x.dtype)] if eps is None else eps
    wide = dt.float32 if x.dtype in HALF else x.dtype
    up = x.to(wide)
    rstd = aten.rsqrt(
        aten.mean(aten.pow(up, 2), list(range(x.dim() - len(shape), x.dim())), True).add_(eps)
    )
    out = up * rstd
    if weight is not None:
        out = out * weight
    return out.to(x.dtype), rstd


class RmsNorm(Composite):
    """x / sqrt(mean(x²) + eps) over the last dimensions, then weight (Zhang and Sennrich 2019).
    eps None is the dtype's epsilon."""

    schema = (
        "rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) "
        "-> Tensor"
    )
    public = "function"
    autocast = "fp32"

    def decompose(x: Tensor, shape: Sequence[int], weight: Any, eps: float | None) -> Tensor:
        _check_rms(x, shape, weight)
        return _rms(x, shape, weight, eps)[0]

    def samples(s: Any) -> Iterator[Any]:
        for shape, n in (((3, 8), 1), ((2, 3, 4), 2), ((0, 4), 1), ((5, 33), 1)):
            yield s.sample(
                s.tensor(shape), shape[len(shape) - n :], s.tensor(shape[len(shape) - n :]), 1e-5
            )
            yield s.sample(s.tensor(shape), shape[len(shape) - n :])


class FusedRmsNorm(Opaque):
    """rms_norm with its reciprocal root mean square, for devices that fuse the two."""

    schema = (
        "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) "
        "-> (Tensor, Tensor)"
    )
    public = "function"
    differentiable = (0,)

    def meta(x: Tensor, shape: Sequence[int], weight: Any, eps: float | None) -> Any:
        _check_rms(x, shape, weight)
        stats = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
        wide = dt.float32 if x.dtype in HALF else x.dtype
        return TensorSpec(x.shape, x.dtype, x.device), TensorSpec(stats, wide, x.device)

    def kernel(outs: Any, x: Tensor, shape: Sequence[int], weight: Any, eps: float | None) -> None:
        for o, r in zip(outs, _rms(x, shape, weight, eps), strict=True):
            aten.copy_(o, r)

    def vjp(b: Any, g: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
        mask = [b.needs[0], weight is not None and b.needs[1]]
        got = aten._fused_rms_norm_backward(g[0], x, shape, b.outs[1], weight, mask)
        return got if weight is not None else got[0]


class FusedRmsNormBackward(Opaque):
    """Gradients of _fused_rms_norm for input and weight."""

    schema = (
        "_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor "
        "rstd, Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)"
    )
    public = "function"

    def meta(g: Tensor, x: Tensor, shape: Any, rstd: Any, weight: Any, mask: Any) -> Any:
        return (
            TensorSpec(x.shape, x.dtype, x.device) if mask[0] else None,
            TensorSpec(weight.shape, weight.dtype, x.device)
            if mask[1] and weight is not None
            else None,
        )

    def kernel(
        outs: Any, g: Tensor, x: Tensor, shape: Any, rstd: Any, weight: Any, mask: Any
    ) -> None:
        wide = rstd.dtype
        w = None if weight is None else cast(weight, wide)
        for o, r in zip(
            outs, _rms_gradients(cast(g, wide), cast(x, wide), shape, rstd, w, mask), strict=True
        ):
            if o is not None:
                aten.copy_(o, r)

    def decompose(g: Tensor, x: Tensor, shape: Any, rstd: Any, weight: Any, mask: Any) -> Any:
        mean = (x * x).mean(list(range(x.dim() - len(shape), x.dim())), True)
        eps = (1 / (rstd * rstd)).detach() - mean.detach()
        return _rms_gradients(g, x, shape, (mean + eps).rsqrt(), weight, mask)


def _rms_gradients(g: Tensor, x: Tensor, shape: Any, rstd: Any, weight: Any, mask: Any) -> Any:
    dims = list(range(x.dim() - len(shape), x.dim()))
    outer = list(range(x.dim() - len(shape)))
    h = x * rstd
    gw = g if weight is None else g * weight
    dx = rstd * (gw - h * (gw * h).mean(dims, True)) if mask[0] else None
    dw = ((g * h).sum(outer) if outer else g * h) if mask[1] and weight is not None else None
    return dx, dw
