"""Convolutions of one, two and three dimensions, and their transposes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.core import layout
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.convolved import check, dimensions, spatial
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.op import Declaration


def output_size(x: Any, w: Any, stride: Any, padding: Any, dilation: Any) -> list[int]:
    return [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(x[2:], w[2:], stride, padding, dilation, strict=True)
    ]


def transposed_size(
    x: Any, w: Any, stride: Any, padding: Any, dilation: Any, extra: Any
) -> list[int]:
    return [
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, k, s, p, d, e in zip(x[2:], w[2:], stride, padding, dilation, extra, strict=True)
    ]


def result_stride(shape: Any, x: Tensor, w: Tensor) -> Any:
    last = layout.looks_channels_last(x) or layout.looks_channels_last(w)
    return layout.channels_last_strides(shape) if last and len(shape) in (4, 5) else None


class Convolution(Opaque):
    """input (N, C, *) with weight (O, C/groups, *), or transposed with weight (C, O/groups, *)."""

    total = True
    schema = (
        "convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] "
        "dilation, bool transposed, int[] output_padding, int groups) -> Tensor"
    )
    public = "function"
    out = "out"
    autocast = "lower"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "expected input.2, 3, 5, 5. to have 2 channels",
            s.tensor((2, 3, 5, 5)),
            s.tensor((4, 2, 3, 3)),
            None,
            (1, 1),
            (0, 0),
            (1, 1),
            False,
            (0, 0),
            1,
        )
        yield s.error(
            RuntimeError,
            "weight should have at least three dimensions",
            s.tensor((2, 3, 5)),
            s.tensor((4, 3)),
            None,
            (1,),
            (0,),
            (1,),
            False,
            (0,),
            1,
        )

    def meta(
        x: Tensor,
        w: Tensor,
        bias: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        extra: Any,
        groups: int,
    ) -> TensorSpec:
        d = dimensions(w)
        stride, padding, dilation, extra = (
            spatial(v, d, n)
            for v, n in (
                (stride, "stride"),
                (padding, "padding"),
                (dilation, "dilation"),
                (extra, "output_padding"),
            )
        )
        check(x, w, bias, stride, padding, dilation, transposed, extra, groups)
        if transposed:
            shape = [
                x.shape[0],
                w.shape[1] * groups,
                *transposed_size(x.shape, w.shape, stride, padding, dilation, extra),
            ]
        else:
            shape = [
                x.shape[0],
                w.shape[0],
                *output_size(x.shape, w.shape, stride, padding, dilation),
            ]
        return TensorSpec(shape, x.dtype, x.device, result_stride(shape, x, w))

    def kernel(
        out: Tensor,
        x: Tensor,
        w: Tensor,
        bias: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        extra: Any,
        groups: int,
    ) -> None:
        d = x.dim() - 2
        stride, padding, dilation = (spatial(v, d, "") for v in (stride, padding, dilation))
        if transposed:
            slot("conv_input")(out, x, w, stride, padding, dilation, groups, bias)
        else:
            slot("conv")(out, x, w, bias, stride, padding, dilation, groups)

    def vjp(
        b: Any,
        g: Any,
        x: Any,
        w: Any,
        bias: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        extra: Any,
        groups: int,
    ) -> Any:
        mask = [*b.needs, False][:3]
        sizes = None if bias is None else list(bias.shape)
        x, w = conjugate(x, w)
        got = aten.convolution_backward(
            g, x, w, sizes, stride, padding, dilation, transposed, extra, groups, mask
        )
        return got if bias is not None else got[:2]

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(
            s.tensor((2, 3, 5, 5)),
            s.tensor((4, 3, 3, 3)),
            s.tensor((4,)),
            (1, 1),
            (1, 1),
            (1, 1),
            False,
            (0, 0),
            1,
        )
        yield s.sample(
            s.tensor((2, 4, 6)), s.tensor((4, 2, 3)), None, (2,), (0,), (2,), False, (0,), 2
        )


class ConvolutionBackward(Declaration):
    """Gradients of convolution for input, weight and bias, as output_mask asks."""

    schema = (
        "convolution_backward(Tensor grad_output, Tensor input, Tensor weight, int[]? bias_sizes, "
        "int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int "
        "groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
    )
    public = "function"
    kind = "conv"
    undefined_grads = True

    def meta(
        g: Tensor,
        x: Tensor,
        w: Tensor,
        sizes: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        extra: Any,
        groups: int,
        mask: Any,
    ) -> Any:
        o = g.shape[1]
        return (
            TensorSpec(x.shape, x.dtype, x.device) if mask[0] else None,
            TensorSpec(w.shape, w.dtype, w.device) if mask[1] else None,
            TensorSpec((o,), g.dtype, g.device) if mask[2] else None,
        )

    def run(
        g: Tensor,
        x: Tensor,
        w: Tensor,
        sizes: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        extra: Any,
        groups: int,
        mask: Any,
    ) -> Any:
        d = x.dim() - 2
        stride, padding, dilation = (spatial(v, d, "") for v in (stride, padding, dilation))
        gx = gw = gb = None
        if mask[0]:
            gx = aten.empty(x.shape, dtype=x.dtype, device=x.device)
            if transposed:
                slot("conv")(gx, g, w, None, stride, padding, dilation, groups)
            else:
                slot("conv_input")(gx, g, w, stride, padding, dilation, groups)
        if mask[1]:
            gw = aten.empty(w.shape, dtype=w.dtype, device=w.device)
            if transposed:
                slot("conv_weight")(gw, x, g, stride, padding, dilation, groups)
            else:
                slot("conv_weight")(gw, g, x, stride, padding, dilation, groups)
        if mask[2]:
            gb = aten.sum(g, [0, *range(2, g.dim())])
        return gx, gw, gb

    def vjp(
        b: Any,
        gg: Any,
        g: Any,
        x: Any,
        w: Any,
        sizes: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        extra: Any,
        groups: int,
        mask: Any,
    ) -> Any:
        ggx, ggw, ggb = gg
        g, x, w = conjugate(g, x, w)
        options = (stride, padding, dilation, transposed, extra, groups)
        go = gx = gw = None
        if b.needs[0]:
            parts = []
            if ggx is not None:
                parts.append(aten.convolution(ggx, w, None, *options))
            if ggw is not None:
                parts.append(aten.convolution(x, ggw, None, *options))
            if ggb is not None:
                parts.append(ggb.view([1, -1, *[1] * (x.dim() - 2)]).expand(g.shape))
            for p in parts:
                go = p if go is None else go + p
        if b.needs[1] and ggw is not None:
            gx = aten.convolution_backward(g, x, ggw, None, *options, [True, False, False])[0]
        if b.needs[2] and ggx is not None:
            gw = aten.convolution_backward(g, ggx, w, None, *options, [False, True, False])[1]
        return go, gx, gw


def batchify(x: Tensor, d: int, name: str) -> tuple[Tensor, bool]:
    if x.dim() not in (d + 1, d + 2):
        raise RuntimeError(
            f"Expected {d + 1}D (unbatched) or {d + 2}D (batched) input to {name}, but got input "
            f"of size: {list(x.shape)}"
        )
    return (x.unsqueeze(0), False) if x.dim() == d + 1 else (x, True)


def run_conv(
    x: Tensor,
    w: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    d: int,
    name: str,
) -> Tensor:
    x, batched = batchify(x, d, name)
    if isinstance(padding, str):
        x, padding = named_padding(x, w, stride, padding, dilation, d)
    out = convolved(x, w, bias, stride, padding, dilation, False, [0] * d, groups)
    return out if batched else out.squeeze(0)


def convolved(x: Tensor, w: Tensor, bias: Any, *options: Any) -> Tensor:
    """The convolution; of complex numbers by three real ones (Gauss): with (a + bi) and (c + di)
    it is ac - bd + ((a + b)(c + d) - ac - bd) i.
    """
    if not x.dtype.is_complex:
        return aten.convolution(x, w, bias, *options)

    def parts(t: Tensor) -> tuple[Tensor, Tensor]:
        pair = aten.view_as_real(aten.resolve_conj(t))
        return aten.select(pair, t.dim(), 0), aten.select(pair, t.dim(), 1)

    (a, b), (c, d) = parts(x), parts(w)
    real, imaginary = (None, None) if bias is None else parts(bias)
    ac = aten.convolution(a, c, real, *options)
    bd = aten.convolution(b, d, None, *options)
    both = None if bias is None else real + imaginary  # type: ignore[operator]
    all_ = aten.convolution(a + b, c + d, both, *options)
    return ac - bd + (all_ - ac - bd) * 1j


def conjugate(*given: Any) -> tuple[Any, ...]:
    """What a gradient multiplies by: the conjugates of complex tensors."""
    return tuple(
        aten.conj_physical(t) if t is not None and t.dtype.is_complex else t for t in given
    )


def named_padding(
    x: Tensor, w: Tensor, stride: Any, padding: str, dilation: Any, d: int
) -> tuple[Tensor, tuple[int, ...]]:
    if padding == "valid":
        return x, (0,) * d
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    n = dimensions(w)
    if w.dim() != x.dim():
        raise RuntimeError(
            f"Expected {w.dim()}-dimensional input for {w.dim()}-dimensional "
            f"weight{list(w.shape)}, but got {x.dim()}-dimensional input of size {list(x.shape)} "
            "instead"
        )
    dilation = spatial(dilation, n, "dilation")
    total = [dl * (k - 1) for k, dl in zip(w.shape[2:], dilation, strict=True)]
    if any(t % 2 for t in total):
        pads: list[int] = []
        for t in reversed(total):
            pads += [0, t % 2]
        x = aten.constant_pad_nd(x, pads, 0)
    return x, tuple(t // 2 for t in total)


def _forward(d: int) -> None:
    ones, zeros = [1] * d, [0] * d
    name = f"conv{d}d"

    def plain(
        x: Tensor, w: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Tensor:
        return run_conv(x, w, bias, stride, padding, dilation, groups, d, name)

    def transpose(
        x: Tensor,
        w: Tensor,
        bias: Any,
        stride: Any,
        padding: Any,
        extra: Any,
        groups: int,
        dilation: Any,
    ) -> Tensor:
        x, batched = batchify(x, d, f"conv_transpose{d}d")
        out = convolved(x, w, bias, stride, padding, dilation, True, extra, groups)
        return out if batched else out.squeeze(0)

    common = {"__module__": __name__, "public": "function", "autocast": "lower"}
    lead = "Tensor input, Tensor weight, Tensor? bias=None"
    type(
        f"Conv{d}d",
        (Composite,),
        {
            "__doc__": f"Convolution over {d} dimensions.",
            "decompose": plain,
            **common,
            "schema": f"{name}({lead}, int[{d}] stride={ones}, int[{d}] padding={zeros}, int[{d}] "
            f"dilation={ones}, int groups=1) -> Tensor",
        },
    )
    type(
        f"Conv{d}dPadding",
        (Composite,),
        {
            "__doc__": f"Convolution over {d} dimensions, padding 'valid' or 'same'.",
            "decompose": plain,
            **common,
            "schema": f'{name}.padding({lead}, int[{d}] stride={ones}, str padding="valid", '
            f"int[{d}] dilation={ones}, int groups=1) -> Tensor",
        },
    )
    dot = "" if d == 1 else ".input"
    type(
        f"ConvTranspose{d}d",
        (Composite,),
        {
            "__doc__": f"Transposed convolution over {d} dimensions.",
            "decompose": transpose,
            **common,
            "schema": f"conv_transpose{d}d{dot}({lead}, int[{d}] stride={ones}, int[{d}] "
            f"padding={zeros}, int[{d}] output_padding={zeros}, int groups=1, int[{d}] "
            f"dilation={ones}) -> Tensor",
        },
    )


for _d in (1, 2, 3):
    _forward(_d)
