"""Objects: classes of the user's, dataclasses, enums, properties, descriptors, super."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
from dataclasses import dataclass, field

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


class Counter:
    total = 0
    scale = 3

    def __init__(self, start=0):
        self.n = start
        self.seen = []

    def step(self, v):
        self.n += 1
        self.seen.append(v)
        return v * self.n * self.scale

    @property
    def double(self):
        return self.n * 2

    @double.setter
    def double(self, v):
        self.n = v // 2

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def twice(v):
        return v * 2


@program(lambda: (x(), Counter()), graphs=1)
def changes_object(a, c):
    c.step(a)
    c.note = "new"
    return c.step(a) + c.n


@program(lambda: (x(), Counter(4)), graphs=1)
def properties(a, c):
    c.double = 20
    return a + c.double, c.n


@program(lambda: (x(),), graphs=1)
def makes_object(a):
    c = Counter.make(2)
    y = c.step(a)
    return Counter.twice(y), c


@program(lambda: (x(), Counter()), graphs=1)
def deletes_attribute(a, c):
    del c.seen
    return a + 1, hasattr(c, "seen"), getattr(c, "zz", 5)


@program(lambda: (x(), Counter()), graphs=1)
def dynamic_attributes(a, c):
    setattr(c, "p", a + 1)
    return (
        getattr(c, "p") * 2,
        hasattr(c, "n"),
        c.__class__.__name__,
        type(c) is Counter,
        vars(c)["n"],
    )


@dataclass
class Config:
    size: int
    rate: float = 0.5
    names: list = field(default_factory=list)

    def scaled(self, v):
        return v * self.size * self.rate


@dataclass(frozen=True)
class Fixed:
    u: int
    v: int = 2


@program(lambda: (x(), Config(3)), graphs=1)
def dataclasses_(a, c):
    d = Config(2, names=["p"])
    e = dataclasses.replace(c, size=5)
    return c.scaled(a) + d.scaled(a) + e.size, d, Fixed(1), Fixed(1) == Fixed(1, 2), d == c


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def warm(self):
        return self is Color.RED


class Flags(enum.IntFlag):
    P = 1
    Q = 2


@program(lambda: (x(), Color.RED), graphs=1)
def enums(a, c):
    if c is Color.RED and c.warm and c != Color.BLUE:
        a = a + c.value
    return a + Flags.P, c.name, [m.name for m in Color], Color["BLUE"], Color(2), {c: 1}[Color.RED]


class Base:
    def __init__(self, k):
        self.k = k

    def run(self, v):
        return v + self.k

    def __call__(self, v):
        return self.run(v)


class Derived(Base):
    def __init__(self, k, m):
        super().__init__(k)
        self.m = m

    def run(self, v):
        return super().run(v) * self.m


class Third(Derived):
    def run(self, v):
        return super(Derived, self).run(v) - 1


@program(lambda: (x(), Derived(1, 2)), graphs=1)
def inheritance(a, d):
    return (
        d(a) + Derived(3, 4)(a) + Third(1, 1).run(a),
        isinstance(d, Base),
        issubclass(Third, Base),
    )


class Vector:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Vector(self.v + (other.v if isinstance(other, Vector) else other))

    def __radd__(self, other):
        return Vector(other + self.v)

    def __mul__(self, k):
        return Vector(self.v * k)

    def __getitem__(self, i):
        return self.v[i]

    def __len__(self):
        return 7

    def __eq__(self, other):
        return self.v is other.v

    def __hash__(self):
        return 3

    def __bool__(self):
        return False

    def __neg__(self):
        return Vector(-self.v)

    def __contains__(self, v):
        return v == 5

    def __iter__(self):
        return iter([self.v, self.v + 1])

    def __lt__(self, other):
        return True

    def __enter__(self):
        return self.v

    def __exit__(self, *exc):
        return False


@program(lambda: (x(),), graphs=1)
def operators(a):
    v = Vector(a)
    w = v + v * 2 + 1
    u = 1 + w
    with v as t:
        a = a + t
    p, q = v
    return (-u)[0] + len(v), bool(v), 5 in v, v == v, v < w, [i for i in v], p + q, not v


class Lazy:
    def __getattr__(self, name):
        if name.startswith("get_"):
            return len(name)
        raise AttributeError(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)


@program(lambda: (x(), Lazy()), graphs=1)
def attribute_hooks(a, z):
    z.k = 4
    return a + z.get_it + z.k, hasattr(z, "nothing")


class Typed:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 0) + 1

    def __set__(self, obj, value):
        setattr(obj, self.name, value)


class Holder:
    t = Typed()
    __slots__ = ("_t", "z")


class Open:
    t = Typed()


@program(lambda: (x(), Open()), graphs=1)
def descriptors(a, o):
    o.t = 5
    return a + o.t, o._t


@program(lambda: (x(),), graphs=1)
def slots(a):
    h = Holder()
    h.t = 2
    h.z = a + 1
    return h.t + h.z, h


class Cached:
    def __init__(self):
        self.calls = 0

    @functools.cached_property
    def value(self):
        self.calls += 1
        return 42


@program(lambda: (x(), Cached()), graphs=1)
def cached_property(a, c):
    return a + c.value + c.value, c.calls


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def area(self):
        return 9


@program(lambda: (x(),), graphs=1)
def abstract_classes(a):
    return a + Square().area(), isinstance(Square(), Shape)


class Singleton:
    _made = None

    def __new__(cls, k):
        o = super().__new__(cls)
        o.k = k + 1
        return o


@program(lambda: (x(),), graphs=1)
def new_method(a):
    return a + Singleton(3).k


class Node:
    def __init__(self, v, next_=None):
        self.v = v
        self.next = next_


@program(lambda: (x(), Node(1, Node(2, Node(3)))), graphs=1)
def linked_list(a, node):
    while node is not None:
        a = a + node.v
        node.v = a
        node = node.next
    return a


@program(lambda: (x(),), graphs=1)
def cyclic_objects(a):
    n = Node(a)
    n.next = n
    return n.next.next.v + 1, n


@functools.lru_cache(maxsize=None)
def cached(n):
    return n * 3


@program(lambda: (x(),), graphs=1)
def lru_cache(a):
    return a + cached(2)


def trace(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) + 1

    return wrapper


@trace
def decorated(v, k=2):
    return v * k


@program(lambda: (x(),), graphs=1)
def decorators(a):
    return decorated(a) + decorated(a, k=3)


class Bound:
    def __init__(self):
        self.f = self.g

    def g(self, v):
        return v + 1


@program(lambda: (x(), Bound()), graphs=1)
def bound_method_attribute(a, b):
    m = b.f
    return m(a), (b.g)(a)


class Meta(type):
    def __call__(cls, *args):
        o = super().__call__(*args)
        o.tagged = True
        return o


class Tagged(metaclass=Meta):
    def __init__(self, k):
        self.k = k


@program(lambda: (x(),), graphs=1)
def metaclass(a):
    t = Tagged(4)
    return a + t.k, t.tagged


@program(lambda: (torch.randn(3, requires_grad=True),), graphs=1)
def classes_of_its_own(a):
    pair = collections.namedtuple("pair", "first second", defaults=[3])
    both = pair(a)
    constants = type("constants", (), {"k": 4, "times": lambda self, v: v * self.k})
    first, second = both._replace(second=2)
    return first * both.second + constants.k, constants().times(second), both._asdict()["first"]


@program(lambda: (torch.randn(3),), breaks=None)
def classes_of_its_own_that_leave(a):
    pair = collections.namedtuple("pair", ["first", "second"])
    made = pair(a * 2, 1)
    return tuple(made), made._fields, pair.__name__, pair.__module__, isinstance(made, tuple)


@program(lambda: (torch.randn(3),), breaks=None)
def an_instance_of_its_own_class_leaves(a):
    pair = collections.namedtuple("pair", "first second")
    return pair(a * 2, 1).first, repr(pair(1, 2)), [pair(3, 4)][0][0]
