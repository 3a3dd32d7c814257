"""`torch.func`'s transforms in captured programs: the function as a graph, one node for the call.

What the function uses of the program around it is handed to the node, and the same for every
element of a batch. The gradient function that `vjp` gives is a result of its node, which further
nodes call. Where it leaves the graph, it becomes a function that takes the gradient anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau._src.autograd import transforms
from flambeau._src.autograd.saved import version_error
from flambeau._src.capture import bodies, modes
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.recorder import Held
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

__all__ = ["CALLS", "Pullback", "Transformed", "apply_transform", "handler", "pull_back"]


class _Gradients(Held):
    """The gradient function of a `vjp`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn


def _vjp(func: Any, **options: Any) -> Callable[..., Any]:
    def apply(*primals: Any) -> tuple[Any, ...]:
        outs, fn, *aux = transforms.vjp(func, *primals, **options)
        return (outs, _Gradients(fn), *aux)

    return apply


def _jvp(func: Any, **options: Any) -> Callable[..., Any]:
    return lambda primals, tangents: transforms.jvp(func, primals, tangents, **options)


_NAMES: dict[Any, str] = {
    vmap: "vmap", transforms.grad: "grad", transforms.grad_and_value: "grad_and_value",
    transforms.jacrev: "jacrev", transforms.jacfwd: "jacfwd", transforms.hessian: "hessian",
    functionalize: "functionalize", _vjp: "vjp", _jvp: "jvp",
}  # fmt: skip


_RECORDING = (
    _vjp, transforms.grad, transforms.grad_and_value, transforms.jacrev, transforms.hessian,
)  # fmt: skip


class Transformed:
    """What a transform gives in a captured program: it is captured when it is called."""

    def __init__(self, api: Any, fn: Any, options: dict[str, Any], rest: tuple[Any, ...]) -> None:
        self.api, self.fn, self.options, self.rest = api, fn, options, rest

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.api(self.fn, *self.rest, **self.options)(*args, **kwargs)


class Linearized:
    """The function from tangents to tangents that `linearize` gives in a captured program."""

    def __init__(self, fn: Any, primals: tuple[Any, ...]) -> None:
        self.fn, self.primals = fn, primals

    def __call__(self, *tangents: Any) -> Any:
        _check_tangents(self, tangents)
        return transforms.jvp(self.fn, self.primals, tangents)[1]


def _check_tangents(fn: Linearized, tangents: tuple[Any, ...]) -> None:
    given, spec = pytree.tree_flatten(tangents)[1], pytree.tree_flatten(fn.primals)[1]
    if given != spec:
        raise RuntimeError(
            f"Expected the tangents {given} to have the same argspec as the primals {spec}"
        )


class Pullback:
    """The gradient function that `vjp` gives in a captured program; `step`, `stack`: where.

    `applied`, `operands`: the node's; `drawn`: random numbers were drawn for it.
    """

    def __init__(self, held: Held, step: int, stack: tuple[Any, ...], call: _Call) -> None:
        self.held, self.step, self.stack = held, step, stack
        self.applied, self.operands, self.drawn = call.applied, call.operands, call.drawn
        self.versions = [v._version if is_tensor(v) else 0 for v in self.operands]
        self.settings = modes.settings(casts=False)

    def leaves(self) -> list[Any]:
        """What the function outside is made of; raises Unsupported where it would differ."""
        now = [v._version if is_tensor(v) else 0 for v in self.operands]
        if not self.drawn and now == self.versions:
            return self.operands
        why = "draws random numbers" if self.drawn else "reads what is written after it"
        refusal = Unsupported(
            f"The gradient function of a `vjp` that {why} leaves the graph.",
            "Call it where `vjp` is called.",
        )
        refusal.step, refusal.stack, refusal.where = self.step, self.stack, self.stack[-1]
        raise refusal

    def outside(self, *operands: Any) -> Callable[..., Any]:
        """The function outside: it runs the function's graph again when it is first called."""
        versions = [v._version if isinstance(v, Tensor) else 0 for v in operands]
        applied, settings = self.applied, self.settings
        found: Any = None

        def vjp_fn(
            cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
        ) -> Any:
            nonlocal found
            if found is not None:
                return found(cotangents, retain_graph, create_graph)
            for v, version in zip(operands, versions, strict=True):
                if isinstance(v, Tensor) and v._version != version:
                    version_error(v, version, None, 0)
            before = modes.settings()
            casts = state.AUTOCAST
            active = before.active & ~casts | settings.active & casts
            replace(settings, active=active, unasked=before.unasked).put()
            try:
                _, gradients, *_ = applied.run(operands)
            finally:
                before.put()
            if not state.thread.functorch and not state.thread.dispatch_modes:
                found = gradients.fn
            return gradients.fn(cotangents, retain_graph, create_graph)

        return vjp_fn


# ---- the functions of the library ----


def handler(fn: Any) -> Callable[..., Any] | None:
    """What to do with a call of this function of the library; None: it is no transform."""
    if fn in _HANDLERS:
        return _HANDLERS[fn]
    return (lambda s, args, kwargs: _make(s, fn, args, kwargs)) if fn in _NAMES else None


def _make(s: Session, api: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    options = dict(kwargs)
    if not args and "func" not in options:
        raise Unsupported(f"`{_NAMES[api]}` is called without a function.")
    fn = args[0] if args else options.pop("func")
    if not all(is_plain(v) for v in pytree.tree_leaves((args[1:], options))):
        raise Unsupported(f"An option of `{_NAMES[api]}` is no constant.")
    return s.heap.made(Transformed(api, fn, options, tuple(args[1:])))


def _call_vjp(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args or not all(is_plain(v) for v in kwargs.values()):
        raise Unsupported("`vjp` is called without a function, or with options of its own.")
    step, stack = s.step, s.stack()
    call = _called(s, Transformed(_vjp, args[0], kwargs, ()), args[1:], {})
    outs, held, *aux = call.result
    return (outs, Pullback(held, step, stack, call), *aux)


def _call_jvp(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("func", "primals", "tangents")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    options = {k: v for k, v in given.items() if k not in names}
    primals, tangents = given.get("primals"), given.get("tangents")
    if (
        len(args) > 3
        or not isinstance(primals, tuple)
        or not all(is_tensor(v) for v in pytree.tree_leaves((primals, tangents)))
        or not all(is_plain(v) for v in options.values())
    ):
        raise Unsupported("`jvp` is called with what is no tuple of tensors.")
    return _call(s, Transformed(_jvp, given["func"], options, ()), (primals, tangents), {})


def _linearize(s: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args or kwargs:
        raise Unsupported("`linearize` is called without a function, or with keywords.")
    fn, *primals = args
    out = s.call(fn, tuple(primals), {})
    return out, s.heap.made(Linearized(fn, tuple(primals)))


_HANDLERS: dict[Any, Callable[..., Any]] = {
    transforms.vjp: _call_vjp, transforms.jvp: _call_jvp, transforms.linearize: _linearize,
}  # fmt: skip


# ---- calls of what they give ----


class _Applied:
    """The call of a transformed graph: an attribute of the graph around it.

    `leaves` are the call's, `holes` the places of tensors among them; `body_holes` those among
    what the function itself is given.
    """

    def __init__(self, t: Transformed, leaves: list[Any], spec: Any, given: list[Any]) -> None:
        self.api, self.options, self.rest = t.api, t.options, t.rest
        self.holes = [i for i, v in enumerate(leaves) if is_tensor(v)]
        self.leaves = [None if is_tensor(v) else v for v in leaves]
        self.body_holes = [i for i, v in enumerate(given) if is_tensor(v)]
        self.spec = spec
        self.module: Any = None
        self.out_spec: Any = None
        self.result_spec: Any = None

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        flat, self.result_spec = pytree.tree_flatten(self.run(operands))
        return tuple(flat)

    def run(self, operands: tuple[Any, ...]) -> Any:
        """What the transformed function gives."""
        n = len(self.holes)
        leaves, lifted = list(self.leaves), operands[n:]
        for i, t in zip(self.holes, operands[:n], strict=True):
            leaves[i] = t

        def body(*args: Any, **kwargs: Any) -> Any:
            given = pytree.tree_leaves((args, kwargs))
            outs = self.module.forward(*[given[i] for i in self.body_holes], *lifted)
            return pytree.tree_unflatten(list(outs), self.out_spec)

        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.api(body, *self.rest, **self.options)(*args, **kwargs)


class _Call(NamedTuple):
    """A call of a transformed function: its result, and its node's operator and operands."""

    result: Any
    applied: _Applied
    operands: list[Any]
    drawn: bool


def apply_transform(applied: Any, *operands: Any) -> tuple[Any, ...]:
    """The leaves of what the transformed function gives."""
    return applied(*operands)  # type: ignore[no-any-return]


def _call(s: Session, t: Transformed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`t(*args, **kwargs)`."""
    return _called(s, t, args, kwargs).result


def _called(s: Session, t: Transformed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    name = _NAMES[t.api]
    leaves, spec = pytree.tree_flatten((args, kwargs))
    if not all(is_tensor(v) or is_plain(v) for v in leaves):
        raise Unsupported(
            f"A function under `{name}` is given what is neither tensor nor constant."
        )
    with s.fake_mode, state.Suspended(state.FUNCTION_MODE):
        seen = _seen(s, t, args, leaves)
    body_spec = pytree.tree_flatten((args[0], {}))[1] if t.api is _jvp else spec
    drawn = s.fake_mode.drawn
    forward = t.api in (_jvp, transforms.jacfwd, transforms.hessian)
    s.forward_mode += forward
    scope, out = bodies.interpret(s, f"`{name}`", t.fn, seen, body_spec)
    s.forward_mode -= forward
    flat, out_spec = pytree.tree_flatten(out)
    applied = _Applied(t, leaves, spec, seen)
    with s.recorder.within(scope):
        result = bodies.results(s, f"`{name}`", flat)
    applied.module = bodies.module(s, scope, f"{name}_body", result)
    applied.out_spec = out_spec
    tensors = [v for v in leaves if is_tensor(v)]
    operands = [*tensors, *[v for v, _ in scope.lifted.values()]]
    drawn = s.fake_mode.drawn - drawn
    bodies.attribute(s, applied, name)
    found = s.recorder.call(apply_transform, apply_transform, (applied, *operands), {})
    result = pytree.tree_unflatten(list(found), applied.result_spec)
    return _Call(result, applied, operands, bool(drawn))


def _seen(s: Session, t: Transformed, args: tuple[Any, ...], leaves: list[Any]) -> list[Any]:
    """What the function sees of each leaf: for vmap, without the mapped dimension; for jvp, the
    primals alone."""
    if t.api is _jvp:
        leaves = pytree.tree_leaves(args[0])
    dims: list[Any] = [None] * len(leaves)
    if t.api is vmap:
        in_dims = t.rest[0] if t.rest else t.options.get("in_dims", 0)
        _, found, _, _ = s.native(process_inputs, in_dims, args, t.fn)
        dims[: len(found)] = found
        # Keywords are mapped along dimension 0.
        dims[len(found) :] = [0 if is_tensor(v) else None for v in leaves[len(found) :]]
    out = []
    differentiated = _differentiated(t, args)
    for i, (v, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is not None and isinstance(v, Tensor):
            v = s.native(_element, v, dim)  # no leaf, and it requires no gradients
        copy = bodies.copy_of(v)
        if i in differentiated and is_tensor(v):  # a leaf of the transform's own
            copy = s.native(_leaf, copy)
        out.append(copy)
    return out


def _differentiated(t: Transformed, args: tuple[Any, ...]) -> set[int]:
    """Which of the leaves of the arguments the transform records gradients of."""
    if t.api not in _RECORDING:
        return set()
    argnums = t.options.get("argnums", t.rest[0] if t.rest else 0)
    if t.api is _vjp:
        argnums = tuple(range(len(args)))
    places = {n % len(args) for n in (argnums if isinstance(argnums, tuple) else (argnums,))}
    found: set[int] = set()
    at = 0
    for i, arg in enumerate(args):
        n = len(pytree.tree_leaves(arg))
        found |= set(range(at, at + n)) if i in places else set()
        at += n
    return found


def _leaf(t: Tensor) -> Tensor:
    """A leaf of the same geometry, where gradients are possible."""
    t = t.detach()
    return t.requires_grad_() if t.is_floating_point() or t.is_complex() else t


def _element(t: Tensor, dim: int) -> Tensor:
    """What an element of the batch looks like; there may be none."""
    size, stride = list(t.shape), list(t.stride())
    del size[dim], stride[dim]
    return aten.empty_strided(size, stride, dtype=t.dtype, device=t.device)


class _Cotangents:
    """What a gradient function is called with, but for the tensors: an attribute of the graph."""

    def __init__(self, spec: Any, leaves: list[Any], kwargs: dict[str, Any]) -> None:
        self.spec, self.kwargs = spec, kwargs
        self.holes = [i for i, v in enumerate(leaves) if is_tensor(v)]
        self.leaves = [None if is_tensor(v) else v for v in leaves]
        self.result_spec: Any = None


def pull_back(held: Any, cotangents: Any, *tensors: Any) -> tuple[Any, ...]:
    """The leaves of the gradients."""
    leaves = list(cotangents.leaves)
    for i, t in zip(cotangents.holes, tensors, strict=True):
        leaves[i] = t
    args = pytree.tree_unflatten(leaves, cotangents.spec)
    flat, cotangents.result_spec = pytree.tree_flatten(held.fn(*args, **cotangents.kwargs))
    return tuple(flat)


def _call_pullback(s: Session, fn: Pullback, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves, spec = pytree.tree_flatten(args)
    rest = [v for v in leaves if not is_tensor(v)]
    if not all(is_plain(v) for v in (*rest, *kwargs.values())):
        raise Unsupported("The gradient function of `vjp` is given what is no tensor.")
    cotangents = bodies.attribute(s, _Cotangents(spec, leaves, dict(kwargs)), "cotangents")
    tensors = [v for v in leaves if is_tensor(v)]
    found = s.recorder.call(pull_back, pull_back, (fn.held, cotangents, *tensors), {})
    return pytree.tree_unflatten(list(found), cotangents.result_spec)


def _call_linearized(s: Session, fn: Linearized, args: Any, kwargs: dict[str, Any]) -> Any:
    if kwargs:
        s.raise_(TypeError(f"jvp_fn() got an unexpected keyword argument {next(iter(kwargs))!r}"))
    s.native(_check_tangents, fn, args)
    return _call_jvp(s, (fn.fn, fn.primals, args), {})[1]


#: How objects of these classes are called.
CALLS: dict[type, Callable[..., Any]] = {
    Transformed: _call, Pullback: _call_pullback, Linearized: _call_linearized,
}  # fmt: skip
