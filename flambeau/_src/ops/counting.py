"""Elements counted: histograms, and membership of one tensor's elements in another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.interchange import array_of
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.arrays import store, wide
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, cast, scalar_tensor
from flambeau._src.ops.op import Declaration, TensorSpec
from flambeau._src.ops.promote import refuse, result_type


def _check_bins(bins: int, dim: int = 0) -> None:
    if bins <= 0:
        raise RuntimeError(
            f"torch.histogram(): bins must be > 0, but got {bins} for dimension {dim}"
        )


def _bounds(values: Any, low: float, high: float, where: str) -> tuple[float, float]:
    """The range: that of the values where none is given, widened where it is a point."""
    if low == high and values.size:
        low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{where}range of [{low:g}, {high:g}] is not finite")
    return (low - 1, high + 1) if low == high else (low, high)


class Histc(Opaque):
    """How many elements fall into each of `bins` equal parts of [min, max]."""

    schema = "histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor"
    out = "out"
    no_formula = True
    reference = "tests.ops.references:histc"

    def meta(x: Tensor, bins: int, low: Any, high: Any) -> TensorSpec:
        if x.dtype.is_complex:
            refuse("aminmax_cpu", x.dtype)
        if x.dtype is dt.bool_:
            refuse("linspace_cpu", x.dtype)
        if dt.is_integral(x.dtype):
            refuse("histogram_cpu", x.dtype)
        _check_bins(bins)
        if low > high:
            raise RuntimeError("torch.histc: max must be larger than min")
        return TensorSpec((bins,), x.dtype, x.device)

    def kernel(out: Tensor, x: Tensor, bins: int, low: Any, high: Any) -> None:
        import numpy as np  # lazy: NumPy is heavy

        values = wide(x).reshape(-1)
        low, high = _bounds(values, float(low), float(high), "torch.histc: ")
        inside = values[(values >= low) & (values <= high)]
        at = ((inside - values.dtype.type(low)) * bins / values.dtype.type(high - low)).astype(int)
        store(out, np.bincount(np.minimum(at, bins - 1), minlength=bins))

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4), -1.9, 1.9), 5, -2, 2)
        yield s.sample(s.tensor((0, 4)), 3)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "bins must be > 0", s.tensor((2, 3)), 0)
        yield s.error(RuntimeError, "max must be larger", s.tensor((2, 3)), 3, 4, 2)


# ---- histograms with edges, of points with several coordinates ----


def _check_points(x: Tensor, weight: Tensor | None) -> None:
    if x.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    if weight is None:
        return
    if weight.dtype is not x.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor "
            f"should have the same dtype, but got input({_spoken(x)}), and "
            f"weight({_spoken(weight)})"
        )
    if tuple(weight.shape) != tuple(x.shape[:-1]):
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the "
            f"input tensor excluding its innermost dimension, but got input with shape "
            f"{list(x.shape)} and weight with shape {list(weight.shape)}"
        )


def _spoken(t: Tensor) -> str:
    return dt.c_name(t.dtype)


def _check_counted(x: Tensor, kernel: str) -> None:
    if x.dtype not in (dt.float32, dt.float64):
        refuse(kernel, x.dtype)


def _edges_of(x: Tensor, bins: Sequence[int], span: Sequence[float] | None) -> list[Tensor]:
    """The edges of equal bins along each coordinate."""
    n = x.shape[-1]
    if span is not None and len(span) != 2 * n:
        raise RuntimeError(
            f"torch.histogramdd: for a {n}-dimensional histogram range should have {2 * n} "
            f"elements, but got {len(span)}"
        )
    values = array_of(x).reshape(-1, n)
    made = []
    for i, count in enumerate(bins):
        _check_bins(count, i)
        if span is not None:
            low, high = span[2 * i], span[2 * i + 1]
        elif values.shape[0]:
            low, high = float(values[:, i].min()), float(values[:, i].max())
        else:
            low, high = 0.0, 1.0
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(
                f"torch.histogramdd: dimension {i}'s range [{low:g}, {high:g}] is not finite"
            )
        if low > high:
            raise RuntimeError(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} "
                f"for dimension {i}"
            )
        if low == high:
            low, high = low - 0.5, high + 0.5
        made.append(aten.linspace(low, high, count + 1, dtype=x.dtype))
    return made


def _check_edges(x: Tensor, edges: Sequence[Tensor]) -> None:
    for i, e in enumerate(edges):
        if e.dtype is not x.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but "
                f"got input with dtype {_spoken(x)} and bins for dimension {i} with dtype "
                f"{_spoken(e)}"
            )
        if e.dim() != 1:
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have one dimension, but got {e.dim()} "
                f"dimensions in the bins tensor for dimension {i}"
            )
        if not e.shape[0]:
            raise RuntimeError(
                "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements "
                f"in the bins tensor for dimension {i}"
            )


def _counted(x: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """Points in the cells between the edges; the last cell of a coordinate holds its upper edge."""
    import numpy as np  # lazy: NumPy is heavy

    values = array_of(x).reshape(-1, x.shape[-1])
    lines = [array_of(e) for e in edges]
    shape = tuple(len(line) - 1 for line in lines)
    inside = np.ones(values.shape[0], bool)
    cell = np.zeros(values.shape[0], np.int64)
    for i, line in enumerate(lines):
        v = values[:, i]
        at = np.searchsorted(line, v, side="right") - 1
        at = np.where(v == line[-1], shape[i] - 1, at)
        inside &= (v >= line[0]) & (v <= line[-1]) & (at >= 0) & (at < shape[i])
        cell = cell * shape[i] + at
    given = None if weight is None else array_of(weight).reshape(-1)[inside]
    hist = np.bincount(cell[inside], given, minlength=math.prod(shape)).reshape(shape)
    hist = hist.astype(values.dtype)
    if density:
        hist = hist / hist.sum()
        for i, line in enumerate(lines):
            hist = hist / np.diff(line).reshape([-1 if j == i else 1 for j in range(len(lines))])
    out = _native.empty(shape, x.dtype, x.device)
    store(out, hist)
    return out


class HistogramddEdges(Declaration):
    """The edges of equal bins along each coordinate of points."""

    schema = (
        "_histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None, "
        "Tensor? weight=None, bool density=False) -> Tensor[]"
    )
    differentiable = False
    public = "function"

    def meta(
        x: Tensor, bins: Sequence[int], span: Any, weight: Tensor | None, density: bool
    ) -> Any:
        _check_points(x, weight)
        return tuple(TensorSpec((n + 1,), x.dtype, x.device) for n in bins)

    def run(
        x: Tensor, bins: Sequence[int], span: Any, weight: Tensor | None, density: bool
    ) -> list[Tensor]:
        if x.dtype not in (dt.float32, dt.float64):
            refuse("histogramdd", x.dtype)
        _check_points(x, weight)
        if len(bins) != x.shape[-1]:
            raise RuntimeError(
                "histogramdd: The size of bins must be equal to the innermost dimension of the "
                "input."
            )
        return _edges_of(x, bins, span)


class HistogramddCounts(Declaration):
    """How many points fall into each cell of a regular grid."""

    schema = (
        "_histogramdd_from_bin_cts(Tensor self, int[] bins, *, float[]? range=None, "
        "Tensor? weight=None, bool density=False) -> Tensor"
    )
    differentiable = False
    public = "function"

    def meta(
        x: Tensor, bins: Sequence[int], span: Any, weight: Tensor | None, density: bool
    ) -> TensorSpec:
        _check_points(x, weight)
        return TensorSpec(bins, x.dtype, x.device)

    def run(
        x: Tensor, bins: Sequence[int], span: Any, weight: Tensor | None, density: bool
    ) -> Tensor:
        edges = HistogramddEdges.run(x, bins, span, weight, density)
        return _counted(x, edges, weight, density)


class HistogramddTensors(Declaration):
    """How many points fall into each cell between given edges."""

    schema = (
        "_histogramdd_from_bin_tensors(Tensor self, Tensor[] bins, *, Tensor? weight=None, "
        "bool density=False) -> Tensor"
    )
    differentiable = False
    public = "function"

    def meta(x: Tensor, bins: Sequence[Tensor], weight: Tensor | None, density: bool) -> TensorSpec:
        _check_points(x, weight)
        _check_edges(x, bins)
        return TensorSpec([e.shape[0] - 1 for e in bins], x.dtype, x.device)

    def run(x: Tensor, bins: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
        _check_points(x, weight)
        if len(bins) != x.shape[-1]:
            raise RuntimeError(
                "histogramdd: The size of bins must be equal to the innermost dimension of the "
                "input."
            )
        _check_edges(x, bins)
        _check_counted(x, "histogram_cpu")
        return _counted(x, bins, weight, density)


class Histogram(Declaration):
    """How many elements fall into each of `bins` equal parts, and the parts' edges."""

    schema = (
        "histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, "
        "bool density=False) -> (Tensor hist, Tensor bin_edges)"
    )
    out = "bin_ct_out"
    out_args = ("hist", "bin_edges")
    no_formula = True
    takes16 = False

    def meta(x: Tensor, bins: int, span: Any, weight: Tensor | None, density: bool) -> Any:
        _check_bins(bins)
        return (
            TensorSpec((bins,), x.dtype, x.device),
            TensorSpec((bins + 1,), x.dtype, x.device),
        )

    def run(x: Tensor, bins: int, span: Any, weight: Tensor | None, density: bool) -> Any:
        if x.dtype not in (dt.float32, dt.float64):
            refuse("histogramdd" if x.numel() else "histogram_cpu", x.dtype)
        points = aten.reshape(x, (-1, 1))
        w = None
        if weight is not None:
            w = aten.reshape(weight, (-1,))
        _check_points(points, w)
        (edges,) = _edges_of(points, [bins], span)
        return _counted(points, [edges], w, density), edges

    def samples(s: Any) -> Iterator[Any]:
        if s.dtype.itemsize > 2:
            yield s.sample(s.tensor((3, 4)), 5)
            yield s.sample(s.tensor((3, 4)), 4, range=(-1.0, 1.0), weight=s.tensor((3, 4), 0, 1))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "bins must be > 0", s.tensor((2, 3)), 0)


class HistogramEdges(Histogram):
    """How many elements fall between given edges."""

    schema = (
        "histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, "
        "bool density=False) -> (Tensor hist, Tensor bin_edges)"
    )
    out = "bins_tensor_out"

    def meta(x: Tensor, bins: Tensor, weight: Tensor | None, density: bool) -> Any:  # type: ignore[override]
        _check_edges(x, [bins])
        return (
            TensorSpec((bins.shape[0] - 1,), x.dtype, x.device),
            TensorSpec(bins.shape, x.dtype, x.device),
        )

    def samples(s: Any) -> Iterator[Any]:
        if s.dtype.itemsize > 2:
            yield s.sample(s.tensor((3, 4)), s.tensor((5,)).sort()[0])

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "should have one dimension", s.tensor((3,)), s.tensor((2, 2)))

    def run(x: Tensor, bins: Tensor, weight: Tensor | None, density: bool) -> Any:  # type: ignore[override]
        points = aten.reshape(x, (-1, 1))
        w = None if weight is None else aten.reshape(weight, (-1,))
        _check_points(points, w)
        _check_edges(points, [bins])
        _check_counted(x, "histogram_cpu")
        return _counted(points, [bins], w, density), aten.clone(bins)


class Histogramdd(Composite):
    """A histogram of points, the number of bins given for each coordinate."""

    schema = (
        "histogramdd(Tensor self, int[] bins, float[]? range=None, Tensor? weight=None, "
        "bool density=False) -> (Tensor hist, Tensor[] bin_edges)"
    )
    public = "function"

    def decompose(x: Tensor, bins: Any, span: Any, weight: Any, density: bool) -> Any:
        edges = aten._histogramdd_bin_edges(x, bins, range=span, weight=weight, density=density)
        hist = aten._histogramdd_from_bin_cts(x, bins, range=span, weight=weight, density=density)
        return hist, tuple(edges)


class HistogramddOne(Composite):
    """A histogram of points, the same number of bins for each coordinate."""

    schema = (
        "histogramdd.int_bins(Tensor self, int bins, float[]? range=None, Tensor? weight=None, "
        "bool density=False) -> (Tensor hist, Tensor[] bin_edges)"
    )
    public = "function"

    def decompose(x: Tensor, bins: int, span: Any, weight: Any, density: bool) -> Any:
        return Histogramdd.decompose(x, [bins] * x.shape[-1], span, weight, density)


class HistogramddEdged(Composite):
    """A histogram of points between given edges."""

    schema = (
        "histogramdd.TensorList_bins(Tensor self, Tensor[] bins, float[]? range=None, "
        "Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)"
    )
    public = "function"

    def decompose(x: Tensor, bins: Any, span: Any, weight: Any, density: bool) -> Any:
        hist = aten._histogramdd_from_bin_tensors(x, bins, weight=weight, density=density)
        return hist, tuple(bins)


# ---- membership ----


def _check_members(*sides: Any) -> None:
    for v in sides:
        if isinstance(v, Tensor) and (v.dtype is dt.bool_ or v.dtype.is_complex):
            raise RuntimeError(
                f"Unsupported input type encountered for isin(): {dt.scalar_name(v.dtype)}"
            )


def _isin(head: str, overload: str) -> None:
    def meta(x: Any, among: Any, unique: bool, invert: bool) -> TensorSpec:
        _check_members(x, among)
        t = x if isinstance(x, Tensor) else among
        shape = x.shape if isinstance(x, Tensor) else ()
        return TensorSpec(shape, dt.bool_, t.device)

    def kernel(out: Tensor, x: Any, among: Any, unique: bool, invert: bool) -> None:
        import numpy as np  # lazy: NumPy is heavy

        common = result_type((x, among))
        sides = [
            wide(cast(v if isinstance(v, Tensor) else scalar_tensor(v, common), common))
            for v in (x, among)
        ]
        store(out, np.isin(sides[0], sides[1], invert=invert))

    def decompose(x: Any, among: Any, unique: bool, invert: bool) -> Any:
        _check_members(x, among)
        if not isinstance(among, Tensor):
            return aten.ne(x, among) if invert else aten.eq(x, among)
        row = aten.reshape(among, (-1,))
        if isinstance(x, Tensor):
            x = aten.unsqueeze(x, -1)
        found = aten.any(aten.eq(row, x), -1)
        return aten.logical_not(found) if invert else found

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.ints((3, 4), 0, 9), s.ints((5,), 0, 9))
        yield s.sample(s.ints((0, 4), 0, 9), s.ints((5,), 0, 9), invert=True)

    type(f"Isin{overload}", (Opaque,), {
        "__doc__": "Whether each element is among others.", "__module__": __name__,
        "schema": f"isin.{overload}({head}, *, bool assume_unique=False, bool invert=False) "
        "-> Tensor",
        "out": f"{overload}_out", "public": "function", "differentiable": False, "meta": meta,
        "kernel": kernel, "decompose": decompose,
        **({"samples": samples, "reference": "numpy.isin"} if "Tensor_T" in overload else {}),
    })  # fmt: skip


_isin("Tensor elements, Tensor test_elements", "Tensor_Tensor")
_isin("Tensor elements, Scalar test_element", "Tensor_Scalar")
_isin("Scalar element, Tensor test_elements", "Scalar_Tensor")
