"""Faults planted in capture and compiler: the tests that are named here must see each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.capture import emit
from flambeau._src.capture.guards import Guard, GuardLog, Kind
from flambeau._src.compiler import aot
from flambeau._src.ir.shape_env import ShapeEnv
from tests.capture import test_changes, test_dynamic, test_programs
from tests.capture.comparing import PROGRAMS
from tests.compiler import test_models, test_stages

# A program for every kind of change that code does after its graph.
REPLAYED = {
    "attribute": "modules.replaces_buffer",
    "cell": "breaks.own_cell_written",
    "delete attribute": "classes.deletes_attribute",
    "deque": "containers.deque_methods",
    "dict": "containers.dict_reordered",
    "global": "breaks.global_written",
    "item": "containers.nested_changes",
    "iterator": "breaks.iterator_moved",
    "list": "containers.appends_to_argument",
    "raw attribute": "classes.changes_object",
    "set": "containers.set_methods",
}


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def program(name: str) -> Any:
    """A program of tests/capture/programs."""
    (found,) = [p for p in PROGRAMS if p.name == name]
    return found


@pytest.mark.parametrize("case", test_changes.CASES, ids=lambda c: c.kind.name)
def test_a_lost_guard_is_seen(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of one kind do not reach the log."""
    real = GuardLog.add

    def add(self: GuardLog, guard: Guard) -> None:
        if guard.kind is not case.kind:
            real(self, guard)

    test_changes.test_what_changed_is_seen(case)
    monkeypatch.setattr(GuardLog, "add", add)
    with pytest.raises(AssertionError):
        test_changes.test_what_changed_is_seen(case)


STALE = {
    "a branch on a size": lambda patch: test_dynamic.test_both_sides_of_a_branch(),
    "a size that a stage reads": lambda patch: (
        test_stages.test_what_a_stage_asks_of_a_size_is_guarded(
            "inductor", "fuse", *test_stages.ASKED["size"], patch
        )
    ),
    "a comparison in a stage": lambda patch: (
        test_stages.test_what_a_stage_asks_of_a_size_is_guarded(
            "aot_eager", "joint", *test_stages.ASKED["comparison"], patch
        )
    ),
}


@pytest.mark.parametrize("name", STALE)
def test_a_stale_size_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size is taken for what it was when the graph was made, and no guard says so."""
    with monkeypatch.context() as patch:
        STALE[name](patch)
    torch._dynamo.reset()
    monkeypatch.setattr(ShapeEnv, "_record", lambda *args: None)
    with pytest.raises(AssertionError):
        STALE[name](monkeypatch)


def test_a_size_baked_into_a_static_graph_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of a tensor forgets the sizes."""
    (case,) = [c for c in test_changes.CASES if c.kind is Kind.SHAPE]
    static = test_changes.Case(Kind.TENSOR, case.function, case.first, case.second)
    test_changes.test_what_changed_is_seen(static)
    real = GuardLog.add

    def add(self: GuardLog, guard: Guard) -> None:
        if guard.kind is Kind.TENSOR:
            free = (None,) * len(guard.expected.shape)
            facts = replace(guard.expected, shape=free, stride=free)
            guard = Guard(Kind.TENSOR, guard.source, facts, guard.reason, guard.where)
        real(self, guard)

    monkeypatch.setattr(GuardLog, "add", add)
    with pytest.raises(AssertionError):
        test_changes.test_what_changed_is_seen(static)


@pytest.mark.parametrize("kind", REPLAYED)
def test_an_unreplayed_change_is_seen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program changed outside is not done after the graph has run."""
    real = emit.effects
    test_programs.test_program(program(REPLAYED[kind]))
    monkeypatch.setattr(emit, "effects", lambda s: [e for e in real(s) if e.kind != kind])
    with pytest.raises(AssertionError):
        test_programs.test_program(program(REPLAYED[kind]))


@pytest.mark.parametrize("back_end", ["aot_eager", "inductor"])
def test_an_unwritten_input_is_seen(back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the graph computed for a tensor that the program writes is not copied into it: the
    parameters after a step."""
    test_models.test_the_whole_step_in_one_graph("digits", back_end)
    monkeypatch.setattr(aot, "_write", lambda written, sources, outs: None)
    monkeypatch.setattr(aot.Joint, "in_place", lambda joint: [])  # none is there already
    with pytest.raises(AssertionError):
        test_models.test_the_whole_step_in_one_graph("digits", back_end)
