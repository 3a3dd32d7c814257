# ruff: noqa: F401  (the older names are re-exported without being advertised)
"""Pytrees at torch's path: a re-export of ``flambeau._src.util``'s, plus older spellings."""

from typing import Any

from flambeau._src.util import pytree as _core
from flambeau._src.util.pytree import (
    BUILTIN_TYPES,
    STANDARD_DICT_TYPES,
    SUPPORTED_NODES,
    Context,
    FlattenFn,
    LeafSpec,
    NodeDef,
    PyTree,
    PyTreeSpec,
    TreeSpec,
    UnflattenFn,
    arg_tree_leaves,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    map_only,
    tree_all,
    tree_all_only,
    tree_any,
    tree_any_only,
    tree_flatten,
    tree_is_leaf,
    tree_iter,
    tree_leaves,
    tree_map,
    tree_map_,
    tree_map_only,
    tree_map_only_,
    tree_structure,
    tree_unflatten,
    treespec_dict,
    treespec_leaf,
    treespec_tuple,
)
from flambeau._src.util.pytree_keys import (
    GetAttrKey,
    KeyEntry,
    KeyPath,
    MappingKey,
    SequenceKey,
    key_get,
    keystr,
    tree_flatten_with_path,
    tree_leaves_with_path,
    tree_map_with_path,
)
from flambeau._src.util.pytree_keys import (
    generate_key_paths as _generate_key_paths,
)
from flambeau._src.util.pytree_text import (
    CONSTANT_NODES,
    NO_NAME,
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    SUPPORTED_SERIALIZED_TYPES,
    ConstantNode,
    DumpableContext,
    FromDumpable,
    ToDumpable,
    deregister,
    enter,
    is_constant_class,
    is_constant_holder,
    register_constant,
    register_dataclass,
    register_namedtuple,
    register_pytree_node,
    retrieve_constant,
    treespec_dumps,
    treespec_loads,
    treespec_pprint,
)
from flambeau._src.util.pytree_text import SerializeNode as _SerializeNodeDef

__all__ = [
    "Context",
    "DumpableContext",
    "FlattenFn",
    "FromDumpableContextFn",
    "LeafSpec",
    "PyTree",
    "PyTreeSpec",
    "ToDumpableContextFn",
    "TreeSpec",
    "UnflattenFn",
    "is_namedtuple",
    "is_namedtuple_class",
    "is_namedtuple_instance",
    "is_structseq",
    "is_structseq_class",
    "is_structseq_instance",
    "key_get",
    "keystr",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_dumps",
    "treespec_loads",
    "treespec_pprint",
]

FlattenFunc = FlattenFn
UnflattenFunc = UnflattenFn
ToDumpableContextFn = ToDumpable
FromDumpableContextFn = FromDumpable
FlattenWithKeysFn = FlattenWithKeysFunc = Any
DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1
NO_SERIALIZED_TYPE_NAME_FOUND = NO_NAME

_get_node_type = _core.node_type
_is_leaf = _core.tree_is_leaf
_is_namedtuple_instance = _core.is_namedtuple_instance
_broadcast_to_and_flatten = _core.broadcast_to_and_flatten
_deregister_pytree_node = deregister
_register_namedtuple = register_namedtuple
_is_constant_holder = is_constant_holder
_retrieve_constant = retrieve_constant
pytree_to_str = treespec_dumps
str_to_pytree = treespec_loads


def _register_pytree_node(
    cls: type[Any],
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    to_str_fn: Any = None,
    maybe_from_str_fn: Any = None,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Any = None,
) -> None:
    """The older registration: a second one for the same type replaces the first."""
    enter(
        NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn),
        serialized_type_name,
        to_dumpable_context,
        from_dumpable_context,
    )


_private_register_pytree_node = _register_pytree_node


def _list_flatten(d: list[Any]) -> tuple[list[Any], Context]:
    return d, None


def _list_unflatten(values: Any, context: Context) -> list[Any]:
    return list(values)


def _tuple_flatten(d: tuple[Any, ...]) -> tuple[list[Any], Context]:
    return list(d), None


def _tuple_unflatten(values: Any, context: Context) -> tuple[Any, ...]:
    return tuple(values)


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Context]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Any, context: Context) -> dict[Any, Any]:
    return dict(zip(context, values, strict=False))


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[KeyEntry, Any]], Context]:
    return SUPPORTED_NODES[dict].flatten_with_keys_fn(d)  # type: ignore[misc]


def _list_flatten_with_keys(d: list[Any]) -> tuple[list[tuple[KeyEntry, Any]], Context]:
    return SUPPORTED_NODES[list].flatten_with_keys_fn(d)  # type: ignore[misc]


def _tuple_flatten_with_keys(d: tuple[Any, ...]) -> tuple[list[tuple[KeyEntry, Any]], Context]:
    return SUPPORTED_NODES[tuple].flatten_with_keys_fn(d)  # type: ignore[misc]


_odict_flatten = _ordereddict_flatten = _dict_flatten
_odict_unflatten = _ordereddict_unflatten = SUPPORTED_NODES[_core.OrderedDict].unflatten_fn
