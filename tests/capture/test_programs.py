"""Every program gives the same captured as eager, with the breaks and graphs that it says."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

from tests.capture import programs
from tests.capture.comparing import PROGRAMS, compare, compare_compiled

for _module in pkgutil.iter_modules(programs.__path__):
    importlib.import_module(f"{programs.__name__}.{_module.name}")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_program(program: Any) -> None:
    found, report = compare(program)
    assert not found, "\n".join(found)
    reasons = "\n".join(map(str, report.breaks)) or "\n".join(str(s) for s in report.skipped)
    if program.breaks is not None:
        assert len(report.breaks) == program.breaks, reasons
        if program.breaks == 0:
            assert not report.skipped, reasons
    if program.graphs is not None:
        assert report.graphs == program.graphs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_program_through_compile(program: Any, backend: str) -> None:
    found = compare_compiled(program, backend)
    assert not found, "\n".join(found)


def test_there_are_enough() -> None:
    assert len(PROGRAMS) >= 500
