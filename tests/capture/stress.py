"""CPython's own tests with every Python function replaced: ``python -m tests.capture.stress``.

Each function that runs is offered to a callback that answers with the function's code, taken apart,
put together and grown (one more local variable, a deeper stack). Nothing may change but what the
program can see of its code objects; `EXPECTED` lists the tests that look.

    python -m tests.capture.stress [--how put|apart|asked|all] [test_list test_dict ...]

put: the code goes into the frame (where there is room); apart: it is called as a function of its
own; asked: each function is offered at every call and runs as it is.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import subprocess
import sys
import time
import unittest
from types import CodeType
from typing import Any

from flambeau._src import _native
from flambeau._src.capture import frames
from flambeau._src.capture.bytecode import assemble, decode

MODULES = (
    "test_list test_dict test_set test_generators test_contextlib test_dataclasses test_functools "
    "test_itertools test_enum test_collections test_string test_json test_re test_heapq "
    "test_bisect test_statistics test_fractions test_random test_textwrap test_coroutines "
    "test_exceptions test_scope test_super test_with test_patma test_asyncgen test_listcomps "
    "test_yield_from test_extcall test_keywordonlyarg test_positional_only_arg test_descr"
).split()

# Tests that look at code objects, at the frames of a traceback, or at how deep the stack is.
EXPECTED = {
    "test_generators.__test__.syntax": "`g.gi_code is f.__code__` is not so",
    "test_descr.ClassPropertiesAndMethods.test_slots": "the collector's objects are counted",
}


class Replaced:
    """A callback: the code of each function, rebuilt and grown."""

    def __init__(self, how: str) -> None:
        self.key = self
        self.how = how
        self.functions = 0

    def __call__(self, code: CodeType, *rest: Any) -> CodeType | None:
        if self.how == "asked":
            self.functions += 1
            return None
        program = decode(code)
        program.varnames.append("one more")
        made = assemble(program)
        made = made.replace(co_stacksize=made.co_stacksize + 7)
        frames.add(code, self, None, made, None)
        self.functions += 1
        return made


def run(how: str, modules: list[str]) -> dict[str, Any]:
    """The tests of the modules in this process: their failures, and what was replaced."""
    suite = unittest.TestSuite()
    for name in modules:
        try:
            module = importlib.import_module(f"test.{name}")
        except (ImportError, unittest.SkipTest):
            continue  # of another version of Python
        suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    _native.frame_force_apart(how == "apart")
    callback = Replaced(how)
    runner = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0)
    start = time.perf_counter()
    if how == "plain":
        result = runner.run(suite)
    else:
        result = frames.run_with(callback, runner.run, (suite,))
    failed = {t.id(): text.strip().splitlines()[-1] for t, text in result.failures + result.errors}
    return {
        "run": result.testsRun, "failed": failed, "functions": callback.functions,
        "seconds": round(time.perf_counter() - start, 1), "hook": _native.frame_stats(),
    }  # fmt: skip


def apart(how: str, modules: list[str]) -> dict[str, Any]:
    """`run` in a process of its own. Raises RuntimeError if that dies."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.capture.stress", "--run", how]
    done = subprocess.run([*command, *modules], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{how} {modules}: exit {done.returncode}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> int:
    """Compare with the tests as they run without the hook; 1 if there are new failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--how", choices=["put", "apart", "asked", "all"], default="all")
    parser.add_argument("--run", choices=["plain", "put", "apart", "asked"])
    given = parser.parse_args()
    if given.run:
        print(json.dumps(run(given.run, given.modules)))
        return 0
    new = 0
    totals: dict[str, list[int]] = {}
    for name in given.modules:
        plain = apart("plain", [name])
        for how in ("put", "apart", "asked") if given.how == "all" else (given.how,):
            try:
                got = apart(how, [name])
            except RuntimeError as e:
                print(f"CRASH {how} {name}: {e}")
                new += 1
                continue
            counts = totals.setdefault(how, [0, 0, 0])
            for i, n in enumerate((got["run"], got["functions"], got["hook"]["hits"])):
                counts[i] += n
            for test, why in got["failed"].items():
                if test not in plain["failed"]:
                    known = EXPECTED.get(test.removeprefix("test."))
                    new += known is None
                    print(f"{'expected' if known else 'NEW'} {how} {test}: {known or why[:160]}")
    for how, (tests, functions, hits) in totals.items():
        print(f"{how}: {tests} tests, {functions} functions replaced, {hits} calls of them")
    print(f"{new} new failures on Python {sys.version.split()[0]}")
    return int(new > 0)


if __name__ == "__main__":
    sys.exit(main())
