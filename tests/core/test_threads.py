"""Threads: how many, who governs them, what a fork leaves, and that results
do not depend on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.runtime import blas


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def asked(**variables: str) -> list[str]:
    env = {k: v for k, v in os.environ.items() if not k.endswith("NUM_THREADS")}
    code = (
        "import flambeau as t; from flambeau._src.runtime import blas;"
        "t.rand(64, 64) @ t.rand(64, 64);"
        "print(t.get_num_threads(), blas.threads())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_environment() -> None:
    assert asked(FLAMBEAU_NUM_THREADS="3") == ["3", "3"]
    assert asked(OMP_NUM_THREADS="1") == ["1", "1"]
    assert asked(FLAMBEAU_NUM_THREADS="2", OMP_NUM_THREADS="1") == ["2", "2"]
    assert asked()[0] == str(len(os.sched_getaffinity(0)))


def test_one_number_governs_all() -> None:
    torch.rand(64, 64) @ torch.rand(64, 64)
    for n in (1, 3, 2):
        torch.set_num_threads(n)
        assert torch.get_num_threads() == blas.threads() == n


def calls() -> list[Any]:
    x = (torch.arange(3_000_017, dtype=torch.float32) * 0.37).sin()
    y = x[:3_000_000].reshape(3000, 1000)
    found = [x.sum(), x.max(), x.amin(), (x > 2).any(), (x < 2).all(), x.exp(), y.softmax(-1)]
    found += [y.sum(0), y.sum(1), y.t().contiguous(), x.to(torch.float64).sum(), x.mean()]
    return found


def test_results_do_not_depend_on_them() -> None:
    torch.set_num_threads(1)
    expected = calls()
    for n in (2, 5):
        torch.set_num_threads(n)
        for _ in range(3):
            for a, b in zip(calls(), expected, strict=True):
                assert torch.equal(a, b)


def test_sum_of_everything() -> None:
    """Parts are summed first: closer to the exact sum than a single row of float32."""
    for n in (262144, 262145, 1_000_003):
        x = (torch.arange(n, dtype=torch.float64) * 0.7).cos()
        exact = float(x.sum())
        assert abs(float(x.float().sum()) - exact) < 2e-2
        assert torch.ones(n).sum().item() == n
        assert torch.ones(n, dtype=torch.int32).sum().item() == n
        y = x.clone()
        y[n - 1] = 7
        assert y.max().item() == 7 and bool((y == 7).any())
        y[n // 2] = float("nan")
        assert y.max().isnan() and y.sum().isnan()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork() -> None:
    """A child has a pool of its own, whatever the parent's threads were doing."""
    torch.set_num_threads(3)
    x = torch.rand(1 << 20)
    square = torch.rand(256, 256)
    expected = (x.exp().sum().item(), (square @ square).sum().item())
    for _ in range(3):
        x.exp()
        child = os.fork()
        if not child:
            ok = False
            try:
                ok = (x.exp().sum().item(), (square @ square).sum().item()) == expected
            finally:
                os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
