"""Guards as one printed Python function and as a checker in C.

`build` takes the sealed records of a log. The checker (`csrc/guard.c`) walks a tree of accessors
(`guard_tree.py`), so that what paths share is read once; tensors are compared in their C record; of
modules one clock is compared, and their parameters are not looked up again while it stands still.
`Checker.python` is the printed function (`guard_text.py`), run: the same answer, slowly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau._src import _native
from flambeau._src.capture.guard_text import difference, printed
from flambeau._src.capture.guard_tree import GuardTree
from flambeau._src.capture.guards import Guard, Kind
from flambeau._src.capture.modes import frozen

__all__ = ["Checker", "build"]


def build(guards: Sequence[Guard]) -> Checker:
    """The checker of these guards, which hold for a call if all of them do."""
    return Checker(
        tuple(g.expecting(frozen(g.expected)) if g.kind is Kind.STATE else g for g in guards)
    )


class Checker(_native.Checker):
    """All guards of one compiled version.

    `check(variables, globals)` and `failing(variables, globals)` are in C; the frame hook calls the
    checker without making a dict of the variables.
    """

    def __new__(cls, guards: tuple[Guard, ...]) -> Checker:
        made: Checker = super().__new__(cls, *GuardTree(guards).parts())
        made.guards = guards
        return made

    guards: tuple[Guard, ...]

    def explain(
        self, variables: Mapping[str, Any], globals_: dict[str, Any]
    ) -> tuple[int, str] | None:
        """The index of the guard that fails, and why; None: all hold."""
        at = self.failing(dict(variables), globals_)
        if at is None:
            return None
        guard = self.guards[at]
        text = difference(guard, variables, globals_)
        return at, f"{text}  ({guard.reason})" if guard.reason else text

    @functools.cached_property
    def text(self) -> str:
        """The guards as the text of a Python function."""
        return printed(self.guards)[0]

    @functools.cached_property
    def python(self) -> Callable[[Mapping[str, Any], Mapping[str, Any]], bool]:
        """The printed function."""
        text, scope = printed(self.guards)
        exec(compile(text, "<guards>", "exec"), scope)
        return scope["check"]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return self.text
