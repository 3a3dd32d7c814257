"""Functionalisation: programs that write into tensors, as programs that only make new ones.

A functional tensor stands for a value that may be replaced. It is an ordinary tensor over a fake
storage cell, so aliases of it share that cell (and its version), and it carries a `Functional`:
the current value, and how it is seen through the value of the whole cell (its base). A write
computes a new value, puts it back into the base through the inverse of each view, and aliases are
made again from the base when they are next needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau._src import _native
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.dispatch_mode import by_classes, classes_among
from flambeau._src.ops.call import ALL, LAYERS, aten, check_cast, check_writable, dispatch
from flambeau._src.ops.op import Op, packet
from flambeau._src.ops.random import memory_order
from flambeau._src.util import pytree

__all__ = [
    "Functional",
    "functional_mode",
    "functionalize",
    "is_functional",
    "sync",
    "unwrap",
    "wrap",
]

_FUNCTION = state.FUNCTION | state.FUNCTION_MODE | state.PROFILE
# What stands around this layer in a thread, but inside it where transforms are nested.
_AROUND = state.FUNCTORCH | state.RECORD | state.AUTOCAST


class Base:
    """One storage cell: the value of all of it, and how often that was replaced."""

    __slots__ = ("value", "generation")

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.generation = 0


class Step:
    """One view on the way from a base: an operator, its arguments, which of several results."""

    __slots__ = ("op", "rest", "index")

    def __init__(self, op: Op, rest: tuple[Any, ...], index: int | None) -> None:
        self.op, self.rest, self.index = op, rest, index

    def forward(self, value: Tensor, copies: bool) -> Tensor:
        """The view of a value."""
        out = dispatch(_copying(self.op) if copies else self.op, (value, *self.rest))
        return out if self.index is None else out[self.index]

    def reverse(self, whole: Tensor, part: Tensor, copies: bool) -> Tensor:
        """`whole` with what this view shows replaced by `part`."""
        return _INVERSE[self.op.name](whole, part, self, copies)


class Functional:
    """What a functional tensor stands for."""

    __slots__ = ("base", "steps", "value", "generation", "original", "written")

    def __init__(self, base: Base, steps: tuple[Step, ...], value: Tensor) -> None:
        self.base, self.steps, self.value = base, steps, value
        self.generation = base.generation
        self.original = value
        self.written = False


def _copying(op: Op) -> Op:
    """`select` → `select_copy`."""
    found = packet(op.name + "_copy").overload(op.overload or "default")
    return op if found is None else found


def is_functional(t: Any) -> bool:
    """Whether t is a functional tensor."""
    return isinstance(t, Tensor) and bool(t._bits & state.FUNCTIONALIZE)


def info(t: Tensor) -> Functional:
    """What a functional tensor stands for."""
    found: Functional = t.__dict__["_functional"]
    return found


def wrap(value: Tensor) -> Tensor:
    """A functional tensor for a value that has no other."""
    if is_functional(value):
        return value
    cell = _native.UntypedStorage.fake(value.untyped_storage().nbytes(), value.device)
    made = _native.wrap(
        Tensor, cell, value.dtype, value.shape, value.stride(), value.storage_offset()
    )
    return _become(made, Functional(Base(value), (), value), value)


def _become(made: Tensor, what: Functional, value: Tensor) -> Tensor:
    made.__dict__["_functional"] = what
    made._bits = state.FUNCTIONALIZE
    made._is_wrapped_number = value._is_wrapped_number
    if value._inference:
        made._inference = True
    return made


def sync(t: Tensor) -> Tensor:
    """The current value of a functional tensor, made again from the base when that has changed."""
    f = info(t)
    if f.generation != f.base.generation:
        value = f.base.value
        for step in f.steps:
            value = step.forward(value, _copies())
        f.value, f.generation = value, f.base.generation
    return f.value


def unwrap(t: Any) -> Any:
    """The value of a functional tensor; anything else as it is."""
    return sync(t) if is_functional(t) else t


def _copies() -> bool:
    """Whether views become copies too."""
    stack = state.thread.functionalize
    return bool(stack) and stack[-1]


def write(t: Tensor, new: Tensor) -> None:
    """t's value becomes `new`, and so does that part of its base."""
    f = info(t)
    f.value, f.written = new, True
    base = f.base
    copies = _copies()
    values = [base.value]
    for step in f.steps[:-1]:
        values.append(step.forward(values[-1], copies))
    part = new
    for step, whole in zip(reversed(f.steps), reversed(values), strict=False):
        part = step.reverse(whole, part, copies)
    base.value = part
    base.generation += 1
    sync(t)


# ---- the layer ----


@contextmanager
def _inside() -> Iterator[None]:
    """The operators run on values meet what stood around the functional tensors, not this layer."""
    before = state.get_suspended()
    state.set_suspended((before & ~_AROUND) | state.FUNCTIONALIZE | state.COMPOSITE | _FUNCTION)
    try:
        yield
    finally:
        state.set_suspended(before)


def functionalize_layer(op: Op, args: tuple[Any, ...]) -> Any:
    """One operator on functional tensors, or made while functionalisation is on."""
    if types := classes_among(args):
        return by_classes(op, args, types)
    with _inside():
        if op.schema.is_view and is_functional(args[0]):
            return _view(op, args)
        if op.variant == "inplace" or op.variant == "out" or op.schema.mutates:
            targets = [t for i in op.schema.mutates for t in _flat((args[i],))]
            if not any(map(is_functional, targets)):
                return _unwritten(op, args)
            if not all(map(is_functional, targets)):
                raise RuntimeError(_MIXED)
            check_writable(targets)
            if op.variant == "inplace":
                return _inplace(op, args)
            if op.variant == "out":
                return _out(op, args)
            return _mutating(op, args, op.schema.mutates)
        hidden = _HIDDEN.get(op.key)
        if hidden and args[hidden[0]] and all(is_functional(args[i]) for i in hidden[1]):
            return _mutating(op, args, hidden[1], told=False)
        return _wrapped(dispatch(op, _values(args)))


_MIXED = (
    "mutating a non-functional tensor with a functional tensor is not allowed. Please ensure that "
    "all of your inputs are wrapped inside of a functionalize() call."
)


def _unwritten(op: Op, args: tuple[Any, ...]) -> Any:
    if any(is_functional(t) for t in _flat(args)):
        raise RuntimeError(_MIXED)
    return dispatch(op, args)


def _flat(values: Any) -> Iterator[Tensor]:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _flat(v)


def _values(args: Sequence[Any]) -> tuple[Any, ...]:
    def one(v: Any) -> Any:
        if isinstance(v, Tensor):
            return unwrap(v)
        if isinstance(v, list):
            return [one(x) for x in v]
        return v

    return tuple(one(v) for v in args)


def _wrapped(out: Any) -> Any:
    if isinstance(out, Tensor):
        return wrap(out)
    if isinstance(out, (tuple, list)):
        return type(out)(_wrapped(v) for v in out)
    return out


def _view(op: Op, args: tuple[Any, ...]) -> Any:
    """A view: of the value that the argument has, synced or not, as torch does it."""
    source, rest = args[0], args[1:]
    f = info(source)
    copies = _copies()
    values = dispatch(_copying(op) if copies else op, (f.value, *rest))
    with state.Suspended(ALL):
        shown = op.decl.run(source, *rest)  # type: ignore[attr-defined]
    if isinstance(shown, Tensor):
        return _viewing(shown, f, Step(op, rest, None), values, source)
    return tuple(
        _viewing(s, f, Step(op, rest, i), v, source)
        for i, (s, v) in enumerate(zip(shown, values, strict=True))
    )


def _viewing(shown: Tensor, f: Functional, step: Step, value: Tensor, source: Tensor) -> Tensor:
    if shown is source:  # the very same tensor, as some views give it back
        shown = _native.alias(Tensor, source)
    what = Functional(f.base, (*f.steps, step), value)
    what.generation = 0  # of a base that was written: made again when it is asked for
    return _become(shown, what, value)


def _fitting(new: Tensor, t: Tensor) -> Tensor:
    """A written value, with the dtype of what it is written to."""
    if new.shape != t.shape:
        raise RuntimeError(
            f"output with shape {list(t.shape)} doesn't match the broadcast shape {list(new.shape)}"
        )
    if new.dtype is not t.dtype:
        check_cast(new.dtype, t.dtype)
        return aten._to_copy(new, dtype=t.dtype)
    return new


def _inplace(op: Op, args: tuple[Any, ...]) -> Any:
    target = args[0]
    base = op.base
    if base.decl.kind == "view":
        return _reshaped(op, args)
    new = dispatch(base, _values(args))
    new = new[0] if isinstance(new, tuple) else new
    write(target, _fitting(new, target) if base.decl.kind != "copy" else new)
    target._bump_version()
    return target


def _reshaped(op: Op, args: tuple[Any, ...]) -> Any:
    """An in-place view: the tensor itself is seen in another way from now on."""
    target, rest = args[0], args[1:]
    f = info(target)
    step = Step(op.base, rest, None)
    f.value = step.forward(f.value, _copies())
    f.steps = (*f.steps, step)
    with state.Suspended(ALL):
        op.decl.run_inplace(*args)  # type: ignore[attr-defined]
    target._bump_version()
    return target


def _out(op: Op, args: tuple[Any, ...]) -> Any:
    n = len(op.decl.out_args)
    outs = args[-n:]
    results = dispatch(op.base, _values(args[:-n]))
    for o, r in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
        check_cast(r.dtype, o.dtype)
        if r.shape != o.shape:
            _resized(o, r)
        write(o, r if r.dtype is o.dtype else aten._to_copy(r, dtype=o.dtype))
        o._bump_version()
    return outs[0] if n == 1 else tuple(outs)


def _resized(o: Tensor, r: Tensor) -> None:
    """An `out=` tensor takes the result's shape (it is no view: those are not resized)."""
    cell = _native.UntypedStorage.fake(r.untyped_storage().nbytes(), o.device)
    o._set(cell, 0, tuple(r.shape), r.stride(), o.dtype)
    f = info(o)
    f.base, f.steps = Base(r), ()
    f.generation = 0


# Operators that write, with a functional form under another name: what it returns is written.
_FUNCTIONAL_FORMS = {
    "uniform_": "uniform", "normal_": "normal_functional", "bernoulli_.float": "bernoulli.p",
    "bernoulli_.Tensor": "bernoulli.Tensor", "exponential_": "exponential", "cauchy_": "cauchy",
    "geometric_": "geometric", "log_normal_": "log_normal", "random_": "random",
    "random_.from": "random.from", "random_.to": "random.to",
    "native_batch_norm": "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit": "_native_batch_norm_legit_functional",
    "_batch_norm_with_update": "_batch_norm_with_update_functional",
}  # fmt: skip


# Operators that write without saying so in their schema: the flag they do it for, and what.
_HIDDEN = {"native_batch_norm": (5, (3, 4))}


def functional_form(op: Op) -> Op | None:
    """The overload that gives what `op` would write as further results, or None."""
    name = _FUNCTIONAL_FORMS.get(op.key)
    if name is None:
        return None
    name, _, overload = name.partition(".")
    p = packet(name)
    found = p.overload(overload or "default") if p.ops else None
    if found is None or len(found.schema.args) != len(op.schema.args):
        return None
    return found


def _drawn(form: Op, args: tuple[Any, ...]) -> Any:
    """Random numbers in the order of the tensor's memory, as writing them in place draws them."""
    t = args[0]
    if not isinstance(t, Tensor) or t._contiguous():
        return dispatch(form, args)
    order = memory_order(t)
    straight = aten.permute(t, order)
    if not straight._contiguous():
        return dispatch(form, args)
    drawn = dispatch(form, (straight, *args[1:]))
    back = [order.index(i) for i in range(len(order))]
    return aten.permute(drawn, back)


def _mutating(op: Op, args: tuple[Any, ...], positions: tuple[int, ...], told: bool = True) -> Any:
    """An operator whose functional schema writes: through its functional form, or on copies.

    `told`: its schema says so, and what is written has a new version then.
    """
    form = functional_form(op)
    if op.name in ("set_", "resize_", "resize_as_"):
        return _repointed(op, args)
    if form is not None:
        results = _drawn(form, _values(args)) if op.decl.random else dispatch(form, _values(args))
        results = results if isinstance(results, tuple) else (results,)
        news = results[len(results) - len(positions) :]
        results = results[: len(results) - len(positions)]
    else:
        values = list(_values(args))
        for i in positions:
            v = values[i]
            if v is not None:
                values[i] = [aten.clone(x) for x in v] if isinstance(v, list) else aten.clone(v)
        out = dispatch(op, tuple(values))
        news = tuple(values[i] for i in positions)
        results = out if isinstance(out, tuple) else (out,)
    for i, new in zip(positions, news, strict=True):
        if new is None:
            continue
        targets = args[i] if isinstance(args[i], (list, tuple)) else [args[i]]
        for t, n in zip(targets, new if isinstance(new, list) else [new], strict=True):
            write(t, n)
            if told:
                t._bump_version()
    returns = op.schema.returns
    given = iter(results)
    outs = []
    for r in returns:
        if r.mutates:
            outs.append(
                args[positions[[op.schema.args[i].alias for i in positions].index(r.alias)]]
            )
            if form is None:
                next(given, None)
        else:
            outs.append(_wrapped(next(given)))
    return outs[0] if len(outs) == 1 else tuple(outs) if outs else None


def _repointed(op: Op, args: tuple[Any, ...]) -> Any:
    """`set_` to another functional tensor; `resize_` to as many elements or fewer."""
    target = args[0]
    if op.name == "set_" and len(args) > 1 and is_functional(args[1]):
        source = args[1]
        f, g = info(target), info(source)
        f.base, f.steps, f.value, f.generation, f.written = (
            g.base,
            g.steps,
            g.value,
            g.generation,
            True,
        )
        target._set(
            source.untyped_storage(),
            source.storage_offset(),
            tuple(source.shape),
            source.stride(),
            source.dtype,
        )
        return target
    if op.name == "resize_" and not target.numel():
        fresh = wrap(aten.empty(args[1], dtype=target.dtype, device=target.device))
        f, g = info(target), info(fresh)
        f.base, f.steps, f.value, f.generation, f.written = (
            g.base,
            g.steps,
            g.value,
            g.generation,
            True,
        )
        target._set(fresh.untyped_storage(), 0, tuple(fresh.shape), fresh.stride(), fresh.dtype)
        return target
    raise RuntimeError(f"{op} changes a storage cell: it has no functional form")


LAYERS[state.FUNCTIONALIZE] = functionalize_layer


# ---- inverses of views: the whole with a part replaced ----


def _named(name: str, copies: bool) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(aten, name + "_copy" if copies else name)
    return found


def _part(scatter: str) -> Callable[..., Tensor]:
    def reverse(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
        return getattr(aten, scatter)(whole, part, *step.rest)

    return reverse


def _itself(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    return part


def _as_whole(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    if step.op.overload == "dtype":
        return aten.view(part, whole.dtype)
    if not copies and _native.view_strides(part, tuple(whole.shape)) is None:
        return aten.reshape(part, whole.shape)
    return _named("view", copies)(part, list(whole.shape))


def _unexpand(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    extra = part.dim() - whole.dim()
    dims = [
        *range(extra),
        *(i + extra for i, n in enumerate(whole.shape) if n == 1 and part.shape[i + extra] != 1),
    ]
    if dims:
        part = aten.sum(part, dims, True)
    return _named("view", copies)(part, list(whole.shape)) if extra else part


def _unpermute(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    dims = [d % part.dim() for d in step.rest[0]]
    inverse = [0] * len(dims)
    for i, d in enumerate(dims):
        inverse[d] = i
    return _named("permute", copies)(part, inverse)


def _same_again(name: str) -> Callable[..., Tensor]:
    def reverse(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
        return _named(name, copies)(part, *step.rest)

    return reverse


def _unsqueezed(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    n = whole.dim()
    gone = step.rest[0] if step.rest else range(n)
    gone = sorted(d % n for d in ((gone,) if isinstance(gone, int) else gone)) if n else []
    for d in gone:
        if whole.shape[d] == 1:
            part = _named("unsqueeze", copies)(part, d)
    return part


def _squeezed(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    return _named("squeeze", copies)(part, step.rest[0])


def _split(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    size, dim = step.rest[0], step.rest[1] % whole.dim()
    at = step.index or 0
    start = sum(size[:at]) if isinstance(size, (tuple, list)) else size * at
    return aten.slice_scatter(whole, part, dim, start, start + part.shape[dim], 1)


def _unbound(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    return aten.select_scatter(whole, part, step.rest[0], step.index)


def _unfolded(whole: Tensor, part: Tensor, step: Step, copies: bool) -> Tensor:
    dim, size, every = step.rest
    return aten.unfold_backward(part, whole.shape, dim, size, every)


_INVERSE: dict[str, Callable[..., Tensor]] = {
    "alias": _itself, "detach": _itself, "lift_fresh": _itself, "view": _as_whole,
    "_reshape_alias": _as_whole,
    "as_strided": _part("as_strided_scatter"), "diagonal": _part("diagonal_scatter"),
    "select": _part("select_scatter"), "slice": _part("slice_scatter"), "expand": _unexpand,
    "permute": _unpermute, "transpose": _same_again("transpose"), "t": _same_again("t"),
    "squeeze": _unsqueezed, "unsqueeze": _squeezed, "split": _split, "split_with_sizes": _split,
    "unbind": _unbound, "unfold": _unfolded,
    "view_as_real": lambda whole, part, step, copies: _named("view_as_complex", copies)(part),
    "view_as_complex": lambda whole, part, step, copies: _named("view_as_real", copies)(part),
    "_conj": lambda whole, part, step, copies: aten._conj(part),
}  # fmt: skip


# ---- the transform ----


@contextmanager
def functional_mode(copies: bool = False) -> Iterator[None]:
    """What operators make inside is functional; with `copies`, views become copies."""
    stack = state.thread.functionalize
    outer = bool(state.get_active() & state.FUNCTIONALIZE)
    state.thread.functionalize = [*stack, copies]
    state.activate(state.FUNCTIONALIZE, True)
    try:
        yield
    finally:
        state.activate(state.FUNCTIONALIZE, outer)
        state.thread.functionalize = stack


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func` without writes: it runs the same computation with operators that make new tensors.

    Writes into inputs are done once, at the end. `remove` is "mutations", or
    "mutations_and_views": views become copies too. RuntimeError for another value.
    """
    if remove == "mutations":
        copies = False
    elif remove == "mutations_and_views":
        copies = True
    else:
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. "
            "Valid options are:\n     remove='mutations': all inplace and out= operators will be "
            "removed from the program, and replaced with their out-of-place equivalents.\n     "
            "remove='mutations_and_views': In addition to the above, all aliasing operators "
            "{view} will be replaced with their non-aliasing counterparts, {view}_copy.\n"
        )

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if any(is_functional(v) for v in leaves):  # whoever made them functional takes the results
            with functional_mode(copies):
                return func(*args, **kwargs)
        given = [wrap(v) if isinstance(v, Tensor) else v for v in leaves]
        with functional_mode(copies):
            inner_args, inner_kwargs = pytree.tree_unflatten(given, spec)
            outs = func(*inner_args, **inner_kwargs)
            if isinstance(outs, (Tensor, list, tuple, dict)):
                with _inside():
                    flat, out_spec = pytree.tree_flatten(outs)
                    outs = pytree.tree_unflatten([unwrap(v) for v in flat], out_spec)
            with _inside():
                for before, after in zip(leaves, given, strict=True):
                    if after is not before:
                        copy_back(before, after)
        return outs

    wrapped.__name__ = getattr(func, "__name__", "wrapped")
    wrapped.__doc__ = func.__doc__
    wrapped.__wrapped__ = func  # type: ignore[attr-defined]
    return wrapped


def copy_back(original: Any, t: Any) -> None:
    """Do to an input what was done to its functional form."""
    if not isinstance(original, Tensor) or not is_functional(t):
        return
    value = sync(t)
    if value is original or not was_written(t):
        return
    if value.shape != original.shape:
        aten.resize_(original, value.shape)
    aten.copy_(original, value)


def was_written(t: Tensor) -> bool:
    """Whether a functional tensor, or the cell it is part of, was written since it was made."""
    f = info(t)
    return f.written or f.base.generation > 0


def inside() -> Any:
    """A context for operators on values, from outside the layer."""
    return _inside()
