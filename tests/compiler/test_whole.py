"""Tensors that are made of others go through every back end: values, gradients, parts, guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils._pytree import tree_map

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
#: What its handler was called for: as the graph is made, not as it runs ahead of time.
CALLS: list[str] = []


class Two(torch.Tensor):
    """Two tensors of one geometry, and a tag; the operators run on both."""

    @staticmethod
    def __new__(cls, a: Any, b: Any, tag: Any = None) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device
        )

    def __init__(self, a: Any, b: Any, tag: Any = None) -> None:
        self.a, self.b, self.tag = a, b, tag

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Two({self.a}, {self.b}, {self.tag})"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["a", "b"], self.tag

    @staticmethod
    def __tensor_unflatten__(inner: Any, tag: Any, size: Any, stride: Any) -> Any:
        return Two(inner["a"], inner["b"], tag)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS.append(str(func))
        tags = [v.tag for v in args if isinstance(v, Two)]

        def run(name: str) -> Any:
            def part(v: Any) -> Any:
                return getattr(v, name) if isinstance(v, Two) else v

            return func(*tree_map(part, args), **tree_map(part, kwargs or {}))

        a, b = run("a"), run("b")
        if isinstance(a, torch.Tensor):
            return Two(a, b, tags[0] if tags else None)
        if isinstance(a, (tuple, list)):
            return type(a)(Two(x, y) for x, y in zip(a, b, strict=True))
        return a

    def both(self) -> Any:
        return self.a + self.b

    @property
    def doubled(self) -> Any:
        return self * 2


class Hidden(torch.Tensor):
    """Has a handler, and does not say what it is made of."""

    @staticmethod
    def __new__(cls, a: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

    def __init__(self, a: Any) -> None:
        self.a = a

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = [v.a if isinstance(v, Hidden) else v for v in args]
        return Hidden(func(*args, **(kwargs or {})))


def two(tag: Any = None, grad: bool = False, n: int = 3) -> Any:
    made = Two(torch.arange(1.0, 1.0 + n), torch.arange(2.0, 2.0 + n) / 4, tag)
    return made.requires_grad_(grad)


def nested(grad: bool = False) -> Any:
    return Two(two("inner"), two("other"), "outer").requires_grad_(grad)


def parts(v: Any) -> Any:
    """What a result consists of, in lists."""
    if isinstance(v, Two):
        return ["Two", parts(v.a), parts(v.b), v.tag, v.requires_grad]
    if isinstance(v, torch.Tensor):
        return [type(v).__name__, v.shape, v.detach().tolist(), v.requires_grad]
    if isinstance(v, (list, tuple)):
        return [parts(x) for x in v]
    return v


def near(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(near, a, b))
    if isinstance(a, float):
        return b == pytest.approx(a, rel=1e-6)
    return bool(a == b)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "one": lambda x: x.sin() * 2,
    "several": lambda x: (x.sin(), x * 2 + x, x.sum()),
    "with plain": lambda x: x * torch.ones(3) + 1,
    "method": lambda x: x.both() + x.a,
    "property": lambda x: x.doubled.sin(),
    "part of what is made": lambda x: (x * 3).b,
    "shape": lambda x: x.reshape(1, 3) * x.shape[0],
    "branch": lambda x: x * 2 if x.tag == 4 else x * 3,
    "itself": lambda x: (x, x * 2),
    "unbound": lambda x: x.unbind(),
    "matmul": lambda x: x[None] @ torch.arange(9.0).reshape(3, 3),
    "class": lambda x: (x * 1, type(x) is Two, isinstance(x, torch.Tensor), x.requires_grad),
}


@BACKENDS
@pytest.mark.parametrize("make", [two, nested, lambda grad=False: two(4, grad)])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_eager(name: str, grad: bool, make: Any, backend: str) -> None:
    torch._dynamo.reset()
    fn = FUNCTIONS[name]
    compiled = torch.compile(fn, backend=backend, fullgraph=True)

    def run(f: Any) -> Any:
        x = make(grad=grad)
        out = f(x)
        for v in out if isinstance(out, tuple) else (out,):
            if isinstance(v, torch.Tensor) and v.requires_grad and v is not x:
                v.sum().backward(torch.ones_like(v.sum()), retain_graph=True)
        return parts(out), parts(x.grad), parts(x)

    expected = run(fn)
    for _ in range(2):
        found = run(compiled)
        assert all(map(near, expected, found)), (expected, found)
    (entry,) = compiled.compiler().entries
    assert not entry.contained


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_handlers_do_not_run_again(backend: str) -> None:
    """The graph is one of the parts' operators."""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (x.sin() * 2).sum(), backend=backend, fullgraph=True)
    for k in range(3):
        x = two(grad=True)
        CALLS.clear()
        compiled(x).backward(two(n=3).sum().detach())
        if k:
            assert not [c for c in CALLS if "sin" in c or "mul" in c or "cos" in c]
        assert type(x.grad) is Two


@BACKENDS
def test_guards(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x * 2 if x.tag == 1 else x * 3, backend=backend)
    for x, factor in ((two(1), 2), (two(2), 3), (torch.ones(3) * 1, None), (two(1), 2)):
        if factor is None:
            with pytest.raises(AttributeError):
                compiled(x)
            continue
        assert near(parts(compiled(x)), parts(x * factor))
    (first, second) = [e for e in compiled.compiler().entries if not e.breaks][:2]
    assert first is not second


@BACKENDS
def test_parts_of_another_geometry(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin(), backend=backend, fullgraph=True)
    for n in (3, 5, 7, 3):
        assert near(parts(compiled(two(n=n))), parts(two(n=n).sin()))


@BACKENDS
def test_written_in_place(backend: str) -> None:
    torch._dynamo.reset()

    def f(x: Any) -> Any:
        x.mul_(2)
        return x + 1

    x, y = two(), two()
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    for _ in range(2):
        assert near(parts(compiled(x)), parts(f(y)))
        assert near(parts(x), parts(y))


@BACKENDS
def test_made_inside(backend: str) -> None:
    torch._dynamo.reset()

    def f(a: Any) -> Any:
        made = Two(a.sin(), a.cos(), 7)
        return made * 2, made.b + 1

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    for _ in range(2):
        assert near(parts(compiled(torch.arange(3.0))), parts(f(torch.arange(3.0))))


class Net(nn.Module):
    """A parameter that is made of others."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(two())
        self.plain = nn.Parameter(torch.ones(3))

    def forward(self, value: Any) -> Any:
        return (value * self.weight + self.weight.sin()) * self.plain.detach()


@BACKENDS
def test_a_parameter(backend: str) -> None:
    torch._dynamo.reset()

    def train(through: Any) -> Any:
        model = Net()
        call = through(model)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            out = call(torch.arange(3.0))
            out.backward(torch.ones_like(out))
            opt.step()
        return parts(model.weight), parts(model.weight.grad)

    expected = train(lambda m: m)
    found = train(lambda m: torch.compile(m, backend=backend, fullgraph=True))
    assert near(list(expected), list(found))


def test_what_cannot_be_taken_apart_says_so() -> None:
    torch._dynamo.reset()
    x = Hidden(torch.ones(3))
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    assert compiled(x).a.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(torch._dynamo.exc.Unsupported, match="cannot be taken apart"):
        torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_gradient_made_otherwise(backend: str) -> None:
    torch._dynamo.reset()
    x = two(grad=True)
    out = torch.compile(lambda x: x * 2, backend=backend, fullgraph=True)(x)
    with pytest.raises(RuntimeError, match="guessed its metadata incorrectly"):
        out.backward(two("another"))


@pytest.mark.parametrize("make", [two, nested], ids=["two", "nested"])
@BACKENDS
def test_a_training_step_in_one_graph(make: Any, backend: str) -> None:
    """`backward` in the graph, of a loss that is made of others and of one that is not."""

    def run(compiled: bool) -> Any:
        w, bias = torch.nn.Parameter(make()), torch.nn.Parameter(torch.ones(3))
        opt = torch.optim.SGD([w, bias], lr=0.5)

        def step(x: Any) -> Any:
            opt.zero_grad()
            loss = (w * x + w.sin()).sum()
            loss.backward(torch.ones_like(loss))
            (bias * x).sum().backward()
            opt.step()
            return loss.detach()

        f = torch.compile(step, backend=backend, fullgraph=True) if compiled else step
        out = [f(torch.arange(3.0)), f(torch.arange(3.0) + 1)]
        return parts([out, w.detach(), bias.detach(), w.grad, bias.grad])

    assert near(run(True), run(False))
