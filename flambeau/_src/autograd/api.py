"""What users call: backward, grad, requires_grad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau._src.autograd import engine
from flambeau._src.autograd.graph import GradientEdge
from flambeau._src.core import state
from flambeau._src.core.slots import fill, slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, call_bits
from flambeau._src.util.log import warn_once

_BATCHED_HINT = (
    "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
    "dimension. The sizes of the remaining dimensions are expected to match the shape of "
    "corresponding output, but a mismatch was detected: "
)


def _as_list(x: Any) -> list[Any]:
    return [x] if isinstance(x, (Tensor, GradientEdge)) else list(x)


def edge_of(x: Any) -> engine.Edge:
    """Where gradients of a tensor or a GradientEdge go."""
    return engine.root_edge(x) if isinstance(x, Tensor) else (x[0], x[1])


def _check_shape(i: int, out: Any, g: Tensor, batched: bool) -> None:
    if not isinstance(out, Tensor):
        return
    shape = g.shape[1:] if batched else g.shape
    if tuple(shape) == tuple(out.shape):
        return
    if batched:
        raise RuntimeError(
            _BATCHED_HINT
            + f"grad_output[{i}] has a shape of {shape[1:]} and output[{i}] has a shape of "
            f"{out.shape}. If you only want some tensors in `grad_output` to be considered "
            "batched, consider using vmap."
        )
    raise RuntimeError(
        f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape "
        f"of {out.shape}."
    )


def _make_grads(outputs: Sequence[Any], grads: Sequence[Any], batched: bool = False) -> list[Any]:
    """The first gradients, ones for scalars where none was given."""
    made: list[Any] = []
    for i, (out, g) in enumerate(zip(outputs, grads, strict=True)):
        if isinstance(g, Tensor):
            _check_shape(i, out, g, batched)
            if isinstance(out, Tensor) and out.dtype.is_complex != g.dtype.is_complex:
                raise RuntimeError(
                    "For complex Tensors, both grad_output and output are required to have the "
                    f"same dtype. Mismatch in dtype: grad_output[{i}] has a dtype of {g.dtype} and "
                    f"output[{i}] has a dtype of {out.dtype}."
                )
            made.append(g)
        elif g is None:
            made.append(_implicit(out))
        else:
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    return made


def _implicit(out: Any) -> Any:
    if not isinstance(out, Tensor):
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if not out.requires_grad:
        return None
    if out.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    return engine.first_gradient(out)


def _check_roots(roots: Sequence[Any]) -> None:
    for i, t in enumerate(roots):
        if isinstance(t, Tensor) and not t.requires_grad:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )


def _first_grads(roots: list[Any], given: Any, what: str) -> list[Any]:
    if given is None:
        return [None] * len(roots)
    grads = [given] if isinstance(given, Tensor) else list(given)[: len(roots)]
    if len(grads) != len(roots):
        raise RuntimeError(f"got {len(roots)} {what} and {len(grads)} gradients")
    return grads


def _overridden(values: Sequence[Any]) -> bool:
    tensors = tuple([v for v in values if isinstance(v, Tensor)])
    return bool(call_bits(tensors, {}, 0) & (state.FUNCTION | state.FUNCTION_MODE))


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, grad_variables: Any = None, inputs: Any = None,
) -> None:  # fmt: skip
    """Add to ``.grad`` of the leaves the gradients of tensors.

    Args:
        tensors: a tensor, a GradientEdge, or several, that require gradients.
        grad_tensors: for each the gradient that comes in, of its shape; None: ones, for scalars.
        retain_graph: keep what was saved, for another backward. Default: as create_graph.
        create_graph: record the backward, so that gradients can be differentiated again.
        inputs: only these tensors get gradients. Default: all leaves.
    """
    if any(level.kind != "dual" for level in state.thread.functorch):
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use "
            "functorch.grad or functorch.vjp instead or call backward() outside of functorch "
            "transforms."
        )
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    wanted = None
    if inputs is not None:
        wanted = _as_list(inputs)
        if not wanted:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    roots = _as_list(tensors)
    grads = _make_grads(roots, _first_grads(roots, grad_tensors, "tensors"))
    _check_roots(roots)
    if create_graph:
        warn_once(
            "backward create_graph",
            "Using backward() with create_graph=True will create a reference cycle between the "
            "parameter and its gradient which can cause a memory leak. We recommend using "
            "autograd.grad when creating the graph to avoid this. If you have to use this "
            "function, make sure to reset the .grad fields of your parameters to None after use to "
            "break the cycle and avoid the leak.",
        )
    edges = None
    if wanted is not None:
        for t in wanted:
            if isinstance(t, Tensor):
                t.retain_grad()
        edges = [edge_of(t) for t in wanted]
    engine.run(
        [edge_of(t) for t in roots], grads,
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph, inputs=edges,
    )  # fmt: skip


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
    is_grads_batched: bool = False, materialize_grads: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of outputs with respect to inputs; no ``.grad`` changes.

    Args:
        outputs: tensors (or GradientEdges) that require gradients.
        inputs: tensors (or GradientEdges) whose gradients are wanted.
        grad_outputs: for each output the gradient that comes in; None: ones, for scalars.
        retain_graph: keep what was saved. Default: as create_graph.
        create_graph: record the backward.
        allow_unused: None for inputs that outputs do not depend on, instead of an error.
        is_grads_batched: the first dimension of each grad_output is a batch of gradients.
        materialize_grads: zeros for such inputs.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            f"allow_unused={allow_unused}."
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    outs, ins = _as_list(outputs), _as_list(inputs)
    if not ins:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    if _overridden((*outs, *ins)):
        named = {
            "grad_outputs": grad_outputs, "retain_graph": retain_graph,
            "create_graph": create_graph, "only_inputs": only_inputs, "allow_unused": allow_unused,
            "is_grads_batched": is_grads_batched, "materialize_grads": materialize_grads,
        }  # fmt: skip
        values = (*outs, *ins)
        return slot("override_with")(grad, values, (tuple(outs), tuple(ins)), named)  # type: ignore[no-any-return]
    if not only_inputs:
        _warn_only_inputs()
    retain = create_graph if retain_graph is None else retain_graph
    given = _first_grads(outs, grad_outputs, "tensors")
    grads = _make_grads(outs, given, is_grads_batched)
    _check_roots(outs)
    for t in ins:
        if isinstance(t, Tensor) and not t.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    roots, wanted = [edge_of(t) for t in outs], [edge_of(t) for t in ins]

    transformed = bool(call_bits((*outs, *ins), {}, 0) & state.FUNCTORCH)

    def propagate(some: list[Any]) -> tuple[Any, ...]:
        if transformed:  # batched or dual: their gradients are too
            found = slot("pull")(outs, some, ins, create_graph)
        else:
            found = engine.run(
                roots, some, retain_graph=retain, create_graph=create_graph, inputs=wanted,
                accumulate=False,
            )  # fmt: skip
        if not allow_unused and any(g is None for g in found):
            at = next(i for i, g in enumerate(found) if g is None)
            raise RuntimeError(
                f"The differentiated Tensor at index {at} appears to not have been used in the "
                "graph. Set allow_unused=True if this is the desired behavior."
            )
        return tuple(found)

    found = _batched(propagate, grads) if is_grads_batched else propagate(grads)
    if materialize_grads:
        if any(g is None and not isinstance(t, Tensor) for g, t in zip(found, ins, strict=True)):
            raise RuntimeError(
                "materialize_grads cannot be used when the given input is a GradientEdge"
            )
        found = tuple(
            aten.zeros_like(t) if g is None else g for g, t in zip(found, ins, strict=True)
        )
    return found


for _function in (backward, grad):
    _function.__module__ = "flambeau.autograd"


def _warn_only_inputs() -> None:
    import warnings  # lazy: for a deprecated argument

    warnings.warn(
        "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate "
        "gradient for other parts of the graph, please use torch.autograd.backward.",
        FutureWarning,
        stacklevel=3,
    )


def _batched(propagate: Any, grads: Sequence[Any]) -> tuple[Any, ...]:
    from flambeau._src.autograd.transforms import vmap  # lazy: transforms are heavy

    result: tuple[Any, ...] = vmap(propagate, 0, 0)(grads)
    return result


def _tensor_backward(
    self: Tensor, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False,
    inputs: Any = None,
) -> Any:  # fmt: skip
    if call_bits((self, gradient), {}, 0) & (state.FUNCTION | state.FUNCTION_MODE):
        named = {"gradient": gradient, "retain_graph": retain_graph, "create_graph": create_graph}
        return slot("override_layer")(Tensor.backward, (self,), {**named, "inputs": inputs})
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


_tensor_backward.__name__ = "backward"
_tensor_backward.__qualname__ = "Tensor.backward"
_tensor_backward.__doc__ = backward.__doc__


def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set requires_grad in place; returns the tensor."""
    if call_bits((self,), {}, 0) & (state.FUNCTION | state.FUNCTION_MODE):
        return slot("function_layer")(Tensor.requires_grad_, (self, requires_grad), {})
    if any(level.kind != "dual" for level in state.thread.functorch):
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() (or perhaps using "
            "torch.autograd.functional.* APIs) inside of a function being transformed by a "
            "functorch transform. This is unsupported, please attempt to use the functorch "
            "transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside "
            "of a function being transformed instead."
        )
    if requires_grad is not True and requires_grad is not False:
        raise TypeError(
            "requires_grad_(): argument 'requires_grad' (position 1) must be bool, not "
            f"{type(requires_grad).__name__}"
        )
    if requires_grad and not (self.dtype.is_floating_point or self.dtype.is_complex):
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    if not requires_grad or self.is_leaf:
        self.requires_grad = requires_grad
    return self


def set_requires_grad(t: Tensor, value: Any) -> None:
    """Assignment to ``requires_grad`` (slot 'set_requires_grad')."""
    if value is not True and value is not False:
        raise RuntimeError("requires_grad must be a bool")
    if not t.is_leaf:
        hint = (
            " If you want to use a computed variable in a subgraph that doesn't require "
            "differentiation use var_no_grad = var.detach()."
        )
        raise RuntimeError(
            "you can only change requires_grad flags of leaf variables." + ("" if value else hint)
        )
    if value and not (t.dtype.is_floating_point or t.dtype.is_complex):
        raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
    if value and t._inference and not state.get_inference():
        raise RuntimeError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
        )
    t._set_history(None, 0, value)


fill("set_requires_grad", set_requires_grad)
METHODS: dict[str, Any] = {"backward": _tensor_backward, "requires_grad_": requires_grad_}
FUNCTIONS: dict[str, Any] = {}
