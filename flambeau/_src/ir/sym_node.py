"""The nodes behind SymInt, SymFloat and SymBool: an expression in a shape environment.

`core.symint` gives a number's operations to its node; here they become expressions. Reading a value
(`guard_int` and its kind) is a guard.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from flambeau._src.core.symint import NotSymbolic, SymBool, SymFloat, SymInt
from flambeau._src.ir.conditions import Condition, Number, Real, junction, real
from flambeau._src.ir.integers import Expr, IntLike, Range, expr, maximum, minimum, symbol
from flambeau._src.ir.shape_env import GuardOnDataDependentSymNode, ShapeEnv

__all__ = ["AsStands", "SymNode", "expression_of", "sym_int", "unknown"]

_POWERS = 16  # of a sum, which are multiplied out
_ALWAYS = frozenset(("add", "sub", "mul"))  # for ints that are expressions nothing is asked


class SymNode:
    """`kind` is int, float or bool; `value` its Expr, number tree or Condition; `written` the
    comparison (operator, sides) that it is, for messages."""

    __slots__ = ("env", "kind", "value", "written")

    def __init__(self, env: ShapeEnv, kind: str, value: Any, written: Any = None) -> None:
        self.env, self.kind, self.value, self.written = env, kind, value, written

    def like(self, kind: str, value: Any) -> SymNode:
        """Another number, of the same sort of node."""
        return type(self)(self.env, kind, value)

    # ---- what it is ----

    def is_int(self) -> bool:
        return self.kind == "int"

    def is_float(self) -> bool:
        return self.kind == "float"

    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def shape_env(self) -> ShapeEnv:
        """By torch's name."""
        return self.env

    @property
    def expr(self) -> Any:
        """The expression in the symbols that are left."""
        by = self.env.replacements
        return self.value.replaced(by) if by and _symbolic(self.value) else self.value

    @property
    def hint(self) -> Any:
        """Its value in this call, None where only running will tell; no guard."""
        if type(self.value) is Expr:
            return self.env.hint(self.value)
        value = self.expr
        if not _symbolic(value):
            return value
        if any(self.env.is_unbacked(name) for name in value.symbols):
            return None
        return value.value(self.env.hints())

    def same(self, other: SymNode | int) -> bool | None:
        """Whether two ints are equal, with a guard; None where only running would tell."""
        a, b = self.value, other.value if isinstance(other, SymNode) else other
        if type(a) is Expr and type(b) in (Expr, int):
            return self.env.equal(a, b)
        return None

    def has_hint(self) -> bool:
        return self.hint is not None

    def maybe_as_int(self) -> int | None:
        """The int that it is whatever the sizes are, or None."""
        value = self.expr
        if isinstance(value, Expr):
            return value.constant
        return value if isinstance(value, int) else None

    def of_floats(self) -> bool:
        """Whether it is computed from floats that programs are given."""
        return isinstance(self.value, Real) and self.has_hint()

    def is_constant(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self.expr)

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self.value)

    # ---- numbers beside it ----

    def wrap_int(self, n: int) -> SymNode:
        return SymNode(self.env, "int", expr(n))

    def wrap_float(self, n: float) -> SymNode:
        return SymNode(self.env, "float", n)

    def wrap_bool(self, b: bool) -> SymNode:
        zero = Condition.compare(expr(0), "==" if b else "!=", expr(0))
        return SymNode(self.env, "bool", zero)

    def _int(self, value: Number) -> SymNode:
        return SymNode(self.env, "int", expr(value) if isinstance(value, int) else value)

    def _float(self, value: Number) -> SymNode:
        return SymNode(self.env, "float", value)

    def _number(self, value: Number, *of: SymNode) -> SymNode:
        return self._int(value) if all(n.kind != "float" for n in of) else self._float(value)

    def _as_number(self) -> Number:
        """Its value as an operand; a bool counts as 0 or 1, which fixes it."""
        if self.kind == "bool":
            return expr(int(self.guard_bool()))
        found: Number = self.value
        return found

    # ---- arithmetic ----

    def add(self, other: SymNode) -> SymNode:
        return self._algebra("add", other, lambda a, b: a + b)

    def sub(self, other: SymNode) -> SymNode:
        return self._algebra("sub", other, lambda a, b: a - b)

    def mul(self, other: SymNode) -> SymNode:
        return self._algebra("mul", other, lambda a, b: a * b)

    def floordiv(self, other: SymNode) -> SymNode:
        return self._algebra("floordiv", other, lambda a, b: a // b)

    def mod(self, other: SymNode) -> SymNode:
        return self._algebra("mod", other, lambda a, b: a % b)

    def sym_max(self, other: SymNode) -> SymNode:
        return self._algebra("max", other, maximum)

    def sym_min(self, other: SymNode) -> SymNode:
        return self._algebra("min", other, minimum)

    def truediv(self, other: SymNode) -> SymNode:
        a, b = self._as_number(), other._as_number()
        self._must(b, "!=", 0, "a divisor is not zero")
        return self._float(real("truediv", a, b))

    def pow(self, other: SymNode) -> SymNode:
        a, b = self._as_number(), other._as_number()
        if isinstance(a, Expr) and isinstance(b, Expr):
            exponent = self.env.number(b, "an exponent")
            if exponent > _POWERS and len(a.terms) > 1:
                return self._int(expr(self.env.number(a, "a base") ** exponent))
            if exponent >= 0:
                return self._int(a**exponent)
            self._must(a, "!=", 0, "a divisor is not zero")
            return self._float(real("pow", a, exponent))
        if self.kind != "float" and other.kind != "float":  # a shift's result, or the like
            exponent = other.guard_int()
            if exponent >= 0:
                return self._int(real("pow", a, exponent))
            b = expr(exponent)
        power = b.constant if isinstance(b, Expr) else b
        if isinstance(power, Real) and power.symbols:
            self._must(a, ">", 0, "the base of a power")
        elif isinstance(power, (int, float)) and power < 0:
            self._must(a, "!=", 0, "a divisor is not zero")
        if isinstance(power, float) and not power.is_integer():  # else of a negative: complex
            self._must(a, ">=", 0, "the base of a power")
        return self._float(real("pow", a, b))

    def _must(self, n: Number, op: str, bound: float, reason: str) -> None:
        """Have a guard on what Python would refuse a number otherwise; where it is not so it is
        fixed, and Python itself says what comes of it."""
        if not isinstance(n, (Real, Expr)) or any(map(self.env.is_unbacked, n.symbols)):
            return
        if not self.env.decide(Condition.compare(n, op, bound), reason):
            raise NotSymbolic

    def lshift(self, other: SymNode) -> SymNode:
        return self._bits("lshift", other)

    def rshift(self, other: SymNode) -> SymNode:
        return self._bits("rshift", other)

    def bitwise_xor(self, other: SymNode) -> SymNode:
        return self._bits("xor", other)

    def neg(self) -> SymNode:
        value = self._as_number()
        made = -value if isinstance(value, Expr) else real("neg", value)
        return self._number(made, self)

    def pos(self) -> SymNode:
        return self

    def abs(self) -> SymNode:
        value = self._as_number()
        if isinstance(value, Expr):
            return self._int(maximum(value, -value))
        return self._number(real("abs", value), self)

    def round(self, digits: int | None = None) -> SymNode:
        """To the nearest int, of two the even one; with digits a float."""
        value = self._as_number()
        if isinstance(value, Expr):
            return self
        if digits is None:
            return self._int(real("round", value))
        return self._number(real("round_to", value, digits), self)

    def of_math(self, name: str, *others: SymNode) -> SymNode:
        """The function of `math` with this name."""
        values = [n._as_number() for n in (self, *others)]
        for op, bound in _DOMAINS.get(name, ()):
            self._must(values[0], op, bound, f"what math.{name} takes")
        if name in ("fmod", "remainder"):
            self._must(values[1], "!=", 0, "a divisor is not zero")
        made = real(name, *(_as_float(v) for v in values))
        return self._int(made) if name in ("ceil", "floor", "trunc") else self._float(made)

    def ceil(self) -> SymNode:
        return self._rounded("ceil")

    def floor(self) -> SymNode:
        return self._rounded("floor")

    def trunc(self) -> SymNode:
        return self._rounded("trunc")

    def sym_float(self) -> SymNode:
        value = self._as_number()
        return self._float(value if self.kind == "float" else real("float", value))

    def is_integer(self) -> SymNode:
        value = self._as_number()
        return self._bool(Condition.compare(real("mod", value, 1.0), "==", 0.0))

    def _rounded(self, how: str) -> SymNode:
        value = self._as_number()
        if isinstance(value, Expr):
            return self
        if isinstance(value, Real) and value.op == "truediv":  # ceil(a / b) of ints is exact
            a, b = value.args
            if isinstance(a, (Expr, int)) and isinstance(b, (Expr, int)) and how != "trunc":
                up = -((-expr(a)) // b) if how == "ceil" else expr(a) // b
                return self._int(up)
        return self._int(real(how, value))

    def _algebra(
        self, name: str, other: SymNode, of_ints: Callable[[IntLike, IntLike], IntLike]
    ) -> SymNode:
        a, b = self.value, other.value
        if type(a) is Expr and type(b) is Expr and name in _ALWAYS:
            return SymNode(self.env, "int", of_ints(a, b))
        a, b = self._as_number(), other._as_number()
        if isinstance(a, (Expr, int)) and isinstance(b, (Expr, int)):
            divides = name in ("floordiv", "mod") and isinstance(b, Expr) and b.constant is None
            ok = Condition.compare(b, "!=", 0)
            if divides and not self.env.decide(ok, "a divisor is not zero"):
                raise NotSymbolic
            return self._int(of_ints(a, b))
        if name in ("floordiv", "mod"):
            self._must(b, "!=", 0, "a divisor is not zero")
        return self._number(real(name, a, b), self, other)

    def _bits(self, name: str, other: SymNode) -> SymNode:
        if self.kind == "bool" and other.kind == "bool" and name == "xor":
            same = self.guard_bool() != other.guard_bool()
            return self.wrap_bool(same)
        by = other._as_number()
        if name in ("lshift", "rshift") and not self._shifts(by):
            raise NotSymbolic
        return self._int(real(name, self._as_number(), by))

    def _shifts(self, by: Number) -> bool:
        """Whether it is a number of places that Python takes, with a guard."""
        if isinstance(by, Expr) and by.constant is not None:
            return by.constant >= 0
        if not isinstance(by, (Expr, Real)) or any(map(self.env.is_unbacked, by.symbols)):
            return True
        return self.env.decide(Condition.compare(by, ">=", 0), "a shift is not negative")

    # ---- comparisons and truth ----

    def eq(self, other: SymNode) -> SymNode:
        return self._compare("==", other)

    def ne(self, other: SymNode) -> SymNode:
        return self._compare("!=", other)

    def lt(self, other: SymNode) -> SymNode:
        return self._compare("<", other)

    def le(self, other: SymNode) -> SymNode:
        return self._compare("<=", other)

    def gt(self, other: SymNode) -> SymNode:
        return self._compare(">", other)

    def ge(self, other: SymNode) -> SymNode:
        return self._compare(">=", other)

    def and_(self, other: SymNode) -> SymNode:
        return self._junction("and", other)

    def or_(self, other: SymNode) -> SymNode:
        return self._junction("or", other)

    def sym_not(self) -> SymNode:
        return self._bool(self._condition().negated())

    def sym_ite(self, then: SymNode, other: SymNode) -> SymNode:
        return then if self.guard_bool() else other

    def _compare(self, op: str, other: SymNode) -> SymNode:
        a, b = self._as_number(), other._as_number()
        return SymNode(self.env, "bool", Condition.compare(a, op, b), (op, a, b))

    def _junction(self, kind: str, other: SymNode) -> SymNode:
        if self.kind == "bool" and other.kind == "bool":
            return self._bool(junction(kind, [self._condition(), other._condition()]))
        return self._bits(kind, other)

    def _bool(self, c: Condition) -> SymNode:
        return SymNode(self.env, "bool", c)

    def _condition(self) -> Condition:
        if self.kind == "bool":
            found: Condition = self.value
            return found
        return Condition.compare(self._as_number(), "!=", 0)

    # ---- values: guards ----

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        """Its truth in this call."""
        try:
            return self.env.decide(self._condition(), _place(file, line))
        except GuardOnDataDependentSymNode as error:
            if self.written is None:
                raise
            found = self._for_library() if _asked_by_library() else None
            if found is None:
                raise error.as_written(self._as_written()) from None
            return found

    def _for_library(self) -> bool | None:
        """The answer that the tensor library gets where only running will tell, if it gets one.

        It treats extents of 0 and 1 apart to save work or to broadcast: sizes count as neither.
        (A comparison with 2 may bound a slice: that is not answered.) And it refuses extents and
        places that are negative: that they are not is asserted.
        """
        op, *sides = self.written
        c = self._condition()
        if op in ("<", ">=") and sides[1] == 0 and self.env.known(c) is None:
            self.env.check(c if op == ">=" else c.negated())
            return bool(op == ">=")
        if sides[1] not in (0, 1):
            return self.env.known(c, self.env.size_range) if op in ("==", "!=") else None
        known = self.env.known(c, self.env.size_range)
        if known is None and self.env.known(Condition.compare(sides[0], ">=", 0)):
            return op in ("!=", ">", ">=")
        return known

    def _as_written(self) -> str:
        """The comparison as PyTorch shows it."""
        if self.written is None:
            return ""
        op, *sides = self.written
        a, b = (s.replaced(self.env.replacements) if _symbolic(s) else s for s in sides)
        if op in ("==", "!="):
            return f"{'Eq' if op == '==' else 'Ne'}({a}, {b})"
        return f"{a} {op} {b}"

    def guard_int(self, file: str = "", line: int = 0) -> int:
        """Its value in this call."""
        value = self._as_number()
        if isinstance(value, (Expr, int)):
            return self.env.number(value, _place(file, line))
        return int(self._fixed(value, _place(file, line)))

    def guard_float(self, file: str = "", line: int = 0) -> float:
        """Its value in this call."""
        value = self._as_number()
        if isinstance(value, (Expr, int)):
            return float(self.env.number(value, _place(file, line)))
        return float(self._fixed(value, _place(file, line)))

    def _fixed(self, value: Number, reason: str) -> Any:
        """A number that is no polynomial: the sizes that it is made of are fixed."""
        if not isinstance(value, Real):
            return value
        if self.hint is None:
            raise self.env.data_dependent(value)
        for name in sorted(value.symbols):
            if isinstance(self.env.symbols[name].hint, float):
                self.env.float_number(name, reason)
                continue
            e = self.env.simplified(symbol(name))
            self.env.number(e, reason)
        now = value.replaced(self.env.replacements)
        return now.value({}) if isinstance(now, Real) else now

    def expect_true(self, file: str = "", line: int = 0) -> bool:
        """From here on it is true; asserted when the program runs where nothing else tells."""
        self.env.check(self._condition(), _place(file, line))
        return True

    def statically_known_true(self, file: str = "", line: int = 0) -> bool:
        """Whether it is true for every call that passes the guards."""
        return self.env.known(self._condition()) is True

    def statically_known_false(self, file: str = "", line: int = 0) -> bool:
        """Whether it is false for every call that passes the guards."""
        return self.env.known(self._condition()) is False

    def guard_or_false(self, file: str = "", line: int = 0) -> bool:
        """Its truth, False where only running would tell."""
        return self._guard_or(False)

    def guard_or_true(self, file: str = "", line: int = 0) -> bool:
        """Its truth, True where only running would tell."""
        return self._guard_or(True)

    def _guard_or(self, otherwise: bool) -> bool:
        c = self._condition()
        found = self.env.known(c)
        if found is not None:
            return found
        names = c.replaced(self.env.replacements).symbols
        if any(self.env.is_unbacked(n) for n in names):
            return otherwise
        return self.env.decide(c)

    def guard_size_oblivious(self, file: str = "", line: int = 0) -> bool:
        """Its truth; sizes that only running would tell count as neither 0 nor 1."""
        try:
            return self.env.decide(self._condition(), _place(file, line), oblivious=True)
        except GuardOnDataDependentSymNode as error:
            found = None if self.written is None else self._for_library()
            if found is None:
                raise error.as_written(self._as_written()) from None
            return found


class AsStands(SymNode):
    """A node that shows its value as it is written: nothing learnt since simplifies it."""

    __slots__ = ()

    @property
    def expr(self) -> Any:
        """The value."""
        return self.value


_DOMAINS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "exp": (("<=", 709.78),), "expm1": (("<=", 709.78),), "exp2": (("<", 1024),),
    "cosh": (("<=", 710.47), (">=", -710.47)), "sinh": (("<=", 710.47), (">=", -710.47)),
    "sqrt": ((">=", 0),), "log": ((">", 0),), "log2": ((">", 0),), "log10": ((">", 0),),
    "log1p": ((">", -1),), "asin": ((">=", -1), ("<=", 1)), "acos": ((">=", -1), ("<=", 1)),
    "acosh": ((">=", 1),), "atanh": ((">", -1), ("<", 1)), "gamma": ((">", 0),),
    "lgamma": ((">", 0),),
}  # fmt: skip


def _as_float(n: Number) -> Number:
    return real("float", n) if isinstance(n, (Expr, int)) else n


_LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_NUMBERS = tuple(
    os.path.join(_LIBRARY, "_src", *path)
    for path in (("ir", ""), ("core", "symint.py"), ("core", "checks.py"))
)
_FOR_PROGRAMS = os.path.join(_LIBRARY, "_src", "capture", "")


def _asked_by_library() -> bool:
    """Whether code of the tensor library asks, not the program (or the capture on its behalf)."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_NUMBERS):
        frame = frame.f_back
    file = "" if frame is None else frame.f_code.co_filename
    return file.startswith(_LIBRARY) and not file.startswith(_FOR_PROGRAMS)


def _place(file: str, line: int) -> str:
    return f"{file}:{line}" if file else ""


def _symbolic(value: Any) -> bool:
    return isinstance(value, (Expr, Real, Condition))


def sym_int(env: ShapeEnv, e: IntLike) -> SymInt | int:
    """An expression as the number that programs see: an int where it is one."""
    e = env.simplified(e)
    constant = e.constant
    return SymInt(SymNode(env, "int", e)) if constant is None else constant


def unknown(env: ShapeEnv, kind: str, range_: Range | None = None) -> Any:
    """A number of a kind (int, float, bool) that only running will tell."""
    if kind == "float":
        return SymFloat(SymNode(env, kind, Real("real", (env.unbacked(prefix="zuf"),))))
    if kind == "bool":
        return SymBool(SymNode(env, kind, Condition.compare(env.unbacked(Range(0, 1)), "==", 1)))
    return SymInt(SymNode(env, kind, env.unbacked(range_)))


def expression_of(n: Any) -> Any:
    """The expression of a symbolic number, in the symbols left; other values as they are."""
    return n.node.expr if isinstance(n, (SymInt, SymFloat, SymBool)) else n
