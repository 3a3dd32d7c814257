"""`breakpoint()` in a compiled function stops where the user wrote it: the same transcript as
without `compile`."""

from __future__ import annotations

import io
import pdb
import sys
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch


def stops(x: Any) -> Any:
    a = x.sin()
    b = a * 2
    breakpoint()
    c = b + 1
    return a + c


def helper(y: Any) -> Any:
    z = y + 1
    breakpoint()
    return z * 2


def stops_in_a_callee(x: Any) -> Any:
    kept = x * 3
    out = helper(x.cos())
    return out + kept


def stops_after_a_break(x: Any) -> Any:
    a = x.sin()
    print("broken")
    for i in range(2):
        breakpoint()
        a = a + i
    return a


def stops_on_a_branch(x: Any) -> Any:
    y = x + 1
    if y.sum() > 0:
        breakpoint()
        y = y * 2
    return y


class Debugger:
    """Answers every stop with the next commands, and keeps what the debugger wrote."""

    def __init__(self, commands: str) -> None:
        self.input, self.output = io.StringIO(commands), io.StringIO()
        self.pdb = pdb.Pdb(stdin=self.input, stdout=self.output, nosigint=True, readrc=False)
        self.pdb.use_rawinput = False

    def __call__(self) -> None:
        self.pdb.set_trace(sys._getframe(1))


@pytest.mark.parametrize(
    ("function", "commands"),
    [
        (stops, "p a, b\nn\nn\np c\nc\n"),
        (stops_in_a_callee, "p y, z\nup\np kept\ndown\nc\n"),
        (stops_after_a_break, "p i, a\nn\np a\nc\np i, a\nc\n"),
        (stops_on_a_branch, "p y\nn\np y\nc\n"),
    ],
)
def test_the_debugger_sees_what_it_sees_without_compile(
    function: Callable[..., Any], commands: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transcript(run: Callable[..., Any]) -> str:
        debugger = Debugger(commands)
        monkeypatch.setattr(sys, "breakpointhook", debugger)
        try:
            run(torch.ones(2))
        finally:
            sys.settrace(None)
        return debugger.output.getvalue()

    torch._dynamo.reset()
    compiled = torch.compile(function)
    expected = transcript(function)
    assert "tensor(" in expected and "Error" not in expected
    assert transcript(compiled) == expected
    assert transcript(compiled) == expected


def test_what_stands_before_is_told() -> None:
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="The debugger is called"):
        torch.compile(stops, fullgraph=True)(torch.ones(2))
