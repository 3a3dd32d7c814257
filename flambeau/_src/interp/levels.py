"""Function transforms: levels, and tensors that stand for more than one value.

A level is one active `vmap`, `jvp` or `grad`. Inside `vmap` a tensor may be *batched*: it has the
geometry of one element of the batch, and refers to the whole value. Inside `jvp` it may be *dual*:
it is the primal, and refers to its tangent. Both are aliases, so that reading shapes costs nothing;
operators on them come here (the bit FUNCTORCH), and the rule of the innermost level among their
arguments decides, with that level off the stack while it runs.

`grad` needs no such tensors: its inputs are fresh leaves of the one graph (see
autograd/transforms.py), and operators inside it run as fast as outside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.state import FUNCTORCH, thread
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import LAYERS, below, dispatch
from flambeau._src.ops.op import Op

_serials = itertools.count(1)
Rule = Callable[["Level", Op, tuple[Any, ...]], Any]


class Level:
    """One active transform. `kind`: 'vmap', 'jvp', 'dual' (forward_ad.dual_level) or 'grad'."""

    __slots__ = (
        "alive", "batch_size", "before", "graded", "kind", "number", "randomness", "serial"
    )  # fmt: skip

    def __init__(self, kind: str, batch_size: int = 0, randomness: str = "error") -> None:
        stack = thread.functorch
        self.kind = kind
        self.number = stack[-1].number + 1 if stack else 1
        self.batch_size = batch_size
        self.randomness = randomness
        self.graded = 0  # of a vmap: how many `grad` levels are inside
        self.alive = True
        # What is made from now on is this level's own, and may be changed in place.
        self.serial = next(_serials) if kind in ("grad", "jvp") else 0
        self.before = 0

    def __enter__(self) -> Level:
        thread.functorch.append(self)
        if self.serial:
            self.before = _native.set_level(self.serial)
        _refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        self.alive = False
        if self.serial:
            _native.set_level(self.before)
        thread.functorch.remove(self)
        _refresh()


def refuse_captured(op: Op, args: tuple[Any, ...]) -> None:
    """An operator that writes, inside of transforms (slot 'refuse_captured').

    Raises:
        RuntimeError: it would change what is not of the innermost level, a `grad` or `jvp`.
    """
    level = thread.functorch[-1]
    target = args[0]
    if not level.serial or not isinstance(target, Tensor) or target._born >= level.serial:
        return
    raise RuntimeError(
        "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call "
        f"in-place operation ({op.namespace}::{op.key}) that would mutate a captured Tensor. This "
        "is not supported; please rewrite the function being transformed to explicitly accept the "
        "mutated Tensor(s) as inputs."
    )


fill("refuse_captured", refuse_captured)


def _is_batched(t: Tensor) -> bool:
    """Whether t's innermost level is a vmap's."""
    i = info(t)
    return isinstance(i, Batched) and not i.level.graded


def check_data_read(t: Tensor) -> None:
    """`t.data` inside of transforms (slot 'check_data_read').

    Raises:
        RuntimeError: t is batched.
    """
    if _is_batched(t):
        raise RuntimeError("accessing `data` under vmap transform is not allowed")


def check_data_set(t: Tensor, value: Tensor) -> None:
    """`t.data = value` inside of transforms (slot 'check_data_set').

    Raises:
        RuntimeError: one of them is batched, or the innermost transform is `grad` or `jvp`.
    """
    if _is_batched(t) or _is_batched(value):
        raise RuntimeError("mutating directly with `.data` under vmap transform is not allowed.")
    if thread.functorch[-1].serial:
        raise RuntimeError(
            "mutating directly with `.data` inside functorch transform is not allowed."
        )


fill("check_data_read", check_data_read)
fill("check_data_set", check_data_set)


def _refresh() -> None:
    """Random operators must be seen inside vmap even when no argument is batched."""
    state.activate(FUNCTORCH, any(level.kind == "vmap" for level in thread.functorch))


def transforming() -> bool:
    """Whether a function transform (not just a dual level) is active."""
    return any(level.kind != "dual" for level in thread.functorch)


class Beneath:
    """`with Beneath(level):` the level, and those inside it, are off the stack."""

    __slots__ = ("after", "before")

    def __init__(self, level: Level) -> None:
        self.after = [other for other in thread.functorch if other.number < level.number]

    def __enter__(self) -> None:
        self.before = thread.functorch
        thread.functorch = self.after
        _refresh()

    def __exit__(self, *exc: object) -> None:
        thread.functorch = self.before
        _refresh()


@contextmanager
def resumed(levels: Sequence[Level]) -> Iterator[None]:
    """Within it these levels are the stack, though they may be over: for what runs again."""
    before, alive = thread.functorch, [level.alive for level in levels]
    thread.functorch = list(levels)
    for level in levels:
        level.alive = True
    _refresh()
    try:
        yield
    finally:
        for level, was in zip(levels, alive, strict=True):
            level.alive = was
        thread.functorch = before
        _refresh()


class Batched:
    """What a batched tensor stands for: value, whose dimension `dim` is the batch."""

    __slots__ = ("dim", "level", "value")

    def __init__(self, level: Level, value: Tensor, dim: int) -> None:
        self.level, self.value, self.dim = level, value, dim


class Dual:
    """What a dual tensor stands for: a primal, and its tangent at this level."""

    __slots__ = ("level", "primal", "tangent")

    def __init__(self, level: Level, primal: Tensor, tangent: Tensor) -> None:
        self.level, self.primal, self.tangent = level, primal, tangent


def info(t: Any) -> Any:
    """The Batched or Dual of a tensor, None for plain ones."""
    if isinstance(t, Tensor) and t._bits & FUNCTORCH:
        return t.__dict__["_transform"]
    return None


def batch(value: Tensor, dim: int, level: Level) -> Tensor:
    """value as a batched tensor."""
    size, stride = list(value.shape), list(value.stride())
    del size[dim], stride[dim]
    t = _native.alias(Tensor, value, size, stride, value.storage_offset())
    if level.graded and value.requires_grad:  # what the user's function is told
        t._set_history(value.grad_fn, value.output_nr, True)
    t._bits = FUNCTORCH
    t.__dict__["_transform"] = Batched(level, value, dim)
    return t


def dual(primal: Tensor, tangent: Tensor, level: Level) -> Tensor:
    """primal with a tangent; of no class of its own but that of tensors without bytes."""
    if type(primal) is not Tensor and primal.untyped_storage().is_fake:
        t = _native.alias(type(primal), primal)
        t.__dict__.update(primal.__dict__)
    else:
        t = _native.alias(Tensor, primal)
    if primal.requires_grad:
        t._set_history(primal.grad_fn, primal.output_nr, True)
    t._bits = FUNCTORCH
    t.__dict__["_transform"] = Dual(level, primal, tangent)
    return t


def twin(t: Tensor) -> Tensor:
    """Another tensor of the same bytes, class and meaning, without history; no layer sees this."""
    new = _native.alias(type(t), t)
    new._bits = t._bits
    if t.__dict__:
        new.__dict__.update(t.__dict__)
    for mode in thread.trace:
        found = mode.tracer.seen(t)
        if found is not None:
            mode.tracer.track(new, found.node, found.constant)
    return new


def innermost(args: tuple[Any, ...]) -> Level | None:
    """The innermost level among the arguments."""
    found: Level | None = None
    for v in args:
        if isinstance(v, (list, tuple)):
            level = innermost(tuple(v)) if v else None
        else:
            i = info(v)
            level = None if i is None else i.level
        if level is not None and (found is None or level.number > found.number):
            found = level
    return found


RULES: dict[str, Rule] = {}  # by kind of level; filled by vmap.py and dual.py


def transform_layer(op: Op, args: tuple[Any, ...]) -> Any:
    """Hand the call to the innermost level that it concerns."""
    if op.bits & state.COMPOSITE:
        return LAYERS[state.COMPOSITE](op, args)  # its body's calls come here again
    level = innermost(args)
    if op.decl.random:
        drawing = next((lv for lv in reversed(thread.functorch) if lv.kind == "vmap"), None)
        if drawing is not None and (level is None or drawing.number >= level.number):
            return RULES["random"](drawing, op, args)
    if level is None:
        return below(FUNCTORCH, op, args)
    return RULES["vmap" if level.kind == "vmap" else "jvp"](level, op, args)


LAYERS[FUNCTORCH] = transform_layer
fill("twin", twin)


def differentiating() -> bool:
    """Whether a `grad` level is active."""
    return any(level.kind == "grad" for level in thread.functorch)


def plain(t: Any) -> Any:
    """The innermost value of a dual tensor; batched ones stay."""
    i = info(t)
    while isinstance(i, Dual):
        t = i.primal
        i = info(t)
    return t


__all__ = ["Batched", "Beneath", "Dual", "Level", "batch", "dispatch", "dual", "info", "innermost"]
