"""The stages behind the capture, one function each: graph → joint → halves → kernels → program.

A stage takes the `Work` and returns its artefact; what later stages need it puts there. No stage
calls another: `PIPELINES` lists them by back end, and the driver runs the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, NamedTuple

from flambeau._src.capture import frames
from flambeau._src.capture.library import is_library
from flambeau._src.compiler import aot, assemble, partition, replay, whole
from flambeau._src.compiler.decompose import decompositions
from flambeau._src.compiler.extents import is_input
from flambeau._src.compiler.history import Entry, Origin
from flambeau._src.compiler.passes import straight
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ops.overload import OpOverload

__all__ = ["PIPELINES", "Pipeline", "Stage", "Work"]


@dataclass
class Work:
    """What the stages of one graph share.

    `inputs` are values for the placeholders (real tensors, or fake ones); `switches` the values of
    the options that stages read, by name; `lowered` becomes the callable of the graph that is being
    lowered: it takes the inputs (as a list where `boxed`) and returns the outputs.
    """

    graph: Graph
    attributes: dict[str, Any]
    inputs: list[Any]
    entry: Entry
    switches: dict[str, Any] = field(default_factory=dict)
    back_end: Any = None  # the user's callable, and its keywords
    keywords: dict[str, Any] = field(default_factory=dict)
    decompositions: Any = None
    partition: Any = None
    backward: bool = False
    strict: bool = True  # errors are raised
    joint: Any = None
    cut: Any = None
    plan: Any = None
    addresses: Any = None
    lowered: Callable[..., Any] | None = None


class Stage(NamedTuple):
    """A step of a pipeline; `remedy` says what a user can do when it fails, `part` what it works
    on: capture, graphs, kernels or code."""

    name: str
    run: Callable[[Work], Any]
    remedy: str
    part: str = "graphs"


class Pipeline(NamedTuple):
    """`trace`: stages on the captured graph; `lower`: on each half (or on the graph itself, where
    there is no trace)."""

    trace: tuple[Stage, ...]
    lower: tuple[Stage, ...]


# ---- the captured graph → two functional halves --------------------------------------------------


def _joint(work: Work) -> Any:
    run = replay.stepwise(work.graph, work.attributes)
    places = [i for i, v in enumerate(work.inputs) if is_input(v)]

    def fn(*tensors: Tensor) -> Any:
        filled = list(work.inputs)
        for i, t in zip(places, tensors, strict=True):
            filled[i] = t
        return run(*filled)

    work.joint = whole.traced(fn, [work.inputs[i] for i in places], work.decompositions)
    return work.joint


def _joint_apart(work: Work) -> Any:
    work.decompositions = decompositions()
    return _joint(work)


def _passes(work: Work) -> Any:
    aot.cleaned(work.joint)
    return work.joint.graph


def _partition(work: Work) -> Any:
    work.cut = (work.partition or partition.default_partition)(work.joint)
    return work.cut


def _min_cut(work: Work) -> Any:
    aggressive = bool(work.switches["functorch"]["aggressive_recomputation"])
    work.cut = partition.min_cut_partition(work.joint, aggressive)
    return work.cut


# ---- a functional graph → something that runs ----------------------------------------------------


def _fuse(work: Work) -> Any:
    work.plan = assemble.plan(work.graph, exact=bool(work.switches.get("exact")))
    return work.plan


def _toolchain(work: Work) -> Any:
    work.addresses = assemble.compile_kernels(list(work.plan.kernels.values()))
    return work.addresses


def _assemble(work: Work) -> Any:
    onto = [] if work.joint is None else work.joint.in_place()  # of a forward half
    program = assemble.write(work.plan, work.attributes, work.addresses, onto)
    work.lowered = aot.beneath(program, _left_alone(work, program.call))
    return program


def _print(work: Work) -> Any:
    work.lowered = _left_alone(work, replay.printed(work.graph, work.attributes))
    return work.graph


def _left_alone(work: Work, run: Callable[..., Any]) -> Callable[..., Any]:
    """Bodies of operators are modules, and programs' own functions may be nodes: Python, which is
    not to be captured again."""
    own = any(map(callable, work.attributes.values())) or any(map(_is_users, work.graph.nodes))
    return alone(run) if own else run


def _is_users(node: Node) -> bool:
    """Whether the node calls a Python function of the program (`autograd.Function`'s too)."""
    target = node.target
    if isinstance(target, MethodType):
        cls = target.__self__ if isinstance(target.__self__, type) else type(target.__self__)
        return not is_library(cls.__module__)
    return isinstance(target, FunctionType) and not is_library(target.__module__)


def _print_half(work: Work) -> Any:
    """Operators of a half run eager, beneath autograd: by C where no mode is to see them."""
    run = _left_alone(work, replay.printed(work.graph, work.attributes))
    quick = _left_alone(work, replay.printed(straight(work.graph), work.attributes, _by_c))

    def call(inputs: Sequence[Any]) -> Any:
        grad = state.set_grad(False)
        try:
            seen = state.get_active() & ~state.get_suspended()
            return run(*inputs) if seen else quick(*inputs)
        finally:
            state.set_grad(grad)

    work.lowered = call
    return work.graph


def _by_c(overload: OpOverload) -> Any:
    op = overload._op
    return assemble.exact(op) if assemble.served(op) else None


def graph_module(work: Work) -> Any:
    """The graph as the module that back ends of users are given."""
    made = slot("graph_module")(work.attributes, work.graph, "GraphModule")
    entry = work.entry
    made.meta["dynamo_compile_id"] = entry.id
    made.meta["dynamo_origin"] = Origin(
        entry.name, entry.filename, entry.line, work.strict, entry.contained
    )
    return made


def _hand_over(work: Work) -> Any:
    made = work.back_end(graph_module(work), list(work.inputs), **work.keywords)
    assert callable(made), "compiler_fn did not return callable"
    work.lowered = alone(made)
    return made


def alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A back end's callable, whose own Python is not offered to the capture."""
    set_callback = frames.set_callback

    def call(*inputs: Any) -> Any:
        before = set_callback(None)
        try:
            return function(*inputs)
        finally:
            set_callback(before)

    return call


def _hand_half_over(work: Work) -> Any:
    function = work.back_end.backward if work.backward else work.back_end.forward
    made = function(graph_module(work), list(work.inputs))
    assert callable(made), "compiler_fn did not return callable"
    boxed, run = getattr(made, "_boxed_call", False), alone(made)

    def call(inputs: Sequence[Any]) -> Any:
        return run(list(inputs)) if boxed else run(*inputs)

    work.lowered = call
    return made


_OURS = "This is a fault of flambeau; backend='eager' goes around it."
_TRACE = (
    Stage("joint", _joint, "backend='eager' runs the graph without it."),
    Stage("passes", _passes, _OURS),
    Stage("partition", _partition, _OURS),
)
_USERS = "The error is the back end's own: try it on the graph that TORCH_LOGS=graph_code shows."
_PRINT = Stage("print", _print, _OURS, "kernels")
PIPELINES: dict[str, Pipeline] = {
    "eager": Pipeline((), (_PRINT,)),
    "users": Pipeline((), (Stage("back end", _hand_over, _USERS, "kernels"),)),
    "aot_eager": Pipeline(_TRACE, (Stage("print", _print_half, _OURS, "kernels"),)),
    # Taken apart as far as can be, and cut as generated code is: what goes wrong there and not here
    # is the kernels' doing.
    "aot_eager_decomp_partition": Pipeline(
        (Stage("joint", _joint_apart, _OURS), _TRACE[1], Stage("partition", _min_cut, _OURS)),
        (Stage("print", _print_half, _OURS, "kernels"),),
    ),
    "aot_users": Pipeline(_TRACE, (Stage("back end", _hand_half_over, _USERS, "kernels"),)),
    "inductor": Pipeline(
        (*_TRACE[:2], Stage("partition", _min_cut, _OURS)),
        (
            Stage(
                "fuse",
                _fuse,
                "backend='aot_eager' runs the graph without generated kernels.",
                "kernels",
            ),
            Stage(
                "toolchain", _toolchain, "Is the C compiler (CC, CFLAGS) the one you mean?", "code"
            ),
            Stage(
                "assemble", _assemble, "backend='aot_eager' runs the operators one by one.", "code"
            ),
        ),
    ),
}
