"""Modules, functions, parameters and option records on the wire, beside what `wire.py` carries.

A module given to a constructor travels as the call that made it: `Constructions` notes the calls
while the database makes its inputs. A function travels by its public name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.oracle import wire

FUNCTIONS = ("nn.functional", "", "special")  # where a function's public name is looked for
SHARED = ("wire.py", "checks.py", "objects.py")


def digest(*sources: str) -> str:
    """Of the sources that shape a recording of one of these databases."""
    whole = hashlib.blake2b(digest_size=6)
    for name in (*SHARED, *sources):
        whole.update(Path(__file__).with_name(name).read_bytes())
    return whole.hexdigest()


def public(rt: ModuleType, path: str) -> Any:
    """The object of a dotted name below the runtime: `nn.Linear`."""
    return functools.reduce(getattr, path.split("."), rt)


class Constructions:
    """Which call made an object, for all classes that were being watched."""

    def __init__(self) -> None:
        self.calls: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    @contextmanager
    def watch(self, *classes: type) -> Iterator[None]:
        """Note the constructor calls of these classes."""
        originals = {cls: cls.__init__ for cls in classes}  # type: ignore[misc]
        for cls, original in originals.items():
            cls.__init__ = self._noting(original)  # type: ignore[misc]
        try:
            yield
        finally:
            for cls, original in originals.items():
                cls.__init__ = original  # type: ignore[misc]

    def _noting(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(made: Any, *args: Any, **kwargs: Any) -> None:
            self.calls.setdefault(id(made), (made, args, kwargs))  # the outermost class is first
            original(made, *args, **kwargs)

        return __init__


@dataclasses.dataclass
class ObjectWriter(wire.InputWriter):
    """`wire.InputWriter` for arguments that are objects too."""

    made: Constructions = dataclasses.field(default_factory=Constructions)

    def tree(self, value: Any) -> wire.Node:
        """JSON tree of `value`."""
        if isinstance(value, self.rt.nn.Parameter):
            return {"k": "parameter", "v": self.tensor(value)}
        if isinstance(value, self.rt.nn.Module):
            if id(value) not in self.made.calls:
                raise wire.Unencodable(f"nobody saw how a {type(value).__name__} was made")
            _, args, kwargs = self.made.calls[id(value)]
            return self._made(f"nn.{type(value).__name__}", args, kwargs)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            name = f"{type(value).__module__}.{type(value).__qualname__}".partition(".")[2]
            return self._made(name, (), fields)
        if callable(value) and not isinstance(value, (type, self.rt.Tensor)):
            return {"k": "function", "v": self._function(value)}
        return super().tree(value)

    def _made(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> wire.Node:
        return {"k": "made", "cls": name, "v": [self.tree(args), self.tree(kwargs)]}

    def _function(self, value: Any) -> str:
        name = getattr(value, "__name__", "")
        for home in FUNCTIONS:
            path = f"{home}.{name}".strip(".")
            try:
                if public(self.rt, path) is value:
                    return path
            except AttributeError:
                continue
        raise wire.Unencodable(f"a function without a public name: {value!r}")


class ObjectReader(wire.InputReader):
    """`wire.InputReader` that makes the objects again, in the order of the arguments."""

    def _tree(self, node: Any, loaded: wire.Inputs, grad: bool, wide: bool) -> Any:
        kind = node["k"] if isinstance(node, dict) else None
        if kind == "parameter":
            tensor = self._tree(node["v"], loaded, False, wide)
            if isinstance(tensor, self.rt.nn.Parameter):  # the same one once more
                return tensor
            made = self.rt.nn.Parameter(tensor, requires_grad=node["v"]["rg"])
            loaded.tensors[-1] = made
            return made
        if kind == "made":
            args, kwargs = (self._tree(part, loaded, grad, wide) for part in node["v"])
            return public(self.rt, node["cls"])(*args, **kwargs)
        if kind == "function":
            return public(self.rt, node["v"])
        return super()._tree(node, loaded, grad, wide)


def described(rt: ModuleType, value: Any) -> Any:
    """A plain value as it travels; of anything else the name of its type."""
    if isinstance(value, (list, tuple)):
        return [described(rt, item) for item in value]
    if isinstance(value, dict):
        return [[described(rt, key), described(rt, item)] for key, item in value.items()]
    try:
        return wire.encode_plain(rt, value)
    except wire.Unencodable:
        return {"k": "type", "v": getattr(value, "__name__", type(value).__name__)}


def raising(
    dropped: list[str], each: Any, call: Any, early: bool, outcome: Any, desc: str
) -> Iterator[wire.Node]:
    """What is recorded of an input that must raise; nothing where torch takes it."""
    if "err" not in outcome:
        dropped.append(f"error input {desc}: torch raises nothing")
        return
    kinds = each.error_type if isinstance(each.error_type, tuple) else (each.error_type,)
    yield {"call": call, "early": early, "types": [kind.__name__ for kind in kinds],
           "regex": each.error_regex, "torch": outcome["err"], "desc": desc}  # fmt: skip
