"""`loss.backward()` in the graph: gradients as outputs of `autograd.grad`, then put into `.grad`.

The leaves are found by walking the history that the fake tensors have. What flows into history
from before the function (an input that is no leaf) is left to eager. Hooks of the leaves are called
in the program, on the gradients that `autograd.grad` gave, in the order in which these arrive.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.autograd import api, engine
from flambeau._src.capture.guards import Kind
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.source import AttrSource
from flambeau._src.capture.values import tensor_attributes
from flambeau._src.capture.values.tensors import TensorInfo, is_tensor
from flambeau._src.core import state
from flambeau._src.core.layout import contiguous_format
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.op import packet
from flambeau._src.ops.overload import overload_of

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["backward", "first_leaf"]


def backward(s: Session, loss: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """`loss.backward(gradient, retain_graph, create_graph, inputs)`."""
    names = ("gradient", "retain_graph", "create_graph", "inputs")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    create = bool(given.get("create_graph"))
    if create:
        raise Unsupported("`backward(create_graph=True)` is called.")
    inputs = given.get("inputs")
    leaves = _leaves(s, loss)
    if inputs is not None and s.retained:
        raise Unsupported("`backward(inputs=…)` is called, and other tensors retain gradients.")
    if any(h.tensor is t for h in s.hooks for t in s.retained):  # `grad` gives it without the hook
        raise Unsupported("A tensor that retains its gradient has hooks.")
    retained = [s.tensors[id(t)] for t in s.retained] if leaves else []
    if inputs is not None:
        wanted = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        leaves = [s.tensors[id(t)] for t in wanted]
    for info in leaves:
        _check(info)
    leaves += retained
    if not leaves:
        s.recorder.call("backward", Tensor.backward, (loss, *args), kwargs)
        return
    fakes = [info.fake for info in leaves]
    options = {"allow_unused": True}
    if given.get("retain_graph") is not None:
        options["retain_graph"] = given["retain_graph"]
    hooks = [_hooks(s, info) for info in leaves]
    arrived: list[int] = []
    handles = [
        _recorded(info).register_hook(_note(arrived, i))
        for i, info in enumerate(leaves) if any(map(any, hooks))
    ]  # fmt: skip
    target = gradients if any(own for own, _ in hooks) else api.grad
    taken = {id(cell): cell for cell in map(_bytes, list(s.tensors.values())) if cell is not None}
    with state.Suspended(state.FUNCTION):
        grads = s.recorder.call(target, api.grad, ([loss], fakes, *_gradient(given)), options)
    for handle in handles:
        handle.remove()
    on = _native.set_grad(False)
    s.recorder.effect(_native.set_grad, False)
    for i in arrived if handles else range(len(leaves)):
        if grads[i] is not None:
            _accumulate(s, leaves[i], grads[i], taken, *hooks[i])
    _native.set_grad(on)
    s.recorder.effect(_native.set_grad, on)


def _recorded(info: TensorInfo) -> Any:
    """What has the tensor's history: of one that is made of others, the instance."""
    return info.fake if info.made_of is None else info.made_of


def _bytes(info: TensorInfo) -> Any:
    """The storage of a tensor that has one of its own."""
    return None if info.made_of is not None else info.fake.untyped_storage()


def _first(s: Session, info: TensorInfo, grad: Any, taken: dict[int, Any]) -> Any:
    """What becomes of a leaf's first gradient: it has its bytes for itself (those in `taken` are
    others'), and is laid out as the leaf is, or contiguous where that has gaps."""
    leaf, cell = info.fake, _bytes(s.tensors[id(grad)])
    alone = cell is None or id(cell) not in taken
    if cell is not None:
        taken[id(cell)] = cell
    dense = engine.dense(leaf)
    if alone and (grad.stride() == leaf.stride() if dense else grad.is_contiguous()):
        return grad
    with state.Suspended(state.FUNCTION):
        if not dense or leaf.is_contiguous():
            options = {"memory_format": contiguous_format}
            return s.recorder.call("clone", Tensor.clone, (grad,), options)
        empty = overload_of(packet("empty_like").ops[0])
        made = s.recorder.call(empty, empty, (leaf,), {"dtype": grad.dtype})
        return s.recorder.method("copy_", made, grad)


def _kept(s: Session, grad: Any, old: Any) -> Any:
    """The gradient of a tensor that retains it."""
    if old is None:
        return s.recorder.call("clone", Tensor.clone, (grad,), {"memory_format": contiguous_format})
    return s.recorder.call(operator.add, operator.add, (old, grad), {})


def _accumulate(
    s: Session, info: TensorInfo, grad: Any, taken: dict[int, Any], own: list[Any],
    after: list[Any],
) -> None:  # fmt: skip
    """Put a gradient into `.grad`: through the leaf's own hooks, then those that come after."""
    for hook in own:
        if (cell := _bytes(s.tensors[id(grad)])) is not None:
            taken[id(cell)] = cell  # the hook may keep it
        found = s.call(hook, (grad,), {})
        if found is None:
            continue
        if not is_tensor(found) or (found.dtype, found.shape) != (grad.dtype, grad.shape):
            raise Unsupported("A hook gives no gradient of the tensor's kind.")
        grad = found
    if own and (cell := _bytes(s.tensors[id(grad)])) is not None:
        taken[id(cell)] = cell
    with state.Suspended(state.FUNCTION):
        old = tensor_attributes.get(s, info.fake, "grad")
    if any(t is info.fake for t in s.retained):
        with state.Suspended(state.FUNCTION):
            info.attrs["grad"] = _kept(s, grad, old)
    elif old is None:
        info.attrs["grad"] = _first(s, info, grad, taken)
    else:
        with state.Suspended(state.FUNCTION):
            s.recorder.method("add_", old, grad)
    for hook in after:
        if s.call(hook, (info.fake,), {}) is not None:
            raise Unsupported("A hook that runs after accumulation returns something.")


def gradients(outputs: Any, inputs: Any, *given: Any, **options: Any) -> tuple[Any, ...]:
    """`autograd.grad` for leaves whose hooks are called by the program itself."""
    held = [t._backward_hooks for t in inputs]
    try:
        for t, hooks in zip(inputs, held, strict=True):
            if hooks:
                t._backward_hooks = None
        return api.grad(outputs, inputs, *given, **options)
    finally:
        for t, hooks in zip(inputs, held, strict=True):
            if hooks:
                t._backward_hooks = hooks


def _note(arrived: list[int], i: int) -> Any:
    return lambda grad: arrived.append(i)


def _hooks(s: Session, info: TensorInfo) -> tuple[list[Any], list[Any]]:
    """The hooks of a leaf on its gradient, and those that run once it is accumulated (guarded)."""
    own: list[Any] = []
    after: list[Any] = []
    real, source = info.real, info.source
    if real is not None and source is not None:
        autograd = AttrSource(source, "_autograd")
        if real._autograd is None:
            s.heap.guard(Kind.NONE, autograd)
        else:
            s.heap.guard(Kind.PYTHON, autograd, _no_node_hooks)
            if not _no_node_hooks(real._autograd):
                raise Unsupported("A hook stands on the node that accumulates a gradient.")
            for name, found in (("_backward_hooks", own), ("_post_accumulate_grad_hooks", after)):
                table = tensor_attributes.own(s, info, name)
                found += () if table is None else table.values()
    for handle in s.hooks:
        if handle.tensor is info.fake and handle.method != "retain_grad" and handle.node is None:
            (own if handle.method == "register_hook" else after).append(handle.hook)
    return own, after


def _no_node_hooks(leaf: Any) -> bool:
    """Whether nobody has hooks on the leaf's AccumulateGrad (`leaf`: its `_autograd`)."""
    node = None if leaf is None or leaf.accumulator is None else leaf.accumulator()
    return node is None or node.hooks is None


def _gradient(given: dict[str, Any]) -> tuple[Any, ...]:
    gradient = given.get("gradient")
    return () if gradient is None else ([gradient],)


def _check(info: TensorInfo) -> None:
    real = info.real
    if real is None:
        return
    with state.Suspended(state.FUNCTION):
        inner = real.grad_fn is not None
    if inner:
        raise Unsupported(
            "`backward` flows into what was computed before the function.",
            "Compute the loss and its backward in one compiled function.",
        )


def _history(t: Any) -> Iterator[Any]:
    """The tensors without a history that t depends on."""
    if t.grad_fn is None:
        if t.requires_grad:
            yield t
        return
    seen: set[int] = set()
    held = []
    waiting = [t.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        held.append(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable
        waiting += [n for n, _ in node.next_functions]


def first_leaf(t: Any, known: Mapping[int, Any]) -> int | None:
    """The identity of one of the known tensors that t's history leads to."""
    return next((id(x) for x in _history(t) if id(x) in known), None)


def _leaves(s: Session, loss: Any) -> list[TensorInfo]:
    """The leaves that the loss depends on, in the order in which the capture met them."""
    found = {id(t) for t in _history(_recorded(s.tensors[id(loss)]))}
    leaves = [info for info in s.tensors.values() if id(_recorded(info)) in found]
    if len(leaves) != len(found):
        raise Unsupported(
            "`backward` flows into what was computed before the function.",
            "Compute the loss and its backward in one compiled function.",
        )
    return leaves
