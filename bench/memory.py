"""What recording and fresh outputs cost in memory.

    python bench/memory.py [--torch-python ENV/bin/python]

Recorded: with Python's cycle collector off, 1,000 recorded softmaxes of 4 MB are made and dropped;
resident memory must stay flat, so no reference cycle may hold a result. Fresh: outputs of 64 MB
are made and dropped; page faults a call must be near zero, since faults cost more than the sum.
Writes bench/results/memory.json; exit status 1 where flambeau breaks a limit.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import options

GROWTH_LIMIT_MB = 8.0
FAULTS_LIMIT = 200.0


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def recorded_softmaxes(torch: Any, count: int = 1000) -> dict[str, float]:
    """Growth of resident memory, MB, over `count` recorded softmaxes of (1024, 1024)."""
    x = torch.rand(1024, 1024, requires_grad=True)
    gc.collect()
    gc.disable()
    for _ in range(20):
        torch.softmax(x, -1)
    before = resident_mb()
    highest = before
    for _ in range(count):
        torch.softmax(x, -1)
        highest = max(highest, resident_mb())
    growth = resident_mb() - before
    gc.enable()
    return {"growth_mb": growth, "highest_growth_mb": highest - before}


def fresh_outputs(torch: Any, count: int = 40) -> dict[str, float]:
    """Minor page faults and milliseconds a call of x + 1 with a new output of 64 MB."""
    x = torch.ones(4096, 4096)
    for _ in range(3):
        x + 1.0
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    times = []
    for _ in range(count):
        started = time.perf_counter()
        x + 1.0
        times.append(time.perf_counter() - started)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return {"faults_per_call": faults / count, "milliseconds": statistics.median(times) * 1e3}


def measure(name: str) -> dict[str, Any]:
    """Both measurements, in this process, under the runtime `name`."""
    if name == "flambeau":
        sys.path.append(str(Path(__file__).resolve().parents[1]))
    torch = importlib.import_module(name)
    return {
        "runtime": name,
        "version": str(torch.__version__),
        "recorded": recorded_softmaxes(torch),
        "fresh": fresh_outputs(torch),
    }


def main() -> None:
    parser = options.parser(__file__, __doc__)
    add = parser.add_argument
    add("--runtime", choices=("flambeau", "torch"), help="measure here, print JSON, and end")
    opts = parser.parse_args()
    if opts.runtime:
        print(json.dumps(measure(opts.runtime)))
        return
    pythons = options.pythons(opts)
    results = []
    for name, python in pythons.items():
        done = subprocess.run(
            [python, __file__, "--runtime", name], check=True, stdout=subprocess.PIPE, text=True
        )
        results.append(json.loads(done.stdout.splitlines()[-1]))
    options.write(opts, results)
    print("| | " + " | ".join(row["runtime"] for row in results) + " |")
    print("|---|" + "---:|" * len(results))
    for part, key, text in [
        ("recorded", "growth_mb", "growth over 1,000 recorded softmaxes, MB"),
        ("recorded", "highest_growth_mb", "highest on the way, MB"),
        ("fresh", "faults_per_call", "page faults a fresh 64 MB output"),
        ("fresh", "milliseconds", "milliseconds a fresh 64 MB output"),
    ]:
        print(f"| {text} | " + " | ".join(f"{row[part][key]:.2f}" for row in results) + " |")
    ours = results[0]
    if ours["recorded"]["highest_growth_mb"] > GROWTH_LIMIT_MB:
        sys.exit("recorded results are not freed when they are dropped")
    if ours["fresh"]["faults_per_call"] > FAULTS_LIMIT:
        sys.exit("fresh outputs cost page faults")


if __name__ == "__main__":
    main()
