"""The shape environment: symbols for sizes, what is known of them, and what was relied on.

A symbol stands for a size (backed: the value of the call being captured is its hint) or for a
number that only running will tell (unbacked: no hint). `decide` answers a relation: from the
ranges, from what was learnt before, or from the hints; only the last is a *guard*, recorded in
order. Nothing is ever forgotten; after `freeze` a new guard is refused, since whoever printed the
guards would not know of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flambeau._src.ir.conditions import Condition, Number, Real, junction
from flambeau._src.ir.integers import Expr, IntLike, Range, Relation, expr, symbol

__all__ = [
    "ConstraintViolationError",
    "GuardOnDataDependentSymNode",
    "FrozenShapes",
    "ShapeEnv",
    "ShapeGuard",
    "Symbol",
]

UNBACKED = ("u", "zuf")  # how names of ints and floats begin that only running will tell
FLOAT = "zf"  # how names of floats begin that programs are given
_LEAST = 2  # sizes 0 and 1 are not symbols: broadcasting treats them apart


class GuardOnDataDependentSymNode(RuntimeError):
    """A branch on a number that only running will tell (`cond`). `of_value`: its very value was
    asked for. `shown` is the condition as the program wrote it."""

    __module__ = "flambeau.fx.experimental.symbolic_shapes"

    def __init__(
        self, cond: Condition | Expr | Real, sizes: str, *, of_value: bool = False, shown: str = ""
    ) -> None:
        text = shown or (cond.as_call() if isinstance(cond, Condition) else str(cond))
        what = "extract specialized integer from" if of_value else "guard on"
        hint = (
            "consider using data-dependent friendly APIs such as guard_or_false, guard_or_true and "
            "statically_known_true.\n"
        )
        super().__init__(
            f"Could not {what} data-dependent expression {text} (unhinted: {text}).  "
            f"(Size-like symbols: {sizes or 'none'})\n\n{'' if of_value else hint}"
            f"The value of {', '.join(sorted(cond.symbols))} is known only when the program runs: "
            "say what holds of it with torch._check(...), or branch with torch.cond."
        )
        self.cond, self.sizes, self.of_value = cond, sizes, of_value

    def as_written(self, text: str) -> GuardOnDataDependentSymNode:
        """The same with the program's own words for the condition."""
        return GuardOnDataDependentSymNode(
            self.cond, self.sizes, of_value=self.of_value, shown=text
        )


class FrozenShapes(RuntimeError):
    """A stage relied on a size after the guards were printed."""


class ConstraintViolationError(RuntimeError):
    """A size that was promised to vary was found to be fixed, or bound to another."""

    __module__ = "flambeau.fx.experimental.symbolic_shapes"


@dataclass
class Symbol:
    """What is known of one symbol. `sources` are the places of a call where its value stands."""

    name: str
    hint: Any  # an int (of `FLOAT` a float), or None
    range: Range
    sources: list[Any] = field(default_factory=list)
    strict: str | None = None  # the place that was promised to vary, for the error if it does not
    promised: Range | None = None  # how far


@dataclass(frozen=True, slots=True)
class ShapeGuard:
    """A condition that held for the hints and was relied on."""

    condition: Condition
    reason: str = ""


class ShapeEnv:
    """Symbols and what is known of them. `on_guard` is called with each guard when it is new."""

    def __init__(
        self,
        *,
        duck_shape: bool = True,
        specialize_zero_one: bool = True,
        on_guard: Callable[[ShapeGuard], None] | None = None,
        allow_scalar_outputs: bool = True,
        allow_dynamic_output_shape_ops: bool = True,
    ) -> None:
        self.duck_shape, self.specialize_zero_one = duck_shape, specialize_zero_one
        self.allow_scalar_outputs = allow_scalar_outputs
        self.allow_dynamic_output_shape_ops = allow_dynamic_output_shape_ops
        self.on_guard = on_guard
        self.symbols: dict[str, Symbol] = {}
        self.guards: list[ShapeGuard] = []
        self.asserts: list[Condition] = []  # of unbacked symbols: checked when the program runs
        self.replacements: dict[str, Any] = {}  # expressions; of floats the number that one is
        self._facts: list[Relation] = []
        self._known: set[Condition] = set()
        self._equal: dict[tuple[Expr, IntLike], bool] = {}  # answers, which hold from then on
        self._hinted: dict[Expr, int] = {}
        self._ducks: dict[int, str] = {}
        self._frozen_by: str | None = None

    # ---- symbols ----

    def size(
        self,
        hint: int,
        source: Any,
        *,
        range_: Range | None = None,
        strict: str | None = None,
        duck: bool = True,
    ) -> IntLike:
        """The symbol of a size, or the int itself where it is 0 or 1.

        With `duck_shape`, sizes that are equal now share a symbol, and stay equal by guard.
        `strict` names a place that was promised to vary (then it is a symbol of its own).
        """
        if self.specialize_zero_one and hint in (0, 1) and strict is None:
            return hint
        if duck and self.duck_shape and strict is None and hint in self._ducks:
            name = self._ducks[hint]
            self.symbols[name].sources.append(source)
            return symbol(name).replaced(self.replacements)
        least = _LEAST if self.specialize_zero_one and hint >= _LEAST else 0
        made = self._new("s", hint, Range(least, None).meet(range_ or Range(None, None)))
        made.sources.append(source)
        made.strict = strict
        made.promised = made.range if strict is not None else None
        if duck and strict is None:
            self._ducks[hint] = made.name
        return symbol(made.name)

    def given(self, hint: int, source: Any) -> Expr:
        """The symbol of an int that programs are given at `source`: any number, 0 and 1 too."""
        made = self._new("s", hint, Range(None, None))
        made.sources.append(source)
        return symbol(made.name)

    def given_float(self, hint: float, source: Any) -> Real:
        """The symbol of a float that programs are given at `source`."""
        made = self._new(FLOAT, hint, Range(None, None))
        made.sources.append(source)
        return Real("real", (symbol(made.name),))

    def unbacked(self, range_: Range | None = None, prefix: str = "u") -> Expr:
        """A number that only running will tell."""
        return symbol(self._new(prefix, None, range_ or Range(None, None)).name)

    def _new(self, prefix: str, hint: Any, range_: Range) -> Symbol:
        number = sum(name.startswith(prefix) for name in self.symbols)
        made = Symbol(f"{prefix}{number}", hint, range_)
        self.symbols[made.name] = made
        return made

    def range_of(self, name: str) -> Range:
        """What the symbol's value is known to lie in."""
        return self.symbols[name].range

    def is_unbacked(self, name: str) -> bool:
        """Whether only running will tell its value."""
        return self.symbols[name].hint is None

    def hints(self) -> dict[str, Any]:
        """The values of this call, by name; unbacked symbols are left out."""
        return {s.name: s.hint for s in self.symbols.values() if s.hint is not None}

    def hint(self, e: IntLike) -> int | None:
        """The value of an expression in this call; None where an unbacked symbol is in it.

        For choices that are right whatever the value is (cost, block sizes): no guard.
        """
        given = expr(e)
        found = self._hinted.get(given)
        if found is None:
            e = given.replaced(self.replacements)
            if any(self.is_unbacked(name) for name in e.symbols):
                return None
            found = self._hinted[given] = e.value(self.hints())
        return found

    # ---- decisions ----

    def known(self, c: Condition, of: Callable[[str], Range] | None = None) -> bool | None:
        """Whether a condition holds for every call that passes the guards; None: it depends.

        `of` gives the symbols' ranges, where other ones than those known are to be supposed.
        """
        if c.kind != "relation":
            parts = [self.known(p, of) for p in c.parts]
            if c.kind == "not":
                return None if parts[0] is None else not parts[0]
            decisive = c.kind == "or"  # the truth of one part that decides the whole
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        r = c.relation
        if r is None:  # of real numbers: nothing is derived
            c = c.replaced(self.replacements)
            if not c.symbols:
                return c.value({})
            return True if c in self._known else False if c.negated() in self._known else None
        r = r.replaced(self.replacements)
        return self._known_relation(r, of or self.range_of)

    def _known_relation(self, r: Relation, of: Callable[[str], Range]) -> bool | None:
        found = r.known(of)
        if found is not None:
            return found
        if self._proved(r, of, self._facts):
            return True
        return False if self._proved(r.negated(), of, self._facts) else None

    def _proved(self, r: Relation, of: Callable[[str], Range], facts: list[Relation]) -> bool:
        if r.known(of) or any(fact == r or _follows(r, fact) for fact in facts):
            return True
        return r.op == ">=" and any(self._proved(w, of, facts) for w in r.stronger())

    def in_ranges(self, c: Condition) -> bool:
        """Whether the symbols' ranges alone say that a condition holds."""
        r = self._replaced(c).relation
        return r is not None and self._proved(r, self.range_of, [])

    def decide(self, c: Condition, reason: str = "", *, oblivious: bool = False) -> bool:
        """Whether a condition holds for this call; a guard if other calls may differ.

        `oblivious`: unbacked sizes count as neither 0 nor 1, where that tells. (The tensor library
        treats these apart only to save work or to broadcast.)
        Raises GuardOnDataDependentSymNode for unbacked symbols, FrozenShapes after `freeze`.
        """
        found = self.known(c)
        if found is not None:
            return found
        if self._depends_on_data(c):
            found = self.known(c, self.size_range) if oblivious else None
            if found is None:
                raise self.data_dependent(c)
            return found
        truth = c.value(self.hints())
        self._record(c if truth else c.negated(), reason)
        return truth

    def equal(self, a: Expr, b: IntLike) -> bool | None:
        """`decide` whether two expressions are equal; None where that depends on data."""
        found = self._equal.get((a, b))
        if found is None:
            c = Condition.compare(a, "==", b)
            if self.known(c) is None and self._depends_on_data(c):
                return None
            found = self._equal[a, b] = self.decide(c)
        return found

    def _depends_on_data(self, c: Condition) -> bool:
        return any(self.is_unbacked(name) for name in self._replaced(c).symbols)

    def size_range(self, name: str) -> Range:
        """`range_of`; of an unbacked size without 0 and 1."""
        found = self.range_of(name)
        if self.is_unbacked(name) and found.lo is not None and found.lo >= 0:
            supposed = found.meet(Range(_LEAST, None))
            return found if supposed.empty else supposed
        return found

    def data_dependent(self, c: Condition | Expr | Real) -> GuardOnDataDependentSymNode:
        """The error for a branch on c, or (for an expression) for its value."""
        replaced = c.replaced(self.replacements)
        found = c if isinstance(replaced, (int, float)) else replaced
        sizes = [
            name
            for name in sorted(found.symbols)
            if self.is_unbacked(name) and self.size_range(name) != self.range_of(name)
        ]
        return GuardOnDataDependentSymNode(
            found, ", ".join(sizes), of_value=isinstance(found, Expr)
        )

    def number(self, e: IntLike, reason: str = "") -> int:
        """The value of an expression, which is thereby fixed for this capture."""
        e = expr(e).replaced(self.replacements)
        c = e.constant
        if c is not None:
            return c
        found = e.range(self.range_of).single
        if found is not None:
            return found
        value = self.hint(e)
        if value is None:
            raise self.data_dependent(e)
        self.decide(Condition.of(Relation.compare(e, "==", value)), reason)
        return value

    def float_number(self, name: str, reason: str = "") -> float:
        """The value of a float that programs are given, which is thereby fixed, with its sign."""
        found = self.replacements.get(name)
        if found is None:
            value: float = self.symbols[name].hint
            of: Number = Real("real", (symbol(name),))
            self.decide(Condition.compare(of, "==", value), reason)
            if value == 0:
                sign = Real("copysign", (1.0, of))
                self.decide(Condition.compare(sign, "==", math.copysign(1.0, value)), reason)
            self.replacements[name] = found = value
        number: float = found
        return number

    def check(self, c: Condition, reason: str = "") -> None:
        """`torch._check`: from here on c holds. What hints cannot tell is asserted at run time.

        Raises RuntimeError where it is known not to hold.
        """
        found = self.known(c)
        if found is None and self._depends_on_data(c):
            self.asserts.append(c)
            self._learn(c)
            return
        if found is False or (found is None and not self.decide(c, reason)):
            raise RuntimeError(reason or f"Expected {c} to be True, but got False")

    def suppose(self, c: Condition) -> None:
        """c is so, whatever runs: nothing to guard or to assert."""
        self._learn(c)

    def _replaced(self, c: Condition) -> Condition:
        return c.replaced(self.replacements)

    def _record(self, c: Condition, reason: str) -> None:
        if self._frozen_by is not None:
            raise FrozenShapes(
                f"{c} was relied on after {self._frozen_by} fixed the guards: a stage must ask "
                "for it earlier"
            )
        guard = ShapeGuard(c, reason)
        self.guards.append(guard)
        self._learn(c)
        if self.on_guard is not None:
            self.on_guard(guard)

    def _learn(self, c: Condition) -> None:
        if c.kind == "and":
            for part in c.parts:
                self._learn(part)
            return
        self._known.add(c)
        if c.relation is None:
            return
        r = c.relation.replaced(self.replacements)
        self._facts.append(r)
        if r.op == ">=":
            self._bound(r.left)
        elif r.op == "==":
            self._solve(r.left)

    def _bound(self, left: Expr) -> None:
        """Narrow a symbol's range by `c·s + k >= 0`."""
        constant, rest = _split(left)
        if len(rest) != 1:
            return
        ((monomial, c),) = rest.items()
        name = _alone(monomial)
        if name is None:
            return
        s = self.symbols[name]
        s.range = s.range.meet(
            Range(-(constant // c), None) if c > 0 else Range(None, constant // -c)
        )
        if s.range.single is not None:
            self._replace(name, expr(s.range.single))

    def _solve(self, left: Expr) -> None:
        """`left == 0` for a symbol that occurs once, with the factor 1 or -1."""
        best: str | None = None
        for monomial, c in left.terms.items():
            name = _alone(monomial)
            if name is None or c not in (1, -1):
                continue
            others = sum(name in _names(m) for m in left.terms)
            if others == 1 and (best is None or self._rank(name) > self._rank(best)):
                best = name
        if best is not None:
            s = symbol(best)
            factor = next(c for m, c in left.terms.items() if _alone(m) == best)
            self._replace(best, s - left * factor)

    def _rank(self, name: str) -> tuple[bool, int]:
        """Which symbol gives way: an unbacked one, then the younger."""
        return (self.is_unbacked(name), list(self.symbols).index(name))

    def _replace(self, name: str, by: Expr) -> None:
        of = by.range(self.range_of).meet(self.symbols[name].range)
        other = by.name
        if other is not None:
            self.symbols[other].range = self.symbols[other].range.meet(of)
        self.symbols[name].range = of
        for end in ([] if of.lo is None else [by - of.lo]) + (
            [] if of.hi is None else [of.hi - by]
        ):
            self._bound(end)
        step = {name: by}
        self.replacements = {n: e.replaced(step) for n, e in self.replacements.items()}
        self.replacements[name] = by
        self._facts = [f.replaced(step) for f in self._facts]

    def simplified(self, e: IntLike) -> Expr:
        """The expression in the symbols that are left."""
        return expr(e).replaced(self.replacements)

    # ---- the end ----

    def freeze(self, by: str) -> None:
        """From now on a new guard raises FrozenShapes; `by` is who printed the guards."""
        self._frozen_by = by

    def conditions(self) -> Iterator[tuple[str, str]]:
        """`relied_on` as (Python text over symbols' names, reason)."""
        for c, reason in self.relied_on():
            yield str(c), reason

    def relied_on(self) -> Iterator[tuple[Condition, str]]:
        """What a call must fulfil, with the reasons.

        That sizes which share a symbol are equal is for whoever binds names to `sources`. Raises
        ConstraintViolationError where a size promised to vary does not.
        """
        self._check_promises()
        for s in self.symbols.values():
            if s.hint is None or not s.sources or isinstance(s.hint, float):
                continue
            lo, hi = s.range.lo, s.range.hi
            first = self.replacements.get(s.name)
            if first is not None and first.constant is not None:
                fixed = Condition.of(Relation.compare(symbol(s.name), "==", first))
                if any(g.condition == fixed for g in self.guards):
                    continue  # its guard says so
            if lo is not None and lo > 0:
                reason = "sizes 0 and 1 are captured apart"
                yield Condition.of(Relation.compare(symbol(s.name), ">=", lo)), reason
            if hi is not None:
                yield Condition.of(Relation.compare(symbol(s.name), "<=", hi)), ""
        for guard in self.guards:
            yield guard.condition, guard.reason

    def _check_promises(self) -> None:
        """What was promised to vary does, as far as it was promised."""
        found = [
            (s, text) for s in self.symbols.values() if s.strict for text in self._broken(s) if text
        ]
        if found:
            places = ", ".join(str(s.strict) for s, _ in found)
            raise ConstraintViolationError(
                f"Constraints violated ({places})! For more information, run with "
                'TORCH_LOGS="+dynamic".\n' + "\n".join(f"  - {text}" for _, text in found)
            )

    def _broken(self, s: Symbol) -> Iterator[str]:
        by, place = self.replacements.get(s.name), s.strict
        if by is not None and by.constant is not None:
            yield (
                f"You marked {place} as dynamic but your code specialized it to be a constant "
                f"({by}). If you're using mark_dynamic, either remove it or use "
                "maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either "
                "Dim.STATIC or Dim.AUTO."
            )
        elif by is not None:
            other = by.name and self.symbols[by.name].strict
            yield f"The values of {place} and {other or by} must always be equal."
        elif s.promised is not None and s.promised != s.range:
            yield (
                f"Not all values of {place} = {place} in the specified range "
                f"{_between(s.promised, str(place))} satisfy the generated guard "
                f"{_between(s.range, str(place), ' and ')}"
            )


def _between(r: Range, name: str, joint: str = "") -> str:
    """`3 <= name <= 10`, or as two comparisons."""
    if joint and r.lo is not None and r.hi is not None:
        return f"{r.lo} <= {name}{joint}{name} <= {r.hi}"
    low = "" if r.lo is None else f"{r.lo} <= "
    return f"{low}{name}" + ("" if r.hi is None else f" <= {r.hi}")


def _follows(wanted: Relation, fact: Relation) -> bool:
    """Whether `p >= 0` follows from `q >= 0` because p - q is a constant of at least 0."""
    if wanted.op == ">=" and fact.op == ">=":
        d = (wanted.left - fact.left).constant
        return d is not None and d >= 0
    if wanted.op == "!=" and fact.op == ">=":  # q >= 0 with q = ±p - c, c > 0: p is not zero
        for side in (wanted.left, -wanted.left):
            d = (side - fact.left).constant
            if d is not None and d > 0:
                return True
    return False


def _split(e: Expr) -> tuple[int, dict[Any, int]]:
    rest = dict(e.terms)
    return rest.pop((), 0), rest


def _alone(monomial: Any) -> str | None:
    """The symbol that a monomial is."""
    if len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].kind == "symbol":
        return str(monomial[0][0].name)
    return None


def _names(monomial: Any) -> frozenset[str]:
    return Expr({monomial: 1}).symbols


def all_of(conditions: list[Condition]) -> Condition:
    """That all of them hold."""
    return junction("and", conditions)
