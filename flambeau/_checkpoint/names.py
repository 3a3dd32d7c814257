"""Names in checkpoints are always torch's: ``torch._utils _rebuild_tensor_v2``.

On writing, the pickle is made by the standard library in C, with whatever module names our objects
have, and then the names of globals in it are replaced. On reading, a name is looked up here.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import re
import struct
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import flambeau as torch

#: Names whose home in torch differs from where they are here: torch's -> ours.
_MOVED = {("torch._tensor", "_rebuild_from_type_v2"): ("_utils", "_rebuild_from_type_v2")}
_MOVED_BACK = {here: there for there, here in _MOVED.items()}

#: The storages that are at home in torch.storage; FloatStorage and the like are in torch.
_IN_STORAGE = ("UntypedStorage", "TypedStorage")


def _ours(module: str) -> bool:
    """Whether a module is this library's: it is "torch" where it runs under the alias."""
    top = module.partition(".")[0]
    return top == "flambeau" or (top == "torch" and sys.modules.get("torch") is torch)


def torch_name(module: str, name: str) -> tuple[str, str]:
    """The name by which torch knows one of our globals; all others stay."""
    if not _ours(module):
        return module, name
    rest = module.partition(".")[2]
    if (rest, name) in _MOVED_BACK:
        return _MOVED_BACK[rest, name]
    if name in _IN_STORAGE:
        return "torch.storage", name
    legacy_storage = rest == "storage" and name.endswith("Storage")
    if rest.startswith("_src.") and not hasattr(torch, name.partition(".")[0]):
        return module, name  # torch has nothing like it: the engine's own
    if not rest or legacy_storage or rest.startswith("_src."):
        return "torch", name
    return f"torch.{rest}", name


def find_global(module: str, name: str) -> Any:
    """Our object of a name of torch's.

    Raises:
        AttributeError, ModuleNotFoundError: as an import would.
    """
    rest = module.partition(".")[2]
    if module == "torch.tensor":
        rest = "_tensor"
    if (module, name) in _MOVED:
        rest, name = _MOVED[module, name]
    found: Any = importlib.import_module(f"flambeau.{rest}") if rest else torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


def is_torch(module: str) -> bool:
    """Whether a module name in a checkpoint means this library."""
    return module.partition(".")[0] in ("torch", "flambeau")


def dump(
    obj: Any, file: Any, module: Any, protocol: int, persistent_id: Callable[[Any], Any]
) -> None:
    """Pickle `obj` with torch's names.

    Args:
        module: the pickle module to use. Of others than the standard one only protocols up to 3
            can be translated.
    """
    base = module.Pickler
    if module is pickle and protocol >= 4:
        base = _NamingPickler
    # On the class: the pickler in C does not look for it elsewhere.
    own = type("Pickler", (base,), {"persistent_id": staticmethod(persistent_id)})
    if protocol >= 4:
        own(file, protocol=protocol).dump(obj)
        return
    pickled = _Bytes()
    own(pickled, protocol=protocol).dump(obj)
    file.write(with_torch_names(b"".join(pickled.parts)))


class _Bytes:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self.parts.append(bytes(data))
        return len(data)


class _NamingPickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """Writes torch's names itself: from protocol 4 on names are ordinary strings of the stream."""

    dispatch = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write a reference to a function, class or named object."""
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        module = pickle.whichmodule(obj, name)  # type: ignore[attr-defined]
        new_module, new_name = torch_name(module, name)
        if (new_module, new_name) == (module, name):
            super().save_global(obj, name)
            return
        self.save(new_module)
        self.save(new_name)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)

    dispatch[FunctionType] = save_global


class _Opcodes:
    """What follows each opcode: a run of those of fixed size can be skipped as one."""

    def __init__(self) -> None:
        import pickletools  # lazy: only writing needs it

        fixed: dict[int, list[int]] = {}
        self.counted: dict[int, str] = {}
        self.lines: set[int] = set()
        forms = {
            pickletools.TAKEN_FROM_ARGUMENT1: "<B",
            pickletools.TAKEN_FROM_ARGUMENT4: "<i",
            pickletools.TAKEN_FROM_ARGUMENT4U: "<I",
            pickletools.TAKEN_FROM_ARGUMENT8U: "<Q",
        }
        for op in pickletools.opcodes:
            code = ord(op.code)
            if op.name in ("GLOBAL", "INST"):
                continue
            if op.arg is None or op.arg.n >= 0:
                fixed.setdefault(0 if op.arg is None else op.arg.n, []).append(code)
            elif op.arg.n == pickletools.UP_TO_NEWLINE:
                self.lines.add(code)
            else:
                self.counted[code] = forms[op.arg.n]
        parts = [
            b"[" + b"".join(re.escape(bytes([c])) for c in codes) + b"]" + b"." * size
            for size, codes in sorted(fixed.items())
        ]
        self.run = re.compile(b"(?:" + b"|".join(parts) + b")+", re.DOTALL)


_opcodes = functools.cache(_Opcodes)


def with_torch_names(data: bytes) -> bytes:
    """A pickle of protocol 0 to 3 with the names of our globals replaced by torch's.

    Strings that merely look like names stay as they are: the opcodes are walked through.
    """
    if b"flambeau" not in data and sys.modules.get("torch") is not torch:
        return data
    out, at = [], 0
    for start, stop, new in _replacements(data):
        out += [data[at:start], new]
        at = stop
    return b"".join([*out, data[at:]])


def _replacements(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """What is to be replaced: (start, stop, new bytes), in order."""
    ops = _opcodes()
    at, end = 0, len(data)
    while at < end:
        run = ops.run.match(data, at)
        if run is not None:
            at = run.end()
            continue
        code = data[at]
        if code in b"ci":
            middle = data.index(b"\n", at + 1)
            stop = data.index(b"\n", middle + 1)
            old = data[at + 1 : middle].decode(), data[middle + 1 : stop].decode()
            new = torch_name(*old)
            if new != old:
                yield at + 1, stop, "\n".join(new).encode()
            at = stop + 1
        elif code in ops.counted:
            form = ops.counted[code]
            at += 1 + struct.calcsize(form) + struct.unpack_from(form, data, at + 1)[0]
        elif code in ops.lines:
            at = data.index(b"\n", at) + 1
        else:
            raise pickle.PicklingError(f"unknown pickle opcode {code:#x} at {at}")
