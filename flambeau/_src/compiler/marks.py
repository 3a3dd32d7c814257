"""Small things that programs say while they run compiled code, and filters of guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau._src.capture.guards import Guard, Kind

__all__ = [
    "GuardFilterEntry", "cudagraph_mark_step_begin", "filtered", "keep_tensor_guards_unsafe",
    "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
]  # fmt: skip


def cudagraph_mark_step_begin() -> None:
    """Say that outputs of the step before are not needed: nothing to do without CUDA graphs."""


@dataclass(frozen=True)
class GuardFilterEntry:
    """A guard, as filters see it: what it is of, the value, and the kind of check."""

    name: str
    has_value: bool
    value: Any
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: Guard

    @property
    def is_module(self) -> bool:
        """Whether it is about a module or what hangs on one."""
        return self.orig_guard.kind is Kind.MODULE_TREE or hasattr(self.value, "_parameters")

    @property
    def is_inbuilt(self) -> bool:
        """Whether that module is one of the library's own."""
        return str(type(self.value).__module__).startswith(("flambeau.nn", "torch.nn"))


_TYPES = {
    Kind.TENSOR: "TENSOR_MATCH", Kind.TYPE: "TYPE_MATCH", Kind.ID: "ID_MATCH",
    Kind.EQUALS: "EQUALS_MATCH", Kind.NONE: "CONSTANT_MATCH", Kind.LENGTH: "SEQUENCE_LENGTH",
    Kind.KEYS: "DICT_KEYS_MATCH", Kind.HAS_ATTR: "HASATTR", Kind.STATE: "GLOBAL_STATE",
    Kind.SHAPE: "SHAPE_ENV", Kind.MODULE_TREE: "NN_MODULE", Kind.FUNCTION: "CLOSURE_MATCH",
    Kind.SAME: "DUPLICATE_INPUT", Kind.NOT_SAME: "NO_TENSOR_ALIASING",
}  # fmt: skip


def filtered(
    guards: Sequence[Guard], choose: Any, value_of: Callable[[Any], tuple[bool, Any]]
) -> tuple[Guard, ...]:
    """The guards that a program's filter keeps. AssertionError unless it gives a bool for each."""
    entries = []
    for g in guards:
        known, value = (False, None) if g.source is None else value_of(g.source)
        is_global = g.source is not None and next(g.source.path()).text().startswith("G[")
        name, kind = str(g.source or ""), _TYPES.get(g.kind, g.kind.name)
        entries.append(GuardFilterEntry(name, known, value, kind, (), is_global, g))
    kept = list(choose(entries))
    assert len(kept) == len(guards), "guard_filter_fn must return a bool for every guard"
    return tuple(g for g, keep in zip(guards, kept, strict=True) if keep)


# Filters for `options={"guard_filter_fn": ...}`: each gives a bool for every guard.


def skip_all_guards_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Check nothing."""
    return [False for _ in guard_entries]


def keep_tensor_guards_unsafe(
    guard_entries: Sequence[Any], keep_parameters: bool = False
) -> list[bool]:
    """Check tensors only, and among them parameters only if asked."""
    keep = []
    for entry in guard_entries:
        parameter = getattr(getattr(entry, "value", None), "_is_param", False)
        keep.append(entry.guard_type == "TENSOR_MATCH" and (keep_parameters or not parameter))
    return keep


def skip_guard_on_globals_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Do not check globals."""
    return [not entry.is_global for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Do not check modules."""
    return [not entry.is_module for entry in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Do not check the library's own modules."""
    return [not (entry.is_module and entry.is_inbuilt) for entry in guard_entries]
