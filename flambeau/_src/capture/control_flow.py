"""`cond`: one of two functions, by a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src.capture.higher_order import Call, HigherOrderOperator, like, vjp
from flambeau._src.core import dtype as dt
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import Batched, info, plain
from flambeau._src.ops.call import aten
from flambeau._src.util import pytree

__all__ = ["cond", "cond_op"]


class Cond(HigherOrderOperator):
    """`cond(pred, true_fn, false_fn, operands)`; the branches return tuples of tensors."""

    bodies = ("true_graph", "false_graph")

    def __call__(self, /, *args: Any) -> Any:
        """As for all; a predicate that vmap has batched chooses element by element."""
        if isinstance(info(plain(args[0])), Batched):
            return _chosen(*args)
        return super().__call__(*args)

    def apart(self, *args: Any) -> Call:
        pred, true_fn, false_fn, operands = args
        return Call((true_fn, false_fn), (pred, *operands))

    def together(self, call: Call) -> tuple[Any, ...]:
        pred, *operands = call.operands
        return (pred, *call.bodies, tuple(operands))

    def own(self, call: Call) -> int:
        return 1

    def given(self, call: Call, body: int) -> tuple[Any, ...]:
        return call.operands[1:]

    def results(self, call: Call, outs: Sequence[Any]) -> tuple[Any, ...]:
        first, second = (tuple(o) for o in outs)
        _check_agree(first, second)
        return tuple([like(t) for t in first])  # never an operand itself

    def run(self, call: Call) -> tuple[Any, ...]:
        pred, *operands = call.operands
        return tuple(call.bodies[0 if bool(pred) else 1](*operands))

    def gradients(
        self, call: Call, kept: tuple[Any, ...], grads: list[Any], places: list[int],
        wanted: list[bool],
    ) -> list[Any]:  # fmt: skip
        """A cond over the gradients of the branches."""
        pred, *operands = call.operands
        n = len(operands)
        flags = wanted[1:] if isinstance(pred, Tensor) else wanted

        def of(fn: Callable[..., Any]) -> Callable[..., Any]:
            def gradients(*values: Any) -> Any:
                return vjp(fn, values[:n], values[n:], flags, places)

            return gradients

        true_fn, false_fn = call.bodies
        return list(cond_op(pred, of(true_fn), of(false_fn), (*operands, *grads)))


def _chosen(pred: Tensor, true_fn: Any, false_fn: Any, operands: Any) -> tuple[Any, ...]:
    """Both branches, and of each result what the predicate's element asks for."""
    first, second = tuple(true_fn(*operands)), tuple(false_fn(*operands))
    _check_agree(first, second)
    pred = aten.reshape(pred, ())
    mask = pred if pred.dtype is dt.bool_ else aten._to_copy(pred, dtype=dt.bool_)
    return tuple(
        aten.where(mask, a, b) if isinstance(a, Tensor) else a
        for a, b in zip(first, second, strict=True)
    )


def _check_agree(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    if len(first) != len(second):
        raise RuntimeError(
            "Expected two return values of torch.cond to have the same number of outputs, but got "
            f"{len(first)} and {len(second)}"
        )
    for a, b in zip(first, second, strict=True):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            continue
        if a.dim() != b.dim():
            raise RuntimeError(
                "When merging two branches' output in torch.cond,  expected same dim but got "
                f"{a.dim()} and {b.dim()}"
            )
        for what, x, y in (
            ("dtype", a.dtype, b.dtype),
            ("shape", tuple(a.shape), tuple(b.shape)),
            ("device", a.device, b.device),
        ):
            if x != y:
                raise RuntimeError(
                    f"When merging two branches' output in torch.cond, expected same {what} but "
                    f"got {x} and {y}"
                )


cond_op = Cond("cond")


def _validate(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> None:
    if not isinstance(pred, (bool, int, float, Tensor)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists "
            f"of tensor leaves, but got {operands}."
        )


# The functions that programs call are interpreted when they are captured; the operator is a node.


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
) -> Any:
    """`true_fn(*operands)` where `pred` holds, else `false_fn(*operands)`.

    A traced program holds both branches. They must return the same structure of tensors of the same
    geometry, must not write their operands, and see no other tensors of the program when traced by
    `make_fx` (a capture finds those itself).

    Raises:
        RuntimeError: a predicate of several elements, branches that do not agree.
    """
    _validate(pred, true_fn, false_fn, operands)
    if not isinstance(pred, Tensor):
        return (true_fn if pred else false_fn)(*operands)
    leaves, spec = pytree.tree_flatten(tuple(operands))
    specs: list[Any] = []

    def flat(fn: Callable[..., Any]) -> Callable[..., Any]:
        def branch(*values: Any) -> tuple[Any, ...]:
            out = fn(*pytree.tree_unflatten(list(values), spec))
            items, out_spec = pytree.tree_flatten(out)
            specs.append(out_spec)
            return tuple(items)

        branch.__name__ = getattr(fn, "__name__", "branch")  # modes are shown the user's function
        return branch

    outs = cond_op(pred, flat(true_fn), flat(false_fn), tuple(leaves))
    return pytree.tree_unflatten(list(outs), specs[0])
