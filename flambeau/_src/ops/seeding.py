"""The state of the default random streams, as a step of a program that is traced.

A graph keeps these in their order among the operators that draw: they count as random.
"""

from __future__ import annotations

from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import generator as streams
from flambeau._src.core.tensor import Tensor, cpu
from flambeau._src.ops.op import Declaration, TensorSpec


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


class RngState(Declaration):
    """The state of the default generator: 5,056 bytes. For `torch.get_rng_state`."""

    schema = "_rng_state() -> Tensor"
    kind = "random"
    random = True
    public = ""
    differentiable = False
    repeatable = False

    def run() -> Tensor:  # type: ignore[misc]
        return streams.default_generator.get_state()

    def meta() -> TensorSpec:  # type: ignore[misc]
        return TensorSpec((streams.STATE_BYTES,), dt.uint8, cpu)


class SetRngState(Declaration):
    """The default generator goes on from a state. For `torch.set_rng_state`."""

    schema = "_set_rng_state(Tensor new_state) -> ()"
    kind = "random"
    random = True
    public = ""
    differentiable = False
    repeatable = False

    def run(new_state: Tensor) -> None:
        streams.default_generator.set_state(new_state)

    def fake_run(new_state: Tensor) -> None:
        return None
