"""A graph as Python source: ``def forward(self, x): ...``.

`CodeGen` writes a function's head and its return; subclasses change the calling convention
(`PyTreeCodeGen`: nested arguments; `BoxedCodeGen`: one list that the function empties). The text
frees every value after its last use, and calls library functions as ``torch.…``.
"""

from __future__ import annotations

import builtins
import enum
import keyword
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau._src.ir.names import (
    Namespace,
    is_public,
    public_root,
    qualified_name,
    type_repr,
)
from flambeau._src.ir.node import Node, map_arg
from flambeau._src.ir.text import colored, stack_line, tensor_text
from flambeau._src.util import pytree

if TYPE_CHECKING:
    from flambeau._src.ir.graph import Graph

__all__ = [
    "BUILTINS",
    "BoxedCodeGen",
    "Builtin",
    "CodeGen",
    "PyTreeCodeGen",
    "PyTreeInfo",
    "PythonCode",
    "format_target",
    "tabular",
]


class Builtin(NamedTuple):
    """A name that every generated function may use: how to import it, and how to find it."""

    import_str: str
    find: Callable[[], Any]


BUILTINS: dict[str, Builtin] = {
    "inf": Builtin("from math import inf", lambda: math.inf),
    "nan": Builtin("from math import nan", lambda: math.nan),
    "NoneType": Builtin("NoneType = type(None)", lambda: type(None)),
    "torch": Builtin("import flambeau as torch", public_root),
    "device": Builtin("from flambeau import device", lambda: public_root().device),
    "pytree": Builtin("import flambeau.utils._pytree as pytree", lambda: pytree),
}

_BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "truediv": "/",
    "mod": "%",
    "matmul": "@",
    "pow": "**",
    "lshift": "<<",
    "rshift": ">>",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "gt": ">",
    "le": "<=",
    "ge": ">=",
}
MAGIC: dict[str, str] = {name: f"{{}} {sign} {{}}" for name, sign in _BINARY.items()}
MAGIC |= {"getitem": "{}[{}]", "pos": "+{}", "neg": "-{}", "invert": "~{}"}
INPLACE: dict[str, str] = {
    f"i{name.rstrip('_')}": f"{{}} {sign}= {{}}"
    for name, sign in _BINARY.items()
    if name not in ("eq", "ne", "lt", "gt", "le", "ge")
}
INPLACE["setitem"] = "{}[{}] = {}"


class PythonCode:
    """A generated function: its source and the globals that the source needs."""

    __module__ = "flambeau.fx.graph"
    __slots__ = ("_lineno_map", "_prologue_start", "globals", "src")

    def __init__(
        self,
        src: str,
        globals: dict[str, Any],
        _lineno_map: dict[int, int | None] | None,
        _prologue_start: int = 0,
    ) -> None:
        self.src = src
        self.globals = globals
        # Line of the body (the first is 1) to the index of its node; the body follows the line
        # `_prologue_start` of the source.
        self._lineno_map = _lineno_map
        self._prologue_start = _prologue_start

    def __repr__(self) -> str:
        return f"PythonCode(src={self.src!r}, globals={sorted(self.globals)})"


class PyTreeInfo(NamedTuple):
    """Calling convention with nested arguments."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


def format_target(base: str, target: str) -> str:
    """The expression for a dotted path below `base`: ``getattr(self.seq, "0").weight``."""
    out = base
    for part in target.split("."):
        plain = part.isidentifier() and not keyword.iskeyword(part)  # such as aten.random.from
        out = f"{out}.{part}" if plain else f'getattr({out}, "{part}")'
    return out


class _Values:
    """Formats values as source, collecting the globals that the source needs."""

    def __init__(self, namespace: Namespace, color: bool = False) -> None:
        self.namespace = namespace
        self.globals: dict[str, Any] = {}
        self.color = color

    def add_global(self, hint: str, obj: Any) -> str:
        """The name under which the source calls `obj`."""
        if is_public(obj) and getattr(obj, "__name__", None) != "device":
            root, dot, rest = qualified_name(obj).partition(".")
            return format_target(root, rest) if dot else root
        name = self.namespace.create_name(hint.replace(".", "_"), obj)
        self.globals.setdefault(name, obj)
        return name

    def function(self, target: Any) -> str:
        own_name = getattr(target, "__name__", "")
        if getattr(builtins, own_name, None) is target:
            return self.add_global(own_name, target)
        if own_name == "device" and is_public(target):
            self.globals["device"] = target
            return "device"
        name = qualified_name(target)
        module, _, rest = name.partition(".")
        return self.add_global(f"_operator.{rest}" if module == "operator" else name, target)

    def annotation(self, kind: Any) -> str:
        """A type annotation."""
        if kind == ():
            return "()"
        arguments = getattr(kind, "__args__", None)
        origin = getattr(kind, "__origin__", None)
        if arguments is None:
            text = type_repr(kind)
            if "." not in text or not callable(kind):
                return text
            return self.add_global(text, kind)
        inside = ",".join(self.annotation(a) if a is not ... else "..." for a in arguments)
        if origin is None:  # int | None
            return inside.replace(",", "|")
        generic = _typing_generic(kind)
        if generic is not None:
            head = self.add_global(f"typing.{type_repr(generic).rpartition('.')[2]}", generic)
        else:
            head = type_repr(origin)
        return f"{head}[{inside}]" if arguments else head

    def repr(self, value: Any) -> str:
        """A value that may hold nodes, as an expression."""
        if isinstance(value, Node):
            return value.name
        kind = type(value)
        if kind is bool or value is None or kind is str:
            return repr(value)
        if kind in (int, float, complex):
            return colored(repr(value), "blue") if self.color else repr(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        if isinstance(value, list):
            return "[" + ", ".join(map(self.repr, value)) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.repr(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.repr, (value.start, value.stop, value.step)))})"
        if isinstance(value, enum.Enum):
            return f"{self.add_global(kind.__name__, kind)}.{value.name}"
        if isinstance(value, type):
            return "NoneType" if value is type(None) else self.function(value)
        if callable(value) and hasattr(value, "__name__") and hasattr(value, "__module__"):
            return self.function(value)
        if kind.__name__ == "device" and is_public(kind):
            self.globals["device"] = kind
        return repr(value)

    def _tuple(self, value: tuple[Any, ...]) -> str:
        inside = ", ".join(map(self.repr, value))
        if hasattr(value, "_fields") and type(value).__module__ != "builtins":
            cls = type(value)
            return f"{self.add_global(f'{cls.__module__}.{cls.__name__}', cls)}({inside})"
        return f"({inside},)" if len(value) == 1 else f"({inside})"

    def arguments(self, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        parts = [self.repr(arg) for arg in args]
        parts += [f"{key} = {self.repr(value)}" for key, value in kwargs.items()]
        return ", ".join(parts)


def _typing_generic(kind: Any) -> Any:
    """``typing.List`` for ``typing.List[int]``; None for ``list[int]``."""
    if type(kind).__module__ != "typing":
        return None
    import typing  # lazy: names of its generics, for annotated placeholders only

    name = getattr(kind, "_name", None) or getattr(kind.__origin__, "_name", None)
    if name == "Optional":
        name = "Union"
    return getattr(typing, name, None) if name else None


class CodeGen:
    """Writes a graph as a function ``forward(self, …)``. Subclass to change how it is called."""

    __module__ = "flambeau.fx.graph"

    def __init__(self) -> None:
        #: Called with the list of body lines; may return another list.
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    # ---- the calling convention ---------------------------------------------------------------

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """The head of the function. `free_vars` are the parameters, with annotations."""
        parameters = list(free_vars)
        if not parameters or parameters[0] != "self":
            parameters.insert(0, "self")
        if expanded_def:
            inside = "\n" + "".join(f"    {p},\n" for p in parameters)
        else:
            inside = ", ".join(parameters)
        return f"def {self._func_name}({inside}){maybe_return_annotation}:"

    def generate_output(
        self,
        output_args: Any,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        """The return statement."""
        return f"return {(repr_fn or repr)(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The graph's inputs for a call with `args` (what an interpreter feeds)."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What a call returns, from the graph's output."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Globals that the head and the return need: ``[(name, object), ...]``."""
        return []

    # ---- the body -----------------------------------------------------------------------------

    def _gen_python_code(
        self,
        nodes: Iterable[Node],
        root_module: str,
        namespace: Namespace,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        values = _Values(namespace, color=colored)
        for name, builtin in BUILTINS.items():
            values.globals[name] = builtin.find()
        for name, obj in self.additional_globals():
            values.globals[values.add_global(name, obj)] = obj
        writer = _Body(values, root_module, self, verbose, include_stride, include_device)
        writer.additional_meta = additional_meta or []
        writer.write(list(nodes))
        lines = writer.lines or ["pass\n"]
        if self._body_transformer is not None:
            lines = self._body_transformer(lines)
        head = self.gen_fn_def(writer.free_vars, writer.return_annotation, **_flag(expanded_def))
        wraps = "\n".join(
            f'torch.fx._symbolic_trace.wrap("{name}")' for name in dict.fromkeys(writer.wrapped)
        )
        body = "".join(lines)
        text = "\n".join("    " + line for line in body.split("\n"))
        before_head = f"\n{wraps}\n\n"
        nodes_by_line = [*_node_of_line(lines, writer.node_of_entry)]
        # The text ends in an empty line, which counts as the last node's.
        nodes_by_line += nodes_by_line[-1:]
        first = 1 + head.count("\n")
        line_of_node = dict(enumerate(nodes_by_line, first))
        return PythonCode(
            f"{before_head}{head}\n{text}",
            values.globals,
            line_of_node,
            before_head.count("\n") + 1,
        )


def _flag(expanded_def: bool) -> dict[str, bool]:
    # User subclasses may not know the newer parameter: it is passed only when it is set.
    return {"expanded_def": True} if expanded_def else {}


def _node_of_line(lines: list[str], node_of_entry: list[int]) -> Iterable[int | None]:
    for entry, text in enumerate(lines):
        index = node_of_entry[entry] if entry < len(node_of_entry) else None
        for _ in range(text.count("\n")):
            yield index


class _Body:
    """Writes the statements of one graph."""

    def __init__(
        self,
        values: _Values,
        root: str,
        codegen: CodeGen,
        verbose: bool,
        stride: bool,
        device: bool,
    ) -> None:
        self.values = values
        self.root = root
        self.codegen = codegen
        self.verbose = verbose
        self.stride = stride
        self.device = device
        self.free_vars: list[str] = []
        self.lines: list[str] = []
        self.node_of_entry: list[int] = []
        self.wrapped: list[str] = []
        self.return_annotation = ""
        self.additional_meta: list[str] = []
        self._last_comment: str | None = None

    def write(self, nodes: list[Node]) -> None:
        freed = _last_uses(nodes)
        for index, node in enumerate(nodes):
            before = len(self.lines)
            if self.verbose and node.op not in ("placeholder", "output"):
                self._comment(node)
            statement = self._statement(node)
            if statement is not None:
                self.lines.append(statement + self._free(node, freed.get(node, [])))
            self.node_of_entry += [index] * (len(self.lines) - before)

    def _free(self, node: Node, dead: list[Node]) -> str:
        if node.op == "placeholder":
            return "\n"
        if node.op == "output":
            return ""
        names = [n.name for n in dead]
        if not node.users:
            names.append(node.name)
        if not names:
            return "\n"
        text = f"{' = '.join([*names, 'None'])}"
        return f";  {colored(text, 'dim') if self.values.color else text}\n"

    def _comment(self, node: Node) -> None:
        line = stack_line(node.meta.get("stack_trace"))
        text = f"# {line.summary()}" if line else "# No stacktrace found for following nodes"
        for key in self.additional_meta:
            if key in node.meta:
                text += f", {key}: {node.meta[key]}"
        if text == self._last_comment:
            return
        gap = "\n" if self.lines else ""
        self._last_comment = text
        self.lines.append(f"{gap}{colored(text, 'dim') if self.values.color else text}\n")

    def _annotation(self, node: Node) -> str:
        if node.type is not None:
            return f" : {self.values.annotation(node.type)}"
        if self.verbose:
            meta = node.meta.get("val", node.meta.get("tensor_meta"))
            text = tensor_text(
                meta, stride=self.stride, device=self.device, color=self.values.color
            )
            if text is not None:
                return f': "{text}"'
        return ""

    def _statement(self, node: Node) -> str | None:
        write: Callable[[Node], str | None] = getattr(self, f"_{node.op}")
        return write(node)

    def _placeholder(self, node: Node) -> str | None:
        default = f" = {self.values.repr(node.args[0])}" if node.args else ""
        target = str(node.target)
        self.free_vars.append(f"{target}{self._annotation(node)}{default}")
        plain = target.lstrip("*")
        return f"{node.name} = {plain}" if plain != node.name else None

    def _call_method(self, node: Node) -> str:
        receiver = self.values.repr(node.args[0])
        arguments = self.values.arguments(node.args[1:], node.kwargs)
        return f"{node.name}{self._annotation(node)} = {receiver}.{node.target}({arguments})"

    def _call_function(self, node: Node) -> str:
        target: Any = node.target
        name = getattr(target, "__name__", "")
        left = f"{node.name}{self._annotation(node)}"
        if getattr(target, "__module__", None) == "_operator":
            if name in MAGIC and not node.kwargs:
                return f"{left} = {MAGIC[name].format(*self._operands(name, node.args))}"
            if name in INPLACE and not node.kwargs:
                first = self.values.repr(node.args[0])
                return (
                    f"{INPLACE[name].format(*map(self.values.repr, node.args))};  {left} = {first}"
                )
        if target is getattr and len(node.args) == 2 and _is_attribute(node.args[1]):
            return f"{left} = {self.values.repr(node.args[0])}.{node.args[1]}"
        function = self.values.function(target)
        # Public functions are reached through a module: no global of this code hides them.
        if node.meta.get("is_wrapped", False) and "." not in function:
            self.wrapped.append(function)
        return f"{left} = {function}({self.values.arguments(node.args, node.kwargs)})"

    def _operands(self, name: str, args: tuple[Any, ...]) -> list[str]:
        out = [self.values.repr(arg) for arg in args]
        first = args[0]
        # -1 ** x would be -(1 ** x).
        if name == "pow" and isinstance(first, (int, float)) and str(first).startswith("-"):
            out[0] = f"({out[0]})"
        return out

    def _call_module(self, node: Node) -> str:
        module = format_target(self.root, str(node.target))
        arguments = self.values.arguments(node.args, node.kwargs)
        return f"{node.name}{self._annotation(node)} = {module}({arguments})"

    def _get_attr(self, node: Node) -> str:
        return f"{node.name}{self._annotation(node)} = {format_target(self.root, str(node.target))}"

    def _output(self, node: Node) -> str:
        if node.type is not None:
            self.return_annotation = f" -> {self.values.annotation(node.type)}"
        generate = self.codegen.generate_output
        # User subclasses may have the older signature, with the value alone.
        if type(self.codegen).generate_output in _KNOWN_OUTPUTS:
            return generate(node.args[0], repr_fn=self.values.repr) + "\n"
        return generate(node.args[0]) + "\n"


def _is_attribute(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """For each node, the values whose last use it is, in order of appearance."""
    seen: set[Node] = set()
    out: dict[Node, list[Node]] = {}
    for node in reversed(nodes):

        def note(argument: Node, user: Node = node) -> Node:
            if argument not in seen:
                seen.add(argument)
                out.setdefault(user, []).append(argument)
            return argument

        map_arg(node.args, note)
        map_arg(node.kwargs, note)
    return out


class PyTreeCodeGen(CodeGen):
    """A function of nested arguments: they are flattened first, and the result is rebuilt."""

    __module__ = "flambeau.fx.graph"
    __qualname__ = "_PyTreeCodeGen"

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        """The leaves of `inputs`."""
        return pytree.arg_tree_leaves(*inputs)

    def process_outputs(self, out: Any) -> Any:
        """The nested result, from the list of leaves."""
        if self.pytree_info.out_spec is None:
            return out
        leaves = out if isinstance(out, (list, tuple)) else [out]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        parameters = list(self.pytree_info.orig_args)
        head = super().gen_fn_def(parameters, maybe_return_annotation, expanded_def=expanded_def)
        if not free_vars:
            return head
        names = [text.partition(":")[0].partition("=")[0].strip() for text in free_vars]
        typed = [
            f"{name}:{text.partition(':')[2].partition('=')[0].rstrip()}"
            for name, text in zip(names, free_vars, strict=True)
            if ":" in text
        ]
        # A traced method's structure has its module as the first leaf.
        if parameters[:1] == ["self"]:
            names.insert(0, "self")
        given = f"[{', '.join(parameters)}]"
        unpack = f"{', '.join(names)}, = fx_pytree.tree_flatten_spec({given}, self._in_spec)"
        lines = [unpack, *typed]
        return head + "".join(f"\n    {line}" for line in lines)

    def generate_output(
        self,
        output_args: Any,
        *,
        descs: Sequence[str] | None = None,
        repr_fn: Callable[[object], str] | None = None,
    ) -> str:
        text = (repr_fn or repr)(output_args)
        if self.pytree_info.out_spec is None:
            return f"return {text}"
        return f"return pytree.tree_unflatten({text}, self._out_spec)"


class BoxedCodeGen(CodeGen):
    """A function of one list, which it empties: the caller keeps none of the inputs alive."""

    __module__ = "flambeau.fx.graph"
    __qualname__ = "_BoxedCodeGen"

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        head = super().gen_fn_def(["args_list"], maybe_return_annotation, expanded_def=expanded_def)
        names = [text.partition(":")[0].partition("=")[0].strip() for text in free_vars]
        if not names:
            return head
        return f"{head}\n    {', '.join(names)}, = args_list\n    args_list.clear()"

    def process_inputs(self, *args: Any) -> Any:
        """The items of the one argument, which is emptied."""
        items = tuple(args[0])
        args[0].clear()
        return items


_KNOWN_OUTPUTS = frozenset({CodeGen.generate_output, PyTreeCodeGen.generate_output})


def tabular(graph: Graph) -> str:
    """The graph as a table: opcode, name, target, args, kwargs."""
    rows = [["opcode", "name", "target", "args", "kwargs"]]
    rows += [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in graph.nodes]
    widths = [max(len(rows[0][i]) + 2, *(len(row[i]) for row in rows)) for i in range(5)]
    rows.insert(1, ["-" * width for width in widths])
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join(lines)
