"""Max pooling over windows of random steps (Graham 2014, arXiv:1412.6071)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, copy_into
from flambeau._src.ops.kinds import Opaque, TensorSpec
from flambeau._src.ops.pool import batched


def _starts(u: Tensor, size: int, window: int, count: int) -> Tensor:
    """Where `count` windows start, one row for each number of u in [0, 1): whole parts of multiples
    of the mean step, moved by u; the last window ends with the input. Rounded as u's dtype does."""
    last = aten.full([*u.shape, 1], size - window, dtype=dt.int64)
    if count == 1:
        return last
    number = {"dtype": u.dtype}
    step = aten.full([], size - window, **number) / aten.full([], count - 1, **number)
    u = u.unsqueeze(-1)
    places = ((aten.arange(count - 1, **number) + u) * step).to(dt.int64)
    return aten.cat([places - (u * step).to(dt.int64), last], -1)


def _candidates(x: Tensor, kernel: Any, size: Any, samples: Tensor) -> Tensor:
    """The flat places in a plane that each window covers: (N, C, *size, elements of a window)."""
    d = len(kernel)
    extents = x.shape[-d:]
    found: Any = 0
    for i in range(d):
        u = samples.select(-1, d - 1 - i if d == 2 else i)  # in two dimensions the width's is first
        starts = _starts(u, extents[i], kernel[i], size[i])
        within = aten.arange(kernel[i], dtype=dt.int64)
        shape = [*u.shape, *(1,) * (2 * d)]
        shape[2 + i], shape[2 + d + i] = size[i], kernel[i]
        own = (starts.unsqueeze(-1) + within).view(shape)
        found = found * extents[i] + own
    return aten.reshape(found, [*found.shape[: 2 + d], -1])


def _fractional(d: int) -> None:
    name, axes = f"fractional_max_pool{d}d", ("time", "height", "width")[-d:]
    says = name if d == 2 else f"{name}_out"
    ints = "tuple of Ints" if d == 2 else "tuple of three Ints"

    def check(x: Tensor, kernel: Any, size: Any, samples: Tensor) -> None:
        for what, given in (("kernel_size", kernel), ("output_size", size)):
            if len(given) != d:
                raise RuntimeError(f"{name}: {what} must either be a single Int or {ints}")
        if x.dim() not in (d + 1, d + 2):
            raise RuntimeError(
                f"{says}(): Expected {d + 1}D or {d + 2}D tensor, but got: {list(x.shape)}"
            )
        for i in range(x.dim() - d - 1, x.dim()):
            if not x.shape[i]:
                raise RuntimeError(
                    f"{says}(): Expected input to have non-zero size for non-batch dimensions, but "
                    f"got{list(x.shape)} with dimension {i} being empty."
                )
        _check_samples(x, samples, d)
        for axis, n, k, m in zip(axes, x.shape[-d:], kernel, size, strict=True):
            if m + k - 1 > n:
                raise RuntimeError(
                    f"{says}(): pool {axis} {k} too large relative to input {axis} {n}"
                )

    def meta(x: Tensor, kernel: Any, size: Any, samples: Tensor) -> Any:
        check(x, kernel, size, samples)
        if not x.dtype.is_floating_point:
            raise NotImplementedError(
                f"\"{name}_out_frame\" not implemented for '{dt.scalar_name(x.dtype)}'"
            )
        shape = [*x.shape[:-d], *size]
        return TensorSpec(shape, x.dtype, x.device), TensorSpec(shape, dt.int64, x.device)

    def compute(outs: Any, x: Tensor, kernel: Any, size: Any, samples: Tensor) -> None:
        if not outs[0].numel():
            return
        x = batched(x, d)
        at = _candidates(x, kernel, size, samples.narrow(0, 0, x.shape[0]))
        plane = x.reshape([*x.shape[:2], -1])
        values = plane.gather(-1, at.reshape([*x.shape[:2], -1])).view(at.shape)
        nan = aten.isnan(values)
        last_nan = at.shape[-1] - 1 - aten.argmax(nan.flip(-1).to(dt.uint8), -1, True)
        best = aten.where(nan.any(-1, True), last_nan, aten.argmax(values, -1, True))
        for out, source in zip(outs, (values, at), strict=True):
            copy_into(out, source.gather(-1, best).reshape(out.shape))

    def vjp(b: Any, g: Any, x: Tensor, kernel: Any, size: Any, samples: Tensor) -> Any:
        return getattr(aten, f"{name}_backward")(g[0], x, kernel, size, b.outs[1]), None

    def examples(s: Any) -> Iterator[Any]:
        extents = (7, 6, 8)[:d]
        yield s.sample(s.tensor((2, 3, *extents)), [2] * d, [3] * d, s.tensor((2, 3, d), 0, 1))
        yield s.sample(s.tensor((3, *extents)), [3] * d, [1] * d, s.tensor((1, 3, d), 0, 1))
        yield s.sample(s.tensor((0, 3, *extents)), [2] * d, [3] * d, s.tensor((2, 3, d), 0, 1))

    def error_samples(s: Any) -> Iterator[Any]:
        x, u = s.tensor((2, 3, *(5,) * d)), s.tensor((2, 3, d), 0, 1)
        kernel, size = [2] * d, [3] * d
        yield s.error(RuntimeError, "too large relative to input", x, kernel, [5] * d, u)
        yield s.error(RuntimeError, "must either be a single Int", x, [2] * 4, size, u)
        yield s.error(RuntimeError, r"_random_samples.size\(0\) no less", x, kernel, size, u[:1])
        yield s.error(RuntimeError, "to have the same dtype", x, kernel, size, u.to(dt.float16))
        yield s.error(RuntimeError, "tensor, but got", x[0, 0], kernel, size, u)

    type(f"FractionalMaxPool{d}d", (Opaque,), {
        "__doc__": "The largest of each window of random steps, and where it stands (the last of "
        "several NaN).", "__module__": __name__,
        "schema": f"{name}(Tensor self, int[{d}] kernel_size, int[{d}] output_size, "
        "Tensor random_samples) -> (Tensor, Tensor)",
        "public": "nn", "out": "output", "out_args": ("output", "indices"), "meta": meta,
        "kernel": compute, "vjp": vjp, "differentiable": (0,), "samples": examples,
        "error_samples": error_samples,
    })  # fmt: skip


def _check_samples(x: Tensor, samples: Tensor, d: int) -> None:
    if samples.dtype is not x.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if samples.dim() != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.dim()}")
    if samples.shape[0] < (x.shape[0] if x.dim() == d + 2 else 1):
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.shape[1] != x.shape[-d - 1]:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.shape[2] != d:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {d}; got {samples.shape[2]}.")


def _backward(d: int) -> None:
    name = f"fractional_max_pool{d}d_backward"

    def meta(g: Tensor, x: Tensor, kernel: Any, size: Any, indices: Tensor) -> TensorSpec:
        wanted = [*x.shape[:-d], *size]
        if d == 2 and list(g.shape) != wanted:
            raise RuntimeError(f"{name}(): gradOutput sizes unexpected")
        for i, axis in enumerate(("time", "height", "width")[-d:]):
            if g.shape[i - d] != size[i]:
                raise RuntimeError(f"{name}_out(): gradOutput {axis} unexpected")
        return TensorSpec(x.shape, x.dtype, x.device)

    def kernel_(out: Tensor, g: Tensor, x: Tensor, kernel: Any, size: Any, indices: Tensor) -> None:
        slot("scatter_planes")(batched(out, d), batched(g, d), batched(indices, d))

    def vjp(
        b: Any, gg: Tensor, g: Tensor, x: Tensor, kernel: Any, size: Any, indices: Tensor
    ) -> Any:
        picked = gg.flatten(-d).gather(-1, indices.flatten(-d)).reshape(indices.shape)
        return picked, aten.zeros_like(x) if b.needs[1] else None, None

    type(f"FractionalMaxPool{d}dBackward", (Opaque,), {
        "__doc__": "Each gradient to where the largest stood.", "__module__": __name__,
        "schema": f"{name}(Tensor grad_output, Tensor self, int[{d}] kernel_size, "
        f"int[{d}] output_size, Tensor indices) -> Tensor",
        "public": "", "out": "grad_input", "out_args": ("grad_input",), "meta": meta,
        "kernel": kernel_, "vjp": vjp,
    })  # fmt: skip


for _d in (2, 3):
    _fractional(_d)
    _backward(_d)
