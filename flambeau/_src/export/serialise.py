"""Exported programs on disk: a zip archive of `program.json` and the bytes of every storage.

The JSON has the nodes in order (arguments as nested lists; values that JSON lacks as one-key
objects), the signature, the structures of arguments and result, and where each tensor lies.
"""

from __future__ import annotations

import json
import math
import operator
import zipfile
from collections.abc import Mapping
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout
from flambeau._src.core.slots import slot
from flambeau._src.core.symint import SymBool, SymFloat, SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.export.expressions import dumped, environment, loaded, symbols
from flambeau._src.export.program import ExportedProgram
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
from flambeau._src.interp.fake import FakeTensorMode
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.integers import Expr, Range
from flambeau._src.ir.node import Node
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import SymNode, expression_of, sym_int
from flambeau._src.ops.buffers import frombuffer
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import packet
from flambeau._src.ops.overload import OpOverload, overload_of
from flambeau._src.util import pytree, pytree_text

__all__ = ["load", "save"]

_FORMAT = 2
_NUMBERS = (SymInt, SymFloat, SymBool)
#: Functions of Python that graphs call, mostly on sizes.
_FUNCTIONS: dict[str, Any] = {
    **{f.__name__: f for f in (
        operator.getitem, operator.add, operator.sub, operator.mul, operator.truediv,
        operator.floordiv, operator.mod, operator.pow, operator.neg, operator.eq, operator.ne,
        operator.lt, operator.le, operator.gt, operator.ge, operator.not_, operator.and_,
        operator.or_, operator.xor, operator.lshift, operator.rshift, min, max, abs, float, int,
    )},
    **{f"math.{name}": f for name, f in vars(math).items() if callable(f) and name[0] != "_"},
}  # fmt: skip
_NAMED = ("layout", "memory_format")


class _Writer:
    def __init__(self) -> None:
        self.storages: dict[int, int] = {}
        self.cells: list[Any] = []

    def tensor(self, t: Tensor) -> dict[str, Any]:
        """Geometry, and the number of the storage."""
        cell = t.untyped_storage()
        number = self.storages.setdefault(id(cell), len(self.cells))
        if number == len(self.cells):
            self.cells.append(cell)
        parameter = type(t).__name__ == "Parameter"
        return {**_geometry(t), "storage": number, "parameter": parameter}

    def value(self, v: Any) -> Any:
        """A node's argument. TypeError for what a file cannot hold."""
        if isinstance(v, Node):
            return {"node": v.name}
        if v is None or isinstance(v, (bool, int, str)):
            return v
        if isinstance(v, float):
            return {"float": v.hex()}
        if isinstance(v, complex):
            return {"complex": [v.real.hex(), v.imag.hex()]}
        if isinstance(v, tuple):
            return {"tuple": [self.value(x) for x in v]}
        if isinstance(v, list):
            return [self.value(x) for x in v]
        if isinstance(v, slice):
            return {"slice": [self.value(x) for x in (v.start, v.stop, v.step)]}
        if isinstance(v, dt.dtype):
            return {"dtype": v.name}
        if isinstance(v, _native.device):
            return {"device": str(v)}
        kind = type(v).__name__
        if kind in _NAMED:
            return {kind: str(v).rpartition(".")[2]}
        raise TypeError(f"an exported program cannot be saved with {v!r} in it")

    def node(self, node: Node) -> dict[str, Any]:
        """One node."""
        out: dict[str, Any] = {"op": node.op, "name": node.name, "target": _target(node)}
        out["args"] = [self.value(v) for v in node.args]
        out["kwargs"] = {k: self.value(v) for k, v in node.kwargs.items()}
        val = node.meta.get("val")
        if isinstance(val, Tensor):
            out["val"] = _geometry(val)
        elif isinstance(val, _NUMBERS):
            out["number"] = [val.node.kind, dumped(val.node.expr)]
        elif node.op == "placeholder":
            out["constant"] = self.value(val)
        if "stack_trace" in node.meta:
            out["stack_trace"] = node.meta["stack_trace"]
        return out


def _geometry(t: Tensor) -> dict[str, Any]:
    def sizes(values: Any) -> list[Any]:
        return [dumped(expression_of(n)) for n in values]

    return {
        "shape": sizes(t.shape), "stride": sizes(t.stride()),
        "offset": dumped(expression_of(t.storage_offset())),
        "dtype": t.dtype.name, "requires_grad": t.requires_grad,
    }  # fmt: skip


def _target(node: Node) -> str:
    if isinstance(node.target, OpOverload):
        op = node.target._op
        return f"{op.namespace}::{op.name}.{op.overload}"
    if node.target in _FUNCTIONS.values():
        return next(name for name, f in _FUNCTIONS.items() if f is node.target)
    if isinstance(node.target, str):
        return node.target
    raise TypeError(f"an exported program cannot be saved with calls of {node.target!r}")


def _spec(s: Any) -> dict[str, Any]:
    arg = s.arg
    out = {"kind": s.kind.name, "name": arg.name, "target": s.target}
    if isinstance(arg, ConstantArgument):
        value = arg.value
        out["value"] = {"float": value.hex()} if isinstance(value, float) else value
    if isinstance(arg, SymIntArgument):
        out["symbolic"] = True
    if isinstance(s, InputSpec):
        out["persistent"] = s.persistent
    return out


def save(
    ep: ExportedProgram, f: Any, *, extra_files: Mapping[str, Any] | None = None, **_: Any
) -> None:
    """Write a program to a path or a binary file.

    Args:
        extra_files: further texts, by name. TypeError for a program that a file cannot hold.
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            "The 'ep' parameter must be an instance of 'ExportedProgram', got "
            f"'{type(ep).__name__}' instead."
        )
    writer = _Writer()
    own = ep.module_call_graph[0].signature
    assert own is not None
    args = ep.example_inputs
    leaves = pytree.tree_leaves(args)
    document = {
        "format": _FORMAT,
        "dialect": ep.dialect,
        "nodes": [writer.node(n) for n in ep.graph.nodes],
        "inputs": [_spec(s) for s in ep.graph_signature.input_specs],
        "outputs": [_spec(s) for s in ep.graph_signature.output_specs],
        "state": {k: writer.tensor(v) for k, v in ep.state_dict.items()},
        "constants": {k: writer.tensor(v) for k, v in ep.constants.items()},
        "in_spec": pytree_text.treespec_dumps(own.in_spec),
        "out_spec": pytree_text.treespec_dumps(own.out_spec),
        "symbols": symbols(env) if (env := _environment(ep)) is not None else [],
        "ranges": [[dumped(e), r.lo, r.hi] for e, r in ep.range_constraints.items()],
        "guards": [dumped(c) for c in ep._guards],
        "names": own.forward_arg_names,
        "modules": [e.fqn for e in ep.module_call_graph[1:]],
        "examples": [
            {"tensor": writer.tensor(v)} if isinstance(v, Tensor) else writer.value(v)
            for v in leaves
        ],
    }
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("program.json", json.dumps(document))
        for i, cell in enumerate(writer.cells):
            flat = aten.empty((0,), dtype=dt.uint8)
            flat._set(cell, 0, (cell.nbytes(),), (1,), dt.uint8)
            archive.writestr(f"storages/{i}", flat.numpy().tobytes())
        for name, text in (extra_files or {}).items():
            archive.writestr(f"extra/{name}", text)


def _environment(ep: ExportedProgram) -> ShapeEnv | None:
    for node in ep.graph.nodes:
        val: Any = node.meta.get("val")
        for n in val.shape if isinstance(val, Tensor) else (val,):
            if isinstance(n, _NUMBERS):
                env: ShapeEnv = n.node.env
                return env
    return None


def _cell(data: bytearray) -> Any:
    if not data:
        return aten.empty((0,), dtype=dt.uint8).untyped_storage()
    return frombuffer(data, dtype=dt.uint8).untyped_storage()


class _Reader:
    def __init__(self, archive: zipfile.ZipFile, env: ShapeEnv) -> None:
        self.archive, self.env = archive, env
        self.cells: dict[int, Any] = {}
        self.fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=env, static_shapes=True)

    def tensor(self, d: dict[str, Any]) -> Any:
        """A tensor; those of one storage share it."""
        number = d["storage"]
        if number not in self.cells:
            data = bytearray(self.archive.read(f"storages/{number}"))
            self.cells[number] = _cell(data)
        t = aten.empty((0,), dtype=dt.DTYPES[d["dtype"]])
        t._set(self.cells[number], d["offset"], tuple(d["shape"]), tuple(d["stride"]), t.dtype)
        if d["parameter"]:
            return slot("parameter")(t, d["requires_grad"])
        t.requires_grad = d["requires_grad"]
        return t

    def val(self, d: dict[str, Any]) -> Any:
        """A fake tensor."""
        shape, stride = self._sizes(d["shape"]), self._sizes(d["stride"])
        with self.fake:
            made = aten.empty_strided(shape, stride, dtype=dt.DTYPES[d["dtype"]])
        made.requires_grad = d["requires_grad"]
        return made

    def _sizes(self, described: list[Any]) -> tuple[Any, ...]:
        values = map(loaded, described)
        return tuple(sym_int(self.env, v) if isinstance(v, Expr) else v for v in values)

    def number(self, kind: str, described: Any) -> Any:
        """A symbolic number."""
        node = SymNode(self.env, kind, loaded(described))
        return {"int": SymInt, "float": SymFloat, "bool": SymBool}[kind](node)

    def value(self, v: Any, nodes: Mapping[str, Node]) -> Any:
        """A node's argument."""
        if isinstance(v, list):
            return [self.value(x, nodes) for x in v]
        if not isinstance(v, dict):
            return v
        ((kind, x),) = v.items()
        if kind == "node":
            return nodes[x]
        if kind == "float":
            return float.fromhex(x)
        if kind == "complex":
            return complex(float.fromhex(x[0]), float.fromhex(x[1]))
        if kind == "tuple":
            return tuple(self.value(y, nodes) for y in x)
        if kind == "slice":
            return slice(*[self.value(y, nodes) for y in x])
        if kind == "dtype":
            return dt.DTYPES[x]
        if kind == "device":
            return _native.device(x)
        return getattr(layout, x)

    def graph(self, described: list[dict[str, Any]]) -> Graph:
        """The nodes."""
        graph = Graph()
        nodes: dict[str, Node] = {}
        for d in described:
            args = tuple(self.value(v, nodes) for v in d["args"])
            kwargs = {k: self.value(v, nodes) for k, v in d["kwargs"].items()}
            target: Any = d["target"]
            if d["op"] == "call_function":
                target = _FUNCTIONS.get(target) or _overload(target)
            node = graph.create_node(d["op"], target, args, kwargs, d["name"])
            nodes[d["name"]] = node
            if "val" in d:
                node.meta["val"] = self.val(d["val"])
            elif "number" in d:
                node.meta["val"] = self.number(*d["number"])
            elif d["op"] == "placeholder":
                node.meta["val"] = self.value(d["constant"], nodes)
            if "stack_trace" in d:
                node.meta["stack_trace"] = d["stack_trace"]
        return graph


def _overload(text: str) -> Any:
    _, _, rest = text.partition("::")
    name, _, overload = rest.rpartition(".")
    found = packet(name).overload(overload or "default")
    if found is None:
        raise RuntimeError(f"the program calls {text}, which is not known")
    return overload_of(found)


def _read_spec(d: dict[str, Any], reader: _Reader, kinds: Any) -> tuple[Any, Any, str | None]:
    arg: Any = SymIntArgument(d["name"]) if d.get("symbolic") else TensorArgument(d["name"])
    if "value" in d:
        arg = ConstantArgument(d["name"], reader.value(d["value"], {}))
    return kinds[d["kind"]], arg, d["target"]


def load(f: Any, *, extra_files: dict[str, Any] | None = None, **_: Any) -> ExportedProgram:
    """A program from a path or a binary file.

    `extra_files` is filled for the names that it has. RuntimeError for another format.
    """
    with zipfile.ZipFile(f) as archive:
        document = json.loads(archive.read("program.json"))
        if document["format"] != _FORMAT:
            raise RuntimeError(f"an exported program of format {document['format']}, not {_FORMAT}")
        reader = _Reader(archive, environment(document["symbols"]))
        signature = ExportGraphSignature(
            [
                InputSpec(*_read_spec(d, reader, InputKind), d["persistent"])
                for d in document["inputs"]
            ],
            [OutputSpec(*_read_spec(d, reader, OutputKind)) for d in document["outputs"]],
        )
        in_spec = pytree_text.treespec_loads(document["in_spec"])
        out_spec = pytree_text.treespec_loads(document["out_spec"])
        own = ModuleCallSignature([], [], in_spec, out_spec, document["names"])
        examples = [
            reader.tensor(v["tensor"]) if isinstance(v, dict) and "tensor" in v
            else reader.value(v, {})
            for v in document["examples"]
        ]  # fmt: skip
        for name in extra_files or {}:
            extra_files[name] = archive.read(f"extra/{name}").decode()  # type: ignore[index]
        return ExportedProgram(
            {}, reader.graph(document["nodes"]), signature,
            {k: reader.tensor(d) for k, d in document["state"].items()},
            {loaded(e): Range(lo, hi) for e, lo, hi in document["ranges"]},
            [ModuleCallEntry("", own), *[ModuleCallEntry(n) for n in document["modules"]]],
            pytree.tree_unflatten(examples, in_spec),
            {k: reader.tensor(d) for k, d in document["constants"].items()},
            dialect=document["dialect"], guards=[loaded(c) for c in document["guards"]],
        )  # fmt: skip
