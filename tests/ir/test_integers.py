"""The algebra of sizes against Python's own integers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._src.ir.integers import Expr, Range, Relation, maximum, minimum, symbol

NAMES = ("s0", "s1", "s2")
LEAVES = st.one_of(st.sampled_from(NAMES), st.integers(-6, 6))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(
        st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]), inner, inner
    ),
    max_leaves=8,
)
VALUES = st.fixed_dictionaries({n: st.integers(1, 9) for n in NAMES})


def made(tree, env):
    """The tree over env's numbers or expressions; ZeroDivisionError as in Python."""
    if isinstance(tree, str):
        return env[tree]
    if isinstance(tree, int):
        return tree
    op, a, b = tree[0], made(tree[1], env), made(tree[2], env)
    if op in ("max", "min"):
        if isinstance(a, Expr) or isinstance(b, Expr):
            return (maximum if op == "max" else minimum)(a, b)
        return max(a, b) if op == "max" else min(a, b)
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: a // b,
        "%": lambda: a % b,
    }[op]()


SYMBOLS = {n: symbol(n) for n in NAMES}
PYTHON = {"max": max, "min": min}


def both(tree, env):
    try:
        return made(tree, env), made(tree, SYMBOLS) + 0
    except ZeroDivisionError:
        return None


@settings(max_examples=400, deadline=None)
@given(TREES, VALUES)
def test_expressions_are_pythons(tree, env):
    found = both(tree, env)
    if found is None:
        return
    number, e = found
    e = Expr({(): e}) if isinstance(e, int) else e
    assert e.value(env) == number
    assert eval(str(e), PYTHON, dict(env)) == number
    assert number in e.range(lambda name: Range(1, 9))
    assert number in e.range(lambda name: Range(1, None))
    assert e.symbols <= set(NAMES)


@settings(max_examples=300, deadline=None)
@given(TREES, TREES, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), VALUES)
def test_relations_are_pythons(left, right, op, env):
    a, b = both(left, env), both(right, env)
    if a is None or b is None:
        return
    truth = eval(f"{a[0]} {op} {b[0]}")
    r = Relation.compare(a[1], op, b[1])
    assert r.value(env) is truth
    assert r.negated().value(env) is not truth
    assert eval(str(r), PYTHON, dict(env)) is truth
    assert r.known(lambda name: Range(1, 9)) in (truth, None)
    assert r.known(lambda name: Range(env[name], env[name])) in (truth, None)


@settings(max_examples=300, deadline=None)
@given(TREES, TREES, st.sampled_from(["<", "<=", ">", ">="]), VALUES)
def test_stronger_relations_imply_theirs(left, right, op, env):
    a, b = both(left, env), both(right, env)
    if a is None or b is None:
        return
    r = Relation.compare(a[1], op, b[1])
    if any(w.value(env) for w in r.stronger()):
        assert r.value(env)


def test_a_quotient_is_bounded_by_what_it_divides():
    s = symbol("s0")
    assert Relation.compare(s, ">=", 2) in Relation.compare(s, ">", s // 2).stronger()
    assert Relation.compare(s, ">=", 3) in Relation.compare(s // 2 * 3, ">=", s).stronger()


@settings(max_examples=200, deadline=None)
@given(TREES, TREES, VALUES)
def test_replacing(tree, part, env):
    a, b = both(tree, env), both(part, env)
    if a is None or b is None:
        return
    e = Expr({}) + a[1]
    try:
        expected = e.value({**env, "s1": b[0]})
        put = e.replaced({"s1": Expr({}) + b[1]})
    except ZeroDivisionError:
        return
    assert put.value(env) == expected


def test_normal_form():
    s, t = symbol("s0"), symbol("s1")
    assert (s + t) * (s - t) == s * s - t * t
    assert (4 * s + 2) // 2 == 2 * s + 1
    assert (6 * s * t) // (2 * s) == 3 * t
    assert (s * t) % s == 0
    assert (s * 8 + 3) % 8 == 3
    assert (s // 2) * 2 != s
    assert str(s * 2 - t + 1) == "2*s0 - s1 + 1"
    assert str((s + 1) // 2 * 3) == "3*((s0 + 1) // 2)"
    assert maximum(s, 3, maximum(1, s)) == maximum(3, s)
    assert (s - s).constant == 0
    assert Relation.compare(2 * s, "<", 7) == Relation.compare(s, "<=", 3)
    assert Relation.compare(2 * s, "==", 5).known(lambda n: Range(None, None)) is False
    assert Relation.compare(s, "==", t) == Relation.compare(t, "==", s)
    with pytest.raises(ZeroDivisionError):
        s // 0
