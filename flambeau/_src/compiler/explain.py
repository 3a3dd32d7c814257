"""`explain`: what a function's capture gives, without compiling anything."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau._src.compiler import containment, told
from flambeau._src.compiler.api import Recipe
from flambeau._src.compiler.history import Entry, compile_times

__all__ = ["CompileReason", "ExplainOutput", "explain"]


@dataclass
class CompileReason:
    """Why a graph ended: the reason with its remedy, and the user's frames."""

    reason: str
    user_stack: list[traceback.FrameSummary] = field(default_factory=list)
    graph_break: bool = True


@dataclass
class ExplainOutput:
    """Graphs, breaks with their lines, operators and guards of one call. Prints as a report."""

    graphs: list[Any]
    graph_count: int
    graph_break_count: int
    break_reasons: list[CompileReason]
    op_count: int
    ops_per_graph: list[list[Any]] | None = None
    out_guards: list[Any] | None = None
    compile_times: str | None = None
    contained: list[Any] = field(default_factory=list)  # errors of stages; the rest ran eager
    entries: list[Entry] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}", "Break Reasons:",
        ]  # fmt: skip
        for number, found in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {found.reason}", "    User Stack:"]
            lines += [f"      {frame}" for frame in found.user_stack]
        if self.ops_per_graph is not None:
            lines.append("Ops per Graph:")
            for number, operators in enumerate(self.ops_per_graph, 1):
                lines.append(f"  Ops {number}:")
                lines += [f"    {op}" for op in operators]
        if self.out_guards is not None:
            lines.append("Out Guards:")
            for number, guard in enumerate(self.out_guards, 1):
                source = "" if guard.source is None else str(guard.source)
                lines += [
                    f"  Guard {number}:", f"    Name: {source!r}", f"    Source: {guard.stage}",
                    f"    Create Function: {guard.kind.name}", f"    Check: {guard.kind.value}",
                    f"    Expected: {_short(guard.expected)}",
                ]  # fmt: skip
                if guard.where is not None:
                    file, line, name = told.place(*guard.where)
                    lines.append(f'    Where: File "{file}", line {line}, in {name}')
        if self.contained:
            lines.append("Contained Errors:")
            lines += [f"  {note}" for note in self.contained]
        if self.compile_times is not None:
            lines.append(f"Compile Times: {self.compile_times}\n")
        return "\n".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(f)(*args)` runs f once and reports how it was captured. Errors of stages include
    those that were met before, where f is compiled already."""

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        graphs: list[Any] = []

        def collect(gm: Any, example_inputs: list[Any]) -> Any:
            graphs.append(gm)
            return gm.forward

        before = _wrapper(f)
        target = f if before is None else before
        while hasattr(target, "_torchdynamo_orig_callable"):
            target = target._torchdynamo_orig_callable
        compiled = Recipe(collect)(target)
        compiled(*args, **kwargs)
        report = _report(graphs, compiled.compiler())  # type: ignore[attr-defined]
        if before is not None:
            known = before.compiler().entries_of(before._torchdynamo_inline.__code__)
            report.contained += [note for entry in known for note in entry.contained]
        return report

    if extra_args or extra_kwargs:
        return inner(*extra_args, **extra_kwargs)
    return inner


def _wrapper(f: Any) -> Any:
    """What `compile` made of a function or module, or None for one that is not compiled."""
    for found in (f, getattr(f, "__dict__", {}).get("forward")):
        if getattr(found, "__dict__", {}).get("_is_torch_compile"):
            return found
    return None


def _report(graphs: list[Any], compiler: Any) -> ExplainOutput:
    entries = compiler.entries
    breaks = [b for e in [*entries, *compiler.skipped] for b in e.breaks]
    operators = [[n.target for n in gm.graph.nodes if n.op == "call_function"] for gm in graphs]
    return ExplainOutput(
        graphs,
        len(graphs),
        len(breaks),
        [
            CompileReason(
                f"{b.reason}" + (f"\n  Hint: {b.remedy}" if b.remedy else ""),
                list(containment.frames_of(b)),
            )
            for b in breaks
        ],
        sum(map(len, operators)),
        operators,
        [g for e in entries for g in e.guards],
        compile_times(),
        [note for e in [*entries, *compiler.skipped] for note in e.contained],
        entries,
    )
