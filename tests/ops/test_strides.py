"""Strides of fresh outputs, against an independent statement of the iterator's rule."""

from __future__ import annotations

import random
from typing import Any

import flambeau as torch


def expected(tensors: list[Any]) -> tuple[int, ...]:
    """The rule in Python: operands of one dense geometry are followed; otherwise dimensions are put
    in order by the operands' strides, the first operand that tells two apart deciding."""
    nd = max(t.dim() for t in tensors)
    shape = [1] * nd
    for t in tensors:
        for i, s in enumerate(t.shape, nd - t.dim()):
            shape[i] = s if shape[i] == 1 else shape[i]
    same = all(tuple(t.shape) == tuple(shape) for t in tensors)
    if same and all(t.is_contiguous() for t in tensors):
        return dense(shape, range(nd - 1, -1, -1), clamp=True)
    if same and len({t.stride() for t in tensors}) == 1 and fills(tensors[0]):
        return tensors[0].stride()
    rows = []
    for t in tensors:
        lead = nd - t.dim()
        rows.append(
            [
                0
                if i < lead or (t.shape[i - lead] == 1 and shape[i] != 1)
                else t.stride()[i - lead]
                for i in range(nd)
            ]
        )
    order = list(range(nd - 1, -1, -1))
    for i in range(1, nd):
        at = i
        for j in range(i - 1, -1, -1):
            c = compare(rows, shape, order[j], order[at])
            if c > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif c < 0:
                break
    return dense(shape, order, clamp=order == list(range(nd - 1, -1, -1)))


def compare(rows: list[list[int]], shape: list[int], a: int, b: int) -> int:
    for r in rows:
        if r[a] == 0 or r[b] == 0:
            continue
        if r[a] != r[b]:
            return -1 if r[a] < r[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def dense(shape: Any, order: Any, clamp: bool) -> tuple[int, ...]:
    out, c = [0] * len(shape), 1
    for i in order:
        out[i] = c
        c *= max(shape[i], 1) if clamp else shape[i]
    return tuple(out)


def fills(t: Any) -> bool:
    c = 1
    for st, s in sorted((st, s) for s, st in zip(t.shape, t.stride(), strict=True) if s != 1):
        if st != c:
            return False
        c *= s
    return True


def cases(seed: int = 0, n: int = 300) -> Any:
    rng = random.Random(seed)
    for _ in range(n):
        shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(1, 4))]
        made = []
        for _ in range(rng.choice([1, 2, 2, 3])):
            own = [s if rng.random() < 0.8 else 1 for s in shape][
                rng.randint(0, 1) if len(shape) > 1 else 0 :
            ]
            order = list(range(len(own)))
            rng.shuffle(order)
            t = torch.ones([own[i] for i in order]).permute(
                [order.index(i) for i in range(len(own))]
            )
            if rng.random() < 0.2 and t.shape[-1] > 1:
                t = torch.ones([*own[:-1], own[-1] * 2])[..., ::2]
            made.append(t)
        yield made


def wrong_strides() -> list[Any]:
    """Cases whose result's strides are not the rule's."""
    bad = []
    for ts in cases():
        out = ts[0].exp() if len(ts) == 1 else ts[0] + ts[1] if len(ts) == 2 else torch.addcmul(*ts)
        if out.stride() != expected(ts):
            bad.append(([(tuple(t.shape), t.stride()) for t in ts], out.stride(), expected(ts)))
    return bad


def test_strides() -> None:
    assert not wrong_strides()


def test_channels_last_is_kept() -> None:
    x = torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for y in (
        x + 1,
        x * x,
        x.exp(),
        x.clone(),
        torch.relu(x),
        x.to(torch.float64),
        torch.empty_like(x),
    ):
        assert y.stride() == x.stride()
