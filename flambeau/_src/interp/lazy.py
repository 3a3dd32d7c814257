"""Layers that a plain program never meets: loaded when the first call meets one. And the public
names of what they offer, likewise."""

from __future__ import annotations

import importlib
from typing import Any

from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.ops.call import LAYERS
from flambeau._src.ops.op import Op

MODULES: dict[int, str] = {
    state.DISPATCH: "dispatch_mode",
    state.FUNCTIONALIZE: "functionalize",
    state.AUTOCAST: "autocast",
}

_AUTOCAST = (
    "is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype",
    "is_autocast_cache_enabled", "set_autocast_cache_enabled", "clear_autocast_cache",
    "autocast_increment_nesting", "autocast_decrement_nesting", "is_autocast_cpu_enabled",
    "get_autocast_cpu_dtype", "get_autocast_gpu_dtype",
)  # fmt: skip
#: Top-level names: module and attribute.
NAMES: dict[str, tuple[str, str]] = {
    "autocast": ("flambeau.amp.autocast_mode", "autocast"),
    "cond": ("flambeau._src.capture.control_flow", "cond"),
    "while_loop": ("flambeau._src.capture.loops", "while_loop"),
    "Tag": ("flambeau._src.ops.tags", "Tag"),
    "FunctionSchema": ("flambeau._src.ops.signature", "FunctionSchema"),
    **{name: ("flambeau._src.interp.autocast", name) for name in _AUTOCAST},
}
MODULE_NAMES = ("_ops", "_subclasses", "_library")


def _loader(bit: int, module: str) -> Any:
    def load(op: Op, args: tuple[Any, ...]) -> Any:
        importlib.import_module(f"flambeau._src.interp.{module}")
        return LAYERS[bit](op, args)

    return load


def _run_on_meta(op: Op, args: tuple[Any, ...]) -> Any:
    from flambeau._src.interp.fake import run_on_meta  # lazy: few programs use the meta device

    return run_on_meta(op, args)


def _item_without_bytes(t: Any) -> Any:
    if t.device.type == "meta":
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    raise BufferError("this tensor has no bytes (it is fake, or was kept only for its shape)")


fill("run_on_meta", _run_on_meta)
fill("item_without_bytes", _item_without_bytes)
for _bit, _module in MODULES.items():
    LAYERS.setdefault(_bit, _loader(_bit, _module))
