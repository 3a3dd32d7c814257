"""What a capture gives: replacement code with a graph, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from flambeau._src.capture.guards import GuardLog
from flambeau._src.capture.source import Source
from flambeau._src.core.symint import SymBool, SymFloat, SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.graph import Graph

__all__ = [
    "CaptureOptions",
    "Captured",
    "Forbidden",
    "GraphBreak",
    "InternalError",
    "NeedsValue",
    "NotReady",
    "Raised",
    "Region",
    "Round",
    "Skip",
    "TooLate",
    "Unsupported",
]


class Unsupported(BaseException):
    """The graph ends here. No Exception: user code that is being captured must not catch it."""

    def __init__(self, reason: str, remedy: str = "", whole: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.whole = whole  # the function must run as it is: what follows needs its own frame
        self.remedy = remedy or "Move this out of the compiled function, or accept the break."
        self.error: bool | None = None
        self.step: int | None = None  # the instruction to end before, if it is an earlier one
        self.where: tuple[str, int, str] | None = None
        self.stack: tuple[tuple[str, int, str], ...] = ()


class TooLate(Unsupported):
    """What was put off cannot be done any more: it must break the graph where it stands."""


class NeedsValue(Unsupported):
    """A number that only running tells is needed: those that inputs hold can be guarded."""


class NotReady(Unsupported):
    """What only a run of the program makes ready is met: this call runs as it is, all of it."""


class Round(Unsupported):
    """A round of a loop that goes on from outside ends here, which is no break to the user."""

    def __init__(self) -> None:
        super().__init__("A round of a loop ends.")


class Forbidden(AssertionError):
    """The program calls what no capture may meet: raised to whoever called it."""

    __module__ = "builtins"
    __qualname__ = "AssertionError"


class Raised(BaseException):
    """The captured program raised `error`; the interpreter looks for its handler."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class InternalError(RuntimeError):
    """The capture itself failed; `where` is the user's line."""

    def __init__(self, message: str, where: tuple[str, int, str] | None) -> None:
        super().__init__(message)
        self.where = where


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """Why a graph ended, where, and what to do about it."""

    reason: str
    remedy: str
    where: tuple[str, int, str]  # file, line, function: the innermost frame
    user_stack: tuple[tuple[str, int, str], ...]  # outermost first
    error: bool | None = None  # what the program says: it is one, or is none

    def __str__(self) -> str:
        file, line, function = self.where
        return f"{file}:{line} in {function}: {self.reason} {self.remedy}"


@dataclass(slots=True)
class Region:
    """A graph and its inputs; `records`: it is called with recording on."""

    name: str
    graph: Graph
    attributes: dict[str, Any]
    inputs: list[Source]
    examples: list[Any]
    fake_mode: Any
    shape_env: Any = None
    records: bool = True

    def is_arithmetic(self) -> bool:
        """Whether the graph computes numbers from numbers alone."""
        calls = (n for n in self.graph.nodes if n.op not in ("placeholder", "output"))
        return all(
            isinstance(n.meta.get("val"), (SymInt, SymFloat, SymBool)) for n in calls
        ) and not any(isinstance(v, Tensor) for v in self.examples)


@dataclass(slots=True)
class CaptureOptions:
    """How to capture.

    Attributes:
        fullgraph: no break is wanted (the driver raises; the capture reports as ever).
        keep_empty: replace code that meets no operator too (to test the capture); else such a call
            gives guards for the code as it is.
        own_caches: what stands under `functools.lru_cache` is called, with its cache; else it is
            interpreted without one, as PyTorch does it.
        longest: how many jumps, calls and outside objects are followed before the graph ends; 0:
            all.
        dynamic: None, True or False, as `compile` takes it.
        floats: whether floats from outside that were seen to change are symbols.
        numpy: whether arrays and functions of NumPy's are captured.
        repeats: of which graphs nothing is to be seen when they raise, so that the code may run
            anew as it is: "pure" (those that write nothing), "functional" (all: inputs are written
            in the end); "": none, what the back end raises is its own.
        scalars, shapes: whether numbers (`.item()`) and sizes (`nonzero`) that only running will
            tell are symbols; otherwise they end the graph.
        sizes: for None: the sizes of tensors by source in earlier calls of the code (and numbers),
            None where they changed; kept from one capture to the next.
        modules: the modules that earlier calls of the code had, by source and class, kept from one
            capture to the next; None: each version is for the very modules that it met.
        is_disabled: whether a function must not be captured.
        refused: functions that end the graph.
        leaves: functions that are one node of the graph although they are Python.
        substitutes: functions to interpret in place of others.
        constants: functions whose result counts as a constant.
        resumes: codes of resume functions by place, kept from one capture to the next.
        next_name: numbers for `__compiled_fn_N` and `<resume at …, N>`.
    """

    fullgraph: bool = False
    keep_empty: bool = False
    own_caches: bool = False
    longest: int = 0
    dynamic: bool | None = None
    floats: bool = True
    numpy: bool = True
    repeats: str = ""
    scalars: bool = False
    shapes: bool = False
    sizes: dict[str, list[Any]] | None = None
    modules: dict[Any, Any] | None = None
    is_disabled: Callable[[Any], bool] | None = None
    leaves: set[Any] = field(default_factory=set)
    refused: set[Any] = field(default_factory=set)
    substitutes: dict[Any, Any] = field(default_factory=dict)
    constants: set[Any] = field(default_factory=set)
    resumes: dict[Any, Any] = field(default_factory=dict)
    counter: list[int] = field(default_factory=lambda: [0])

    def next_name(self) -> int:
        """A number that no other name of these options has."""
        n = self.counter[0]
        self.counter[0] = n + 1
        return n


@dataclass(slots=True)
class Captured:
    """Replacement code; the frame's own code where no operator on tensors was met.

    `new_globals` go into the globals of the frame; the compiled graph goes there under
    `region.name`. `shape_guards(stage)` adds to the guards what was relied on of symbolic sizes,
    once no stage learns more. `resumes` are the codes that the replacement calls after a break.
    """

    code: CodeType
    region: Region | None
    guards: GuardLog
    new_globals: dict[str, Any]
    breaks: list[GraphBreak]
    resumes: list[CodeType]
    operators: list[str]
    shape_guards: Callable[[str], None] = lambda stage: None


@dataclass(frozen=True, slots=True)
class Skip:
    """The code is run as it is; `permanent`: there is no use in trying again; `alone`: nothing
    that this call calls is worth a capture either."""

    reason: str
    permanent: bool
    where: tuple[str, int, str] | None = None
    breaks: tuple[GraphBreak, ...] = ()
    alone: bool = False


Arguments = Mapping[str, Any]
