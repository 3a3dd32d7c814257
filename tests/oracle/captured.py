"""The recorded calls through `torch.compile`, each as a small program of its own.

Runners of `compiled.py`: `python -m tests.oracle.compiled --runner tests.oracle.captured:inductor`
(also `aot_eager`, and `inductor_dynamic`, `aot_eager_dynamic` with ``dynamic=True``). Everything is
compiled with ``fullgraph=True``: a graph break and an error of a stage are raised. A program is
called twice, the second time with other tensors of the same values, and must not compile again.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

#: Of a failure's text: how it is counted.
CAUSES = (
    ("recompiled", r": RecompileError:"),
    ("graph break", r": Unsupported:"),
    ("error in a stage", r": (InternalTorchDynamoError|BackendCompilerFailed|TorchRuntimeError):"),
    ("lost", r"^lost:"),
    ("other error", r"^compiled #.*?: [A-Z]\w+(Error|Exception):"),
    ("wrong value", r"^(compiled|compiled_grad|writes) "),
)


class Compiled:
    """A program through `torch.compile`, and what the compiler says about its calls."""

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        self.fn, self.runtime = fn, fn.__globals__["torch"]
        self.dynamo = importlib.import_module(f"{self.runtime.__name__}._dynamo")
        self.dynamo.reset()
        self.compiled = self.runtime.compile(fn, fullgraph=True, **options)

    def __call__(self, *tensors: Any) -> Any:
        """The compiled program; RuntimeError where nothing was captured."""
        out = self.compiled(*tensors)
        if not self.dynamo.utils.counters["frames"]["ok"]:
            raise RuntimeError("the program ran as it is")
        return out

    def again(self, *tensors: Any) -> None:
        """A further call that must not compile anything."""
        with self.dynamo.config.patch(error_on_recompile=True):
            self.compiled(*tensors)


def _runner(**options: Any) -> Callable[..., Any]:
    def runner(fn: Callable[..., Any]) -> Callable[..., Any]:
        return Compiled(fn, **options)

    runner.wants_program = True  # type: ignore[attr-defined]
    return runner


eager = _runner(backend="eager")
aot_eager = _runner(backend="aot_eager")
inductor = _runner(backend="inductor")
aot_eager_dynamic = _runner(backend="aot_eager", dynamic=True)
inductor_dynamic = _runner(backend="inductor", dynamic=True)


class Program:
    """Source of a function of the call's tensors, as a user would write it."""

    def __init__(self, rt: ModuleType, call: str, fn: Callable[..., Any], marker: object) -> None:
        self.marker = marker
        plain = re.fullmatch(r"[\w.]+", call)
        self.call = f"torch.{call.removeprefix('torch.')}" if plain else "fn"
        self.names: dict[str, Any] = {"torch": rt, "fn": fn}

    def text(self, value: Any) -> str:
        """An argument."""
        if type(value) is tuple and len(value) == 2 and value[0] is self.marker:
            return f"t{value[1]}"
        if type(value) in (tuple, list):
            inner = "".join(f"{self.text(item)}, " for item in value)
            return f"({inner})" if type(value) is tuple else f"[{inner}]"
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        name = f"c{len(self.names)}"  # numbers such as inf, dtypes, slices
        self.names[name] = value
        return name

    def build(self, args: list[Any], kwargs: dict[str, Any], count: int) -> Callable[..., Any]:
        """The function of `count` tensors."""
        given = [self.text(a) for a in args] + [f"{k}={self.text(v)}" for k, v in kwargs.items()]
        parameters = ", ".join(f"t{i}" for i in range(count))
        source = f"def program({parameters}):\n    return {self.call}({', '.join(given)})\n"
        exec(compile(source, "<sample>", "exec"), self.names)
        program: Callable[..., Any] = self.names["program"]
        return program


def causes(texts: list[str]) -> list[tuple[str, int]]:
    """Failures by cause, the most frequent first."""
    found: Counter[str] = Counter()
    for text in texts:
        found[next((n for n, p in CAUSES if re.search(p, text)), "other")] += 1
    return found.most_common()
