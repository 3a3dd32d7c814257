"""The machinery of `autograd.Function`: forward without recording, then one node for it."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau._src import _native
from flambeau._src.autograd.anomaly import remember_traceback
from flambeau._src.autograd.hooks import call_user
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.record import pack, rebase
from flambeau._src.ops.call import aten


class _Custom:
    """The operator of a custom node: autograd's protocol, on the user's class."""

    decl = None

    def __repr__(self) -> str:
        return "autograd.Function"

    def backward(self, node: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients along the edges, one for each tensor that forward was given."""
        if node._materialize:
            grads = tuple(
                _zeros(o) if g is None and o is not None else g
                for g, o in zip(grads, node.output_geometry, strict=True)
            )
        results = call_user(user_backward(node), node, *grads)
        return along_edges(node, results)


CUSTOM = _Custom()


def _zeros(like: Tensor) -> Tensor:
    return aten.zeros(like.shape, dtype=like.dtype, device=like.device)


def user_backward(node: Any) -> Any:
    """The class's own backward (or vjp, its other name)."""
    cls = node._forward_cls
    backward, vjp = cls.backward, cls.vjp
    if vjp is not node._default_vjp:
        if backward is not node._default_backward:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
                "should only implement one of them."
            )
        return vjp
    return backward


def along_edges(node: Any, results: Any) -> tuple[Any, ...]:
    """What backward returned, checked: one for each argument, None where it was no tensor."""
    grads = results if isinstance(results, tuple) else (results,)
    places = node.is_variable_input
    expected = len(places)
    name = type(node).__name__
    if len(grads) > expected and all(g is None for g in grads[expected:]):
        grads = grads[:expected]
    if len(grads) != expected:
        raise RuntimeError(
            f"function {name} returned an incorrect number of gradients (expected {expected}, got "
            f"{len(grads)})"
        )
    kept = []
    for i, (g, is_tensor) in enumerate(zip(grads, places, strict=True)):
        if not is_tensor:
            if g is not None:
                raise RuntimeError(
                    f"function {name} returned a gradient different than None at position {i + 1}, "
                    "but the corresponding forward input was not a Variable"
                )
            continue
        if g is not None and not isinstance(g, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
        kept.append(g)
    edges = node.edges
    return tuple(
        g if g is None or edges[i][0] is None else fit(g, node.input_geometry[i], i, name)
        for i, g in enumerate(kept)
    )


def fit(g: Tensor, like: Tensor, index: int, name: str) -> Tensor:
    """g brought to the geometry of the input it belongs to.

    Raises:
        RuntimeError: it cannot be summed to that shape.
    """
    if g.shape != like.shape:
        extra = g.dim() - like.dim()
        fits = extra >= 0 and all(
            s in (1, n) for n, s in zip(g.shape[extra:], like.shape, strict=True)
        )
        if not fits:
            raise RuntimeError(
                f"Function {name} returned an invalid gradient at index {index} - got "
                f"{list(g.shape)} but expected shape compatible with {list(like.shape)}"
            )
        dims = [
            *range(extra),
            *(extra + i for i, s in enumerate(like.shape) if s == 1 != g.shape[extra + i]),
        ]
        g = aten.sum(g, dims, True)
        if extra:
            g = aten.reshape(g, like.shape)
    if g.device != like.device and like.dim():
        raise RuntimeError(
            f"Function {name} returned an invalid gradient at index {index} - expected device "
            f"{like.device} but got {g.device}"
        )
    if g.dtype is not like.dtype:
        if g.dtype.is_complex and not like.dtype.is_complex:
            raise RuntimeError(
                "Expected isFloatingType(grad.scalar_type()) || (input_is_complex == "
                "grad_is_complex) to be true, but got false.  (Could this error message be "
                "improved?  If so, please report an enhancement request to PyTorch.)"
            )
        g = aten._to_copy(g, dtype=like.dtype)
    return g


def apply(cls: Any, args: tuple[Any, ...], has_setup: bool) -> Any:
    """Run forward (and setup_context) without recording; record one node for the whole."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    recording = state.get_grad() and any(t.requires_grad for t in tensors)
    ctx = _native.node(cls._backward_cls, CUSTOM, tensors if recording else ())
    ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a.requires_grad for a in args])
    ctx.is_variable_input = tuple([isinstance(a, Tensor) for a in args])
    before, forward = state.set_grad(False), state.thread.forward_grad
    state.thread.forward_grad = False
    try:
        if has_setup:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
        else:
            output = cls.forward(ctx, *args)
    finally:
        state.set_grad(before)
        state.thread.forward_grad = forward
    single = not isinstance(output, tuple)
    outputs = finish(ctx, tensors, (output,) if single else output, recording, has_setup)
    return outputs[0] if single else outputs


def finish(
    ctx: Any, tensors: list[Any], outputs: tuple[Any, ...], recording: bool, has_setup: bool
) -> tuple[Any, ...]:
    """Give the outputs their history and keep what was saved."""
    saved = ctx.__dict__.pop("to_save", None) or ()
    inputs = {id(t) for t in tensors}
    dirty = {id(t): t for t in ctx.__dict__.pop("dirty_tensors", ())}
    plain = {id(t) for t in ctx.__dict__.pop("non_differentiable", ())}
    saved_ids = {id(t) for t in saved} if has_setup else ()
    ctx.num_outputs = len(outputs)
    made: list[Any] = []
    carrying = 0
    for i, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            made.append(out)
            continue
        is_input, is_dirty = id(out) in inputs, id(out) in dirty
        if is_dirty and not is_input:
            warnings.warn(
                "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that "
                "have been mutated should be passed to ctx.mark_dirty().",
                stacklevel=4,
            )
        differentiable = (
            recording
            and id(out) not in plain
            and (out.dtype.is_floating_point or out.dtype.is_complex)
        )
        if id(out) in saved_ids and is_input and not is_dirty:
            raise RuntimeError(
                "An input that has been returned as-is as output is being saved for backward. This "
                "is not supported if you override setup_context. You should return and save a view "
                "of the input instead, e.g. with x.view_as(x) or setup ctx inside the forward "
                "function itself."
            )
        if dirty.pop(id(out), None) is not None:
            out._bump_version()
        out = _output(ctx, out, i, is_input, is_dirty, differentiable, len(outputs))
        if not (is_input and is_dirty) and out._base is not None:
            out._nograd_view = out._multi_view = False
            out._custom_view = True
        carrying += differentiable
        made.append(out)
    if dirty:
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. "
            "The inputs that are modified inplace must all be outputs of the Function."
        )
    if carrying > 1:
        for out in made:
            if isinstance(out, Tensor) and out._base is not None:
                out._custom_view, out._multi_view = False, True
    if recording:
        ctx.input_geometry = tuple([_native.geometry(t) for t in tensors])
        ctx.output_geometry = tuple(
            [_native.geometry(o) if isinstance(o, Tensor) else None for o in made]
        )
        _save(ctx, saved)
        if state.thread.anomaly[0]:
            remember_traceback(ctx)
    return tuple(made)


def _output(
    ctx: Any, out: Tensor, nr: int, is_input: bool, is_dirty: bool, differentiable: bool, count: int
) -> Tensor:
    """One output with its history."""
    if not differentiable:
        if not out.requires_grad:
            return _view(out) if is_input and not is_dirty else out
        if is_input:
            return out.detach()
        if out._base is None:
            out._set_history(None, 0, False)
        return out
    if is_dirty:
        if out.is_leaf and out.requires_grad:
            raise RuntimeError(
                "a leaf Variable that requires grad has been used in an in-place operation."
            )
        if out._base is not None and count > 1:
            raise RuntimeError(
                "If your Function modifies inplace an input that is a view of another Tensor, your "
                "Function cannot return more than one Tensor. This is not supported by the current "
                "autograd engine. You should either make sure the input is not a view (using "
                ".clone() for example) or make your Function only return one Tensor (potentially "
                "splitting it into two Functions: one doing the inplace that returns a single "
                "Tensor and a second one that does the other operations). You can ask on the forum "
                "https://discuss.pytorch.org/ if you need help to do this change."
            )
        rebase(out, ctx)
        return out
    if is_input:
        out = _view(out)
    out._set_history(ctx, nr, True)
    return out


def _view(t: Tensor) -> Tensor:
    with state.GradMode(False):
        v: Tensor = t.view_as(t)
    return v


def _check_savable(t: Any, saved: Any) -> None:
    if t is not None and not isinstance(t, Tensor):
        raise TypeError(
            "save_for_backward can only save variables, but argument "
            f"{next(i for i, x in enumerate(saved) if x is t)} is of type {type(t).__name__}"
        )


def _save(ctx: Any, saved: Any) -> None:
    kept: list[_native.Saved | None] = []
    for t in saved:
        _check_savable(t, saved)
        if t is None:
            kept.append(None)
            continue
        is_output = t.grad_fn is ctx
        s = _native.saved(t, is_output)
        if state.thread.saved_hooks:
            pack(s, s.tensor if is_output else t)
        kept.append(s)
    ctx.args = tuple(kept)
