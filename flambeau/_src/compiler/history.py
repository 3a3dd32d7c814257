"""What became of one captured function: its stages with their artefacts, and what went wrong."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from types import CodeType
from typing import Any

__all__ = ["COUNTERS", "Contained", "Entry", "History", "Origin", "Step", "compile_times"]

#: What happened in this process, by part and name; public as ``torch._dynamo.utils.counters``.
COUNTERS: defaultdict[str, Counter[str]] = defaultdict(Counter)
_TIMES: dict[str, list[float]] = {}


@dataclass(slots=True)
class Step:
    """One stage that ran: what it made, when it began (seconds of `time.perf_counter`), and how
    long it took; which part of the work it is, and whether it was on the backward half."""

    stage: str
    artefact: Any = None
    milliseconds: float = 0.0
    error: Exception | None = None
    begun: float = 0.0
    part: str = ""
    backward: bool = False

    @property
    def ended(self) -> float:
        """When it was done, on the clock of `begun`."""
        return self.begun + self.milliseconds / 1e3

    def __iter__(self) -> Iterator[Any]:
        return iter((self.stage, self.artefact, self.milliseconds))


class History(list[Step]):
    """The steps of an entry, in order. Prints as a table."""

    @contextmanager
    def timed(self, stage: str, part: str = "", backward: bool = False) -> Iterator[Step]:
        """Note a stage while it runs; the caller puts the artefact into the step."""
        stage = f"backward {stage}" if backward else stage
        step = Step(stage, begun=perf_counter(), part=part, backward=backward)
        try:
            yield step
        except Exception as error:
            step.error = error
            raise
        finally:
            step.milliseconds = (perf_counter() - step.begun) * 1e3
            _TIMES.setdefault(stage, []).append(step.milliseconds / 1e3)
            self.append(step)

    def artefact(self, stage: str) -> Any:
        """What the last run of a stage made, or None."""
        return next((s.artefact for s in reversed(self) if s.stage == stage), None)

    @property
    def milliseconds(self) -> float:
        """All stages together."""
        return sum(s.milliseconds for s in self)

    def __str__(self) -> str:
        rows = [
            f"{s.milliseconds:9.2f} ms  {s.stage}" + (f"  failed: {s.error!r}" if s.error else "")
            for s in self
        ]
        return "\n".join([*rows, f"{self.milliseconds:9.2f} ms  in all"])


@dataclass(frozen=True)
class Contained:
    """An error of a stage that the program did not notice: the region ran eager."""

    stage: str
    error: Exception
    where: str
    remedy: str

    def __str__(self) -> str:
        kind = type(self.error).__name__
        return f"stage {self.stage!r} failed at {self.where}: {kind}: {self.error}. {self.remedy}"


@dataclass(frozen=True)
class Origin:
    """What a graph that is handed to a user's back end tells of the function it comes from, for
    stages of ours that the back end calls: its place, whether their errors are raised, and where
    those that are not are noted."""

    name: str
    filename: str
    line: int
    strict: bool
    contained: list[Contained]


_frames = itertools.count()


@dataclass(eq=False)
class Entry:
    """One compiled version of a function: shown as `frame/version`, like torch's compile ids."""

    name: str
    filename: str
    line: int
    frame: int
    version: int
    history: History = field(default_factory=History)
    guards: tuple[Any, ...] = ()
    checker: Any = None
    region: Any = None
    breaks: list[Any] = field(default_factory=list)
    contained: list[Contained] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    installed: tuple[dict[str, Any], tuple[str, ...]] | None = None
    code: CodeType | None = None  # what runs in the function's place

    @property
    def id(self) -> str:
        """`frame/version`."""
        return f"{self.frame}/{self.version}"

    def forget(self) -> None:
        """Take the names out of the program's globals that the compiled code used."""
        if self.installed is not None:
            namespace, names = self.installed
            for name in names:
                namespace.pop(name, None)

    def __repr__(self) -> str:
        return f"<entry {self.id} of {self.name}, {self.history.milliseconds:.1f} ms>"


def next_frame() -> int:
    """A number for a function that is compiled for the first time."""
    return next(_frames)


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """Seconds of each stage of everything compiled so far.

    Args:
        repr: "str" for a table, "csv" for headers and values.
        aggregate: one sum a stage.
    """

    def text(values: list[float]) -> str:
        chosen = [sum(values)] if aggregate else values
        return ", ".join(f"{v:.4f}" for v in chosen)

    if repr == "csv":
        return list(_TIMES), [text(v) for v in _TIMES.values()]
    rows = [f"{stage}, {text(values)}" for stage, values in _TIMES.items()]
    return "\n".join(["TorchDynamo compilation metrics:", "Function, Runtimes (s)", *rows])


def forget_times() -> None:
    """Begin anew."""
    _TIMES.clear()
