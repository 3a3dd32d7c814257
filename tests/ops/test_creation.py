"""Where a dtype is wanted, Python's classes of numbers name one."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch

KINDS = {float: torch.float64, int: torch.int64, bool: torch.bool, complex: torch.complex128}
ONES = torch.ones(2)


def made(kind: Any) -> list[Any]:
    import numpy as np

    array = np.ones(2)
    return [
        torch.tensor(1, dtype=kind),
        torch.tensor([[1, 0]], dtype=kind),
        torch.tensor(array, dtype=kind),
        torch.tensor(True, dtype=kind),
        torch.as_tensor([1], dtype=kind),
        torch.as_tensor(array, dtype=kind),
        torch.as_tensor(ONES, dtype=kind),
        torch.asarray([1], dtype=kind),
        torch.asarray(array, dtype=kind),
        ONES.new_tensor([1], dtype=kind),
        ONES.to(kind),
        ONES.to(dtype=kind),
        ONES.to("cpu", kind),
        ONES.to(torch.device("cpu"), kind),
        torch.zeros(2, dtype=kind),
        torch.zeros_like(ONES, dtype=kind),
        torch.arange(0, 1, dtype=int).to(kind),
    ]


@pytest.mark.parametrize("kind", list(KINDS), ids=lambda k: k.__name__)
def test_python_classes_are_dtypes(kind: Any) -> None:
    assert [t.dtype for t in made(kind)] == [KINDS[kind]] * 17


def test_limits_and_promotion_take_them() -> None:
    assert torch.finfo(float).dtype == "float64"
    assert torch.iinfo(int).dtype == "int64"
    assert torch.promote_types(int, torch.float32) is torch.float32
    assert torch.promote_types(float, int) is torch.float64
    assert not torch.can_cast(float, int)
    assert torch.nn.Linear(2, 2).to(float).weight.dtype is torch.float64
    assert torch.nn.Linear(2, 2).to("cpu", float).weight.dtype is torch.float64


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: torch.tensor(0, dtype=3),
            "tensor(): argument 'dtype' must be torch.dtype, not int",
        ),
        (
            lambda: torch.asarray(0, dtype=str),
            "asarray(): argument 'dtype' must be torch.dtype, not type",
        ),
        (
            lambda: torch.finfo(str),
            "finfo(): argument 'type' (position 1) must be torch.dtype, not type",
        ),
        (
            lambda: ONES.to(dtype=3),
            "to() received an invalid combination of arguments - got (dtype=int, ), but expected",
        ),
    ],
)
def test_other_classes_are_refused(call: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(text)
