"""Where a dtype is wanted, Python's classes of numbers name one."""

from __future__ import annotations

from fractions import Fraction
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


def exactly(start: float, end: float, steps: int) -> list[float]:
    """As torch counts: the step is rounded, each number once; the second half from the end."""
    step = (end - start) / (steps - 1)
    low = [Fraction(start) + i * Fraction(step) for i in range(steps // 2)]
    high = [Fraction(end) - i * Fraction(step) for i in range(steps - steps // 2)]
    return [float(v) for v in low + high[::-1]]


def test_linspace_rounds_each_number_once() -> None:
    for start, end, steps in ((0.1, 0.7, 1001), (-41.2, 41.2, 128), (2.5, -7.1, 64)):
        made = torch.linspace(start, end, steps, dtype=torch.float64)
        assert made.tolist() == exactly(start, end, steps)
        out = torch.zeros(steps, 2, dtype=torch.float64)[:, 0]
        assert torch.linspace(start, end, steps, out=out).tolist() == made.tolist()
    made = torch.linspace(-12.0, 12.0, 33)
    assert made.tolist() == [-12 + 0.75 * i for i in range(33)]
    assert torch.linspace(0.1, 0.7, 1).tolist() == torch.tensor([0.1]).tolist()


def test_whole_ranges_lie_between_whole_ends() -> None:
    assert torch.linspace(2.9, 5.2, 4, dtype=torch.int32).tolist() == [2, 3, 4, 5]
    assert torch.linspace(-2.9, 5.2, 4, dtype=torch.int64).tolist() == [-2, 0, 2, 5]
    assert torch.linspace(-3, 5, 3, dtype=torch.uint8).tolist() == [253, 129, 5]
    assert torch.linspace(0.5, 0, 1, dtype=torch.bool).tolist() == [True]
    assert torch.logspace(-2.9, 5.2, 4, dtype=torch.int64).tolist() == [0, 2, 464, 100000]
    assert torch.logspace(2.9, -5.2, 1, dtype=torch.int32).tolist() == [794]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda f: f(0, 1, 2, dtype=torch.bool), NotImplementedError, '_cpu" not implemented for'),
        (lambda f: f(300, 1, 2, dtype=torch.uint8), RuntimeError, "type uint8_t without overflow"),
        (lambda f: f(0, 1e300, 3, dtype=torch.float32), RuntimeError, "type float without"),
        (lambda f: f(1j, 5, 3, dtype=torch.float32), RuntimeError, "inferred dtype c10::complex<f"),
    ],
)
def test_what_evenly_spaced_numbers_refuse(call: Any, error: Any, words: str) -> None:
    for function in (torch.linspace, torch.logspace):
        with pytest.raises(error, match=words):
            call(function)


def test_complex_ends_make_a_complex_line() -> None:
    made = torch.linspace(1j, 2, 3)
    assert (made.dtype, made.tolist()) == (torch.complex64, [1j, 1 + 0.5j, 2])
