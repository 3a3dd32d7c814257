"""Types for values while they are traced."""

from typing import Any

from flambeau.fx.proxy import Proxy

__all__ = ["annotate"]


def annotate(val: Any, type: Any) -> Any:
    """Give the node behind a proxy a type annotation; other values are returned as they are."""
    if not isinstance(val, Proxy):
        return val
    if val.node.type:
        raise RuntimeError(
            f"Tried to annotate a value that already had a type on it! Existing type is "
            f"{val.node.type} and new type is {type}. This could happen if you tried to annotate "
            "a function parameter value (in which case you should use the type slot on the "
            "function signature) or you called annotate on the same value twice"
        )
    val.node.type = type
    return val
