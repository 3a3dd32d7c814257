"""What is compared of a traced program: its text in every form, and its nodes one by one."""

from __future__ import annotations

import re
from typing import Any


def describe(module: Any) -> dict[str, Any]:
    """A JSON-able description, the same for both libraries."""
    return {
        "code": module.code,
        "graph": str(module.graph),
        "readable": module.print_readable(False),
        "expanded": module.print_readable(False, expanded_def=True),
        "lines": [module._prologue_start, {str(k): v for k, v in module._lineno_map.items()}],
        "nodes": [
            [
                node.op,
                node.name,
                target_text(node.target),
                text(node.args),
                text(node.kwargs),
                [user.name for user in node.users],
                node.is_impure(),
                list(node.meta.get("nn_module_stack", ())),
            ]
            for node in module.graph.nodes
        ],
    }


def target_text(target: Any) -> str:
    """A target without addresses."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def text(value: Any) -> str:
    """A repr without addresses."""
    return re.sub("0x[0-9a-f]+", "0x", repr(value)).replace("flambeau.", "torch.")
