"""Arrays of NumPy over tensors: `ndarray`, and `generic` for NumPy's scalars.

Operators and methods are NumPy's, each a program of tensors. An array's bytes are its tensor's:
views share them, and what is written in place is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flambeau as torch
from flambeau._numpy import facts

__all__ = ["generic", "ndarray", "number_or_tensor", "sort_of", "tensor_of", "wrapped"]


class ndarray:
    """An array: its tensor, which has its shape, strides and dtype."""

    _stands_for_numpy = "ndarray"  # the capture knows the class by it
    __array_ufunc__ = None  # operators of NumPy's own objects leave it to ours

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return facts.unknown(name)

    # ---- what it is ----

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """How many dimensions."""
        n: int = self.tensor.dim()
        return n

    @property
    def size(self) -> int:
        """How many elements."""
        n: int = self.tensor.numel()
        return n

    @property
    def dtype(self) -> Any:
        """NumPy's dtype."""
        return facts.numpy_dtype(self.tensor.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        n: int = self.tensor.element_size()
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        n: int = self.tensor.element_size() * self.tensor.numel()
        return n

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by dimension."""
        return tuple([n * self.tensor.element_size() for n in self.tensor.stride()])

    @property
    def T(self) -> ndarray:
        """The dimensions in reverse."""
        return self.transpose()

    @property
    def mT(self) -> ndarray:
        """The last two dimensions exchanged."""
        return ndarray(self.tensor.mT)

    @property
    def real(self) -> Any:
        """The real part."""
        return wrapped(self.tensor.real, self)

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        t = self.tensor
        return wrapped(t.imag if t.is_complex() else torch.zeros_like(t), self)

    def __len__(self) -> int:
        if not self.tensor.dim():
            raise TypeError("len() of unsized object")
        n: int = self.tensor.shape[0]
        return n

    def __iter__(self) -> Iterator[Any]:
        if not self.tensor.dim():
            raise TypeError("iteration over a 0-d array")
        return iter([wrapped(t) for t in self.tensor.unbind(0)])

    def __contains__(self, value: Any) -> Any:
        return bool((self == value).any())

    # ---- values ----

    def item(self, *at: Any) -> Any:
        """One element as a Python number."""
        t = self.tensor.reshape(-1)[at[0]] if len(at) == 1 and type(at[0]) is int else self.tensor
        return (t[at] if len(at) > 1 else t).item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self.tensor.tolist()

    def __bool__(self) -> bool:
        if self.tensor.numel() != 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. "
                "Use a.any() or a.all()"
            )
        return bool(self.tensor)

    def __float__(self) -> float:
        return float(self.tensor)

    def __int__(self) -> int:
        return int(self.tensor)

    def __index__(self) -> int:
        return int(self.tensor)

    def __hash__(self) -> int:
        return int(facts.refuse("An array is hashed."))

    # ---- items ----

    def __getitem__(self, key: Any) -> Any:
        parts = key if type(key) is tuple else (key,)
        if any(_backward(p) for p in parts):
            found = _reversed(self.tensor, parts)
        else:
            found = self.tensor[_index(key)]
        whole = any(p is Ellipsis for p in parts)
        return ndarray(found) if whole or found.dim() else generic(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        v = number_or_tensor(value)
        if isinstance(v, torch.Tensor) and v.dtype != self.tensor.dtype:
            v = v.to(self.tensor.dtype)
        if any(_backward(p) for p in (key if type(key) is tuple else (key,))):
            facts.refuse("Items of slices that go backward are set.")
        self.tensor[_index(key)] = v

    # ---- copies and views ----

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
        copy: bool = True,
    ) -> Any:  # fmt: skip
        """A copy in another dtype."""
        return wrapped(self.tensor.to(facts.torch_dtype(dtype), copy=copy), self)

    def copy(self, order: str = "C") -> ndarray:
        """A contiguous copy."""
        return ndarray(self.tensor.clone(memory_format=torch.contiguous_format))

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        return self.copy()

    def view(self, dtype: Any = None) -> ndarray:
        """The bytes as another dtype."""
        return ndarray(
            self.tensor.view_as(self.tensor)
            if dtype is None
            else self.tensor.view(facts.torch_dtype(dtype))
        )

    def fill(self, value: Any) -> None:
        """Set all elements."""
        self.tensor.fill_(number_or_tensor(value))

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> ndarray:
        """Another shape for the same elements."""
        if order != "C":
            facts.refuse("Another order than C's is asked for.")
        return ndarray(self.tensor.reshape(extents(shape)))

    def ravel(self, order: str = "C") -> ndarray:
        """All elements in one dimension; a view where that can be."""
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> ndarray:
        """A copy of all elements in one dimension."""
        return self.reshape(-1, order=order).copy()

    def transpose(self, *axes: Any) -> ndarray:
        """The dimensions in another order; reversed for none."""
        n = self.tensor.dim()
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        if not axes or axes == (None,):
            order = tuple(range(n))[::-1]
        return ndarray(self.tensor.permute(tuple(order)))

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        """Two dimensions exchanged."""
        return ndarray(self.tensor.transpose(axis1, axis2))

    def squeeze(self, axis: Any = None) -> ndarray:
        """Without dimensions of extent 1."""
        t = self.tensor
        if axis is None:
            return ndarray(t.squeeze())
        for a in axis if isinstance(axis, tuple) else (axis,):
            if t.shape[a] != 1:
                raise ValueError(
                    "cannot select an axis to squeeze out which has size not equal to one"
                )
        return ndarray(t.squeeze(axis))


class generic(ndarray):
    """A scalar of NumPy's: of no dimensions, and not writable."""

    _stands_for_numpy = "generic"

    def __setitem__(self, key: Any, value: Any) -> None:
        name = facts.scalar_class(self.tensor.dtype).__name__
        raise TypeError(f"'numpy.{name}' object does not support item assignment")


def extents(shape: Any) -> tuple[Any, ...]:
    """A shape given as ints or as one sequence of them."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = shape[0]
    return tuple([int(n) if isinstance(n, ndarray) or facts.is_constant(n) else n for n in shape])


def _index(key: Any) -> Any:
    if isinstance(key, ndarray):
        t = key.tensor
        return t if t.dtype in (torch.bool, torch.uint8) else t.long()
    if type(key) is tuple:
        return tuple([_index(k) for k in key])
    if type(key) is list:
        found, _ = facts.listed(key) if not _holds_arrays(key) else ([_index(k) for k in key], None)
        return torch.tensor(found)
    if facts.is_constant(key):
        return facts.constant(key)[0]
    return key


def _backward(part: Any) -> bool:
    return type(part) is slice and part.step is not None and part.step < 0


def _reversed(t: Any, parts: Any) -> Any:
    """Items of slices of which some go backward: a copy."""
    taken = sum([p is not None and p is not Ellipsis for p in parts])
    at = axis = 0
    picked: list[Any] = []
    turned = []
    for p in parts:
        if p is Ellipsis:
            skipped = t.dim() - taken
            picked += [slice(None)] * skipped
            at, axis = at + skipped, axis + skipped
        elif p is None:
            picked.append(None)
            axis += 1
        elif _backward(p):
            places = range(*p.indices(int(t.shape[at])))
            low, high = (places[-1], places[0] + 1) if len(places) else (0, 0)
            picked.append(slice(low, high, -p.step))
            turned.append(axis)
            at, axis = at + 1, axis + 1
        elif type(p) is slice or type(p) is int:
            picked.append(p)
            at, axis = at + 1, axis + (type(p) is slice)
        else:
            facts.refuse("Slices that go backward stand beside arrays of places.")
    return torch.flip(t[tuple(picked)], turned)


def _holds_arrays(values: Any) -> bool:
    return any(isinstance(v, ndarray) for v in values)


def wrapped(t: Any, like: Any = None) -> Any:
    """A tensor as an array; as a scalar if it has no dimensions and `like`, if given, is one."""
    if (
        not isinstance(t, torch.Tensor)
        or t.dim()
        or not (like is None or isinstance(like, generic))
    ):
        return ndarray(t)
    return generic(t)


def number_or_tensor(value: Any) -> Any:
    """An operand: a Python number as it is, everything else as a tensor."""
    if isinstance(value, ndarray):
        return value.tensor
    if isinstance(value, (bool, int, float, complex)) and not facts.is_constant(value):
        return value
    return tensor_of(value)


def tensor_of(value: Any, dtype: Any = None) -> Any:
    """What becomes an array, as a tensor."""
    if isinstance(value, ndarray):
        t = value.tensor
    elif isinstance(value, torch.Tensor):
        return facts.refuse("A tensor is given to a function of NumPy's.")
    elif isinstance(value, (list, tuple)) and _deep(value):
        t = torch.stack([tensor_of(v) for v in _alike(value)])
    elif isinstance(value, (torch.SymInt, torch.SymFloat)):
        t = torch.tensor(value)
    else:
        numbers, found = facts.listed(value)
        return torch.tensor(numbers, dtype=found if dtype is None else dtype)
    return t if dtype is None or t.dtype == dtype else t.to(dtype)


def _deep(values: Any) -> bool:
    """Whether there is an array somewhere in nested lists."""
    return any(
        isinstance(v, ndarray) or (isinstance(v, (list, tuple)) and _deep(v)) for v in values
    )


def _alike(values: Any) -> Any:
    """The items as arrays of one dtype."""
    made = [tensor_of(v) for v in values]
    dtype = facts.promoted(*[t.dtype for t in made])
    return [ndarray(t.to(dtype)) for t in made]


def sort_of(value: Any) -> Any:
    """As what an operand counts in promotions: a dtype, or the type of a Python number."""
    if isinstance(value, ndarray):
        return value.tensor.dtype
    if facts.is_constant(value):
        return facts.constant(value)[1]
    for kind in (bool, int, float, complex):
        if isinstance(value, kind):
            return kind
    return tensor_of(value).dtype


def method(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function of arrays a method of them too."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(ndarray, name, function)
        return function

    return add
