"""What eager execution asks of the loops: the address of a kernel, or evaluation in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.core.slots import fill

_state: dict[str, Any] = {"toolchain": True}


def kernel_address(
    name: str, expr: Callable[..., Any] | None, kind: str, ins: tuple[str, ...],
    outs: tuple[str, ...], param_kinds: tuple[str, ...], key: Any,
) -> int | None:  # fmt: skip
    """The address of the generated kernel; None when this machine can only evaluate in NumPy."""
    from flambeau._src.loops.compile import kernel_address as find  # lazy: the code generator
    from flambeau._src.loops.request import KernelRequest  # lazy: with it
    from flambeau._src.runtime.toolchain import ToolchainMissing  # lazy: with it
    from flambeau._src.util.log import warn_once  # lazy: with it

    try:
        return find(
            KernelRequest(name, expr, kind, ins, outs, len(param_kinds), param_kinds or None)
        )
    except ToolchainMissing as e:
        warn_once("no-kernels", f"kernels are evaluated in NumPy, which is slow: {e}")
        return None


def evaluate(
    expr: Callable[..., Any],
    kind: str,
    outs: Any,
    ins: Any,
    params: Any,
    axis: int | None,
    common: Any,
) -> None:
    """The same expression over NumPy arrays."""
    from flambeau._src.loops.evaluate import run  # lazy: NumPy is heavy

    run(expr, kind, outs, ins, params, axis, common)


fill("kernel_address", kernel_address)
fill("evaluate", evaluate)
