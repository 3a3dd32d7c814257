"""How an exported program is called: nested arguments taken apart, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.printer import PyTreeCodeGen, PyTreeInfo
from flambeau._src.util import pytree

__all__ = ["ExportCodeGen", "InputCheck"]


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
    """Refuses arguments that the program was not made for: a hook before forward."""

    def __init__(self, in_spec: Any, values: Sequence[Any], names: Sequence[str]) -> None:
        self.in_spec, self.values, self.names = in_spec, list(values), list(names)

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
        for name, value, like in zip(self.names, leaves, self.values, strict=True):
            self._check(name, value, like)

    def _check(self, name: str, value: Any, like: Any) -> None:
        if isinstance(like, Tensor):
            assert isinstance(value, Tensor), f"Guard failed: isinstance({name}, Tensor)"
            assert value.dim() == like.dim(), f"Guard failed: {name}.dim() == {like.dim()}"
            assert value.dtype is like.dtype, f"Guard failed: {name}.dtype == {like.dtype}"
            for i, (have, want) in enumerate(zip(value.shape, like.shape, strict=True)):
                assert have == want, f"Guard failed: {name}.size()[{i}] == {want}"
        else:
            same = type(value) is type(like) and value == like
            assert same, f"Guard failed: {name} == {like!r}"
