"""CPython's own tests, captured: ``python -m tests.capture.soundness [test_list test_dict ...]``.

Each module runs twice, in processes of their own: plain, and with every Python function of the
thread offered to the compiler (back end "eager"), whether or not it meets a tensor. What the
evaluator makes of code that nobody wrote for it must fail no test that passed, and end no process.
Printed: how many frames were captured, whole or with breaks, and why the others were not.

The record, all modules of the list on several Pythons at one commit, two at a time:
``python -m tests.capture.soundness --record-all --jobs 2 --pythons python3.11 python3.12 ...``
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import faulthandler
import importlib
import io
import json
import logging
import subprocess
import sys
import sysconfig
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

import flambeau._dynamo  # noqa: F401  (announces the back ends)
from flambeau._src.capture import frames
from flambeau._src.compiler.backends import lookup
from flambeau._src.compiler.driver import Compiler, Options
from flambeau._src.compiler.history import COUNTERS
from tests.capture.soundness_differences import DIFFERENT

MODULES = (
    "test_heapq test_bisect test_textwrap test_string test_fractions test_list test_dict test_set "
    "test_generators test_contextlib test_dataclasses test_functools test_itertools test_enum "
    "test_collections test_json test_re test_statistics test_decimal test_random"
).split()

#: What takes seconds; runs with the other tests.
QUICK = ("test_bisect", "test_textwrap")
#: More of Python's library, for those who look for what the issue's list does not show.
MORE = (
    "test_deque test_copy test_operator test_math test_typing test_pprint test_argparse "
    "test_configparser test_csv test_datetime test_difflib test_ast test_tokenize test_descr "
    "test_scope test_exceptions test_with test_patma test_unpack test_extcall "
    "test_named_expressions test_compare test_contains test_iter test_slice test_augassign"
).split()
RECORDS = Path(__file__).parents[2] / "bench" / "results" / "soundness.json"


def run(captured: bool, modules: list[str], only: str | None, seconds: float) -> dict[str, Any]:
    """The tests of the modules in this process: their failures, and what was captured."""
    suite = unittest.TestSuite()
    loader = unittest.TestLoader()
    if only:
        loader.testNamePatterns = [f"*{only}*"]
    for name in modules:
        try:
            module = importlib.import_module(f"test.{name}")
        except (ImportError, unittest.SkipTest):
            continue  # of another version of Python
        suite.addTests(loader.loadTestsFromModule(module))
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


#: Folders as they stand in texts, the innermost first; what is recorded names files within them.
_FOLDERS = sorted(
    {f"{p}/" for p in (*sysconfig.get_paths().values(), Path(__file__).parents[2])},
    key=len, reverse=True,
)  # fmt: skip


def relative(text: str) -> str:
    """A text with the files of Python's library, and ours, by their paths within it."""
    for folder in _FOLDERS:
        text = text.replace(folder, "")
    return text


class _Counting(Compiler):
    """A compiler that is told how its captures went."""

    def counts(self) -> dict[str, Any]:
        """Frames by outcome, and the reasons."""
        entries = self.entries
        broken = sum(bool(e.breaks) for e in entries)
        errors = collections.Counter(
            relative(f"{note.where}: {type(note.error).__name__}: {note.error}")[:300]
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


def compare(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """One module both ways: the tests that fail and did not, and how frames were captured."""
    plain = apart(name, False, given.only, given.seconds)
    found: dict[str, Any] = {"tests": plain["run"], "plain_s": plain["seconds"]}
    try:
        got = apart(name, True, given.only, given.seconds)
    except RuntimeError as e:
        print(f"CRASH {name}: {e}", flush=True)
        return {**found, "crash": relative(str(e))[:300], "new": {name: "crash"}}
    new = {}
    for test, why in got["failed"].items():
        if test in plain["failed"]:
            continue
        print(f"NEW {test}: {why[-given.text :]}")
        last = relative(why.splitlines()[-1])[:200]
        new[test] = DIFFERENT.get(test.removeprefix("test."), last)
    counts = got["counts"]
    top = {kind: _most(counts[kind], 5) for kind in ("breaks", "skips", "contained")}
    skipped, failed = (sum(counts[kind].values()) for kind in ("skips", "contained"))
    found |= {
        "captured_s": got["seconds"], "whole": counts["whole"], "with_breaks": counts["broken"],
        "skipped": skipped, "failed_in_compiler": failed, "new": new, "reasons": top,
    }  # fmt: skip
    print(_row(name, found), flush=True)
    return found


def _most(reasons: dict[str, int], n: int) -> dict[str, int]:
    """The commonest reasons: their first sentence, without what names a class or function."""
    counted: collections.Counter[str] = collections.Counter()
    for reason, times in reasons.items():
        counted[reason.split(". ")[0][:120]] += times
    return dict(counted.most_common(n))


_HEAD = f"{'module':20}{'tests':>6}{'new':>5}{'whole':>7}{'breaks':>8}{'skipped':>9}{'errors':>8}"


def _row(name: str, found: dict[str, Any]) -> str:
    if "crash" in found:
        return f"{name:20}{found['tests']:6}  did not come to its end: {found['crash'][:60]!r}"
    return (
        f"{name:20}{found['tests']:6}{len(found['new']):5}{found['whole']:7}"
        f"{found['with_breaks']:8}{found['skipped']:9}{found['failed_in_compiler']:8}"
        f"   {found['plain_s']} s plain, {found['captured_s']} s captured"
    )


def record_all(pythons: list[str], jobs: int, given: argparse.Namespace) -> dict[str, Any]:
    """Every module of the list under every interpreter, `jobs` at a time, in place of what was
    recorded; those that took longest begin."""
    versions = {
        subprocess.run(
            [python, "-c", "import sys; print('.'.join(map(str, sys.version_info[:3])))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip(): python for python in pythons
    }  # fmt: skip
    before = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}

    def seconds(task: tuple[str, str]) -> float:
        return float(before.get(task[0], {}).get(task[1], {}).get("captured_s", 0))

    def one(task: tuple[str, str]) -> dict[str, Any]:
        version, name = task
        command = [versions[version], "-m", "tests.capture.soundness", name, "--json"]
        command += ["--seconds", str(given.seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            raise RuntimeError(f"{name} on {version}: {done.stderr[-3000:]}") from None
        print(f"{version:8}{_row(name, found)}", flush=True)
        return found

    tasks = [(version, name) for version in versions for name in MODULES]
    made: dict[str, Any] = {version: dict.fromkeys(MODULES) for version in versions}
    commit = _commit()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(one, t): t for t in sorted(tasks, key=seconds, reverse=True)}
        for future in concurrent.futures.as_completed(futures):
            version, name = futures[future]
            made[version][name] = future.result()
    if _commit() != commit:
        raise RuntimeError(f"the tree changed while it was recorded: {commit}, {_commit()}")
    RECORDS.write_text(json.dumps({"commit": commit, **made}, indent=1) + "\n")
    return made


def _commit() -> str:
    """The commit that is checked out, and whether files differ from it (the record aside)."""
    asked = [["rev-parse", "HEAD"], ["status", "--porcelain", "-uno", "--", ".", ":!bench/results"]]
    head, changed = (
        subprocess.run(
            ["git", *command], cwd=RECORDS.parents[2], capture_output=True, text=True, check=True
        ).stdout.strip()
        for command in asked
    )
    return f"{head}, with changes" if changed else head


def show(records: dict[str, dict[str, Any]], top: int) -> None:
    """The table of all that is recorded, by version of Python, and the commonest reasons."""
    for version, modules in sorted(records.items()):
        print(f"\nPython {version}\n{_HEAD}")
        reasons: collections.Counter[tuple[str, str]] = collections.Counter()
        for name, found in modules.items():
            print(_row(name, found))
            for kind, counted in found.get("reasons", {}).items():
                for reason, n in counted.items():
                    reasons[kind, reason] += n
        new = sum(len(found["new"]) for found in modules.values())
        total = collections.Counter[str]()
        for found in modules.values():
            for what in ("tests", "whole", "with_breaks", "skipped"):
                total[what] += found.get(what, 0)
        print(
            f"{len(modules)} modules, {total['tests']} tests, {new} new failures; frames: "
            f"{total['whole']} whole, {total['with_breaks']} with breaks, "
            f"{total['skipped']} skipped"
        )
        for (kind, reason), n in reasons.most_common(top):
            print(f"{n:8} {kind}: {reason}")
        for name, found in modules.items():
            for test, why in found["new"].items():
                print(f"  new in {name}: {test}: {why}")


def main() -> int:
    """Compare with the tests as they run by themselves; 1 if something new fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", default=MODULES, help="or: quick, more")
    parser.add_argument("--run", choices=["plain", "captured"])
    parser.add_argument("--only", help="tests whose names contain this")
    parser.add_argument("--seconds", type=float, default=600, help="for a module")
    parser.add_argument("--text", type=int, default=300, help="characters of a failure's text")
    parser.add_argument("--top", type=int, default=12, help="reasons")
    parser.add_argument("--json", action="store_true", help="print one module's as JSON")
    parser.add_argument("--record-all", action="store_true", help=f"the list into {RECORDS.name}")
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], help="to record on")
    parser.add_argument("--jobs", type=int, default=2, help="modules at a time, of a record")
    parser.add_argument("--table", action="store_true", help="only show what is recorded")
    given = parser.parse_args()
    modules = {"quick": QUICK, "more": MORE}.get(given.modules[0], given.modules)
    if given.run:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # tests leave files
            found = run(given.run == "captured", given.modules, given.only, given.seconds)
        print(json.dumps(found))
        return 0
    if given.json:
        with contextlib.redirect_stdout(sys.stderr):
            found = compare(given.modules[0], given)
        print(json.dumps(found))
        return 0
    if given.table:
        recorded = json.loads(RECORDS.read_text())
        print(f"at {recorded.pop('commit', 'several commits')}")
        show(recorded, given.top)
        return 0
    print(_HEAD)
    if given.record_all:
        records = record_all(given.pythons, given.jobs, given)
    else:
        version = ".".join(map(str, sys.version_info[:3]))
        records = {version: {name: compare(name, given) for name in modules}}
    show(records, given.top)
    founds = [found for modules in records.values() for found in modules.values()]
    return int(any(found["new"] or found.get("failed_in_compiler") for found in founds))


if __name__ == "__main__":
    sys.exit(main())
