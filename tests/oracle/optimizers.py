"""PyTorch's database of optimisers as the judge: `python -m tests.oracle.optimizers`.

Options as of `modules.py`. What is done with an optimiser stands in `optimizer_programs.py`; the
compiled form is that of `optimizer.step`, where torch itself can compile it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.oracle import databases, objects, optimizer_programs, replay, wire

JUDGED = ("steps", "state", "grad")  # of a compiled step


class Replayer:
    """One file under the runtime `rt`."""

    def __init__(self, rt: ModuleType, path: Path, keep: int) -> None:
        self.rt = rt
        self.document, self.buffers = wire.read_file(path)
        self.label = self.document["label"]
        self.ruling = databases.Ruling(rt, self.buffers, replay.Tally(keep=keep))

    def sample(self, recorded: Any, backends: list[str]) -> None:
        """Eager against torch, then the compiled forms against eager."""
        pack = wire.Pack()
        reader = objects.ObjectReader(self.rt, recorded["call"], self.buffers)
        sample = optimizer_programs.Sample(self.rt, self.label, recorded["variant"], reader, pack)
        options = replay.describe({"args": recorded["call"]["args"][1:2], "kwargs": {}})
        where = f"{recorded['variant']} {recorded['desc']} {options}"
        ours = replay.Replayer._guard(lambda: optimizer_programs.run(sample))
        apart = recorded["variant"] != "closure"  # there an error goes on into everything
        self.ruling.all(ours, recorded["checks"], recorded["refs"], pack, where, apart)
        if recorded["compiles"] or not backends:
            return
        refused = "err" in recorded["checks"].get("steps", {})  # options of an accelerator
        plain = {"capturable": False} if refused else {}
        eager = optimizer_programs.run(sample, **plain) if refused else ours
        eager = {check: eager[check] for check in JUDGED if check in eager}
        if refused:
            eager.pop("state", None)  # says "capturable"
        if any("err" in outcome for outcome in eager.values()) or "steps" not in eager:
            return
        for name in backends:
            got = replay.Replayer._guard(lambda n=name: through(sample, n))
            got = {"steps": got} if "err" in got else got
            self.ruling.compiled(name, got, eager, recorded["refs"], pack, where, 1.0 + refused)

    def error(self, recorded: Any) -> None:
        """An input that must raise."""
        reader = objects.ObjectReader(self.rt, recorded["call"], self.buffers)
        outcome = optimizer_programs.error(self.rt, self.label, reader, recorded["early"])
        self.ruling.error(outcome, recorded, recorded["desc"])


def through(sample: optimizer_programs.Sample, backend: str) -> Any:
    """All steps, compiled; after the second nothing may compile."""
    rt = sample.rt
    dynamo = importlib.import_module(f"{rt.__name__}._dynamo")
    dynamo.reset()
    optimizer = sample.make()
    compiled = rt.compile(optimizer_programs.bare(optimizer), fullgraph=True, backend=backend)
    calls = 0

    def step() -> Any:
        nonlocal calls
        calls += 1
        with dynamo.config.patch(error_on_recompile=calls > 2):
            return compiled()

    before = dict(dynamo.utils.counters["frames"])
    found = optimizer_programs.stepped(sample, optimizer, step)
    if "out" in found["steps"] and dict(dynamo.utils.counters["frames"]) == before:
        raise RuntimeError("the step ran as it is")
    return found


replay_file = functools.partial(databases.replay_file, Replayer)


if __name__ == "__main__":
    sys.exit(databases.main("optimizers", sys.argv[1:]))
