"""Containers of users' classes: with attributes, and read or written by Python code."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections import OrderedDict, defaultdict, deque
from typing import Any

import flambeau as torch
from tests.capture.comparing import program


def t(n=2):
    return torch.arange(1.0, 1.0 + n)


class Output(OrderedDict):
    """Items under names, which are attributes too; integers give the items in their order."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key):
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class Result(Output):
    """As models of language return it."""

    loss: Any = None
    logits: Any = None
    hidden: Any = None


@program(lambda: (t(),), graphs=1)
def made(a):
    out = Result(logits=a + 1, hidden=(a, a * 2))
    out["extra"] = a * 3
    out.loss = out[0].sum()
    return out, out[0] + out["extra"], len(out), out.loss


@program(lambda: (Result(logits=t(), hidden=(t(), 3)),), graphs=1)
def from_outside(out):
    return out.logits * 2 + out[0].sum() + len(out) + out["hidden"][1], out.to_tuple(), list(out)


@program(lambda: (Result(logits=t(), hidden=(t(), 3)),), graphs=1)
def from_outside_and_changed(out):
    out.logits = out.logits + 1
    out["extra"] = out[0] * 2
    out.more = 5
    out.loss = out.extra.sum()
    return out.loss + out.more


@program(lambda: (Result(loss=t(), logits=t()),), graphs=1)
def another_made_of_it(out):
    again = Result(**{k: v * 2 for k, v in out.items() if v is not None})
    out.move_to_end("loss")
    del out["logits"]
    return again, "logits" in out, list(out), out.get("logits", 4)


class Sized(list):
    """A list with attributes that counts how often it was changed."""

    def __init__(self, *args, limit=3):
        super().__init__(*args)
        self.limit = limit
        self.changes = 0

    def __setitem__(self, i, value):
        self.changes += 1
        super().__setitem__(i, value)

    def __getitem__(self, i):
        return super().__getitem__(i) if i < self.limit else None

    def append(self, value):
        self.changes += 1
        super().append(value)


@program(lambda: (Sized([t(), t()], limit=9),), graphs=1)
def list_with_attributes(s):
    s[0] = s[1] + s.limit
    s.append(s[0] * 2)
    s.limit -= 7
    s.name = "new"
    return s[1], s[2], s.changes, sum(s), vars(s)


@program(lambda: (t(),), graphs=1)
def list_with_attributes_made(a):
    s = Sized([a], limit=1)
    s.append(a + 1)
    return s, s[0], s[1], [s]


class Table(defaultdict):
    """Makes what is missing by its key."""

    def __missing__(self, key):
        self[key] = value = self.default_factory() + len(key)
        return value


class Recent(deque):
    """Takes no more than there is room for, and says so."""

    dropped = 0

    def append(self, value):
        self.dropped += len(self) == self.maxlen
        super().append(value)


class Tags(set):
    """Takes words of any case."""

    def add(self, value):
        super().add(value.lower())


def table():
    made = Table(int)
    made["a"] = t()
    made.name = "outside"
    return made


@program(lambda: (table(), Recent([t()], 2), Tags("ab")), graphs=1)
def other_kinds(table, recent, tags):
    x = table["a"] + table["bcd"]
    for i in range(3):
        recent.append(x + i)
    tags.add("X")
    tags.discard("a")
    table.name += "!"
    return x, recent.dropped, "x" in tags, recent[-1], table.name, len(recent)


@program(lambda: (t(),), graphs=1)
def other_kinds_made(a):
    table, recent, tags = Table(int), Recent(maxlen=2), Tags()
    table["k"] = a
    table.name = "inside"
    for i in range(3):
        recent.append(table["k"] * i + table["zz"])
    tags.add("Q")
    return table, recent, tags, table.default_factory, recent.maxlen


class Frozen(dict):
    """Cannot be changed once it is made."""

    def __setitem__(self, key, value):
        raise TypeError("frozen")

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@program(lambda: (Frozen(a=t(), b=2),), graphs=1)
def dict_that_gives_attributes(f):
    try:
        f["c"] = 1
    except TypeError as error:
        text = str(error)
    return f.a * f.b, text, hasattr(f, "z"), {**f}, dict(f) | {"z": 1}


@program(lambda: (Frozen(a=t(), b=2), table()), breaks=None)
def copies(f, table):
    again = copy.copy(f)
    dict.__setitem__(again, "c", f.a + 1)
    other = table.copy()
    return again, sorted(again), other["a"] * 2, type(other).__name__


@program(lambda: (Result(logits=t(), loss=t()), "logits"), graphs=1)
def by_names_that_are_computed(out, name):
    setattr(out, name, getattr(out, name) + 1)
    picked = operator.itemgetter("loss", name)(out)
    return picked, operator.attrgetter(name)(out), [k.upper() for k in out]


class Upper(OrderedDict):
    """Its keys are written in capitals, and what is set is noted."""

    log: list[str] = []

    def __setitem__(self, key, value):
        self.log.append(key)
        super().__setitem__(key.upper(), value)


@program(lambda: (t(),), graphs=1)
def ordered_by_its_own_method(a):
    Upper.log.clear()
    made = Upper(x=a, y=1)
    made.update([("z", a + 1)], w=2)
    other = Upper([("q", 3)])
    return made, list(made), other, list(Upper.log)


class Counted(defaultdict):
    """Made without arguments only."""

    made = 0

    def __init__(self):
        super().__init__(list)
        type(self).made += 1


@program(lambda: (t(),), breaks=None)
def copied_by_its_class(a):
    Counted.made = 0
    one = Counted()
    one["a"].append(a * 2)
    try:
        two = one.copy()
    except TypeError as error:
        two = str(error)
    return one, two, Counted.made


class Slotted(list):
    """Has a slot."""

    __slots__ = ("name", "size")


def slotted():
    made = Slotted([t()])
    made.name = "outside"
    return made, defaultdict(int, a=t())


@program(slotted, graphs=1)
def slots_and_factories(s, d):
    before = s.name
    s.name = before + "!"
    try:
        s.size += 1
    except AttributeError:
        s.size = 4
    d["b"] += s.size
    d.default_factory = list
    d["c"].append(d["a"] * 2)
    return s[0] + d["b"], before, d.default_factory


@program(lambda: (Sized([3, 1, 2], limit=9), t()), graphs=1)
def sorted_in_place(s, a):
    try:
        s.sort(42, 42)
    except TypeError as error:
        text = str(error)
    s.sort(key=lambda v: -v)
    return a * s[0], text, s.changes


def with_attribute():
    out = Result(logits=t())
    out.note = ["x"]
    plain = OrderedDict(a=t())
    plain.note = "y"
    return out, plain


@program(with_attribute, breaks=None)
def copies_with_attributes(out, plain):
    first, second, third = copy.copy(out), copy.deepcopy(out), copy.copy(plain)
    plain.more = 1
    return first.note is out.note, second.note, third.note, plain.__dict__, first[0] * 2
