"""Compiled is never slower than eager: small and larger programs, each way in turn, in one process.

    python bench/compiled_steps.py [--rounds 75] [--cases text] [--backends inductor,aot_eager]

A row is a model's call without gradients, or forward and backward of its sum. Eager and compiled
take turns in short batches; reported are the lower quartiles, and compiled over eager (below one:
compiled is faster). Each case starts with nothing compiled: models share the code of their classes,
and sizes that another model had would make this one's symbolic. The table goes to stdout,
everything to bench/results/compiled_steps.json. With --check the exit status is 1 where the default
back end is slower than eager.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "examples" / "gpt"))

TURN = 0.002  # seconds of one batch: a neighbour's turn spoils some of many, not all of few
NOISE = 0.05  # what one program measured twice may differ by


def mlp(torch: Any) -> Any:
    nn = torch.nn
    layers = [nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)]
    return nn.Sequential(*layers)


def wide_mlp(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))


def linears(torch: Any) -> Any:
    return torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(10)])


def gpt_block(torch: Any) -> Any:
    from model import Block, Shape  # lazy: the example imports torch

    return Block(Shape(vocab=256, block=64, layers=1, heads=4, width=128, dropout=0.0))


def conv_block(torch: Any) -> Any:
    nn = torch.nn

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
            self.m, self.n = nn.BatchNorm2d(16), nn.BatchNorm2d(16)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.m(self.a(x)))
            return torch.relu(x + self.n(self.b(y)))

    return Residual()


# name -> (model, sizes of the input, whether a step trains)
CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], bool]] = {
    "10 Linear(8,8)": (linears, (1, 8), False),
    "10 Linear(8,8), training": (linears, (1, 8), True),
    "MLP 8-8-8, batch 4": (mlp, (4, 8), False),
    "MLP 8-8-8, batch 4, training": (mlp, (4, 8), True),
    "MLP 64-256-64, batch 256": (wide_mlp, (256, 64), False),
    "MLP 64-256-64, batch 256, training": (wide_mlp, (256, 64), True),
    "GPT block, (2, 64, 128)": (gpt_block, (2, 64, 128), False),
    "GPT block, (2, 64, 128), training": (gpt_block, (2, 64, 128), True),
    "residual block, (4, 16, 16, 16)": (conv_block, (4, 16, 16, 16), False),
    "residual block, (4, 16, 16, 16), training": (conv_block, (4, 16, 16, 16), True),
    "LSTM 32, (10, 4, 32)": (lambda torch: torch.nn.LSTM(32, 32), (10, 4, 32), False),
    "LSTM 32, (10, 4, 32), training": (lambda torch: torch.nn.LSTM(32, 32), (10, 4, 32), True),
}


def step_of(torch: Any, model: Any, parameters: list[Any], x: Any, trains: bool) -> Any:
    def first(out: Any) -> Any:
        return out[0] if isinstance(out, tuple) else out

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def train() -> None:
        for p in parameters:
            p.grad = None
        first(model(x)).sum().backward()

    return train if trains else forward


def batch(step: Callable[[], None], count: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(count):
        step()
    return (clock() - started) / count


def measured(
    torch: Any, case: str, backends: list[str], rounds: int, clock: Any
) -> dict[str, float]:
    """Seconds of a step: eager, and with each back end."""
    make, shape, trains = CASES[case]
    torch.compiler.reset()
    torch.manual_seed(0)
    model, x = make(torch), torch.rand(*shape)
    parameters = list(model.parameters())
    ways = {"eager": step_of(torch, model, parameters, x, trains)}
    for name in backends:
        compiled = torch.compile(model, backend=name)
        ways[name] = step_of(torch, compiled, parameters, x, trains)
    counts = {}
    for name, step in ways.items():
        for _ in range(5):
            step()
        counts[name] = max(1, int(TURN / batch(step, 3, clock)))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        order = list(ways) if number % 2 else list(reversed(ways))
        for name in order:
            times[name].append(batch(ways[name], counts[name], clock))
    # The lower quartile: what a busy neighbour does only ever adds.
    return {name: statistics.quantiles(found, n=4)[0] for name, found in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--rounds", type=int, default=75)
    add("--cases", default="", help="only cases whose name contains this")
    add("--backends", default="inductor,aot_eager")
    add("--threads", type=int, default=0)
    add("--runtime", default="flambeau", choices=("flambeau", "torch"))
    add("--check", action="store_true")
    options = parser.parse_args()
    if options.runtime == "flambeau":
        import flambeau as torch  # lazy: either runtime, never both

        sys.modules["torch"] = torch  # for the example's model
    else:
        import torch  # type: ignore[no-redef]  # lazy: as above
    if options.threads:
        torch.set_num_threads(options.threads)
    # One thread's processor time says the same on a busy machine.
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    backends = options.backends.split(",")
    head = " | ".join(f"{b} | {b} / eager" for b in backends)
    print(f"| step | eager | {head} |\n|---|---:|" + "---:|" * (2 * len(backends)))
    result, slower = {}, []
    for case in CASES:
        if options.cases not in case:
            continue
        found = result[case] = measured(torch, case, backends, options.rounds, clock)
        eager = found["eager"]
        cells = [f"{found[b] * 1e6:.1f} µs | {found[b] / eager:.2f}" for b in backends]
        print(f"| {case} | {eager * 1e6:.1f} µs | {' | '.join(cells)} |", flush=True)
        if found[backends[0]] > eager * (1 + NOISE):
            slower.append(f"slower than eager: {case}")
    if options.runtime == "flambeau":
        (HERE / "results").mkdir(exist_ok=True)
        text = json.dumps(result, indent=1, ensure_ascii=False)
        (HERE / "results" / "compiled_steps.json").write_text(text + "\n")
    print(*slower, sep="\n")
    return 1 if options.check and slower else 0


if __name__ == "__main__":
    sys.exit(main())
