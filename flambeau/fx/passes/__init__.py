"""Passes over graphs: each looks at or changes a `GraphModule`."""

from flambeau.fx.passes import graph_drawer, shape_prop, split_module, tools_common

__all__ = ["graph_drawer", "shape_prop", "split_module", "tools_common"]
