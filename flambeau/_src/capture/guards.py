"""Guards: what must still hold for captured code to be right, as an append-only log of records.

Every stage adds to the one log of its capture; nothing removes. When an entry is assembled, the log
is sealed and printed as one Python function and built as one checker in C (`checker.py`). A stage
that learns something from a value after that must raise instead: `GuardLog.add` refuses.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flambeau._src.capture.source import Source

__all__ = ["Guard", "GuardLog", "Kind", "ModuleFacts", "SealedGuards", "TensorFacts"]


class Kind(enum.Enum):
    """What is checked of the value v at the source; `expected` is E."""

    __hash__ = object.__hash__  # an Enum's own is Python code

    TYPE = "type(v) is E"
    ID = "v is E"  # modules, classes and functions are referred to weakly
    EQUALS = "type(v) is type(E) and v == E"  # constants; floats by bits, NaN equals itself
    NONE = "v is None"
    LENGTH = "len(v) == E"
    KEYS = "list(v) == E"  # a dict's keys in order, constants by value and others by identity
    HAS_KEY = "E in v"
    NO_KEY = "E not in v"
    HAS_ATTR = "hasattr(v, E)"
    NO_ATTR = "not hasattr(v, E)"
    TENSOR = "tensor properties"  # E: TensorFacts
    MODULE_TREE = "no module that was read has changed"  # E: ModuleFacts
    FUNCTION = "type(v) is function and v.__code__ is E"
    SAME = "v is the value at source E"  # two inputs that are one object
    NOT_SAME = "all values at the sources E are different objects"
    ALIVE = "weak reference E is alive and is v"
    STATE = "process and thread state"  # E: dict of grad mode, inference mode, autocast, defaults
    SHAPE = "a relation of sizes"  # E: its Python text over names bound in `names`
    ITERATOR = "the iterator's remaining length and kind"
    PYTHON = "a Python predicate"  # E: callable of v; last resort, slow, named in explain


class Guard:
    """One record.

    `source` is None for STATE. `reason` is a sentence for people; `where` the user's (file, line,
    function) that made the capture look; `stage` the stage that added it. `names` binds the names
    in a SHAPE text to sources of ints (sizes: `ItemSource(CallSource(x, "size"), 0)`, or int
    arguments). The object of an ID guard is held weakly: it may end while compiled code is kept,
    and no other object is it then.
    """

    __slots__ = ("_expected", "_weak", "kind", "names", "reason", "source", "stage", "where")

    def __init__(
        self, kind: Kind, source: Source | None, expected: Any = None, reason: str = "",
        where: tuple[str, int, str] | None = None, stage: str = "capture",
        names: tuple[tuple[str, Source], ...] = (),
    ) -> None:  # fmt: skip
        self.kind, self.source, self.reason, self.where = kind, source, reason, where
        self.stage, self.names = stage, names
        self._expected = expected
        self._weak = kind is Kind.ID and type(expected).__weakrefoffset__ != 0
        if self._weak:
            self._expected = weakref.ref(expected)

    @property
    def expected(self) -> Any:
        """What is expected of the value; None for an object that has ended."""
        return self._expected() if self._weak else self._expected

    @property
    def gone(self) -> bool:
        """Whether the object has ended: the guard holds no more."""
        return self._weak and self._expected() is None

    def expecting(self, value: Any) -> Guard:
        """The same guard with another expectation."""
        return Guard(self.kind, self.source, value, self.reason, self.where, self.stage, self.names)

    def __repr__(self) -> str:
        return f"Guard({self.kind.name}, {self.source}, {self.expected!r})"


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What a TENSOR guard checks. None among sizes and strides: any number."""

    kind: type  # exactly this class
    dtype: Any
    device: Any
    requires_grad: bool
    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    leaf: bool  # without a grad_fn
    bits: int  # the layers that the tensor itself asks for
    conjugated: bool = False
    negated: bool = False


class ModuleFacts:
    """What a MODULE_TREE guard checks: the modules whose attributes the capture read.

    While the clock of `nn/modules/_mutation.py` stands at `clock`, nothing has changed. Where it
    has moved, the stamps of `modules` are compared with `stamps`, and where one of these differs
    (an attribute that may have nothing to do with the captured code) the `guards`, which say what
    exactly was read, are checked; if they hold, clock and stamps are taken anew. The capture adds
    to the three lists until the log is sealed. Modules are held weakly.
    """

    __slots__ = ("clock", "guards", "modules", "stamps")

    def __init__(self, clock: int) -> None:
        self.clock = clock
        self.modules: list[weakref.ref[Any]] = []
        self.stamps: list[int] = []
        self.guards: list[Guard] = []


class SealedGuards(RuntimeError):
    """A stage learned something from a value after the entry's guards were fixed."""


class GuardLog:
    """The records of one capture, in the order in which they were added; equal ones once."""

    def __init__(self) -> None:
        self._records: list[Guard] = []
        self._known: set[Any] = set()
        self._sealed_by: str | None = None

    def add(self, guard: Guard) -> None:
        """Append a record. Raises SealedGuards once the log was sealed."""
        if self._sealed_by is not None:
            raise SealedGuards(
                f"stage {guard.stage!r} relies on {guard.source} ({guard.kind.value}) after "
                f"{self._sealed_by} fixed the guards: it must add its guard earlier"
            )
        key = (guard.kind, guard.source, _identity(guard.expected))
        if key not in self._known:
            self._known.add(key)
            self._records.append(guard)

    def seal(self, stage: str) -> tuple[Guard, ...]:
        """No more records: `stage` is about to print them."""
        self._sealed_by = stage
        return tuple(self._records)

    def mark(self) -> int:
        """The present length: `since` gives what was added after."""
        return len(self._records)

    def since(self, mark: int) -> tuple[Guard, ...]:
        """The records added after `mark`."""
        return tuple(self._records[mark:])

    def __iter__(self) -> Iterator[Guard]:
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)


def _identity(expected: Any) -> Any:
    """Equal constants of one type are one; everything else is by identity."""
    if isinstance(expected, (bool, int, str, bytes, type(None))):
        return (type(expected), expected)
    return id(expected)
