"""The default back end by the name that programs know it under."""

from __future__ import annotations

from typing import Any

from flambeau._inductor import config
from flambeau._src.compiler.api import list_mode_options, list_options
from flambeau._src.compiler.marks import cudagraph_mark_step_begin
from flambeau._src.compiler.own import inductor

__all__ = ["compile", "config", "cudagraph_mark_step_begin", "list_mode_options", "list_options"]


def compile(gm: Any, example_inputs: list[Any], options: dict[str, Any] | None = None) -> Any:
    """A GraphModule of torch functions as a program over generated kernels."""
    return inductor(gm, example_inputs, options=options)
