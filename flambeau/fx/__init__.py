"""Graphs of programs: tracing a function, looking at its operations, changing them, running them.

``symbolic_trace(f)`` gives a `GraphModule`: a module with a `Graph` of `Node` objects, whose
``forward`` is Python code generated from it.
"""

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
