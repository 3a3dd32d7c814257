"""Symbols for the sizes that may vary, and whether the trace kept what was promised of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau._src.compiler.errors import UserError, UserErrorType
from flambeau._src.export.dims import Dim, DimHint
from flambeau._src.export.shapes import Leaf
from flambeau._src.ir.conditions import Condition
from flambeau._src.ir.integers import Expr, IntLike, Range, Relation, symbol
from flambeau._src.ir.shape_env import ConstraintViolationError, ShapeEnv

__all__ = ["Sizes"]

_SYMBOL = re.compile(r"\bs\d+\b")


@dataclass
class _Name:
    """A `Dim` (None: a hint) with its symbol: the size that told its value, and its range."""

    dim: Dim | None
    symbol: str
    place: str
    wanted: Range

    @property
    def text(self) -> str:
        """As it is called in messages."""
        return self.place if self.dim is None else self.dim.__name__

    @property
    def both(self) -> str:
        """`batch = L['x'].size()[0]`."""
        return self.place if self.dim is None else f"{self.dim.__name__} = {self.place}"


class Sizes:
    """The sizes of a call as an export sees them.

    `given` has, by leaf, the expressions of sizes that are not fixed; `numbers` those of ints.
    """

    def __init__(self, env: ShapeEnv, found: Sequence[Leaf]) -> None:
        self.env = env
        self.given: list[dict[int, IntLike]] = [{} for _ in found]
        self.numbers: dict[int, IntLike] = {}
        self._names: dict[str, _Name] = {}  # by symbol
        self._roots: dict[str, str] = {}  # the symbol of a `Dim`, by its name
        self._derived: list[Dim] = []
        for direct in (True, False):
            for leaf, given in zip(found, self.given, strict=True):
                for i, said in leaf.sizes.items():
                    if isinstance(said, Dim) and (said.root is said) is direct:
                        given[i] = self._named(said, leaf, i)
        for k, (leaf, given) in enumerate(zip(found, self.given, strict=True)):
            for i, said in leaf.sizes.items():
                if isinstance(said, DimHint):
                    given[i] = self._hinted(said, leaf.value.shape[i], f"{leaf.source}.size()[{i}]")
                elif isinstance(said, int):
                    _fixed(said, leaf, i)
            if leaf.number is not None:
                self.numbers[k] = self._hinted(leaf.number, leaf.value, leaf.source)

    # ---- symbols ----

    def _named(self, dim: Dim, leaf: Leaf, i: int) -> IntLike:
        n, place = int(leaf.value.shape[i]), f"{leaf.source}.size()[{i}]"
        root = dim.root
        hint = dim.of(n)
        if hint is None:
            raise _invalid(
                f"Expected shape[{i}] = {n} of input Tensor to be of the form {dim.__name__}, "
                f"where {root.__name__} is an integer"
            )
        name = self._roots.get(root.__name__)
        if name is None:
            name = self._roots[root.__name__] = self._new(root, hint, place, dim is root)
        known = self.env.symbols[name].hint
        assert known is not None
        if hint != known:
            first = self._names[name].place
            raise _invalid(
                f"{place} = {n} is not equal to {first} = {known}"
                if dim is root
                else f"Expected input {place} to be equal to {dim.__name__}, where "
                f"{root.__name__} = {known}, but got {n}"
            )
        if dim is not root:
            self._derived.append(dim)
        return symbol(name) * dim.scale + dim.shift

    def _new(self, root: Dim, hint: int, place: str, direct: bool) -> str:
        high = None if root.max == math.inf else int(root.max)
        if hint < root.min or hint > root.max:
            end = "int_oo" if high is None else high
            raise ConstraintViolationError(f"{hint} not in range [{root.min}, {end}]")
        if hint < 2 and direct:
            raise _violated(
                [root.__name__], [_constant(root.__name__, hint)], [f"{root.__name__} = {hint}"]
            )
        made = self.env.size(
            hint, (place, "size", 0), range_=Range(root.min, high), strict=place, duck=False
        )
        name = str(made)
        self._names[name] = _Name(root, name, place, self.env.range_of(name))
        return name

    def _hinted(self, hint: DimHint, n: int, place: str) -> IntLike:
        if hint.kind == "DYNAMIC" and n < 2:
            raise ValueError(
                "Found the following conflicts between user-specified ranges and inferred ranges "
                "from model tracing:\n- Received user-specified dim hint "
                f"Dim.DYNAMIC(min={hint.min}, max={hint.max}), but export 0/1 specialized due to "
                f"hint of {n} for dimension {place}."
            )
        if n < 2:
            return n
        said = Range(hint.min, hint.max)
        if n not in said:
            raise ConstraintViolationError(f"{n} not in range [{hint.min}, {hint.max}]")
        made = self.env.size(n, (place, "size", 0), range_=said, duck=False)
        if hint.kind == "DYNAMIC":
            name = str(made)
            self._names[name] = _Name(None, name, place, self.env.range_of(name))
        return made

    # ---- the verdict ----

    def check(self) -> None:
        """UserError where the trace relied on more than was said of named sizes."""
        names: dict[str, None] = {}
        told: list[str] = []
        fixes: dict[str, str] = {}
        for n in self._names.values():
            for text, fix in self._broken(n):
                names[n.text] = None
                told.append(text)
                if n.dim is not None and fix:
                    fixes.setdefault(n.dim.__name__, fix)
        for c, n in self._relied_on():
            names[n.text] = None
            told.append(f"{_not_all(n)} {self._shown(c)}.")
            fix = _multiple(c, n)
            if fix and n.dim is not None:
                fixes.setdefault(n.dim.__name__, fix)
        if told:
            raise _violated(sorted(names), told, list(fixes.values()))

    def _broken(self, n: _Name) -> Iterator[tuple[str, str]]:
        env = self.env
        by = env.replacements.get(n.symbol)
        if by is not None and by.constant is not None:
            yield _constant(n.text, by.constant), f"{n.text} = {by}"
            return
        if n.dim is None:
            return  # a hint: it may be bound to other sizes, and its range follows
        if by is not None:
            others = [self._names[s] for s in by.symbols if s in self._names]
            named = [o for o in others if o.dim is not None]
            if by.name is not None and not named:
                n = _Name(n.dim, by.name, n.place, n.wanted)  # it goes by another's symbol
            else:
                yield self._bound(n, by, named)
                return
        found = env.range_of(n.symbol)
        if found != n.wanted:
            low = "" if found.lo is None else f"{found.lo} <= {n.place}"
            high = f"{n.place} <= {'IntInfinity()' if found.hi is None else found.hi}"
            parts = [repr(n.text)]
            parts += [f"min={found.lo}"] if found.lo is not None and found.lo > 2 else []
            parts += [f"max={found.hi}"] if found.hi is not None else []
            yield f"{_not_all(n)} {low} and {high}", f"{n.text} = Dim({', '.join(parts)})"

    def _bound(self, n: _Name, by: Expr, named: list[_Name]) -> tuple[str, str]:
        fix = f"{n.text} = {self._in_names(by)}"
        if by.name is not None:
            other = named[0]
            return f"The values of {n.both} and {other.both} must always be equal.", fix
        others = " and ".join(o.both for o in named) or self._shown_text(str(by))
        return (
            f"The values of {n.both} must always be related to the values of {others} by {fix}.",
            fix,
        )

    def _relied_on(self) -> Iterator[tuple[Condition, _Name]]:
        """Guards on named sizes that neither ranges nor equalities say."""
        for c in self.guards():
            for name in sorted(c.symbols):
                found = self._names.get(name)
                if found is not None and found.dim is not None:
                    yield c, found
                    break

    def guards(self) -> list[Condition]:
        """What a call must fulfil beside the ranges of its sizes."""
        env = self.env
        kept: dict[Condition, None] = {}
        for guard in env.guards:
            c = guard.condition.replaced(env.replacements)
            if not env.in_ranges(c) and not _of_one(c):
                kept[c] = None
        return list(kept)

    def ranges(self) -> dict[Any, Range]:
        """The range of every size that varies, by expression."""
        env, found = self.env, dict[Any, Range]()
        for n in self._names.values():
            left = env.replacements.get(n.symbol)
            if n.dim is not None and left is None:
                high = None if n.dim.max == math.inf else int(n.dim.max)
                found[symbol(n.symbol)] = Range(n.dim.min, high)
        for dim in self._derived:
            high = None if dim.max == math.inf else int(dim.max)
            e = symbol(self._roots[dim.root.__name__]) * dim.scale + dim.shift
            found[env.simplified(e)] = Range(dim.min, high)
        for given in (*(e for g in self.given for e in g.values()), *self.numbers.values()):
            e = env.simplified(given)
            if e.constant is None and e not in found:
                found[e] = e.range(env.range_of)
            for s in e.symbols:
                found.setdefault(symbol(s), env.range_of(s))
        for made in env.symbols.values():
            if made.hint is None and made.name not in env.replacements:
                found[symbol(made.name)] = made.range
        return found

    # ---- words ----

    def _in_names(self, e: Expr) -> str:
        return _SYMBOL.sub(
            lambda m: self._names[m[0]].text if m[0] in self._names else m[0], str(e)
        )

    def _shown_text(self, text: str) -> str:
        def place(m: re.Match[str]) -> str:
            found = self._names.get(m[0])
            sources = self.env.symbols[m[0]].sources
            return found.place if found else str(sources[0][0]) if sources else m[0]

        return _SYMBOL.sub(place, text)

    def _shown(self, c: Condition) -> str:
        return self._shown_text(str(c))


def _invalid(text: str) -> UserError:
    return UserError(UserErrorType.INVALID_INPUT, text)


def _fixed(said: int, leaf: Leaf, i: int) -> None:
    n = leaf.value.shape[i]
    if n != said:
        raise ConstraintViolationError(
            f"Static shape constraint of {said} does not match input size of {n}, for "
            f"{leaf.source}.size()[{i}]"
        )


def _constant(name: str, value: Any) -> str:
    return (
        f"You marked {name} as dynamic but your code specialized it to be a constant ({value}). If "
        "you're using mark_dynamic, either remove it or use maybe_mark_dynamic. If you're using "
        "Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO."
    )


def _violated(names: Sequence[str], told: Sequence[str], fixes: Sequence[str]) -> UserError:
    lines = [
        f"Constraints violated ({', '.join(names)})! For more information, run with "
        'TORCH_LOGS="+dynamic".',
        *(f"  - {text}" for text in told),
    ]
    if fixes:
        lines += ["Suggested fixes:", *(f"  {fix}" for fix in fixes)]
    return UserError(UserErrorType.CONSTRAINT_VIOLATION, "\n".join(lines))


def _not_all(n: _Name) -> str:
    return (
        f"Not all values of {n.both} in the specified range{_said(n)} satisfy the generated guard"
    )


def _said(n: _Name) -> str:
    """` 4 <= seq <= 64`, as far as it was said."""
    dim = n.dim
    if dim is None or (dim.min <= 2 and dim.max == math.inf):
        return ""
    low = f"{dim.min} <= " if dim.min > 0 else ""
    return f" {low}{n.text}" + ("" if dim.max == math.inf else f" <= {dim.max}")


def _of_one(c: Condition) -> bool:
    """Whether a condition bounds a single symbol, or fixes it: its range says so."""
    r = c.relation
    if c.kind != "relation" or r is None or r.op == "!=":
        return False
    terms = [m for m in r.left.terms if m != ()]
    return len(terms) == 1 and len(terms[0]) == 1 and terms[0][0][0].kind == "symbol"


def _multiple(c: Condition, n: _Name) -> str:
    """The name as a multiple of a new one, where a guard says that it must be one."""
    r: Relation | None = c.relation
    if r is None or r.op != "==":
        return ""
    for monomial in r.left.terms:
        for atom, _ in monomial:
            if atom.kind == "mod" and atom.args[1].constant:
                k = _divisor(atom.args[0], n.symbol, atom.args[1].constant)
                return f"_{n.text} = Dim('_{n.text}')\n  {n.text} = {k}*_{n.text}"
    return ""


def _divisor(e: Expr, name: str, modulus: int) -> int:
    """By what the symbol must be divisible for `e` to be so by `modulus`, where e is c * symbol."""
    c = next((c for m, c in e.terms.items() if m != ()), 1)
    return modulus // math.gcd(modulus, c)
