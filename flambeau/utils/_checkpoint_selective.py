"""Checkpointing that keeps the results of chosen operators."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils._pytree import tree_leaves, tree_map

_RECOMPUTE = object()
_TAKEN = object()


class CheckpointPolicy(enum.Enum):
    """What to do with the result of an operator. PREFER_* may be overruled by a compiler."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """What a policy function is told: whether this is the recomputation, and the result."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


class _Kept:
    """A result with the version it had."""

    def __init__(self, value: Any, offload: bool) -> None:
        self.version = value._version if isinstance(value, Tensor) else None
        self.device = value.device if isinstance(value, Tensor) else None
        self.offload = offload
        self.value = value.cpu() if offload and isinstance(value, Tensor) else value

    def get(self, allow_mutation: bool) -> Any:
        """The result; RuntimeError when it was changed."""
        value = self.value
        if not isinstance(value, Tensor):
            return value
        if value.device == self.device and value._version != self.version and not allow_mutation:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated"
            )
        return value.to(self.device)


_SAVES = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_OFFLOADS = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


def _ignored(func: Any) -> bool:
    return func.__name__.partition(".")[0] in ("detach", "lift_fresh") or func.namespace == "prim"


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex()) else x


class _Caching(TorchDispatchMode):
    """The first run: results that the policy wants are kept."""

    def __init__(self, policy: Callable[..., Any], storage: dict[Any, list[Any]]) -> None:
        super().__init__()
        self.policy, self.storage = policy, storage

    def choice(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> CheckpointPolicy:
        """What the policy says of a call. A compiler asks too."""
        context = SelectiveCheckpointContext(is_recompute=False, op_output=out)
        found = self.policy(context, func, *args, **kwargs)
        if isinstance(found, bool):
            found = CheckpointPolicy.MUST_SAVE if found else CheckpointPolicy.PREFER_RECOMPUTE
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _ignored(func):
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        policy = self.choice(func, args, kwargs, out)
        kept: Any = _RECOMPUTE
        if policy in _SAVES or policy in _OFFLOADS:
            offload = policy in _OFFLOADS
            kept = tree_map(lambda x: _Kept(_detached(x), offload), out)
        self.storage[func].append(kept)
        return out


class _Cached(TorchDispatchMode):
    """The recomputation: kept results are handed out in the order in which they were made."""

    def __init__(self, storage: dict[Any, list[Any]], allow_mutation: bool) -> None:
        super().__init__()
        self.storage, self.allow_mutation = storage, allow_mutation
        self.position: dict[Any, int] = defaultdict(int)

    def __enter__(self) -> Any:
        self.position.clear()
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _ignored(func):
            return func(*args, **kwargs)
        kept = self.storage.get(func)
        at = self.position[func]
        if kept is None or at >= len(kept):
            raise RuntimeError(
                f"{func} encountered during backward but not found in storage. This can happen if "
                "the operations in the checkpointed region are nondeterministic or depend on "
                "global state that changed between forward and backward."
            )
        self.position[func] = at + 1
        if kept[at] is _RECOMPUTE:
            return func(*args, **kwargs)
        if kept[at] is _TAKEN:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any "
                "region computed under selective activation checkpoint."
            )
        found = kept[at]
        if not any(x.offload for x in tree_leaves(found) if isinstance(x, _Kept)):
            kept[at] = _TAKEN  # handed out once, so that it need not be held
        return tree_map(lambda x: x.get(self.allow_mutation) if isinstance(x, _Kept) else x, found)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The two contexts of a ``context_fn`` that keeps the results of chosen operators.

    Args:
        policy_fn_or_list: ``policy(ctx, op, *args, **kwargs) -> CheckpointPolicy``, or the list of
            operators (``torch.ops...overload``) to keep.
        allow_cache_entry_mutation: do not complain when a kept result was changed in place.
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not hasattr(op, "_schema"):
                extra = (
                    "Please update the OpOverloadPacket to a specific OpOverload.For example, if "
                    f"you have `torch.ops.{op}`, change it to `torch.ops.{op}.default`."
                    if hasattr(op, "overloads")
                    else ""
                )
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type "
                    f"{type(op)}. {extra}"
                )
        chosen = set(policy_fn_or_list)

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in chosen else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage: dict[Any, list[Any]] = defaultdict(list)
    return _Caching(policy, storage), _Cached(storage, allow_cache_entry_mutation)


_ = torch
