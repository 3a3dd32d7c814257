"""The battery: what every declared operator with samples must pass.

A declaration's `samples(s)` drive it: values against an independent reference, fake shapes and
strides against eager ones, in-place and out= forms, permuted layouts, bfloat16, gradients and
second gradients against finite differences."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.autograd.api import grad
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import PACKETS, Op, TensorSpec
from flambeau._src.ops.registry import all_ops


class Sample:
    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs


class Error:
    def __init__(
        self, kind: type, pattern: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.kind, self.pattern, self.args, self.kwargs = kind, pattern, args, kwargs


class Maker:
    """What a declaration's `samples` makes its tensors with."""

    def __init__(self, dtype: Any, layout: str = "contiguous", seed: int = 0) -> None:
        self.dtype, self.layout = dtype, layout
        self.generator = torch.Generator().manual_seed(seed)

    def tensor(
        self,
        shape: Any,
        low: float = -2.0,
        high: float = 2.0,
        dtype: Any = None,
        layout: Any = None,
    ) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        wide = torch.empty(shape, dtype=torch.float64).uniform_(low, high, generator=self.generator)
        t = wide.to(dtype or self.dtype)
        layout = layout or self.layout
        if layout == "permuted" and len(shape) > 1:
            return (
                t.permute(*reversed(range(len(shape))))
                .contiguous()
                .permute(*reversed(range(len(shape))))
            )
        if layout == "channels_last" and len(shape) == 4:
            return t.contiguous(memory_format=torch.channels_last)
        return t

    def ints(self, shape: Any, low: int, high: int) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return torch.randint(low, high, shape, generator=self.generator)

    def sample(self, *args: Any, **kwargs: Any) -> Sample:
        return Sample(args, kwargs)

    def error(self, kind: type, pattern: str, *args: Any, **kwargs: Any) -> Error:
        return Error(kind, pattern, args, kwargs)


def tested_ops() -> Iterator[Op]:
    """Every operator whose declaration gives samples."""
    seen = set()
    for op in all_ops():
        if (
            op.variant == "functional"
            and op.decl.samples is not None
            and op is op.decl.op
            and op.key not in seen
        ):
            seen.add(op.key)
            yield op


def samples_of(op: Op, dtype: Any, layout: str = "contiguous") -> list[Sample]:
    return list(op.decl.samples(Maker(dtype, layout)))


def function_of(op: Op) -> Any:
    return getattr(aten, op.name)


SEED = 11


def drawing(op: Op) -> Any:
    """As `function_of`; one that draws does so from the same state every time, and one that writes
    does so into a copy."""
    fn = function_of(op)
    if not op.decl.random:
        return fn
    writes = bool(op.schema.mutates) and op.schema.mutates[0] == 0

    def call(*args: Any, **kwargs: Any) -> Any:
        torch.manual_seed(SEED)
        return fn(args[0].clone(), *args[1:], **kwargs) if writes else fn(*args, **kwargs)

    return call


def tensors_in(sample: Sample) -> list[Any]:
    found = []
    for a in (*sample.args, *sample.kwargs.values()):
        if isinstance(a, torch.Tensor):
            found.append(a)
        elif isinstance(a, (list, tuple)):
            found += [x for x in a if isinstance(x, torch.Tensor)]
    return found


def with_tensors(sample: Sample, tensors: list[Any]) -> Sample:
    """The sample with its tensors replaced, in order."""
    it = iter(tensors)

    def swap(a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            return next(it)
        if isinstance(a, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in a):
            return [next(it) if isinstance(x, torch.Tensor) else x for x in a]
        return a

    args = tuple(swap(a) for a in sample.args)
    return Sample(args, {k: swap(v) for k, v in sample.kwargs.items()})


def outputs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def close(a: Any, b: Any, rtol: float, atol: float) -> bool:
    a, b = a.detach().to(torch.float64), b.detach().to(torch.float64)
    return a.shape == b.shape and bool(torch.allclose(a, b, rtol, atol, True))


def reference_for(op: Op) -> Any:
    """The independent implementation that the declaration names, or None."""
    name = op.decl.reference
    if not name:
        return None
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError:
        return None


# ---- checks; each raises AssertionError ----


def check_values(op: Op, sample: Sample) -> None:
    """float64 values against the reference."""
    import numpy as np

    reference = reference_for(op)
    if reference is None:
        return
    got = function_of(op)(*sample.args, **sample.kwargs)
    arrays = [a.numpy() if isinstance(a, torch.Tensor) else a for a in sample.args]
    kwargs = {k: v for k, v in sample.kwargs.items() if k not in ("alpha", "beta")}
    if sample.kwargs != kwargs:
        return
    if op.schema.args[-1].name == "dtype" or "dim" in [a.name for a in op.schema.args]:
        arrays, kwargs = _numpy_dims(op, arrays, kwargs)
    with np.errstate(all="ignore"):
        want = np.asarray(reference(*arrays, **kwargs))
    np.testing.assert_allclose(outputs(got)[0].numpy(), want, rtol=1e-10, atol=1e-12)


def _numpy_dims(
    op: Op, arrays: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    names = [a.name for a in op.schema.positional][: len(arrays)]
    given = dict(zip(names, arrays, strict=True)) | kwargs
    first = given.pop("self")
    out: dict[str, Any] = {}
    if "dim" in given:
        dim = given["dim"]
        if first.ndim == 0:
            dim = None
        out["axis"] = tuple(dim) if isinstance(dim, (list, tuple)) else dim
    if given.get("keepdim") and first.ndim:
        out["keepdims"] = True
    return [first], out


def check_fake(op: Op, sample: Sample) -> None:
    """Shape, dtype and strides from the declaration alone, against eager."""
    from flambeau._src.ops.bind import bind

    if op.decl.kind in ("composite", "view", "random"):
        return
    args = bind(op, sample.args, sample.kwargs)
    if args is None or (op.decl.meta is None and op.decl.kind not in ("pointwise", "reduction")):
        return
    specs = op.decl.infer(op, args)
    for spec, real in zip(
        outputs(specs), outputs(function_of(op)(*sample.args, **sample.kwargs)), strict=True
    ):
        if not isinstance(spec, TensorSpec):
            continue
        assert spec.shape == tuple(real.shape), (spec, real.shape)
        assert spec.dtype is real.dtype, (spec, real.dtype)
        if spec.stride is not None:
            assert spec.stride == tuple(real.stride()), (spec, real.stride())


def check_inplace(op: Op, sample: Sample) -> None:
    if op.inplace_op is None and op.decl.kind != "random":
        return
    want = drawing(op)(*sample.args, **sample.kwargs)
    first = tensors_in(sample)[0]
    if want.shape != first.shape or want.dtype is not first.dtype:
        return
    target = first.clone()
    moved = with_tensors(sample, [target, *tensors_in(sample)[1:]])
    version = target._version
    torch.manual_seed(SEED)
    got = getattr(aten, op.name.rstrip("_") + "_")(*moved.args, **moved.kwargs)
    assert got is target and target._version == version + 1
    assert close(got, want, 0, 0)


def check_out(op: Op, sample: Sample) -> None:
    if op.out_op is None:
        return
    want = outputs(drawing(op)(*sample.args, **sample.kwargs))
    if op.decl.random and any(w.dim() > 1 or w.numel() > 15 for w in want):
        return  # what is drawn depends on how the bytes lie
    outs = [
        torch.empty_strided(tuple(w.shape), [s * 2 for s in _dense(w.shape)], dtype=w.dtype)
        for w in want
    ]
    drawing(op)(*sample.args, **sample.kwargs, out=outs[0] if len(outs) == 1 else tuple(outs))
    for i, (o, w) in enumerate(zip(outs, want, strict=True)):
        fresh = i in op.decl.out_fresh and not w.numel()
        kept = w.stride() if fresh else tuple(s * 2 for s in _dense(w.shape))
        assert o.stride() == kept, "out= must keep its strides"
        assert close(o, w, 1e-12, 0) or o.numel() == 0


def _dense(shape: Any) -> list[int]:
    out, c = [0] * len(shape), 1
    for i in range(len(shape) - 1, -1, -1):
        out[i] = c
        c *= max(shape[i], 1)
    return out


def check_bfloat16(op: Op, wide: Sample) -> None:
    """bfloat16 results within a rounding of the float64 results on the same inputs; a refusal where
    the declaration says so."""
    narrow = with_tensors(
        wide, [t.to(torch.bfloat16) if t.dtype.is_floating_point else t for t in tensors_in(wide)]
    )
    exact = with_tensors(
        wide, [t.to(torch.float64) if t.dtype.is_floating_point else t for t in tensors_in(narrow)]
    )
    if op.decl.random:
        return
    if not op.decl.takes16:
        with pytest.raises((NotImplementedError, RuntimeError), match="BFloat16"):
            function_of(op)(*narrow.args, **narrow.kwargs)
        return
    got, want = (
        function_of(op)(*narrow.args, **narrow.kwargs),
        function_of(op)(*exact.args, **exact.kwargs),
    )
    main = op.decl.differentiable
    for i, (g, w) in enumerate(zip(outputs(got), outputs(want), strict=True)):
        if not g.dtype.is_floating_point or not g.numel():
            continue
        if isinstance(main, tuple) and i not in main:
            continue  # what only the backward reads may be wider
        assert g.dtype is torch.bfloat16, g.dtype
        scale = w.abs().max().item() if w.numel() else 0
        finite = scale if scale == scale and scale != float("inf") else 1.0
        assert close(g, w, 2**-7, max(finite * 2**-7, 1e-6)), (g, w)


def check_layout(op: Op, dtype: Any, layout: str) -> None:
    """Permuted operands give the values of contiguous ones."""
    for a, b in zip(samples_of(op, dtype), samples_of(op, dtype, layout), strict=True):
        if op.decl.random:
            continue
        left, right = function_of(op)(*a.args, **a.kwargs), function_of(op)(*b.args, **b.kwargs)
        for x, y in zip(outputs(left), outputs(right), strict=True):
            assert close(x, y, 1e-12, 1e-13), (x, y)


def _scalar(op: Op, sample: Sample, cotangents: list[Any]) -> Any:
    outs = [
        o
        for o in outputs(function_of(op)(*sample.args, **sample.kwargs))
        if o.dtype.is_floating_point
    ]
    total = None
    for o, c in zip(outs, cotangents, strict=False):
        part = (o * c).sum()
        total = part if total is None else total + part
    return total


def constants_of(op: Op, sample: Sample) -> list[Any]:
    """The sample's tensors that may not require gradients."""
    named = dict(zip((a.name for a in op.schema.args), sample.args, strict=False)) | sample.kwargs
    return [named[n] for n in op.decl.constants if isinstance(named.get(n), torch.Tensor)]


def refuses_gradient(error: Exception) -> bool:
    """Whether an operator says what its declaration says: that it has no derivative."""
    said = re.search(r"derivative for '?(?:aten::)?(\w+)'? is not implemented", str(error))
    packet = PACKETS.get(("aten", said.group(1))) if said else None
    return packet is not None and (packet.ops[0].decl.no_gradient or packet.ops[0].decl.no_formula)


def check_gradients(op: Op, sample: Sample, second: bool = False) -> None:
    """Directional derivatives against central differences in float64."""
    if op.decl.differentiable is False or op.decl.random:
        return
    values = tensors_in(sample)
    fixed = [id(t) for t in constants_of(op, sample)]
    places = [
        i
        for i, t in enumerate(values)
        if t.dtype.is_floating_point and t.numel() and id(t) not in fixed
    ]
    outs = [
        o
        for o in outputs(function_of(op)(*sample.args, **sample.kwargs))
        if isinstance(o, torch.Tensor) and o.dtype.is_floating_point
    ]
    if not places or not outs or not outs[0].numel():
        return
    if op.decl.no_formula or op.decl.no_gradient:
        given = with_tensors(
            sample, [t.detach().clone().requires_grad_(t.dtype.is_floating_point) for t in values]
        )
        with pytest.raises(RuntimeError, match="derivative for") as info:
            outputs(function_of(op)(*given.args, **given.kwargs))[0].sum().backward()
        assert refuses_gradient(info.value)
        return
    generator = torch.Generator().manual_seed(7)
    keep = op.decl.differentiable
    cotangents = [
        torch.rand(o.shape, dtype=o.dtype, generator=generator) - 0.5
        if keep is True or i in keep
        else torch.zeros_like(o)
        for i, o in enumerate(outs)
    ]
    direction = [
        torch.rand(t.shape, dtype=t.dtype, generator=generator) - 0.5
        for t in (values[i] for i in places)
    ]

    def at(step: float) -> list[Any]:
        moved = [t.detach().clone() for t in values]
        for i, d in zip(places, direction, strict=True):
            moved[i] = (moved[i] + d * step).requires_grad_()
        return moved

    def value(step: float) -> float:
        return float(_scalar(op, with_tensors(sample, at(step)), cotangents).item())

    def first(step: float, create: bool) -> Any:
        moved = at(step)
        total = _scalar(op, with_tensors(sample, moved), cotangents)
        if not total.requires_grad:
            return None, moved
        grads = grad(total, [moved[i] for i in places], create_graph=create, allow_unused=True)
        dot = None
        for g, d in zip(grads, direction, strict=True):
            if g is not None:
                part = (g * d).sum()
                dot = part if dot is None else dot + part
        return dot, moved

    h = 1e-6
    dot, moved = first(0.0, second)
    if dot is None:
        return
    if not second:
        numeric = (value(h) - value(-h)) / (2 * h)
        assert abs(numeric - float(dot.item())) <= 1e-5 + 1e-5 * abs(numeric), (
            numeric,
            float(dot.item()),
        )
        return
    if not dot.requires_grad:
        return
    try:
        grads = grad(dot, [moved[i] for i in places], allow_unused=True)
    except (NotImplementedError, RuntimeError) as error:
        if refuses_gradient(error):
            return
        raise
    analytic = sum(
        float((g * d).sum().item()) for g, d in zip(grads, direction, strict=True) if g is not None
    )
    high, low = first(h, False)[0], first(-h, False)[0]
    numeric = (float(high.item()) - float(low.item())) / (2 * h)
    assert abs(numeric - analytic) <= 1e-4 + 1e-4 * abs(numeric), (numeric, analytic)
