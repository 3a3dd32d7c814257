"""What operators are made of, for back ends."""

from __future__ import annotations

from flambeau._src.compiler.tables import (
    core_aten_decompositions,
    decomposition_table,
    get_decompositions,
    register_decomposition,
    remove_decompositions,
)

__all__ = [
    "core_aten_decompositions", "decomposition_table", "get_decompositions",
    "register_decomposition", "remove_decompositions",
]  # fmt: skip
