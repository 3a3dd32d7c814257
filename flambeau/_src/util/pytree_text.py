"""Registration of user types, and a structure's text form (JSON) for saved programs.

The JSON layout is torch's, so that a program exported by either is read by both:
``[1, {"type": name or null, "context": text, "children_spec": [...]}]``.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from flambeau._src.util.pytree import (
    PUBLIC_MODULE,
    REGISTRY_LOCK,
    SUPPORTED_NODES,
    Context,
    FlattenFn,
    NodeDef,
    PyTree,
    TreeSpec,
    UnflattenFn,
    add_node,
    deregister_pytree_node,
    is_namedtuple_class,
    treespec_leaf,
)
from flambeau._src.util.pytree_keys import GetAttrKey, KeyEntry

__all__ = [
    "SUPPORTED_SERIALIZED_TYPES",
    "ConstantNode",
    "deregister",
    "is_constant_class",
    "is_constant_holder",
    "register_constant",
    "register_dataclass",
    "register_namedtuple",
    "register_pytree_node",
    "retrieve_constant",
    "treespec_dumps",
    "treespec_loads",
    "treespec_pprint",
]

T = TypeVar("T")
DumpableContext = Any
ToDumpable = Callable[[Context], DumpableContext]
FromDumpable = Callable[[DumpableContext], Context]
NO_NAME = "NO_SERIALIZED_TYPE_NAME_FOUND"
PROTOCOL = 1


class SerializeNode(NamedTuple):
    """How a node type is named in text, and how its context goes into JSON and back."""

    typ: type[Any]
    serialized_type_name: str
    to_dumpable_context: ToDumpable | None
    from_dumpable_context: FromDumpable | None


SUPPORTED_SERIALIZED_TYPES: dict[Any, SerializeNode] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, Any] = {}
CONSTANT_NODES: set[type] = set()


def register_pytree_node(
    cls: type[Any],
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: ToDumpable | None = None,
    from_dumpable_context: FromDumpable | None = None,
    flatten_with_keys_fn: Callable[[PyTree], tuple[list[tuple[KeyEntry, Any]], Any]] | None = None,
) -> None:
    """Make `cls` a container of pytrees.

    Raises ValueError if it is one already, or if only one of the two context functions is given.
    """
    with REGISTRY_LOCK:
        if cls in SUPPORTED_NODES:
            raise ValueError(f"{cls} is already registered as pytree node.")
        enter(
            NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn),
            serialized_type_name,
            to_dumpable_context,
            from_dumpable_context,
        )


def enter(
    node: NodeDef,
    name: str | None,
    to_dumpable: ToDumpable | None,
    from_dumpable: FromDumpable | None,
) -> None:
    """`register_pytree_node` for a complete record; a type entered twice keeps its last one."""
    cls = node.type
    if (to_dumpable is None) != (from_dumpable is None):
        raise ValueError(
            f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or "
            "registered."
        )
    with REGISTRY_LOCK:
        SUPPORTED_NODES.pop(cls, None)
        add_node(node)
        _enter_text(SerializeNode(cls, name or NO_NAME, to_dumpable, from_dumpable))


def _enter_text(entry: SerializeNode) -> None:
    SUPPORTED_SERIALIZED_TYPES[entry.typ] = entry
    SERIALIZED_TYPE_TO_PYTHON_TYPE[entry.serialized_type_name] = entry.typ


def deregister(cls: type[Any]) -> None:
    """Undo a registration. KeyError if there was none."""
    with REGISTRY_LOCK:
        deregister_pytree_node(cls)
        entry = SUPPORTED_SERIALIZED_TYPES.pop(cls)
        SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(entry.serialized_type_name, None)
        CONSTANT_NODES.discard(cls)


def register_namedtuple(cls: type[Any], *, serialized_type_name: str) -> None:
    """Give a namedtuple class the name under which structures that contain it are saved."""
    if not is_namedtuple_class(cls):
        raise ValueError(f"{cls} is not a namedtuple class.")
    with REGISTRY_LOCK:
        _enter_text(SerializeNode(cls, serialized_type_name, None, None))


def register_dataclass(
    cls: type[Any],
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Make a dataclass a container; its children are its fields.

    Fields that are None are left out of the children and named in the context instead. Fields in
    `drop_field_names` are not restored. A class that is no dataclass needs `field_names`, and is
    rebuilt by keyword. Raises ValueError if a constructor's field is in neither list.
    """
    import dataclasses  # lazy: it imports inspect, 3 ms

    drop = list(drop_field_names or ())
    if dataclasses.is_dataclass(cls):
        known = [f.name for f in dataclasses.fields(cls) if f.init]
        if field_names is None:
            names = [name for name in known if name not in drop]
        else:
            names = list(field_names)
            missing = set(known) - set(names) - set(drop)
            if missing:
                raise ValueError(
                    "field_names does not include all dataclass fields.\n"
                    f"Missing fields in `field_names`: {missing}. If you want to include these "
                    "fields in the pytree, please add them to `field_names`, otherwise please add "
                    "them to `drop_field_names`.\n"
                )
    elif field_names is None:
        raise ValueError(
            "field_names must be specified with a list of all fields used to initialize "
            f"{cls}, as it is not a dataclass."
        )
    else:
        names = [name for name in field_names if name not in drop]

    def flatten_with_keys(obj: Any) -> tuple[list[tuple[KeyEntry, Any]], Any]:
        values = [(name, getattr(obj, name)) for name in names]
        present = [(name, value) for name, value in values if value is not None]
        absent = [name for name, value in values if value is None]
        context = [[name for name, _ in present], absent]
        return [(GetAttrKey(name), value) for name, value in present], context

    def flatten(obj: Any) -> tuple[list[Any], Any]:
        pairs, context = flatten_with_keys(obj)
        return [value for _, value in pairs], context

    def unflatten(values: Any, context: Any) -> Any:
        present, absent = context
        return cls(**dict(zip(present, values, strict=False)), **dict.fromkeys(absent))

    enter(NodeDef(cls, flatten, unflatten, flatten_with_keys), serialized_type_name, None, None)


# ---- constants -----------------------------------------------------------------------------------


class ConstantNode(Generic[T]):
    """Context of a registered constant: the value itself, compared by its own ``==``."""

    __module__ = PUBLIC_MODULE
    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is ConstantNode and other.value == self.value

    def __hash__(self) -> int:
        return hash(("ConstantNode", self.value))

    def __repr__(self) -> str:
        return f"ConstantNode(value={self.value!r})"


def register_constant(cls: type[Any]) -> None:
    """Make instances of `cls` part of the structure, without leaves.

    Raises TypeError unless `cls` defines ``__eq__`` and ``__hash__``.
    """
    if getattr(cls, "__eq__") is object.__eq__:  # noqa: B009  (as a value, not a method)
        raise TypeError(
            "register_constant(cls) expects `cls` to have a non-default `__eq__` implementation."
        )
    if getattr(cls, "__hash__") in (None, object.__hash__):  # noqa: B009
        raise TypeError(
            "register_constant(cls) expects `cls` to have a non-default `__hash__` implementation."
        )
    node = NodeDef(
        cls,
        lambda value: ([], ConstantNode(value)),
        lambda _, context: context.value,
        lambda value: ([], ConstantNode(value)),
    )
    with REGISTRY_LOCK:
        enter(node, None, None, None)
        CONSTANT_NODES.add(cls)


def is_constant_class(cls: type[Any]) -> bool:
    """Whether `cls` was given to `register_constant`."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


def is_constant_holder(spec: TreeSpec) -> bool:
    """Whether `spec` is the structure of a registered constant."""
    return isinstance(spec.context, ConstantNode)


def retrieve_constant(spec: TreeSpec) -> Any:
    """The constant that `spec` holds."""
    if not is_constant_holder(spec):
        raise ValueError(f"{spec} holds no constant.")
    return spec.context.value


# ---- JSON ----------------------------------------------------------------------------------------


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """`treespec` as JSON text. NotImplementedError for a type without a registered name."""
    import json  # lazy: saving is rare

    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            "Expected `treespec` to be an instance of PyTreeSpec but got item of type "
            f"{type(treespec)}."
        )
    if protocol is not None and protocol != PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: {[PROTOCOL]}")
    return json.dumps((PROTOCOL, _to_json(treespec)), default=_encode)


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote."""
    import json  # lazy: loading is rare

    protocol, schema = json.loads(serialized)
    if protocol != PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: {[PROTOCOL]}")
    return _from_json(schema)


def treespec_pprint(treespec: TreeSpec) -> str:
    """The pytree of this structure with ``*`` for each leaf, as Python prints it."""

    class Star:
        def __repr__(self) -> str:
            return "*"

    return repr(treespec.unflatten([Star() for _ in range(treespec.num_leaves)]))


def _encode(value: Any) -> Any:
    import enum  # lazy: saving is rare

    if isinstance(value, enum.Enum):
        return {
            "__enum__": True,
            "fqn": f"{type(value).__module__}:{type(value).__qualname__}",
            "name": value.name,
        }
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _decode(table: dict[str, Any]) -> Any:
    if "__enum__" not in table:
        return table
    return getattr(_find(*table["fqn"].split(":")), table["name"])


def _find(module: str, qualname: str) -> Any:
    import importlib  # lazy: loading is rare

    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _to_json(spec: TreeSpec) -> dict[str, Any]:
    import json  # lazy: saving is rare

    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    entry = SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    if entry is None:
        raise NotImplementedError(
            f"Serializing {spec.type} in pytree is not registered; register it with "
            "`register_pytree_node`."
        )
    if entry.serialized_type_name == NO_NAME:
        raise NotImplementedError(
            f"No registered serialization name for {spec.type} found. Please update your "
            "_register_pytree_node call with a `serialized_type_name` kwarg."
        )
    if entry.to_dumpable_context is not None:
        context = entry.to_dumpable_context(spec.context)
    else:
        try:
            context = json.dumps(spec.context, default=_encode)
        except TypeError as error:
            raise TypeError(
                "Unable to serialize context. Please make the context json dump-able, or register "
                "a custom serializer using _register_pytree_node."
            ) from error
    children = [_to_json(child) for child in spec.children()]
    return {"type": entry.serialized_type_name, "context": context, "children_spec": children}


def _from_json(schema: dict[str, Any]) -> TreeSpec:
    import json  # lazy: loading is rare

    name = schema["type"]
    if name is None and schema["context"] is None and not schema["children_spec"]:
        return treespec_leaf()
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"Deserializing {name} in pytree is not registered.")
    cls = SERIALIZED_TYPE_TO_PYTHON_TYPE[name]
    entry = SUPPORTED_SERIALIZED_TYPES[cls]
    if entry.from_dumpable_context is not None:
        context = entry.from_dumpable_context(schema["context"])
    else:
        context = json.loads(schema["context"], object_hook=_decode)
    return TreeSpec(cls, context, [_from_json(child) for child in schema["children_spec"]])


def _namedtuple_to_text(cls: type[Any]) -> str:
    entry = SUPPORTED_SERIALIZED_TYPES.get(cls)
    if entry is None:
        raise NotImplementedError(
            f"Can't serialize TreeSpec of namedtuple class {cls} because we didn't register a "
            "serializated_type_name. Please register using `_register_namedtuple`."
        )
    return entry.serialized_type_name


def _namedtuple_from_text(name: str) -> Any:
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(
            f"Can't deserialize TreeSpec of namedtuple class {name} because we couldn't find a "
            "serializated name."
        )
    return SERIALIZED_TYPE_TO_PYTHON_TYPE[name]


def _defaultdict_to_json(context: Any) -> dict[str, Any]:
    factory, keys = context
    return {
        "default_factory_module": getattr(factory, "__module__", None),
        "default_factory_name": getattr(factory, "__qualname__", None),
        "dict_context": keys,
    }


def _defaultdict_from_json(table: dict[str, Any]) -> list[Any]:
    name = table["default_factory_name"]
    factory = None if name is None else _find(table["default_factory_module"], name)
    return [factory, table["dict_context"]]


for _cls, _name in (
    (list, "builtins.list"),
    (tuple, "builtins.tuple"),
    (dict, "builtins.dict"),
    (OrderedDict, "collections.OrderedDict"),
    (deque, "collections.deque"),
):
    _enter_text(SerializeNode(_cls, _name, None, None))
_enter_text(
    SerializeNode(
        namedtuple,  # type: ignore[arg-type]
        "collections.namedtuple",
        _namedtuple_to_text,
        _namedtuple_from_text,
    )
)
_enter_text(
    SerializeNode(
        defaultdict, "collections.defaultdict", _defaultdict_to_json, _defaultdict_from_json
    )
)
