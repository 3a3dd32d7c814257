"""Gradients against closed forms and differences, and what only our engine promises: depth, memory,
no cycles."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._src import _native

RNG = np.random.default_rng(0)


def leaf(*shape: int, low: float = 0.2, high: float = 1.5) -> torch.Tensor:
    values = RNG.uniform(low, high, shape)
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def differences(f: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences of a number by each element of x."""
    slope = np.empty_like(x)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        slope[i] = (f(up) - f(down)) / (2 * step)
    return slope


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


CLOSED: list[tuple[str, Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = [
    ("square", lambda x: (x * x).sum(), lambda x: 2 * x),
    ("exp", lambda x: x.exp().sum(), np.exp),
    ("log", lambda x: x.log().sum(), lambda x: 1 / x),
    ("sin", lambda x: x.sin().sum(), np.cos),
    ("tanh", lambda x: x.tanh().sum(), lambda x: 1 - np.tanh(x) ** 2),
    ("sqrt", lambda x: x.sqrt().sum(), lambda x: 0.5 / np.sqrt(x)),
    ("reciprocal", lambda x: (1 / x).sum(), lambda x: -1 / x**2),
    ("sigmoid", lambda x: x.sigmoid().sum(), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2),
    ("power", lambda x: (x**3).sum(), lambda x: 3 * x**2),
    ("exponent", lambda x: (2**x).sum(), lambda x: np.log(2) * 2**x),
    ("norm", lambda x: x.norm(), lambda x: x / np.sqrt((x**2).sum())),
    ("product", lambda x: x.prod(), lambda x: x.prod() / x),
    ("mean", lambda x: x.mean(), lambda x: np.full_like(x, 1 / x.size)),
    ("logsumexp", lambda x: x.reshape(-1).logsumexp(0), lambda x: np.exp(x) / np.exp(x).sum()),
    ("quotient", lambda x: (x / (1 + x)).sum(), lambda x: 1 / (1 + x) ** 2),
    ("atan", lambda x: x.atan().sum(), lambda x: 1 / (1 + x**2)),
]


@pytest.mark.parametrize(("name", "f", "slope"), CLOSED, ids=[c[0] for c in CLOSED])
def test_closed_forms(name: str, f: Any, slope: Any) -> None:
    x = leaf(3, 4)
    f(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), slope(x.detach().numpy()), rtol=1e-12, atol=1e-14)


DIFFERENT: list[tuple[str, Callable[[Any], Any]]] = [
    ("softmax", lambda x: (x.softmax(-1) ** 2).sum()),
    ("matrix products", lambda x: (x @ x.t()).sin().sum()),
    ("layer norm", lambda x: (torch.nn.functional.layer_norm(x, (4,)) ** 3).sum()),
    ("views", lambda x: (x.t()[1:].reshape(-1)[::2] * x.view(-1)[:5]).sum()),
    ("in place", lambda x: _written(x).sum()),
    ("index", lambda x: (x[torch.tensor([0, 2, 0])] ** 2).prod(0).sum()),
    ("cumulative", lambda x: (x.cumsum(0) * x.cumprod(1)).sum()),
    ("variance", lambda x: x.var(0).prod() + x.std()),
    ("einsum", lambda x: torch.einsum("ij,kj,kl->il", x, x, x).sin().sum()),
    ("convolution", lambda x: torch.nn.functional.conv1d(x[None], x[None, :, :2]).tanh().sum()),
    ("gelu", lambda x: torch.nn.functional.gelu(x).sum()),
    ("solve", lambda x: torch.linalg.solve(x[:3, :3] + 3 * torch.eye(3).double(), x).sum()),
    ("sorted", lambda x: (x.sort(1)[0] * torch.arange(4)).sum()),
    ("joined", lambda x: torch.cat([x, x.sin()]).prod()),
    ("piecewise", lambda x: torch.where(x > 0.7, x**2, x.clamp(0.3, 0.6) * 3).sum()),
    ("attention", lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x * 2).sum()),
]  # fmt: skip


def _written(x: Any) -> Any:
    y = x * 1
    y[0].mul_(y[1].clone())
    y[:, 1:3] *= x[:, :2]
    y.view(-1)[3] = x[2, 2] ** 2
    return y + y.sin()


@pytest.mark.parametrize(("name", "f"), DIFFERENT, ids=[c[0] for c in DIFFERENT])
def test_differences(name: str, f: Any) -> None:
    x = leaf(3, 4)
    with torch.no_grad():
        expected = differences(lambda v: f(torch.tensor(v)).item(), x.detach().numpy())
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), expected, rtol=2e-6, atol=2e-7)

    def directional(v: np.ndarray) -> float:
        y = torch.tensor(v, requires_grad=True)
        (h,) = torch.autograd.grad(f(y), y)
        return float((h * weights).sum())

    weights = torch.tensor(RNG.uniform(-1, 1, (3, 4)))
    (second,) = torch.autograd.grad((g * weights).sum(), x, allow_unused=True)
    second = torch.zeros_like(x) if second is None else second
    expected = differences(directional, x.detach().numpy())
    np.testing.assert_allclose(second.numpy(), expected, rtol=5e-6, atol=5e-7)
    # Forward mode, and both vmaps of the two, say the same.
    tangent = torch.func.jvp(f, (x.detach(),), (weights,))[1]
    np.testing.assert_allclose(tangent.numpy(), (g * weights).sum().item(), rtol=1e-9)


DEEP: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "add": (100_000, lambda y: y + 1e-5),
    "mul": (20_000, lambda y: y * 1.0),
    "exp and log": (10_000, lambda y: y.exp().log()),
    "in place": (10_000, lambda y: y.mul_(1.0)),
    "views": (20_000, lambda y: y.view(2)),
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_graphs(kind: str) -> None:
    """No recursion, neither running nor taking down a graph of up to 100,000 nodes."""
    count, f = DEEP[kind]
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y = x * 1
    for _ in range(count):
        y = f(y)
    if kind == "add":
        y.sum().backward()
        g = x.grad
    else:
        (g,) = torch.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(g.numpy(), [1, 1], rtol=1e-9)
    del y


def test_a_deep_graph_that_nobody_differentiates() -> None:
    y = torch.ones(1, requires_grad=True) * 1
    for _ in range(100_000):
        y = y + 1
    del y


def test_wide_graphs() -> None:
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    torch.stack([x * i for i in range(20_000)]).sum().backward()
    assert x.grad.item() == sum(range(20_000))


def test_nothing_refers_to_its_own_output(without_collector: None) -> None:
    """Values are freed as soon as nobody needs them, without the collector."""
    live = _native.memory_stats()["live_bytes"]
    x = torch.rand(1000, requires_grad=True)
    for make in (
        lambda v: v.exp(),
        lambda v: v.sigmoid().tanh().sqrt(),
        lambda v: v.softmax(0).log_softmax(0),
        lambda v: (v * 1).mul_(2).exp_(),
        lambda v: _half_written(v),
        lambda v: v.sort()[0].cumsum(0),
        lambda v: torch.autograd.grad(v.exp().sum(), v, create_graph=True)[0],
        lambda v: torch.func.grad(lambda u: u.exp().sum())(v),
        lambda v: torch.func.jvp(torch.exp, (v,), (v,))[1],
        lambda v: torch.func.vmap(torch.func.grad(lambda u: u.exp()))(v),
        lambda v: torch.utils.checkpoint.checkpoint(torch.sin, v, use_reentrant=False),
    ):  # fmt: skip
        y = make(x)
        gone = weakref.ref(y)
        del y
        assert gone() is None
    del x, make
    assert _native.memory_stats()["live_bytes"] == live


def _half_written(v: Any) -> Any:
    y = v.clone()
    y[:500].mul_(v[500:])
    return y


def test_backward_frees_what_was_saved(without_collector: None) -> None:
    x = torch.rand(1000, requires_grad=True)
    y = x
    for _ in range(10):
        y = y.sin()
    loss = y.sum()
    del y
    before = _native.memory_stats()["live_bytes"]
    loss.backward()
    # Nine saved results of 4,000 bytes are gone; one gradient has come.
    assert before - _native.memory_stats()["live_bytes"] >= 8 * 4000


def test_gradients_are_not_copied() -> None:
    x = torch.rand(1000, requires_grad=True)
    (x * 2).sum().backward()
    kept = x.grad
    address = kept.data_ptr()
    (x * 2).sum().backward()
    assert x.grad is kept and kept.data_ptr() == address
    # A gradient that somebody else holds is not taken over.
    held = torch.ones(1000)
    y = torch.rand(1000, requires_grad=True)
    y.backward(held)
    y.grad.add_(1)
    assert held.sum().item() == 1000


def test_threads_differentiate_one_graph() -> None:
    x = torch.rand(100, dtype=torch.float64, requires_grad=True)
    y = (x.sin() * x.exp()).sum()
    found: list[Any] = []

    def work() -> None:
        for _ in range(20):
            found.append(torch.autograd.grad(y, x, retain_graph=True)[0])

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(found) == 80
    assert all(torch.equal(g, found[0]) for g in found)


def test_numbers_that_are_kept_are_counted_on_every_path() -> None:
    """The first call runs in Python, later ones in C: both refuse a second backward alike."""
    x = torch.ones(3, requires_grad=True)
    for _ in range(4):
        y = x * 2
        y.sum().backward()
        with pytest.raises(RuntimeError, match="a second time"):
            y.sum().backward()
        z = x + 2
        z.sum().backward()
        z.sum().backward()


def test_a_loss_curve_is_the_same_by_all_engines() -> None:
    """backward, grad, func.grad, hooks (Python's engine), and checkpoints give equal bits."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    x, target = torch.rand(5, 4), torch.rand(5, 1)
    names = [n for n, _ in model.named_parameters()]
    parameters = list(model.parameters())

    def loss(p: Any = None) -> Any:
        given = dict(zip(names, parameters, strict=True)) if p is None else p
        out = torch.func.functional_call(model, given, (x,))
        return ((out - target) ** 2).mean()

    expected = torch.autograd.grad(loss(), parameters)
    loss().backward()
    by_backward = [p.grad for p in parameters]
    handles = [p.register_hook(lambda g: g.clone()) for p in parameters]
    model.zero_grad()
    loss().backward()
    by_hooks = [p.grad for p in parameters]
    for h in handles:
        h.remove()
    detached = {n: p.detach() for n, p in zip(names, parameters, strict=True)}
    by_func = list(torch.func.grad(loss)(detached).values())
    model.zero_grad()
    torch.utils.checkpoint.checkpoint(loss, use_reentrant=False).backward()
    by_checkpoint = [p.grad for p in parameters]
    for other in (by_backward, by_hooks, by_func, by_checkpoint):
        assert all(torch.equal(a, b) for a, b in zip(expected, other, strict=True))


def test_a_limited_pass_runs_no_hooks_beside_its_way() -> None:
    """Where no wanted gradient comes from, none is given, and no hook called (torch 2.13)."""
    log: list[str] = []
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    z, w = x * 1, y * 1
    for name, t in (("x", x), ("y", y), ("z", z), ("w", w)):
        t.register_hook(lambda g, name=name: log.append(name))

    def called(*wanted: torch.Tensor) -> list[str]:
        log.clear()
        torch.autograd.grad((z.sin() * w).sum(), wanted, retain_graph=True)
        return list(log)

    assert called(x) == ["z", "x"]
    assert called(w) == ["w"]
    assert called(y) == ["w", "y"]
    log.clear()
    (z.sin() * w).sum().backward(inputs=[x])
    assert log == ["z", "x"]
    assert y.grad is None
