"""Graphs with symbolic sizes as programs: compiled once, right for all that pass the guards."""

from typing import Any

import pytest

import flambeau as torch
from flambeau._src.compiler.assemble import assemble
from flambeau._src.compiler.passes import tidy
from flambeau._src.interp.fake import DataDependentOutputException, DynamicOutputShapeException
from flambeau._src.ir.shape_env import GuardOnDataDependentSymNode
from flambeau.fx.experimental.proxy_tensor import make_fx
from tests.interp import test_symbolic as symbolic
from tests.ops import battery

BY_VALUE = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


def _program(fn: Any, *args: Any) -> tuple[Any, Any]:
    g = make_fx(fn, tracing_mode="symbolic")(*args)
    tidy(g.graph)
    before = len(g.shape_env.guards)
    attributes = {str(n.target): getattr(g, n.target) for n in g.graph.nodes if n.op == "get_attr"}
    made = assemble(g.graph, attributes)
    assert len(g.shape_env.guards) == before, "a later stage may not learn from sizes"
    return made, g.shape_env


def test_fused_kernels_of_any_size() -> None:
    def f(x: Any, w: Any) -> Any:
        h = torch.nn.functional.gelu(x @ w.t()) * 2 + 1
        return torch.softmax(h.view(x.shape[0] * w.shape[0] // 2, 2), -1), h.sum(0)

    program, env = _program(f, torch.randn(6, 4), torch.randn(8, 4))
    assert "s0 = " in program.source and "(6" not in program.source
    assert len(program.kernels) >= 1
    for rows, wide, deep in ((6, 8, 4), (10, 2, 7), (32, 64, 16)):
        sizes = dict(zip(env.symbols, (rows, deep, wide), strict=True))
        assert all(eval(t, {}, dict(sizes)) for t, _ in env.conditions())
        a = torch.randn(rows, deep), torch.randn(wide, deep)
        for p, q in zip(program(a), f(*a), strict=True):
            assert torch.allclose(p, q, atol=1e-6)


def test_int_inputs() -> None:
    program, _ = _program(lambda x, n: x[:n] * n, torch.randn(9), 4)
    for n in (2, 5, 8):
        x = torch.randn(9 + n)
        assert torch.equal(program([x, n])[0], x[:n] * n)


@pytest.mark.parametrize("layout", ["contiguous", "permuted"])
def test_every_operator(layout: str) -> None:
    """The operators' samples as programs of other sizes than those that they were traced with."""
    tried = 0
    for op in symbolic.OPS:
        if op.key in symbolic.SIZES_APART:
            continue
        for sample in battery.samples_of(op, torch.float32, layout)[:1]:
            call, tensors = symbolic._lifted(op, sample)
            try:
                graph, env, fakes = symbolic._quiet(symbolic._traced, call, tensors)
            except BY_VALUE:
                continue
            sizes = symbolic._other_sizes(env)
            if sizes is None:
                continue
            names = {str(n.target) for n in graph.graph.nodes if n.op == "get_attr"}
            tidy(graph.graph)
            program = assemble(graph.graph, {n: getattr(graph, n) for n in names})
            others = [
                symbolic._resized(t, f, sizes, i)
                for i, (t, f) in enumerate(zip(tensors, fakes, strict=True))
            ]
            try:
                expected = symbolic._quiet(call, *others)
            except (IndexError, RuntimeError):
                continue  # judged in tests/interp/test_symbolic.py
            found = symbolic._quiet(program, others)
            for a, b in zip(found, expected, strict=True):
                assert a.shape == b.shape and a.dtype is b.dtype, op.key
                assert battery.close(a, b, 1e-5, 1e-6), op.key
            tried += 1
    assert tried > 150
