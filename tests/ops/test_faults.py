"""Faults planted on purpose: the tests must see each of them."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._src.core.slots import SLOTS
from flambeau._src.interp import record
from flambeau._src.ops import kinds
from flambeau._src.ops.op import packet
from tests.ops import battery, test_promotion, test_strides


@pytest.fixture
def python_path(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls go through Python, where the faults are planted."""
    from flambeau._src.core import state

    before = state.get_active()
    state.set_active(before | state.RECORD)
    yield monkeypatch
    state.set_active(before)


def test_a_wrong_stride_is_seen(python_path: Any) -> None:
    real = SLOTS["broadcast_geometry"]

    def contiguous(tensors: Any) -> Any:
        shape, _ = real(tensors)
        out, c = [0] * len(shape), 1
        for i in range(len(shape) - 1, -1, -1):
            out[i] = c
            c *= max(shape[i], 1)
        return shape, tuple(out)

    python_path.setitem(SLOTS, "broadcast_geometry", contiguous)
    assert test_strides.wrong_strides()


def test_a_missing_save_is_seen(python_path: Any) -> None:
    op = packet("mul").ops[0]
    python_path.setattr(record, "saved_sets", lambda *a: (frozenset(), frozenset()))
    python_path.setattr(record, "_offer_fast", lambda *a: None)  # C would keep the fault
    with pytest.raises(RuntimeError, match="saved set"):
        for sample in battery.samples_of(op, torch.float64):
            battery.check_gradients(op, sample)


def test_a_wrong_promotion_is_seen(python_path: Any) -> None:
    python_path.setattr(kinds, "result_type", lambda values: torch.float64)
    assert test_promotion.mismatches()
