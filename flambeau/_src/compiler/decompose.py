"""The two stable sets of operators, and how one gets from the first to the second.

*ATen*: what a graph behind ahead-of-time autograd may hold: functional operators that do not
dissolve above autograd. *Primitives*: what is left when those with a decomposition are taken apart,
and each elementwise operator is its scalar expression; the scalar operations that the expressions
use count, the operators that have one do not.

    python -m flambeau._src.compiler.decompose > docs/operators.md
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from flambeau._src.ir.kernel import REDUCTIONS, SCANS
from flambeau._src.loops.lower import lower
from flambeau._src.ops.op import PACKETS, Op, resolve_lazy
from flambeau._src.ops.overload import overload_of

__all__ = ["aten", "decompositions", "document", "primitives"]


#: Instructions that bring values in.
_GIVEN = ("load", "load_row", "const", "param")


def functional() -> list[Op]:
    """All overloads of the library's own operators that write nothing, by name."""
    found = [o for p in list(PACKETS.values()) for o in resolve_lazy(p)]
    own = [o for o in found if o.namespace == "aten" and o.variant == "functional"]
    return sorted((o for o in own if not o.schema.mutates), key=lambda o: o.key)


def aten() -> list[Op]:
    """The first set: composites dissolve before a graph sees them."""
    return [o for o in functional() if o.decl.level != "composite"]


def scalar_operations() -> list[str]:
    """The scalar operations of all elementwise expressions."""
    used: set[str] = set(REDUCTIONS) | set(SCANS)
    for op in aten():
        if op.decl.expr is None:
            continue
        count = sum(a.type.startswith("Tensor") for a in op.schema.args)
        for dtype in ("float32", "int64", "bool"):
            try:
                kernel = lower(op.decl.expr, "map", (dtype,) * count, (dtype,))
            except Exception:  # it has scalars, or is not meant for this dtype
                continue
            used.update(i.op for i in kernel.insts if i.op not in _GIVEN)
    return sorted(used)


def primitives() -> tuple[list[str], list[Op]]:
    """The second set: scalar operations, and operators that are nothing but themselves."""
    whole = [o for o in aten() if o.decl.expr is None and o.decl.decompose is None]
    return scalar_operations(), whole


def decompositions(*, whole: bool = False) -> dict[Any, Callable[..., Any]]:
    """Overload → function of fewer operators, for those of the first set that have one.

    Without those that our own back ends run whole; with `whole` nothing but primitives is left.
    """
    return dict(_found(whole, sum(len(p.ops) for p in PACKETS.values())))


@functools.cache
def _found(whole: bool, known: int) -> dict[Any, Callable[..., Any]]:
    """`known`: how many overloads there are, as programs may declare more."""
    found = [o for o in aten() if o.decl.decompose is not None]
    return {overload_of(o): _as_called(o) for o in found if whole or not o.decl.whole}


def _as_called(op: Op) -> Callable[..., Any]:
    """An operator's decomposition as a function of the operator's signature."""
    body: Any = op.decl.decompose
    bound = overload_of(op)._bound

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        return body(*bound(args, kwargs))

    return decomposition


def _bodies(op: Op) -> Iterable[str]:
    decl = op.decl
    if decl.level == "composite":
        yield "dissolves"
    elif decl.decompose is not None:
        yield "decomposes, runs whole" if decl.whole else "decomposes"
    if decl.expr is not None:
        yield "expression"
    if getattr(decl, "vjp", None) is not None:
        yield "gradient"


def document() -> str:
    """The page of operators, in Markdown."""
    every, first = functional(), aten()
    scalars, whole = primitives()
    lines = [
        "# Operators", "",
        "Written by `python -m flambeau._src.compiler.decompose`; edit the declarations instead.",
        "",
        "| set | size |", "|---|---:|",
        f"| functional overloads | {len(every)} |",
        f"| of them composites, which dissolve above autograd | {len(every) - len(first)} |",
        f"| **ATen**: what graphs hold | {len(first)} |",
        f"| of them with an elementwise expression | {len([o for o in first if o.decl.expr])} |",
        f"| of them with a decomposition | {len(decompositions(whole=True))} |",
        f"| of these run whole by our own back ends | {len([o for o in first if o.decl.whole])} |",
        f"| **primitives**: scalar operations and indivisible operators "
        f"| {len(scalars)} + {len(whole)} |", "",
        "Scalar operations: " + ", ".join(f"`{s}`" for s in scalars) + ".", "",
        "| operator | kind | how it is given |", "|---|---|---|",
    ]  # fmt: skip
    lines += [f"| `{o.key}` | {o.decl.kind} | {', '.join(_bodies(o))} |" for o in every]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(document(), end="")
