"""How a case travels between the two processes: JSON trees and raw buffers in one zip file.

Nothing here imports a runtime: `rt` is the module under test (`torch` or `flambeau`), handed in.
Inputs keep storage bytes, strides, offsets, shared storages and shared objects. Outputs keep
values (C order), dtype, strides, `requires_grad`, and which input they alias.
bfloat16 values travel as the upper 16 bits of float32.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Node = Any  # a JSON value

NUMPY_NAME = {
    "bool": "bool", "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32",
    "int64": "int64", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
    "float16": "float16", "float32": "float32", "float64": "float64",
    "complex32": "complex64",
    "complex64": "complex64", "complex128": "complex128", "bfloat16": "uint16",
}  # fmt: skip
WIDER = {
    "float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128",
}  # fmt: skip
DIFFERENTIABLE = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


# What shapes a recording. Another digest of these: another recording.
SOURCES = ("wire.py", "checks.py", "entries.py", "record.py", "more_samples.py", "truths.py",
           "programs.py", "programs_autograd.py", "programs_random.py",
           "programs_tensor.py")  # fmt: skip


def digest() -> str:
    """Of the sources that determine what is recorded."""
    whole = hashlib.blake2b(digest_size=6)
    for name in SOURCES:
        whole.update(Path(__file__).with_name(name).read_bytes())
    return whole.hexdigest()


class Unencodable(TypeError):
    """A Python value that has no form on the wire; the sample is dropped and listed."""


def dtype_name(dtype: object) -> str:
    """`torch.float32` → `"float32"`, for the dtypes of either runtime."""
    return str(dtype).rsplit(".", 1)[-1]


def to_array(raw: bytes | bytearray | memoryview, name: str) -> np.ndarray:
    """Typed view of `raw`; bfloat16 is widened to float32 (a copy)."""
    flat = np.frombuffer(raw, dtype=NUMPY_NAME[name])
    if name == "bfloat16":
        return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return flat


def widen(raw: bytes, name: str) -> bytes:
    """The same numbers in the 64-bit type of the family (`WIDER`)."""
    return to_array(raw, name).astype(NUMPY_NAME[WIDER[name]]).tobytes()


@dataclass
class Pack:
    """Buffers of one file, each distinct content stored once."""

    buffers: list[bytes] = field(default_factory=list)
    index: dict[bytes, int] = field(default_factory=dict)

    def add(self, raw: bytes) -> int:
        """Index of `raw` among the buffers."""
        key = hashlib.blake2b(raw, digest_size=16).digest()
        if key not in self.index:
            self.index[key] = len(self.buffers)
            self.buffers.append(raw)
        return self.index[key]


def write_file(path: Path, document: Node, pack: Pack) -> None:
    """Write atomically (a temporary name, then rename), so that a recording can be resumed."""
    table, offset = [], 0
    for raw in pack.buffers:
        table.append([offset, len(raw)])
        offset += len(raw)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("case.json", json.dumps({"table": table, "document": document}))
        archive.writestr("data.bin", b"".join(pack.buffers))
    temporary.replace(path)


def read_file(path: Path) -> tuple[Node, list[bytes]]:
    """`(document, buffers)` as given to `write_file`."""
    with zipfile.ZipFile(path) as archive:
        head = json.loads(archive.read("case.json"))
        blob = archive.read("data.bin")
    return head["document"], [blob[start : start + size] for start, size in head["table"]]


# -- plain values ---------------------------------------------------------------------------------


def encode_plain(rt: ModuleType, value: Any) -> Node:
    """Everything that is neither a tensor nor a container; raises `Unencodable`."""
    if isinstance(value, np.generic):  # first: np.float64 is a float
        return {"k": "npscalar", "t": type(value).__name__, "v": encode_plain(rt, value.item())}
    if isinstance(value, str):
        return value.replace(f"{rt.__name__}.", "torch.")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, complex):
        return {"k": "complex", "v": [value.real, value.imag]}
    if isinstance(value, rt.dtype):
        return {"k": "dtype", "v": dtype_name(value)}
    if isinstance(value, rt.device):
        return {"k": "device", "v": str(value)}
    if isinstance(value, rt.layout):
        return {"k": "layout", "v": str(value).rsplit(".", 1)[-1]}
    if isinstance(value, rt.memory_format):
        return {"k": "memory_format", "v": str(value).rsplit(".", 1)[-1]}
    if value is Ellipsis or value is NotImplemented:
        return {"k": "ellipsis" if value is Ellipsis else "notimplemented"}
    if isinstance(value, slice):
        parts = [encode_plain(rt, part) for part in (value.start, value.stop, value.step)]
        return {"k": "slice", "v": parts}
    if isinstance(value, type) and value in (bool, int, float, complex):
        return {"k": "type", "v": value.__name__}
    raise Unencodable(f"cannot record a {type(value).__module__}.{type(value).__qualname__}")


def decode_plain(rt: ModuleType, node: dict[str, Any]) -> Any:
    """Inverse of `encode_plain` for the nodes that are dictionaries."""
    kind, value = node["k"], node.get("v")
    if kind == "complex":
        return complex(*value)
    if kind in ("dtype", "layout", "memory_format"):
        return getattr(rt, value)
    if kind == "device":
        return rt.device(value)
    if kind in ("ellipsis", "notimplemented"):
        return Ellipsis if kind == "ellipsis" else NotImplemented
    if kind == "slice":
        return slice(*[decode_plain(rt, p) if isinstance(p, dict) else p for p in value])
    if kind == "type":
        return {"bool": bool, "int": int, "float": float, "complex": complex}[value]
    if kind == "npscalar":
        return getattr(np, node["t"])(decode_plain(rt, value) if isinstance(value, dict) else value)
    raise Unencodable(kind)


# -- inputs: geometry preserved -------------------------------------------------------------------


@dataclass
class InputWriter:
    """Encodes one call's arguments (recording side: `rt` is torch)."""

    rt: ModuleType
    pack: Pack
    storages: list[tuple[Any, int]] = field(default_factory=list)  # (storage, buffer)
    tensors: list[Any] = field(default_factory=list)

    def tree(self, value: Any) -> Node:
        """JSON tree of `value`; tensors become geometry plus a storage number."""
        if isinstance(value, self.rt.Tensor):
            return self.tensor(value)
        if isinstance(value, self.rt.Size):
            return {"k": "size", "v": list(value)}
        if isinstance(value, tuple):
            return {"k": "tuple", "v": [self.tree(item) for item in value]}
        if isinstance(value, list):
            return [self.tree(item) for item in value]
        if isinstance(value, dict):
            return {"k": "dict", "v": [[key, self.tree(item)] for key, item in value.items()]}
        if isinstance(value, np.ndarray):
            flat = np.ascontiguousarray(value)
            return {"k": "ndarray", "b": self.pack.add(flat.tobytes()), "dt": str(value.dtype),
                    "sz": list(value.shape)}  # fmt: skip
        return encode_plain(self.rt, value)

    def tensor(self, value: Any) -> Node:
        """Geometry and storage of one strided CPU tensor."""
        for number, seen in enumerate(self.tensors):
            if seen is value:
                return {"k": "ref", "i": number}
        if value.layout != self.rt.strided or value.device.type != "cpu":
            raise Unencodable(f"a {value.layout} tensor on {value.device}")
        if value.is_quantized or dtype_name(value.dtype) not in NUMPY_NAME:
            raise Unencodable(f"a {value.dtype} tensor")
        if value.is_conj() or value.is_neg():
            raise Unencodable("a tensor with a lazy conjugate or negative bit")
        self.tensors.append(value)
        storage = value.untyped_storage()
        same = (
            i
            for i, (seen, _) in enumerate(self.storages)
            if storage.nbytes() and seen.data_ptr() == storage.data_ptr()
        )
        number = next(same, len(self.storages))
        if number == len(self.storages):
            self.storages.append((storage, self.pack.add(_storage_bytes(self.rt, storage))))
        return {
            "k": "tensor", "s": number, "dt": dtype_name(value.dtype), "sz": list(value.shape),
            "st": list(value.stride()), "o": value.storage_offset(), "rg": value.requires_grad,
        }  # fmt: skip

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """The whole call."""
        arguments = [self.tree(item) for item in args]
        named = {key: self.tree(item) for key, item in kwargs.items()}
        return {"args": arguments, "kwargs": named, "storages": [b for _, b in self.storages]}


def _storage_bytes(rt: ModuleType, storage: Any) -> bytes:
    flat = rt.empty(0, dtype=rt.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    return flat.numpy().tobytes()


@dataclass
class Inputs:
    """Fresh arguments of one call, and what is needed to see what the call did to them."""

    args: list[Any]
    kwargs: dict[str, Any]
    tensors: list[Any]
    memory: list[bytearray]  # the bytes under the storages, shared with the runtime
    before: list[bytes]
    dtypes: list[str]  # dtype first seen on each storage
    owned: bool = False
    bases: dict[tuple[int, str], Any] = field(default_factory=dict)

    def mutated(self) -> list[int]:
        """Numbers of the storages whose bytes are no longer those recorded."""
        return [i for i, now in enumerate(self.memory) if now != self.before[i]]


class InputReader:
    """Builds fresh arguments from a recorded call, any number of times."""

    def __init__(self, rt: ModuleType, call: Node, buffers: list[bytes]) -> None:
        self.rt, self.call, self.buffers = rt, call, buffers

    def load(self, *, grad: bool = True, wide: bool = False, owned: bool = False) -> Inputs:
        """`grad`: honour `requires_grad`. `wide`: every float in 64 bits, dtype arguments too.
        `owned`: storages of the runtime's own, which can be resized; writes are then not seen.
        """
        loaded = Inputs([], {}, [], [], [], [], owned)
        names = self._storage_dtypes(wide)
        for number, buffer in enumerate(self.call["storages"]):
            raw = self.buffers[buffer]
            if wide and names.get(number) in WIDER:
                raw = widen(raw, names[number])
                names[number] = WIDER[names[number]]
            loaded.before.append(raw)
            loaded.memory.append(bytearray(raw))
            loaded.dtypes.append(names.get(number, "uint8"))
        loaded.args = [self._tree(node, loaded, grad, wide) for node in self.call["args"]]
        loaded.kwargs = {
            key: self._tree(node, loaded, grad, wide) for key, node in self.call["kwargs"].items()
        }
        return loaded

    def _storage_dtypes(self, wide: bool) -> dict[int, str]:
        names: dict[int, str] = {}
        for node in walk([self.call["args"], list(self.call["kwargs"].values())]):
            if node["k"] == "tensor":
                known = names.setdefault(node["s"], node["dt"])
                if wide and known != node["dt"]:
                    raise Unencodable("one storage seen as two dtypes cannot be widened")
        return names

    def _tree(self, node: Node, loaded: Inputs, grad: bool, wide: bool) -> Any:
        if isinstance(node, list):
            return [self._tree(item, loaded, grad, wide) for item in node]
        if not isinstance(node, dict):
            return node
        kind = node["k"]
        if kind == "tensor":
            return self._tensor(node, loaded, grad, wide)
        if kind == "ref":
            return loaded.tensors[node["i"]]
        if kind == "tuple":
            return tuple(self._tree(item, loaded, grad, wide) for item in node["v"])
        if kind == "size":
            return self.rt.Size(node["v"])
        if kind == "dict":
            return {key: self._tree(item, loaded, grad, wide) for key, item in node["v"]}
        if kind == "ndarray":
            flat = np.frombuffer(self.buffers[node["b"]], dtype=node["dt"])
            return flat.reshape(node["sz"]).copy()
        if kind == "dtype" and wide:
            return getattr(self.rt, WIDER.get(node["v"], node["v"]))
        return decode_plain(self.rt, node)

    def _tensor(self, node: Node, loaded: Inputs, grad: bool, wide: bool) -> Any:
        rt, name = self.rt, node["dt"]
        if wide:
            name = WIDER.get(name, name)
        key = (node["s"], name)
        if key not in loaded.bases:
            memory = loaded.memory[node["s"]]
            count = len(memory) // np.dtype(NUMPY_NAME[name]).itemsize
            base = over_memory(rt, memory, name, count)
            loaded.bases[key] = base.clone() if loaded.owned else base
        value = loaded.bases[key].as_strided(node["sz"], node["st"], node["o"])
        if grad and node["rg"]:
            value.requires_grad_()
        loaded.tensors.append(value)
        return value


def over_memory(rt: ModuleType, memory: bytearray, name: str, count: int) -> Any:
    """A 1-D tensor of `count` elements on the bytes of `memory` themselves."""
    dtype = getattr(rt, name)
    if not count:
        return rt.empty(0, dtype=dtype)
    if hasattr(rt, "frombuffer"):
        return rt.frombuffer(memory, dtype=dtype, count=count)
    flat = rt.from_numpy(np.frombuffer(memory, dtype=NUMPY_NAME[name], count=count))
    return flat.view(dtype) if name == "bfloat16" else flat


def walk(node: Node) -> Any:
    """Every dictionary node of a tree, depth first."""
    if isinstance(node, dict):
        yield node
        if isinstance(node.get("v"), (list, dict)):
            yield from walk(node["v"])
    elif isinstance(node, list):
        for item in node:
            yield from walk(item)


# -- outputs: values ------------------------------------------------------------------------------


def tensor_bytes(rt: ModuleType, value: Any) -> bytes:
    """Values in C order; bfloat16 as 16-bit words, complex32 widened."""
    value = value.detach()
    if value.dtype.is_complex and value.is_conj():
        value = value.resolve_conj()
    if getattr(value, "is_neg", None) and value.is_neg():
        value = value.resolve_neg()
    if value.dtype == rt.bfloat16:
        words = np.ascontiguousarray(value.to(rt.float32).numpy()).view(np.uint32)
        return (words >> np.uint32(16)).astype(np.uint16).tobytes()
    if value.dtype == rt.complex32:
        value = value.to(rt.complex64)
    return np.ascontiguousarray(value.numpy()).tobytes()


def encode_output(rt: ModuleType, value: Any, pack: Pack, inputs: list[Any]) -> Node:
    """Tree of a call's result; `inputs` are the call's tensors, to name what is aliased."""
    if isinstance(value, rt.Tensor):
        return _encode_tensor_output(rt, value, pack, inputs)
    if isinstance(value, rt.Size):
        return {"k": "size", "v": list(value)}
    if isinstance(value, tuple):
        items = [encode_output(rt, item, pack, inputs) for item in value]
        names = list(getattr(type(value), "__match_args__", ()))
        return {"k": "named" if names else "tuple", "f": names, "v": items}
    if isinstance(value, list):
        return [encode_output(rt, item, pack, inputs) for item in value]
    if isinstance(value, dict):
        pairs = [[key, encode_output(rt, item, pack, inputs)] for key, item in value.items()]
        return {"k": "dict", "v": pairs}
    return encode_plain(rt, value)


def _encode_tensor_output(rt: ModuleType, value: Any, pack: Pack, inputs: list[Any]) -> Node:
    if getattr(value, "_is_zerotensor", None) and value._is_zerotensor():
        value = value.clone()  # zeros without memory, as torch's gradients may be
    node = {
        "k": "out", "b": pack.add(tensor_bytes(rt, value)), "dt": dtype_name(value.dtype),
        "sz": list(value.shape), "st": list(value.stride()), "rg": bool(value.requires_grad),
    }  # fmt: skip
    for number, given in enumerate(inputs):
        if given is value:
            return node | {"is": number}
    address = value.untyped_storage().data_ptr()
    for number, given in enumerate(inputs):
        if address and given.untyped_storage().data_ptr() == address:
            return node | {"al": number, "o": value.storage_offset()}
    return node
