"""Sizes that vary in exported programs: what holds for them, what is refused, and in what words."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

import flambeau as torch
from flambeau._dynamo.exc import UserError
from flambeau.export import AdditionalInputs, Dim, ShapesCollection, dims, export, load, save
from flambeau.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    GuardOnDataDependentSymNode,
)

nn = torch.nn
batch, length = Dim("batch"), Dim("length", min=4, max=64)


def added() -> nn.Module:
    class Added(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    return Added()


def of_one(body: Any) -> nn.Module:
    class OfOne(nn.Module):
        def forward(self, x: Any) -> Any:
            return body(x)

    return OfOne()


def after(body: Any) -> nn.Module:
    class After(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return body(x, y)

    return After()


def ones(*shape: int) -> Any:
    return torch.ones(*shape)


def ranges(program: Any) -> list[tuple[float, float]]:
    return sorted((r.lower, r.upper) for r in program.range_constraints.values())


class Attention(nn.Module):
    """Token ids of any number and length to one vector each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.conv = nn.Conv1d(8, 6, 3, stride=2)

    def forward(self, ids: Any) -> Any:
        h = self.embed(ids)
        h = h + self.attend(h, h, h, need_weights=False)[0]
        half = h[:, : ids.shape[1] // 2]
        return self.conv(h.transpose(1, 2)).mean(-1), half.sum((1, 2)) / half.shape[1]


def ids(n: int, m: int) -> Any:
    return torch.randint(11, (n, m), generator=torch.Generator().manual_seed(n * 100 + m))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Attention().eval()


@pytest.mark.parametrize("form", ["plain", "decomposed", "saved", "decomposed and saved", "strict"])
def test_one_program_holds_for_every_size(model: nn.Module, form: str) -> None:
    shapes = {"ids": {0: batch, 1: length}}
    program = export(model, (ids(3, 9),), dynamic_shapes=shapes, strict=form == "strict")
    assert ranges(program) == [(0, math.inf), (4, 64)]
    if "decomposed" in form:
        program = program.run_decompositions()
        assert not any("linear" in n.name for n in program.graph.nodes)
    if "saved" in form:
        file = io.BytesIO()
        save(program, file)
        file.seek(0)
        known = program.graph_module.code
        program = load(file)
        assert program.graph_module.code == known
        assert ranges(program) == [(0, math.inf), (4, 64)]
    run = program.module()
    for n, m in ((3, 9), (2, 4), (7, 64), (5, 10)):
        for got, expected in zip(run(ids(n, m)), model(ids(n, m)), strict=True):
            assert got.shape == expected.shape and torch.allclose(got, expected, 1e-5, 1e-6)
    with pytest.raises(AssertionError, match=r"Guard failed: ids.size\(\)\[1\] <= 64"):
        run(ids(3, 65))
    with pytest.raises(AssertionError, match=r"Guard failed: ids.size\(\)\[1\] >= 4"):
        run(ids(3, 3))


def test_a_name_is_one_size() -> None:
    program = export(added(), (ones(4, 3), ones(4, 3)), dynamic_shapes=({0: batch}, {0: batch}))
    run = program.module()
    assert run(ones(9, 3), ones(9, 3)).shape == (9, 3)
    with pytest.raises(AssertionError, match=r"Guard failed: y.size\(\)\[0\] == x.size\(\)\[0\]"):
        run(ones(9, 3), ones(8, 3))
    with pytest.raises(UserError, match=r"L\['y'\].size\(\)\[0\] = 5 is not equal to L\['x'\]"):
        export(added(), (ones(4, 3), ones(5, 3)), dynamic_shapes=({0: batch}, {0: batch}))
    other = Dim("batch", max=9)
    with pytest.raises(UserError, match=r"Found different definitions Dim\('batch', min=0\) and"):
        export(added(), (ones(4, 3), ones(4, 3)), dynamic_shapes=({0: batch}, {0: other}))


def test_sizes_computed_from_others() -> None:
    shifted = after(lambda x, y: x + y[1:])
    program = export(shifted, (ones(4), ones(5)), dynamic_shapes=({0: batch}, {0: batch + 1}))
    assert ranges(program) == [(0, math.inf), (1, math.inf)]
    assert program.module()(ones(7), ones(8)).shape == (7,)
    with pytest.raises(
        AssertionError, match=r"Guard failed: y.size\(\)\[0\] == x.size\(\)\[0\] \+ 1"
    ):
        program.module()(ones(7), ones(9))
    paired = of_one(lambda x: x.view(-1, 2))
    program = export(paired, (ones(4, 3),), dynamic_shapes=({0: 2 * batch},))
    assert program.module()(ones(6, 3)).shape == (9, 2)
    with pytest.raises(AssertionError, match="for an integer"):
        program.module()(ones(5, 3))
    with pytest.raises(UserError, match=r"of the form 2\*batch, where batch is an integer"):
        export(paired, (ones(5, 3),), dynamic_shapes=({0: 2 * batch},))
    with pytest.raises(UserError, match=r"equal to batch \+ 2, where batch = 4, but got 5"):
        export(shifted, (ones(4), ones(5)), dynamic_shapes=({0: batch}, {0: batch + 2}))


def branched(x: Any) -> Any:
    return x + 1 if x.shape[0] > 6 else x - 1


@pytest.mark.parametrize(
    ("body", "args", "shapes", "told", "fixes"),
    [
        (
            lambda x: x + torch.ones(4, 1), (ones(4, 3),), ({0: batch},),
            ["You marked batch as dynamic but your code specialized it to be a constant (4)."],
            ["batch = 4"],
        ),
        (
            branched, (ones(4, 3),), ({0: batch},),
            ["Not all values of batch = L['x'].size()[0] in the specified range satisfy the "
             "generated guard 2 <= L['x'].size()[0] and L['x'].size()[0] <= 6"],
            ["batch = Dim('batch', max=6)"],
        ),
        (
            branched, (ones(8, 3),), ({0: batch},),
            ["satisfy the generated guard 7 <= L['x'].size()[0] and L['x'].size()[0] <= "
             "IntInfinity()"],
            ["batch = Dim('batch', min=7)"],
        ),
        (
            branched, (ones(8, 3),), ({0: Dim("batch", min=3, max=30)},),
            ["in the specified range 3 <= batch <= 30 satisfy the generated guard 7 <= "],
            ["batch = Dim('batch', min=7, max=30)"],
        ),
        (
            lambda x, y: x + y, (ones(4), ones(4)), ({0: batch}, {0: Dim("b2", min=2, max=10)}),
            ["The values of b2 = L['y'].size()[0] and batch = L['x'].size()[0] must always be "
             "equal."],
            ["batch = Dim('batch', max=10)", "b2 = batch"],
        ),
        (
            lambda x, y: x + y[1:], (ones(4), ones(5)), ({0: batch}, {0: Dim("b2")}),
            ["The values of b2 = L['y'].size()[0] must always be related to the values of batch = "
             "L['x'].size()[0] by b2 = batch + 1."],
            ["b2 = batch + 1"],
        ),
        (
            lambda x: x.view(-1, 2), (ones(4, 3),), ({0: batch},),
            ["satisfy the generated guard ((3*L['x'].size()[0]) % 2) == 0."],
            ["_batch = Dim('_batch')", "batch = 2*_batch"],
        ),
        (
            lambda x: x + torch.ones(4, 1), (ones(4, 3),), ({0: Dim.DYNAMIC},),
            ["You marked L['x'].size()[0] as dynamic but your code specialized it"], [],
        ),
        (
            lambda x: x + 1, (ones(1, 2),), ({0: batch},),
            ["You marked batch as dynamic but your code specialized it to be a constant (1)."],
            ["batch = 1"],
        ),
    ],
)  # fmt: skip
def test_a_broken_promise_says_what_to_write(
    body: Any, args: Any, shapes: Any, told: list[str], fixes: list[str]
) -> None:
    module = of_one(body) if len(args) == 1 else after(body)
    with pytest.raises(UserError) as caught:
        export(module, args, dynamic_shapes=shapes)
    text = str(caught.value)
    assert text.startswith("Constraints violated (")
    for line in told:
        assert line in text
    assert text.partition("Suggested fixes:\n")[2].split("\n  ") == [
        f"  {fixes[0]}", *fixes[1:]
    ] if fixes else "Suggested" not in text  # fmt: skip


def test_hints_follow_the_trace() -> None:
    program = export(of_one(branched), (ones(8, 3),), dynamic_shapes=({0: Dim.AUTO},))
    assert ranges(program) == [(7, math.inf)]
    assert float(program.module()(ones(9, 3))[0, 0]) == 2
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] >= 7"):
        program.module()(ones(6, 3))
    fixed = of_one(lambda x: x + torch.ones(4, 1))
    program = export(fixed, (ones(4, 3),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    assert ranges(program) == [(2, math.inf)]  # the first is 4
    both = {0: Dim.DYNAMIC}
    program = export(added(), (ones(4, 3), ones(4, 3)), dynamic_shapes=(both, both))
    assert ranges(program) == [(2, math.inf)]  # two sizes that must be one
    with pytest.raises(AssertionError, match=r"y.size\(\)\[0\] == x.size\(\)\[0\]"):
        program.module()(ones(4, 3), ones(5, 3))
    paired = of_one(lambda x: x.view(-1, 2))
    program = export(paired, (ones(4, 3),), dynamic_shapes=({0: Dim.AUTO(max=8)},))
    assert ranges(program) == [(2, 8)]
    with pytest.raises(AssertionError, match=r"\(3\*x.size\(\)\[0\]\) % 2"):
        program.module()(ones(5, 3))
    with pytest.raises(ValueError, match="export 0/1 specialized due to hint of 1"):
        export(paired, (ones(1, 2),), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert not export(paired, (ones(1, 2),), dynamic_shapes=({0: Dim.AUTO},)).range_constraints


def test_ints_vary_by_hints() -> None:
    program = export(added(), (ones(2), 3), dynamic_shapes=(None, Dim.DYNAMIC))
    assert [type(s.arg).__name__ for s in program.graph_signature.input_specs] == [
        "TensorArgument", "SymIntArgument",
    ]  # fmt: skip
    assert program.module()(ones(2), 40).tolist() == [41.0, 41.0]
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    assert load(file).module()(ones(2), 7).tolist() == [8.0, 8.0]
    with pytest.raises(ValueError, match="through named Dims"):
        export(added(), (ones(2), 3), dynamic_shapes=(None, batch))


def test_nested_arguments_and_keywords() -> None:
    class Nested(nn.Module):
        def forward(self, a: Any, *rest: Any, k: Any, **more: Any) -> Any:
            return a["x"][0] + rest[0] + k + more["z"]

    def given(n: int) -> Any:
        return ({"x": [ones(n)]}, ones(n)), {"z": ones(n), "k": 2 * ones(n)}

    said = {
        "a": {"x": [{0: batch}]},
        "rest": ({0: batch},),
        "k": {0: batch},
        "more": {"z": {0: batch}},
    }
    args, kwargs = given(3)
    program = export(Nested(), args, kwargs, dynamic_shapes=said)
    args, kwargs = given(6)
    assert program.module()(*args, **kwargs).tolist() == [5.0] * 6
    args, kwargs = given(3)
    with pytest.raises(
        UserError, match=r"`inputs\['a'\]` is a <class 'dict'>, but .* <class 'list'>"
    ):
        export(Nested(), args, kwargs, dynamic_shapes={**said, "a": [{0: batch}]})
    with pytest.raises(UserError, match=r"L\['rest'\]\[0\].size\(\)\[0\]"):
        export(Nested(), args, kwargs, dynamic_shapes={**said, "rest": ({0: Dim("q")},)})


@pytest.mark.parametrize(
    ("shapes", "error", "text"),
    [
        ({"y": {0: batch}}, UserError, "its top-level keys must be the arg names ['x']"),
        ({"x": (batch,)}, UserError, "(expected 2, but got 1 instead)"),
        ({"x": {0: "q"}}, UserError, "Unexpected dimension mapped to index 0"),
        ({"x": {5: batch}}, UserError, "but got 5"),
        ({"x": batch}, UserError, "Unexpected input tensor shape"),
        (({0: batch}, None), UserError, "the arguments are ['x']"),
        ({"x": {0: 5}}, ConstraintViolationError, "constraint of 5 does not match input size of 4"),
        ({"x": {0: Dim("b", max=3)}}, ConstraintViolationError, "4 not in range [0, 3]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_arguments(shapes: Any, error: Any, text: str) -> None:
    with pytest.raises(error) as caught:
        export(of_one(lambda x: x + 1), (ones(4, 3),), dynamic_shapes=shapes)
    assert text in str(caught.value)


def test_collections_and_further_inputs() -> None:
    x, y = ones(4, 3), ones(4, 3)
    said = ShapesCollection()
    said[x], said[y] = {0: batch}, (batch, None)
    assert len(said) == 2 and said[x] == {0: batch}
    assert export(added(), (x, y), dynamic_shapes=said).module()(ones(6, 3), ones(6, 3)).shape == (
        6,
        3,
    )
    with pytest.raises(AssertionError, match="do not match"):
        said[x] = {0: length}
    with pytest.raises(ValueError, match="not among the inputs"):
        export(added(), (x, ones(4, 3)), dynamic_shapes=said)
    more = AdditionalInputs()
    more.add((ones(6, 3), ones(6, 3)))
    assert more.dynamic_shapes(added(), (x, y)) == {
        "x": (Dim.DYNAMIC, None),
        "y": (Dim.DYNAMIC, None),
    }
    program = export(added(), (x, y), dynamic_shapes=more)
    more.verify(program)
    more.add((ones(6, 4), ones(6, 4)))
    with pytest.raises(AssertionError, match="Guard failed"):
        more.verify(program)


def test_numbers_that_only_running_tells() -> None:
    class Counted(nn.Module):
        def forward(self, x: Any) -> Any:
            n = x.max().item()
            torch._check(n >= 0)
            torch._check(n < 100)
            return torch.zeros(n) + 1

    program = export(Counted(), (torch.tensor([3, 5]),))
    assert ranges(program) == [(0, 99)]
    for form in (program, program.run_decompositions()):
        assert form.module()(torch.tensor([2, 7])).shape == (7,)
        with pytest.raises(RuntimeError, match="Runtime assertion failed for expression u0 <= 99"):
            form.module()(torch.tensor([2, 700]))
    found = export(of_one(lambda x: torch.nonzero(x).sum(0)), (ones(4, 3),))
    assert ranges(found) == [(0, 12)]
    assert found.module()(torch.eye(4, 3)).tolist() == [3, 3]
    with pytest.raises(GuardOnDataDependentSymNode):
        export(of_one(lambda x: x + 1 if x.sum() > 0 else x), (ones(4),))


def test_dims() -> None:
    a, b = dims("a", "b", min=2, max=8)
    assert (a.__name__, b.min, b.max, repr(a)) == ("a", 2, 8, "Dim('a', min=2, max=8)")
    assert repr(2 * a + 1) == "2*a + 1" and repr(a - 1) == "a - 1" and (2 * a + 1).max == 17
    assert (
        repr(Dim.AUTO) == "DimHint(AUTO)" and repr(Dim.DYNAMIC(min=3)) == "DimHint(DYNAMIC, min=3)"
    )
    for wrong in (lambda: a * 0, lambda: a * -1, lambda: a + "x", lambda: a * b, lambda: 3 - a):
        with pytest.raises(NotImplementedError, match="Only increasing linear operations"):
            wrong()
    with pytest.raises(AssertionError, match="Dim name must be a valid identifier, got 1x"):
        Dim("1x")
    with pytest.raises(AssertionError, match="inconsistent min=4, max=3"):
        Dim("x", min=4, max=3)
