"""Pytrees: nested containers seen as a list of leaves and a structure.

The names and the behaviour are those of ``torch.utils._pytree``, which re-exports this module.
Nodes are list, tuple, namedtuples, dict, OrderedDict, defaultdict, deque and what was registered;
everything else, None and subclasses of the containers included, is a leaf. Dictionaries keep their
order of insertion.

Exact built-in containers are handled inline; everything else goes through `SUPPORTED_NODES`.
Key paths are in `pytree_keys`, the text form of a structure in `pytree_text`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from threading import RLock
from typing import Any, NamedTuple

from flambeau._src.util import late

__all__ = [
    "BUILTIN_TYPES",
    "STANDARD_DICT_TYPES",
    "SUPPORTED_NODES",
    "LeafSpec",
    "NodeDef",
    "PyTreeSpec",
    "TreeSpec",
    "add_node",
    "arg_tree_leaves",
    "broadcast_to_and_flatten",
    "deregister_pytree_node",
    "is_namedtuple",
    "is_namedtuple_class",
    "is_namedtuple_instance",
    "is_structseq",
    "is_structseq_class",
    "is_structseq_instance",
    "map_only",
    "node_type",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_structure",
    "tree_unflatten",
    "treespec_dict",
    "treespec_leaf",
    "treespec_tuple",
]

PyTree = Any
Context = Any
FlattenFn = Callable[[PyTree], "tuple[list[Any], Context]"]
UnflattenFn = Callable[[Iterable[Any], Context], PyTree]
IsLeaf = Callable[[PyTree], bool] | None
PUBLIC_MODULE = "flambeau.utils._pytree"


class NodeDef(NamedTuple):
    """How one type is taken apart and put together.

    ``flatten_fn(tree) -> (children, context)``; ``unflatten_fn(children, context) -> tree``;
    ``flatten_with_keys_fn(tree) -> ([(key, child), ...], context)`` or None.
    """

    type: type[Any]
    flatten_fn: FlattenFn
    unflatten_fn: UnflattenFn
    flatten_with_keys_fn: Callable[[PyTree], tuple[list[tuple[Any, Any]], Context]] | None


SUPPORTED_NODES: dict[Any, NodeDef] = {}
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})
# A namedtuple's node type is the factory, as in torch; its class is the context.
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
REGISTRY_LOCK = RLock()


# ---- which types are nodes -----------------------------------------------------------------------


def is_namedtuple(obj: object | type) -> bool:
    """Whether `obj` is a namedtuple class or an instance of one."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_class(cls: type) -> bool:
    """Whether `cls` is a subclass of tuple with the fields and methods of a namedtuple."""
    if not isinstance(cls, type) or not issubclass(cls, tuple):
        return False
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(fields, tuple)
        and all(type(field) is str for field in fields)
        and callable(getattr(cls, "_make", None))
        and callable(getattr(cls, "_asdict", None))
    )


def is_namedtuple_instance(obj: object) -> bool:
    """Whether `obj` is an instance of a namedtuple class."""
    return is_namedtuple_class(type(obj))


def is_structseq(obj: object | type) -> bool:
    """Whether `obj` is a C struct sequence (``os.stat_result``) or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether `cls` is the class of a C struct sequence."""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(
            isinstance(getattr(cls, name, None), int)
            for name in ("n_fields", "n_sequence_fields", "n_unnamed_fields")
        )
        and not cls.__flags__ & (1 << 10)  # Py_TPFLAGS_BASETYPE: it cannot be subclassed
    )


def is_structseq_instance(obj: object) -> bool:
    """Whether `obj` is a C struct sequence."""
    return is_structseq_class(type(obj))


def node_type(tree: PyTree) -> Any:
    """The key of `tree` in `SUPPORTED_NODES`, were it there: its type, or ``namedtuple``."""
    cls = type(tree)
    if cls not in SUPPORTED_NODES and issubclass(cls, tuple) and is_namedtuple_class(cls):
        return namedtuple
    return cls


def _node(tree: PyTree) -> NodeDef | None:
    cls = type(tree)
    node = SUPPORTED_NODES.get(cls)
    if node is None and issubclass(cls, tuple) and is_namedtuple_class(cls):
        return SUPPORTED_NODES[namedtuple]
    return node


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether flattening would keep `tree` whole."""
    return (is_leaf is not None and is_leaf(tree)) or _node(tree) is None


def add_node(node: NodeDef, key: Any = None) -> None:
    """Enter `node`; ValueError if its type is there already."""
    key = node.type if key is None else key
    with REGISTRY_LOCK:
        if key in SUPPORTED_NODES:
            raise ValueError(f"{key} is already registered as pytree node.")
        SUPPORTED_NODES[key] = node


def deregister_pytree_node(cls: type[Any]) -> None:
    """Make `cls` a leaf again. KeyError if it was not registered."""
    with REGISTRY_LOCK:
        del SUPPORTED_NODES[cls]


def _register_builtin(cls: Any, flatten: FlattenFn, unflatten: UnflattenFn) -> None:
    add_node(NodeDef(cls, flatten, unflatten, None))


def _defaultdict_unflatten(values: Iterable[Any], context: Context) -> Any:
    factory, keys = context
    return defaultdict(factory, zip(keys, values, strict=False))


_register_builtin(list, lambda t: (t, None), lambda c, _: list(c))
_register_builtin(tuple, lambda t: (list(t), None), lambda c, _: tuple(c))
_register_builtin(namedtuple, lambda t: (list(t), type(t)), lambda c, cls: cls(*c))
_register_builtin(deque, lambda t: (list(t), t.maxlen), lambda c, size: deque(c, maxlen=size))
_register_builtin(
    dict, lambda t: (list(t.values()), list(t)), lambda c, keys: dict(zip(keys, c, strict=False))
)
_register_builtin(
    OrderedDict,
    lambda t: (list(t.values()), list(t)),
    lambda c, keys: OrderedDict(zip(keys, c, strict=False)),
)
_register_builtin(
    defaultdict,
    lambda t: (list(t.values()), [t.default_factory, list(t)]),
    _defaultdict_unflatten,
)


# ---- structure -----------------------------------------------------------------------------------


class TreeSpec:
    """The structure of a pytree: a node's type, its context, and its children's structures.

    Equal when all three are. ``TreeSpec(None, None, [])`` is a leaf.
    """

    __module__ = PUBLIC_MODULE
    __slots__ = ("_children", "_context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Context, children_specs: Iterable[TreeSpec]) -> None:
        children: list[TreeSpec] = list(children_specs)
        self.type = type
        self._context = context
        self._children = children
        self.num_nodes: int
        self.num_leaves: int
        self.num_children = len(children)
        self.num_nodes = 1 + sum([c.num_nodes for c in children])
        self.num_leaves = 1 if type is None else sum([c.num_leaves for c in children])

    @property
    def context(self) -> Context:
        """What the node's type needs beside the children to be put together again."""
        return self._context

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The children's structures (deprecated, as in torch: use `children`)."""
        import warnings  # lazy: on a deprecated path only

        warnings.warn(
            "`treespec.children_specs` is deprecated. Use `treespec.child(index)` to access a "
            "single child, or `treespec.children()` to get all children.",
            FutureWarning,
            stacklevel=2,
        )
        return self._children

    def is_leaf(self) -> bool:
        return self.num_nodes == 1 and self.num_leaves == 1

    def children(self) -> list[TreeSpec]:
        """The children's structures, a new list."""
        return self._children.copy()

    def child(self, index: int) -> TreeSpec:
        return self._children[index]

    def flatten_up_to(self, tree: PyTree) -> list[PyTree]:
        """The parts of `tree` that stand where this structure has leaves.

        Raises ValueError where the containers of `tree` are of another type, size or key set.
        """
        out: list[PyTree] = []
        _flatten_up_to(self, tree, out)
        return out

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """The pytree of this structure over `leaves`. ValueError if their number is wrong."""
        if not isinstance(leaves, (list, tuple)):
            leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec "
                f"refers to a pytree that holds {self.num_leaves} items ({self})."
            )
        return _unflatten(self, iter(leaves).__next__)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type == other.type
            and self.num_nodes == other.num_nodes
            and self.num_leaves == other.num_leaves
            and self._context == other._context
            and self._children == other._children
        )

    def __hash__(self) -> int:
        context = self._context
        if self.type is defaultdict:
            context = (context[0], tuple(context[1]))
        elif self.type is dict or self.type is OrderedDict:
            context = tuple(context)
        try:
            return hash((self.type, context, tuple(self._children)))
        except TypeError:  # a context that cannot be hashed
            return hash((self.type, tuple(self._children)))

    def __repr__(self) -> str:
        return _repr(self, 0)

    def __getstate__(self) -> tuple[Any, Context, list[TreeSpec]]:
        return self.type, self._context, self._children

    def __setstate__(self, state: tuple[Any, Context, list[TreeSpec]]) -> None:
        TreeSpec.__init__(self, *state)


def _repr(spec: TreeSpec, indent: int) -> str:
    if spec.is_leaf():
        return "*"
    inner = indent + 2
    parts = [_repr(child, inner) for child in spec._children]
    text = (",\n" + " " * inner).join(parts)
    return f"TreeSpec({spec.type.__name__}, {spec._context}, [{text}])"


class _LeafSpecType(type):
    """``LeafSpec()`` gives the one leaf; ``isinstance(spec, LeafSpec)`` asks for a leaf."""

    def __call__(cls, *args: Any, **kwargs: Any) -> TreeSpec:
        return _LEAF

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TreeSpec) and instance.is_leaf()


class LeafSpec(TreeSpec, metaclass=_LeafSpecType):
    """The structure of a leaf."""

    __module__ = PUBLIC_MODULE
    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return treespec_leaf, ()


PyTreeSpec = TreeSpec
_LEAF = object.__new__(LeafSpec)
TreeSpec.__init__(_LEAF, None, None, [])


def treespec_leaf() -> TreeSpec:
    """The structure of a leaf (always the same object)."""
    return _LEAF


treespec_leaf.__module__ = PUBLIC_MODULE  # leaves are pickled as calls of it


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple whose items have the given structures."""
    children = list(iterable)
    if not all(isinstance(child, TreeSpec) for child in children):
        raise ValueError(f"Expected a tuple of TreeSpec values, got: {children}.")
    return TreeSpec(tuple, None, children)


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict whose values have the given structures."""
    table = dict(mapping, **kwargs)
    if not all(isinstance(child, TreeSpec) for child in table.values()):
        raise ValueError(f"Expected a dictionary of TreeSpec values, got: {table}.")
    return TreeSpec(dict, list(table), table.values())


# ---- flatten, unflatten --------------------------------------------------------------------------


def _flatten(tree: PyTree, out: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    if is_leaf is not None and is_leaf(tree):
        out.append(tree)
        return _LEAF
    cls = type(tree)
    node = SUPPORTED_NODES.get(cls)
    key: Any = cls
    if node is None:
        if not issubclass(cls, tuple) or not is_namedtuple_class(cls):
            out.append(tree)
            return _LEAF
        node = SUPPORTED_NODES[namedtuple]
        key = namedtuple
    children, context = node.flatten_fn(tree)
    spec = TreeSpec.__new__(TreeSpec)
    spec.type = key
    spec._context = context
    specs = spec._children = []
    nodes = 1
    leaves = 0
    for child in children:
        # A leaf met here costs no call: most children are leaves.
        child_cls = type(child)
        if (
            is_leaf is None
            and child_cls not in SUPPORTED_NODES
            and not issubclass(child_cls, tuple)
        ):
            out.append(child)
            specs.append(_LEAF)
            nodes += 1
            leaves += 1
            continue
        child_spec = _flatten(child, out, is_leaf)
        specs.append(child_spec)
        nodes += child_spec.num_nodes
        leaves += child_spec.num_leaves
    spec.num_children = len(specs)
    spec.num_nodes = nodes
    spec.num_leaves = leaves
    return spec


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of `tree`, from left to right, and its structure.

    ``is_leaf(subtree)`` may stop the descent early.
    """
    out: list[Any] = []
    spec = _flatten(tree, out, is_leaf)
    return out, spec


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """The structure of `tree`."""
    return _flatten(tree, [], is_leaf)


def _unflatten(spec: TreeSpec, take: Callable[[], Any]) -> PyTree:
    if spec.num_nodes == 1 and spec.num_leaves == 1:
        return take()
    children = [take() if child is _LEAF else _unflatten(child, take) for child in spec._children]
    cls = spec.type
    if cls is list:
        return children
    if cls is tuple:
        return tuple(children)
    return SUPPORTED_NODES[cls].unflatten_fn(children, spec._context)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The pytree with the structure `treespec` over `leaves`; the inverse of `tree_flatten`."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            "Expected `treespec` to be an instance of PyTreeSpec but got item of type "
            f"{type(treespec)}."
        )
    return treespec.unflatten(leaves)


def _flatten_up_to(spec: TreeSpec, tree: PyTree, out: list[PyTree]) -> None:
    if spec.is_leaf():
        out.append(tree)
        return
    found = node_type(tree)
    # The three standard dictionaries may stand for each other, as long as the keys agree.
    if spec.type in STANDARD_DICT_TYPES and found in STANDARD_DICT_TYPES:
        expected = spec._context[1] if spec.type is defaultdict else spec._context
        if len(tree) != spec.num_children:
            raise ValueError(
                f"Node arity mismatch; expected {spec.num_children}, but got {len(tree)}."
            )
        if set(expected) != set(tree):
            missing = set(expected).difference(tree)
            extra = set(tree).difference(expected)
            text = f"; missing key(s): {missing}" if missing else ""
            text += f"; extra key(s): {extra}" if extra else ""
            raise ValueError(f"Node keys mismatch{text}.")
        children = [tree[key] for key in expected]
    else:
        if found != spec.type:
            raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {type(tree)!r}.")
        items, context = SUPPORTED_NODES[found].flatten_fn(tree)
        children = list(items)
        if len(children) != spec.num_children:
            raise ValueError(
                f"Node arity mismatch; expected {spec.num_children}, but got {len(children)}."
            )
        # deques differ in nothing but their bound: that is no difference in structure
        if found is not deque and context != spec._context:
            raise ValueError(
                f"Node context mismatch for node type {spec.type!r}; "
                f"expected {spec._context!r}, but got {context!r}."
            )
    for child_spec, child in zip(spec._children, children, strict=False):
        _flatten_up_to(child_spec, child, out)


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """The leaves of `tree`, one by one."""
    node = None if is_leaf is not None and is_leaf(tree) else _node(tree)
    if node is None:
        yield tree
    else:
        for child in node.flatten_fn(tree)[0]:
            yield from tree_iter(child, is_leaf)


def _collect(tree: PyTree, out: list[Any]) -> None:
    cls = type(tree)
    children: Iterable[Any]
    if cls is list or cls is tuple:
        children = tree
    elif cls is dict:
        children = tree.values()
    else:
        node = _node(tree)
        if node is None:
            out.append(tree)
            return
        children = node.flatten_fn(tree)[0]
    for child in children:
        child_cls = type(child)
        if child_cls in SUPPORTED_NODES or issubclass(child_cls, tuple):
            _collect(child, out)
        else:
            out.append(child)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of `tree`, from left to right."""
    if is_leaf is not None:
        return list(tree_iter(tree, is_leaf))
    out: list[Any] = []
    _collect(tree, out)
    return out


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of a call's arguments: positional ones, then keyword values."""
    out: list[Any] = []
    for arg in args:
        _collect(arg, out)
    for arg in kwargs.values():
        _collect(arg, out)
    return out


# ---- map -----------------------------------------------------------------------------------------


def _map(func: Callable[[Any], Any], tree: PyTree) -> PyTree:
    """One-tree map without `is_leaf`: no structure is built."""
    cls = type(tree)
    if cls is tuple:
        return tuple([_map(func, child) for child in tree])
    if cls is list:
        return [_map(func, child) for child in tree]
    if cls is dict:
        return {key: _map(func, child) for key, child in tree.items()}
    node = _node(tree)
    if node is None:
        return func(tree)
    children, context = node.flatten_fn(tree)
    return node.unflatten_fn([_map(func, child) for child in children], context)


def tree_map(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """`tree` with ``func(leaf, *rest)`` in place of each leaf.

    Each of `rests` must have the structure of `tree` as a prefix.
    """
    if not rests and is_leaf is None:
        return _map(func, tree)
    leaves, spec = tree_flatten(tree, is_leaf)
    if not rests:
        return spec.unflatten([func(leaf) for leaf in leaves])
    columns = [leaves, *[spec.flatten_up_to(rest) for rest in rests]]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=False)])


def tree_map_(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """Call ``func(leaf, *rest)`` for each leaf, drop the results, return `tree` itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for row in zip(leaves, *[spec.flatten_up_to(rest) for rest in rests], strict=False):
        func(*row)
    return tree


def _predicate(kind: Any) -> Callable[[Any], bool]:
    import types  # lazy: only for the union type `int | str`

    if isinstance(kind, (type, tuple, types.UnionType)):
        return lambda leaf: isinstance(leaf, kind)
    if callable(kind):
        return kind  # type: ignore[no-any-return]
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def map_only(
    type_or_types_or_pred: Any, /
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorator: apply the function to what has the type (or satisfies the predicate) only."""
    wanted = _predicate(type_or_types_or_pred)

    def decorate(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda leaf: func(leaf) if wanted(leaf) else leaf

    return decorate


def tree_map_only(
    type_or_types_or_pred: Any,
    /,
    func: Callable[[Any], Any],
    tree: PyTree,
    is_leaf: IsLeaf = None,
) -> PyTree:
    """`tree_map` of `func` over the leaves of a type (or of a predicate); others are kept."""
    if type(type_or_types_or_pred) is type and is_leaf is None:
        kind = type_or_types_or_pred
        return _map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree)
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any,
    /,
    func: Callable[[Any], Any],
    tree: PyTree,
    is_leaf: IsLeaf = None,
) -> PyTree:
    """`tree_map_` over the leaves of a type (or of a predicate). Returns `tree`."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` holds for some leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None
) -> bool:
    """Whether `pred` holds for every leaf of the given types."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(
    type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None
) -> bool:
    """Whether `pred` holds for some leaf of the given types."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def broadcast_to_and_flatten(
    tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None
) -> list[Any] | None:
    """The leaves of `tree`, each repeated for all leaves of `treespec` that it stands over.

    None where `tree` is not a prefix of `treespec`.
    """
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or node_type(tree) != treespec.type:
        return None
    children, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    out: list[Any] = []
    for child, child_spec in zip(children, treespec._children, strict=False):
        flat = broadcast_to_and_flatten(child, child_spec, is_leaf)
        if flat is None:
            return None
        out.extend(flat)
    return out


late.loaded("pytree")
