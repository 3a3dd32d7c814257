"""Symbolic tracing: running a function on proxies to get its graph.

Only what depends on no value can be traced this way: no branches on data, no loops over it. (The
bytecode capture behind ``compile`` has no such limits.)
"""

from __future__ import annotations

import inspect
import math
import threading
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import flambeau as torch
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Argument, Node, map_aggregate
from flambeau._src.ir.printer import PyTreeCodeGen, PyTreeInfo
from flambeau._src.util import pytree
from flambeau.fx._patching import Patcher, lookup
from flambeau.fx.graph_module import _TRACING, GraphModule
from flambeau.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from flambeau.nn import Module, Parameter

__all__ = ["PH", "PHWithMeta", "ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]

F = TypeVar("F", bound=Callable[..., Any])


class _Status(threading.local):
    tracing = False


_status = _Status()
# (id of a module's globals, name) -> the globals: functions that `wrap` marked.
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_wrapped_methods_to_patch: list[tuple[type, str]] = []
_proxyable_classes: dict[type, None] = {}


def is_fx_tracing() -> bool:
    """Whether this thread is tracing symbolically."""
    return _status.tracing


is_fx_symbolic_tracing = is_fx_tracing


class ProxyableClassMeta(type):
    """Metaclass: making an instance from proxies is recorded as a call of the class."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes[cls] = None
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        instance = cls.__new__(cls)
        if not is_fx_tracing():
            cls.__init__(instance, *args, **kwargs)  # type: ignore[misc]
            return instance
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda v: found.append(v) if isinstance(v, Proxy) else v)
        if found:
            return found[0].tracer.create_proxy("call_function", cls, args, kwargs)
        cls.__init__(instance, *args, **kwargs)  # type: ignore[misc]
        return instance


class PHBase:
    """Marks an input in `concrete_args` that stays an input."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """An input whose attributes are copied to its placeholder."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key


def _transfer_attrs(fr: Any, to: Any) -> None:
    for name in dir(fr):
        value = getattr(fr, name)
        if not callable(value) and not name.startswith("__") and not hasattr(to, name):
            setattr(to, name, value)


class Tracer(TracerBase):
    """Makes a graph of a module or function. Override its methods to trace differently.

    `autowrap_modules` are Python modules whose functions are recorded rather than run;
    `autowrap_functions` are single ones; with `param_shapes_constant` the shapes of parameters are
    numbers rather than proxies.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_function_ids: set[int] = {
            id(value)
            for module in autowrap_modules
            for name, value in module.__dict__.items()
            if not name.startswith("_") and callable(value)
        }
        self._autowrap_function_ids.update(map(id, autowrap_functions))
        self._autowrap_search: list[ModuleType] = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack: OrderedDict[str, tuple[str, Any]] = OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope: dict[str, tuple[str, type]] = {}
        self.tensor_attrs: dict[Any, str] = {}
        self._qualname_counter: dict[str, int] = defaultdict(int)
        self.root: Module

    def get_fresh_qualname(self, prefix: str) -> str:
        """An attribute name of the root that is not taken: ``prefix0``, ``prefix1``, ..."""
        i = self._qualname_counter[prefix]
        while hasattr(self.root, f"{prefix}{i}"):
            i += 1
        self._qualname_counter[prefix] = i + 1
        return f"{prefix}{i}"

    # ---- values -------------------------------------------------------------------------------

    def create_arg(self, a: Any) -> Argument:
        """`a` as a node's argument.

        Parameters, buffers and submodules of the root become ``get_attr`` nodes; another tensor
        becomes an attribute of the root.
        """
        if isinstance(a, Parameter):
            for name, parameter in self.root.named_parameters():
                if parameter is a:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, torch.Tensor):
            for name, buffer in self.root.named_buffers():
                if buffer is a:
                    return self.create_node("get_attr", name, (), {})
        elif isinstance(a, Module):
            for name, module in self.root.named_modules():
                if module is a:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            args = tuple(self.create_arg(item) for item in a)
            return self.create_node("call_function", a.__class__, args, {})
        if isinstance(a, torch.Tensor):
            return self._constant(a, "_tensor_constant")
        if type(a) in _proxyable_classes:
            return self._constant(a, f"_{a.__class__.__name__}_constant_")
        return super().create_arg(a)

    def _constant(self, value: Any, prefix: str) -> Node:
        try:
            name = self.tensor_attrs.get(value)
        except TypeError:  # cannot be hashed
            name = None
        if name is None:
            name = self.get_fresh_qualname(prefix)
            setattr(self.root, name, value)
            if value.__hash__ is not None:
                self.tensor_attrs[value] = name
        return self.create_node("get_attr", name, (), {})

    # ---- modules ------------------------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of `m` is recorded as one node rather than traced through.

        By default: the library's own layers, but not its containers.
        """
        home = m.__module__
        library = home.startswith(("flambeau.nn", "torch.nn", "flambeau.ao.nn", "torch.ao.nn"))
        return library and not isinstance(m, torch.nn.Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted path of a submodule of the root. NameError if it is none."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(
        self,
        m: Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """What a call of a submodule does: one node for a leaf, else its operations."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            count = self.num_calls.get(path, 0)
            self.num_calls[path] = count + 1
            key = f"{scope.module_path}@{count}" if count > 0 else scope.module_path
            self.module_stack[key] = (scope.module_path, scope.module_type)
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.popitem(last=True)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """What reading an attribute of a module gives: a proxy for a parameter, else its value."""
        if isinstance(attr_val, Parameter):
            found = self._proxy_of(attr_val, self.root.named_parameters(), parameter_proxy_cache)
            return attr_val if found is None else found
        if self.proxy_buffer_attributes and isinstance(attr_val, torch.Tensor):
            found = self._proxy_of(attr_val, self.root.named_buffers(), parameter_proxy_cache)
            return attr_val if found is None else found
        return attr_val

    def _proxy_of(
        self, value: Any, named: Iterator[tuple[str, Any]], cache: dict[str, Proxy]
    ) -> Proxy | None:
        for name, candidate in named:
            if candidate is not value:
                continue
            if name not in cache:
                factory = None
                if self.param_shapes_constant and isinstance(value, Parameter):

                    def factory(node: Node, name: str = name) -> Proxy:
                        return ParameterProxy(self, node, name, value)

                cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=factory)
            return cache[name]
        return None

    # ---- inputs -------------------------------------------------------------------------------

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Any, list[Any]]:
        """The function to run, and the proxies to run it on: one placeholder a parameter."""
        fn = inspect.unwrap(root_fn)
        if not isinstance(fn, FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(fn)}")
        code = fn.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames)
        original_args = names[:total]
        args: list[Any] = [self.root] if is_module else []
        first = 1 if is_module else 0
        if is_module and total == 0:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        signature = inspect.signature(fn)
        if isinstance(concrete_args, tuple):
            if len(names[first:total]) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(names[first:total])} arguments but got "
                    f"{len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(names[first:total], concrete_args, strict=True))
        for name in names[first:total]:
            args.append(self._proxy_placeholder(name, concrete_args, signature, fn))
        variadic = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if code.co_kwonlyargcount > 0 or variadic:
            rest = iter(names[total:])
            for flag, stars in ((inspect.CO_VARARGS, "*"), (inspect.CO_VARKEYWORDS, "**")):
                if code.co_flags & flag:
                    name = stars + next(rest)
                    args.append(self._proxy_placeholder(name, concrete_args, signature, fn))
            root_fn = _positional(fn, len(args))
        flat_args, in_spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in in_spec.children()):
            return root_fn, args
        codegen = PyTreeCodeGen(PyTreeInfo(original_args[:total], in_spec, None))
        self.graph._codegen = codegen

        def run_flat(*flat: Any) -> Any:
            result = root_fn(*pytree.tree_unflatten(list(flat), in_spec))
            leaves, out_spec = pytree.tree_flatten(result)
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return leaves

        return run_flat, flat_args

    def _proxy_placeholder(
        self,
        name: str,
        concrete_args: dict[str, Any] | None,
        sig: inspect.Signature,
        fn_for_analysis: Callable[..., Any],
    ) -> Any:
        parameter = None if name.startswith("*") else sig.parameters[name]
        has_default = parameter is not None and parameter.default is not inspect.Parameter.empty
        default = (parameter.default,) if has_default else ()  # type: ignore[union-attr]
        if concrete_args is not None and name in concrete_args:
            return self._concrete(name, concrete_args[name], default)
        return self.create_proxy(
            "placeholder",
            name,
            default,
            {},
            type_expr=_annotation(fn_for_analysis, name),
        )

    def _concrete(self, name: str, value: Any, default: tuple[Any, ...]) -> Any:
        count = 0

        def replace(leaf: Any) -> Any:
            nonlocal count
            count += 1
            out = self.create_proxy("placeholder", f"{name}_{count}", default, {})
            if isinstance(leaf, PHBase):
                if leaf is not PH:
                    _transfer_attrs(fr=leaf, to=out.node)
                return out
            message = f"{name} has been specialized to have value {leaf} but got another value"
            if type(leaf) is bool or type(leaf) in (int, float):
                torch._assert(out == leaf, message)
            elif leaf is None:
                self.create_proxy("call_function", _assert_is_none, (out, message), {})
            else:
                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to "
                    "specialized function. It is up to the user to make sure that your inputs "
                    "match the inputs you specialized the function with.",
                    stacklevel=2,
                )
            return leaf

        return pytree.tree_map(replace, value)

    # ---- the trace ----------------------------------------------------------------------------

    def trace(
        self,
        root: Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> Graph:
        """The graph of a module's `traced_func_name`, or of a function.

        `concrete_args` fixes inputs: by parameter, a value, or nested `PH` for what stays open.
        """
        before = _status.tracing
        _status.tracing = True
        try:
            fn = self._begin(root)
            with Patcher() as patcher:
                self._patch(patcher, fn)
                run, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
                self._collect_tensors(self.root, [])
                result = self.create_arg(run(*args))
                self.create_node(
                    "output",
                    "output",
                    (result,),
                    {},
                    # A function made to take its inputs otherwise has lost its annotations.
                    type_expr=_annotation(fn, "return") if run is fn else None,
                )
            self.submodule_paths = None
        finally:
            _status.tracing = before
        return self.graph

    def _begin(self, root: Module | Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(root, Module):
            # A graph module that is traced again is about to change: drop its lazy parts first.
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in "
                    f"{type(root).__name__}"
                )
            fn = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            self.root = Module()
            fn = root
        tracer_cls = getattr(self, "__class__", None)
        self.graph = Graph(tracer_cls=tracer_cls)
        code = getattr(fn, "__code__", None)
        if code is not None:
            self.graph._co_fields = {
                "co_name": code.co_name,
                "co_filename": code.co_filename,
                "co_firstlineno": code.co_firstlineno,
            }
        self.tensor_attrs = {}
        return fn

    def _collect_tensors(self, module: Module, path: list[str]) -> None:
        """Tensors that are plain attributes: known by name when an operation uses them."""
        for name, value in module.__dict__.items():
            if isinstance(value, torch.Tensor):
                self.tensor_attrs[value] = ".".join([*path, name])
        for name, child in module.named_children():
            self._collect_tensors(child, [*path, name])

    def _patch(self, patcher: Patcher, fn: Callable[..., Any]) -> None:
        cache: dict[str, Proxy] = {}
        original_call, original_getattr = Module.__call__, Module.__getattr__

        def module_getattr(mod: Module, attr: str) -> Any:
            return self.getattr(attr, original_getattr(mod, attr), cache)

        def module_call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return original_call(mod, *args, **kwargs)

            scope = getattr(getattr(mod, "forward", mod), "__globals__", {})
            self._autowrap(patcher, scope)
            return self.call_module(mod, forward, args, kwargs)

        patcher.attribute(Module, "__getattr__", module_getattr)
        patcher.attribute(Module, "__call__", module_call)
        for (_, name), table in _wrapped_fns_to_patch.items():
            patcher.item(table, name, _recording(lookup(table, name)))
        for owner, name in _wrapped_methods_to_patch:
            patcher.attribute(owner, name, _recording_method(owner, name))
        self._autowrap(patcher, getattr(fn, "__globals__", {}))
        for module in self._autowrap_search:
            self._autowrap(patcher, module.__dict__)

    def _autowrap(self, patcher: Patcher, table: dict[str, Any]) -> None:
        if not patcher.first_visit(table):
            return
        for name, value in list(table.items()):
            if (
                not name.startswith("_")
                and callable(value)
                and id(value) in self._autowrap_function_ids
            ):
                patcher.item(table, name, _recording(value))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        import copy  # lazy: rare

        new = type(self).__new__(type(self))
        for name, value in self.__dict__.items():
            # Searched modules cannot be copied, and need not be.
            shared = name == "_autowrap_search"
            new.__dict__[name] = list(value) if shared else copy.deepcopy(value, memo)
        return new


def _annotation(fn: Any, name: str) -> Any:
    """A parameter's annotation, as an object where it was written as text."""
    found = getattr(inspect.unwrap(fn), "__annotations__", {}).get(name)
    if not isinstance(found, str):
        return found
    try:
        found = eval(found, getattr(inspect.unwrap(fn), "__globals__", {}))
    except Exception:  # a name that exists for type checkers only
        return None
    return None if found is Any else found


def _positional(fn: FunctionType, count: int) -> FunctionType:
    """`fn` taking its `count` parameters, keyword-only and variadic ones too, by position."""
    code: CodeType = fn.__code__
    new = code.replace(
        co_argcount=count,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
    )
    return FunctionType(new, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


def _first_proxy(args: Any, kwargs: Any) -> Proxy | None:
    found: list[Proxy] = []

    def look(value: Any) -> Any:
        if isinstance(value, Proxy):
            found.append(value)
        return value

    map_aggregate((args, kwargs), look)
    return found[0] if found else None


def _recording(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that records its call where an argument is a proxy."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy(args, kwargs)
        if proxy is None:
            return original(*args, **kwargs)
        out = proxy.tracer.create_proxy("call_function", original, args, kwargs)
        out.node.meta["is_wrapped"] = True
        return out

    # Its name and text, but not __wrapped__: unwrapping must not bypass the recording.
    wrapped.__name__ = getattr(original, "__name__", "wrapped")
    wrapped.__doc__ = original.__doc__
    return wrapped


def _recording_method(owner: type, name: str) -> Callable[..., Any]:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy(args, kwargs)
        if proxy is None:
            return original(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


def wrap(fn_or_name: str | F) -> str | F:
    """Record calls of a function instead of tracing through it.

    Call it at the top level of the module in which the function is used, with the function (also
    as a decorator) or, for a builtin such as ``"len"``, its name.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """A `GraphModule` that does what `root` does.

    `concrete_args` fixes inputs to values: branches on them are then decided while tracing.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = root.__class__.__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


@wrap
def _assert_is_none(value: object, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


_TRACING.update(tracer=Tracer, open=PH)
