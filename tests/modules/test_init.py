"""Initialisers: the same draws as PyTorch 2.13 (first values with seed 1)."""

from __future__ import annotations

import warnings

import pytest

import flambeau as torch
from flambeau.nn import init

FIRST = {
    "uniform_": ((20,), {"a": -1, "b": 1}, [0.515263, -0.441378, -0.193861, 0.469369]),
    "normal_": ((20,), {"mean": 1, "std": 2}, [-2.051192, -0.500464, -0.307962, -2.21897]),
    "trunc_normal_": ((20,), {}, [-1.525596, -0.750232, -0.653981, -1.609485]),
    "xavier_uniform_": ((5, 4), {}, [0.420711, -0.360384, -0.158287, 0.383238]),
    "xavier_normal_": ((5, 4), {"gain": 2.0}, [-1.438346, -0.707325, -0.616579, -1.517437]),
    "kaiming_uniform_": ((5, 4), {"mode": "fan_out"}, [0.564443, -0.483506, -0.212365, 0.514168]),
    "kaiming_normal_": (
        (5, 4, 3),
        {"nonlinearity": "relu"},
        [-0.622822, -0.306281, -0.266987, -0.657069],
    ),
    "sparse_": ((4, 3), {"sparsity": 0.4}, [0.006614, 0.0, 0.000617, 0.0]),
    "dirac_": ((4, 2, 3), {"groups": 2}, [0.0, 1.0, 0.0, 0.0]),
    "eye_": ((3, 2), {}, [1.0, 0.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("name", FIRST)
def test_first_values(name):
    shape, kwargs, expected = FIRST[name]
    torch.manual_seed(1)
    t = torch.empty(*shape)
    assert getattr(init, name)(t, **kwargs) is t
    assert t.flatten()[:4].tolist() == pytest.approx(expected, abs=2e-6)


def test_truncated_where_a_normal_is_rarely_inside():
    torch.manual_seed(1)
    t = init.trunc_normal_(torch.empty(20), a=0.5, b=1.2)
    assert t[:4].tolist() == pytest.approx([1.030342, 0.695518, 0.782148, 1.014279], abs=2e-6)
    assert ((t >= 0.5) & (t <= 1.2)).all()
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        init.trunc_normal_(torch.empty(2), mean=5.0)


def test_gains_and_fans():
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 0.2) == pytest.approx((2 / 1.04) ** 0.5)
    with pytest.raises(ValueError, match="Unsupported nonlinearity foo"):
        init.calculate_gain("foo")
    assert init._calculate_fan_in_and_fan_out(torch.empty(3, 4, 5, 6)) == (120, 90)
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        init.xavier_uniform_(torch.empty(3))
    with pytest.warns(UserWarning, match="zero-element tensors is a no-op"):
        init.kaiming_uniform_(torch.empty(0, 3))


def test_deprecated_names_and_generators():
    with pytest.warns(FutureWarning, match="`nn.init.uniform` is now deprecated"):
        init.uniform(torch.empty(3))
    made = [
        init.normal_(torch.empty(4), generator=torch.Generator().manual_seed(3)) for _ in range(2)
    ]
    assert torch.equal(*made)


def test_nothing_is_recorded():
    p = torch.empty(3, 4, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        init.kaiming_uniform_(p)
    assert p.grad_fn is None and p.requires_grad
