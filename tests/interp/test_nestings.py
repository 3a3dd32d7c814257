"""What every layer sees, nested in every way: the operator sequences that torch 2.13 shows.

The programs and torch's recorded lines are tests/oracle/nesting_programs.py and nestings.json.
known_nestings.txt beside them lists `sequence NAME` and `arguments NAME` that do not match yet;
a listed one that matches fails until its line is removed.
"""

from __future__ import annotations

import json

import pytest

import flambeau
from tests.oracle import nesting_programs, nestings

KNOWN_FILE = nestings.RECORD.with_name("known_nestings.txt")
KNOWN = {line.strip() for line in KNOWN_FILE.read_text().splitlines() if line[:1] not in ("", "#")}
RECORDED = json.loads(nestings.RECORD.read_text())["programs"]


def _cases(kind: str) -> list[object]:
    late = pytest.mark.xfail(strict=True, reason="listed in known_nestings.txt")
    return [
        pytest.param(name, marks=late if f"{kind} {name}" in KNOWN else ()) for name in RECORDED
    ]


def _names(lines: list[str]) -> list[str]:
    return [line.partition("(")[0] for line in lines]


def test_the_record_is_of_these_programs() -> None:
    assert nesting_programs
    assert sorted(nestings.PROGRAMS) == sorted(RECORDED)


@pytest.mark.parametrize("name", _cases("sequence"))
def test_sequence(name: str) -> None:
    """The same operators in the same order."""
    assert _names(nestings.run(flambeau, name)) == _names(RECORDED[name])


@pytest.mark.parametrize("name", _cases("arguments"))
def test_arguments(name: str) -> None:
    """The same arguments too: shapes, dtypes, classes, scalars, keywords."""
    assert nestings.run(flambeau, name) == RECORDED[name]
