"""Inputs of a function with their sizes as symbols, and what must hold of them."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau._src.capture import checker, sizes
from flambeau._src.capture.guards import Guard, GuardLog, Kind
from flambeau._src.capture.source import LocalSource, Source
from flambeau._src.capture.values.tensors import facts
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor, FakeTensorMode
from flambeau._src.ir.shape_env import ShapeEnv

__all__ = ["SymbolicInputs", "named"]


def named(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """Inputs as a checker takes them."""
    return {f"t{i}": t for i, t in enumerate(tensors)}


class SymbolicInputs:
    """Fake forms of tensors whose sizes are symbols, those of 0 and 1 excepted."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.env = ShapeEnv()
        mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.tensors: dict[Source, Tensor] = {
            LocalSource(name): t for name, t in named(tensors).items()
        }
        self.fakes: list[FakeTensor] = [
            mode.from_tensor(t, source=source) for source, t in self.tensors.items()
        ]

    def checker(self) -> checker.Checker:
        """Whether other tensors may take their place. Nothing more may be relied on then."""
        log = GuardLog()
        sized: list[tuple[Source, FakeTensor]] = list(zip(self.tensors, self.fakes, strict=True))
        for source, fake in sized:
            found = sizes.loosened(facts(self.tensors[source]), fake)
            log.add(Guard(Kind.TENSOR, source, found, stage="aot"))
        sizes.add_guards(self.env, sized, log, "aot")
        return checker.build(log.seal("aot"))
