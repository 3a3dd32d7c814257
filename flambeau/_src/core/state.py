"""The one thread-local: grad mode, modes on their stacks, and which layers are active.

The order of layers, outermost first, is this table; `tests/interp` compares it with torch.
"""

from __future__ import annotations

import threading
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt

GEOMETRY = 1 << 1  # a stand-in kept only for its shape: any use of its values is an error
DISPATCH = 1 << 2  # __torch_dispatch__ modes and subclasses
TRACE = 1 << 3
FAKE = 1 << 4
FUNCTIONALIZE = 1 << 5
RECORD = 1 << 6  # autograd
COMPOSITE = 1 << 7  # dissolves into other operators
FUNCTORCH = 1 << 8  # vmap, grad, jvp levels
AUTOCAST = 1 << 9
FUNCTION = 1 << 10  # __torch_function__ of subclasses
FUNCTION_MODE = 1 << 11
PROFILE = 1 << 12

BELOW_RECORD = DISPATCH | TRACE | FAKE | FUNCTIONALIZE  # what sees operators beneath autograd

ORDER: tuple[tuple[str, int], ...] = (
    ("profile", PROFILE),
    ("function modes", FUNCTION_MODE),
    ("__torch_function__", FUNCTION),
    ("autocast", AUTOCAST),
    ("functorch", FUNCTORCH),
    ("composite", COMPOSITE),
    ("record", RECORD),
    ("functionalize", FUNCTIONALIZE),
    ("fake", FAKE),
    ("trace", TRACE),
    ("__torch_dispatch__", DISPATCH),
    ("geometry", GEOMETRY),
)

get_grad, set_grad = _native.get_grad, _native.set_grad
get_inference, set_inference = _native.get_inference, _native.set_inference
get_active, set_active = _native.get_active, _native.set_active
get_suspended, set_suspended = _native.get_suspended, _native.set_suspended


class ThreadState(threading.local):
    """Stacks of what the user entered; the matching bits stand in C (`get_active`)."""

    def __init__(self) -> None:
        self.function_modes: list[Any] = []
        self.dispatch_modes: list[Any] = []
        self.functorch: list[Any] = []  # interpreters, innermost last
        self.trace: list[Any] = []
        self.fake: list[Any] = []
        self.functionalize: list[Any] = []
        self.saved_hooks: list[tuple[Any, Any]] = []
        self.saved_hooks_off: list[str] = []
        self.autocast: dict[str, Any] = {}
        self.anomaly: tuple[bool, bool] = (False, True)
        self.devices: list[Any] = []
        self.forward_ad: list[Any] = []
        self.forward_grad = True  # whether forward gradients are computed
        self.view_replay = False
        self.running_node: Any = None  # the node whose backward this thread runs
        self.grad_levels = 0  # how many `grad` transforms are active
        self.backward_pass: Any = None  # the innermost one that runs
        self.user_suspended = 0  # layers suspended where backward was called
        self.profilers: list[Any] = []


class ProcessState:
    """What is one per process: the default dtype and device. Calls that C repeats were made under
    the old values: they are forgotten."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        _native.forget_programs()

    def __init__(self) -> None:
        self.default_dtype: dt.dtype = dt.float32
        self.default_device: Any = _native.cpu
        self.deterministic: tuple[bool, bool] = (False, False)


thread = ThreadState()
process = ProcessState()


def activate(bit: int, on: bool) -> None:
    """Set or clear a layer's bit for this thread."""
    active = get_active()
    set_active(active | bit if on else active & ~bit)


class Suspended:
    """`with Suspended(bits):` the layers do not see the calls made inside."""

    __slots__ = ("bits", "before")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.before = 0

    def __enter__(self) -> Suspended:
        self.before = get_suspended()
        set_suspended(self.before | self.bits)
        return self

    def __exit__(self, *exc: object) -> None:
        set_suspended(self.before)


class Resumed:
    """`with Resumed(bits):` layers that were suspended see calls again."""

    __slots__ = ("bits", "before")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.before = 0

    def __enter__(self) -> Resumed:
        self.before = get_suspended()
        set_suspended(self.before & ~self.bits)
        return self

    def __exit__(self, *exc: object) -> None:
        set_suspended(self.before)


class GradMode:
    """`with GradMode(on):` recording on or off for this thread."""

    __slots__ = ("on", "before")

    def __init__(self, on: bool) -> None:
        self.on = on
        self.before = True

    def __enter__(self) -> GradMode:
        self.before = set_grad(self.on)
        return self

    def __exit__(self, *exc: object) -> None:
        set_grad(self.before)
