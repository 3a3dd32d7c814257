"""Faults planted in torch itself: each must be caught, by the check that is meant to catch it.

`PATH -m tests.oracle.selfcheck` in the environment that has torch, after a recording.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tests.oracle import replay, run


class Planted(ModuleType):
    """torch, with one function replaced."""

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        super().__init__("planted")
        head, _, self.__dict__["last"] = name.rpartition(".")
        self.__dict__["fn"] = fn
        self.__dict__["head"] = head

    def __getattr__(self, name: str) -> Any:
        if not self.head and name == self.last:
            return self.fn
        if name == self.head.partition(".")[0]:
            return _Inner(getattr(torch, name), self.head.partition(".")[2], self.last, self.fn)
        return getattr(torch, name)


class _Inner:
    def __init__(self, target: Any, rest: str, last: str, fn: Callable[..., Any]) -> None:
        self.target, self.rest, self.last, self.fn = target, rest, last, fn

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if not self.rest and name == self.last:
            return self.fn
        if self.rest and name == self.rest.partition(".")[0]:
            return _Inner(value, self.rest.partition(".")[2], self.last, self.fn)
        return value

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, self.target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target(*args, **kwargs)


class WrongExp(torch.autograd.Function):
    """exp whose backward has lost its saved output."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """exp(x)."""
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Wrong: multiplies by the input."""
        return grad * ctx.saved_tensors[0]


class ShallowTanh(torch.autograd.Function):
    """tanh with a right first gradient that forgets the dependence on its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """tanh(x)."""
        y = torch.tanh(x)
        ctx.y = y.detach()
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Right in value, constant in x."""
        return grad * (1 - ctx.y * ctx.y)


def reversed_strides(*args: Any, **kwargs: Any) -> Any:
    """add, laid out the other way round."""
    out = torch.add(*args, **kwargs)
    if kwargs.get("out") is not None or out.dim() < 2:
        return out
    return out.transpose(0, -1).contiguous().transpose(0, -1)


def narrow_sum(x: Any, *args: Any, **kwargs: Any) -> Any:
    """sum that accumulates in bfloat16, one rounding an element."""
    if x.dtype != torch.bfloat16 or args or kwargs not in ({}, {"dim": 0}) or x.dim() != 1:
        return torch.sum(x, *args, **kwargs)
    total = torch.zeros((), dtype=x.dtype)
    for item in x.unbind():
        total = total + item
    return total


def wrong_promotion(a: Any, b: Any, **kwargs: Any) -> Any:
    """mul whose Python scalar promotes as if it were a float64 tensor."""
    scalar = isinstance(b, (int, float)) and a.dtype == torch.float32
    return torch.mul(a, torch.tensor([float(b)], dtype=torch.float64) if scalar else b, **kwargs)


def no_statistics(x: Any, mean: Any, var: Any, *args: Any, **kwargs: Any) -> Any:
    """batch_norm that forgets to update the running statistics."""
    copies = [None if t is None else t.clone() for t in (mean, var)]
    return torch.nn.functional.batch_norm(x, *copies, *args, **kwargs)


def ignores_out(*args: Any, out: Any = None, **kwargs: Any) -> Any:
    """sub that returns a new tensor whatever out= says."""
    return torch.sub(*args, **kwargs)


def other_draws(p: Any, *args: Any, **kwargs: Any) -> Any:
    """bernoulli with the right distribution and other numbers."""
    torch.rand(1)
    return torch.bernoulli(p, *args, **kwargs)


def other_error(x: Any, *args: Any, **kwargs: Any) -> Any:
    """gather that reports every error as a ValueError."""
    try:
        return torch.gather(x, *args, **kwargs)
    except RuntimeError as error:
        raise ValueError(str(error)) from None


FAULTS: tuple[tuple[str, str, str, Callable[..., Any], str], ...] = (
    ("wrong stride", "add", "add", reversed_strides, "strides"),
    ("missing save", "exp", "exp", WrongExp.apply, "grad"),
    ("wrong promotion", "mul", "mul", wrong_promotion, "forward"),
    ("first gradient detached", "tanh", "tanh", ShallowTanh.apply, "grad2"),
    ("sum accumulated in bfloat16", "sum", "sum", narrow_sum, "forward"),
    ("a copy instead of a view", "Tensor.expand", "expand",
     lambda x, *s, **k: x.expand(*s, **k).contiguous(), "forward"),
    ("in-place form makes a copy", "Tensor.mul_", "mul", lambda a, b: a.mul(b), "inplace"),
    ("in-place form lost to autograd", "Tensor.sub_", "sub",
     lambda a, b, **k: a.detach().sub_(b, **k) if a.requires_grad else a.sub_(b, **k),
     "inplace_grad"),
    ("out= ignored", "sub", "sub", ignores_out, "out"),
    ("running statistics not updated", "nn.functional.batch_norm", "nn.functional.batch_norm",
     no_statistics, "forward"),
    ("other random numbers", "bernoulli", "bernoulli", other_draws, "forward"),
    ("wrong error type", "gather", "gather", other_error, "errors"),
    ("method missing", "Tensor.cumsum", "cumsum", lambda x: x, "method"),
    ("writes into its input", "softmax", "softmax",
     lambda x, *a, **k: torch.softmax(x.detach().copy_(x * 2).requires_grad_(x.requires_grad),
                                      *a, **k), "forward"),
    ("alias differs", "divide", "div.no_rounding_mode",
     lambda a, b, **k: torch.div(b, a, **k), "alias"),
)  # fmt: skip


def caught(name: str, label: str, fn: Callable[..., Any], folder: Path) -> dict[str, list[int]]:
    """Checks that fail, over all dtypes, with `fn` in the place of torch's `name`."""
    found: dict[str, list[int]] = {}
    for path in sorted(folder.glob(f"{label}.*.zip")):
        if path.stem.rpartition(".")[0] == label:
            counts = replay.replay_file(Planted(name, fn), path)["counts"]
            for check, (passed, total) in counts.items():
                if passed < total:
                    both = found.setdefault(check, [0, 0])
                    both[0] += total - passed
                    both[1] += total
    return found


def isolation(folder: Path) -> list[str]:
    """A runtime that aborts, and one that hangs: what the run says of them."""
    said = []
    with tempfile.TemporaryDirectory() as place:
        for name, deed in (("aborting", "os.abort()"), ("hanging", "time.sleep(60)")):
            text = f"import os, time\n\ndef set_num_threads(n):\n    {deed}\n"
            (Path(place) / f"{name}.py").write_text(text)
            worker = run.Worker(name, 5, path=place)
            answer = worker.ask(folder / "exp.float32.zip", 5.0)
            worker.close()
            said.append(f"{name}: {answer}" if isinstance(answer, str) else f"{name}: MISSED")
    return said


def main() -> int:
    """Plant every fault; non-zero if one is missed."""
    folder = run.RECORDINGS / (run.RECORDINGS / "latest").read_text().strip()
    missed = 0
    for what, name, label, fn, check in FAULTS:
        found = caught(name, label, fn, folder)
        missed += check not in found
        parts = ", ".join(f"{c} {bad}/{total}" for c, (bad, total) in found.items())
        verdict = "caught" if check in found else f"MISSED (by {check})"
        sys.stdout.write(f"{what}: {verdict}; failing: {parts}\n")
    for line in isolation(folder):
        missed += "MISSED" in line
        sys.stdout.write(f"{line}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
