"""Every declared operator with samples through the layers: fake, traced,
functionalised, compiled."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.compiler.aot import aot_function
from flambeau._src.interp.fake import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from flambeau._src.interp.functionalize import functionalize
from flambeau._src.interp.trace import trace_flat
from flambeau._src.ops.call import aten
from tests.ops import battery

OPS = list(battery.tested_ops())
IDS = [op.key for op in OPS]
BY_VALUE = (DataDependentOutputException, DynamicOutputShapeException)


def _samples(op: Any, layout: str = "contiguous", most: int = 6) -> list[Any]:
    return battery.samples_of(op, torch.float32, layout)[:most]


def _quiet(fn: Any, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fn(*args)


def _lifted(op: Any, sample: Any) -> tuple[Any, list[Any]]:
    def call(*tensors: Any) -> list[Any]:
        s = battery.with_tensors(sample, list(tensors))
        out = battery.drawing(op)(*s.args, **s.kwargs)
        return [t for t in battery.outputs(out) if isinstance(t, torch.Tensor)]

    return call, battery.tensors_in(sample)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_fake(op: Any) -> None:
    """Geometry, dtype and device of fake results are those of eager, strides included, and no
    random number is used up."""
    for layout in ("contiguous", "permuted", "channels_last"):
        for sample in _samples(op, layout):
            call, tensors = _lifted(op, sample)
            real = _quiet(call, *tensors)
            mode = FakeTensorMode()
            torch.manual_seed(battery.SEED)  # what draws begins there too
            drawn = torch.get_rng_state()
            with mode:
                try:
                    fake = _quiet(call, *[mode.from_tensor(t) for t in tensors])
                except BY_VALUE:
                    continue
            assert torch.equal(drawn, torch.get_rng_state()), "a fake run draws random numbers"
            assert len(fake) == len(real)
            for f, r in zip(fake, real, strict=True):
                assert isinstance(f, FakeTensor)
                seen = (f.shape, f.dtype, f.stride(), f.storage_offset(), f.device)
                assert seen == (r.shape, r.dtype, r.stride(), r.storage_offset(), r.device)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_trace(op: Any) -> None:
    """A trace, run node by node, gives what eager gives."""
    from flambeau._src.capture.higher_order import SubGraph

    for sample in _samples(op, most=2):
        call, tensors = _lifted(op, sample)
        try:
            tracer = _quiet(trace_flat, call, tensors)
        except RuntimeError as error:
            assert "get value out of a tracing tensor" in str(error)
            continue
        torch.manual_seed(battery.SEED)
        again = _quiet(SubGraph(tracer.attributes, tracer.graph), *tensors)
        for a, b in zip(again, _quiet(call, *tensors), strict=True):
            assert a.stride() == b.stride() and battery.close(a, b, 0, 0)


WRITING = [o for o in OPS if o.inplace_op is not None or o.decl.kind == "random"]


@pytest.mark.parametrize("op", WRITING, ids=lambda o: o.key)
def test_functionalized_in_place(op: Any) -> None:
    """The in-place form under functionalisation: through a view, the base changes as in eager."""
    for sample in _samples(op, most=3):
        tensors = battery.tensors_in(sample)
        if not tensors:
            continue
        call, _ = _lifted(op, sample)
        result = _quiet(call, *tensors)[0]
        if result.shape != tensors[0].shape or result.dtype is not tensors[0].dtype:
            continue

        def write(base: Any, *rest: Any, sample: Any = sample) -> Any:
            view = base[1]
            s = battery.with_tensors(sample, [view, *rest])
            torch.manual_seed(battery.SEED)
            getattr(aten, op.name.rstrip("_") + "_")(*s.args, **s.kwargs)
            return base * 1

        base = torch.stack([tensors[0], tensors[0]])
        eager, lazy = base.clone(), base.clone()
        a = _quiet(write, eager, *tensors[1:])
        b = _quiet(functionalize(write), lazy, *tensors[1:])
        for x, y in ((a, b), (eager, lazy)):
            assert battery.close(x, y, 0, 0)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_compiled(op: Any) -> None:
    """Joint graph and generated kernels: results and gradients of eager."""
    for sample in _samples(op, most=1):
        call, tensors = _lifted(op, sample)
        fixed = [id(t) for t in battery.constants_of(op, sample)]

        def run(fn: Any, tensors: Any = tensors, fixed: Any = fixed) -> list[Any]:
            leaves = [
                t.detach()
                .clone()
                .requires_grad_(
                    t.is_floating_point()
                    and id(t) not in fixed
                    and not (op.decl.no_formula or op.decl.no_gradient)
                )
                for t in tensors
            ]
            torch.manual_seed(battery.SEED)
            outs = list(_quiet(fn, *leaves))
            grown = [t for t in outs if t.requires_grad]
            wanted = [t for t in leaves if t.requires_grad]
            if grown and wanted:
                ones = [torch.ones_like(t) for t in grown]
                outs += [
                    g
                    for g in torch.autograd.grad(grown, wanted, ones, allow_unused=True)
                    if g is not None
                ]
            return outs

        try:
            compiled = run(aot_function(call))
        except BY_VALUE:
            continue
        for a, b in zip(compiled, run(call), strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape
            assert battery.close(a, b, 1e-5, 1e-6)
