"""The recorded calls through the graph path: capture, joint graph, generated kernels.

`python -m tests.oracle.compiled [--limit 20]`: through `torch.compile`, all back ends of
`captured.py` in one pass. `--runner flambeau._src.compiler.aot:aot_function`: without the capture.

A runner is `module:name` of a function that takes `fn(*tensors)` (and returns tensors in a tuple or
list, differentiable where the call is) and returns the compiled form, called alike. Results and
gradients are judged against eager of the same runtime, with torch's recorded float64 reference in
the middle: |compiled − ref| ≤ max(|eager − ref|, 2 ulp of the result's scale); over all calls the
root mean square of relative errors is printed for both sides (the bound is 1.05 × eager's).
"""

from __future__ import annotations

import importlib
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.oracle import captured, checks, replay, run, wire
from tests.oracle.compare import EPS, Judge
from tests.oracle.entries import ENTRIES, Entry, resolve

REPORT = run.REPOSITORY / "build" / "oracle_compiled.json"
KNOWN = run.HERE / "known_compiled.txt"
BACK_ENDS = "aot_eager,inductor,aot_eager_dynamic,inductor_dynamic"
LONGEST = 3_600.0  # seconds for all samples of a file
ZERO = 2.0**-52  # what float64 may leave of zero, of inputs that are about one
TENSOR = object()
# The shape of a result depends on values (masks, tensor bounds): no graph without guards on them.
DATA_DEPENDENT = (
    "DynamicOutputShapeException:", "DataDependentOutputException:", "GuardOnDataDependentSymNode:",
    "Unsupported: The shape of ", "Unsupported: A value of a tensor is needed",
    "Unsupported: Could not guard on data-dependent expression",  # as PyTorch says it
)  # fmt: skip


def through_torch(fn: Callable[..., Any]) -> Callable[..., Any]:
    """torch's own joint graph, run node by node: the runner of the self-check."""
    compile_module = importlib.import_module("functorch.compile")
    return compile_module.aot_function(fn, compile_module.nop)


def find_runner(text: str) -> Callable[..., Any]:
    """`module:name` → the function."""
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def checks_of(runners: str) -> dict[str, str]:
    """Runners by the check that they are counted under, from `module:name[,module:name...]`."""
    each = [t if ":" in t else f"tests.oracle.captured:{t}" for t in runners.split(",")]
    if len(each) == 1:
        return {"compiled": each[0]}
    return {text.partition(":")[2]: text for text in each}


def spread(items: list[Any], limit: int) -> list[Any]:
    """At most `limit` of the items (0: all), from all over."""
    if not limit or len(items) <= limit:
        return items
    return [items[i * len(items) // limit] for i in range(limit)]


class Lifted:
    """A call with its tensors taken out: `fn(*tensors)` of a recorded call."""

    def __init__(self, rt: ModuleType, fn: Callable[..., Any], inputs: wire.Inputs) -> None:
        self.rt, self.fn = rt, fn
        self.numbers = {id(tensor): i for i, tensor in enumerate(inputs.tensors)}
        self.args = [self._cut(item) for item in inputs.args]
        self.kwargs = {key: self._cut(item) for key, item in inputs.kwargs.items()}

    def _cut(self, value: Any) -> Any:
        if isinstance(value, self.rt.Tensor):
            return (TENSOR, self.numbers[id(value)])
        if type(value) in (tuple, list):
            return type(value)(self._cut(item) for item in value)
        return value

    def _fill(self, value: Any, tensors: tuple[Any, ...]) -> Any:
        if type(value) is tuple and len(value) == 2 and value[0] is TENSOR:
            return tensors[value[1]]
        if type(value) in (tuple, list):
            return type(value)(self._fill(item, tensors) for item in value)
        return value

    def program(self, text: str) -> Callable[..., Any]:
        """The call as a small program of its tensors; `text` names the function."""
        made = captured.Program(self.rt, text, self.fn, TENSOR)
        return made.build(self.args, self.kwargs, len(self.numbers))

    def __call__(self, *tensors: Any) -> list[Any]:
        args = [self._fill(item, tensors) for item in self.args]
        kwargs = {key: self._fill(item, tensors) for key, item in self.kwargs.items()}
        return checks.leaves(self.fn(*args, **kwargs), self.rt)


def both(
    case: checks.Case, fn: Callable[..., Any], runner: Callable[..., Any] | None, text: str,
    grad: bool = True,
) -> Any:  # fmt: skip
    """Results and first gradients of one call, eager or compiled."""
    inputs = case.load(grad=grad)
    call = Lifted(case.rt, fn, inputs)
    run_it: Callable[..., Any] = call
    if getattr(runner, "wants_program", False):
        assert runner is not None
        run_it = runner(call.program(text))
    elif runner is not None:
        run_it = runner(lambda *tensors: call(*tensors))
    outs = checks.leaves(run_it(*inputs.tensors), case.rt)
    if isinstance(run_it, captured.Compiled):
        run_it.again(*case.load(grad=grad).tensors)
    results = {"out": [_values(case, out) for out in outs], "mut": case.mutations(inputs)}
    sources = [t for t in inputs.tensors if t.requires_grad]
    grown = [out for out in outs if out.requires_grad]
    if sources and grown:
        dots = [checks.cotangent(case.rt, o, 1000 * case.number + i) for i, o in enumerate(grown)]
        results["unit"] = _units(sources, grown, dots)
        grads = case.rt.autograd.grad(grown, sources, dots, allow_unused=True)
        results["grad"] = [None if g is None else _values(case, g) for g in grads]
    return results


def _units(sources: list[Any], outs: list[Any], dots: list[Any]) -> list[float]:
    """By source, the size of a gradient's terms: what the results weigh, over the source's size."""

    def size(tensor: Any) -> float:
        return float(tensor.detach().abs().double().max()) if tensor.numel() else 0.0

    weight = max(size(out) * size(dot) for out, dot in zip(outs, dots, strict=True))
    return [weight / (size(source) or 1.0) for source in sources]


def _values(case: checks.Case, tensor: Any) -> Any:
    return wire.encode_output(case.rt, tensor, case.pack, [])


def leaf_nodes(tree: Any) -> list[Any]:
    """Tensor nodes of a recorded result, in order."""
    return [node for node in wire.walk(tree) if node.get("k") == "out"]


class Errors:
    """Sums of squared relative errors against the references, compiled and eager."""

    def __init__(self) -> None:
        self.sums = [0.0, 0.0, 0.0]

    def add(self, ours: np.ndarray, theirs: np.ndarray, wide: np.ndarray, eps: float) -> None:
        """One tensor: errors in units of eps times its largest value. Left out where eager is
        off by more than 1,000 of them: a discontinuity or a cancellation, not rounding. So is a
        tensor that is zero in truth, of which the reference has what its own rounding left: there
        is no unit. (What single calls may be off by is judged apart from this.)
        """
        with np.errstate(all="ignore"):
            fine = np.isfinite(ours) & np.isfinite(theirs) & np.isfinite(wide)
            if not fine.any() or not np.abs(wide[fine]).max():
                return
            unit = eps * np.abs(wide[fine]).max()
            if np.abs(theirs[fine] - wide[fine]).max() > 1000 * unit or unit < eps * ZERO:
                return
            for i, values in enumerate((ours, theirs)):
                self.sums[i] += float((((values[fine] - wide[fine]) / unit) ** 2).sum())
        self.sums[2] += int(fine.sum())


class CompiledReplayer:
    """One file, compiled against eager."""

    def __init__(self, rt: ModuleType, path: Path, runner: str, keep: int) -> None:
        self.rt = rt
        self.runners = {check: find_runner(text) for check, text in checks_of(runner).items()}
        for each in self.runners.values():
            if hasattr(each, "begin"):
                each.begin(rt)
        self.document, self.buffers = wire.read_file(path)
        self.entry: Entry = ENTRIES[self.document["label"]]
        self.call = self.entry.call.removeprefix("seed:")  # tensors are loaded with the seed set
        self.tally = replay.Tally(keep=keep)
        self.errors = Errors()

    def run(self, limit: int) -> None:
        """The samples that eager torch can run."""
        fn = resolve(self.rt, self.call)
        samples = [
            (number, sample)
            for number, sample in enumerate(self.document["samples"])
            if "out" in sample["checks"]["forward"] and not self._scalar(sample)
        ]
        for number, sample in spread(samples, limit):
            self.sample(number, sample, fn)

    @staticmethod
    def _scalar(sample: Any) -> bool:
        return not leaf_nodes(sample["checks"]["forward"]["out"]) or not sample["call"]["storages"]

    def sample(self, number: int, sample: Any, fn: Callable[..., Any]) -> None:
        """Both ways, then the judgement."""
        pack = wire.Pack()
        reader = wire.InputReader(self.rt, sample["call"], self.buffers)
        case = checks.Case(self.rt, reader, pack, number)
        where = f"#{number} {replay.describe(sample['call'])}"
        try:
            grad = "err" not in sample["checks"].get("grad", {})  # torch may have none either
            eager = both(case, fn, None, self.call, grad)
        except Exception as error:
            self.tally.add("eager", f"{type(error).__name__}: {error}", where)
            return
        for check, runner in self.runners.items():
            try:
                ours = both(case, fn, runner, self.call, grad)
            except Exception as error:
                self._raised(check, error, where)
                continue
            self._same(check, case, ours, eager, sample["refs"], where)

    def _raised(self, check: str, error: Exception, where: str) -> None:
        text = f"{type(error).__name__}: {error}"[:400]
        dependent = any(words in text for words in DATA_DEPENDENT)
        self.tally.add("data_dependent" if dependent else check, text, where)

    def _same(
        self, check: str, case: checks.Case, ours: Any, eager: Any, refs: Any, where: str
    ) -> None:
        wide = refs.get("forward", {}).get("out")
        self._judge(check, ours["out"], eager["out"], leaf_nodes([wide]), case.pack, where)
        if ours["mut"] != eager["mut"]:
            self.tally.add("writes", f"{ours['mut']}, eager {eager['mut']}", where)
        if "grad" in eager:
            wide = [n for n in refs.get("grad", {}).get("out", []) if n is not None]
            ours_grad = ours.get("grad", [])
            units = [u for u, n in zip(eager["unit"], eager["grad"], strict=True) if n is not None]
            known = [n for n in eager["grad"] if n is not None]
            if len(wide) == len(units):
                wide = [
                    self._with_unit(*of, case.pack) for of in zip(wide, known, units, strict=True)
                ]
            self._judge(f"{check}_grad", ours_grad, eager["grad"], wide, case.pack, where)

    def _with_unit(self, ref: Any, eager: Any, unit: float, pack: wire.Pack) -> Any:
        """A gradient's reference; the size of its terms is its scale where it is zero in truth: the
        reference is as large as roundings of these terms, and eager has not one digit of it."""
        truth = wire.to_array(self.buffers[ref["b"]], ref["dt"])
        left = float(np.abs(truth).max(initial=0.0))
        if not math.isfinite(unit) or not ZERO / 256 * unit <= left <= ZERO * 16 * unit:
            return ref
        values = wire.to_array(pack.buffers[eager["b"]], eager["dt"])
        off = float(np.abs(values - truth).max(initial=0.0)) if len(values) == len(truth) else 0.0
        return {**ref, "terms": unit} if off >= left / 2 else ref

    def _judge(
        self, check: str, ours: Any, theirs: Any, wide: Any, pack: wire.Pack, where: str
    ) -> None:
        judge = Judge(
            self.entry.kind, pack.buffers, pack.buffers, gradient="grad" in check, ulps=2,
            factor=1.0, wide=self.buffers, truth_counts=True,
        )  # fmt: skip
        known = [node for node in theirs if node is not None]
        if len(wide) != len(known):
            wide = [None] * len(known)
        references = iter(wide)
        aligned = [None if node is None else next(references) for node in theirs]
        self.tally.add(check, judge.tree(ours, theirs, aligned), where)
        for a, b, c in zip(ours, theirs, aligned, strict=False):
            if a and b and c and a["sz"] == b["sz"] == c["sz"] and b["dt"] in EPS:
                x, y = (wire.to_array(pack.buffers[n["b"]], n["dt"]) for n in (a, b))
                z = wire.to_array(self.buffers[c["b"]], c["dt"])
                if a["dt"] == b["dt"] and z.dtype == np.float64 and b["dt"] != "float64":
                    x, y = x.astype(np.float64), y.astype(np.float64)
                    self.errors.add(x, y, z, EPS[b["dt"]])


def replay_file(rt: ModuleType, path: Path, runner: str, limit: int, keep: int) -> Any:
    """As `replay.replay_file`, with `"rms": [compiled, eager, count]` sums."""
    warnings.simplefilter("ignore")
    replayer = CompiledReplayer(rt, path, runner, keep)
    replayer.run(limit)
    tally = replayer.tally
    sums = replayer.errors.sums
    return {"counts": tally.counts, "failures": tally.failures, "dropped": [], "rms": sums}


def root_mean_squares(results: run.Results) -> tuple[float, float]:
    """Of relative errors in units in the last place: `(compiled, eager)`."""
    sums = [0.0, 0.0, 0.0]
    for dtypes in results.values():
        for result in dtypes.values():
            sums = [a + b for a, b in zip(sums, result.get("rms", (0, 0, 0)), strict=True)]
    count = max(sums[2], 1)
    return math.sqrt(sums[0] / count), math.sqrt(sums[1] / count)


def main(argv: list[str]) -> int:
    """Replay compiled, report, and judge against `known_compiled.txt`."""
    parser = run.arguments()
    parser.set_defaults(known=KNOWN)
    parser.add_argument("--runner", default=BACK_ENDS, help="module:name, or names of captured.py")
    parser.add_argument("--limit", type=int, default=0, help="samples of a file; 0 for all")
    options = parser.parse_args(argv)
    paths = [p for p in run.choose(options.root, options) if judged(p)]
    if run.stale(options) or not paths:
        return run.complain(options)
    keep = 10_000 if options.verbose else replay.KEEP
    start = time.perf_counter()
    results = run.run_all(
        paths, options.runtime, options.jobs, keep, options.runner, options.limit,
        run.TIMEOUT if options.limit else LONGEST, kept=options.kept,
    )  # fmt: skip
    if options.verbose:
        run.print_failures(results)
    report = options.report
    if report is None and not (options.entry or options.dtype or options.limit):
        report = REPORT
    if report:
        run.write_report(results, options.runtime, report)
    ours, eager = root_mean_squares(results)
    texts = [t for dtypes in results.values() for r in dtypes.values() for t in r["failures"]]
    for cause, count in captured.causes(texts):
        sys.stdout.write(f"{count:6} {cause}\n")
    seconds = time.perf_counter() - start
    sys.stdout.write(
        f"{run.table(results)}\n{len(paths)} files in {seconds:.0f} s; root mean "
        f"square error in ulp of the scale: compiled {ours:.4f}, eager {eager:.4f}\n"
    )
    status = run.verdict(results, options)
    known = run.read_known(options.known) if options.runtime != "torch" else set()
    sys.stdout.write(run.end_line(results, known, seconds))
    return 1 if ours > 1.05 * eager else status


def judged(path: Path) -> bool:
    """Whether a file holds the samples of an entry."""
    return path.stem.rpartition(".")[0] in ENTRIES


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
