"""Scalars of NumPy's as arguments: the values of the plain program, and how many graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._dynamo.testing import CompileCounterWithBackend

VALUES = (2, 3, 4, 5, 6)
#: Programs of a tensor and a scalar; for float64, int64 and float32 how many graphs serve all
#: values: one for the first and one for the others, or one each.
PROGRAMS: dict[str, tuple[int, int, int]] = {
    "x*s+1": (2, 2, 2), "s*x": (2, 2, 2), "x*(s+1)": (2, 2, 5), "x*(1-s)/2": (2, 2, 5),
    "(x*s, s)": (2, 2, 2), "(x*s, s+1)": (2, 2, 5), "(x*s, type(s))": (2, 2, 2),
    "x*s if s>3 else x+s": (3, 3, 3), "x*s if isinstance(s, float) else x+1": (2, 2, 2),
    "(x*s, s > 3)": (5, 5, 5), "(x*s, f'{s}')": (5, 5, 5), "(x*s, float(s)*2)": (2, 2, 2),
    "x*int(s)": (2, 2, 2), "(x+1, [s, s*2])": (2, 2, 5), "(x*s, s==3, s in (3,4))": (5, 5, 5),
    "(x*s, {s: 1})": (5, 5, 5), "(x*s, round(s, 1))": (5, 5, 5), "(x*s, np.sqrt(s))": (5, 5, 5),
    "(x*s, s.item(), s.dtype)": (5, 5, 5), "(x*s, max(s, 2))": (5, 5, 5), "x*-s": (2, 2, 5),
    "torch.full((2,), s)": (2, 2, 2), "torch.tensor(s)+x": (5, 5, 5),
    "(x*s, torch.tensor([s, 1]))": (5, 5, 5), "torch.where(x>0, x, s)": (2, 2, 2),
    "x.clamp(max=s)": (2, 2, 2), "torch.add(x, x, alpha=s)": (2, 2, 2), "(x*s, not s)": (2, 2, 2),
    "(x*s, hash(s), str(s))": (5, 5, 5), "x**s": (2, 2, 2), "s**x": (2, 2, 2),
    "(x*s, s//2)": (2, 2, 5), "(x*s, 7//s)": (5, 5, 5), "x.add(s).mul_(s)": (2, 2, 2),
    "(lambda q: x*q)(s)": (2, 2, 2),
}  # fmt: skip
SIZES = ("x.new_zeros(s, 2)", "x.repeat(s)", "y[:s]", "y[s]", "torch.arange(s)", "y.roll(s)")


def _plain(value: Any) -> Any:
    """With types beside the values."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return type(value), value


def _graphs(text: str, kind: Any) -> int:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend("eager")
    fn = eval(f"lambda x, y, s: {text}", {"torch": torch, "np": np})
    compiled = torch.compile(fn, backend=counted)
    for v in VALUES:
        given = torch.ones(2), torch.arange(9.0), kind(v)
        assert _plain(compiled(*given)) == _plain(fn(*given)), (text, v)
    return int(counted.frame_count)


@pytest.mark.parametrize("text", PROGRAMS)
def test_program(text: str) -> None:
    kinds = np.float64, np.int64, np.float32
    assert tuple(_graphs(text, k) for k in kinds) == PROGRAMS[text]
    assert not torch._dynamo.utils.counters["contained"]


@pytest.mark.parametrize("text", SIZES)
def test_sizes_and_places(text: str) -> None:
    assert _graphs(text, np.int64) == 2


def test_tensors_of_scalars_have_their_dtype() -> None:
    for kind in (np.float64, np.float32, np.float16, np.int32, np.uint8, np.bool_):
        for fn in (torch.tensor, torch.as_tensor, torch.asarray, lambda s: torch.tensor([s, s])):
            torch._dynamo.reset()
            one = torch.ones(2, dtype=torch.float16)
            compiled = torch.compile(lambda x, s, fn=fn: (x + 1, fn(s)), backend="eager")
            assert compiled(one, kind(1))[1].dtype is fn(kind(1)).dtype, kind


def test_powers_of_new_kinds() -> None:
    x = torch.full((3,), 3.0)
    assert (x ** np.float64(2)).tolist() == (x ** np.float64(2.0)).tolist() == [9.0] * 3
    assert (x ** np.float64(3)).tolist() == [27.0] * 3


def test_dynamic_from_the_first_call() -> None:
    torch._dynamo.reset()
    counted = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda x, s: x * s, backend=counted, dynamic=True)
    assert [compiled(torch.ones(1), np.float64(v)).item() for v in (2, 3, 4)] == [2, 3, 4]
    assert counted.frame_count == 1
