"""Every declared operator with samples, through the battery."""

from __future__ import annotations

import re
from typing import Any

import pytest

import flambeau as torch
from tests.ops import battery

OPS = list(battery.tested_ops())
IDS = [op.key for op in OPS]
FLOATS = [torch.float64, torch.float32]


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_values(op: Any) -> None:
    for sample in battery.samples_of(op, torch.float64):
        battery.check_values(op, sample)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_fake(op: Any) -> None:
    for dtype in FLOATS:
        for layout in ("contiguous", "permuted", "channels_last"):
            for sample in battery.samples_of(op, dtype, layout):
                battery.check_fake(op, sample)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_inplace_and_out(op: Any) -> None:
    for sample in battery.samples_of(op, torch.float64):
        battery.check_inplace(op, sample)
        battery.check_out(op, sample)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_bfloat16(op: Any) -> None:
    for sample in battery.samples_of(op, torch.float32):
        battery.check_bfloat16(op, sample)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_layouts(op: Any) -> None:
    for layout in ("permuted", "channels_last"):
        battery.check_layout(op, torch.float64, layout)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_gradients(op: Any) -> None:
    for sample in battery.samples_of(op, torch.float64):
        battery.check_gradients(op, sample)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_second_gradients(op: Any) -> None:
    for sample in battery.samples_of(op, torch.float64):
        battery.check_gradients(op, sample, second=True)


@pytest.mark.parametrize("op", OPS, ids=IDS)
def test_errors(op: Any) -> None:
    if op.decl.error_samples is None:
        return
    for e in op.decl.error_samples(battery.Maker(torch.float32)):
        with pytest.raises(e.kind, match=e.pattern) as info:
            battery.function_of(op)(*e.args, **e.kwargs)
        assert re.search(e.pattern, str(info.value))
