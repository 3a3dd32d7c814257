"""Eager speed: flambeau and PyTorch, in turn, in one run on one machine.

    python bench/eager.py --torch-python ENV/bin/python [--flambeau-python ENV/bin/python]

Each runtime lives in a process of its own. Round after round the two are asked in turn for a few
short batches of a case; batches in which a thread had to wait for a processor are put aside while
enough others exist. Where the memory of a process happens to lie moves large cases by half and
more, so the whole is repeated with several pairs of processes: reported is the median over
processes of the median over batches, the ratio (below one: flambeau is faster), the start-up time
of `import`, and how many modules that loads. The table goes to stdout, everything to
bench/results/eager.json. With --check the exit status says whether the limits hold.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import options  # noqa: E402
from cases import CASES, Case  # noqa: E402

# Highest ratio of a row, by group; groups of small calls also have a limit for their median.
LIMITS = {"tiny": 1.3, "wide": 1.3, "large": 1.0, "matmul": 1.05}
MEDIAN_LIMITS = {"tiny": 1.0, "wide": 0.5}
IMPORT_SECONDS, IMPORT_MODULES = 0.12, 100
QUIET = 0.02
# What one runtime measured twice may differ by; --check allows as much above a limit.
NOISE = 0.05


class Worker:
    """A process that times what it is asked to: JSON lines in, JSON lines out, a greeting first."""

    def __init__(
        self, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.hello = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the {self.name} worker ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def measure(case: Case, workers: list[Worker], rounds: int) -> dict[str, Any]:
    """Median seconds a call under each worker, from quiet batches if there are enough."""
    batches: dict[str, list[tuple[float, float]]] = {worker.name: [] for worker in workers}
    found: dict[str, Any] = {}
    for number in range(rounds):
        for worker in workers if number % 2 else reversed(workers):
            answer = worker.ask(case=case.name, batches=3, seconds=0.02)
            if "error" in answer:
                found[f"{worker.name}_error"] = answer["error"]
                continue
            batches[worker.name].extend(zip(answer["delays"], answer["times"]))
            time.sleep(0.01)  # idle threads of the other runtime spin for a moment
    for name, results in batches.items():
        if results:
            results.sort()
            quiet = [each for delay, each in results if delay < QUIET]
            kept = quiet if len(quiet) >= 5 else [each for _, each in results[:5]]
            found[name] = {"median": statistics.median(kept), "kept": len(kept)}
    return found


def combined(case: Case, runs: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    """One row of the table from what each pair of processes found."""
    row: dict[str, Any] = {"name": case.name, "group": case.group, "work": case.work}
    for name in names:
        failed = [run[f"{name}_error"] for run in runs if f"{name}_error" in run]
        if failed:
            row[f"{name}_error"] = failed[0]
        else:
            row[name] = statistics.median(run[name]["median"] for run in runs)
            row[f"{name}_processes"] = [run[name]["median"] for run in runs]
            row[f"{name}_batches"] = sum(run[name]["kept"] for run in runs)
    if len(names) == 2 and all(name in row for name in names):
        row["ratio"] = row[names[0]] / row[names[1]]
    return row


COUNT = """
import sys, json
import {module}
print(json.dumps(sorted(sys.modules)))
"""


def imports(pythons: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Wall time of a process that only imports, warm, and how many modules that loads."""
    rows = []
    walls: dict[str, list[float]] = {name: [] for name in pythons}
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(HERE.parent), environment.get("PYTHONPATH", "")])
    )
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # warm means that bytecode is kept
    for number in range(rounds + 1):
        for name, python in pythons.items():
            started = time.perf_counter()
            done = subprocess.run([python, "-c", f"import {name}"], env=environment, check=False)
            if done.returncode == 0 and number:
                walls[name].append(time.perf_counter() - started)
    for name, python in pythons.items():
        if not walls[name]:
            rows.append({"name": name, "error": f"import {name} fails"})
            continue
        loaded = {}
        for module in (name, "numpy"):
            done = subprocess.run(
                [python, "-c", COUNT.format(module=module)],
                env=environment, check=True, capture_output=True, text=True,
            )  # fmt: skip
            loaded[module] = set(json.loads(done.stdout.splitlines()[-1]))
        rows.append(
            {
                "name": name,
                "seconds": statistics.median(walls[name]),
                "seconds_min": min(walls[name]),
                "modules": len(loaded[name]),
                "modules_beyond_numpy": len(loaded[name] - loaded["numpy"]),
            }
        )
    return rows


def shown(seconds: float | None) -> str:
    if seconds is None:
        return "failed"
    return f"{seconds * 1e6:.2f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def print_table(result: dict[str, Any]) -> None:
    rows = result["rows"]
    names = [about["runtime"] for about in result["runtimes"]]
    print("\n| case | work | " + " | ".join(names) + " | ratio |")
    print("|---|---|" + "---:|" * (len(names) + 1))
    for row in rows:
        cells = [shown(row.get(name)) for name in names]
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        print(f"| {row['name']} | {row['work']} | " + " | ".join(cells) + f" | {ratio} |")
    for group in dict.fromkeys(row["group"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["group"] == group and "ratio" in row]
        if ratios:
            print(
                f"\n{group}: median ratio {statistics.median(ratios):.2f}, highest "
                f"{max(ratios):.2f} (limit {LIMITS[group]})"
            )
    for row in rows:
        for name in names:
            if f"{name}_error" in row:
                print(f"{row['name']}, {name}: {row[f'{name}_error']}")
    for row in result["imports"]:
        if "error" in row:
            print(row["error"])
        else:
            print(
                f"import {row['name']}: {row['seconds']:.3f} s with the interpreter's start, "
                f"{row['modules']} modules, {row['modules_beyond_numpy']} beyond NumPy's"
            )


def broken_limits(result: dict[str, Any]) -> list[str]:
    """What is slower than it may be, a line each; rows that failed count."""
    broken = []
    for row in result["rows"]:
        if "flambeau_error" in row:
            broken.append(f"{row['name']}: {row['flambeau_error']}")
        elif "ratio" in row and row["ratio"] > LIMITS[row["group"]] + NOISE:
            broken.append(f"{row['name']}: {row['ratio']:.2f} above {LIMITS[row['group']]}")
    for group, limit in MEDIAN_LIMITS.items():
        ratios = [
            row["ratio"] for row in result["rows"] if row["group"] == group and "ratio" in row
        ]
        if ratios and statistics.median(ratios) > limit + NOISE:
            broken.append(f"median of the {group} rows: {statistics.median(ratios):.2f}")
    for row in result["imports"]:
        if row["name"] != "flambeau":
            continue
        if "error" in row:
            broken.append(row["error"])
        elif row["seconds"] > IMPORT_SECONDS or row["modules_beyond_numpy"] > IMPORT_MODULES:
            broken.append(f"import: {row['seconds']:.3f} s, {row['modules_beyond_numpy']} modules")
    return broken


def processor() -> str:
    """The processor's name as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def main() -> None:
    parser = options.parser(__file__, __doc__)
    add = parser.add_argument
    add("--processes", type=int, default=5, help="pairs of processes (%(default)s)")
    add("--rounds", type=int, default=3, help="turns of each a case (%(default)s)")
    add("--cases", default="", help="only cases whose name or group contains this")
    add("--check", action="store_true", help="exit 1 where a limit is broken")
    opts = parser.parse_args()

    pythons = options.pythons(opts)
    names = list(pythons)
    cases = [case for case in CASES if opts.cases in case.name or opts.cases in case.group]
    runs: dict[str, list[dict[str, Any]]] = {case.name: [] for case in cases}
    for _ in range(opts.processes):
        file = str(HERE / "worker.py")
        workers = [Worker(name, [python, file, name]) for name, python in pythons.items()]
        for case in cases:
            runs[case.name].append(measure(case, workers, opts.rounds))
            medians = (runs[case.name][-1].get(name, {}).get("median") for name in names)
            print(f"{case.name:24}", *(f"{shown(m):>12}" for m in medians), file=sys.stderr)
        for worker in workers:
            worker.close()
    result = {
        "runtimes": [worker.hello for worker in workers],
        "processor": processor(),
        "processes": opts.processes,
        "rounds": opts.rounds,
        "rows": [combined(case, runs[case.name], names) for case in cases],
    }
    result["imports"] = imports(pythons, rounds=7)
    options.write(opts, result)
    print_table(result)
    if opts.check:
        broken = broken_limits(result)
        sys.exit("\n".join(["broken limits:", *broken]) if broken else 0)


if __name__ == "__main__":
    main()
