"""What CPython's own tests of other modules than the listed ones took for something else."""

from __future__ import annotations

import abc
import collections

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.arange(12.0).reshape(3, 4)


def _asks(name):
    def method(self, other):
        self.asked.append((type(self).__name__, name, type(other).__name__))
        return NotImplemented

    return method


class Base(metaclass=abc.ABCMeta):
    def __init__(self, asked):
        self.asked = asked

    __eq__, __le__, __ge__, __add__, __radd__ = map(
        _asks, ("__eq__", "__le__", "__ge__", "__add__", "__radd__")
    )
    __hash__ = None


class Derived(Base):
    pass


class Overriding(Base):
    __eq__, __ge__, __radd__ = map(_asks, ("==", ">=", "+"))


@Base.register
class Registered:
    __init__ = Base.__init__
    __eq__, __ge__, __radd__ = map(_asks, ("eq", "ge", "radd"))
    __hash__ = None


@program(lambda: (x(),), breaks=0, graphs=1)
def which_operand_is_asked_first(a):
    asked = []
    kinds = [kind(asked) for kind in (Base, Derived, Overriding, Registered)]
    for p in kinds:
        for q in kinds:
            asked.append(p == q)
            for how in (lambda p, q: p <= q, lambda p, q: p + q):
                try:
                    how(p, q)
                except TypeError as error:
                    asked.append(str(error))
    return a + len(asked), asked


class Keeps:
    def __init__(self):
        self.kept = None

    def __enter__(self):
        return self

    def __exit__(self, *given):
        self.kept = given
        return True


class Looks(Keeps):
    def __exit__(self, kind, error, trace):
        self.kept = (
            kind and kind.__name__,
            trace is None,
            trace is not None and type(trace).__name__,
        )
        return True


@program(lambda: (x(), Keeps()), breaks=None)
def the_traceback_that_an_exit_is_given(a, keeps):
    with keeps:
        a.shape[7]
    kind, error, trace = keeps.kept
    keeps.kept = None
    return a + 1, kind, str(error), trace is None, type(trace), trace is error.__traceback__


@program(lambda: (x(), Looks()), breaks=0, graphs=1)
def an_exit_that_asks_for_a_traceback(a, looks):
    with looks:
        [][1]
    first = looks.kept
    with looks:
        pass
    return a + 1, first, looks.kept


def caused(cause):
    try:
        raise IndexError from cause
    except (IndexError, TypeError) as error:
        return type(error).__name__, str(error), type(error.__cause__).__name__


@program(lambda: (x(),), breaks=0, graphs=1)
def causes(a):
    return a + 1, caused(5), caused(None), caused(KeyError), caused(KeyError("k")), caused(int)


ENDED = []


class Told:
    made = 0

    def __new__(cls, *args):
        return object.__new__(cls)

    def __del__(self):
        ENDED.append("told")


class ToldError(Exception):
    def __del__(self):
        ENDED.append("error")


class ToldPair(collections.namedtuple("Pair", ["one", "two"])):
    def __del__(self):
        ENDED.append("pair")


def ends():
    found = list(ENDED)
    ENDED.clear()
    return found


@program(lambda: (x(),), breaks=None)
def what_is_told_of_its_end_ends_once(a):
    told = [Told(), Told.__new__(Told), object.__new__(Told)]
    found = [ends()]
    pair = ToldPair(1, 2)
    found.append(ends())
    try:
        raise ToldError
    except ToldError:
        found.append(ends())
    del told, pair
    found.append(ends())
    return a + 1, found
