"""`python -m tests.oracle --torch-python PATH [--jobs 2]`: record with torch, replay with us."""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.oracle import run


def main() -> int:
    """Record in the other environment, then replay here; the replay's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--torch-python", required=True, help="interpreter that has torch 2.13")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--entry", action="append")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--further", action="store_true", help="the entries of further.py too")
    parser.add_argument("--runtime", default="flambeau")
    options, rest = parser.parse_known_args()
    shared = ["--jobs", str(options.jobs)]
    for name in ("entry", "dtype"):
        for value in getattr(options, name) or ():
            shared += [f"--{name}", value]
    command = [options.torch_python, "-m", "tests.oracle.record", *shared]
    command += ["--further"] * options.further
    recorded = subprocess.run(command, cwd=run.REPOSITORY, check=False)
    if recorded.returncode:
        sys.stderr.write("the recording is not complete\n")
        return recorded.returncode
    shared += ["--further"] * options.further
    return run.main([*shared, "--runtime", options.runtime, *rest])


if __name__ == "__main__":
    sys.exit(main())
