"""`grad` inside of `vmap`: what the function is told, what modes see, and that both are one result.

Expected values are what PyTorch 2.13 printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.utils._python_dispatch import TorchDispatchMode

func = torch.func


class Watching(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(op))
        return op(*args, **(kwargs or {}))


def told(transform: Callable[[Any], Any]) -> tuple[bool, ...]:
    """What a function under the transform reads of its argument and of a result."""
    found: list[bool] = []

    def fn(r: Any) -> Any:
        y = r * 2
        found.extend((r.requires_grad, y.requires_grad, y.grad_fn is not None, r.is_leaf))
        return y.sum()

    transform(fn)
    return tuple(found)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (lambda f: func.grad(f)(torch.ones(3)), (True, True, True, True)),
        (lambda f: func.vmap(func.grad(f))(torch.ones(2, 3)), (True, True, True, True)),
        (
            lambda f: func.grad(lambda x: func.vmap(f)(x).sum())(torch.ones(2, 3)),
            (False, False, False, True),
        ),
        (
            lambda f: func.vmap(f)(torch.ones(2, 3).requires_grad_()),
            (False, False, False, True),
        ),
        (lambda f: func.jvp(f, (torch.ones(3),), (torch.ones(3),)), (False, False, False, True)),
    ],
    ids=["grad", "vmap of grad", "grad of vmap", "vmap", "jvp"],
)
def test_what_the_function_is_told(transform: Any, expected: Any) -> None:
    assert told(transform) == expected


X = torch.linspace(-1, 1, 12).reshape(4, 3).sin()
Q = torch.linspace(-2, 2, 36).reshape(4, 3, 3).cos() + 2 * torch.eye(3)
IMAGES = torch.linspace(-2, 2, 4 * 2 * 36).reshape(4, 2, 6, 6).sin()
WEIGHT = torch.linspace(-1, 1, 54).reshape(3, 2, 3, 3)
PLACES = torch.tensor([0, 0, 2])
PROGRAMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "softmax": (lambda a: (F.softmax(a, 0) * a).sum(), X),
    "maximum": (lambda a: a.max() + a.amax(0) + a.max(0)[0], X),
    "products": (lambda a: (a @ a @ a[0]).sum(), Q),
    "inverse": (lambda a: torch.linalg.inv(a).sum() + torch.det(a), Q),
    "convolution": (lambda a: F.conv2d(a[None], WEIGHT).sin().sum(), IMAGES),
    "pools": (lambda a: (F.max_pool2d(a[None], 2) * F.avg_pool2d(a[None], 2)).sum(), IMAGES),
    "norms": (lambda a: F.layer_norm(a, (3,)).sin().sum() + a.norm(), Q),
    "group norm": (lambda a: F.group_norm(a[None], 2).sin().sum(), IMAGES),
    "joined": (lambda a: torch.cat([a, a.sin()]).pow(2).sum() + torch.stack([a, a]).prod(), X),
    "chosen": (lambda a: (torch.where(a > 0, a, a * a) * a.gather(0, PLACES)).sum(), X),
    "indexed": (lambda a: a[torch.tensor([0, 2])].pow(2).sum(), X),
    "scans": (lambda a: a.cumsum(0).sin().sum() + a.logsumexp(0) + a.var(), X),
    "losses": (lambda a: F.cross_entropy(a, torch.tensor([0, 1, 2])) + F.mse_loss(a, a * 2), Q),
    "sorted": (lambda a: (a.sort()[0] * torch.arange(3.0) * a).sum() + a.topk(2)[0].prod(), X),
    "attention": (lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]).sum(), Q),
    "spectra": (lambda a: torch.linalg.svdvals(a).sum() + torch.linalg.eigvalsh(a @ a.mT).sum(), Q),
    "written": (lambda a: (a * 2).add_(a).mul_(a).sum(), X),
    "views": (lambda a: a.t().reshape(-1)[1:4].pow(2).sum(), Q),
    "medians": (lambda a: a.median() * a.nanmedian(), X),
    "dropped": (lambda a: F.dropout(a, 0.5).pow(2).sum(), X),
}  # fmt: skip


def first(f: Any) -> Any:
    return func.vmap(func.grad(f), randomness="different")


def second(f: Any) -> Any:
    return first(lambda a: (func.grad(f)(a) * a).sum())


def around(f: Any) -> Any:
    def run(v: Any) -> Any:
        v = v.detach().clone().requires_grad_()
        return torch.autograd.grad((first(f)(v) * v).sum(), v)[0]

    return run


@pytest.mark.parametrize("how", [first, second, around])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mode_changes_nothing(name: str, how: Any) -> None:
    """With a mode the operators as called are recorded, without one those on whole values."""
    f, value = PROGRAMS[name]
    torch.manual_seed(1)
    expected = how(f)(value)
    torch.manual_seed(1)
    with Watching() as watching:
        found = how(f)(value)
    assert watching.seen
    assert torch.allclose(found, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_one_by_one(name: str) -> None:
    if name == "dropped":
        pytest.skip("draws other numbers one by one")
    f, value = PROGRAMS[name]
    expected = torch.stack([func.grad(f)(v) for v in value])
    assert torch.allclose(first(f)(value), expected, 1e-4, 1e-5)


def test_a_mode_sees_the_operators_as_called() -> None:
    with Watching() as watching:
        func.vmap(func.grad(lambda r: r.sum() * 2))(torch.ones(2, 3))
    assert "aten.view.default" in watching.seen  # expanding a scalar's gradient
    assert "aten.unsqueeze.default" not in watching.seen


ROWS = torch.tensor([[1.0, 2.0, 3.0], [5.0, 6.0, 4.0]])


@pytest.mark.parametrize(
    ("name", "value", "gradient"),
    [
        ("median", [2.0, 5.0], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        ("nanmedian", [2.0, 5.0], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        ("count_nonzero", [3, 3], [[0.0] * 3] * 2),
        ("argmax", [2, 1], [[0.0] * 3] * 2),
        ("any", [True, True], [[0.0] * 3] * 2),
    ],
)
def test_of_all_elements(name: str, value: Any, gradient: Any) -> None:
    """What has no gradient gives zeros."""
    f = getattr(torch, name)
    assert func.vmap(f)(ROWS).tolist() == value
    assert func.vmap(func.grad(f))(ROWS).tolist() == gradient


def test_trace_of_a_row() -> None:
    with pytest.raises(RuntimeError, match=r"^trace: expected a matrix, but got tensor with dim 1"):
        func.vmap(torch.trace)(ROWS)


def put_data(v: Any) -> Any:
    w = v * 1
    w.data = torch.ones(2)
    return (w * v).sum()


PAIR = torch.tensor([1.0, 2.0])
PAIRS = torch.stack([PAIR, PAIR])


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda: func.vmap(lambda v: v.data * 2)(PAIRS), "accessing `data` under vmap"),
        (
            lambda: func.grad(lambda v: func.vmap(lambda r: r.data * r)(v).sum())(PAIRS),
            "accessing `data` under vmap",
        ),
        (lambda: func.vmap(put_data)(PAIRS), "mutating directly with `.data` under vmap"),
        (lambda: func.grad(put_data)(PAIR), "mutating directly with `.data` inside functorch"),
        (
            lambda: func.jvp(put_data, (PAIR,), (PAIR,)),
            "mutating directly with `.data` inside functorch",
        ),
    ],
)
def test_data_is_refused(program: Any, message: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        program()
    assert str(caught.value).startswith(message)


def test_data_is_read() -> None:
    assert func.vmap(lambda v: PAIR.data * v)(PAIRS).tolist() == [[1.0, 4.0]] * 2
    found = func.vmap(func.grad(lambda v: (v.data * v).sum()))(PAIRS)
    assert found.tolist() == [[1.0, 2.0]] * 2


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda v: (v.detach().add_(1) * v).sum(), [13.0, 8.0]),
        (lambda v: (v.data.mul_(2) * v).sum(), [20.0, 10.0]),
        (lambda v: (v.detach()[:1].mul_(2) * v).sum(), [8.0, 6.0]),
    ],
)
def test_what_jvp_detached_may_be_written(f: Any, expected: list[float]) -> None:
    """It shares the primal's bytes."""
    out, tangent = func.jvp(f, (PAIR.clone(),), (PAIR,))
    assert [float(out), float(tangent)] == expected
