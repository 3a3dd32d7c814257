"""What exact resume rests on: a call's bits do not depend on what the process did before it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flambeau as torch
import flambeau.nn.functional as F

ROOT = Path(__file__).resolve().parents[2]
Tensors = dict[str, torch.Tensor]

CASES: dict[str, Callable[[Tensors], torch.Tensor]] = {
    "sum of rows, heads apart": lambda t: t["heads"].sum(-1, True),
    "sum of heads": lambda t: t["heads"].sum(1),
    "sum of batches": lambda t: t["heads"].sum(0),
    "sum of two dimensions": lambda t: t["heads"].sum((0, 2)),
    "sum of all": lambda t: t["heads"].sum(),
    "sum of columns, transposed": lambda t: t["turned"].sum(0),
    "sum of rows, transposed": lambda t: t["turned"].sum(1),
    "sum of a matrix": lambda t: t["dense"].sum(),
    "mean": lambda t: t["heads"].mean(-1),
    "variance": lambda t: t["turned"].var(0),
    "cumulative sum": lambda t: t["turned"].cumsum(0),
    "logsumexp": lambda t: torch.logsumexp(t["heads"], -1),
    "softmax": lambda t: torch.softmax(t["turned"], 0),
    "layer_norm": lambda t: F.layer_norm(t["heads"], (16,)),
    "exp": lambda t: t["turned"].exp(),
    "matmul": lambda t: t["dense"].t() @ t["dense"],
    "matmul of heads": lambda t: t["heads"] @ t["heads"].transpose(-1, -2),
    "linear": lambda t: F.linear(t["heads"], t["dense"][:3, :16]),
}


def distinct_results(case: Callable[[Tensors], torch.Tensor]) -> int:
    """How many different results five calls give, each with other memory lying around."""
    torch.manual_seed(0)
    tensors = {
        "heads": torch.randn(4, 32, 2, 16).transpose(1, 2),
        "turned": torch.randn(64, 33).t(),
        "dense": torch.randn(100, 37),
    }
    results = set()
    for number in range(5):
        around = torch.full((1 + 7 * number,), 1e30)
        result = case(tensors)
        del around
        results.add(result.contiguous().numpy().tobytes())
    return len(results)


def main() -> None:
    """Each case in a fork of this fresh process, where its calls are the first; prints counts."""
    for name, case in CASES.items():
        child = os.fork()
        if child == 0:
            print(json.dumps([name, distinct_results(case)]), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", CASES)
def test_the_first_call_gives_the_bits_of_later_ones(name: str, counts: dict[str, int]) -> None:
    assert counts[name] == 1


if __name__ == "__main__":
    main()
