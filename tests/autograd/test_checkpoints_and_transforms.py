"""`torch.utils.checkpoint` under function transforms, and selective checkpoints.

What happens, and the messages, are what PyTorch 2.13 printed; where `vmap` of a checkpoint is
differentiated from outside it fails with an internal error, and works here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils.checkpoint import CheckpointPolicy, checkpoint
from flambeau.utils.checkpoint import create_selective_checkpoint_contexts as contexts

func, aten = torch.func, torch.ops.aten
X = torch.linspace(-1, 1, 6).reshape(2, 3)
W = torch.linspace(-1, 1, 9).reshape(3, 3)


def f(v: Any) -> Any:
    return v.sin() * v


def later(v: Any) -> Any:
    return checkpoint(f, v, use_reentrant=False)


def leaf(value: Any = X) -> Any:
    return value.clone().requires_grad_()


def gradient(fn: Any, value: Any = X) -> Any:
    v = leaf(value)
    return torch.autograd.grad(fn(v).sum(), v)[0]


WORKING: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda g: torch.vmap(g)(X),
    "jvp": lambda g: torch.stack(func.jvp(g, (X,), (X + 1,))),
    "jvp of recorded": lambda g: gradient(lambda v: func.jvp(g, (v,), (X,))[1]),
    "gradient of vmap": lambda g: gradient(torch.vmap(g)),
    "gradient of vmap of vmap": lambda g: gradient(torch.vmap(torch.vmap(g))),
    "batched gradients": lambda g: (lambda v: torch.autograd.grad(
        g(v), v, torch.eye(3), is_grads_batched=True)[0])(leaf(X[0])),
    "functional jvp": lambda g: torch.autograd.functional.jvp(g, X, X)[1],
}  # fmt: skip
REFUSED: dict[str, Callable[[Any], Any]] = {
    "grad": lambda g: func.grad(lambda v: g(v).sum())(X),
    "vjp": lambda g: func.vjp(g, X),
    "vmap of grad": lambda g: torch.vmap(func.grad(lambda v: g(v).sum()))(X),
    "grad of vmap": lambda g: func.grad(lambda v: torch.vmap(g)(v).sum())(X),
    "jacrev": lambda g: func.jacrev(g)(X[0]),
    "hessian": lambda g: func.hessian(lambda v: g(v).sum())(X[0]),
}


@pytest.mark.parametrize("name", WORKING)
def test_a_checkpoint_under_a_transform(name: str) -> None:
    assert torch.allclose(WORKING[name](later), WORKING[name](f))


def test_the_checkpoint_under_vmap_runs_again() -> None:
    calls = []

    def counted(v: Any) -> Any:
        calls.append(v.shape)
        return f(v)

    gradient(torch.vmap(lambda v: checkpoint(counted, v, use_reentrant=False)))
    assert calls == [(3,), (3,)]


@pytest.mark.parametrize("name", REFUSED)
def test_grad_levels_refuse_hooks(name: str) -> None:
    with pytest.raises(RuntimeError, match="don't yet support saved tensor hooks"):
        REFUSED[name](later)


@pytest.mark.parametrize("name", ["vmap", "jvp", "gradient of vmap", *REFUSED])
def test_the_reentrant_form_refuses_transforms(name: str) -> None:
    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        {**WORKING, **REFUSED}[name](lambda v: checkpoint(f, v, use_reentrant=True))


def test_a_transform_in_a_checkpoint() -> None:
    found = gradient(lambda v: checkpoint(torch.vmap(f), v, use_reentrant=False))
    assert torch.allclose(found, gradient(f))
    with pytest.raises(RuntimeError, match="don't yet support saved tensor hooks"):
        checkpoint(func.grad(lambda v: f(v).sum()), leaf(), use_reentrant=False)


# ---- selective ----


def body(a: Any) -> Any:
    return torch.sigmoid(torch.sin(a @ W) @ W) * a


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(op)] += 1
        return op(*args, **(kwargs or {}))


def save_products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    return (
        CheckpointPolicy.MUST_SAVE if op == aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE
    )


POLICIES: dict[str, tuple[Any, int]] = {  # and how many products the backward computes
    "none": (None, 4),
    "list": (lambda: contexts([aten.mm.default]), 2),
    "policy": (lambda: contexts(save_products), 2),
    "truth values": (lambda: contexts(lambda ctx, op, *a, **k: op == aten.mm.default), 2),
    "nothing": (lambda: contexts([]), 4),
}


def selective(context_fn: Any, fn: Any = body, **options: Any) -> Any:
    given = {} if context_fn is None else {"context_fn": context_fn}
    v = leaf()
    return checkpoint(fn, v, use_reentrant=False, **given, **options).sum(), v


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_kept_is_not_computed_again(name: str) -> None:
    context_fn, products = POLICIES[name]
    loss, v = selective(context_fn)
    with Counting() as counting:
        (found,) = torch.autograd.grad(loss, v)
    assert counting.calls["aten.mm.default"] == products
    assert torch.allclose(found, gradient(body))


@pytest.mark.parametrize(("name", "again"), [("list", False), ("nothing", True)])
def test_kept_results_are_handed_out_once(name: str, again: bool) -> None:
    loss, v = selective(POLICIES[name][0])
    torch.autograd.grad(loss, v, retain_graph=True)
    if again:
        torch.autograd.grad(loss, v)
        return
    with pytest.raises(RuntimeError, match=r"^Trying to backward an extra time\. You are only"):
        torch.autograd.grad(loss, v)


def test_a_kept_result_that_is_written() -> None:
    def written(a: Any) -> Any:
        b = a @ W
        b.add_(1)
        return b.sin()

    loss, v = selective(POLICIES["list"][0], written)
    with pytest.raises(RuntimeError, match="has been mutated"):
        torch.autograd.grad(loss, v)
    allowed = lambda: contexts([aten.mm.default], allow_cache_entry_mutation=True)  # noqa: E731
    loss, v = selective(allowed, written)
    expected = [[1.9122, 0.1121, -1.6879], [1.6879, -0.1121, -1.9122]]  # PyTorch's, as wrong
    assert torch.allclose(torch.autograd.grad(loss, v)[0], torch.tensor(expected), 0, 1e-4)


def test_the_policy_is_asked_in_the_first_run() -> None:
    seen = []

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((ctx.is_recompute, str(op)))
        return CheckpointPolicy.MUST_RECOMPUTE

    loss, v = selective(lambda: contexts(policy))
    torch.autograd.grad(loss, v)
    names = ("mm.default", "sin.default", "mm.default", "sigmoid.default", "mul.Tensor")
    assert seen == [(False, f"aten.{n}") for n in names]


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ([1], ValueError, "to be an OpOverload but got: 1 of type <class 'int'>. "),
        ([aten.mm], ValueError, "`torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`."),
        (3, TypeError, "policy_fn_or_list must be either a function or a list of ops."),
    ],
)
def test_what_is_no_policy(argument: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        contexts(argument)
    assert str(caught.value).endswith(message)


def test_other_operators_in_the_second_run() -> None:
    first = [True]

    def changing(a: Any) -> Any:
        if first.pop() if first else False:
            return a.sin().exp()
        return a.cos().sin().exp()

    loss, _ = selective(lambda: contexts([aten.sin.default]), changing)
    with pytest.raises(RuntimeError, match=r"^aten.cos.default encountered during backward but"):
        loss.backward()
