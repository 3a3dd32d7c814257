"""Traced programs: the text and the nodes that PyTorch gives, and the same results when run."""

import copy
import json
import pickle
from pathlib import Path

import pytest

import flambeau as torch
import flambeau.fx as fx
from flambeau.utils._pytree import tree_flatten
from tests.fx.describe import describe
from tests.fx.programs import build

EXPECTED = json.loads(Path(__file__).with_name("expected.json").read_text())
PROGRAMS = {program.name: program for program in build(torch)}
RUN = [name for name, program in PROGRAMS.items() if program.inputs is not None]


def trace(name):
    program = PROGRAMS[name]
    return fx.symbolic_trace(program.root, program.concrete)


def call(function, name):
    return function(*copy.deepcopy(PROGRAMS[name].inputs))


def same(left, right, structure=True):
    left_leaves, left_spec = tree_flatten(left)
    right_leaves, right_spec = tree_flatten(right)
    assert left_spec == right_spec or not structure
    for a, b in zip(left_leaves, right_leaves, strict=True):
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b) and a.dtype == b.dtype
        elif not isinstance(a, slice):
            assert a == b or (a != a and b != b)


def test_all_programs_are_recorded():
    assert set(PROGRAMS) == set(EXPECTED) - {"torch"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_and_nodes(name):
    found = json.loads(json.dumps(describe(trace(name))))
    for key, value in EXPECTED[name].items():
        assert found[key] == value, key


@pytest.mark.parametrize("name", RUN)
def test_results(name):
    module = trace(name)
    expected = call(PROGRAMS[name].root, name)
    same(call(module, name), expected)
    if name not in ("variadic", "Rest"):
        # An interpreter's lists and dicts are the nodes' immutable ones, as in torch.
        same(call(fx.Interpreter(module).run, name), expected, structure=False)


@pytest.mark.parametrize("name", RUN)
def test_copies(name):
    module = trace(name)
    expected = call(module, name)
    copied = copy.deepcopy(module)
    assert copied.code == module.code and copied.graph is not module.graph
    assert copied.graph.owning_module is copied
    same(call(copied, name), expected)
    if name not in ("pair", "operators"):
        loaded = pickle.loads(pickle.dumps(module))
        assert loaded.code == module.code
        same(call(loaded, name), expected)


@pytest.mark.parametrize("name", RUN)
def test_transformer(name):
    if name in ("variadic", "Rest"):
        pytest.skip("their placeholders take several inputs")
    module = trace(name)
    again = fx.Transformer(module).transform()
    again.graph.lint()
    same(call(again, name), call(module, name))
