"""What exact resume rests on: a call's bits do not depend on what the process did before it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import flambeau as torch
import flambeau.nn.functional as F

Tensors = dict[str, torch.Tensor]

CASES: dict[str, Callable[[Tensors], torch.Tensor]] = {
    "sum of rows, heads apart": lambda t: t["heads"].sum(-1, True),
    "sum of heads": lambda t: t["heads"].sum(1),
    "sum of batches": lambda t: t["heads"].sum(0),
    "sum of two dimensions": lambda t: t["heads"].sum((0, 2)),
    "sum of all": lambda t: t["heads"].sum(),
    "sum of columns, transposed": lambda t: t["turned"].sum(0),
    "sum of rows, transposed": lambda t: t["turned"].sum(1),
    "sum of a matrix": lambda t: t["dense"].sum(),
    "mean": lambda t: t["heads"].mean(-1),
    "variance": lambda t: t["turned"].var(0),
    "cumulative sum": lambda t: t["turned"].cumsum(0),
    "logsumexp": lambda t: torch.logsumexp(t["heads"], -1),
    "softmax": lambda t: torch.softmax(t["turned"], 0),
    "layer_norm": lambda t: F.layer_norm(t["heads"], (16,)),
    "exp": lambda t: t["turned"].exp(),
    "matmul": lambda t: t["dense"].t() @ t["dense"],
    "matmul of heads": lambda t: t["heads"] @ t["heads"].transpose(-1, -2),
    "linear": lambda t: F.linear(t["heads"], t["dense"][:3, :16]),
}


def bits_of_calls(case: Callable[[Tensors], torch.Tensor]) -> list[bytes]:
    """The results of five calls, each with other memory lying around."""
    torch.manual_seed(0)
    tensors = {
        "heads": torch.randn(4, 32, 2, 16).transpose(1, 2),
        "turned": torch.randn(64, 33).t(),
        "dense": torch.randn(100, 37),
    }
    results = []
    for number in range(5):
        around = torch.full((1 + 7 * number,), 1e30)
        result = case(tensors)
        del around
        results.append(result.contiguous().numpy().tobytes())
    return results


@pytest.mark.parametrize("name", CASES)
def test_the_first_call_gives_the_bits_of_later_ones(name: str) -> None:
    # A fork of its own: there, the calls are the first ones of their kind.
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            results = bits_of_calls(CASES[name])
            os.write(writer, bytes([len(set(results))]))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer == b"\x01"
