"""Modules whose parameters are computed: weight norm, pruning, parametrisations, other ones given."""

from __future__ import annotations

import flambeau as torch
from flambeau import nn
from flambeau.nn.utils import (
    parametrizations,
    parametrize,
    prune,
    spectral_norm,
    weight_norm,
)
from tests.capture.comparing import program


def linear():
    return nn.Linear(3, 3)


def with_input(make):
    return lambda: (make(linear()), torch.randn(2, 3, requires_grad=True))


class Symmetric(nn.Module):
    """The weight is symmetric."""

    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)


class Positive(nn.Module):
    """The weight is positive."""

    def forward(self, weight):
        return weight.exp()

    def right_inverse(self, weight):
        return weight.log()


def symmetric(m):
    return parametrize.register_parametrization(m, "weight", Symmetric())


def both(m):
    with torch.no_grad():
        m.weight.abs_()
    parametrize.register_parametrization(m, "weight", Positive())
    return parametrize.register_parametrization(m, "weight", Symmetric())


def twice_pruned(m):
    prune.random_unstructured(m, "weight", amount=0.3)
    return prune.l1_unstructured(m, "weight", amount=2)


def _called(m, a):
    return m(a)


for _make in (
    weight_norm,
    lambda m: weight_norm(m, dim=None),
    spectral_norm,
    lambda m: spectral_norm(m).eval(),
    lambda m: prune.random_unstructured(m, "weight", amount=0.3),
    lambda m: prune.ln_structured(m, "weight", amount=1, n=2, dim=0),
    lambda m: prune.custom_from_mask(m, "bias", torch.tensor([1.0, 0, 1])),
    twice_pruned,
    symmetric,
    both,
    parametrizations.weight_norm,
    parametrizations.spectral_norm,
    lambda m: parametrizations.spectral_norm(m).eval(),
):
    program(with_input(_make), graphs=1)(_called)


@program(with_input(symmetric), graphs=1)
def cached(m, a):
    with parametrize.cached():
        b = m(m(a)) + m.weight.sum(0)
        same = m.weight is m.weight
    return b, same, m.weight is m.weight


@program(with_input(symmetric), breaks=None)
def cached_around_a_break(m, a):
    with parametrize.cached():
        b = m(a) + m.weight.sum()
        print("between")
        b = b * m.weight.sum()
    return b


@program(with_input(symmetric), graphs=1)
def looked_at(m, a):
    if parametrize.is_parametrized(m, "weight"):
        a = a * 2
    if parametrize.type_before_parametrizations(m) is nn.Linear:
        a = a + m.parametrizations.weight.original.sum()
    return m(a), m.parametrizations["weight"][0](a.expand(3, 2, 3)[:, 0])


@program(lambda: (nn.Sequential(linear(), nn.BatchNorm1d(3)), torch.randn(2, 3)), graphs=1)
def called_with_others(m, a):
    others = {name: p * 2 for name, p in m.named_parameters()}
    return torch.func.functional_call(m, others, (a,)), m(a)


@program(lambda: (linear(), torch.randn(2, 3), torch.randn(3, 3, requires_grad=True)), graphs=1)
def called_with_given(m, a, weight):
    out = torch.func.functional_call(m, {"weight": weight}, args=(), kwargs={"input": a})
    return out, m.weight is weight
