"""Layers against what PyTorch 2.13 gave: initial weights, outputs, gradients, printed form."""

from __future__ import annotations

import json
import math
import pathlib
import warnings

import pytest

import flambeau as torch
from tests.modules import layer_cases

RECORDED = json.loads((pathlib.Path(__file__).parent / "recorded_layers.json").read_text())


def close(ours, theirs, tolerance):
    if len(ours) != len(theirs):
        return False
    if not ours:
        return True
    (shape, numbers), (expected_shape, expected) = ours, theirs
    scale = max(1.0, math.prod(shape))
    return shape == expected_shape and all(
        math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance * scale)
        for a, b in zip(numbers, expected)
    )


def identifier(i):
    return f"{i}-{layer_cases.CASES[i][0]}"


@pytest.mark.parametrize("i", range(len(layer_cases.CASES)), ids=identifier)
def test_layer(i):
    case, expected = layer_cases.CASES[i], RECORDED[i]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = layer_cases.run(torch, case)
    except AttributeError as error:
        if not str(error).startswith("module 'flambeau"):
            raise
        pytest.skip(f"operator not there yet: {error}")
    assert result["repr"] == expected["repr"]
    for (name, ours), (expected_name, theirs) in zip(
        result["state"], expected["state"], strict=True
    ):
        assert name == expected_name
        assert close(ours, theirs, 1e-6), f"{name}: {ours} {theirs}"
    for what in ("outputs", "grads"):
        assert len(result[what]) == len(expected[what])
        for ours, theirs in zip(result[what], expected[what]):
            assert close(ours, theirs, 2e-5), f"{what}: {ours} {theirs}"
