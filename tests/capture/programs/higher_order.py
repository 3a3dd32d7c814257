"""Operators that take functions: each one graph, with what the functions use as operands."""

from __future__ import annotations

import flambeau as torch
from flambeau import nn
from flambeau._higher_order_ops import map as map_
from flambeau._higher_order_ops import scan, while_loop
from flambeau.utils.checkpoint import checkpoint, checkpoint_sequential
from tests.capture.comparing import program

SCALE = torch.tensor([1.0, 2.0, 3.0])


def x():
    return torch.randn(4, 3, requires_grad=True)


def plain():
    return torch.randn(4, 3)


def positive():
    return (torch.rand(4, 3) + 0.1).requires_grad_()


def negative():
    return (-torch.rand(4, 3) - 0.1).requires_grad_()


def mlp():
    return nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 3))


# ---- cond ----


def _choose(a):
    b = a * 2
    return torch.cond(a.sum() > 0, lambda v: v.sin() * b, lambda v: v.cos() + SCALE, (a,))


@program(lambda: (positive(),), graphs=1)
def cond_true(a):
    return _choose(a)


@program(lambda: (negative(),), graphs=1)
def cond_false(a):
    return _choose(a) * 2


@program(lambda: (mlp(), negative()), graphs=1)
def cond_over_a_module(m, a):
    return torch.cond(a.sum() > 0, lambda v: v, lambda v: m(v) + v, (a,))


@program(lambda: (positive(),), graphs=1)
def cond_of_trees(a):
    out = torch.cond(
        a.sum() > 0,
        lambda t: {"a": t["p"].sin(), "b": (t["q"] * 2, t["p"] + 1)},
        lambda t: {"a": t["p"], "b": (t["q"] - 1, t["p"] * t["q"])},
        ({"p": a, "q": a.exp()},),
    )
    return out["a"], out["b"]


@program(lambda: (negative(),), graphs=1)
def cond_in_a_branch(a):
    def inner(v):
        return torch.cond(v.max() > -0.05, lambda u: u * 3, lambda u: u * a, (v,))

    return torch.cond(a.sum() > 0, lambda v: v.sin(), inner, (a,))


@program(lambda: (positive(),), graphs=1)
def cond_on_a_constant(a):
    return torch.cond(a.shape[0] == 4, lambda v: v.sin(), lambda v: v.cos().sum(), (a,))


@program(lambda: (positive(), []), breaks=1)
def cond_with_effects(a, seen):
    def noting(v):
        seen.append(1)
        return v.sin()

    return torch.cond(a.sum() > 0, noting, lambda v: v.cos(), (a,))


@program(lambda: (plain(),), breaks=1)
def cond_that_writes(a):
    b = a + 1
    c = torch.cond(b.sum() > -99, lambda v: v.add_(1) * 2, lambda v: v.cos(), (b,))
    return b, c


@program(lambda: (plain(),), breaks=1)
def cond_that_disagrees(a):
    return torch.cond(a.sum() > -99, lambda v: v.sum(), lambda v: v.cos(), (a,))


# ---- loops ----


@program(lambda: (plain(),), graphs=1)
def loop(a):
    def more(i, v):
        return (i < 5) & (v.abs().sum() > 0)

    return while_loop(more, lambda i, v: (i + 1, v.sin() * SCALE), (torch.tensor(0), a))


@program(lambda: (x(),), graphs=1)
def loop_with_gradients(a):
    b = a * 2
    i, v = while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v.sin() + b), (torch.tensor(0), a))
    return i, v


@program(lambda: (plain(),), graphs=1)
def loop_over_a_number(a):
    return while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, v.sin()), (0, a))


@program(lambda: (plain(),), graphs=1)
def loop_that_does_not_run(a):
    return while_loop(lambda t: t["i"] < 0, lambda t: ({"i": t["i"] - 1},), ({"i": a.sum() + 99},))


@program(lambda: (x(), torch.randn(3, requires_grad=True)), graphs=1)
def scanned(a, c):
    b = a[0] * SCALE

    def step(carry, row):
        following = carry * row.sin() + b
        return following, (following * 2, row + carry)

    return scan(step, c, a)


@program(lambda: (x(), torch.randn(4, requires_grad=True)), graphs=1)
def scanned_backwards_along_columns(a, c):
    def step(carry, row):
        n, (p, q) = carry
        return [n + 1, (p * row["r"], q + row["r"])], p * q + n

    return scan(step, [torch.tensor(0), (c, c.cos())], {"r": a}, dim=1, reverse=True)


@program(lambda: (nn.GRUCell(3, 3), x(), torch.randn(4, 3)), graphs=1)
def scanned_cell(cell, a, h):
    def step(carry, row):
        carry = cell(row, carry)
        return carry, carry * 2

    return scan(step, h, a.expand(5, 4, 3))


@program(lambda: (x(), torch.randn(3, requires_grad=True)), graphs=1, rounding=1e-6)
def mapped(a, b):
    return map_(
        lambda row, t, k: {"s": row * t["b"].sin() + k, "m": row.max() * SCALE}, a, {"b": b}, 2
    )


@program(lambda: (mlp(), x()), graphs=1, rounding=1e-6)
def mapped_module(m, a):
    return map_(lambda row: m(row) + a.sum(0), a)


@program(lambda: (plain(),), breaks=1)
def scan_of_other_shapes(a):
    return scan(lambda c, row: (c.sum(), row), torch.zeros(3), a)


# ---- checkpoint ----


@program(lambda: (mlp(), x()), graphs=1)
def checkpointed(m, a):
    return checkpoint(m, a.sin(), use_reentrant=False) * 2


@program(lambda: (mlp(), x()), graphs=1)
def checkpointed_reentrant(m, a):
    return checkpoint(m, a.sin(), use_reentrant=True) * 2


@program(lambda: (mlp(), x()), graphs=1)
def checkpointed_sequence(m, a):
    return checkpoint_sequential(m, 3, a, use_reentrant=False)


@program(lambda: (x(),), graphs=1)
def checkpointed_closure(a):
    b = a.cos()

    def part(v, k, more=1):
        c = v.exp()
        return {"p": (c * b, k), "q": c + more}, v

    out, same = checkpoint(part, a, 3.0, use_reentrant=False, more=2)
    return out["p"], out["q"] * 2, same is a


@program(lambda: (nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3)), x()), graphs=1)
def checkpointed_dropout(m, a):
    return checkpoint(m, a, use_reentrant=False)


@program(lambda: (mlp(), x()), graphs=1)
def nested_checkpoints(m, a):
    def inner(v):
        return m(v).tanh()

    def outer(v):
        return checkpoint(inner, v, use_reentrant=False) + v.sin()

    return checkpoint(outer, a, use_reentrant=False)


@program(lambda: (mlp(), plain(), torch.randn(4, 3)), graphs=1)
def checkpoint_in_a_training_step(m, a, target):
    loss = nn.functional.mse_loss(checkpoint(m, a, use_reentrant=False), target)
    loss.backward()
    with torch.no_grad():
        for p in m.parameters():
            p.sub_(p.grad, alpha=0.1)
    return loss.detach()


@program(lambda: (x(), []), breaks=1)
def checkpoint_with_effects(a, seen):
    def noting(v):
        seen.append(1)
        return v.sin() * v

    return checkpoint(noting, a, use_reentrant=False)
