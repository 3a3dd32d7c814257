# ruff: noqa: F401  (names that other libraries use are re-exported unadvertised)
"""`Node` at its public place; the class is the engine's."""

from typing import Any

from flambeau._src.ir.arguments import ArgsKwargsPair
from flambeau._src.ir.names import qualified_name as _get_qualified_name
from flambeau._src.ir.names import type_repr as _type_repr
from flambeau._src.ir.node import (
    LEGAL_OPS as _legal_ops,
)
from flambeau._src.ir.node import (
    Argument,
    Node,
    Target,
    has_side_effect,
    map_aggregate,
    map_arg,
)
from flambeau._src.ir.node import (
    side_effectful as _side_effectful_functions,
)

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

BaseArgumentTypes = Any
base_types = (str, int, float, bool, complex, type(None))
