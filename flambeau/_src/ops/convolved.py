"""What convolutions refuse, in torch's order and words."""

from __future__ import annotations

from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor


def spatial(given: Any, d: int, name: str) -> tuple[int, ...]:
    """A per-dimension option as d ints."""
    v: tuple[int, ...] = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if len(v) == 1:
        v = v * d
    if len(v) != d:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {d} values to match the "
            f"convolution dimensions, but got {name}={list(v)}"
        )
    return v


def dimensions(w: Tensor) -> int:
    """How many dimensions a weight convolves over."""
    if w.dim() < 3:
        raise RuntimeError("weight should have at least three dimensions")
    return int(w.dim()) - 2


def check(
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
    """torch's checks and words."""
    if any(p < 0 for p in padding):
        raise RuntimeError("negative padding is not supported")
    if any(p < 0 for p in extra):
        raise RuntimeError("negative output_padding is not supported")
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(d < 0 for d in dilation):
        raise RuntimeError("dilation should be greater than zero")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if w.dim() != x.dim():
        raise RuntimeError(
            f"Expected {w.dim()}-dimensional input for {w.dim()}-dimensional weight "
            f"{list(w.shape)}, but got {x.dim()}-dimensional input of size {list(x.shape)} instead"
        )
    if w.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but "
            f"got weight of size {list(w.shape)} instead"
        )
    if w.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size [{list(w.shape)}] instead"
        )
    if not transposed:
        if x.shape[1] != w.shape[1] * groups:
            raise RuntimeError(
                f"Given groups={groups}, weight of size {list(w.shape)}, expected "
                f"input{list(x.shape)} to have {w.shape[1] * groups} channels, but got "
                f"{x.shape[1]} channels instead"
            )
        if bias is not None and (bias.dim() != 1 or bias.shape[0] != w.shape[0]):
            raise RuntimeError(
                f"Given weight of size {list(w.shape)}, expected bias to be 1-dimensional with "
                f"{w.shape[0]} elements, but got bias of size {list(bias.shape)} instead"
            )
        _check_kernel(w)
        kernel = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
        have = [n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)]
        if any(h < k for h, k in zip(have, kernel, strict=True)):
            raise RuntimeError(
                f"Calculated padded input size per channel: ({' x '.join(map(str, have))}). Kernel "
                f"size: ({' x '.join(map(str, kernel))}). Kernel size can't be greater than actual "
                "input size"
            )
    else:
        if x.shape[1] != w.shape[0]:
            raise RuntimeError(
                f"Given transposed={int(transposed)}, weight of size {list(w.shape)}, expected "
                f"input{list(x.shape)} to have {w.shape[0]} channels, but got {x.shape[1]} "
                "channels instead"
            )
        if bias is not None and (bias.dim() != 1 or bias.shape[0] != w.shape[1] * groups):
            raise RuntimeError(
                f"Given transposed={int(transposed)}, weight of size {list(w.shape)}, expected "
                f"bias to be 1-dimensional with {w.shape[1] * groups} elements, but got bias of "
                f"size {list(bias.shape)} instead"
            )
    _check_dtypes(x, w, bias, transposed)
    if transposed:
        _check_extra(stride, dilation, extra)
    _check_dilation(dilation, transposed, groups)


def _check_kernel(w: Tensor) -> None:
    """No side of the kernel may be empty."""
    size = w.shape[2:]
    if all(k > 0 for k in size):
        return
    if len(size) == 3:
        raise RuntimeError(
            "kernel size should be greater than zero, but got: "
            f"{' x '.join(map(str, size))} (TxHxW)"
        )
    size = (1, *size)[-2:]
    raise RuntimeError(
        f"kernel size should be greater than zero, but got {_listed(size, 'kernel')}"
    )


def _check_dtypes(x: Tensor, w: Tensor, bias: Any, transposed: bool) -> None:
    """One dtype for all; the words are those of the library that torch would have asked."""
    if not transposed and bias is not None and bias.dtype is not x.dtype:
        a, b = dt.c_name(x.dtype), dt.c_name(bias.dtype)
        raise RuntimeError(f"Input type ({a}) and bias type ({b}) should be the same")
    if x.dtype is dt.bool_ and x.device.type == "cpu":
        d = max(x.dim() - 2, 2)
        name = f"slow_conv_transpose{d}d_out_cpu" if transposed else f"slow_conv{d}d_cpu"
        name = "compute_columns3d" if d == 3 and not transposed else name
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")
    for t, what in ((w, "weight"), (bias, "bias")):
        if t is None or t.dtype is x.dtype:
            continue
        if x.dtype.is_complex or x.dtype is dt.bfloat16:
            a, b = (_type_name(v.dtype) for v in (x, t))
            also = (
                f" or input should be a MKLDNN tensor and {what} is a dense tensor"
                if x.dtype is dt.bfloat16
                else ""
            )
            raise RuntimeError(f"Input type ({a}) and {what} type ({b}) should be the same{also}")
        a, b = (dt.scalar_name(v.dtype) for v in (x, t))
        raise RuntimeError(f"expected scalar type {a} but found {b}")


def _type_name(d: dt.dtype) -> str:
    """Dtypes that had no legacy tensor type are named by the back end's class."""
    if d.is_complex or d in (dt.bfloat16, dt.bool_):
        return f"CPU{dt.scalar_name(d)}Type"
    return f"torch.{dt.scalar_name(d)}Tensor"


def _listed(values: Any, what: str) -> str:
    """'stride_height: 1 stride_width: 2'; one dimension is worked on as the second of two."""
    return " ".join(f"{what}_{a}: {v}" for a, v in zip(_axes(len(values)), values, strict=True))


def _axes(d: int) -> tuple[str, ...]:
    return ("depth", "height", "width")[3 - d :]


def _check_extra(stride: Any, dilation: Any, extra: Any) -> None:
    """Output padding only chooses among the inputs' possible extents."""
    if all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        return
    if len(extra) == 1:
        stride, dilation, extra = (1, *stride), (1, *dilation), (0, *extra)
    raise RuntimeError(
        "output padding must be smaller than either stride or dilation, but got "
        f"{_listed(extra, 'output_padding')} {_listed(stride, 'stride')} "
        f"{_listed(dilation, 'dilation')}"
    )


def _check_dilation(dilation: Any, transposed: bool, groups: int) -> None:
    """Negative ones were refused before everything else; zero is found by the kernels."""
    if all(d > 0 for d in dilation):
        return
    if groups > 1:
        raise RuntimeError("non-positive dilation is not supported")
    if len(dilation) == 1:
        dilation = (1, *dilation)
    if transposed:
        named = _listed(dilation, "dilation").replace(" dilation", ", dilation")
        raise RuntimeError(f"dilation should be greater than zero, but got {named}")
    raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")
