"""What the recorded cases are made of.

A case is a function of a runtime (torch or flambeau) and a `Say`, by which it tells what it saw.
`record.py` runs all cases under PyTorch into expected.json; `test_recorded.py` runs them under
flambeau and compares line by line: text exactly, numbers within a few units of float32.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Case = Callable[[Any, "Say"], None]
EXPECTED = Path(__file__).with_name("expected.json")
FAMILIES = (
    "backward",
    "hooks",
    "functions",
    "modes",
    "views",
    "saved",
    "checkpoint",
    "func",
    "forward",
    "vmap",
    "libraries",
)
_ADDRESS = re.compile(r"0x[0-9a-f]+")


class Say:
    """The lines of one case."""

    def __init__(self, rt: ModuleType) -> None:
        self.rt = rt
        self.lines: list[Any] = []

    def __call__(self, *values: Any) -> None:
        """A line of values: tensors as nested lists, the rest as it is or as text."""
        self.lines.append([self.plain(v) for v in values])

    def plain(self, value: Any) -> Any:
        """A value as JSON holds it."""
        if isinstance(value, self.rt.Tensor):
            if value.is_complex():
                return self.plain(self.rt.view_as_real(value.detach().resolve_conj()))
            return self.plain(value.detach().tolist())
        if isinstance(value, (list, tuple)):
            return [self.plain(v) for v in value]
        if isinstance(value, dict):
            return {str(k): self.plain(v) for k, v in value.items()}
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        return self.text(str(value))

    def text(self, text: str) -> str:
        """Text without what differs from run to run."""
        text = _ADDRESS.sub("0x", text)
        text = text.replace("tests.autograd.", "")
        return text.replace(f"{self.rt.__name__}.", "torch.").strip()

    def error(self, fn: Callable[[], Any], length: int = 1000) -> None:
        """What fn raises: type and message."""
        try:
            result = fn()
        except Exception as error:
            self(type(error).__name__, self.text(str(error))[:length])
        else:
            self("nothing raised", result)

    def warned(self, fn: Callable[[], Any]) -> Any:
        """The warnings of fn, by their first sentence."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = fn()
        for w in caught:
            self("warning", w.category.__name__, self.text(str(w.message)).partition(". ")[0])
        return result


def cases() -> dict[str, Case]:
    """All cases by name: family and function."""
    found: dict[str, Case] = {}
    package = __name__.rpartition(".")[0]
    for family in FAMILIES:
        name = f"cases_{family}"
        module = importlib.import_module(f"{package}.{name}" if package else name)
        for key, value in vars(module).items():
            own = getattr(value, "__module__", "") == module.__name__
            if own and callable(value) and not key.startswith("_"):
                found[f"{family}/{key}"] = value
    return found


def run(rt: ModuleType, case: Case) -> list[Any]:
    """The lines of a case under a runtime; what escapes is the last one."""
    rt.manual_seed(0)
    say = Say(rt)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case(rt, say)
    except Exception as error:
        say("escaped", type(error).__name__, say.text(str(error))[:1000])
    return json.loads(json.dumps(say.lines))


def same(a: Any, b: Any, tolerance: float = 2e-6) -> bool:
    """Whether two lines agree: numbers nearly, all else exactly."""
    if isinstance(a, float) or isinstance(b, float):
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
        return bool(a == b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], tolerance) for k in a)
    return bool(a == b)
