"""A request for one kernel: what identifies it, before anything is generated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["ONE_LOOP", "KernelRequest"]

ONE_LOOP = ("row_along", "row_across")  # kinds of row kernels with one of the two loops


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """One kernel of one operator.

    Two requests with equal :attr:`symbol` must ask for the same kernel: where one operator has
    several expressions for the same dtypes (another compute type, constants written into the
    expression), their ``name`` says so.

    Attributes:
        name: the operator, e.g. ``add.Tensor``.
        expr: its ``expr(k, *inputs, *params)``; None where ``kind`` alone says what is computed.
        kind: 'map' or 'row' ('row_along', 'row_across': with one of its two loops), or the name
            of a text (``codegen.attention.KINDS``).
        in_dtypes, out_dtypes: storage dtypes.
        n_params, param_kinds, compute_dtype: see ``loops.lower.lower``.
    """

    name: str
    expr: Callable[..., Any] | None
    kind: str
    in_dtypes: tuple[str, ...]
    out_dtypes: tuple[str, ...]
    n_params: int = 0
    param_kinds: tuple[str, ...] | None = None
    compute_dtype: str | None = None

    @property
    def symbol(self) -> str:
        """The C name, ``{name}__{inputs}__{outputs}``: ``exp__float32__float32``.

        Row kernels, parameters ('f' or 'i' each) and a given compute type add a part of their own.
        """
        name = "".join(c if c.isalnum() else "_" for c in self.name)
        symbol = f"{name}__{'_'.join(self.in_dtypes)}__{'_'.join(self.out_dtypes)}"
        if self.kind != "map":
            symbol += f"__{self.kind}"
        if self.n_params:
            symbol += "__" + (
                "".join(self.param_kinds) if self.param_kinds else f"p{self.n_params}"
            )
        return f"{symbol}__{self.compute_dtype}" if self.compute_dtype else symbol
