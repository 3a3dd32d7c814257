"""PyTorch's database of modules as the judge: `python -m tests.oracle.modules`.

`--torch-python PATH` records first. `--runner eager` leaves out the compiled forms, `--limit 2`
takes two samples of a file through them; `--entry nn.Linear --dtype float32 -v` looks at one.
What is done with a module stands in `module_programs.py`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.oracle import databases, module_programs, objects, replay, wire

JUDGED = ("forward", "grad", "state", "rng", "writes")  # of a compiled module


class Replayer:
    """One file under the runtime `rt`."""

    def __init__(self, rt: ModuleType, path: Path, keep: int) -> None:
        self.rt = rt
        self.document, self.buffers = wire.read_file(path)
        self.ruling = databases.Ruling(rt, self.buffers, replay.Tally(keep=keep))

    def view(self, recorded: Any, pack: wire.Pack) -> module_programs.Sample:
        """The programs' view of a recorded call."""
        return module_programs.Sample(
            self.rt, self.document["label"], self.document["dtype"], recorded.get("training", True),
            objects.ObjectReader(self.rt, recorded["call"], self.buffers), pack,
            recorded.get("number", 0), recorded.get("calls", True),
        )  # fmt: skip

    def sample(self, recorded: Any, backends: list[str]) -> None:
        """Eager against torch, then the compiled forms against eager."""
        pack = wire.Pack()
        sample = self.view(recorded, pack)
        mode = "train" if recorded["training"] else "eval"
        where = f"#{recorded['number']} {mode} {recorded['desc']} "
        where += replay.describe({"args": recorded["call"]["args"], "kwargs": {}})
        ours = replay.Replayer._guard(lambda: module_programs.run(sample))
        self.ruling.all(ours, recorded["checks"], recorded["refs"], pack, where)
        eager = {check: ours[check] for check in JUDGED if check in ours}
        if (
            recorded["compiles"]
            or self.document["dtype"] != "float32"  # the operators' oracle compiles the others
            or any("err" in outcome for outcome in eager.values())
            or "forward" not in eager
        ):
            return
        for name in backends:
            got = replay.Replayer._guard(lambda n=name: through(sample, n))
            if "err" in got:
                got = {"forward": got}
            self.ruling.compiled(name, got, eager, recorded["refs"], pack, where)

    def error(self, recorded: Any) -> None:
        """An input that must raise."""
        outcome = module_programs.error(self.view(recorded, wire.Pack()), recorded["early"])
        self.ruling.error(outcome, recorded, recorded["desc"])


def through(sample: module_programs.Sample, backend: str) -> Any:
    """The module compiled whole, called twice: the second time nothing may compile."""
    rt = sample.rt
    dynamo = importlib.import_module(f"{rt.__name__}._dynamo")
    dynamo.reset()
    module = sample.make()
    compiled = rt.compile(module, fullgraph=True, backend=backend)
    before = dict(dynamo.utils.counters["frames"])
    found = module_programs.called(sample, module, compiled)
    if "err" in found["forward"]:
        return found
    counters = dynamo.utils.counters
    if dict(counters["frames"]) == before and not counters["skipped"]:
        raise RuntimeError("the module ran as it is")
    with dynamo.config.patch(error_on_recompile=True):
        sample.inputs = sample.reader.load()
        sample.call(compiled)
    return found


replay_file = functools.partial(databases.replay_file, Replayer)


if __name__ == "__main__":
    sys.exit(databases.main("modules", sys.argv[1:]))
