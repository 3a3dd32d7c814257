"""`autograd.Function`: one node, once its methods are known to be captured without a break.

The methods are interpreted for their guards alone; their nodes are dropped. What the graph runs is
the user's class itself, so its backward is the user's too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.capture.effects import effects
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.values.tensors import TensorInfo, is_tensor
from flambeau._src.core.tensor import Tensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["apply"]


class Context:
    """The `ctx` of a rehearsal."""

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep the tensors."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Nothing that a rehearsal needs."""

    def set_materialize_grads(self, value: bool) -> None:
        """Nothing that a rehearsal needs."""


def apply(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls.apply(*args)`."""
    cls, *rest = args
    if kwargs or s.heap.find(cls) is None:
        raise Unsupported("An autograd.Function that cannot be found again is applied.")
    _rehearse(s, cls, rest)
    for value in rest:
        if not is_tensor(value):
            s.recorder.argument(value)
    return s.recorder.call(cls.apply, cls.apply, tuple(rest), {})


def _rehearse(s: Session, cls: Any, args: list[Any]) -> None:
    """Interpret forward and backward; the guards stay, the nodes go."""
    recorder = s.recorder
    before = [(e.kind, e.target, e.name, id(e.value)) for e in effects(s)]
    nodes = set(recorder.graph.nodes)
    count = len(recorder.operators)
    tensors = set(s.tensors)
    ctx = s.heap.made(Context())
    grad = _native.set_grad(False)
    try:
        if type(cls.__dict__.get("setup_context")) is staticmethod:
            out = s.call(cls.forward, tuple(args), {})
            s.call(cls.setup_context, (ctx, tuple(args), out), {})
        else:
            out = s.call(cls.forward, (ctx, *args), {})
        ctx.__dict__["needs_input_grad"] = tuple([is_tensor(v) and v.requires_grad for v in args])
        if any(ctx.__dict__["needs_input_grad"]):
            outs = out if isinstance(out, tuple) else (out,)
            s.call(cls.backward, (ctx, *[_gradient(s, o) for o in outs]), {})
    finally:
        _native.set_grad(grad)
    if [(e.kind, e.target, e.name, id(e.value)) for e in effects(s)] != before:
        raise Unsupported(f"{cls.__name__} changes objects outside of it.")
    for node in reversed(recorder.graph.nodes):
        if node not in nodes and node.op != "placeholder":
            recorder.graph.erase_node(node)
    del recorder.operators[count:]
    for key in set(s.tensors) - tensors:
        if s.tensors[key].source is None:
            s.dropped.append(s.tensors.pop(key))


def _gradient(s: Session, out: Any) -> Any:
    if not is_tensor(out):
        return None
    with s.fake_mode:
        fake = out.detach().clone()
    info = TensorInfo(fake, Tensor)
    info.node = s.recorder.node_of(out)
    s.tensors[id(fake)] = info
    return fake
