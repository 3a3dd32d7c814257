"""The library's tools: itertools, functools, operator, copy, math, sorting."""

from __future__ import annotations

import bisect
import copy
import functools
import inspect
import itertools
import math
import operator
import sys

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


@program(lambda: (x(), [1, 2, 3]), graphs=1)
def accumulating(a, items):
    sums = list(itertools.accumulate(items))
    products = list(itertools.accumulate(items, operator.mul, initial=2))
    running = list(itertools.accumulate([a, a, a]))
    own = list(itertools.accumulate(items, lambda p, q: p - q))
    return running[-1] + sums[-1], products, own


@program(lambda: (x(), [1, 2, 3, 4, 5, 6]), graphs=1)
def taking(a, items):
    return (
        a + 1,
        list(itertools.takewhile(lambda v: v < 4, items)),
        list(itertools.dropwhile(lambda v: v < 4, items)),
        list(itertools.filterfalse(lambda v: v % 2, items)),
        list(itertools.islice(items, 1, 5, 2)),
        list(itertools.compress(items, [1, 0, 1])),
    )


@program(lambda: (x(), [1, 2, 3]), graphs=1)
def combining(a, items):
    return (
        a + len(list(itertools.product(items, repeat=2))),
        list(itertools.product("ab", [0, 1])),
        list(itertools.permutations(items, 2)),
        list(itertools.combinations(items, 2)),
        list(itertools.combinations_with_replacement("ab", 2)),
        list(itertools.pairwise(items)),
    )


@program(lambda: (x(),), graphs=1)
def endless(a):
    c = itertools.count(5, 2)
    for n in c:
        if n > 10:
            break
        a = a + n
    names = itertools.cycle("ab")
    text = "".join(next(names) for _ in range(5))
    return a, text, list(itertools.repeat(3, 2)), list(zip("abc", itertools.count()))


@program(lambda: (x(), [1, 2], [3, 4, 5]), graphs=1)
def chaining(a, p, q):
    total = a
    for v in itertools.chain(p, q):
        total = total + v
    return (
        total,
        list(itertools.chain.from_iterable([p, q])),
        list(itertools.zip_longest(p, q, fillvalue=0)),
        list(itertools.starmap(pow, [(2, 3), (3, 2)])),
    )


@program(lambda: (x(), ["aa", "ab", "ba"]), graphs=1)
def grouping(a, words):
    groups = {k: list(v) for k, v in itertools.groupby(words, key=lambda w: w[0])}
    plain = [(k, len(list(g))) for k, g in itertools.groupby([1, 1, 2])]
    return a + len(groups), groups, plain


@program(lambda: (x(), [1, 2, 3]), graphs=1)
def teeing(a, items):
    p, q = itertools.tee(items)
    next(p)
    return a + sum(q), list(p)


@program(lambda: (x(),), graphs=1)
def tools_over_tensors(a):
    rows = list(itertools.chain(a, a * 2))
    scaled = list(map(operator.mul, a, [1, 2, 3]))
    pairs = [p + q for p, q in itertools.pairwise(a)]
    picked = list(filter(lambda r: r.dim() == 1, rows))
    return torch.stack(rows), scaled, pairs, len(picked), functools.reduce(torch.add, a)


@program(lambda: (x(),), graphs=1)
def partials(a):
    f = functools.partial(torch.add, alpha=3)
    g = functools.partial(f, a)
    h = functools.partial(lambda p, q, r=1: p * q + r, r=5)
    return g(a), h(a, 2), h.keywords, h(2, 3, r=0), functools.partial(h, 4)(a)


class Button:
    def click(self, v, by):
        return v * by

    double = functools.partialmethod(click, by=2)


@program(lambda: (x(), Button()), graphs=1)
def partial_methods(a, b):
    return b.double(a)


@functools.singledispatch
def describe(v):
    return "object"


@describe.register
def _(v: int):
    return f"int {v}"


@describe.register(list)
def _list(v):
    return f"list of {len(v)}"


@describe.register(torch.Tensor)
def _tensor(v):
    return v + 1


@program(lambda: (x(),), graphs=1)
def single_dispatch(a):
    return describe(a) * 2, describe(3), describe([1, 2]), describe("s"), describe(True)


class Formatter:
    @functools.singledispatchmethod
    def show(self, v):
        return "?"

    @show.register
    def _(self, v: int):
        return "n" * v


# From 3.13 on the methods are kept in a dict of weak references.
@program(lambda: (x(), Formatter()), breaks=0 if sys.version_info < (3, 13) else None)
def single_dispatch_method(a, f):
    return a + 1, f.show(3), f.show("s")


@functools.lru_cache(maxsize=4)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@functools.cache
def table(n):
    return [i * n for i in range(n)]


@program(lambda: (x(),), graphs=1)
def caches(a):
    return a * fib(10) + table(3)[2]


def logged(log):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            log.append(fn.__name__)
            return fn(*args, **kwargs)

        return wrapper

    return decorate


@program(lambda: (x(), []), graphs=1)
def wraps_inside(a, log):
    @logged(log)
    def shift(v, by=1):
        """Shift."""
        return v + by

    return shift(a, by=2), shift.__name__, shift.__doc__, shift.__wrapped__(1)


@program(lambda: (x(), [3, 1, 2]), graphs=1)
def compared_by_function(a, items):
    key = functools.cmp_to_key(lambda p, q: q - p)
    return a + 1, sorted(items, key=key), min(items, key=lambda v: abs(v - 2))


@program(lambda: (x(), [("b", 2), ("a", 3), ("c", 1)]), graphs=1)
def sorting(a, rows):
    by_name = sorted(rows)
    by_number = sorted(rows, key=operator.itemgetter(1))
    rows.sort(key=lambda r: (-r[1], r[0]))
    words = sorted(["bb", "a", "ccc"], key=len, reverse=True)
    mixed = sorted([2.5, 1, True])
    return (
        a * by_number[0][1],
        by_name,
        rows,
        words,
        mixed,
        sorted("hello"),
        sorted({"z": 1, "y": 2}),
    )


class Person:
    def __init__(self, name, age):
        self.name = name
        self.age = age
        self.tags = {"k": [age]}

    def greet(self, other, mark="."):
        return self.name + other + mark


@program(lambda: (x(), Person("ann", 3)), graphs=1)
def getters(a, p):
    age = operator.attrgetter("age")
    both = operator.attrgetter("name", "tags")
    item = operator.itemgetter(1)
    two = operator.itemgetter(0, -1)
    part = operator.itemgetter(slice(1, None))
    return a * age(p), both(p), item([1, 2]), two("xyz"), part([1, 2, 3])


@program(lambda: (x(), Person("ann", 3)), graphs=1)
def method_callers(a, p):
    greet = operator.methodcaller("greet", "bob", mark="!")
    total = operator.methodcaller("sum", 0)
    upper = operator.methodcaller("upper")
    return total(a), greet(p), list(map(upper, ["p", "q"]))


@program(lambda: (x(), [1, 2, 3]), graphs=1)
def operator_module(a, items):
    log = [operator.add(1, 2), operator.floordiv(7, 2), operator.concat([1], [2])]
    log += [operator.countOf(items, 2), operator.indexOf(items, 3), operator.contains(items, 9)]
    log += [operator.truth([]), operator.is_(None, None), operator.length_hint(items)]
    operator.setitem(items, 0, 10)
    operator.delitem(items, 1)
    b = operator.iadd(items, [5])
    return operator.matmul(a, a.t()) + operator.neg(a).sum(), log, b is items, operator.index(4)


@program(lambda: (x(), [1, [2, {"k": 3}]]), graphs=1)
def deep_copies(a, tree):
    other = copy.deepcopy(tree)
    other[1][1]["k"] = a + 1
    shallow = copy.copy(tree)
    return other[1][1]["k"] * 2, tree, shallow[1] is tree[1], other[1] is tree[1]


@program(lambda: (x(), Person("ann", 3)), graphs=1)
def deep_copies_of_objects(a, p):
    q = copy.deepcopy(p)
    q.tags["k"].append(4)
    r = copy.copy(p)
    r.age = 9
    return a * r.age + len(q.tags["k"]), p.tags, p.age, q, r


@program(lambda: ({"w": x()},), graphs=1)
def deep_copies_of_tensors(state):
    other = copy.deepcopy(state)
    other["w"].mul_(2)
    return other["w"] + state["w"], copy.deepcopy(state["w"])


class Sized:
    def __init__(self, n):
        self.n = n

    def __copy__(self):
        return Sized(self.n + 1)

    def __deepcopy__(self, memo):
        return Sized(self.n + 10)


@program(lambda: (x(), Sized(1)), graphs=1)
def own_copies(a, s):
    return a * copy.copy(s).n + copy.deepcopy(s).n, copy.deepcopy([s])[0].n


@program(lambda: (x(), 0.5), graphs=1)
def mathematics(a, f):
    log = [math.sin(f), math.sqrt(16), math.floor(2.7), math.ceil(2.1), math.gcd(12, 8)]
    log += [math.prod([2, 3]), math.hypot(3, 4), math.isclose(0.1 + 0.2, 0.3), math.comb(5, 2)]
    log += [math.log2(8), math.fsum([0.1] * 10), math.inf > 1, math.isnan(math.nan), math.tau]
    log += [math.frexp(8.0), math.modf(2.5), math.copysign(1, -0.0), math.dist([0, 0], [3, 4])]
    return a * math.pi + math.exp(f), log


@program(lambda: (x(), [1, 3, 5]), graphs=1)
def bisection(a, items):
    at = bisect.bisect_left(items, 3)
    bisect.insort(items, 4)
    return a + at, items, bisect.bisect(items, 4, key=lambda v: v)


@program(lambda: (x(), 255), graphs=1)
def numbers(a, n):
    q, r = divmod(n, 7)
    return (
        a * q + r,
        [hex(n), oct(n), bin(n), n.bit_length(), (-n) >> 2, n // -7, n % -7, int("ff", 16)],
        [float("1e3"), (2.5).is_integer(), (0.5).as_integer_ratio(), round(2.675, 2), 7.0 // 2],
        [complex(1, 2) * 1j, abs(3 + 4j), (1 + 2j).conjugate(), n.to_bytes(2, "big")],
        [True + 1, not 0, (3 and 0) or 5, 1 < 2 < 3, 2**-1, -(2**2), int(3.9), int(-3.9)],
    )


@program(lambda: (x(), [0, 1, None, "s"]), graphs=1)
def builtins_(a, items):
    return (
        a + len(items),
        any(items),
        all(items),
        [bool(i) for i in items],
        list(enumerate("ab", 3)),
        list(zip("ab", [1, 2], strict=True)),
        list(map(lambda p, q: p * q, [1, 2], [3, 4])),
        list(filter(None, items)),
        max("b", "a"),
        min([3, 1], default=0),
        max([], default="none"),
        sum([[1], [2]], []),  # noqa: RUF017
        chr(97) + str(ord("b")),
        list(reversed([1, 2])),
        isinstance(3, int | str),
        callable(len),
    )


@program(lambda: (x(),), graphs=1)
def zip_strict(a):
    log = []
    try:
        list(zip([1, 2], [1], strict=True))
    except ValueError as e:
        log.append(str(e))
    return a + 1, log, list(zip()), next(zip(a, [1, 2, 3]))[1]


@program(lambda: (x(), [1, 2, 3]), graphs=1)
def iterators_by_hand(a, items):
    it = iter(items)
    p = next(it)
    rest = [*it]
    stop = next(it, None)
    calls = iter(lambda: len(rest), 2)
    return a + p, rest, stop, list(calls), list(iter("ab")), iter(items) is iter(items)


@program(lambda: (x(),), graphs=1)
def type_questions(a):
    return (
        a + 1,
        type(a) is torch.Tensor,
        type([]).__name__,
        isinstance(a, (int, torch.Tensor)),
        issubclass(bool, int),
        type(None) is type(None),
        a.__class__ is torch.Tensor,
        isinstance(torch.float32, torch.dtype),
        sys.version_info >= (3, 11),
        sys.maxsize > 5,
    )


def _chunked(forward, size, *tensors):
    if len(inspect.signature(forward).parameters) != len(tensors):
        raise ValueError("another number of tensors")
    return torch.cat([forward(*parts) for parts in zip(*(t.split(size) for t in tensors))])


class Feeds:
    def __init__(self, factor):
        self.factor = factor

    def piece(self, a, b=2):
        return a * self.factor + b

    def run(self, a):
        return _chunked(self.piece, 2, a, a)


@program(lambda: (x(), Feeds(3.0)))
def signature_of_a_method(a, feeds):
    return feeds.run(a)


def _kept(a, *, keep=True, gain=1.5):
    return a * gain if keep else a


@functools.wraps(_kept)
def _wrapping(*args, **kwargs):
    return _kept(*args, **kwargs) + 1


@program(lambda: (x(), {"gain": 2.0, "other": 4}))
def keywords_that_a_function_takes(a, config):
    taken = {k: v for k, v in config.items() if k in inspect.signature(_wrapping).parameters}
    names = [str(p) for p in inspect.signature(_kept).parameters.values()]
    kinds = [p.kind.name for p in inspect.signature(_kept).parameters.values()]
    needed = inspect.signature(_kept).parameters["gain"].default is not inspect.Parameter.empty
    return _wrapping(a, **taken), names, kinds, needed


@program(lambda: (x(),))
def signature_of_an_inner_function(a):
    def inner(p, q=1, /, *rest, named=None):
        return p * q

    return inner(a, len(inspect.signature(inner).parameters)), str(inspect.signature(inner))


class Remembering:
    @functools.lru_cache(None)
    def factor(self, n):
        return n * 2 + 1

    def run(self, a):
        return a * self.factor(3) + self.factor(n=3)


@program(lambda: (x(), Remembering()))
def cached_method(a, remembering):
    return remembering.run(a)
