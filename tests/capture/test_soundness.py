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


def _of_ints(n: int, m: int) -> list[Any]:
    found: list[Any] = [abs(n >> 1), round(n << 2, 1), (n >> 1) ** 2, (n ^ m) ** (m & 3)]
    for how in (lambda: n // m, lambda: n % m, lambda: n << m, lambda: n >> (m - 1)):
        try:
            found.append(how())
        except (ValueError, ZeroDivisionError) as e:
            found.append(str(e))
    return found


def test_operations_on_ints_give_ints_and_their_errors() -> None:
    compiler = Compiler(Options(lookup("eager"), everything=True))
    for n, m in ((5, 3), (-6, 2), (7, 0), (8, -1), (9, 4), (-1, 0), (-2, -3)):
        found, expected = frames.run_with(compiler, _of_ints, (n, m)), _of_ints(n, m)
        assert found == expected and list(map(type, found)) == list(map(type, expected))
    assert not [note for entry in compiler.skipped for note in entry.contained]
