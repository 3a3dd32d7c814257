"""One runtime, timing what it is asked to: JSON requests on stdin, JSON answers on stdout.

    python bench/worker.py torch|flambeau

{"case": name, "batches": n, "seconds": s} is answered by {"times": [seconds a call, ...],
"delays": [share of the batch that its threads stood waiting for a processor, ...]}. The parent
asks two workers in turn, so that both see the same state of the machine.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cases import CASES, Case  # noqa: E402

Loop = Callable[[Iterator[None]], None]


def runtime(name: str) -> Any:
    """The module `torch` or `flambeau`; the latter from this source tree if not installed."""
    if name == "flambeau":
        sys.path.append(str(HERE.parent))
    return importlib.import_module(name)


def compile_loop(case: Case, torch: Any) -> Loop:
    """A function that runs the statement once for each item of an iterator."""
    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    torch.manual_seed(0)
    exec(case.setup, space)
    # The loop finds the objects in local variables, as a hot function would.
    names = [name for name in space if name.isidentifier() and not name.startswith("__")]
    body = "\n        ".join(part.strip() for part in case.statement.split(";"))
    source = f"def loop(count, {', '.join(names)}):\n    for _ in count:\n        {body}\n"
    made: dict[str, Any] = {}
    exec(source, made)
    loop, values = made["loop"], [space[name] for name in names]
    return lambda count: loop(count, *values)


def waited() -> float:
    """Seconds that the threads of this process stood ready without getting a processor."""
    total = 0
    for task in os.listdir("/proc/self/task"):
        try:
            total += int(Path("/proc/self/task", task, "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            continue  # a thread that has just ended, or a kernel that does not say
    return total / 1e9


def timed(loop: Loop, count: int) -> tuple[float, float]:
    """Seconds a call, and the share of the time spent waiting."""
    calls = itertools.repeat(None, count)
    before = waited()
    started = time.perf_counter()
    loop(calls)
    seconds = time.perf_counter() - started
    return seconds / count, (waited() - before) / max(seconds, 1e-9)


def calls_for(loop: Loop, seconds: float) -> int:
    """How many calls take about `seconds`; also warms up."""
    loop(itertools.repeat(None, 3))
    count = 1
    while True:
        each, _ = timed(loop, count)
        if each * count > seconds / 4 or count > 10_000_000:
            return max(1, int(seconds / each))
        count *= 4


def main() -> None:
    # Only answers may go to stdout, whatever a library prints.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch = runtime(sys.argv[1])
    cases = {case.name: case for case in CASES}
    loops: dict[str, tuple[Loop, int]] = {}
    hello = {
        "runtime": sys.argv[1],
        "version": str(torch.__version__),
        "python": sys.version.split()[0],
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(hello), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        name = request["case"]
        try:
            if name not in loops:
                loop = compile_loop(cases[name], torch)
                loops[name] = loop, calls_for(loop, request["seconds"])
            loop, count = loops[name]
            gc.collect()
            gc.disable()
            loop(itertools.repeat(None, max(1, count // 10)))
            results = [timed(loop, count) for _ in range(request["batches"])]
            gc.enable()
            answer: dict[str, Any] = {
                "times": [each for each, _ in results],
                "delays": [delay for _, delay in results],
            }
        except Exception as error:
            # Said in the table: one case that fails must not cost the others.
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
