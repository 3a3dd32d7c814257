# ruff: noqa: RUF059  (the helper returns a whole graph in parts)
"""Graphs as data: building, editing, order, errors, checks, rewrites. No tensors."""

import copy
import itertools
import operator
import pickle
import random

import pytest

from flambeau._src.ir import rewrite, verify
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.immutable import immutable_dict, immutable_list
from flambeau._src.ir.names import Namespace, qualified_name, snake_case
from flambeau._src.ir.node import Node, map_aggregate, map_arg
from flambeau._src.ir.printer import BoxedCodeGen, CodeGen


def chain():
    """x -> neg -> abs -> output."""
    g = Graph()
    x = g.placeholder("x")
    a = g.call_function(operator.neg, (x,))
    b = g.call_function(operator.abs, (a,))
    out = g.output(b)
    return g, x, a, b, out


def run(g, *args):
    """The generated function's result, without a module around it."""
    code = g.python_code("self")
    scope = dict(code.globals)
    exec(code.src, scope)
    return scope["forward"](None, *args)


def names(g):
    return [node.name for node in g.nodes]


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("x x x x_1 x_5 x x_5 x", "x x_1 x_2 x_3 x_5 x_6 x_7 x_8"),
        ("x_1 x x x x_1", "x_1 x x_2 x_3 x_4"),
        ("x_0 x_0 x", "x_0 x_1 x"),
        ("x_1_2 x_1 x_1_2 x_1", "x_1_2 x_1 x_1_3 x_2"),
        ("len len len_1 for", "len_1 len_2 len_3 for_1"),
        ("1a a.b a-b <lambda> **kw", "_1a a_b a_b_1 _lambda_ _kw"),
        ("torch inf nan device self", "torch_1 inf_1 nan_1 device_1 self"),
        ("x_10 x_9 x x", "x_10 x_9 x x_11"),
    ],
)
def test_namespace(asked, given):
    namespace = Namespace()
    assert [namespace.create_name(name) for name in asked.split()] == given.split()


def test_namespace_remembers_objects():
    namespace, a, b = Namespace(), object(), object()
    assert [namespace.create_name("f", o) for o in (a, b, a, None)] == ["f", "f_1", "f", "f_2"]
    assert namespace.create_name("len", len) == "len"


def test_snake_case():
    words = "LayerNorm OrderedDict ReLU aB_C GELU Conv2d __add__ add.Tensor BatchNorm2D"
    expected = "layer_norm ordered_dict re_lu a_b_c gelu conv2d __add__ add.tensor batch_norm2d"
    assert [snake_case(word) for word in words.split()] == expected.split()


def test_qualified_name():
    assert qualified_name(operator.add) == "operator.add"
    assert qualified_name(len) == "len"
    assert qualified_name(Graph) == "torch.fx.graph.Graph"
    with pytest.raises(RuntimeError, match="cannot find a name for"):
        qualified_name(3)


# ---- nodes ---------------------------------------------------------------------------------------


def test_users_follow_arguments():
    g, x, a, b, out = chain()
    assert list(a.users) == [b] and a.all_input_nodes == [x] and out.args == (b,)
    b.args = (x,)
    assert list(a.users) == [] and list(x.users) == [a, b]
    b.kwargs = {"k": [a, {"d": (a, slice(x, None))}]}
    assert b.all_input_nodes == [x, a]
    b.update_arg(0, 3)
    b.insert_arg(0, a)
    b.update_kwarg("k", 1)
    assert b.args == (a, 3) and b.kwargs == {"k": 1} and list(x.users) == [a]
    with pytest.raises(AssertionError, match="insert_args index must be between 0 and len"):
        b.insert_arg(9, 5)
    with pytest.raises(IndexError):
        x.update_arg(0, 1)


def test_arguments_are_immutable():
    g, x, *_ = chain()
    node = g.call_function(len, ([x, {"a": x}],))
    items = node.args[0]
    assert type(items) is immutable_list and type(items[1]) is immutable_dict
    for change in (
        lambda: items.append(1),
        lambda: items.__setitem__(0, 1),
        lambda: items[1].update(a=1),
        lambda: items[1].pop("a"),
        lambda: items.sort(),
    ):
        with pytest.raises(TypeError, match="object does not support mutation"):
            change()
    for value in (immutable_list([1]), immutable_dict(a=1)):
        assert type(pickle.loads(pickle.dumps(value))) is type(value)
        assert pickle.loads(pickle.dumps(value)) == value and hash(value) == hash(value)


def test_replace_all_uses_with():
    g, x, a, b, out = chain()
    assert a.replace_all_uses_with(x) == [b] and b.args == (x,)
    assert b.replace_all_uses_with(a, lambda user: user.op == "output") == [out]
    b.replace_input_with(x, a)
    assert b.args == (a,)
    a.meta["k"] = 1
    b.meta.clear()
    a.replace_all_uses_with(b, propagate_meta=True)
    assert b.meta == {"k": 1}
    with pytest.raises(AssertionError, match=r"replace_with already has .meta keys"):
        a.replace_all_uses_with(b, propagate_meta=True)


def test_replacing_a_value_by_one_made_from_it():
    g, x, a, b, out = chain()
    with g.inserting_after(a):
        c = g.call_function(operator.pos, (a,))
    a.replace_all_uses_with(c, delete_user_cb=lambda user: user is not c)
    g.lint()
    assert c.args == (a,) and b.args == (c,) and names(g) == ["x", "neg", "pos", "abs_1", "output"]


def test_order():
    g, x, a, b, out = chain()
    assert x < a < b < out and out > x and x <= x and not b < a
    a.append(b)
    x.prepend(b)
    assert names(g) == ["abs_1", "x", "neg", "output"] and b < x
    with pytest.raises(AssertionError, match="Attempting to move a Node into a different Graph"):
        a.append(Graph().placeholder("y"))


def test_order_survives_many_insertions():
    g, x, a, b, out = chain()
    place = random.Random(0)
    for _ in range(300):
        nodes = list(g.nodes)
        node = nodes[place.randrange(1, len(nodes))]
        with g.inserting_before(node):
            g.call_function(operator.pos, (x,))
    for _ in range(100):  # always the same place: the numbers between run out
        with g.inserting_after(x):
            g.call_function(operator.pos, (x,))
    nodes = list(g.nodes)
    assert all(p < n for p, n in itertools.pairwise(nodes)) and len(nodes) == 404
    assert [n.name for n in reversed(g.nodes)] == names(g)[::-1]
    verify.verify(g)


def test_inserting():
    g, x, a, b, out = chain()
    with g.inserting_before(a):
        g.placeholder("p")
    with g.inserting_after(x):
        g.placeholder("q")
        g.placeholder("r")
    g.inserting_before(x)
    g.placeholder("s")
    assert names(g) == ["s", "x", "r", "q", "p", "neg", "abs_1", "output"]
    assert len(g.nodes) == 8
    with pytest.raises(AssertionError, match="Node to insert before is not in graph"):
        Graph().inserting_before(x)


def test_erasing_while_iterating():
    g, x, a, b, out = chain()
    out.args = (x,)
    with pytest.raises(RuntimeError, match="Tried to erase Node neg but it still had 1 users"):
        g.erase_node(a)
    for node in reversed(g.nodes):
        if not node.users and node.op == "call_function":
            g.erase_node(node)
    assert names(g) == ["x", "output"] and len(g.nodes) == 2
    with pytest.warns(UserWarning, match="already erased"):
        g.erase_node(a)


def test_creation_errors():
    g = Graph()
    x = g.placeholder("x")
    for make in (g.call_function, g.call_method, g.get_attr):
        with pytest.raises(AssertionError, match="Expected target to be str, got <class 'int'>"):
            make(3)
    with pytest.raises(AssertionError, match="op 'foo' is not in _legal_ops"):
        g.create_node("foo", "x")
    with pytest.raises(ValueError, match="target x has type str but a Callable is expected"):
        g.create_node("call_function", "x")
    with pytest.raises(ValueError, match="but a str is expected"):
        g.create_node("call_method", len)
    with pytest.raises(AssertionError, match="args must be a tuple, got <class 'list'>"):
        g.call_function(len, [x])
    with pytest.raises(AssertionError, match="kwargs must be a dict, got <class 'list'>"):
        g.call_function(len, (x,), [3])
    with pytest.raises(AssertionError, match="Expected target to be str, got <class 'int'>"):
        g.placeholder(3)


def test_find_nodes():
    g, x, a, b, out = chain()
    assert g.find_nodes(op="placeholder") == [x] and g.output_node() is out
    assert g.find_nodes(op="call_function", target=operator.neg) == [a]
    with pytest.raises(AssertionError, match="target must not be None for call_function op"):
        g.find_nodes(op="call_function")
    with pytest.raises(StopIteration):
        Graph().output_node()


def test_map_arg():
    g, x, *_ = chain()
    assert map_arg([x, 3, {"k": (x,)}], lambda n: n.name) == ["x", 3, {"k": ("x",)}]
    assert map_aggregate((1, [2]), lambda v: v + 1) == (2, [3])


# ---- text ----------------------------------------------------------------------------------------


def test_text():
    g, x, a, b, out = chain()
    a.type = int
    assert str(g) == (
        "graph():\n"
        "    %x : [num_users=1] = placeholder[target=x]\n"
        "    %neg : int [num_users=1] = call_function[target=operator.neg](args = (%x,), "
        "kwargs = {})\n"
        "    %abs_1 : [num_users=1] = call_function[target=operator.abs](args = (%neg,), "
        "kwargs = {})\n"
        "    return abs_1"
    )
    assert g.python_code("self").src == (
        "\n\n\ndef forward(self, x):\n"
        "    neg : int = -x;  x = None\n"
        "    abs_1 = _operator_abs(neg);  neg = None\n"
        "    return abs_1\n    "
    )
    assert run(g, 3) == 3 and str(Graph()) == "graph():"
    assert Graph().python_code("self").src == "\n\n\ndef forward(self):\n    pass\n    "


def test_code_of_every_kind_of_value():
    g = Graph()
    x = g.placeholder("x", default_value=5)
    values = [None, True, 1.5, float("inf"), "a'b", (x,), [x, {"k": x}], slice(x, None), int, len]
    g.output(tuple(values))
    result = run(g)
    assert result == (None, True, 1.5, float("inf"), "a'b", (5,), [5, {"k": 5}], slice(5, None)) + (
        int,
        len,
    )


def test_code_of_operators():
    g = Graph()
    x = g.placeholder("x")
    power = g.call_function(operator.pow, (-1, x))
    item = g.call_function(operator.setitem, (power, 0, 1))
    g.call_function(operator.iadd, (x, 1))
    g.call_function(getattr, (x, "real"))
    g.call_function(getattr, (x, "not an identifier"))
    g.call_module("sub.0.lin", (x,))
    g.get_attr("a.0.b c")
    g.output(item)
    lines = g.python_code("self").src.strip().split("\n    ")
    assert lines[1:] == [
        "pow_1 = (-1) ** x",
        "pow_1[0] = 1;  setitem = pow_1;  pow_1 = None",
        "x += 1;  iadd = x;  iadd = None",
        "getattr_1 = x.real;  getattr_1 = None",
        "getattr_2 = getattr(x, 'not an identifier');  getattr_2 = None",
        'sub_0_lin = getattr(self.sub, "0").lin(x);  x = sub_0_lin = None',
        'a_0_b_c = getattr(getattr(self.a, "0"), "b c");  a_0_b_c = None',
        "return setitem",
    ]


def test_tabular(capsys):
    chain()[0].print_tabular()
    assert capsys.readouterr().out.split("\n")[:3] == [
        "opcode         name    target                   args      kwargs",
        "-------------  ------  -----------------------  --------  --------",
        "placeholder    x       x                        ()        {}",
    ]


def test_code_transformer():
    g, *_ = chain()
    with g.on_generate_code(lambda current: lambda body: ["x = x + 1\n", *body]):
        assert run(g, -3) == 2
    assert run(g, -3) == 3


def test_own_codegen():
    class ListCodeGen(CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            names = ", ".join(free_vars)
            return f"def forward(self, args_list):\n    {names}, = args_list"

        def process_inputs(self, *inputs):
            return inputs[0]

    g, *_ = chain()
    g.set_codegen(ListCodeGen())
    assert run(g, [-3]) == 3 and g.process_inputs([1, 2]) == [1, 2]
    g.set_codegen(BoxedCodeGen())
    boxed = [-3]
    assert run(g, boxed) == 3 and boxed == []


# ---- copies --------------------------------------------------------------------------------------


def test_copies():
    g, x, a, b, out = chain()
    a.meta["k"] = [1]
    for copied in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert str(copied) == str(g) and copied.python_code("self").src == g.python_code("self").src
        assert [n.meta for n in copied.nodes] == [n.meta for n in g.nodes]
        assert not set(copied.nodes) & set(g.nodes)
        verify.verify(copied)
        copied.placeholder("x")
        assert names(copied)[-1] == "x_1"
    assert copy.copy(a) is a
    other, table = Graph(), {}
    assert other.graph_copy(g, table) is table[b] and names(other) == ["x", "neg", "abs_1"]


def test_deepcopy_keeps_nodes_with_their_graph():
    g, x, a, b, out = chain()
    copied, node = copy.deepcopy((g, a))
    assert node.graph is copied and node.name == "neg"


# ---- checks --------------------------------------------------------------------------------------


def test_lint():
    g, x, a, b, out = chain()
    g.lint()
    a.prepend(b)
    with pytest.raises(RuntimeError, match="Argument 'neg' of Node 'abs_1' was used before it has"):
        g.lint()
    g, x, a, b, out = chain()
    other = Graph().placeholder("y")
    b.args = (other,)
    with pytest.raises(RuntimeError, match="Argument 'y' of Node 'abs_1' does not belong to this"):
        g.lint()
    g, x, a, b, out = chain()
    b.name = "x"
    with pytest.raises(RuntimeError, match="Node redefined name x!"):
        g.lint()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda g, x, a, b, out: a.prepend(b), "before it has been defined"),
        (lambda g, x, a, b, out: out.append(g.placeholder("y")), "placeholder y comes after"),
        (lambda g, x, a, b, out: out.append(g.call_function(len, (x,))), "comes after the output"),
        (lambda g, x, a, b, out: g.erase_node(out), "has no output"),
        (lambda g, x, a, b, out: a.users.clear(), "does not know that abs_1 uses it"),
        (lambda g, x, a, b, out: x.users.update({b: None}), "believes that abs_1 uses it"),
        (lambda g, x, a, b, out: setattr(b, "_order", 0), "out of order"),
    ],
)
def test_verify(spoil, message):
    parts = chain()
    verify.verify(parts[0])
    spoil(*parts)
    with pytest.raises(verify.VerifyError, match=message):
        verify.verify(parts[0])


# ---- rewrites ------------------------------------------------------------------------------------


def test_dead_code():
    g, x, a, b, out = chain()
    g.call_function(operator.pos, (x,))
    dead = next(iter(reversed(g.nodes)))
    a.append(dead)
    assert g.eliminate_dead_code() and names(g) == ["x", "neg", "abs_1", "output"]
    assert not g.eliminate_dead_code()
    out.args = (x,)
    assert not g.eliminate_dead_code(is_impure_node=lambda n: True)
    assert g.eliminate_dead_code() and names(g) == ["x", "output"]


def test_common_subexpressions():
    g = Graph()
    x = g.placeholder("x")
    parts = [g.call_function(operator.add, (x, k)) for k in (1, 1, 1.0, True, 1)]
    g.output(tuple(parts))
    assert rewrite.eliminate_common(g, lambda n: True) == 2
    assert run(g, 2) == (3, 3, 3.0, 3, 3) and len(g.nodes) == 5


def test_sorting():
    g, x, a, b, out = chain()
    x.prepend(out)
    out.append(b)
    rewrite.sort_topologically(g)
    assert names(g) == ["x", "neg", "abs_1", "output"]
    verify.verify(g)
    a.args = (b,)
    with pytest.raises(RuntimeError, match="form a circle"):
        rewrite.sort_topologically(g)


def square_of_sum():
    p = Graph()
    a, b = p.placeholder("a"), p.placeholder("b")
    s = p.call_function(operator.add, (a, b))
    p.output(p.call_function(operator.mul, (s, s)))
    return p


def test_matching():
    g = Graph()
    x, y = g.placeholder("x"), g.placeholder("y")
    s = g.call_function(operator.add, (x, y))
    m = g.call_function(operator.mul, (s, s))
    t = g.call_function(operator.add, (m, 1))
    n = g.call_function(operator.mul, (t, t))
    u = g.call_function(operator.add, (x, x))
    g.output((n, g.call_function(operator.mul, (u, u)), u))
    matches = rewrite.find_matches(square_of_sum(), g)
    # The third sum is used elsewhere too.
    assert [match.anchors for match in matches] == [[m], [n]]
    assert matches[0].inputs == [x, y] and matches[1].inputs == [m, 1]

    r = Graph()
    a, b = r.placeholder("a"), r.placeholder("b")
    r.output(r.call_function(operator.sub, (a, b)))
    made = rewrite.replace_matches(g, matches, r)
    verify.verify(g)
    assert [[node.name for node in nodes] for nodes in made] == [["sub"], ["sub_1"]]
    assert run(g, 5, 2) == (2, 100, 10)


def test_pattern_with_literals_and_two_results():
    p = Graph()
    a = p.placeholder("a")
    one = p.call_function(operator.add, (a, 1))
    p.output((one, p.call_function(operator.neg, (one,))))
    g = Graph()
    x = g.placeholder("x")
    for k in (2, 1):
        s = g.call_function(operator.add, (x, k))
        n = g.call_function(operator.neg, (s,))
        x = g.call_function(operator.mul, (s, n))
    g.output(x)
    assert len(rewrite.find_matches(p, g)) == 1
    assert len(rewrite.find_matches(p, g, ignore_literals=True)) == 2
    with pytest.raises(ValueError, match="the pattern computes nothing"):
        empty = Graph()
        empty.output(empty.placeholder("a"))
        rewrite.find_matches(empty, g)


def test_same_structure():
    left, right = chain()[0], Graph()
    z = right.placeholder("z")
    right.output(right.call_function(operator.abs, (right.call_function(operator.neg, (z,)),)))
    assert rewrite.same_structure(left, right)
    right.output_node().args = (z,)
    assert not rewrite.same_structure(left, right)


def test_nodes_have_no_extra_weight():
    g, x, *_ = chain()
    assert isinstance(x, Node) and vars(x) == {}
    x.note = 1  # but users may attach things
    assert vars(x) == {"note": 1}
