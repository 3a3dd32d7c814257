"""Sizes as symbols through `compile`: one version for all sizes that pass the guards."""

from typing import Any

import pytest

import flambeau as torch
from flambeau._dynamo.utils import counters

F = torch.nn.functional


def _graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def shapes(x: Any) -> Any:
    b, t = x.shape
    return x.reshape(b * t) * t, b + 1, x.size(), [t // 2, (b,)]


def built(x: Any) -> Any:
    n = x.shape[0]
    y = torch.zeros(n + 1, 2) + torch.arange(n + 1)[:, None]
    return torch.cat([y, y]).sum(0), x[: n - 1].mean(), x[n // 2], x[-1:].exp()


def branches(x: Any) -> Any:
    if x.shape[0] > 4:
        return x.sin() * x.shape[0]
    return x.cos()


def texts(x: Any) -> Any:
    n = x.shape[0]
    names = {4: "four", 6: "six"}
    return x + 1, f"{n} rows", names.get(n, "many"), isinstance(n, int), str(x.shape), n == 4


def loops(x: Any) -> Any:
    y = x
    for i in range(x.shape[1]):
        y = y + i * x.shape[0]
    return y, [x.shape[0]] * 2, max(x.shape[0], 3)


def attention(x: Any) -> Any:
    b, t, c = x.shape
    q = x.view(b, t, 2, c // 2).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return y.transpose(1, 2).contiguous().view(b, t, c)


def written(x: Any) -> Any:
    y = x.detach().clone()
    y[:, 0] = x.shape[0]
    y.add_(1)
    return y.sum(0) * x


PROGRAMS = [shapes, built, branches, texts, loops, written]


def _check(fn: Any, compiled: Any, *args: Any) -> None:
    expected, found = fn(*args), compiled(*args)
    _same(found, expected)


def _same(a: Any, b: Any) -> None:
    if isinstance(a, torch.Tensor):
        assert a.shape == b.shape and torch.allclose(a, b, atol=1e-5)
        if b.requires_grad:
            leaf = torch.ones_like(b)
            assert torch.allclose(a.grad_fn is not None and a * leaf, b * leaf, atol=1e-5)
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            _same(x, y)
    else:
        assert type(a) is type(b) and a == b


@pytest.mark.parametrize("back_end", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [True, None, False])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_programs(fn: Any, dynamic: Any, back_end: str) -> None:
    compiled = torch.compile(fn, backend=back_end, dynamic=dynamic, fullgraph=True)
    for n, m in ((4, 3), (6, 3), (2, 3), (6, 5), (9, 4), (1, 3), (4, 3)):
        x = torch.randn(n, m, requires_grad=True)
        if fn is built and n == 1:
            continue
        expected, found = fn(x), compiled(x)
        _same(found, expected)
        grads = []
        for out in (found, expected):
            first = out[0] if isinstance(out, tuple) else out
            grads.append(torch.autograd.grad(first.sum(), x)[0] if first.requires_grad else x)
        assert torch.allclose(*grads, atol=1e-5)


@pytest.mark.parametrize("back_end", ["eager", "inductor"])
def test_one_version(back_end: str) -> None:
    """dynamic=True: one; None: a second one when a size changed; False: one a size."""
    for dynamic, versions in ((True, 1), (None, 2), (False, 4)):
        torch._dynamo.reset()
        compiled = torch.compile(shapes, backend=back_end, dynamic=dynamic)
        before = _graphs()
        for n in (3, 5, 8, 13):
            _check(shapes, compiled, torch.randn(n, 4))
        assert _graphs() - before == versions


@pytest.mark.parametrize("back_end", ["eager", "aot_eager", "inductor"])
def test_views_as_inputs(back_end: str) -> None:
    """Slices of one tensor, of several lengths and places, written as well."""

    def f(x: Any) -> Any:
        x.mul_(2)
        return x.view(-1, 2).sum(1) * x.shape[0]

    compiled = torch.compile(f, backend=back_end, dynamic=True, fullgraph=True)
    before = _graphs()
    data = torch.randn(12, 4)
    for low, high in ((0, 5), (3, 6), (2, 11)):
        a, b = data.clone(), data.clone()
        assert torch.allclose(compiled(a[low:high]), f(b[low:high]))
        assert torch.equal(a, b)
    assert _graphs() - before == 1


def test_zero_and_one_are_apart() -> None:
    compiled = torch.compile(lambda x: x * x.shape[0], backend="eager", dynamic=True)
    before = _graphs()
    for n in (5, 7, 1, 0, 9):
        assert compiled(torch.ones(n, 3)).shape == (n, 3)
    assert _graphs() - before == 3


def test_both_sides_of_a_branch() -> None:
    compiled = torch.compile(branches, backend="eager", dynamic=True)
    before = _graphs()
    for n in (8, 5, 4, 3, 9):
        _check(branches, compiled, torch.randn(n, 2))
    assert _graphs() - before == 2


def test_marks() -> None:
    compiled = torch.compile(lambda x: x.sum(0) + x.shape[1], backend="eager")
    before = _graphs()
    for n in (5, 6, 7):
        x = torch.randn(n, 4)
        torch._dynamo.mark_dynamic(x, 0)
        compiled(x)
    assert _graphs() - before == 1
    compiled(torch.randn(6, 5))
    assert _graphs() - before == 2
    torch._dynamo.reset()
    before = _graphs()
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=True)
    for n in (5, 6):
        x = torch.randn(n, 4)
        torch._dynamo.mark_static(x, 0)
        compiled(x)
    assert _graphs() - before == 2


def test_unbacked() -> None:
    """A size of which nothing may be assumed: 0 and 1 are no other versions, branches are none."""
    compiled = torch.compile(lambda x: x.sum(0) + x.shape[0], backend="inductor", fullgraph=True)
    before = _graphs()
    for n in (5, 3, 1, 0):
        x = torch.arange(n * 4.0).view(n, 4)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        assert torch.allclose(compiled(x), x.sum(0) + n)
    assert _graphs() - before == 1
    branch = torch.compile(lambda x: x * 2 if x.shape[0] > 3 else x, fullgraph=True)
    with pytest.raises(Exception, match="Could not guard on data-dependent expression u0 > 3"):
        branch(x)


def test_a_broken_promise() -> None:
    compiled = torch.compile(lambda x: x + torch.ones(5, 1), backend="eager")
    x = torch.randn(5, 4)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match="Constraints violated"):
        compiled(x)


@pytest.mark.parametrize("back_end", ["eager", "aot_eager", "inductor"])
def test_modules_train(back_end: str) -> None:
    """One version of a block with batch and length free; its gradients equal eager's."""
    torch.manual_seed(0)

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(11, 8)
            self.norm = torch.nn.LayerNorm(8)
            self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

        def forward(self, i: Any) -> Any:
            x = self.embed(i) + torch.arange(i.shape[1])[:, None] / 10
            x = x + attention(self.norm(x))
            x = x + self.down(F.gelu(self.up(x)))
            return F.cross_entropy((x @ self.embed.weight.t()).flatten(0, 1), i.flatten())

    model = Block()
    compiled = torch.compile(model, backend=back_end, dynamic=True, fullgraph=True)
    before = _graphs()
    for b, t in ((2, 5), (3, 7), (4, 4), (2, 9)):
        i = torch.randint(0, 11, (b, t))
        losses, grads = [], []
        for m in (model, compiled):
            model.zero_grad()
            loss = m(i)
            loss.backward()
            losses.append(loss)
            grads.append([p.grad.clone() for p in model.parameters()])
        assert torch.allclose(*losses, atol=1e-5)
        for a, b_ in zip(*grads, strict=True):
            assert torch.allclose(a, b_, atol=1e-5)
    assert _graphs() - before == 1
