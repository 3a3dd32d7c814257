"""Key paths: where in a pytree a leaf stands, ``tree['a'][0].x``."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from flambeau._src.util.pytree import (
    PUBLIC_MODULE,
    SUPPORTED_NODES,
    IsLeaf,
    NodeDef,
    PyTree,
    TreeSpec,
    _node,
    tree_structure,
)

__all__ = [
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "MappingKey",
    "SequenceKey",
    "generate_key_paths",
    "key_get",
    "keystr",
    "tree_flatten_with_path",
    "tree_leaves_with_path",
    "tree_map_with_path",
]

K = TypeVar("K")
T = TypeVar("T")
KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]


class _Key:
    """One step of a path. Equal and hashable by type and value."""

    __slots__ = ("_value",)
    _field = ""
    _value: Any

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "_value", value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._value == self._value

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._field}={self._value!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._value,)


class SequenceKey(_Key, Generic[T]):
    """An index."""

    __module__ = PUBLIC_MODULE
    __slots__ = ()
    _field = "idx"

    def __init__(self, idx: int) -> None:
        super().__init__(idx)

    @property
    def idx(self) -> int:
        return self._value  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f"[{self._value!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self._value]


class MappingKey(_Key, Generic[K, T]):
    """A dictionary's key."""

    __module__ = PUBLIC_MODULE
    __slots__ = ()
    _field = "key"

    def __init__(self, key: K) -> None:
        super().__init__(key)

    @property
    def key(self) -> Any:
        return self._value

    def __str__(self) -> str:
        return f"[{self._value!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self._value]


class GetAttrKey(_Key):
    """An attribute's name."""

    __module__ = PUBLIC_MODULE
    __slots__ = ()
    _field = "name"

    def __init__(self, name: str) -> None:
        super().__init__(name)

    @property
    def name(self) -> str:
        return self._value  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return f".{self._value}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self._value)


def keystr(kp: KeyPath) -> str:
    """The path as Python text: ``['a'][0].x``."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What stands at the path in `obj`."""
    for key in kp:
        obj = key.get(obj)
    return obj


def tree_flatten_with_path(
    tree: PyTree, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """``[(path, leaf), ...]`` and the structure.

    Raises ValueError for a registered type without a ``flatten_with_keys_fn``.
    """
    return list(generate_key_paths((), tree, is_leaf)), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """``[(path, leaf), ...]``."""
    return list(generate_key_paths((), tree, is_leaf))


def generate_key_paths(
    key_path: KeyPath, tree: PyTree, is_leaf: IsLeaf = None
) -> Iterator[tuple[KeyPath, Any]]:
    """Pairs of path and leaf, each path starting with `key_path`."""
    node = None if is_leaf is not None and is_leaf(tree) else _node(tree)
    if node is None:
        yield key_path, tree
        return
    if node.flatten_with_keys_fn is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {node.type}. "
            "Please pass a flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in node.flatten_with_keys_fn(tree)[0]:
        yield from generate_key_paths((*key_path, key), child, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """`tree` with ``func(path, leaf, *rest)`` in place of each leaf."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns: list[Iterable[Any]] = [spec.flatten_up_to(rest) for rest in rests]
    rows = zip(*columns, strict=False) if columns else ((),) * len(pairs)
    return spec.unflatten(
        [func(path, leaf, *row) for (path, leaf), row in zip(pairs, rows, strict=False)]
    )


def _with_keys(cls: Any, keys_of: Callable[[Any], list[KeyEntry]]) -> None:
    flatten = SUPPORTED_NODES[cls].flatten_fn

    def flatten_with_keys(tree: Any) -> tuple[list[tuple[KeyEntry, Any]], Any]:
        children, context = flatten(tree)
        return list(zip(keys_of(tree), children, strict=False)), context

    old = SUPPORTED_NODES[cls]
    SUPPORTED_NODES[cls] = NodeDef(old.type, old.flatten_fn, old.unflatten_fn, flatten_with_keys)


def sequence_keys(tree: Any) -> list[KeyEntry]:
    """The keys of a sequence's items."""
    return [SequenceKey(i) for i in range(len(tree))]


def _mapping_keys(tree: Any) -> list[KeyEntry]:
    return [MappingKey(key) for key in tree]


for _sequence in (list, tuple, deque):
    _with_keys(_sequence, sequence_keys)
for _mapping in (dict, OrderedDict, defaultdict):
    _with_keys(_mapping, _mapping_keys)
_with_keys(namedtuple, lambda tree: [GetAttrKey(name) for name in tree._fields])
