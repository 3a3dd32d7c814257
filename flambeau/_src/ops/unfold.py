"""Sliding blocks as columns and back, adaptive maxima, and the undoing of max pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import not_implemented, store, wide
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec

# ---- blocks of images as columns ----


def _text(v: Sequence[int]) -> str:
    return f"({v[0]}, {v[1]})"


def check_blocks(kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    for name, what, v, least in (
        ("kernel size should be greater than zero", "kernel", kernel, 1),
        ("dilation should be greater than zero", "dilation", dilation, 1),
        ("padding should be non-negative", "pad", padding, 0),
        ("stride should be greater than zero", "stride", stride, 1),
    ):
        if len(v) != 2:
            named = {"kernel": "kernel_size", "pad": "padding"}.get(what, what)
            raise RuntimeError(f"It is expected {named} equals to 2, but got size {len(v)}")
        if min(v) < least:
            raise RuntimeError(f"{name}, but got {what}_height: {v[0]} {what}_width: {v[1]}")


def blocks(size: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[int]:
    """How many blocks there are along each dimension."""
    return [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    ]


_ARGS = "int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride"


class Im2col(Opaque):
    """The blocks of (N, C, H, W) under a sliding window as columns (N, C kh kw, L)."""

    schema = f"im2col(Tensor self, {_ARGS}) -> Tensor"
    public = "nn"
    out = "out"
    node_name = "Im2Col"

    def meta(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> TensorSpec:
        check_blocks(kernel, dilation, padding, stride)
        n = x.dim()
        if n not in (3, 4) or not all(x.shape[n - 3 :]):
            raise RuntimeError(
                "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
                f"non-zero dimensions for input, but got: {list(x.shape)}"
            )
        size = blocks(x.shape[n - 2 :], kernel, dilation, padding, stride)
        if min(size) < 1:
            raise RuntimeError(
                f"Given input with spatial size {_text(x.shape[n - 2 :])}, "
                f"kernel_size={_text(kernel)}, dilation={_text(dilation)}, "
                f"padding={_text(padding)}, calculated shape of the array of sliding blocks as "
                f"{_text(size)}, but its components must be at least one."
            )
        shape = [*x.shape[: n - 3], x.shape[n - 3] * kernel[0] * kernel[1], size[0] * size[1]]
        return TensorSpec(shape, x.dtype, x.device)

    def kernel(
        out: Tensor, x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        a = array_of(x)
        a = a if a.ndim == 4 else a[None]
        h, w = a.shape[2:]
        size = blocks((h, w), kernel, dilation, padding, stride)
        full = np.zeros((*a.shape[:2], h + 2 * padding[0], w + 2 * padding[1]), a.dtype)
        full[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + w] = a
        st = full.strides
        view = np.lib.stride_tricks.as_strided(
            full, (*a.shape[:2], *kernel, *size),
            (*st[:2], st[2] * dilation[0], st[3] * dilation[1], st[2] * stride[0],
             st[3] * stride[1]),
        )  # fmt: skip
        array_of(out)[...] = view.reshape(tuple(out.shape))

    def vjp(b: Any, g: Any, x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
        return aten.col2im(g, x.shape[-2:], kernel, dilation, padding, stride)

    def samples(s: Any) -> Iterator[Any]:
        for kernel, dilation, padding, stride in (
            ((2, 2), (1, 1), (0, 0), (1, 1)),
            ((3, 2), (1, 2), (1, 0), (2, 1)),
        ):
            yield s.sample(s.tensor((2, 3, 5, 6)), kernel, dilation, padding, stride)
            yield s.sample(s.tensor((3, 5, 6)), kernel, dilation, padding, stride)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "kernel size should be greater",
            s.tensor((1, 3, 3, 3)),
            (0, 0),
            (1, 1),
            (0, 0),
            (1, 1),
        )


class Col2im(Opaque):
    """Columns (N, C kh kw, L) summed back into (N, C, *output_size)."""

    schema = f"col2im(Tensor self, SymInt[2] output_size, {_ARGS}) -> Tensor"
    public = "nn"
    out = "out"
    node_name = "Col2Im"

    def meta(
        x: Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
    ) -> TensorSpec:
        if len(size) != 2:
            raise RuntimeError(f"It is expected output_size equals to 2, but got size {len(size)}")
        check_blocks(kernel, dilation, padding, stride)
        n = x.dim()
        if n not in (2, 3) or not all(x.shape[n - 2 :]):
            raise RuntimeError(
                "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
                f"non-zero dimensions for input, but got: {list(x.shape)}"
            )
        area = kernel[0] * kernel[1]
        if x.shape[-2] % area:
            raise RuntimeError(
                "Expected size of input's dimension 1 to be divisible by the product of "
                f"kernel_size, but got input.size(1)={x.shape[-2]} and kernel_size={_text(kernel)}."
            )
        count = blocks(size, kernel, dilation, padding, stride)
        given = (
            f"Given output_size={_text(size)}, kernel_size={_text(kernel)}, "
            f"dilation={_text(dilation)}, padding={_text(padding)}, stride={_text(stride)}, "
        )
        if x.shape[-1] != count[0] * count[1]:
            raise RuntimeError(
                f"{given}expected size of input's dimension 2 to match the calculated number of "
                f"sliding blocks {count[0]} * {count[1]} = {count[0] * count[1]}, but got "
                f"input.size(2)={x.shape[-1]}."
            )
        if min(size) < 1:
            raise RuntimeError(
                f"Expected output spatial size to be positive, but got: output_size={_text(size)}."
            )
        return TensorSpec([*x.shape[: n - 2], x.shape[-2] // area, *size], x.dtype, x.device)

    def kernel(
        out: Tensor, x: Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        a = wide(x)
        count = blocks(size, kernel, dilation, padding, stride)
        a = a.reshape(-1, out.shape[-3], *kernel, *count)
        h, w = size
        full = np.zeros((*a.shape[:2], h + 2 * padding[0], w + 2 * padding[1]), a.dtype)
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                top, left = i * dilation[0], j * dilation[1]
                full[
                    :,
                    :,
                    top : top + (count[0] - 1) * stride[0] + 1 : stride[0],
                    left : left + (count[1] - 1) * stride[1] + 1 : stride[1],
                ] += a[:, :, i, j]
        r = full[:, :, padding[0] : padding[0] + h, padding[1] : padding[1] + w]
        store(out, r.reshape(tuple(out.shape)))

    def vjp(
        b: Any, g: Any, x: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
    ) -> Any:
        return aten.im2col(g, kernel, dilation, padding, stride)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 12, 20)), (5, 6), (2, 2), (1, 1), (0, 0), (1, 1))
        yield s.sample(s.tensor((12, 20)), (5, 6), (2, 2), (1, 1), (0, 0), (1, 1))


# ---- adaptive maxima ----


def _adaptive(d: int) -> None:
    name = f"adaptive_max_pool{d}d"

    def meta(x: Tensor, size: Any) -> Any:
        n = x.dim()
        if n not in (d + 1, d + 2):
            raise RuntimeError(
                f"{name}(): Expected {d + 1}D or {d + 2}D tensor, but got: {list(x.shape)}"
            )
        for i in range(1, n):
            if not x.shape[i]:
                raise RuntimeError(
                    f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                    f"input has sizes {list(x.shape)} with dimension {i} being empty"
                )
        if len(size) != d:
            raise RuntimeError(f"{name}(): internal error: output_size.size() must be {d}")
        if not (x.dtype.is_floating_point or dt.is_integral(x.dtype, with_bool=False)):
            raise not_implemented(name, x)
        shape = [*x.shape[: n - d], *size]
        stride = (
            layout.channels_last_strides(shape)
            if d == 2 and n == 4 and layout.looks_channels_last(x)
            else None
        )
        return TensorSpec(shape, x.dtype, x.device, stride), TensorSpec(
            shape, dt.int64, x.device, stride
        )

    def kernel(outs: Any, x: Tensor, size: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not outs[0].numel():
            return
        a = wide(x)
        spatial = a.shape[a.ndim - d :]
        best, place = (
            np.empty(tuple(outs[0].shape), a.dtype),
            np.empty(tuple(outs[0].shape), np.int64),
        )
        for at in np.ndindex(*size):
            bounds = [
                (i * n // o, -(-(i + 1) * n // o))
                for i, n, o in zip(at, spatial, size, strict=True)
            ]
            window = a[(..., *(slice(lo, hi) for lo, hi in bounds))]
            flat = window.reshape(*window.shape[: a.ndim - d], -1)
            if flat.dtype.kind == "f":  # of several NaNs torch takes the last
                bad = np.isnan(flat)
                first = np.where(
                    bad.any(-1), flat.shape[-1] - 1 - bad[..., ::-1].argmax(-1), flat.argmax(-1)
                )
            else:
                first = flat.argmax(-1)
            best[(..., *at)] = np.take_along_axis(flat, first[..., None], -1)[..., 0]
            inner = np.unravel_index(first, [hi - lo for lo, hi in bounds])
            where = 0
            for i in range(d):
                where = where * spatial[i] + bounds[i][0] + inner[i]
            place[(..., *at)] = where
        store(outs[0], best)
        array_of(outs[1])[...] = place

    def vjp(b: Any, g: Any, x: Any, size: Any) -> Any:
        return getattr(aten, name + "_backward")(g[0], x, b.outs[1])

    def samples(s: Any) -> Iterator[Any]:
        for size in ([2] * d, [3, 2, 1][:d], [1] * d):
            yield s.sample(s.tensor((2, 3, *[5] * d)), size)
            yield s.sample(s.tensor((3, *[4] * d)), size)

    type(
        name,
        (Opaque,),
        {
            "__doc__": "Maxima of windows that tile the input, and their flat places.",
            "meta": meta,
            "kernel": kernel,
            "vjp": vjp,
            "schema": f"{name}(Tensor self, int[{d}] output_size) -> (Tensor, Tensor)",
            "differentiable": (0,),
            "samples": samples,
            "out": "out",
            "out_args": ("out", "indices"),
            "node_name": f"AdaptiveMaxPool{d}D",
            "__module__": __name__,
            "public": "nn",
        },
    )


def _adaptive_backward(d: int) -> None:
    name = f"adaptive_max_pool{d}d_backward"

    def meta(g: Tensor, x: Tensor, indices: Tensor) -> TensorSpec:
        stride = (
            layout.channels_last_strides(x.shape)
            if d == 2 and x.dim() == 4 and layout.looks_channels_last(x)
            else None
        )
        return TensorSpec(x.shape, x.dtype, x.device, stride)

    def kernel(out: Tensor, g: Tensor, x: Tensor, indices: Tensor) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        cells = 1
        for s in out.shape[out.dim() - d :]:
            cells *= s
        planes = out.numel() // cells
        if not g.numel():
            array_of(out)[...] = 0
            return
        at = array_of(indices).reshape(planes, -1) + np.arange(planes)[:, None] * cells
        r = np.bincount(at.ravel(), weights=wide(g).reshape(-1), minlength=planes * cells)
        store(out, r.reshape(tuple(out.shape)))

    def vjp(b: Any, gg: Any, g: Any, x: Any, indices: Any) -> Any:
        flat = gg.reshape([*gg.shape[:-d], -1])
        picked = flat.gather(-1, indices.reshape([*indices.shape[:-d], -1])).reshape(indices.shape)
        return picked, aten.zeros_like(x) if b.needs[1] else None, None

    type(
        name,
        (Opaque,),
        {
            "__doc__": "Each gradient to where the largest stood.",
            "meta": meta,
            "kernel": kernel,
            "vjp": vjp,
            "schema": f"{name}(Tensor grad_output, Tensor self, Tensor indices) -> Tensor",
            "out": "grad_input",
            "out_args": ("grad_input",),
            "node_name": f"AdaptiveMaxPool{d}DBackward",
            "__module__": __name__,
            "public": "nn",
        },
    )


for _d in (2, 3):
    _adaptive(_d)
    _adaptive_backward(_d)


class AdaptiveMaxPool1d(Composite):
    """Maxima of windows that tile the last dimension, and their places."""

    schema = "adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)"
    public = "function"

    def decompose(x: Tensor, size: Any) -> Any:
        if x.dim() not in (2, 3):
            raise RuntimeError(
                f"Expected 2 to 3 dimensions, but got {x.dim()}-dimensional tensor for argument #1 "
                "'self' (while checking arguments for adaptive_max_pool1d)"
            )
        if len(size) != 1:
            raise RuntimeError(
                "adaptive_max_pool1d() argument 'output_size' should contain one int (got "
                f"{len(size)})"
            )
        for i in range(1, x.dim()):
            if not x.shape[i]:
                raise RuntimeError(
                    "adaptive_max_pool1d(): Expected input to have non-zero size for non-batch "
                    f"dimensions, but input has sizes {list(x.shape)} with dimension {i} being "
                    "empty"
                )
        values, places = aten.adaptive_max_pool2d(x.unsqueeze(-2), [1, size[0]])
        return values.squeeze(-2), places.squeeze(-2)


# ---- undoing max pooling ----


def _unpool(d: int) -> None:
    name = f"max_unpool{d}d"

    def meta(x: Tensor, indices: Tensor, size: Any, *rest: Any) -> TensorSpec:
        if indices.dtype is not dt.int64:
            raise RuntimeError(
                f"elements in indices should be type int64 but got: {dt.scalar_name(indices.dtype)}"
            )
        if x.dim() not in (d + 1, d + 2):
            if d == 2:
                raise RuntimeError(
                    "Input to max_unpooling2d should be a 3d or 4d Tensor, but got a tensor with "
                    f"{x.dim()} dimensions."
                )
            raise RuntimeError(
                "Input to max_unpooling3d should be a 4d or 5d Tensor, but got a tensor with "
                f"{x.dim()} dimensions."
            )
        if len(size) != d:
            words = "(height, width)" if d == 2 else "(depth, height, width)"
            raise RuntimeError(
                f"There should be exactly {'two' if d == 2 else 'three'} elements {words} in "
                f"output_size, but got {len(size)} elements."
            )
        if x.shape != indices.shape:
            raise RuntimeError(
                "Expected shape of indices to be same as that of the input tensor "
                f"({list(x.shape)}) but got indices tensor with shape: {list(indices.shape)}"
            )
        shape = [*x.shape[: x.dim() - d], *size]
        stride = (
            layout.channels_last_strides(shape)
            if d == 2 and len(shape) == 4 and layout.looks_channels_last(x)
            else None
        )
        return TensorSpec(shape, x.dtype, x.device, stride)

    def kernel(out: Tensor, x: Tensor, indices: Tensor, size: Any, *rest: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        cells = 1
        for s in size:
            cells *= s
        at = array_of(indices).reshape(-1)
        bad = (at < 0) | (at >= cells)
        if bad.any():
            text = "x".join(str(s) for s in size)
            raise RuntimeError(
                f"Found an invalid max index: {at[int(np.flatnonzero(bad)[-1])]} (output volumes "
                f"are of size {text})"
            )
        a = array_of(x)
        planes = out.numel() // cells
        r = np.zeros((planes, cells), a.dtype)
        if a.size:
            np.put_along_axis(r, array_of(indices).reshape(planes, -1), a.reshape(planes, -1), 1)
        array_of(out)[...] = r.reshape(tuple(out.shape))

    def vjp(b: Any, g: Any, x: Any, indices: Any, size: Any, *rest: Any) -> Any:
        flat = g.reshape([*g.shape[:-d], -1])
        return flat.gather(-1, indices.reshape([*indices.shape[:-d], -1])).view(indices.shape), None

    more = ", int[3] stride, int[3] padding" if d == 3 else ""
    type(
        name,
        (Opaque,),
        {
            "__doc__": "Values put at the flat places that max pooling gave, zeros elsewhere.",
            "__module__": __name__,
            "public": "nn",
            "meta": meta,
            "kernel": kernel,
            "vjp": vjp,
            "out": "out",
            "node_name": f"MaxUnpool{d}D",
            "schema": f"{name}(Tensor self, Tensor indices, SymInt[{d}] output_size{more}) -> "
            "Tensor",
        },
    )


for _d in (2, 3):
    _unpool(_d)
