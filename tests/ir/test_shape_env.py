"""What a shape environment knows, guards and refuses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau._src.core.symint import SymInt
from flambeau._src.ir.conditions import Condition
from flambeau._src.ir.integers import Range
from flambeau._src.ir.shape_env import (
    ConstraintViolationError,
    FrozenShapes,
    GuardOnDataDependentSymNode,
    ShapeEnv,
)
from flambeau._src.ir.sym_node import SymNode, sym_int


def sizes(env, **hints):
    return {n: sym_int(env, env.size(h, n)) for n, h in hints.items()}


def texts(env):
    return [text for text, _ in env.conditions()]


def test_zero_and_one_are_ints_and_equal_sizes_share_a_symbol():
    env = ShapeEnv()
    s = sizes(env, a=5, b=5, c=1, d=0)
    assert s["c"] == 1 and s["d"] == 0 and isinstance(s["c"], int)
    assert str(s["a"]) == str(s["b"]) == "s0"
    assert env.symbols["s0"].sources == ["a", "b"]
    assert bool(s["a"] == s["b"]) and not env.guards
    assert bool(s["a"] >= 2) and not env.guards, "known from the range"
    assert texts(env) == ["s0 >= 2"]


def test_a_branch_is_a_guard_and_is_asked_once():
    env = ShapeEnv()
    s = sizes(env, a=5, b=7)
    seen = []
    env.on_guard = seen.append
    assert s["a"] < s["b"] and s["a"] < s["b"] and not s["a"] >= s["b"]
    assert s["a"] != s["b"], "follows"
    assert s["a"] < s["b"] + 1, "follows"
    assert [str(g.condition) for g in seen] == ["s1 >= s0 + 1"]
    assert not s["b"] < 5
    assert s["b"] > 4
    assert len(env.guards) == 2


def test_equality_replaces():
    env = ShapeEnv()
    s = sizes(env, a=5, b=10)
    assert s["b"] == 2 * s["a"]
    assert str(s["b"]) == "2*s0"
    assert str(s["b"] // 2) == "s0" and s["b"] % 2 == 0
    assert int(s["a"]) == 5
    assert str(s["b"] + 0) == "10"
    assert len(env.guards) == 2


def test_unbacked():
    env = ShapeEnv()
    u = sym_int(env, env.unbacked())
    with pytest.raises(GuardOnDataDependentSymNode, match=r"u0.*torch\._check"):
        bool(u > 3)
    with pytest.raises(GuardOnDataDependentSymNode):
        int(u)
    assert (u == 3).node.guard_or_false() is False
    (u >= 0).node.expect_true()
    (u <= 8).node.expect_true()
    assert u < 9 and u + 1 > 0 and not env.guards
    assert [str(c) for c in env.asserts] == ["u0 >= 0", "u0 <= 8"]
    with pytest.raises(RuntimeError, match="Expected"):
        (u > 9).node.expect_true()
    assert u.node.hint is None


def test_promises():
    env = ShapeEnv()
    a = sym_int(env, env.size(5, "L['x'].size()[0]", strict="L['x'].size()[0]"))
    assert texts(env) == ["s0 >= 2"]
    int(a)
    words = r"Constraints violated.*x(.|\n)*constant \(5\)"
    with pytest.raises(ConstraintViolationError, match=words):
        texts(env)


def test_frozen():
    env = ShapeEnv()
    s = sizes(env, a=5, b=7)
    assert s["a"] < 6
    env.freeze("assemble")
    assert s["a"] < 6 and s["a"] < 7
    with pytest.raises(FrozenShapes, match="assemble"):
        bool(s["a"] * s["b"] == 35)


def test_floats():
    env = ShapeEnv()
    a = sizes(env, a=8)["a"]
    scale = 1.0 / a
    assert str(scale) == "(1.0 / s0)" and scale.node.hint == 0.125
    assert scale < 1.0 and str(env.guards[-1].condition) == "(1.0 / s0) < 1.0"
    half = a / 2
    assert str(half.node.floor()) == "(s0 // 2)"
    assert float(scale) == 0.125 and str(a + 0) == "8", "reading a float fixes its sizes"


def test_range():
    env = ShapeEnv()
    a = sym_int(env, env.size(5, "a", range_=Range(2, 10)))
    assert a <= 10 and a * 2 < 21 and not env.guards
    assert texts(env) == ["s0 >= 2", "s0 <= 10"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
            st.tuples(*[st.integers(-3, 3)] * 4),
            st.integers(-9, 9),
        ),
        max_size=6,
    ),
    st.tuples(*[st.integers(2, 9)] * 3),
    st.tuples(*[st.integers(2, 9)] * 3),
)
def test_other_sizes_that_pass_the_guards_take_the_same_branches(program, first, other):
    """The soundness of guards, on random linear branches."""
    env = ShapeEnv(duck_shape=False)
    s = [sym_int(env, env.size(h, f"x{i}")) for i, h in enumerate(first)]

    def run(a, b, c):
        return [
            bool(eval(f"x {op} k", {"x": p * a + q * b + r * c + t * (a // 2), "k": k}))
            for op, (p, q, r, t), k in program
        ]

    taken = run(*s)
    assert taken == run(*first)
    names = {f"s{i}": n for i, n in enumerate(other)}
    if all(eval(text, {}, dict(names)) for text in texts(env)):
        assert run(*other) == taken


def test_nodes_are_pythons_numbers():
    env = ShapeEnv()
    a = sizes(env, a=6)["a"]
    assert isinstance(a, SymInt) and isinstance(a.node, SymNode)
    assert (a + 1) * 2 - 3 == 11 and 2**3 % a == 2 and -a == -6 and abs(-a) == 6
    assert Condition.compare(a.node.expr, "==", 6).value(env.hints())
