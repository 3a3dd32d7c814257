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
from flambeau._src.interp.levels import Dual, info

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["apply"]


class Context:
    """The `ctx` of a rehearsal."""

    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep the tensors."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep the tensors for `jvp`."""
        self.saved_tensors = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Nothing that a rehearsal needs: the class itself is the node."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Their gradients are zeros, or None."""
        self.plain = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients that nobody gave are zeros, not None."""
        self.materialize = value


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
    needs = tuple([is_tensor(v) and v.requires_grad for v in args])
    ctx.__dict__["needs_input_grad"] = needs
    grad = _native.set_grad(False)
    try:
        if type(cls.__dict__.get("setup_context")) is staticmethod:
            out = s.call(cls.forward, tuple(args), {})
            s.call(cls.setup_context, (ctx, tuple(args), out), {})
        else:
            out = s.call(cls.forward, (ctx, *args), {})
        if s.forward_mode or any(isinstance(info(v), Dual) for v in args):
            s.call(cls.jvp, (ctx, *[_gradient(s, ctx, v) for v in args]), {})
        if grad and any(needs):
            outs = out if isinstance(out, tuple) else (out,)
            s.call(cls.backward, (ctx, *[_gradient(s, ctx, o) for o in outs]), {})
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


def _gradient(s: Session, ctx: Any, t: Any) -> Any:
    """What comes in for a result, or an argument."""
    if not is_tensor(t):
        return None
    given = (t.is_floating_point() or t.is_complex()) and all(
        t is not p for p in ctx.__dict__.get("plain", ())
    )
    if not given and not ctx.__dict__.get("materialize", True):
        return None
    with s.fake_mode:
        fake = t.detach().clone()
    made = TensorInfo(fake, Tensor)
    made.node = s.recorder.node_of(t)
    s.tensors[id(fake)] = made
    return fake
