"""Numbers that inputs hold, where the program needs to know them: guarded, as PyTorch 2.13 does
with fullgraph=True or `capture_scalar_outputs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau._dynamo.testing import CompileCounterWithBackend


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def counted(fn: Callable[..., Any], backend: str = "eager") -> tuple[Any, Any]:
    counter = CompileCounterWithBackend(backend)
    return torch.compile(fn, backend=counter, fullgraph=True), counter


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_branch(backend: str) -> None:
    def program(n: Any, x: Any) -> Any:
        return x + n.item() if n.item() > 3 else x * n

    compiled, counter = counted(program, backend)
    x = torch.ones(2)
    for n in (4, 5, 2, 1, 0, 7):
        t = torch.tensor(n)
        assert torch.equal(compiled(t, x), program(t, x))
    assert counter.frame_count == 2  # one a branch: the number itself is left open


def test_range() -> None:
    def program(n: Any, x: Any) -> Any:
        for i in range(n.item()):
            x = x * 2 + i
        return x

    compiled, counter = counted(program)
    for n in (4, 4, 2, 0, 4):
        t, x = torch.tensor(n, dtype=torch.int32), torch.ones(2)
        assert torch.equal(compiled(t, x), program(t, x))
    assert counter.frame_count <= 3


def test_of_lists_and_attributes() -> None:
    class Holder:
        n = torch.tensor(2)

    def program(h: Any, x: Any) -> Any:
        return x[: h.n.item()] if h.n.item() < x.shape[0] else x + 1

    compiled, counter = counted(program)
    holder, x = Holder(), torch.arange(5.0)
    for n in (2, 3, 9):
        holder.n = torch.tensor(n)
        assert torch.equal(compiled(holder, x), program(holder, x))
    assert counter.frame_count == 2


def test_written_ones_stay_unknown() -> None:
    """What the program wrote is no guard's business: by itself, or through another tensor."""

    def program(n: Any, other: Any, x: Any) -> Any:
        other.add_(1)
        return x + 1 if n.item() > 3 else x

    compiled, _ = counted(program)
    n = torch.tensor(3)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="data-dependent expression u0 > 3"):
        compiled(n, n.view(()), torch.ones(2))
    assert n.item() == 3
    torch._dynamo.reset()
    loose = torch.compile(program, backend="eager")
    assert loose(n, n.view(()), torch.ones(2)).tolist() == [2.0, 2.0]
    assert n.item() == 4


def test_floats_are_not_guarded() -> None:
    compiled, _ = counted(lambda n, x: x + 1 if n.item() > 3 else x)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="data-dependent expression zuf0 > 3"):
        compiled(torch.tensor(4.0), torch.ones(2))


def test_open_ones_stay_open() -> None:
    """Where nothing has to be known, one graph serves all."""
    compiled, counter = counted(lambda n: torch.ones(n.item()).sum())
    for n in (4, 0, 1, 7):
        assert compiled(torch.tensor(n)).item() == n
    assert counter.frame_count == 1
