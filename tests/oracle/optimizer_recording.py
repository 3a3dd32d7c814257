"""Recording side of `optimizers.py`, in an environment with PyTorch: see `record_databases.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.testing._internal import common_optimizers

from tests.oracle import objects, optimizer_programs, wire

SHAPES = {"Muon": [(3, 4), (5, 2)], "sparse": [(6, 3), (4, 2)]}  # of parameters
STEPS = 4
#: Whose configurations beyond the CPU's are taken: eager refuses them, a compiled step doesn't.
ELSEWHERE = "cuda"


class Recorder:
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
            # A few iterations: at the minimum what is left is rounding.
            few = {"max_iter": 3} if variant == "closure" else {}
            yield differs, each.desc, each.kwargs | few
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
        refs = self.reference(sample, {"capturable": False} if kwargs.get("capturable") else {})
        return {"call": call, "variant": variant, "desc": desc, "checks": found, "refs": refs,
                "compiles": self.compiled(sample, variant, kwargs)}  # fmt: skip

    @staticmethod
    def reference(sample: Any, changed: dict[str, Any]) -> dict[str, Any]:
        """The same in 64 bits throughout: the counters of steps too, and Muon's iteration, which
        torch runs in bfloat16."""
        narrow = torch.Tensor.bfloat16
        torch.set_default_dtype(torch.float64)
        torch.Tensor.bfloat16 = torch.Tensor.double  # type: ignore[method-assign,assignment]
        try:
            found = optimizer_programs.run(sample, wide=True, **changed)
        finally:
            torch.set_default_dtype(torch.float32)
            torch.Tensor.bfloat16 = narrow  # type: ignore[method-assign]
        return {check: got for check, got in found.items() if "out" in got}

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
            yield from objects.raising(self.dropped, each, call, early, outcome, given.desc)
