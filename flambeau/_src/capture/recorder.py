"""The graph as it grows: calls on fake tensors, each leaving a node."""

from __future__ import annotations

import functools
import linecache
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import arrays, sizes, wrappers
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.overriding import kind_of, overriding
from flambeau._src.capture.values.constant import ATOMS, is_structseq
from flambeau._src.capture.values.tensors import TensorInfo, placeholder_name
from flambeau._src.core import state
from flambeau._src.core.size import Size
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor
from flambeau._src.interp.function import pop_mode, push_mode
from flambeau._src.interp.size_nodes import SizeNodes
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["Held", "Recorder", "Scope"]


class Scope:
    """The graph of a body: a function given to an operator.

    `lifted`: what it uses of the program around it, and the placeholders for it, in the order of
    use; a symbolic number stands under its text. `given`: tensors that are its own arguments.
    """

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.graph = Graph()
        self.attributes: dict[str, Any] = {}
        self.sizes = SizeNodes(self.graph.create_node)
        self.told: set[str] = set()
        self.lifted: dict[Any, tuple[Any, Node]] = {}
        self.given: list[tuple[Any, int]] = []
        self.versions: dict[int, int] = {}
        self.last: Node | None = None  # the last placeholder of what is lifted

    def lift(self, key: Any, value: Any, name: str) -> Node:
        """The placeholder for a value of the program around."""
        found = self.lifted.get(key)
        if found is not None:
            return found[1]
        node = self._placeholder(value, name)
        self.lifted[key] = (value, node)
        if isinstance(value, Tensor):
            self.versions[id(value)] = value._version
        return node

    def _placeholder(self, value: Any, name: str) -> Node:
        graph = self.graph
        last = self.last
        if last is None:
            for node in graph.nodes:
                if node.op != "placeholder":
                    break
                last = node
        with graph.inserting_before(None) if last is None else graph.inserting_after(last):
            made = self.argument(name, value)
        self.last = made
        return made

    def argument(self, name: str, value: Any) -> Node:
        """A placeholder at the graph's place of insertion."""
        made = self.graph.placeholder(name)
        made.target = made.name
        made.meta["val"] = made.meta["example_value"] = value
        return made

    def arrange(self, keys: list[Any], values: dict[Any, Any]) -> None:
        """Have a placeholder for each of the keys, in their order: several bodies take the same."""
        for key in keys:
            if key not in self.lifted:
                self.lift(key, values[key], "unused")
        last: Node | None = None
        for key in reversed(keys):
            node = self.lifted[key][1]
            if last is not None:
                last.prepend(node)
            else:
                tail = [n for n in self.graph.nodes if n.op == "placeholder"][-1]
                if tail is not node:
                    tail.append(node)
            last = node
        self.lifted = {key: self.lifted[key] for key in keys}

    def outer(self) -> list[Any]:
        """Tensors that the body must leave as they are."""
        return [t for t, _ in self.lifted.values() if isinstance(t, Tensor)] + [
            t for t, _ in self.given
        ]

    def is_written(self, t: Any) -> bool:
        """Whether the body wrote the tensor."""
        before = self.versions.get(id(t))
        if before is None:
            before = next(v for g, v in self.given if g is t)
        return bool(t._version != before)

    def made(self, info: TensorInfo) -> bool:
        """Whether the tensor was computed by the body."""
        return info.node is not None and info.node.graph is self.graph

    def encloses(self, node: Node) -> bool:
        """Whether a node stands in the program around the body."""
        scope = self.parent
        while scope is not None:
            if node.graph is scope.graph:
                return True
            scope = scope.parent
        return False


class Held:
    """What only nodes pass on: a result that is no tensor, and cannot leave the graph."""


class Recorder:
    """Makes the nodes; as a function mode, for calls that native code makes on fake tensors."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.inputs: list[TensorInfo | sizes.NumberInfo] = []
        self.operators: list[str] = []
        self.last_placeholder: Node | None = None
        self.modules: dict[int, str] = {}  # bodies of operators, by identity
        self.held: dict[int, tuple[Held, Node]] = {}  # by identity
        self._enter(Scope(None))

    def _enter(self, scope: Scope) -> None:
        self.current = scope
        self.graph, self.attributes = scope.graph, scope.attributes
        self.sizes = scope.sizes
        self.told = scope.told  # symbols that a placeholder's shape tells

    @contextmanager
    def within(self, scope: Scope) -> Iterator[None]:
        """Within it that body is recorded further."""
        outer = self.current
        self._enter(scope)
        try:
            yield
        finally:
            self._enter(outer)

    @contextmanager
    def scope(self) -> Iterator[Scope]:
        """Within it a body is recorded."""
        outer = self.current
        made = Scope(outer)
        self._enter(made)
        try:
            yield made
        finally:
            self._enter(outer)

    # ---- calls ----

    def call(
        self, target: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        whole: bool = False,
    ) -> Any:  # fmt: skip
        """Run a function on fake tensors, and leave a node (of op call_method for a str target).

        `whole`: it makes a tensor of others.
        """
        session = self.session
        if asked := overriding(session, args, kwargs):
            kind = kind_of(session, asked[0])
            raise Unsupported(f"A {kind.__name__} meets {_name(target)}, which does not ask it.")
        if arrays.has_scalar(args) or (kwargs and arrays.has_scalar(kwargs)):
            args, kwargs = arrays.as_numbers(session, target, run, args, kwargs)
        node_args = tuple([self.argument(a) for a in args])
        node_kwargs = {k: self.argument(v) for k, v in kwargs.items()}
        before = _changeable(args)
        if whole or wrappers.among(session, args, kwargs):
            out = wrappers.run(session, run, args, kwargs)
        else:
            with session.fake_mode, state.Suspended(state.FUNCTION_MODE):
                out = session.native(run, *args, **kwargs)
        self.check_geometry(args)
        if kwargs:
            self.check_geometry(tuple(kwargs.values()))
        if type(out) is FakeTensor:
            if id(out) in session.tensors and "out" not in kwargs and before == _changeable(args):
                return out  # an argument itself: `contiguous`, `to` that has nothing to do
        elif out is not None and not _has_tensor(out):
            return out  # a fact: nothing that has to be computed
        op = "call_method" if type(target) is str else "call_function"
        node = self.graph.create_node(op, target, node_args, node_kwargs)
        self._annotate(node, out)
        self.operators.append(target if type(target) is str else _name(target))
        self.give(node, out)
        return out

    def method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the tensor `args[0]`."""
        return self.call(name, getattr(type(args[0]), name), args, kwargs)

    def read(self, t: Any, number: Any) -> None:
        """The tensor's one value is this number, which only running will tell."""
        if not self.sizes.has(number):
            node = self.graph.create_node("call_method", "item", (self.node_of(t),), {})
            self._annotate(node, number)
            self.operators.append("item")
            self.sizes.bind(number, node)

    def effect(self, target: Any, *args: Any) -> Node:
        """A node for its effect alone."""
        return self.node(target, args, {}, None)

    def node(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Node:
        """A node of a function whose result is known."""
        node = self.graph.create_node("call_function", target, args, kwargs)
        self._annotate(node, out)
        self.operators.append(_name(target))
        return node

    def item(self, node: Node, i: int, out: Any) -> Node:
        """A node for an item of another one's result."""
        child = self.graph.create_node("call_function", operator.getitem, (node, i), {})
        self._annotate(child, out)
        return child

    def give(self, node: Node, out: Any) -> None:
        """The tensors of a result belong to this node, or to items of it."""
        if type(out) is FakeTensor:
            known = self.session.tensors.get(id(out))
            if known is None:
                if out._sym is not None:
                    self.sizes.know(out, node, unbacked=True)
                kind, made_of = self.session.pending_kinds.pop(id(out), (Tensor, None))
                info = TensorInfo(out, kind)
                info.made_of = made_of
                info.node = node
                self.session.tensors[id(out)] = info
            return
        if isinstance(out, (tuple, list)):
            for i, item in enumerate(out):
                if isinstance(item, (tuple, list)) or (
                    type(item) is FakeTensor and id(item) not in self.session.tensors
                ):
                    self.give(self.item(node, i, item), item)
                elif isinstance(item, Held):
                    self.held[id(item)] = (item, self.item(node, i, item))
            return
        if isinstance(out, dict) or (isinstance(out, Tensor) and type(out) is not FakeTensor):
            raise Unsupported(f"A call gave a {type(out).__name__}, which no graph holds.")

    def _annotate(self, node: Node, out: Any) -> None:
        node.meta["val"] = node.meta["example_value"] = out
        frame = self.session.frame
        if frame is not None:
            node.meta["stack_trace"] = frame.trace_text()

    # ---- arguments ----

    def node_of(self, fake: Any) -> Node:
        """The node of a tensor; an input's placeholder is made when it is first used."""
        if sizes.is_symbolic(fake):
            found: Node = self.number(fake)
            return found
        info = self.session.tensors.get(id(fake))
        if info is None:
            raise Unsupported("A tensor was made where the capture did not see it.")
        scope = self.current
        if info.node is None and "data" in info.attrs:
            raise Unsupported("A tensor that requires gradients is used after its `data` was set.")
        if info.node is not None and self._is_here(info.node, "A tensor"):
            return info.node
        if scope.parent is not None:
            name = placeholder_name(info.source) if info.source is not None else "child"
            return scope.lift(id(fake), fake, name)
        info.node = self._placeholder(info)
        return info.node

    def _is_here(self, node: Node, what: str) -> bool:
        """Whether the node stands in the current graph, not in one around it."""
        if node.graph is self.graph:
            return True
        if not self.current.encloses(node):
            raise Unsupported(
                f"{what} that a function given to an operator computes is used outside of it.",
                "Return it from the function.",
            )
        return False

    def _held(self, value: Held) -> Node:
        node = self.held[id(value)][1]
        if self._is_here(node, "What"):
            return node
        return self.current.lift(id(value), value, "held")

    def number(self, value: Any) -> Any:
        """A symbolic number as an argument: the node that computes it, or the number it is."""
        missing = sizes.symbols_in(value) - self.told
        if self.current.parent is not None and missing:
            return self.current.lift(str(value), value, "s")
        for info in self.session.numbers.values():
            name = info.fake.node.value.name
            if name in missing:
                info.node = self._placeholder(info)
                self.sizes.bind(info.fake, info.node)
                self.told.add(name)
        for name in missing - self.told:
            for _, fake in self.session.sized:
                if name in {n.node.value.name for n in fake.shape if sizes.is_symbolic(n)}:
                    self.sizes.know(fake, self.node_of(fake))
                    self.told.add(name)
                    break
        return self.sizes.node(value)

    def _placeholder(self, info: TensorInfo | sizes.NumberInfo) -> Node:
        graph = self.graph
        if info.source is None:
            raise Unsupported("A tensor was made where the capture did not see it.")
        last = self.last_placeholder
        with graph.inserting_before(None) if last is None else graph.inserting_after(last):
            node = graph.placeholder(placeholder_name(info.source))
        self.last_placeholder = node
        node.meta["val"] = node.meta["example_value"] = info.fake
        node.meta["tensor_dict"] = {}
        self.inputs.append(info)
        return node

    def argument(self, value: Any) -> Any:
        """A value as an argument of a node."""
        kind = type(value)
        if kind is FakeTensor:
            return self.node_of(value)
        if kind in sizes.SYMBOLIC:
            return self.number(value)
        if kind is Size:
            return tuple([self.argument(v) for v in value])
        if kind in ATOMS:
            return value
        if isinstance(value, Held):
            return self._held(value)
        if kind is list or kind is tuple:
            return kind([self.argument(v) for v in value])
        if kind is dict:
            return {k: self.argument(v) for k, v in value.items()}
        if kind is slice:
            return slice(
                self.argument(value.start), self.argument(value.stop), self.argument(value.step)
            )
        if isinstance(value, (int, float, str)):  # a subclass, such as an enum's member
            return next(b(value) for b in (int, float, str) if isinstance(value, b))
        if isinstance(value, tuple) and is_structseq(kind):
            return kind([self.argument(v) for v in value])
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*[self.argument(v) for v in value])
        if kind.__name__ in ("layout", "memory_format") or isinstance(value, type):
            return value
        if id(value) in self.modules:
            return self.graph.create_node("get_attr", self.modules[id(value)], (), {})
        raise Unsupported(
            f"A {kind.__name__} is an argument of an operator.",
            "Pass tensors, numbers, strings and containers of them.",
        )

    def check_geometry(self, values: tuple[Any, ...]) -> None:
        """Refuse operators that gave an outside tensor another shape, dtype or history."""
        tensors = self.session.tensors
        for v in values:
            if type(v) is FakeTensor:
                info = tensors.get(id(v))
                if info is not None and info.real is not None:
                    now = (tuple(v.shape), v.stride(), v.dtype, v.requires_grad)
                    if now[:3] != info.meta[:3]:
                        raise Unsupported("An outside tensor gets another geometry or dtype.")

    # ---- the net: what native code does to fake tensors ----

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__" or name in _FACTS:
            return func(*args, **(kwargs or {}))
        return self.call(func, func, args, kwargs or {})

    def watch(self, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Run native code that may meet fake tensors: the operators that it calls are recorded."""
        push_mode(self)
        try:
            with self.session.fake_mode:
                return self.session.native(fn, *args, **kwargs)
        finally:
            pop_mode()


_FACTS = frozenset(
    ("size", "dim", "stride", "numel", "__len__", "__hash__", "is_contiguous", "element_size")
    + ("storage_offset", "is_floating_point", "is_complex", "nelement", "ndimension", "get_device")
)


def _has_tensor(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    if isinstance(value, (tuple, list)):
        return any(_has_tensor(v) for v in value)
    if isinstance(value, dict):
        return any(_has_tensor(v) for v in value.values())
    return False


def _changeable(values: tuple[Any, ...]) -> list[tuple[int, bool]]:
    """What a call that returns its argument may have changed: its bytes, whether it records."""
    return [
        (v.untyped_storage()._version if v.is_inference() else v._version, v.requires_grad)
        for v in values
        if type(v) is FakeTensor
    ]


def _name(target: Any) -> str:
    return getattr(target, "__name__", None) or str(target)


@functools.lru_cache(maxsize=4096)
def trace_text(file: str, line: int, function: str) -> str:
    """A place in the user's program, as nodes carry it."""
    text = linecache.getline(file, line).strip()
    return f'  File "{file}", line {line}, in {function}\n    {text}'
