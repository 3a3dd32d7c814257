"""Integer expressions over named sizes: a small algebra with one normal form.

An expression is a polynomial with integer coefficients over *atoms*: symbols (`s0`), floor
divisions, remainders, maxima and minima that did not simplify. Equal polynomials are equal objects
by `==` and hash. `Relation` compares an expression with zero. Everything prints as Python.

Python's `//` and `%` (floor, sign of the divisor) are meant throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

__all__ = ["Atom", "Expr", "IntLike", "Range", "Relation", "maximum", "minimum", "symbol"]

Monomial: TypeAlias = tuple[tuple["Atom", int], ...]  # atoms with their powers, sorted
IntLike: TypeAlias = "Expr | int"


@dataclass(frozen=True, slots=True, repr=False)
class Range:
    """The ints from lo to hi, both included; None is unbounded."""

    lo: int | None
    hi: int | None

    def __repr__(self) -> str:
        lo = "-int_oo" if self.lo is None else self.lo
        return f"VR[{lo}, {'int_oo' if self.hi is None else self.hi}]"

    @property
    def lower(self) -> float:
        """The lower end, by torch's name; infinite where there is none."""
        return self._ends()[0]

    @property
    def upper(self) -> float:
        """The upper end, by torch's name; infinite where there is none."""
        return self._ends()[1]

    def __contains__(self, n: int) -> bool:
        return (self.lo is None or n >= self.lo) and (self.hi is None or n <= self.hi)

    def __add__(self, other: Range) -> Range:
        return Range(_plus(self.lo, other.lo), _plus(self.hi, other.hi))

    def __mul__(self, other: Range) -> Range:
        ends = [_times(a, b) for a in self._ends() for b in other._ends()]
        lo, hi = min(ends), max(ends)
        return Range(None if lo == -math.inf else int(lo), None if hi == math.inf else int(hi))

    def power(self, n: int) -> Range:
        """The range of x**n."""
        made = self
        for _ in range(n - 1):
            made = made * self
        if n % 2 == 0:
            made = made.meet(Range(0, None))
        return made

    def meet(self, other: Range) -> Range:
        """What is in both; empty where lo > hi."""
        los = [v for v in (self.lo, other.lo) if v is not None]
        his = [v for v in (self.hi, other.hi) if v is not None]
        return Range(max(los, default=None), min(his, default=None))

    @property
    def empty(self) -> bool:
        """Whether no int is in it."""
        return self.lo is not None and self.hi is not None and self.lo > self.hi

    @property
    def single(self) -> int | None:
        """The one int in it, or None."""
        return self.lo if self.lo is not None and self.lo == self.hi else None

    def _ends(self) -> tuple[float, float]:
        return (
            -math.inf if self.lo is None else self.lo,
            math.inf if self.hi is None else self.hi,
        )


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _times(a: float, b: float) -> float:
    if a == 0 or b == 0:
        return 0
    if math.inf in (abs(a), abs(b)):  # ints may be beyond all floats
        return math.inf if (a > 0) == (b > 0) else -math.inf
    return a * b


ANY = Range(None, None)


@dataclass(frozen=True, slots=True)
class Atom:
    """What a polynomial treats as a variable. `kind` is symbol, floordiv, mod, max or min."""

    kind: str
    name: str = ""
    args: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        if self.kind == "symbol":
            return self.name
        if self.kind in ("max", "min"):
            return f"{self.kind}({', '.join(map(str, self.args))})"
        sign = "//" if self.kind == "floordiv" else "%"
        return f"({self.args[0].factor()} {sign} {self.args[1].factor()})"

    def __lt__(self, other: Atom) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[bool, int, str]:
        text = str(self)
        return (self.kind != "symbol", len(text), text)

    def value(self, env: Mapping[str, int]) -> int:
        """The number it is where symbols have the values in env. ZeroDivisionError as Python's."""
        if self.kind == "symbol":
            return env[self.name]
        numbers = [a.value(env) for a in self.args]
        if self.kind in ("max", "min"):
            return max(numbers) if self.kind == "max" else min(numbers)
        a, b = numbers
        return a // b if self.kind == "floordiv" else a % b


class Expr:
    """A polynomial: a mapping from monomial to coefficient, without zeros."""

    __slots__ = ("terms", "_hash", "__dict__")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {m: c for m, c in terms.items() if c}
        self._hash = hash(frozenset(self.terms.items()))

    # ---- what it is ----

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Expr):
            return self._hash == other._hash and self.terms == other.terms
        return self.constant == other if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    @property
    def constant(self) -> int | None:
        """The int that it is, or None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1:
            return self.terms.get(())
        return None

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names in it."""
        found: set[str] = set()
        for monomial in self.terms:
            for atom, _ in monomial:
                if atom.kind == "symbol":
                    found.add(atom.name)
                for a in atom.args:
                    found |= a.symbols
        return frozenset(found)

    @property
    def name(self) -> str | None:
        """The symbol's name if the expression is just one symbol."""
        if len(self.terms) == 1:
            ((monomial, c),) = self.terms.items()
            if c == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                return monomial[0][0].name or None
        return None

    @cached_property
    def text(self) -> str:
        """Python source."""
        if not self.terms:
            return "0"
        parts: list[str] = []
        order = sorted(self.terms.items(), key=_print_order)
        if order[0][1] < 0 and self.terms.get((), 0) > 0:
            order.insert(0, order.pop())  # `6 - u0`
        for monomial, c in order:
            factors = [str(a) for a, p in monomial for _ in range(p)]
            if abs(c) != 1 or not factors:
                factors.insert(0, str(abs(c)))
            parts.append(("- " if c < 0 else "+ ") + "*".join(factors))
        first = parts[0]
        parts[0] = first[2:] if first[0] == "+" else "-" + first[2:]
        return " ".join(parts)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def factor(self) -> str:
        """The text, in parentheses where an operator may stand beside it."""
        c = self.constant
        if (c is not None and c >= 0) or _own_atom(self) is not None:
            return self.text
        return f"({self.text})"

    # ---- arithmetic ----

    def __add__(self, other: IntLike) -> Expr:
        return _sum(self, other)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: IntLike) -> Expr:
        return self + -expr(other)

    def __rsub__(self, other: IntLike) -> Expr:
        return expr(other) - self

    def __mul__(self, other: IntLike) -> Expr:
        return _multiple(self, other)

    __rmul__ = __mul__

    def __pow__(self, n: int) -> Expr:
        """A power with a constant exponent of at least 0."""
        if len(self.terms) == 1:
            ((monomial, c),) = self.terms.items()
            return Expr({tuple((atom, power * n) for atom, power in monomial if n): c**n})
        made = Expr({(): 1})
        for _ in range(n):
            made = made * self
        return made

    def __floordiv__(self, other: IntLike) -> Expr:
        whole, rest, by = _divided(self, expr(other))
        if not rest.terms:
            return whole
        return whole + _atom("floordiv", rest, by)

    def __rfloordiv__(self, other: IntLike) -> Expr:
        return expr(other) // self

    def __mod__(self, other: IntLike) -> Expr:
        _, rest, by = _divided(self, expr(other))
        return _atom("mod", rest, by) if rest.terms else rest

    def __rmod__(self, other: IntLike) -> Expr:
        return expr(other) % self

    # ---- evaluation ----

    def value(self, env: Mapping[str, int]) -> int:
        """The number it is where symbols have the values in env (KeyError where one is missing)."""
        total = 0
        for monomial, c in self.terms.items():
            for atom, power in monomial:
                c *= atom.value(env) ** power
            total += c
        return total

    def replaced(self, by: Mapping[str, Expr]) -> Expr:
        """Symbols replaced, and everything simplified again."""
        if not any(name in by for name in self.symbols):
            return self
        total = Expr({})
        for monomial, c in self.terms.items():
            part = Expr({(): c})
            for atom, power in monomial:
                part = part * _replaced(atom, by) ** power
            total = total + part
        return total

    def range(self, of: Callable[[str], Range]) -> Range:
        """Bounds of its value where each symbol is within its range.

        A factor that all terms but the constant share is taken out first: `s0*s1 - s1` is
        `s1*(s0 - 1)`, whose sign the ranges tell.
        """
        linear = self._linear_range(of)
        if linear is not None:
            return linear
        rest = {m: c for m, c in self.terms.items() if m}
        common = _common(list(rest))
        if common and len(rest) > 1:
            inner = Expr({_quotient(m, common) or (): c for m, c in rest.items()})
            return Range(self.terms.get((), 0), self.terms.get((), 0)) + (
                inner.range(of) * _term_range(common, 1, of)
            )
        total = Range(0, 0)
        for monomial, c in self.terms.items():
            total = total + _term_range(monomial, c, of)
        return total

    def _linear_range(self, of: Callable[[str], Range]) -> Range | None:
        """`range` of a sum of multiples of symbols, which most are; None for others."""
        lo: int | None = 0
        hi: int | None = 0
        least: int | None
        most: int | None
        for monomial, c in self.terms.items():
            if not monomial:
                least = most = c
            elif len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].kind == "symbol":
                found = of(monomial[0][0].name)
                least, most = (found.lo, found.hi) if c > 0 else (found.hi, found.lo)
                least = None if least is None else least * c
                most = None if most is None else most * c
            else:
                return None
            lo = None if lo is None or least is None else lo + least
            hi = None if hi is None or most is None else hi + most
        return Range(lo, hi)


# Sizes are added, multiplied and compared over and over, the same ones in every stage.
_KEPT = 8192


@lru_cache(_KEPT)
def _sum(a: Expr, b: IntLike) -> Expr:
    out = dict(a.terms)
    for m, c in expr(b).terms.items():
        out[m] = out.get(m, 0) + c
    return Expr(out)


@lru_cache(_KEPT)
def _multiple(a: Expr, b: IntLike) -> Expr:
    out: dict[Monomial, int] = {}
    for m, c in a.terms.items():
        for n, d in expr(b).terms.items():
            k = _product(m, n)
            out[k] = out.get(k, 0) + c * d
    return Expr(out)


def _term_range(monomial: Monomial, c: int, of: Callable[[str], Range]) -> Range:
    part = Range(c, c)
    for atom, power in monomial:
        part = part * _range(atom, of).power(power)
    return part


def _common(monomials: list[Monomial]) -> Monomial:
    """The factor that all monomials share."""
    if not monomials:
        return ()
    powers = dict(monomials[0])
    for m in monomials[1:]:
        other = dict(m)
        powers = {a: min(p, other[a]) for a, p in powers.items() if a in other}
    return tuple(sorted(powers.items()))


def _print_order(item: tuple[Monomial, int]) -> tuple[bool, bool, str]:
    monomial, c = item
    return (not monomial, c < 0, "*".join(str(a) for a, _ in monomial))


def _product(m: Monomial, n: Monomial) -> Monomial:
    if not m or not n:
        return m or n
    powers = dict(m)
    for atom, p in n:
        powers[atom] = powers.get(atom, 0) + p
    return tuple(sorted(powers.items()))


def _quotient(m: Monomial, n: Monomial) -> Monomial | None:
    """m / n where every atom of n is in m often enough."""
    powers = dict(m)
    for atom, p in n:
        left = powers.get(atom, 0) - p
        if left < 0:
            return None
        powers[atom] = left
    return tuple(sorted((a, p) for a, p in powers.items() if p))


def _divided(a: Expr, b: Expr) -> tuple[Expr, Expr, Expr]:
    """a // b as (whole, rest, by): a // b == whole + rest // by, and a % b == scale·(rest % by).

    `floor((q·b + r) / b) = q + floor(r / b)` for ints: terms that b divides leave the division.
    ZeroDivisionError for a constant zero.
    """
    if b.constant is not None:
        by = b.constant
        if not by:
            raise ZeroDivisionError("integer division or modulo by zero")
        whole = {m: c // by for m, c in a.terms.items()}
        rest = Expr({m: c % by for m, c in a.terms.items()})
        if rest.constant is not None:  # |rest| < |by| and of its sign
            return Expr(whole), rest if rest.terms else Expr({}), b
        # Terms are only split off whole: 5·s // 2 stays readable as it was written.
        kept = {m: c for m, c in a.terms.items() if c % by and m}
        out = {m: c // by for m, c in a.terms.items() if not c % by or not m}
        constant = a.terms.get((), 0) % by
        if constant:
            kept[()] = constant
        return Expr(out), Expr(kept), b
    if len(b.terms) == 1:
        ((monomial, factor),) = b.terms.items()
        parts: dict[Monomial, int] = {}
        left: dict[Monomial, int] = {}
        for m, c in a.terms.items():
            smaller = _quotient(m, monomial)
            if smaller is None or c % factor:
                left[m] = c
            else:
                parts[smaller] = c // factor
        return Expr(parts), Expr(left), b
    return (Expr({(): 1}), Expr({}), b) if a == b else (Expr({}), a, b)


def _atom(kind: str, *args: Expr) -> Expr:
    """An atom as an expression; folded where all is constant."""
    numbers = [a.constant for a in args]
    if None not in numbers:
        return expr(Atom(kind, args=args).value({}))
    return Expr({((Atom(kind, args=args), 1),): 1})


def _replaced(atom: Atom, by: Mapping[str, Expr]) -> Expr:
    if atom.kind == "symbol":
        return by[atom.name] if atom.name in by else Expr({((atom, 1),): 1})
    args = [a.replaced(by) for a in atom.args]
    if atom.kind == "floordiv":
        return args[0] // args[1]
    if atom.kind == "mod":
        return args[0] % args[1]
    return maximum(*args) if atom.kind == "max" else minimum(*args)


def _range(atom: Atom, of: Callable[[str], Range]) -> Range:
    if atom.kind == "symbol":
        return of(atom.name)
    ranges = [a.range(of) for a in atom.args]
    if atom.kind in ("max", "min"):
        los = [r.lo for r in ranges]
        his = [r.hi for r in ranges]
        if atom.kind == "max":
            return Range(
                max((v for v in los if v is not None), default=None),
                None if None in his else max(v for v in his if v is not None),
            )
        return Range(
            None if None in los else min(v for v in los if v is not None),
            min((v for v in his if v is not None), default=None),
        )
    a, b = ranges
    if b.lo is None or b.lo < 1:
        return ANY
    if atom.kind == "mod":
        high = None if b.hi is None else b.hi - 1
        if a.lo is not None and a.lo >= 0:
            return Range(0, a.hi).meet(Range(0, high))
        return Range(0, high)
    ends = [b.lo, b.hi]
    lo = None if a.lo is None else min(_floor(a.lo, e) for e in ends)
    hi = None if a.hi is None else max(_floor(a.hi, e) for e in ends)
    return Range(lo, hi)


def _floor(a: int, b: int | None) -> int:
    """a // b; for an unbounded b what it tends to."""
    if b is None:
        return -1 if a < 0 else 0
    return a // b


def expr(value: IntLike) -> Expr:
    """An int as an expression."""
    return value if isinstance(value, Expr) else _constant(int(value))


@lru_cache(_KEPT)
def _constant(value: int) -> Expr:
    return Expr({(): value})


@lru_cache(_KEPT)
def symbol(name: str) -> Expr:
    """A named size."""
    return Expr({((Atom("symbol", name), 1),): 1})


def _extreme(kind: str, choose: Callable[[Iterable[int]], int]) -> Callable[..., Expr]:
    def extreme(*args: IntLike) -> Expr:
        best: int | None = None
        others: list[Expr] = []
        for a in map(expr, args):
            inner = _own_atom(a)
            for e in inner.args if inner is not None and inner.kind == kind else (a,):
                c = e.constant
                if c is not None:
                    best = c if best is None else choose((best, c))
                elif e not in others:
                    others.append(e)
        if not others:
            return expr(0 if best is None else best)
        others.sort(key=str)
        if best is not None:
            others.append(expr(best))
        return others[0] if len(others) == 1 else _atom(kind, *others)

    return extreme


def _own_atom(e: Expr) -> Atom | None:
    if len(e.terms) == 1:
        ((monomial, c),) = e.terms.items()
        if c == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            return monomial[0][0]
    return None


maximum = _extreme("max", max)
maximum.__doc__ = "The largest of several."
minimum = _extreme("min", min)
minimum.__doc__ = "The smallest of several."


@dataclass(frozen=True, slots=True)
class Relation:
    """`left op 0`, op one of `>=`, `==`, `!=`; made by the functions of this class."""

    op: str
    left: Expr

    @staticmethod
    def compare(a: IntLike, op: str, b: IntLike) -> Relation:
        """a op b, op one of Python's six."""
        return _relation(a, op, b)

    def negated(self) -> Relation:
        """The opposite."""
        if self.op == ">=":
            return Relation(">=", _normal(-self.left - 1, False))
        return Relation("!=" if self.op == "==" else "==", self.left)

    def value(self, env: Mapping[str, int]) -> bool:
        """Whether it holds."""
        n = self.left.value(env)
        return n >= 0 if self.op == ">=" else (n == 0) == (self.op == "==")

    def known(self, of: Callable[[str], Range]) -> bool | None:
        """Whether it holds wherever the symbols are within their ranges; None: it depends."""
        r = self.left.range(of)
        if self.op == ">=":
            if r.lo is not None and r.lo >= 0:
                return True
            return False if r.hi is not None and r.hi < 0 else None
        same: bool | None = None
        if r.single is not None:
            same = r.single == 0
        elif 0 not in r or _indivisible(self.left):
            same = False
        return same if self.op == "==" or same is None else not same

    def stronger(self) -> Iterator[Relation]:
        """Relations each of which implies this `>=`: for a maximum that is added, or a minimum that
        is subtracted, one of its arguments; for a quotient `q = a // k`, its bound
        `a - k + 1 <= k*q <= a`."""
        for monomial, c in self.left.terms.items():
            atom, power = monomial[0] if len(monomial) == 1 else (None, 0)
            if atom is not None and power == 1 and atom.kind == ("max" if c > 0 else "min"):
                rest = Expr({m: k for m, k in self.left.terms.items() if m != monomial})
                for a in atom.args:
                    yield Relation(">=", _normal(rest + a * c, False))
            k = atom.args[1].constant if atom is not None and atom.kind == "floordiv" else None
            if atom is not None and power == 1 and k is not None and k > 0:
                rest = Expr({m: n for m, n in self.left.terms.items() if m != monomial})
                least = atom.args[0] - (k - 1 if c > 0 else 0)
                yield Relation(">=", _normal(rest * k + least * c, False))

    def replaced(self, by: Mapping[str, Expr]) -> Relation:
        """Symbols replaced."""
        left = self.left.replaced(by)
        if left is self.left:
            return self
        return Relation(self.op, _normal(left, self.op != ">="))

    def __str__(self) -> str:
        positive = Expr({m: c for m, c in self.left.terms.items() if c > 0})
        negative = Expr({m: -c for m, c in self.left.terms.items() if c < 0})
        if self.op == ">=" and positive.constant is not None:
            return f"{negative} <= {positive}"
        return f"{positive} {self.op} {negative}"


@lru_cache(_KEPT)
def _relation(a: IntLike, op: str, b: IntLike) -> Relation:
    d = expr(a) - expr(b)
    if op in ("==", "!="):
        return Relation(op, _normal(d, True))
    if op in ("<", "<="):
        d = -d
    if op in ("<", ">"):
        d = d - 1
    return Relation(">=", _normal(d, False))


def _normal(d: Expr, equation: bool) -> Expr:
    """The common factor divided out, the sign fixed for equations: equal relations look equal."""
    factors = [abs(c) for m, c in d.terms.items() if m]
    if not factors:
        return d
    common = math.gcd(*factors)
    constant = d.terms.get((), 0)
    if common > 1 and not (equation and constant % common):
        # p·g + c >= 0 is p >= -c/g, that is p + floor(c/g) >= 0
        scaled = {m: c // common for m, c in d.terms.items() if m}
        scaled[()] = constant // common
        d = Expr(scaled)
    if equation:
        first = min(((m, c) for m, c in d.terms.items() if m), key=_print_order_of)
        if first[1] < 0:
            d = -d
    return d


def _print_order_of(item: tuple[Monomial, int]) -> str:
    return "*".join(str(a) for a, _ in item[0])


def _indivisible(d: Expr) -> bool:
    """Whether no ints make it zero because the factors share a divisor that the constant lacks."""
    factors = [abs(c) for m, c in d.terms.items() if m]
    common = math.gcd(*factors) if factors else 0
    return common > 1 and bool(d.terms.get((), 0) % common)
