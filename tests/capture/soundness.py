"""CPython's own tests, captured: ``python -m tests.capture.soundness [test_list test_dict ...]``.

Each module runs twice, in processes of their own: plain, and with every Python function of the
thread offered to the compiler (back end "eager"), whether or not it meets a tensor. What the
evaluator makes of code that nobody wrote for it must fail no test that passed, and end no process.
Printed: how many frames were captured, whole or with breaks, and why the others were not.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import importlib
import io
import json
import logging
import subprocess
import sys
import time
import unittest
from types import CodeType
from typing import Any

import flambeau._dynamo  # noqa: F401  (announces the back ends)
from flambeau._src.capture import frames
from flambeau._src.compiler.backends import lookup
from flambeau._src.compiler.driver import Compiler, Options
from flambeau._src.compiler.history import COUNTERS

MODULES = (
    "test_heapq test_bisect test_textwrap test_string test_fractions test_list test_dict test_set "
    "test_generators test_contextlib test_dataclasses test_functools test_itertools test_enum "
    "test_collections test_json test_re test_statistics test_decimal test_random"
).split()

# Tests that look at code objects, at the frames of a traceback, or at how deep the stack is.
EXPECTED = {
    "test_collections.TestNamedTuple.test_factory": "`sys._getframe(1)` after a graph break",
    "test_contextlib.TestExitStack.test_exit_exception_traceback": "the names of frames",
}
# Tests that change what the compiler itself runs on; they are not run.
LEFT_OUT = (
    "test_lru_reentrancy_with_len",  # another `builtins.len`
    "test_handle_frame_object_in_creation",  # the whole stack is read at every collection
)


def run(captured: bool, modules: list[str], only: str | None, seconds: float) -> dict[str, Any]:
    """The tests of the modules in this process: their failures, and what was captured."""
    suite = unittest.TestSuite()

    def left_in(found: unittest.TestSuite | unittest.TestCase) -> unittest.TestSuite:
        cases = [found] if isinstance(found, unittest.TestCase) else map(left_in, found)
        return unittest.TestSuite(c for c in cases if not str(c).startswith(LEFT_OUT))

    loader = unittest.TestLoader()
    if only:
        loader.testNamePatterns = [f"*{only}*"]
    for name in modules:
        try:
            module = importlib.import_module(f"test.{name}")
        except (ImportError, unittest.SkipTest):
            continue  # of another version of Python
        suite.addTests(left_in(loader.loadTestsFromModule(module)))
    logging.disable(logging.CRITICAL)
    faulthandler.dump_traceback_later(seconds, exit=True)
    runner = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0)
    start = time.perf_counter()
    if not captured:
        result = runner.run(suite)
        counts: dict[str, Any] = {}
    else:
        compiler = _Counting(Options(lookup("eager"), everything=True))
        result = frames.run_with(compiler, runner.run, (suite,))
        counts = compiler.counts()
    faulthandler.cancel_dump_traceback_later()
    failed = {t.id(): text.strip() for t, text in result.failures + result.errors}
    return {
        "run": result.testsRun, "failed": failed, "counts": counts,
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


class _Counting(Compiler):
    """A compiler that is told how its captures went."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.contained: collections.Counter[str] = collections.Counter()

    def __call__(self, code: CodeType, *rest: Any) -> CodeType | None:
        """As the compiler does."""
        return super().__call__(code, *rest)

    def counts(self) -> dict[str, Any]:
        """Frames by outcome, and the reasons."""
        entries = self.entries
        broken = sum(bool(e.breaks) for e in entries)
        errors = collections.Counter(
            f"{note.where}: {type(note.error).__name__}: {note.error}"[:300]
            for e in self.skipped for note in e.contained
        )  # fmt: skip
        return {
            "whole": len(entries) - broken,
            "broken": broken,
            "breaks": dict(COUNTERS["graph_break"]),
            "skips": dict(COUNTERS["skipped"]),
            "contained": dict(errors),
        }


def apart(name: str, captured: bool, only: str | None, seconds: float) -> dict[str, Any]:
    """`run` in a process of its own. Raises RuntimeError if that dies."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.capture.soundness", name]
    command += ["--run", "captured" if captured else "plain", "--seconds", str(seconds)]
    command += ["--only", only] if only else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}\n{done.stderr[:3000]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compare(name: str, given: argparse.Namespace, totals: collections.Counter[str]) -> int:
    """One module both ways; how many tests fail that did not."""
    plain = apart(name, False, given.only, given.seconds)
    try:
        got = apart(name, True, given.only, given.seconds)
    except RuntimeError as e:
        print(f"CRASH {name}: {e}", flush=True)
        return 1
    new = 0
    for test, why in got["failed"].items():
        if test in plain["failed"]:
            continue
        known = EXPECTED.get(test.removeprefix("test."))
        new += known is None
        text = why[-given.text :]
        print(f"{'expected' if known else 'NEW'} {test}: {known or text}")
    counts = got["counts"]
    skipped = sum(counts["skips"].values())
    errors = sum(counts["contained"].values())
    print(
        f"{name}: {got['run']} tests, {plain['seconds']} s plain, {got['seconds']} s captured; "
        f"frames: {counts['whole']} whole, {counts['broken']} with breaks, {skipped} skipped, "
        f"{errors} failed in the compiler; {new} new failures",
        flush=True,
    )
    for what in ("whole", "broken"):
        totals[what] += counts[what]
    totals["tests"] += got["run"]
    for kind in ("breaks", "skips", "contained"):
        for reason, n in counts[kind].items():
            totals[f"{kind}: {reason}"] += n
    return new + errors


def main() -> int:
    """Compare with the tests as they run by themselves; 1 if something new fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--run", choices=["plain", "captured"])
    parser.add_argument("--only", help="tests whose names contain this")
    parser.add_argument("--seconds", type=float, default=300, help="for a module")
    parser.add_argument("--text", type=int, default=300, help="characters of a failure's text")
    parser.add_argument("--top", type=int, default=12, help="reasons of each kind")
    given = parser.parse_args()
    if given.run:
        print(json.dumps(run(given.run == "captured", given.modules, given.only, given.seconds)))
        return 0
    totals: collections.Counter[str] = collections.Counter()
    new = sum(compare(name, given, totals) for name in given.modules)
    for kind in ("breaks", "skips", "contained"):
        chosen = {k: n for k, n in totals.items() if k.startswith(kind + ": ")}
        for reason, n in collections.Counter(chosen).most_common(given.top):
            print(f"{n:6} {reason}")
    print(
        f"{totals['tests']} tests, {totals['whole']} frames whole, {totals['broken']} with breaks; "
        f"{new} new failures or errors on Python {sys.version.split()[0]}"
    )
    return int(new > 0)


if __name__ == "__main__":
    sys.exit(main())
