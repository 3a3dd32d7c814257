"""Optimizer steps in one pass over each parameter: the same roundings as operator by operator."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.kinds import Split, kernel_for, pack_params
from flambeau._src.ops.op import Declaration

_ADAM = (
    "Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, Tensor(d!)[] exp_avg_sqs, "
    "Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, {lr} lr, float beta1, float beta2, "
    "float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None, Tensor? "
    "found_inf=None"
)
_SGD = (
    "Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] momentum_buffer_list, *, float "
    "weight_decay, float momentum, {lr} lr, float dampening, bool nesterov, bool maximize, bool "
    "is_first_step, Tensor? grad_scale=None, Tensor? found_inf=None"
)


def launch(
    op: Any,
    expr: Any,
    outs: tuple[Tensor, ...],
    ins: tuple[Tensor, ...],
    params: Any,
    n: int,
    baked: tuple[Any, ...],
) -> None:
    """Run a map kernel over one parameter; baked flags stand in the kernel's name."""
    if not outs[0].numel():
        return
    key = (op.name, baked, outs[0].dtype)
    if key in _KNOWN and all(t.dtype is outs[0].dtype for t in ins):
        _native.run_map(_KNOWN[key], outs, ins, params)
        return
    parts = Split.__new__(Split)
    parts.operands, parts.params, parts.baked = list(ins), [0.0] * n, list(baked)
    parts.plan = (
        [("t", i) for i in range(len(ins))]
        + [("p", i) for i in range(n)]
        + [("b", i) for i in range(len(baked))]
    )
    dtype = outs[0].dtype
    address = kernel_for(op, expr, "map", parts, list(ins), outs, dtype)
    if address is None:
        values = [] if params is None else _numbers(params)
        slot("evaluate")(parts.adapter(expr), "map", outs, list(ins), values, None, dtype)
        return
    if all(t.dtype is dtype for t in ins):
        _KNOWN[key] = address
    _native.run_map(address, outs, ins, params)


_KNOWN: dict[Any, int] = {}


def _numbers(params: bytes) -> list[float]:
    import struct  # lazy: only without kernels

    return list(struct.unpack(f"<{len(params) // 8}d", params))


def adam_expr(k: Any, g: Any, p: Any, m: Any, v: Any, *rest: Any) -> Any:
    """One element of Adam (Kingma and Ba 2015) or AdamW (Loshchilov and Hutter 2019)."""
    *most, amsgrad, maximize, decay, decoupled, far = rest
    largest = most.pop(0) if amsgrad else None
    keep, w1, w1_rest, b2, w2, step, root, eps = most
    g = -g if maximize else g
    if decay:
        if decoupled:
            p = p * keep
        else:
            g = g + p * keep
    m = g - (g - m) * w1_rest if far else m + w1 * (g - m)
    v = v * b2
    v = v + w2 * g * g
    top = v if largest is None else k.maximum(largest, v)
    p = p + step * m / (k.sqrt(top) / root + eps)
    return (p, m, v) if largest is None else (p, m, v, top)


def _prepare(found_inf: Any, grad_scale: Any, grads: Any) -> Any:
    """Gradients after unscaling; None when an infinity was found and the step is skipped."""
    if found_inf is not None and float(found_inf.item()):
        return None
    if grad_scale is not None:
        for g in grads:
            slot("copy_into")(g, g / grad_scale)
    return grads


def _adam(decoupled: bool) -> None:
    name = "_fused_adamw_" if decoupled else "_fused_adam_"

    def run(
        params: Any, grads: Any, means: Any, squares: Any, largest: Any, steps: Any, lr: Any,
        beta1: float, beta2: float,
        weight_decay: float, eps: float, amsgrad: bool, maximize: bool, grad_scale: Any,
        found_inf: Any,
    ) -> None:  # fmt: skip
        if _prepare(found_inf, grad_scale, grads) is None:
            return
        rate = float(lr.item()) if isinstance(lr, Tensor) else lr
        flags = (amsgrad, maximize, weight_decay != 0, decoupled, 1 - beta1 >= 0.5)
        packed: dict[float, bytes | None] = {}
        keep = 1 - rate * weight_decay if decoupled else weight_decay
        for i, p in enumerate(params):
            step = steps[i].item()
            numbers = packed.get(step)
            if numbers is None:
                values = [
                    keep, 1 - beta1, 1 - (1 - beta1), beta2, 1 - beta2, -(rate / (1 - beta1**step)),
                    (1 - beta2**step) ** 0.5, eps,
                ]  # fmt: skip
                numbers = packed[step] = pack_params(values, [True] * 8)
            more = (largest[i],) if amsgrad else ()
            outs = (p, means[i], squares[i], *more)
            ins = (grads[i], p, means[i], squares[i], *more)
            launch(cls.op, adam_expr, outs, ins, numbers, 8, flags)

    cls: type[Declaration] = type(
        name,
        (Declaration,),
        {
            "__doc__": "Adam on lists of tensors, all changed in place.",
            "__module__": __name__,
            "public": "function",
            "run": run,
            "kind": "fused",
            "schema": f"{name}({_ADAM.format(lr='float')}) -> ()",
            "overloads": (f"{name}.tensor_lr({_ADAM.format(lr='Tensor')}) -> ()",),
        },
    )


_adam(True)
_adam(False)


def sgd_expr(k: Any, g: Any, p: Any, *rest: Any) -> Any:
    """One element of SGD with momentum."""
    *most, momentum, nesterov, maximize, decay, first = rest
    buffer = most.pop(0) if momentum else None
    weight_decay, rate, factor, damp = most
    g = -g if maximize else g
    if decay:
        g = g + p * weight_decay
    if not momentum:
        return p + g * rate
    b = g if first else buffer * factor + g * damp
    g = g + b * factor if nesterov else b
    return p + g * rate, b


class FusedSgd(Declaration):
    """SGD on lists of tensors, all changed in place."""

    schema = f"_fused_sgd_({_SGD.format(lr='float')}) -> ()"
    overloads = (f"_fused_sgd_.tensor_lr({_SGD.format(lr='Tensor')}) -> ()",)
    public = "function"
    kind = "fused"

    def run(
        params: Any, grads: Any, buffers: Any, weight_decay: float, momentum: float, lr: Any,
        dampening: float,
        nesterov: bool, maximize: bool, is_first_step: bool, grad_scale: Any, found_inf: Any,
    ) -> None:  # fmt: skip
        if _prepare(found_inf, grad_scale, grads) is None:
            return
        rate = float(lr.item()) if isinstance(lr, Tensor) else lr
        flags = (momentum != 0, nesterov, maximize, weight_decay != 0, is_first_step)
        numbers = pack_params([weight_decay, -rate, momentum, 1 - dampening], [True] * 4)
        for i, p in enumerate(params):
            more = (buffers[i],) if momentum else ()
            outs, ins = (p, *more), (grads[i], p, *more)
            launch(FusedSgd.op, sgd_expr, outs, ins, numbers, 4, flags)
