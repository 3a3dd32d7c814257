"""Programs with numbers that only running tells: `.item()`, `nonzero`, masks; traced once, forward
and backward, right for every outcome."""

from typing import Any

import pytest

import flambeau as torch
from flambeau._src.compiler import aot, joint, partition
from flambeau._src.interp.fake import FakeTensorMode
from flambeau._src.ir.shape_env import GuardOnDataDependentSymNode, ShapeEnv
from flambeau.fx.experimental.proxy_tensor import make_fx

F = torch.nn.functional
PARTITIONS = [partition.default_partition, partition.min_cut_partition]


def _compiled(fn: Any, part: Any, *args: Any) -> tuple[aot.Entry, ShapeEnv]:
    env = ShapeEnv()
    fake = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    made = joint.trace_joint(fn, [fake.from_tensor(t, source=i) for i, t in enumerate(args)])
    aot.cleaned(made)
    return aot.Entry(made, part(made), aot.own_compiler), env


def _flat(v: Any) -> list[Any]:
    return list(v) if isinstance(v, (tuple, list)) else [v]


def _same(entry: Any, fn: Any, *args: Any) -> None:
    results: list[list[Any]] = []
    for call in (lambda *a: entry(list(a)), fn):
        given = [v.detach().clone().requires_grad_(v.requires_grad) for v in args]
        leaves = [v for v in given if v.requires_grad]
        outs = _flat(call(*given))
        wanted = [t.sin().sum() for t in outs if isinstance(t, torch.Tensor) and t.requires_grad]
        results.append(outs)
        results[-1] += torch.autograd.grad(sum(wanted), leaves) if wanted else ()
    for a, b in zip(*results, strict=True):
        if isinstance(a, torch.Tensor):
            assert a.shape == b.shape and a.dtype is b.dtype
            assert torch.allclose(a, b, atol=1e-6, equal_nan=True)
        else:
            assert a == b and type(a) is type(b)


def picked(x: Any) -> Any:
    return x[x > 0].exp().sum(), torch.masked_select(x, x < 1) * 2


def rows(x: Any) -> Any:
    kept = x[x[:, 0] > 0]
    return kept @ x.t(), F.layer_norm(kept, (kept.shape[1],)), kept.shape[0] * 2


def places(x: Any) -> Any:
    at = (x > 0).nonzero()
    return at + 1, x[at[:, 0], at[:, 1]].tanh(), at.shape[0]


def scattered(x: Any) -> Any:
    y = x * 2
    y[x > 0] = 0
    return y.sum(1), x.index_select(0, (x[:, 0] > 0).nonzero().squeeze(1))


def joined(x: Any) -> Any:
    a, b = x[x > 0], x[x <= 0]
    return torch.cat([a, b]).cos(), a.sum() - b.sum(), torch.cat([a, a * 2])


def sliced(x: Any) -> Any:
    a = x[x > 0]
    return a[:2], a[1:], a.flip(0).cumsum(0), torch.arange(a.shape[0])


def counted(x: Any) -> Any:
    n = (x > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0] * x.shape[1])
    return torch.ones(n).cumsum(0), x.flatten()[:n].exp(), n + 1


def scaled(x: Any) -> Any:
    s = x.detach().sum().item()
    return x * s, s * 2


def distinct(x: Any) -> Any:
    values, inverse, counts = torch.unique(
        (x.detach() * 2).round(), return_inverse=True, return_counts=True
    )
    return values[inverse] + x, counts, torch.bincount(inverse.flatten())


def repeated(x: Any) -> Any:
    n = (x.detach()[:, 0].abs() * 3).long()
    return torch.repeat_interleave(torch.arange(x.shape[0]), n), n.sum()


PROGRAMS = [picked, rows, places, scattered, joined, sliced, counted, scaled, distinct, repeated]


@pytest.mark.parametrize("part", PARTITIONS)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_programs(fn: Any, part: Any) -> None:
    entry, env = _compiled(fn, part, torch.randn(4, 3, requires_grad=True))
    assert not env.guards, [str(g.condition) for g in env.guards]
    for seed, (n, m) in enumerate(((4, 3), (6, 5), (2, 2), (17, 3))):
        torch.manual_seed(seed)
        for x in (torch.randn(n, m), torch.rand(n, m) + 0.1, -torch.rand(n, m) - 0.1):
            _same(entry, fn, x.requires_grad_())


@pytest.mark.parametrize("fn", PROGRAMS)
def test_traced(fn: Any) -> None:
    g = make_fx(fn, tracing_mode="symbolic")(torch.randn(4, 3))
    for n, m in ((4, 3), (7, 5)):
        _same(lambda args: g(*args), fn, torch.randn(n, m))


def test_what_was_checked_is_asserted() -> None:
    def f(x: Any) -> Any:
        n = x[0].item()
        torch._check(n >= 2)
        torch._check(n < 5, lambda: "too many")
        return torch.zeros(n) + 1

    entry, env = _compiled(f, partition.default_partition, torch.tensor([3, 1]))
    assert [str(c) for c in env.asserts] == ["u0 >= 2", "u0 <= 4"]
    assert entry([torch.tensor([4, 0, 0])]).tolist() == [1.0] * 4
    with pytest.raises(RuntimeError, match="Runtime assertion failed for expression u0 <= 4"):
        entry([torch.tensor([5, 0])])
    with pytest.raises(RuntimeError, match="Runtime assertion failed for expression u0 >= 2"):
        entry([torch.tensor([1, 0])])


def test_equal_sizes_are_asserted() -> None:
    def f(x: Any, y: Any) -> Any:
        n = y[0].item()
        torch._check(n == 3)
        return x[x > 0] + y, torch.zeros(n)

    entry, _ = _compiled(f, partition.default_partition, torch.ones(5), torch.tensor([3, 3]))
    x = torch.tensor([1.0, -1, 1])
    assert entry([x, torch.tensor([3, 2])])[0].tolist() == [4.0, 3.0]
    with pytest.raises(RuntimeError, match="Runtime assertion failed for expression Eq"):
        entry([x, torch.tensor([3, 2, 1])])
    with pytest.raises(RuntimeError, match="Runtime assertion failed for expression Eq"):
        entry([x, torch.tensor([4, 2])])


def test_index_is_asserted() -> None:
    entry, _ = _compiled(
        lambda x, i: x[i.item()], partition.default_partition, torch.randn(5), torch.tensor(2)
    )
    x = torch.arange(4.0)
    assert entry([x, torch.tensor(3)]).item() == 3
    for bad in (4, -1):
        with pytest.raises(RuntimeError, match="Runtime assertion failed"):
            entry([x, torch.tensor(bad)])


def _faked(fn: Any, *args: Any) -> Any:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        return fn(*[mode.from_tensor(a) for a in args])


ITEM = "Could not guard on data-dependent expression {0} (unhinted: {0}).  (Size-like symbols: {1})"


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda t: 1 if t[0].item() > 3 else 2, ITEM.format("u0 > 3", "none")),
        (lambda t: 1 if t.nonzero().shape[0] == 0 else 2, ITEM.format("Eq(u0, 0)", "u0")),
        (lambda t: 1 if (t > 0)[0].item() else 2, ITEM.format("Eq(u0, 1)", "none")),
        (lambda t: float(t.float()[0].item()), ITEM.format("zuf0", "none")),
        (
            lambda t: int(t[0].item()),
            "Could not extract specialized integer from data-dependent expression u0 "
            "(unhinted: u0).  (Size-like symbols: none)",
        ),
    ],
)
def test_branches(fn: Any, text: str) -> None:
    """The first line as PyTorch 2.13 says it."""
    with pytest.raises(GuardOnDataDependentSymNode) as found:
        _faked(fn, torch.arange(5))
    assert str(found.value).splitlines()[0] == text
    assert isinstance(found.value, RuntimeError) and found.value.cond is not None


def test_contradictions_are_found() -> None:
    def f(t: Any) -> Any:
        n = t[0].item()
        torch._check(n > 3)
        torch._check(n < 2, lambda: "two")

    with pytest.raises(RuntimeError, match="two"):
        _faked(f, torch.arange(5))


def test_one_number_is_read_once() -> None:
    def f(t: Any) -> Any:
        a, b = t[t > 1], (t * 2)[t > 1]
        same = a.shape[0] == b.shape[0]
        mask = t > 1
        return same if isinstance(same, bool) else None, t[mask].shape == t.flip(0)[mask].shape

    assert _faked(lambda t: t[(m := t > 1)].shape == t.flip(0)[m].shape, torch.arange(5))
    assert _faked(lambda t: (s := t.sum()).item() is s.item(), torch.arange(5))
