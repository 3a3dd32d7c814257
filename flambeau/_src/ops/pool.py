"""Pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.windows import Windows, check_line, check_max_line


def batched(t: Tensor, d: int) -> Tensor:
    """t with a batch dimension, as a view for kernels."""
    if t.dim() == d + 2:
        return t
    return _native.alias(Tensor, t, (1, *t.shape), (0, *t.stride()), None)


def _stride(x: Tensor, shape: Any) -> Any:
    return (
        layout.channels_last_strides(shape)
        if layout.looks_channels_last(x) and len(shape) in (4, 5)
        else None
    )


_MAX_ARGS = (
    "int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool "
    "ceil_mode=False"
)


class MaxPool1dIndices(Composite):
    """The largest of each window and where it stands."""

    schema = f"max_pool1d_with_indices(Tensor self, {_MAX_ARGS}) -> (Tensor, Tensor)"
    public = "function"

    def decompose(
        x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
    ) -> Any:
        check_line(
            x, "max_pool1d", kernel_size=kernel, stride=stride, padding=padding, dilation=dilation
        )
        out, i = aten.max_pool2d_with_indices(
            x.unsqueeze(-2),
            [1, *kernel],
            [1, *stride] if len(stride) else [],
            [0, *padding],
            [1, *dilation],
            ceil,
        )
        return out.squeeze(-2), i.squeeze(-2)


class MaxPool1d(Composite):
    """The largest of each window."""

    schema = f"max_pool1d(Tensor self, {_MAX_ARGS}) -> Tensor"
    public = "function"

    def decompose(
        x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
    ) -> Tensor:
        check_max_line(x, kernel, stride, padding, dilation, ceil)
        return MaxPool1dIndices.decompose(x, kernel, stride, padding, dilation, ceil)[0]


def _max(d: int) -> None:
    name = f"max_pool{d}d_with_indices"
    args = (
        f"int[{d}] kernel_size, int[{d}] stride=[], int[{d}] padding=0, int[{d}] dilation=1, bool "
        "ceil_mode=False"
    )

    def meta(x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Any:
        size = Windows(x, kernel, stride, padding, dilation, ceil, d, f"max_pool{d}d").size
        if not (x.dtype.is_floating_point or dt.is_integral(x.dtype, with_bool=False)):
            raise NotImplementedError(
                f"\"max_pool{d}d\" not implemented for '{dt.scalar_name(x.dtype)}'"
            )
        shape = [*x.shape[:-d], *size]
        st = _stride(x, shape)
        return TensorSpec(shape, x.dtype, x.device, st), TensorSpec(shape, dt.int64, x.device, st)

    def kernel_(
        outs: Any, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
    ) -> None:
        w = Windows(x, kernel, stride, padding, dilation, ceil, d, f"max_pool{d}d")
        slot("max_pool")(
            batched(outs[0], d), batched(outs[1], d), batched(x, d),
            w.kernel, w.stride, w.padding, w.dilation,
        )  # fmt: skip

    def vjp(
        b: Any, g: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
    ) -> Any:
        return getattr(aten, name + "_backward")(
            g[0], x, kernel, stride, padding, dilation, ceil, b.outs[1]
        )

    def plain(
        x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
    ) -> Tensor:
        return getattr(aten, name)(x, kernel, stride, padding, dilation, ceil)[0]

    def samples(s: Any) -> Iterator[Any]:
        """Unbatched too, padded, dilated, without a batch; windows that reach over the end."""
        size = (6, 7, 8)[:d]
        yield s.sample(s.tensor((2, 3, *size)), [2] * d)
        yield s.sample(s.tensor((3, *size)), [3] * d, [2] * d, [1] * d)
        yield s.sample(s.tensor((1, 2, *size)), [2] * d, [1] * d, [0] * d, [2] * d)
        yield s.sample(s.tensor((1, 2, *size)), [3] * d, [2] * d, [0] * d, [1] * d, True)
        yield s.sample(s.tensor((0, 3, *size)), [2] * d)

    def error_samples(s: Any) -> Iterator[Any]:
        x = s.tensor((1, 2, *(5,) * d))
        yield s.error(RuntimeError, "stride should not be zero", x, [2] * d, [0] * d)
        yield s.error(RuntimeError, "pad must be non-negative", x, [2] * d, [2] * d, [-1] * d)
        yield s.error(RuntimeError, "pad should be at most half", x, [2] * d, [2] * d, [2] * d)
        yield s.error(RuntimeError, "Output size is too small", x, [6] * d)
        yield s.error(RuntimeError, "tensor expected for input", s.tensor((5,)), [2] * d)
        yield s.error(NotImplementedError, "not implemented for 'Bool'", x > 0, [2] * d)

    type(
        f"MaxPool{d}dIndices",
        (Opaque,),
        {
            "__doc__": "The largest of each window and where it stands.",
            "schema": f"{name}(Tensor self, {args}) -> (Tensor, Tensor)",
            "samples": samples,
            "error_samples": error_samples,
            "__module__": __name__,
            "public": "nn",
            "out": "out",
            "out_args": ("out", "indices"),
            "meta": meta,
            "kernel": kernel_,
            "vjp": vjp,
            "differentiable": (0,),
        },
    )
    type(
        f"MaxPool{d}d",
        (Composite,),
        {
            "__doc__": "The largest of each window.",
            "schema": f"max_pool{d}d(Tensor self, {args}) -> Tensor",
            "public": "function",
            "decompose": plain,
            "__module__": __name__,
        },
    )


def _max_backward(d: int) -> None:
    def meta(g: Tensor, x: Tensor, *rest: Any) -> Any:
        return TensorSpec(x.shape, x.dtype, x.device, _stride(x, x.shape))

    def kernel(
        out: Tensor,
        g: Tensor,
        x: Tensor,
        kernel: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil: bool,
        indices: Tensor,
    ) -> None:
        slot("scatter_planes")(batched(out, d), batched(g, d), batched(indices, d))

    def vjp(
        b: Any,
        gg: Any,
        g: Any,
        x: Any,
        kernel: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil: bool,
        indices: Any,
    ) -> Any:
        picked = gg.flatten(-d).gather(-1, indices.flatten(-d)).reshape(indices.shape)
        return picked, aten.zeros_like(x) if b.needs[1] else None, None

    args = (
        f"int[{d}] kernel_size, int[{d}] stride, int[{d}] padding, int[{d}] dilation, bool "
        "ceil_mode"
    )
    type(
        f"MaxPool{d}dBackward",
        (Opaque,),
        {
            "__doc__": "Each gradient to where the largest stood.",
            "__module__": __name__,
            "public": "nn",
            "meta": meta,
            "kernel": kernel,
            "vjp": vjp,
            "schema": f"max_pool{d}d_with_indices_backward(Tensor grad_output, Tensor self, "
            f"{args}, Tensor indices) -> Tensor",
            "out": "grad_input",
            "out_args": ("grad_input",),
        },
    )


class AvgPool1d(Composite):
    """The mean of each window."""

    schema = (
        "avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool "
        "ceil_mode=False, bool count_include_pad=True) -> Tensor"
    )
    public = "function, nn"

    def decompose(
        x: Tensor, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool
    ) -> Tensor:
        check_line(x, "avg_pool1d", kernel_size=kernel, stride=stride, padding=padding)
        return aten.avg_pool2d(
            x.unsqueeze(-2),
            [1, *kernel],
            [1, *stride] if len(stride) else [],
            [0, *padding],
            ceil,
            include,
        ).squeeze(-2)


def _avg(d: int) -> None:
    args = (
        f"int[{d}] kernel_size, int[{d}] stride=[], int[{d}] padding=0, bool ceil_mode=False, bool "
        "count_include_pad=True, int? divisor_override=None"
    )
    name = f"avg_pool{d}d"
    takes = {dt.float32, dt.float64, dt.int64} | ({dt.bfloat16, dt.float16} if d == 2 else set())

    def meta(
        x: Tensor, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool, override: Any
    ) -> Any:
        w = Windows(x, kernel, stride, padding, [1], ceil, d, name, override)
        shape = [*x.shape[:-d], *w.size]
        return TensorSpec(shape, x.dtype, x.device, _stride(x, shape))

    def kernel_(
        out: Tensor,
        x: Tensor,
        kernel: Any,
        stride: Any,
        padding: Any,
        ceil: bool,
        include: bool,
        override: Any,
    ) -> None:
        w = Windows(x, kernel, stride, padding, [1], ceil, d, name)
        if x.dtype not in takes:
            what = name if d == 2 else f"{name}_out_frame"
            raise NotImplementedError(f"\"{what}\" not implemented for '{dt.scalar_name(x.dtype)}'")
        slot("avg_pool")(
            batched(out, d), batched(x, d), w.kernel, w.stride, w.padding, include, override,
        )  # fmt: skip

    def vjp(
        b: Any,
        g: Any,
        x: Any,
        kernel: Any,
        stride: Any,
        padding: Any,
        ceil: bool,
        include: bool,
        override: Any,
    ) -> Any:
        return getattr(aten, name + "_backward")(
            g, x, kernel, stride, padding, ceil, include, override
        )

    type(
        f"AvgPool{d}d",
        (Opaque,),
        {
            "__doc__": "The mean of each window.",
            "schema": f"{name}(Tensor self, {args}) -> Tensor",
            "out": "out",
            "meta": meta,
            "kernel": kernel_,
            "vjp": vjp,
            "__module__": __name__,
            "public": "nn",
        },
    )


def _avg_backward(d: int) -> None:
    name = f"avg_pool{d}d"

    def meta(g: Tensor, x: Tensor, *rest: Any) -> Any:
        return TensorSpec(x.shape, x.dtype, x.device, _stride(x, x.shape))

    def kernel(
        out: Tensor,
        g: Tensor,
        x: Tensor,
        kernel: Any,
        stride: Any,
        padding: Any,
        ceil: bool,
        include: bool,
        override: Any,
    ) -> None:
        w = Windows(x, kernel, stride, padding, [1], ceil, d, name)
        slot("avg_pool_backward")(
            batched(out, d), batched(g, d), w.kernel, w.stride, w.padding, include, override,
        )  # fmt: skip

    def vjp(b: Any, gg: Any, g: Any, x: Any, *rest: Any) -> Any:
        return getattr(aten, name)(gg, *rest), aten.zeros_like(x) if b.needs[1] else None

    args = (
        f"int[{d}] kernel_size, int[{d}] stride, int[{d}] padding, bool ceil_mode, bool "
        "count_include_pad, int? divisor_override"
    )
    type(
        f"AvgPool{d}dBackward",
        (Opaque,),
        {
            "__doc__": "Each gradient spread over its window.",
            "meta": meta,
            "kernel": kernel,
            "vjp": vjp,
            "schema": f"{name}_backward(Tensor grad_output, Tensor self, {args}) -> Tensor",
            "__module__": __name__,
            "public": "nn",
        },
    )


for _d in (2, 3):
    _max(_d)
    _max_backward(_d)
    _avg(_d)
    _avg_backward(_d)


def bounds(n: int, out: int) -> list[tuple[int, int]]:
    """Windows that tile n places as evenly as integers allow."""
    return [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]


def check_adaptive(name: str, x: Tensor, size: Any, d: int) -> None:
    """torch's conditions on adaptive means."""
    if len(size) != d:
        raise RuntimeError(f"{name}: output_size must be {d}")
    if any(s < 0 for s in size):
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received "
            f"{{{', '.join(map(str, size))}}}"
        )
    if x.dim() not in (d + 1, d + 2):
        raise RuntimeError(
            f"{name}(): Expected {d + 1}D or {d + 2}D tensor, but got {list(x.shape)}"
        )
    for i in range(x.dim() - d, x.dim()):
        if not x.shape[i]:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                f"input has sizes {list(x.shape)} with dimension {i} being empty"
            )


def _adaptive(d: int) -> None:
    """Means over windows that tile the input."""
    name = f"adaptive_avg_pool{d}d"

    def whole(x: Tensor, size: Any) -> Tensor:
        given = list(size) if isinstance(size, (list, tuple)) else [size] * d
        if d == 1 and len(given) != 1:
            raise RuntimeError(
                f"{name}() argument 'output_size' should contain one int (got {len(given)})"
            )
        size = [x.shape[i - d] if s is None and i < d else s for i, s in enumerate(given)]
        check_adaptive(name, x, size, d)
        if all(s == 1 for s in size):
            return x.mean(list(range(-d, 0)), True)
        if d == 1:
            return aten._adaptive_avg_pool2d(x.unsqueeze(-2), [1, size[0]]).squeeze(-2)
        return getattr(aten, f"_{name}")(x, size)

    def decompose(x: Tensor, size: Any) -> Tensor:
        check_adaptive(name, x, size, d)
        if not x.dtype.is_floating_point:
            raise NotImplementedError(f"\"{name}\" not implemented for '{dt.scalar_name(x.dtype)}'")
        made = x
        for i in range(d):
            axis = x.dim() - d + i
            n, o = x.shape[axis], size[i]
            if n == o:
                continue
            if o and n % o == 0:
                made = made.unflatten(axis, (o, n // o)).mean(axis + 1)
            elif o:
                parts = [made.narrow(axis, a, z - a).mean(axis, True) for a, z in bounds(n, o)]
                made = aten.cat(parts, axis)
            else:
                made = made.narrow(axis, 0, 0)
        return aten.clone(x) if made is x else made

    def backward(g: Tensor, x: Tensor) -> Tensor:
        for i in range(d):
            axis = x.dim() - d + i
            n, o = x.shape[axis], g.shape[axis]
            if n == o:
                continue
            if o and n % o == 0:
                wide = [*g.shape[: axis + 1], n // o, *g.shape[axis + 1 :]]
                g = aten.expand(aten.unsqueeze(g, axis + 1), wide) / (n // o)
                g = aten.flatten(g, axis, axis + 1)
            else:
                parts = []
                for j, (a, z) in enumerate(bounds(n, o)):
                    share = aten.narrow(g, axis, j, 1) / (z - a)
                    wide = [z - a if k == axis else s for k, s in enumerate(g.shape)]
                    pad = [0] * (2 * (g.dim() - axis))
                    pad[-2:] = [a, n - z]
                    parts.append(aten.constant_pad_nd(aten.expand(share, wide), pad))
                total = aten.zeros_like(x) if not parts else parts[0]
                for p in parts[1:]:
                    total = total + p
                g = total
        return g

    def meta_backward(g: Tensor, x: Tensor) -> TensorSpec:
        return TensorSpec(x.shape, x.dtype, x.device, layout.strides_like(x, None))

    def vjp(b: Any, g: Any, x: Any, size: Any) -> Any:
        return getattr(aten, f"_{name}_backward")(g, x)

    def second(b: Any, gg: Any, g: Any, x: Any) -> Any:
        of_g = getattr(aten, f"_{name}")(gg, list(g.shape[-d:])) if b.needs[0] else None
        return of_g, aten.zeros_like(x) if b.needs[1] else None

    def samples(s: Any) -> Iterator[Any]:
        shape = (2, 3, 6, 5, 4)[: d + 2]
        for size in ((3, 5, 2), (4, 3, 4)):
            yield s.sample(s.tensor(shape), size[:d])

    def error_samples(s: Any) -> Iterator[Any]:
        said = "should contain one int" if d == 1 else f"{name}: output_size must be {d}"
        yield s.error(RuntimeError, said, s.tensor((1, 2, 3, 4, 5)[: d + 2]), ())

    common = {"__module__": __name__}
    type(name, (Composite,), {
        "__doc__": "Means over windows that tile the input.", "decompose": whole,
        "samples": samples, "error_samples": error_samples,
        "schema": f"{name}(Tensor self, int[{d}] output_size) -> Tensor",
        "public": "function, nn", **common,
    })  # fmt: skip
    if d == 1:
        return
    type(f"_{name}", (Opaque,), {
        "__doc__": "Means over windows that tile the input.", "decompose": decompose, "vjp": vjp,
        "schema": f"_{name}(Tensor self, SymInt[{d}] output_size) -> Tensor", "out": "out",
        "public": "function", "samples": samples, "node_name": f"AdaptiveAvgPool{d}D", **common,
    })  # fmt: skip
    type(f"_{name}_backward", (Opaque,), {
        "__doc__": "Each mean's gradient spread over its window.", "decompose": backward,
        "meta": meta_backward, "vjp": second, "public": "function",
        "schema": f"_{name}_backward(Tensor grad_output, Tensor self) -> Tensor", **common,
    })  # fmt: skip


for _d in (1, 2, 3):
    _adaptive(_d)
