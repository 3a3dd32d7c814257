"""What every layer sees: nestings of modes, transforms and subclasses, by operator sequence.

Each program runs under a runtime and returns the calls that its probes saw, in order. torch's
sequences are kept in nestings.json (`PATH -m tests.oracle.nestings`); the default tests compare
flambeau's with them (tests/interp/test_nestings.py), so they need no torch.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

RECORD = Path(__file__).resolve().parent / "nestings.json"
SHORT = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16", "int64": "i64",
         "bool": "b8"}  # fmt: skip
# Checks that torch's forward mode makes by calling operators: of its making, not of the program's.
NOISE = ("aten.is_same_size.", "aten._has_same_storage_numel.", "prim.device.")


class Probe:
    """The runtime, a log, and the modes and classes that write to it."""

    def __init__(self, rt: ModuleType) -> None:
        self.rt = rt
        self.log: list[str] = []
        overrides = importlib.import_module(f"{rt.__name__}.overrides")
        dispatch = importlib.import_module(f"{rt.__name__}.utils._python_dispatch")
        pytree = importlib.import_module(f"{rt.__name__}.utils._pytree")
        self.map = pytree.tree_map
        probe = self

        class Functions(overrides.TorchFunctionMode):
            """Logs what a function mode sees, and goes on."""

            def __init__(self, tag: str = "F") -> None:
                super().__init__()
                self.tag = tag

            def __torch_function__(self, func, types, args=(), kwargs=None):
                probe.note(self.tag, probe.function(func), args, kwargs)
                return func(*args, **(kwargs or {}))

        class Operators(dispatch.TorchDispatchMode):
            """Logs what a dispatch mode sees, and goes on."""

            supports_higher_order_operators = True

            def __init__(self, tag: str = "D") -> None:
                super().__init__()
                self.tag = tag

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                probe.note(self.tag, str(func), args, kwargs)
                return func(*args, **(kwargs or {}))

        class Logged(rt.Tensor):
            """A subclass that logs through __torch_function__."""

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                probe.note(cls.__name__, probe.function(func), args, kwargs)
                return super().__torch_function__(func, types, args, kwargs)

        class Derived(Logged):
            """A subclass of the subclass."""

        class Wrapper(rt.Tensor):
            """Holds an inner tensor; logs through __torch_dispatch__."""

            @staticmethod
            def __new__(cls, inner):
                return rt.Tensor._make_wrapper_subclass(
                    cls, inner.size(), strides=inner.stride(), dtype=inner.dtype,
                    device=inner.device, requires_grad=inner.requires_grad,
                )  # fmt: skip

            def __init__(self, inner):
                self.inner = inner.detach()

            __torch_function__ = rt._C._disabled_torch_function_impl

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                probe.note("Wrapper", str(func), args, kwargs)

                def unwrap(x):
                    return x.inner if isinstance(x, Wrapper) else x

                def wrap(x):
                    return Wrapper(x) if isinstance(x, rt.Tensor) else x

                out = func(*probe.map(unwrap, args), **probe.map(unwrap, kwargs or {}))
                return probe.map(wrap, out)

        self.functions, self.operators = Functions, Operators
        self.logged, self.derived, self.wrapper = Logged, Derived, Wrapper

    def function(self, func: Any) -> str:
        """A name for what a function mode is handed: `torch.add`, `Tensor.add`, `F.linear`."""
        name = getattr(func, "__name__", str(func))
        if name in ("__get__", "__set__"):
            return f"Tensor.{func.__self__.__name__}.{name}"
        functional = self.rt.nn.functional
        for prefix, holder in (("torch", self.rt), ("Tensor", self.rt.Tensor), ("F", functional)):
            if getattr(holder, name, None) is func:
                return f"{prefix}.{name}"
        module = getattr(func, "__module__", None)
        if module and module.startswith(f"{self.rt.__name__}."):
            return f"{module.removeprefix(f'{self.rt.__name__}.')}.{name}"
        return f"Tensor.{name}" if hasattr(self.rt.Tensor, name) else name

    def note(self, tag: str, name: str, args: Any, kwargs: Any) -> None:
        """One line: the tag, the call, and its arguments in short."""
        if name.startswith(NOISE):
            return
        shown = [self.show(a) for a in args]
        shown += [f"{key}={self.show(value)}" for key, value in (kwargs or {}).items()]
        self.log.append(f"{tag} {name}({', '.join(shown)})")

    def show(self, value: Any) -> str:
        """An argument in short: `f32[2, 3]`, with the class where it is not Tensor."""
        rt = self.rt
        if isinstance(value, rt.Tensor):
            with rt._C.DisableTorchFunction():
                kind, shape = str(value.dtype).rpartition(".")[2], list(value.shape)
            name = type(value).__name__
            prefix = "" if name in ("Tensor", "Parameter") else f"{name}:"
            return f"{prefix}{SHORT.get(kind, kind)}{shape}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.show(item) for item in value)}]"
        if isinstance(value, float):
            return f"{value:.6g}"
        if callable(value):
            return getattr(value, "__name__", type(value).__name__)
        return str(value).replace(f"{rt.__name__}.", "torch.")

    def say(self, text: str, *values: Any) -> None:
        """A line of the program's own."""
        self.log.append(f"{text} {' '.join(self.show(v) for v in values)}".rstrip())


PROGRAMS: dict[str, Callable[[Probe], None]] = {}


def nesting(fn: Callable[[Probe], None]) -> Callable[[Probe], None]:
    """Register a program."""
    PROGRAMS[fn.__name__] = fn
    return fn


def run(rt: ModuleType, name: str) -> list[str]:
    """The lines of one program; what it raises is a line too."""
    rt.manual_seed(0)
    probe = Probe(rt)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            PROGRAMS[name](probe)
    except Exception as error:
        probe.say(f"raised {type(error).__name__}: {str(error)[:60].splitlines()[0]}")
    return probe.log


def main() -> int:
    """Record under torch, or print one program's lines under any runtime."""
    from tests.oracle import nesting_programs  # lazy: it imports this module

    assert nesting_programs
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", default="torch")
    parser.add_argument("--show", help="print one program's lines instead of recording")
    options = parser.parse_args()
    rt = importlib.import_module(options.runtime)
    from tests.oracle import nestings  # lazy: under `-m` this module has a second name

    if options.show:
        names = nestings.PROGRAMS if options.show == "all" else [options.show]
        for name in names:
            sys.stdout.write(f"== {name}\n" + "\n".join(nestings.run(rt, name)) + "\n")
        return 0
    recorded = {name: nestings.run(rt, name) for name in nestings.PROGRAMS}
    document = {"version": rt.__version__, "programs": recorded}
    RECORD.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
