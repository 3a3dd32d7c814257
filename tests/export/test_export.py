"""Exported programs: the same results, what their ends are, without writes, saved and loaded."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.compiler.errors import UserError
from flambeau.export import Dim, ExportedProgram, export, load, save
from flambeau.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

nn = torch.nn


class Small(nn.Module):
    """Parameters, buffers of both kinds, a constant, nested and keyword arguments, a write."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 4)
        self.bn = nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("shift", torch.ones(4), persistent=False)
        self.k = torch.full((4,), 2.0)

    def forward(self, x: Any, y: Any = None, *, scale: float = 2.0) -> Any:
        h = self.bn(self.lin(x)).relu()
        self.seen.add_(1)
        if y is not None:
            h = h + y["a"]
        return {"out": h * scale + self.k + self.shift + torch.tensor([1.0, 2, 3, 4]), "x": x}, 3


def inputs() -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    return (x, {"a": torch.ones(4)}), {"scale": 3.0}


def check(program: ExportedProgram, model: nn.Module) -> None:
    args, kwargs = inputs()
    fresh = copy.deepcopy(model)
    (expected, three), (got, also) = fresh(*args, **kwargs), program.module()(*args, **kwargs)
    assert torch.allclose(expected["out"], got["out"], 1e-6, 1e-6) and three == also == 3
    buffers = dict(program.named_buffers())
    for name, value in fresh.named_buffers():
        assert torch.allclose(value.double(), buffers[name].double()), name


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Small()


def program_of(model: nn.Module) -> ExportedProgram:
    args, kwargs = inputs()
    return export(copy.deepcopy(model), args, kwargs)


def test_whole_operators_and_their_signature(model: nn.Module) -> None:
    program = program_of(model)
    called = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert called[:3] == ["aten.linear.default", "aten.add_.Tensor", "aten.batch_norm.default"]
    s = program.graph_signature
    assert s.parameters == ("lin.weight", "lin.bias", "bn.weight", "bn.bias")
    assert s.non_persistent_buffers == ("shift",) and "seen" in s.buffers
    assert s.lifted_tensor_constants == ("k", "lifted_tensor_0")
    assert s.user_inputs == ("x", "y_a", 3.0) and s.user_outputs[1:] == ("x", 3)
    assert set(program.state_dict) == set(model.state_dict())
    assert "test_export.py" in next(
        n.meta["stack_trace"] for n in program.graph.nodes if n.name.startswith("relu")
    )
    check(program, model)


def test_without_writes(model: nn.Module) -> None:
    program = program_of(model).run_decompositions()
    assert not any("_." in str(n.target) for n in program.graph.nodes if n.op == "call_function")
    assert set(program.graph_signature.buffers_to_mutate.values()) == {
        "seen", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked",
    }  # fmt: skip
    check(program, model)


@pytest.mark.parametrize("decomposed", [False, True])
def test_saved_and_loaded(model: nn.Module, decomposed: bool) -> None:
    program = program_of(model)
    program = program.run_decompositions() if decomposed else program
    file = io.BytesIO()
    save(program, file, extra_files={"note": "hello"})
    file.seek(0)
    extra = {"note": ""}
    loaded = load(file, extra_files=extra)
    assert extra["note"] == "hello" and str(loaded) == str(program)
    check(loaded, model)
    assert loaded.example_inputs[1] == {"scale": 3.0}


def test_gradients_flow_through_the_module(model: nn.Module) -> None:
    args, kwargs = inputs()
    module = program_of(model).module()
    module(*args, **kwargs)[0]["out"].sum().backward()
    model(*args, **kwargs)[0]["out"].sum().backward()
    grads = dict(module.named_parameters())
    for name, p in model.named_parameters():
        assert torch.allclose(p.grad, grads[name].grad, 1e-5, 1e-6), name


def test_what_the_program_does_not_hold_for_is_refused(model: nn.Module) -> None:
    program = program_of(model)
    (x, y), kwargs = inputs()
    module = program.module()
    with pytest.raises(AssertionError, match=r"Guard failed: x.size\(\)\[0\] == 5"):
        module(x[:2], y, **kwargs)
    with pytest.raises(AssertionError, match=r"scale == 3\.0"):
        module(x, y, scale=4.0)
    with pytest.raises(ValueError, match="kwarg keyword mismatch"):
        module(x, y)
    with pytest.raises(ValueError, match="input tree spec"):
        module(x, **kwargs)
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(x, y, **kwargs)


def test_arguments_of_export(model: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"instance of `torch\.nn\.Module`"):
        export(lambda x: x, (torch.ones(2),))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="Expecting `args` to be a tuple"):
        export(model, torch.ones(5, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="too many positional"):
        export(nn.ReLU(), (torch.ones(2), 1))
    with pytest.raises(UserError, match="top-level keys must be the arg names"):
        export(nn.ReLU(), (torch.ones(2),), dynamic_shapes={"wrong": {0: Dim("b")}})


def test_values_do_not_decide(model: nn.Module) -> None:
    class Branch(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(GuardOnDataDependentSymNode):
        export(Branch(), (torch.ones(2),))
