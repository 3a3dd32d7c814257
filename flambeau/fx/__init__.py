"""Graphs of programs: tracing a function, looking at its operations, changing them, running them.

``symbolic_trace(f)`` gives a `GraphModule`: a module with a `Graph` of `Node` objects, whose
``forward`` is Python code generated from it.
"""

import flambeau as torch
from flambeau.fx import immutable_collections, node, traceback
from flambeau.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from flambeau.fx.graph import CodeGen, Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter, Transformer
from flambeau.fx.node import Node, has_side_effect, map_arg
from flambeau.fx.proxy import Proxy
from flambeau.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH",
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "immutable_collections",
    "map_arg",
    "node",
    "replace_pattern",
    "symbolic_trace",
    "traceback",
    "wrap",
]

for _name in ("_assert", "_assert_async", "_enter_autocast", "_exit_autocast"):
    _found = getattr(torch, _name, None) or getattr(getattr(torch, "amp", None), _name, None)
    if _found is not None:
        has_side_effect(_found)
