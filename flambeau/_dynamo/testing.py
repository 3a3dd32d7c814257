"""Back ends that count and keep what they are given: for tests."""

from __future__ import annotations

from typing import Any

from flambeau._src.compiler.backends import lookup_backend

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


class CompileCounterWithBackend:
    """A back end that counts graphs (`frame_count`) and their operators (`op_count`)."""

    def __init__(self, backend: Any) -> None:
        self.frame_count, self.op_count = 0, 0
        self.backend = backend
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self) -> None:
        """Count from 0."""
        self.frame_count = self.op_count = 0
        self.graphs = []


class CompileCounter(CompileCounterWithBackend):
    """The same, running the graphs as they are."""

    def __init__(self) -> None:
        super().__init__("eager")


class EagerAndRecordGraphs:
    """A back end that keeps the graphs and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.graphs.append(gm)
        return gm.forward
