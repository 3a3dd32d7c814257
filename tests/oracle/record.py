"""Recording side: runs in an environment with PyTorch, writes one file per entry and dtype.

`python -m tests.oracle.record [--jobs N] [--entry LABEL] [--dtype NAME] [--root DIR]`.
A recording is resumable: files that exist are kept. Its folder is named by torch's version and
the digest of the sources that shape a recording.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.oracle import checks, more_samples, programs, truths, wire
from tests.oracle.entries import ENTRIES, Entry, resolve

DEFAULT_ROOT = Path(__file__).resolve().parents[2] / "build" / "oracle"
FULL = ("float32", "float64", "bfloat16")
LIGHT = ("int64", "bool", "complex64", "float16")
LIGHT_SAMPLES = 12  # of an entry in one of these: coverage of dtypes, not of shapes


def folder(root: Path) -> Path:
    """Where this recording goes: version and digest of what determines its content."""
    return root / f"torch-{torch.__version__}-{wire.digest()}"


def find(entry: Entry) -> Any:
    """The operator database's record of `entry`."""
    for op in op_db:
        if (op.name, op.variant_test_name) == (entry.name, entry.variant):
            return op
    raise LookupError(f"torch {torch.__version__} has no entry {entry.label}")


def plan() -> list[tuple[str, str]]:
    """All `(label, dtype)` that torch itself supports, costliest first."""
    jobs = [("programs", "any")]
    by_key = {(op.name, op.variant_test_name): op for op in op_db}
    for entry in ENTRIES.values():
        op = by_key[entry.name, entry.variant]
        dtypes = {wire.dtype_name(d) for d in op.supported_dtypes("cpu")}
        jobs += [(entry.label, name) for name in (*FULL, *LIGHT) if name in dtypes]
    return sorted(jobs, key=lambda job: ("max_pool" not in job[0], "conv" not in job[0]))


def is_further(label: str) -> bool:
    """Whether the entry is recorded only when asked for."""
    return label in ENTRIES and ENTRIES[label].further


class Recorder:
    """One entry under one dtype."""

    def __init__(self, entry: Entry, dtype: str) -> None:
        self.entry, self.dtype = entry, dtype
        self.op = find(entry)
        self.pack = wire.Pack()
        self.dropped: list[str] = []
        self.left_out = 0  # reference inputs of more than `more_samples.BIGGEST` elements
        kind = getattr(torch, dtype)
        self.autograd = bool(
            self.op.supports_autograd
            and kind in self.op.supported_backward_dtypes("cpu")
            and (kind.is_floating_point or kind.is_complex)
        )
        self.gradgrad = self.autograd and self.op.supports_gradgrad
        self.in_place_autograd = self.autograd and self.op.supports_inplace_autograd

    def variants(self) -> dict[str, tuple[Callable[..., Any], str]]:
        """`check name → (torch's callable, call text)` of method, in-place, operator, aliases."""
        found: dict[str, tuple[Callable[..., Any], str]] = {}
        op, entry = self.op, self.entry
        if op.method_variant is not None and not entry.call.startswith("Tensor."):
            text = entry.method or f"Tensor.{op.method_variant.__name__}"
            found["method"] = (op.method_variant, text)
        if op.inplace_variant is not None:
            name = getattr(op.inplace_variant, "__name__", "<lambda>")  # a partial has none
            text = f"inplace:{entry.call}" if name == "<lambda>" else f"Tensor.{name}"
            found["inplace"] = (op.inplace_variant, entry.inplace or text)
        if op.operator_variant is not None:
            name = op.operator_variant.__name__.strip("_")
            found["operator"] = (op.operator_variant, name)
        return found

    def resolve_check(self, call: str, fn: Callable[..., Any]) -> None:
        """A dotted call text must name the very object that the database holds."""
        if ":" not in call and not call.startswith("torch.ops."):
            target = resolve(torch, call)
            same = target is fn or getattr(fn, "__name__", "") == "<lambda>"
            if not same and getattr(fn, "__name__", None) != getattr(target, "__name__", None):
                raise LookupError(f"{call} is not what {self.entry.label} names")

    def run(self) -> wire.Node:
        """The document of the entry's file."""
        self.resolve_check(self.entry.call, self.op.op)
        kind = getattr(torch, self.dtype)
        recorded = []
        for number, sample in enumerate(self.samples(kind)):
            try:
                recorded.append(self.sample(number, sample))
            except wire.Unencodable as error:
                self.dropped.append(f"sample {number}: {error}")
        return {
            "label": self.entry.label, "dtype": self.dtype, "samples": recorded,
            "errors": self.errors() if self.dtype == "float32" else [], "dropped": self.dropped,
            "left_out": self.left_out,
            "calls": {check: text for check, (_, text) in self.variants().items()},
            "aliases": [alias.name for alias in self.op.aliases],
        }  # fmt: skip

    def samples(self, kind: torch.dtype) -> Iterator[Any]:
        """The database's samples, then (float dtypes) its reference inputs and ours."""
        standard = self.op.sample_inputs("cpu", kind, requires_grad=self.autograd)
        if self.dtype in LIGHT:
            yield from itertools.islice(standard, LIGHT_SAMPLES)
            return
        yield from standard
        if self.op.reference_inputs_func is not None:
            kept, big = more_samples.reference(self.op, self.entry, kind, self.autograd)
            self.left_out = big
            yield from kept
        yield from more_samples.beyond(self.op, self.entry, kind, self.autograd)

    def sample(self, number: int, sample: Any) -> wire.Node:
        """Every check of one sample."""
        writer = wire.InputWriter(torch, self.pack)
        call = writer.call((sample.input, *sample.args), sample.kwargs)
        reader = wire.InputReader(torch, call, self.pack.buffers)
        case = checks.Case(torch, reader, self.pack, number)
        op, entry = self.op.op, self.entry
        found: dict[str, Any] = {"forward": checks.forward(case, op)}
        refs: dict[str, Any] = {}
        if "out" in found["forward"]:
            found |= checks.gradients(case, op, second=self.gradgrad)
            if self.dtype == "float64":
                refs = truths.find(entry.label, case, op)
            elif entry.kind not in ("random", "meta"):
                refs = self.reference(case)
        for check, (fn, text) in self.variants().items():
            self.resolve_check(text, fn) if check != "operator" else None
            if check == "inplace":
                found["inplace"] = checks.inplace(case, fn)
                if self.in_place_autograd and "out" in found["inplace"]:
                    results = checks.gradients(case, fn, second=False, clone=True)
                    if "grad" in results:
                        found["inplace_grad"] = results["grad"]
            else:
                outcome = checks.forward(case, fn)
                found[check] = "same" if outcome == found["forward"] else outcome
        if self.op.supports_out:
            found["out"] = checks.out_forms(case, op)
        return {"call": call, "checks": found, "refs": refs, "name": sample.name}

    def reference(self, case: checks.Case) -> dict[str, Any]:
        """The same call with every float in 64 bits; nothing where that cannot be run."""
        torch.set_default_dtype(torch.float64)
        try:
            refs = {"forward": checks.forward(case, self.op.op, wide=True)}
            if "out" in refs["forward"]:
                refs |= checks.gradients(case, self.op.op, second=self.gradgrad, wide=True)
            if "out" in refs.get("grad", {}) and self.entry.kind == "pointwise":
                norms = checks.term_norms(case, self.op.op)
                for node, norm in zip(refs["grad"]["out"], norms, strict=True):
                    if node is not None and norm is not None:
                        node["terms"] = norm
            if self.op.inplace_variant is not None:
                refs["inplace"] = checks.inplace(case, self.op.inplace_variant, wide=True)
            return {check: found for check, found in refs.items() if "out" in found}
        except wire.Unencodable:
            return {}
        finally:
            torch.set_default_dtype(torch.float32)

    def errors(self) -> list[wire.Node]:
        """The calls that must raise: type, message pattern, and what torch really said."""
        if self.op.error_inputs_func is None:
            return []
        recorded = []
        for number, error in enumerate(self.op.error_inputs("cpu")):
            sample = error.sample_input
            try:
                writer = wire.InputWriter(torch, self.pack)
                call = writer.call((sample.input, *sample.args), sample.kwargs)
            except wire.Unencodable as why:
                self.dropped.append(f"error input {number}: {why}")
                continue
            reader = wire.InputReader(torch, call, self.pack.buffers)
            outcome = checks.call_error(checks.Case(torch, reader, self.pack, number), self.op.op)
            if "err" not in outcome:
                self.dropped.append(f"error input {number}: torch raises nothing")
                continue
            kinds = error.error_type
            names = [k.__name__ for k in (kinds if isinstance(kinds, tuple) else (kinds,))]
            recorded.append(
                {"call": call, "types": names, "regex": error.error_regex, "torch": outcome["err"]}
            )
        return recorded


def record_one(job: tuple[str, str, str]) -> tuple[str, float, str, list[str]]:
    """Record one file; `(name, seconds, problem, dropped)`."""
    label, dtype, target = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    name = f"{label}.{dtype}"
    path = Path(target) / f"{name}.zip"
    start = time.perf_counter()
    if path.exists():
        return name, 0.0, "", []
    try:
        if label == "programs":
            pack = wire.Pack()
            document = programs.record(torch, pack)
        else:
            recorder = Recorder(ENTRIES[label], dtype)
            document, pack = recorder.run(), recorder.pack
        wire.write_file(path, document, pack)
    except Exception:
        return name, time.perf_counter() - start, traceback.format_exc(), []
    return name, time.perf_counter() - start, "", document.get("dropped", [])


def main() -> int:
    """Record what is asked for; non-zero if something could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--entry", action="append")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--further", action="store_true", help="the entries of further.py too")
    parser.add_argument("--root", type=Path, default=DEFAULT_ROOT)
    options = parser.parse_args()
    target = folder(options.root)
    for stale in options.root.glob("torch-*"):
        if stale != target:
            shutil.rmtree(stale)  # of older sources here: nothing reads it any more
    target.mkdir(parents=True, exist_ok=True)
    jobs = [
        (label, dtype, str(target))
        for label, dtype in plan()
        if (label in options.entry if options.entry else options.further or not is_further(label))
        and (not options.dtype or dtype in options.dtype)
    ]
    start, problems, timings, dropped = time.perf_counter(), {}, {}, {}
    with multiprocessing.Pool(options.jobs, maxtasksperchild=40) as pool:
        for name, seconds, problem, lost in pool.imap_unordered(record_one, jobs):
            timings[name] = round(seconds, 2)
            if problem:
                problems[name] = problem
            if lost:
                dropped[name] = lost
    summary = {"torch": torch.__version__, "jobs": len(jobs), "problems": problems}
    (target / "manifest.json").write_text(json.dumps(summary, indent=1))
    latest = options.root / f"latest.{os.getpid()}.part"
    latest.write_text(target.name)
    latest.replace(options.root / "latest")  # not written in place: the file may be a hard link
    for name, text in problems.items():
        sys.stderr.write(f"{name}: not recorded\n{text}\n")
    for name, lost in dropped.items():
        sys.stderr.write(f"{name}: dropped {len(lost)}: {lost[0]}\n")
    slow = sorted(timings.items(), key=lambda item: -item[1])[:8]
    sys.stdout.write(f"{len(jobs)} files in {time.perf_counter() - start:.0f} s, {target}\n")
    sys.stdout.write("slowest: " + ", ".join(f"{n} {s} s" for n, s in slow) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
