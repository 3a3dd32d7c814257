"""The shape of a pass."""

from __future__ import annotations

import abc
from typing import NamedTuple

from flambeau.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module after a pass, and whether it changed."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass with a check before and a check after. Override `call`."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Do the work; None means that the module was changed in place."""

    # Both checks are optional, so they are not abstract.
    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raise where the pass cannot be run."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raise where the pass did wrong."""
