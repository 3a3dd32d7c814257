"""The older manager of passes, whose passes are functions from a module to a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.fx.passes.infra.pass_manager import (
    Constraint,
    Pass,
    inplace_wrapper,
    this_before_that_pass_constraint,
)
from flambeau.fx.passes.infra.pass_manager import PassManager as _Results

__all__ = ["PassManager", "inplace_wrapper", "this_before_that_pass_constraint"]


class PassManager:
    """Passes in the order that their constraints allow; calling it runs them on a module."""

    def __init__(
        self, passes: list[Pass] | None = None, constraints: list[Constraint] | None = None
    ) -> None:
        self.passes: list[Pass] = list(passes or [])
        self.constraints: list[Constraint] = list(constraints or [])

    @classmethod
    def build_from_passlist(cls, passes: list[Pass]) -> PassManager:
        """A manager of these passes, without constraints."""
        return cls(passes)

    def add_pass(self, _pass: Pass) -> None:
        """Append a pass."""
        self.passes.append(_pass)

    def add_constraint(self, constraint: Constraint) -> None:
        """Append a constraint."""
        self.constraints.append(constraint)

    def validate(self) -> None:
        """RuntimeError where the passes are in an order that a constraint forbids."""
        _Results(self.passes, self.constraints).validate_constraints()

    def remove_pass(self, _passes: list[str]) -> None:
        """Take out the passes with these names."""
        self.passes = [p for p in self.passes if getattr(p, "__name__", "") not in _passes]

    def replace_pass(self, _target: Pass, _replacement: Pass) -> None:
        """Put another pass in a pass's place."""
        self.passes = [_replacement if p.__name__ == _target.__name__ else p for p in self.passes]

    def __call__(self, source: Any) -> Any:
        """Run all passes, each on the result of the one before."""
        self.validate()
        out = source
        apply: Callable[[Any], Any]
        for apply in self.passes:
            out = apply(out)
        return out
