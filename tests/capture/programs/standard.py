"""What Python's own library does, and its tests: seen first when all of it was captured."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
import sys
import types
import warnings

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


class Slotted(Exception):
    __slots__ = ("place",)

    def __init__(self, place):
        super().__init__(f"at {place}")
        self.place = place


def _fields_of(error):
    names = "value code name obj msg path start end reason place errno filename exceptions".split()
    return {n: getattr(error, n) for n in names if hasattr(error, n)}


@program(lambda: (x(),), graphs=None, breaks=None)
def fields_of_exceptions(a):
    made = [
        lambda: StopIteration(4),
        lambda: SystemExit(3),
        lambda: AttributeError("no", name="n", obj=5),
        lambda: ImportError("no", name="m", path="p"),
        lambda: UnicodeDecodeError("ascii", b"ab", 0, 1, "why"),
        lambda: OSError(2, "gone", "file"),
        lambda: Slotted(6),
        lambda: ExceptionGroup("g", [ValueError(1)]),
    ]
    found = []
    for make in made:
        try:
            raise make()
        except BaseException as e:
            print(type(e).__name__)  # a break, while it is handled
            found.append(_fields_of(e))
    return a + 1, found


class Empty:
    __slots__ = ("here", "gone")


@program(lambda: (x(), Empty()), breaks=None)
def empty_slots(a, empty):
    found = [hasattr(empty, "gone"), getattr(empty, "here", 4)]
    try:
        empty.gone
    except AttributeError as e:
        found.append(str(e))
    empty.here = 3
    found.append(empty.here)
    try:
        del empty.gone
    except AttributeError as e:
        found.append(str(e))
    return a + 1, found


@program(lambda: (x(), bytearray(b"1101")), breaks=None)
def numbers_from_bytes(a, given):
    made = bytearray(b"ff")
    return a + int(made, 16), int(bytearray(b"12")), float(bytearray(b"1.5")), int(given, 2)


@program(lambda: (x(), re.compile("b+")), breaks=None)
def expressions_copied(a, pattern):
    match = pattern.search("abbc")
    again = copy.copy(match), copy.deepcopy(match), copy.copy(pattern), copy.deepcopy(pattern)
    return a + 1, [v is w for v, w in zip(again, (match, match, pattern, pattern), strict=True)]


@program(lambda: (x(),), breaks=None)
def expressions_that_print_and_warn(a):
    re.purge()
    re.compile("ab+", re.DEBUG)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = re.findall("[[a]", "a[b")
        found.append(re.sub("a", "b", "aab", 1))
    return a + 1, found, [(str(w.message), w.filename, w.lineno) for w in given]


@program(lambda: (x(), {}), breaks=None)
def dicts_beside_their_proxies(a, table):
    def grow(shown, shows):
        found = [len(shows)]
        shown["k"] = 1
        return [*found, len(shows), list(shows)]

    own = {}
    proxy = types.MappingProxyType(table)
    print("a break")
    return a + 1, grow(own, types.MappingProxyType(own)), grow(table, proxy), len(proxy)


class Formatted:
    def __format__(self, spec):
        return f"<{spec}>"


@program(lambda: (x(),), breaks=0)
def formats_are_strings(a):
    found = [format(Formatted(), "s")]
    for spec in (None, 3):
        try:
            found.append(format(Formatted(), spec))
        except TypeError as e:
            found.append(str(e))
    return a + 1, found


def _asked():
    return sys.exception(), sys.exc_info()[1]


def _caught(value):
    try:
        raise ValueError(value)
    except ValueError as e:
        return type(e.__context__)


def _raises_again():
    try:
        raise
    except (KeyError, RuntimeError) as e:
        return type(e)


@program(lambda: (x(),), breaks=None)
def what_callers_handle_is_seen(a):
    found = [_asked(), _caught(1), _raises_again()]
    try:
        raise KeyError(2)
    except KeyError:
        print("a break, while it is handled")
        found += [[type(e) for e in _asked()], _caught(3), _raises_again()]
    return a + 1, [*found, _asked(), _caught(4), _raises_again()]


@program(lambda: (x(),), breaks=None)
def contexts_are_set_anew(a):
    first, second = ValueError(1), KeyError(2)
    second.__context__ = TypeError(3)
    try:
        try:
            raise first
        except ValueError:
            raise second
    except KeyError as e:
        found = [type(e.__context__)]
    try:
        try:
            raise second
        except KeyError:
            raise first
    except ValueError as e:
        found += [type(e.__context__), type(e.__context__.__context__)]
    return a + 1, found


@program(lambda: (x(),), breaks=None)
def exit_stacks_chain_as_nested_managers(a):
    def raising(inner, outer):
        try:
            raise inner
        finally:
            raise outer

    made = [ValueError(n) for n in range(5)]
    found = []
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(raising, made[3], made[4])
            stack.callback(raising, made[1], made[2])
            raise made[0]
    except ValueError as e:
        while e is not None:
            found.append(made.index(e))
            e = e.__context__
    return a + 1, found


def _pair(n):
    return (n, 0)


@program(lambda: (x(),), breaks=None)
def tuples_are_new(a):
    n = 3
    return a + 1, (n, 4), _pair(n) is _pair(n)


def _made_twice():
    n = 1
    return n, 0


@program(lambda: (x(),), breaks=None)
def tuples_of_two_calls(a):
    first = _made_twice()
    print("a break")
    return a + 1, first is _made_twice()


@program(lambda: (x(),), breaks=0)
def unpacking_what_has_no_items(a):
    found = []
    for value in (5, len, Empty()):
        try:
            _b, _c = value
        except TypeError as e:
            found.append(str(e))
        try:
            _b, *_c = value
        except TypeError as e:
            found.append(str(e))
    return a + 1, found


class Counting:
    def __init__(self):
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return self.calls


class Bound:
    __get__ = Counting()


class Holding:
    bound = Bound()


@program(lambda: (x(),), breaks=None)
def descriptors_that_are_objects(a):
    before = Bound.__get__.calls
    Holding.bound
    getattr(Holding, "bound", None)
    return a + 1, Bound.__get__.calls - before


@dataclasses.dataclass(frozen=True)
class FrozenSlots:
    __slots__ = ("name",)
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenOwn:
    name: list


@program(lambda: (x(),), breaks=None)
def copies_of_frozen_slots(a):
    found = []
    for made in (FrozenSlots("n"), FrozenOwn(["m"])):
        for how in (copy.copy, copy.deepcopy):
            try:
                found.append(how(made).name)
            except dataclasses.FrozenInstanceError as e:
                found.append(str(e))
    return a + 1, found


@program(lambda: (x(),), breaks=0)
def closing_gives_what_is_returned(a):
    def waiting(result):
        try:
            yield 1
        except GeneratorExit:
            return result

    first, second = waiting(5), waiting(6)
    next(first)
    return a + 1, first.close(), first.close(), second.close()
