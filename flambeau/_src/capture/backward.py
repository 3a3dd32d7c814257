"""`loss.backward()` in the graph: gradients as outputs of `autograd.grad`, then put into `.grad`.

The leaves are found by walking the history that the fake tensors have. What flows into history
from before the function (an input that is no leaf), and hooks of tensors, are left to eager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.autograd import api
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.values import tensor_attributes
from flambeau._src.capture.values.tensors import TensorInfo
from flambeau._src.core.tensor import Tensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["backward"]


def backward(s: Session, loss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`loss.backward(gradient, retain_graph, create_graph, inputs)`."""
    names = ("gradient", "retain_graph", "create_graph", "inputs")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    create = bool(given.get("create_graph"))
    if create:
        raise Unsupported("`backward(create_graph=True)` is called.")
    inputs = given.get("inputs")
    leaves = _leaves(s, loss)
    if inputs is not None:
        wanted = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        leaves = [s.tensors[id(t)] for t in wanted]
    for info in leaves:
        _check(info)
    if not leaves:
        s.recorder.call("backward", Tensor.backward, (loss, *args), kwargs)
        return
    fakes = [info.fake for info in leaves]
    options = {"allow_unused": True}
    if given.get("retain_graph") is not None:
        options["retain_graph"] = given["retain_graph"]
    grads = s.recorder.call(api.grad, api.grad, ([loss], fakes, *_gradient(given)), options)
    on = _native.set_grad(False)
    s.recorder.effect(_native.set_grad, False)
    for info, grad in zip(leaves, grads, strict=True):
        if grad is None:
            continue
        old = tensor_attributes.get(s, info.fake, "grad")
        if old is None:
            info.attrs["grad"] = grad
        else:
            s.recorder.method("add_", old, grad)
    _native.set_grad(on)
    s.recorder.effect(_native.set_grad, on)


def _gradient(given: dict[str, Any]) -> tuple[Any, ...]:
    gradient = given.get("gradient")
    return () if gradient is None else ([gradient],)


def _check(info: TensorInfo) -> None:
    real = info.real
    if real is None:
        return
    if real.grad_fn is not None:
        raise Unsupported(
            "`backward` flows into what was computed before the function.",
            "Compute the loss and its backward in one compiled function.",
        )
    if getattr(real, "_backward_hooks", None) or getattr(real, "_post_accumulate_grad_hooks", None):
        raise Unsupported("A tensor with hooks gets a gradient.", "Remove the hooks.")


def _leaves(s: Session, loss: Any) -> list[TensorInfo]:
    """The leaves that the loss depends on, in the order in which the capture met them."""
    found: set[int] = set()
    seen: set[int] = set()
    held = []
    waiting = [loss.grad_fn] if loss.grad_fn is not None else []
    if loss.grad_fn is None and loss.requires_grad:
        found.add(id(loss))
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        held.append(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        waiting += [n for n, _ in node.next_functions]
    leaves = [info for key, info in s.tensors.items() if key in found]
    if len(leaves) != len(found):
        raise Unsupported(
            "`backward` flows into what was computed before the function.",
            "Compute the loss and its backward in one compiled function.",
        )
    return leaves
