"""Containers of `collections`, and what is done with the plain ones less often."""

from __future__ import annotations

import collections
import heapq
import types

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


@program(lambda: (x(), collections.deque([1, 2, 3], maxlen=3)), graphs=1)
def deque_all(a, d):
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    d.extend([7])
    d.extendleft([8, 9])
    e = d.copy()
    e.reverse()
    e.remove(8)
    return a + d[0], d, list(e), d.index(8), d.count(9), d.maxlen, 8 in d, len(d)


@program(lambda: (x(), collections.deque()), graphs=1)
def deque_of_tensors(a, d):
    for i in range(3):
        d.append(a * i)
    out = d.popleft() + d.pop()
    d[0] = out
    d.insert(0, a)
    return out, d == collections.deque(), collections.deque([1]) + collections.deque([2])


@program(lambda: (x(), collections.defaultdict(list)), graphs=1)
def defaultdict_of_lists(a, d):
    for i in range(4):
        d[i % 2].append(a + i)
    return d[0][1] * 2, sorted(d), d.get(9), len(d), d.default_factory is list


@program(lambda: (x(),), graphs=1)
def defaultdict_of_lambda(a):
    d = collections.defaultdict(lambda: 5)
    d["p"] += 1
    n = collections.defaultdict(int, q=2)
    n["q"] += d["p"]
    m = collections.defaultdict(dict)
    m["u"]["v"] = a + n["q"]
    return m["u"]["v"], dict(n), "zz" in d


@program(lambda: (x(), collections.OrderedDict(p=1, q=2, r=3)), graphs=1)
def ordered_dict(a, o):
    o.move_to_end("p")
    o.move_to_end("r", last=False)
    first = next(iter(o))
    o["s"] = a + 1
    last = o.popitem()
    return last[1], first, list(o), list(reversed(o)), o == {"p": 1, "q": 2, "r": 3}, o.pop("q")


@program(lambda: (x(), collections.Counter("hello")), graphs=1)
def counter(a, c):
    c.update("lo")
    c["z"] -= 1
    d = c + collections.Counter(l=1)
    return a * c["l"], c.most_common(2), d["l"], c["none"], sum(c.values()), c.total()


@program(lambda: (x(), ["p", "q", "p"]), graphs=1)
def counter_made(a, items):
    c = collections.Counter(items)
    d = collections.Counter(p=1)
    return a + c["p"], c - d, c & d, c | d, sorted(c.elements()), c == d, d <= c


@program(lambda: (x(), {"p": 1}, {"p": 2, "q": 3}), graphs=1)
def chain_map(a, first, second):
    m = collections.ChainMap(first, second)
    m["new"] = a + 1
    child = m.new_child({"q": 5})
    return m["new"] * m["p"], child["q"], m["q"], sorted(child), len(m), m.maps[0] is first


@program(lambda: (x(), {"b": 1, "a": 2}), graphs=1)
def dict_operators(a, d):
    e = d | {"c": 3}
    d |= {"z": a + 1}
    return d["z"], e, list(d.keys() & e.keys()), d.keys() - e.keys(), {**e}, dict.fromkeys("pq", 1)


@program(lambda: (x(), {"b": 1, "a": 2}), graphs=1)
def dict_rest(a, d):
    d.setdefault("c", []).append(a + 1)
    k, v = d.popitem()
    d.update([("p", 1)], q=2)
    copy = d.copy()
    copy.clear()
    items = sorted(d.items())
    return (
        v[0],
        k,
        items,
        copy,
        d.pop("none", 4),
        list(reversed(d)),
        min(d),
        dict(zip("ab", [1, 2])),
    )


@program(lambda: (x(), {1, 2, 3}), graphs=1)
def set_operators(a, s):
    t = {2, 3, 4}
    s.add(9)
    s.discard(1)
    s -= {2}
    return (
        a + len(s),
        sorted(s | t),
        sorted(s & t),
        sorted(s ^ t),
        s <= t,
        s.isdisjoint({7}),
        frozenset(t) == t,
        {3} < t,
    )


@program(lambda: (x(),), graphs=1)
def sets_of_objects(a):
    b = a + 1
    s = {a, b, a}
    t = {torch.float32, torch.int64}
    u = {(1, "k"), (2, "j")}
    fns = {len, min, len}
    return b * len(s), a in s, torch.float32 in t, len(u), len(fns)


class Item:
    def __init__(self, n):
        self.n = n


ITEMS = [Item(1), Item(2)]


@program(lambda: (x(), {Item(3)}, {torch.float32, int}), graphs=1)
def sets_from_outside(a, items, kinds):
    total = sum(i.n for i in items)
    if torch.float32 in kinds and int in kinds:
        total += 1
    return a * total


@program(lambda: (x(), {}), graphs=1)
def objects_as_keys(a, table):
    for item in ITEMS:
        table[item] = a * item.n
    return table[ITEMS[1]] + 1, len(table), ITEMS[0] in table


@program(lambda: (x(), [3, 1, 2]), graphs=1)
def list_rest(a, items):
    items.insert(1, 7)
    items.reverse()
    items *= 2
    items[1:3] = [0]
    items[::2] = [5] * len(items[::2])
    del items[1::3]
    new = items + [a + 1]
    return new[-1], new[:-1], items.copy() == items, [1, 2] < [1, 3], items.pop(0), [0] * 3


@program(lambda: (x(), [1, 2, 3, 4]), graphs=1)
def list_errors(a, items):
    log = []
    for fn in (
        lambda: items[10],
        lambda: items.remove(99),
        lambda: items.index(99),
        lambda: [].pop(),
        lambda: items["k"],
        lambda: (1,) + [2],
        lambda: {}["missing"],
        lambda: [1, 2].foo,
        lambda: next(iter([])),
        lambda: int("zz"),
        lambda: 1 / 0,
        lambda: {[]: 1},
    ):
        try:
            fn()
        except Exception as e:
            log.append((type(e).__name__, str(e)))
    return a + 1, log


@program(lambda: (x(), (1, 2, 3)), graphs=1)
def tuple_rest(a, t):
    p, (q, r), *s = 1, (2, 3), 4, 5
    return (
        a + p * q,
        t * 2,
        t[::-1],
        t.count(2),
        t + (a * r,),
        s,
        (1, 2) == (1, 2),
        hash(t) == hash(t),
    )


@program(lambda: (x(), range(2, 10, 3)), graphs=1)
def ranges(a, r):
    return a + r[1], len(r), list(r), 5 in r, r[::-1], r.index(8), r.start, r == range(2, 11, 3)


@program(lambda: (x(), slice(1, 3)), graphs=1)
def slices(a, s):
    rows = [1, 2, 3, 4]
    t = slice(None, None, -1)
    return a[s], rows[s], rows[t], s.start, s.indices(2), a[..., s], a[None, s, 0], s == slice(1, 3)


@program(lambda: (x(), bytearray(b"abc"), b"xyz"), breaks=1)
def bytes_and_arrays(a, data, fixed):
    return (
        a + fixed[0],
        len(data),
        fixed[1:],
        fixed.decode(),
        bytes([1, 2]),
        b"-".join([b"p", b"q"]),
    )


@program(lambda: (x(), [5, 1, 4]), graphs=1)
def heaps(a, h):
    heapq.heapify(h)
    heapq.heappush(h, 0)
    low = heapq.heappop(h)
    return a + low, heapq.nlargest(2, h), heapq.nsmallest(1, h), heapq.heappushpop(h, 3), h


@program(lambda: (x(), types.SimpleNamespace(u=1, v=[2])), graphs=1)
def simple_namespace(a, n):
    n.w = a + n.u
    n.v.append(3)
    m = types.SimpleNamespace(k=n.w * 2)
    return m.k, n.v, hasattr(n, "zz")


@program(lambda: (x(), types.MappingProxyType({"p": 2})), graphs=1)
def mapping_proxy(a, m):
    return a * m["p"], list(m), "q" in m, m.get("q", 3), dict(m)


class Settings(collections.UserDict):
    pass


class Names(collections.UserList):
    pass


@program(lambda: (x(), Settings(p=1), Names([3, 1])), graphs=1)
def user_collections(a, s, n):
    s["q"] = a + s["p"]
    n.append(2)
    n.sort()
    return s["q"] * n[0], list(n), sorted(s), len(n), "p" in s


@program(lambda: (x(), [[1, 2], [3, [4, {"k": 5}]]]), graphs=1)
def deep_changes(a, tree):
    tree[1][1][1]["k"] = a + 1
    tree[0], tree[1] = tree[1], tree[0]
    tree[0][0] += 10
    return tree[0][1][1]["k"] * 2


@program(lambda: (x(), [1, 2, 3]), graphs=1)
def changed_while_iterated(a, items):
    for i in items:
        if i < 3:
            items.append(i + 10)
        if len(items) > 6:
            break
        a = a + i
    log = []
    table = {"p": 1}
    try:
        for k in table:
            table[k + "q"] = 1
    except RuntimeError as e:
        log.append(str(e))
    return a, log


class Liar(collections.OrderedDict):
    def items(self):
        return [("no", 1)]


class Lists(collections.defaultdict):
    pass


@program(lambda: (x(),))
def made_dicts_of_own_classes(a):
    d = Liar()
    d["b"] = a
    d["a"] = a + 1
    d.move_to_end("b")
    e = Lists(list, {"there": [0]})
    e["k"].append(a * 2)
    return d, e, e.default_factory
