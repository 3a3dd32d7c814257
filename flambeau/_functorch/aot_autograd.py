"""`aot_function`: forward and backward graphs of a function for back ends that users write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src.compiler.aot import AotFunction
from flambeau._src.compiler.own import aot_autograd
from flambeau._src.compiler.partition import default_partition, min_cut_partition
from flambeau._src.ir.graph import Graph
from flambeau.fx import GraphModule

__all__ = [
    "aot_function", "aot_module", "aot_module_simplified", "default_partition", "make_boxed_func",
    "min_cut_rematerialization_partition",
]  # fmt: skip

min_cut_rematerialization_partition = min_cut_partition


def aot_function(
    fn: Callable[..., Any], fw_compiler: Callable[..., Any], bw_compiler: Any = None,
    partition_fn: Any = None,
    decompositions: Any = None, num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Any = None, *, dynamic: bool = False, enable_log: bool = True,
    disable_functionalization: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """`fn` through back ends: each is called with a GraphModule and example inputs (fake tensors)
    and returns a callable of the inputs. `bw_compiler` defaults to `fw_compiler`. With `dynamic`
    the sizes of tensors are symbols, and graphs are made anew only where what they rely on of the
    sizes does not hold."""

    def compile_(graph: Graph, attributes: dict[str, Any], fakes: list[Any], backward: bool) -> Any:
        module = GraphModule(attributes, graph)
        made = ((bw_compiler or fw_compiler) if backward else fw_compiler)(module, fakes)
        boxed = getattr(made, "_boxed_call", False)

        def call(inputs: Sequence[Any]) -> Any:
            return made(list(inputs)) if boxed else made(*inputs)

        return call

    return AotFunction(
        fn, compile_, partition=partition_fn or default_partition, decompositions=decompositions,
        dynamic=dynamic,
    )  # fmt: skip


def aot_module(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The same for a module: parameters and buffers become inputs of the graphs."""
    from flambeau._functorch.modules import AotModule  # lazy: nn is heavy

    return AotModule(mod, aot_function, *args, **kwargs)


def aot_module_simplified(
    mod: Any, args: Sequence[Any], fw_compiler: Callable[..., Any], bw_compiler: Any = None,
    partition_fn: Any = None, decompositions: Any = None, **_: Any,
) -> Callable[..., Any]:  # fmt: skip
    """A GraphModule through back ends for its halves: what a back end for `compile` returns."""
    backend = aot_autograd(
        fw_compiler=fw_compiler, bw_compiler=bw_compiler, partition_fn=partition_fn,
        decompositions=decompositions,
    )  # fmt: skip
    return backend(mod, list(args))  # type: ignore[no-any-return]


def make_boxed_func(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f(*inputs)` as a function of one list of inputs."""

    def boxed(args: Sequence[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed
