"""Short programs for what the operator database does not cover: random streams, cond, custom ops.

Each takes the runtime and returns tensors and plain values; both runtimes must return the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.oracle import checks, wire

PROGRAMS: dict[str, Callable[[ModuleType], Any]] = {}


def program(fn: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Any]:
    """Register `fn` under its name."""
    PROGRAMS[fn.__name__] = fn
    return fn


def run(rt: ModuleType, name: str, pack: wire.Pack) -> checks.Outcome:
    """Outcome of one program, from a known generator state."""
    rt.manual_seed(42)
    try:
        return {"out": wire.encode_output(rt, PROGRAMS[name](rt), pack, [])}
    except Exception as error:  # noqa: BLE001 - any error is a result
        return checks.failure(error)


def record(rt: ModuleType, pack: wire.Pack) -> wire.Node:
    """The document of the programs' file."""
    outcomes = {name: run(rt, name, pack) for name in PROGRAMS}
    return {"label": "programs", "dtype": "any", "programs": outcomes, "dropped": []}


@program
def swapaxes(rt: ModuleType) -> Any:
    """An alias without an entry of its own."""
    x = rt.arange(24.0).reshape(2, 3, 4)
    return [rt.swapaxes(x, 0, 2), x.swapaxes(1, -1), rt.swapdims(x, 0, 1), x.swapdims(0, 2)]


@program
def copy_broadcast(rt: ModuleType) -> Any:
    """`copy_` across dtypes, with broadcasting, into a permuted destination."""
    target = rt.zeros(4, 3).t()
    target.copy_(rt.arange(4, dtype=rt.int64))
    half = rt.zeros(3, 4, dtype=rt.bfloat16).copy_(target * 1.001)
    return [target, half, target.to(rt.bool), half.copy_(target.to(rt.float64) / 3)]
