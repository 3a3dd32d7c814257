"""Every recorded case under flambeau, against what PyTorch 2.13 gave (record.py)."""

from __future__ import annotations

import json

import pytest

import flambeau
from tests.autograd import cases

EXPECTED = json.loads(cases.EXPECTED.read_text())
CASES = cases.cases()


def test_the_record_is_of_these_cases() -> None:
    assert list(EXPECTED) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_recorded(name: str) -> None:
    got, expected = cases.run(flambeau, CASES[name]), EXPECTED[name]
    for i, (a, b) in enumerate(zip(got, expected, strict=False)):
        assert cases.same(a, b), f"line {i}:\n  flambeau {a}\n  torch    {b}"
    assert len(got) == len(expected), (got[len(expected) :], expected[len(got) :])
