"""Recording side of `modules.py`, in an environment with PyTorch: see `record_databases.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal import common_modules

from tests.oracle import module_programs, objects, wire

DTYPES = ("float32", "float64", "bfloat16")
#: Of these torch's own capture is asked at every 20th input.
LONG = ("nn.LinearCrossEntropyLoss", "nn.MultiheadAttention", "nn.Transformer",
        "nn.TransformerDecoderLayer", "nn.TransformerEncoder",
        "nn.TransformerEncoderLayer")  # fmt: skip
EVERY = 20


class Recorder:
    """One `ModuleInfo` under one dtype."""

    def __init__(self, name: str, dtype: str) -> None:
        self.name, self.dtype, self.pack = name, dtype, wire.Pack()
        self.info = next(info for info in common_modules.module_db if info.name == name)
        self.dropped: list[str] = []

    @staticmethod
    def plan() -> list[tuple[str, str]]:
        """All `(name, dtype)`."""
        return [(info.name, dtype) for info in common_modules.module_db for dtype in DTYPES]

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
        """What torch itself says to the compiled module: the error's type, or nothing."""
        if self.dtype != "float32" or (number % EVERY and self.name in LONG):
            return "not asked"  # the operators' oracle compiles the other dtypes
        torch._dynamo.reset()
        try:
            module = sample.make()
            sample.call(torch.compile(module, backend="eager", fullgraph=True))
        except Exception as error:
            return type(error).__name__
        return ""

    def errors(self) -> Iterator[wire.Node]:
        """The inputs that must raise."""
        make = self.info.module_error_inputs_func
        if make is None:
            return
        for number, (each, call) in enumerate(self.inputs(make, True)):
            early = each.error_on == common_modules.ModuleErrorEnum.CONSTRUCTION_ERROR
            outcome = module_programs.error(self.sample(call, True, number, True), early)
            yield from objects.raising(self.dropped, each, call, early, outcome, str(number))
