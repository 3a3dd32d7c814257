"""autocast on the CPU: which operators run in bfloat16, which in float32;
the kept casts; GradScaler."""

from __future__ import annotations

import warnings

import pytest

import flambeau as torch

F = torch.nn.functional
bf16 = torch.bfloat16


def test_policies() -> None:
    x, h = torch.ones(2, 2), torch.ones(2, 2, dtype=bf16)
    with torch.autocast("cpu", dtype=bf16):
        assert torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled()
        assert torch.get_autocast_dtype("cpu") is bf16
        assert torch.mm(x, x).dtype is bf16 and F.linear(x, x).dtype is bf16
        assert torch.mm(x.double(), x.double()).dtype is torch.float64
        assert F.mse_loss(h, h).dtype is torch.float32 and torch.prod(h).dtype is torch.float32
        assert torch.cat([x, h]).dtype is torch.float32 and torch.cat([h, h]).dtype is bf16
        assert (x + h).dtype is torch.float32 and h.exp().dtype is bf16
        assert F.softmax(h, -1).dtype is bf16 and F.layer_norm(h, (2,)).dtype is bf16
        with torch.autocast("cpu", enabled=False):
            assert torch.mm(x, x).dtype is torch.float32
    assert not torch.is_autocast_enabled("cpu") and torch.mm(x, x).dtype is torch.float32


def test_the_cast_of_a_weight_is_kept_until_the_region_ends() -> None:
    w = torch.ones(2, 2, requires_grad=True)
    x = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=bf16):
        a = torch.mm(x, w)
        w.data.fill_(5)
        b = torch.mm(x, w)
        assert torch.equal(a, b)
    with torch.autocast("cpu", dtype=bf16, cache_enabled=False):
        assert torch.mm(x, w)[0, 0] == 10
    (a.float().sum() + b.float().sum()).backward()
    assert w.grad.dtype is torch.float32 and w.grad[0, 0] == 4


def test_decorator_and_refusals() -> None:
    @torch.autocast("cpu", dtype=bf16)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    assert f(torch.ones(2, 2)).dtype is bf16
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        torch.autocast(torch.device("cpu"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.autocast("cpu", dtype=torch.float64)
    assert "In CPU autocast, but the target dtype is not supported" in str(caught[0].message)


def test_grad_scaler() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    x = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([x], 0.5)
    scaler.scale((x * 2).sum()).backward()
    assert x.grad[0] == 2048
    scaler.unscale_(optimizer)
    assert x.grad[0] == 2
    with pytest.raises(RuntimeError, match="already been called on this optimizer"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert x[0] == 0 and scaler.get_scale() == 2048
    x.grad[0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert x[0] == 0 and scaler.get_scale() == 1024
    assert scaler.state_dict()["scale"] == 1024
