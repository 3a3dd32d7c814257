"""NumPy's universal functions, element by element, and the operators of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau._numpy import facts
from flambeau._numpy.array import generic, ndarray, number_or_tensor, sort_of, wrapped

__all__ = ["FUNCTIONS", "apply"]


def _divided(a: Any, b: Any, how: Callable[..., Any]) -> Any:
    """Of integers a division by zero is 0."""
    if a.is_floating_point():
        return how(a, b)
    none = b == 0
    return torch.where(none, torch.zeros_like(a), how(a, torch.where(none, torch.ones_like(b), b)))


def _floor_divide(a: Any, b: Any) -> Any:
    return _divided(a, b, torch.floor_divide)


def _remainder(a: Any, b: Any) -> Any:
    return _divided(a, b, torch.remainder)


def _fmod(a: Any, b: Any) -> Any:
    return _divided(a, b, torch.fmod)


def _cbrt(a: Any) -> Any:
    return torch.sign(a) * torch.abs(a) ** (1 / 3)


def _sign(a: Any) -> Any:
    return torch.where(torch.isnan(a), a, torch.sgn(a)) if a.is_floating_point() else torch.sgn(a)


def _negative(a: Any) -> Any:
    return -a


def _heaviside(a: Any, b: Any) -> Any:
    return torch.where(torch.isnan(a), a, torch.heaviside(a, b))


#: By name: the function of tensors in the ufunc's own dtypes.
_OF_ONE: dict[str, Callable[..., Any]] = {
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "arcsin": torch.asin,
    "arccos": torch.acos, "arctan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "tanh": torch.tanh, "arcsinh": torch.asinh, "arccosh": torch.acosh, "arctanh": torch.atanh,
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sqrt": torch.sqrt,
    "cbrt": _cbrt, "square": torch.square, "absolute": torch.abs, "fabs": torch.abs,
    "negative": _negative, "positive": torch.clone, "sign": _sign, "floor": torch.floor,
    "ceil": torch.ceil, "trunc": torch.trunc, "rint": torch.round, "reciprocal": torch.reciprocal,
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite,
    "signbit": torch.signbit, "logical_not": torch.logical_not, "invert": torch.bitwise_not,
    "conjugate": torch.conj_physical, "degrees": torch.rad2deg, "rad2deg": torch.rad2deg,
    "radians": torch.deg2rad, "deg2rad": torch.deg2rad,
}  # fmt: skip
_OF_TWO: dict[str, Callable[..., Any]] = {
    "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
    "floor_divide": _floor_divide, "power": torch.pow, "float_power": torch.pow,
    "remainder": _remainder, "fmod": _fmod, "maximum": torch.maximum, "minimum": torch.minimum,
    "fmax": torch.fmax, "fmin": torch.fmin, "arctan2": torch.atan2, "hypot": torch.hypot,
    "copysign": torch.copysign, "nextafter": torch.nextafter, "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2, "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt,
    "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge,
    "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor,
    "left_shift": torch.bitwise_left_shift, "right_shift": torch.bitwise_right_shift,
    "gcd": torch.gcd, "lcm": torch.lcm, "heaviside": _heaviside,
}  # fmt: skip
#: Which of them are the same with a Python number in place of a tensor.
_NUMBERS = frozenset(
    ("add", "subtract", "multiply", "divide", "equal", "not_equal", "less", "less_equal")
    + ("greater", "greater_equal")
)


def apply(name: str, *operands: Any) -> Any:
    """A universal function of arrays and what becomes one, in the dtypes that NumPy chooses."""
    function = _OF_ONE.get(name) or _OF_TWO[name]
    *dtypes, result = facts.loop(name, *[sort_of(x) for x in operands])
    values = [number_or_tensor(x) for x in operands]
    tensors = any(isinstance(v, torch.Tensor) for v in values)
    given = []
    for v, dtype in zip(values, dtypes, strict=True):
        if not isinstance(v, torch.Tensor):
            direct = tensors and name in _NUMBERS and dtype == result
            given.append(v if direct else torch.scalar_tensor(v, dtype=dtype))
        else:
            given.append(v if v.dtype == dtype else v.to(dtype))
    out = function(*given)
    if out.dtype != result:
        out = out.to(result)
    return wrapped(out)


def _ufunc(name: str) -> Callable[..., Any]:
    def function(*operands: Any, out: Any = None, where: Any = True, dtype: Any = None) -> Any:
        if where is not True:
            facts.refuse(f"numpy.{name} is called with where=.")
        made = apply(name, *operands)
        if dtype is not None:
            made = made.astype(dtype)
        return made if out is None else _into(out, made)

    function.__name__ = name
    return function


def _into(out: Any, made: Any) -> Any:
    target = out[0] if isinstance(out, tuple) else out
    facts.check_into(target.tensor.dtype, made.tensor.dtype)
    target.tensor.copy_(made.tensor)
    return target


def divmod_(a: Any, b: Any) -> Any:
    """Quotient and remainder."""
    return apply("floor_divide", a, b), apply("remainder", a, b)


def _rdivmod(a: Any, b: Any) -> Any:
    return divmod_(b, a)


def modf(a: Any) -> Any:
    """Fraction and whole part."""
    x = wrapped(number_or_tensor(a)) * 1.0
    whole = apply("trunc", x)
    return apply("copysign", x - whole, x), whole


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _ufunc(name) for name in (*_OF_ONE, *_OF_TWO)},
    "divmod": divmod_,
    "modf": modf,
}


# ---- operators ----

_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
_COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip


def _operator(name: str, reflected: bool) -> Callable[[Any, Any], Any]:
    def of_two(self: Any, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return facts.refuse("A tensor meets an array of NumPy's.")
        return apply(name, other, self) if reflected else apply(name, self, other)

    return of_two


def _inplace(name: str) -> Callable[[Any, Any], Any]:
    def in_place(self: Any, other: Any) -> Any:
        made = apply(name, self, other)
        if self.tensor.dim() == 0 and made.tensor.dim() == 0:
            return made if isinstance(self, generic) else _into(self, made)
        return _into(self, made)

    return in_place


for _name, _function in _OPERATORS.items():
    setattr(ndarray, f"__{_name}__", _operator(_function, False))
    setattr(ndarray, f"__r{_name}__", _operator(_function, True))
    setattr(ndarray, f"__i{_name}__", _inplace(_function))
setattr(ndarray, "__divmod__", divmod_)  # noqa: B010
setattr(ndarray, "__rdivmod__", _rdivmod)  # noqa: B010
for _name, _function in _COMPARISONS.items():
    setattr(ndarray, f"__{_name}__", _operator(_function, False))


def _one(name: str) -> Callable[[Any], Any]:
    def of_one(self: Any) -> Any:
        return apply(name, self)

    return of_one


for _name, _function in {
    "__neg__": "negative", "__pos__": "positive", "__abs__": "absolute", "__invert__": "invert",
    "conj": "conjugate", "conjugate": "conjugate",
}.items():  # fmt: skip
    setattr(ndarray, _name, _one(_function))
