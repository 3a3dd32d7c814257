"""Small programs that between them use nearly every instruction; `calls` are their arguments."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any


def calls(*args: tuple[Any, ...]) -> Any:
    def mark(function: Any) -> Any:
        function.calls = list(args)
        return function

    return mark


class Log(list):
    def __enter__(self) -> Log:
        self.append("in")
        return self

    def __exit__(self, *exc: Any) -> bool:
        self.append(exc[0] and exc[0].__name__)
        return bool(exc[0] and issubclass(exc[0], KeyError))

    async def __aenter__(self) -> Log:
        return self.__enter__()

    async def __aexit__(self, *exc: Any) -> bool:
        return self.__exit__(*exc)


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


@calls((3, 4), (4, 3), (3, 3), ("a", 1))
def run_arithmetic(a, b):
    c = a + b * 2 - (a // 1) % 3**2
    c += a & b | a ^ b
    c <<= 1
    return -c, ~c, +c, not c, c < a, a <= b, a == b, a != b, a is b, a is not b, b in (1, 3)


@calls((0,), (3,), (7,))
def run_loops(n):
    out = []
    i = 0
    while i < n:
        i += 1
        if i == 2:
            continue
        if i > 5:
            break
        for k in range(i):
            if k == 3:
                out.append(("stop", i))
                break
            out.append((i, k))
        else:
            out.append(("all", i))
    else:
        out.append("done")
    return out


@calls((0,), (1,), (2,), (3,))
def run_try(how):
    log = Log()
    try:
        try:
            log.append("try")
            if how == 1:
                raise ValueError("one")
            if how == 2:
                raise KeyError("two")
            if how == 3:
                return log
        except ValueError as e:
            log.append(str(e))
        else:
            log.append("else")
        finally:
            log.append("finally")
    except KeyError:
        log.append("key")
    return log


@calls((0,), (1,), (2,), (3,))
def run_raise(how):
    if how == 0:
        raise TypeError("plain")
    try:
        {}["missing"]
    except KeyError as e:
        if how == 1:
            raise RuntimeError("caused") from e
        if how == 2:
            raise
    assert how == 9, "asserted"


@calls((0,), (1,), (2,), (3,))
def run_with(how):
    log = Log()
    with log as a, contextlib.suppress(LookupError):
        a.append("body")
        if how == 1:
            raise IndexError("suppressed")
        if how == 2:
            return a
    with log:
        if how == 3:
            raise KeyError("swallowed")
        log.append("second")
    return log


@calls((1,), ([1, 2],), ([1, 2, 3, 4],), ({"a": 1, "b": 2},), (Point(1, 2),), (Point(0, 5),),
       ("s",), (None,), ((1, (2, 3)),))  # fmt: skip
def run_match(value):
    match value:
        case None:
            return "none"
        case int() | str() as v:
            return "plain", v
        case [1, 2]:
            return "pair"
        case [first, [*inner]]:
            return "nested", first, inner
        case [first, *rest] if first > 0:
            return "many", first, rest
        case {"a": x, **others}:
            return "dict", x, others
        case Point(0, y=y):
            return "on axis", y
        case Point(x, y):
            return "point", x, y
    return "other"


@calls((3,), (0,))
def run_comprehensions(n):
    x = "outer"
    squares = [x * x for x in range(n)]
    pairs = {(a, b) for a in range(n) for b in range(a) if a + b}
    table = {k: [k + j for j in range(k)] for k in range(n)}
    total = sum(v for v in squares if v % 2 == 0)
    kept = [(lambda: x) for x in range(n)]  # noqa: B023 (that is the point)
    held = (lambda: [x for y in range(2)])()
    return x, squares, sorted(pairs), table, total, [f() for f in kept], held


@calls((3,))
def run_comprehension_that_fails(n):
    x = 7
    try:
        return [1 // (x - 1) for x in range(n)]
    except ZeroDivisionError:
        return x


@calls((2,))
def run_closures(n):
    count = 0

    def step(k=1, *, by=n):
        nonlocal count
        count += k * by
        return lambda: (count, n, k)  # noqa: F821 (deleted further down)

    first = step()
    second = step(k=2, by=5)

    class Inner:
        base = n

        def get(self):
            return __class__.__name__, self.base, count

    del n  # what follows finds it unbound
    try:
        first()
    except NameError as e:
        message = str(e)
    return message, Inner().get(), count, second.__code__.co_freevars


class Base:
    def size(self, k):
        return k

    kind = "base"


class Derived(Base):
    kind = "derived"

    def size(self, k):
        return super().size(k) + 1, super().kind, super().kind


def run_super():
    return Derived().size(3)


def collect(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


@calls(
    ((1, 2), {"k": 3}),
)
def run_calls(args, kwargs):
    out = [collect(), collect(1, key=2), collect(*args), collect(*args, 5, *args, **kwargs)]
    out.append(collect(**{"a": 1, **kwargs}, z=0))
    out.append(f"{1}-{2}".upper().split("-"))
    out.append(max(*args, key=lambda v: -v))
    out.append([*args, *args] + [(*args, 1)] + [{*args}] + [{**kwargs, "b": 2}])
    try:
        collect(**kwargs, **kwargs)
    except TypeError as e:
        out.append(str(e).replace("tests.capture.bytecode_programs.", ""))
    return out


@calls(([1, 2, 3, 4, 5],))
def run_sequences(values):
    a, *b, c = values
    (d, e), f = (1, 2), 3
    copy = values[:]
    copy[1:3] = [9]
    del copy[0]
    copy[0] += 5
    table = {"x": 1}
    table["y"] = a
    del table["x"]
    part = values[1:4:2]
    p = Point(1, 2)
    p.x += 5
    del p.y
    return a, b, c, d, e, f, copy, table, part, p.x, hasattr(p, "y"), f"{a!r:>4}|{c}|{b!s}|{f:03d}"


@calls((0,), (5,))
def run_generator(n):
    received = []
    try:
        for i in range(n):
            got = yield i
            received.append(got)
        yield from (x * 2 for x in range(n))
        inner = yield from sub_generator(received)
        yield inner
    finally:
        received.append("closed")


def sub_generator(received):
    yield len(received)
    return "returned"


async def ticks(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


@calls((3,), (0,))
async def run_async(n):
    log = Log()
    async with log:
        async for i in ticks(n):
            log.append(i)
            if i == 5:
                break
        else:
            log.append("all")
        values = [i async for i in ticks(n) if i != 1]
        more = {await asyncio.sleep(0, k): k for k in range(n)}
    async with log:
        raise KeyError("swallowed")
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.001)
    except TimeoutError:
        log.append("late")
    return log, values, more


@calls((0,), (1,), (2,))
def run_groups(how):
    log = []
    try:
        if how:
            raise ExceptionGroup("g", [ValueError(1), KeyError(2)] + [TypeError(3)] * (how - 1))
    except* ValueError as e:
        log.append(len(e.exceptions))
    except* KeyError:
        log.append("key")
    return log


def run_names():
    import collections.abc
    import os.path as same
    from os import path as where

    global made_here
    made_here = 5
    total = made_here + len(str(collections.abc.__name__))
    del made_here
    try:
        return unbound
    except NameError as e:
        note = str(e)
    if total < 0:
        late = 1
    try:
        return late
    except UnboundLocalError as e:
        return total, where is same, note, type(e).__name__, 1 < total < 100, total if note else 0


@calls((None,), (0,), (5,))
def run_none(x):
    a = (x is None and 1) or 2
    b = x or "default"
    c = (x and "set") is not None
    while x is not None and x > 3:
        x -= 1
    return a, b, c, x, 0 if x is None else 1


@calls(*[(n,) for n in (0, 1, 300)])
def run_wide(n):
    """More constants, names and code than one byte can count."""
    total = 0
    for i in range(n):
        if i % 2:
            total += 1000
        else:
            total -= i
        if i > 298:
            total = (total, i, 0.25, "text")
    return total


exec(
    "@calls((1,), (0,))\ndef run_very_wide(n):\n    total = n\n    while n < 3:\n        n += 1\n"
    + "".join(f"        if total: total += {1000 + i} * n + v{i % 9}\n" for i in range(400))
    + "    return total\n"
    + "".join(f"v{i} = {i}\n" for i in range(9))
)
