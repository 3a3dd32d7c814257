"""The state of the default random streams, as a step of a program that is traced.

A graph keeps these in their order among the operators that draw: they count as random.
"""

from __future__ import annotations

from typing import Any

from flambeau._src.core import generator as streams
from flambeau._src.ops.op import Declaration


class ManualSeed(Declaration):
    """Seed the default generators of all devices. Traces hold it for `torch.manual_seed`."""

    schema = "_manual_seed(SymInt seed) -> ()"
    kind = "random"
    random = True
    public = ""
    differentiable = False
    repeatable = False

    def run(seed: Any) -> None:
        streams.seed_all(int(seed))

    def fake_run(seed: Any) -> None:
        return None
