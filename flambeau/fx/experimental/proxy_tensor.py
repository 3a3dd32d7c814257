"""Tracing a function into a graph of operators: `make_fx`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flambeau as torch
from flambeau._src.core.slots import fill
from flambeau._src.interp.dispatch_mode import FAKE_KEY, PROXY_KEY, infra_mode, infra_suspended
from flambeau._src.interp.fake import FakeTensor, FakeTensorMode
from flambeau._src.interp.trace import (
    GraphTracer,
    ProxyTorchDispatchMode,
    get_proxy_mode,
    place_inputs,
    tracing,
)
from flambeau._src.ir.node import Node
from flambeau._src.ir.printer import PyTreeCodeGen, PyTreeInfo
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import sym_int
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes.shape_prop import _extract_tensor_metadata
from flambeau.utils import _pytree as pytree

__all__ = [
    "ProxyTorchDispatchMode",
    "disable_proxy_modes_tracing",
    "get_innermost_proxy_mode",
    "get_proxy_mode",
    "make_fx",
    "maybe_disable_fake_tensor_mode",
]

_MODES = ("real", "fake", "symbolic")


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Any = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
    record_stack_traces: bool = False,
    proxy_module_inputs: bool = False,
    _disable_torch_fn_metadata_mode: bool = False,
) -> Callable[..., GraphModule]:
    """A function that runs `f` on its arguments and returns what operators ran, as a GraphModule.

    `tracing_mode` is "real" (on the arguments themselves), "fake" (on fake tensors) or "symbolic"
    (on fake tensors whose sizes are symbols; `gm.shape_env` holds what was relied on);
    `decomposition_table` maps overloads to functions to be traced in their place. RuntimeError
    where the program looks at values that are not fixed.
    """
    if tracing_mode not in _MODES:
        raise AssertionError(f"tracing_mode must be real/fake/symbolic, got {tracing_mode}")

    def traced(*args: Any) -> GraphModule:
        return _Trace(f, decomposition_table, tracing_mode, _allow_non_fake_inputs).run(args)

    return traced


class _Trace:
    """One trace of a function."""

    def __init__(self, f: Callable[..., Any], table: Any, mode: str, real_inputs: bool) -> None:
        self.f, self.table, self.mode, self.real_inputs = f, table, mode, real_inputs

    def run(self, args: tuple[Any, ...]) -> GraphModule:
        leaves, spec = pytree.tree_flatten(args)
        names, parameters = _placeholder_names(self.f, args)
        fake = None
        if self.mode != "real":
            symbolic = self.mode == "symbolic"
            fake = _fake_mode_among(leaves) or FakeTensorMode(
                allow_fallback_kernels=self.mode == "fake",
                allow_non_fake_inputs=self.real_inputs,
                shape_env=ShapeEnv() if symbolic else None,
                static_shapes=not symbolic,
            )
            leaves = [self._fake(fake, v, name) for v, name in zip(leaves, names, strict=True)]
        tracer = GraphTracer()
        tracer.on_track = _note_metadata
        nested = not all(child.is_leaf() for child in spec.children())
        with tracing(tracer, self.mode, self.table, fake):
            place_inputs(tracer, leaves, names)
            result = self.f(*pytree.tree_unflatten(leaves, spec))
            out_spec = None
            if nested:
                result, out_spec = pytree.tree_flatten(result)
            tracer.output(result)
        if nested:
            tracer.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(parameters, spec, out_spec)))
        name = getattr(self.f, "__name__", type(self.f).__name__)
        module = GraphModule(tracer.attributes, tracer.graph, name)
        if self.mode == "symbolic" and fake is not None:
            module.shape_env = fake.shape_env
        return module

    def _fake(self, fake: FakeTensorMode, v: Any, name: str) -> Any:
        if isinstance(v, torch.Tensor):
            return fake.from_tensor(v, source=name)
        if type(v) is int and self.mode == "symbolic" and fake.shape_env is not None:
            return sym_int(fake.shape_env, fake.shape_env.size(v, (name, "int", 0)))
        return v


def _fake_mode_among(leaves: list[Any]) -> FakeTensorMode | None:
    for v in leaves:
        if isinstance(v, FakeTensor):
            return v.fake_mode
    return infra_mode(FAKE_KEY)


def _placeholder_names(f: Callable[..., Any], args: tuple[Any, ...]) -> tuple[list[str], list[str]]:
    """A name a leaf, from the parameter it is part of; and the parameters' names."""
    inner = inspect.unwrap(f)
    code = getattr(inner, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        parameters = [f"arg{i}" for i in range(len(args))]
    else:
        first = 1 if inspect.ismethod(inner) else 0
        parameters = list(code.co_varnames[first : code.co_argcount])
        if len(parameters) != len(args):
            raise RuntimeError(
                f"Tracing expected {len(parameters)} arguments but got {len(args)} concrete "
                "arguments"
            )
    names = []
    for parameter, value in zip(parameters, args, strict=True):
        names += [f"{parameter}_{i + 1}" for i in range(len(pytree.tree_leaves(value)))]
    return names, parameters


def _note_metadata(node: Node, t: torch.Tensor) -> None:
    node.meta["tensor_meta"] = _extract_tensor_metadata(t)


def get_innermost_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The active tracing mode, or None."""
    return infra_mode(PROXY_KEY)


@contextmanager
def disable_proxy_modes_tracing(enable_current: bool = False) -> Iterator[Any]:
    """Nothing is recorded inside."""
    with infra_suspended(PROXY_KEY) as mode:
        yield mode


@contextmanager
def maybe_disable_fake_tensor_mode() -> Iterator[Any]:
    """Without the active fake mode."""
    with infra_suspended(FAKE_KEY) as mode:
        yield mode


# A traced branch of a higher-order operator is a module too.
fill("graph_module", GraphModule)
