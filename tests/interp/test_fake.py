"""Fake tensors: devices, aliases, constants, and what they refuse."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)


def test_factories_views_and_writes() -> None:
    with FakeTensorMode() as mode:
        a = torch.ones(2, 3)
        assert (
            type(a) is FakeTensor
            and a.fake_mode is mode
            and repr(a) == "FakeTensor(..., size=(2, 3))"
        )
        b = a.t()
        assert b._base is a and b.stride() == (1, 3) and b.untyped_storage() is a.untyped_storage()
        assert a.add_(1) is a and a._version == b._version == 1
        assert torch.nn.functional.linear(a, torch.ones(4, 3)).shape == (2, 4)


def test_devices_need_not_exist() -> None:
    with FakeTensorMode():
        x = torch.empty(4, device="cuda")
        y = (x + 1).sum()
    assert y.device.type == "cuda" and y.shape == ()


def test_conversion_keeps_aliases_and_leaves() -> None:
    mode = FakeTensorMode()
    x = torch.ones(2, 3, requires_grad=True)
    fx, fv = mode.from_tensor(x), mode.from_tensor(x.detach()[0])
    assert fx is mode.from_tensor(x) and fx.requires_grad and fx.is_leaf
    assert fv.untyped_storage() is fx.untyped_storage() and fv.shape == (3,)
    y = mode.from_tensor(x * 2)
    assert y.requires_grad and not y.is_leaf
    (fx * 2).sum().backward()
    assert type(fx.grad) is FakeTensor and fx.grad.shape == (2, 3)


def test_values_are_refused_unless_known() -> None:
    with FakeTensorMode():
        x = torch.ones(3)
        with pytest.raises(DataDependentOutputException):
            x.sum().item()
        with pytest.raises(DynamicOutputShapeException):
            x.nonzero()
        with pytest.raises(DynamicOutputShapeException):
            x[x > 0]
        assert int(torch.tensor(3)) == 3 and (torch.tensor(3) + 1).item() == 4


def test_real_arguments() -> None:
    mode = FakeTensorMode()
    fake, real = mode.from_tensor(torch.ones(2)), torch.zeros(2)
    with pytest.raises(AssertionError, match="Please convert all Tensors to FakeTensors first"):
        fake + real
    loose = FakeTensorMode(allow_non_fake_inputs=True)
    assert type(loose.from_tensor(torch.ones(2)) + real) is FakeTensor
    with pytest.raises(AssertionError, match="Mixing fake modes NYI"):
        fake + loose.from_tensor(real)


def test_meta_tensors() -> None:
    x = torch.ones(3, device="meta")
    assert x[torch.tensor([0, 1])].device.type == "meta" and torch.nn.functional.dropout(
        x
    ).shape == (3,)
    with pytest.raises(RuntimeError, match=r"Tensor\.item\(\) cannot be called on meta tensors"):
        x[0].item()
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        x.to("cpu")
    with pytest.raises(NotImplementedError):
        x.masked_select(x > 0)
