"""How tensors print: one width for all elements, long ones summarised, what differs from the
defaults named behind the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor


class Options:
    """torch.set_printoptions' values."""

    def __init__(self) -> None:
        self.precision = 4
        self.threshold: float = 1000
        self.edgeitems = 3
        self.linewidth = 80
        self.sci_mode: bool | None = None


OPTIONS = Options()
_PROFILES = {
    "default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80),
}  # fmt: skip


def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """Digits, when to summarise, how much at each end, line width; sci_mode None decides itself."""
    if profile is not None:
        OPTIONS.precision, OPTIONS.threshold, OPTIONS.edgeitems, OPTIONS.linewidth = _PROFILES[
            profile
        ]
    if precision is not None:
        OPTIONS.precision = precision
    if threshold is not None:
        OPTIONS.threshold = threshold
    if edgeitems is not None:
        OPTIONS.edgeitems = edgeitems
    if linewidth is not None:
        OPTIONS.linewidth = linewidth
    OPTIONS.sci_mode = sci_mode


def _leaves(t: Tensor) -> list[Any]:
    """The numbers that will be shown."""
    edge = OPTIONS.edgeitems
    out: list[Any] = []

    def walk(data: Any, depth: int) -> None:
        if depth == 0:
            out.append(data)
            return
        n = len(data)
        summarise = t.numel() > OPTIONS.threshold and n > 2 * edge
        items = [*data[:edge], *data[n - edge :]] if summarise else data
        for x in items:
            walk(x, depth - 1)

    walk(_shown_part(t), t.dim())
    return out


def _shown_part(t: Tensor) -> Any:
    """Nested lists of t; a summarised tensor's hidden middle is never read."""
    if t.numel() <= OPTIONS.threshold:
        return t.tolist()
    edge = OPTIONS.edgeitems
    shape, strides = t.shape, t.stride()

    def read(dim: int, offset: int) -> Any:
        if dim == t.dim():
            return _native.alias(Tensor, t, (), (), offset).item()
        n = shape[dim]
        places = [*range(edge), *range(n - edge, n)] if n > 2 * edge else range(n)
        got = {i: read(dim + 1, offset + i * strides[dim]) for i in places}
        return _Sparse(n, got)

    return read(0, t.storage_offset())


class _Sparse:
    """A list of which only some elements are known."""

    def __init__(self, n: int, known: dict[int, Any]) -> None:
        self.n, self.known = n, known

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self.known[j] for j in range(*i.indices(self.n))]
        return self.known[i]

    def __iter__(self) -> Any:
        return iter([self.known[j] for j in range(self.n)])


class Formatter:
    """One format for all numbers of a tensor."""

    def __init__(self, t: Tensor, values: list[Any]) -> None:
        self.floating = t.dtype.is_floating_point
        self.integer_like = True
        self.scientific = False
        self.width = 1
        precision = OPTIONS.precision
        if not self.floating:
            for v in values:
                self.width = max(self.width, len(str(v)))
            return
        real = [v for v in values if math.isfinite(v) and v != 0]
        if not real:
            return
        biggest, smallest = max(map(abs, real)), min(map(abs, real))
        self.integer_like = all(math.isfinite(v) and v == math.ceil(v) for v in real)
        ratio = biggest / smallest if smallest else math.inf
        if self.integer_like:
            self.scientific = ratio > 1000.0 or biggest > 1e8
            for v in real:
                text = f"{v:.{precision}e}" if self.scientific else f"{v:.0f}"
                self.width = max(self.width, len(text) + (0 if self.scientific else 1))
        else:
            self.scientific = ratio > 1000.0 or biggest > 1e8 or smallest < 1e-4
            for v in real:
                text = f"{v:.{precision}e}" if self.scientific else f"{v:.{precision}f}"
                self.width = max(self.width, len(text))
        if OPTIONS.sci_mode is not None and OPTIONS.sci_mode != self.scientific:
            self.scientific = OPTIONS.sci_mode
            self.width = 1
            for v in real:
                text = f"{v:.{precision}e}" if self.scientific else f"{v:.{precision}f}"
                self.width = max(self.width, len(text))
            if not self.scientific and self.integer_like:
                self.width = max(len(f"{v:.0f}.") for v in real)

    def _text(self, v: Any) -> str:
        if not self.floating:
            return str(v)
        if self.scientific:
            return f"{v:.{OPTIONS.precision}e}"
        if self.integer_like:
            text = f"{v:.0f}"
            return text + "." if math.isfinite(v) else text
        return f"{v:.{OPTIONS.precision}f}"

    def __call__(self, v: Any) -> str:
        text = self._text(v)
        return " " * (self.width - len(text)) + text


class ComplexFormatter:
    """Real and imaginary parts, each in a format of its own."""

    def __init__(self, t: Tensor, values: list[Any]) -> None:
        kind = _native.empty((), dt.REAL_OF[t.dtype], _native.cpu)
        self.real = Formatter(kind, [v.real for v in values])
        self.imag = Formatter(kind, [v.imag for v in values])
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, v: Any) -> str:
        real, imag = (
            self.real(v.real),
            self.imag(abs(v.imag) if math.copysign(1, v.imag) < 0 else v.imag).lstrip(),
        )
        sign = "-" if math.copysign(1, v.imag) < 0 and not math.isnan(v.imag) else "+"
        return f"{real}{sign}{imag}j"


def _vector(data: Any, indent: int, fmt: Any, summarise: bool) -> str:
    per_line = max(1, (OPTIONS.linewidth - indent) // (fmt.width + 2))
    edge = OPTIONS.edgeitems
    if summarise and not edge:
        parts = ["..."]
    elif summarise and len(data) > 2 * edge:
        parts = [
            *[fmt(v) for v in data[:edge]],
            " ...",
            *[fmt(v) for v in data[len(data) - edge :]],
        ]
    else:
        parts = [fmt(v) for v in data]
    lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _block(data: Any, depth: int, indent: int, fmt: Callable[[Any], str], summarise: bool) -> str:
    if depth == 0:
        return fmt(data)
    if depth == 1:
        return _vector(data, indent, fmt, summarise)
    edge = OPTIONS.edgeitems
    if summarise and len(data) > 2 * edge:
        parts = [_block(x, depth - 1, indent + 1, fmt, summarise) for x in data[:edge]]
        parts.append("...")
        parts += [
            _block(x, depth - 1, indent + 1, fmt, summarise) for x in data[len(data) - edge :]
        ]
    else:
        parts = [_block(x, depth - 1, indent + 1, fmt, summarise) for x in data]
    return "[" + ("," + "\n" * (depth - 1) + " " * (indent + 1)).join(parts) + "]"


def numbers(t: Tensor, indent: int) -> str:
    """The nested brackets of t."""
    if not t.numel():
        return "[]"
    values = _leaves(t)
    fmt: Any = ComplexFormatter(t, values) if t.dtype.is_complex else Formatter(t, values)
    return _block(_shown_part(t), t.dim(), indent, fmt, t.numel() > OPTIONS.threshold)


def _suffixes(self: Tensor, shown: bool) -> list[str]:
    out = []
    if self.device.type != "cpu":
        out.append(f"device='{self.device}'")
    default = state.process.default_dtype
    implied = (default, dt.COMPLEX_OF[default], dt.int64, dt.bool_)
    if not shown or (not self.numel() and self.dim() != 1):
        out.append("size=" + str(tuple(self.shape)))
    if (self.dtype not in implied) if shown and self.numel() else (self.dtype is not default):
        out.append(f"dtype={self.dtype}")
    return out


def describe(self: Tensor, tensor_contents: str | None = None) -> str:
    plain = type(self) is Tensor or type(self).__name__ == "Parameter"
    prefix = "tensor(" if plain else f"{type(self).__name__}("
    indent = len(prefix)
    shown = self.device.type != "meta" and not (self.untyped_storage().is_fake and self.numel())
    if tensor_contents is not None:
        body = tensor_contents
    elif not shown:
        body = "..."
    else:
        body = numbers(_native.alias(Tensor, self), indent)
    parts = _suffixes(self, shown or tensor_contents is not None)
    fn = self.grad_fn
    if fn is not None:
        name = type(fn).__name__
        parts.append(f"grad_fn=<{name.removeprefix('torch::autograd::')}>")
    elif self.requires_grad:
        parts.append("requires_grad=True")
    return _join(prefix + body, parts, indent)


def _join(text: str, parts: list[str], indent: int) -> str:
    line = len(text) - text.rfind("\n") + 1
    for p in parts:
        if line + len(p) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + p
            line = indent + len(p)
        else:
            text += ", " + p
            line += len(p) + 2
    return text + ")"


def __repr__(self: Tensor, *, tensor_contents: Any = None) -> str:
    if self._bits & state.FUNCTORCH or (self._born and state.thread.functorch):
        return str(slot("transformed_repr")(self))
    with state.Suspended((1 << 13) - 1):
        return describe(self, tensor_contents)


METHODS: dict[str, Any] = {"__repr__": __repr__}
FUNCTIONS: dict[str, Any] = {"set_printoptions": set_printoptions}
