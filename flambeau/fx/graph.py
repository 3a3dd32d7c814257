# ruff: noqa: F401  (names that other libraries use are re-exported unadvertised)
"""`Graph` and its code generators at their public place; the classes are the engine's."""

from flambeau._src.ir.graph import Graph
from flambeau._src.ir.graph import InsertPoint as _InsertPoint
from flambeau._src.ir.graph import NodeList as _node_list
from flambeau._src.ir.names import Namespace as _Namespace
from flambeau._src.ir.names import snake_case as _snake_case
from flambeau._src.ir.printer import BUILTINS as _custom_builtins
from flambeau._src.ir.printer import BoxedCodeGen as _BoxedCodeGen
from flambeau._src.ir.printer import Builtin, CodeGen, PythonCode
from flambeau._src.ir.printer import PyTreeCodeGen as _PyTreeCodeGen
from flambeau._src.ir.printer import PyTreeInfo as _PyTreeInfo
from flambeau._src.ir.printer import format_target as _format_target
from flambeau.fx import _pytree as fx_pytree

__all__ = ["CodeGen", "Graph", "PythonCode"]

# Generated code calls fx_pytree.tree_flatten_spec, which stands above the engine.
_custom_builtins["fx_pytree"] = Builtin(
    "import flambeau.fx._pytree as fx_pytree", lambda: fx_pytree
)
