"""Dataclasses, named tuples, enums."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import flambeau as torch
from tests.capture.comparing import program


def x():
    return torch.randn(3, 4)


@dataclass(frozen=True)
class Frozen:
    u: int
    v: float = 2.0


@dataclass(slots=True)
class Slotted:
    u: Any
    v: list = field(default_factory=list)


@dataclass(order=True)
class Ordered:
    key: int
    name: str = field(default="", compare=False)


@dataclass
class Post:
    size: int
    half: float = field(init=False)
    kind: ClassVar[str] = "post"
    scale: dataclasses.InitVar[int] = 1

    def __post_init__(self, scale):
        self.half = self.size / 2 * scale


@dataclass
class Wider(Post):
    extra: Any = None


@dataclass(kw_only=True)
class Named:
    w: Any
    b: Any = 0


@dataclass(eq=False)
class Plain:
    t: Any


@program(lambda: (x(), Frozen(3)), graphs=1)
def frozen(a, f):
    log = []
    try:
        f.u = 5
    except dataclasses.FrozenInstanceError as e:
        log.append(str(e))
    g = dataclasses.replace(f, v=4.0)
    return a * f.u + g.v, log, g, hash(f) == hash(Frozen(3))


@program(lambda: (x(), Slotted(1)), graphs=1)
def slotted(a, s):
    s.u = a + 1
    s.v.append(2)
    t = Slotted(s.u * 2)
    t.v += [1, 2]
    return t, s.u


@program(lambda: (x(), Ordered(1, "p"), Ordered(2, "q")), graphs=1)
def ordered(a, p, q):
    n = 2 if p < q else 3
    best = max([p, q, Ordered(0)])
    return a * n, best.name, p == Ordered(1, "z"), sorted([q, p])[0].name, p >= q


@program(lambda: (x(),), graphs=1)
def post_init(a):
    p = Post(4)
    w = Wider(6, 2, extra=a + 1)
    return w.extra * p.half + w.half, p, w.kind, Post.kind


@program(lambda: (x(),), graphs=1)
def keyword_only(a):
    n = Named(w=a * 2)
    log = []
    try:
        Named(a)
    except TypeError as e:
        log.append(str(e))
    return n.w + n.b, log


@program(lambda: (x(), Post(4), Frozen(1)), graphs=1)
def fields_of(a, p, f):
    names = [g.name for g in dataclasses.fields(p)]
    return a + len(names), names, dataclasses.is_dataclass(f), dataclasses.is_dataclass(5)


@program(lambda: (x(), Frozen(2), Slotted(1, [Frozen(3)])), graphs=1)
def as_containers(a, f, s):
    d = dataclasses.asdict(f)
    t = dataclasses.astuple(f)
    return a * d["u"] + t[1], d, t, dataclasses.asdict(s)


@program(lambda: (x(), Plain(torch.ones(4))), graphs=1)
def holds_tensor(a, p):
    p.t = p.t * 2
    q = dataclasses.replace(p, t=p.t + a)
    return q.t, p == q, p == p


@program(lambda: (x(), Slotted(2, [1])), graphs=1)
def copies(a, s):
    t = copy.copy(s)
    t.u = 7
    t.v.append(3)
    return a * t.u, s, t


@program(lambda: (x(), Frozen(2)), graphs=1)
def text_of_dataclass(a, f):
    return a + 1, f"{f}", repr(Ordered(3, "n"))


class Spot(NamedTuple):
    row: Any
    column: Any = 5

    @property
    def area(self):
        return self.row * self.column

    def moved(self, by):
        return self._replace(row=self.row + by)


Old = collections.namedtuple("Old", "p q r", defaults=[7])


@program(lambda: (x(), Spot(2, 3)), graphs=1)
def named_tuple_methods(a, spot):
    s = spot.moved(1)
    row, column = s
    return a * s.area + row - column, s, s._asdict(), s._fields, Spot._make([1, 2])


@program(lambda: (x(), Old(1, 2)), graphs=1)
def old_named_tuples(a, o):
    n = Old(a + 1, q=o.q)
    return n.p * n.r, n, o < Old(1, 3), o + (9,), o[1:], Old._field_defaults, o.index(2)


@program(lambda: (Spot(x(), 2),), graphs=1)
def named_tuple_of_tensors(s):
    return Spot(s.row * s.column, s)


class Color(enum.Enum):
    RED = 1
    GREEN = enum.auto()
    CRIMSON = 1

    def scaled(self, v):
        return v * self.value

    @classmethod
    def default(cls):
        return cls.GREEN

    def __str__(self):
        return f"color {self.name}"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    X = enum.auto()
    RW = R | W


class Bits(enum.IntFlag):
    P = 1
    Q = 2


class Planet(enum.Enum):
    EARTH = (5.9, 6.3)
    MARS = (6.4, 3.4)

    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius

    @property
    def ratio(self):
        return self.mass / self.radius


class Word(str, enum.Enum):
    YES = "yes"
    NO = "no"


@program(lambda: (x(), Color.RED), graphs=1)
def enum_methods(a, c):
    a = c.scaled(a) + Color.default().scaled(a)
    return a, Color.CRIMSON is c, str(c), c.name, list(Color), len(Color), c in Color


@program(lambda: (x(), Level.HIGH), graphs=1)
def int_enums(a, level):
    if level > Level.LOW:
        a = a * level + Level.LOW
    return a[: Level.LOW], level + 1, sorted([level, Level.LOW]), int(level), max(Level)


@program(lambda: (x(), Perm.R | Perm.X), graphs=1)
def flags(a, p):
    if Perm.R in p and Perm.W not in p:
        a = a + 1
    if p & Perm.X:
        a = a * 2
    q = p | Perm.W
    return a, q == Perm.R | Perm.W | Perm.X, ~p, p ^ Perm.R, bool(Perm(0)), Perm.RW.value


@program(lambda: (x(), Bits.P), graphs=1)
def int_flags(a, b):
    c = b | Bits.Q
    return a * c + (c & 2), c.value, Bits(3) is c, c == 3, isinstance(c, int)


@program(lambda: (x(), Planet.MARS), graphs=1)
def enum_with_values(a, p):
    return a * p.mass + p.ratio, [q.name for q in Planet if q.mass > 6], Planet((6.4, 3.4)) is p


@program(lambda: (x(), Word.YES), graphs=1)
def str_enums(a, w):
    if w == "yes":
        a = a + 1
    return a, w.upper(), {"yes": 1}[w], Word("no"), w.value, w + "!"


@program(lambda: (x(), {Color.RED: 1, Color.GREEN: 2}), graphs=1)
def enums_as_keys(a, table):
    for c in Color:
        a = a + table[c]
    table[Color.RED] = a.dim()
    return a, {c: c.value for c in Color}, {Color.RED, Color.GREEN} == set(Color)


@program(lambda: (x(),), graphs=1)
def enum_lookups(a):
    log = []
    try:
        Color(99)
    except ValueError as e:
        log.append(str(e))
    try:
        Color["NONE"]
    except KeyError as e:
        log.append(e.args)
    return a + Color["GREEN"].value, log, Color.__members__["RED"], getattr(Color, "RED").value
