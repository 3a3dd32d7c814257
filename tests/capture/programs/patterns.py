"""`match`: every kind of pattern."""

from __future__ import annotations

import collections
import enum
from dataclasses import dataclass
from typing import NamedTuple

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


class Mode(enum.Enum):
    ADD = "add"
    MUL = "mul"


class Limits:
    LOW = 1
    HIGH = 9


@dataclass
class Pair:
    left: object
    right: object


class Spot(NamedTuple):
    row: int
    column: int


class Keyed:
    __match_args__ = ("key",)

    def __init__(self, key, rest):
        self.key = key
        self.rest = rest


@program(lambda: (x(), [3, None, True, "s", b"b", -1, 2.5]), graphs=1)
def literals(a, items):
    for item in items:
        match item:
            case None:
                a = a + 1
            case True:
                a = a * 2
            case "s" | "t":
                a = a - 3
            case b"b":
                a = a / 2
            case -1:
                a = -a
            case 2.5:
                a = a + 2.5
            case _:
                a = a * item
    return a


@program(lambda: (x(), 9, Mode.MUL), graphs=1)
def dotted_values(a, n, mode):
    match n:
        case Limits.LOW:
            a = a + 100
        case Limits.HIGH:
            a = a + n
    match mode:
        case Mode.ADD:
            return a + 1
        case Mode.MUL:
            return a * 2


@program(lambda: (x(), (1, 2, 3, 4, 5)), graphs=1)
def star_patterns(a, items):
    match items:
        case [first, second]:
            return a
        case [first, *middle, last]:
            a = a + first * last
    match middle:
        case (2, *_):
            a = a * len(middle)
    match items:
        case [*start, _, 5]:
            return a, start


@program(lambda: (x(), {"op": "scale", "by": 3, "note": "n", "deep": {"k": [1, 2]}}), graphs=1)
def mappings(a, command):
    match command:
        case {"op": "shift"}:
            return a
        case {"op": "scale", "by": int(k), "deep": {"k": [_, j]}, **rest}:
            return a * k + j, rest


@program(lambda: (x(), Pair(Pair(1, 2), Pair(3, [4, 5]))), graphs=1)
def nested_classes(a, p):
    match p:
        case Pair(Pair(1, n), right=Pair(right=[m, _])):
            return a * n + m
    return a


@program(lambda: (x(), [1, "one", 2.0, [1], {"k": 1}, (1,), None, True]), graphs=1)
def builtin_classes(a, items):
    seen = []
    for item in items:
        match item:
            case bool():
                seen.append("bool")
            case int(n) if n > 0:
                seen.append(n)
            case str() as text:
                seen.append(text.upper())
            case float(f):
                seen.append(f * 2)
            case list([v]):
                seen.append(v)
            case dict():
                seen.append("dict")
            case tuple(t):
                seen.append(t)
            case _:
                seen.append("other")
    return a + 1, seen


@program(lambda: (x(), Spot(1, 2)), graphs=1)
def named_tuples(a, spot):
    match spot:
        case Spot(row=0):
            return a
        case Spot(r, c):
            a = a * r + c
    match spot:
        case (r, c):
            return a - c


@program(lambda: (x(), Keyed("k", [1, 2])), graphs=1)
def match_args(a, k):
    match k:
        case Keyed("z"):
            return a
        case Keyed("k", rest=[p, q] as both):
            return a * p + q, both


@program(lambda: (x(), 7), graphs=1)
def guards_of_cases(a, n):
    def small(v):
        return v < 5

    match n:
        case k if small(k):
            return a
        case k if k % 7 == 0 and (m := k // 7):
            return a * m + k
    return -a


@program(lambda: (x(), [(0, 1), (2, 0), (3, 3), 5]), graphs=1)
def alternatives(a, points):
    for p in points:
        match p:
            case (0, n) | (n, 0):
                a = a + n
            case (n, m) if n == m:
                a = a * n
            case int() | float() as n:
                a = a - n
    return a


@program(lambda: (torch.ones(2, 3), 4), graphs=1)
def on_tensors(a, n):
    match a:
        case torch.Tensor(shape=(2, k), ndim=2):
            a = a * k
        case _:
            a = a * 100
    match [a, n]:
        case [torch.Tensor() as t, int(k)]:
            return t + k


@program(lambda: (x(), 3), graphs=1)
def wrong_patterns(a, n):
    log = []
    try:
        match Keyed(1, 2):
            case Keyed(1, 2):
                pass
    except TypeError as e:
        log.append(str(e))
    try:
        match n:
            case int(k, j):
                pass
    except TypeError as e:
        log.append(str(e))
    return a + n, log


@program(lambda: (x(), collections.OrderedDict(a=1), collections.deque([1, 2])), graphs=1)
def other_collections(a, table, queue):
    match table:
        case {"a": n}:
            a = a + n
    match queue:
        case [p, q]:
            a = a * p * q
    match "ab":
        case [_, _]:
            a = a * 100
        case str():
            a = a + 1
    match range(3):
        case [0, 1, n]:
            a = a - n
    return a


@program(lambda: (x(),), graphs=1)
def nothing_matches(a):
    match a.dim():
        case 5:
            a = a * 5
        case 6:
            a = a * 6
    match ():
        case []:
            return a + 1


@program(lambda: (x(), {"type": "a", "items": [{"type": "b", "v": 2}, {"type": "c"}]}), graphs=1)
def recursive_matching(a, tree):
    def total(node):
        match node:
            case {"type": "a", "items": items}:
                return sum(total(v) for v in items)
            case {"type": "b", "v": v}:
                return v
            case {"type": "c", **others}:
                return 10 + len(others)

    return a * total(tree)
