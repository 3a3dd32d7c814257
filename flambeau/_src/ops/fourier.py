"""Discrete Fourier transforms through NumPy's pocketfft (Cooley and Tukey 1965; Bluestein 1970).

Three operators do the work: complex to complex, real to complex, complex to real. The functions of
torch.fft dissolve into them.

normalization: 0 none, 1 divided by √n, 2 divided by n."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import store
from flambeau._src.ops.call import aten, write_out
from flambeau._src.ops.creation import OPTIONS, Factory, slot_copy, spec
from flambeau._src.ops.kinds import Composite, Opaque, wrap_dim
from flambeau._src.ops.op import Declaration, TensorSpec

_COMPLEX = {dt.float32: dt.complex64, dt.float64: dt.complex128}


def transformed(
    x: Tensor, shape: Sequence[int], dims: Sequence[int], dtype: dt.dtype, halved: bool
) -> TensorSpec:
    """A result whose transformed dimensions lie innermost; they and the others are in x's order of
    memory, but a dimension of which half is kept (the last of dims) is the innermost of all."""
    wrapped = [wrap_dim(d, len(shape)) for d in dims]
    last = wrapped[-1:] if halved else []
    in_memory = sorted(range(len(shape)), key=lambda i: -x.stride()[i])
    inner = [i for i in in_memory if i in wrapped and i not in last] + last
    order = [i for i in in_memory if i not in inner] + inner
    stride, c = [0] * len(shape), 1
    for i in reversed(order):
        stride[i] = c
        c *= max(shape[i], 1)
    return TensorSpec(shape, dtype, x.device, stride)


def scale_of(normalization: int, n: int) -> float:
    return 1.0 if normalization == 0 else 1 / math.sqrt(n) if normalization == 1 else 1.0 / n


def _count(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dims)


def _store_scaled(out: Tensor, values: Any, normalization: int, n: int) -> None:
    store(out, values if normalization == 0 else values * scale_of(normalization, n))


class ComplexToComplex(Opaque):
    """Σ x exp(∓ 2πi jk / n) along dimensions."""

    schema = "_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor"
    out = "out"
    takes16 = False
    public = "function"

    def meta(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> TensorSpec:
        if not x.dtype.is_complex:
            raise RuntimeError("Expected self.is_complex() to be true, but got false.")
        return transformed(x, tuple(x.shape), dim, x.dtype, False)

    def kernel(
        out: Tensor, x: Tensor, dim: Sequence[int], normalization: int, forward: bool
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        a = array_of(x)
        made = np.fft.fftn(a, axes=dim) if forward else np.fft.ifftn(a, axes=dim, norm="forward")
        _store_scaled(out, made if dim else a, normalization, _count(x.shape, dim))

    def vjp(b: Any, g: Any, x: Any, dim: Any, normalization: int, forward: bool) -> Any:
        return aten._fft_c2c(g, dim, normalization, not forward)


class RealToComplex(Opaque):
    """The transform of real numbers: all of it, or the half (last dimension) that says all."""

    schema = "_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor"
    out = "out"
    takes16 = False
    public = "function"
    reference = "tests.ops.references:half_spectrum"

    def meta(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> TensorSpec:
        if x.dtype not in _COMPLEX:
            raise RuntimeError(f"Unsupported dtype {dt.scalar_name(x.dtype)}")
        shape = list(x.shape)
        if onesided:
            shape[dim[-1]] = shape[dim[-1]] // 2 + 1
        return transformed(x, tuple(shape), dim, _COMPLEX[x.dtype], onesided)

    def kernel(
        out: Tensor, x: Tensor, dim: Sequence[int], normalization: int, onesided: bool
    ) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        a = array_of(x)
        made = np.fft.rfftn(a, axes=dim) if onesided else np.fft.fftn(a, axes=dim)
        _store_scaled(out, made, normalization, _count(x.shape, dim))

    def vjp(b: Any, g: Any, x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
        if not onesided:
            return aten.real(aten._fft_c2c(g, dim, normalization, False))
        last = wrap_dim(dim[-1], g.dim())
        missing = x.shape[last] - g.shape[last]
        if missing:
            zeros = list(g.shape)
            zeros[last] = missing
            g = aten.cat([g, aten.zeros(zeros, dtype=g.dtype, device=g.device)], last)
        return aten.real(aten._fft_c2c(g, dim, normalization, False))

    def samples(s: Any) -> Iterator[Any]:
        if s.dtype.itemsize > 2:
            yield s.sample(s.tensor((3, 4)), [1], 0, True)
            yield s.sample(s.tensor((2, 5, 3)), [0, 1], 0, True)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "Unsupported dtype Long", s.ints((3,), 0, 4), [0], 0, True)


class ComplexToReal(Opaque):
    """The real numbers whose half spectrum (last dimension) is given."""

    schema = "_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor"
    out = "out"
    takes16 = False
    public = "function"

    def meta(x: Tensor, dim: Sequence[int], normalization: int, size: int) -> TensorSpec:
        if not x.dtype.is_complex:
            raise RuntimeError("Expected self.is_complex() to be true, but got false.")
        shape = list(x.shape)
        shape[dim[-1]] = size
        return transformed(x, tuple(shape), dim, dt.REAL_OF[x.dtype], True)

    def kernel(out: Tensor, x: Tensor, dim: Sequence[int], normalization: int, size: int) -> None:
        import numpy as np  # lazy: NumPy is heavy

        if not out.numel():
            return
        lengths = [out.shape[d] for d in dim]
        made = np.fft.irfftn(array_of(x), s=lengths, axes=dim, norm="forward")
        _store_scaled(out, made, normalization, math.prod(lengths))

    def vjp(b: Any, g: Any, x: Any, dim: Any, normalization: int, size: int) -> Any:
        made = aten._fft_r2c(g, dim, normalization, True)
        last = wrap_dim(dim[-1], g.dim())
        double = g.shape[last] - made.shape[last]
        if double <= 0:
            return made
        parts = [aten.narrow(made, last, 0, 1), aten.narrow(made, last, 1, double) * 2]
        rest = made.shape[last] - 1 - double
        if rest:
            parts.append(aten.narrow(made, last, 1 + double, rest))
        return aten.cat(parts, last)


# ---- the public functions ----


def _code(norm: str | None, forward: bool) -> int:
    if norm is None or norm == "backward":
        return 0 if forward else 2
    if norm == "forward":
        return 2 if forward else 0
    if norm == "ortho":
        return 1
    raise RuntimeError(f'Invalid normalization mode: "{norm}"')


def _promoted(x: Tensor, to_complex: bool = False) -> Tensor:
    d = state.process.default_dtype if dt.is_integral(x.dtype) else x.dtype
    if d in (dt.float16, dt.bfloat16, dt.complex32) and x.device.type == "cpu":
        raise RuntimeError(f"Unsupported dtype {dt.scalar_name(d)}")
    d = _COMPLEX.get(d, d) if to_complex else d
    return x if d is x.dtype else aten._to_copy(x, dtype=d)


def _resized(x: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """x cut, or filled up with zeros, to the sizes (-1: as it is)."""
    for d, n in zip(dims, sizes, strict=True):
        if n == -1 or n == x.shape[d]:
            continue
        if n < x.shape[d]:
            x = aten.slice(x, d, 0, n)
        else:
            pad = [0] * (2 * (x.dim() - d))
            pad[-1] = n - x.shape[d]
            x = aten.constant_pad_nd(x, pad)
    return x


def _check_points(n: int) -> None:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")


def _along(x: Tensor, n: int | None, dim: int) -> tuple[Tensor, int]:
    """(x brought to n points along dim, the wrapped dim)."""
    if not x.dim():
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    d = wrap_dim(dim, x.dim())
    _check_points(x.shape[d] if n is None else n)
    return (x if n is None else _resized(x, [d], [n])), d


def _only_real(name: str, x: Tensor, wording: str = "a real") -> None:
    if x.dtype.is_complex:
        raise RuntimeError(
            f"{name} expects {wording} input tensor, but got {dt.scalar_name(x.dtype)}"
        )


def _line(x: Tensor, n: int | None, dim: int, norm: str | None, forward: bool) -> Tensor:
    x = _promoted(x)
    x, d = _along(x, n, dim)
    code = _code(norm, forward)
    if x.dtype.is_complex:
        return aten._fft_c2c(x, [d], code, forward)
    made = aten._fft_r2c(x, [d], code, False)
    return made if forward else aten.conj(made)


def _half_line(
    name: str, x: Tensor, n: int | None, dim: int, norm: str | None, forward: bool
) -> Tensor:
    _only_real(name, x)
    x, d = _along(_promoted(x), n, dim)
    made = aten._fft_r2c(x, [d], _code(norm, forward), True)
    return made if forward else aten.conj(made)


def _real_line(x: Tensor, n: int | None, dim: int, norm: str | None, forward: bool) -> Tensor:
    x = _promoted(x, True)
    if not x.dim():
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    d = wrap_dim(dim, x.dim())
    size = 2 * (x.shape[d] - 1) if n is None else n
    _check_points(size)
    x = x if n is None else _resized(x, [d], [size // 2 + 1])
    x = aten.conj(x) if forward else x
    return aten._fft_c2r(x, [d], _code(norm, forward), size)


def _axes(
    x: Tensor, s: Sequence[int] | None, dim: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """(dimensions, sizes) of a transform along several of them."""
    given = [s] if isinstance(s, int) else s
    dim = [dim] if isinstance(dim, int) else dim
    n = x.dim()
    if dim is not None:
        if dim and not n:
            raise IndexError(f"Dimension specified as {dim[0]} but tensor has no dimensions")
        dims = [wrap_dim(d, n) for d in dim]
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if given is not None and len(given) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif given is not None:
        if len(given) > n:
            raise RuntimeError(
                f"Got shape with {len(given)} values but input tensor only has {n} dimensions."
            )
        dims = list(range(n - len(given), n))
    else:
        dims = list(range(n))
    sizes = [
        x.shape[d] if given is None or given[i] == -1 else given[i] for i, d in enumerate(dims)
    ]
    for size in sizes:
        _check_points(size)
    return dims, sizes


def _grid(x: Tensor, s: Any, dim: Any, norm: str | None, forward: bool) -> Tensor:
    x = _promoted(x, True)
    dims, sizes = _axes(x, s, dim)
    x = _resized(x, dims, sizes)
    code = _code(norm, forward)
    return aten._fft_c2c(x, dims, code, forward)


def _half_grid(name: str, x: Tensor, s: Any, dim: Any, norm: str | None, forward: bool) -> Tensor:
    if forward:
        _only_real(name, x, "a real-valued")
    elif x.dtype.is_complex:
        raise RuntimeError(
            f"Only supports floating-point dtypes, but found: {dt.scalar_name(x.dtype)}"
        )
    x = _promoted(x)
    dims, sizes = _axes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    x = _resized(x, dims, sizes)
    code = _code(norm, forward)
    if forward:
        return aten._fft_r2c(x, dims, code, True)
    made = aten.conj(aten._fft_r2c(x, dims[-1:], code, True))
    return aten._fft_c2c(made, dims[:-1], code, False) if dims[:-1] else made


def _real_grid(name: str, x: Tensor, s: Any, dim: Any, norm: str | None, forward: bool) -> Tensor:
    x = _promoted(x, True)
    dims, sizes = _axes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    given = [s] if isinstance(s, int) else s
    size = 2 * (x.shape[dims[-1]] - 1) if given is None or given[-1] == -1 else given[-1]
    _check_points(size)
    x = _resized(x, dims, [*sizes[:-1], size // 2 + 1])
    code = _code(norm, forward)
    if not forward:
        return aten._fft_c2r(x, dims, code, size)
    x = aten._fft_c2c(x, dims[:-1], code, True) if dims[:-1] else x
    return aten._fft_c2r(aten.conj(x), dims[-1:], code, size)


def _declare(
    name: str, arguments: str, body: Callable[..., Any], doc: str, out: bool = True
) -> None:
    def decompose_out(*args: Any) -> Any:
        *given, target = args
        x, made = given[0], body(*given)
        # What is but conjugated keeps its layout; a transform fills rows, whatever lies innermost.
        conjugated = name in ("ifft", "ihfft") and not x.dtype.is_complex
        write_out(target, made, Declaration if conjugated else declared)
        return target

    declared = type(f"Fft{name.capitalize()}", (Composite,), {
        "__doc__": doc, "__module__": __name__, "public": "", "out": out,
        "schema": f"fft_{name}(Tensor self, {arguments}) -> Tensor", "decompose": body,
        "decompose_out": decompose_out, "out_rows": True,
    })  # fmt: skip


def _transforms(name: str, doc: str, line: Callable[..., Any], grid: Callable[..., Any]) -> None:
    several = "SymInt[1]? s=None, int[1]{} dim={}, str? norm=None"
    _declare(name, "SymInt? n=None, int dim=-1, str? norm=None", line, f"{doc} along a dimension.")
    _declare(f"{name}2", several.format("", "[-2,-1]"), grid, f"{doc} along two dimensions.")
    _declare(f"{name}n", several.format("?", "None"), grid, f"{doc} along dimensions.")


_transforms(
    "fft", "The transform", lambda x, n, d, m: _line(x, n, d, m, True),
    lambda x, s, d, m: _grid(x, s, d, m, True),
)  # fmt: skip
_transforms(
    "ifft", "The inverse transform", lambda x, n, d, m: _line(x, n, d, m, False),
    lambda x, s, d, m: _grid(x, s, d, m, False),
)  # fmt: skip
_transforms(
    "rfft", "The transform of real numbers",
    lambda x, n, d, m: _half_line("rfft", x, n, d, m, True),
    lambda x, s, d, m: _half_grid("rfftn", x, s, d, m, True),
)  # fmt: skip
_transforms(
    "ihfft", "The inverse transform to a symmetric spectrum",
    lambda x, n, d, m: _half_line("ihfft", x, n, d, m, False),
    lambda x, s, d, m: _half_grid("ihfftn", x, s, d, m, False),
)  # fmt: skip
_transforms(
    "irfft", "The inverse transform to real numbers",
    lambda x, n, d, m: _real_line(x, n, d, m, False),
    lambda x, s, d, m: _real_grid("irfftn", x, s, d, m, False),
)  # fmt: skip
_transforms(
    "hfft", "The transform of a symmetric signal", lambda x, n, d, m: _real_line(x, n, d, m, True),
    lambda x, s, d, m: _real_grid("hfftn", x, s, d, m, True),
)  # fmt: skip


def _shift(x: Tensor, dim: Any, back: bool) -> Tensor:
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    sizes = [x.shape[wrap_dim(d, x.dim())] for d in dims]
    return aten.roll(x, [(n + 1) // 2 if back else n // 2 for n in sizes], dims)


_declare(
    "fftshift", "int[1]? dim=None", lambda x, d: _shift(x, d, False), "Zero in the middle.", False
)
_declare("ifftshift", "int[1]? dim=None", lambda x, d: _shift(x, d, True), "Zero in front.", False)


# ---- frequencies ----


def _frequencies(name: str, values: Callable[[Any, int], Any]) -> None:
    def meta(n: int, d: float, dtype: Any, layout_: Any, device: Any, pin: Any) -> TensorSpec:
        kind = dtype or state.process.default_dtype
        if not (kind.is_floating_point or kind.is_complex):
            raise RuntimeError(f"{name} requires a floating point or complex dtype")
        size = n if name == "fftfreq" else n // 2 + 1
        if size < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {size}: [{size}]")
        return spec((size,), dtype, layout_, device)

    def kernel(out: Tensor, n: int, d: float, *rest: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        from flambeau._src.core.interchange import share_array  # lazy: with it

        kind: Any = np.float64 if out.dtype in (dt.float64, dt.complex128) else np.float32
        with np.errstate(all="ignore"):
            step = kind(np.float64(1.0) / np.float64(n * d)) if n else kind(1)
            made = values(np, n).astype(kind) * step
        slot_copy(out, share_array(np.ascontiguousarray(made)))

    def decompose(n: int, d: float, dtype: Any, layout_: Any, device: Any, pin: Any) -> Tensor:
        made = meta(n, d, dtype, layout_, device, pin)
        count = {"dtype": made.dtype, "device": made.device}
        if name == "rfftfreq":
            line = aten.arange(made.shape[0], **count)
        else:
            below = aten.arange(-(n // 2), 0, **count)
            line = aten.cat([aten.arange((n + 1) // 2, **count), below])
        return aten.mul(line, 1.0 / (n * d) if n * d else math.nan)

    type(name.capitalize(), (Factory,), {
        "__doc__": f"The frequencies that {name[:-4]} gives, in cycles a unit of d.",
        "__module__": __name__, "public": "", "meta": meta, "kernel": kernel,
        "decompose": decompose,
        "schema": f"fft_{name}(int n, float d=1.0, *, {OPTIONS}) -> Tensor",
    })  # fmt: skip


_frequencies(
    "fftfreq", lambda np, n: np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)])
)
_frequencies("rfftfreq", lambda np, n: np.arange(n // 2 + 1))
