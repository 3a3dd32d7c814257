"""Order statistics and averages: medians, the mode, quantiles, extremes in pairs, covariances.

What stands in the middle is read off the sorted row: sort, then gather, so that a compiler needs no
kernel for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.assertions import hold
from flambeau._src.ops.call import aten, check_no_self_overlap, resize_output, write_out
from flambeau._src.ops.kinds import SIXTEEN, Composite, Opaque, Reduction, wrap_dim, wrap_dims
from flambeau._src.ops.promote import refuse
from flambeau._src.ops.reduce import along_errors, along_samples, even_share, value_gradient


def check_ordered(kernel: str, x: Tensor) -> None:
    """Refuse what has no order, or torch no kernel for."""
    if x.dtype.is_complex or (x.dtype is dt.bool_ and kernel.startswith("median")):
        refuse(kernel, x.dtype)


def check_elements(name: str, x: Tensor, dim: int) -> int:
    """The wrapped dimension; it must have elements."""
    d = wrap_dim(dim, x.dim())
    if x.dim() and not x.shape[d]:
        raise IndexError(f"{name}: Expected reduction dim {d} to have non-zero size.")
    return d


def picked(x: Tensor, order: Tensor, at: Tensor, d: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """(values, indices) at a place of each sorted row; `at` has extent 1 at d."""
    found = aten.gather(x, d, at), aten.gather(order, d, at)
    return found if keepdim else (aten.squeeze(found[0], d), aten.squeeze(found[1], d))


def middle(x: Tensor, d: int, keepdim: bool, skip: bool) -> tuple[Tensor, Tensor]:
    """The lower median along d. A NaN is the median of its row, or is left out (skip)."""
    values, order = aten.sort(x, stable=True, dim=d)
    n = x.shape[d]
    size = [1 if i == d else s for i, s in enumerate(x.shape)]
    if x.dtype.is_floating_point:
        missing = aten.sum(aten.isnan(x), [d], True)  # sorted to the end
        if skip:
            at = aten.clamp(aten.floor_divide(n - missing - 1, 2), min=0)
        else:
            at = aten.where(missing > 0, n - missing, (n - 1) // 2)
    else:
        at = aten.full(size, (n - 1) // 2, dtype=dt.int64, device=x.device)
    return picked(values, order, at, d, keepdim)


def _medians(name: str, skip: bool) -> None:
    def of_all(x: Tensor) -> Any:
        check_ordered("median_cpu", x)
        if not x.numel():
            nothing = math.nan if x.dtype.is_floating_point else -(1 << 63)
            return aten.full((), nothing, dtype=x.dtype, device=x.device)
        return middle(aten.reshape(x, (-1,)), 0, False, skip)[0]

    def along(x: Tensor, dim: int, keepdim: bool) -> Any:
        check_ordered("median_out", x)
        d = check_elements("median()", x, dim)
        if not x.dim():
            return aten.clone(x), aten.zeros((), dtype=dt.int64, device=x.device)
        return middle(x, d, keepdim, skip)

    def all_vjp(b: Any, g: Any, x: Any) -> Any:
        return even_share(g, x, b.out, None, False)

    def dim_vjp(b: Any, g: Any, x: Any, dim: int, keepdim: bool) -> Any:
        return value_gradient(g[0], b.outs[1], x, dim, keepdim)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 3), (), (5, 1, 3)):
            yield s.sample(s.tensor(shape))

    type(name.capitalize(), (Opaque,), {
        "__doc__": f"The {name} of all elements, the lower one of two.", "__module__": __name__,
        "schema": f"{name}(Tensor self) -> Tensor", "out": "out", "decompose": of_all,
        "vjp": all_vjp, "samples": samples, "reference": f"numpy.{name}",
    })  # fmt: skip
    type(f"{name.capitalize()}Dim", (Opaque,), {
        "__doc__": f"The {name} along a dimension, and where it stands.", "__module__": __name__,
        "schema": f"{name}.dim(Tensor self, int dim, bool keepdim=False) "
        "-> (Tensor values, Tensor indices)",
        "out": "dim_values", "out_args": ("values", "indices"), "decompose": along,
        "vjp": dim_vjp, "differentiable": (0,), "samples": along_samples,
        "error_samples": along_errors, "reference": f"tests.ops.references:lower_{name}",
    })  # fmt: skip


_medians("median", False)
_medians("nanmedian", True)


class Mode(Opaque):
    """The value that is there most often, the smallest of them, and where it stands last."""

    schema = "mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)"
    out = "values"
    out_args = ("values", "indices")
    differentiable = (0,)
    samples = along_samples
    error_samples = along_errors

    def decompose(x: Tensor, dim: int, keepdim: bool) -> Any:
        check_ordered("mode_cpu", x)
        d = check_elements("mode()", x, dim)
        if not x.dim():
            return aten.clone(x), aten.zeros((), dtype=dt.int64, device=x.device)
        values, order = aten.sort(x, stable=False, dim=d)  # torch's places are of such a sort
        n = x.shape[d]
        line = [n if i == d else 1 for i in range(x.dim())]
        place = aten.view(aten.arange(n, device=x.device), line)
        if n > 1:
            fresh = aten.ne(aten.narrow(values, d, 1, n - 1), aten.narrow(values, d, 0, n - 1))
            first = aten.ones_like(aten.narrow(values, d, 0, 1), dtype=dt.bool_)
            starts = aten.where(aten.cat([first, fresh], d), place, 0)
            length = place - aten.cummax(starts, d)[0]  # of the run so far
            at = aten.argmax(length, d, True)
        else:
            at = aten.zeros_like(order)
        return picked(values, order, at, d, keepdim)

    def vjp(b: Any, g: Any, x: Any, dim: int, keepdim: bool) -> Any:
        return value_gradient(g[0], b.outs[1], x, dim, keepdim)


class Aminmax(Reduction):
    """The smallest and the largest; ties share the gradient."""

    schema = (
        "aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)"
    )
    out = "out"
    out_args = ("min", "max")
    out_dtype = "exact"
    result_types = (None, None)

    def check(x: Tensor, dim: int | None, keepdim: bool) -> None:
        if dim is not None:
            check_elements("aminmax", x, dim)
        elif not x.numel():
            raise RuntimeError(
                "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
                "identity."
            )
        check_ordered("aminmax_cpu", x)

    def expr(k: Any, x: Any) -> Any:
        return k.min(x), k.max(x)

    def vjp(b: Any, g: Any, x: Any, dim: int | None, keepdim: bool) -> Any:
        total = None
        for share, value in zip(g, b.outs, strict=True):
            if share is not None:
                part = even_share(share, x, value, dim, keepdim)
                total = part if total is None else total + part
        return total

    def samples(s: Any) -> Iterator[Any]:
        for shape, dim, keep in (((3, 4), None, False), ((2, 3, 4), 1, True), ((), 0, False)):
            yield s.sample(s.tensor(shape), dim=dim, keepdim=keep)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "to have non-zero size", s.tensor((2, 0)), dim=1)


class OldAminmax(Opaque):
    """aminmax of all elements, under its older name."""

    schema = "_aminmax(Tensor self) -> (Tensor, Tensor)"
    public = "function"
    no_formula = True

    def decompose(x: Tensor) -> Any:
        return tuple(aten.aminmax(x))


class OldAminmaxDim(Opaque):
    """aminmax along a dimension, under its older name."""

    schema = "_aminmax.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)"
    public = "function"
    no_formula = True

    def decompose(x: Tensor, dim: int, keepdim: bool) -> Any:
        return tuple(aten.aminmax(x, dim=dim, keepdim=keepdim))


class Nansum(Reduction):
    """The sum over dimensions, NaN left out."""

    schema = (
        "nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) "
        "-> Tensor"
    )
    promotion = "sum"
    out = "out"
    reference = "numpy.nansum"

    def check(x: Tensor, dim: Any, keepdim: bool, dtype: Any) -> None:
        if x.dtype.is_complex:
            raise RuntimeError("nansum on CPU does not support complex inputs")

    def expr(k: Any, x: Any) -> Any:
        return k.sum(k.where(k.isnan(x), 0, x) if x.dtype.startswith("float") else x)

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        """The dtype of out= is that of the sum, and only floating numbers can be missing."""
        x, dim, keepdim, dtype = args
        (out,) = outs
        if dt.is_integral(x.dtype):
            return False
        if dtype is not None and dtype is not out.dtype:
            raise RuntimeError(
                "nansum: provided dtype must match dtype of result. Got "
                f"{dt.scalar_name(out.dtype)} and {dt.scalar_name(dtype)}."
            )
        if not out.dtype.is_floating_point and dtype is None:
            refuse("nansum_cpu", out.dtype)
        result = cls.op(x, dim, keepdim, dtype=out.dtype)
        resize_output(out, result.shape, result.stride())
        check_no_self_overlap(out)
        slot("copy_into")(out, result)
        return True

    def vjp(b: Any, g: Any, x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
        if not keepdim and x.dim():
            for d in wrap_dims(dim, x.dim()):
                g = g.unsqueeze(d)
        return aten.masked_fill(aten.expand(g, x.shape), aten.isnan(x), 0).to(x.dtype)

    def samples(s: Any) -> Iterator[Any]:
        x = s.tensor((3, 4))
        x[1, 2] = float("nan")
        yield s.sample(x)
        yield s.sample(x, [1], True)
        yield s.sample(s.tensor((2, 0)), [1])
        yield s.sample(s.tensor(()))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), [2])


class Nanmean(Composite):
    """The mean over dimensions, NaN left out."""

    schema = (
        "nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) "
        "-> Tensor"
    )
    out = "out"

    def decompose(x: Tensor, dim: Any, keepdim: bool, dtype: Any) -> Any:
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            raise RuntimeError(
                "nanmean(): expected input to have floating point or complex dtype but got "
                f"{dt.scalar_name(x.dtype)}"
            )
        count = aten.sum(aten.logical_not(aten.isnan(x.detach())), dim, keepdim)
        return aten.div(aten.nansum(x, dim, keepdim, dtype=dtype), count)

    def decompose_out(x: Tensor, dim: Any, keepdim: bool, dtype: Any, out: Tensor) -> Any:
        if not out.dtype.is_floating_point and dtype is None:  # it holds the sum meanwhile
            refuse("nansum_cpu", out.dtype)
        write_out(out, Nanmean.decompose(x, dim, keepdim, dtype))
        return out


# ---- quantiles ----

_BETWEEN = ("linear", "lower", "higher", "midpoint", "nearest")


def check_quantile(x: Tensor, q: Any, how: str) -> None:
    if not x.numel():
        raise RuntimeError("quantile() input tensor must be non-empty")
    if isinstance(q, Tensor) and q.dim() > 1:
        raise RuntimeError("quantile() q must be a scalar or 1D tensor")
    if x.dtype not in (dt.float32, dt.float64):
        raise RuntimeError("quantile() input tensor must be either float or double dtype")
    if isinstance(q, Tensor) and q.dtype is not x.dtype:
        raise RuntimeError("quantile() q tensor must be same dtype as the input tensor")
    if how not in _BETWEEN:
        raise RuntimeError(
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {how}"
        )
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q:g}")
    elif q.device.type == "cpu":
        inside = aten.logical_and(q >= 0, q <= 1)
        hold(aten.all(inside), "quantile() q values must be in the range [0, 1]")


def quantile(x: Tensor, q: Any, dim: int | None, keepdim: bool, how: str, skip: bool) -> Tensor:
    """The values at a share q of the sorted row, between its neighbours as `how` says."""
    check_quantile(x, q, how)
    given, several = q, isinstance(q, Tensor) and q.dim() > 0
    q = q if isinstance(q, Tensor) else aten.full((1,), q, dtype=x.dtype, device=x.device)
    q = aten.reshape(q, (-1,))
    shape = list(x.shape)
    if dim is None:
        kept = [1] * x.dim() if keepdim else []
        rows = aten.reshape(x, (*kept, -1))
    else:
        d = wrap_dim(dim, x.dim())
        kept = [1 if i == d else n for i, n in enumerate(shape) if keepdim or i != d]
        if keepdim or not x.dim():
            rows = aten.transpose(aten.unsqueeze(x, -1), d, -1) if x.dim() else aten.unsqueeze(x, 0)
        else:
            rows = aten.movedim(x, d, -1)
    n = rows.shape[-1]
    rows = aten.sort(rows, -1)[0]
    nan = aten.isnan(rows)
    if skip:
        rank = q * (aten.sum(aten.logical_not(nan), [-1], True) - 1)
        rank = aten.masked_fill(rank, rank < 0, 0)
    else:
        rank = aten.masked_fill(q * (n - 1), aten.any(nan, -1, True), n - 1)
    if how in ("lower", "higher", "nearest"):
        rank = {"lower": aten.floor, "higher": aten.ceil, "nearest": aten.round}[how](rank)
    below = aten._to_copy(rank, dtype=dt.int64)
    found = aten.gather(rows, -1, below)
    if how in ("linear", "midpoint"):
        weight = aten.full_like(rank, 0.5) if how == "midpoint" else rank - below
        above = aten.gather(rows, -1, aten._to_copy(aten.ceil(rank), dtype=dt.int64))
        found = aten.lerp(found, above, weight)
    if several:
        return aten.reshape(aten.movedim(found, -1, 0), (given.shape[0], *kept))
    return aten.reshape(found, kept)


def _quantiles(name: str, skip: bool) -> None:
    def decompose(x: Tensor, q: Any, dim: int | None, keepdim: bool, how: str) -> Any:
        return quantile(x, q, dim, keepdim, how, skip)

    def decompose_out(*args: Any) -> Any:  # out= grows to a plain layout
        *given, target = args
        if target.dtype is not given[0].dtype:
            raise RuntimeError("quantile() out tensor must be same dtype as the input tensor")
        write_out(target, decompose(*given), declared)
        return target

    for overload, kind in (("", "Tensor q"), (".scalar", "float q")):
        declared = type(name, (Composite,), {
            "__doc__": f"The {name} of rows, in order.", "__module__": __name__,
            "schema": f"{name}{overload}(Tensor self, {kind}, int? dim=None, bool keepdim=False, *,"
            ' str interpolation="linear") -> Tensor',
            "out": "scalar_out" if overload else "out", "decompose": decompose,
            "decompose_out": decompose_out, "out_rows": True,
        })  # fmt: skip


_quantiles("quantile", False)
_quantiles("nanquantile", True)


# ---- second moments of observations ----


def _checked_weights(name: str, w: Tensor | None, n: int, integral: bool) -> Tensor | None:
    if w is None:
        return None
    if w.dim() > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {w.dim()} "
            "dimensions"
        )
    fits = (dt.is_integral(w.dtype) and w.dtype is not dt.bool_) if integral else (
        w.dtype.is_floating_point
    )  # fmt: skip
    if not fits:
        wanted = "integral" if integral else "floating point"
        raise RuntimeError(
            f"cov(): expected {name} to have {wanted} dtype but got {name} with "
            f"{dt.scalar_name(w.dtype)} dtype"
        )
    if w.numel() != n:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input "
            f"but got {w.numel()} != {n}"
        )
    if n:
        hold(aten.min(w) >= 0, f"cov(): {name} cannot be negative")
    return w


class Cov(Composite):
    """The covariances of variables (rows) over observations (columns)."""

    schema = (
        "cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) "
        "-> Tensor"
    )

    def decompose(x: Tensor, correction: int, counts: Tensor | None, shares: Tensor | None) -> Any:
        if x.dim() > 2:
            raise RuntimeError(
                "cov(): expected input to have two or fewer dimensions but got an input with "
                f"{x.dim()} dimensions"
            )
        if x.dtype is dt.bool_:
            raise RuntimeError("cov(): bool dtype is not supported for input")
        table = x if x.dim() == 2 else aten.view(x, (1, -1))
        n = table.shape[1]
        w = _checked_weights("fweights", counts, n, True)
        a = _checked_weights("aweights", shares, n, False)
        if a is not None:
            w = a if w is None else aten.mul(w, a)
        total: Any = n if w is None else aten.sum(w)
        if w is None or not n:
            mean = aten.sum(table, [1]) / n if n else aten.sum(table, [1]) * math.nan
        else:
            hold(total != 0, "cov(): weights sum to zero, can't be normalized")
            mean = aten.sum(aten.mul(table, w), [1]) / total
        degrees: Any
        if w is not None and a is not None and correction:
            degrees = total - correction * aten.sum(aten.mul(w, a)) / total
        else:
            degrees = total - correction
        if isinstance(degrees, Tensor) and degrees.untyped_storage().is_fake:
            degrees = aten.where(degrees > 0, degrees, 0)  # a graph cannot warn
            low = False
        else:
            low = bool((degrees <= 0).item()) if isinstance(degrees, Tensor) else degrees <= 0
        if low:
            _warn_degrees()
            degrees = aten.zeros_like(degrees) if isinstance(degrees, Tensor) else 0
        off = aten.sub(table, aten.unsqueeze(mean, 1))
        weighted = off if w is None else aten.mul(off, w)
        made = aten.mm(off, aten.conj(aten.t(weighted)))
        if made.dtype.is_complex and made.shape[0] == 1:  # one variable's variance is real
            real = aten.real(made)
            made = aten.complex(real, aten.zeros_like(real))
        return aten.squeeze(aten.div(made, degrees))


def _warn_degrees() -> None:
    import warnings  # lazy: rarely needed

    warnings.warn(
        "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of "
        "observations.",
        UserWarning,
        stacklevel=4,
    )


class Corrcoef(Composite):
    """Covariances divided by the standard deviations, within [-1, 1]."""

    schema = "corrcoef(Tensor self) -> Tensor"

    def decompose(x: Tensor) -> Any:
        if x.dim() > 2:
            raise RuntimeError(
                "corrcoef(): expected input to have two or fewer dimensions but got an input with "
                f"{x.dim()} dimensions"
            )
        if x.dtype in SIXTEEN and x.dim() == 2 and x.shape[0] > 1:  # variances cancel, twice
            return aten._to_copy(aten.corrcoef(aten._to_copy(x, dtype=dt.float32)), dtype=x.dtype)
        c = aten.cov(x)
        if not c.dim():
            return aten.div(c, c)
        variance = aten.diag(c)
        deviation = aten.sqrt(aten.real(variance) if c.dtype.is_complex else variance)
        c = aten.div(c, aten.view(deviation, (-1, 1)))
        c = aten.div(c, aten.view(deviation, (1, -1)))
        if c.dtype.is_complex:
            return aten.complex(aten.clamp(aten.real(c), -1, 1), aten.clamp(aten.imag(c), -1, 1))
        return aten.clamp(c, -1, 1)


# ---- differences and integrals along a dimension ----


class Diff(Composite):
    """The differences of neighbours, n times over."""

    schema = (
        "diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) "
        "-> Tensor"
    )
    out = "out"

    def decompose(
        x: Tensor, n: int, dim: int, before: Tensor | None, after: Tensor | None
    ) -> Any:  # fmt: skip
        if not x.dim():
            raise RuntimeError("diff expects input to be at least one-dimensional")
        d = wrap_dim(dim, x.dim())
        for more in (before, after):
            _check_extended(x, more, d)
        if n < 0:
            raise RuntimeError(f"order must be non-negative but got {n}")
        if n == 0:
            return aten.clone(x)
        parts = [t for t in (before, x, after) if t is not None]
        whole = aten.cat(parts, d) if len(parts) > 1 else x
        size = whole.shape[d]
        if n >= size:
            return aten.clone(aten.narrow(whole, d, 0, 0), memory_format=layout.contiguous_format)
        for _ in range(n):
            size -= 1
            high, low = aten.narrow(whole, d, 1, size), aten.narrow(whole, d, 0, size)
            whole = aten.logical_xor(high, low) if x.dtype is dt.bool_ else aten.sub(high, low)
        return whole

    def decompose_out(
        x: Tensor, n: int, dim: int, before: Tensor | None, after: Tensor | None, out: Tensor
    ) -> Any:
        made = Diff.decompose(x, n, dim, before, after)
        if n == 0 and out.dtype is not x.dtype:
            raise RuntimeError(
                f"expected scalar_type {dt.scalar_name(x.dtype)} but found "
                f"{dt.scalar_name(out.dtype)}"
            )
        write_out(out, made)
        return out


def _check_extended(x: Tensor, more: Tensor | None, d: int) -> None:
    if more is None:
        return
    if more.dim() != x.dim():
        raise RuntimeError("diff expects prepend or append to be the same dimension as input")
    for i in range(x.dim()):
        if i != d and more.shape[i] != x.shape[i]:
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input "
                f"except along the differencing dimension; input.size({i}) = {x.shape[i]}, but got "
                f"tensor.size({i}) = {more.shape[i]}"
            )


def _steps(name: str, y: Tensor, x: Tensor, d: int) -> Tensor:
    """The widths between sample points, shaped to multiply y's neighbours."""
    if y.dtype is dt.bool_ or x.dtype is dt.bool_:
        raise RuntimeError(
            f"{name}: received a bool input for `x` or `y`, but bool is not supported"
        )
    if x.dim() < y.dim():
        if x.dim() == 1:
            if x.shape[0] != y.shape[d]:
                raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
            x = aten.view(x, [-1 if i == d else 1 for i in range(y.dim())])
        else:
            x = aten.view(x, [1] * (y.dim() - x.dim()) + list(x.shape))
        along = d
    else:
        along = d - y.dim() + x.dim()
    n = x.shape[along]
    return aten.sub(aten.narrow(x, along, 1, n - 1), aten.narrow(x, along, 0, n - 1))


def _pairs(y: Tensor, d: int) -> Tensor:
    n = y.shape[d]
    return aten.add(aten.narrow(y, d, 0, n - 1), aten.narrow(y, d, 1, n - 1))


def _check_width(name: str, dx: Any) -> None:
    if isinstance(dx, (bool, complex)):
        raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")


def _trapezoids(name: str, title: str, cumulative: bool) -> None:
    def total(parts: Tensor, d: int) -> Tensor:
        return aten.cumsum(parts, d) if cumulative else aten.sum(parts, [d])

    def nothing(y: Tensor, d: int) -> Tensor:
        shape = list(y.shape)
        if cumulative:
            return aten.empty(shape, dtype=y.dtype, device=y.device)
        return aten.zeros(shape[:d] + shape[d + 1 :], dtype=y.dtype, device=y.device)

    def dimension(y: Tensor, dim: int) -> int:
        if not y.dim():
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        return wrap_dim(dim, y.dim())

    def by_points(y: Tensor, x: Tensor, dim: int) -> Any:
        d = dimension(y, dim)
        if not y.shape[d]:
            return nothing(y, d)
        widths = _steps(title, y, x, d)
        return total(aten.mul(widths, _pairs(y, d)), d) / 2.0

    def by_width(y: Tensor, dx: Any, dim: int) -> Any:
        d = dimension(y, dim)
        if not y.shape[d]:
            return nothing(y, d)
        if y.dtype is dt.bool_:
            raise RuntimeError(f"{title}: received a bool input for `y`, but bool is not supported")
        _check_width(title, dx)
        return aten.mul(total(_pairs(y, d), d), dx / 2.0)

    width = "float dx=1." if name == "trapz" else "Scalar dx=1"
    for schema, body in (
        (f"{name}.x(Tensor y, Tensor x, *, int dim=-1) -> Tensor", by_points),
        (f"{name}.dx(Tensor y, *, {width}, int dim=-1) -> Tensor", by_width),
    ):
        type(name, (Composite,), {
            "__doc__": "The integral along a dimension by the trapezoidal rule.",
            "__module__": __name__, "schema": schema, "decompose": body, "public": "function",
        })  # fmt: skip


_trapezoids("trapezoid", "trapezoid", False)
_trapezoids("trapz", "trapezoid", False)
_trapezoids("cumulative_trapezoid", "cumulative_trapezoid", True)


def _slope(x: Tensor, points: Any, d: int, order: int) -> Tensor:
    """Central differences along d, one-sided of the given order at both ends (Fornberg 1988).
    points: the constant spacing, or a tensor of coordinates."""
    n = x.shape[d]

    def part(start: int, length: int) -> Tensor:
        return aten.narrow(x, d, start, length)

    line = [-1 if i == d else 1 for i in range(x.dim())]
    if isinstance(points, Tensor):
        h = aten.sub(aten.narrow(points, 0, 1, n - 1), aten.narrow(points, 0, 0, n - 1))
        left = aten.view(aten.narrow(h, 0, 0, n - 2), line)
        right = aten.view(aten.narrow(h, 0, 1, n - 2), line)
        a = -right / (left * (left + right))
        mid = (right - left) / (left * right)
        c = left / (right * (left + right))
        inner = a * part(0, n - 2) + mid * part(1, n - 2) + c * part(2, n - 2)
        first, second = aten.select(h, 0, 0), aten.select(h, 0, 1) if n > 2 else None
        last, before = aten.select(h, 0, n - 2), aten.select(h, 0, n - 3) if n > 2 else None
    else:
        inner = (part(2, n - 2) - part(0, n - 2)) / (2.0 * points)
        first = second = last = before = points
    if order == 1:
        low = (part(1, 1) - part(0, 1)) / first
        high = (part(n - 1, 1) - part(n - 2, 1)) / last
    else:
        both = first + second
        low = (
            -(2 * first + second) / (first * both) * part(0, 1)
            + both / (first * second) * part(1, 1)
            - first / (second * both) * part(2, 1)
        )
        both = before + last
        high = (
            last / (before * both) * part(n - 3, 1)
            - both / (before * last) * part(n - 2, 1)
            + (2 * last + before) / (last * both) * part(n - 1, 1)
        )
    return aten.cat([low, inner, high], d)


def _gradients(x: Tensor, spacing: Any, dim: Any, order: int) -> list[Tensor]:
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if isinstance(spacing, (list, tuple)) and len(spacing) != len(dims):
        given = "since dim argument was not given" if dim is None else "'spacing'"
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"equal to 'self.dim() = {x.dim()}', {given}, but got a list of length {len(spacing)}"
            if dim is None
            else "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and "
            f"dim arguments to have the same length, but got a spacing argument of length "
            f"{len(spacing)} and a dim argument of length {len(dims)}."
        )
    if x.dtype is dt.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    wrapped = [wrap_dim(d, x.dim()) for d in dims]
    wrap_dims(dims, x.dim())  # refuses a dimension that comes twice
    for d in wrapped:
        if x.shape[d] < order + 1:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1"
            )
    steps = spacing if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    return [
        _slope(x, 1.0 if h is None else h, d, order) for d, h in zip(wrapped, steps, strict=True)
    ]


def _gradient(overload: str, arguments: str, body: Callable[..., Any]) -> None:
    type("Gradient", (Composite,), {
        "__doc__": "Slopes along dimensions.", "__module__": __name__, "public": "function",
        "schema": f"gradient.{overload}(Tensor self, *, {arguments}, int edge_order=1) -> Tensor[]",
        "decompose": body,
    })  # fmt: skip


for _overload, _arguments in (
    ("scalarint", "Scalar? spacing=None, int? dim=None"),
    ("scalararray", "Scalar spacing, int[] dim"),
    ("scalarrayint", "Scalar[] spacing, int? dim=None"),
    ("scalarrayarray", "Scalar[] spacing, int[] dim"),
    ("tensorarrayint", "Tensor[] spacing, int? dim=None"),
    ("tensorarray", "Tensor[] spacing, int[] dim"),
):
    _gradient(
        _overload,
        _arguments,
        lambda x, spacing, dim, order: tuple(_gradients(x, spacing, dim, order)),
    )
_gradient("array", "int[] dim", lambda x, dim, order: tuple(_gradients(x, None, dim, order)))
