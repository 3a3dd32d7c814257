"""How an exported program is called: nested arguments taken apart, and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau._src.core.symint import SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.conditions import Condition
from flambeau._src.ir.integers import Expr, Range, symbol
from flambeau._src.ir.printer import PyTreeCodeGen, PyTreeInfo
from flambeau._src.ir.sym_node import expression_of
from flambeau._src.util import pytree

__all__ = ["ExportCodeGen", "InputCheck"]

_SYMBOL = re.compile(r"\bs\d+\b")


class ExportCodeGen(PyTreeCodeGen):
    """A function of the original's parameters: positional ones, then keywords."""

    def __init__(self, names: Sequence[str], in_spec: Any, out_spec: Any) -> None:
        super().__init__(PyTreeInfo(list(names), in_spec, out_spec))
        self.keywords = list(in_spec.child(1).context) if in_spec.child(1).num_children else []

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        names = self.pytree_info.orig_args
        positional = [n for n in names if n not in self.keywords]
        head = f"def {self._func_name}({', '.join(['self', *names])}){maybe_return_annotation}:"
        if not free_vars:
            return head
        leaves = [text.partition(":")[0].partition("=")[0].strip() for text in free_vars]
        keywords = ", ".join(f"{k!r}: {k}" for k in self.keywords)
        given = f"([{', '.join(positional)}], {{{keywords}}})"
        return (
            f"{head}\n    {', '.join(leaves)}, = "
            f"fx_pytree.tree_flatten_spec({given}, self._in_spec)"
        )


class InputCheck:
    """Refuses arguments that the program was not made for: a hook before forward.

    Args:
        in_spec: the structure of (args, kwargs). values: what the leaves were, fake tensors and
            constants; their sizes may be expressions.
        names: what each leaf is called. ranges: of every expression. guards: what else must hold
            of the symbols.
    """

    def __init__(
        self, in_spec: Any, values: Sequence[Any], names: Sequence[str],
        ranges: Mapping[Any, Range], guards: Sequence[Condition],
    ) -> None:  # fmt: skip
        self.in_spec, self.names = in_spec, list(names)
        self.values = list(values)
        self.ranges, self.guards = dict(ranges), list(guards)

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        known = list(self.in_spec.child(1).context or [])
        if sorted(kwargs) != sorted(known):
            raise ValueError(
                "Ran into a kwarg keyword mismatch: Got the following keywords "
                f"{list(kwargs)} but expected {known}"
            )
        leaves, spec = pytree.tree_flatten((args, {k: kwargs[k] for k in known}))
        if spec != self.in_spec:
            raise ValueError(
                "Trying to flatten user inputs with exported input tree spec: \n"
                f"{self.in_spec}\nbut actually got inputs with tree spec of: \n{spec}"
            )
        met = _Met(self.ranges)
        for name, value, like in zip(self.names, leaves, self.values, strict=True):
            self._check(name, value, like, met)
        met.finish(self.guards)

    def _check(self, name: str, value: Any, like: Any, met: _Met) -> None:
        if isinstance(like, Tensor):
            assert isinstance(value, Tensor), f"Guard failed: isinstance({name}, Tensor)"
            assert value.dim() == like.dim(), f"Guard failed: {name}.dim() == {like.dim()}"
            assert value.dtype is like.dtype, f"Guard failed: {name}.dtype == {like.dtype}"
            for i, (have, want) in enumerate(zip(value.shape, like.shape, strict=True)):
                met.size(have, expression_of(want), f"{name}.size()[{i}]")
        elif isinstance(like, SymInt):
            assert type(value) is int, f"Guard failed: isinstance({name}, int)"
            met.size(value, expression_of(like), name)
        else:
            same = type(value) is type(like) and value == like
            assert same, f"Guard failed: {name} == {like!r}"


class _Met:
    """The sizes of one call: what the symbols are, and where they were met."""

    def __init__(self, ranges: Mapping[Any, Range]) -> None:
        self.ranges = ranges
        self.env: dict[str, int] = {}
        self.places: dict[str, str] = {}
        self.later: list[tuple[int, Expr, str]] = []

    def size(self, have: int, want: Any, place: str) -> None:
        """One size, and what it should be."""
        if isinstance(want, int):
            assert have == want, f"Guard failed: {place} == {want}"
            return
        name = want.name
        if name is None or name in self.env:
            self.later.append((have, want, place))
            return
        self.env[name], self.places[name] = have, place
        self._within(have, want, place)

    def _within(self, have: int, want: Expr, place: str) -> None:
        found = self.ranges.get(want)
        if found is not None and have not in found:
            low = found.lo is not None and have < found.lo
            raise AssertionError(
                f"Guard failed: {place} >= {found.lo}" if low
                else f"Guard failed: {place} <= {found.hi}"
            )  # fmt: skip

    def finish(self, guards: Sequence[Condition]) -> None:
        """Sizes that are computed from others, and the guards."""
        for have, want, place in self.later:
            self._solve(have, want, place)
            self._within(have, want, place)
            assert want.value(self.env) == have, f"Guard failed: {place} == {self._text(want)}"
        for c in guards:
            if c.symbols <= self.env.keys():
                assert c.value(self.env), f"Guard failed: {self._text(c)}"

    def _solve(self, have: int, want: Expr, place: str) -> None:
        """The value of a symbol that only `scale * symbol + shift` tells."""
        missing = want.symbols - self.env.keys()
        if len(missing) != 1:
            return
        (name,) = missing
        shift = want.value({**self.env, name: 0})
        scale = want.value({**self.env, name: 1}) - shift
        quotient, rest = divmod(have - shift, scale)
        assert not rest, f"Guard failed: {place} == {self._text(want)} for an integer {name}"
        self.env[name] = quotient
        self._within(quotient, symbol(name), name)

    def _text(self, what: Expr | Condition) -> str:
        return _SYMBOL.sub(lambda m: self.places.get(m[0], m[0]), str(what))
