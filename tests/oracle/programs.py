"""Short programs for what the operator database does not cover: random streams, cond, custom ops,
storages, indexing assignment, autograd's bookkeeping.

Each takes the runtime and returns tensors and plain values (strings for what was raised); both
runtimes must return the same.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.oracle import checks, programs_autograd, programs_random, programs_tensor, wire

PROGRAMS: dict[str, Callable[[ModuleType], Any]] = {
    name: fn
    for module in (programs_autograd, programs_random, programs_tensor)
    for name, fn in vars(module).items()
    if callable(fn) and getattr(fn, "__module__", "") == module.__name__ and name[0] != "_"
}
# Units in the last place, of the tensor's largest value, that a program's results may be off:
# random numbers are exact; whole training steps let differences grow.
_LOOSE = {"programs_random": 0, "programs_tensor": 4, "programs_autograd": 64}
ULPS = {name: _LOOSE[fn.__module__.rpartition(".")[2]] for name, fn in PROGRAMS.items()}


def run(rt: ModuleType, name: str, pack: wire.Pack) -> checks.Outcome:
    """Outcome of one program, from a known generator state."""
    rt.manual_seed(42)
    try:
        return {"out": wire.encode_output(rt, PROGRAMS[name](rt), pack, [])}
    except Exception as error:
        return checks.failure(error)


def record(rt: ModuleType, pack: wire.Pack) -> wire.Node:
    """The document of the programs' file."""
    outcomes = {name: run(rt, name, pack) for name in PROGRAMS}
    return {"label": "programs", "dtype": "any", "programs": outcomes, "dropped": []}
