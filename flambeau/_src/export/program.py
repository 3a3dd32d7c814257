"""`export` and `ExportedProgram`: a graph, what its ends mean, and the tensors that it reads."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau._src.compiler import replay
from flambeau._src.compiler.core_aten import core_decompositions
from flambeau._src.compiler.errors import UserError, UserErrorType
from flambeau._src.compiler.passes import drop_dead
from flambeau._src.core.slots import slot
from flambeau._src.core.symint import SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.export import graphs, shapes, trace
from flambeau._src.export.calling import ExportCodeGen, InputCheck
from flambeau._src.export.constraints import Sizes
from flambeau._src.export.signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    ModuleCallEntry,
    ModuleCallSignature,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from flambeau._src.ir.conditions import Condition
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ops.op import packet
from flambeau._src.ops.overload import overload_of

__all__ = ["CallSpec", "ExportedProgram", "default_decompositions", "export"]

_KINDS = {"p": InputKind.PARAMETER, "b": InputKind.BUFFER, "c": InputKind.CONSTANT_TENSOR}


@dataclass
class CallSpec:
    """Structures of the arguments, as (args, kwargs), and of the result."""

    in_spec: Any
    out_spec: Any


class ExportedProgram:
    """A program without Python: `graph_module` holds the graph, whose inputs and outputs
    `graph_signature` explains; `state_dict` and `constants` hold the tensors. `module()` is what
    can be called."""

    __module__ = "flambeau.export.exported_program"

    def __init__(
        self, root: Any, graph: Graph, graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any], range_constraints: dict[Any, Any],
        module_call_graph: list[ModuleCallEntry], example_inputs: Any = None,
        constants: dict[str, Any] | None = None, *, dialect: str = "TRAINING",
        guards: Sequence[Condition] = (),
    ) -> None:  # fmt: skip
        self._graph_module = slot("graph_module")(root, graph, "GraphModule")
        self._graph_signature = graph_signature
        self._state_dict = state_dict
        self._range_constraints = range_constraints
        self._module_call_graph = module_call_graph
        self._example_inputs = example_inputs
        self._constants = constants or {}
        self._guards = list(guards)  # beside the ranges
        self.dialect = dialect

    # ---- parts ----

    @property
    def graph_module(self) -> Any:
        """The graph as a module of flat inputs and outputs."""
        return self._graph_module

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph_module.graph  # type: ignore[no-any-return]

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What inputs and outputs are."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers by name."""
        return self._state_dict

    @property
    def constants(self) -> dict[str, Any]:
        """Other tensors by name."""
        return self._constants

    tensor_constants = constants

    @property
    def example_inputs(self) -> Any:
        """The (args, kwargs) that the program was traced with."""
        return self._example_inputs

    @property
    def range_constraints(self) -> dict[Any, Any]:
        """The range of every size that varies."""
        return self._range_constraints

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The modules of the program; the first is the program."""
        return self._module_call_graph

    @property
    def call_spec(self) -> CallSpec:
        """How the program is called."""
        own = self._module_call_graph[0].signature
        assert own is not None
        return CallSpec(own.in_spec, own.out_spec)

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Parameters with their names."""
        for name in self.graph_signature.parameters:
            yield name, self._state_dict[name]

    def parameters(self) -> Iterator[Any]:
        """Parameters."""
        for _, value in self.named_parameters():
            yield value

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """Buffers with their names."""
        for name in self.graph_signature.buffers:
            yield name, self._tensor(name)

    def buffers(self) -> Iterator[Any]:
        """Buffers."""
        for _, value in self.named_buffers():
            yield value

    def _tensor(self, name: str | None) -> Any:
        assert name is not None
        return self._state_dict[name] if name in self._state_dict else self._constants[name]

    # ---- uses ----

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def __str__(self) -> str:
        text = self.graph_module.print_readable(print_output=False)
        body = text.replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {body}\nGraph signature: "
            f"{self.graph_signature!s}\nRange constraints: {self.range_constraints}\n"
        )

    def module(self, check_guards: bool = True) -> Any:
        """A module that runs the program; it is called as the original was.

        AssertionError, when called, for inputs that the program does not hold for.
        """
        signature = self.graph_signature
        graph = copy.deepcopy(self.graph)
        root: dict[str, Any] = {}
        users: list[Node] = []
        read: dict[str, Node] = {}
        for node, spec in zip(list(graph.nodes), signature.input_specs, strict=False):
            if spec.kind is InputKind.USER_INPUT:
                users.append(node)
                continue
            root[str(spec.target)] = self._tensor(spec.target)
            with graph.inserting_before(node):
                made = graph.get_attr(str(spec.target))
            made.meta = dict(node.meta)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
            read[str(spec.target)] = made
        _write_back(graph, signature, read, {n.name: n for n in users})
        first = next(n for n in graph.nodes if n.op != "placeholder")
        for node in users:
            first.prepend(node)
        entry = self._module_call_graph[0].signature
        assert entry is not None
        graph.set_codegen(
            ExportCodeGen(entry.forward_arg_names or [], entry.in_spec, entry.out_spec)
        )
        module = slot("graph_module")(root, graph, "GraphModule")
        if check_guards:
            values = [n.meta.get("val") for n in users]
            check = InputCheck(
                entry.in_spec, values, _names(users), self._range_constraints, self._guards
            )
            module.register_forward_pre_hook(check, with_kwargs=True)
        return module

    def run_decompositions(self, decomp_table: Any = None, **_: Any) -> ExportedProgram:
        """The program in fewer operators, without writes: new values of buffers are outputs.

        `decomp_table` maps overloads to functions; None: `default_decompositions()`. What the
        table does not name stays, composites (`linear`) too unless they may be views.
        """
        table = default_decompositions() if decomp_table is None else decomp_table
        calls, kept = trace.composites(self.graph, table)
        run = replay.stepwise(self.graph, {}, calls)
        holders = [n for n in self.graph.nodes if n.op == "placeholder"]
        inputs = [n.meta["val"] for n in holders]
        tracer, written = trace.functional(run, inputs, [n.name for n in holders], table, kept)
        drop_dead(tracer.graph)
        specs = list(self.graph_signature.input_specs)
        results = list(tracer.graph.output_node().args[0])
        outputs = []
        for i, end in zip(written, results, strict=False):
            kind, target = OutputKind.USER_INPUT_MUTATION, specs[i].arg.name
            if specs[i].kind is not InputKind.USER_INPUT:
                kind, target = OutputKind.BUFFER_MUTATION, specs[i].target
            outputs.append(OutputSpec(kind, TensorArgument(end.name), target))
        old = self.graph_signature.output_specs
        outputs += [s for s in old if s.kind is not OutputKind.USER_OUTPUT]
        outputs += [_output(end) for end in results[len(written) :]]
        return ExportedProgram(
            tracer.attributes, tracer.graph, ExportGraphSignature(specs, outputs),
            self._state_dict, self._range_constraints, self._module_call_graph,
            self._example_inputs, self._constants, dialect="ATEN", guards=self._guards,
        )  # fmt: skip


def _names(nodes: list[Node]) -> list[str]:
    return [n.name for n in nodes]


def _write_back(
    graph: Graph,
    signature: ExportGraphSignature,
    read: Mapping[str, Node],
    users: Mapping[str, Node],
) -> None:
    """Outputs that are new values are copied into what they are values of."""
    end = graph.output_node()
    results = list(end.args[0])
    kept = []
    copy_ = overload_of(packet("copy_").ops[0])
    for value, spec in zip(results, signature.output_specs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            kept.append(value)
            continue
        target = read.get(str(spec.target)) or users[str(spec.target)]
        with graph.inserting_before(end):
            graph.call_function(copy_, (target, value))
    end.args = (tuple(kept),)


def _output(value: Any) -> OutputSpec:
    kind = OutputKind.USER_OUTPUT
    if isinstance(value, Node):
        return OutputSpec(kind, _argument(value.name, value.meta.get("val")), None)
    return OutputSpec(kind, ConstantArgument("", value), None)


def default_decompositions() -> dict[Any, Callable[..., Any]]:
    """Operators that `run_decompositions` takes apart, and the functions that do."""
    return core_decompositions()


def export(
    mod: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *,
    dynamic_shapes: Any = None, strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:  # fmt: skip
    """A module's forward on these arguments as a program.

    Args:
        mod: the module.
        args: positional arguments, a tuple. Shapes and constants among them are part of the
            program.
        kwargs: keyword arguments.
        dynamic_shapes: which sizes may vary, by argument: `Dim`s, hints, a `ShapesCollection` or
            `AdditionalInputs`.
        strict: also demand that the program can be captured from bytecode in one graph.

    Raises:
        ValueError: mod is no module. UserError: args is no tuple, dynamic_shapes does not fit, or
        the program relies on more than was said (with what to say instead).
        ConstraintViolationError: an argument is not what dynamic_shapes says.
        GuardOnDataDependentSymNode: the program branches on values.
    """
    if not hasattr(mod, "named_modules"):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise UserError(
            UserErrorType.INVALID_INPUT,
            "Expecting `args` to be a tuple of example positional inputs, got " + str(type(args)),
        )
    mod = getattr(mod, "_orig_mod", mod)
    keywords = shapes.in_order(mod.forward, args, kwargs or {})
    env = ShapeEnv(duck_shape=False)
    sizes = Sizes(env, shapes.leaves(mod.forward, args, keywords, dynamic_shapes))
    if strict:
        graphs.capture_whole(mod, args, keywords)
    tracer, held, in_spec, out_spec = trace.trace_module(mod, args, keywords, env, sizes)
    sizes.check()
    graph = tracer.graph
    holders = [n for n in graph.nodes if n.op == "placeholder"]
    last = holders[len(held) - 1] if held else None
    lifted = trace.lift_attributes(graph, tracer.attributes, last)
    inputs = [
        InputSpec(_KINDS[h.kind], TensorArgument(n.name), h.name, h.persistent)
        for h, n in zip(held, holders, strict=False)
    ]
    constants = {h.name: h.value for h in held if h.kind == "c" or h.persistent is False}
    for node in lifted:
        name = node.name.removeprefix("c_")
        inputs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), name))
        constants[name] = tracer.attributes[name.replace("lifted_tensor_", "_tensor_constant")]
    for node in holders[len(held) :]:
        val = node.meta.get("val")
        inputs.append(InputSpec(InputKind.USER_INPUT, _argument(node.name, val), None))
    outputs = [_output(v) for v in graph.output_node().args[0]]
    drop_dead(graph)
    parameters = [*_positional(mod.forward, args), *keywords]
    own = ModuleCallSignature([], [], in_spec, out_spec, parameters)
    entries = [ModuleCallEntry("", own)]
    entries += [ModuleCallEntry(name) for name, _ in mod.named_modules() if name]
    state = {h.name: h.value for h in held if h.kind == "p" or h.persistent}
    return ExportedProgram(
        {}, graph, ExportGraphSignature(inputs, outputs), state, sizes.ranges(), entries,
        (args, keywords), constants, guards=sizes.guards(),
    )  # fmt: skip


def _argument(name: str, val: Any) -> Any:
    """What the signature says of a node."""
    if isinstance(val, Tensor):
        return TensorArgument(name)
    return SymIntArgument(name) if isinstance(val, SymInt) else ConstantArgument(name, val)


def _positional(forward: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    names = list(inspect.signature(forward).parameters)
    fixed = names[: len(args)]
    return fixed + [f"args_{i}" for i in range(len(fixed), len(args))]
