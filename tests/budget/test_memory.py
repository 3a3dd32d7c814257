"""Recorded results are freed without the cycle collector; fresh outputs fault no pages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """What bench/memory.py finds, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "memory.py"), "--runtime", "flambeau"],
        cwd=ROOT,
        env=os.environ.copy(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_dropped_recordings_are_freed_at_once(measured: dict[str, Any]) -> None:
    # 1,000 results of 4 MB; a reference cycle anywhere would keep them all.
    assert measured["recorded"]["highest_growth_mb"] <= 8


def test_fresh_outputs_of_64_mb_fault_no_pages(measured: dict[str, Any]) -> None:
    # 16,384 a call if the memory came from the system each time.
    assert measured["fresh"]["faults_per_call"] <= 200
