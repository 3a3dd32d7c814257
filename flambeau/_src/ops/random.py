"""Random numbers: the streams are core/generator.py's, bit for bit torch's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import generator as streams
from flambeau._src.core import layout, state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import (
    aten,
    by_number,
    check_no_self_overlap,
    dispatch,
    resize_output,
)
from flambeau._src.ops.copying import copy_into
from flambeau._src.ops.creation import LIKE, OPTIONS, Factory, Like, like_spec, spec
from flambeau._src.ops.kinds import Composite, Opaque, Pointwise, TensorSpec, cast
from flambeau._src.ops.op import PACKETS, Declaration


def pick(generator: Any) -> Any:
    """The generator given, or the process's own."""
    if generator is None:
        return streams.default_generator
    if not isinstance(generator, _native.Generator):
        raise TypeError(f"expected a torch.Generator, but got {type(generator).__name__}")
    return generator


def memory_order(t: Tensor) -> list[int]:
    """t's dimensions, the one with the largest stride first."""
    return sorted(range(t.dim()), key=lambda i: -t.stride()[i])


def fill(t: Tensor, draw: str, *args: Any, generator: Any = None) -> None:
    """Fill t in memory order; strided tensors are drawn apart and copied."""
    if t.untyped_storage().is_fake or not t.numel():
        return
    source = getattr(pick(generator), draw)
    if t._contiguous():
        source(t.data_ptr(), t.numel(), t.dtype.code, *args)
        return
    order = memory_order(t)
    fresh = _native.empty([t.shape[i] for i in order], t.dtype, t.device)
    source(
        fresh.data_ptr(), fresh.numel(), t.dtype.code, *args, *((1,) if draw == "normal" else ())
    )
    view = _native.alias(Tensor, t, fresh.shape, [t.stride()[i] for i in order], None)
    copy_into(view, fresh)


def _draw_into(cls: Any, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
    """out= of a random operator: drawn where it stands, in its own dtype and strides (which decide
    the stream), so that nothing is drawn apart and copied."""
    (out,) = outs
    full = list(args)
    for i, a in enumerate(op.base.schema.args):
        if a.type == "ScalarType":
            if full[i] is not None and full[i] is not out.dtype:
                raise RuntimeError(
                    f"dtype {dt.scalar_name(full[i])} does not match dtype of out parameter "
                    f"({dt.scalar_name(out.dtype)})"
                )
            full[i] = out.dtype
    resize_output(out, cls.meta(*full).shape)
    cls.kernel(out, *full)
    return True


#: Sizes of samples: no dimension, none of a size, four, more than one block of draws.
SIZES = ((), (0, 3), (3, 4), (2, 3, 4, 5), (37,))


class Draw(Declaration):
    """Overwrites self with random numbers. `tried`: what the samples add to the tensor."""

    kind = "random"
    random = True
    public = "method"
    tried: tuple[tuple[Any, ...], ...] = ((),)

    @classmethod
    def samples(cls, s: Any) -> Iterator[Any]:
        for size in SIZES:
            for more in cls.tried:
                yield s.sample(s.tensor(size), *more)

    def vjp(b: Any, g: Any, x: Any, *rest: Any) -> Any:  # nothing of what was there is left
        zeros = [aten.zeros_like(v) for v in rest if isinstance(v, Tensor)]
        return (aten.zeros_like(g), *zeros)


def check_floating(name: str, t: Tensor) -> None:
    if not (t.dtype.is_floating_point or t.dtype.is_complex):
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.scalar_name(t.dtype)}'")


def fill_uniform(t: Tensor, low: float, high: float, generator: Any) -> None:
    """Overwrite t; complex numbers get two draws each."""
    real = aten.view_as_real(t) if t.dtype.is_complex else t
    fill(real, "uniform", low, high, generator=generator)


class Uniform(Draw):
    """Uniform in [from, to)."""

    schema = (
        "uniform_(Tensor(a!) self, float from=0., float to=1., *, Generator? generator=None) "
        "-> Tensor(a!)"
    )
    tried = ((), (-2.5, 3.0))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "expects to return", s.tensor(3), 2.0, 1.0)
        yield s.error(NotImplementedError, "check_uniform_bounds", s.ints(3, 0, 9))

    def run(t: Tensor, low: float, high: float, generator: Any) -> Tensor:
        check_floating("check_uniform_bounds", t)
        if low > high:
            raise RuntimeError(
                f"uniform_ expects to return a [from, to) range, but found from={low:g} > "
                f"to={high:g}"
            )
        fill_uniform(t, low, high, generator)
        return t


class Normal(Draw):
    """Normal with the given mean and standard deviation."""

    schema = (
        "normal_(Tensor(a!) self, float mean=0., float std=1., *, Generator? generator=None) "
        "-> Tensor(a!)"
    )
    tried = ((), (1.0, 0.5))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "normal expects std >= 0.0", s.tensor(3), 0.0, -1.0)
        yield s.error(NotImplementedError, "normal_kernel_cpu", s.ints(3, 0, 9))

    def run(t: Tensor, mean: float, std: float, generator: Any) -> Tensor:
        if std < 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        check_floating("normal_kernel_cpu", t)
        if t.dtype.is_complex:
            fill(aten.view_as_real(t), "normal", mean, std / 2**0.5, generator=generator)
            return t
        fill(t, "normal", mean, std, generator=generator)
        return t


class Random(Draw):
    """Every integer that the dtype holds (floats: up to 2^mantissa)."""

    schema = "random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)"

    def run(t: Tensor, generator: Any) -> Tensor:
        fill(t, "random", generator=generator)
        return t


class RandomFrom(Draw):
    """Integers in [from, to)."""

    schema = (
        "random_.from(Tensor(a!) self, int from, int? to, *, Generator? generator=None) "
        "-> Tensor(a!)"
    )
    tried = ((-3, 8),)

    def run(t: Tensor, low: int, high: Any, generator: Any) -> Tensor:
        fill(t, "random_range", *streams.integer_range(t.dtype, low, high), generator=generator)
        return t


class RandomTo(Draw):
    """Integers in [0, to)."""

    schema = "random_.to(Tensor(a!) self, int to, *, Generator? generator=None) -> Tensor(a!)"
    tried = ((9,),)

    def run(t: Tensor, high: int, generator: Any) -> Tensor:
        return RandomFrom.run(t, 0, high, generator)


class BernoulliFloat(Draw):
    """1 with probability p, else 0."""

    schema = (
        "bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)"
    )
    tried = ((), (0.2,))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "expects p to be in", s.tensor(3), 1.5)

    def run(t: Tensor, p: float, generator: Any) -> Tensor:
        if not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
        fill(t, "bernoulli", p, generator=generator)
        return t


class BernoulliTensor(Draw):
    """1 with the probability that stands in p at the same place."""

    schema = (
        "bernoulli_.Tensor(Tensor(a!) self, Tensor p, *, Generator? generator=None) -> Tensor(a!)"
    )

    @classmethod
    def samples(cls, s: Any) -> Iterator[Any]:
        for size in SIZES:
            yield s.sample(s.tensor(size), s.tensor(size, 0.1, 0.9))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "p_in >= 0", s.tensor(3), s.tensor(3, 2.0, 3.0))

    def run(t: Tensor, p: Tensor, generator: Any) -> Tensor:
        if p.dtype.is_complex or not p.dtype.is_floating_point:
            raise NotImplementedError(
                f"\"bernoulli_tensor_cpu_p_\" not implemented for '{dt.scalar_name(p.dtype)}'"
            )
        if t.dtype.is_complex:
            raise NotImplementedError(
                f"\"bernoulli_tensor_cpu_self_\" not implemented for '{dt.scalar_name(t.dtype)}'"
            )
        check_no_self_overlap(t)
        wide = _native.empty(
            t.shape, p.dtype if p.dtype in (dt.float32, dt.float64) else dt.float32, t.device
        )
        copy_into(wide, p)
        if not wide.numel():
            return t
        if bool(((wide < 0) | (wide > 1)).any()):
            raise RuntimeError(
                "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error "
                "message be improved?  If so, please report an enhancement request to PyTorch.)"
            )
        target, fresh = t, t
        if not t._contiguous():  # drawn in the order of t's memory
            order = memory_order(t)
            wide = aten.permute(wide, order).contiguous()
            target = _native.alias(Tensor, t, wide.shape, [t.stride()[i] for i in order], None)
            fresh = _native.empty(wide.shape, t.dtype, t.device)
        pick(generator).bernoulli_each(
            fresh.data_ptr(), fresh.numel(), t.dtype.code, wide.data_ptr(), wide.dtype.code
        )
        if fresh is not t:
            copy_into(target, fresh)
        return t


class Bernoulli(Opaque):
    """Draws 1 with the probabilities in self."""

    schema = "bernoulli(Tensor self, *, Generator? generator=None) -> Tensor"
    random = True
    out = "out"

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4), 0.1, 0.9))
        yield s.sample(s.tensor((), 0.1, 0.9))
        yield s.sample(s.tensor((0, 3), 0.1, 0.9))

    def meta(p: Tensor, generator: Any) -> TensorSpec:
        return TensorSpec(p.shape, p.dtype, p.device, _native.geometry_of([p])[1])

    def kernel(out: Tensor, p: Tensor, generator: Any) -> None:
        BernoulliTensor.run(out, p, generator)

    compute_out = classmethod(_draw_into)

    def vjp(b: Any, g: Any, p: Tensor, generator: Any) -> Any:
        return aten.zeros_like(g)


class BernoulliP(Opaque):
    """Draws in self's shape, 1 with probability p."""

    schema = "bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor"
    random = True
    differentiable = False

    def samples(s: Any) -> Iterator[Any]:
        for size in SIZES:
            yield s.sample(s.tensor(size), 0.3)

    def meta(t: Tensor, p: float, generator: Any) -> TensorSpec:
        return TensorSpec(t.shape, t.dtype, t.device)

    def kernel(out: Tensor, t: Tensor, p: float, generator: Any) -> None:
        BernoulliFloat.run(out, p, generator)


def _draw(
    name: str, args: str, method: str, check: Any = None, tried: tuple[Any, ...] = ((),)
) -> None:
    def run(t: Tensor, *rest: Any) -> Tensor:
        *params, generator = rest
        if check:
            check(t, *params)
        fill(t, method, *params, generator=generator)
        return t

    type(
        name.capitalize(),
        (Draw,),
        {
            "__doc__": f"Overwrites self with draws of the {method} distribution.",
            "__module__": __name__,
            "run": run,
            "tried": tried,
            "schema": f"{name}(Tensor(a!) self, {args}, *, Generator? generator=None) -> "
            "Tensor(a!)",
        },
    )


def _positive(name: str, what: str) -> Any:
    def check(t: Tensor, *params: float) -> None:
        v = params[-1]
        if what == "p":
            if not 0 < v < 1:
                raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={v:g}")
        elif not v > 0:
            raise RuntimeError(f"{name}_ expects {what} > 0.0, but found {what}={v:g}")

    return check


_draw("exponential_", "float lambd=1.", "exponential", _positive("exponential", "lambda"))
_draw("geometric_", "float p", "geometric", _positive("geometric", "p"), ((0.3,),))
_draw("cauchy_", "float median=0., float sigma=1.", "cauchy", _positive("cauchy", "sigma"))
_draw("log_normal_", "float mean=1., float std=2.", "log_normal", _positive("log_normal", "std"))


def _functional(name: str, source: type[Draw]) -> None:
    """The form that writes nothing: what a graph without writes holds."""
    own = source.schema.partition("(")
    head = own[0].replace("_.", ".") if "." in own[0] else own[0].removesuffix("_")
    arguments = own[2].partition("->")[0].replace("Tensor(a!)", "Tensor")

    def run(x: Tensor, *rest: Any) -> Tensor:
        return source.run(aten.empty_like(x), *rest)  # type: ignore[attr-defined]

    def vjp(b: Any, g: Any, x: Any, *rest: Any) -> Any:
        return aten.zeros_like(g)

    def meta(x: Tensor, *rest: Any) -> TensorSpec:
        return TensorSpec(x.shape, x.dtype, x.device, layout.strides_like(x, None))

    def decompose(x: Tensor, *rest: Any) -> Tensor:
        return aten.random(x, 0, rest[0], generator=rest[-1])

    apart = {"decompose": decompose, "whole": True} if name == "random_to" else {}
    type(f"{name}Functional", (Opaque,), {
        "__doc__": f"Draws like those of {own[0]}, in self's shape.", "__module__": __name__,
        "run": staticmethod(run), "vjp": vjp, "meta": meta, "random": True, "public": "",
        "kind": "random", **apart,
        "schema": f"{'normal_functional' if head == 'normal' else head}({arguments}-> Tensor",
    })  # fmt: skip


for _name, _source in (
    ("uniform", Uniform), ("normal", Normal), ("random", Random), ("random_from", RandomFrom),
    ("random_to", RandomTo),
    *((n, PACKETS["aten", f"{n}_"].ops[0].decl) for n in
      ("exponential", "geometric", "cauchy", "log_normal")),
):  # fmt: skip
    _functional(_name, _source)


class NativeDropoutBackward(Pointwise):
    """The gradient of native_dropout."""

    schema = "native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor"
    public = "function"
    inplace = False
    keep = ("mask",)

    @classmethod
    def common_dtype(cls, op: Any, args: tuple[Any, ...]) -> dt.dtype:
        own: dt.dtype = args[0].dtype
        return state.process.default_dtype if dt.is_integral(own) else own

    def expr(k: Any, g: Any, mask: Any, scale: Any) -> Any:
        return k.where(mask if mask.dtype == "bool" else mask != 0, g, g * 0) * scale

    def vjp(b: Any, gg: Any, g: Any, mask: Any, scale: float) -> Any:
        return aten.native_dropout_backward(gg, mask, scale), None


# ---- factories ----


def _factory(
    name: str, lead: str, body: Any, kind: str = "spec", default: Any = None, draw: Any = None
) -> None:
    """A random factory with and without a generator; body(out, generator, *lead). draw(x,
    generator, *lead) gives the same in x's shape, by a functional draw."""
    n = lead.count(",") + 1 if lead else 0
    sizes = lead.split(",")

    def meta(*args: Any) -> TensorSpec:
        heads, tail = args[:n], args[n:]
        options = tail[-4:]
        size = (
            (heads[0],)
            if kind == "length"
            else next(a for a, s in zip(heads, sizes, strict=True) if "size" in s)
        )
        return spec(size, options[0] or default, *options[1:3])

    def kernel(out: Tensor, *args: Any) -> None:
        generator = args[n] if len(args) == n + 5 else None
        body(out, generator, *args[:n])

    def decompose(*args: Any) -> Tensor:
        generator, options = args[n] if len(args) == n + 5 else None, args[-4:]
        if draw is None:  # a primitive, but for the form without a generator
            with_generator = next(o for o in PACKETS["aten", name].ops if o.overload == "generator")
            return dispatch(with_generator, (*args[:n], None, *options))
        s = meta(*args)
        x = aten.empty(s.shape, dtype=s.dtype, device=s.device, pin_memory=options[3])
        return draw(x, generator, *args[:n])

    def samples(s: Any) -> Iterator[Any]:
        numbers = [-3, 9][-lead.count("int ") :] if "int " in lead else []
        named = {"dtype": s.dtype} if default is None else {}
        for size in SIZES if kind != "length" else (0, 1, 37):
            yield s.sample(*([size] if kind == "length" else [*numbers, size]), **named)

    options = (
        OPTIONS
        if default is None
        else OPTIONS.replace("dtype=None", "dtype=long", 1).replace(
            "ScalarType? dtype=long", "ScalarType? dtype=None"
        )
    )
    head, _, overload = name.partition(".")
    for suffix, gen in (("", ""), ("generator", "Generator? generator, ")):
        o = "_".join(x for x in (overload, suffix) if x)
        type(
            f"{head.capitalize()}{o}",
            (Factory,),
            {
                "__doc__": f"{head}: random numbers.",
                "__module__": __name__,
                "random": True,
                "samples": None if suffix else samples,
                "meta": meta,
                "kernel": kernel,
                "decompose": decompose if draw or not suffix else None,
                "whole": bool(draw) or not suffix,
                "compute_out": classmethod(_draw_into),
                "schema": f"{head}{'.' + o if o else ''}({lead}, *, {gen}{options}) -> Tensor",
                "out": f"{o}_out" if o else "out",
            },
        )


def _uniform(x: Tensor, g: Any, *rest: Any) -> Tensor:
    return aten.uniform(x, 0.0, 1.0, generator=g)


def _normal(x: Tensor, g: Any, *rest: Any) -> Tensor:
    return aten.normal_functional(x, 0.0, 1.0, generator=g)


def _below(x: Tensor, g: Any, high: int, *rest: Any) -> Tensor:
    return aten.random(x, 0, high, generator=g)


def _between(x: Tensor, g: Any, low: int, high: int, *rest: Any) -> Tensor:
    return aten.random(x, low, high, generator=g)


_factory(
    "rand", "int[] size", lambda out, g, size: fill_uniform(out, 0.0, 1.0, g),
    draw=_uniform,
)  # fmt: skip
_factory("randn", "int[] size", lambda out, g, size: Normal.run(out, 0.0, 1.0, g), draw=_normal)
_factory(
    "randint",
    "int high, int[] size",
    lambda out, g, high, size: RandomFrom.run(out, 0, high, g),
    default=dt.int64,
    draw=_below,
)
_factory(
    "randint.low",
    "int low, int high, int[] size",
    lambda out, g, low, high, size: RandomFrom.run(out, low, high, g),
    default=dt.int64,
    draw=_between,
)


def _permute(out: Tensor, g: Any, n: int) -> None:
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    if out.dtype in (dt.bool_, dt.uint32, dt.uint64):
        raise NotImplementedError(f"\"randperm\" not implemented for '{dt.scalar_name(out.dtype)}'")
    fresh = out if out._contiguous() else _native.empty(out.shape, out.dtype, out.device)
    pick(g).permutation(fresh.data_ptr(), n, out.dtype.code)
    if fresh is not out:
        copy_into(out, fresh)


_factory("randperm", "int n", _permute, kind="length", default=dt.int64)


def _like(name: str, lead: str, body: Any, draw: Any) -> None:
    n = lead.count(",") + 1 if lead else 0

    def meta(t: Tensor, *args: Any) -> TensorSpec:
        options = args[-5:]
        return like_spec(t, options[0], options[1], options[2], options[4])

    def kernel(out: Tensor, t: Tensor, *args: Any) -> None:
        body(out, args[n] if len(args) == n + 6 else None, *args[:n])

    def decompose(t: Tensor, *args: Any) -> Tensor:
        dtype, layout_, device, pin, fmt = args[-5:]
        x = aten.empty_like(
            t, dtype=dtype, layout=layout_, device=device, pin_memory=pin, memory_format=fmt
        )
        return draw(x, args[n] if len(args) == n + 6 else None, *args[:n])

    def samples(s: Any) -> Iterator[Any]:
        for size in SIZES:
            yield s.sample(s.tensor(size), *[-3, 9][2 - n :])

    head, _, overload = name.partition(".")
    for suffix, gen in (("", ""), ("generator", "Generator? generator, ")):
        o = "_".join(
            x
            for x in (
                overload.replace("_dtype", "") if suffix else overload,
                suffix,
                "dtype" if suffix and overload.endswith("_dtype") else "",
            )
            if x
        )
        type(
            f"{head}{o}",
            (Like,),
            {
                "__doc__": f"{head}: random numbers in self's shape.",
                "__module__": __name__,
                "random": True,
                "samples": None if suffix else samples,
                "meta": meta,
                "kernel": kernel,
                "decompose": decompose,
                "whole": True,
                "geometry_only": True,
                "schema": f"{head}{'.' + o if o else ''}(Tensor self{', ' + lead if lead else ''}, "
                f"*, {gen}{LIKE}) -> Tensor",
            },
        )


_like("rand_like", "", lambda out, g: fill_uniform(out, 0.0, 1.0, g), _uniform)
_like("randn_like", "", lambda out, g: Normal.run(out, 0.0, 1.0, g), _normal)
_like("randint_like", "int high", lambda out, g, high: RandomFrom.run(out, 0, high, g), _below)
_like(
    "randint_like.low_dtype",
    "int low, int high",
    lambda out, g, low, high: RandomFrom.run(out, low, high, g),
    _between,
)


class NormalTensors(Opaque):
    """Normal with a mean and a standard deviation for every element."""

    schema = "normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor"
    public = "function"
    random = True
    out = "Tensor_Tensor_out"
    compute_out = classmethod(_draw_into)

    def samples(s: Any) -> Iterator[Any]:
        for size in SIZES:
            yield s.sample(s.tensor(size), s.tensor(size, 0.1, 2.0))
        yield s.sample(s.tensor((3, 1)), s.tensor((1, 4), 0.1, 2.0))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "std >= 0.0", s.tensor(3), s.tensor(3, -2.0, -1.0))

    @staticmethod
    def meta(mean: Tensor, std: Tensor, generator: Any) -> TensorSpec:
        shape, stride = _native.geometry_of([mean, std])
        return TensorSpec(shape, mean.dtype, mean.device, stride)

    whole = True

    @staticmethod
    def decompose(mean: Tensor, std: Tensor, generator: Any) -> Tensor:
        aten._assert_async(aten.all(std >= 0), "normal expects all elements of std >= 0.0")
        shape, stride = _native.geometry_of([mean, std])
        x = aten.empty_strided(shape, stride, dtype=mean.dtype, device=mean.device)
        drawn = aten.normal_functional(x, 0.0, 1.0, generator=generator)
        return ((drawn * std).to(mean.dtype) + mean).to(mean.dtype)

    def kernel(out: Tensor, mean: Tensor, std: Tensor, generator: Any) -> None:
        _scaled(out, mean, std, generator)

    def vjp(b: Any, g: Any, mean: Tensor, std: Tensor, generator: Any) -> Any:
        return aten.zeros_like(mean) if b.needs[0] else None, aten.zeros_like(std) if b.needs[
            1
        ] else None


def _scaled(out: Tensor, mean: Any, std: Any, generator: Any) -> None:
    if isinstance(std, Tensor):
        if std.numel() and bool((std < 0).any()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    Normal.run(out, 0.0, 1.0, generator)
    copy_into(out, cast(out * std, out.dtype))
    copy_into(out, cast(out + mean, out.dtype))


class NormalTensorFloat(NormalTensors):
    """Normal with a mean for every element."""

    schema = (
        "normal.Tensor_float(Tensor mean, float std=1., *, Generator? generator=None) -> Tensor"
    )
    out = "Tensor_float_out"

    def samples(s: Any) -> Iterator[Any]:
        for size in SIZES:
            yield s.sample(s.tensor(size), 0.5)

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "std >= 0.0", s.tensor(3), -1.0)

    @staticmethod
    def meta(mean: Tensor, std: float, generator: Any) -> TensorSpec:
        return TensorSpec(mean.shape, mean.dtype, mean.device, _native.geometry_of([mean])[1])

    @staticmethod
    def decompose(mean: Tensor, std: float, generator: Any) -> Tensor:
        x = aten.empty_strided(
            mean.shape, _native.geometry_of([mean])[1], dtype=mean.dtype, device=mean.device
        )
        drawn = aten.normal_functional(x, 0.0, std, generator=generator)
        return (mean + drawn).to(mean.dtype)

    def kernel(out: Tensor, mean: Tensor, std: float, generator: Any) -> None:
        Normal.run(out, 0.0, std, generator)
        copy_into(out, cast(mean + out, out.dtype))

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        """Drawn in the shape that out= has, then the mean is added, as torch does."""
        mean, std, generator = args
        Normal.run(outs[0], 0.0, std, generator)
        result = mean + outs[0]
        resize_output(outs[0], result.shape)
        copy_into(outs[0], result)
        return True

    def vjp(b: Any, g: Any, mean: Tensor, std: float, generator: Any) -> Any:
        return aten.zeros_like(mean)


class NormalFloatTensor(NormalTensors):
    """Normal with a standard deviation for every element."""

    schema = "normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor"
    out = "float_Tensor_out"

    def samples(s: Any) -> Iterator[Any]:
        for size in SIZES:
            yield s.sample(1.5, s.tensor(size, 0.1, 2.0))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "std >= 0.0", 0.0, s.tensor(3, -2.0, -1.0))

    @staticmethod
    def decompose(mean: float, std: Tensor, generator: Any) -> Tensor:
        aten._assert_async(aten.all(std >= 0), "normal expects all elements of std >= 0.0")
        x = aten.empty_strided(
            std.shape, _native.geometry_of([std])[1], dtype=std.dtype, device=std.device
        )
        drawn = aten.normal_functional(x, 0.0, 1.0, generator=generator)
        return ((drawn * std).to(std.dtype) + mean).to(std.dtype)

    @staticmethod
    def meta(mean: float, std: Tensor, generator: Any) -> TensorSpec:
        return TensorSpec(std.shape, std.dtype, std.device, _native.geometry_of([std])[1])

    def vjp(b: Any, g: Any, mean: float, std: Tensor, generator: Any) -> Any:
        return aten.zeros_like(std)


class NormalSize(Factory):
    """Normal numbers in a shape."""

    schema = (
        "normal.float_float(float mean, float std, int[] size, *, Generator? generator=None, "
        f"{OPTIONS}) -> Tensor"
    )
    random = True
    out = "float_float_out"
    compute_out = classmethod(_draw_into)

    def samples(s: Any) -> Iterator[Any]:
        for size in SIZES:
            yield s.sample(1.5, 0.5, size, dtype=s.dtype)

    @staticmethod
    def meta(
        mean: float,
        std: float,
        size: Any,
        generator: Any,
        dtype: Any,
        layout: Any,
        device: Any,
        pin: Any,
    ) -> TensorSpec:
        return spec(size, dtype, layout, device)

    whole = True

    @staticmethod
    def decompose(
        mean: float, std: float, size: Any, generator: Any, dtype: Any, layout_: Any, device: Any,
        pin: Any,
    ) -> Tensor:  # fmt: skip
        x = aten.empty(size, dtype=dtype, layout=layout_, device=device, pin_memory=pin)
        return aten.normal_functional(x, mean, std, generator=generator)

    def kernel(out: Tensor, mean: float, std: float, size: Any, generator: Any, *rest: Any) -> None:
        Normal.run(out, mean, std, generator)


class Multinomial(Opaque):
    """Indices drawn by the weights in self's rows."""

    schema = (
        "multinomial(Tensor self, int num_samples, bool replacement=False, *, Generator? "
        "generator=None) -> Tensor"
    )
    random = True
    differentiable = False
    out = "out"

    def samples(s: Any) -> Iterator[Any]:
        for replacement in (False, True):
            yield s.sample(s.tensor((5,), 0.1, 1.0), 3, replacement)
            yield s.sample(s.tensor((4, 6), 0.1, 1.0), 2, replacement)

    @classmethod
    def compute_out(cls, op: Any, outs: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
        if outs[0].dtype is not dt.int64:
            raise RuntimeError(
                f"multinomial expects Long tensor out, got: {dt.scalar_name(outs[0].dtype)}"
            )
        return False

    def meta(p: Tensor, n: int, replacement: bool, generator: Any) -> TensorSpec:
        if p.dim() not in (1, 2):
            raise RuntimeError("prob_dist must be 1 or 2 dim")
        if p.shape[-1] > 1 << 24:
            raise RuntimeError("number of categories cannot exceed 2^24")
        if not p.dtype.is_floating_point:
            raise RuntimeError(
                "multinomial only supports floating-point dtypes for input, got: "
                f"{dt.scalar_name(p.dtype)}"
            )
        if n <= 0:
            raise RuntimeError("cannot sample n_sample <= 0 samples")
        if not replacement and n > p.shape[-1]:
            raise RuntimeError(
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
            )
        return TensorSpec((*p.shape[:-1], n), dt.int64, p.device)

    def kernel(out: Tensor, p: Tensor, n: int, replacement: bool, generator: Any) -> None:
        if not replacement or n == 1:
            if bool((~aten.isfinite(p) | (p < 0)).any()):
                raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
            if bool((aten.sum(p, -1) == 0).any()):
                raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
            q = _native.empty(p.shape, p.dtype, p.device)
            fill(q, "exponential", 1.0, generator=generator)
            q = p / q
            copy_into(out, aten.argmax(q, -1, True) if n == 1 else aten.topk(q, n)[1])
            return
        wide = (
            p
            if p.dtype in (dt.float32, dt.float64) and p._contiguous()
            else cast(p, dt.float32).contiguous()
        )
        rows = p.shape[0] if p.dim() == 2 else 1
        bad = pick(generator).choices(
            out.data_ptr(), rows, wide.data_ptr(), wide.dtype.code, p.shape[-1], n
        )
        if bad:
            raise RuntimeError(
                ("invalid multinomial distribution (encountering probability entry < 0)",
                 "invalid multinomial distribution (encountering probability entry = infinity or "
                 "NaN)",
                 "invalid multinomial distribution (sum of probabilities <= 0)")[bad - 1]
            )  # fmt: skip


class Poisson(Opaque):
    """Counts of events, of which self holds the mean numbers. Their gradient is zero."""

    schema = "poisson(Tensor self, Generator? generator=None) -> Tensor"
    public = "function"
    random = True
    out = "out"

    def meta(rate: Tensor, generator: Any) -> TensorSpec:
        if not (rate.dtype.is_floating_point and rate.dtype.itemsize > 1):
            raise NotImplementedError(
                f"\"poisson_cpu\" not implemented for '{dt.scalar_name(rate.dtype)}'"
            )
        return TensorSpec(rate.shape, rate.dtype, rate.device)

    def kernel(out: Tensor, rate: Tensor, generator: Any) -> None:
        wide = cast(rate, dt.float64).contiguous()
        if bool((~(wide >= 0)).any()):
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
        fresh = out if out._contiguous() else _native.empty(out.shape, out.dtype, out.device)
        if fresh.numel():
            pick(generator).poisson(
                fresh.data_ptr(), fresh.numel(), fresh.dtype.code, wide.data_ptr()
            )
        if fresh is not out:
            copy_into(out, fresh)

    def vjp(b: Any, g: Tensor, rate: Tensor, generator: Any) -> Tensor:
        return aten.zeros_like(g)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4), 0.1, 30.0))
        yield s.sample(s.tensor((), 0.1, 5.0))
        yield s.sample(s.tensor((0, 3), 0.1, 5.0))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(NotImplementedError, "poisson_cpu", s.ints(3, 0, 9))
        yield s.error(RuntimeError, "non-negative", s.tensor(3, -2.0, -1.0))


# ---- dropout ----


def check_p(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")


class NativeDropout(Opaque):
    """Dropout with its mask."""

    schema = "native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)"
    public = "function"
    random = True
    differentiable = (0,)

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((3, 4)), 0.5, True)
        yield s.sample(s.tensor(()), 0.5, True)
        yield s.sample(s.tensor((0, 3)), 0.5, False)

    def run(x: Tensor, p: float, train: Any) -> Any:
        if not x.numel():
            return x, _native.empty(x.shape, x.dtype, x.device)
        if train is False:
            mask = aten.ones_like(x, dtype=dt.bool_)
            return aten.clone(x), mask
        check_p(p)
        if p == 1:
            mask = aten.zeros_like(x, dtype=dt.bool_)
            return x * mask, mask
        mask = aten.empty_like(x, dtype=dt.bool_)
        fill(mask, "bernoulli", 1 - p)
        return x * mask * (1.0 / (1 - p)), mask

    def meta(x: Tensor, p: float, train: Any) -> Any:
        if not x.numel():  # nothing comes back as it is, and its mask has the input's dtype
            out = TensorSpec(x.shape, x.dtype, x.device, x.stride())
            return out, TensorSpec(x.shape, x.dtype, x.device)
        stride = layout.strides_like(x, layout.preserve_format)
        return tuple(TensorSpec(x.shape, kind, x.device, stride) for kind in (x.dtype, dt.bool_))

    def vjp(b: Any, g: Any, x: Tensor, p: float, train: Any) -> Any:
        scale = 1.0 if train is False else 0.0 if p == 1 else 1.0 / (1 - p)
        return aten.native_dropout_backward(g[0], b.outs[1], scale)


class Dropout(Composite):
    """Zeros with probability p while training, the rest scaled to keep the
    mean (Srivastava et al. 2014)."""

    schema = "dropout(Tensor input, float p, bool train) -> Tensor"
    public = "function"
    inplace = True

    def decompose(x: Tensor, p: float, train: bool) -> Tensor:
        check_p(p)
        if p == 0 or not train or not x.numel():
            return x
        if p == 1:
            return x.mul(aten.zeros((), dtype=x.dtype, device=x.device))
        return x * scaled(aten.empty_like(x).bernoulli_(1 - p), 1 - p)

    def decompose_inplace(x: Tensor, p: float, train: bool) -> Tensor:
        check_p(p)
        if p == 0 or not train or not x.numel():
            return x
        if p == 1:
            return x.mul_(aten.zeros((), dtype=x.dtype, device=x.device))
        return x.mul_(scaled(aten.empty_like(x).bernoulli_(1 - p), 1 - p))


def scaled(noise: Tensor, keep: float) -> Tensor:
    """noise / keep in place."""
    return by_number("div_", noise, keep)


def feature_noise(x: Tensor) -> Tensor:
    if x.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return aten.empty([*x.shape[:2], *[1] * (x.dim() - 2)], dtype=x.dtype, device=x.device)


class FeatureDropout(Composite):
    """Dropout of whole channels."""

    schema = "feature_dropout(Tensor input, float p, bool train) -> Tensor"
    public = "function"
    inplace = True

    def decompose(x: Tensor, p: float, train: bool) -> Tensor:
        check_p(p)
        if p == 0 or not train or not x.numel():
            return x
        if p == 1:
            return x.mul(aten.zeros((), dtype=x.dtype, device=x.device))
        return x * scaled(feature_noise(x).bernoulli_(1 - p), 1 - p)


def _alpha(x: Tensor, p: float, noise: Tensor) -> Tensor:
    alpha = 1.7580993408473766
    a = 1.0 / ((alpha * alpha * p + 1) * (1 - p)) ** 0.5
    b = noise.add(-1).mul_(alpha * a).add_(alpha * a * p)
    return x * noise.mul_(a) + b


class AlphaDropout(Composite):
    """Dropout that keeps mean and variance of selu networks (Klambauer et al. 2017)."""

    schema = "alpha_dropout(Tensor input, float p, bool train) -> Tensor"
    public = "function"
    inplace = True

    def decompose(x: Tensor, p: float, train: bool) -> Tensor:
        check_p(p)
        if p == 0 or not train or not x.numel():
            return x
        if p == 1:
            return x.mul(aten.zeros((), dtype=x.dtype, device=x.device))
        return _alpha(x, p, aten.empty_like(x).bernoulli_(1 - p))


class FeatureAlphaDropout(Composite):
    """Alpha dropout of whole channels."""

    schema = "feature_alpha_dropout(Tensor input, float p, bool train) -> Tensor"
    public = "function"
    inplace = True

    def decompose(x: Tensor, p: float, train: bool) -> Tensor:
        check_p(p)
        if p == 0 or not train or not x.numel():
            return x
        if p == 1:
            return x.mul(aten.zeros((), dtype=x.dtype, device=x.device))
        return _alpha(x, p, feature_noise(x).bernoulli_(1 - p))
