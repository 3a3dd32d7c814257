"""Layers that a plain program never meets: loaded when the first call meets one."""

from __future__ import annotations

import importlib
from typing import Any

from flambeau._src.core import state
from flambeau._src.ops.call import LAYERS
from flambeau._src.ops.op import Op

MODULES: dict[int, str] = {
    state.DISPATCH: "dispatch_mode",
    state.FUNCTIONALIZE: "functionalize",
    state.AUTOCAST: "autocast",
}


def _loader(bit: int, module: str) -> Any:
    def load(op: Op, args: tuple[Any, ...]) -> Any:
        importlib.import_module(f"flambeau._src.interp.{module}")
        return LAYERS[bit](op, args)

    return load


for _bit, _module in MODULES.items():
    LAYERS.setdefault(_bit, _loader(_bit, _module))
