"""Running a graph on example inputs to learn every value's shape and dtype."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import flambeau as torch
from flambeau._src.ir.node import Node, map_aggregate
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    """The metadata of a tensor. `memory_format` is None where no format describes its strides."""
    memory_format = None
    if include_contiguity and not _is_sparse(result):
        formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
        ranks = (None, 4, 5)
        for candidate, rank in zip(formats, ranks, strict=True):
            if rank not in (None, result.dim()):
                continue
            if result.is_contiguous(memory_format=candidate):
                memory_format = candidate
                break
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        () if _is_sparse(result) else result.stride(),
        memory_format,
        bool(getattr(result, "is_quantized", False)),
        {},
    )


def _is_sparse(tensor: Any) -> bool:
    layout = getattr(tensor, "layout", None)
    return layout is not None and layout is not torch.strided


class ShapeProp(Interpreter):
    """Fills ``meta["tensor_meta"]`` and ``meta["type"]`` of every node by running the graph.

    With `fake_mode` the run is on fake tensors: nothing is computed.
    """

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = fake_mode
        self.real_module = self.module

    def run_node(self, n: Node) -> Any:
        """Run one node and note what came out."""
        try:
            if self.fake_mode is None:
                result = super().run_node(n)
            else:
                with self.fake_mode:
                    result = super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(
                f"ShapeProp error for: node={n.format_node()} with meta={n.meta}"
            ) from error
        found = False

        def note(value: Any) -> Any:
            nonlocal found
            if isinstance(value, torch.Tensor):
                found = True
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, note)
        if found:
            n.meta["tensor_meta"] = meta
        if self.fake_mode is not None:
            n.meta["val"] = result
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on `args`; returns its result."""
        if self.fake_mode is not None:
            args = tuple(
                self.fake_mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args
            )
        return super().run(*args)
