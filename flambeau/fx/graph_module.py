"""GraphModule: a module whose forward is generated from a graph."""

from __future__ import annotations

import contextlib
import copy
import itertools
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import flambeau as torch
from flambeau._src.ir.graph import Graph
from flambeau._src.ir.node import Node
from flambeau._src.ir.printer import BUILTINS, PythonCode, PyTreeCodeGen
from flambeau.nn import Module, Parameter

__all__ = ["GraphModule", "reduce_graph_module", "reduce_package_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_REMINDER = "# To see more debug info, please use `graph_module.print_readable()`"
_counter = itertools.count()
# Rebuilding a pickled module traces its code; the tracer makes graph modules, and so stands above
# this module. It enters itself here: "tracer" and "open", the mark of an input that stays open.
_TRACING: dict[str, Any] = {}


# ---- running generated text ----------------------------------------------------------------------


def _exec_with_source(
    src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None
) -> None:
    """Run `src` under a file name that tracebacks and debuggers can show the lines of."""
    key = f"<eval_with_key>.{next(_counter)}"
    if co_fields and "co_filename" in co_fields:
        key += (
            f" from {co_fields['co_filename']}:{co_fields['co_firstlineno']} in "
            f"{co_fields['co_name']}"
        )
    # No time stamp: linecache then keeps the entry without looking for a file.
    linecache.cache[key] = (len(src), None, src.splitlines(keepends=True), key)
    exec(compile(src, key, "exec", dont_inherit=True), globals)


def _forward_from_src(
    src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None
) -> Callable[..., Any]:
    return _method_from_src("forward", src, globals, co_fields)


def _method_from_src(
    method_name: str, src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None
) -> Callable[..., Any]:
    own = dict(globals)
    _exec_with_source(src, own, co_fields)
    function = own.pop(method_name)
    function.__globals__.pop(method_name, None)
    return function


def _root_import() -> str:
    """How a written file imports the library: as torch where it goes by that name."""
    aliased = sys.modules.get("torch") is torch
    return "torch" if aliased else "flambeau"


def _format_import_statement(name: str, obj: Any) -> str:
    if name in BUILTINS:
        text = BUILTINS[name].import_str
        if _root_import() == "torch":
            return text.replace("import flambeau as torch", "import torch").replace(
                "flambeau", "torch"
            )
        return text
    if isinstance(obj, type(sys)):
        return f"import {obj.__name__} as {name}"
    module = obj.__module__
    module = "operator" if module == "_operator" else module
    return f"from {module} import {getattr(obj, '__name__', name)} as {name}"


def _format_import_block(globals: dict[str, Any]) -> str:
    lines = {_format_import_statement(name, obj) for name, obj in globals.items()}
    return "\n".join(sorted(lines))


# ---- attributes by dotted path -------------------------------------------------------------------


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give `to_module` what `from_module` has at a dotted path, with the modules on the way."""
    *prefix, field = target.split(".")
    for item in prefix:
        f = getattr(from_module, item)
        t = getattr(to_module, item, None)
        if f is t:  # shared from here on: nothing to copy
            return
        if t is None:
            t = Module()
            setattr(to_module, item, t)
        from_module, to_module = f, t
    original = getattr(from_module, field)
    if field in from_module._buffers and isinstance(original, torch.Tensor):
        persistent = field not in from_module._non_persistent_buffers_set
        to_module.register_buffer(field, original, persistent=persistent)
        return
    setattr(to_module, field, original)


def _assign_attr(from_obj: Any, to_module: Module, target: str) -> None:
    """Put a value at a dotted path of `to_module`; a tensor that is no parameter as a buffer."""
    *prefix, field = target.split(".")
    for item in prefix:
        t = getattr(to_module, item, None)
        if t is None:
            t = Module()
            setattr(to_module, item, t)
        to_module = t
    plain = isinstance(from_obj, torch.Tensor) and not isinstance(from_obj, Parameter)
    if plain and (not hasattr(to_module, field) or field in to_module._buffers):
        to_module.register_buffer(field, from_obj)
        return
    setattr(to_module, field, from_obj)


def _get_attr(model: Module, attr_name: str) -> Any:
    found: Any = model
    for part in attr_name.split("."):
        found = getattr(found, part)
    return found


def _del_attr(model: Module, attr_name: str) -> None:
    *prefix, field = attr_name.split(".")
    delattr(_get_attr(model, ".".join(prefix)) if prefix else model, field)


def _has_attr(model: Module, attr_name: str) -> bool:
    found: Any = model
    for part in attr_name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


# ---- pickling ------------------------------------------------------------------------------------


class _CodeOnlyModule(Module):
    """A module with a given dictionary: what a saved graph module is rebuilt from."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def reduce_graph_module(body: dict[str, Any], import_block: str) -> Module:
    """Rebuild a pickled graph module from its attributes and its code."""
    code = body.get("_code") or body.get("code")
    scope: dict[str, Any] = {}
    _exec_with_source(_import_here(import_block), scope)
    forward = _forward_from_src(str(code), scope)
    return _deserialize_graph_module(forward, body)


def reduce_package_graph_module(
    importer: Any, body: dict[str, Any], generated_module_name: str
) -> Module:
    """Rebuild a graph module from a package: its forward is a function of a saved module."""
    forward = importer.import_module(generated_module_name).forward
    return _deserialize_graph_module(forward, body)


def _import_here(import_block: str) -> str:
    """A block of imports, reading the names that PyTorch wrote as ours."""
    if sys.modules.get("torch") is torch:
        return import_block
    lines = []
    for line in import_block.split("\n"):
        words = line.split()
        if line.strip() == "import torch":
            line = "import flambeau as torch"
        elif words[:1] in (["from"], ["import"]) and words[1].partition(".")[0] == "torch":
            line = line.replace(" torch", " flambeau", 1)
        lines.append(line)
    return "\n".join(lines)


def _deserialize_graph_module(
    forward: Callable[..., Any], body: dict[str, Any], graph_module_cls: type | None = None
) -> Module:
    _CodeOnlyModule.forward = forward  # type: ignore[method-assign]
    tracer_cls = body.get("_tracer_cls") or _TRACING["tracer"]
    name = body.get("_graphmodule_cls_name", "GraphModule")

    class KeepModules(tracer_cls):  # type: ignore[misc, valid-type]
        # The code was generated from a graph: its calls of modules are that graph's nodes.
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    module = _CodeOnlyModule(body)
    codegen = body.pop("_saved_codegen", None)
    extras = body.get("_tracer_extras") or {}
    graph = KeepModules().trace(module, **extras)
    graph._tracer_cls = tracer_cls
    if codegen is not None:
        graph._codegen = codegen
    result = (graph_module_cls or GraphModule)(module, graph, class_name=name)
    # Only what the graph refers to was taken over: keep the rest too.
    for key, value in body.items():
        if not hasattr(result, key):
            setattr(result, key, value)
    return result


# ---- the module ----------------------------------------------------------------------------------


class _WrappedCall:
    """Calls a graph module; an error in generated code is reported with the code around it."""

    def __init__(self, cls: type, cls_call: Callable[..., Any] | None) -> None:
        self.cls = cls
        self.cls_call = cls_call

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.cls_call is not None:
                return self.cls_call(obj, *args, **kwargs)
            return super(self.cls, obj).__call__(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            frame = _generated_frame(traceback.extract_tb(error.__traceback__))
            if frame is None:
                raise
            print(self._report(frame), file=sys.stderr)
            raise error.with_traceback(None) from None

    @staticmethod
    def _report(frame: traceback.FrameSummary) -> str:
        line = frame.lineno or 0
        lines = linecache.getlines(frame.filename)
        before = "".join(lines[max(line - 2, 0) : line])
        after = "".join(lines[line : line + 2])
        return (
            f"{traceback.format_exc()}\n"
            f"Call using an FX-traced Module, line {line} of the traced Module's generated "
            f"forward function:\n{before}\n{'~' * 28} <--- HERE\n{after}\n"
        )


def _generated_frame(frames: list[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The line of generated code that failed: the last frame, the library's own set aside."""
    library = os.path.dirname(__file__).rpartition(os.sep)[0] + os.sep
    while frames and frames[-1].filename.startswith(library):
        frames.pop()
    return frames[-1] if frames and "eval_with_key" in frames[-1].filename else None


class GraphModule(Module):
    """A module generated from a graph.

    `root` provides what the graph refers to: a module, or a dict from dotted paths to modules and
    tensors. Assigning ``graph``, or changing it and calling `recompile`, renews ``forward`` and
    ``code``.
    """

    __jit_unused_properties__ = ["graph", "_boxed_call"]

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # Every instance has a class of its own, because forward is an attribute of the class.
        for base in cls.__mro__:
            if base.__qualname__ == "GraphModule.__new__.<locals>.GraphModuleImpl":
                continue
            cls = base
            break

        class GraphModuleImpl(cls):  # type: ignore[misc, valid-type]
            pass

        return super().__new__(GraphModuleImpl)

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        self.__class__.__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, str(node.target))
        elif isinstance(root, dict):
            self._take_from_dict(root, graph)
        else:
            raise RuntimeError("Unsupported type " + str(root) + " passed for root!")
        self._tracer_cls = None
        if graph._tracer_cls and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}
        self._replace_hooks: list[Callable[..., object]] = []
        self._create_node_hooks: list[Callable[[Node], object]] = []
        self._erase_node_hooks: list[Callable[[Node], object]] = []
        self._deepcopy_hooks: list[Callable[[GraphModule], object]] = []
        self.graph = graph

    def _take_from_dict(self, root: dict[str, Any], graph: Graph) -> None:
        targets = []
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not "
                        "provided in ``root``!"
                    )
                targets.append(str(node.target))
        # Outer paths first: a given module must not replace one made for an inner path.
        for target in sorted(targets, key=lambda path: path.count(".")):
            _assign_attr(root[target], self, target)

    # ---- graph and code -----------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph that forward is generated from."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The generated source."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    @property
    def _boxed_call(self) -> bool:
        return type(self._graph._codegen).__name__ == "BoxedCodeGen"

    def recompile(self) -> PythonCode:
        """Generate ``forward`` and ``code`` from the graph; call it after changing the graph."""
        codegen = self._graph._codegen
        if isinstance(codegen, PyTreeCodeGen):
            self._in_spec = codegen.pytree_info.in_spec
            self._out_spec = codegen.pytree_info.out_spec
        code = self._graph.python_code(root_module="self")
        self._code = code.src
        self._lineno_map = code._lineno_map
        self._prologue_start = code._prologue_start
        cls = type(self)
        fields = getattr(self._graph, "_co_fields", {})
        cls.forward = _forward_from_src(self._code, code.globals, fields)  # type: ignore
        if "_wrapped_call" not in vars(cls):
            # A __call__ that the class defines itself is kept.
            cls._wrapped_call = _WrappedCall(cls, vars(cls).get("__call__"))

        def call_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self._wrapped_call(self, *args, **kwargs)

        cls.__call__ = call_wrapped  # type: ignore[method-assign]
        return code

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """The generated code with shapes and the user's lines, nested graph modules included."""
        options = {
            "include_stride": include_stride,
            "include_device": include_device,
            "colored": colored,
            "expanded_def": expanded_def,
            "additional_meta": additional_meta,
        }
        output = _readable(self, self._get_name(), options)
        if print_output:
            print(output)
        return output

    def __str__(self) -> str:
        return "\n".join([super().__str__(), self._code, _REMINDER])

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write the module as a Python package: ``module.py`` and its tensors.

        Importing it needs the library and the folder, but not the classes that were traced.
        """
        from flambeau.fx._to_folder import write  # lazy: rare

        write(self, folder, module_name, _format_import_block)

    # ---- submodules ---------------------------------------------------------------------------

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put `m` at a dotted path. False where something that is no module is in the way."""
        *prefix, field = target.split(".")
        place: Module = self
        for item in prefix:
            child = getattr(place, item, None)
            if child is None:
                child = Module()
                setattr(place, item, child)
            if not isinstance(child, Module):
                return False
            place = child
        place.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a dotted path. False if there is none."""
        *prefix, field = target.split(".")
        place: Any = self
        for item in prefix:
            place = getattr(place, item, None)
            if not isinstance(place, Module):
                return False
        if not isinstance(getattr(place, field, None), Module):
            return False
        delattr(place, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the submodules that the graph neither calls nor reads from."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = str(node.target).split(".")
            used.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
            if node.op == "call_module":
                with contextlib.suppress(AttributeError):
                    inner = self.get_submodule(str(node.target)).named_modules()
                    used.update(f"{node.target}.{name}" for name, _ in inner if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ---- copying ------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.__dict__.copy()
        graph = state.pop("_graph")
        code = graph.python_code(root_module="self")
        state["_graphmodule_cls_name"] = type(self).__name__
        if type(graph._codegen) is PyTreeCodeGen:
            # Traced again from the code, the graph's inputs are the nested arguments.
            state["_tracer_extras"] = {
                **(graph._tracer_extras or {}),
                "concrete_args": _open_arguments(graph._codegen),
            }
            state["_saved_codegen"] = graph._codegen
        return reduce_graph_module, (state, _format_import_block(code.globals))

    def __reduce_package__(self, exporter: Any) -> tuple[Any, ...]:
        state = self.__dict__.copy()
        state["_graphmodule_cls_name"] = type(self).__name__
        graph = state.pop("_graph")
        name = f"fx-generated._{exporter.get_unique_id()}"
        code = graph.python_code(root_module="self")
        imports = _format_import_block(code.globals)
        exporter.save_source_string(name, f"{imports}\n{self.code}")
        return reduce_package_graph_module, (state, name)

    def _deepcopy_init(self) -> Callable[..., None]:
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        body = _CodeOnlyModule(copy.deepcopy(self.__dict__, memo))
        self._deepcopy_init()(new, body, body.__dict__["_graph"])
        new.__class__.__name__ = type(self).__name__
        for name in _PRESERVED_HOOKS:
            if name in self.__dict__:
                setattr(new, name, copy.deepcopy(self.__dict__[name], memo))
        new.meta = copy.deepcopy(getattr(self, "meta", {}), memo)
        for name, value in new.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(new, name, value)
        for hook in getattr(self, "_deepcopy_hooks", ()):
            hook(new)
        return new

    def __copy__(self) -> GraphModule:
        new = GraphModule(self, self.graph, type(self).__name__)
        new.meta = getattr(self, "meta", {})
        return new

    def _replicate_for_data_parallel(self) -> GraphModule:
        new = self.__copy__()
        new._is_replica = True
        return new

    # ---- hooks on edits -----------------------------------------------------------------------

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[..., object]) -> Iterator[None]:
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_replace_node_hook(self, f: Callable[..., object]) -> None:
        self._replace_hooks.append(_callable(f))

    def _unregister_replace_node_hook(self, f: Callable[..., object]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[[Node], object]) -> None:
        self._create_node_hooks.append(_callable(f))

    def _unregister_create_node_hook(self, f: Callable[[Node], object]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[[Node], object]) -> None:
        self._erase_node_hooks.append(_callable(f))

    def _unregister_erase_node_hook(self, f: Callable[[Node], object]) -> None:
        self._erase_node_hooks.remove(f)

    def _register_deepcopy_hook(self, f: Callable[[GraphModule], object]) -> None:
        self._deepcopy_hooks.append(_callable(f))

    def _unregister_deepcopy_hook(self, f: Callable[[GraphModule], object]) -> None:
        self._deepcopy_hooks.remove(f)


_PRESERVED_HOOKS = (
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_replace_hooks",
    "_create_node_hooks",
    "_erase_node_hooks",
    "_deepcopy_hooks",
)


def _callable(f: Any) -> Any:
    if not callable(f):
        raise AssertionError(f"hook must be a callable, got {type(f)}")
    return f


def _open_arguments(codegen: PyTreeCodeGen) -> dict[str, Any]:
    """The nested arguments of a graph, every leaf open, as `concrete_args` of a trace."""
    info = codegen.pytree_info
    names = info.orig_args
    children = info.in_spec.children()
    names = names[len(names) - len(children) :]
    return {
        name: spec.unflatten([_TRACING["open"]] * spec.num_leaves)
        for name, spec in zip(names, children, strict=True)
        if name != "self" and not spec.is_leaf()
    }


def _readable(module: Any, name: str, options: dict[str, Any]) -> str:
    code = module._graph.python_code(root_module="self", verbose=True, **options)
    body = code.src.lstrip("\n")
    text = f"class {name}(torch.nn.Module):\n" + _indented(body, 4)
    inner = [
        _readable(child, child_name, options)
        for child_name, child in module.named_children()
        if hasattr(child, "_graph")
    ]
    return text + _indented("\n".join(inner), 4)


def _indented(text: str, spaces: int) -> str:
    lines = text.split("\n")
    return "\n".join(f"{' ' * spaces}{line}" if line.strip() else line.strip() for line in lines)
