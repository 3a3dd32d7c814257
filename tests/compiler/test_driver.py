"""The driver: back ends, errors that are contained, stances, recompilation, what it shows."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau._functorch.aot_autograd import make_boxed_func
from flambeau._src.compiler import backends
from flambeau._src.compiler.driver import Compiler
from flambeau._src.compiler.settings import DYNAMO

exc = torch._dynamo.exc


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._logging.set_logs()
    torch._dynamo.reset()


class Counting:
    """A back end that counts what it is asked for."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.graphs.append(gm)
        return gm.forward

    def __len__(self) -> int:
        return len(self.graphs)


def plain(x: Any, n: int = 2) -> Any:
    return (x.sin() + n) * torch.exp(x)


X = torch.arange(4.0)


# ---- back ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor", Counting()]
)
def test_each_back_end_gives_what_eager_gives(backend: Any) -> None:
    x, y = (X.clone().requires_grad_() for _ in range(2))
    compiled = torch.compile(plain, backend=backend)
    out, expected = compiled(x, n=3), plain(y, 3)
    out.sum().backward(), expected.sum().backward()
    assert torch.allclose(out, expected) and torch.allclose(x.grad, y.grad)
    (entry,) = compiled.compiler().entries
    assert not entry.contained and entry.history.artefact("capture") is not None


def test_a_back_end_is_given_a_module_of_torch_functions() -> None:
    seen = []

    def look(gm: Any, example_inputs: Any) -> Any:
        seen.append((gm, example_inputs))
        return gm

    assert torch.allclose(torch.compile(plain, backend=look)(X), plain(X))
    ((gm, examples),) = seen
    assert isinstance(gm, torch.fx.GraphModule) and examples[0] is X
    targets = [n.target for n in gm.graph.nodes if n.op != "placeholder"]
    assert "sin" in targets and torch.exp in targets
    assert all("example_value" in n.meta for n in gm.graph.nodes if n.op.startswith("call"))


def test_names_of_back_ends() -> None:
    assert torch.compiler.list_backends() == ["inductor"]
    assert {"eager", "aot_eager", "inductor"} <= set(torch.compiler.list_backends(None))
    with pytest.raises(exc.InvalidBackend, match="Invalid backend: 'nope'"):
        torch.compile(plain, backend="nope")
    assert issubclass(exc.InvalidBackend, RuntimeError)
    with pytest.raises(RuntimeError, match="Unrecognized mode=x, should be one of: default, lite"):
        torch.compile(plain, mode="x")
    with pytest.raises(RuntimeError, match="Unexpected optimization option zz, known options are"):
        torch.compile(plain, options={"zz": 1})
    with pytest.raises(RuntimeError, match="epilogue_fusion, got int should be bool"):
        torch.compile(plain, options={"epilogue_fusion": 3})
    with pytest.raises(RuntimeError, match="Either mode or options"):
        torch.compile(plain, mode="default", options={"epilogue_fusion": True})
    with pytest.raises(AssertionError, match="A callable function is expected"):
        torch.compile(3)
    with pytest.raises(TypeError, match="unexpected keyword"):
        torch.compile(plain, backends="eager")


def test_registering_a_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_KNOWN", dict(backends._KNOWN))

    @torch._dynamo.register_backend
    def mine(gm: Any, example_inputs: Any) -> Any:
        return gm.forward

    assert "mine" in torch._dynamo.list_backends() and mine is torch._dynamo.lookup_backend("mine")
    assert torch.allclose(torch.compile(plain, backend="mine")(X), plain(X))
    with pytest.raises(AssertionError, match="duplicate name: mine"):
        torch._dynamo.register_backend(mine)


def test_back_ends_of_other_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Counting()

    class Point:
        name = "elsewhere"

        def load(self) -> Any:
            return found

    monkeypatch.setattr(backends, "_KNOWN", dict(backends._KNOWN))
    monkeypatch.setattr(backends, "_FOUND", {})
    monkeypatch.setattr(backends, "_SEARCHED", [])
    given = {"torch_dynamo_backends": [Point()]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: given[group])
    assert "elsewhere" in torch._dynamo.list_backends()
    torch.compile(plain, backend="elsewhere")(X)
    assert len(found) == 1


def test_functions_of_halves() -> None:
    kinds: list[str] = []

    def half(kind: str) -> Any:
        def compile_half(gm: Any, example_inputs: Any) -> Any:
            kinds.append(kind)
            return make_boxed_func(gm.forward)

        return compile_half

    backend = torch._dynamo.backends.common.aot_autograd(
        fw_compiler=half("forward"), bw_compiler=half("backward")
    )
    x = X.clone().requires_grad_()
    torch.compile(plain, backend=backend)(x).sum().backward()
    assert kinds == ["forward", "backward"]


# ---- errors --------------------------------------------------------------------------------------


def test_what_a_compiled_callable_raises_is_the_users() -> None:
    def late(gm: Any, example_inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise KeyError("zz")

        return run

    with pytest.raises(KeyError, match="zz"):
        torch.compile(plain, backend=late)(X)


def test_what_the_program_raises_is_what_it_raises() -> None:
    def wrong(x: Any) -> Any:
        return x.view(3, 5)

    with pytest.raises(RuntimeError, match=r"shape '.3, 5.' is invalid for input of size 4"):
        torch.compile(wrong, backend="eager")(X)


# ---- recompilation -------------------------------------------------------------------------------


def test_the_limit_is_announced_once(caplog: Any) -> None:
    count = Counting()
    compiled = torch.compile(plain, backend=count, dynamic=False)
    logging.getLogger("flambeau").propagate = True
    with caplog.at_level(logging.WARNING):
        for n in range(12):
            assert torch.allclose(compiled(X, n / 2), plain(X, n / 2))
    (note,) = [m for m in caplog.messages if "recompile_limit" in m]
    assert "'plain'" in note and "L['n']" in note and "test_driver.py" in note
    assert len(count) == 8 and torch.allclose(compiled(X, 1.5), plain(X, 1.5))


def test_a_function_at_its_limit_is_left_alone(monkeypatch: Any) -> None:
    """What it calls too; its versions are still found. As in torch, until a reset."""
    asked = []
    offered = Compiler.__call__

    def note(self: Any, code: Any, *rest: Any) -> Any:
        if code.co_name in ("inner", "outer"):
            asked.append(code.co_name)
        return offered(self, code, *rest)

    monkeypatch.setattr(Compiler, "__call__", note)
    back_end = Counting()

    def inner(x: Any) -> Any:
        return x + 1

    def outer(x: Any, name: str) -> Any:
        return inner(x * len(name))

    compiled = torch.compile(outer, backend=back_end, recompile_limit=2)
    for n in (1, 2, 3):
        assert torch.equal(compiled(X, "a" * n), X * n + 1)
    assert len(back_end) == 2 and asked == ["outer"] * 3
    for _ in range(5):
        for n in (4, 1, 3, 2, 5):
            assert torch.equal(compiled(X, "a" * n), X * n + 1)
    assert len(back_end) == 2 and asked == ["outer"] * 3
    torch.compile(inner, backend=back_end, recompile_limit=2)(X)
    assert len(back_end) == 3 and asked == ["outer"] * 3 + ["inner"]
    torch._dynamo.reset()
    compiled(X, "aaa")
    assert len(back_end) == 4


def test_a_limit_with_fullgraph_is_an_error_each_time_until_it_is_raised() -> None:
    compiled = torch.compile(plain, backend="eager", dynamic=False, fullgraph=True)
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled(X, 0.5), compiled(X, 1.5)
        for _ in range(2):
            with pytest.raises(exc.FailOnRecompileLimitHit, match="fullgraph=True"):
                compiled(X, 2.5)
            compiled(X, 1.5)
    assert torch.allclose(compiled(X, 2.5), plain(X, 2.5))


def test_limits_and_refusals() -> None:
    def calls(n: int, **options: Any) -> Any:
        compiled = torch.compile(plain, backend="eager", dynamic=False, **options)
        return [compiled(X, i / 2) for i in range(n)]

    with torch._dynamo.config.patch(cache_size_limit=2, fail_on_recompile_limit_hit=True):
        assert torch._dynamo.config.recompile_limit == 2
        with pytest.raises(exc.FailOnRecompileLimitHit, match="fail_on_recompile_limit_hit"):
            calls(4)
    torch._dynamo.reset()
    with pytest.raises(exc.FailOnRecompileLimitHit, match="fullgraph=True"):
        calls(4, fullgraph=True, recompile_limit=3)
    torch._dynamo.reset()
    refused = pytest.raises(exc.RecompileError, match=r"Recompiling function plain[\s\S]*L\['n'\]")
    with torch._dynamo.config.patch(error_on_recompile=True), refused:
        calls(2)


def test_recompilations_are_shown(caplog: Any) -> None:
    torch._logging.set_logs(recompiles=True, guards=True, graph_code=True)
    logging.getLogger("flambeau").propagate = True
    compiled = torch.compile(plain, backend="eager")
    with caplog.at_level(logging.INFO, "flambeau.recompiles"):
        compiled(X, 1), compiled(X, 2)
    text = "\n".join(caplog.messages)
    assert "Recompiling function plain" in text and "triggered by the following guard" in text
    assert "def forward(self" in text and "x.sin()" in text.replace("l_x_", "x")
    with pytest.raises(TypeError, match="nonsense"):
        torch._logging.set_logs(nonsense=True)
    with pytest.raises(ValueError, match="artifact guards"):
        torch._logging.set_logs(guards=3)


# ---- stances and disable -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stance", "counts"),
    [
        ("default", [1, 2, 2]),
        ("force_eager", [0, 0, 0]),
        ("eager_on_recompile", [0, 0, 0]),
        ("eager_then_compile", [0, 1, 2]),
    ],
)
def test_stances(stance: str, counts: list[int]) -> None:
    count = Counting()
    compiled = torch.compile(plain, backend=count)
    with torch.compiler.set_stance(stance):
        for x, n in zip((X, X.reshape(2, 2), X), counts, strict=True):
            assert torch.allclose(compiled(x), plain(x)) and len(count) == n
    compiled(X)
    assert len(count) == max(counts[-1], 1)


def test_stances_that_forbid() -> None:
    compiled = torch.compile(plain, backend="eager")
    compiled(X)
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(
            RuntimeError, match=r"Detected recompile when torch.compile stance is 'f"
        ):
            compiled(X[:2])
    with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
        compiled(X)
        with pytest.raises(RuntimeError, match="skip_guard_eval_unsafe stance"):
            compiled(X[:2])
    with pytest.raises(
        RuntimeError, match=r"invalid torch.compile stance 'DynamoStance\(stance='n"
    ):
        torch.compiler.set_stance("nope")
    with pytest.raises(RuntimeError, match="non-default stance cannot have force_backend set"):
        torch.compiler.set_stance("force_eager", force_backend="eager")
    other = Counting()
    with torch.compiler.set_stance("default", force_backend=other):
        compiled(X.double())
    assert len(other) == 1


def test_a_stance_around_a_function() -> None:
    count = Counting()
    compiled = torch.compile(plain, backend=count)

    @torch.compiler.set_stance("force_eager")
    def outer(x: Any) -> Any:
        return compiled(x)

    outer(X)
    assert len(count) == 0
    compiled(X)
    assert len(count) == 1
    torch.compiler.set_stance("force_eager")
    try:
        compiled(X[:2])
        assert len(count) == 1
    finally:
        torch.compiler.set_stance("default")


def test_disabled_functions_are_left_alone() -> None:
    count = Counting()

    @torch.compiler.disable(reason="for the test")
    def apart(x: Any) -> Any:
        return helper(x) * 3

    def helper(x: Any) -> Any:
        return x + 1

    def outer(x: Any) -> Any:
        return apart(x.sin()).cos()

    compiled = torch.compile(outer, backend=count)
    assert torch.allclose(compiled(X), outer(X))
    assert [[n.target for n in g.graph.nodes if n.op == "call_method"] for g in count.graphs] == [
        ["sin"], ["cos"],
    ]  # fmt: skip
    with pytest.raises(exc.Unsupported, match="disable"):
        torch.compile(outer, backend="eager", fullgraph=True)(X)
    with torch._dynamo.config.patch(disable=True):
        assert torch.compile(outer, backend=count) is outer
    assert torch.compile(outer, disable=True) is outer


def test_not_recursive_disable_leaves_callees_to_the_capture() -> None:
    count = Counting()

    def inner(x: Any) -> Any:
        return x.sin() + 1

    @torch.compiler.disable(recursive=False)
    def apart(x: Any) -> Any:
        return inner(x) * 3

    def outer(x: Any) -> Any:
        return apart(x.exp())

    assert torch.allclose(torch.compile(outer, backend=count)(X), (X.exp().sin() + 1) * 3)
    names = [n.target for g in count.graphs for n in g.graph.nodes if n.op == "call_method"]
    assert names == ["exp", "sin"]


# ---- around --------------------------------------------------------------------------------------


def test_decorators_methods_and_keywords() -> None:
    @torch.compile(backend="eager")
    def f(x: Any, *, k: int = 1) -> Any:
        """Text."""
        return x * k

    class A:
        scale = 2

        @torch.compile(backend="eager")
        def method(self, x: Any, k: int = 1) -> Any:
            return x * k * self.scale

        def __call__(self, x: Any) -> Any:
            return x * self.scale

    assert f.__name__ == "f" and f.__doc__ == "Text." and f(X, k=3).equal(X * 3)
    a = A()
    assert a.method(X, k=3).equal(X * 6)
    a.scale = 5
    assert a.method(X, k=3).equal(X * 15) and torch.compile(a, backend="eager")(X).equal(X * 5)
    assert torch.compile(a.method, backend="eager")(X).equal(X * 5)
    assert torch.compile(torch.sin, backend="eager")(X).equal(X.sin())
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        f(X, z=3)


def test_nested_compile_and_reset() -> None:
    count = Counting()
    inner = torch.compile(plain, backend=count)
    outer = torch.compile(lambda x: inner(x) + 1, backend=count)
    assert torch.allclose(outer(X), plain(X) + 1) and len(count) == 1
    torch.compiler.reset()
    outer(X)
    assert len(count) == 2


def test_threads_compile_for_themselves() -> None:
    count = Counting()
    compiled = torch.compile(plain, backend=count)
    outs: list[Any] = []
    threads = [threading.Thread(target=lambda: outs.append(compiled(X))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(outs) == 4 and all(torch.allclose(o, plain(X)) for o in outs) and len(count) == 1


def test_is_compiling_is_true_in_the_graph_only() -> None:
    def f(x: Any) -> Any:
        return x + (10 if torch.compiler.is_compiling() else 1)

    assert f(X).equal(X + 1) and torch.compile(f, backend="eager")(X).equal(X + 10)
    assert not torch.compiler.is_compiling()


def test_explain() -> None:
    def broken(x: Any) -> Any:
        y = x.sin()
        print("hi")
        return y.cos() + 1

    found = torch._dynamo.explain(broken)(X)
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 1)
    text = str(found)
    assert "Graph Count: 2" in text and "print" in found.break_reasons[0].reason
    assert (
        found.break_reasons[0].user_stack[-1].name.endswith("broken") and "Break Reason 1" in text
    )
    assert found.out_guards and "Out Guards" in text and "TorchDynamo compilation metrics" in text
    with pytest.raises(exc.Unsupported, match=r"print[\s\S]*from user code[\s\S]*broken"):
        torch.compile(broken, backend="eager", fullgraph=True)(X)


def test_history_and_times() -> None:
    x = X.clone().requires_grad_()
    compiled = torch.compile(plain)
    compiled(x).sum().backward()
    (entry,) = compiled.compiler().entries
    names = [stage for stage, artefact, milliseconds in entry.history]
    assert names == [
        "capture", "joint", "passes", "partition", "fuse", "toolchain", "assemble", "guards",
        "backward fuse", "backward toolchain", "backward assemble",
    ]  # fmt: skip
    assert all(s.milliseconds >= 0 for s in entry.history) and "in all" in str(entry.history)
    assert "def call(inputs)" in str(entry.history.artefact("assemble"))
    assert "toolchain" in torch._dynamo.utils.compile_times()
    counters = torch._dynamo.utils.counters
    assert counters["frames"] == {"total": 1, "ok": 1} and counters["stats"]["unique_graphs"] == 1


def test_switches() -> None:
    config = torch._dynamo.config
    with pytest.raises(AttributeError, match=r"torch\._dynamo\.config\.nope does not exist"):
        _ = config.nope
    with pytest.raises(AttributeError, match="does not exist"):
        config.nope = 1
    with config.patch("recompile_limit", 3):
        assert config.cache_size_limit == 3 and DYNAMO.get("recompile_limit") == 3
    assert config.recompile_limit == 8
    assert torch._inductor.config.triton.cudagraphs is False
    with torch._inductor.config.patch({"triton.cudagraphs": True}):
        assert torch._inductor.config.triton.cudagraphs is True
    assert "max-autotune" in torch._inductor.list_mode_options()


def test_guards_can_be_left_out() -> None:
    seen: list[Any] = []

    def no_constants(guards: Any) -> list[bool]:
        seen.extend(guards)
        return [g.guard_type != "EQUALS_MATCH" for g in guards]

    compiled = torch.compile(plain, backend="eager", options={"guard_filter_fn": no_constants})
    first = compiled(X, 2)
    assert compiled(X, 3).equal(first)  # unsafe, and asked for
    assert any(g.name == "L['n']" and g.value == 2 and not g.is_global for g in seen)
    with pytest.raises(RuntimeError, match="a bool for every guard"):
        torch.compile(
            plain, backend="eager", options={"guard_filter_fn": lambda g: []}, fullgraph=True
        )(X)


def test_the_two_sets_of_operators() -> None:
    from flambeau._src.compiler.decompose import aten, document, primitives

    scalars, whole = primitives()
    names = {o.key for o in aten()}
    assert "add.Tensor" in names and "linear" not in names and {o.key for o in whole} < names
    assert "exp" in scalars and len(scalars) + len(whole) < len(names)
    assert f"| {len(names)} |" in document()


# ---- the operator database's finds ---------------------------------------------------------------


def test_operators_by_their_namespace_need_no_other_version() -> None:
    """`torch.ops` and its namespaces are not in sys.modules: no guard may look there."""

    def program(x: Any) -> Any:
        return torch.ops.aten.mul.Tensor(torch.ops.aten.slice(x, 0, 1), x[1:])

    compiled = torch.compile(program, backend="eager", fullgraph=True)
    x = torch.arange(4.0)
    assert compiled(x).tolist() == [1.0, 4.0, 9.0]
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert compiled(x + 1).tolist() == [4.0, 9.0, 16.0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [([1.0, 2.0], [4.0, 6.0]), ([[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0], [4.0, 5.0]]), (7.0, 10.0)],
)
def test_values_put_at_a_mask_have_gradients_in_one_graph(value: Any, expected: Any) -> None:
    """How many places of a mask are true is no part of the backward graph's shapes."""
    values = torch.tensor(value, requires_grad=True)
    mask = torch.tensor([True, False, True])
    put = torch.compile(
        lambda x, v: torch.index_put(x, (mask,), v), backend="aot_eager", fullgraph=True
    )
    (put(torch.zeros(3, 2), values) * torch.arange(6.0).reshape(3, 2)).sum().backward()
    assert values.grad.tolist() == expected


# ---- calls that meet no operator -----------------------------------------------------------------


def maybe(x: Any, n: int = 1) -> Any:
    return x + n if n > 3 else x


def _asked(compiled: Any, *args: Any) -> tuple[Any, int]:
    """The result, and how many frames were looked at."""
    frames = torch._dynamo.utils.counters["frames"]
    before = frames["total"]
    out = compiled(*args)
    return out, frames["total"] - before


@pytest.mark.parametrize(
    ("fn", "args", "other"),
    [
        (maybe, (X,), (X, 5)),
        (lambda x: x.float(), (X,), (X.double(),)),
        (lambda x: x.contiguous(), (torch.ones(2, 3),), (torch.ones(2, 3).t(),)),
        (lambda x, f: f(x), (X, lambda x: x), (X, lambda x: x * 2)),
    ],
)
def test_a_call_that_meets_no_operator_costs_its_guards(fn: Any, args: Any, other: Any) -> None:
    with torch._dynamo.config.patch(error_on_recompile=True):
        back_end = Counting()
        compiled = torch.compile(fn, backend=back_end)
        assert compiled(*args) is args[0] and not back_end.graphs
        out, asked = _asked(compiled, *args)
        assert out is args[0] and asked == 0
        for _ in range(2):  # one that does is compiled, and does not lose the other
            torch.testing.assert_close(compiled(*other), fn(*other))
        assert len(back_end) == 1
        out, asked = _asked(compiled, *args)
        assert out is args[0] and asked == 0
        assert _asked(compiled, *other)[1] == 0


def test_calls_without_operators_and_without_end_are_looked_at_ever_more_seldom() -> None:
    back_end = Counting()
    compiled = torch.compile(maybe, backend=back_end, dynamic=False)
    limit = DYNAMO.get("recompile_limit")
    for n in range(100):
        assert compiled(X, -n / 2) is X
    met = torch._dynamo.utils.counters["skipped"]["No operator on tensors was met."]
    assert met == limit + (100 - limit).bit_length()
    for n in range(4, 200):
        torch.testing.assert_close(compiled(X, n), X + n)
    assert 1 <= len(back_end) < 9
