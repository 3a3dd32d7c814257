"""Operators that take functions: `cond`, `while_loop`, `scan`, `associative_scan`, `map`."""

from flambeau._higher_order_ops.associative_scan import associative_scan
from flambeau._higher_order_ops.cond import cond
from flambeau._higher_order_ops.map import map
from flambeau._higher_order_ops.scan import scan
from flambeau._higher_order_ops.while_loop import while_loop
from flambeau._higher_order_ops.wrap import tag_activation_checkpoint

__all__ = [
    "associative_scan",
    "cond",
    "map",
    "scan",
    "tag_activation_checkpoint",
    "while_loop",
]
