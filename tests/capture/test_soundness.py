"""The quick part of `tests.capture.soundness`: nothing new fails."""

from __future__ import annotations

import pytest

from tests.capture.soundness import QUICK, apart


@pytest.mark.parametrize("name", QUICK)
def test_nothing_new_fails(name: str) -> None:
    plain, got = (apart(name, captured, None, 300) for captured in (False, True))
    assert got["run"] == plain["run"] > 30
    assert not set(got["failed"]) - set(plain["failed"])
    assert got["counts"]["whole"] > 100
    assert got["counts"]["broken"] > 50
    assert not got["counts"]["contained"]
