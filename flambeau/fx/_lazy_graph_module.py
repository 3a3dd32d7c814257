"""Graph modules that generate their code late, for those who ask for them: here they do at once."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flambeau.fx.graph_module import GraphModule

__all__ = ["_LazyGraphModule", "_make_graph_module", "_use_lazy_graph_module"]

_LazyGraphModule = GraphModule


def _use_lazy_graph_module(should_use: bool) -> AbstractContextManager[None]:
    """Accepted and without effect: generating code takes well under a millisecond a node."""
    return nullcontext()


def _force_skip_lazy_graph_module() -> AbstractContextManager[None]:
    return nullcontext()


def _get_graph_module_cls() -> type[GraphModule]:
    return GraphModule


def _make_graph_module(*args: Any, graph_module_cls: Any = None, **kwargs: Any) -> GraphModule:
    return (graph_module_cls or GraphModule)(*args, **kwargs)
