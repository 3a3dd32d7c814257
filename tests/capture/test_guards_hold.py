"""The guards of every captured program hold for the call that they were captured from."""

from __future__ import annotations

from typing import Any

import pytest

from flambeau._src.capture import frames
from flambeau._src.capture.checker import build
from tests.capture.comparing import PROGRAMS, Callback, _run
from tests.capture.test_programs import test_program as _programs  # registers them  # noqa: F401


class Checking(Callback):
    """Captures, and asks the checker at once; keeps the versions."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.key = self
        self.wrong: list[str] = []
        self.codes: list[Any] = []

    def __call__(
        self, code: Any, variables: Any, globals_: Any, builtins: Any, function: Any
    ) -> Any:
        before = len(self.report.captured)
        made = super().__call__(code, variables, globals_, builtins, function)
        for found in self.report.captured[before:]:
            checker = build(tuple(found.guards))
            why = checker.explain(variables, globals_)
            if why is not None or not checker.python(variables, globals_):
                self.wrong.append(f"{code.co_qualname}: {why}\n{checker}")
            elif made is not None:
                frames.add(code, self, checker, made, None)
                self.codes.append(code)
        return made


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_guards_hold(program: Any) -> None:
    callback = Checking(program.function.__code__.co_filename)
    try:
        _run(program, callback)
        assert not callback.wrong, "\n".join(callback.wrong)
    finally:
        for code in callback.codes:
            frames.forget(code)
