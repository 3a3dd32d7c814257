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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.testing._internal import common_modules, common_optimizers

from tests.oracle import databases, module_programs, objects, optimizer_programs, wire

MODULE_DTYPES = ("float32", "float64", "bfloat16")
SHAPES = {"Muon": [(3, 4), (5, 2)], "sparse": [(6, 3), (4, 2)]}  # of parameters
STEPS = 4
LONG, EVERY = ("nn.LinearCrossEntropyLoss",), 40  # torch's own capture is asked at every 40th
#: Options that eager refuses on this device and a compiled step takes.
ELSEWHERE = "cuda"


class Modules:
    """One `ModuleInfo` under one dtype."""

    def __init__(self, name: str, dtype: str) -> None:
        self.name, self.dtype, self.pack = name, dtype, wire.Pack()
        self.info = next(info for info in common_modules.module_db if info.name == name)
        self.dropped: list[str] = []
        self.answer = ""

    @staticmethod
    def plan() -> list[tuple[str, str]]:
        """All `(name, dtype)`."""
        return [(info.name, dtype) for info in common_modules.module_db for dtype in MODULE_DTYPES]

    def document(self) -> wire.Node:
        """What the file holds."""
        modes = (True, False) if self.info.train_and_eval_differ else (True,)
        samples = [s for training in modes for s in self.samples(training)]
        errors = list(self.errors()) if self.dtype == "float32" else []
        return {"label": self.name, "dtype": self.dtype, "samples": samples, "errors": errors,
                "dropped": self.dropped}  # fmt: skip

    def inputs(self, make: Callable[..., Any], training: bool) -> Iterator[tuple[Any, Any]]:
        """`(input, its call on the wire)`."""
        made = objects.Constructions()
        torch.manual_seed(0)
        watched = [info.module_cls for info in common_modules.module_db]
        kind = getattr(torch, self.dtype)
        with made.watch(*watched):
            given = list(make(self.info, device="cpu", dtype=kind, requires_grad=True,
                              training=training))  # fmt: skip
        for number, each in enumerate(given):
            module = getattr(each, "module_error_input", each)
            first, second = module.constructor_input, module.forward_input
            parts = [first.args, first.kwargs]
            parts += [second.args, second.kwargs] if second else [(), {}]
            try:
                writer = objects.ObjectWriter(torch, self.pack, made=made)
                yield each, writer.call(tuple(parts), {})
            except wire.Unencodable as why:
                self.dropped.append(f"{make.__name__} {number}: {why}")

    def sample(self, call: wire.Node, training: bool, number: int, calls: bool) -> Any:
        """The programs' view of a call."""
        reader = objects.ObjectReader(torch, call, self.pack.buffers)
        return module_programs.Sample(
            torch, self.name, self.dtype, training, reader, self.pack, number, calls
        )

    def samples(self, training: bool) -> Iterator[wire.Node]:
        """Every check of every input."""
        try:
            given = list(self.inputs(self.info.module_inputs_func, training))
        except Exception as why:  # the database makes none of this dtype
            self.dropped.append(f"no inputs: {why}"[:200])
            return
        for number, (each, call) in enumerate(given):
            sample = self.sample(call, training, number, each.forward_input is not None)
            found = module_programs.run(sample)
            refs: dict[str, Any] = {}
            fine = "out" in found.get("forward", {}) and self.dtype in wire.WIDER
            if fine and not module_programs.draws(sample):
                try:
                    refs = module_programs.called(sample, sample.widened())
                except wire.Unencodable:
                    refs = {}
            refs = {check: found for check, found in refs.items() if "out" in found}
            compiles = self.compiled(sample, number) if fine else ""
            yield {"call": call, "training": training, "calls": sample.calls, "number": number,
                   "desc": each.desc, "checks": found, "refs": refs,
                   "compiles": compiles}  # fmt: skip

    def compiled(self, sample: Any, number: int) -> str:
        """What torch itself says to the compiled module: the error's type, or nothing. Of a long
        list one in some is asked, for those after it too."""
        if self.dtype != "float32":
            return "not asked"  # the operators' oracle compiles the other dtypes
        if number % EVERY and self.name in LONG:
            return self.answer
        torch._dynamo.reset()
        try:
            module = sample.make()
            sample.call(torch.compile(module, backend="eager", fullgraph=True))
            self.answer = ""
        except Exception as error:
            self.answer = type(error).__name__
        return self.answer

    def errors(self) -> Iterator[wire.Node]:
        """The inputs that must raise."""
        make = self.info.module_error_inputs_func
        if make is None:
            return
        for number, (each, call) in enumerate(self.inputs(make, True)):
            early = each.error_on == common_modules.ModuleErrorEnum.CONSTRUCTION_ERROR
            outcome = module_programs.error(self.sample(call, True, number, True), early)
            yield from _raising(self, each, call, early, outcome, str(number))


class Optimizers:
    """One `OptimizerInfo` under one dtype."""

    def __init__(self, name: str, dtype: str) -> None:
        self.name, self.dtype, self.pack = name, dtype, wire.Pack()
        self.info = next(info for info in common_optimizers.optim_db if info.name == name)
        self.dropped: list[str] = []
        self.compiles: dict[Any, str] = {}

    @staticmethod
    def plan() -> list[tuple[str, str]]:
        """All `(name, dtype)`."""
        jobs = []
        for info in common_optimizers.optim_db:
            dtypes = ["float32", "float64", "bfloat16"] + ["complex64"] * info.supports_complex
            jobs += [(info.name, dtype) for dtype in dtypes]
        return jobs

    def document(self) -> wire.Node:
        """What the file holds."""
        samples = [self.one(*each) for each in self.inputs()]
        errors = list(self.errors()) if self.dtype == "float32" else []
        return {"label": self.name, "dtype": self.dtype, "samples": samples, "errors": errors,
                "dropped": self.dropped}  # fmt: skip

    def inputs(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """`(variant, description, constructor kwargs)`: the database's configurations with every
        implementation; those for an accelerator; groups and sparse gradients."""
        info = self.info
        variant = "closure" if info.step_requires_closure else "plain"
        if info.only_supports_sparse_grads:
            variant = "sparse"
        every = common_optimizers._get_optim_inputs_including_global_cliquey_kwargs(
            "cpu", None, info
        )
        seen = {repr(each.kwargs) for each in info.optim_inputs_func(device="cpu")}
        for each in every:
            differs = "differentiable" if each.kwargs.get("differentiable") else variant
            yield differs, each.desc, each.kwargs
            if info.supports_param_groups and each.desc.startswith("default"):
                yield from [("groups", f"{each.desc}, groups", each.kwargs)] * (differs == "plain")
        for each in info.optim_inputs_func(device=ELSEWHERE):
            if repr(each.kwargs) not in seen:
                for flag in (False, True):
                    yield variant, f"{each.desc} & foreach {flag}", each.kwargs | {"foreach": flag}
        if info.supports_sparse:
            yield "sparse", "sparse gradients", info.metadata_for_sparse[0]

    def one(self, variant: str, desc: str, kwargs: dict[str, Any]) -> wire.Node:
        """Every check of one configuration."""
        random = np.random.RandomState(7)
        shapes = SHAPES.get(self.name) or SHAPES.get(variant) or [(3, 4), (5,), (2, 3, 2), ()]
        kind = getattr(torch, self.dtype)

        def some(shape: tuple[int, ...]) -> torch.Tensor:
            values = random.randint(-200, 200, shape).astype(np.float64) / 128
            if kind.is_complex:
                values = values + 1j * random.randint(-200, 200, shape) / 128
            return torch.from_numpy(np.asarray(values)).to(kind)

        parameters = [torch.nn.Parameter(some(shape)) for shape in shapes]
        gradients = [[some(shape) for shape in shapes] for _ in range(STEPS)]
        if variant == "sparse":
            for step, each in enumerate(gradients):
                for gradient in each:
                    gradient[step % 3] = 0
        call = objects.ObjectWriter(torch, self.pack).call((parameters, kwargs, gradients), {})
        reader = objects.ObjectReader(torch, call, self.pack.buffers)
        sample = optimizer_programs.Sample(torch, self.name, variant, reader, self.pack)
        found = optimizer_programs.run(sample)
        refs = {}
        if self.dtype in wire.WIDER:
            free = {"capturable": False} if kwargs.get("capturable") else {}
            wider = optimizer_programs.run(sample, wide=True, **free)
            refs = {check: got for check, got in wider.items() if "out" in got}
        return {"call": call, "variant": variant, "desc": desc, "checks": found, "refs": refs,
                "compiles": self.compiled(sample, variant, kwargs)}  # fmt: skip

    def compiled(self, sample: Any, variant: str, kwargs: dict[str, Any]) -> str:
        """What torch itself says to a compiled step: the error's type, or nothing."""
        flags = ("foreach", "fused", "differentiable", "capturable")
        key = (variant, *(bool(kwargs.get(flag)) for flag in flags))
        if key not in self.compiles:
            torch._dynamo.reset()
            try:
                optimizer = sample.make()
                step = torch.compile(optimizer_programs.bare(optimizer), backend="eager",
                                     fullgraph=True)  # fmt: skip
                got = optimizer_programs.stepped(sample, optimizer, step)["steps"]
                self.compiles[key] = got.get("err", [""])[0]
            except Exception as error:
                self.compiles[key] = type(error).__name__
        return self.compiles[key]

    def errors(self) -> Iterator[wire.Node]:
        """The inputs that must raise."""
        torch.manual_seed(0)
        for number, each in enumerate(self.info.optim_error_inputs_func("cpu", torch.float32)):
            given = each.optimizer_error_input
            parameters = given.params
            if parameters is None:
                parameters = [torch.nn.Parameter(torch.randn(2, 3))]
            try:
                writer = objects.ObjectWriter(torch, self.pack)
                call = writer.call((parameters, given.kwargs), {})
            except wire.Unencodable as why:
                self.dropped.append(f"error input {number}: {why}")
                continue
            early = each.error_on == common_optimizers.OptimizerErrorEnum.CONSTRUCTION_ERROR
            reader = objects.ObjectReader(torch, call, self.pack.buffers)
            outcome = optimizer_programs.error(torch, self.name, reader, early)
            yield from _raising(self, each, call, early, outcome, given.desc)


def _raising(
    of: Any, each: Any, call: Any, early: bool, outcome: Any, desc: str
) -> Iterator[wire.Node]:
    if "err" not in outcome:
        of.dropped.append(f"error input {desc}: torch raises nothing")
        return
    kinds = each.error_type if isinstance(each.error_type, tuple) else (each.error_type,)
    yield {"call": call, "early": early, "types": [kind.__name__ for kind in kinds],
           "regex": each.error_regex, "torch": outcome["err"], "desc": desc}  # fmt: skip


RECORDERS = {"modules": Modules, "optimizers": Optimizers}


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
