"""Which sizes of an input become symbols, and its geometry in these symbols.

A size is `static` (the number it is), `duck` (a symbol; sizes that are equal now share one),
`own` (a symbol of its own), `dynamic` (one that must stay one: a promise) or `unbacked` (a number
that only running will tell: nothing may branch on it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.integers import IntLike, Range
from flambeau._src.ir.shape_env import ShapeEnv
from flambeau._src.ir.sym_node import sym_int

__all__ = ["Dims", "symbolic_geometry"]


@dataclass(frozen=True)
class Dims:
    """The policy of an input's dimensions: `default`, and for some dimensions another.

    `given` dimensions are expressions in symbols that the caller made.
    """

    default: str = "duck"
    policies: Mapping[int, str] = field(default_factory=dict)
    ranges: Mapping[int, Range] = field(default_factory=dict)
    given: Mapping[int, IntLike] = field(default_factory=dict)

    def of(self, i: int) -> str:
        """The policy of dimension i."""
        return self.policies.get(i, self.default)


def symbolic_geometry(
    env: ShapeEnv, t: Tensor, source: Any, dims: Dims
) -> tuple[tuple[Any, ...], tuple[Any, ...], int]:
    """(sizes, strides, offset) of an input, its sizes symbols as `dims` says.

    A stride that is the product of another dimension's size and stride is that product of symbols;
    other strides and the offset stay the numbers they are. `source` says where the tensor comes
    from: the symbols' sources are (source, "size", dimension).
    """
    sizes = tuple(_size(env, int(n), i, source, dims) for i, n in enumerate(t.shape))
    return sizes, _strides(t, sizes), t.storage_offset()


def _size(env: ShapeEnv, n: int, i: int, source: Any, dims: Dims) -> Any:
    if i in dims.given:
        return sym_int(env, dims.given[i])
    policy, place = dims.of(i), (source, "size", i)
    if policy == "static":
        return n
    if policy == "unbacked":
        made = env.unbacked(Range(0, None).meet(dims.ranges.get(i, Range(0, None))))
        env.symbols[str(made)].sources.append(place)
        return sym_int(env, made)
    strict = None
    if policy == "dynamic":
        text = source.text() if hasattr(source, "text") else source
        strict = f"{text}.size()[{i}]"
    chosen = env.size(
        n, place, range_=dims.ranges.get(i), strict=strict, duck=policy in ("duck", "dynamic")
    )
    return sym_int(env, chosen)


def _strides(t: Tensor, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides from the innermost outwards, each from the one that it is a multiple of."""
    numbers = t.stride()
    out: list[Any] = list(numbers)
    order = sorted(range(len(numbers)), key=lambda i: (numbers[i], -i))
    reached: dict[int, Any] = {}  # stride of the next dimension outwards, in symbols
    for i in order:
        n = numbers[i]
        if n in reached:
            out[i] = reached[n]
        if n:
            reached[n * int(t.shape[i])] = out[i] * sizes[i]
    return tuple(out)
