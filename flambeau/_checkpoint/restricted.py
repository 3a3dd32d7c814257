"""An unpickler that runs no code of the file's choosing: the one behind ``weights_only=True``.

It understands the opcodes that state dicts need. Globals are not imported: they come from a list of
known names, to which a program may add. Objects are made, called and filled only if they are on it.
"""

from __future__ import annotations

import functools
import io
import struct
import warnings
from _codecs import encode
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError, decode_long
from typing import Any

import flambeau as torch

from . import names

UNSAFE_MESSAGE = (
    "In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` "
    "from `False` to `True`. Re-running `torch.load` with `weights_only` set to `False` will "
    "likely succeed, but it can result in arbitrary code execution. Do it only if you got the "
    "file from a trusted source."
)

#: Modules of which nothing can be allowed.
BLOCKED = ("sys", "os", "posix", "nt")

_IMPORT_LATER = {
    "torch.nested._internal.nested_tensor.NestedTensor": "``torch.nested`` and ``torch._dynamo`` "
    "must be imported to load nested jagged tensors (NJTs)",
    "torch.nested._internal.nested_tensor._rebuild_njt": "``torch.nested`` and ``torch._dynamo`` "
    "must be imported to load nested jagged tensors (NJTs)",
    "torch._dynamo.decorators._DimRange": "``torch.nested`` and ``torch._dynamo`` must be imported "
    "to load nested jagged tensors (NJTs)",
}
for _name in (
    "device_mesh.DeviceMesh",
    "tensor._dtensor_spec.DTensorSpec",
    "tensor._dtensor_spec.TensorMeta",
    "tensor.DTensor",
    "tensor.placement_types.Partial",
    "tensor.placement_types.Replicate",
    "tensor.placement_types.Shard",
):
    _IMPORT_LATER[f"torch.distributed.{_name}"] = (
        "``torch.distributed.tensor`` must be imported to load DTensors"
    )

# What Python 2 called things, as far as it can matter here.
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "UserDict": "collections"}


class _Allowed:
    """What the program has added to the list."""

    marked: frozenset[Any] = frozenset()


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow classes and functions, or pairs of one and the name that the file has for it."""
    _Allowed.marked |= frozenset(safe_globals)


def remove_safe_globals(safe_globals: list[Any]) -> None:
    """Take back what `add_safe_globals` allowed."""
    _Allowed.marked -= frozenset(safe_globals)


def clear_safe_globals() -> None:
    """Take back all that was allowed."""
    _Allowed.marked = frozenset()


def get_safe_globals() -> list[Any]:
    """What the program has allowed."""
    return list(_Allowed.marked)


def user_allowed() -> dict[str, Any]:
    """Name -> object, of what the program has allowed."""
    found: dict[str, Any] = {}
    for item in _Allowed.marked:
        if not isinstance(item, tuple):
            module, name = names.torch_name(item.__module__, item.__qualname__)
            found[f"{module}.{name}"] = item
            continue
        if len(item) != 2:
            raise ValueError(
                "Expected tuple of length 2 (global, str of callable full path), but got tuple of "
                f"length: {len(item)}"
            )
        if type(item[1]) is not str:
            raise TypeError(
                "Expected second item in tuple to be str of callable full path, but got: "
                f"{type(item[1])}"
            )
        found[item[1]] = item[0]
    return found


@functools.cache
def default_allowed() -> dict[str, Any]:
    """Name -> object, of what is always allowed."""
    found: dict[str, Any] = {
        "collections.OrderedDict": OrderedDict,
        "collections.Counter": Counter,
        "torch.nn.parameter.Parameter": torch.nn.Parameter,
        "torch.serialization._get_layout": torch.serialization._get_layout,
        "torch.Size": torch.Size,
        "torch.Tensor": torch.Tensor,
        "torch.device": torch.device,
        "_codecs.encode": encode,
        "builtins.bytearray": bytearray,
        "builtins.set": set,
        "builtins.complex": complex,
        "torch.storage.UntypedStorage": torch.UntypedStorage,
        "torch.storage.TypedStorage": torch.storage.TypedStorage,
        "torch._tensor._rebuild_from_type_v2": names.find_global(
            "torch._tensor", "_rebuild_from_type_v2"
        ),
    }
    for value in list(vars(torch).values()):
        if isinstance(value, torch.dtype):
            found[str(value)] = value
    for name, dtype in torch.storage._storage_type_to_dtype_map().items():
        found[f"torch.{name}"] = torch.serialization.StorageType(name)
        found[str(dtype)] = dtype
    for name in (
        "_rebuild_parameter _rebuild_parameter_with_state _rebuild_tensor _rebuild_tensor_v2 "
        "_rebuild_tensor_v3 _rebuild_sparse_tensor _rebuild_meta_tensor_no_storage "
        "_rebuild_nested_tensor _rebuild_wrapper_subclass _rebuild_qtensor "
        "_rebuild_device_tensor_from_numpy _rebuild_device_tensor_from_cpu_tensor"
    ).split():
        function = getattr(torch._utils, name, None)
        if function is not None:
            found[f"torch._utils.{name}"] = function
    for kind in "Double Float Half BFloat16 Long Int Short Char Byte Bool".split():
        tensor_class = getattr(torch, f"{kind}Tensor", None)
        if tensor_class is not None:
            found[f"torch.{kind}Tensor"] = tensor_class
    return found


@functools.cache
def _default_ids() -> frozenset[int]:
    return frozenset(map(id, default_allowed().values()))


def _is_allowed(obj: Any) -> bool:
    # By identity: comparing would run code of the objects.
    return id(obj) in _default_ids() or any(obj is one for one in user_allowed().values())


def _global_name(readline: Callable[[], bytes]) -> tuple[str, str]:
    module = readline()[:-1].decode()
    name = readline()[:-1].decode()
    module = _OLD_MODULES.get(module, module)
    if names.is_torch(module):
        return names.torch_name(module, name) if module.startswith("flambeau") else (module, name)
    return module, name


def globals_in(file: Any) -> set[str]:
    """The names of all globals in a pickle, which is not run."""
    found: set[str] = set()

    class Scanner(Unpickler):
        def _global(self) -> None:
            found.add(".".join(_global_name(self.readline)))

    scanner = Scanner(file)
    scanner.scan()
    return found


class Unpickler:
    """Reads one pickle of protocol 2 (and what is common to it and the later ones)."""

    def __init__(self, file: Any, *, encoding: str = "bytes") -> None:
        self.encoding = encoding
        self.read = file.read
        self.readline = file.readline
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The object. UnpicklingError where something in it is not allowed."""
        table = _OPCODES
        read = self.read
        while True:
            key = read(1)
            if not key:
                raise EOFError
            code = key[0]
            if code == 0x2E:  # STOP
                return self.stack.pop()
            action = table.get(code)
            if action is None:
                raise UnpicklingError(f"Unsupported operand {code}")
            try:
                action(self)
            except (IndexError, struct.error) as error:
                raise UnpicklingError(f"pickle data was damaged at operand {code}") from error

    def scan(self) -> None:
        """Read the pickle to its end and do nothing but what `_global` does."""
        while True:
            key = self.read(1)
            if not key:
                raise EOFError
            code = key[0]
            if code == 0x2E:
                return
            if code not in _OPCODES:
                raise UnpicklingError(f"Unsupported operand {code}")
            if code == 0x63:
                self._global()
            elif code in _ARGUMENT_BYTES:
                self.read(_ARGUMENT_BYTES[code])
            elif code in _ARGUMENT_COUNTS:
                form, width = _ARGUMENT_COUNTS[code]
                self.read(struct.unpack(form, self.read(width))[0])

    def persistent_load(self, pid: Any) -> Any:
        """The storage of an id; set by who knows it."""
        raise UnpicklingError("unsupported persistent id encountered")

    # What could do harm.

    def _global(self) -> None:
        module, name = _global_name(self.readline)
        path = f"{module}.{name}"
        if module in BLOCKED:
            raise UnpicklingError(
                f"Trying to load unsupported GLOBAL {path} whose module {module} is blocked."
            )
        for allowed in (default_allowed, user_allowed):
            known = allowed()
            if path in known:
                self.stack.append(known[path])
                return
        if path in _IMPORT_LATER:
            raise UnpicklingError(_IMPORT_LATER[path])
        path = path.removeprefix("builtins.")
        raise UnpicklingError(
            f"Unsupported global: GLOBAL {path} was not an allowed global by default. "
            f"Please use `torch.serialization.add_safe_globals([{path}])` or the "
            f"`torch.serialization.safe_globals([{path}])` context manager to allowlist this "
            "global if you trust this class/function."
        )

    def _newobj(self) -> None:
        args = self.stack.pop()
        cls = self.stack.pop()
        if cls is torch.nn.Parameter:
            self.stack.append(torch.nn.Parameter(*args))
        elif isinstance(cls, type) and _is_allowed(cls):
            self.stack.append(cls.__new__(cls, *args))
        else:
            raise UnpicklingError(
                "Can only create new object for nn.Parameter or classes allowlisted "
                f"via `add_safe_globals` but got {cls}"
            )

    def _reduce(self) -> None:
        args = self.stack.pop()
        function = self.stack[-1]
        if not _is_allowed(function):
            message = f"Trying to call reduce for unrecognized function {function}"
            if hasattr(function, "__self__"):
                message += f" which belongs to {function.__self__}"
            raise UnpicklingError(message)
        self.stack[-1] = function(*args)

    def _build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        kind = type(target)
        if kind is torch.Tensor:
            target.set_(*state)
        elif kind is torch.nn.Parameter:
            target.__setstate__(state)
        elif kind is OrderedDict:
            target.__dict__.update(state)
        elif _is_allowed(kind):
            if hasattr(target, "__setstate__"):
                target.__setstate__(state)
            else:
                _fill_attributes(target, state)
        else:
            raise UnpicklingError(
                "Can only build Tensor, Parameter, OrderedDict or types allowlisted "
                f"via `add_safe_globals`, but got {kind}"
            )

    def _persistent(self) -> None:
        pid = self.stack.pop()
        if type(pid) is not tuple and type(pid) is not int:
            raise UnpicklingError(f"persistent_load id must be tuple or int, but got {type(pid)}")
        if type(pid) is tuple and pid and pid[0] not in ("storage", b"storage"):
            raise UnpicklingError(
                f"Only persistent_load of storage is allowed, but got {type(pid[0])}"
            )
        self.stack.append(self.persistent_load(pid))

    # Containers.

    def _mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def _since_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def _list(self, verb: str) -> list[Any]:
        target = self.stack[-1]
        if type(target) is not list:
            raise UnpicklingError(f"Can only {verb} lists, but got {type(target)}")
        return target

    def _append(self) -> None:
        item = self.stack.pop()
        self._list("append to").append(item)

    def _appends(self) -> None:
        items = self._since_mark()
        self._list("extend").extend(items)

    def _mapping(self, opcode: str) -> Any:
        target = self.stack[-1]
        if type(target) not in (dict, OrderedDict, Counter):
            raise UnpicklingError(
                f"Can only {opcode} for dict, collections.OrderedDict, "
                f"collections.Counter, but got {type(target)}"
            )
        return target

    def _setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self._mapping("SETITEM")[key] = value

    def _setitems(self) -> None:
        items = self._since_mark()
        self._mapping("SETITEMS").update(zip(items[::2], items[1::2], strict=True))

    def _tuple(self) -> None:
        items = self._since_mark()
        self.stack.append(tuple(items))

    def _tuple_of(self, size: int) -> None:
        self.stack[-size:] = [tuple(self.stack[-size:])]

    # Plain values.

    def _push(self, make: Callable[[], Any]) -> None:
        self.stack.append(make())

    def _unpacked(self, form: str, size: int) -> None:
        self.stack.append(struct.unpack(form, self.read(size))[0])

    def _text(self) -> None:
        size = struct.unpack("<I", self.read(4))[0]
        self.stack.append(str(self.read(size), "utf-8", "surrogatepass"))

    def _old_string(self) -> None:
        data = self.read(self.read(1)[0])
        self.stack.append(data if self.encoding == "bytes" else data.decode(self.encoding))

    def _long(self) -> None:
        self.stack.append(decode_long(self.read(self.read(1)[0])))

    def _get(self, form: str, size: int) -> None:
        index = struct.unpack(form, self.read(size))[0]
        if index not in self.memo:
            raise UnpicklingError(f"Memo value not found at index {index}")
        self.stack.append(self.memo[index])

    def _put(self, form: str, size: int) -> None:
        self.memo[struct.unpack(form, self.read(size))[0]] = self.stack[-1]

    def _protocol(self) -> None:
        protocol = self.read(1)[0]
        if protocol != 2:
            warnings.warn(
                f"Detected pickle protocol {protocol} in the checkpoint, which was not the "
                "default pickle protocol used by `torch.load` (2). The weights_only Unpickler "
                "might not support all instructions implemented by this protocol, please file an "
                "issue for adding support if you encounter this.",
                stacklevel=4,
            )


def _fill_attributes(target: Any, state: Any) -> None:
    """As pickle does for objects without ``__setstate__``: a dict, or a pair of it and slots."""
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def _call(method: Callable[..., None], *args: Any) -> Callable[[Unpickler], None]:
    return lambda unpickler: method(unpickler, *args)


# By the numbers of pickletools; the letters are the opcodes.
_OPCODES: dict[int, Callable[[Unpickler], None]] = {
    ord("c"): lambda u: u._global(),
    0x81: Unpickler._newobj,
    ord("R"): Unpickler._reduce,
    ord("b"): Unpickler._build,
    ord("Q"): Unpickler._persistent,
    ord("("): Unpickler._mark,
    ord("a"): Unpickler._append,
    ord("e"): Unpickler._appends,
    ord("s"): Unpickler._setitem,
    ord("u"): Unpickler._setitems,
    ord("t"): Unpickler._tuple,
    0x85: _call(Unpickler._tuple_of, 1),
    0x86: _call(Unpickler._tuple_of, 2),
    0x87: _call(Unpickler._tuple_of, 3),
    ord("N"): _call(Unpickler._push, lambda: None),
    0x88: _call(Unpickler._push, lambda: True),
    0x89: _call(Unpickler._push, lambda: False),
    ord(")"): _call(Unpickler._push, tuple),
    ord("]"): _call(Unpickler._push, list),
    ord("}"): _call(Unpickler._push, dict),
    0x8F: _call(Unpickler._push, set),
    ord("J"): _call(Unpickler._unpacked, "<i", 4),
    ord("K"): _call(Unpickler._unpacked, "<B", 1),
    ord("M"): _call(Unpickler._unpacked, "<H", 2),
    ord("G"): _call(Unpickler._unpacked, ">d", 8),
    ord("X"): Unpickler._text,
    ord("U"): Unpickler._old_string,
    0x8A: Unpickler._long,
    ord("h"): _call(Unpickler._get, "<B", 1),
    ord("j"): _call(Unpickler._get, "<I", 4),
    ord("q"): _call(Unpickler._put, "<B", 1),
    ord("r"): _call(Unpickler._put, "<I", 4),
    0x80: Unpickler._protocol,
}
_ARGUMENT_BYTES = {
    ord("J"): 4, ord("K"): 1, ord("M"): 2, ord("G"): 8, ord("h"): 1, ord("j"): 4, ord("q"): 1,
    ord("r"): 4, 0x80: 1,
}  # fmt: skip
_ARGUMENT_COUNTS = {ord("X"): ("<I", 4), ord("U"): ("<B", 1), 0x8A: ("<B", 1)}


def load(file: Any, *, encoding: str = "ASCII") -> Any:
    """One object from an open file."""
    return Unpickler(file, encoding=encoding).load()


def loads(data: bytes, *, encoding: str = "ASCII") -> Any:
    """One object from bytes."""
    return load(io.BytesIO(data), encoding=encoding)
