"""Hooks that the program registers on tensors.

A gradient that an inner tensor is to retain is only kept by a `backward` in the same graph; one
that leaves the graph is left to eager.

On a tensor from outside: an effect, done once the graph has run. On one that the program computes:
the hook becomes a graph of its own, and a node that registers it; so it must only compute. The
handles may be removed again; those of outside tensors may leave the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.autograd.hooks import RemovableHandle
from flambeau._src.capture import bodies
from flambeau._src.capture.outcome import Raised, TooLate, Unsupported
from flambeau._src.capture.overriding import has_say
from flambeau._src.capture.values.tensors import is_tensor
from flambeau._src.core.tensor import Tensor
from flambeau._src.ir.node import has_side_effect
from flambeau._src.util import pytree

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "METHODS", "REMOVE", "Handle", "check", "graph_of", "register_gradient_hook", "remove",
]  # fmt: skip


class Handle(RemovableHandle):
    """What the program gets for a hook: `tensor`, the `method` that registers `hook`, and the
    tensor's version then. `node`: what registers it in the graph."""

    def __init__(self, tensor: Any, method: str, hook: Any, node: Any) -> None:
        self.tensor, self.method, self.hook, self.node = tensor, method, hook, node
        self.version = tensor._version
        self.removed = False

    def remove(self) -> None:
        """Done by the capture (`remove` below)."""
        raise AssertionError(self)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


#: The code of `Handle.remove`, which the capture does not interpret.
REMOVE = Handle.remove.__code__


def register_gradient_hook(tensor: Any, body: Any, *operands: Any) -> None:
    """`tensor.register_hook` of a hook that is a graph: it takes the gradient and the operands."""
    tensor.register_hook(lambda grad: body(grad, *operands))


has_side_effect(register_gradient_hook)


def _registered(s: Session, tensor: Any, method: str, hook: Any, node: Any) -> Handle:
    kind = s.tensors[id(tensor)].kind
    if node is None and has_say(kind):  # it would be asked again
        raise Unsupported(f"A hook is registered on a {kind.__name__} from outside.")
    handle: Handle = s.heap.made(Handle(tensor, method, hook, node))
    s.hooks.append(handle)
    return handle


def _hook(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values = (*args, *kwargs.values())
    if len(values) != 1 or set(kwargs) - {"hook"}:
        raise Unsupported("A hook is registered with other arguments.")
    return values[0]


def _check_time(s: Session) -> None:
    if s.hooks_break:
        raise Unsupported("A hook is registered on a tensor.")


def _on_gradient(s: Session, t: Any, args: Any, kwargs: Any) -> Any:
    """`t.register_hook(hook)`."""
    hook = _hook(args, kwargs)
    if not t.requires_grad:
        return s.native(Tensor.register_hook, t, hook)  # which is an error
    _check_time(s)
    if s.tensors[id(t)].made_of is not None:
        raise Unsupported("A hook is registered on a tensor that is made of others.")
    if s.recorder.current.parent is not None:
        raise Unsupported("A function given to an operator registers a hook.")
    if s.tensors[id(t)].source is not None:
        return _registered(s, t, "register_hook", hook, None)
    with s.fake_mode:
        like = t.detach().clone()
    out, body, operands = graph_of(s, hook, like)
    if out is not None and not is_tensor(out):
        raise Unsupported(f"A hook returns a {type(out).__name__}.")
    recorder = s.recorder
    given = [recorder.argument(v) for v in operands]
    node = recorder.node(
        register_gradient_hook, (recorder.node_of(t), recorder.argument(body), *given), {}, None
    )
    return _registered(s, t, "register_hook", hook, node)


def graph_of(s: Session, hook: Any, *args: Any) -> tuple[Any, Any, list[Any]]:
    """What a hook gives for gradients, what it computes as a graph, and that graph's operands."""
    leaves, spec = pytree.tree_flatten((args, {}))
    on = _native.set_grad(False)
    try:
        scope, out = bodies.interpret(s, "a hook", hook, leaves, spec)
    except Raised as raised:
        raise Unsupported(f"A hook raises {type(raised.error).__name__}.") from None
    finally:
        _native.set_grad(on)
    with s.recorder.within(scope):
        result = s.recorder.argument(out)
    return out, bodies.module(s, scope, "hook", result), [v for v, _ in scope.lifted.values()]


def _on_accumulation(s: Session, t: Any, args: Any, kwargs: Any) -> Any:
    """`t.register_post_accumulate_grad_hook(hook)`."""
    hook = _hook(args, kwargs)
    if not t.requires_grad or t.grad_fn is not None:
        return s.native(Tensor.register_post_accumulate_grad_hook, t, hook)  # which is an error
    _check_time(s)
    if s.tensors[id(t)].source is None or s.recorder.current.parent is not None:
        raise Unsupported("A hook is registered on a leaf that the function makes.")
    return _registered(s, t, "register_post_accumulate_grad_hook", hook, None)


def _retain(s: Session, t: Any, args: Any, kwargs: Any) -> None:
    """`t.retain_grad()`."""
    info = s.tensors[id(t)]
    if args or kwargs or not t.requires_grad:
        s.native(Tensor.retain_grad, t, *args, **kwargs)
        return
    if info.source is None and t.grad_fn is not None:
        if s.hooks_break:
            raise Unsupported(
                "A tensor that the function computes is to retain its gradient, and leaves it.",
                "Return the tensor, and call `retain_grad` outside.",
            )
        if info.made_of is not None or s.recorder.current.parent is not None:
            raise Unsupported("The gradient of such a tensor is to be retained.")
        if not any(x is t for x in s.retained):
            s.retained.append(t)
        return
    _check_time(s)
    if info.real is not None and info.real.grad_fn is not None:
        _registered(s, t, "retain_grad", None, None)


def remove(s: Session, args: Any, kwargs: Any) -> None:
    """`handle.remove()`."""
    (handle,) = args
    if type(handle) is not Handle:
        raise Unsupported("A hook from outside is removed.", "Remove it outside.")
    if handle.removed:
        return
    node = handle.node
    if node is not None:
        if any(_name(n.target) in _BACKWARD for n in node.graph.nodes):
            raise Unsupported("A hook is removed after a backward pass.")
        node.graph.erase_node(node)
    handle.removed = True
    s.hooks[:] = [h for h in s.hooks if h is not handle]


_BACKWARD = frozenset(("grad", "gradients", "backward"))


def _name(target: Any) -> str:
    return getattr(target, "__name__", None) or str(target)


def check(s: Session, outputs: list[Any]) -> None:
    """Refuse what the replacement code could not do as the program does."""
    for handle in s.hooks:
        t = handle.tensor
        if handle.node is None:
            if t._version != handle.version:
                raise TooLate("A tensor with a new hook is written in place.")
        elif t._base is not None and any(t is o for o in outputs):
            raise TooLate("A view with a hook leaves the graph.")


METHODS: dict[str, Any] = {
    "register_hook": _on_gradient,
    "register_post_accumulate_grad_hook": _on_accumulation,
    "retain_grad": _retain,
}
