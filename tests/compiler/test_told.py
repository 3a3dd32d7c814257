"""What programs say about functions and breaks, met inside of compiled functions."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import _dynamo as dynamo
from flambeau._dynamo.testing import CompileCounterWithBackend

X = torch.ones(3)


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _graphs(fn: Any, **options: Any) -> int:
    counted = CompileCounterWithBackend("aot_eager")
    assert torch.equal(torch.compile(fn, backend=counted, **options)(X), fn(X))
    return counted.frame_count


def test_disallowed() -> None:
    def f(x: Any) -> Any:
        return torch.sub(x * 2, 1).sin()

    assert _graphs(f) == 1
    torch._dynamo.reset()
    dynamo.disallow_in_graph(torch.sub)
    try:
        assert _graphs(f) == 2
    finally:
        dynamo.allow_in_graph(torch.sub)


def breaking(x: Any) -> Any:
    y = x * 2
    dynamo.graph_break()
    return y + 1


def test_errors_on_breaks() -> None:
    def inside(x: Any) -> Any:
        with dynamo.error_on_graph_break(True):
            return breaking(x)

    @dynamo.error_on_graph_break(True)
    def decorated(x: Any) -> Any:
        return breaking(x)

    for fn in (inside, decorated):
        with pytest.raises(dynamo.exc.Unsupported, match="asks for a break"):
            torch.compile(fn, backend="eager")(X)


def test_breaks_that_are_no_errors() -> None:
    def inside(x: Any) -> Any:
        with dynamo.error_on_graph_break(False):
            y = x * 2
            dynamo.graph_break()
        return y + 1

    assert _graphs(inside) == 2
    torch._dynamo.reset()
    assert _graphs(inside, fullgraph=True) == 2


def test_a_stance_is_not_set_in_a_graph() -> None:
    def inside(x: Any) -> Any:
        with torch.compiler.set_stance("force_eager"):
            return x * 2

    @torch.compiler.set_stance("force_eager")
    def decorated(x: Any) -> Any:
        return x * 2

    for fn in (inside, lambda x: decorated(x) + 1):
        with pytest.raises(AssertionError, match="Attempt to trace forbidden callable"):
            torch.compile(fn, backend="eager")(X)


def test_constants_substitutes_and_whole_functions() -> None:
    @torch.compiler.assume_constant_result
    def five() -> int:
        return 5

    def refused(x: Any, n: int) -> Any:
        raise RuntimeError

    @dynamo.substitute_in_graph(refused)
    def instead(x: Any, n: int) -> Any:
        return x + n

    @dynamo.nonstrict_trace
    def whole(x: Any) -> Any:
        dynamo.graph_break()
        return x * 4

    def f(x: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return whole(x * five())

    assert _graphs(f, fullgraph=True) == 1
    compiled = torch.compile(lambda x: refused(x, 3), backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X + 3)
