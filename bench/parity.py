"""The two example programs under PyTorch and under flambeau, same seed.

    python bench/parity.py --torch-python ENV/bin/python

Initial weights must be equal bit for bit; the first 20 losses to 1e-4. Writes
bench/results/parity.json; exit status 1 where that does not hold. Run it with an interpreter that
has flambeau, NumPy and scikit-learn; the other needs PyTorch, NumPy and scikit-learn, and should be
of the same Python version, because the text that the GPT learns comes with Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import options

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = {
    "gpt": ["examples/gpt/train.py", "--sample", "0"],
    "digits": ["examples/digits/train.py"],
}
LOSS_LIMIT = 1e-4


def run(command: list[str], folder: Path, steps: int) -> tuple[dict[str, Any], list[float]]:
    """Initial weights by name, and the losses."""
    arguments = [
        "--steps", str(steps),
        "--out", str(folder),
        "--losses-out", str(folder / "losses.jsonl"),
        "--weights-out", str(folder / "weights.npz"),
    ]  # fmt: skip
    folder.mkdir(parents=True)
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command + arguments,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    with np.load(folder / "weights.npz") as file:
        weights = dict(file)
    rows = [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]
    return weights, [row["loss"] for row in rows if "loss" in row]


def compare(name: str, pythons: dict[str, list[str]], steps: int) -> dict[str, Any]:
    """How the two runs of one program differ."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (
            run(start + PROGRAMS[name], Path(folder, runtime), steps)
            for runtime, start in pythons.items()
        )
    different = [
        key
        for key in sorted(ours[0].keys() | theirs[0].keys())
        if key not in ours[0]
        or key not in theirs[0]
        or ours[0][key].dtype != theirs[0][key].dtype
        or ours[0][key].tobytes() != theirs[0][key].tobytes()
    ]
    gaps = [abs(a - b) for a, b in zip(ours[1], theirs[1])]
    return {
        "program": name,
        "tensors": len(ours[0]),
        "tensors_different": different,
        "steps": [len(ours[1]), len(theirs[1])],
        "first_losses": [ours[1][0], theirs[1][0]],
        "last_losses": [ours[1][-1], theirs[1][-1]],
        "largest_gap": max(gaps),
        "holds": not different
        and len(ours[1]) == len(theirs[1]) == steps
        and max(gaps) <= LOSS_LIMIT,
    }


def main() -> None:
    parser = options.parser(__file__, __doc__, needs_torch=True)
    add = parser.add_argument
    add("--steps", type=int, default=20, help="losses that are compared (%(default)s)")
    add("--programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    opts = parser.parse_args()
    pythons = {
        "flambeau": [opts.flambeau_python, "-m", "flambeau"],
        "torch": [opts.torch_python],
    }
    results = [compare(name, pythons, opts.steps) for name in opts.programs]
    options.write(opts, results)
    for row in results:
        same = row["tensors"] - len(row["tensors_different"])
        print(
            f"{row['program']}: {same} of {row['tensors']} initial tensors equal bit for bit, "
            f"{row['steps'][0]} losses at most {row['largest_gap']:.1e} apart: "
            f"{'holds' if row['holds'] else 'BROKEN'}"
        )
        for key in row["tensors_different"]:
            print(f"  different: {key}")
    sys.exit(0 if all(row["holds"] for row in results) else 1)


if __name__ == "__main__":
    main()
