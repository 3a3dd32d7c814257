"""What the runners of compiled programs let pass, and what they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from tests.oracle import captured, compiled

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    captured.eager.begin(torch)
    yield
    torch._dynamo.reset()


def program(fn: Callable[..., Any], *args: Any, call: str = "own:fn", **kwargs: Any) -> Any:
    """The program of a call whose tensors are X and others like it."""
    tensor = (compiled.TENSOR, 0)
    made = captured.Program(torch, call, fn, compiled.TENSOR)
    return made.build([tensor, *args], kwargs, 1)


def test_a_program_is_the_call_as_a_user_writes_it() -> None:
    made = program(torch.sum, [0, 1], call="torch.sum", keepdim=True, dtype=torch.float64)
    assert "return torch.sum(t0, [0, 1, ], keepdim=True, dtype=c2)" in made.sample[0]
    for runner in (captured.eager, captured.aot_eager, captured.inductor_dynamic):
        out = runner(made)(X)
        assert out.dtype is torch.float64 and out.tolist() == [[15.0]]


def test_breaks_and_programs_that_run_as_they_are_are_errors() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported):
        captured.aot_eager(program(lambda x: (print(), x + 1)))(X)
    eager = torch.compiler.set_stance("force_eager")
    with eager, pytest.raises(RuntimeError, match="ran as it is"):
        captured.aot_eager(program(torch.add, 1))(X)


def test_a_call_that_compiles_again_is_an_error() -> None:
    runner = captured.Runner(backend="eager", dynamic=False)
    made = runner(program(torch.sin, call="torch.sin"))
    made(X)
    made.again(X.clone())
    with pytest.raises(torch._dynamo.exc.RecompileError):
        made.again(X.t())
    same = runner(program(lambda x: x))
    assert same(X) is X
    same.again(X.clone())
    with pytest.raises(RuntimeError, match="looked at anew"):
        same.again(X.t())


def test_symbolic_sizes_serve_other_calls_of_the_same_program() -> None:
    runner = captured.Runner(backend="eager", dynamic=True)

    def graphs() -> Any:
        return torch._dynamo.utils.counters["stats"]["unique_graphs"]

    for n, count in ((4, 1), (7, 1), (1, 2), (9, 2)):
        x = torch.arange(float(n))
        assert torch.equal(runner(program(torch.add, 2, call="torch.add"))(x), x + 2)
        assert graphs() == count
    assert torch.equal(runner(program(torch.add, 3, call="torch.add"))(X), X + 3)
    assert graphs() == 3


def test_samples_are_taken_from_all_over() -> None:
    assert compiled.spread([*range(10)], 3) == [0, 3, 6] and compiled.spread([1, 2], 3) == [1, 2]
    assert compiled.spread([*range(10)], 0) == [*range(10)]
    names = compiled.checks_of("inductor,some.module:thing")
    assert names == {"inductor": "tests.oracle.captured:inductor", "thing": "some.module:thing"}
