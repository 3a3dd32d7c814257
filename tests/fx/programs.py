"""Programs to trace, written against the library that `build` is given (flambeau, or PyTorch)."""

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple


class Pair(NamedTuple):
    first: Any
    second: Any


class Program(NamedTuple):
    """A function or module, the inputs that are fixed, and inputs to run it on (or None)."""

    name: str
    root: Callable[..., Any]
    concrete: dict[str, Any] | None
    inputs: tuple[Any, ...] | None


def build(torch: Any) -> list[Program]:
    """All programs, with their random weights seeded."""
    torch.manual_seed(0)
    x = torch.arange(6.0).reshape(2, 3) / 4 - 0.5
    y = torch.arange(6.0).reshape(3, 2) / 3
    out: list[Program] = []

    def add(root: Any, *inputs: Any, concrete: Any = None, name: str | None = None) -> None:
        name = name or getattr(root, "__name__", type(root).__name__)
        out.append(Program(name, root, concrete, inputs or None))

    for function in functions(torch):
        add(function, *INPUTS[function.__name__](torch, x, y))
    fixed = {f.__name__: f for f in partly_fixed(torch)}
    placeholder = torch.fx._symbolic_trace.PH
    nested = {"a": placeholder, "b": [placeholder]}
    add(fixed["nested"], {"a": x, "b": [x]}, x, concrete={"x": nested}, name="nested_open")
    add(fixed["nested"], {"a": x, "b": [2]}, x, concrete={"x": {"a": placeholder, "b": [2]}})
    add(fixed["optional"], x, concrete={"y": None})
    add(fixed["number"], x, 5, concrete={"y": 5})
    for name, module in modules(torch).items():
        if name not in ("Model", "Nested"):
            add(module, x, name=name)
    opened = {"a": placeholder, "b": placeholder}
    add(modules(torch)["Nested"], {"a": x, "b": y}, x, concrete={"x": opened})
    for flag in (True, False):
        add(modules(torch)["Model"], x, flag, concrete={"flag": flag}, name=f"Model_{flag}")
    return out


def functions(torch: Any) -> list[Callable[..., Any]]:
    """Plain functions."""
    F = torch.nn.functional

    def arithmetic(x, y):
        a = torch.add(x, x, alpha=2)
        c = F.relu(a).sum(dim=-1, keepdim=True)
        d = c + 1
        return a, [c, 1 - d], {"neg": -d, "row": x[0]}, x[..., 1:2, None], x.shape, x @ y, x.T

    def annotated(x: torch.Tensor, n: int = 3) -> torch.Tensor:
        return torch.cat([x, x], 0) * n

    def variadic(x: torch.Tensor, y: int = 3, *args, z: float | None = None, **kw):
        return x + math.pi

    def pair(x):
        return Pair(x, x + 1)

    def mutation(x):
        y = x.clone()
        y.add_(1)
        x.exp()
        return y, slice(x, None), x

    def unpacking(x):
        a, b = x
        return a + b

    def attributes(x):
        return x.foo.bar(x.foo, 1, k=2), x(3)

    def operators(x):
        return (
            (abs(x), x > 1, x == 1, x**2, x // 2, x % 2, 2**x, x / 3, 3 / x, +x, x - x),
            x is None,
            (float("inf"), float("nan"), "a'b", 1j, True, None, range(3), ...),
            math.sqrt(x.sum()),
        )

    def integers(x):
        x = x.to(torch.int64)
        return x & 1, x | 1, x ^ 1, x << 1, ~x, 7 & x

    def constant(x):
        return x.to(torch.device("cpu"), torch.float64) + x.size(0), x.new_zeros(3)

    def generic(x, a: list[int] = None, b: int | None = None, c: Any = None):  # noqa: RUF013
        return x

    def callables(x):
        return getattr(x, "dtype"), operator.getitem(x, (1, slice(None)))  # noqa: B009

    def library(x):
        return (
            torch.stack((x, x)),
            torch.sum(x, 1),
            F.gelu(x),
            F.softmax(x, -1),
            x.view(x.shape[0], -1),
            torch.max(x, 1).values,
            x.T.contiguous().float().to("cpu"),
        )

    def context(x):
        with torch.no_grad():
            return x + 1

    return [
        arithmetic,
        annotated,
        variadic,
        pair,
        mutation,
        unpacking,
        attributes,
        operators,
        integers,
        constant,
        generic,
        callables,
        library,
        context,
    ]


INPUTS: dict[str, Callable[[Any, Any, Any], tuple[Any, ...]]] = {
    "arithmetic": lambda torch, x, y: (x, y),
    "attributes": lambda torch, x, y: (),
    "operators": lambda torch, x, y: (x.abs() + 1,),
} | {
    name: lambda torch, x, y: (x,)
    for name in "annotated variadic pair mutation unpacking integers constant generic callables "
    "library context".split()
}


def partly_fixed(torch: Any) -> list[Callable[..., Any]]:
    """Functions that are traced with some inputs fixed."""

    def nested(x, y):
        return x["a"] + x["b"][0] + y

    def optional(x, y=None):
        return x + 1 if y is None else y

    def number(x, y):
        return x * y

    return [nested, optional, number]


def asserting(x):
    """A function with an assertion on a traced value."""
    assert x.sum() > 0, "no"
    assert not x.isnan().any()
    return x


def modules(torch: Any) -> dict[str, Any]:
    """Modules."""
    nn = torch.nn

    class Inner(nn.Module):
        def forward(self, x):
            return x + 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.p = nn.Parameter(torch.ones(3))
            self.seq = nn.Sequential(nn.ReLU(), nn.Linear(3, 1))
            self.register_buffer("b", torch.ones(1))
            self.t = torch.ones(3)
            self.inner = Inner()
            self.same = self.inner
            self.many = nn.Sequential(Inner(), nn.Sequential(Inner()))

        def forward(self, x, flag=True):
            x = self.lin(x) * self.p + self.b + self.t + self.lin.weight.sum()
            x += 1
            if flag:
                x = self.same(self.inner(x))
            return self.seq(self.many(x))

    class Keywords(nn.Module):
        def forward(self, x: torch.Tensor, *, k: int = 2) -> torch.Tensor:
            return x * k

    class Rest(nn.Module):
        def forward(self, *args, **kwargs):
            return args[0] + 1

    class Nested(nn.Module):
        def forward(self, x, y):
            return {"sum": x["a"] + y}, x["b"]

    return {
        "Model": Model(),
        "Nested": Nested(),
        "Keywords": Keywords(),
        "Rest": Rest(),
        "Linear": nn.Linear(3, 2),
        "Sequential": nn.Sequential(nn.Linear(3, 1), nn.Sequential(nn.ReLU())),
    }
