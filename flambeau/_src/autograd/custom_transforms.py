"""`autograd.Function` under transforms: its own vmap and jvp, or a vmap rule
made from its parts."""

from __future__ import annotations

from typing import Any

from flambeau._src.autograd import custom
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import Beneath, Dual, Level, batch, dual, info, innermost
from flambeau._src.interp.vmap_api import taken_apart, user_rule
from flambeau._src.ops.call import aten
from flambeau._src.util.pytree import tree_flatten, tree_unflatten

_NOTES = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


def call_custom(cls: Any, args: tuple[Any, ...], has_setup: bool) -> Any:
    """Apply a Function at the innermost level that its arguments belong to."""
    level = innermost(args)
    if level is None:
        return custom.apply(cls, args, has_setup)
    if level.kind == "vmap":
        return _at_vmap(cls, level, args)
    return _at_jvp(cls, level, args, has_setup)


class Context:
    """A ctx for one call of a rule: `saved_tensors` are those that were just saved."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.saved: tuple[Any, ...] = ()
        self.saved_for_forward: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.plain: tuple[Any, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.plain = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return self.saved_for_forward or self.saved


# ---- jvp ----


def _at_jvp(cls: Any, level: Level, args: tuple[Any, ...], has_setup: bool) -> Any:
    def part(a: Any) -> tuple[Any, Any]:
        i = info(a)
        return (i.primal, i.tangent) if isinstance(i, Dual) and i.level is level else (a, None)

    parts = [part(a) for a in args]
    primals = tuple(p for p, _ in parts)
    ctx = Context(tuple(isinstance(p, Tensor) and p.requires_grad for p in primals))
    with Beneath(level):
        if has_setup:
            outputs = call_custom(cls, primals, True)
            cls.setup_context(ctx, primals, outputs)
        else:
            outputs = call_custom(cls, primals, False)
            cls.forward(ctx, *primals)  # once more, for what it leaves in ctx
        tangents = tuple(
            aten.zeros_like(p)
            if t is None and isinstance(p, Tensor) and ctx.materialize_grads
            else t
            for p, t in parts
        )
        found = cls.jvp(ctx, *tangents)
    single = not isinstance(outputs, tuple)
    outs = (outputs,) if single else outputs
    found = found if isinstance(found, tuple) else (found,)
    if len(found) != len(outs):
        raise RuntimeError(
            f"{cls.__name__}.jvp returned an incorrect number of tangents (expected {len(outs)}, "
            f"got {len(found)})"
        )
    made = tuple(
        o if t is None or not isinstance(o, Tensor) else dual(o, t, level)
        for o, t in zip(outs, found, strict=True)
    )
    return made[0] if single else made


# ---- vmap ----


def _at_vmap(cls: Any, level: Level, args: tuple[Any, ...]) -> Any:
    overridden = cls.vmap is not slot("default_function_vmap")()
    if cls.generate_vmap_rule and overridden:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and "
            "an overridden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            f"overridden vmap staticmethod to avoid ambiguity. {_NOTES}"
        )
    if not cls.generate_vmap_rule and not overridden:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please "
            f"override and implement the vmap staticmethod or set generate_vmap_rule=True. {_NOTES}"
        )
    if not cls.generate_vmap_rule:
        return user_rule(level, cls.vmap, args, {})
    taken = [taken_apart(a, level) for a in args]
    with Beneath(level):
        outputs, places = _generated(
            cls, level, tuple(v for v, _ in taken), tuple(d for _, d in taken)
        )
        outs, out_spec = tree_flatten(outputs)
    wrapped = [
        o if d is None or not isinstance(o, Tensor) else batch(o, d % o.dim(), level)
        for o, d in zip(outs, places, strict=True)
    ]
    return tree_unflatten(wrapped, out_spec)


def _generated(
    cls: Any, level: Level, values: tuple[Any, ...], dims: tuple[Any, ...]
) -> tuple[Any, list[Any]]:
    """The Function as one on whole batches: each of its parts runs under a
    vmap level of its own."""
    size, randomness = level.batch_size, level.randomness
    out_dims: list[Any] = []

    def wrap(vs: Any, ds: Any, lv: Level) -> tuple[Any, ...]:
        return tuple(
            v if d is None or v is None else batch(v, d, lv) for v, d in zip(vs, ds, strict=True)
        )

    def unwrap(outs: Any, lv: Level, ds: list[Any]) -> tuple[Any, ...]:
        taken = [taken_apart(o, lv) for o in outs]
        ds[:] = [d for _, d in taken]
        return tuple(v for v, _ in taken)

    def forward(*inner: Any) -> Any:
        with Level("vmap", size, randomness) as lv:
            outs = cls.forward(*wrap(inner, dims, lv))
            single = not isinstance(outs, tuple)
            result = unwrap((outs,) if single else outs, lv, out_dims)
        return result[0] if single else result

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        single = not isinstance(output, tuple)
        with Level("vmap", size, randomness) as lv:
            ctx.inner = Context(ctx.needs_input_grad)
            outs = wrap((output,) if single else output, out_dims, lv)
            cls.setup_context(ctx.inner, wrap(inputs, dims, lv), outs[0] if single else outs)
            ctx.saved_dims, ctx.forward_dims = [], []
            saved = unwrap(ctx.inner.saved, lv, ctx.saved_dims)
            forward_saved = unwrap(ctx.inner.saved_for_forward, lv, ctx.forward_dims)
            marked = unwrap(ctx.inner.plain, lv, [])
        ctx.inner.saved = ctx.inner.saved_for_forward = ctx.inner.plain = ()
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*forward_saved)
        ctx.mark_non_differentiable(
            *[
                o
                for o in ((output,) if single else output)
                if any(
                    isinstance(o, Tensor) and o.untyped_storage() is m.untyped_storage()
                    for m in marked
                )
            ]
        )
        ctx.set_materialize_grads(ctx.inner.materialize_grads)
        ctx.places = list(out_dims)

    def backward(ctx: Any, *grads: Any) -> Any:
        found_dims: list[Any] = []
        with Level("vmap", size, randomness) as lv:
            ctx.inner.saved = wrap(ctx.saved_tensors, ctx.saved_dims, lv)
            found = cls.backward(ctx.inner, *wrap(grads, ctx.places, lv))
            found = unwrap(found if isinstance(found, tuple) else (found,), lv, found_dims)
        ctx.inner.saved = ()
        return tuple(
            _placed(g, d, want, size) for g, d, want in zip(found, found_dims, dims, strict=False)
        )

    def jvp(ctx: Any, *tangents: Any) -> Any:
        found_dims: list[Any] = []
        with Level("vmap", size, randomness) as lv:
            saved = ctx.saved_for_forward or ()
            ctx.inner.saved_for_forward = wrap(saved, ctx.forward_dims, lv)
            found = cls.jvp(ctx.inner, *wrap(tangents, dims, lv))
            found = unwrap(found if isinstance(found, tuple) else (found,), lv, found_dims)
        ctx.inner.saved_for_forward = ()
        placed = tuple(
            _placed(t, d, want, size)
            for t, d, want in zip(found, found_dims, ctx.places, strict=True)
        )
        return placed[0] if len(placed) == 1 else placed

    whole: Any = slot("make_function")(
        f"Vmapped{cls.__name__}",
        {"forward": forward, "setup_context": setup_context, "backward": backward, "jvp": jvp},
    )
    outputs = call_custom(whole, values, True)
    return outputs, list(out_dims)


def _placed(g: Any, dim: Any, want: Any, size: int) -> Any:
    """A gradient of a whole batch: its batch where the argument has it,
    summed where it has none."""
    if g is None:
        return None
    if want is None:
        return g if dim is None else aten.sum(g, (dim,))
    if dim is None:
        grown = aten.unsqueeze(g, want)
        shape = list(grown.shape)
        shape[want] = size
        return aten.expand(grown, shape)
    return g if dim == want else aten.movedim(g, dim, want)
