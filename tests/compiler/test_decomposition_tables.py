"""`torch._decomp`: what back ends choose decompositions by."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._decomp import (
    core_aten_decompositions,
    decomposition_table,
    get_decompositions,
    register_decomposition,
    remove_decompositions,
)
from flambeau._src.interp.trace import trace_flat

aten = torch.ops.aten


def test_packets_stand_for_all_their_overloads() -> None:
    found = get_decompositions([aten.stack, aten.t.default, aten.mm, aten.squeeze])
    assert set(found) == {
        aten.stack.default, aten.t.default, aten.squeeze.default, aten.squeeze.dim
    }  # fmt: skip
    remove_decompositions(found, [aten.squeeze, aten.mm])
    assert set(found) == {aten.stack.default, aten.t.default}


def test_what_is_core_is_not_taken_apart() -> None:
    core = core_aten_decompositions()
    assert aten.mm.default not in core and aten.repeat.default not in core
    assert aten.stack.default in core and aten.diag_embed.default in core
    assert aten.linear.default in core and aten.linear.default not in decomposition_table
    apart = {o for o in core if o._op.decl.level != "composite"}
    assert apart < set(decomposition_table) and aten.repeat.default in decomposition_table


def test_a_table_of_ones_own() -> None:
    table: dict[Any, Any] = {}

    @register_decomposition([aten.neg.default, aten.sub], table)
    def other(*args: Any) -> Any:
        return args[0]

    assert table[aten.neg.default] is other and table[aten.sub.Tensor] is other
    with pytest.raises(RuntimeError, match=r"duplicate registrations for aten\.neg\.default"):
        register_decomposition(aten.neg.default, table)(other)
    with pytest.raises(AssertionError, match="expected OpOverloadPacket"):
        register_decomposition(3, table)(other)
    with pytest.raises(AssertionError, match="type must be one of"):
        get_decompositions([aten.neg], type="other")


def test_a_graph_without_what_was_chosen() -> None:
    def fn(x: Any) -> Any:
        return [torch.stack([x, x.t()])]

    x = torch.ones(2, 2)
    whole = trace_flat(fn, [x]).graph
    assert {n.target for n in whole.nodes if n.op == "call_function"} == {
        aten.t.default, aten.stack.default
    }  # fmt: skip
    apart = trace_flat(fn, [x], decompositions=get_decompositions([aten.stack])).graph
    names = [n.target for n in apart.nodes if n.op == "call_function"]
    assert aten.stack.default not in names and aten.cat.default in names
