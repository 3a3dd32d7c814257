"""The foreach forms, derived: an operator applied to lists of tensors.

`functions` are the public ones: a plain loop, of which each layer sees the single operators. The
overloads of torch.ops (`_foreach_add.List` and the like) are declared here too; they are nothing
but their decomposition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Opaque
from flambeau._src.ops.op import PACKETS

_NAMES = {"linalg_vector_norm": "norm"}
_MORE = ("copy_", "zero_", "linalg_vector_norm", "max", "clone")
_WEIGHTED = ("addcmul", "addcdiv")
_CLAMPS = {"maximum": "clamp_min", "minimum": "clamp_max"}


def _check(lists: Sequence[Any], n: int) -> None:
    for a in lists:
        if isinstance(a, (list, tuple)) and len(a) != n:
            if a and not isinstance(a[0], Tensor):
                raise RuntimeError("Tensor list must have same number of elements as scalar list.")
            raise RuntimeError(
                f"Tensor lists must have the same number of tensors, got {n} and {len(a)}"
            )
    if not n:
        raise RuntimeError("Tensor list must have at least one tensor.")


def _written(function: Callable[..., Any], t: Any, *rest: Any, **kwargs: Any) -> Any:
    """A form that writes. Inside `grad` and `jvp` single operators refuse to write what is not of
    the transform; these do it, and what the transform computes counts as constant there."""
    levels = state.thread.functorch
    serial = levels[-1].serial if levels else 0
    if not serial or t._born >= serial:
        return function(t, *rest, **kwargs)
    own = [aten.detach(v) if isinstance(v, Tensor) and v._born >= serial else v for v in rest]
    before = state.set_suspended(state.get_suspended() | state.FUNCTORCH)
    try:
        return function(t, *own, **kwargs)
    finally:
        state.set_suspended(before)


def _apply(name: str, inplace: bool) -> Any:
    function: Callable[..., Any] = getattr(aten, name, None) or getattr(aten, name[:-1])
    plain = name.removesuffix("_")
    if plain in _CLAMPS:
        function = _bounded(name)
    if plain in _WEIGHTED:
        function = _weighted(name)

    def foreach(self: Any, *args: Any, **kwargs: Any) -> Any:
        if plain in _WEIGHTED:
            args = _factors(self, args, kwargs)
        first = self if isinstance(self, (list, tuple)) or not args else args[0]
        n = len(first)
        _check((self, *args), n)
        results = [
            (_written if inplace else _called_with)(
                function,
                *[a[i] if isinstance(a, (list, tuple)) else a for a in (self, *args)],
                **kwargs,
            )
            for i in range(n)
        ]
        return self if inplace else tuple(results)

    foreach.__name__ = f"_foreach_{_NAMES.get(name, name)}"
    foreach.__doc__ = f"{name} on every tensor of a list; further lists go along with it."
    return foreach


def _called_with(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _weighted(name: str) -> Callable[..., Any]:
    function = getattr(aten, name)
    return lambda x, y, z, value=1: function(x, y, z, value=value)


def _factors(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments with the factors in their place: one number, or one for each tensor."""
    factors = args[2] if len(args) > 2 else kwargs.pop("scalars", kwargs.pop("value", 1))
    if isinstance(factors, Tensor):
        if factors.dim() != 1 or len(factors) != len(self):
            raise RuntimeError(
                f"Expected length of scalars to match input of length {len(self)} but got "
                f"{len(factors)} instead."
            )
        factors = factors.tolist()
    return (*args[:2], factors)


@functools.cache
def functions() -> dict[str, Any]:
    """`_foreach_<name>` for every pointwise operator, and a few others."""
    names = [
        name
        for (ns, name), p in PACKETS.items()
        if ns == "aten" and (name in _MORE or p.kind == "pointwise") and not name.startswith("_")
    ]
    table = {f"_foreach_{_NAMES.get(n, n)}": _apply(n, n.endswith("_")) for n in names}
    table["_foreach_pow"] = _apply("pow", False)
    for name in _CLAMPS:
        table[f"_foreach_{name}_"] = _apply(f"{name}_", True)
    return table


# ---- the overloads ----

_UNARY = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p
    log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"""
_ALPHA = ", *, Scalar alpha=1"
_LIST, _ONE = "Tensor[] other", "Scalar scalar"
_MANY, _TENSOR = "Scalar[] scalars", "Tensor other"
_EACH = {"List": _LIST, "Scalar": _ONE, "ScalarList": _MANY}
_PAIRS = "clamp_max clamp_min maximum minimum div mul sub add"
_THREE = "Tensor[] self, Tensor[] tensor1, Tensor[] tensor2"
_ENDS = "Tensor[] self, Tensor[] tensors1"


def _overload(name: str, overload: str, arguments: str, body: Callable[..., Any]) -> None:
    def decompose(*args: Any) -> list[Any]:
        first = next(a for a in args if isinstance(a, (list, tuple)))
        n = len(first)
        if not n:
            raise RuntimeError("Tensor list must have at least one tensor.")
        for a in args:
            if isinstance(a, (list, tuple)) and len(a) != n:
                raise RuntimeError(
                    f"Tensor lists must have the same number of tensors, got {n} and {len(a)}"
                )
        return [
            body(*[a[i] if isinstance(a, (list, tuple)) else a for a in args]) for i in range(n)
        ]

    dot = f".{overload}" if overload else ""
    type(f"Foreach_{name}_{overload}", (Opaque,), {
        "__doc__": f"{name} on every tensor of a list.", "__module__": __name__, "public": "",
        "schema": f"_foreach_{name}{dot}({arguments}) -> Tensor[]", "decompose": decompose,
    })  # fmt: skip


def _called(name: str, **fixed: Any) -> Callable[..., Any]:
    return lambda *args: getattr(aten, name)(*args, **fixed)


def _bounded(name: str) -> Callable[..., Any]:
    """maximum and minimum of tensors, and with a number: one more clamp."""
    plain = name.removesuffix("_")
    clamp = _CLAMPS[plain] + name[len(plain) :]

    def body(x: Tensor, y: Any) -> Any:
        if plain != name:
            return getattr(aten, clamp)(x, y)
        return getattr(aten, name if isinstance(y, Tensor) else clamp)(x, y)

    return body


def _declare() -> None:
    for name in _UNARY.split():
        _overload(name, "", "Tensor[] self", _called(name))
    _overload("zero", "", "Tensor[] self", _called("zeros_like"))
    _overload(
        "clone", "", "Tensor[] self, *, MemoryFormat? memory_format=None",
        lambda x, fmt: aten.clone(x, memory_format=fmt),
    )  # fmt: skip
    _overload("max", "", "Tensor[] self", _called("max"))
    _overload("mm", "", "Tensor[] self, Tensor[] mat2", _called("mm"))
    _overload("copy", "", "Tensor[] self, Tensor[] src, bool non_blocking=False", _called("copy"))
    for name in _PAIRS.split():
        body = _bounded(name) if name in ("maximum", "minimum") else _called(name)
        for overload, arguments in _EACH.items():
            if name in ("add", "sub") and overload == "List":
                _overload(
                    name, overload, f"Tensor[] self, {arguments}{_ALPHA}",
                    lambda x, y, alpha, name=name: getattr(aten, name)(x, y, alpha=alpha),
                )  # fmt: skip
            else:
                _overload(name, overload, f"Tensor[] self, {arguments}", body)
    for name in ("mul", "div"):
        _overload(name, "Tensor", f"Tensor[] self, {_TENSOR}", _called(name))
    _overload(
        "add", "Tensor", f"Tensor[] self, {_TENSOR}{_ALPHA}",
        lambda x, y, alpha: aten.add(x, y, alpha=alpha),
    )  # fmt: skip
    for overload, kind in (("List", "Tensor[]"), ("Scalar", "Scalar"), ("ScalarList", "Scalar[]")):
        _overload("pow", overload, f"Tensor[] self, {kind} exponent", _called("pow"))
        weights = "weights" if overload == "List" else "weight"
        _overload("lerp", overload, f"{_ENDS}, {kind} {weights}", _called("lerp"))
    _overload("pow", "ScalarAndTensor", "Scalar self, Tensor[] exponent", _called("pow"))
    for name in ("addcmul", "addcdiv"):

        def weighted(x: Any, y: Any, z: Any, v: Any, name: str = name) -> Any:
            return getattr(aten, name)(x, y, z, value=v)

        def by_tensor(xs: Any, ys: Any, zs: Any, v: Tensor, name: str = name) -> Any:
            values = v.tolist()
            return [
                getattr(aten, name)(x, y, z, value=n)
                for x, y, z, n in zip(xs, ys, zs, values, strict=True)
            ]

        _overload(name, "Scalar", f"{_THREE}, Scalar value=1", weighted)
        _overload(name, "ScalarList", f"{_THREE}, Scalar[] scalars", weighted)
        type(f"Foreach_{name}_Tensor", (Opaque,), {
            "__doc__": f"{name} on every tensor of a list, the factors in a tensor.",
            "__module__": __name__, "public": "", "decompose": staticmethod(by_tensor),
            "schema": f"_foreach_{name}.Tensor({_THREE}, Tensor scalars) -> Tensor[]",
        })  # fmt: skip
    _overload(
        "norm", "Scalar", "Tensor[] self, Scalar ord=2, ScalarType? dtype=None",
        lambda x, p, dtype: aten.linalg_vector_norm(x, p, dtype=dtype),
    )  # fmt: skip
    _overload(
        "powsum", "Scalar", "Tensor[] self, Scalar ord=2, ScalarType? dtype=None",
        lambda x, p, dtype: aten.sum(aten.pow(aten.abs(x), p), dtype=dtype),
    )  # fmt: skip


_declare()
