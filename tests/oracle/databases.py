"""What the judges of PyTorch's module and optimiser databases share: recording, judging, verdict.

Their recordings lie in `build/oracle/modules-DIGEST/` and `build/oracle/optimizers-DIGEST/`.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.oracle import captured, objects, replay, run, wire
from tests.oracle.compare import EPS, Judge

RECORDINGS = run.RECORDINGS
KNOWN = run.HERE / "known_modules.txt"
SOURCES = {
    "modules": ("module_programs.py", "module_recording.py"),
    "optimizers": ("optimizer_programs.py", "optimizer_recording.py"),
}
BACK_ENDS = ("aot_eager", "inductor")
EXACT = ("init", "repr", "attributes", "load", "pickle", "rng", "writes")
TIMEOUT = 900.0  # seconds for one file, compiled forms of all its samples among it


def folder(database: str, root: Path) -> Path:
    """Where the recording that fits these sources lies."""
    return root / f"{database}-{objects.digest(*SOURCES[database])}"


@dataclass
class Ruling:
    """Judges the outcomes of one file."""

    rt: ModuleType
    theirs: list[bytes]  # buffers of the recording
    tally: replay.Tally

    def condition(self, theirs: Any, refs: Any) -> float:
        """How far torch itself is from the references, in units of eps × the tensor's scale: what
        the call makes of a rounding, seen over all its tensors (a small one may just be lucky).
        """
        worst = 0.0
        for check, ref in refs.items():
            if "out" in theirs.get(check, {}):
                pairs = zip(*map(_leaves, (theirs[check]["out"], ref["out"])), strict=False)
                worst = max([worst, *(self._units(*pair) for pair in pairs)])
        return worst

    def _units(self, theirs: Any, ref: Any) -> float:
        if theirs["dt"] not in EPS or theirs["sz"] != ref["sz"]:
            return 0.0
        a, b = (wire.to_array(self.theirs[n["b"]], n["dt"]) for n in (theirs, ref))
        fine = np.isfinite(a) & np.isfinite(b)
        scale = np.abs(b[fine]).max(initial=0.0)
        if not scale:
            return 0.0
        return float(np.abs(a[fine] - b[fine]).max() / scale / EPS[theirs["dt"]])

    def reason(
        self, check: str, ours: Any, theirs: Any, ref: Any, pack: wire.Pack, ulps: float
    ) -> str | None:
        """First difference from torch's outcome."""
        if "err" in theirs:
            return replay._same_error(ours, theirs)
        if "err" in ours:
            return f"{ours['err'][0]}: {ours['err'][1]}"
        wide = ref["out"] if ref and "out" in ref else None
        exact = check in EXACT
        if check == "grad" and wide is not None:
            self._one_scale(wide)
        judge = Judge("other", pack.buffers, self.theirs, gradient=check == "grad",
                      ulps=0 if exact else max(4, math.ceil(ulps)))  # fmt: skip
        reason = judge.tree(ours["out"], theirs["out"], None if exact else wide)
        if reason or check == "grad":
            return reason
        judge.strides = True
        return judge.tree(ours["out"], theirs["out"])

    def _one_scale(self, gradients: Any) -> None:
        """A call's gradients are one vector, in pieces: a piece that is small because its terms
        cancel has their roundings.
        """
        nodes = _leaves(gradients)
        values = [np.abs(wire.to_array(self.theirs[node["b"]], node["dt"])) for node in nodes]
        largest = max((float(v[np.isfinite(v)].max(initial=0.0)) for v in values), default=0.0)
        for node in nodes:
            node["terms"] = largest

    def all(
        self, ours: Any, theirs: Any, refs: Any, pack: wire.Pack, where: str, apart: bool = False
    ) -> None:
        """Every check that torch has an outcome for; `apart`: each has a condition of its own."""
        whole = 0.0 if apart else self.condition(theirs, refs)
        for check, wanted in theirs.items():
            got = ours.get(check, {"err": ["none", "an earlier check failed"]})
            ref = refs.get(check)
            units = self.condition({check: wanted}, {check: ref}) if apart and ref else whole
            reason = self.reason(check, got, wanted, ref, pack, 2 * units)
            self.tally.add(check, reason, where)

    def compiled(
        self, name: str, ours: Any, eager: Any, refs: Any, pack: wire.Pack, where: str,
        factor: float = 1.0,
    ) -> None:  # fmt: skip
        """The compiled form against eager of the same runtime, the reference in the middle."""
        failed = next((check for check in ("forward", "steps") if "err" in ours.get(check, {})), "")
        for check in [failed] if failed else eager:
            if check == "rng":
                continue
            got = ours.get(check, {"err": ["none", "an earlier check failed"]})
            if "err" in got:
                reason: str | None = f"{got['err'][0]}: {got['err'][1]}"
            else:
                wide = refs.get(check, {}).get("out")
                judge = Judge("other", pack.buffers, pack.buffers, gradient=check == "grad",
                              ulps=2 * int(factor), factor=factor, wide=self.theirs,
                              truth_counts=True)  # fmt: skip
                reason = judge.tree(got["out"], eager[check]["out"], wide)
            self.tally.add(name if check in ("forward", "steps") else f"{name}_{check}",
                           reason, where)  # fmt: skip

    def error(self, ours: Any, recorded: Any, where: str) -> None:
        """An input that must raise: type and pattern; exact text for information."""
        replay.judge_error(self.tally, self.rt, ours, recorded, where)


def _leaves(tree: Any) -> list[Any]:
    """Tensors of a result, in order."""
    if isinstance(tree, list):
        return [leaf for item in tree for leaf in _leaves(item)]
    if not isinstance(tree, dict):
        return []
    return [tree] if tree["k"] == "out" else _leaves(tree.get("v"))


def spread(items: list[Any], limit: int) -> set[int]:
    """Positions of at most `limit` of the items (0: all), from all over."""
    count = len(items)
    if not limit or count <= limit:
        return set(range(count))
    return {i * count // limit for i in range(limit)}


def replay_file(
    replaying: Any, rt: ModuleType, path: Path, runner: str, limit: int, keep: int
) -> Any:
    """`{"counts": …, "failures": …, "dropped": …}` of one file, by the replayer of its database."""
    warnings.simplefilter("ignore")
    replayer = replaying(rt, path, keep)
    backends = [name for name in runner.split(",") if name in BACK_ENDS]
    samples = replayer.document["samples"]
    chosen = spread(samples, limit)
    for number, recorded in enumerate(samples):
        replayer.sample(recorded, backends if number in chosen else [])
    for recorded in replayer.document["errors"]:
        replayer.error(recorded)
    tally = replayer.ruling.tally
    return {"counts": tally.counts, "failures": tally.failures,
            "dropped": replayer.document["dropped"]}  # fmt: skip


def main(database: str, argv: list[str]) -> int:
    """Record if asked to, replay, report, and judge against `known_modules.txt`."""
    parser = run.arguments()
    parser.prog = f"python -m tests.oracle.{database}"
    parser.add_argument("--torch-python", help="interpreter that has torch 2.13: record first")
    parser.add_argument("--runner", default=",".join(("eager", *BACK_ENDS)))
    parser.add_argument("--limit", type=int, default=0, help="compiled samples of a file; 0: all")
    parser.set_defaults(known=KNOWN)
    options = parser.parse_args(argv)
    target = folder(database, options.root)
    if options.torch_python:
        for older in options.root.glob(f"{database}-*"):
            if older != target:
                shutil.rmtree(older)
        command = [options.torch_python, "-m", "tests.oracle.record_databases", database,
                   "--jobs", str(options.jobs)]  # fmt: skip
        for name in ("entry", "dtype"):
            for value in getattr(options, name) or ():
                command += [f"--{name}", value]
        if subprocess.run(command, cwd=run.REPOSITORY, check=False).returncode:
            sys.stderr.write("the recording is not complete\n")
            return 2
    paths = [
        path
        for path in target.glob("*.zip")
        if (not options.entry or path.stem.rpartition(".")[0] in options.entry)
        and (not options.dtype or path.stem.rpartition(".")[2] in options.dtype)
    ]
    if not paths:
        sys.stderr.write("nothing recorded that matches: say --torch-python\n")
        return 2
    return judge(database, paths, options)


def judge(database: str, paths: list[Path], options: Any) -> int:
    """Replay these files; the exit status."""
    start = time.perf_counter()
    keep = 10_000 if options.verbose else replay.KEEP
    results = run.run_all(paths, options.runtime, options.jobs, keep, options.runner,
                          options.limit, TIMEOUT, f"tests.oracle.{database}",
                          options.kept)  # fmt: skip
    if options.verbose:
        run.print_failures(results)
    report = options.report
    if report is None and not (options.entry or options.dtype or options.limit):
        report = run.REPOSITORY / "build" / f"oracle_{database}.json"
    if report:
        run.write_report(results, options.runtime, report)
    texts = [t for dtypes in results.values() for r in dtypes.values() for t in r["failures"]]
    for cause, count in captured.causes(texts):
        sys.stdout.write(f"{count:6} {cause}\n")
    seconds = time.perf_counter() - start
    sys.stdout.write(f"{run.table(results)}\n{len(paths)} files in {seconds:.0f} s\n")
    status = run.verdict(results, options)
    known = run.read_known(options.known) if options.runtime != "torch" else set()
    sys.stdout.write(run.end_line(results, known, seconds))
    return status
