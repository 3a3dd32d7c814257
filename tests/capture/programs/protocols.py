"""Classes of the user's own: descriptors, metaclasses, operators, attribute access."""

from __future__ import annotations

import abc
import collections.abc
import functools

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


class Validated:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        return getattr(obj, self.name)

    def __set__(self, obj, value):
        if value < 0:
            raise ValueError(f"{self.name} is negative")
        setattr(obj, self.name, value)

    def __delete__(self, obj):
        delattr(obj, self.name)


class Account:
    balance = Validated()

    def __init__(self, balance):
        self.balance = balance


class Lazy:
    """A descriptor without `__set__`: the instance's attribute hides it."""

    def __init__(self, fn):
        self.fn = fn
        self.name = fn.__name__

    def __get__(self, obj, owner):
        value = self.fn(obj)
        obj.__dict__[self.name] = value
        return value


class Widget:
    def __init__(self):
        self.made = 0

    @Lazy
    def weight(self):
        self.made += 1
        return 3

    @functools.cached_property
    def table(self):
        return {"k": self.made}


@program(lambda: (x(), Account(3)), graphs=1)
def validated(a, acc):
    acc.balance = acc.balance + 4
    log = []
    try:
        acc.balance = -1
    except ValueError as e:
        log.append(str(e))
    b = Account(2)
    del b.balance
    return a * acc.balance, log, hasattr(b, "balance"), isinstance(Account.balance, Validated)


@program(lambda: (x(), Widget()), graphs=1)
def lazy_descriptor(a, w):
    return a * w.weight + w.weight, w.made, w.table, w.table is w.table


class Registry(type):
    known: dict = {}

    def __new__(mcs, name, bases, space, **options):
        cls = super().__new__(mcs, name, bases, dict(space))
        mcs.known[name] = cls
        return cls

    def __init__(cls, name, bases, space, **options):
        super().__init__(name, bases, space)
        cls.options = options

    def __getitem__(cls, key):
        return cls.options[key]

    def __len__(cls):
        return len(cls.options)

    def __iter__(cls):
        return iter(cls.options)

    def __contains__(cls, key):
        return key in cls.options

    @property
    def label(cls):
        return cls.__name__.lower()


class Plugin(metaclass=Registry, rate=2):
    pass


class Other(Plugin, rate=5, depth=1):
    pass


@program(lambda: (x(),), graphs=1)
def metaclass_protocols(a):
    return a * Plugin["rate"] + len(Other), Other.label, list(Other), "depth" in Plugin


class Hooks:
    def __init_subclass__(cls, scale=1, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.scale = scale


class Big(Hooks, scale=10):
    pass


@program(lambda: (x(),), graphs=1)
def init_subclass(a):
    return a * Big.scale + Big().scale


class Proxy:
    def __init__(self, target):
        object.__setattr__(self, "_target", target)
        object.__setattr__(self, "_log", [])

    def __getattr__(self, name):
        self._log.append(name)
        return getattr(self._target, name)

    def __setattr__(self, name, value):
        self._log.append("set " + name)
        setattr(self._target, name, value)

    def __delattr__(self, name):
        delattr(self._target, name)

    def __dir__(self):
        return ["k"]


class Bag:
    pass


@program(lambda: (x(), Proxy(Bag())), graphs=1)
def proxies(a, p):
    p.k = a + 1
    p.j = 2
    out = p.k * p.j
    del p.j
    return out, hasattr(p, "j"), p._log


class Watched:
    def __init__(self):
        self.count = 0
        self.v = 3

    def __getattribute__(self, name):
        if name == "v":
            object.__setattr__(self, "count", object.__getattribute__(self, "count") + 1)
        return super().__getattribute__(name)


@program(lambda: (x(), Watched()), graphs=1)
def getattribute(a, w):
    return a * w.v + w.v, w.count


class Money:
    def __init__(self, n):
        self.n = n

    def __iadd__(self, other):
        self.n += getattr(other, "n", other)
        return self

    def __sub__(self, other):
        return Money(self.n - getattr(other, "n", other))

    def __rsub__(self, other):
        return Money(other - self.n)

    def __matmul__(self, other):
        return ("matmul", self.n, other)

    def __rmatmul__(self, other):
        return ("rmatmul", other, self.n)

    def __divmod__(self, other):
        return divmod(self.n, other)

    def __floordiv__(self, other):
        return self.n // other

    def __mod__(self, other):
        return self.n % other

    def __pow__(self, other, mod=None):
        return pow(self.n, other, mod)

    def __lshift__(self, other):
        return self.n << other

    def __and__(self, other):
        return self.n & other

    def __or__(self, other):
        return self.n | other

    def __xor__(self, other):
        return self.n ^ other

    def __invert__(self):
        return ~self.n

    def __pos__(self):
        return Money(+self.n)

    def __abs__(self):
        return abs(self.n)

    def __int__(self):
        return self.n

    def __index__(self):
        return self.n

    def __float__(self):
        return float(self.n)

    def __round__(self, digits=None):
        return ("round", digits)

    def __truediv__(self, other):
        return NotImplemented

    def __rtruediv__(self, other):
        return ("rtruediv", other)

    def __eq__(self, other):
        return isinstance(other, Money) and self.n == other.n

    def __lt__(self, other):
        return self.n < other.n

    def __hash__(self):
        return hash(self.n)


@program(lambda: (x(), Money(7)), graphs=1)
def all_operators(a, m):
    m += 3
    m += Money(1)
    log = [(m - 2).n, (100 - m).n, m @ 3, 4 @ m, m // 2, m % 4, m**2]
    log += [m << 1, m & 3, m | 4, m ^ 1, ~m, (+m).n, abs(m), int(m), float(m), 8 / m]
    return a * m.n, log


@program(lambda: (x(), Money(7)), graphs=1)
def builtin_protocols(a, m):
    return (
        a + int(m),
        divmod(m, 3),
        pow(m, 2, 5),
        round(m),
        round(m, 2),
        [0, 1, 2, 3, 4, 5, 6, 7, 8][m],
        list(range(m))[-1],
        hash(m) == hash(7),
        bin(m),
        a[Money(1)],
    )


@program(lambda: (x(), Money(7)), graphs=1)
def unsupported_operators(a, m):
    log = []
    for fn in (lambda: m / 2, lambda: m * 2, lambda: -m, lambda: m[0], lambda: len(m)):
        try:
            fn()
        except TypeError as e:
            log.append(str(e))
    return a + 1, log


@program(lambda: (x(), [Money(3), Money(1), Money(2)]), graphs=1)
def compared_by_methods(a, items):
    items.sort()
    return (
        a * items[0].n,
        [m.n for m in sorted(items, reverse=True)],
        max(items).n,
        min(items).n,
        Money(2) in items,
        items.index(Money(3)),
        items.count(Money(1)),
        Money(1) != Money(2),
        (Money(1), 2) == (Money(1), 2),
    )


@functools.total_ordering
class Grade:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


@program(lambda: (x(), Grade(1), Grade(2)), graphs=1)
def total_ordering(a, p, q):
    return a + 1, p <= q, p > q, p >= q, p != q


class Tensorish:
    """Arithmetic of its own with tensors on either side."""

    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Tensorish(self.v + other)

    def __radd__(self, other):
        return Tensorish(other + self.v)

    def __rmul__(self, other):
        return Tensorish(other * self.v * 2)

    def __getitem__(self, key):
        return Tensorish(self.v[key])

    def __setitem__(self, key, value):
        self.v[key] = value

    def __len__(self):
        return len(self.v)


@program(lambda: (x(), x()), graphs=1)
def mixed_with_tensors(a, b):
    t = Tensorish(a.clone())
    t[0] = 1.0
    return (t + b).v, (b + t).v, (b * t).v, t[1:, 0].v, len(t), (2 * t).v


class Wrapped:
    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [v.t if isinstance(v, Wrapped) else v for v in args]
        return Wrapped(func(*plain, **(kwargs or {})))


@program(lambda: (x(), Wrapped(x())), graphs=1)
def torch_function(a, w):
    y = torch.add(a, w)
    z = torch.sin(w)
    return y.t * z.t, type(torch.mul(w, 2)).__name__


class Matrix(collections.abc.Sequence):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, i):
        return self.rows[i]

    def __len__(self):
        return len(self.rows)


class Frozen(collections.abc.Mapping):
    def __init__(self, **items):
        self.items_ = items

    def __getitem__(self, key):
        return self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class Recorded(collections.abc.MutableMapping):
    def __init__(self):
        self.store = {}
        self.log = []

    def __getitem__(self, key):
        return self.store[key]

    def __setitem__(self, key, value):
        self.log.append(key)
        self.store[key] = value

    def __delitem__(self, key):
        del self.store[key]

    def __iter__(self):
        return iter(self.store)

    def __len__(self):
        return len(self.store)


@program(lambda: (x(), Matrix([1, 2, 3])), graphs=1)
def abstract_sequence(a, m):
    return (
        a + m[0],
        list(m),
        list(reversed(m)),
        m.index(2),
        m.count(3),
        2 in m,
        isinstance(m, collections.abc.Sequence),
    )


@program(lambda: (x(), Frozen(p=1, q=2)), graphs=1)
def abstract_mapping(a, f):
    return (
        a * f["p"],
        dict(f),
        {**f, "r": 3},
        f.get("z", 9),
        list(f.items()),
        "p" in f,
        (lambda **k: sorted(k))(**f),
        f == {"p": 1, "q": 2},
    )


@program(lambda: (x(), Recorded()), graphs=1)
def mutable_mapping(a, r):
    r["p"] = a + 1
    r.update(q=2)
    r.setdefault("s", 5)
    popped = r.pop("q")
    return r["p"] * popped, r.log, list(r), r.pop("none", None)


@program(lambda: (x(),), graphs=1)
def abstract_checks(a):
    class_checks = [
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        isinstance(a, collections.abc.Iterable),
        isinstance(iter([]), collections.abc.Iterator),
        isinstance(len, collections.abc.Callable),
        isinstance((), collections.abc.Hashable),
        issubclass(dict, collections.abc.MutableMapping),
    ]
    return a + 1, class_checks


class Multi(int):
    def doubled(self):
        return self * 2


class Label(str):
    def shout(self):
        return self.upper() + "!"


@program(lambda: (x(), Multi(3), Label("k")), graphs=1)
def value_subclasses(a, m, text):
    return a * m + m.doubled(), text.shout(), text + "z", {"k": 4}[text], m == 3, len(text)


class A:
    def f(self, v):
        return v + 1


class B(A):
    def f(self, v):
        return super().f(v) * 2


class C(A):
    def f(self, v):
        return super().f(v) * 3


class D(B, C):
    def f(self, v):
        return super().f(v) - 1

    @classmethod
    def name(cls):
        return super().__name__ if hasattr(super(), "__name__") else cls.__name__

    @property
    def doubled(self):
        return self.f(2) * 2


@program(lambda: (x(), D()), graphs=1)
def diamond(a, d):
    return d.f(a), [c.__name__ for c in D.__mro__], d.doubled, isinstance(d, C), D.name()


class Indirect:
    def __init__(self, k):
        self.k = k

    def __call__(self, v, *, by=1):
        return v * self.k * by

    def __enter__(self):
        self.k += 1
        return self

    def __exit__(self, kind, error, trace):
        self.k -= 1
        return kind is KeyError


@program(lambda: (x(), Indirect(2)), graphs=1)
def called_and_entered(a, f):
    with f as g:
        a = g(a, by=3)
    with f:
        raise KeyError("swallowed")
    return f(a), callable(f), f.k


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n

    def __length_hint__(self):
        return self.n


@program(lambda: (x(), Countdown(4)), graphs=1)
def iterator_object(a, c):
    first = next(c)
    rest = list(c)
    p, q = Countdown(2)
    return a * first, rest, next(c, "end"), p + q, [*Countdown(3)], sum(Countdown(4))


class Strange:
    def __len__(self):
        return 2

    def __contains__(self, v):
        return v > 3

    def __reversed__(self):
        return iter("ba")

    def __format__(self, spec):
        return f"<{spec}>"

    def __missing__(self, key):
        return key


@program(lambda: (x(), Strange()), graphs=1)
def other_protocols(a, s):
    return a + len(s), 5 in s, 1 in s, list(reversed(s)), f"{s:>3}", bool(s), format(s, "q")


class Base(abc.ABC):
    @property
    @abc.abstractmethod
    def size(self): ...

    @classmethod
    def make(cls):
        return cls()


class Real(Base):
    @property
    def size(self):
        return 4


@program(lambda: (x(),), graphs=1)
def abstract_base(a):
    log = []
    try:
        Base()
    except TypeError as e:
        log.append(str(e)[:40])
    return a * Real.make().size, log, isinstance(Real(), Base)


class Tracked:
    made = 0
    items: list = []

    def __init__(self):
        Tracked.made += 1
        type(self).items.append(self.made)


@program(lambda: (x(),), breaks=None)
def class_attributes_change(a):
    before = Tracked.made
    Tracked()
    t = Tracked()
    n = Tracked.made - before
    Tracked.made = before
    Tracked.items.clear()
    return a * n, len(t.items)


class Dictish(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


@program(lambda: (x(), Dictish(rate=2)), graphs=1)
def attribute_dict(a, d):
    d.other = a + 1
    return d.other * d.rate, hasattr(d, "zz"), sorted(d)


class Default(dict):
    def __missing__(self, key):
        value = self[key] = len(key)
        return value


@program(lambda: (x(), Default(a=1)), graphs=1)
def missing_keys(a, d):
    return a * d["four"] + d["a"], dict(d), d.get("nothing")
