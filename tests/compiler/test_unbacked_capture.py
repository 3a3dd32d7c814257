"""Numbers and sizes that only running will tell, through `compile`: with ``fullgraph=True``, or the
switches of torch's names, they are symbols; without, they end the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch

BACK_ENDS = ["eager", "aot_eager", "inductor"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    found: int = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return found


def rows(x: Any, s: Any) -> Any:
    kept = x[x[:, 0] > 0]
    return kept.exp() @ x.t(), kept.shape[0] * 2, kept.sum(0) * s


def checked(x: Any, s: Any) -> Any:
    n = s.item()
    torch._check(n >= 0)
    torch._check(n < x.shape[0])
    return torch.ones(n) * 2, x[n].sin(), x[:n].sum()


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda x, s: x.detach().sum().item() + 1,
    "item of an int": lambda x, s: x * s.item() + s.item() // 2,
    "int": lambda x, s: (int(s) + 1, x * int(s)),
    "float": lambda x, s: float(x.detach().sum()) * 2,
    "tolist": lambda x, s: [v + 1 for v in torch.stack([s, s * 2]).tolist()],
    "nonzero": lambda x, s: (x > 0).nonzero() + s,
    "mask": lambda x, s: x[x > 0].sin(),
    "masked_select": lambda x, s: torch.masked_select(x, x < 1) * 2,
    "one mask for several": lambda x, s: torch.combinations(x[0], 2) * 2,
    "classes": lambda x, s: torch.nn.functional.one_hot(s) + x.sum(),
    "repeats that add up": lambda x, s: x[:2].repeat_interleave(
        torch.stack([s, 6 - s]), 0, output_size=6
    ),
    "unique": lambda x, s: torch.unique((x.detach() * 2).round()),
    "narrow": lambda x, s: torch.narrow(x, 0, s, 2) * 2,
    "narrow from the end": lambda x, s: torch.narrow(x, 1, -s - 1, 1),
    "nothing of it": lambda x, s: torch.narrow(x, 1, s, 0),
    "slice": lambda x, s: x[:, s:].sum(),
    "zeros": lambda x, s: torch.zeros(s.item(), 2) + x.sum(),
    "rows": rows,
    "checked": checked,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACK_ENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_values(name: str, backend: str, dynamic: bool | None) -> None:
    fn = PROGRAMS[name]
    compiled = torch.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic)
    base = torch.arange(12.0).reshape(4, 3) / 4 - 1
    for x, s in ((base, 2), (base.flip(0) - 0.3, 1), (base * 0 + 1, 2)):
        outs = []
        for call in (fn, compiled):
            given = x.clone().requires_grad_()
            out = call(given, torch.tensor(s))
            leaves = list(out) if isinstance(out, (tuple, list)) else [out]
            grown = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
            if grown:
                leaves += torch.autograd.grad(sum(t.cos().sum() for t in grown), given)
            outs.append(leaves)
        for a, b in zip(*outs, strict=True):
            assert type(a) is type(b)
            if isinstance(a, torch.Tensor):
                assert a.shape == b.shape and torch.allclose(a, b, atol=1e-6), (a, b)
            else:
                assert a == pytest.approx(b)
    assert graphs() == 1


def test_what_is_asserted_holds_when_the_program_runs() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    for backend in BACK_ENDS:
        torch._dynamo.reset()
        compiled = torch.compile(checked, backend=backend, fullgraph=True)
        compiled(x, torch.tensor(2))
        for bad in (-1, 4):
            with pytest.raises(RuntimeError):
                compiled(x, torch.tensor(bad))
        part = torch.compile(lambda x, s: torch.narrow(x, 0, s, 2), backend=backend, fullgraph=True)
        assert part(x, torch.tensor(-3)).tolist() == x[1:3].tolist()
        for bad in (3, -5):
            with pytest.raises((RuntimeError, IndexError)):  # the operator's own, run eager
                part(x, torch.tensor(bad))


def test_without_a_switch_they_end_the_graph() -> None:
    x, s = torch.arange(4.0), torch.tensor(2)
    for switch, fn in (
        ("capture_scalar_outputs", lambda x, s: x.sin() * s.item()),
        ("capture_dynamic_output_shape_ops", lambda x, s: x.sin()[x > 1] * s),
    ):
        for on in (False, True):
            torch._dynamo.reset()
            with torch._dynamo.config.patch({switch: on}):
                out = torch.compile(fn, backend="aot_eager")(x, s)
            assert torch.equal(out, fn(x, s))
            breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
            assert (breaks == 0) is on


def test_a_branch_on_such_a_number_is_a_break_with_its_reason() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match="data-dependent"):
        torch.compile(lambda x: x + 1 if x.sum().item() > 2 else x, fullgraph=True)(torch.ones(2))


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_variances_are_checked_when_the_graph_runs(backend: str) -> None:
    x, y, var = torch.randn(4), torch.randn(4), torch.rand(4)
    loss = torch.nn.functional.gaussian_nll_loss
    whole = torch.compile(lambda x, y, v: loss(x, y, v), fullgraph=True, backend=backend)
    assert whole(x, y, var).item() == pytest.approx(loss(x, y, var).item(), rel=1e-6)
    with pytest.raises(ValueError, match="var has negative"):  # the function is run as it is
        whole(x, y, -var)
    broken = torch.compile(lambda x, y, v: loss(x, y, v), backend=backend)
    with pytest.raises(ValueError, match="var has negative"):
        broken(x, y, -var)
