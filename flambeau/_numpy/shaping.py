"""Arrays in other shapes: joined, split, repeated, picked from, and made anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau._numpy import facts
from flambeau._numpy.array import (
    extents,
    generic,
    ndarray,
    number_or_tensor,
    sort_of,
    tensor_of,
    wrapped,
)

__all__ = ["CREATORS", "FUNCTIONS"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}
CREATORS: set[str] = set()  # these make arrays of constants


def _register(
    *names: str, methods: bool = False, creates: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FUNCTIONS[name] = function
            if creates:
                CREATORS.add(name)
            if methods:
                setattr(ndarray, name, function)
        return function

    return note


def _array(a: Any) -> Any:
    return a if isinstance(a, ndarray) else ndarray(tensor_of(a))


# ---- the same elements in another shape ----


def _by_method(name: str) -> Callable[..., Any]:
    def function(a: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(_array(a), name)(*args, **kwargs)

    return function


for _name in ("ravel", "swapaxes", "squeeze", "copy"):
    FUNCTIONS[_name] = _by_method(_name)


@_register("reshape")
def reshape(a: Any, shape: Any, order: str = "C", copy: Any = None) -> Any:
    """Another shape for the same elements."""
    return _array(a).reshape(shape, order=order)


@_register("transpose", "permute_dims")
def transpose(a: Any, axes: Any = None) -> Any:
    """The dimensions in another order."""
    return _array(a).transpose(axes)


@_register("moveaxis")
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Dimensions moved to other places."""
    return ndarray(tensor_of(a).movedim(source, destination))


@_register("expand_dims")
def expand_dims(a: Any, axis: Any) -> Any:
    """With new dimensions of extent 1."""
    t = tensor_of(a)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    n = t.dim() + len(axes)
    for i in sorted([x % n for x in axes]):
        t = t.unsqueeze(i)
    return ndarray(t)


@_register("broadcast_to")
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """A view with a larger shape."""
    return ndarray(tensor_of(array).expand(extents((shape,))))


@_register("broadcast_arrays")
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Views of one shape."""
    return tuple([ndarray(t) for t in torch.broadcast_tensors(*[tensor_of(a) for a in args])])


@_register("atleast_1d")
def atleast_1d(*arrays: Any) -> Any:
    """With at least one dimension."""
    made = tuple([ndarray(torch.atleast_1d(tensor_of(a))) for a in arrays])
    return made[0] if len(made) == 1 else made


@_register("atleast_2d")
def atleast_2d(*arrays: Any) -> Any:
    """With at least two dimensions."""
    made = tuple([ndarray(torch.atleast_2d(tensor_of(a))) for a in arrays])
    return made[0] if len(made) == 1 else made


@_register("atleast_3d")
def atleast_3d(*arrays: Any) -> Any:
    """With at least three dimensions."""
    made = tuple([ndarray(torch.atleast_3d(tensor_of(a))) for a in arrays])
    return made[0] if len(made) == 1 else made


@_register("flip")
def flip(m: Any, axis: Any = None) -> Any:
    """In reverse along axes."""
    t = tensor_of(m)
    axes = range(t.dim()) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return ndarray(torch.flip(t, tuple(axes)))


_register("flipud")(lambda m: flip(m, 0))
_register("fliplr")(lambda m: flip(m, 1))


@_register("roll")
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Moved along axes, what falls off at the end comes in at the beginning."""
    return ndarray(torch.roll(tensor_of(a), shift, axis))


@_register("rot90")
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Turned by quarters."""
    return ndarray(torch.rot90(tensor_of(m), k, axes))


# ---- joined and split ----


def _together(arrays: Any, dtype: Any = None) -> list[Any]:
    made = [tensor_of(a) for a in arrays]
    chosen = facts.promoted(*[t.dtype for t in made]) if dtype is None else facts.torch_dtype(dtype)
    return [t.to(chosen) for t in made]


@_register("concatenate", "concat")
def concatenate(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """Joined along an axis that is there."""
    made = _together(arrays, dtype)
    if axis is None:
        return ndarray(torch.cat([t.reshape(-1) for t in made]))
    return ndarray(torch.cat(made, axis))


@_register("stack")
def stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """Joined along a new axis."""
    return ndarray(torch.stack(_together(arrays, dtype), axis))


_register("hstack")(lambda tup, *, dtype=None: ndarray(torch.hstack(_together(tup, dtype))))
_register("vstack")(lambda tup, *, dtype=None: ndarray(torch.vstack(_together(tup, dtype))))
_register("dstack")(lambda tup: ndarray(torch.dstack(_together(tup))))
_register("column_stack")(lambda tup: ndarray(torch.column_stack(_together(tup))))


@_register("append")
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """With values at the end."""
    return concatenate((arr, values), axis)


@_register("array_split")
def array_split(ary: Any, sections: Any, axis: int = 0) -> Any:
    """In parts."""
    t = tensor_of(ary)
    if not isinstance(sections, int):
        return [ndarray(p) for p in torch.tensor_split(t, tuple(sections), axis)]
    return [ndarray(p) for p in torch.tensor_split(t, sections, axis)]


@_register("split")
def split(ary: Any, sections: Any, axis: int = 0) -> Any:
    """In parts of one size."""
    if isinstance(sections, int) and tensor_of(ary).shape[axis] % sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, sections, axis)


_register("hsplit")(lambda ary, n: split(ary, n, 1 if tensor_of(ary).dim() > 1 else 0))
_register("vsplit")(lambda ary, n: split(ary, n, 0))


@_register("repeat", methods=True)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Each element several times."""
    t = tensor_of(a)
    times = repeats if isinstance(repeats, int) else tensor_of(repeats)
    if axis is None:
        t, axis = t.reshape(-1), 0
    return ndarray(torch.repeat_interleave(t, times, axis))


@_register("tile")
def tile(A: Any, reps: Any) -> Any:
    """The whole several times."""
    return ndarray(torch.tile(tensor_of(A), reps if isinstance(reps, tuple) else (reps,)))


@_register("pad")
def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    """With more elements around: of a constant."""
    if mode != "constant":
        facts.refuse("numpy.pad is called with a mode other than constant.")
    t = tensor_of(array)
    value = kwargs.get("constant_values", 0)
    if not isinstance(value, (int, float)):
        facts.refuse("numpy.pad is called with several constants.")
    if isinstance(pad_width, int):
        pairs = [(pad_width, pad_width)] * t.dim()
    elif isinstance(pad_width[0], int):
        pairs = [tuple(pad_width) if len(pad_width) > 1 else pad_width * 2] * t.dim()
    else:
        pairs = [tuple(p) for p in pad_width] * (t.dim() if len(pad_width) == 1 else 1)
    flat = [n for p in pairs[::-1] for n in p]
    return ndarray(torch.nn.functional.pad(t, flat, value=value))


# ---- picked ----


@_register("take", methods=True)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """Elements (or slices) at places."""
    t, i = tensor_of(a), tensor_of(indices).long()
    if mode != "raise" or out is not None:
        facts.refuse("numpy.take is called with mode= or out=.")
    if axis is None:
        return wrapped(t.reshape(-1)[i])
    return wrapped(t[(slice(None),) * (axis % t.dim()) + (i,)])


@_register("take_along_axis")
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """Elements at places along an axis."""
    t, i = tensor_of(arr), tensor_of(indices).long()
    if axis is None:
        return ndarray(t.reshape(-1)[i])
    return ndarray(torch.take_along_dim(t, i, axis))


@_register("where")
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Elements of x where the condition holds, of y elsewhere; places where it holds."""
    c = tensor_of(condition).to(torch.bool)
    if x is None and y is None:
        return tuple([ndarray(t) for t in torch.where(c)])
    dtype = facts.promoted(sort_of(x), sort_of(y))
    parts = [number_or_tensor(v) for v in (x, y)]
    a, b = [
        v.to(dtype) if isinstance(v, torch.Tensor) else torch.scalar_tensor(v, dtype=dtype)
        for v in parts
    ]
    return ndarray(torch.where(c, a, b))


@_register("nonzero", methods=True)
def nonzero(a: Any) -> Any:
    """Places of what is not zero."""
    return tuple([ndarray(t) for t in torch.nonzero(tensor_of(a), as_tuple=True)])


@_register("flatnonzero")
def flatnonzero(a: Any) -> Any:
    """Places of what is not zero, of all elements in one dimension."""
    return ndarray(torch.nonzero(tensor_of(a).reshape(-1), as_tuple=True)[0])


@_register("clip", methods=True)
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    """Not below a_min, not above a_max."""
    low = kwargs.get("min", a_min)
    high = kwargs.get("max", a_max)
    x = _array(a)
    sorts = [sort_of(v) for v in (x, low, high) if v is not None]
    t = x.tensor.to(facts.promoted(*sorts))
    for bound, function in ((low, torch.maximum), (high, torch.minimum)):
        if bound is not None:
            b = number_or_tensor(bound)
            b = b if isinstance(b, torch.Tensor) else torch.scalar_tensor(b, dtype=t.dtype)
            t = function(t, b.to(t.dtype))
    if out is not None:
        out.tensor.copy_(t)
        return out
    return wrapped(t)


@_register("round", "around", methods=True)
def round_(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """To so many decimals; halves to the even number."""
    t = tensor_of(a)
    if not t.is_floating_point():
        return wrapped(t.clone())
    if decimals == 0:
        return wrapped(torch.round(t))
    scale = 10.0 ** abs(decimals)
    scaled = torch.round(t * scale) / scale if decimals > 0 else torch.round(t / scale) * scale
    return wrapped(scaled)


@_register("nan_to_num")
def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """NaN and infinities as numbers."""
    return wrapped(torch.nan_to_num(tensor_of(x), nan, posinf, neginf))


_register("tril")(lambda m, k=0: ndarray(torch.tril(tensor_of(m), k)))
_register("triu")(lambda m, k=0: ndarray(torch.triu(tensor_of(m), k)))
_register("diagflat")(lambda v, k=0: ndarray(torch.diagflat(tensor_of(v), k)))


@_register("diag")
def diag(v: Any, k: int = 0) -> Any:
    """The diagonal, or a matrix with it."""
    return ndarray(torch.diag(tensor_of(v), k))


@_register("diagonal", methods=True)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """A view of the diagonal."""
    return ndarray(torch.diagonal(tensor_of(a), offset, axis1, axis2))


@_register("meshgrid")
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Coordinates of a grid."""
    if sparse:
        facts.refuse("numpy.meshgrid is called with sparse=.")
    made = torch.meshgrid(*[tensor_of(x) for x in xi], indexing=indexing)
    return tuple([ndarray(t.clone()) for t in made])


@_register("bincount")
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number occurs."""
    w = None if weights is None else tensor_of(weights)
    return ndarray(torch.bincount(tensor_of(x), w, minlength))


@_register("unique")
def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """The sorted elements that occur."""
    if return_index or axis is not None:
        facts.refuse("numpy.unique is called with return_index= or axis=.")
    t = tensor_of(ar)
    found = torch.unique(t, True, return_inverse, return_counts)
    if isinstance(found, tuple):
        return tuple([ndarray(f) for f in found])
    return ndarray(found)


# ---- what is known of arrays ----

_register("shape")(lambda a: _array(a).shape)
_register("ndim")(lambda a: _array(a).ndim)
_register("size")(lambda a, axis=None: _array(a).size if axis is None else _array(a).shape[axis])
_register("real")(lambda a: _array(a).real)
_register("imag")(lambda a: _array(a).imag)
_register("iscomplexobj")(lambda x: _array(x).tensor.is_complex())
_register("isrealobj")(lambda x: not _array(x).tensor.is_complex())
_register("isscalar")(lambda x: isinstance(x, generic))
_register("angle")(
    lambda z, deg=False: wrapped(torch.angle(tensor_of(z)) * (180 / math.pi if deg else 1))
)
_register("may_share_memory", "shares_memory")(
    lambda a, b: facts.refuse("It is asked whether arrays share memory.")
)


# ---- made anew ----


@_register("array", creates=True)
def array(
    object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", subok: bool = False,
    ndmin: int = 0, like: Any = None,
) -> Any:  # fmt: skip
    """A new array of numbers, lists or arrays."""
    t = tensor_of(object, facts.torch_dtype(dtype))
    if isinstance(object, ndarray) and copy:
        t = t.clone()
    while t.dim() < ndmin:
        t = t.unsqueeze(0)
    return ndarray(t)


@_register("asarray", "asanyarray", "ascontiguousarray", creates=True)
def asarray(a: Any, dtype: Any = None, order: Any = None, **kwargs: Any) -> Any:
    """An array; itself where nothing is to be changed."""
    chosen = facts.torch_dtype(dtype)
    if (
        isinstance(a, ndarray)
        and not isinstance(a, generic)
        and (chosen is None or a.tensor.dtype == chosen)
    ):
        return a
    return ndarray(tensor_of(a, chosen))


def _filled(function: Callable[..., Any]) -> Callable[..., Any]:
    def fill(shape: Any, dtype: Any = float, order: str = "C", **kwargs: Any) -> Any:
        return ndarray(function(extents((shape,)), dtype=facts.torch_dtype(dtype)))

    return fill


_register("zeros", "empty", creates=True)(_filled(torch.zeros))
_register("ones", creates=True)(_filled(torch.ones))


@_register("full", creates=True)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", **kwargs: Any) -> Any:
    """An array of one value."""
    v = tensor_of(fill_value)
    chosen = v.dtype if dtype is None else facts.torch_dtype(dtype)
    return ndarray(v.to(chosen).expand(extents((shape,))).clone())


@_register("zeros_like", "empty_like")
def zeros_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **kw: Any
) -> Any:
    """Zeros in the shape of another array."""
    return _like(a, dtype, shape, 0)


@_register("ones_like")
def ones_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **kw: Any
) -> Any:
    """Ones in the shape of another array."""
    return _like(a, dtype, shape, 1)


@_register("full_like")
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True,
    shape: Any = None, **kw: Any,
) -> Any:  # fmt: skip
    """One value in the shape of another array."""
    return _like(a, dtype, shape, fill_value)


def _like(a: Any, dtype: Any, shape: Any, value: Any) -> Any:
    t = tensor_of(a)
    chosen = t.dtype if dtype is None else facts.torch_dtype(dtype)
    if shape is not None or isinstance(value, ndarray):
        v = tensor_of(value).to(chosen)
        return ndarray(v.expand(t.shape if shape is None else extents((shape,))).clone())
    return ndarray(torch.full_like(t, value, dtype=chosen))


@_register("arange", creates=True)
def arange(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """Numbers in steps."""
    values = [v.item() if isinstance(v, ndarray) or facts.is_constant(v) else v for v in args]
    whole = all(isinstance(v, int) for v in values)
    chosen = facts.default_ints() if whole else torch.float64
    return ndarray(torch.arange(*values, dtype=facts.torch_dtype(dtype) or chosen))


@_register("linspace", creates=True)
def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, **kwargs: Any,
) -> Any:  # fmt: skip
    """Numbers at equal distances."""
    if retstep or isinstance(start, ndarray) or isinstance(stop, ndarray):
        facts.refuse("numpy.linspace is called with arrays or retstep=.")
    n = num if endpoint else num + 1
    t = torch.linspace(start, stop, n, dtype=torch.float64)[:num]
    return ndarray(t if dtype is None else t.to(facts.torch_dtype(dtype)))


@_register("eye", creates=True)
def eye(N: int, M: Any = None, k: int = 0, dtype: Any = float, **kwargs: Any) -> Any:
    """Ones on a diagonal."""
    m = N if M is None else M
    t = torch.ones(N, m, dtype=facts.torch_dtype(dtype))
    return ndarray(torch.triu(torch.tril(t, k), k))


_register("identity", creates=True)(lambda n, dtype=float, **kw: eye(n, dtype=dtype))


@_register("tri", creates=True)
def tri(N: int, M: Any = None, k: int = 0, dtype: Any = float, **kwargs: Any) -> Any:
    """Ones on and below a diagonal."""
    return ndarray(
        torch.tril(torch.ones(N, N if M is None else M, dtype=facts.torch_dtype(dtype)), k)
    )
