"""Interpreter: running a graph node by node. Transformer: the same, making a new graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from flambeau._src.ir import provenance
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Argument, Node, Target, map_aggregate, map_arg
from flambeau.fx._symbolic_trace import Tracer
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.proxy import Proxy

if TYPE_CHECKING:
    from flambeau.nn import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph node by node; override a method to change what a kind of node does.

    With `garbage_collect_values` a value is dropped after its last use. `graph` replaces the
    module's own.
    """

    def __init__(
        self,
        module: Module,
        garbage_collect_values: bool = True,
        graph: Graph | None = None,
    ) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = module.graph if graph is None else graph  # type: ignore[assignment]
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        #: Say in an error which node was being run.
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for used in node._input_nodes:
                    if used not in seen:
                        seen.add(used)
                        self.user_to_last_uses.setdefault(node, []).append(used)

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Run the graph on `args` and return its output.

        `initial_env` gives the values of nodes that need not be run; `enable_io_processing`
        applies the code generator's treatment of inputs and outputs.
        """
        self.env = initial_env if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    _say_where(error, node)
                if isinstance(error, KeyError):
                    raise RuntimeError(*error.args) from error
                raise
            if self.garbage_collect_values:
                for used in self.user_to_last_uses.get(node, ()):
                    self.env.pop(used, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run on a list of inputs, which is emptied first: no input is kept alive by it."""
        inputs = iter(args_list.copy())
        env = {node: next(inputs) for node in self.graph.nodes if node.op == "placeholder"}
        args_list.clear()
        return self.run(initial_env=env)

    def run_node(self, n: Node) -> Any:
        """Run one node on the values computed so far."""
        context = (
            provenance.copying_from(n, name=self.name) if provenance.current.preserve else None
        )
        with context or nullcontext():
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    # ---- one method for each kind of node -----------------------------------------------------

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The next input; ``*name`` takes all that are left."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute of the module, by dotted path."""
        return self.fetch_attr(str(target))

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A function's result."""
        if isinstance(target, str):
            raise AssertionError("call_function needs a callable target")
        return target(*args, **kwargs)

    def call_method(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a method of the first argument."""
        receiver, *rest = args
        return getattr(receiver, str(target))(*rest, **kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A submodule's result."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The value that the graph returns."""
        return args[0]

    # ---- values -------------------------------------------------------------------------------

    def fetch_attr(self, target: str) -> Any:
        """What stands at a dotted path of the module."""
        found: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values of a node's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """`args` with the value of every node in its place."""

        def load(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {used}! Run Graph.lint() to diagnose "
                    "such issues"
                )
            return self.env[used]

        return map_arg(args, load)


def _say_where(error: Exception, node: Node) -> None:
    message = f"While executing {node.format_node()}"
    message = f"{error.args[0]}\n\n{message}" if error.args else message
    message += f"\nOriginal traceback:\n{node.stack_trace}"
    error.args = (message, *error.args[1:])


class Transformer(Interpreter):
    """Runs a graph on proxies, making a new module: override a method to change its nodes."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.tensor_attrs: dict[Any, str] = {}

            def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Proxy:
        """A placeholder of the new graph."""
        default = next(iter(args)) if args else None
        made = (
            self.new_graph.placeholder(str(target), default_value=default)
            if args
            else (self.new_graph.placeholder(str(target)))
        )
        return Proxy(made, self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """A read of the same attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of the same module."""
        module = self.fetch_attr(str(target))
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of a function, recorded whether or not it knows proxies."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module: this one's attributes, the new graph."""
        with provenance.preserving():
            result = super().run(enable_io_processing=False)
        if result is not None:
            old = self.graph.output_node()
            value = map_aggregate(result, lambda v: v.node if isinstance(v, Proxy) else v)
            new = self.new_graph.output(value)
            new.meta = dict(old.meta)
        return GraphModule(self.module, self.new_graph)
