"""Sums of products by index letters (NumPy's einsum), as views and batched matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, overridable
from flambeau._src.ops.kinds import Composite

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Einsum(Composite):
    """Sums of products by index letters, contracted from left to right (or along `path`)."""

    schema = "einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor"
    public = ""

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample("bij,bjk->bik", [s.tensor((2, 3, 4)), s.tensor((2, 4, 5))])
        yield s.sample("ij->ji", [s.tensor((3, 4))])
        yield s.sample("...i,i", [s.tensor((2, 3, 4)), s.tensor((4,))])
        yield s.sample("ii->i", [s.tensor((4, 4))])
        yield s.sample("ij,jk", [s.tensor((0, 3)), s.tensor((3, 2))])
        yield s.sample(",", [s.tensor(()), s.tensor(())])

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError, "does not match the number of dimensions", "ij", [s.tensor((3,))]
        )
        yield s.error(
            RuntimeError,
            "does not broadcast with previously seen size",
            "ij,jk",
            [s.tensor((2, 3)), s.tensor((4, 2))],
        )

    @staticmethod
    def decompose(equation: str, tensors: Any, path: Any) -> Tensor:
        if not tensors:
            raise RuntimeError("einsum(): must provide at least one operand")
        if path is not None and len(path) != (1 if len(tensors) == 1 else 2 * (len(tensors) - 1)):
            raise RuntimeError(
                "einsum(): expected contraction path given in path parameter to have size "
                f"{1 if len(tensors) == 1 else 2 * (len(tensors) - 1)} but got {len(path)}"
            )
        left, arrow, right = equation.partition("->")
        operands = _operand_labels(left, tensors)
        dots = max(
            t.dim() - (len(ls) - 1) if "..." in ls else 0
            for t, ls in zip(tensors, operands, strict=True)
        )
        wanted = _output_labels(right, operands) if arrow else _implied(operands)
        ellipsis = [f".{i}" for i in range(dots)]

        def spread(labels: list[str]) -> list[str]:
            return [x for y in labels for x in (ellipsis if y == "..." else [y])]

        result = spread(wanted)
        order = result + ([] if "..." in wanted else ellipsis)
        used = {x for ls in operands for x in ls if x != "..."}
        order += sorted(used - set(order))
        sizes: dict[str, int] = {}
        aligned = []
        for i, (t, ls) in enumerate(zip(tensors, operands, strict=True)):
            own = ellipsis[dots - (t.dim() - len(ls) + 1) :] if "..." in ls else []
            names = [x for y in ls for x in (own if y == "..." else [y])]
            aligned.append(_aligned(t, names, order, sizes, i))
        return _contract(aligned, len(result), path)


def _subscripts(text: str, of: str) -> list[str]:
    """The letters of one operand ('...' for an ellipsis)."""
    labels: list[str] = []
    i = 0
    while i < len(text):
        c = text[i]
        if c == ".":
            if "..." in labels:
                raise RuntimeError(
                    f"einsum(): found '.' for {of} for which an ellipsis was already found"
                )
            if not text.startswith("...", i):
                raise RuntimeError(f"einsum(): found '.' for {of} that is not part of any ellipsis")
            labels.append("...")
            i += 2
        elif c in _LETTERS:
            labels.append(c)
        elif c != " ":
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {i} in the equation string, "
                "subscripts must be in [a-zA-Z]"
            )
        i += 1
    return labels


def _operand_labels(left: str, tensors: Sequence[Tensor]) -> list[list[str]]:
    terms = left.split(",")
    if len(terms) > len(tensors):
        raise RuntimeError("einsum(): fewer operands were provided than specified in the equation")
    if len(terms) < len(tensors):
        raise RuntimeError("einsum(): more operands were provided than specified in the equation")
    found = []
    for i, (term, t) in enumerate(zip(terms, tensors, strict=True)):
        labels = _subscripts(term, f"operand {i}")
        n = len(labels) - ("..." in labels)
        if n != t.dim() if "..." not in labels else n > t.dim():
            more = "is more than" if "..." in labels else "does not match"
            tail = "" if "..." in labels else " and no ellipsis was given"
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({n}) {more} the number of "
                f"dimensions ({t.dim()}) for operand {i}{tail}"
            )
        found.append(labels)
    return found


def _output_labels(right: str, operands: list[list[str]]) -> list[str]:
    labels = _subscripts(right, "the output")
    for x in labels:
        if x == "...":
            continue
        if labels.count(x) > 1:
            raise RuntimeError(
                f"einsum(): output subscript {x} appears more than once in the output"
            )
        if not any(x in ls for ls in operands):
            raise RuntimeError(
                f"einsum(): output subscript {x} does not appear in the equation for any "
                "input operand"
            )
    return labels


def _implied(operands: list[list[str]]) -> list[str]:
    """Without '->': the ellipsis, then the letters that appear once, sorted."""
    every = [x for ls in operands for x in ls if x != "..."]
    return ["..."] + sorted(x for x in set(every) if every.count(x) == 1)


def _aligned(
    t: Tensor, names: list[str], order: list[str], sizes: dict[str, int], number: int
) -> Tensor:
    """t with one dimension for each label of `order`: diagonals of repeated ones, 1 for missing."""
    place: dict[str, int] = {}
    dim = 0
    for x in names:
        size = t.shape[dim]
        if x in place:
            if t.shape[place[x]] != size:
                raise RuntimeError(
                    f"einsum(): subscript {x} is repeated for operand {number} but the sizes don't "
                    f"match, {size} != {t.shape[place[x]]}"
                )
            t = aten.movedim(aten.diagonal(t, 0, place[x], dim), -1, place[x])
            continue
        if size != 1 and sizes.get(x, 1) not in (1, size):
            raise RuntimeError(
                f"einsum(): subscript {x} has size {size} for operand {number} which does not "
                f"broadcast with previously seen size {sizes[x]}"
            )
        if sizes.get(x, 1) == 1:
            sizes[x] = size
        place[x] = dim
        dim += 1
    for x in order:
        if x not in place:
            place[x] = t.dim()
            t = aten.unsqueeze(t, t.dim())
    return aten.permute(t, [place[x] for x in order])


def _contract(operands: list[Tensor], kept: int, path: Any) -> Tensor:
    """Operands of equal rank into one, whose first `kept` dimensions stay."""
    if len(operands) == 1:
        t = operands[0]
        return aten.sum(t, list(range(kept, t.dim()))) if t.dim() > kept else t
    rank = operands[0].dim()
    left = [sum(t.shape[d] != 1 for t in operands) for d in range(rank)]
    steps = iter(()) if path is None else iter(path)
    for _ in range(len(operands) - 1):
        if path is None:
            a, b = operands.pop(0), operands.pop(0)
        else:
            i, j = sorted((next(steps), next(steps)))
            b, a = operands.pop(j), operands.pop(i)
        product = _pair(a, b, kept, left)
        operands.insert(0 if path is None else len(operands), product)
    result = operands[0]
    return aten.view(result, list(result.shape[:kept])) if rank > kept else result


def _pair(a: Tensor, b: Tensor, kept: int, left: list[int]) -> Tensor:
    """The product of two operands, summed over what no later one has (extents of 1 stay)."""
    both: list[int] = []
    of_a: list[int] = []
    of_b: list[int] = []
    for d in range(kept, a.dim()):
        if a.shape[d] != 1 and b.shape[d] != 1:
            left[d] -= 1
            if left[d] == 1:
                both.append(d)
                left[d] = 0
        elif left[d] == 1 and (a.shape[d] != 1 or b.shape[d] != 1):
            (of_a if a.shape[d] != 1 else of_b).append(d)
            left[d] = 0
    if of_a:
        a = aten.sum(a, of_a, True)
    if of_b:
        b = aten.sum(b, of_b, True)
    return _sum_of_products(a, b, both) if both else aten.mul(a, b)


def _count(t: Tensor, dims: list[int]) -> int:
    return math.prod(t.shape[d] for d in dims)


def _sum_of_products(a: Tensor, b: Tensor, summed: list[int]) -> Tensor:
    """a * b summed over some dimensions (which stay, as 1), as one batched matrix product."""
    batch: list[int] = []
    rows: list[int] = []
    columns: list[int] = []
    for d in range(a.dim()):
        if d in summed:
            continue
        if a.shape[d] != 1 and b.shape[d] != 1:
            batch.append(d)
        else:
            (rows if a.shape[d] != 1 else columns).append(d)
    n, k = _count(a, batch), _count(a, summed)
    shape = [
        *(a.shape[d] for d in batch), *(a.shape[d] for d in rows), *(1 for _ in summed),
        *(b.shape[d] for d in columns),
    ]  # fmt: skip
    order = [*batch, *rows, *summed, *columns]
    a_nmk = aten.reshape(aten.permute(a, order), (n, _count(a, rows), k))
    b_nkp = aten.reshape(
        aten.permute(b, [*batch, *summed, *columns, *rows]), (n, k, _count(b, columns))
    )
    product = aten.view(aten.bmm(a_nmk, b_nkp), shape)
    return aten.permute(product, [order.index(d) for d in range(len(order))])


def _letter(i: Any) -> str:
    if i is Ellipsis:
        return "..."
    if not 0 <= i < len(_LETTERS):
        raise ValueError(
            "einsum(): subscript in subscript list is not within the valid range [0, 52)"
        )
    return _LETTERS[i]


@overridable
def einsum(*args: Any) -> Tensor:
    """Sums of products of tensors along dimensions that share a letter.

    Called as ``einsum("ij,jk->ik", x, y)``, or with lists of numbers for letters:
    ``einsum(x, [0, 1], y, [1, 2], [0, 2])``. Without an output, letters that appear once are kept,
    sorted. ``...`` stands for dimensions that broadcast.

    Raises:
        ValueError: no equation or no operand.
        RuntimeError: letters and dimensions do not fit.
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one "
            "operand and its subscripts list"
        )
    if isinstance(args[0], Tensor):
        equation = ",".join("".join(map(_letter, ls)) for ls in args[1::2])
        operands: Any = args[::2]
        if len(args) % 2:
            equation += "->" + "".join(map(_letter, args[-1]))
            operands = args[:-1:2]
        return einsum(equation, *operands)
    equation, *operands = args
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        return einsum(equation, *operands[0])
    return aten.einsum(equation, list(operands))


FUNCTIONS: dict[str, Any] = {"einsum": einsum}
