"""The quick part of `tests.capture.soundness`: nothing new fails."""

from __future__ import annotations

from typing import Any

import pytest

from flambeau._src.capture import frames
from flambeau._src.compiler.backends import lookup
from flambeau._src.compiler.driver import Compiler, Options
from tests.capture.soundness import QUICK, apart


@pytest.mark.parametrize("name", QUICK)
def test_nothing_new_fails(name: str) -> None:
    plain, got = (apart(name, captured, None, 300) for captured in (False, True))
    assert got["run"] == plain["run"] > 30
    assert not set(got["failed"]) - set(plain["failed"])
    assert got["counts"]["whole"] > 100
    assert got["counts"]["broken"] > 50
    assert not got["counts"]["contained"]


class _Point:
    def __init__(self, *place: int) -> None:
        self.x, self.y = place

    def __eq__(self, other: Any) -> Any:
        return self.x == other.x and self.y == other.y  # one symbol for what is equal

    __hash__ = None  # type: ignore[assignment]


def _grows(n: int) -> tuple[int, int]:
    for i in range(40):
        n = (n ^ (n >> 1)) + (n // 3) * (i & n)
    return n, (n % 5 + 1) ** 20


def test_expressions_of_symbols_are_bounded() -> None:
    compiler = Compiler(Options(lookup("eager"), everything=True))
    for n in (3, 4, 11, 10**400, -7):
        assert frames.run_with(compiler, _grows, (n,)) == _grows(n)
    assert not [note for entry in compiler.skipped for note in entry.contained]


def test_relations_of_a_symbol_with_itself_are_known() -> None:
    compiler = Compiler(Options(lookup("eager"), everything=True))
    for n in (3, 4, -3, 7):
        assert frames.run_with(compiler, lambda n: _Point(n, 2 * n) == _Point(n, 2 * n), (n,))
        points = _Point(n, 2 * n), _Point(n, 2 * n)
        assert frames.run_with(compiler, _Point.__eq__, points) is True
    assert not frames.run_with(compiler, _Point.__eq__, (_Point(1, 2), _Point(1, 3)))
    assert not [note for entry in compiler.skipped for note in entry.contained]
