"""A graph as a picture: SVG drawn here, or text for Graphviz where someone has it."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from flambeau._src.ir.node import Node
from flambeau._src.ir.text import dtype_abbreviation
from flambeau.fx.graph_module import GraphModule

__all__ = ["Drawing", "FxGraphDrawer"]

_COLORS = {
    "placeholder": "#f5e6c8",
    "get_attr": "#d9d9d9",
    "call_module": "#cfe2f3",
    "call_function": "#d9ead3",
    "call_method": "#fce5cd",
    "output": "#f4cccc",
}
_LINE, _CHAR, _PAD, _GAP_X, _GAP_Y = 15, 6.7, 8, 24, 36


class Drawing:
    """A laid out graph. ``create_svg()`` gives the picture, ``to_string()`` Graphviz text."""

    def __init__(self, name: str, boxes: list[_Box], edges: list[tuple[_Box, _Box]]) -> None:
        self.name = name
        self._boxes = boxes
        self._edges = edges

    def create_svg(self) -> bytes:
        """The picture as an SVG file."""
        width = max((b.x + b.width for b in self._boxes), default=0) + _GAP_X
        height = max((b.y + b.height for b in self._boxes), default=0) + _GAP_X
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            'font-family="monospace" font-size="11">',
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
            f"<title>{escape(self.name)}</title>",
        ]
        for source, target in self._edges:
            x0, y0 = source.x + source.width / 2, source.y + source.height
            x1, y1 = target.x + target.width / 2, target.y
            bend = (y1 - y0) / 2
            out.append(
                f'<path d="M{x0:.1f} {y0:.1f}C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} '
                f'{x1:.1f} {y1:.1f}" fill="none" stroke="#555" marker-end="url(#arrow)"/>'
            )
        for box in self._boxes:
            out.append(
                f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
                f'height="{box.height:.1f}" rx="4" fill="{box.color}" stroke="#555"/>'
            )
            for i, line in enumerate(box.lines):
                y = box.y + _PAD + (i + 0.75) * _LINE
                weight = ' font-weight="bold"' if i == 0 else ""
                out.append(
                    f'<text x="{box.x + _PAD:.1f}" y="{y:.1f}"{weight}>{escape(line)}</text>'
                )
        out.append("</svg>")
        return "\n".join(out).encode()

    def write_svg(self, path: Any) -> bool:
        """Write the picture to a file."""
        Path(path).write_bytes(self.create_svg())
        return True

    def to_string(self) -> str:
        """The graph in Graphviz's language."""
        names = {id(box): f"n{i}" for i, box in enumerate(self._boxes)}
        out = [f'digraph "{self.name}" {{', "  node [shape=box style=filled fontname=monospace];"]
        for box in self._boxes:
            label = "\\l".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in box.lines)
            out.append(f'  {names[id(box)]} [label="{label}\\l" fillcolor="{box.color}"];')
        out += [f"  {names[id(a)]} -> {names[id(b)]};" for a, b in self._edges]
        return "\n".join([*out, "}"]) + "\n"

    def _repr_svg_(self) -> str:
        return self.create_svg().decode()


class _Box:
    __slots__ = ("color", "height", "layer", "lines", "width", "x", "y")

    def __init__(self, lines: list[str], color: str) -> None:
        self.lines = lines
        self.color = color
        self.width = max(map(len, lines)) * _CHAR + 2 * _PAD
        self.height = len(lines) * _LINE + 2 * _PAD
        self.layer = 0
        self.x = 0.0
        self.y = 0.0


class FxGraphDrawer:
    """Draws a graph module and those inside it.

    ``FxGraphDrawer(gm, "name").get_dot_graph().write_svg("graph.svg")``. Needs no other program.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._name = name
        self._ignore_getattr = ignore_getattr
        self._ignore_parameters = ignore_parameters_and_buffers
        self._skip_names = skip_node_names_in_args
        self._drawings: dict[str, Drawing] = {name: self._draw(graph_module, name)}
        for path, child in graph_module.named_modules():
            if path and isinstance(child, GraphModule):
                label = f"{name}_{path.replace('.', '_')}"
                self._drawings[label] = self._draw(child, label)

    def get_dot_graph(self, submod_name: str | None = None) -> Drawing:
        """The drawing of the module, or of a graph module inside it."""
        return self._drawings[self._name if submod_name is None else submod_name]

    get_main_dot_graph = get_dot_graph

    def get_submod_dot_graph(self, submod_name: str) -> Drawing:
        """The drawing of a graph module inside."""
        return self._drawings[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, Drawing]:
        """All drawings by name."""
        return dict(self._drawings)

    def _draw(self, module: GraphModule, name: str) -> Drawing:
        boxes: dict[Node, _Box] = {}
        for node in module.graph.nodes:
            if node.op == "get_attr" and self._ignore_getattr:
                continue
            boxes[node] = _Box(self._lines(module, node), _COLORS[node.op])
        edges = [
            (boxes[used], boxes[node])
            for node in boxes
            for used in node.all_input_nodes
            if used in boxes
        ]
        _lay_out(list(boxes.values()), edges)
        return Drawing(name, list(boxes.values()), edges)

    def _lines(self, module: GraphModule, node: Node) -> list[str]:
        lines = [f"name=%{node.name}", f"op_code={node.op}"]
        if node.op == "call_module":
            child = module.get_submodule(str(node.target))
            lines.append(f"{type(child).__module__}.{type(child).__name__}")
            for key in getattr(child, "__constants__", ()):
                lines.append(f"{key}: {getattr(child, key)}")
            if not self._ignore_parameters:
                lines += [f"{k}: {_shape(p)}" for k, p in child.named_parameters()]
        elif node.op != "output":
            lines.append(f"target={node._pretty_print_target(node.target)}")
        if node.op in ("call_function", "call_method"):
            lines += self._arguments(node)
        lines.append(f"num_users={len(node.users)}")
        meta = node.meta.get("tensor_meta", node.meta.get("val"))
        if hasattr(meta, "dtype") and hasattr(meta, "shape"):
            lines.append(_shape(meta))
        return [line if len(line) <= 60 else line[:57] + "..." for line in lines]

    def _arguments(self, node: Node) -> list[str]:
        def shown(value: Any) -> str:
            if isinstance(value, Node):
                return "" if self._skip_names else f"%{value.name}"
            return str(value)

        lines = []
        args = ", ".join(filter(None, map(shown, node.args)))
        if args:
            lines.append(f"args=({args},)")
        kwargs = ", ".join(f"{k}: {shown(v)}" for k, v in node.kwargs.items() if shown(v))
        if kwargs:
            lines.append(f"kwargs={{{kwargs}}}")
        return lines


def _shape(tensor: Any) -> str:
    return f"{dtype_abbreviation(tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"


def _lay_out(boxes: list[_Box], edges: list[tuple[_Box, _Box]]) -> None:
    """Place the boxes: one layer below all inputs, each near the middle of what it uses."""
    inputs: dict[int, list[_Box]] = {}
    for source, target in edges:
        inputs.setdefault(id(target), []).append(source)
    layers: list[list[_Box]] = []
    for box in boxes:  # in program order, so inputs have their layer
        above = inputs.get(id(box), [])
        box.layer = max((b.layer + 1 for b in above), default=0)
        while len(layers) <= box.layer:
            layers.append([])
        layers[box.layer].append(box)
    y = float(_GAP_X)
    for layer in layers:
        wanted = {
            id(box): sum(b.x + b.width / 2 for b in inputs[id(box)]) / len(inputs[id(box)])
            - box.width / 2
            for box in layer
            if inputs.get(id(box))
        }
        layer.sort(key=lambda box: wanted.get(id(box), 0.0))
        right = float(_GAP_X)
        for box in layer:
            box.x = max(right, wanted.get(id(box), right))
            box.y = y
            right = box.x + box.width + _GAP_X
        y += max(box.height for box in layer) + _GAP_Y
