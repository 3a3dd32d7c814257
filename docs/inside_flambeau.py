"""Inside flambeau: the whole stack as a toy, from bytes to a compiled training step.

    python docs/inside_flambeau.py

Read it from top to bottom. Every section is one folder of `flambeau/_src`, in the order in which
they build on each other, and shows the one idea of that folder with everything else left out:
float32 only, at most two dimensions, no errors for bad input. It needs NumPy, and a C compiler for
the last part. The last section trains a small network on two interleaved half moons, first eagerly,
then through the compiler, and prints what every stage hands to the next.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

# ---- core: a storage owns bytes, a tensor is a way of looking at them ----------------------------
#
# Views (a transpose, a slice) share a storage and differ in shape, strides and offset. The version
# counts writes: a gradient that needs an old value can see that it is gone.


class Storage:
    def __init__(self, size: int) -> None:
        self.data = np.zeros(size, np.float32)
        self.version = 0


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Distances, in elements, between neighbours along each dimension: (2, 3) -> (3, 1)."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Tensor:
    def __init__(
        self, storage: Storage | None, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.storage = storage  # None: a fake tensor, of which only the shape is known
        self.shape = shape
        self.strides = strides
        self.requires_grad = False
        self.history: Record | None = None  # how it was computed, where that is recorded
        self.value: Node | None = None  # which node of a graph it is, where that is traced

    @staticmethod
    def empty(shape: tuple[int, ...]) -> Tensor:
        return Tensor(Storage(int(np.prod(shape))), shape, contiguous_strides(shape))

    @staticmethod
    def of(array: Any) -> Tensor:
        array = np.asarray(array, np.float32)
        out = Tensor.empty(array.shape)
        out.numpy()[...] = array
        return out

    def numpy(self) -> np.ndarray:
        """A NumPy view of the same bytes, made for one call."""
        assert self.storage is not None, "a fake tensor has no values"
        steps = tuple(4 * s for s in self.strides)
        return np.lib.stride_tricks.as_strided(self.storage.data, self.shape, steps)

    def t(self) -> Tensor:
        return call(OPS["t"], self)

    def sum(self, *dims: int) -> Tensor:
        return call(OPS["sum"], self, dims=dims or tuple(range(len(self.shape))))

    # Python's operators are those of the table below.
    def _operator(name: str, swap: bool = False) -> Any:
        def method(self: Tensor, other: Any) -> Tensor:
            return call(OPS[name], other, self) if swap else call(OPS[name], self, other)

        return method

    __add__, __sub__, __mul__ = _operator("add"), _operator("sub"), _operator("mul")
    __truediv__, __matmul__ = _operator("div"), _operator("mm")
    __radd__, __rsub__ = _operator("add", True), _operator("sub", True)
    __rmul__ = _operator("mul", True)


def scalar(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor.of(value)


# ---- ops: one operator, one declaration ----------------------------------------------------------
#
# A declaration says what an operator *is*. `expr` is a formula over single numbers, written against
# a handler `k`: run with NumPy's functions as the handler it computes arrays, run with symbols it
# gives the loop that the compiler prints as C. `vjp` is the gradient, written with operators, so
# that a gradient can be recorded, traced and compiled like anything else.


@dataclass(frozen=True)
class Op:
    name: str
    kind: str  # pointwise, reduction, matmul or view
    expr: Callable[..., Any] | None  # what one element is
    vjp: Callable[..., tuple[Any, ...]] | None  # (grad, out, *inputs, **attrs) -> input gradients

    def meta(self, *args: Tensor, **attrs: Any) -> Tensor:
        """A fake result: its shape, from the kind alone."""
        if self.kind == "pointwise":
            shape = np.broadcast_shapes(*[a.shape for a in args])
        elif self.kind == "reduction":
            shape = tuple(1 if i in attrs["dims"] else n for i, n in enumerate(args[0].shape))
        elif self.kind == "matmul":
            shape = (args[0].shape[0], args[1].shape[1])
        else:
            return Tensor(args[0].storage, args[0].shape[::-1], args[0].strides[::-1])
        return Tensor(None, shape, contiguous_strides(shape))


OPS: dict[str, Op] = {}


def declare(name: str, kind: str, expr: Any = None, vjp: Any = None) -> Callable[..., Tensor]:
    op = OPS[name] = Op(name, kind, expr, vjp)
    return lambda *args, **attrs: call(op, *args, **attrs)


declare("add", "pointwise", lambda k, x, y: x + y, lambda g, out, x, y: (g, g))
declare("sub", "pointwise", lambda k, x, y: x - y, lambda g, out, x, y: (g, 0.0 - g))
declare("mul", "pointwise", lambda k, x, y: x * y, lambda g, out, x, y: (g * y, g * x))
declare("div", "pointwise", lambda k, x, y: x / y, lambda g, out, x, y: (g / y, 0.0 - g * out / y))
exp = declare("exp", "pointwise", lambda k, x: k.exp(x), lambda g, out, x: (g * out,))
log = declare("log", "pointwise", lambda k, x: k.log(x), lambda g, out, x: (g / x,))
tanh = declare(
    "tanh", "pointwise", lambda k, x: k.tanh(x), lambda g, out, x: (g * (1.0 - out * out),)
)
step = declare("step", "pointwise", lambda k, x: k.where(x > 0, 1.0, 0.0))
relu = declare(
    "relu", "pointwise", lambda k, x: k.where(x > 0, x, 0.0), lambda g, out, x: (g * step(x),)
)
spread = declare("spread", "pointwise", lambda k, x, like: x)  # x, broadcast to another's shape
declare("sum", "reduction", None, lambda g, out, x, dims: (spread(g, x),))
declare("mm", "matmul", None, lambda g, out, a, b: (g @ b.t(), a.t() @ g))
declare("t", "view", None, lambda g, out, x: (g.t(),))


# ---- kernels: what an operator does when nothing else wants the call -----------------------------

NUMPY = SimpleNamespace(exp=np.exp, log=np.log, tanh=np.tanh, where=np.where)


def run(op: Op, args: tuple[Tensor, ...], attrs: dict[str, Any]) -> Tensor:
    out = op.meta(*args, **attrs)
    if op.kind == "view":
        return out
    arrays = [a.numpy() for a in args]
    if op.kind == "pointwise":
        assert op.expr is not None
        values = op.expr(NUMPY, *arrays)
    elif op.kind == "reduction":
        values = arrays[0].sum(axis=attrs["dims"], keepdims=True)
    else:
        values = arrays[0] @ arrays[1]
    result = Tensor.empty(out.shape)
    result.numpy()[...] = values
    return result


# ---- interp: layers between the call and the kernel ----------------------------------------------
#
# A layer is an object with a rule. The rule sees the call and what lies below it. Recording (for
# gradients) lies above tracing (for graphs): so a gradient computed while tracing is traced too.

LAYERS: list[Any] = []


def call(op: Op, *args: Any, **attrs: Any) -> Tensor:
    return call_below(len(LAYERS), op, tuple(map(scalar, args)), attrs)


def call_below(level: int, op: Op, args: tuple[Tensor, ...], attrs: dict[str, Any]) -> Tensor:
    if level == 0:
        return run(op, args, attrs)
    return LAYERS[level - 1].rule(op, args, attrs, lambda: call_below(level - 1, op, args, attrs))


@contextmanager
def active(*layers: Any) -> Iterator[None]:
    """These layers and no others, the innermost first."""
    before = LAYERS[:]
    LAYERS[:] = layers
    try:
        yield
    finally:
        LAYERS[:] = before


# ---- autograd: recording, and going back ---------------------------------------------------------


@dataclass(eq=False)
class Record:
    """One recorded call. It holds inputs, and its output's parts but never the output itself: an
    output that held its record, and the record it, would only be freed by the garbage collector."""

    op: Op
    args: tuple[Tensor, ...]
    attrs: dict[str, Any]
    output: Tensor  # a twin of the output, without a history
    versions: list[int]


class Recording:
    def rule(
        self, op: Op, args: tuple[Tensor, ...], attrs: Any, below: Callable[[], Tensor]
    ) -> Tensor:
        out = below()
        if op.vjp is not None and any(a.requires_grad for a in args):
            twin = Tensor(out.storage, out.shape, out.strides)
            twin.value = out.value
            versions = [a.storage.version if a.storage else 0 for a in args]
            out.history = Record(op, args, attrs, twin, versions)
            out.requires_grad = True
        return out


def sum_to(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Undo broadcasting: what was repeated is summed. Derived, so that no `vjp` mentions it."""
    if grad.shape == shape:
        return grad
    assert len(shape) in (0, len(grad.shape)), "scalars and equal ranks only"
    padded = shape or (1,) * len(grad.shape)
    return grad.sum(*[i for i, n in enumerate(padded) if n == 1 and grad.shape[i] != 1])


def gradients(loss: Tensor, wanted: list[Tensor]) -> list[Tensor]:
    """Each record runs once, when the last of those that used its result has run."""
    waiting: dict[Record, int] = {}

    def count(record: Record | None) -> None:
        if record is None:
            return
        waiting[record] = waiting.get(record, 0) + 1
        if waiting[record] == 1:
            for arg in record.args:
                count(arg.history)

    count(loss.history)
    assert loss.history is not None, "nothing was recorded"
    sums: dict[Any, Tensor] = {loss.history: scalar(np.ones(loss.shape))}
    ready = [loss.history]
    while ready:
        record = ready.pop()
        for arg, version in zip(record.args, record.versions, strict=True):
            if arg.storage is not None and arg.storage.version != version:
                raise RuntimeError("a tensor needed for the gradient was modified in place")
        assert record.op.vjp is not None
        parts = record.op.vjp(sums.pop(record), record.output, *record.args, **record.attrs)
        for arg, part in zip(record.args, parts, strict=True):
            if not arg.requires_grad:
                continue
            if record.op.kind == "pointwise":
                part = sum_to(part, arg.shape)
            key = arg.history or arg
            sums[key] = sums[key] + part if key in sums else part
            if arg.history is not None:
                waiting[arg.history] -= 1
                if waiting[arg.history] == 0:
                    ready.append(arg.history)
    return [sums[tensor] for tensor in wanted]


# ---- ir/graph: a program as data -----------------------------------------------------------------


@dataclass(eq=False)
class Node:
    name: str
    op: Op | None  # None: an input or a constant
    args: list[Node]
    attrs: dict[str, Any]
    shape: tuple[int, ...]
    constant: float | None = None

    def __str__(self) -> str:
        assert self.op is not None
        inputs = [a.name if a.constant is None else f"{a.constant:g}" for a in self.args]
        inputs += [f"{key}={value}" for key, value in self.attrs.items()]
        return f"{self.name} = {self.op.name}({', '.join(inputs)})  # {list(self.shape)}"


@dataclass
class Graph:
    inputs: list[Node]
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"def program({', '.join(n.name for n in self.inputs)}):"]
        lines += [f"    {node}" for node in self.nodes]
        return "\n".join([*lines, f"    return {', '.join(n.name for n in self.outputs)}"])


class Tracing:
    """Runs nothing: notes the call, and passes a fake tensor on."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def rule(
        self, op: Op, args: tuple[Tensor, ...], attrs: Any, below: Callable[[], Tensor]
    ) -> Tensor:
        out = op.meta(*args, **attrs)
        node = Node(
            f"v{len(self.graph.nodes)}", op, [self.node_of(a) for a in args], attrs, out.shape
        )
        self.graph.nodes.append(node)
        out.storage, out.value = None, node
        return out

    @staticmethod
    def node_of(tensor: Tensor) -> Node:
        if tensor.value is None:  # not computed by the program: a number written in it
            value = float(tensor.numpy().reshape(-1)[0])
            tensor.value = Node("constant", None, [], {}, tensor.shape, value)
        return tensor.value


def trace(fn: Callable[..., list[Tensor]], examples: dict[str, Tensor]) -> Graph:
    fakes = {}
    for name, example in examples.items():
        fake = Tensor(None, example.shape, contiguous_strides(example.shape))
        fake.requires_grad = example.requires_grad
        fake.value = Node(name, None, [], {}, example.shape)
        fakes[name] = fake
    graph = Graph([f.value for f in fakes.values() if f.value is not None])
    with active(Tracing(graph), Recording()):
        graph.outputs = [Tracing.node_of(t) for t in fn(**fakes)]
    return graph


# ---- compiler/passes: the same program, in fewer nodes -------------------------------------------


def fold_constants(graph: Graph) -> None:
    """What is known now is computed now, and x * 1 is x, if x has the result's shape."""
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        node.args = [replaced.get(a, a) for a in node.args]
        values = [a.constant for a in node.args]
        if node.op is None or node.op.expr is None:
            continue
        if None not in values:
            value = float(node.op.expr(NUMPY, *values))
            replaced[node] = Node("constant", None, [], {}, node.shape, value)
        elif node.op is OPS["mul"] and 1.0 in values:
            other = node.args[1 - values.index(1.0)]
            if other.shape == node.shape:
                replaced[node] = other
    graph.outputs = [replaced.get(n, n) for n in graph.outputs]
    graph.nodes = [n for n in graph.nodes if n not in replaced]


def drop_dead(graph: Graph) -> None:
    """What no output depends on is not computed."""
    alive = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node in alive:
            alive.update(node.args)
    graph.nodes = [n for n in graph.nodes if n in alive]


PASSES = [fold_constants, drop_dead]


# ---- ir/kernel: a loop nest around a scalar expression -------------------------------------------
#
# Pointwise operators dissolve into the loops of whoever uses them; a reduction or a matrix product
# is a loop nest with an accumulator; a transpose is an exchange of two indices and costs nothing.


class Scalar:
    """A symbol: what `expr` computes with when the handler is SYMBOLS. Prints as C."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _binary(sign: str, swap: bool = False) -> Any:  # type: ignore[misc]
        def method(self: Scalar, other: Any) -> Scalar:
            a, b = (as_text(other), self.text) if swap else (self.text, as_text(other))
            return Scalar(f"({a} {sign} {b})")

        return method

    __add__, __sub__, __mul__, __truediv__ = map(_binary, "+-*/")
    __gt__ = _binary(">")
    __radd__, __rmul__, __rsub__ = _binary("+", True), _binary("*", True), _binary("-", True)


def as_text(value: Any) -> str:
    return value.text if isinstance(value, Scalar) else f"{float(value)!r}f"


SYMBOLS = SimpleNamespace(
    exp=lambda x: Scalar(f"expf({as_text(x)})"),
    log=lambda x: Scalar(f"logf({as_text(x)})"),
    tanh=lambda x: Scalar(f"tanhf({as_text(x)})"),
    where=lambda c, a, b: Scalar(f"({as_text(c)} ? {as_text(a)} : {as_text(b)})"),
)


@dataclass
class Kernel:
    output: Node
    loops: dict[str, int]  # one index for every dimension of the output
    reduced: dict[str, int]  # and one for every dimension that is summed away
    body: str  # one element, or one term of the sum
    reads: list[Node]

    def c(self) -> str:
        """The kernel as a C function."""
        parameters = ", ".join(f"const float *restrict {n.name}" for n in self.reads)
        separator = ", " if parameters else ""
        lines = [f"static void k_{self.output.name}({parameters}{separator}float *out) {{"]
        for index, size in self.loops.items():
            lines.append(f"  for (long {index} = 0; {index} < {size}; {index}++)")
        place = address(list(self.loops), self.output.shape)
        if not self.reduced:
            return "\n".join([*lines, f"    out[{place}] = {self.body};", "}"])
        lines.append("  { float sum = 0;")
        for index, size in self.reduced.items():
            lines.append(f"    for (long {index} = 0; {index} < {size}; {index}++)")
        return "\n".join([*lines, f"      sum += {self.body};", f"    out[{place}] = sum; }}", "}"])


def address(indices: list[str], shape: tuple[int, ...]) -> str:
    strides = contiguous_strides(shape)
    terms = [
        index if stride == 1 else f"{index} * {stride}"
        for index, size, stride in zip(indices, shape, strides, strict=True)
        if size != 1  # broadcast: always the one element
    ]
    return " + ".join(terms) or "0"


def lower(graph: Graph) -> list[Kernel]:
    """Choose what gets a buffer of its own, and write a loop nest for each."""
    users: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for arg in node.args:
            users.setdefault(arg, []).append(node)

    def has_buffer(node: Node) -> bool:
        if node.op is None or node in graph.outputs or node.op.kind in ("reduction", "matmul"):
            return True
        # Recomputing a value in its user's loop pays if there is one user, and that is no matmul.
        readers = users.get(node, [])
        inside_matmul = any(u.op and u.op.kind in ("matmul", "view") for u in readers)
        return node.op.kind != "view" and (len(readers) > 1 or inside_matmul)

    def element(node: Node, indices: list[str], reads: dict[Node, None]) -> Scalar:
        """The element of `node` at these indices, as an expression over buffers."""
        if node.constant is not None:
            return Scalar(as_text(node.constant))
        if has_buffer(node):
            reads[node] = None
            return Scalar(f"{node.name}[{address(indices, node.shape)}]")
        return formula(node, indices, reads)

    def formula(node: Node, indices: list[str], reads: dict[Node, None]) -> Scalar:
        assert node.op is not None
        if node.op.kind == "view":
            return element(node.args[0], indices[::-1], reads)
        assert node.op.expr is not None
        inputs = [element(a, indices[len(indices) - len(a.shape) :], reads) for a in node.args]
        return node.op.expr(SYMBOLS, *inputs)

    kernels = []
    for node in graph.nodes:
        if not has_buffer(node):
            continue
        assert node.op is not None
        indices, reads = [f"i{d}" for d in range(len(node.shape))], dict[Node, None]()
        reduced: dict[str, int] = {}
        if node.op.kind == "matmul":
            a, b = node.args
            reduced = {"r": a.shape[1]}
            body = element(a, [indices[0], "r"], reads) * element(b, ["r", indices[1]], reads)
        elif node.op.kind == "reduction":
            reduced = {f"r{d}": node.args[0].shape[d] for d in node.attrs["dims"]}
            inner = [f"r{d}" if d in node.attrs["dims"] else i for d, i in enumerate(indices)]
            body = element(node.args[0], inner, reads)
        else:
            body = formula(node, indices, reads)
        loops = dict(zip(indices, node.shape, strict=True))
        kernels.append(Kernel(node, loops, reduced, body.text, list(reads)))
    return kernels


# ---- compiler/memory: buffers of values that are never alive together are one buffer -------------


def plan_memory(graph: Graph, kernels: list[Kernel]) -> dict[Node, tuple[int, int]]:
    """For each intermediate value (slot, elements); a slot is free after its value's last use."""
    last = {read: i for i, kernel in enumerate(kernels) for read in kernel.reads}
    plan: dict[Node, tuple[int, int]] = {}
    sizes: list[int] = []
    free: list[int] = []
    for i, kernel in enumerate(kernels):
        node = kernel.output
        if node not in graph.outputs:
            size = int(np.prod(node.shape))
            fitting = [slot for slot in free if sizes[slot] >= size]
            if fitting:
                slot = min(fitting, key=lambda s: sizes[s])
                free.remove(slot)
            else:
                slot = len(sizes)
                sizes.append(size)
            plan[node] = (slot, sizes[slot])
        free += [plan[r][0] for r in kernel.reads if r in plan and last[r] == i]
    return plan


# ---- codegen, toolchain: text, then a shared library ---------------------------------------------


def generate(graph: Graph, kernels: list[Kernel], plan: dict[Node, tuple[int, int]]) -> str:
    """One C file: the kernels, and a function that runs them in order."""
    names = [n.name for n in graph.inputs] + [f"out_{n.name}" for n in graph.outputs]
    sizes = dict(plan.values())
    lines = ["#include <math.h>", *[kernel.c() for kernel in kernels]]
    lines += [f"static float slot{slot}[{size}];" for slot, size in sorted(sizes.items())]
    lines.append("void program(float **p) {")
    lines += [f"  float *{name} = p[{i}];" for i, name in enumerate(names)]

    def buffer(node: Node) -> str:
        if node in plan:
            return f"slot{plan[node][0]}"
        return f"out_{node.name}" if node in graph.outputs else node.name

    for kernel in kernels:
        arguments = [buffer(n) for n in [*kernel.reads, kernel.output]]
        lines.append(f"  k_{kernel.output.name}({', '.join(arguments)});")
    return "\n".join([*lines, "}", ""])


def load(source: str, compiler: str) -> Any:
    folder = Path(tempfile.mkdtemp())
    (folder / "program.c").write_text(source)
    flags = ["-O3", "-shared", "-fPIC"]
    command = [compiler, *flags, "program.c", "-o", "program.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "program.so"))
    shutil.rmtree(folder)
    return library.program


# ---- compiler/driver: the flat list of stages, and the guard in front of the result --------------


class Compiled:
    """A function and its compiled versions, one for each set of input shapes it has met."""

    def __init__(self, fn: Callable[..., list[Tensor]], show: bool) -> None:
        self.fn, self.show = fn, show
        self.entries: dict[Any, tuple[Any, list[tuple[int, ...]]]] = {}

    def __call__(self, **inputs: Tensor) -> list[Tensor]:
        # The guard: what was assumed while compiling must hold for this call.
        guard = tuple((name, t.shape, t.strides) for name, t in inputs.items())
        if guard not in self.entries:
            self.entries[guard] = self.compile(inputs)
        program, shapes = self.entries[guard]
        outputs = [Tensor.empty(shape) for shape in shapes]
        tensors = [*inputs.values(), *outputs]
        pointers = [t.storage.data.ctypes.data for t in tensors if t.storage is not None]
        program((ctypes.c_void_p * len(pointers))(*pointers))
        return outputs

    def compile(self, inputs: dict[str, Tensor]) -> tuple[Any, list[tuple[int, ...]]]:
        graph = trace(self.fn, inputs)
        self.report("the traced program, forward and backward", str(graph))
        for one in PASSES:
            before = len(graph.nodes)
            one(graph)
            self.report(f"after {one.__name__}: {before} -> {len(graph.nodes)} nodes")
        kernels = lower(graph)
        plan = plan_memory(graph, kernels)
        slots = len({slot for slot, _ in plan.values()})
        self.report(f"{len(graph.nodes)} nodes are {len(kernels)} kernels")
        self.report(f"{len(plan)} intermediate values share {slots} buffers")
        source = generate(graph, kernels, plan)
        self.report("the C program", source)
        return load(source, find_compiler() or "cc"), [n.shape for n in graph.outputs]

    def report(self, title: str, text: str = "") -> None:
        if self.show:
            print(f"\n## {title}" + (f"\n{text}" if text else ""))


def find_compiler() -> str | None:
    return next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)


# ---- the job: a small network learns to tell two half moons apart --------------------------------


def two_moons(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points (count, 2) of two interleaved half circles with noise, and labels (count, 1)."""
    rng = np.random.default_rng(seed)
    label = np.arange(count) % 2
    angle = rng.uniform(0, np.pi, count)
    x = np.where(label, 1 - np.cos(angle), np.cos(angle))
    y = np.where(label, 0.5 - np.sin(angle), np.sin(angle))
    points = np.stack([x, y], 1) + rng.normal(0, 0.1, (count, 2))
    return Tensor.of(points), Tensor.of(label[:, None])


def network(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, w3: Tensor, b3: Tensor
) -> Tensor:
    h = relu(x @ w1 + b1)
    return tanh(h @ w2 + b2) @ w3 + b3


def train_step(x: Tensor, y: Tensor, **parameters: Tensor) -> list[Tensor]:
    """One step of gradient descent: the loss, and the new parameters."""
    logits = network(x, **parameters)
    # Logistic loss, -log p(y): log(1 + e^z) - y z, averaged.
    loss = (log(1.0 + exp(logits)) - y * logits).sum() * (1.0 / x.shape[0])
    with active(*[layer for layer in LAYERS if not isinstance(layer, Recording)]):
        grads = gradients(loss, list(parameters.values()))
        return [loss, *[p - 0.3 * g for p, g in zip(parameters.values(), grads, strict=True)]]


def initial_parameters(seed: int, width: int = 32) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    sizes = {"w1": (2, width), "w2": (width, width), "w3": (width, 1)}
    out = {}
    for name, shape in sizes.items():
        out[name] = Tensor.of(rng.normal(0, shape[0] ** -0.5, shape))
        out["b" + name[1]] = Tensor.of(np.zeros((1, shape[1])))
    return out


def train(
    step_fn: Callable[..., list[Tensor]], steps: int
) -> tuple[list[float], dict[str, Tensor], float]:
    """Losses, parameters at the end, and milliseconds a step (the first not counted)."""
    x, y = two_moons(256, seed=0)
    parameters = initial_parameters(seed=1)
    losses, start = [], 0.0
    for i in range(steps):
        if i == 1:
            start = time.perf_counter()
        for p in parameters.values():
            p.requires_grad = True
        loss, *new = step_fn(x=x, y=y, **parameters)
        losses.append(float(loss.numpy().sum()))
        parameters = dict(zip(parameters, new, strict=True))
    return losses, parameters, (time.perf_counter() - start) / max(steps - 1, 1) * 1e3


def main() -> None:
    def eager_step(**inputs: Tensor) -> list[Tensor]:
        with active(Recording()):
            return train_step(**inputs)

    eager_losses, _, eager_ms = train(eager_step, steps=50)
    print(
        f"## eager: loss {eager_losses[0]:.4f} -> {eager_losses[-1]:.4f}, {eager_ms:.2f} ms a step"
    )
    if find_compiler() is None:
        print("no C compiler here: the rest is left out")
        return
    losses, parameters, ms = train(Compiled(train_step, show=True), steps=1500)
    print(f"\n## compiled: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {ms:.2f} ms a step")
    worst = max(abs(a - b) for a, b in zip(eager_losses, losses, strict=False))
    print(
        f"## the first {len(eager_losses)} losses differ from the eager ones by {worst:.1e} at most"
    )
    x, y = two_moons(1000, seed=2)
    right = (network(x, **parameters).numpy() > 0) == (y.numpy() > 0.5)
    print(f"## accuracy on new points: {right.mean():.3f}")


if __name__ == "__main__":
    main()
