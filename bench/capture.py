"""What `compile` costs: calls, and the first call; flambeau and PyTorch in turn, on one machine.

    python bench/capture.py --torch-python ENV/bin/python [--rounds 7]

Rows: a call of a compiled `x + 1` and of ten small layers beside the eager ones, of GPT-124M's
modules without the graph, and of their guards alone; seconds of the first call of a GPT training
step with the back end "aot_eager" (capture and ahead-of-time autograd, no code generation), Python
calls of the first `sin(x) + 1`. Each runtime lives in processes of its
own, asked in turn; reported is the median over rounds. The table goes to stdout, everything to
bench/results/capture.json. With --check the exit status says whether the limits hold.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import options

HERE = Path(__file__).resolve().parent
LIMITS = {
    "x+1, eager back end": 4e-6, "GPT step, cold": 2.0, "sin(x)+1 cold, calls": 5000,
    "GPT-124M's modules, guards": 20e-6, "a function left alone, more": 30e-9,
    "a function at its limit, more": 30e-9,
}  # fmt: skip


# ---- the worker ----------------------------------------------------------------------------------


def seconds_a_call(function: Callable[[], Any], seconds: float = 0.05) -> float:
    """The least over a few batches."""
    function(), function(), function()
    count = 1
    while True:
        started = time.perf_counter()
        for _ in range(count):
            function()
        each = (time.perf_counter() - started) / count
        if each * count > seconds / 5:
            break
        count *= 2
    best = each
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(count):
            function()
        best = min(best, (time.perf_counter() - started) / count)
    return best


def calls(torch: Any) -> dict[str, float]:
    """Seconds a call, once compiled."""
    x = torch.ones(8)
    plus = lambda t: t + 1  # noqa: E731 (the program of the design's table)
    layers = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(10)])
    row = torch.ones(1, 8)
    found = {"x+1": seconds_a_call(lambda: plus(x))}
    for backend in ("eager", "aot_eager"):
        fast = torch.compile(plus, backend=backend)
        found[f"x+1, {backend} back end"] = seconds_a_call(lambda: fast(x))  # noqa: B023
    with torch.no_grad():
        found["10 Linear(8,8)"] = seconds_a_call(lambda: layers(row))
        for backend in ("eager", "inductor"):
            model = torch.compile(layers, backend=backend)
            name = f"10 Linear(8,8), {backend} back end"
            found[name] = seconds_a_call(lambda: model(row))  # noqa: B023
    return found


def cold_step(torch: Any) -> dict[str, float]:
    """Seconds of the first training step of a 6-layer GPT, less those of a later one: those of
    the thread that compiles, so that a busy machine does not count."""
    sys.path.insert(0, str(HERE.parent / "examples" / "gpt"))
    from model import GPT, Shape  # lazy: the example imports torch

    torch.manual_seed(0)
    shape = Shape(vocab=256, block=64, layers=6, heads=4, width=128, dropout=0.0)
    model = GPT(shape)
    compiled = torch.compile(model, backend="aot_eager")
    tokens = torch.randint(0, 256, (2, 64))

    def step() -> float:
        started = time.thread_time()
        out = compiled(tokens)
        logits = out[0] if isinstance(out, tuple) else out
        loss = torch.nn.functional.cross_entropy(logits.view(-1, 256), tokens.view(-1))
        loss.backward()
        return time.thread_time() - started

    first = step()
    second = min(step() for _ in range(3))
    return {"GPT step, cold": first - second, "GPT step, eager kernels": second}


def guards(torch: Any) -> dict[str, float]:
    """Seconds of a call of a GPT of GPT-124M's modules (narrow ones: guards don't see widths) whose
    compiled graph answers at once: guards, the way to the graph; of flambeau the guards alone."""
    sys.path.insert(0, str(HERE.parent / "examples" / "gpt"))
    from model import GPT, Shape  # lazy: the example imports torch

    def at_once(module: Any, inputs: Any) -> Callable[..., Any]:
        known = module(*inputs)
        return lambda *_: known

    model = GPT(Shape(vocab=64, block=16, layers=12, heads=12, width=24, dropout=0.0))
    compiled = torch.compile(model, backend=at_once, fullgraph=True)
    tokens = torch.randint(0, 64, (2, 16))
    with torch.no_grad():
        compiled(tokens)
        found = {"GPT-124M's modules, a call": seconds_a_call(lambda: compiled(tokens))}
        if hasattr(compiled.forward, "compiler"):  # flambeau
            (entry,) = compiled.forward.compiler().entries
            given = {"fn": model, "args": (tokens,), "kwargs": {}}
            assert entry.checker.check(given, {})
            found["GPT-124M's modules, guards"] = seconds_a_call(
                lambda: entry.checker.check(given, {})
            )
        return found


def left_alone(torch: Any) -> dict[str, float]:
    """What a call of a function that capture leaves alone costs more while the hook is in place,
    one that was skipped and one that will not be compiled again (here without versions, whose
    guards come on top); the least of many batches, with and without in turn. (flambeau only: the
    way in is its own.)"""
    if not hasattr(torch, "_src"):
        return {}
    frames = importlib.import_module("flambeau._src.capture.frames")

    def callback(*_: Any) -> None:
        raise AssertionError("nothing is asked")

    def alone(a: Any) -> Any:
        return a

    def full(a: Any) -> Any:
        return a

    def batch(function: Any, count: int = 5_000) -> float:
        started = time.perf_counter()
        for _ in range(count):
            function(1)
        return (time.perf_counter() - started) / count

    for function in (alone, batch):
        frames.skip(function.__code__, None)
    frames.rest(full.__code__, callback, -1)
    found = {}
    for name, function in (("left alone", alone), ("at its limit", full)):
        without = within = 1.0
        for _ in range(400):
            without = min(without, batch(function))
            within = min(within, frames.run_with(callback, batch, (function,), {}))
        found[f"a function {name}, more"] = within - without
    return found


def cold_calls(torch: Any) -> dict[str, float]:
    """Python calls of the first call of a compiled function, once another one was compiled."""
    torch.compile(lambda t: t.cos() * 2)(torch.ones(8))
    fast, x, count = torch.compile(lambda t: torch.sin(t) + 1), torch.ones(8), 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        fast(x)
    finally:
        sys.setprofile(None)
    return {"sin(x)+1 cold, calls": count}


def worker() -> None:
    import torch  # lazy: this file is also the parent, which has none

    parts = {
        "calls": calls,
        "guards": guards,
        "hook": left_alone,
        "step": cold_step,
        "cold": cold_calls,
    }
    print(json.dumps({k: v for part in sys.argv[2:] for k, v in parts[part](torch).items()}))


# ---- the parent ----------------------------------------------------------------------------------


def asked(name: str, python: str, part: str) -> dict[str, Any]:
    """One process under one runtime."""
    own = [str(HERE / "capture.py"), "--worker", part]
    command = [python, *own] if name == "torch" else [python, "-m", "flambeau", *own]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent, check=False)
    if done.returncode:
        return {f"{part}: failed": done.stderr.strip().splitlines()[-1:]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> int:
    parser = options.parser(__file__, __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="calls,guards,hook,step,cold")
    parser.add_argument("--check", action="store_true")
    opts = parser.parse_args()
    pythons = options.pythons(opts)
    found: dict[str, dict[str, list[Any]]] = {}
    for _ in range(opts.rounds):
        for part in opts.parts.split(","):
            for name, python in pythons.items():
                for row, value in asked(name, python, part).items():
                    found.setdefault(row, {}).setdefault(name, []).append(value)
    result: dict[str, dict[str, Any]] = {}
    print("| row | " + " | ".join(pythons) + " | limit |\n|---|" + "---:|" * (len(pythons) + 1))
    for row, by_name in found.items():
        result[row] = {
            n: statistics.median(v) if not isinstance(v[0], list) else v[0]
            for n, v in by_name.items()
        }
        cells = [_shown(row, result[row].get(n)) for n in pythons]
        print(f"| {row} | {' | '.join(cells)} | {_shown(row, LIMITS.get(row))} |")
    options.write(opts, result)
    ours = {row: v.get("flambeau") for row, v in result.items()}
    broken = [row for row, limit in LIMITS.items() if not (ours.get(row) or 1e9) <= limit]
    plain, fast = ours.get("10 Linear(8,8)"), ours.get("10 Linear(8,8), eager back end")
    if plain and fast and fast > plain * 1.05:
        broken.append("10 Linear(8,8): slower than eager")
    print(*[f"over its limit: {row}" for row in broken], sep="\n")
    return 1 if opts.check and broken else 0


def _shown(row: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list) or "calls" in row:
        return str(value)
    if value < 1e-6:
        return f"{value * 1e9:.0f} ns"
    return f"{value * 1e6:.2f} µs" if value < 1e-3 else f"{value * 1e3:.1f} ms"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker()
    else:
        sys.exit(main())
