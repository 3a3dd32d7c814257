"""Flattening along a given structure: what a graph with nested arguments calls first."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from flambeau._src.util.pytree import PyTree, TreeSpec

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

FlattenFuncSpec = Callable[[PyTree, TreeSpec], list[Any]]
FlattenFuncExactMatchSpec = Callable[[PyTree, TreeSpec], bool]

SUPPORTED_NODES: dict[Any, FlattenFuncSpec] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[Any, FlattenFuncExactMatchSpec | None] = {}


def register_pytree_flatten_spec(
    cls: type[Any],
    flatten_fn_spec: FlattenFuncSpec,
    flatten_fn_exact_match_spec: FlattenFuncExactMatchSpec | None = None,
) -> None:
    """Make `tree_flatten_spec` understand a type: ``flatten_fn_spec(tree, spec) -> children``."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def _deregister_pytree_flatten_spec(cls: type[Any]) -> None:
    del SUPPORTED_NODES[cls]
    del SUPPORTED_NODES_EXACT_MATCH[cls]


def tree_flatten_spec(pytree: PyTree, spec: TreeSpec) -> list[Any]:
    """The leaves of `pytree` at the places where `spec` has leaves.

    A dictionary may have more keys than the structure, in any order. RuntimeError for a type
    without a registered function.
    """
    if spec.is_leaf():
        return [pytree]
    if spec.type not in SUPPORTED_NODES:
        raise RuntimeError(
            f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register "
            "one with torch.fx._pytree.register_pytree_flatten_spec.  If you have serialized your "
            "model, make sure that any custom pytrees have been registered before loading it."
        )
    children = SUPPORTED_NODES[spec.type](pytree, spec)
    out: list[Any] = []
    for child, child_spec in zip(children, spec.children(), strict=False):
        out += tree_flatten_spec(child, child_spec)
    return out


def _dict_children(tree: dict[Any, Any], spec: TreeSpec) -> list[Any]:
    return [tree[key] for key in spec.context]


def _sequence_children(tree: Any, spec: TreeSpec) -> list[Any]:
    return [tree[i] for i in range(spec.num_children)]


register_pytree_flatten_spec(
    dict, _dict_children, lambda tree, spec: len(tree) == spec.num_children
)
for _cls in (list, tuple, namedtuple):
    register_pytree_flatten_spec(
        _cls,  # type: ignore[arg-type]
        _sequence_children,
        lambda tree, spec: len(tree) == spec.num_children,
    )
