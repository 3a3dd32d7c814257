"""`torch.func`'s transforms in captured programs: the function as a graph, one node for the call.

What the function uses of the program around it is handed to the node, and the same for every
element of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau._src.autograd import transforms
from flambeau._src.capture import bodies
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.values.constant import is_plain
from flambeau._src.capture.values.tensors import is_tensor
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.functionalize import functionalize
from flambeau._src.interp.vmap_api import process_inputs, vmap
from flambeau._src.ops.call import aten
from flambeau._src.util import pytree

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["Transformed", "apply_transform", "call", "handler"]

_FUNCTIONS: dict[Any, str] = {
    vmap: "vmap", transforms.grad: "grad", transforms.grad_and_value: "grad_and_value",
    transforms.jacrev: "jacrev", transforms.jacfwd: "jacfwd", transforms.hessian: "hessian",
    functionalize: "functionalize",
}  # fmt: skip
_REFUSED = (transforms.vjp, transforms.jvp, transforms.linearize)


class Transformed:
    """What a transform gives in a captured program: it is captured when it is called."""

    def __init__(self, api: Any, fn: Any, options: dict[str, Any], rest: tuple[Any, ...]) -> None:
        self.api, self.fn, self.options, self.rest = api, fn, options, rest

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.api(self.fn, *self.rest, **self.options)(*args, **kwargs)


def handler(fn: Any) -> Callable[..., Any] | None:
    """What to do with a call of this function of the library; None: it is no transform."""
    if fn in _FUNCTIONS:
        return lambda s, args, kwargs: _make(s, fn, args, kwargs)
    return _refuse if fn in _REFUSED else None


def _refuse(s: Session, args: Any, kwargs: Any) -> Any:
    raise Unsupported("A transform that gives functions of what it met is called.")


def _make(s: Session, api: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args:
        raise Unsupported(f"`{_FUNCTIONS[api]}` is called without a function.")
    if not all(is_plain(v) for v in (*args[1:], *kwargs.values())):
        raise Unsupported(f"An option of `{_FUNCTIONS[api]}` is no constant.")
    return s.heap.made(Transformed(api, args[0], dict(kwargs), tuple(args[1:])))


class _Applied:
    """The call of a transformed graph: an attribute of the graph around it."""

    def __init__(self, t: Transformed, module: Any, leaves: list[Any], spec: Any, out: Any) -> None:
        self.api, self.options, self.rest = t.api, t.options, t.rest
        self.module, self.leaves, self.spec, self.out_spec = module, leaves, spec, out
        self.places = [i for i, v in enumerate(leaves) if v is None]
        self.result_spec: Any = None

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        n = len(self.places)
        leaves, lifted = list(self.leaves), operands[n:]
        for i, t in zip(self.places, operands[:n], strict=True):
            leaves[i] = t

        def body(*args: Any, **kwargs: Any) -> Any:
            given = pytree.tree_leaves((args, kwargs))
            outs = self.module.forward(*[given[i] for i in self.places], *lifted)
            return pytree.tree_unflatten(list(outs), self.out_spec)

        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        found = self.api(body, *self.rest, **self.options)(*args, **kwargs)
        flat, self.result_spec = pytree.tree_flatten(found)
        return tuple(flat)


def apply_transform(applied: Any, *operands: Any) -> tuple[Any, ...]:
    """The leaves of what the transformed function gives."""
    return applied(*operands)  # type: ignore[no-any-return]


def call(s: Session, t: Transformed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`t(*args, **kwargs)`."""
    name = _FUNCTIONS[t.api]
    leaves, spec = pytree.tree_flatten((args, kwargs))
    if not all(is_tensor(v) or is_plain(v) for v in leaves):
        raise Unsupported(
            f"A function under `{name}` is given what is neither tensor nor constant."
        )
    with s.fake_mode, state.Suspended(state.FUNCTION_MODE):
        seen = _seen(s, t, args, leaves)
    scope, out = bodies.interpret(s, f"`{name}`", t.fn, seen, spec)
    flat, out_spec = pytree.tree_flatten(out)
    with s.recorder.within(scope):
        result = bodies.results(s, f"`{name}`", flat)
    module = bodies.module(s, scope, f"{name}_body", result)
    tensors = [v for v in leaves if is_tensor(v)]
    operands = [*tensors, *[v for v, _ in scope.lifted.values()]]
    kept = [None if is_tensor(v) else v for v in leaves]
    if any(v is None and not is_tensor(x) for v, x in zip(kept, leaves, strict=True)):
        raise Unsupported(f"A function under `{name}` is given None.")
    applied = _Applied(t, module, kept, spec, out_spec)
    bodies.attribute(s, applied, name)
    found = s.recorder.call(apply_transform, apply_transform, (applied, *operands), {})
    return pytree.tree_unflatten(list(found), applied.result_spec)


def _seen(s: Session, t: Transformed, args: tuple[Any, ...], leaves: list[Any]) -> list[Any]:
    """What the function sees of each leaf: for vmap, without the mapped dimension."""
    dims: list[Any] = [None] * len(leaves)
    if t.api is vmap:
        in_dims = t.rest[0] if t.rest else t.options.get("in_dims", 0)
        _, found, _, _ = s.native(process_inputs, in_dims, args, t.fn)
        dims[: len(found)] = found
        # Keywords are mapped along dimension 0.
        dims[len(found) :] = [0 if is_tensor(v) else None for v in leaves[len(found) :]]
    out = []
    for v, dim in zip(leaves, dims, strict=True):
        if dim is not None and isinstance(v, Tensor):
            v = s.native(aten.select, v, dim, 0)
        out.append(bodies.copy_of(v))
    return out
