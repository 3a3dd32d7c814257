"""The graph as it grows: calls on fake tensors, each leaving a node."""

from __future__ import annotations

import functools
import linecache
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import sizes
from flambeau._src.capture.outcome import Unsupported
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

__all__ = ["Recorder"]


class Recorder:
    """Makes the nodes; as a function mode, for calls that native code makes on fake tensors."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.graph = Graph()
        self.inputs: list[TensorInfo] = []
        self.attributes: dict[str, Any] = {}
        self.operators: list[str] = []
        self.last_placeholder: Node | None = None
        self.sizes = SizeNodes(self.graph.create_node)
        self.told: set[str] = set()  # symbols that a placeholder's shape tells

    # ---- calls ----

    def call(
        self, target: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a function on fake tensors, and leave a node (of op call_method for a str target)."""
        session = self.session
        node_args = tuple([self.argument(a) for a in args])
        node_kwargs = {k: self.argument(v) for k, v in kwargs.items()}
        before = _versions(args)
        with session.fake_mode, state.Suspended(state.FUNCTION_MODE):
            out = session.native(run, *args, **kwargs)
        self.check_geometry(args)
        if kwargs:
            self.check_geometry(tuple(kwargs.values()))
        if type(out) is FakeTensor:
            if id(out) in session.tensors and "out" not in kwargs and before == _versions(args):
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

    def effect(self, target: Any, *args: Any) -> Node:
        """A node for its effect alone."""
        node = self.graph.create_node("call_function", target, args, {})
        self._annotate(node, None)
        self.operators.append(_name(target))
        return node

    def give(self, node: Node, out: Any) -> None:
        """The tensors of a result belong to this node, or to items of it."""
        if type(out) is FakeTensor:
            known = self.session.tensors.get(id(out))
            if known is None:
                info = TensorInfo(out, Tensor)
                info.node = node
                self.session.tensors[id(out)] = info
            return
        if isinstance(out, (tuple, list)):
            for i, item in enumerate(out):
                if isinstance(item, (tuple, list)) or (
                    type(item) is FakeTensor and id(item) not in self.session.tensors
                ):
                    child = self.graph.create_node("call_function", operator.getitem, (node, i), {})
                    self._annotate(child, item)
                    self.give(child, item)
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
        if info.node is None:
            info.node = self._placeholder(info)
        return info.node

    def number(self, value: Any) -> Any:
        """A symbolic number as an argument: the node that computes it, or the number it is."""
        for name in sizes.symbols_in(value) - self.told:
            for _, fake in self.session.sized:
                if name in {n.node.value.name for n in fake.shape if sizes.is_symbolic(n)}:
                    self.sizes.know(fake, self.node_of(fake))
                    self.told.add(name)
                    break
        return self.sizes.node(value)

    def _placeholder(self, info: TensorInfo) -> Node:
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


def _versions(values: tuple[Any, ...]) -> list[int]:
    return [
        v.untyped_storage()._version if v.is_inference() else v._version
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
