"""Errors of the compiler's own stages: logged once, counted, and not the program's problem."""

from __future__ import annotations

import linecache
import logging
import traceback
from collections.abc import Iterable
from typing import Any

from flambeau._src.compiler import errors, logs
from flambeau._src.compiler.history import COUNTERS, Contained, Entry
from flambeau._src.compiler.replay import NodeFailed

__all__ = ["StageFailed", "break_text", "contain", "frames_of", "user_line"]

_announced: set[Any] = set()


class StageFailed(Exception):
    """A stage raised: `stage` says which, `error` what."""

    def __init__(self, stage: Any, error: Exception) -> None:
        super().__init__(f"stage {stage.name!r}: {type(error).__name__}: {error}")
        self.stage, self.error = stage, error


def user_line(error: BaseException, entry: Entry) -> str:
    """Where in the user's program a stage was: the operation's line where that is known."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, NodeFailed):
            lines = [x for x in str(found.node.meta.get("stack_trace", "")).splitlines() if x]
            places = [x.strip() for x in lines if x.strip().startswith("File ")]
            if places:
                return places[-1].removeprefix("File ")
        where = getattr(found, "where", None)
        if isinstance(where, tuple) and len(where) == 3:
            return f'"{where[0]}", line {where[1]}, in {where[2]}'
        found = found.__cause__
    return f'"{entry.filename}", line {entry.line}, in {entry.name}'


def contain(failed: StageFailed, entry: Entry, back_end: Any, strict: bool) -> None:
    """Take note of a failed stage; the caller goes on without it.

    Raises, if `strict`: BackendCompilerFailed for a back end, what a user must hear as it is
    (`TorchDynamoException`), InternalTorchDynamoError for everything else.
    """
    stage, error = failed.stage, failed.error
    asked = stage  # a user's back end may have called stages of ours
    while isinstance(error, StageFailed):
        stage, error = error.stage, error.error
    cause = error.__cause__ if isinstance(error, NodeFailed) else error
    assert isinstance(cause, Exception)
    where = user_line(error, entry)
    note = Contained(stage.name, cause, where, stage.remedy)
    entry.contained.append(note)
    COUNTERS["contained"][stage.name] += 1
    if strict:
        if isinstance(cause, errors.TorchDynamoException):
            raise cause
        if asked.name == "back end":
            raise errors.BackendCompilerFailed(back_end, cause) from cause
        raise errors.InternalTorchDynamoError(
            f"{type(cause).__name__}: {cause}\n\nfrom user code:\n   File {where}\n"
        ) from cause
    key = (stage.name, where, type(cause))
    if key in _announced:
        return
    _announced.add(key)
    logs.tell(
        logging.WARNING,
        f"compile: {note} The region runs eager; torch._dynamo.config.suppress_errors = False "
        "raises the error instead.",
    )
    if logs.told(logging.DEBUG):
        logs.tell(logging.DEBUG, "".join(traceback.format_exception(cause)))


def break_text(found: Any) -> str:
    """A graph break as people read it."""
    lines = [str(found.reason)]
    if found.remedy:
        lines.append(f"  Hint: {found.remedy}")
    lines += ["", "from user code:"]
    for file, line, function in _stack(found):
        lines.append(f'   File "{file}", line {line}, in {function}')
        text = linecache.getline(file, line).strip()
        if text:
            lines.append(f"    {text}")
    return "\n".join(lines) + "\n"


def _stack(found: Any) -> Iterable[tuple[str, int, str]]:
    stack = [f for f in found.user_stack if not f[0].startswith("<compiled>")] or [found.where]
    return stack if found.where in stack else [*stack, found.where]


def frames_of(found: Any) -> traceback.StackSummary:
    """Where a break is, as a stack."""
    return traceback.StackSummary.from_list(
        [traceback.FrameSummary(f, n, name, lookup_line=False) for f, n, name in _stack(found)]
    )


def forget() -> None:
    """Announce everything again."""
    _announced.clear()
