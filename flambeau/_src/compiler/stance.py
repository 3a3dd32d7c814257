"""The stance: what compiled functions may do from here on, in every thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["STANCE", "STANCES", "Stance", "set_stance"]

F = TypeVar("F", bound=Callable[..., Any])

#: default; never compiled code; compiled code where it fits and eager elsewhere; an error instead
#: of compiling again; eager (or aot_eager) at the first call of each function, compiled after it.
STANCES = (
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile",
    "aot_eager_then_compile",
)  # fmt: skip


@dataclass(frozen=True)
class Stance:
    """One stance; prints as in torch's error."""

    stance: str = "default"
    skip_guard_eval_unsafe: bool = False
    backend: Any = None

    def __repr__(self) -> str:
        return (
            f"DynamoStance(stance={self.stance!r}, "
            f"skip_guard_eval_unsafe={self.skip_guard_eval_unsafe}, backend={self.backend!r})"
        )


class _Current:
    """The stance in force; `plain` says that nothing departs from the default."""

    __slots__ = ("plain", "value")

    def __init__(self) -> None:
        self.put(Stance())

    def put(self, value: Stance) -> None:
        self.value = value
        self.plain = value == Stance()


STANCE = _Current()


class set_stance:
    """Set the stance: at once when called, inside a `with`, or while a decorated function runs.

    Args:
        stance: one of `STANCES`.
        skip_guard_eval_unsafe: the program promises that no recompilation is needed any more; a
            call that needs one raises. (Guards are still evaluated: they are cheap here.)
        force_backend: used in place of every function's own, with the default stance only.

    Raises:
        RuntimeError: an unknown stance, a forced back end with another stance.
    """

    _dynamo_forbidden = True

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ) -> None:  # fmt: skip
        if force_backend is not None and stance != "default":
            raise RuntimeError("non-default stance cannot have force_backend set")
        self.stance = Stance(stance, skip_guard_eval_unsafe, force_backend)
        if stance not in STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{self.stance!r}'")
        self.before = STANCE.value
        STANCE.put(self.stance)

    def __call__(self, function: F) -> F:
        STANCE.put(self.before)

        @functools.wraps(function)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            before = STANCE.value
            STANCE.put(self.stance)
            try:
                return function(*args, **kwargs)
            finally:
                STANCE.put(before)

        with_stance._dynamo_forbidden = True  # type: ignore[attr-defined]
        return with_stance  # type: ignore[return-value]

    def __enter__(self) -> None:
        STANCE.put(self.stance)

    def __exit__(self, *error: object) -> None:
        STANCE.put(self.before)
