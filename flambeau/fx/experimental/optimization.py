"""Rewrites that make a traced model faster at inference."""

from __future__ import annotations

import copy
from typing import Any

from flambeau import nn
from flambeau._src.ir.node import Node
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Transformer
from flambeau.nn.utils.fusion import fuse_conv_bn_eval

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_PAIRS = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d))


def matches_module_pattern(pattern: tuple[type, ...], node: Node, modules: dict[str, Any]) -> bool:
    """Whether `node` calls a module of the second type on the result of one of the first."""
    if not node.args or not isinstance(node.args[0], Node):
        return False
    for kind, one in zip(pattern, (node.args[0], node), strict=True):
        if one.op != "call_module" or type(modules.get(str(one.target))) is not kind:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Any], new_module: nn.Module) -> None:
    """Put another module at the path that `node` calls."""
    parent, _, name = str(node.target).rpartition(".")
    modules[str(node.target)] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> nn.Module:
    """Fold batch normalisation into the convolution before it, for a model in eval mode.

    The convolution must be used by the normalisation alone. Returns a graph module; with `inplace`
    the submodules of `model` itself are replaced, with `no_trace` `model` is one already.
    """
    if not inplace:
        model = copy.deepcopy(model)
    if no_trace and isinstance(model, GraphModule):
        traced = model
    else:
        traced = symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for node in graph.nodes:
        for pattern in _PAIRS:
            if not matches_module_pattern(pattern, node, modules):
                continue
            conv_node = node.args[0]
            conv, norm = modules[str(conv_node.target)], modules[str(node.target)]
            if len(conv_node.users) > 1 or not norm.track_running_stats:
                continue
            replace_node_module(conv_node, modules, fuse_conv_bn_eval(conv, norm))
            node.replace_all_uses_with(conv_node)
            graph.erase_node(node)
            break
    return GraphModule(traced, graph)


def remove_dropout(model: nn.Module) -> nn.Module:
    """The model without its dropout modules."""

    class Without(Transformer):
        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[str(target)], nn.Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    return Without(symbolic_trace(model)).transform()
