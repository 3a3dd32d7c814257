"""Generators: send, throw, close, yield from, and what they leave behind."""

from __future__ import annotations

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


def averager(log):
    total, n = 0.0, 0
    try:
        while True:
            v = yield (total / n if n else None)
            total += v
            n += 1
    except GeneratorExit:
        log.append("closed")
        raise
    finally:
        log.append("finally")


@program(lambda: (x(), []), graphs=1)
def sends_and_closes(a, log):
    g = averager(log)
    next(g)
    g.send(a)
    mean = g.send(a * 3)
    g.close()
    return mean


def catching(log):
    while True:
        try:
            v = yield "ready"
            log.append(v)
        except ValueError as e:
            log.append(str(e))
            yield "caught"


@program(lambda: (x(), []), graphs=1)
def throws(a, log):
    g = catching(log)
    p = next(g)
    q = g.throw(ValueError("thrown"))
    r = next(g)
    g.send(1)
    return a + 1, p, q, r


@program(lambda: (x(), []), graphs=1)
def throws_through(a, log):
    def g():
        yield 1

    it = g()
    next(it)
    try:
        it.throw(KeyError("out"))
    except KeyError as e:
        log.append(e.args)
    return a + 1, next(it, "end")


@program(lambda: (x(), []), graphs=1)
def throws_into_delegate(a, log):
    def inner():
        try:
            yield 1
        except ValueError:
            log.append("inner")
            yield 2
        return 3

    def outer():
        r = yield from inner()
        log.append(r)
        yield 4

    g = outer()
    return a + next(g), g.throw(ValueError), list(g)


@program(lambda: (x(),), graphs=1)
def delegates_all(a):
    def part(n):
        for i in range(n):
            got = yield i
            if got:
                yield got
        return n * 10

    def whole():
        p = yield from part(2)
        q = yield from [7, 8]
        r = yield from (c for c in "z")
        yield p, q, r

    g = whole()
    first = next(g)
    sent = g.send("s")
    return a + first, sent, list(g)


@program(lambda: (x(),), graphs=1)
def returned_value(a):
    def g():
        yield 1
        return 5

    it = g()
    next(it)
    try:
        next(it)
    except StopIteration as stop:
        return a * stop.value


@program(lambda: (x(),), graphs=1)
def pipeline(a):
    def rows(t):
        yield from t

    def scaled(it, k):
        for r in it:
            yield r * k

    def kept(it):
        for i, r in enumerate(it):
            if i != 1:
                yield r

    return torch.stack(list(kept(scaled(rows(a), 2)))), sum(scaled(rows(a), 3))


@program(lambda: (x(),), graphs=1)
def generators_interleaved(a):
    def count(k):
        while True:
            yield k
            k += 1

    p, q = count(0), count(10)
    out = [next(p) + next(q) for _ in range(3)]
    return a + out[-1], out, [v for v, _ in zip(count(5), "ab")]


@program(lambda: (x(),), breaks=None)
def generator_class(a):
    class Tree:
        def __init__(self, v, *kids):
            self.v = v
            self.kids = kids

        def __iter__(self):
            yield self.v
            for k in self.kids:
                yield from k

    t = Tree(1, Tree(2, Tree(3)), Tree(4))
    return a * sum(t), list(t), max(t), 3 in t, sorted(t, reverse=True), tuple(t), {*t}


class Tree:
    def __init__(self, v, *kids):
        self.v = v
        self.kids = kids

    def __iter__(self):
        yield self.v
        for k in self.kids:
            yield from k


@program(lambda: (x(), Tree(1, Tree(2, Tree(3)), Tree(4))), graphs=1)
def generator_method(a, t):
    return a * sum(t), list(t), max(t), 3 in t, sorted(t, reverse=True), tuple(t), [*t, 0]


@program(lambda: (x(),), graphs=1)
def generator_with_context(a):
    log = []

    def g():
        with torch.no_grad():
            yield torch.is_grad_enabled()
        log.append("left")

    out = list(g())
    return a + 1, out, log, torch.is_grad_enabled()


@program(lambda: (x(),), graphs=1)
def generator_errors(a):
    log = []

    def g():
        yield 1
        raise ValueError("inside")

    it = g()
    next(it)
    try:
        next(it)
    except ValueError as e:
        log.append(str(e))

    def stops():
        yield 1
        raise StopIteration

    try:
        list(stops())
    except RuntimeError as e:
        log.append(str(e))
    return a + 1, log, list(it)


@program(lambda: (x(),), graphs=1)
def generator_expressions_all(a):
    rows = (r * i for i, r in enumerate(a))
    nested = ((i, j) for i in range(3) for j in range(i) if i != j)
    total = sum(r.sum() for r in rows)
    return (
        total,
        list(nested),
        any(v > 2 for v in range(4)),
        all(v for v in [1, 0]),
        max(v for v in "ab"),
    )


@program(lambda: (x(),), graphs=1)
def abandoned(a):
    def g():
        yield a + 1
        yield a + 2

    it = g()
    return next(it)


@program(lambda: (x(),), graphs=1)
def unpacked(a):
    def g():
        yield 1
        yield a
        yield 3

    p, q, r = g()
    first, *rest = g()
    return (
        q * p + r,
        first,
        len(rest),
        (lambda *v: len(v))(*g()),
        dict([("k", v) for v in g()])["k"],
    )


@program(lambda: (x(),), graphs=1)
def own_close(a):
    log = []

    def g():
        try:
            yield 1
            yield 2
        finally:
            log.append("done")

    it = g()
    next(it)
    it.close()
    it.close()
    return a + 1, log, list(it)


@program(lambda: (x(),), graphs=1)
def recursive_generator(a):
    def permute(items):
        if len(items) <= 1:
            yield items
        for i in range(len(items)):
            for rest in permute(items[:i] + items[i + 1 :]):
                yield [items[i], *rest]

    return a + sum(1 for _ in permute([1, 2, 3])), list(permute([1, 2]))


async def coroutine(a):
    return a + 1


@program(lambda: (x(),), breaks=None)
def asynchronous(a):
    c = coroutine(a)
    try:
        c.send(None)
    except StopIteration as stop:
        return stop.value * 2
