"""What users call: backward, grad, and the switches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src.autograd import engine
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten


def _ones_like(t: Tensor) -> Tensor:
    return aten.ones_like(t)


def _as_list(x: Any) -> list[Any]:
    return [x] if isinstance(x, Tensor) else list(x)


def _make_grads(outputs: Sequence[Tensor], grads: Sequence[Any]) -> list[Any]:
    made = []
    for out, g in zip(outputs, grads, strict=True):
        if g is None:
            if out.requires_grad:
                if out.numel() != 1:
                    raise RuntimeError("grad can be implicitly created only for scalar outputs")
                if not out.dtype.is_floating_point:
                    raise RuntimeError(
                        f"grad can be implicitly created only for real scalar outputs but got {out.dtype}"
                    )
                g = _ones_like(out)
            made.append(g)
            continue
        if not isinstance(g, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        if g.shape != out.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{len(made)}] has a shape of {g.shape} and "
                f"output[{len(made)}] has a shape of {out.shape}."
            )
        made.append(g)
    return made


def _check_roots(tensors: Sequence[Tensor]) -> None:
    for i, t in enumerate(tensors):
        if not t.requires_grad:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, grad_variables: Any = None, inputs: Any = None,
) -> None:  # fmt: skip
    """Accumulate into `.grad` of the leaves the gradients of tensors."""
    roots = _as_list(tensors)
    grads = [None] * len(roots) if grad_tensors is None else _as_list(grad_tensors)
    if inputs is not None:
        inputs = _as_list(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    grads = _make_grads(roots, grads)
    _check_roots(roots)
    engine.run(
        roots, grads, retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph, inputs=inputs,
    )  # fmt: skip


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
    is_grads_batched: bool = False, materialize_grads: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of outputs with respect to inputs; no `.grad` changes."""
    outs, ins = _as_list(outputs), _as_list(inputs)
    if allow_unused is None:
        allow_unused = materialize_grads
    grads = [None] * len(outs) if grad_outputs is None else _as_list(grad_outputs)
    for t in ins:
        if not t.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    grads = _make_grads(outs, grads)
    _check_roots(outs)
    found = engine.run(
        outs, grads, retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph, inputs=ins, accumulate=False,
    )  # fmt: skip
    if materialize_grads:
        found = [aten.zeros_like(t) if g is None else g for g, t in zip(found, ins, strict=True)]
    elif not allow_unused and any(g is None for g in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return tuple(found)


def _tensor_backward(
    self: Tensor, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
) -> None:
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set requires_grad in place."""
    self.requires_grad = requires_grad
    return self


def set_requires_grad(t: Tensor, value: Any) -> None:
    if not isinstance(value, bool):
        raise RuntimeError("requires_grad must be a bool")
    if not t.is_leaf:
        if not value:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach()."
            )
        return
    if value and not (t.dtype.is_floating_point or t.dtype.is_complex):
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    t._set_history(None, 0, value)


fill("set_requires_grad", set_requires_grad)
METHODS: dict[str, Any] = {"backward": _tensor_backward, "requires_grad_": requires_grad_}
FUNCTIONS: dict[str, Any] = {}
