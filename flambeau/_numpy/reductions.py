"""Sums, means, extremes, order: functions along axes. Of all elements the result is a scalar."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau._numpy import facts
from flambeau._numpy.array import method, ndarray, tensor_of, wrapped

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _register(*names: str, methods: bool = False) -> Callable[[Callable[..., Any]], Any]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FUNCTIONS[name] = function
            if methods:
                setattr(ndarray, name, function)
        return function

    return note


def _done(t: Any, out: Any = None, dtype: Any = None) -> Any:
    if dtype is not None:
        t = t.to(facts.torch_dtype(dtype))
    if out is not None:
        out.tensor.copy_(t)
        return out
    return wrapped(t)


def _axes(axis: Any, t: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(t.dim()))
    return axis if isinstance(axis, tuple) else (axis,)


def _no_where(where: Any, initial: Any = None) -> None:
    if where is not True or initial is not None:
        facts.refuse("A reduction of NumPy's is called with where= or initial=.")


def _of_axes(t: Any, axis: Any, keepdims: bool, function: Callable[..., Any], *rest: Any) -> Any:
    axes = _axes(axis, t)
    if not axes:
        return function(t.reshape(1), 0, *rest).reshape(()) if not t.dim() else t
    return function(t, axes, *rest, keepdim=bool(keepdims))


def _summed(t: Any, dtype: Any) -> Any:
    return facts.torch_dtype(dtype) if dtype is not None else facts.sum_dtype(t.dtype)


@_register("sum", methods=True)
def sum_(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
    initial: Any = None, where: Any = True,
) -> Any:  # fmt: skip
    """The sum along axes."""
    _no_where(where, initial)
    t = tensor_of(a)
    made = torch.sum(t, _axes(axis, t), keepdim=bool(keepdims), dtype=_summed(t, dtype))
    return _done(made, out)


@_register("prod", methods=True)
def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
    initial: Any = None, where: Any = True,
) -> Any:  # fmt: skip
    """The product along axes."""
    _no_where(where, initial)
    t = tensor_of(a)
    t = t.to(_summed(t, dtype))
    if axis is None and not keepdims:
        return _done(torch.prod(t), out)
    for i in sorted([x % t.dim() for x in _axes(axis, t)], reverse=True):
        t = torch.prod(t, i, keepdim=bool(keepdims))
    return _done(t, out)


def _floating(t: Any, dtype: Any = None) -> Any:
    """For means: of whole numbers in float64."""
    if dtype is not None:
        return t.to(facts.torch_dtype(dtype))
    return t if t.is_floating_point() or t.is_complex() else t.to(torch.float64)


@_register("mean", methods=True)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
    where: Any = True,
) -> Any:  # fmt: skip
    """The mean along axes."""
    _no_where(where)
    t = _floating(tensor_of(a), dtype)
    return _done(torch.mean(t, _axes(axis, t), keepdim=bool(keepdims)), out)


@_register("average")
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: Any = False
) -> Any:
    """The weighted mean."""
    if weights is None:
        if returned:
            facts.refuse("numpy.average is called with returned=.")
        return mean(a, axis, keepdims=keepdims)
    t, w = tensor_of(a), tensor_of(weights)
    dtype = facts.promoted(_floating(t).dtype, w.dtype)
    t, w = t.to(dtype), w.to(dtype)
    if w.shape != t.shape and axis is not None and w.dim() == 1:
        w = w.reshape([-1 if i == axis % t.dim() else 1 for i in range(t.dim())]).expand(t.shape)
    axes = _axes(axis, t)
    total = torch.sum(w, axes, keepdim=bool(keepdims))
    found = wrapped(torch.sum(t * w, axes, keepdim=bool(keepdims)) / total)
    return (found, wrapped(total)) if returned else found


def _variance(a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any) -> Any:
    t = _floating(tensor_of(a), dtype)
    axes = _axes(axis, t)
    off = t - torch.mean(t, axes, keepdim=True)
    squares = (off * off.conj()).real if t.is_complex() else off * off
    n = 1
    for i in axes:
        n = n * t.shape[i]
    return torch.sum(squares, axes, keepdim=bool(keepdims)) / (n - ddof)


@_register("var", methods=True)
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
    keepdims: Any = False, *, where: Any = True, correction: Any = None,
) -> Any:  # fmt: skip
    """The variance along axes."""
    _no_where(where)
    return _done(
        _variance(a, axis, dtype, ddof if correction is None else correction, keepdims), out
    )


@_register("std", methods=True)
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
    keepdims: Any = False, *, where: Any = True, correction: Any = None,
) -> Any:  # fmt: skip
    """The standard deviation along axes."""
    _no_where(where)
    ddof = ddof if correction is None else correction
    return _done(torch.sqrt(_variance(a, axis, dtype, ddof, keepdims)), out)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def extreme(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None,
        where: Any = True,
    ) -> Any:  # fmt: skip
        _no_where(where, initial)
        t = tensor_of(a)
        return _done(function(t, _axes(axis, t), keepdim=bool(keepdims)), out)

    return extreme


_register("max", "amax")(_extreme(torch.amax))
_register("min", "amin")(_extreme(torch.amin))
ndarray.max, ndarray.min = FUNCTIONS["max"], FUNCTIONS["min"]  # type: ignore[attr-defined]


@_register("ptp")
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    """The largest less the smallest."""
    return FUNCTIONS["max"](a, axis, out, keepdims) - FUNCTIONS["min"](a, axis, out, keepdims)


def _where_extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def place(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        t = tensor_of(a)
        if axis is None:
            found = function(t.reshape(-1))
            return _done(found.reshape([1] * t.dim()) if keepdims else found, out)
        return _done(function(t, axis, keepdim=bool(keepdims)), out)

    return place


_register("argmax", methods=True)(_where_extreme(torch.argmax))
_register("argmin", methods=True)(_where_extreme(torch.argmin))


def _logical(function: Callable[..., Any]) -> Callable[..., Any]:
    def logical(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
    ) -> Any:
        _no_where(where)
        t = tensor_of(a).to(torch.bool)
        if axis is None and not keepdims:
            return _done(function(t), out)
        for i in sorted([x % t.dim() for x in _axes(axis, t)], reverse=True):
            t = function(t, i, keepdim=bool(keepdims))
        return _done(t, out)

    return logical


_register("all", methods=True)(_logical(torch.all))
_register("any", methods=True)(_logical(torch.any))


@_register("count_nonzero")
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """How many are not zero."""
    t = tensor_of(a) != 0
    made = torch.sum(t, _axes(axis, t), keepdim=bool(keepdims), dtype=facts.default_ints())
    return wrapped(made)


def _running(function: Callable[..., Any]) -> Callable[..., Any]:
    def running(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        t = tensor_of(a)
        if axis is None:
            t, axis = t.reshape(-1), 0
        return _done(function(t, axis, dtype=_summed(t, dtype)), out)

    return running


_register("cumsum", methods=True)(_running(torch.cumsum))
_register("cumprod", methods=True)(_running(torch.cumprod))


def _without_nan(fill: Any, then: Callable[..., Any]) -> Callable[..., Any]:
    def function(a: Any, *args: Any, **kwargs: Any) -> Any:
        t = tensor_of(a)
        if t.is_floating_point() or t.is_complex():
            t = torch.where(torch.isnan(t), fill, t)
        return then(ndarray(t), *args, **kwargs)

    return function


_register("nansum")(_without_nan(0.0, sum_))
_register("nanprod")(_without_nan(1.0, prod))
_register("nancumsum")(_without_nan(0.0, FUNCTIONS["cumsum"]))
_register("nanargmax")(_without_nan(-math.inf, FUNCTIONS["argmax"]))
_register("nanargmin")(_without_nan(math.inf, FUNCTIONS["argmin"]))


@_register("nanmean")
def nanmean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: Any = False) -> Any:
    """The mean of what is a number."""
    t = _floating(tensor_of(a), dtype)
    return wrapped(torch.nanmean(t, _axes(axis, t), keepdim=bool(keepdims)))


def _sorted_axis(a: Any, axis: Any) -> tuple[Any, int]:
    t = tensor_of(a)
    return (t.reshape(-1), 0) if axis is None else (t, axis)


def _quantiles(a: Any, q: Any, axis: Any, keepdims: Any) -> Any:
    t = _floating(tensor_of(a))
    axes = [i % t.dim() for i in _axes(axis, t)]
    rest = [i for i in range(t.dim()) if i not in axes]
    moved = t.permute(rest + axes).reshape([t.shape[i] for i in rest] + [-1])
    ordered = torch.sort(moved, -1)[0]
    n = ordered.shape[-1]
    places = tensor_of(q).to(torch.float64) * (n - 1)
    below = torch.clamp(torch.floor(places), 0, n - 1).long()
    above = torch.clamp(below + 1, 0, n - 1)
    share = (places - below).to(t.dtype)
    low, high = ordered[..., below], ordered[..., above]
    found = torch.lerp(low, high, share)
    found = torch.where(torch.isnan(ordered[..., -1:]).reshape(
        [*ordered.shape[:-1]] + [1] * places.dim()), math.nan, found)  # fmt: skip
    found = found.movedim(-1, 0) if places.dim() else found
    if keepdims:
        kept = [1 if i in axes else t.shape[i] for i in range(t.dim())]
        found = found.reshape([*places.shape] + kept)
    return wrapped(found)


@_register("quantile")
def quantile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: Any = False,
) -> Any:  # fmt: skip
    """Quantiles by linear interpolation."""
    if method != "linear" or out is not None:
        facts.refuse("numpy.quantile is called with method= or out=.")
    return _quantiles(a, q, axis, keepdims)


@_register("percentile")
def percentile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: Any = False,
) -> Any:  # fmt: skip
    """Quantiles in percent."""
    share = wrapped(tensor_of(q).to(torch.float64)) / 100
    return quantile(a, share, axis, out, overwrite_input, method, keepdims)


@_register("median")
def median(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False
) -> Any:
    """The middle of the sorted elements; of two their mean."""
    return quantile(a, 0.5, axis, out, False, "linear", keepdims)


@_register("sort")
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """A sorted copy; NaN stands last."""
    t, axis = _sorted_axis(a, axis)
    return ndarray(torch.sort(t, dim=axis, stable=True)[0])


@method("sort")
def _sort_in_place(
    self: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> None:
    self.tensor.copy_(torch.sort(self.tensor, axis)[0])


@_register("argsort", methods=True)
def argsort(
    a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    """Places in sorted order."""
    t, axis = _sorted_axis(a, axis)
    return ndarray(torch.argsort(t, dim=axis, stable=True))


@_register("searchsorted")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where values would be put into a sorted array."""
    t, values = tensor_of(a), tensor_of(v)
    dtype = facts.promoted(t.dtype, values.dtype)
    order = None if sorter is None else tensor_of(sorter)
    return wrapped(torch.searchsorted(t.to(dtype), values.to(dtype), side=side, sorter=order))


@_register("digitize")
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """The bin of each element, of rising bins."""
    return searchsorted(bins, x, "left" if right else "right")


@_register("diff")
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours."""
    if prepend is not None or append is not None:
        facts.refuse("numpy.diff is called with prepend= or append=.")
    t = tensor_of(a)
    return ndarray(torch.diff(t, n, axis))


@_register("allclose")
def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether all elements are close to each other."""
    return bool(FUNCTIONS["all"](isclose(a, b, rtol, atol, equal_nan)))


@_register("isclose")
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Whether elements are close to each other."""
    x, y = tensor_of(a), tensor_of(b)
    dtype = facts.promoted(_floating(x).dtype, _floating(y).dtype)
    return wrapped(torch.isclose(x.to(dtype), y.to(dtype), rtol, atol, equal_nan))


@_register("array_equal")
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether shapes and all elements are equal."""
    x, y = tensor_of(a1), tensor_of(a2)
    if x.shape != y.shape:
        return False
    return bool((x == y).all())
