"""vmap: an operator on batched tensors is an operator on the whole values, with the batch first.

Most rules are derived from the kind of the operator: pointwise ones align dimensions, reductions
and views shift the dimensions that they name. `batching.py` has the table for the rest; what is
not there runs once for each element of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.batched_nodes import record, shows
from flambeau._src.interp.levels import RULES, Batched, Beneath, Level, batch, info, plain
from flambeau._src.interp.record import seen_below
from flambeau._src.interp.vmap_api import user_rule
from flambeau._src.ops.call import aten, dispatch
from flambeau._src.ops.kinds import wrap_dim
from flambeau._src.ops.op import PACKETS, Op, resolve_lazy
from flambeau._src.util.log import warn_once

BatchRule = Callable[["Batch", Op, tuple[Any, ...]], Any]
TABLE: dict[str, BatchRule] = {}  # operator's name → rule; filled by batching.py


class Batch:
    """One operator call under one vmap level: how to take arguments apart and results together."""

    __slots__ = ("level", "size")

    def __init__(self, level: Level) -> None:
        self.level = level
        self.size = level.batch_size

    def has(self, t: Any) -> bool:
        """Whether t is batched at this level."""
        i = info(t)
        return isinstance(i, Batched) and i.level is self.level

    def front(self, t: Any) -> Any:
        """The whole value with the batch as dimension 0; what is not batched as it is."""
        i = info(t)
        if not isinstance(i, Batched) or i.level is not self.level:
            return t
        return i.value if i.dim == 0 else aten.movedim(i.value, i.dim, 0)

    def full(self, t: Any) -> Any:
        """As `front`; a tensor that is not batched is repeated (without copying)."""
        if not isinstance(t, Tensor) or self.has(t):
            return self.front(t)
        return aten.expand(t, (self.size, *t.shape))

    def padded(self, t: Any, ndim: int) -> Any:
        """As `front`, with dimensions of extent 1 after the batch up to ndim logical ones."""
        v = self.front(t)
        if self.has(t) and t.dim() < ndim:
            v = (
                aten.view(v, (self.size, *[1] * ndim))
                if not t.dim()
                else aten.reshape(v, (self.size, *[1] * (ndim - t.dim()), *t.shape))
            )
        return v

    def wrap(self, value: Any, dim: int = 0) -> Any:
        """Results, batched at dim; what is no tensor stays."""
        if isinstance(value, Tensor):
            return batch(value, dim, self.level)
        if isinstance(value, (tuple, list)):
            return tuple([self.wrap(v, dim) for v in value])
        return value


def vmap_rule(level: Level, op: Op, args: tuple[Any, ...]) -> Any:
    """Run op at this level: the level is off while its rule runs."""
    b = Batch(level)
    user = op.base.batch_rules.get("vmap")
    if user is not None:
        schema = op.base.schema
        n = len(schema.positional)
        keywords = {a.name: v for a, v in zip(schema.args[n:], args[n:], strict=True)}
        return user_rule(level, user, args[:n], keywords)
    if level.graded and shows(level, op, args):
        return record(level, op, args, lambda: _apply(b, op, args))
    return _apply(b, op, args)


def _apply(b: Batch, op: Op, args: tuple[Any, ...]) -> Any:
    """The operator's rule, with the level off."""
    with Beneath(b.level):
        rule = TABLE.get(op.base.name)
        if op.variant == "inplace" and op.decl.kind == "view":
            return _reshaped(b, op, args, rule)
        if rule is None:
            rule = KINDS.get(op.decl.kind, fallback)
        if op.variant == "inplace" and op.decl.kind == "view" and rule is not None:
            return regeometry(b, op, args, rule)
        if op.variant == "out" or (op.variant == "inplace" and rule not in INPLACE):
            rule = fallback
        return rule(b, op, args)


def _reshaped(b: Batch, op: Op, args: tuple[Any, ...], rule: BatchRule | None) -> Tensor:
    """An in-place view: the batched tensor takes the place of the functional form's result."""
    if rule is None:
        raise RuntimeError(f"vmap: {op.namespace}::{op.key} has no batching rule")
    target, made = args[0], rule(b, op.base, args)
    target._take(made)
    target.__dict__["_transform"] = info(made)
    return target


# ---- derived rules ----

# What in-place forms are called in the refusal to write batched values into one tensor, where it is
# not their full name; None: they are run, and what they are given does not fit.
_WRITERS: dict[str, str | None] = {
    **dict.fromkeys(("add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor")),
    **dict.fromkeys(
        ("sub", "mul", "div", "copy", "clamp_min", "clamp_max", "masked_fill", "logical_and",
         "logical_or", "logical_xor"), "inplace arithmetic",
    ),
    **{n: f"{n}_" for n in ("index_add", "index_fill", "index_put", "fill")},
}  # fmt: skip


def regeometry(b: Batch, op: Op, args: tuple[Any, ...], rule: BatchRule) -> Any:
    """`squeeze_` and its like: the batched tensor takes over what the functional form makes."""
    t = args[0]
    made = rule(b, op.base, args)
    held, fresh = info(t), info(made)
    if not isinstance(held, Batched):
        raise RuntimeError(f"vmap: {op.name}(self) of a tensor that is not batched")
    held.value, held.dim = fresh.value, fresh.dim
    t._set(made.untyped_storage(), made.storage_offset(), tuple(made.shape), tuple(made.stride()))
    t._bump_version()
    return t


def refuse_inplace(b: Batch, op: Op, args: tuple[Any, ...]) -> None:
    """A tensor that is not batched cannot take batched values."""
    if op.variant != "inplace" or b.has(args[0]):
        return
    known = op.base.name in _WRITERS
    name = _WRITERS[op.base.name] if known else f"{op.namespace}::{op.name}"
    if name is None:
        return
    where = "in a vmap" if known else f"at level {b.level.number}"
    raise RuntimeError(
        f"vmap: {name}(self, *extra_args) is not possible because there exists a Tensor `other` in "
        "extra_args that has more elements than `self`. This happened due to `other` being vmapped "
        f"over but `self` not being vmapped over {where}. "
        f"Please try to use out-of-place operators instead of {name}. If said operator is being "
        "called inside the PyTorch framework, please file a bug report instead."
    )


def pointwise(b: Batch, op: Op, args: tuple[Any, ...]) -> Any:
    """Operands aligned from the right, the batch in front."""
    refuse_inplace(b, op, args)
    schema = op.base.schema
    tensors = [args[i] for i in schema.tensor_positions if isinstance(args[i], Tensor)]
    if len(tensors) == 1 == len(schema.tensor_positions) and tensors[0] is args[0]:
        i = info(args[0])  # one operand: the batch may stand where it stands
        result = dispatch(op, (i.value, *args[1:]))
        return args[0] if op.variant == "inplace" else b.wrap(result, i.dim)
    ndim = max(t.dim() for t in tensors)
    common = None
    if len(tensors) == 2 and (tensors[0].dim() == 0) != (tensors[1].dim() == 0):
        # How a 0-dim operand promotes is asked of one of its elements, as torch does it.
        scalar = tensors[0] if tensors[0].dim() == 0 else tensors[1]
        if b.has(scalar) and seen_below(scalar):
            aten.select(b.front(scalar), 0, 0)
    if any(t.dtype is not tensors[0].dtype for t in tensors):
        # With the batch in front a 0-dim operand is one with dimensions: promotion must not see it.
        common = op.decl.common_dtype(op.base, args) if hasattr(op.decl, "common_dtype") else None
    keep = getattr(op.decl, "keep", ())
    new = list(args)
    for i in schema.tensor_positions:
        if not isinstance(args[i], Tensor):
            continue
        v = b.padded(args[i], ndim)
        stays = schema.args[i].name in keep or (op.variant == "inplace" and i == 0)
        if (
            common is not None
            and v.dtype is not common
            and b.has(args[i])
            and not stays
            and dt.category(common) >= dt.category(v.dtype)
        ):
            v = aten._to_copy(v, dtype=common)
        new[i] = v
    result = dispatch(op, tuple(new))
    return args[0] if op.variant == "inplace" else b.wrap(result)


_BY_DIM = {"sum": "dim_IntList", "mean": "dim", "any": "dims", "all": "dims"}
_BY_VALUE = ("max", "min")  # their overload for one dimension gives the place too


def reduction(b: Batch, op: Op, args: tuple[Any, ...]) -> Any:
    """Dimensions shifted by one; all of them when none is named."""
    names = [a.name for a in op.schema.args]
    x = args[0]
    v, n = b.front(x), x.dim()
    if "dim" not in names:
        return _reduce_all(b, op, args, v, n)
    at = names.index("dim")
    keep = bool(args[names.index("keepdim")]) if "keepdim" in names else False
    given = args[at]
    if n == 0:
        v = aten.unsqueeze(v, -1)
    if given is None or (isinstance(given, (tuple, list)) and not given):
        if not op.schema.args[at].is_list:  # argmax and its like, over everything
            v, dim = aten.reshape(v, (b.size, -1)), 1
            result = dispatch(op, (v, *_replaced(args[1:], at - 1, dim)))
            return b.wrap(aten.reshape(result, (b.size, *[1] * n)) if keep else result)
        dims: Any = tuple(range(1, max(n, 1) + 1))
    elif isinstance(given, (tuple, list)):
        dims = tuple(wrap_dim(d, n) + 1 for d in given)
    else:
        dims = wrap_dim(given, n) + 1
    result = dispatch(op, (v, *_replaced(args[1:], at - 1, dims)))
    if n == 0 and keep:
        parts = result if isinstance(result, tuple) else (result,)
        squeezed = tuple(aten.squeeze(r, 1) for r in parts)
        result = squeezed if isinstance(result, tuple) else squeezed[0]
    return b.wrap(result)


def _replaced(args: tuple[Any, ...], i: int, value: Any) -> tuple[Any, ...]:
    return (*args[:i], value, *args[i + 1 :])


def _reduce_all(b: Batch, op: Op, args: tuple[Any, ...], v: Tensor, n: int) -> Any:
    name = op.name
    rest = {a.name: x for a, x in zip(op.schema.args[1:], args[1:], strict=True)}
    dims = tuple(range(1, n + 1))
    if name in _BY_VALUE:
        return b.wrap(getattr(aten, name)(aten.reshape(v, (b.size, -1)), 1)[0])
    overload = _BY_DIM.get(name, "dim_int")
    for other in resolve_lazy(PACKETS[(op.namespace, name)]):
        if other.overload == overload:
            listed = other.schema.args[1].is_list
            v = aten.unsqueeze(v, -1) if not n else v if listed else aten.reshape(v, (b.size, -1))
            full = {"dim": (dims or (1,)) if listed else 1, "keepdim": False, **rest}
            return b.wrap(dispatch(other, (v, *[full[a.name] for a in other.schema.args[1:]])))
    return fallback(b, op, args)


def like(b: Batch, op: Op, args: tuple[Any, ...]) -> Any:
    """zeros_like(x) of the whole value; x.new_zeros(size) with the batch before the size."""
    v = b.front(args[0])
    if op.name.startswith("new_") and op.name != "new_empty_strided":
        return b.wrap(dispatch(op, (v, (b.size, *args[1]), *args[2:])))
    if op.name.endswith("_like"):
        return b.wrap(dispatch(op, (v, *args[1:])))
    return fallback(b, op, args)


DYNAMIC = frozenset(
    "nonzero _unique2 unique_dim unique_consecutive _unique masked_select bincount "
    "nonzero_static".split()
)


def fallback(b: Batch, op: Op, args: tuple[Any, ...]) -> Any:
    """The operator once for each element of the batch."""
    if op.base.name == "masked_select":
        raise RuntimeError(
            "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot "
            "support this because for each batch this would return a differently shaped Tensor. "
            "Please file an issue at https://github.com/pytorch/pytorch/issues if you need this "
            "feature."
        )
    if op.base.name in DYNAMIC:
        raise RuntimeError(
            "vmap: We do not support batching operators that can output dynamic shape. Attempted "
            f"to vmap over {op.namespace}::{op.base.key}. Please file an issue at "
            "https://github.com/pytorch/pytorch/issues if you need this feature."
        )
    if b.size == 0:
        raise RuntimeError("The fallback path does not support vmap over dims of size 0.")
    warn_once(
        f"vmap fallback {op.base.key}",
        "There is a performance drop because we have not yet implemented the batching rule for "
        f"{op.namespace}::{op.base.key}. Please file us an issue on GitHub so that we can "
        "prioritize its implementation.",
    )
    return loop(b, op, args)


def loop(b: Batch, op: Op, args: tuple[Any, ...]) -> Any:
    """`fallback` without a word about it."""
    written = [i for i, a in enumerate(op.schema.args) if a.mutates and isinstance(args[i], Tensor)]
    if any(not b.has(args[i]) for i in written):
        refuse_inplace(b, op, args)
    whole = [_whole(b, v) for v in args]
    rows = [dispatch(op, tuple([_element(v, k) for v in whole])) for k in range(b.size)]
    if written:
        return args[written[0]] if len(written) == 1 else tuple(args[i] for i in written)
    if isinstance(rows[0], (tuple, list)):
        return tuple(
            [
                b.wrap(aten.stack(list(c))) if isinstance(c[0], Tensor) else c[0]
                for c in zip(*rows, strict=True)
            ]
        )
    return b.wrap(aten.stack(rows)) if isinstance(rows[0], Tensor) else rows[0]


class _Whole:
    """A batched argument in a loop over the batch."""

    __slots__ = ("value",)

    def __init__(self, value: Tensor) -> None:
        self.value = value


def _whole(b: Batch, v: Any) -> Any:
    if isinstance(v, (list, tuple)):
        return [_whole(b, x) for x in v]
    return _Whole(b.front(v)) if b.has(v) else v


def _element(v: Any, k: int) -> Any:
    if isinstance(v, _Whole):
        return aten.select(v.value, 0, k)
    if isinstance(v, list):
        return [_element(x, k) for x in v]
    return v


KINDS: dict[str, BatchRule] = {"pointwise": pointwise, "reduction": reduction, "like": like}
INPLACE: set[BatchRule] = {pointwise}


# ---- random numbers ----


def random_rule(level: Level, op: Op, args: tuple[Any, ...]) -> Any:
    """What `randomness` says: an error, one draw for all, or one for each."""
    b = Batch(level)
    if level.randomness == "error":
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the "
            "'same' or 'different' randomness flags on vmap or perform the randomness operation "
            "out of vmap"
        )
    with Beneath(level):
        if level.randomness == "different":
            return _draw_different(b, op, args)
        return _draw_same(b, op, args)


def _draw_different(b: Batch, op: Op, args: tuple[Any, ...]) -> Any:
    names = [a.name for a in op.schema.args]
    if not isinstance(args[0], Tensor):
        if "size" not in names:  # randperm
            return b.wrap(aten.stack([dispatch(op, args) for _ in range(b.size)]))
        at = names.index("size")
        return b.wrap(dispatch(op, _replaced(args, at, (b.size, *args[at]))))
    if op.schema.mutates:
        if not b.has(args[0]):
            raise RuntimeError(
                "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This "
                "will appear like same randomness. If this is necessary for your usage, please "
                "file an issue with functorch."
            )
        ndim = args[0].dim()
        dispatch(op, tuple([b.padded(v, ndim) if isinstance(v, Tensor) else v for v in args]))
        return args[0]
    if op.base.name == "multinomial":
        whole = [b.full(v) for v in args]
        if args[0].dim() == 1:
            return b.wrap(dispatch(op, tuple(whole)))
        rows = aten.reshape(whole[0], (-1, args[0].shape[-1]))
        drawn = dispatch(op, (rows, *whole[1:]))
        return b.wrap(aten.reshape(drawn, (b.size, args[0].shape[0], -1)))
    return b.wrap(dispatch(op, tuple([b.full(v) for v in args])))


def _draw_same(b: Batch, op: Op, args: tuple[Any, ...]) -> Any:
    if not any(b.has(v) for v in args):
        return dispatch(op, args)
    name = op.base.name
    if op.schema.mutates and not any(b.has(v) for v in args[1:]):
        drawn = dispatch(op, (aten.select(b.front(args[0]), 0, 0).clone(), *args[1:]))
        aten.copy_(b.front(args[0]), drawn)
        return args[0]
    if name.endswith("_like"):
        return dispatch(op, (aten.select(b.front(args[0]), 0, 0), *args[1:]))
    if name == "native_dropout":
        x = b.front(args[0])
        scaled, mask = dispatch(op, (aten.ones_like(aten.select(x, 0, 0)), *args[1:]))
        return b.wrap(aten.mul(x, scaled)), mask
    if name == "bernoulli" and op.base.overload == "p":
        return dispatch(op, (aten.select(b.front(args[0]), 0, 0), *args[1:]))
    raise RuntimeError(
        f"vmap: {op.namespace}::{op.base.key} of a batched tensor cannot draw the same numbers for "
        "all; use randomness='different'"
    )


RULES["vmap"] = vmap_rule
RULES["random"] = random_rule


# ---- what has no value of its own ----


def refuse_item(t: Tensor) -> None:
    """A number out of a batched tensor.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(
        "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
        "calling .item() on a Tensor, please try to rewrite what you're doing with other "
        "operations. If error is occurring somewhere inside PyTorch internals, please file a bug "
        "report."
    )


def transformed_bool(t: Tensor) -> bool:
    """A tensor of a transform in an if (slot 'transformed_bool').

    Raises:
        RuntimeError: it is batched.
    """
    value = plain(t)
    if info(value) is None:
        return bool(value)
    raise RuntimeError(
        "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
        "flow. We don't support that yet, please file an issue at "
        "https://github.com/pytorch/pytorch/issues ."
    )


def transformed_value(t: Tensor) -> Tensor:
    """The one value behind a dual tensor (slot 'transformed_value').

    Raises:
        RuntimeError: it is batched.
    """
    value = plain(t)
    if info(value) is not None:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
    return value


fill("transformed_value", transformed_value)
fill("transformed_bool", transformed_bool)
TABLE["_local_scalar_dense"] = lambda b, op, args: refuse_item(args[0])
