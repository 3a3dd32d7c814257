"""Control flow on what Python knows."""

from __future__ import annotations

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


@program(lambda: (x(), 3), graphs=1)
def branches(a, n):
    if n > 2:
        a = a + 1
    elif n > 1:
        a = a + 2
    else:
        a = a + 3
    return a if n else -a


@program(lambda: (x(), 4), graphs=1)
def for_range(a, n):
    for i in range(n):
        a = a + i
    return a


@program(lambda: (x(), 4), graphs=1)
def while_loop(a, n):
    while n > 0:
        a = a * n
        n -= 1
    return a, n


@program(lambda: (x(), [1, 2, 3, 4]), graphs=1)
def break_and_continue(a, items):
    for i in items:
        if i == 2:
            continue
        if i == 4:
            break
        a = a + i
    else:
        a = a * 100
    return a


@program(lambda: (x(), [1, 2]), graphs=1)
def for_else(a, items):
    for i in items:
        a = a + i
    else:
        a = a * 100
    return a


@program(lambda: (x(),), graphs=1)
def comprehensions(a):
    n = 3
    rows = [a[i] * n for i in range(3) if i != 1]
    table = {str(i): a + i for i in range(2)}
    marks = {i % 2 for i in range(5)}
    return rows, table, marks, [[i * j for j in range(2)] for i in range(2)]


@program(lambda: (x(),), graphs=1)
def closure_in_comprehension(a):
    fs = [lambda v, i=i: v + i for i in range(3)]
    return [f(a) for f in fs]


@program(lambda: (x(),), graphs=1)
def comprehension_variable_in_closure(a):
    fs = [lambda: i for i in range(3)]
    return a + fs[0]()


@program(lambda: (x(), [x(), x()]), graphs=1)
def iterates_tensors(a, items):
    for row in a:
        items[0] = items[0] + row
    for i, (p, q) in enumerate(zip(items, reversed(items))):
        a = a + p * q * i
    return a


@program(lambda: (x(), {"p": 1, "q": 2}), graphs=1)
def iterates_dict(a, table):
    for k, v in table.items():
        a = a + v * len(k)
    for k in table:
        a = a + table[k]
    return a, list(table.values()), sorted(table), "p" in table, "z" not in table


@program(lambda: (x(), 3), graphs=1)
def short_circuits(a, n):
    p = n and n + 1
    q = 0 or n
    r = n > 1 and n < 5 and not n == 4
    s = 1 < n <= 3
    return a * p + q, r, s


@program(lambda: (x(), [1, 2, 3, 4, 5]), graphs=1)
def unpacking(a, items):
    p, *q, r = items
    (s, t), u = (p, r), q
    return a + p + r + s + t, u, [*items, 6], (*q, *items), {**{"a": 1}, "b": 2}


@program(lambda: (x(), 10), graphs=1)
def walrus(a, n):
    if (m := n // 2) > 3:
        a = a + m
    return a, m


@program(lambda: (x(), {"kind": "mul", "by": 3}, [1, 2, 3]), graphs=1)
def matches(a, command, items):
    match command:
        case {"kind": "add", "by": n}:
            a = a + n
        case {"kind": "mul", "by": n, **rest}:
            a = a * n
        case _:
            a = a - 1
    match items:
        case []:
            a = a * 0
        case [first, *others] if first > 5:
            a = a + 5
        case [1, _, last]:
            a = a + last
    match 3:
        case int(n) | float(n):
            a = a - n
    return a


class Point:
    __match_args__ = ("u", "v")

    def __init__(self, u, v):
        self.u = u
        self.v = v


@program(lambda: (x(), Point(1, 2)), graphs=1)
def matches_class(a, p):
    match p:
        case Point(0, v):
            return a
        case Point(u, v=2):
            return a + u
    return -a


@program(lambda: (x(),), graphs=1)
def recursion(a):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    return a * fact(5)


@program(lambda: (x(),), graphs=1)
def asserts(a):
    assert a.dim() == 2, "two dimensions"
    return a + 1


@program(lambda: (x(), 5), graphs=1)
def conditional_on_shape(a, n):
    if a.shape[0] == 3 and a.shape[-1] != n:
        return a.sum(0)
    return a.sum(1)


@program(lambda: (x(),), graphs=1)
def nested_loops(a):
    for i in range(3):
        for j in range(i):
            if j == 1:
                break
            a = a + i * j
        else:
            a = a + 1
    return a


@program(lambda: (x(),), graphs=1)
def deletes(a):
    b = a + 1
    c = b
    del b
    d = {"p": 1, "q": 2}
    del d["p"]
    e = [1, 2, 3]
    del e[0]
    del e[-1:]
    return c, d, e
