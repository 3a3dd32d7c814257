"""Recording side of `modules.py` and `optimizers.py`: runs in an environment with PyTorch.

`python -m tests.oracle.record_databases modules|optimizers [--jobs N] [--entry nn.Linear]
[--dtype NAME]`. Resumable as `record.py` is, in folders of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch

from tests.oracle import databases, module_recording, optimizer_recording, wire

RECORDERS = {"modules": module_recording.Recorder, "optimizers": optimizer_recording.Recorder}


def record_one(job: tuple[str, str, str, str]) -> tuple[str, float, str, list[str]]:
    """Record one file; `(name, seconds, problem, dropped)`."""
    database, label, dtype, target = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    name, start = f"{label}.{dtype}", time.perf_counter()
    path = Path(target) / f"{name}.zip"
    if path.exists():
        return name, 0.0, "", []
    try:
        recorder = RECORDERS[database](label, dtype)
        document = recorder.document()
        wire.write_file(path, document, recorder.pack)
    except Exception:
        return name, time.perf_counter() - start, traceback.format_exc(), []
    return name, time.perf_counter() - start, "", document["dropped"]


def main() -> int:
    """Record what is asked for; non-zero if something could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", choices=RECORDERS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--entry", action="append")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--root", type=Path, default=databases.RECORDINGS)
    options = parser.parse_args()
    target = databases.folder(options.database, options.root)
    target.mkdir(parents=True, exist_ok=True)
    jobs = [
        (options.database, label, dtype, str(target))
        for label, dtype in RECORDERS[options.database].plan()
        if (not options.entry or label in options.entry)
        and (not options.dtype or dtype in options.dtype)
    ]
    start, failed, timings = time.perf_counter(), 0, {}
    with multiprocessing.Pool(options.jobs, maxtasksperchild=20) as pool:
        for name, seconds, problem, lost in pool.imap_unordered(record_one, jobs):
            timings[name] = seconds
            if problem:
                failed += 1
                sys.stderr.write(f"{name}: not recorded\n{problem}\n")
            if lost:
                sys.stderr.write(f"{name}: dropped {len(lost)}: {lost[0]}\n")
    slow = sorted(timings.items(), key=lambda item: -item[1])[:5]
    sys.stdout.write(f"{len(jobs)} files in {time.perf_counter() - start:.0f} s, {target}\n")
    sys.stdout.write("slowest: " + ", ".join(f"{n} {s:.1f} s" for n, s in slow) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
