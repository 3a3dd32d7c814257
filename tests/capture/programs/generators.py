"""Generators: interpreted where they are used."""

from __future__ import annotations

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


def count(n):
    for i in range(n):
        yield i
    return "done"


@program(lambda: (x(),), graphs=1)
def simple(a):
    for i in count(3):
        a = a + i
    return a, list(count(2)), sum(count(4)), tuple(i * 2 for i in count(3))


def chain(n):
    r = yield from count(n)
    yield r


@program(lambda: (x(),), graphs=1)
def delegates(a):
    return a + 1, list(chain(2))


def echo():
    got = []
    try:
        while True:
            v = yield len(got)
            got.append(v)
    except ValueError as e:
        yield str(e)
    finally:
        got.append("end")


@program(lambda: (x(),), graphs=1)
def sends(a):
    g = echo()
    next(g)
    g.send(3)
    n = g.send(4)
    m = g.throw(ValueError("bad"))
    g.close()
    return a + n, m


@program(lambda: (x(),), graphs=1)
def stops(a):
    g = count(1)
    next(g)
    try:
        next(g)
    except StopIteration as e:
        return a + 1, e.value
    return a


@program(lambda: (x(),), graphs=1)
def generator_expressions(a):
    return (
        sum(a * i for i in range(3)),
        max(i for i in (1, 3, 2)),
        any(i > 2 for i in range(5)),
        dict((i, a) for i in range(2)),
    )


@program(lambda: (x(),), graphs=1)
def infinite(a):
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    for i in naturals():
        if i > 3:
            break
        a = a + i
    return a


class Range:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        self.i = 0
        return self

    def __next__(self):
        if self.i >= self.n:
            raise StopIteration
        self.i += 1
        return self.i


class Items:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i


class Yields:
    def __iter__(self):
        yield 1
        yield 2


@program(lambda: (x(), Range(3)), graphs=1)
def user_iterators(a, r):
    for i in r:
        a = a + i
    for i in Items():
        a = a + i
    p, q = Yields()
    return (
        a + p + q,
        list(Yields()),
        list(zip(Range(2), Yields())),
        [*Items()],
        max(Range(4)),
        sorted(Yields()),
    )


@program(lambda: (x(),), graphs=1)
def generator_changes_outside(a):
    seen = []

    def walk():
        for i in range(3):
            seen.append(i)
            yield a + i

    first = next(walk())
    rest = list(walk())
    return first, rest, seen


@program(lambda: (x(),), breaks=None)
def returns_generator(a):
    return a + 1, (i for i in range(3))
