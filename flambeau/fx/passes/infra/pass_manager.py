"""Running passes in an order that their constraints allow."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes.infra.pass_base import PassResult

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "pass_result_wrapper",
    "this_before_that_pass_constraint",
]

Pass = Callable[..., Any]
Constraint = Callable[[Pass, Pass], bool]


def pass_result_wrapper(fn: Pass | None) -> Pass | None:
    """Give a function that changes a module (and returns it, or nothing) the shape of a pass."""
    if fn is None:
        return None

    @wraps(fn)
    def wrapped(gm: GraphModule) -> PassResult:
        result = fn(gm)
        if isinstance(result, PassResult):
            return result
        if isinstance(result, GraphModule):
            return PassResult(result, True)
        return PassResult(gm, True)

    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


def inplace_wrapper(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that calls `fn` and returns its argument."""

    @wraps(fn)
    def wrapped(gm: Any) -> Any:
        fn(gm)
        return gm

    return wrapped


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """A constraint: `this` may not run after `that`."""

    def holds(a: Pass, b: Pass) -> bool:
        return not (a is that and b is this)

    return holds


class PassManager:
    """A list of passes, sorted by `constraints` and run `steps` times or until nothing changes.

    ``constraint(a, b)`` is false where b must not come after a. With `run_checks_after_each_pass`
    and `suppress_check_failures` as their names say; `add_checks` sets the check.
    """

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes: list[Pass] = list(passes or [])
        self.constraints: list[Constraint] = list(constraints or [])
        self.steps = 1 if steps is None else steps
        self._validated = False
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._check: Callable[[Any], None] | None = None

    def add_pass(self, _pass: Pass) -> None:
        """Append a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        """Append a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def add_checks(self, check: Callable[[Any], None]) -> None:
        """Set the check that `check` runs: a function of the module."""
        if list(inspect.signature(check).parameters) != ["module"] and (
            len(inspect.signature(check).parameters) != 1
        ):
            raise TypeError("PassManager check function should only take in one variable, a module")
        self._check = check

    def check(self, module: Any) -> None:
        """Run the check on a module."""
        if self._check is not None:
            self._check(module)

    def remove_pass(self, names: list[str]) -> None:
        """Take out the passes with these names."""
        self.passes = [p for p in self.passes if getattr(p, "__name__", "") not in names]
        self._validated = False

    def validate_constraints(self) -> None:
        """RuntimeError where the passes are in an order that a constraint forbids."""
        for constraint in self.constraints:
            for i, first in enumerate(self.passes):
                for later in self.passes[i + 1 :]:
                    if not constraint(first, later):
                        raise RuntimeError(
                            f"pass schedule constraint violated. Expected {first} before {later} "
                            f"but found {first} at index {i} and {later} at index "
                            f"{self.passes.index(later)} in pass list."
                        )
        self._validated = True

    def solve_constraints(self) -> None:
        """Sort the passes as the constraints demand. RuntimeError if they form a circle."""
        waiting = list(self.passes)
        ordered: list[Pass] = []
        while waiting:
            ready = next(
                (
                    p
                    for p in waiting
                    if all(c(p, q) for c in self.constraints for q in waiting if q is not p)
                ),
                None,
            )
            if ready is None:
                names = [getattr(p, "__name__", repr(p)) for p in waiting]
                raise RuntimeError(
                    f"Circular dependency detected within the following passes: {names}"
                )
            ordered.append(ready)
            waiting.remove(ready)
        self.passes = ordered
        self._validated = True

    def __call__(self, module: Any) -> PassResult:
        """Run the passes; the result says whether any changed the module."""
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        overall = False
        for _ in range(self.steps):
            modified = False
            for i, one in enumerate(self.passes):
                name = getattr(one, "__name__", type(one).__name__)
                try:
                    result = one(module)
                    if result is None:
                        result = PassResult(module, True)
                    if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
                        raise TypeError(
                            f"The result of the pass {name} should be type PassResult. Please "
                            "wrap it with pass_result_wrapper()"
                        )
                    module = result.graph_module
                    modified = modified or result.modified
                    if isinstance(module, GraphModule):
                        module.recompile()
                    if self.run_checks_after_each_pass:
                        self.check(module)
                except Exception as error:
                    if self.suppress_check_failures:
                        continue
                    before = [getattr(p, "__name__", type(p).__name__) for p in self.passes[:i]]
                    raise Exception(
                        f"An error occurred when running the '{name}' pass after the following "
                        f"passes: {before}"
                    ) from error
            overall = overall or modified
            if not modified:
                break
        return PassResult(module, overall)
