"""What users hold of an operator: `torch.ops.aten.add` (a packet) and `torch.ops.aten.add.Tensor`.

`OpOverload` is the public face of an `Op`: modes and subclasses are handed it, graphs hold it as
the target of a node. There is one a (namespace, name, overload), so `is` and `==` agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.bind import bind, rename
from flambeau._src.ops.call import call_bits, dispatch, repeatable
from flambeau._src.ops.op import PACKETS, Op, Packet, resolve_lazy
from flambeau._src.ops.signature import Argument, FunctionSchema
from flambeau._src.ops.tags import Tag, tags_of

__all__ = [
    "OpOverload",
    "OpOverloadPacket",
    "Operators",
    "OperatorNamespace",
    "find_overload",
    "ops",
    "overload_of",
]

_PUBLIC = state.FUNCTION | state.FUNCTION_MODE | state.PROFILE


class OpOverload:
    """One overload of an operator, called with ATen's own signature."""

    __module__ = "flambeau._ops"
    # The module of an instance (for printed graphs) is an instance attribute, as in torch.

    def __init__(self, op: Op) -> None:
        self._op = op
        self._opname = op.name
        self._overloadname = op.overload or "default"
        self.namespace = self._namespace = op.namespace
        self.__name__ = f"{op.name}.{self._overloadname}"
        self.__qualname__ = self._name = f"{op.namespace}::{op.name}" + (
            f".{op.overload}" if op.overload else ""
        )
        self.__module__ = f"flambeau._ops.{op.namespace}"
        self._cached: dict[str, Any] = {}
        self._function = _served(self.__name__, self._call, lambda: op)

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"
        )

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __hash__(self) -> int:
        return hash(self._op)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __copy__(self) -> OpOverload:
        return self

    def __deepcopy__(self, memo: Any = None) -> OpOverload:
        return self

    def __reduce__(self) -> Any:
        return find_overload, (self.namespace, self._opname, self._overloadname)

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """All overloads of the name."""
        return packet_of(self.namespace, self._opname)

    _overloadpacket = overloadpacket

    @property
    def op(self) -> OpOverload:
        """The callable itself."""
        return self

    @property
    def _schema(self) -> FunctionSchema:
        found = self._cached.get("schema")
        if found is None:
            found = self._cached["schema"] = FunctionSchema(self._op.schema, self.namespace)
        return found

    @property
    def tags(self) -> list[Tag]:
        """What is known of the operator beside its signature."""
        found = self._cached.get("tags")
        if found is None:
            found = self._cached["tags"] = tags_of(self._op)
        return found

    _tags = tags

    @property
    def is_view(self) -> bool:
        """Whether the result aliases an argument."""
        return self._op.schema.is_view

    _nondeterministic_seeded = property(lambda self: self._op.decl.random)

    def name(self) -> str:
        """'aten::add.Tensor'."""
        return self._name

    def _can_decompose(self) -> bool:
        return self._op.decl.level == "composite"

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """What a composite dissolves into, run now; NotImplemented for others."""
        if not self._can_decompose():
            return NotImplemented
        bound = self._bound(args, kwargs)
        return self._op.decl.decompose(*bound)  # type: ignore[misc]

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """Whether the operator itself says what it does under the dispatch key (its name)."""
        name = getattr(key, "name", str(key))
        decl = self._op.decl
        if name == "CompositeImplicitAutograd":
            return decl.level == "composite"
        if name == "CompositeExplicitAutograd":
            return decl.level != "composite" and decl.decompose is not None and not decl.whole
        if name.startswith("Autograd"):
            return decl.level != "composite" and decl.vjp is not None
        return name in ("CPU", "Meta") and decl.level != "composite"

    def has_kernel_for_any_dispatch_key(self, keys: Any) -> bool:
        """Whether it does for one of the keys."""
        return any(self.has_kernel_for_dispatch_key(k) for k in keys)

    def redispatch(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        """The call again beneath the layers that are suspended (dispatch
        keys have no other use)."""
        return dispatch(self._op, self._bound(args, kwargs))

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        op = self._op
        reasons: list[str] = []
        bound: tuple[Any, ...] | None
        bound = bind(op, args, rename(kwargs, op) if kwargs else kwargs, reasons, False)
        if bound is None:
            raise RuntimeError(mismatch(op, args, kwargs, reasons))
        return bound

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bits = call_bits(args, kwargs, 0)
        if bits & _PUBLIC:
            return slot("function_layer")(self, args, kwargs)
        bound = self._bound(args, kwargs)
        return repeatable(self._function, self._op, args, kwargs, bound, bits, _as_returned)


def _sequences(op: Op) -> int:
    """The places of lists that no single item may stand for, a bit each."""
    given = enumerate(op.schema.positional)
    return sum(1 << i for i, a in given if a.is_list and a.list_size is None)


def _served(
    name: str, call: Callable[..., Any], first: Callable[[], Op], loose: bool = False
) -> Any:
    """call(args, kwargs) as a function of C's, which calls Python when C declines. C learns the
    fast path of the operator `first()` when it is first called, where what the path takes is what
    the schema takes: tensors alone, or of views sizes and places too, and options by keyword."""
    fresh = True

    def slow(*args: Any, **kwargs: Any) -> Any:
        nonlocal fresh
        if fresh:
            fresh = False
            op = first()
            taken = ("Tensor", "int") if op.decl.kind == "view" else ("Tensor",)
            given = op.schema.positional
            plain = all(a.type in taken and not (a.is_tensor and a.is_list) for a in given)
            if plain and not _gives_list(op):
                made._set_fast(op.fast, len(given), 0 if loose else _sequences(op))
        return call(args, kwargs)

    made = _native.Function(name, slow)
    return made


def _as_returned(op: Op, result: Any) -> Any:
    return list(result) if _gives_list(op) and isinstance(result, tuple) else result


def _gives_list(op: Op) -> bool:
    returns = op.schema.returns
    return len(returns) == 1 and returns[0].is_list


def mismatch(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], reasons: list[str]) -> str:
    """Why the arguments do not fit, as torch words it."""
    schema = FunctionSchema(op.schema, op.namespace)
    where = f"{op.namespace}::{op.name}()"
    n = len(schema.positional)
    if len(args) > len(schema.arguments):
        return (
            f"{where} expected at most {len(schema.arguments)} argument(s) but received "
            f"{len(args)} argument(s). Declaration: {schema}"
        )
    if len(args) > n:
        return (
            f"{where} takes {n} positional argument(s) but {len(args)} was/were given.  "
            f"Declaration: {schema}"
        )
    for i, a in enumerate(schema.arguments):
        if i < len(args) and not a.kwarg_only:
            v = args[i]
        elif a.name in kwargs:
            v = kwargs[a.name]
        elif a.has_default_value() or a.optional:
            continue
        else:
            return f"{where} is missing value for argument '{a.name}'. Declaration: {schema}"
        if not a.accepts(v, op.decl.numbers):
            return (
                f"{where} Expected a value of type '{a.type}' for argument '{a.name}' but "
                f"instead found type '{type(v).__name__}'.\nPosition: {i}\nValue: "
                f"{v!r}\nDeclaration: {schema}\n{_cast_error(a, v, schema)}"
            )
    unknown = [k for k in kwargs if k not in {a.name for a in schema.arguments}]
    if unknown:
        return (
            f"Unknown keyword argument '{unknown[0]}' for operator '{op.namespace}::{op.name}'. "
            f"Schema: {schema}"
        )
    return f"{where} {reasons[0] if reasons else 'got wrong arguments'}. Declaration: {schema}"


def _cast_error(a: Argument, v: Any, schema: FunctionSchema) -> str:
    """What went wrong where the value was taken for the argument."""
    wanted = str(a.type)
    items = v if isinstance(v, (list, tuple)) else None
    if not hasattr(v, "__iter__") and f"SymInt[] {a.name}" in str(schema):
        return f" Python error details: TypeError: '{type(v).__name__}' object is not iterable"
    if wanted.endswith("[Optional[Tensor]]") and items is not None:
        wanted, v = "Tensor", next(x for x in items if x is not None and not a.takes_item(x))
    if wanted in ("Tensor", "Optional[Tensor]"):
        return f"Cast error details: Unable to cast {v} to Tensor"
    if "number" in wanted:
        return f"Cast error details: Cannot cast {v} to number"
    if items is not None:
        v = next((x for x in items if not a.takes_item(x)), v)
    return (
        f"Cast error details: Unable to cast Python instance of type {type(v)} to C++ type '?' "
        "(#define PYBIND11_DETAILED_ERROR_MESSAGES or compile in debug mode for details)"
    )


def overload_of(op: Op) -> OpOverload:
    """The public face of an operator; always the same object."""
    found = op.__dict__.get("face")
    if found is None:
        found = op.__dict__["face"] = OpOverload(op)
    return found


class OpOverloadPacket:
    """The overloads of one name: attributes by overload name; a call chooses among them."""

    __module__ = "flambeau._ops"

    def __init__(self, packet: Packet) -> None:
        self._packet = packet
        self._qualified_op_name = f"{packet.namespace}::{packet.name}"
        self.__name__ = packet.name
        self.__qualname__ = packet.name
        self.__module__ = f"flambeau._ops.{packet.namespace}"
        self._function = _served(packet.name, self._call, lambda: packet.ops[0], True)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._packet.namespace}.{self._packet.name}')>"

    def __str__(self) -> str:
        return f"{self._packet.namespace}.{self._packet.name}"

    def __hash__(self) -> int:
        return hash(self._qualified_op_name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __copy__(self) -> OpOverloadPacket:
        return self

    def __deepcopy__(self, memo: Any = None) -> OpOverloadPacket:
        return self

    def __reduce__(self) -> Any:
        return packet_of, (self._packet.namespace, self._packet.name)

    @property
    def op(self) -> OpOverloadPacket:
        """The callable itself."""
        return self

    @property
    def _op(self) -> OpOverloadPacket:
        return self

    def __getattr__(self, key: str) -> OpOverload:
        if key.startswith("__"):
            raise AttributeError(
                f"'{self!s}' can't have an overload name beginning with '__' and the underlying "
                f"op {self!r} has no attribute {key} either."
            )
        op = self._packet.overload(key)
        if op is None:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{key}'")
        found = overload_of(op)
        self.__dict__[key] = found
        return found

    @property
    def _overload_names(self) -> list[str]:
        named = [op.overload for op in resolve_lazy(self._packet)]
        outs = [op.out_op.overload for op in self._packet.ops if op.out_op is not None]
        return list(dict.fromkeys([*named, *outs]))

    @property
    def _schemas(self) -> dict[str, FunctionSchema]:
        return {n: getattr(self, n or "default")._schema for n in self._overload_names}

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return [n or "default" for n in self._overload_names]

    @property
    def op_overloads(self) -> list[OpOverload]:
        """The overloads themselves."""
        return [getattr(self, n) for n in self.overloads()]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.overloads()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.overloads())

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bits = call_bits(args, kwargs, 0)
        if bits & _PUBLIC:
            return slot("function_layer")(self, args, kwargs)
        reasons = []
        for name in self._overload_names:
            face = getattr(self, name or "default")
            op = face._op
            why: list[str] = []
            bound = bind(op, args, rename(kwargs, op) if kwargs else kwargs, why)
            if bound is not None:
                return repeatable(self._function, op, args, kwargs, bound, bits, _as_returned)
            reasons.append(mismatch(op, args, kwargs, why))
        if len(reasons) == 1:
            raise RuntimeError(reasons[0])
        text = "\n\n".join(reasons)
        raise RuntimeError(
            f"Overloaded torch operator invoked from Python failed to match any schema:\n{text}\n\n"
        )


_PACKET_FACES: dict[tuple[str, str], OpOverloadPacket] = {}


def packet_of(namespace: str, name: str) -> OpOverloadPacket:
    """The public face of a packet that is declared; AttributeError where none is."""
    found = _PACKET_FACES.get((namespace, name))
    if found is None:
        packet = PACKETS.get((namespace, name))
        if packet is None:
            raise AttributeError(f"'_OpNamespace' '{namespace}' object has no attribute '{name}'")
        found = _PACKET_FACES[(namespace, name)] = OpOverloadPacket(packet)
    return found


def find_overload(namespace: str, name: str, overload: str) -> OpOverload:
    """The overload by its three names ('default' for none)."""
    found: OpOverload = getattr(packet_of(namespace, name), overload)
    return found


def forget(namespace: str, name: str) -> None:
    """A packet was removed (a library was taken down)."""
    _PACKET_FACES.pop((namespace, name), None)
    space = ops.__dict__.get(namespace)
    if space is not None:
        space.__dict__.pop(name, None)


class OperatorNamespace(ModuleType):
    """`torch.ops.aten`: packets by name."""

    __module__ = "flambeau._ops"

    def __init__(self, name: str) -> None:
        super().__init__("torch.ops." + name)
        self.name = name

    __file__ = "torch.ops"

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self.name}' from 'torch.ops'>"

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name in ("__origin__", "__self__", "__wrapped__", "__path__", "__signature__"):
            raise AttributeError(f"Invalid attribute '{name}' for '_OpNamespace' '{self.name}'")
        found = packet_of(self.name, name)
        self.__dict__[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter([n for ns, n in PACKETS if ns == self.name and n in self.__dict__])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(n for ns, n in PACKETS if ns == self.name)]


OperatorNamespace.__name__ = "_OpNamespace"


class Operators(ModuleType):
    """`torch.ops`: namespaces of operators, the library's own and users'."""

    __module__ = "flambeau._ops"
    __file__ = "_ops.py"

    def __init__(self) -> None:
        super().__init__("torch.ops")
        self.loaded_libraries: set[str] = set()

    def __repr__(self) -> str:
        return "<module 'torch.ops' from '_ops.py'>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.ops' has no attribute '{name}'")
        special = HIGHER_ORDER if name == "higher_order" else None
        space = special if special is not None else OperatorNamespace(name)
        self.__dict__[name] = space
        return space

    def __iter__(self) -> Iterator[str]:
        return iter([k for k, v in self.__dict__.items() if isinstance(v, ModuleType)])

    def import_module(self, module: str) -> None:
        """Import a module that registers operators."""
        import importlib  # lazy: rare

        importlib.import_module(module)

    def load_library(self, path: str) -> None:
        """Refused: a shared library built for PyTorch calls into PyTorch.

        Raises OSError.
        """
        import os  # lazy: rare

        raise OSError(
            f"Could not load this library: {os.path.abspath(path)}: it is built against PyTorch's "
            "own C++ code, which flambeau does not contain. Register the operator from Python "
            "with torch.library instead."
        )


Operators.__name__ = "_Ops"


class _HigherOrderNamespace(ModuleType):
    """`torch.ops.higher_order`: operators that take functions."""

    def __init__(self) -> None:
        super().__init__("torch.ops.higher_order")
        self._ops: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("_ops", {}).get(name)
        if found is None:
            raise AttributeError(f"'_HigherOrderNamespace' object has no attribute '{name}'")
        return found


HIGHER_ORDER = _HigherOrderNamespace()


def register_higher_order(name: str, op: Callable[..., Any]) -> None:
    """Make a higher-order operator `torch.ops.higher_order.name`."""
    HIGHER_ORDER._ops[name] = op


ops = Operators()


def is_tensor_list(value: Any) -> bool:
    """Whether the value is a list or tuple holding a tensor."""
    return isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value)
