"""Names: walrus, globals, nonlocal, del, recursion, decorators, classes made inside."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

import flambeau as torch
from tests.capture.comparing import program

COUNT = 0
LOG: list = []
TABLE = {"k": 1}
SCALE = 3
NOTHING = None


def x():
    return torch.randn(3, 4)


@program(lambda: (x(), [1, 2, 3, 4]), graphs=1)
def walrus_everywhere(a, items):
    big = [y for v in items if (y := v * 2) > 4]
    while (n := len(items)) > 2:
        items.pop()
        a = a + n
    return a, big, y, (z := 5) + z, {(k := "p"): k}


@program(lambda: (x(),), graphs=1)
def globals_changed(a):
    global COUNT
    before = COUNT
    COUNT += 1
    LOG.append(COUNT)
    TABLE["k"] += 1
    out = a * COUNT + TABLE["k"]
    COUNT = before
    LOG.clear()
    TABLE["k"] = 1
    return out


@program(lambda: (x(),), breaks=None)
def global_deleted(a):
    global PASSING
    PASSING = a + 1
    b = PASSING * 2
    del PASSING
    return b, "PASSING" in globals()


@program(lambda: (x(), 3), graphs=1)
def nonlocal_counter(a, n):
    total = 0
    seen = []

    def add(v):
        nonlocal total, seen
        total += v
        seen = [*seen, v]
        return total

    for i in range(n):
        a = a + add(i)
    return a, total, seen, add


@program(lambda: (x(),), graphs=1)
def shared_cells(a):
    def make():
        state = {"n": 0}
        k = 1

        def up():
            nonlocal k
            k *= 2
            state["n"] += k
            return k

        def read():
            return k, state

        return up, read

    up, read = make()
    up()
    up()
    return a * read()[0], read()[1]["n"]


@program(lambda: (x(),), graphs=1)
def closures_of_loops(a):
    fns = []
    for i in range(3):

        def f(v, i=i):
            return v * i

        fns.append(f)
    late = [lambda v: v + i for _ in range(2)]
    return [f(a) for f in fns], late[0](a)


@program(lambda: (x(), 4), graphs=1)
def mutual_recursion(a, n):
    def even(k):
        return True if k == 0 else odd(k - 1)

    def odd(k):
        return False if k == 0 else even(k - 1)

    return a * 2 if even(n) else a


@program(lambda: (x(), [1, [2, [3, [4]]]]), graphs=1)
def recursion_over_tree(a, tree):
    def walk(node, depth=0):
        if isinstance(node, list):
            for part in node:
                yield from walk(part, depth + 1)
        else:
            yield node * depth

    return a * sum(walk(tree)), list(walk(tree))


@program(lambda: (x(),), graphs=1)
def deep_tensor_recursion(a):
    def descend(v, n):
        return v if n == 0 else descend(v.sin() + n, n - 1)

    return descend(a, 12)


def times(k):
    def decorate(fn):
        def inner(*args):
            return fn(*args) * k

        inner.k = k
        return inner

    return decorate


@times(2)
@times(3)
def base(v):
    return v + 1


class Memo:
    def __init__(self, fn):
        self.fn = fn
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return self.fn(*args)


@Memo
def counted(v):
    return v * 2


@program(lambda: (x(),), graphs=1)
def stacked_decorators(a):
    return base(a), base.k


@program(lambda: (x(),), graphs=1)
def class_decorators(a):
    before = counted.calls
    out = counted(counted(a))
    n = counted.calls - before
    counted.calls = 0
    return out, n


@program(lambda: (x(),), breaks=None)
def class_inside(a):
    class Local:
        k = 2

        def __init__(self, v):
            self.v = v

        def scaled(self):
            return self.v * self.k

    return Local(a).scaled()


@program(lambda: (x(), 5), breaks=None)
def class_inside_with_closure(a, n):
    class Base:
        def f(self, v):
            return v + n

    class Derived(Base):
        def f(self, v):
            return super().f(v) * 2

    return Derived().f(a), isinstance(Derived(), Base), Derived.__name__


@program(lambda: (x(),), breaks=None)
def records_inside(a):
    @dataclass
    class Point:
        u: int
        v: int = 2

    class Pair(NamedTuple):
        p: int
        q: int

    class Kind(enum.Enum):
        ONE = 1

    p = Point(1)
    q = Pair(3, 4)
    return a * p.v + q.q + Kind.ONE.value


@program(lambda: (x(),), breaks=None)
def type_called(a):
    made = type("Made", (), {"k": 4, "f": lambda self, v: v * self.k})
    return made().f(a)


@program(lambda: (x(), 1, 2), graphs=1)
def deleted_names(a, p, q):
    b = a + p
    del p
    log = []
    try:
        p  # noqa: F821
    except UnboundLocalError as e:
        log.append(str(e))
    try:
        missing_name
    except NameError as e:
        log.append(str(e))
    for q in range(2):
        pass
    return b * q, log


def defaults(a, items=[1, 2], *, k={"p": 3}):
    return a * items[0] + k["p"]


@program(lambda: (x(),), graphs=1)
def mutable_defaults(a):
    return defaults(a) + defaults(a, [5]) + defaults(a, k={"p": 0})


def gather(first, /, second=2, *rest, third, fourth=4, **named):
    return first, second, rest, third, fourth, named


@program(lambda: (x(), (1, 2), {"third": 3, "z": 9}), graphs=1)
def calls_with_stars(a, args, kwargs):
    p = gather(*args, **kwargs)
    q = gather(0, *args, *[7], third=a, **{"u": 1})
    log = []
    for bad in (
        lambda: gather(),
        lambda: gather(1, third=1, first=2, second=3),
        lambda: gather(1, 2, third=1, **{"third": 2}),
        lambda: (lambda p: p)(1, 2),
        lambda: (lambda *, k: k)(),
        lambda: NOTHING(),
    ):
        try:
            log.append(bad())
        except TypeError as e:
            log.append(str(e))
    return q[3] * p[0], p, log


@program(lambda: (x(),), graphs=1)
def function_attributes(a):
    def f(v):
        f.calls += 1
        return v + f.calls

    f.calls = 0
    return f(a) + f(a), f.calls, f.__name__


@program(lambda: (x(),), graphs=1)
def lambda_defaults(a):
    k = 2
    f = lambda v, w=k, *r, **n: v * w + len(r) + len(n)  # noqa: E731
    k = 5
    return f(a), f(a, 1, 2, 3, p=1), (lambda: k)(), (lambda *v: v)(1, 2)


@program(lambda: (x(),), graphs=1)
def imports_inside(a):
    import math
    from collections import OrderedDict as Table
    from os.path import join

    return a * math.pi, Table(p=1)["p"], join("a", "b")


@program(lambda: (x(), [[1, 2], [3, 4]]), graphs=1)
def nested_comprehensions(a, rows):
    flat = [v for row in rows for v in row if v != 2]
    turned = [[row[i] for row in rows] for i in range(2)]
    table = {i: {j: i * j for j in range(2)} for i in range(2)}
    lazy = (v * k for k, v in enumerate(flat))
    k = 10
    return a * sum(lazy), flat, turned, table, {v % 2 for v in flat}, [k for _ in rows]


@program(lambda: (x(), [1, 2, 3, 4, 5]), graphs=1)
def unpacking_all(a, items):
    first, *_, last = items
    (p, q), [r, *s] = (1, 2), items
    *start, end = items[:2]
    i = j = k = first
    i, j = j + 1, i
    d = {**{"a": 1}, **{"a": 2, "b": 3}}
    log = []
    try:
        u, v = items
    except ValueError as e:
        log.append(str(e))
    try:
        u, *v, w, z = [1]
    except ValueError as e:
        log.append(str(e))
    for n, (m, *o) in [(1, (2, 3, 4))]:
        pass
    return a * last + p * q + r, s, start, end, i, j, k, d, log, n, m, o


@program(lambda: (x(), [1, 2, 3]), graphs=1)
def augmented(a, items):
    b = a.clone()
    b += 1
    b[0] *= 2
    items[0] += 5
    items += (4,)
    n = 7
    n //= 2
    n **= 2
    n %= 5
    n <<= 2
    n |= 1
    s = "p"
    s += "q"
    t = (1,)
    t += (2,)
    return b, n, s, t


@program(lambda: (x(),), graphs=1)
def ternaries_and_chains(a):
    n = 3
    p = "low" if n < 2 else "mid" if n < 5 else "high"
    q = 0 < n <= 3 != 4
    r = None or [] or "last"
    s = n and not n == 2
    assert n == 3, "message"
    return a + (1 if p == "mid" else 2), q, r, s, (n > 2) + 1, n if n else 0


@program(lambda: (x(),), graphs=1)
def global_constants(a):
    if __debug__ and __name__.endswith("scopes"):
        a = a * SCALE
    return a, __file__[-3:]


@program(lambda: (x(),), breaks=None)
def locals_asked(a):
    b = 2
    names = sorted(locals())
    return a * b, names
