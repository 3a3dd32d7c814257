"""The judges of modules and optimisers can fail: planted faults must be seen. No PyTorch needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from tests.oracle import databases, module_programs, objects, optimizer_programs, replay, wire

Change = Callable[[Any], None]


def _module(name: str, args: tuple[Any, ...], shape: tuple[int, ...], change: Change) -> Any:
    pack = wire.Pack()
    values = np.random.RandomState(3).standard_normal(shape).astype(np.float32)
    given = torch.from_numpy(values).requires_grad_()
    call = objects.ObjectWriter(torch, pack).call((args, {}, (given,), {}), {})
    reader = objects.ObjectReader(torch, call, pack.buffers)
    sample = module_programs.Sample(torch, name, "float32", True, reader, pack, 0)
    plain, make = module_programs.run(sample), sample.make
    wide = module_programs.called(sample, sample.widened())

    def changed() -> Any:
        module = make()
        change(module)
        return module

    sample.make = changed  # type: ignore[method-assign]
    return _failing(pack, module_programs.run(sample), plain, wide)


def _failing(pack: wire.Pack, ours: Any, theirs: Any, refs: Any) -> set[str]:
    tally = replay.Tally()
    databases.Ruling(torch, pack.buffers, tally).all(ours, theirs, refs, pack, "here")
    return {check for check, (passed, total) in tally.counts.items() if passed < total}


def _norm(change: Change) -> set[str]:
    return _module("nn.BatchNorm1d", (3,), (5, 3), change)


def test_a_module_equals_itself() -> None:
    assert not _norm(lambda module: None)


def test_a_wrong_epsilon_is_seen() -> None:
    assert {"forward", "grad", "repr"} <= _norm(lambda module: setattr(module, "eps", 3e-5))


def test_a_lost_buffer_is_seen() -> None:
    def lose(module: Any) -> None:
        module._non_persistent_buffers_set.add("running_var")

    assert {"init", "state"} <= _norm(lose)


def test_a_weight_off_by_one_bit_is_seen() -> None:
    def nudge(module: Any) -> None:
        with torch.no_grad():
            module.weight[0] = torch.nextafter(module.weight[0], torch.tensor(2.0))

    assert "init" in _norm(nudge)


def test_a_buffer_that_is_not_updated_is_seen() -> None:
    assert "state" in _norm(lambda module: setattr(module, "momentum", 0.0))


def test_a_frozen_parameter_and_a_draw_are_seen() -> None:
    assert "attributes" in _norm(lambda module: module.weight.requires_grad_(False))
    assert "rng" in _norm(lambda m: m.register_forward_pre_hook(lambda *_: torch.rand(1) and None))


def _optimizer(kwargs: dict[str, Any], changed: dict[str, Any]) -> set[str]:
    pack = wire.Pack()
    some = np.random.RandomState(4).standard_normal
    parameters = [torch.nn.Parameter(torch.from_numpy(some((2, 3)).astype(np.float32)))]
    gradients = [[torch.from_numpy(some((2, 3)).astype(np.float32))] for _ in range(3)]
    call = objects.ObjectWriter(torch, pack).call((parameters, kwargs, gradients), {})
    reader = objects.ObjectReader(torch, call, pack.buffers)
    sample = optimizer_programs.Sample(torch, "Adam", "plain", reader, pack)
    plain = optimizer_programs.run(sample)
    wide = optimizer_programs.run(sample, wide=True)
    return _failing(pack, optimizer_programs.run(sample, **changed), plain, wide)


@pytest.mark.parametrize("changed", [{"eps": 1e-5}, {"betas": (0.9, 0.998)}, {"maximize": True}])
def test_an_optimiser_with_another_option_is_seen(changed: dict[str, Any]) -> None:
    assert not _optimizer({"lr": 0.1}, {})
    assert {"init", "repr", "steps"} <= _optimizer({"lr": 0.1}, changed)


def test_a_state_with_another_entry_is_seen() -> None:
    assert "state" in _optimizer({"amsgrad": True}, {"amsgrad": False})


def test_an_error_must_have_the_type_and_the_pattern() -> None:
    recorded = {"types": ["ValueError"], "regex": "^size", "torch": ["ValueError", "size 3"]}
    for said, bases, expected in (
        ("size 3", ["ValueError"], {"errors": [1, 1], "error_text": [1, 1]}),
        ("size 4", ["ValueError"], {"errors": [1, 1], "error_text": [0, 1]}),
        ("a size", ["ValueError"], {"errors": [0, 1], "error_text": [0, 1]}),
        ("size 3", ["TypeError"], {"errors": [0, 1], "error_text": [0, 1]}),
    ):
        tally = replay.Tally()
        outcome = {"err": [bases[0], said], "bases": bases}
        databases.Ruling(torch, [], tally).error(outcome, recorded, "here")
        assert tally.counts == expected


def test_objects_travel_as_the_calls_that_made_them() -> None:
    made, pack = objects.Constructions(), wire.Pack()
    with made.watch(torch.nn.Linear):
        layer = torch.nn.Linear(2, 3, bias=False)
    functional = torch.nn.functional.relu
    writer = objects.ObjectWriter(torch, pack, made=made)
    call = writer.call((layer, functional, torch.nn.Parameter(torch.ones(2))), {})
    again, function, parameter = objects.ObjectReader(torch, call, pack.buffers).load().args
    assert repr(again) == repr(layer)
    assert function is functional
    assert isinstance(parameter, torch.nn.Parameter)
    with pytest.raises(wire.Unencodable):
        objects.ObjectWriter(torch, pack).tree(torch.nn.Linear(2, 3))
