"""Floats that vary: the second value makes one version with the float as an input, then no more."""

from __future__ import annotations

import fractions
import math
from typing import Any

import pytest

import flambeau as torch
from flambeau._dynamo.testing import CompileCounterWithBackend
from flambeau._src.compiler import assemble
from tests.capture.comparing import differences

VALUES = (0.5, 0.25, 0.125, 0.75)


def _arithmetic(x: Any, s: Any) -> Any:
    return x * (s * 2 + 1) / s**2, s - 1, -s, +s, abs(s), 2**s, s // 0.1, s % 0.1, divmod(s, 0.3)


def _math(x: Any, s: Any) -> Any:
    y = x * math.sin(s) + math.exp(s) + math.log(s) + math.sqrt(s)
    return y, math.pow(s, 2), math.log(s, 2), math.atan2(s, 1), math.copysign(2, s), math.isnan(s)


def _conversions(x: Any, s: Any) -> Any:
    whole = int(s * 10), float(s), math.floor(s * 3), math.ceil(s), round(s * 10), round(s, 1)
    return x * whole[0], whole, isinstance(s, float), type(s) is float, bool(s), max(s, 0.3)


def _operators(x: Any, s: Any) -> Any:
    return (
        torch.add(x, x, alpha=s),
        x.clamp(min=s, max=s + 1),
        torch.full((4,), s) + torch.full_like(x, s),
        torch.tensor(s) + torch.tensor([s, 1.0]).sum(),
        torch.lerp(x, x * 2, s),
        torch.where(x > s, s, x),
        torch.nn.functional.leaky_relu(-x, s),
        x == s,
        torch.tensor(s, dtype=torch.float64),
    )


def _fill(x: Any, s: Any) -> Any:
    y = x.clone()
    y[0] = s
    y.mul_(s).add_(x, alpha=-s)
    return y, [s, {"s": (s, s)}]


def _branches(x: Any, s: Any) -> Any:
    if s > 0.3:
        return x * s
    return x + s if 0 < s else x


def _inner(x: Any, s: Any) -> Any:
    return sum(f(x) for f in [lambda t, k=k: t * s**k for k in range(3)])


def _text(x: Any, s: Any) -> Any:
    return x * s, f"{s:.2f}", {s: 1}, s in (0.5, 0.25), s * 1j


# fn, and in how many graphs: text and keys are fixed for each number anew.
CASES = {
    _arithmetic: 2, _math: 2, _conversions: 2, _operators: 2, _fill: 2, _branches: 3, _inner: 2,
    _text: 4,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
def test_varying(fn: Any, backend: str) -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend(backend)
    compiled = torch.compile(fn, backend=counted, fullgraph=True)
    x = torch.arange(12.0).reshape(3, 4)
    for s in VALUES:
        found = differences(fn(x, s), compiled(x, s), "value", {"rounding": 1e-6})
        assert not found, found
    assert counted.frame_count == CASES[fn]


def test_kernels_take_them_when_they_run() -> None:
    """Forward and backward are fused as for a constant, and no kernel is made for a value."""

    def fn(x: Any, s: float, n: int) -> Any:
        return ((x * s + n).sin() / s).clamp(min=s - 3) * s

    torch._dynamo.reset()
    compiled = torch.compile(fn)
    known = 0
    for i, s in enumerate((0.5, 0.25, 0.125, -2.0, 1e-3)):
        a, b = (torch.linspace(-1, 1, 50, requires_grad=True) for _ in range(2))
        compiled(a, s, i + 1).sum().backward()
        fn(b, s, i + 1).sum().backward()
        torch.testing.assert_close(compiled(a, s, i + 1), fn(b, s, i + 1))
        torch.testing.assert_close(a.grad, b.grad)
        if i > 2:
            assert len(assemble._ADDRESSES) == known
        known = len(assemble._ADDRESSES)
    program = compiled.compiler().entries[-1].history.artefact("assemble")
    assert str(program).count("run_map") == 1 and "slots_" in str(program)


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_when(dynamic: Any) -> None:
    """What is no number is a constant; -0.0 keeps its sign, and an int is another type."""
    torch._dynamo.reset()
    counted = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda x, s: x / s, backend=counted, dynamic=dynamic)
    x = torch.ones(3)
    for s in (0.5, 0.25, 0.0, -0.0, math.inf, math.nan, 1e300):
        torch.testing.assert_close(compiled(x, s), x / s, rtol=0, atol=0, equal_nan=True)
    assert counted.frame_count == {None: 2, True: 1, False: 7}[dynamic]
    assert compiled(x, 2).item == x.item or torch.equal(compiled(x, 2), x / 2)
    assert counted.frame_count == {None: 3, True: 2, False: 8}[dynamic]


def test_a_capture_for_what_is_no_number() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, s: x * s, backend="eager")
    x = torch.ones(2)
    for s in (0.5, math.nan, math.inf, -math.inf, 2.0, -0.0):
        torch.testing.assert_close(compiled(x, s), x * s, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(torch.signbit(compiled(x, s)), torch.signbit(x * s))


def test_fixed_zero_keeps_its_sign() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, s: (x * 1, str(s)), backend="eager")
    for s in (1.0, 0.0, -0.0, 0.0):
        assert compiled(torch.ones(1), s)[1] == str(s)


def test_switched_off() -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend("eager")
    with torch._dynamo.config.patch(specialize_float=True):
        compiled = torch.compile(lambda x, s: x * s, backend=counted)
        for s in VALUES:
            assert torch.equal(compiled(torch.ones(2), s), torch.ones(2) * s)
    assert counted.frame_count == len(VALUES)


def test_what_python_refuses() -> None:
    """Errors are Python's own, where they happen and for those values only."""
    torch._dynamo.reset()

    def caught(x: Any, s: float) -> Any:
        try:
            return x / math.sqrt(s) + 1 / s
        except (ValueError, ZeroDivisionError) as error:
            return x - 1, str(error)

    compiled = torch.compile(caught, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for s in (0.5, 0.25, -1.0, 2.0, 0.0, -2.0, 3.0):
        assert not differences(caught(x, s), compiled(x, s), "value", {"rounding": 0})
    powers = torch.compile(lambda x, s: x * s**0.5, backend="eager")
    for s in (0.5, 0.25, -1.0, 2.0, -2.0):  # complex
        assert torch.equal(powers(x, s), x * s**0.5)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.options = {"shift": (1.0, "a")}

    def forward(self, x: Any) -> Any:
        return x * self.scale + self.options["shift"][0]


GLOBAL = 1.0


def test_places() -> None:
    """Attributes of modules, items of containers in them, globals and closures."""
    global GLOBAL
    module, closed, x = Scaled(), 1.0, torch.ones(2)

    def fn(x: Any) -> Any:
        return module(x) * GLOBAL - closed

    for change in range(4):
        torch._dynamo.reset()
        counted = CompileCounterWithBackend("eager")
        compiled = torch.compile(fn, backend=counted)
        for s in VALUES:
            if change == 0:
                module.scale = s
            elif change == 1:
                module.options["shift"] = (s, "a")
            elif change == 2:
                GLOBAL = s
            else:
                closed = s
            assert torch.equal(compiled(x), fn(x))
        assert counted.frame_count == 2, change


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_scheduler_changes_the_rate(name: str) -> None:
    torch._dynamo.reset()
    made = []
    for compiles in (False, True):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 6))
        optimizer = getattr(torch.optim, name)([p], lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        counted = CompileCounterWithBackend("inductor")
        step = torch.compile(optimizer.step, backend=counted) if compiles else optimizer.step
        for _ in range(12):
            p.grad = p.detach() * 2
            step()
            schedule.step()
        made.append(p.detach())
    torch.testing.assert_close(*made)
    assert counted.frame_count == 2


def test_items_of_tensors() -> None:
    """What `.item()` gives is computed with as a float; a branch on it ends the graph."""
    torch._dynamo.reset()

    def fn(x: Any) -> Any:
        k = x.mean().item()
        return x * math.exp(k) + int(k * 10), max(k, 0.2), round(k, 1)

    compiled = torch.compile(fn, backend="aot_eager", fullgraph=True)
    for x in (torch.ones(3), torch.full((3,), 0.25)):
        assert not differences(fn(x), compiled(x), "value", {"rounding": 1e-6})


def test_sums_of_floats_are_as_exact_as_pythons() -> None:
    """Since 3.12 `sum` carries what additions lose; `math.sumprod` always did."""

    def fn(x: Any, a: Any) -> Any:
        h = math.sqrt(a * 0.3)
        lost = sum([0.1] * 10), sum([a, 1e100, 1.0, -1e100]), sum((a for _ in range(10)), -0.0)
        mixed = sum([1, a]), sum((0.1, 0.2, a, True, 1 << 70, 0.3)), sum([a, 0.1, 2, 0.7], 3)
        no_more = sum([0.1, 0.2, fractions.Fraction(1, 3), 0.1, 0.1])
        if not hasattr(math, "sumprod"):
            return x + lost[0], lost, mixed, no_more
        return x + lost[0], lost, mixed, no_more, math.sumprod((a, h), iter([0.3, -h]))

    torch._dynamo.reset()
    compiled = torch.compile(fn, backend="eager")
    x = torch.ones(2)
    for a in (0.7, 0.1, 0.3, 1e16):
        assert repr(compiled(x, a)) == repr(fn(x, a))


def _normalised(x: Any, w: Any, s: Any) -> Any:
    y = torch.nn.functional.layer_norm(x, (x.shape[-1],), w, eps=s)
    return y.relu() * s, (x * s).var(-1, correction=s)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rows_take_them(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of a row kernel that varies is a slot of it: the norm stays fused."""
    torch._dynamo.reset()
    written: list[str] = []
    write = assemble.write

    def noted(*args: Any) -> Any:
        program = write(*args)
        written.append(program.source)
        return program

    monkeypatch.setattr(assemble, "write", noted)
    counted = CompileCounterWithBackend("inductor")
    compiled = torch.compile(_normalised, backend=counted, fullgraph=True)
    exact = torch.compile(_normalised, options={"emulate_precision_casts": True})
    torch.manual_seed(0)
    for s in VALUES:
        found = []
        for run in (_normalised, compiled, exact):
            x = torch.linspace(-1, 2, 48, dtype=dtype).reshape(4, 12).requires_grad_()
            w = torch.linspace(0.5, 1.5, 12, dtype=dtype).requires_grad_()
            a, b = run(x, w, s)
            found.append((a, b, *torch.autograd.grad(a.sum() + b.sum(), (x, w))))
        near = {"rounding": 0.01 if dtype is torch.bfloat16 else 1e-6}
        assert not (why := differences(found[0], found[1], "value", near)), why
        assert all(map(torch.equal, found[0], found[2]))
    assert counted.frame_count == 2
    varying = next(t for t in written if "zf0" in t)
    assert "call_native_layer_norm(" not in varying and "slots_d(zf0)" in varying


REFUSED = (
    "1/d", "7//d", "7%d", "d**-1", "x.shape[0]/d", "1/(x.shape[0]-d)", "7/f", "f**-1",
    "math.log(d)", "math.sqrt(f)", "math.exp(f*1000)", "math.cosh(-f*1000)", "3<<d", "int(1/f)",
    "math.fmod(f, d)",
)  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("text", REFUSED)
def test_what_python_refuses_is_handled_in_the_function(text: str, dynamic: bool | None) -> None:
    """Of a number that is not fixed: a back end that divides by zero would raise out of it."""
    scope: dict[str, Any] = {"math": math}
    lines = ["try:", f"    r = {text}", "except Exception as e:", "    return x, str(e)"]
    exec("\n  ".join(["def fn(x, d, f):", *lines, "return x * r, r"]), scope)
    torch._dynamo.reset()
    fn = scope["fn"]
    compiled = torch.compile(fn, backend=CompileCounterWithBackend("eager"), dynamic=dynamic)
    for d, f in ((2, 2.0), (3, 3.0), (4, 0.5), (0, 0.0), (-1, -1.0), (3, 0.0), (0, 2.0)):
        want, got = fn(torch.ones(4), d, f), compiled(torch.ones(4), d, f)
        assert got[1] == want[1], (d, f)
        torch.testing.assert_close(got[0], want[0])
