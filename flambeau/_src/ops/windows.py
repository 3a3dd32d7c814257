"""The windows of pooling: their options, what is refused and how, and the sizes of results."""

from __future__ import annotations

from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor

_NUMBERS = {2: "two", 3: "three"}


def pooled(n: int, k: int, s: int, p: int, d: int, ceil: bool) -> int:
    """One output extent; with ceil the last window starts inside the input or its left padding."""
    top = n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil else 0)
    out = top // s + 1
    if ceil and (out - 1) * s >= n + p:
        out -= 1
    return out


class Windows:
    """The windows over the last d dimensions of x (d 2 or 3), checked: kernel, stride, padding and
    dilation as d numbers each, and the results' extents."""

    __slots__ = ("kernel", "stride", "padding", "dilation", "size")

    def __init__(
        self, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, d: int,
        name: str, divisor: int | None = None,
    ) -> None:  # fmt: skip
        either = "" if name == "avg_pool3d" else "either "
        self.kernel = _option(kernel, d, name, "kernel_size", f"must {either}be a single int,")
        self.stride = self.kernel
        if len(stride):
            omitted = f"must {either}be omitted, a single int,"
            self.stride = _option(stride, d, name, "stride", omitted)
        self.padding = _option(padding, d, name, "padding", f"must {either}be a single int,")
        self.dilation = _option(dilation, d, name, "dilation", "must be either a single int,")
        if name == "avg_pool2d":
            _check_divisor(divisor)
            x.size(-3)  # says itself what it misses
        elif x.dim() not in (d + 1, d + 2):
            raise RuntimeError(
                f"non-empty {d + 1}D or {d + 2}D (batch mode) tensor expected for input"
            )
        _check_divisor(divisor)
        self.size = self._sizes(x.shape[-d:] if x.dim() >= d else x.shape, ceil)
        self._check(x, d, name)

    def _sizes(self, extents: Any, ceil: bool) -> list[int]:
        """One extent after the other, each with what only it can refuse."""
        size = []
        for n, k, s, p, dl in zip(
            extents, self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            if s == 0:
                raise RuntimeError("stride should not be zero")
            if p < 0:
                raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
            if p > int(((k - 1) * dl + 1) / 2):
                raise RuntimeError(
                    "pad should be at most half of effective kernel size, but got "
                    f"pad={p}, kernel_size={k} and dilation={dl}"
                )
            size.append(pooled(n, k, s, p, dl, ceil))
        return size

    def _check(self, x: Tensor, d: int, name: str) -> None:
        """What concerns all dimensions together, in torch's order."""
        axes = "THW"[3 - d :]
        for values, what, mark in (
            (self.kernel, "kernel size", "k"),
            (self.stride, "stride", "d"),
            (self.dilation, "dilation", "dilation"),
        ):
            if any(v <= 0 for v in values):
                got = " ".join(f"{mark}{a}: {v}" for a, v in zip(axes, values, strict=True))
                raise RuntimeError(f"{what} should be greater than zero, but got {got}")
        _check_input(x, d, name)
        if name == "avg_pool3d" and any(
            n < k for n, k in zip(x.shape[-3:], self.kernel, strict=True)
        ):
            image = " ".join(f"{a}: {n}" for a, n in zip(axes, x.shape[-3:], strict=True))
            kernel = " ".join(f"k{a}: {k}" for a, k in zip(axes, self.kernel, strict=True))
            raise RuntimeError(f"input image ({image}) smaller than kernel size ({kernel})")
        if any(p > k // 2 for p, k in zip(self.padding, self.kernel, strict=True)):
            raise RuntimeError(
                "pad should be smaller than or equal to half of kernel size, but got "
                + _pads(self.padding, self.kernel)
            )
        if any(v < 1 for v in self.size):
            raise RuntimeError(
                f"Given input size: ({'x'.join(map(str, x.shape[-d - 1 :]))}). Calculated output "
                f"size: ({'x'.join(map(str, [x.shape[-d - 1], *self.size]))}). Output size is too "
                "small"
            )


def _option(given: Any, d: int, name: str, what: str, must: str) -> tuple[int, ...]:
    """An option as d numbers."""
    v: tuple[int, ...] = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if len(v) not in (1, d):
        raise RuntimeError(f"{name}: {what} {must} or a tuple of {_NUMBERS[d]} ints")
    return v * d if len(v) == 1 else v


def _check_divisor(divisor: int | None) -> None:
    if divisor == 0:
        raise RuntimeError("divisor must be not zero")


def _pads(padding: Any, kernel: Any) -> str:
    """Two dimensions and three are worded each in their own way."""
    if len(kernel) == 2:
        (ph, pw), (kh, kw) = padding, kernel
        return f"padW = {pw}, padH = {ph}, kW = {kw}, kH = {kh}"
    (pt, ph, pw), (kt, kh, kw) = padding, kernel
    return f"kT: {kt} kW: {kw} kH: {kh} padT: {pt} padW: {pw} padH: {ph}"


def _check_input(x: Tensor, d: int, name: str) -> None:
    """Only the batch may be empty."""
    whole = x.dim() in (d + 1, d + 2)
    if whole and all(n != 0 for n in x.shape[-d - 1 :]):
        return
    shape = list(x.shape)
    if d == 2:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, "
            f"but got:{shape}"
        )
    where = "max_pool3d_with_indices_out_cpu_template" if name == "max_pool3d" else name
    raise RuntimeError(
        f"{where}(): Expected input's non-batch dimensions to have positive length, but input has "
        f"a shape of {shape} and non-batch dimension 0 has length zero!"
    )


# -- one dimension, which is pooled as two --------------------------------------------------------


def check_line(x: Tensor, name: str, **options: Any) -> None:
    """What is refused of one dimension before it is pooled as two."""
    if x.dim() not in (2, 3):
        raise RuntimeError(
            f"Expected 2 to 3 dimensions, but got {x.dim()}-dimensional tensor for argument #1 "
            f"'self' (while checking arguments for {name})"
        )
    for what, v in options.items():
        if len(v) != 1 and (what != "stride" or len(v)):
            raise RuntimeError(f"{name}() argument '{what}' should contain one int (got {len(v)})")


def check_max_line(
    x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> None:
    """max_pool1d without indices, which words everything in its own way."""
    shape = list(x.shape)
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise RuntimeError(
            "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for "
            f"input, but got:{shape}"
        )
    for v, what in (
        (kernel, "kernel_size must be an int, list of ints or tuple of ints"),
        (stride, "stride must be None, an int, list of ints, or tuple of ints"),
        (padding, "padding must be an int, list of ints, or tuple of ints"),
        (dilation, "dilation must be an int, list of ints or tuple of ints"),
    ):
        if len(v) != 1 and (len(v) or not what.startswith("stride")):
            raise RuntimeError(f"max_pool1d() {what} of size 1 but got size {len(v)}")
    (k,), (p,), (dl,) = kernel, padding, dilation
    s = stride[0] if len(stride) else k
    for v, what in ((k, "kernel_size"), (s, "stride")):
        if v <= 0:
            raise RuntimeError(f"max_pool1d() {what} must be greater than zero, but got {v}")
    if p < 0:
        raise RuntimeError(f"max_pool1d() padding must be non-negative, but got {p}")
    if p > k // 2:
        raise RuntimeError(
            "max_pool1d() padding should be at most half of kernel size, but got "
            f"padding={p} and kernel_size={k}"
        )
    if dl <= 0:
        raise RuntimeError(f"max_pool1d() dilation must be greater than zero, but got {dl}")
    size = pooled(shape[-1], k, s, p, dl, ceil)
    if size <= 0:
        raise RuntimeError(f"max_pool1d() Invalid computed output size: {size}")
    if not x.requires_grad and not x.dtype.is_floating_point and x.device.type == "cpu":
        raise NotImplementedError(
            f"\"max_pool1d_impl\" not implemented for '{dt.scalar_name(x.dtype)}'"
        )
