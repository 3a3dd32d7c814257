"""What CPython's own tests of other modules than the listed ones took for something else."""

from __future__ import annotations

import abc
import collections
import copy
import csv
import io

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


class Noted:
    """A descriptor that keeps its values in the instances, and notes who asks."""

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, obj, kind=None):
        return self if obj is None else obj.__dict__.get(self.name, 0)

    def __set__(self, obj, value):
        if value < 0:
            raise ValueError(value)
        obj.__dict__["log"] = [*obj.__dict__.get("log", ()), value]
        obj.__dict__[self.name] = value

    def __delete__(self, obj):
        del obj.__dict__[self.name]


class Holder:
    size = Noted()
    other = Noted()

    def __init__(self, size):
        self.size = size


class OnlySets:
    def __set__(self, obj, value):
        obj.__dict__["a"] = value


class HasOne:
    a = OnlySets()

    @property
    def b(self):
        return -1


@program(lambda: (x(), Holder(3), HasOne()), breaks=0, graphs=1)
def descriptors_that_keep_values_in_instances(a, holder, one):
    holder.size += 4
    holder.other = 1
    del holder.other
    one.a = 5
    one.__dict__["b"] = 6
    made = Holder(9)
    made.size = 8
    return a * holder.size, holder.log, one.__dict__["a"], one.b, made


class Chooses:
    def __new__(cls, arg):
        if isinstance(arg, str):
            return [arg]
        return object.__new__(Chosen if isinstance(arg, int) else cls)


class Chosen(Chooses):
    def __init__(self, arg):
        self.arg = arg


class Passes:
    def __new__(cls, first, *rest, **named):
        return object.__new__(cls, *rest, **named)


class PassesOn:
    def __init__(self, first, *rest, **named):
        object.__init__(self, *rest, **named)


def refused(fn, *args, **named):
    try:
        return type(fn(*args, **named)).__name__
    except (TypeError, ValueError, AttributeError) as error:
        return type(error).__name__, str(error)


@program(lambda: (x(),), breaks=None)
def new_that_makes_others(a):
    d = Chooses(1)
    found = [type(d).__name__, d.arg, Chooses("k"), Chosen("k"), type(Chooses(None)).__name__]
    for kind in (Passes, PassesOn):
        found += [refused(kind, 1), refused(kind, 1, 2), refused(kind, 1, k=2)]
    return a + d.arg, found


class Proxy:
    def __init__(self, held):
        self.__held = held

    def __getattribute__(self, name):
        if name.startswith("_Proxy__"):
            return object.__getattribute__(self, name)
        return getattr(self.__held, name)


class Below(Holder):
    def what(self):
        return type(self).__name__, super().__init__(7)


@program(lambda: (x(), Proxy(Holder(3))), breaks=None)
def proxies_that_say_they_are_another(a, proxy):
    made = Proxy(Holder(2))
    said = isinstance(proxy, Holder), isinstance(made, Holder), isinstance(proxy, Proxy)
    return a + proxy.size, said, proxy.__class__, made.__class__, type(made), isinstance(made, int)


class Positional:
    __match_args__ = ("size", "size")
    size = 1


class Misnamed:
    __match_args__ = (None,)


class NoTuple:
    __match_args__ = "ab"


class Own(int):
    pass


def matched(value):
    try:
        match value:
            case Positional(p, q):
                return p, q
            case Misnamed(p):
                return p
            case NoTuple(p):
                return p
            case Own(p):
                return "own", int(p)
            case {"k": p, **rest}:
                return p, rest
            case Holder(size=s):
                return s
    except TypeError as error:
        return str(error)


@program(lambda: (x(),), breaks=0, graphs=1)
def patterns_of_classes_that_refuse(a):
    values = (Positional(), Misnamed(), NoTuple(), Own(4), {"k": 1, "j": 2}, Holder(6), 7)
    return a + 1, [matched(v) for v in values]


def cell_of(value):
    return (lambda: value).__closure__[0]


def same(p, q):
    if p is not q:
        return "no"
    return "yes"


@program(lambda: (x(), cell_of(3)), breaks=None)
def cells_as_values(a, cell):
    made = cell_of(4)
    torch._dynamo.graph_break()
    return a + 1, same(cell, cell), same(made, cell), cell.cell_contents, made.cell_contents


def super_of(cls, *rest):
    return super(cls, *rest).__init__


class Loose:
    def bare(self):
        def inner():
            return super()

        return inner()


@program(lambda: (x(), Holder(3)), breaks=None)
def supers_that_are_refused(a, holder):
    return (
        a + 1,
        refused(super_of, Below, holder),
        refused(super_of, 3, holder),
        refused(Loose().bare),
    )


@program(lambda: (x(),), breaks=None)
def deep_copies_of_what_holds_itself(a):
    held = ([],)
    held[0].append(held)
    other = copy.deepcopy(held)
    memo = {}
    listed = []
    copy.deepcopy(listed, memo)
    kept = memo[id(memo)][0] is listed
    return a + 1, other[0][0] is other, other is not held, kept, refused(copy.copy, Proxy([1]))


def filled(rows):
    row = next(rows)
    torch._dynamo.graph_break()
    while row == []:
        row = next(rows)
        torch._dynamo.graph_break()
    named = dict(zip("abc", row))
    torch._dynamo.graph_break()
    return named, len(row)


@program(lambda: (x(),), breaks=None)
def rounds_and_what_is_no_round(a):
    """The same code goes on after the loop, whether it was entered or not."""
    found = []
    for kind in (int, str, float, bytes, tuple, list):
        found.append(filled(iter([[kind(), 1]])))
        found.append(filled(iter([[], [], [kind(), kind()]])))
        found.append(filled(iter([[kind()]])))
    reader = csv.DictReader(io.StringIO("a,b\n\n1,2\n3\n\n\n4,5,6\n"))
    return a + 1, found, list(reader)


def noted(table):
    table.note = ["n"]
    return table


@program(lambda: (x(), noted(collections.OrderedDict(k=1))), breaks=None)
def copies_of_ordered_dicts_with_attributes(a, table):
    made = noted(collections.OrderedDict(j=2))
    found = [copy.copy(t).note for t in (table, made)], copy.deepcopy(table).note
    return a + 1, found, refused(lambda: table.copy().note)
