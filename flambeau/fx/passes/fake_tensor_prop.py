"""Running a graph on fake tensors: ``meta["val"]`` of every node, without computing anything."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._src.ir.node import Node
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Fills ``meta["val"]``; `mode` is the fake tensor mode to use (default: a new one)."""

    def __init__(self, module: GraphModule, mode: Any = None) -> None:
        super().__init__(module)
        if mode is None:
            from flambeau._subclasses import FakeTensorMode  # lazy: only where none is given

            mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._mode = mode

    def run_node(self, n: Node) -> Any:
        """Run one node and keep its fake result."""
        result = super().run_node(n)
        n.meta["val"] = result
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on fake copies of `args`."""
        fake = [self._mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        return self.propagate_dont_convert_inputs(*fake)

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Run the graph on inputs that are fake already."""
        with self._mode:
            return super().run(*args)
