"""Graph: the list of a captured program's nodes, and the ways to edit it.

The same class serves the engine and users (``flambeau.fx.Graph``). It stays a mutable list, as user
back ends expect; what a stage hands on is checked by `verify`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from flambeau._src.ir.names import Namespace, snake_case
from flambeau._src.ir.node import (
    LEGAL_OPS,
    Argument,
    Node,
    Target,
    map_arg,
)
from flambeau._src.ir.printer import CodeGen, PythonCode, tabular
from flambeau._src.ir.verify import lint

__all__ = ["Graph", "InsertPoint", "NodeList"]

_NO_DEFAULT: Any = object()


class NodeList:
    """The nodes in order. Erasing or inserting while iterating is allowed."""

    __module__ = "flambeau.fx.graph"
    __qualname__ = "_node_list"
    __slots__ = ("direction", "graph")

    def __init__(self, graph: Graph, direction: str = "next") -> None:
        if direction not in ("next", "prev"):
            raise ValueError(f"direction must be 'next' or 'prev', got {direction!r}")
        self.graph = graph
        self.direction = direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        if self.direction == "next":
            node = root._next
            while node is not root:
                if not node._erased:
                    yield node
                node = node._next
        else:
            node = root._prev
            while node is not root:
                if not node._erased:
                    yield node
                node = node._prev

    def __reversed__(self) -> NodeList:
        return NodeList(self.graph, "prev" if self.direction == "next" else "next")


class InsertPoint:
    """Where new nodes go; as a context manager, only inside the ``with``."""

    __module__ = "flambeau.fx.graph"
    __qualname__ = "_InsertPoint"
    __slots__ = ("graph", "orig_insert")

    def __init__(self, graph: Graph, new_insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.orig_insert, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.graph._insert = self.orig_insert


class Graph:
    """A captured program: nodes in order, each using earlier ones, ending in an output.

    `owning_module` is the module in which ``get_attr`` and ``call_module`` targets are looked up.
    """

    __module__ = "flambeau.fx.graph"

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: type[Any] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._len = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    # ---- looking ------------------------------------------------------------------------------

    @property
    def owning_module(self) -> Any:
        """The module that this graph is the code of, or None."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, module: Any) -> None:
        self._owning_module = module

    @property
    def nodes(self) -> NodeList:
        """The nodes, in order."""
        return NodeList(self)

    def output_node(self) -> Node:
        """The output. StopIteration for an empty graph, AssertionError where none ends it."""
        last = next(iter(reversed(self.nodes)))
        if last.op != "output":
            raise AssertionError(f"Expected output node, got op={last.op}")
        return last

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes with this `op` (and, but for placeholders and outputs, this `target`)."""
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        if op in ("placeholder", "output") or target is None:
            return [node for node in self.nodes if node.op == op]
        return [node for node in self.nodes if node.op == op and node.target == target]

    # ---- adding -------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Make a node and put it at the insert point (by default: the end)."""
        if op not in LEGAL_OPS:
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        args = () if args is None else args
        kwargs = {} if kwargs is None else kwargs
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        candidate = name if name is not None else self._target_to_str(target)
        unique = self._graph_namespace.create_name(candidate)
        node = Node(self, unique, op, target, args, kwargs, type_expr)
        for hook in getattr(self._owning_module, "_create_node_hooks", ()):
            hook(node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(
        self, name: str, type_expr: Any = None, default_value: Any = _NO_DEFAULT
    ) -> Node:
        """An input of the program; `default_value` makes it optional."""
        if not isinstance(name, str):
            raise AssertionError(f"Expected target to be str, got {type(name)}")
        # torch marks "no default" with inspect.Signature.empty.
        missing = default_value is _NO_DEFAULT or (
            getattr(default_value, "__qualname__", None) == "_empty"
        )
        return self.create_node(
            "placeholder", name, () if missing else (default_value,), type_expr=type_expr
        )

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A read of an attribute of the owning module, by dotted path.

        Warns where the owning module has no such parameter, buffer, module or attribute.
        """
        owner = self._owning_module
        if owner is not None and not _has_reference(owner, qualified_name):
            import warnings  # lazy: on the rare path only

            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a submodule of the owning module, by dotted path."""
        owner = self._owning_module
        if owner is not None and owner.get_submodule(module_name) is None:
            import warnings  # lazy: on the rare path only

            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the "
                "owning GraphModule! Call GraphModule.add_submodule to add the necessary "
                "submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A call of a method of ``args[0]``."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """What the program returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def _target_to_str(self, target: Target) -> str:
        if callable(target):
            return snake_case(getattr(target, "__name__", type(target).__name__))
        if not isinstance(target, str):
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        if len(target) > 4 and target.startswith("__") and target.endswith("__"):
            target = target[2:-2]
        return snake_case(target)

    def inserting_before(self, n: Node | None = None) -> InsertPoint:
        """Put new nodes before `n` (None: at the beginning)."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> InsertPoint:
        """Put each new node right after `n` (None: at the end)."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return InsertPoint(self, n.append)

    # ---- removing -----------------------------------------------------------------------------

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nothing uses. RuntimeError if something does."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            import warnings  # lazy: on the rare path only

            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self._owning_module, "_erase_node_hooks", ()):
            hook(to_erase)
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase._set_arguments((), {})

    def _clear_nodes(self) -> None:
        for node in reversed(self.nodes):
            node.users = {}
            self.erase_node(node)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase what nothing uses and what has no effect. Returns whether anything was erased.

        `is_impure_node` decides what has an effect, in place of `Node.is_impure`. Graphs of
        submodules are cleaned too.
        """
        self.lint()
        keep = is_impure_node if is_impure_node is not None else Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not keep(node):
                self.erase_node(node)
                changed = True
        children = getattr(self._owning_module, "children", None)
        for child in children() if children is not None else ():
            graph = getattr(child, "graph", None)
            if isinstance(graph, Graph):
                changed |= graph.eliminate_dead_code(is_impure_node)
        return changed

    # ---- copying ------------------------------------------------------------------------------

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x
    ) -> Node:
        """Add a copy of `node`, which may be of another graph; `arg_transform` maps its inputs."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = dict(node.meta)
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Argument | None:
        """Add copies of the nodes of `g` up to its output; `val_map` says what they become.

        Nodes already in `val_map` are not copied. Returns the output's value in this graph (with
        `return_output_node`, and the output of `g`), or None if `g` has none.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        """A copy with nodes of its own; values in ``meta`` are shared, dictionaries are not."""
        import copy  # lazy: rare

        memo = {} if memo is None else memo
        graph = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        memo[id(self)] = graph
        val_map: dict[Node, Node] = {}
        copied = graph.graph_copy(self, val_map, return_output_node=True)
        if copied is not None:
            value, old = copied
            new = graph.output(value, type_expr=old.type)
            new.meta = dict(old.meta)
            val_map[old] = new
        memo.update({id(old): new for old, new in val_map.items()})
        graph._codegen = copy.deepcopy(self._codegen)
        graph._co_fields = dict(self._co_fields)
        return graph

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        index = {node: i for i, node in enumerate(self.nodes)}
        state["_root"] = [
            (
                node.name,
                node.op,
                node.target,
                map_arg(node.args, lambda n: _Reference(index[n])),
                map_arg(node.kwargs, lambda n: _Reference(index[n])),
                node.type,
                node.meta,
            )
            for node in self.nodes
        ]
        del state["_insert"], state["_len"], state["_graph_namespace"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        records = state.pop("_root")
        Graph.__init__(self)
        owner = state.pop("_owning_module")
        self.__dict__.update(state)
        made: list[Node] = []
        for name, op, target, args, kwargs, kind, meta in records:
            node = self.create_node(
                op, target, _resolve(args, made), _resolve(kwargs, made), name, kind
            )
            node.meta = meta
            made.append(node)
        self._owning_module = owner

    # ---- text and code ------------------------------------------------------------------------

    def __str__(self) -> str:
        lines = ["graph():"]
        lines += [f"    {node.format_node()}" for node in self.nodes]
        return "\n".join(lines)

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """This program as Python source, and the globals that it needs.

        `root_module` is the name by which the source calls the owning module ("self").
        """
        namespace = Namespace()
        for node in self.nodes:
            namespace.associate_name_with_obj(node.name, node)
        return self._codegen._gen_python_code(
            self.nodes,
            root_module,
            namespace,
            verbose=verbose,
            include_stride=include_stride,
            include_device=include_device,
            colored=colored,
            expanded_def=expanded_def,
            record_func=record_func,
            additional_meta=additional_meta,
        )

    def print_tabular(self) -> None:
        """Print the graph as a table."""
        print(tabular(self))

    def set_codegen(self, codegen: CodeGen) -> None:
        """Choose how the program is called: see `CodeGen`."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Any], Any]) -> Any:
        """Register a function of the body's lines, applied whenever code is generated.

        ``make_transformer(current)`` gets the function registered so far (or None). The result is
        a context manager that takes the new one out again.
        """
        current = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(current)
        return _Restore(self._codegen, current)

    def process_inputs(self, *args: Any) -> Any:
        """The graph's inputs for a call with `args`."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What a call returns, from the graph's output."""
        return self._codegen.process_outputs(out)

    def lint(self) -> None:
        """Raise RuntimeError where the graph is not well formed: see `verify.lint`."""
        lint(self)

    # ---- for Node -----------------------------------------------------------------------------

    def _renumber(self, step: int) -> None:
        # Over the list itself: the node being inserted is in it but not yet counted.
        node, order = self._root._next, 0
        while node is not self._root:
            order += step
            node._order = order
            node = node._next

    def _replaced(self, old: Node, new: Node, user: Node) -> None:
        for hook in getattr(self._owning_module, "_replace_hooks", ()):
            hook(old=old, new=new.name, user=user)


class _Restore(contextlib.AbstractContextManager["None"]):
    def __init__(self, codegen: CodeGen, before: Any) -> None:
        self._codegen = codegen
        self._before = before

    def __exit__(self, *error: object) -> None:
        self._codegen._body_transformer = self._before


class _Reference:
    """A node's number, standing for it in a pickle."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return _Reference, (self.index,)


def _resolve(value: Any, nodes: list[Node]) -> Any:
    from flambeau._src.ir.node import map_aggregate  # lazy: unpickling only

    return map_aggregate(value, lambda v: nodes[v.index] if isinstance(v, _Reference) else v)


def _has_reference(owner: Any, path: str) -> bool:
    """Whether the dotted path leads to an attribute of `owner`, through modules."""
    place = owner
    for part in path.split("."):
        if not hasattr(place, part):
            return False
        place = getattr(place, part)
    return True


def nodes_in_order(nodes: Iterable[Node]) -> list[Node]:
    """The nodes of one graph, sorted by their place in it."""
    return sorted(nodes, key=lambda node: node._order)
