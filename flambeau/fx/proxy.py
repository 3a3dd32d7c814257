"""Proxy: a value that records what is done to it, and the tracers it records into."""

from __future__ import annotations

import inspect
import operator
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NoReturn

import flambeau as torch
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Argument, Node, Target, map_aggregate
from flambeau._src.ir.printer import INPLACE, MAGIC
from flambeau._src.ir.provenance import current

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]

_CONTROL_FLOW = "symbolically traced variables cannot be used as inputs to control flow"
_ITERATION = (
    "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as "
    "a *args or **kwargs function argument. See the torch.fx docs on pytorch.org for a more "
    "detailed explanation of what types of control flow can be traced, and check out the Proxy "
    "docstring for help troubleshooting Proxy iteration errors"
)
_LENGTH = (
    "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, "
    "please call torch.fx.wrap('len') at module scope"
)


class TraceError(ValueError):
    """What was done to a proxy cannot be recorded."""


class Scope:
    """The module whose code is being traced: its path and its type."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path = module_path
        self.module_type = module_type


class ScopeContextManager(AbstractContextManager["Scope"]):
    """Sets a tracer's scope for the time of a module's call."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._scope = scope
        self._previous = Scope(scope.module_path, scope.module_type)
        scope.module_path = current_scope.module_path
        scope.module_type = current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *error: object) -> None:
        self._scope.module_path = self._previous.module_path
        self._scope.module_type = self._previous.module_type


class TracerBase:
    """What every tracer does: make nodes, turn arguments into what a node may hold."""

    graph: Graph
    #: Keep the user's stack in ``node.stack_trace``.
    record_stack_traces: bool = False
    _record_forward_stack_traces_only: bool = False
    #: Refuse operators that change an argument.
    check_mutable_operations: bool = False
    #: Turn ``assert proxy`` into a recorded assertion.
    trace_asserts: bool = False
    #: Record reads of buffers as ``get_attr`` nodes when they happen.
    proxy_buffer_attributes: bool = False
    #: The method that is traced.
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, type]]

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node to the graph, with where it comes from in its meta."""
        if kind == "call_function" and self.check_mutable_operations:
            self._refuse_mutation(target)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        scope = getattr(self, "scope", None)
        if scope is not None:
            self.node_name_to_scope[node.name] = (scope.module_path, scope.module_type)
        if current.preserve:
            node.meta.update(current.meta)
        elif getattr(self, "module_stack", None):
            node.meta["nn_module_stack"] = self.module_stack.copy()
        if self.record_stack_traces and not node.stack_trace:
            node.stack_trace = self._user_stack()
        return node

    def _refuse_mutation(self, target: Any) -> None:
        schema = getattr(target, "_schema", None)
        if (schema is not None and getattr(schema, "is_mutable", False)) or (
            getattr(target, "__name__", "") in INPLACE
            and getattr(target, "__module__", "") == "_operator"
        ):
            raise RuntimeError(
                "Tried to trace mutable operation "
                f"{getattr(target, '__name__', target)}. FX only supports functional code, so "
                "operations that mutate operands in-place (e.g. via `out` arguments) are not "
                "supported"
            )

    def _user_stack(self) -> str:
        frames = traceback.extract_stack(sys._getframe(2))
        return "".join(traceback.format_list(self._filter_traceback_frames(frames))).strip()

    def _filter_traceback_frames(
        self, user_stack_summary: traceback.StackSummary
    ) -> traceback.StackSummary:
        """The frames of the traced code, without the tracer's own and its callers'."""
        frames = list(user_stack_summary)
        starts = [i for i, f in enumerate(frames) if f.name == "trace" and _is_fx_file(f.filename)]
        after = frames[starts[-1] + 1 :] if starts else frames
        kept = [frame for frame in after if not _is_fx_file(frame.filename)]
        if self._record_forward_stack_traces_only:
            kept = [frame for frame in kept if frame.name in ("forward", self.traced_func_name)]
        return traceback.StackSummary.from_list(kept)

    def proxy(self, node: Node) -> Proxy:
        """The proxy for a node. Override to use a class of your own."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Record an operation on proxies and values; returns the proxy of its result."""
        node_args = self.create_arg(args)
        node_kwargs = self.create_arg(kwargs)
        if not isinstance(node_args, tuple) or not isinstance(node_kwargs, dict):
            raise AssertionError("create_arg must keep a call's tuple and dict")
        node = self.create_node(kind, target, node_args, dict(node_kwargs), name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)

    def create_arg(self, a: Any) -> Argument:
        """`a` as a node's argument: proxies become their nodes, in containers too.

        NotImplementedError for a type that a graph cannot hold.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(item) for item in a]
            if hasattr(a, "_fields"):
                return type(a)(*items)
            return type(a)(items) if type(a) in _TUPLES else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            return _create_arg_dict(self, a)
        if isinstance(a, slice):
            return slice(*map(self.create_arg, (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*map(self.create_arg, (a.start, a.stop, a.step)))
        if isinstance(a, _base_types()) or a is ...:
            return a
        if hasattr(a, "_schema") and callable(a):
            return a
        import dataclasses  # lazy: it imports little, but only this rare case needs it

        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)}
            return self.create_node("call_function", a.__class__, (), fields)
        import enum  # lazy: the same

        if isinstance(a, (enum.Enum, type)):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        """What ``bool(proxy)`` means. TraceError unless overridden."""
        raise TraceError(_CONTROL_FLOW)

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What ``iter(proxy)`` means. TraceError unless overridden."""
        raise TraceError(_ITERATION)

    def keys(self, obj: Proxy) -> Any:
        """What ``proxy.keys()`` means: the recorded call, for ``**proxy``."""
        return Attribute(obj, "keys")()

    def _find_user_frame(self) -> FrameType | None:
        """The frame of the code being traced."""
        frame = inspect.currentframe()
        while frame is not None:
            if not _is_fx_file(frame.f_code.co_filename):
                return frame
            frame = frame.f_back
        return None


_TUPLES: frozenset[type] = frozenset({tuple})


def _is_fx_file(filename: str) -> bool:
    name = filename.replace("\\", "/")
    return "/fx/" in name and name.rpartition("/")[2] in _FX_FILES


_FX_FILES = frozenset({"_symbolic_trace.py", "proxy.py", "interpreter.py", "graph_module.py"})


def _create_arg_dict(tracer: TracerBase, table: dict[Any, Any]) -> dict[Any, Any]:
    out = {}
    for key, value in table.items():
        if not isinstance(key, str):
            # Keys are part of the program's text: nothing recorded may be in them.
            key = tracer.create_arg(key)
            map_aggregate(key, _no_nodes)
        out[key] = tracer.create_arg(value)
    return out


def _no_nodes(value: Any) -> Any:
    if isinstance(value, Node):
        raise RuntimeError(
            f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {value}"
        )
    return value


def _base_types() -> tuple[type, ...]:
    """What a node may hold besides nodes and containers."""
    names = ("Tensor", "dtype", "device", "layout", "memory_format", "SymInt", "SymFloat")
    found = [getattr(torch, name, None) for name in (*names, "SymBool", "Generator", "Stream")]
    kinds = [kind for kind in found if isinstance(kind, type)]
    return (str, int, float, bool, complex, type(None), bytes, *kinds)


class GraphAppendingTracer(TracerBase):
    """Adds nodes to a graph: for building one with proxies."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()
        self.node_name_to_scope = {}


class Proxy:
    """Stands for the value of a node; operations on it are recorded as new nodes.

    Works with functions that respect ``__torch_function__``, with methods, attributes and
    operators. It cannot be a condition, be iterated over (except for unpacking into a known number
    of names) or have a length: the traced program would depend on the value.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        # Recorded only when it is used: a method's lookup is not an operation.
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        import copy  # lazy: rare

        copied = {key: copy.deepcopy(self.__dict__[key], memo) for key in ("node", "tracer")}
        new = Proxy.__new__(type(self))
        new.__dict__.update(copied)
        return new

    def __copy__(self) -> Proxy:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        count = _unpack_count(caller) if caller is not None else None
        if count is not None:
            return (self[i] for i in range(count))
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts:
            frame = inspect.currentframe()
            caller = frame.f_back if frame is not None else None
            wanted = _asserted(caller) if caller is not None else None
            if wanted is not None:
                condition: Any = self
                if not wanted:
                    condition = self.tracer.create_proxy(
                        "call_function", operator.not_, (self,), {}
                    )
                self.tracer.create_proxy("call_function", _assert_fn, (condition,), {})
                return wanted
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> NoReturn:
        raise RuntimeError(_LENGTH)

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        args = args or ()
        kwargs = kwargs or {}
        tracers: dict[TracerBase, None] = {}

        def find(value: Any) -> Any:
            if isinstance(value, Proxy):
                tracers[value.tracer] = None
            return value

        map_aggregate((args, kwargs), find)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace "
                f"operations {orig_method}"
            )
        tracer = next(iter(tracers))
        if _is_tensor_method(orig_method):
            return tracer.create_proxy("call_method", _method_name(orig_method), args, kwargs)
        return tracer.create_proxy(
            "call_function",
            orig_method,
            args,
            kwargs,
            name=None if getattr(orig_method, "__name__", None) else "call",
        )


class MetaProxy(Proxy):
    """A proxy with a fake tensor, on which every recorded operation is run as well."""

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: Any = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode


class Attribute(Proxy):
    """An attribute of a proxy; a ``getattr`` is recorded when its value is needed."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            proxy = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})
            self._node = proxy.node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A proxy of a parameter: its shape is known and may be used as a number."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self) -> Any:
        return self.param.size()

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _is_tensor_method(function: Any) -> bool:
    tensor = getattr(torch, "Tensor", None)
    owner = getattr(function, "__objclass__", None)
    if owner is not None:
        return isinstance(tensor, type) and issubclass(tensor, owner)
    name = getattr(function, "__name__", None)
    if name is None or not isinstance(tensor, type) or isinstance(function, type):
        return False
    if name == "__get__":  # a property read through Tensor.__torch_function__
        return False
    return getattr(tensor, name, None) is function


def _method_name(function: Any) -> str:
    return function.__name__


def _unpack_count(frame: FrameType) -> int | None:
    """How many names ``a, b = proxy`` unpacks into, if that is what the frame is doing."""
    if frame.f_lasti < 0:
        return None
    code = frame.f_code.co_code
    import dis  # lazy: rare

    if dis.opname[code[frame.f_lasti]] == "UNPACK_SEQUENCE":
        return code[frame.f_lasti + 1]
    return None


def _asserted(frame: FrameType) -> bool | None:
    """What the frame asserts of the value it is testing; None if it is no assertion."""
    import dis  # lazy: rare

    instructions = list(dis.get_instructions(frame.f_code))
    here = next((i for i, x in enumerate(instructions) if x.offset == frame.f_lasti), None)
    if here is None:
        return None
    # The jump itself, or (3.13) the conversion or comparison before it.
    names = [x.opname for x in instructions[here : here + 3]]
    if "LOAD_ASSERTION_ERROR" not in names[1:]:
        return None
    jump = names[names.index("LOAD_ASSERTION_ERROR") - 1]
    return jump.endswith("IF_TRUE") if jump.startswith("POP_JUMP") else None


def _assert_fn(condition: Any) -> None:
    if not condition:
        raise AssertionError


def _operator_method(name: str) -> Callable[..., Proxy]:
    target = getattr(operator, name)

    def method(*args: Any, **kwargs: Any) -> Proxy:
        return args[0].tracer.create_proxy("call_function", target, args, kwargs)

    method.__name__ = f"__{name.strip('_')}__"
    return method


def _reflected_method(name: str) -> Callable[[Any, Any], Proxy]:
    target = getattr(operator, name)

    def method(self: Proxy, other: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    method.__name__ = f"__r{name.strip('_')}__"
    return method


REFLECTABLE = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "truediv",
    "mod",
    "pow",
    "matmul",
    "lshift",
    "rshift",
    "and_",
    "or_",
    "xor",
)

for _name in MAGIC:
    setattr(Proxy, f"__{_name.strip('_')}__", _operator_method(_name))
for _name in REFLECTABLE:
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected_method(_name))
# Comparison made __eq__ an operation; a proxy is still an entry of sets by identity.
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
