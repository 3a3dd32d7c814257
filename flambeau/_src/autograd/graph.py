"""The graph as users see it: nodes and edges."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau._src import _native
from flambeau._src.autograd.hooks import accumulator
from flambeau._src.core.tensor import Tensor

Node = _native.Node


class GradientEdge(NamedTuple):
    """A place where a gradient arrives: an output of a node.

    The third field keeps alive what belongs to the node but is not in the graph.
    """

    node: Any
    output_nr: int
    ownership_token: Any = None


GradientEdge.__module__ = "flambeau.autograd.graph"


def gradient_edge(t: Tensor) -> GradientEdge:
    """The edge at which t's gradient arrives.

    Raises:
        RuntimeError: t does not require gradients.
    """
    if not t.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    node = t.grad_fn
    if node is None:
        return GradientEdge(accumulator(t), 0)
    return GradientEdge(node, t.output_nr)
