"""Writes random_torch.json: what real PyTorch draws, for test_random.py to compare with.

Run it in an environment that has torch 2.13, from the root of the repository:

    python tests/core/record_random.py

A case is a seed and the steps that one generator takes; a step is (fill, dtype, n, arguments). Of
each step it keeps the digest of the bytes and the first few elements, of each case the digest of
the state.
"""

from __future__ import annotations

import hashlib
import json
import platform
import random
from pathlib import Path
from typing import Any

import torch

SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 100, 1000, 100003)
REALS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
SEEDS = (0, 1, 42, 2**32 - 1, 2**32 + 7, -1, -(2**63), 2**64 - 1)
HEAD = 8  # elements kept as they are


def draw(g: torch.Generator, fill: str, dtype: str, n: int, args: list[Any]) -> torch.Tensor:
    """One step, done by torch."""
    d = getattr(torch, dtype)
    x = torch.zeros(n, dtype=d)
    if fill == "normal" and len(args) == 3:  # one by one: what a strided tensor gets
        return torch.zeros(2 * n, dtype=d)[::2].normal_(*args[:2], generator=g).contiguous()
    if fill == "bernoulli_each":
        return x.bernoulli_(probabilities(n, args[0]), generator=g)
    if fill == "random_range":
        return x.random_(args[0], args[0] + args[1], generator=g)
    if fill == "permutation":
        return torch.randperm(n, dtype=d, generator=g)
    if fill == "choices":
        categories, samples = args
        weights = probabilities(n * categories, dtype).reshape(n, categories)
        return torch.multinomial(weights, samples, True, generator=g)
    return getattr(x, fill + "_")(*args, generator=g)


def probabilities(n: int, dtype: str) -> torch.Tensor:
    """i / 7 % 1 as the dtype: the same on both sides without any stream."""
    return ((torch.arange(n, dtype=torch.float64) % 7 + 0.5) / 8).to(getattr(torch, dtype))


def steps() -> list[list[Any]]:
    """Every fill over the sizes and dtypes it takes."""
    out: list[list[Any]] = []
    for n in SIZES:
        for d in REALS:
            out += [["uniform", d, n, a] for a in ([0, 1], [-1.5, 0.7], [1, 1.001])]
            out += [["normal", d, n, a] for a in ([0, 1], [0.3, 0.7])]
            if n > 1:
                out.append(["normal", d, n, [0.3, 0.7, 1]])
            out += [["log_normal", d, n, [1, 2]], ["cauchy", d, n, [0.3, 7.7]]]
            out += [["exponential", d, n, [1]], ["exponential", d, n, [0.3]]]
            out += [["bernoulli_each", "float32", n, [d]], ["bernoulli_each", d, n, ["float32"]]]
        for d in (*REALS, *INTEGERS, "bool"):
            out += [["random", d, n, []], ["bernoulli", d, n, [0.3]]]
            if d != "bool":
                out += [["geometric", d, n, [0.03]], ["random_range", d, n, [0, 100]]]
        for base, size in ((-5, 12), (0, 2**28 - 1), (0, 2**28), (-(2**40), 2**41 + 9)):
            out.append(["random_range", "int64", n, [base, size]])
        out += [["random_range", "uint32", n, [0, 2**31]], ["permutation", "int64", n, []]]
        if n <= 100:
            out += [["permutation", d, n, []] for d in ("float32", "int32", "uint8", "bfloat16")]
    for d in REALS:
        for shape in ([1, 2], [5, 33], [1000, 100]):
            out.append(["choices", d, 3, shape])
    return out


def mixed(rng: random.Random) -> list[list[Any]]:
    """A walk over fills of one generator: the second normal waits and is taken up."""
    pool = [s for s in steps() if s[2] < 1001 and s[0] != "choices"]
    return [rng.choice(pool) for _ in range(12)] + [["normal", "float32", 3, [0, 1]]]


def record(seed: int, taken: list[list[Any]]) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)
    results = []
    for step in taken:
        x = draw(g, *step)
        raw = x.contiguous().view(torch.uint8).numpy().tobytes() if x.numel() else b""
        head = raw[: HEAD * x.element_size()].hex()
        results.append([*step, hashlib.sha256(raw).hexdigest()[:16], head])
    state = g.get_state().numpy().tobytes()
    return {"seed": seed, "steps": results, "state": hashlib.sha256(state).hexdigest()[:16]}


def main() -> None:
    rng = random.Random(0)
    cases = [record(11, [s]) for s in steps()]
    cases += [record(seed, [["uniform", "float32", 5, [0, 1]]]) for seed in SEEDS]
    cases += [record(rng.choice(SEEDS), mixed(rng)) for _ in range(60)]
    g = torch.Generator().manual_seed(9)
    torch.randn(3, generator=g)
    state = g.get_state().numpy().tobytes()
    after = torch.randn(4, generator=g).numpy().tobytes()
    text = json.dumps(
        {
            "torch": torch.__version__,
            "libc": " ".join(platform.libc_ver()),
            "state": state.hex(),
            "after": after.hex(),
            "cases": cases,
        }
    ).replace(' {"seed"', '\n{"seed"')
    Path(__file__).with_name("random_torch.json").write_text(text + "\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
