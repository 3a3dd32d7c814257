"""An operator of a graph raises: what is left behind is what the plain program leaves."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

import flambeau as torch
from tests.capture.comparing import differences

BACK_ENDS = ("eager", "aot_eager", "inductor")


def pick(x: Any, i: Any) -> Any:
    """Raises where there is no such place."""
    return torch.index_select(x, 0, i)


def effects(x, i, log):
    log.append("before")
    y = pick(x * 2, i)
    log.append("after")
    return y


def handled(x, i, log, *rest, k=3, **names):
    try:
        log.append((rest, names))
        return pick(x * k, i)
    except (IndexError, RuntimeError) as error:
        return str(error), k, rest, names
    finally:
        log.append("end")


def closure(x, i, log):
    n = 1

    def count():
        nonlocal n
        n += 1
        return x.sum() * n

    try:
        count()
        return pick(x, i) + count()
    except IndexError:
        log.append(count())
        return n


def after_break(x, i, log):
    total = x.sum()
    print(len(log))
    for k in range(3):
        print(k)
        try:
            total = total + pick(x, i + k).sum()
        except IndexError:
            log.append(k)
    return total


def no_grad(x, i, log):
    with torch.no_grad():
        log.append(torch.is_grad_enabled())
        return pick(x, i)


def autocast(x, i, log):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log.append(torch.is_autocast_enabled("cpu"))
        return pick(x, i)


def asserted(x, i, log):
    log.append(1)
    torch._assert_async((x.sum() > 100) & (i.sum() > 0))
    return x


def decomposed(x, i, log):
    a = torch.diag(x) - i.sum()
    try:
        return torch.linalg.cholesky(a)
    except torch.linalg.LinAlgError:
        log.append("again")
        return torch.linalg.cholesky(a + 20 * torch.eye(2))


PURE = [effects, handled, closure, after_break, no_grad, autocast, asserted, decomposed]


def writes(x, i, log):
    x.add_(1)
    log.append("before")
    return pick(x, i)


def writes_twice(x, i, log):
    x.add_(1)
    y = pick(x, i)
    x.mul_(3)
    return y


def writes_and_handles(x, i, log):
    try:
        x.mul_(2)
        y = pick(x, i)
    except IndexError:
        y = x.sub_(1)
    return y * 2


def sets_items(x, i, log):
    x += 1
    try:
        x[i] = 5.0
    except IndexError:
        x -= 10
        log.append("handled")
    return x * 2


WRITING = [sets_items, writes, writes_twice, writes_and_handles]


def _left(fn: Any, program: Any, place: int) -> Any:
    x, i, log = torch.ones(2), torch.tensor([place]), []
    if program is not writes:
        x.requires_grad_(program not in WRITING)
    try:
        result = fn(x, i, log)
    except Exception as error:
        lines = [f.line for f in traceback.extract_tb(error.__traceback__)]
        assert "return torch.index_select(x, 0, i)" in lines or program is asserted
        result = type(error), str(error), error.__context__
    modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    if isinstance(result, torch.Tensor) and result.requires_grad:
        result.sum().backward()
    return result, x, x.grad, log, modes


def _same(program: Any, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=backend)
    for place in (7, 1, 7, 0):
        want, got = _left(program, program, place), _left(compiled, program, place)
        assert not (found := differences(want, got)), (place, found)
    assert not torch._dynamo.utils.counters["contained"]


@pytest.mark.parametrize("backend", BACK_ENDS)
@pytest.mark.parametrize("program", PURE, ids=lambda p: p.__name__)
def test_nothing_is_written(program: Any, backend: str) -> None:
    _same(program, backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", WRITING, ids=lambda p: p.__name__)
def test_inputs_are_written(program: Any, backend: str) -> None:
    _same(program, backend)


def test_modes_are_put_back_where_it_does_not_run_anew() -> None:
    def fn(x: Any, i: Any) -> Any:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            x.add_(1)
            return pick(x, i)

    compiled = torch.compile(fn, backend="eager")
    with pytest.raises(IndexError):
        compiled(torch.ones(2), torch.tensor([7]))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_random_numbers_are_not_drawn_again() -> None:
    compiled = torch.compile(lambda x, i: pick(x + torch.rand(2), i), backend="aot_eager")
    found = []
    for fn in (compiled, lambda x, i: pick(x + torch.rand(2), i)):
        torch.manual_seed(3)
        with pytest.raises(IndexError):
            fn(torch.ones(2), torch.tensor([7]))
        found.append(torch.rand(1).item())
    assert found[0] == found[1]


def test_what_a_back_end_raises_is_its_own() -> None:
    def backend(module: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise ValueError("the back end's")

        return run

    log: list[Any] = []
    with pytest.raises(ValueError, match="the back end's"):
        torch.compile(effects, backend=backend)(torch.ones(2), torch.tensor([0]), log)
    assert log == []
