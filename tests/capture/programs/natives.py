"""Native code that is called with what it refuses, keeps, or leaves in another state."""

from __future__ import annotations

import collections
import functools
import itertools
import reprlib
import sys
import traceback
import types
import weakref
from unittest import mock

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.arange(12.0).reshape(3, 4)


def raised(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@program(lambda: (x(),), breaks=None)
def called_without_arguments(a):
    return a + 1, raised(itertools.tee), raised(functools.cmp_to_key), raised(reversed)


class Slotted:
    __slots__ = ("n",)


@program(lambda: (x(), Slotted()), breaks=None)
def variables_of_what_has_none(a, slotted):
    return a + 1, raised(vars, slotted), raised(vars, 3), vars(Plain())


class Nested:
    def __init__(self, inner):
        self.inner = inner

    @reprlib.recursive_repr()
    def __repr__(self):
        return f"<{self.inner!r}>"


@program(lambda: (x(), Nested(3)), breaks=None)
def guarded_against_recursion(a, outside):
    return a + 1, repr(Nested(Nested([1, "k"]))), repr(outside)


class Taken(collections.UserDict):
    __reversed__ = None
    __contains__ = None


class NoItems:
    __iter__ = None

    def __getitem__(self, i):
        return range(3)[i]


@program(lambda: (x(), Taken(p=1), NoItems()), breaks=None)
def methods_taken_away(a, d, n):
    b = a + 1
    return b, raised(reversed, d), raised(lambda: "p" in d), raised(iter, n), raised(list, n)


def key():
    """A function that is a key."""


@program(lambda: (x(),), breaks=0)
def functions_as_keys(a):
    table = {int: 1, key: 2}
    proxy = types.MappingProxyType(table)
    ordered = collections.OrderedDict([(key, 1), (int, 2)])
    ordered.move_to_end(key)
    return a + proxy.get(int), proxy.get(key), proxy.get(str, 5), list(ordered.values())


class Plain:
    pass


def three():
    made = Plain()
    made.x, made.y, made.z = 1, 2, 3
    return made.__dict__


@program(lambda: (x(), three(), three()), breaks=None)
def last_items_taken(a, d, e):
    first = d.popitem()
    for _ in range(3):
        e.popitem()
    e["new"] = 4
    return a + 1, first, d, e


@program(lambda: (three(),), breaks=None)
def size_after_last_item(d):
    before = sys.getsizeof(d)
    d.popitem()
    return sys.getsizeof(d) > before


def fails(n):
    if n > 0:
        fails(n - 1)
    raise ValueError(f"level {n}")


@program(lambda: (x(),), breaks=None)
def tracebacks_of_inlined_calls(a):
    b = a * 2
    try:
        fails(2)
    except ValueError as error:
        kept = error
    names = [f.name for f in traceback.extract_tb(kept.__traceback__)]
    return b, names


@program(lambda: (x(),), breaks=None)
def traceback_of_the_context(a):
    try:
        try:
            fails(1)
        finally:
            raise KeyError("k")
    except KeyError as error:
        kept = error
    names = [f.name for f in traceback.extract_tb(kept.__context__.__traceback__)]
    return a + 1, names, kept.__traceback__ is not None


@program(lambda: (x(),), graphs=1)
def handled_and_gone(a):
    try:
        fails(1)
    except ValueError as error:
        n = len(error.args)
    return a + n


class Seen(collections.UserDict):
    def __init__(self):
        super().__init__()
        self.asked = []

    def __setitem__(self, k, v):
        self.asked.append(k.__name__)
        self.data[k] = v


def _dispatching():
    cache = Seen()
    with mock.patch.object(weakref, "WeakKeyDictionary", lambda: cache):

        @functools.singledispatch
        def pick(v):
            return "any"

        pick.register(int, lambda v: "int")
    return x(), pick, cache


@program(_dispatching, breaks=None)
def dispatch_with_a_cache_that_is_seen(a, pick, cache):
    seen = [list(cache.asked)]
    found = pick(3), pick("k"), pick(4)
    seen.append(list(cache.asked))
    return a + 1, found, seen


@program(lambda: (x(),), breaks=None)
def long_native_iterators(a):
    forward, _backward = itertools.tee(itertools.repeat(None, 30_000))
    found = any(forward)
    del forward
    return a + len(list(range(20_000))), found, sum(range(10_000))


@program(lambda: (x(),), breaks=None)
def dead_proxies(a):
    held = Plain()
    p = weakref.proxy(held)
    kind = getattr(p, "__class__")
    del held
    return a + 1, kind, raised(getattr, p, "__class__")


@program(lambda: (x(),), breaks=None)
def objects_end_in_rounds(a):
    gone = []
    for _ in range(3):
        held = Plain()
        r = weakref.ref(held)
        torch._dynamo.graph_break()
        other = held
        torch._dynamo.graph_break()
        del held, other
        gone.append(r() is None)
    return a + 1, gone


class Asked:
    noted: list[str]

    def __init__(self):
        self.noted = []

    def __getattr__(self, name):
        self.noted.append(name)
        raise RuntimeError(name)


class Fields:
    @property
    def __class__(self):
        raise RuntimeError("asked for its class")


ASKED, FIELDS = Asked(), Fields()


@program(lambda: (x(),), breaks=None)
def objects_that_note_questions(a):
    return a + 1, len(ASKED.noted), type(FIELDS).__name__
