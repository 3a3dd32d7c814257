"""Forward and backward with symbolic sizes: compiled once, right for all sizes."""

from typing import Any

import pytest

import flambeau as torch
from flambeau._src.compiler import aot, joint, partition
from flambeau._src.interp.fake import FakeTensorMode
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import sym_int

PARTITIONS = [partition.default_partition, partition.min_cut_partition]


def _compiled(fn: Any, part: Any, *args: Any) -> tuple[aot.Entry, ShapeEnv]:
    env = ShapeEnv()
    fake = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    given = [
        fake.from_tensor(v, source=i)
        if isinstance(v, torch.Tensor)
        else sym_int(env, env.size(v, (i, "int", 0)))
        for i, v in enumerate(args)
    ]
    made = joint.trace_joint(fn, given)
    aot.cleaned(made)
    guards = len(env.guards)
    entry = aot.Entry(made, part(made), aot.own_compiler)
    assert len(env.guards) == guards, "a later stage may not learn from sizes"
    return entry, env


def _same(entry: aot.Entry, fn: Any, *args: Any) -> None:
    """Results, gradients, and what is written into the inputs."""
    results = []
    for call in (entry, fn):
        given = [
            v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v
            for v in args
        ]
        leaves = [v for v in given if isinstance(v, torch.Tensor) and v.requires_grad]
        outs = call(given) if call is entry else call(*given)
        tensors = [v for v in outs if isinstance(v, torch.Tensor)]
        wanted = [t.sin().sum() for t in tensors if t.requires_grad]
        grads = torch.autograd.grad(sum(wanted), leaves) if wanted else ()
        numbers = [v for v in outs if not isinstance(v, torch.Tensor)]
        results.append((tensors, grads, numbers, [v for v in given if v is not None]))
    (a, ga, na, ia), (b, gb, nb, ib) = results
    assert na == nb
    for x, y in zip([*a, *ga, *ia], [*b, *gb, *ib], strict=True):
        if isinstance(x, torch.Tensor):
            assert x.shape == y.shape and x.stride() == y.stride()
            assert torch.allclose(x, y, atol=1e-5)
        else:
            assert x == y


@pytest.mark.parametrize("part", PARTITIONS)
def test_training(part: Any) -> None:
    def f(x: Any, w: Any, n: Any) -> Any:
        h = torch.nn.functional.gelu(x @ w.t()) * 2 + 1
        y = torch.softmax(h.view(x.shape[0], -1), -1)
        return (y * y).sum(0) * n, x.shape[0] * 2, h.transpose(0, 1)

    def inputs(rows: int, deep: int, wide: int, n: int) -> list[Any]:
        return [
            torch.randn(rows, deep, requires_grad=True),
            torch.randn(wide, deep, requires_grad=True),
            n,
        ]

    entry, env = _compiled(f, part, *inputs(6, 4, 8, 3))
    assert not env.guards
    for sizes in ((6, 4, 8, 3), (10, 7, 5, 4), (33, 2, 64, 9)):
        _same(entry, f, *inputs(*sizes))


@pytest.mark.parametrize("part", PARTITIONS)
def test_writes_and_reduced_sizes(part: Any) -> None:
    def f(x: Any, buffer: Any) -> Any:
        buffer.add_(x.detach().mean(0))
        return (x - buffer) / x.shape[0], x.reshape(-1)[: x.shape[1]].clone()

    entry, env = _compiled(f, part, torch.randn(6, 4, requires_grad=True), torch.randn(4))
    for rows, wide in ((6, 4), (3, 8), (9, 2)):
        names = dict(zip(env.symbols, (rows, wide), strict=True))
        assert all(eval(text, {}, names) for text, _ in env.conditions())
        _same(entry, f, torch.randn(rows, wide, requires_grad=True), torch.randn(wide))
