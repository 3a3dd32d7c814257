"""Gradients of users' operators: a Function is generated around the operator beneath autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau._src.core import state
from flambeau._src.ops.call import below
from flambeau._src.ops.op import Op

__all__ = ["Rules", "make_autograd"]


class Rules:
    """What `register_autograd` registered."""

    def __init__(self) -> None:
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None


def make_autograd(op: Op, rules: Rules) -> Callable[..., Any]:
    """The recording rule of an operator (`UserOp.record`)."""
    name = f"GeneratedBackwardFor_{op.namespace}_{op.name}_{op.overload or 'default'}"
    n_positional = len(op.schema.positional)
    names = [a.name for a in op.schema.args[n_positional:]]

    def forward(ctx: Any, *args: Any) -> Any:
        lists, plain = _gather(args)
        result = below(state.RECORD, op, plain)
        ctx._lists = lists
        if rules.setup_context is not None:
            inputs = plain[:n_positional]
            if names:
                keywords = dict(zip(names, plain[n_positional:], strict=True))
                rules.setup_context(
                    ctx=ctx, inputs=inputs, keyword_only_inputs=keywords, output=result
                )
            else:
                rules.setup_context(ctx=ctx, inputs=inputs, output=result)
        return result

    def backward(ctx: Any, *grads: Any) -> Any:
        if rules.backward is None:
            raise RuntimeError(
                f"Trying to backward through {op} but no autograd formula was registered. Please "
                "use register_autograd to add one."
            )
        needs = ctx.needs_input_grad
        ctx.needs_input_grad = _regrouped(needs, ctx._lists)
        try:
            result = rules.backward(ctx, *grads)
        finally:
            ctx.needs_input_grad = needs
        result = result if isinstance(result, tuple) else (result,)
        result = (*result, *[None] * (len(ctx._lists) - len(result)))
        flat: list[Any] = []
        for r, count in zip(result, ctx._lists, strict=True):
            if count is None:
                flat.append(r)
            else:
                flat.extend([None] * count if r is None else r)
        return (None, *flat)

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    generated = type(name, (torch.autograd.Function,), body)

    def record(op_: Op, args: tuple[Any, ...]) -> Any:
        if not (state.get_grad() and any(t.requires_grad for t in _flat(args))):
            return below(state.RECORD, op_, args)
        return generated.apply(*_spread(args))  # type: ignore[attr-defined]

    return record


def _flat(values: Any) -> Any:
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _flat(v)


def _spread(args: tuple[Any, ...]) -> list[Any]:
    """Lists of tensors item by item behind a description, as Functions take tensors one by one."""
    counts = [
        len(v)
        if isinstance(v, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in v)
        else None
        for v in args
    ]
    flat: list[Any] = [tuple(counts)]
    for v, n in zip(args, counts, strict=True):
        flat.extend(v if n is not None else [v])
    return flat


def _gather(flat: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    counts, rest = flat[0], list(flat[1:])
    args = []
    for n in counts:
        if n is None:
            args.append(rest.pop(0))
        else:
            args.append(rest[:n])
            del rest[:n]
    return counts, tuple(args)


def _regrouped(needs: tuple[bool, ...], counts: tuple[Any, ...]) -> tuple[Any, ...]:
    rest = list(needs[1:])
    out: list[Any] = []
    for n in counts:
        if n is None:
            out.append(rest.pop(0))
        else:
            out.append(rest[:n])
            del rest[:n]
    return tuple(out)
