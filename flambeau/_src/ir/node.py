"""Node: one operation of a captured graph.

A node knows its graph, its neighbours in the list, its arguments and who uses it; assigning
``args``, ``kwargs`` keeps the users' record right. It holds no behaviour beyond that: printing is
in `printer`, checking in `verify`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau._src.ir.immutable import immutable_dict, immutable_list
from flambeau._src.ir.names import qualified_name, type_repr
from flambeau._src.ir.text import tensor_text

if TYPE_CHECKING:
    from flambeau._src.ir.graph import Graph

__all__ = ["LEGAL_OPS", "Node", "has_side_effect", "map_aggregate", "map_arg", "side_effectful"]

Target = Callable[..., Any] | str
Argument = Any

LEGAL_OPS = frozenset(
    {"placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root"}
)

#: Functions that dead code elimination must keep although nobody uses their result.
side_effectful: set[Callable[..., Any]] = set()

# Distance between the order numbers of neighbours: room for insertions before renumbering.
_ORDER_STEP = 1 << 20


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: calls of `fn` are kept in a graph even when their results are unused."""
    side_effectful.add(fn)
    return fn


class Node:
    """One operation: ``op`` says how ``target`` is meant.

    ``placeholder`` (target: the argument's name; ``*name`` and ``**name`` for the rest),
    ``get_attr`` (dotted path in the owning module), ``call_function`` (a callable),
    ``call_method`` (a method's name; the object is the first argument), ``call_module`` (dotted
    path), ``output`` (its one argument is what the graph returns).

    ``users`` maps the nodes that use this one to None, in order of first use. ``meta`` is a free
    dictionary: ``val`` (a fake tensor or number), ``stack_trace``, ``nn_module_stack``, ...
    """

    __module__ = "flambeau.fx.node"
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_args",
        "_erased",
        "_input_nodes",
        "_kwargs",
        "_next",
        "_order",
        "_prev",
        "graph",
        "meta",
        "name",
        "op",
        "target",
        "type",
        "users",
    )

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = {name!r}] target {target} has type "
                    f"{type_repr(type(target))} but a Callable is expected"
                )
        elif op not in LEGAL_OPS:
            raise AssertionError(f"Invalid op: {op}")
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = {name!r}] target {target} has type "
                f"{type_repr(type(target))} but a str is expected"
            )
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.users: dict[Node, None] = {}
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self
        self._next = self
        self._erased = False
        self._order = 0
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._set_arguments(args, kwargs)

    # ---- the list -----------------------------------------------------------------------------

    @property
    def next(self) -> Node:
        """The following node (the graph's root after the last)."""
        return self._next

    @property
    def prev(self) -> Node:
        """The preceding node (the graph's root before the first)."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x`, a node of the same graph, to just before this one."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x
        low = before._order
        # The root stands at both ends, with order 0.
        high = self._order if self.op != "root" else low + 2 * _ORDER_STEP
        x._order = (low + high) // 2
        if x._order in (low, high):
            self.graph._renumber(_ORDER_STEP)

    def append(self, x: Node) -> None:
        """Move `x`, a node of the same graph, to just after this one."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        before, after = self._prev, self._next
        before._next, after._prev = after, before

    _remove_from_list = _unlink

    def _lower(self, other: Node) -> bool:
        if self.graph is not other.graph:
            raise AssertionError("nodes of different graphs have no order")
        return self._order < other._order

    def __lt__(self, other: Node) -> bool:
        return self._lower(other)

    def __gt__(self, other: Node) -> bool:
        return other._lower(self)

    def __le__(self, other: Node) -> bool:
        return self is other or self._lower(other)

    def __ge__(self, other: Node) -> bool:
        return self is other or other._lower(self)

    # ---- arguments ----------------------------------------------------------------------------

    @property
    def args(self) -> tuple[Argument, ...]:
        """Positional arguments; nodes stand anywhere in tuples, lists, dicts and slices."""
        return self._args

    @args.setter
    def args(self, value: tuple[Argument, ...]) -> None:
        self._set_arguments(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """Keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Argument]) -> None:
        self._set_arguments(self._args, value)

    def _set_arguments(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        inputs: dict[Node, None] = {}

        def use(node: Node) -> Node:
            inputs[node] = None
            node.users[self] = None
            return node

        self._args = map_arg(args, use)
        self._kwargs = map_arg(kwargs, use)
        self._input_nodes = inputs

    _update_args_kwargs = _set_arguments

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in the arguments, each once, in order of first appearance."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace the positional argument `idx`."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Insert a positional argument before index `idx`."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError(
                f"insert_args index must be between 0 and len(self.args), got {idx}"
            )
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Set the keyword argument `key`."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use `new_input` wherever the arguments hold `old_input`."""
        self.graph._replaced(old_input, new_input, self)
        self._swap(old_input, new_input)

    _replace_input_with = replace_input_with

    def _swap(self, old: Node, new: Node) -> None:
        def other(node: Node) -> Node:
            return new if node is old else node

        self._set_arguments(map_arg(self._args, other), map_arg(self._kwargs, other))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Make the users of this node (those that `delete_user_cb` accepts) use another.

        Returns the users that were changed. With `propagate_meta`, ``meta`` is copied over, and
        the other node must have none.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but "
                    "replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = []
        for user in list(self.users):
            if delete_user_cb is not None and not delete_user_cb(user):
                continue
            changed.append(user)
            if replace_with is not self:
                self.graph._replaced(self, replace_with, user)
                user._swap(self, replace_with)
        return changed

    # ---- what it is ---------------------------------------------------------------------------

    @property
    def stack_trace(self) -> str | None:
        """The user's stack when the operation was recorded, or None."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node must stay although nothing uses it.

        Placeholders and outputs, functions with side effects, operators that change an argument,
        modules that say so, and (with `impure_random`) operators that draw random numbers.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            schema = getattr(self.target, "_schema", None)
            if schema is not None and (
                getattr(schema, "is_mutable", False) or not getattr(schema, "returns", True)
            ):  # an operator that gives nothing acts by being called
                return True
            if impure_random and _draws_random_numbers(self.target):
                return True
            return self.target in side_effectful or (
                getattr(self.target, "__name__", None) in _EFFECTS and _is_library(self.target)
            )
        if self.op == "call_module":
            owner = self.graph.owning_module
            if owner is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            module = owner.get_submodule(self.target)
            return getattr(module, "_is_impure", False)
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """``(args, kwargs)`` in the order of the target's signature, or None where it has none.

        Parameters without a default are positional unless `normalize_to_only_use_kwargs`. `root` is
        the module in which ``call_module`` targets are looked up.
        """
        from flambeau._src.ir.arguments import normalize  # lazy: it imports inspect, 3 ms

        return normalize(self, root, normalize_to_only_use_kwargs)

    # ---- text ---------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return self.name

    def _pretty_print_target(self, target: Any) -> str:
        """The target as ``print(graph)`` shows it: a dotted name."""
        if isinstance(target, str):
            return target
        module = getattr(target, "__module__", None)
        name = getattr(target, "__name__", None)
        if module == "builtins" and name:
            return f"builtins.{name}"
        if module == "_operator" and name:
            return f"operator.{name}"
        return qualified_name(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """One line: ``%add : [num_users=1] = call_function[target=...](args = ..., kwargs = ...)``.

        Names of placeholders are appended to `placeholder_names`, and the output's type is written
        into ``maybe_return_typename[0]``, where these are given.
        """
        if self.op == "output":
            if self.type is not None and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_repr(self.type)}"
            return f"return {self.args[0]}"
        kind = f"{type_repr(self.type)} " if self.type is not None else ""
        if include_tensor_metadata:
            text = tensor_text(self.meta.get("val"), stride=True, device=True)
            kind = f'Tensor "{text}"' if text else kind
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            if placeholder_names is not None:
                annotation = f": {type_repr(self.type)}" if self.type is not None else ""
                placeholder_names.append(f"{self.target}{annotation}")
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}[target={self.target}]{default}"
        head = f"{head}[target={self._pretty_print_target(self.target)}]"
        if self.op == "get_attr":
            return head
        return f"{head}(args = {_text(self.args)}, kwargs = {_text(self.kwargs)})"

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate)

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self.graph, self.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        # A node is a place in its graph: a copy of the graph knows which one of its own it is.
        import copy  # lazy: rare

        if id(self) not in memo:
            copy.deepcopy(self.graph, memo)
        copied: Node = memo.get(id(self), self)
        return copied

    def __copy__(self) -> Node:
        return self


def _find(graph: Graph, name: str) -> Node:
    return next(node for node in graph.nodes if node.name == name)


def _draws_random_numbers(target: Any) -> bool:
    if getattr(target, "_nondeterministic_seeded", False):
        return True
    return any(getattr(tag, "name", tag) == "nondeterministic_seeded" for tag in _tags(target)) or (
        getattr(target, "__name__", None) in _RANDOM_FUNCTIONS and _is_library(target)
    )


def _tags(target: Any) -> Iterator[Any]:
    tags = getattr(target, "tags", ())
    return iter(tags) if isinstance(tags, (tuple, list, set, frozenset)) else iter(())


#: The library's functions that act by being called.
_EFFECTS = frozenset(
    {"_assert", "_assert_async", "_enter_autocast", "_exit_autocast"}
    | {"manual_seed", "get_rng_state", "set_rng_state"}
)
_RANDOM_FUNCTIONS = frozenset(
    {"bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint"}
    | {"randint_like", "randn", "randn_like", "randperm"}
)


def _is_library(target: Any) -> bool:
    try:
        return qualified_name(target).startswith("torch.")
    except RuntimeError:
        return False


def _text(arg: Argument) -> str:
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if isinstance(arg, list):
        return "[" + ", ".join(map(_text, arg)) + "]"
    if isinstance(arg, tuple):
        inside = ", ".join(map(_text, arg))
        return f"({inside},)" if len(arg) == 1 else f"({inside})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{key}: {_text(value)}" for key, value in arg.items()) + "}"
    return str(arg)


# ---- walking over arguments ----------------------------------------------------------------------


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """`a` with ``fn(node)`` in place of every node in it; other leaves stay."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


_LEAVES = frozenset((Node, int, float, bool, str, type(None)))  # the most frequent, to save time


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """`a` with ``fn(leaf)`` in place of every leaf; lists and dicts become immutable."""
    if type(a) in _LEAVES:
        return fn(a)
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else _rebuilt(a, items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(
            map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn)
        )
    return fn(a)


def _rebuilt(original: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """A tuple of `items`; the original where nothing changed, so that a Size stays one."""
    if all(map(operator.is_, original, items)):
        return original
    return tuple(items)
