"""Full backward hooks of modules: a node before the module's call, and one after it.

What the hooks compute becomes two graphs, of which these nodes know; so hooks must only compute.
Those that do more, or that fire where a warning is given, end the graph.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import tensor_hooks
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.recorder import Held
from flambeau._src.capture.values.tensors import is_tensor
from flambeau._src.core import state
from flambeau._src.ir.node import has_side_effect

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["HANDLERS", "Bracket", "after_module", "before_module"]


class Bracket(Held):
    """One call of a module: what its two nodes have in common."""

    def __init__(self) -> None:
        self.at_inputs: Callable[..., Any] | None = None
        self.operands: Sequence[Any] = ()
        self.grads: list[Any] | None = None  # those of the outputs, once they have come


has_side_effect(Bracket)


def before_module(bracket: Bracket, through: Any, *tensors: Any) -> Any:
    """The arguments of a module whose backward hooks run in the graph; `through`: the class of
    functions whose node they pass."""
    wanted = [t.requires_grad for t in tensors]
    outs = through.apply(*tensors)

    def hook(grads: Any, _outputs: Any) -> Any:
        if bracket.grads is None:
            return None
        given = [g for g, on in zip(grads, wanted, strict=True) if on]
        assert bracket.at_inputs is not None
        new = bracket.at_inputs(*given, *bracket.grads, *bracket.operands)
        bracket.grads = None
        return tuple(new)

    _node(outs).register_hook(hook)
    return outs


def after_module(
    bracket: Bracket, through: Any, at_outputs: Any, at_inputs: Any, first: Any, second: Any,
    *tensors: Any,
) -> Any:  # fmt: skip
    """The results of such a module. The first graph takes the gradients of the results and gives
    new ones, and those that the second one gets beside the gradients of the arguments."""
    bracket.at_inputs, bracket.operands = at_inputs, second
    outs = through.apply(*tensors)

    def hook(grads: Any) -> Any:
        new, seen = at_outputs(*[g for g in grads if g is not None], *first)
        bracket.grads = [g for g in seen if g is not None]
        return tuple(new)

    _node(outs).register_prehook(hook)
    return outs


def _node(outs: Sequence[Any]) -> Any:
    return next(t.grad_fn for t in outs if t.grad_fn is not None)


def _places(values: tuple[Any, ...]) -> list[int]:
    return [i for i, v in enumerate(values) if is_tensor(v)]


def _replaced(values: tuple[Any, ...], places: list[int], outs: Any) -> tuple[Any, ...]:
    found = list(values)
    for i, out in zip(places, outs, strict=True):
        found[i] = out
    return tuple(found)


def _setup_inputs(s: Session, args: Any, kwargs: Any) -> Any:
    """`BackwardHook.setup_input_hook`."""
    hook, values = args
    if type(values) is not tuple:
        raise Unsupported("The arguments of a module with backward hooks are no plain tuple.")
    own = hook.__dict__
    own["n_inputs"], places = len(values), _places(values)
    if not (state.get_grad() and any(values[i].requires_grad for i in places)):
        own["input_tensors_index"] = None
        return values
    recorder = s.recorder
    if recorder.current.parent is not None:
        raise Unsupported("A function given to an operator calls a module with backward hooks.")
    own["input_tensors_index"] = places
    own["bracket"] = bracket = Bracket()
    recorder.held[id(bracket)] = (bracket, recorder.node(Bracket, (), {}, bracket))
    tensors = [values[i] for i in places]
    own["wanted"] = [_like(s, t) for t in tensors]
    through = type(hook).function()
    run = lambda *a: through.apply(*a[2:])  # noqa: E731 the tensors alone
    outs = recorder.call(before_module, run, (bracket, through, *tensors), {})
    return _replaced(values, places, outs)


def _setup_outputs(s: Session, args: Any, kwargs: Any) -> Any:
    """`BackwardHook.setup_output_hook`."""
    hook, value = args
    values = value if type(value) is tuple else (value,)
    own = hook.__dict__
    own["n_outputs"], places = len(values), _places(values)
    wanted = [i for i in places if values[i].requires_grad]
    if isinstance(value, tuple) and type(value) is not tuple:
        raise Unsupported("The result of a module with backward hooks is no plain tuple.")
    if not (state.get_grad() and wanted):
        own["output_tensors_index"] = None
        return value
    if len(wanted) > 1:
        raise Unsupported("A module with backward hooks gives several tensors with gradients.")
    if own["input_tensors_index"] is None:
        raise Unsupported("Backward hooks of a module, no input of which requires gradients, run.")
    own["output_tensors_index"] = places
    recorder = s.recorder
    like = tuple([_like(s, values[i]) for i in places])
    _, at_outputs, first = tensor_hooks.graph_of(s, types.MethodType(_at_outputs, hook), like)
    seen = tuple([None if g is None else _like(s, g, True) for g in own["grad_outputs"]])
    _, at_inputs, second = tensor_hooks.graph_of(
        s, types.MethodType(_at_inputs, hook), tuple(own["wanted"]), seen
    )
    tensors = [values[i] for i in places]
    through = type(hook).function()
    given = (own["bracket"], through, at_outputs, at_inputs, tuple(first), tuple(second), *tensors)
    run = lambda *a: through.apply(*a[6:])  # noqa: E731 the tensors alone
    outs = _replaced(values, places, recorder.call(after_module, run, given, {}))
    return outs if type(value) is tuple else outs[0]


def _like(s: Session, t: Any, always: bool = False) -> Any:
    """A gradient for the tensor, None where it has none."""
    if not (always or t.requires_grad):
        return None
    with s.fake_mode:
        return t.detach().clone()


def _at_outputs(hook: Any, grads: Any) -> Any:
    new = hook._at_outputs(grads)
    return new, tuple(hook.grad_outputs)


def _at_inputs(hook: Any, grads: Any, grad_outputs: Any) -> Any:
    hook.grad_outputs = grad_outputs
    return hook._run_hooks_at_inputs(grads)


#: By the qualified name of the library's functions.
HANDLERS: dict[str, Callable[..., Any]] = {
    "BackwardHook.setup_input_hook": _setup_inputs,
    "BackwardHook.setup_output_hook": _setup_outputs,
}
