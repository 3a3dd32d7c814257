"""What native objects from outside hold is no constant of a capture: a second one gives its own."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import functools
import itertools
import operator
import os
import re
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import flambeau._dynamo  # noqa: F401  (announces the back ends)
from flambeau._src.capture import frames
from flambeau._src.compiler.backends import lookup
from flambeau._src.compiler.driver import Compiler, Options


class Plain:
    """An object to refer to."""


class Long(list):  # type: ignore[type-arg]
    """A list that answers by Python code."""

    def __len__(self) -> int:
        return 99


FIRST, SECOND = Plain(), Plain()
NAMES = weakref.WeakKeyDictionary({FIRST: "first", SECOND: "second"})

PAIRS: dict[str, tuple[Any, Any]] = {
    "decimal": (decimal.Decimal(1), decimal.Decimal(2)),
    "timedelta": (datetime.timedelta(1), datetime.timedelta(0)),
    "reference": (weakref.ref(FIRST), weakref.ref(SECOND)),
    "array": (array.array("i", [1]), array.array("i", [2, 3])),
    "error": (ValueError(1), ValueError(2)),
    "memory": (memoryview(b"a"), memoryview(b"bc")),
    "partial": (functools.partial(pow, 2), functools.partial(pow, 3)),
    "pattern": (re.compile("a"), re.compile("b")),
    "getter": (operator.itemgetter(0), operator.itemgetter(1)),
    "record": (os.stat_result(range(10), {"st_atime": 1.5}), os.stat_result(range(10))),
    "set": ({8, 0}, {0, 8}),
    "list": (Long([1]), Long([2, 3])),
    "counter": (collections.Counter("aab"), collections.Counter("abb")),
}

ACTIONS: dict[str, Callable[[Any], Any]] = {
    "round": lambda x: round(x),
    "bool": lambda x: bool(x),
    "branch": lambda x: 1 if x else 0,
    "len": lambda x: len(x),
    "text": lambda x: str(x),
    "format": lambda x: f"{x!r}",
    "hash": lambda x: hash(x),
    "add": lambda x: x + x,
    "args": lambda x: x.args,
    "call": lambda x: x(),
    "call with": lambda x: x((5, 6)) if isinstance(x, operator.itemgetter) else x(3),
    "items": lambda x: list(x),
    "first": lambda x: x[0],
    "times": lambda x: (x.st_atime, x.st_mode),
    "sorted": lambda x: sorted([x, x]),
    "in": lambda x: x in [PAIRS["decimal"][0], PAIRS["reference"][0]],
    "key": lambda x: NAMES.data.get(x),
    "count": lambda x: (x.update("b"), x.pop("a"), x["b"], dict(x)),
}


def _run(action: Callable[[Any], Any], values: tuple[Any, ...], compiler: Any) -> list[Any]:
    out = []
    for value in values:
        mine = collections.Counter(value) if isinstance(value, collections.Counter) else value
        try:
            result = frames.run_with(compiler, action, (mine,)) if compiler else action(mine)
            out.append((repr(result), repr(mine)))
        except Exception as error:
            out.append((type(error).__name__, str(error)))
    return out


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("pair", PAIRS)
def test_both_give_their_own(pair: str, action: str) -> None:
    """The first call is captured; the second finds the same type with another state."""
    a, b = PAIRS[pair]
    compiler = Compiler(Options(lookup("eager"), everything=True))
    try:
        got = _run(ACTIONS[action], (a, b, a), compiler)
    finally:
        compiler.forget()
    assert got == _run(ACTIONS[action], (a, b, a), None)
    assert not [note for entry in compiler.skipped for note in entry.contained]


def test_a_capture_changes_nothing() -> None:
    """What is found in a class is the user's: it changes when the code runs, not before."""
    seen = []

    def watch(kind: Any) -> None:
        before = kind.x.__doc__
        seen.append(before)
        kind.x.__doc__ = "another"
        sys.intern("here the graph breaks, and is captured again up to here")
        seen.append(kind.x.__doc__)

    kind = collections.namedtuple("kind", "x")  # type: ignore[misc]
    frames.run_with(Compiler(Options(lookup("eager"), everything=True)), watch, (kind,))
    assert seen == ["Alias for field number 0", "another"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="it warns from 3.12 on")
def test_native_code_warns_in_each_call() -> None:
    """States of iterators of itertools: whether that warns is asked for when the code runs."""

    def move() -> list[int]:
        pairs = itertools.product((1, 2), (3,))
        pairs.__setstate__((0, 0x1000))
        return list(next(pairs))

    compiler = Compiler(Options(lookup("eager"), everything=True))
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert frames.run_with(compiler, move, ()) == [2, 3]
        with pytest.warns(DeprecationWarning):
            frames.run_with(compiler, move, ())


def test_an_iterator_that_is_made_again_warns_of_nothing() -> None:
    """A chain that has begun where the graph breaks has its state set by the replacement code."""

    def begun() -> list[int]:
        found = itertools.chain([1, 2], [3, 4])
        first = next(found)
        sys.intern("here the graph breaks")
        return [first, *found]

    compiler = Compiler(Options(lookup("eager"), everything=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [frames.run_with(compiler, begun, ()) for _ in range(3)] == [[1, 2, 3, 4]] * 3
    assert compiler.entries
