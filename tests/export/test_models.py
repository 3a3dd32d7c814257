"""The models that people compile, exported with any batch: decomposed, saved, loaded, and as graph
modules of torch functions; the same results as the models, at another batch too."""

from __future__ import annotations

import io
from typing import Any

import pytest

import flambeau as torch
from flambeau.export import Dim, export, load, save
from tests.compiler.models import MODELS


def leaves(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    return [t for v in value for t in leaves(v)]


def same(run: Any, model: Any, *given: Any) -> None:
    torch.manual_seed(1)
    expected = leaves(model(*given))
    torch.manual_seed(1)
    got = leaves(run(*given))
    assert [t.shape for t in got] == [t.shape for t in expected]
    for a, b in zip(got, expected, strict=True):
        assert torch.allclose(a, b, 1e-5, 1e-6)


@pytest.mark.parametrize("strict", [False, True], ids=["traced", "captured"])
@pytest.mark.parametrize("name", MODELS)
def test_exported_for_any_batch(name: str, strict: bool) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, given = make().eval(), inputs()
    program = export(model, (given,), dynamic_shapes=({0: Dim("batch")},), strict=strict)
    assert [str(e) for e in program.range_constraints] == ["s0"]
    larger = torch.cat([given, given, given[:1]])
    same(program.module(), model, larger)
    decomposed = program.run_decompositions()
    file = io.BytesIO()
    save(decomposed, file)
    file.seek(0)
    for form in (decomposed, load(file)):
        same(form.module(), model, larger)
        same(form.module(), model, given)


@pytest.mark.parametrize("name", MODELS)
def test_graph_modules_are_saved(name: str) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, given = make().eval(), inputs()
    module = torch._dynamo.export(model, given).graph_module
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for form in (module, loaded):
        same(form, model, given)
