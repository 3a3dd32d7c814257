"""Graph modules, tracers, proxies, interpreters and passes."""

import copy
import importlib.util
import math
import operator
import pickle
import sys

import pytest

import flambeau as torch
import flambeau.fx as fx
from flambeau import nn
from flambeau.fx.experimental import optimization
from flambeau.fx.passes import graph_drawer, shape_prop, split_module, tools_common
from flambeau.fx.passes.infra import pass_base, pass_manager
from flambeau.fx.passes.pass_manager import PassManager as OldPassManager
from flambeau.fx.subgraph_rewriter import replace_pattern_with_filters
from tests.fx.programs import asserting

fx.wrap("len")


@fx.wrap
def kept_whole(x):
    return x * 3 if x.sum() > 0 else x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 3)
        self.p = nn.Parameter(torch.ones(3))
        self.seq = nn.Sequential(nn.ReLU(), nn.Linear(3, 1))
        self.register_buffer("b", torch.ones(1), persistent=False)

    def forward(self, x):
        return self.seq(self.lin(x) * self.p + self.b)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def gm(net):
    return fx.symbolic_trace(net)


X = torch.ones(4, 2)


# ---- GraphModule ---------------------------------------------------------------------------------


def test_is_a_module(net, gm):
    assert isinstance(gm, nn.Module) and isinstance(gm, fx.GraphModule)
    assert type(gm).__name__ == "Net" and gm.graph.owning_module is gm
    assert gm.p is net.p and list(gm.state_dict()) == list(net.state_dict())
    assert torch.equal(gm(X), net(X))
    assert str(gm).endswith("# To see more debug info, please use `graph_module.print_readable()`")
    gm(X).sum().backward()
    assert net.p.grad is not None


def test_recompile(gm):
    node = gm.graph.find_nodes(op="call_function", target=operator.mul)[0]
    before = gm(X)
    node.target = operator.truediv
    assert torch.equal(gm(X), before)
    code = gm.recompile()
    assert "truediv = " not in code.src and " / " in code.src and gm.code == code.src
    with pytest.raises(AssertionError, match="Expected a Graph instance"):
        gm.graph = 3


def test_roots():
    g = fx.Graph()
    g.output(g.get_attr("a.b"))
    made = fx.GraphModule({"a.b": X}, g)
    assert made() is made.a.b and list(made.state_dict()) == ["a.b"]
    with pytest.raises(RuntimeError, match=r"referenced target a.b but that target was not prov"):
        fx.GraphModule({}, g)
    with pytest.raises(RuntimeError, match="Unsupported type 3 passed for root!"):
        fx.GraphModule(3, g)
    with pytest.raises(AttributeError):
        fx.GraphModule(nn.Module(), g)


def test_copies(net, gm):
    gm.meta["note"] = 1
    for copied in (copy.deepcopy(gm), pickle.loads(pickle.dumps(gm)), copy.copy(gm)):
        assert copied.code == gm.code and torch.equal(copied(X), gm(X))
        assert type(copied).__name__ == "Net" and copied.graph.owning_module is copied
    assert copy.deepcopy(gm).meta == {"note": 1} and copy.deepcopy(gm).p is not gm.p


def test_subclass_deepcopy(net):
    class Mine(fx.GraphModule):
        extra = 5

    mine = Mine(net, fx.Tracer().trace(net))
    assert isinstance(copy.deepcopy(mine), Mine)


def test_submodules(gm):
    assert gm.add_submodule("new.inner", nn.ReLU()) and isinstance(gm.new.inner, nn.ReLU)
    with pytest.raises(TypeError, match="is not a Module subclass"):
        gm.add_submodule("new", gm.p)
    assert gm.delete_submodule("new.inner") and not gm.delete_submodule("zzz")
    gm.add_submodule("unused.deep", nn.ReLU())
    gm.delete_all_unused_submodules()
    assert [name for name, _ in gm.named_modules()] == ["", "lin", "seq", "seq.0", "seq.1"]


def test_missing_references_warn(gm):
    with pytest.warns(UserWarning, match="get_attr Node with no underlying reference"):
        gm.graph.get_attr("nope.w")
    with pytest.raises(RuntimeError, match=r"Node nope_w target nope.w references nonexistent"):
        gm.graph.lint()


def test_to_folder(net, gm, tmp_path):
    gm.eval()
    with pytest.warns(UserWarning, match="saved as pickled files"):
        gm.to_folder(tmp_path / "saved", "Saved")
    spec = importlib.util.spec_from_file_location("saved", tmp_path / "saved" / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["saved"] = module
    try:
        spec.loader.exec_module(module)
        assert torch.equal(module.Saved()(X), net(X))
    finally:
        for name in [n for n in sys.modules if n.partition(".")[0] == "saved"]:
            del sys.modules[name]


def test_error_in_generated_code(capsys):
    gm = fx.symbolic_trace(lambda x: (x + 1) @ x)
    with pytest.raises(RuntimeError):
        gm(torch.ones(2, 3))
    text = capsys.readouterr().err
    assert "Call using an FX-traced Module, line 6 of the traced Module's generated forward" in text
    assert "matmul = add @ x" in text and "<--- HERE" in text


def test_print_readable():
    g = fx.Graph()
    x = g.placeholder("x")
    y = g.call_function(torch.neg, (x,))
    y.meta["stack_trace"] = 'File "dir/foo.py", line 3, in f\n    y = x.neg()'
    y.meta["val"] = torch.ones(2, 3)
    z = g.call_function(torch.abs, (y,))
    z.meta["val"] = torch.ones(1, 3, dtype=torch.bfloat16)
    g.output(z)
    made = fx.GraphModule({}, g)
    assert made.print_readable(False) == (
        "class GraphModule(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        # File: foo.py:3 in f, code: y = x.neg()\n"
        '        neg: "f32[2, 3]" = torch.neg(x);  x = None\n'
        "\n"
        "        # No stacktrace found for following nodes\n"
        '        abs_1: "bf16[1, 3]" = torch.abs(neg);  neg = None\n'
        "        return abs_1\n"
    )
    text = made.print_readable(False, include_stride=True, include_device=True)
    assert 'neg: "f32[2, 3][3, 1]cpu" = ' in text
    assert "\x1b[31mf32\x1b[0m\x1b[34m[2, 3]" in made.print_readable(False, colored=True)


def test_hooks(gm):
    seen = []
    gm._register_create_node_hook(lambda node: seen.append(("create", node.name)))
    gm._register_erase_node_hook(lambda node: seen.append(("erase", node.name)))
    with gm._set_replace_hook(lambda old, new, user: seen.append((old.name, new, user.name))):
        mul = gm.graph.find_nodes(op="call_function", target=operator.mul)[0]
        with gm.graph.inserting_after(mul):
            new = gm.graph.call_function(operator.neg, (mul.args[0],))
        mul.replace_all_uses_with(new)
    gm.graph.erase_node(mul)
    assert seen == [("create", "neg"), ("mul", "neg", "add"), ("erase", "mul")]


# ---- tracing -------------------------------------------------------------------------------------


def test_wrap():
    def f(x):
        return kept_whole(x) + len(x) + math.sqrt(x.sum())

    gm = fx.symbolic_trace(f)
    targets = [n.target for n in gm.graph.nodes if n.op == "call_function"]
    assert targets[:2] == [kept_whole, len] and math.sqrt in targets
    assert torch.equal(gm(X), f(X)) and gm.code.count(".wrap(") == 3
    assert kept_whole(X).sum() == 24 and math.sqrt(4) == 2  # as before
    with pytest.raises(NotImplementedError, match="wrap must be called at the top level of a mod"):
        fx.wrap("abs")
    with pytest.raises(RuntimeError, match="Unsupported type for global function!"):
        fx.wrap(3)


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (lambda x: x if x.sum() > 0 else -x, fx.proxy.TraceError, "inputs to control flow"),
        (lambda x: list(x), fx.proxy.TraceError, "Proxy object cannot be iterated"),
        (lambda x: print(*x), fx.proxy.TraceError, "Proxy object cannot be iterated"),
        (lambda x: x.__len__(), RuntimeError, "'len' is not supported in symbolic tracing"),
        (lambda x: range(x), TypeError, "cannot be interpreted as an integer"),
        (lambda x: nn.Linear(1, 1)(x), NameError, "module is not installed as a submodule"),
        (lambda x: x + nn.Parameter(X), NameError, "parameter is not a member of this module"),
        (lambda x: x.foo({x: 1}), RuntimeError, "cannot contain a Node"),
        (lambda x: x.foo(object()), NotImplementedError, "argument of type: <class 'object'>"),
    ],
)
def test_what_cannot_be_traced(function, kind, message):
    with pytest.raises(kind, match=message):
        fx.symbolic_trace(function)
    assert not fx._symbolic_trace.is_fx_tracing()
    assert torch.equal(nn.ReLU()(X), X)  # nothing stays patched


def test_tracers(net):
    class Whole(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    graph = Whole().trace(net)
    assert [n.target for n in graph.nodes if n.op == "call_module"] == ["lin", "seq"]
    assert fx.GraphModule(net, graph)(X).shape == (4, 1) and graph._tracer_cls is Whole

    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    trace = next(n.stack_trace for n in tracer.trace(net).nodes if n.target is operator.mul)
    assert trace.endswith("return self.seq(self.lin(x) * self.p + self.b)")
    assert trace.count("File ") == 1

    constant = fx.Tracer(param_shapes_constant=True)

    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.ones(2, 5))

        def forward(self, x):
            return x.sum() + self.p.shape[1]

    assert 5 in [a for n in constant.trace(Other()).nodes for a in n.args]


def test_buffer_proxies(net):
    class Buffers(fx.Tracer):
        proxy_buffer_attributes = True

    names = [n.target for n in Buffers().trace(net).nodes if n.op == "get_attr"]
    assert names == ["p", "b"]


def test_proxies_by_hand():
    g = fx.Graph()
    a, b = (fx.Proxy(g.placeholder(name)) for name in "ab")
    out = (a + b).relu().foo[0]
    g.output(out.node)
    assert [n.name for n in g.nodes] == "a b add relu getattr_1 getitem output".split()
    assert repr(out) == "Proxy(getitem)" and len({a, b, a}) == 2
    assert "foo" not in str(g).split("getitem")[0].split("relu")[0]


def test_attributes_are_recorded_when_used():
    def f(x):
        x.unused  # noqa: B018
        return x.relu()

    assert len(fx.symbolic_trace(f).graph.nodes) == 3


def test_trace_asserts():
    class Asserting(fx.Tracer):
        trace_asserts = True

    # Not of this file: pytest rewrites assertions in it.
    graph = Asserting().trace(asserting)
    names = "x sum_1 gt _assert_fn isnan any_1 not_ _assert_fn_1 output"
    assert [node.name for node in graph.nodes] == names.split()
    made = fx.GraphModule(nn.Module(), graph)
    assert made(X) is X
    with pytest.raises(AssertionError):
        made(-X)


def test_annotate_and_provenance(net):
    tracer = fx.Tracer()
    with fx.traceback.annotate({"stage": 1}):
        graph = tracer.trace(net)
    assert {n.meta["custom"]["stage"] for n in graph.nodes} == {1}
    gm = fx.GraphModule(net, graph)
    with fx.traceback.preserve_node_meta():
        assert fx.traceback.has_preserved_node_meta()
        again = fx.Transformer(gm).transform()
    assert not fx.traceback.has_preserved_node_meta()
    mul = again.graph.find_nodes(op="call_function", target=operator.mul)[0]
    assert mul.meta["custom"] == {"stage": 1} and mul.meta["from_node"][-1][0] == "mul"


# ---- interpreters --------------------------------------------------------------------------------


def test_interpreter(net, gm):
    ran = []

    class Watch(fx.Interpreter):
        def run_node(self, n):
            ran.append((n.name, len(self.env)))
            return super().run_node(n)

    assert torch.equal(Watch(gm).run(X), gm(X))
    assert max(size for _, size in ran) <= 3  # values are dropped after their last use
    keeping = fx.Interpreter(gm, garbage_collect_values=False)
    keeping.run(X)
    assert len(keeping.env) == len(gm.graph.nodes)
    inputs = [X]
    assert torch.equal(fx.Interpreter(gm).boxed_run(inputs), gm(X)) and inputs == []
    first = gm.graph.find_nodes(op="call_module", target="lin")[0]
    given = fx.Interpreter(gm).run(X, initial_env={first: torch.zeros(4, 3)})
    assert torch.equal(given, net.seq(torch.ones(4, 3)))


def test_interpreter_errors(gm):
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x, but one"):
        fx.Interpreter(gm).run()
    with pytest.raises(RuntimeError, match=r"While executing %lin : .*= call_module"):
        fx.Interpreter(gm).run(torch.ones(2, 5))

    class Quiet(fx.Interpreter):
        def call_module(self, target, args, kwargs):
            raise KeyError("k")

    with pytest.raises(RuntimeError, match="k\n\nWhile executing"):
        Quiet(gm).run(X)


def test_transformer(gm):
    class Other(fx.Transformer):
        def call_function(self, target, args, kwargs):
            target = operator.truediv if target is operator.mul else target
            return super().call_function(target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return super().call_method("neg", args, kwargs)

    made = Other(gm).transform()
    assert "lin / p" in made.code and made.lin is gm.lin


# ---- rewriting -----------------------------------------------------------------------------------


def test_replace_pattern(gm):
    matches = fx.replace_pattern(gm, lambda a, b: a * b, lambda a, b: torch.mul(a, b).relu())
    assert len(matches) == 1 and matches[0].anchor.name == "mul"
    assert {p.name: n.name for p, n in matches[0].nodes_map.items()} == {
        "mul": "mul",
        "a": "lin",
        "b": "p",
    }
    body = [line.partition(";")[0].strip() for line in gm.code.strip().split("\n")]
    assert body[3:7] == ["b = self.b", "mul_1 = torch.mul(lin, p)", "relu = mul_1.relu()"] + [
        "add = relu + b"
    ]
    gm(X)


def test_replace_pattern_with_filters(gm):
    def refuse(match, graph, pattern):
        return match.anchors[0].op != "call_function"

    def pattern(a, b):
        return a + b

    assert replace_pattern_with_filters(gm, pattern, pattern, [refuse]) == []

    def callback(match, graph, pattern_graph):
        return fx.symbolic_trace(lambda a, b: a - b).graph

    done = replace_pattern_with_filters(gm, pattern, replacement_callback=callback)
    assert [node.name for node in done[0].replacements] == ["sub"] and " - " in gm.code


def test_replacement_with_modules():
    class Pattern(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x)

    class Replacement(nn.Module):
        def __init__(self):
            super().__init__()
            self.other = nn.GELU()

        def forward(self, x):
            return self.other(x)

    gm = fx.symbolic_trace(Pattern())
    fx.replace_pattern(gm, fx.symbolic_trace(Pattern()), fx.symbolic_trace(Replacement()))
    assert [n.target for n in gm.graph.nodes if n.op == "call_module"] == ["other"]
    assert torch.equal(gm(X), nn.GELU()(X)) and not hasattr(gm, "act")


def test_normalized_arguments(gm):
    def f(a, b=2, *, c=3):
        return a

    node = fx.Graph().call_function(f, (1,), {"c": 4})
    assert node.normalized_arguments(None) == ((1,), {"b": 2, "c": 4})
    assert node.normalized_arguments(None, normalize_to_only_use_kwargs=True) == (
        (),
        {"a": 1, "b": 2, "c": 4},
    )
    lin = gm.graph.find_nodes(op="call_module", target="lin")[0]
    assert list(lin.normalized_arguments(gm, normalize_to_only_use_kwargs=True).kwargs) == ["input"]


# ---- passes --------------------------------------------------------------------------------------


def test_shape_prop(gm):
    shape_prop.ShapeProp(gm).propagate(X)
    meta = {n.name: n.meta["tensor_meta"] for n in gm.graph.nodes}
    assert meta["lin"].shape == (4, 3) and meta["lin"].stride == (3, 1)
    assert meta["lin"].dtype is torch.float32 and meta["lin"].requires_grad
    assert meta["lin"].memory_format is torch.contiguous_format and meta["b"].qparams == {}
    assert "tensor_meta" in meta or meta["output"].shape == (4, 1)
    assert next(iter(gm.graph.nodes)).meta["type"] is torch.Tensor
    with pytest.raises(RuntimeError, match="ShapeProp error for: node=%lin"):
        shape_prop.ShapeProp(gm).propagate(torch.ones(2, 7))


def test_split_module(net, gm):
    parts = iter([0, 0, 1, 1, 2, 2])
    made = split_module.split_module(gm, net, lambda node: next(parts, 2))
    assert [n.target for n in made.graph.nodes if n.op == "call_module"] == [
        "submod_0",
        "submod_1",
        "submod_2",
    ]
    made.graph.lint()
    assert torch.equal(made(X), net(X)) and isinstance(made.submod_0, fx.GraphModule)


def test_split_with_several_outputs():
    def f(x, y):
        a, b = x + y, x - y
        c = a * b
        return c + a, b

    gm = fx.symbolic_trace(f)
    home = {"add": 0, "sub": 0, "mul": 1, "add_1": 1}
    made = split_module.split_module(gm, gm, lambda node: home[node.name])
    for left, right in zip(made(X, 2 * X), f(X, 2 * X), strict=True):
        assert torch.equal(left, right)
    circle = {"add": 0, "sub": 1, "mul": 1, "add_1": 0}
    with pytest.raises(RuntimeError, match="cycle exists between partitions!"):
        split_module.split_module(gm, gm, lambda node: circle[node.name])


def test_legalize_graph(gm):
    nodes = list(gm.graph.nodes)
    nodes[0].prepend(nodes[-2])
    tools_common.legalize_graph(gm).graph.lint()
    gm.recompile()
    assert gm(X).shape == (4, 1)


def test_pass_manager(gm):
    order = []

    class Neg(pass_base.PassBase):
        def call(self, graph_module):
            order.append("neg")
            return pass_base.PassResult(graph_module, len(order) < 3)

    def first(graph_module):
        order.append("first")

    wrapped = pass_manager.pass_result_wrapper(first)
    neg = Neg()
    manager = pass_manager.PassManager(
        passes=[neg, wrapped],
        constraints=[pass_manager.this_before_that_pass_constraint(wrapped, neg)],
        run_checks_after_each_pass=True,
    )
    checks = []
    manager.add_checks(lambda module: checks.append(module))
    assert manager(gm).modified and order == ["first", "neg"] and len(checks) == 3
    manager.add_constraint(pass_manager.this_before_that_pass_constraint(neg, wrapped))
    with pytest.raises(RuntimeError, match="Circular dependency detected within the following"):
        manager(gm)
    failing = pass_manager.PassManager(passes=[lambda module: 3])
    with pytest.raises(Exception, match="An error occurred when running the '<lambda>' pass"):
        failing(gm)

    old = OldPassManager([lambda x: x + 1, lambda x: x * 2])
    assert old(3) == 8


def test_graph_drawer(gm, tmp_path):
    shape_prop.ShapeProp(gm).propagate(X)
    drawing = graph_drawer.FxGraphDrawer(gm, "net").get_dot_graph()
    drawing.write_svg(tmp_path / "net.svg")
    svg = (tmp_path / "net.svg").read_text()
    assert svg.startswith("<svg") and svg.count("<rect") == len(gm.graph.nodes)
    assert svg.count("<path d=") == 1 + sum(len(n.all_input_nodes) for n in gm.graph.nodes)
    assert "f32[4, 3]" in svg and "weight: f32[3, 2]" in svg
    assert 'digraph "net"' in drawing.to_string()


def test_fuse_conv_and_batch_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5)).eval()
    model[1].running_mean.fill_(0.3)
    model[1].running_var.fill_(2.0)
    x = torch.randn(2, 2, 6, 6)
    expected = model(x)
    fused = optimization.fuse(model)
    assert [n.target for n in fused.graph.nodes if n.op == "call_module"] == ["0", "2", "3"]
    assert torch.allclose(fused(x), expected, atol=1e-6)
    assert type(model[1]) is nn.BatchNorm2d
    without = optimization.remove_dropout(model)
    assert "getattr(self, " in without.code and not any(
        isinstance(m, nn.Dropout) for m in without.modules()
    )
