"""The replay as a whole: workers, report, baseline, exit status."""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.oracle import checks, replay, wire
from tests.oracle.entries import ENTRIES

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
RECORDINGS = REPOSITORY / "build" / "oracle"
REPORT = REPOSITORY / "build" / "oracle.json"
KNOWN = HERE / "known_failures.txt"
TIMEOUT = 180.0  # seconds for one entry under one dtype

Results = dict[str, dict[str, Any]]  # label → dtype → {"counts", "failures", "dropped"}


@dataclass
class Worker:
    """One replaying process; started again after a crash or a hang."""

    runtime: str
    keep: int
    runner: str = ""  # compile the calls with it; see compiled.py
    limit: int = 0  # samples of a file, 0 for all; only with a runner
    replayer: str = "tests.oracle.compiled"  # with a runner: whose `replay_file` it is
    path: str = ""  # a further place to import the runtime from
    process: subprocess.Popen[str] | None = None
    log: list[str] = field(default_factory=list)

    def ask(self, path: Path, timeout: float) -> Any:
        """Result of one file, or a text that says how the process was lost."""
        process = self._running()
        assert process.stdin and process.stdout
        try:
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
        except OSError:
            return self._lost("died before the entry")
        answer: list[str] = []
        reader = threading.Thread(
            target=lambda out: answer.append(out.readline()), args=(process.stdout,), daemon=True
        )
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            return self._lost(f"no answer in {timeout:.0f} s")
        return json.loads(answer[0]) if answer and answer[0] else self._lost("crashed")

    def _running(self) -> subprocess.Popen[str]:
        if self.process is None:
            command = [sys.executable, "-m", "tests.oracle.replay", "--worker", self.runtime,
                       str(self.keep), self.runner, str(self.limit), self.replayer]  # fmt: skip
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": self.path},
            )  # fmt: skip
            assert self.process.stderr
            threading.Thread(target=self._drain, args=(self.process.stderr,), daemon=True).start()
        return self.process

    def _drain(self, stream: IO[str]) -> None:
        for line in stream:
            self.log.append(line.rstrip())
            del self.log[:-30]

    def _lost(self, how: str) -> str:
        assert self.process
        self.process.kill()
        status = self.process.wait()
        time.sleep(0.05)  # let the last of its standard error arrive
        self.process = None
        tail = "; ".join(self.log[-6:])
        self.log.clear()
        return f"{how} (exit status {status}) {tail}"[:900]

    def close(self) -> None:
        """End the process."""
        if self.process:
            self.process.kill()
            self.process.wait()


class Progress:
    """How far a long run is, on stderr."""

    EVERY = 20.0  # seconds

    def __init__(self, files: int) -> None:
        self.files, self.done, self.failures = files, 0, 0
        self.start = self.told = time.monotonic()

    def note(self, failures: int) -> None:
        """One file more, with its failures."""
        self.done += 1
        self.failures += failures
        now = time.monotonic()
        if now - self.told >= self.EVERY:
            self.told = now
            sys.stderr.write(
                f"{self.done} of {self.files} files, the biggest first, "
                f"{now - self.start:.0f} s, {self.failures} failures\n"
            )


class Kept:
    """Results of single files as they come, a line each, so that an interrupted run goes on.

    Whoever changes the code that is judged begins a new file.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.results: Results = {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                label, dtype, result = json.loads(line)
                if any(text.startswith("lost: ") for text in result["failures"]):
                    continue  # a crash or a hang is tried again
                self.results.setdefault(label, {})[dtype] = result

    def left(self, paths: list[Path]) -> list[Path]:
        """The files that have no result yet, the biggest first."""
        cut = (path.stem.rpartition(".") for path in paths)
        waiting = [
            path
            for path, (label, _, dtype) in zip(paths, cut, strict=True)
            if dtype not in self.results.get(label, {})
        ]
        return sorted(waiting, key=lambda path: -path.stat().st_size)

    def add(self, path: Path, result: Any) -> None:
        """One file's result."""
        label, _, dtype = path.stem.rpartition(".")
        self.results.setdefault(label, {})[dtype] = result
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as lines:
                lines.write(json.dumps([label, dtype, result]) + "\n")


def run_all(
    paths: list[Path], runtime: str, jobs: int, keep: int, runner: str = "", limit: int = 0,
    timeout: float = TIMEOUT, replayer: str = "tests.oracle.compiled", kept: Path | None = None,
) -> Results:  # fmt: skip
    """Replay all files, `jobs` at a time, the biggest first; `kept` has results and gets more."""
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    results = Kept(kept)
    left = results.left(paths)
    for path in left:
        waiting.put(path)
    lock = threading.Lock()
    progress = Progress(len(left))

    def serve() -> None:
        worker = Worker(runtime, keep, runner, limit, replayer)
        while True:
            try:
                path = waiting.get_nowait()
            except queue.Empty:
                break
            result = worker.ask(path, timeout)
            if isinstance(result, str):
                counts = {"compiled": [0, 1]} if runner else replay.expected_counts(path)
                result = {"counts": counts, "failures": [f"lost: {result}"], "dropped": []}
            with lock:
                results.add(path, result)
                progress.note(len(result["failures"]))
        worker.close()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results.results


# -- report ---------------------------------------------------------------------------------------


def required(label: str) -> bool:
    """Whether an entry is among those that must pass."""
    return label not in ENTRIES or ENTRIES[label].further or not ENTRIES[label].extra


def failing(results: Results) -> set[str]:
    """`label dtype check` of every required check that does not pass on all its samples."""
    return {
        f"{label} {dtype} {check}"
        for label, dtypes in results.items()
        if required(label)
        for dtype, result in dtypes.items()
        for check, (passed, total) in result["counts"].items()
        if passed < total and check not in checks.INFORMATIVE
    }


def totals(results: Results, extra: bool) -> dict[str, list[int]]:
    """Passed and all, by check, over the required or the extra entries."""
    sums: dict[str, list[int]] = {}
    for label, dtypes in results.items():
        if required(label) == extra:
            continue
        for result in dtypes.values():
            for check, (passed, total) in result["counts"].items():
                both = sums.setdefault("program" if label == "programs" else check, [0, 0])
                both[0] += passed
                both[1] += total
    return sums


def write_report(results: Results, runtime: str, path: Path) -> None:
    """build/oracle.json."""
    ordered = {
        label: {
            dtype: result["counts"] | {"failures": result["failures"]}
            | ({"dropped": result["dropped"]} if result["dropped"] else {})
            for dtype, result in sorted(results[label].items())
        }
        for label in sorted(results)
    }  # fmt: skip
    summary = {"runtime": runtime, "required": totals(results, False),
               "extra": totals(results, True), "entries": ordered}  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=1))


def table(results: Results) -> str:
    """One line for each entry that is not perfect, then the sums."""
    lines, perfect, wanted = [], 0, 0
    for label in sorted(results):
        bad = []
        for dtype, result in sorted(results[label].items()):
            for check, (passed, total) in result["counts"].items():
                if passed < total and check not in checks.INFORMATIVE:
                    bad.append(f"{dtype} {check} {passed}/{total}")
        wanted += required(label)
        perfect += required(label) and not bad
        if bad:
            mark = "" if required(label) else " (extra)"
            lines.append(f"{label}{mark}: " + ", ".join(bad))
    for extra in (False, True):
        sums = totals(results, extra)
        if sums:
            name = "extra   " if extra else "required"
            parts = [f"{c} {sums[c][0]}/{sums[c][1]}" for c in checks.CHECKS if c in sums]
            parts += [f"{c} {n[0]}/{n[1]}" for c, n in sums.items() if c not in checks.CHECKS]
            lines.append(f"{name}: " + ", ".join(parts))
    lines.append(f"{perfect} of {wanted} required entries pass every check")
    return "\n".join(lines)


# -- baseline -------------------------------------------------------------------------------------


def read_known(path: Path) -> set[str]:
    """Lines `label dtype check` that are allowed to fail; `#` starts a comment."""
    if not path.exists():
        return set()
    texts = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return {" ".join(text.split()) for text in texts if text}


def against_baseline(results: Results, known: set[str]) -> tuple[list[str], list[str]]:
    """`(fails and is not listed, is listed and passes)` for what was replayed."""
    now = failing(results)
    ran = {
        f"{label} {dtype} {check}"
        for label, dtypes in results.items()
        for dtype, result in dtypes.items()
        for check in result["counts"]
    }
    return sorted(now - known), sorted((known & ran) - now)


def write_known(path: Path, results: Results) -> None:
    """Accept the present state: what was replayed and fails is listed, what passes is not."""
    new, fixed = against_baseline(results, read_known(path))
    lines = sorted((read_known(path) | set(new)) - set(fixed))
    head = "# entry dtype check: known to fail. A line whose check passes must be removed.\n"
    path.write_text(head + "".join(f"{line}\n" for line in lines))


# -- command line ---------------------------------------------------------------------------------


def choose(root: Path, options: argparse.Namespace) -> list[Path]:
    """The recorded files that the options ask for."""
    where = root / (root / "latest").read_text().strip()
    return [
        path
        for path in where.glob("*.zip")
        if (label := path.stem.rpartition(".")[0])
        and (label in options.entry if options.entry else options.further or not is_further(label))
        and (not options.dtype or path.stem.rpartition(".")[2] in (*options.dtype, "any"))
    ]


def is_further(label: str) -> bool:
    """Whether an entry is judged only when asked for."""
    return label in ENTRIES and ENTRIES[label].further


def stale(options: argparse.Namespace) -> bool:
    """Whether the recording was made by other sources than those that lie here."""
    name = (options.root / "latest").read_text().strip()
    return not options.stale and name.rpartition("-")[2] != wire.digest()


def complain(options: argparse.Namespace) -> int:
    """Say why there is nothing to replay; the exit status."""
    why = "the recording is of older sources here: record again, or say --stale"
    sys.stderr.write(f"{why if stale(options) else 'nothing recorded that matches'}\n")
    return 2


def arguments() -> argparse.ArgumentParser:
    """Options of the replay."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.replay")
    parser.add_argument("--runtime", default="flambeau", help="module to judge (torch: self-check)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--entry", action="append", help="label, may be repeated")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--further", action="store_true", help="the entries of further.py too")
    parser.add_argument("--root", type=Path, default=RECORDINGS)
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument(
        "--kept", type=Path, help="a file for results as they come; begun anew, a run goes on"
    )
    parser.add_argument("--known", type=Path, default=KNOWN)
    parser.add_argument("--update-known", action="store_true")
    parser.add_argument("--stale", action="store_true", help="an older recording will do")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every failure")
    return parser


def main(argv: list[str]) -> int:
    """Replay, report, and judge against the baseline."""
    options = arguments().parse_args(argv)
    paths = choose(options.root, options)
    if stale(options) or not paths:
        return complain(options)
    keep = 10_000 if options.verbose else replay.KEEP
    start = time.perf_counter()
    results = run_all(paths, options.runtime, options.jobs, keep, kept=options.kept)
    partial = bool(options.entry or options.dtype or options.further)
    report = options.report or (None if partial else REPORT)
    if report:
        write_report(results, options.runtime, report)
    if options.verbose:
        print_failures(results)
    seconds = time.perf_counter() - start
    sys.stdout.write(f"{table(results)}\n{len(paths)} files in {seconds:.0f} s\n")
    status = verdict(results, options)
    known = read_known(options.known) if options.runtime != "torch" else set()
    sys.stdout.write(end_line(results, known, seconds))
    return status


def end_line(results: Results, known: set[str], seconds: float) -> str:
    """`===== 2 failed, 1234 passed, 12 xfailed in 60.00s =====`, as pytest ends.

    Counted are required entries × dtype × check. A listed failure that passes counts as failed:
    its line must go."""
    ran = {
        f"{label} {dtype} {check}"
        for label, dtypes in results.items()
        if required(label)
        for dtype, result in dtypes.items()
        for check in result["counts"]
        if check not in checks.INFORMATIVE
    }
    new, fixed = against_baseline(results, known)
    expected = failing(results) & known
    failed = len(new) + len(fixed)
    parts = [f"{failed} failed"] if failed else []
    parts.append(f"{len(ran) - len(new) - len(fixed) - len(expected)} passed")
    if expected:
        parts.append(f"{len(expected)} xfailed")
    text = f" {', '.join(parts)} in {seconds:.2f}s "
    return f"{text:=^80}\n"


def print_failures(results: Results) -> None:
    """Every failure that was kept, a line each."""
    for label, dtypes in sorted(results.items()):
        for dtype, result in sorted(dtypes.items()):
            for text in result["failures"]:
                sys.stdout.write(f"{label} {dtype} {text}\n")


def verdict(results: Results, options: argparse.Namespace) -> int:
    """Exit status against the baseline; torch itself has none."""
    if options.update_known:
        write_known(options.known, results)
    known = read_known(options.known) if options.runtime != "torch" else set()
    new, fixed = against_baseline(results, known)
    for text in new[:60]:
        sys.stdout.write(f"FAILS  {text}\n")
    if len(new) > 60:
        sys.stdout.write(f"… and {len(new) - 60} more\n")
    for text in fixed[:60]:
        sys.stdout.write(f"PASSES, remove its line from {options.known.name}: {text}\n")
    return 1 if new or fixed else 0
