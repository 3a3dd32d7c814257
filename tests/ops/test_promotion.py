"""Result dtypes of mixed arguments, against a table recorded from torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flambeau as torch

TABLE: dict[str, str] = json.loads(Path(__file__).with_name("promotion.json").read_text())
NUMBERS = {"True": True, "2": 2, "2.5": 2.5, "1j": 1j}


def result(case: str) -> str:
    op, a, *rest = case.split()
    x = torch.ones(2, dtype=getattr(torch, a))
    args: list[Any] = []
    if len(rest) == 2:
        args = [torch.ones((2,) if rest[1] == "1" else (), dtype=getattr(torch, rest[0]))]
    elif rest:
        args = [NUMBERS[rest[0]]]
    elif op == "cumsum":
        args = [0]
    try:
        return getattr(torch, op)(x, *args).dtype.name
    except Exception as e:  # whatever is raised is compared by its name
        return type(e).__name__


def mismatches() -> dict[str, tuple[str, str]]:
    """case -> (ours, torch's), where they differ."""
    return {c: (r, want) for c, want in TABLE.items() if (r := result(c)) != want}


def test_promotion() -> None:
    assert not mismatches()
