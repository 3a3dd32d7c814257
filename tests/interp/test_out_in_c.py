"""out= and torch.ops.aten.x(...) without Python: what is written, and what is left to Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

import flambeau as torch
from flambeau._src import _native
from flambeau.overrides import TorchFunctionMode
from flambeau.utils._python_dispatch import TorchDispatchMode
from tests.ops import battery

aten = torch.ops.aten
OPS = [
    op for op in battery.tested_ops()
    if op.out_op is not None and op.decl.out_args == ("out",) and not op.decl.random
]  # fmt: skip


def result_of(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def same(x: Any, y: Any) -> bool:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return bool(x == y)
    return x.dtype is y.dtype and x.shape == y.shape and torch.equal(x.isnan(), y.isnan()) and (
        torch.equal(x[~x.isnan()], y[~y.isnan()])
    )  # fmt: skip


def outputs(like: Any) -> list[Any]:
    """Tensors to write `like` into: as it is, with other strides, empty, of another size."""
    spread = torch.empty(*like.shape, 2, dtype=like.dtype)[..., 0]
    turned = torch.empty_strided(
        like.shape, torch.empty(like.shape[::-1], dtype=like.dtype).stride()[::-1], dtype=like.dtype
    )
    return [
        torch.empty_like(like), spread, turned, torch.empty(0, dtype=like.dtype),
        torch.empty(7, 1, dtype=like.dtype),
    ]  # fmt: skip


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_every_operator(op: Any) -> None:
    """Four times into the same tensor: what the call gives without out=, and one write each."""
    face = getattr(getattr(aten, op.name), op.out_op.overload)
    for sample in battery.samples_of(op, torch.float32, "contiguous"):
        expected = result_of(partial(battery.function_of(op), *sample.args, **sample.kwargs))
        if not isinstance(expected, torch.Tensor):
            continue
        for function in (battery.function_of(op), face):
            for out in outputs(expected):
                strides, resized = out.stride(), out.shape != expected.shape
                for turn in range(4):
                    before = out._version
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        found = result_of(partial(function, *sample.args, **sample.kwargs, out=out))
                    if isinstance(found, tuple):  # a public function that has no out= of this form
                        assert found[0] in (TypeError, RuntimeError), found
                        break
                    assert found is out and same(out, expected), (sample, function, turn)
                    assert out._version > before
                    assert resized or out.stride() == strides
                    assert not (turn and any("resized" in str(w.message) for w in caught))


def pairs() -> dict[str, Callable[[], Any]]:
    """Calls whose out= Python has to look at, each made anew."""
    x, y = torch.arange(6.0), torch.ones(6)
    leaf = torch.ones(6, requires_grad=True)
    wide = torch.arange(48.0)
    with torch.inference_mode():
        inference = torch.empty(6)
    return {
        "another dtype": lambda: torch.add(x, y, out=torch.empty(6, dtype=torch.float64)),
        "narrower dtype": lambda: torch.add(x, y, out=torch.empty(6, dtype=torch.int64)),
        "to be grown": lambda: torch.add(x, y, out=torch.empty(0)),
        "another size": lambda: torch.add(x, y, out=torch.empty(3)),
        "expanded": lambda: torch.add(x, y, out=torch.empty(1).expand(6)),
        "none": lambda: torch.add(x, y, out=None),
        "input needs a gradient": lambda: torch.add(leaf, y, out=torch.empty(6)),
        "out needs a gradient": lambda: torch.add(x, y, out=torch.ones(6, requires_grad=True)),
        "shifted": lambda: torch.add(wide[1:41], torch.ones(40), out=wide[2:42]),
        "itself": lambda: torch.mul(x, 2.0, out=x),
        "inference": lambda: torch.add(x, y, out=inference),
        "too many": lambda: aten.add.Tensor(x, y, 2),
        "a tensor for a number": lambda: aten.eq.Scalar(x, y),
        "unknown keyword": lambda: aten.add.Tensor(x, y, beta=1),
        "no out": lambda: aten.add.out(x, y),
        "a list": lambda: aten.split.Tensor(x, 2),
        "a number for a tensor": lambda: aten.add.Tensor(x, 2.0),
        "compare": lambda: torch.gt(x, y, out=torch.empty(6, dtype=torch.bool)),
        "compare into float": lambda: torch.gt(x, y, out=torch.empty(6)),
        "broadcast": lambda: torch.add(x, torch.ones(6, 1), out=torch.empty(6, 6)),
    }


# As PyTorch 2.13 has it.
REFUSED = {
    "narrower dtype", "expanded", "input needs a gradient", "out needs a gradient", "shifted",
    "inference", "too many", "a tensor for a number", "unknown keyword", "no out",
}  # fmt: skip


@pytest.mark.parametrize("name", pairs())
def test_what_python_decides_is_decided_each_time(name: str) -> None:
    """The same outcome, warnings included, however often the call came before."""
    found: list[Any] = []
    torch.add(torch.ones(6), torch.ones(6), out=torch.empty(6))  # C knows the plain call
    for repeating in (False, True, True, True, True):
        before = _native.set_repeating(repeating)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = result_of(pairs()[name])
        finally:
            _native.set_repeating(before)
        if isinstance(result, torch.Tensor):
            values = None if result.is_meta else result.tolist()
            result = (values, result.dtype, result.shape, result.stride(), result.requires_grad)
        elif isinstance(result, list):
            result = [t.tolist() for t in result]
        found.append((result, [str(w.message) for w in caught]))
    assert all(f == found[0] for f in found), found
    assert (found[0][0][0] is RuntimeError) is (name in REFUSED)


def test_no_python_runs() -> None:
    """A warm call of the plain kind makes no Python frame beyond the overload's own."""
    import sys

    x, y, o, m = torch.ones(4), torch.ones(4), torch.empty(4), torch.ones(4, 4)
    calls: dict[str, tuple[Callable[[], Any], int]] = {
        "add out": (lambda: torch.add(x, y, out=o), 0),
        "alpha": (lambda: torch.add(x, y, alpha=2, out=o), 0),
        "number": (lambda: torch.mul(x, 2.0, out=o), 0),
        "mm out": (lambda: torch.mm(m, m, out=torch.empty(4, 4)), 0),
        "sum out": (lambda: torch.sum(m, 1, out=o), 0),
        "overload": (lambda: aten.add.Tensor(x, y), 1),
        "packet": (lambda: aten.add(x, y), 1),
        "in place": (lambda: aten.add_.Tensor(o, y), 1),
        "view": (lambda: aten.view.default(m, [16]), 1),
        "out": (lambda: aten.add.out(x, y, out=o), 1),
        "mm": (lambda: aten.mm.default(m, m), 1),
    }
    for name, (call, frames) in calls.items():
        for _ in range(4):
            call()
        seen: list[str] = []
        sys.setprofile(lambda f, event, _, seen=seen: seen.append(event))
        try:
            call()
        finally:
            sys.setprofile(None)
        assert seen.count("call") == frames + 1, name  # the lambda's own frame


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_layers_see_warm_calls() -> None:
    x, o = torch.ones(4), torch.empty(4)
    calls = [lambda: torch.add(x, x, out=o), lambda: aten.add.Tensor(x, x), lambda: aten.add(x, x)]
    for _ in range(4):
        for call in calls:
            call()
    with Functions() as functions:
        for call in calls:
            call()
    assert functions.seen == [torch.add, aten.add.Tensor, aten.add]
    with Dispatched() as dispatched:
        for call in calls:
            call()
    assert dispatched.seen == [aten.add.out, aten.add.Tensor, aten.add.Tensor]


@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_of_overloads(enabled: bool) -> None:
    x = torch.arange(1.0, 5.0, requires_grad=True)
    for _ in range(4):
        with nullcontext() if enabled else torch.no_grad():
            y = aten.mul.Tensor(x, x)
        assert y.requires_grad is enabled
        if enabled:
            assert type(y.grad_fn).__name__ == "MulBackward0"
            (g,) = torch.autograd.grad(y.sum(), x)
            assert g.tolist() == (2 * x).tolist()
