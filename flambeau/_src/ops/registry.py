"""All operator families, imported for their declarations."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau._src.ops import (  # noqa: F401
    activation,
    scan,
    loss,
    attention,
    compare,
    conv,
    pool,
    copying,
    creation,
    elementary,
    indexing,
    matmul,
    norm,
    pointwise,
    random,
    reduce,
    shapes,
    strided,
    views,
)
from flambeau._src.ops.op import PACKETS, Op, resolve_lazy


def all_ops() -> Iterator[Op]:
    """Every functional overload that is declared."""
    for p in PACKETS.values():
        yield from resolve_lazy(p)
