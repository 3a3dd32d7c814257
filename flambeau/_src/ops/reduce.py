"""Sums, means, extremes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Composite, Opaque, Reduction, wrap_dim, wrap_dims
from flambeau._src.ops.op import Op


def spread(g: Any, x: Any, dim: Any, keepdim: bool) -> Any:
    """A reduction's gradient, brought back over the reduced dimensions."""
    if not keepdim and x.dim():
        for d in wrap_dims(dim, x.dim()):
            g = g.unsqueeze(d)
    return g.expand(x.shape)


def reduction_samples(s: Any) -> Iterator[Any]:
    """Dimensions, keepdim, and shapes that a reduction with dims should meet."""
    for shape, dim, keep in (
        ((3, 4), 0, False),
        ((3, 4), (0, 1), True),
        ((2, 3, 4, 5), (1, 3), False),
        ((), 0, False),
        ((3, 0), 0, False),
    ):
        yield s.sample(s.tensor(shape), dim, keep)


class Sum(Reduction):
    """The sum over all elements."""

    schema = "sum(Tensor self, *, ScalarType? dtype=None) -> Tensor"
    promotion = "sum"
    autocast = "fp32"
    splits = True
    reference = "numpy.sum"

    def expr(k: Any, x: Any) -> Any:
        return k.sum(x)

    @classmethod
    def fast(cls, op: Op) -> Any:
        f = _native.Fast("sum", 1, (), False, False, (None,))
        op.base.__dict__.setdefault("fasts", []).append((f, False))
        if op.variant != "functional":
            return None
        f.set_parts(SumDim.op.fast)
        return f

    def vjp(b: Any, g: Any, x: Any, dtype: Any) -> Any:
        return g.expand(x.shape) if g.dtype is x.dtype else g.to(x.dtype).expand(x.shape)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 4), (), (0, 2), (2, 3, 4, 5)):
            yield s.sample(s.tensor(shape))


class SumDim(Reduction):
    """The sum over dimensions."""

    schema = (
        "sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) "
        "-> Tensor"
    )
    promotion = "sum"
    out = "IntList_out"
    autocast = "fp32"
    samples = reduction_samples
    reference = "numpy.sum"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), [2])
        yield s.error(
            RuntimeError, "appears multiple times in the list of dims", s.tensor((2, 3)), [0, 0]
        )

    def expr(k: Any, x: Any) -> Any:
        return k.sum(x)

    @classmethod
    def fast(cls, op: Op) -> Any:
        if op.variant != "functional":
            return None
        f = _native.Fast("sum_dim", 1)
        op.__dict__.setdefault("fasts", []).append((f, False))
        return f

    def vjp(b: Any, g: Any, x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
        g = g if g.dtype is x.dtype else g.to(x.dtype)
        return spread(g, x, dim, keepdim)


def check_floating(name: str, x: Tensor, dtype: Any) -> None:
    d = dtype or x.dtype
    if not (d.is_floating_point or d.is_complex):
        if dtype is None:
            raise RuntimeError(
                f"{name}(): could not infer output dtype. Input dtype must be either a floating "
                f"point or complex dtype. Got: {dt.scalar_name(x.dtype)}"
            )
        raise RuntimeError(
            f"{name}(): could not infer output dtype. Optional dtype must be either a floating "
            f"point or complex dtype. Got: {dt.scalar_name(dtype)}"
        )


def mean_of(k: Any, x: Any) -> Any:
    return k.sum(x) / k.count()


class Mean(Reduction):
    """The mean over all elements."""

    schema = "mean(Tensor self, *, ScalarType? dtype=None) -> Tensor"
    out = "dtype_out"
    expr = mean_of
    reference = "numpy.mean"

    def check(x: Tensor, dtype: Any) -> None:
        check_floating("mean", x, dtype)

    def vjp(b: Any, g: Any, x: Any, dtype: Any) -> Any:
        g = g if g.dtype is x.dtype else g.to(x.dtype)
        return g.expand(x.shape) / max(x.numel(), 1)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 4), (), (2, 3, 4, 5)):
            yield s.sample(s.tensor(shape))


class MeanDim(Reduction):
    """The mean over dimensions."""

    schema = (
        "mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) "
        "-> Tensor"
    )
    out = "out"
    expr = mean_of
    reference = "numpy.mean"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), [2])
        yield s.error(RuntimeError, "could not infer output dtype", s.ints((2, 3), 0, 3), [0])

    def check(x: Tensor, dim: Any, keepdim: bool, dtype: Any) -> None:
        check_floating("mean", x, dtype)

    def vjp(b: Any, g: Any, x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
        n = 1
        for d in wrap_dims(dim, x.dim()):
            n *= x.shape[d] if x.dim() else 1
        g = g if g.dtype is x.dtype else g.to(x.dtype)
        return spread(g, x, dim, keepdim) / n

    def samples(s: Any) -> Iterator[Any]:
        for shape, dim, keep in (
            ((3, 4), 0, False),
            ((3, 4), (0, 1), True),
            ((2, 3, 4, 5), (1, 3), False),
        ):
            yield s.sample(s.tensor(shape), dim, keep)


class Truth(Reduction):
    """Reductions of truth values: bool, but uint8 of uint8."""

    promotion = "bool"
    differentiable = False
    empty_is_all = False
    splits = True

    @classmethod
    def infer(cls, op: Op, args: tuple[Any, ...]) -> Any:
        spec = super().infer(op, args)
        if args[0].dtype is dt.uint8:
            spec.dtype = dt.uint8
        return spec


def _truth(name: str) -> None:
    def expr(k: Any, x: Any) -> Any:
        return getattr(k, name)(x if x.dtype == "bool" else x != 0)

    def check_out(source: Any, to: Any) -> None:
        if to not in (dt.bool_, dt.uint8):
            raise RuntimeError(
                f"{name} only supports bool tensor for result, got: {dt.scalar_name(to)}"
            )

    for title, schema, out in (
        ("", f"{name}(Tensor self) -> Tensor", "all_out"),
        ("Dim", f"{name}.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", "out"),
        (
            "Dims",
            f"{name}.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
            "dims_out",
        ),
    ):
        type(
            f"{name.capitalize()}{title}",
            (Truth,),
            {
                "check_out": staticmethod(check_out),
                "__doc__": f"{name} of the truth values.",
                "__module__": __name__,
                "schema": schema,
                "out": out,
                "expr": expr,
            },
        )


_truth("any")
_truth("all")


def _all_true(name: str) -> None:
    def decompose(x: Tensor) -> Any:
        return getattr(aten, name)(x)

    type(f"Is{name}True", (Opaque,), {
        "__doc__": f"{name} of truth values.", "__module__": __name__, "decompose": decompose,
        "schema": f"_is_{name}_true(Tensor self) -> Tensor", "differentiable": False,
    })  # fmt: skip


_all_true("all")
_all_true("any")


class Prod(Reduction):
    """The product over all elements."""

    schema = "prod(Tensor self, *, ScalarType? dtype=None) -> Tensor"
    promotion = "sum"

    def expr(k: Any, x: Any) -> Any:
        return k.prod(x)

    def vjp(b: Any, g: Any, x: Any, dtype: Any) -> Any:
        if not x.dim():
            return g
        return prod_gradient(g.reshape(1), x.reshape(-1), 0).reshape(x.shape)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 2), (1,), ()):
            yield s.sample(s.tensor(shape))


def prod_gradient(g: Any, x: Any, dim: int) -> Any:
    """g times the product of all others along dim: products from both sides,
    so that zeros are right."""
    n = x.shape[dim]
    if not n:
        return g * x
    x = aten.conj(x) if x.dtype.is_complex else x
    ones = aten.ones_like(x.narrow(dim, 0, 1))
    before = aten.cat([ones, x.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    after = aten.cat([ones, x.flip([dim]).narrow(dim, 0, n - 1)], dim).cumprod(dim).flip([dim])
    return g * before * after


class ProdDim(Reduction):
    """The product along a dimension."""

    schema = (
        "prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) "
        "-> Tensor"
    )
    promotion = "sum"
    out = "int_out"

    def expr(k: Any, x: Any) -> Any:
        return k.prod(x)

    def vjp(b: Any, g: Any, x: Any, dim: int, keepdim: bool, dtype: Any) -> Any:
        if not x.dim():
            return g
        g = g if keepdim else g.unsqueeze(wrap_dim(dim, x.dim()))
        return prod_gradient(g, x, wrap_dim(dim, x.dim()))


def check_not_empty(name: str, x: Tensor, dim: Any) -> None:
    dims = wrap_dims(dim, x.dim())
    if dim is None:
        if not x.numel():
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
                "the reduction dim with the 'dim' argument."
            )
        return
    for d in dims:
        if x.dim() and not x.shape[d]:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def even_share(g: Any, x: Any, value: Any, dim: Any, keepdim: bool) -> Any:
    """A gradient shared evenly by the elements that equal the extreme value."""
    if not keepdim and x.dim():
        for d in wrap_dims(dim, x.dim()):
            g, value = g.unsqueeze(d), value.unsqueeze(d)
    mask = x == value
    if x.dtype.is_floating_point:
        mask = mask | (aten.isnan(x) & aten.isnan(value))
    mask = mask.to(g.dtype)
    count = (
        mask.sum(dim if dim is None else list(wrap_dims(dim, x.dim())), True) if x.dim() else mask
    )
    return g * mask / count


def variance_samples(s: Any) -> Iterator[Any]:
    yield s.sample(s.tensor((2, 3, 4, 5)), [1, 3])
    yield s.sample(s.tensor((3, 4)), [0], correction=0, keepdim=True)
    yield s.sample(s.tensor((2, 3, 4)), None, correction=1)
    yield s.sample(s.tensor((0, 3)), [1])
    yield s.sample(s.tensor(()), [0], correction=0)


def variance_errors(s: Any) -> Iterator[Any]:
    yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), [2])


def along_samples(s: Any) -> Iterator[Any]:
    """Of reductions along one dimension that need elements there."""
    for shape, dim, keep in (
        ((2, 3, 4, 5), 1, False), ((3, 4), -1, True), ((), 0, False), ((0, 3), 1, False),
    ):  # fmt: skip
        yield s.sample(s.tensor(shape), dim, keep)


def along_errors(s: Any) -> Iterator[Any]:
    yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), 2)
    yield s.error(IndexError, "to have non-zero size", s.tensor((2, 0)), 1)


def _extremes(name: str) -> None:
    """Over all elements, over several dimensions, and of two tensors."""

    def expr(k: Any, x: Any) -> Any:
        return getattr(k, name)(x)

    def check(x: Tensor) -> None:
        check_not_empty(name, x, None)

    def vjp(b: Any, g: Any, x: Any) -> Any:
        return even_share(g, x, b.out, None, False)

    def check_out(source: Any, to: Any) -> None:
        raise RuntimeError(
            f"Expected the dtype for input and out to match, but got {dt.scalar_name(source)} for "
            f"input's dtype and {dt.scalar_name(to)} for out's dtype."
        )

    def vjp_am(b: Any, g: Any, x: Any, dim: Any, keepdim: bool) -> Any:
        return even_share(g, x, b.out, dim if dim else None, keepdim)

    def samples(s: Any) -> Iterator[Any]:
        for shape in ((3, 4), (), (2, 3, 4)):
            yield s.sample(s.tensor(shape))

    title = name.capitalize()
    type(
        title,
        (Reduction,),
        {
            "__doc__": f"The {name} of all elements.",
            "__module__": __name__,
            "schema": f"{name}(Tensor self) -> Tensor",
            "out": "unary_out",
            "splits": True,
            "expr": expr,
            "check": check,
            "vjp": vjp,
            "samples": samples,
        },
    )

    def decompose(self: Tensor, other: Tensor) -> Tensor:
        return getattr(aten, f"{name}imum")(self, other)

    type(
        f"{title}Other",
        (Composite,),
        {
            "__doc__": f"The {name} of two, element by element.",
            "__module__": __name__,
            "schema": f"{name}.other(Tensor self, Tensor other) -> Tensor",
            "decompose": decompose,
            "out": "out",
        },
    )
    type(
        f"A{name}",
        (Reduction,),
        {
            "__doc__": f"The {name} over dimensions; ties share the gradient.",
            "__module__": __name__,
            "schema": f"a{name}(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
            "out": "out",
            "check_out": staticmethod(check_out),
            "splits": True,
            "expr": expr,
            "check": lambda x, dim, keepdim: check_not_empty(f"a{name}", x, dim or None),
            "vjp": vjp_am,
        },
    )


def _places(name: str) -> None:
    """Along one dimension: with where the extreme stands, and only that."""

    def expr(k: Any, x: Any) -> Any:
        i = getattr(k, f"arg{name}")(x)
        return getattr(k, name)(x), i

    def check(x: Tensor, dim: Any, keepdim: bool) -> None:
        check_not_empty(name, x, dim)

    def vjp(b: Any, g: Any, x: Any, dim: int, keepdim: bool) -> Any:
        return value_gradient(g[0], b.outs[1], x, dim, keepdim)

    type(
        f"{name.capitalize()}Dim",
        (Reduction,),
        {
            "__doc__": f"The {name} along a dimension, and where it stands.",
            "__module__": __name__,
            "samples": along_samples,
            "error_samples": along_errors,
            "schema": f"{name}.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, "
            "Tensor indices)",
            "result_types": (None, "int64"),
            "out": f"dim_{name}",
            "out_args": (name, f"{name}_values"),
            "expr": expr,
            "check": check,
            "vjp": vjp,
            "differentiable": (0,),
            "undefined_grads": False,
            "out_dtype": "exact",
        },
    )

    def arg_expr(k: Any, x: Any) -> Any:
        return getattr(k, f"arg{name}")(x)

    type(
        f"Arg{name}",
        (Reduction,),
        {
            "__doc__": f"Where the {name} stands: the first index.",
            "__module__": __name__,
            "samples": along_samples,
            "error_samples": along_errors,
            "schema": f"arg{name}(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
            "result_types": ("int64",),
            "out": "out",
            "expr": arg_expr,
            "differentiable": False,
            "out_dtype": "exact",
            "check": lambda x, dim, keepdim: check_not_empty(f"arg{name}", x, dim),
        },
    )


def value_gradient(g: Any, indices: Any, x: Any, dim: int, keepdim: bool) -> Any:
    """The gradient of values picked along dim at indices."""
    if not x.dim():
        return g
    d = wrap_dim(dim, x.dim())
    if not keepdim:
        g, indices = g.unsqueeze(d), indices.unsqueeze(d)
    return aten.scatter(aten.zeros(x.shape, dtype=g.dtype, device=g.device), d, indices, g)


for _n in ("max", "min"):
    _extremes(_n)
    _places(_n)


def _variance(k: Any, x: Any, correction: Any) -> tuple[Any, Any]:
    """Two passes: the mean, then the squares of what is left."""
    mean = k.sum(x) / k.count()
    d = x - mean
    degrees = k.maximum(k.count() - correction, 0)
    if x.dtype.startswith("complex"):
        square = k.real(d) * k.real(d) + k.imag(d) * k.imag(d)
    else:
        square = d * d
    return k.sum(square) / degrees, mean


def _var_vjp(g: Any, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    n = 1
    for d in wrap_dims(dim, x.dim()):
        n *= x.shape[d] if x.dim() else 1
    c = 1 if correction is None else correction
    mean = x.mean(list(wrap_dims(dim, x.dim())) if x.dim() else None, True) if x.dim() else x
    degrees = n - c
    scale = 2.0 / degrees if degrees > 0 else float("inf") if degrees == 0 else 2.0 / degrees
    return (scale * spread(g, x, dim, keepdim)) * (x - mean)


class Variance(Reduction):
    """Second moments; `correction` is taken from the count."""

    out = "correction_out"
    result_types = ("real",)

    @classmethod
    def params(cls, n: dict[str, Any]) -> list[Any]:
        return [1 if n["correction"] is None else n["correction"]]


def _moments() -> None:
    def check(x: Tensor, dim: Any, correction: Any, keepdim: bool) -> None:
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            raise RuntimeError("std and var only support floating point and complex dtypes")

    args = "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)"

    def var_vjp(b: Any, g: Any, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
        return _var_vjp(g, x, dim, correction, keepdim)

    def std_vjp(b: Any, g: Any, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
        half = g / (2 * b.out)
        half = aten.masked_fill(half, b.out == 0, 0)
        return _var_vjp(half, x, dim, correction, keepdim)

    def pair_vjp(of: Any) -> Any:
        def vjp(b: Any, g: Any, x: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
            first, mean = g
            total = None
            if first is not None:
                total = of(b, first, x, dim, correction, keepdim)
            if mean is not None:
                n = 1
                for d in wrap_dims(dim, x.dim()):
                    n *= x.shape[d] if x.dim() else 1
                m = spread(mean, x, dim, keepdim) / n
                total = m if total is None else total + m
            return total

        return vjp

    def var(k: Any, x: Any, c: Any) -> Any:
        return _variance(k, x, c)[0]

    def std(k: Any, x: Any, c: Any) -> Any:
        return k.sqrt(_variance(k, x, c)[0])

    def std_mean(k: Any, x: Any, c: Any) -> Any:
        v, m = _variance(k, x, c)
        return k.sqrt(v), m

    common: dict[str, Any] = {"__module__": __name__, "check": check}
    type(
        "Var",
        (Variance,),
        {"schema": f"var.correction{args} -> Tensor", "expr": var, "vjp": var_vjp, **common},
    )
    type(
        "Std",
        (Variance,),
        {"schema": f"std.correction{args} -> Tensor", "expr": std, "vjp": std_vjp, **common},
    )
    two = {
        **common,
        "result_types": ("real", None),
        "out_args": ("out0", "out1"),
        "undefined_grads": True,
    }
    type(
        "VarMean",
        (Variance,),
        {
            "samples": variance_samples,
            "error_samples": variance_errors,
            "schema": f"var_mean.correction{args} -> (Tensor, Tensor)",
            "expr": _variance,
            "vjp": pair_vjp(var_vjp),
            **two,
        },
    )
    type(
        "StdMean",
        (Variance,),
        {
            "schema": f"std_mean.correction{args} -> (Tensor, Tensor)",
            "expr": std_mean,
            "vjp": pair_vjp(std_vjp),
            **two,
        },
    )


def _unbiased(name: str, returns: str) -> None:
    """The older overloads: the correction as a truth value."""

    def unbiased_all(self: Tensor, unbiased: bool) -> Any:
        return getattr(aten, name)(self, None, correction=int(unbiased))

    def unbiased_dim(self: Tensor, dim: Any, unbiased: bool, keepdim: bool) -> Any:
        return getattr(aten, name)(self, dim, correction=int(unbiased), keepdim=keepdim)

    title = "".join(p.capitalize() for p in name.split("_"))
    type(
        f"{title}Unbiased",
        (Composite,),
        {
            "schema": f"{name}(Tensor self, bool unbiased=True) -> {returns}",
            "decompose": unbiased_all,
            "__module__": __name__,
        },
    )
    type(
        f"{title}Dim",
        (Composite,),
        {
            "schema": f"{name}.dim(Tensor self, int[1]? dim, bool unbiased=True, bool "
            f"keepdim=False) -> {returns}",
            "decompose": unbiased_dim,
            "out": "out",
            "__module__": __name__,
        },
    )


_moments()
for _n, _returns in (
    ("var", "Tensor"),
    ("std", "Tensor"),
    ("var_mean", "(Tensor, Tensor)"),
    ("std_mean", "(Tensor, Tensor)"),
):
    _unbiased(_n, _returns)


class Logsumexp(Reduction):
    """log of the sum of exponentials, from the largest."""

    schema = "logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor"
    out = "out"
    promotion = "int_to_float"

    def check_out(source: Any, to: Any) -> None:
        if not (to.is_floating_point or to.is_complex):
            raise RuntimeError(
                "logsumexp(): Expected floating point type for result tensor, but got: "
                f"{dt.scalar_name(to)}"
            )

    def expr(k: Any, x: Any) -> Any:
        m = k.max(k.real(x) if x.dtype.startswith("complex") else x)
        m = k.where(k.isfinite(m), m, 0)
        return k.log(k.sum(k.exp(x - m))) + m

    def vjp(b: Any, g: Any, x: Any, dim: Any, keepdim: bool) -> Any:
        out = b.out
        if not keepdim and x.dim():
            for d in wrap_dims(dim, x.dim()):
                g, out = g.unsqueeze(d), out.unsqueeze(d)
        share = (x - out).exp()
        return g * (aten.conj(share) if share.dtype.is_complex else share)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), [1], True)
        yield s.sample(s.tensor((2, 3, 4)), [0, 2])
        yield s.sample(s.tensor(()), [0])

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(IndexError, "Dimension out of range", s.tensor((2, 3)), [2])


class Equal(Composite):
    """Whether two tensors have the same shape and elements."""

    schema = "equal(Tensor self, Tensor other) -> bool"

    def decompose(self: Tensor, other: Tensor) -> bool:
        if self.shape != other.shape:
            return False
        return bool((self == other).all().item()) if self.numel() else True


class Allclose(Composite):
    """Whether all elements are close."""

    schema = (
        "allclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool "
        "equal_nan=False) -> bool"
    )

    def decompose(self: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool) -> bool:
        return bool(aten.all(aten.isclose(self, other, rtol, atol, equal_nan)).item())
