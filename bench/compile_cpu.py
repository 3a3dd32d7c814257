"""Training steps, eager and through `torch.compile`, under flambeau and PyTorch, on the CPU.

    python bench/compile_cpu.py --torch-python ENV/bin/python [--cases gpt digits] [--limit 120]

A process for each runtime and way trains the model of an example on the same batches, from the same
seed; round after round they are asked in turn for a few steps. Who takes longer than --limit for
its first steps, compiling among them, is stopped and reported as such. Reported:
tokens (images) a second, by the median step of the batches in which the processor was least waited
for; seconds of the first step beyond a later one, with empty caches (what compiling takes) and with
the caches that the first process left; and how far the losses of the first steps are from the same
runtime's eager ones. (PyTorch's compiled code draws other random numbers for dropout than its eager
code does, so its losses are further away.) The table goes to stdout, everything to
bench/results/compile_cpu.json, case by case as they end. With --check the exit status says whether
flambeau's compiled steps are no slower than its own eager ones and PyTorch's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import options  # noqa: E402
from eager import QUIET, Worker, processor  # noqa: E402
from worker import waited  # noqa: E402

EXAMPLES = HERE.parent / "examples"
LOSSES = 10  # steps whose losses are compared
NOISE = 0.05

Step = Callable[[], float]


# ---- the worker ----------------------------------------------------------------------------------


def module(path: Path) -> Any:
    """An example's file as a module."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def gpt(torch: Any, way: str) -> tuple[Step, int]:
    """The GPT of the example: 16 x 128 tokens a step. One step, and its tokens."""
    model_file = module(EXAMPLES / "gpt" / "model.py")
    model = model_file.GPT(model_file.Shape(vocab=1024, dropout=0.05))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
    batches = [torch.randint(0, 1024, (16, 129)) for _ in range(4)]
    call = torch.compile(model) if way == "compiled" else model

    def update(tokens_BT: Any) -> Any:
        optimizer.zero_grad()
        loss = call(tokens_BT[:, :-1], tokens_BT[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if way == "whole step":
        update = torch.compile(update)
    return taking_turns(update, batches), 16 * 128


def digits(torch: Any, way: str) -> tuple[Step, int]:
    """The convolutional network of the example: 64 images a step."""
    model = module(EXAMPLES / "digits" / "train.py").DigitNet()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    batches = [(torch.rand(64, 1, 8, 8), torch.randint(0, 10, (64,))) for _ in range(4)]
    criterion = torch.nn.CrossEntropyLoss()
    call = torch.compile(model) if way == "compiled" else model

    def update(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = criterion(call(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    if way == "whole step":
        update = torch.compile(update)
    return taking_turns(update, batches), 64


def taking_turns(update: Callable[[Any], Any], batches: list[Any]) -> Step:
    """A step on the next batch that gives its loss."""
    number = iter(range(1 << 60))
    return lambda: float(update(batches[next(number) % len(batches)]).item())


CASES = {"gpt": (gpt, "tokens"), "digits": (digits, "images")}
WAYS = ("eager", "compiled", "whole step")


def worker(name: str, way: str, threads: int) -> None:
    """Answers requests: {"case": name, "steps": n}."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # only answers go to stdout, whatever a library prints
    import torch  # lazy: this file is also the parent, which has none

    if threads:
        torch.set_num_threads(threads)
    hello = {
        "runtime": name, "way": way, "version": str(torch.__version__),
        "python": sys.version.split()[0], "threads": torch.get_num_threads(),
    }  # fmt: skip
    print(json.dumps(hello), file=answers)
    made: dict[str, tuple[Step, int]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        case = request["case"]
        if case not in made:
            torch.manual_seed(0)
            made[case] = CASES[case][0](torch, way)
        step, work = made[case]
        answer: dict[str, Any] = {"work": work, "seconds": [], "delays": [], "losses": []}
        for _ in range(request["steps"]):
            before, started = waited(), time.perf_counter()
            answer["losses"].append(step())
            seconds = time.perf_counter() - started
            answer["seconds"].append(seconds)
            answer["delays"].append((waited() - before) / seconds)
        print(json.dumps(answer), file=answers)


# ---- the parent ----------------------------------------------------------------------------------


class TooLong(Exception):
    """A worker did not answer in time, and was stopped."""


class Runner(Worker):
    """A worker for one runtime and way, with caches in a folder of its own."""

    limit = 60.0  # seconds for an answer

    def __init__(self, name: str, way: str, python: str, threads: int, folder: Path) -> None:
        own = folder / f"{name} {way}".replace(" ", "-")
        environment = os.environ | {
            "FLAMBEAU_CACHE_DIR": str(own), "TORCHINDUCTOR_CACHE_DIR": str(own),
        }  # fmt: skip
        self.way = way
        if name == "flambeau":
            paths = filter(None, [str(HERE.parent), environment.get("PYTHONPATH", "")])
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        start = [python, "-m", "flambeau"] if name == "flambeau" else [python]
        own_file = str(HERE / "compile_cpu.py")
        command = [*start, own_file, "--worker", name, way, str(threads)]
        super().__init__(name, command, environment)

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], self.limit)
        if not ready:
            self.process.kill()
            self.process.wait()
            raise TooLong
        return super()._read()


def typical(answers: list[dict[str, Any]]) -> float:
    """The median step of those that waited least for a processor."""
    steps = sorted(
        (delay, seconds)
        for answer in answers
        for delay, seconds in zip(answer["delays"], answer["seconds"], strict=True)
    )
    quiet = [seconds for delay, seconds in steps if delay < QUIET]
    return statistics.median(quiet if len(quiet) >= 10 else [s for _, s in steps[:10]])


Key = tuple[str, str]  # a runtime and a way


def first_steps(
    start: Callable[[Key], Runner], keys: list[Key], case: str, limit: float, keep: bool
) -> tuple[dict[Key, dict[str, Any]], list[Runner]]:
    """What the first steps of each gave, compiling among them; the workers, if they are to go on.
    Who takes too long is left out."""
    found, kept = {}, []
    for key in keys:
        runner = start(key)
        runner.limit = limit
        try:
            found[key] = runner.ask(case=case, steps=LOSSES)
        except TooLong:
            print(f"{case}: {' '.join(key)} took more than {limit:.0f} s", flush=True)
            continue
        runner.limit = Runner.limit
        if keep:
            kept.append(runner)
        else:
            runner.close()
    return found, kept


def measured(
    start: Callable[[Key], Runner], keys: list[Key], case: str, opts: Any
) -> tuple[dict[str, Any], list[Any]]:
    """One row of the result, and the runtimes in it."""
    cold, _ = first_steps(start, keys, case, opts.limit, False)
    warm, runners = first_steps(start, list(cold), case, opts.limit, True)
    answers: dict[Key, list[dict[str, Any]]] = {}
    for number in range(opts.rounds):
        for r in runners if number % 2 else reversed(runners):
            answers.setdefault((r.name, r.way), []).append(r.ask(case=case, steps=opts.steps))
            time.sleep(0.02)  # idle threads of the others spin for a moment
    row: dict[str, Any] = {"case": case, "unit": CASES[case][1]}
    row.update({" ".join(key): {"over": opts.limit} for key in keys if key not in answers})
    for key, found in answers.items():
        step = typical(found)
        eager = cold[key[0], "eager"]["losses"]
        row[" ".join(key)] = {
            "a_second": found[0]["work"] / step,
            "step": step,
            "compile_cold": cold[key]["seconds"][0] - step,
            "compile_warm": warm[key]["seconds"][0] - step,
            "losses_apart": max(
                abs(a - b) for a, b in zip(cold[key]["losses"], eager, strict=True)
            ),
            "losses": cold[key]["losses"],
        }
    for runner in runners:
        runner.close()
    return row, [runner.hello for runner in runners]


def print_table(rows: list[dict[str, Any]], keys: list[str]) -> None:
    print("\n| training step | " + " | ".join(keys) + " |\n|---|" + "---:|" * len(keys))

    def line(text: str, values: list[str]) -> None:
        print(f"| {text} | " + " | ".join(values) + " |")

    for row in rows:
        found, name = [row[key] for key in keys], row["case"]

        def told(field: str, form: str, found: list[dict[str, Any]] = found) -> list[str]:
            return [form.format(f[field]) if field in f else "stopped" for f in found]

        line(f"{name}, {row['unit']}/s", told("a_second", "{:,.0f}"))
        for heat in ("cold", "warm"):
            text = f"{name}, the first step takes longer by, {heat} caches"
            line(text, told(f"compile_{heat}", "{:.2f} s"))
        line(f"{name}, losses from eager's at most", told("losses_apart", "{:.1e}"))


def slower(rows: list[dict[str, Any]]) -> list[str]:
    """Where flambeau's compiled steps are slower than eager ones, a line each."""
    broken = []
    for row in rows:
        for key in (k for k in row if k.startswith("flambeau") and k != "flambeau eager"):
            for other in ("flambeau eager", "torch eager"):
                if "a_second" in row.get(other, {}) and "a_second" in row[key]:
                    ratio = row[key]["a_second"] / row[other]["a_second"]
                    if ratio < 1 - NOISE:
                        broken.append(f"{row['case']}: {key} runs at {ratio:.2f} of {other}")
    return broken


def main() -> int:
    parser = options.parser(__file__, __doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=6, help="turns of each (%(default)s)")
    add("--steps", type=int, default=5, help="steps a turn (%(default)s)")
    add("--limit", type=float, default=120, help="seconds for somebody's first steps (%(default)s)")
    add("--threads", type=int, default=0, help="threads of each (0: what the runtime takes)")
    add("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    add("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    add("--check", action="store_true", help="exit 1 where a compiled step is slower")
    opts = parser.parse_args()
    pythons = options.pythons(opts)
    keys = [(name, way) for way in opts.ways for name in pythons]
    rows: list[dict[str, Any]] = []
    runtimes: dict[str, Any] = {}
    for case in opts.cases:
        with tempfile.TemporaryDirectory() as folder:

            def start(key: Key, folder: str = folder) -> Runner:
                return Runner(*key, pythons[key[0]], opts.threads, Path(folder))

            row, seen = measured(start, keys, case, opts)
        rows.append(row)
        runtimes.update({f"{hello['runtime']} {hello['way']}": hello for hello in seen})
        result = {"processor": processor(), "runtimes": list(runtimes.values()), "rows": rows}
        options.write(opts, result)
        print_table([row], [" ".join(key) for key in keys])
    broken = slower(rows)
    print(*broken, sep="\n")
    return 1 if opts.check and broken else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(main())
