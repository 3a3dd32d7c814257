"""Scans, sorting, and the order statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import info
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, check_no_overlap, check_out_dtype, resize_output
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec, cast, run_rows, wrap_dim
from flambeau._src.ops.op import Declaration
from flambeau._src.ops.reduce import value_gradient


def work_dtype(x: Tensor, dtype: Any) -> dt.dtype:
    return dtype or (dt.int64 if dt.is_integral(x.dtype) else x.dtype)


def scan_samples(s: Any) -> Iterator[Any]:
    for shape, dim in (((2, 3, 4, 5), 1), ((3, 4), -1), ((), 0), ((0, 3), 0), ((3, 0), 1)):
        yield s.sample(s.tensor(shape), dim)


def dim_errors(s: Any) -> Iterator[Any]:
    yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), 2)


def _scan(name: str, vjp: Any) -> None:
    def expr(k: Any, x: Any) -> Any:
        return getattr(k, name)(x)

    def meta(x: Tensor, dim: int, dtype: Any) -> TensorSpec:
        wrap_dim(dim, x.dim())
        return TensorSpec(x.shape, work_dtype(x, dtype), x.device)

    def kernel(out: Tensor, x: Tensor, dim: int, dtype: Any) -> None:
        x = cast(x, out.dtype)
        run_rows(cls.op, expr, (out,), [x], wrap_dim(dim, x.dim()), [], [], x.dtype)

    def compute_out(cls: Any, op: Any, outs: Any, args: Any) -> bool:
        """The dtype of out= is the dtype of the scan."""
        x, dim, dtype = args
        if dtype is not None:
            check_out_dtype(op, dtype, outs[0].dtype)
        result = cls.op(x, dim, dtype=dtype or outs[0].dtype)
        resize_output(outs[0], result.shape, result.stride())
        slot("copy_into")(outs[0], result)
        return True

    cls: type[Declaration] = type(
        name,
        (Opaque,),
        {
            "__doc__": f"{name} along a dimension.",
            "__module__": __name__,
            "meta": meta,
            "compute_out": classmethod(compute_out),
            "kernel": kernel,
            "vjp": vjp,
            "inplace": True,
            "out": "out",
            "saves_by": ("self", "dim"),
            "samples": scan_samples,
            "error_samples": dim_errors,
            "schema": f"{name}(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
        },
    )


def reversed_cumsum(g: Any, dim: int) -> Any:
    if g.numel() <= 1 or g.shape[dim] == 1:
        return g
    return g.flip([dim]).cumsum(dim).flip([dim])


def _cumsum_vjp(b: Any, g: Any, x: Any, dim: int, dtype: Any) -> Any:
    g = g.to(x.dtype) if g.dtype is not x.dtype else g
    return reversed_cumsum(g, wrap_dim(dim, x.dim())) if x.dim() else g


def _cumprod_vjp(b: Any, g: Any, x: Any, dim: int, dtype: Any) -> Any:
    """Each input's share of all later products: exact with zeros, by leaving one out."""
    g = g.to(x.dtype) if g.dtype is not x.dtype else g
    if not x.dim() or x.numel() <= 1:
        return g
    x = aten.conj(x) if x.dtype.is_complex else x
    d = wrap_dim(dim, x.dim())
    n = x.shape[d]
    parts = []
    before = aten.ones_like(x.narrow(d, 0, 1))
    for i in range(n):
        tail = x.narrow(d, i + 1, n - i - 1)
        products = aten.cat([before, tail], d).cumprod(d) if n - i - 1 else before
        parts.append((g.narrow(d, i, n - i) * products).sum(d, True))
        before = before * x.narrow(d, i, 1)
    return aten.cat(parts, d)


_scan("cumsum", _cumsum_vjp)
_scan("cumprod", _cumprod_vjp)


def _reversed_logs(logs: Any, dim: int) -> Any:
    return logs.flip([dim]).logcumsumexp(dim).flip([dim])


class Logcumsumexp(Opaque):
    """log of the running sum of exponentials."""

    schema = "logcumsumexp(Tensor self, int dim) -> Tensor"
    out = "out"

    def expr(k: Any, x: Any) -> Any:
        return k.logcumsumexp(x)

    def meta(x: Tensor, dim: int) -> TensorSpec:
        wrap_dim(dim, x.dim())
        return TensorSpec(x.shape, x.dtype, x.device, _native.geometry_of([x])[1])

    def kernel(out: Tensor, x: Tensor, dim: int) -> None:
        run_rows(
            Logcumsumexp.op, Logcumsumexp.expr, (out,), [x], wrap_dim(dim, x.dim()), [], [], x.dtype
        )

    def vjp(b: Any, g: Any, x: Any, dim: int) -> Any:
        if not x.dim():
            return g
        d = wrap_dim(dim, x.dim())
        out, narrow = b.out, x.dtype
        if narrow in (dt.float16, dt.bfloat16):  # exp makes relative what its argument is off by
            g, x = g.to(dt.float32), x.to(dt.float32)
            out = aten.logcumsumexp(x, d)

        def share(logs: Any) -> Any:
            return (_reversed_logs(logs - aten.conj(out), d) + aten.conj(x)).exp()

        if x.dtype.is_complex:
            return share(g.log())
        least = aten.scalar_tensor(info.finfo(g.dtype).min, dtype=g.dtype, device=g.device)
        logs = g.abs().log()
        above, below = aten.where(g > 0, logs, least), aten.where(g < 0, logs, least)
        return (share(above) - share(below)).to(narrow)

    saves_by = ("self",)


def _extreme_scan(name: str) -> None:
    short = name[3:]

    def expr(k: Any, x: Any) -> Any:
        return getattr(k, f"{name}_value")(x), getattr(k, f"{name}_index")(x)

    def meta(x: Tensor, dim: int) -> Any:
        wrap_dim(dim, x.dim())
        return TensorSpec(x.shape, x.dtype, x.device), TensorSpec(x.shape, dt.int64, x.device)

    def kernel(outs: Any, x: Tensor, dim: int) -> None:
        run_rows(cls.op, expr, outs, [x], wrap_dim(dim, x.dim()), [], [], x.dtype)

    def vjp(b: Any, g: Any, x: Any, dim: int) -> Any:
        if not x.dim():
            return g[0]
        zeros = aten.zeros(x.shape, dtype=g[0].dtype, device=x.device)
        return aten.scatter_add(zeros, wrap_dim(dim, x.dim()), b.outs[1], g[0])

    cls: type[Declaration] = type(
        name,
        (Opaque,),
        {
            "__doc__": f"The running {short} and where it stands.",
            "__module__": __name__,
            "meta": meta,
            "kernel": kernel,
            "vjp": vjp,
            "schema": f"{name}(Tensor self, int dim) -> (Tensor values, Tensor indices)",
            "out": "out",
            "out_args": ("values", "indices"),
            "differentiable": (0,),
        },
    )


_extreme_scan("cummax")
_extreme_scan("cummin")


# ---- sorting ----


SORT, STABLE, TOP, KTH = range(4)  # what _native.order_rows does
RADIX = (
    32768  # torch sorts longer vectors of integers by their digits, which keeps equal ones in order
)


def order_rows(
    how: int,
    outs: Any,
    x: Tensor,
    dim: int,
    k: int = 0,
    descending: bool = False,
    sorted_: bool = True,
) -> None:
    """Values and their places along dim; NaN counts as the largest."""
    if not outs[0].numel():
        return
    if not x.dim():
        slot("copy_into")(outs[0], x)
        slot("fill_with")(outs[1], 0)
        return
    _native.order_rows(how, x, outs[0], outs[1], wrap_dim(dim, x.dim()), k, descending, sorted_)


def pick_vjp(b: Any, g: Any, x: Any, dim: int) -> Any:
    if not x.dim():
        return g[0].reshape(x.shape)
    zeros = aten.zeros(x.shape, dtype=g[0].dtype, device=x.device)
    return aten.scatter(zeros, wrap_dim(dim, x.dim()), b.outs[1], g[0])


class SortStable(Opaque):
    """Sorted along a dimension, with the indices; equal elements keep their order."""

    schema = (
        "sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) "
        "-> (Tensor values, Tensor indices)"
    )
    out = "values_stable"
    out_args = ("values", "indices")
    differentiable = (0,)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)), stable=False, dim=1)
        yield s.sample(s.tensor((3, 4)), stable=True, dim=0, descending=True)
        yield s.sample(s.tensor(()), stable=None, dim=0)
        yield s.sample(s.tensor((0, 3)), stable=False, dim=1)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), stable=False, dim=2)

    def meta(x: Tensor, stable: Any, dim: int, descending: bool) -> Any:
        wrap_dim(dim, x.dim())
        if x.dtype.is_complex:
            raise RuntimeError("sort(): complex dtypes are not supported")
        st = _native.geometry_of([x])[1]
        return TensorSpec(x.shape, x.dtype, x.device, st), TensorSpec(
            x.shape, dt.int64, x.device, st
        )

    def kernel(outs: Any, x: Tensor, stable: Any, dim: int, descending: bool) -> None:
        digits = (
            x.dim() == 1
            and x.numel() >= RADIX
            and not descending
            and dt.is_integral(x.dtype, with_bool=False)
        )
        order_rows(STABLE if stable or digits else SORT, outs, x, dim, 0, descending)

    def vjp(b: Any, g: Any, x: Any, stable: Any, dim: int, descending: bool) -> Any:
        return pick_vjp(b, g, x, dim)


class Sort(Composite):
    """Sorted along a dimension, with the indices."""

    schema = (
        "sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)"
    )
    level = "explicit"
    out = "values"
    out_args = ("values", "indices")
    differentiable = (0,)

    def meta(x: Tensor, dim: int, descending: bool) -> Any:
        return SortStable.meta(x, False, dim, descending)

    whole = True

    def decompose(x: Tensor, dim: int, descending: bool) -> Any:
        return aten.sort(x, stable=False, dim=dim, descending=descending)

    def kernel(outs: Any, x: Tensor, dim: int, descending: bool) -> None:
        SortStable.kernel(outs, x, False, dim, descending)

    def vjp(b: Any, g: Any, x: Any, dim: int, descending: bool) -> Any:
        return pick_vjp(b, g, x, dim)


class Argsort(Composite):
    """The indices that sort along a dimension."""

    schema = "argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor"

    def decompose(x: Tensor, dim: int, descending: bool) -> Tensor:
        return aten.sort(x, dim, descending)[1]


class ArgsortStable(Composite):
    """The indices that sort along a dimension, equal elements in order."""

    schema = (
        "argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor"
    )

    def decompose(x: Tensor, stable: bool, dim: int, descending: bool) -> Tensor:
        return aten.sort(x, stable=stable, dim=dim, descending=descending)[1]


class Msort(Composite):
    """Sorted along the first dimension."""

    schema = "msort(Tensor self) -> Tensor"
    out = True

    def decompose(x: Tensor) -> Tensor:
        return aten.sort(x, 0, False)[0]

    def decompose_out(x: Tensor, out: Tensor) -> Tensor:
        places = aten.empty((0,), dtype=dt.int64, device=x.device)
        made: Tensor = aten.sort(x, 0, False, out=(out, places))[0]
        return made


class Topk(Opaque):
    """The k largest (or smallest) along a dimension, with the indices."""

    schema = (
        "topk(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) "
        "-> (Tensor values, Tensor indices)"
    )
    out = "values"
    out_args = ("values", "indices")
    differentiable = (0,)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3, 4, 5)), 2, 1)
        yield s.sample(s.tensor((3, 4)), 3, -1, False)
        yield s.sample(s.tensor(()), 1)
        yield s.sample(s.tensor((0, 3)), 2)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "selected index k out of range", s.tensor((2, 3)), 4)
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), 1, 2)

    def meta(x: Tensor, k: int, dim: int, largest: bool, sorted_: bool) -> Any:
        d = wrap_dim(dim, x.dim())
        if not 0 <= k <= (x.shape[d] if x.dim() else 1):
            raise RuntimeError("selected index k out of range")
        shape = list(x.shape)
        if shape:
            shape[d] = k
        return TensorSpec(shape, x.dtype, x.device), TensorSpec(shape, dt.int64, x.device)

    def kernel(outs: Any, x: Tensor, k: int, dim: int, largest: bool, sorted_: bool) -> None:
        order_rows(TOP, outs, x, dim, k, largest, sorted_)

    def vjp(b: Any, g: Any, x: Any, k: int, dim: int, largest: bool, sorted_: bool) -> Any:
        return pick_vjp(b, g, x, dim)


class Kthvalue(Opaque):
    """The k-th smallest along a dimension, with its index."""

    schema = (
        "kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) "
        "-> (Tensor values, Tensor indices)"
    )
    out = "values"
    out_args = ("values", "indices")
    differentiable = (0,)

    def meta(x: Tensor, k: int, dim: int, keepdim: bool) -> Any:
        d = wrap_dim(dim, x.dim())
        if not 1 <= k <= (x.shape[d] if x.dim() else 1):
            raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}")
        shape = [s if i != d else 1 for i, s in enumerate(x.shape) if keepdim or i != d]
        return TensorSpec(shape, x.dtype, x.device), TensorSpec(shape, dt.int64, x.device)

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Tensor, ...], args: tuple[Any, ...]) -> bool:
        """Not even where both are the same elements, as other operators would allow."""
        for o in outs:
            check_no_overlap(o, args[0])
        return False

    def error_samples(s: Any) -> Iterator[Any]:
        x = s.tensor((4,))
        places = aten.empty((0,), dtype=dt.int64)
        yield s.error(RuntimeError, "refer to a single memory", x, 2, out=(x, places))

    def kernel(outs: Any, x: Tensor, k: int, dim: int, keepdim: bool) -> None:
        if x.dim() and not keepdim:
            outs = tuple(aten.unsqueeze(o, wrap_dim(dim, x.dim())) for o in outs)
        order_rows(KTH, outs, x, dim, k)

    def vjp(b: Any, g: Any, x: Any, k: int, dim: int, keepdim: bool) -> Any:
        return value_gradient(g[0], b.outs[1], x, dim, keepdim)
