"""Operators traced with sizes that are symbols: right for all sizes that pass the guards.

Each operator's samples are traced once; then other sizes are looked for that pass every guard, and
the traced graph must give there what eager gives. A size that was silently fixed, or a guard that
was lost, shows as a wrong result or an error.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.interp.fake import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from flambeau._src.interp.trace import trace_flat
from flambeau._src.ir.integers import symbol
from flambeau._src.ir.shape_env import GuardOnDataDependentSymNode, ShapeEnv
from flambeau.fx import GraphModule
from flambeau.fx.experimental.proxy_tensor import make_fx
from tests.ops import battery

OPS = [op for op in battery.tested_ops() if not op.decl.random]
BY_VALUE = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


def _lifted(op: Any, sample: Any) -> tuple[Any, list[Any]]:
    def call(*tensors: Any) -> list[Any]:
        s = battery.with_tensors(sample, list(tensors))
        out = battery.function_of(op)(*s.args, **s.kwargs)
        return [t for t in battery.outputs(out) if isinstance(t, torch.Tensor)]

    return call, battery.tensors_in(sample)


def _traced(call: Any, tensors: list[Any]) -> tuple[Any, ShapeEnv, list[Any]]:
    env = ShapeEnv()
    fake = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    fakes = [fake.from_tensor(t, source=i) for i, t in enumerate(tensors)]
    tracer = trace_flat(call, fakes, mode="symbolic", fake=fake)
    return GraphModule(tracer.attributes, tracer.graph), env, fakes


def _other_sizes(env: ShapeEnv) -> dict[str, int] | None:
    """Other values of the symbols that pass every guard: the first found near the hints."""
    hints = env.hints()
    names = [n for n in hints if env.simplified(symbol(n)).constant is None]
    texts = [compile(text, "guard", "eval") for text, _ in env.conditions()]
    for deltas in itertools.islice(itertools.product((1, 2, 3, -1, 0), repeat=len(names)), 3000):
        if not any(deltas):
            continue
        sizes = {**hints, **{n: hints[n] + d for n, d in zip(names, deltas, strict=True)}}
        if min(sizes.values()) >= 2 and all(eval(t, {}, dict(sizes)) for t in texts):
            return sizes
    return None


def _resized(t: Any, fake: Any, sizes: dict[str, int], number: int) -> Any:
    """Another tensor like t, of the other sizes, with its order of dimensions."""
    shape = [n if isinstance(n, int) else n.node.expr.value(sizes) for n in fake.shape]
    order = sorted(range(t.dim()), key=lambda i: (-t.stride(i), i))
    back = [order.index(i) for i in range(t.dim())]
    generator = torch.Generator().manual_seed(number)
    made = torch.empty([shape[i] for i in order], dtype=torch.float64)
    low, high = (float(t.min()), float(t.max())) if t.numel() else (0.0, 1.0)
    made.uniform_(low, high + 1e-3 if t.is_floating_point() else high + 0.99, generator=generator)
    made = made.floor() if not t.is_floating_point() else made
    return made.permute(back).to(t.dtype)


def _quiet(fn: Any, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fn(*args)


#: Operators whose sizes are arguments of their own, numbers in these samples: nothing relates them
#: to the gradient beside them (in PyTorch neither), so other sizes are no valid call.
SIZES_APART = frozenset(
    # a segment's lengths, which are values, tell the size of the data
    "select_backward slice_backward diagonal_backward unfold_backward segment_reduce".split()
)


@pytest.mark.parametrize(
    "op", [op for op in OPS if op.key not in SIZES_APART], ids=lambda op: op.key
)
def test_other_sizes(op: Any) -> None:
    for layout in ("contiguous", "permuted"):
        for sample in battery.samples_of(op, torch.float32, layout)[:3]:
            call, tensors = _lifted(op, sample)
            try:
                graph, env, fakes = _quiet(_traced, call, tensors)
            except BY_VALUE:
                continue
            _same(_quiet(graph, *tensors), _quiet(call, *tensors))
            sizes = _other_sizes(env)
            if sizes is None:
                continue
            others = [
                _resized(t, f, sizes, i)
                for i, (t, f) in enumerate(zip(tensors, fakes, strict=True))
            ]
            try:
                expected = _quiet(call, *others)
            except (IndexError, RuntimeError) as error:
                if "index" in str(error) or "singular" in str(error):
                    continue  # the numbers that were drawn are no indices into the new sizes
                raise
            _same(_quiet(graph, *others), expected)


def _same(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype is b.dtype
        assert battery.close(a, b, 1e-5, 1e-6)


def test_sizes_are_nodes() -> None:
    def f(x: Any, y: Any) -> Any:
        z = (x + y).view(x.shape[0] * x.shape[1])
        return z.sum(0), torch.relu(x @ x.t()), torch.zeros(x.shape[0] + 1), x.numel()

    g = make_fx(f, tracing_mode="symbolic")(torch.randn(3, 4), torch.randn(4))
    assert [n.name for n in g.graph.nodes if "sym" in n.name] == ["sym_size_int", "sym_size_int_1"]
    assert [text for text, _ in g.shape_env.conditions()] == ["s0 >= 2", "s1 >= 2"]
    a = torch.randn(5, 7), torch.randn(7)
    found, expected = g(*a), f(*a)
    assert found[3] == expected[3] == 35
    for x, y in zip(found[:3], expected[:3], strict=True):
        assert torch.equal(x, y)
