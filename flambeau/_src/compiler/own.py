"""The back ends of our own, by the names that programs use, and as functions of a GraphModule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src.compiler import logs
from flambeau._src.compiler.backends import register_own
from flambeau._src.compiler.driver import compile_graph, inductor_switches
from flambeau._src.compiler.history import Entry, Origin
from flambeau._src.compiler.settings import FUNCTORCH
from flambeau._src.compiler.stages import PIPELINES, Work

__all__ = ["AotAutograd", "aot_autograd", "compile_module"]


def compile_module(
    pipeline: str, gm: Any, example_inputs: Sequence[Any], *, options: Any = None, **settings: Any
) -> Callable[..., Any]:
    """A GraphModule through a pipeline of the driver. Raises StageFailed; an error of the backward
    half, which is compiled later, is contained where the captured function's would be."""
    graph, attributes = gm.graph, _attributes(gm)
    origin = gm.meta.get("dynamo_origin")
    if origin is None:
        origin = Origin(getattr(gm, "__name__", "graph"), "<graph>", 0, True, [])
    entry = Entry(origin.name, origin.filename, origin.line, -1, 0, contained=origin.contained)
    switches = {**inductor_switches(options or {}), "functorch": FUNCTORCH.values}
    work = Work(graph, attributes, list(example_inputs), entry, switches, **settings)
    work.strict = origin.strict
    return compile_graph(PIPELINES[pipeline], work)


class _Members(dict[str, Any]):
    """The members of a module by dotted path, looked up when they are read."""

    def __init__(self, module: Any, names: Sequence[str]) -> None:
        super().__init__()
        for name in names:
            found = module
            for part in name.split("."):
                found = getattr(found, part)
            self[name] = found


def _attributes(gm: Any) -> dict[str, Any]:
    names = [str(n.target) for n in gm.graph.nodes if n.op in ("get_attr", "call_module")]
    return _Members(gm, names)


def _ignoring(name: str, keywords: dict[str, Any]) -> None:
    if keywords:
        logs.tell(logging.WARNING, f"{name} backend ignoring extra kwargs {keywords}")


@register_own("eager", "eager", tags=("debug",))
def eager(gm: Any, example_inputs: Sequence[Any], **keywords: Any) -> Any:
    """The graph as it is."""
    _ignoring("eager", keywords)
    return gm.forward


@register_own("eager_noexcept", "eager", tags=("debug",))
def eager_noexcept(gm: Any, example_inputs: Sequence[Any], **keywords: Any) -> Any:
    """The graph as it is; what it raises says so."""
    _ignoring("eager_noexcept", keywords)
    return gm.forward


@register_own("aot_eager", "aot_eager", tags=("debug",))
def aot_eager(gm: Any, example_inputs: Sequence[Any], **keywords: Any) -> Any:
    """Forward and backward graphs, their operators one by one."""
    _ignoring("aot_eager", keywords)
    return compile_module("aot_eager", gm, example_inputs)


@register_own("aot_eager_default_partitioner", "aot_eager", tags=("debug",))
def aot_eager_default_partitioner(gm: Any, example_inputs: Sequence[Any], **keywords: Any) -> Any:
    """The same: saving what the forward holds is aot_eager's own way."""
    _ignoring("aot_eager_default_partitioner", keywords)
    return compile_module("aot_eager", gm, example_inputs)


@register_own("aot_eager_decomp_partition", "aot_eager_decomp_partition", tags=("debug",))
def aot_eager_decomp_partition(gm: Any, example_inputs: Sequence[Any], **keywords: Any) -> Any:
    """Operators taken apart and the fewest bytes saved, as before code is generated."""
    _ignoring("aot_eager_decomp_partition", keywords)
    return compile_module("aot_eager_decomp_partition", gm, example_inputs)


@register_own("inductor", "inductor")
def inductor(gm: Any, example_inputs: Sequence[Any], *, options: Any = None, **_: Any) -> Any:
    """Forward and backward graphs as programs over generated kernels."""
    return compile_module("inductor", gm, example_inputs, options=options)


class AotAutograd:
    """A back end that takes a graph apart and hands its halves to functions of a user."""

    def __init__(self, **settings: Any) -> None:
        self.__name__ = "compiler_fn"
        self.settings = settings

    def __call__(self, gm: Any, example_inputs: Sequence[Any], **_: Any) -> Any:
        given = self.settings
        forward = given["fw_compiler"]
        backward = given.get("bw_compiler") or forward
        return compile_module(
            "aot_users", gm, example_inputs, back_end=_Halves(forward, backward),
            decompositions=given.get("decompositions"), partition=given.get("partition_fn"),
        )  # fmt: skip


class _Halves:
    def __init__(self, forward: Any, backward: Any) -> None:
        self.forward, self.backward = forward, backward


def aot_autograd(**settings: Any) -> AotAutograd:
    """A back end from `fw_compiler`, `bw_compiler`, `partition_fn` and `decompositions`."""
    return AotAutograd(**settings)
