"""Containers: made, changed, passed in and out; changes outside are replayed."""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import math
import operator
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


@program(lambda: (x(), [1, 2]), graphs=1)
def appends_to_argument(a, items):
    items.append(a + 1)
    items.extend([3, a])
    items[0] = "first"
    return items


@program(lambda: (x(), [3, 1, 2]), graphs=1)
def list_methods(a, items):
    items.sort()
    items.insert(0, 9)
    items.reverse()
    b = items.pop()
    c = items.index(2)
    items.remove(1)
    d = items.copy()
    d.clear()
    return (
        a + b + c,
        items,
        d,
        items * 2,
        items + [1],
        items.count(2),
        [1, 2] < [1, 3],
        items == [3],
    )


@program(lambda: (x(), {"p": 1}), graphs=1)
def dict_methods(a, table):
    table["q"] = a * 2
    table.update({"r": 5}, s=6)
    t = table.setdefault("t", [])
    t.append(a)
    u = table.pop("r")
    v = table.get("zz", 7)
    return a + u + v, list(table), table | {"w": 1}


@program(lambda: (x(), {"p": 1, "q": 2}), graphs=1)
def dict_reordered(a, table):
    p = table.pop("p")
    table["p"] = p
    return a + p


@program(lambda: (x(), {1, 2, 3}), graphs=1)
def set_methods(a, marks):
    marks.add(7)
    marks.discard(1)
    other = {2, 9} | {3}
    return a + len(marks & other), marks - other, marks ^ other, 7 in marks, frozenset({1})


@program(lambda: (x(), deque([1, 2], maxlen=3)), graphs=1)
def deque_methods(a, d):
    d.append(a)
    d.appendleft(0)
    d.rotate(1)
    return a + 1, d, deque([1, a], 5)


@program(lambda: (x(), OrderedDict(p=1, q=2), defaultdict(list)), graphs=1)
def other_dicts(a, o, d):
    o.move_to_end("p")
    o["r"] = a
    d["k"].append(a + 1)
    d["m"] = 3
    return a, o, d, OrderedDict([("z", a)]), defaultdict(int, {"a": 1})


@program(lambda: (x(),), graphs=1)
def counters(a):
    c = Counter("abca")
    c["z"] += 2
    return a + c["a"], dict(c)


P = namedtuple("P", ["u", "v"])


class Q(NamedTuple):
    u: int
    v: int = 4

    def both(self):
        return self.u + self.v


@program(lambda: (x(), P(1, 2)), graphs=1)
def namedtuples(a, p):
    q = Q(5)
    r = p._replace(u=a + 1)
    u, v = p
    return a * p.u + q.both() + u * v, r, q, P(a, v=3), p._asdict(), p._fields


@program(lambda: (x(),), graphs=1)
def builtin_functions(a):
    items = [3, 1, 2]
    return (a + max(items) + min(1, 2) + sum(items), sorted(items, key=lambda i: -i), any(items),
            all(items), list(map(lambda i: i * 2, items)), list(filter(lambda i: i > 1, items)),
            list(enumerate(items, 1)), list(zip(items, "abc")), abs(-3), round(2.567, 1), pow(2, 3),
            divmod(7, 2), list(reversed(items)), tuple(items), set(items), bool(items), int("3"),
            float("2.5"), str(5), isinstance(a, torch.Tensor), callable(len), hash(3), chr(65),
            max(items, key=lambda i: (i - 2) ** 2), max([], default=1), range(3), bin(5))  # fmt: skip


@program(lambda: (x(),), graphs=1)
def sums_tensors(a):
    parts = [a[i] for i in range(3)]
    return sum(parts), sum(parts, torch.zeros(4)), functools.reduce(operator.add, parts)


@program(lambda: (x(),), graphs=1)
def math_functions(a):
    return (
        a * math.sqrt(2) + math.pi + math.floor(2.7) + math.log(3),
        math.inf,
        math.prod([1, 2, 3]),
    )


@program(lambda: (x(),), graphs=1)
def itertools_functions(a):
    it = itertools
    return (a + 1, list(it.chain([1], (2, 3))), list(it.islice(it.count(2), 3)),
            list(it.product([1, 2], "ab")), list(it.combinations(range(3), 2)),
            list(it.accumulate([1, 2, 3])), list(it.accumulate([1, 2, 3], lambda p, q: p * q)),
            list(it.zip_longest([1], [2, 3])), [(k, list(g)) for k, g in it.groupby("aab")],
            list(it.repeat(1, 2)), list(it.starmap(pow, [(2, 3)])), list(it.permutations([1, 2])),
            list(it.takewhile(lambda i: i < 2, [1, 2, 1])), list(it.pairwise([1, 2, 3])))  # fmt: skip


@program(lambda: (x(),), graphs=1)
def itertools_of_tensors(a):
    total = 0
    for p, q in itertools.product([a, a + 1], [2, 3]):
        total = total + p * q
    return total, list(itertools.chain.from_iterable([[a], [a * 2]]))


@program(lambda: (x(),), graphs=1)
def functools_functions(a):
    f = functools.partial(torch.add, alpha=2)
    g = functools.partial(lambda p, q, r: p * q + r, a, r=1)
    return f(a, a), g(3), functools.reduce(lambda p, q: p + q, [1, 2, 3])


@program(lambda: (x(),), graphs=1)
def operator_functions(a):
    get = operator.itemgetter(1, 0)
    return (operator.mul(a, 2), operator.getitem([1, 2], 1), get([4, 5]), operator.neg(a),
            operator.attrgetter("shape")(a), operator.index(3), operator.matmul(a, a.T))  # fmt: skip


@program(lambda: (x(),), graphs=1)
def heaps(a):
    h = [5, 2, 8]
    heapq.heapify(h)
    heapq.heappush(h, 1)
    return a + heapq.heappop(h), h


@program(lambda: (x(), [[1], [2]]), graphs=1)
def shared_parts(a, nested):
    first = nested[0]
    first.append(a)
    made = [first, first, nested]
    return made, a + 1


@program(lambda: (x(),), graphs=1)
def cyclic(a):
    b = [a + 1]
    b.append(b)
    d = {"b": b}
    d["d"] = d
    return b[1][1][0], len(d["d"]["d"])


@program(lambda: (x(),), graphs=1)
def returns_iterators(a):
    it = iter([1, 2, 3])
    next(it)
    return a + 1, it, zip([1, 2], [a, a]), enumerate([5, 6]), map(str, [1, 2])


@program(lambda: (x(), [x(), x()]), graphs=1)
def tensor_in_list(a, items):
    return items[0] in items, items.index(items[0]), a + 1, items[1] is items[1]


@program(lambda: (x(),), graphs=1)
def tensor_as_key(a):
    table = {a: 1}
    return a + table[a], a in table


@program(lambda: (x(), {"a": {"b": {"c": 1}}}), graphs=1)
def nested_changes(a, table):
    table["a"]["b"]["c"] = a + 1
    table["a"]["n"] = {"new": a}
    return table["a"]["b"]["c"] * 2


@program(lambda: (x(), list(range(100))), graphs=1)
def long_list(a, items):
    return a + items[50] + sum(items)


@program(lambda: (x(), collections.UserDict(p=1)), graphs=1)
def user_dict(a, table):
    return a + table["p"]


class Stack(list):
    def push(self, v):
        self.append(v)
        return self

    def __len__(self):
        return 100


@program(lambda: (x(),), graphs=1)
def list_subclass(a):
    s = Stack([1, 2])
    s.push(a).push(3)
    return s[2] + len(s), list(s)


class Table(dict):
    def __missing__(self, key):
        return key * 2

    def __getattr__(self, name):
        return self[name]


@program(lambda: (x(),), graphs=1)
def dict_subclass(a):
    t = Table(p=1)
    t["q"] = a
    return a + t["p"] + t[5] + t.p, t
