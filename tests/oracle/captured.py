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
    ("depends on data", r"^data_dependent "),
    ("recompiled", r": RecompileError:"),
    ("graph break", r": Unsupported:"),
    ("error in a stage", r": (InternalTorchDynamoError|BackendCompilerFailed|TorchRuntimeError):"),
    ("lost", r"^lost:"),
    ("other error", r"^\w+ #.*?: [A-Z]\w+(Error|Exception):"),
    ("wrong value", r"^\w+ #"),
)


class Compiled:
    """A program through `torch.compile`, and what the compiler says about its calls."""

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        self.runtime = fn.__globals__["torch"]
        self.dynamo = importlib.import_module(f"{self.runtime.__name__}._dynamo")
        self.compiled = self.runtime.compile(fn, fullgraph=True, **options)
        self.called = False

    def __call__(self, *tensors: Any) -> Any:
        """The compiled program; RuntimeError where it was looked at and not captured."""
        before = self._looked_at()
        out = self.compiled(*tensors)
        total, captured = (now - then for now, then in zip(self._looked_at(), before, strict=True))
        if total != captured or not (total or self.called):
            raise RuntimeError("the program ran as it is")
        self.called = True
        return out

    def _looked_at(self) -> tuple[int, int]:
        """Frames that were looked at; those of them that were captured or met no operator."""
        counters = self.dynamo.utils.counters
        frames, idle = counters["frames"], counters["skipped"]["No operator on tensors was met."]
        return frames["total"], frames["ok"] + idle

    def again(self, *tensors: Any) -> None:
        """A further call that must not compile anything."""
        with self.dynamo.config.patch(error_on_recompile=True):
            before = self._looked_at()
            self.compiled(*tensors)
            if self._looked_at() != before:
                raise RuntimeError("a call like the last one was looked at anew")


class Runner:
    """Compiles programs with these options of `torch.compile`.

    With ``dynamic=True`` a program that differs from an earlier one in the sizes of its tensors
    alone is the same program: it must be right whether its guards let it reuse what was compiled
    or not.
    """

    wants_program = True

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.kept: dict[Any, Compiled] = {}

    def __call__(self, fn: Callable[..., Any]) -> Compiled:
        """The program, compiled or to be."""
        if not self.options.get("dynamic"):
            return Compiled(fn, **self.options)
        key = fn.sample  # type: ignore[attr-defined]
        found = self.kept.get(key)
        if found is None:
            limit = {"recompile_limit": 1_000_000}
            found = self.kept[key] = Compiled(fn, **self.options, **limit)
        return found

    def begin(self, runtime: ModuleType) -> None:
        """A new file: nothing of the last one is kept."""
        self.kept.clear()
        importlib.import_module(f"{runtime.__name__}._dynamo").reset()


eager = Runner(backend="eager")
aot_eager = Runner(backend="aot_eager")
inductor = Runner(backend="inductor")
aot_eager_dynamic = Runner(backend="aot_eager", dynamic=True)
inductor_dynamic = Runner(backend="inductor", dynamic=True)


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
        sample = source, repr(self.names)
        exec(compile(source, "<sample>", "exec"), self.names)
        program: Callable[..., Any] = self.names["program"]
        program.sample = sample  # type: ignore[attr-defined]
        return program


def causes(texts: list[str]) -> list[tuple[str, int]]:
    """Failures by cause, the most frequent first."""
    found: Counter[str] = Counter()
    for text in texts:
        found[next((n for n, p in CAUSES if re.search(p, text)), "other")] += 1
    return found.most_common()
