"""Function transforms: grad, vjp, jvp, Jacobians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau._src.autograd.custom_transforms import call_custom
from flambeau._src.autograd.engine import first_gradient
from flambeau._src.autograd.pulling import GradLevel, pull, recorded
from flambeau._src.autograd.saved import disable_hooks, enable_hooks
from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp import batched_losses, batching, rendered  # noqa: F401  (fill tables)
from flambeau._src.interp.dual import jvp_rule  # noqa: F401  (enters itself)
from flambeau._src.interp.levels import Dual, Level, dual, info
from flambeau._src.interp.vmap_api import vmap
from flambeau._src.ops.call import aten, called
from flambeau._src.util.pytree import (
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)
from flambeau._src.util.pytree_text import treespec_pprint

_NO_HOOKS = (
    "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks. Please open an "
    "issue with your use case."
)
Argnums = int | tuple[int, ...]


class _Differentiating(GradLevel):
    """A grad level in which saved-tensor hooks are refused."""

    def __enter__(self) -> _Differentiating:
        disable_hooks(_NO_HOOKS)
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__()
        enable_hooks()


# ---- arguments ----


def _check_argnum(i: int, count: int) -> int:
    if not -count <= i < count:
        raise RuntimeError(f"Got argnum={i}, but only {count} positional inputs")
    return i % count


def _argnums(argnums: Any, count: int) -> tuple[int, ...]:
    """The places that are differentiated."""
    if isinstance(argnums, int):
        return (_check_argnum(argnums, count),)
    if isinstance(argnums, tuple):
        if not argnums:
            raise RuntimeError("argnums must be non-empty")
        places = tuple(_check_argnum(i, count) for i in argnums)
        if len(set(places)) != len(places):
            raise RuntimeError(f"argnums elements must be unique, got {argnums}")
        return places
    raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")


def _enter_args(
    level: GradLevel, args: tuple[Any, ...], places: tuple[int, ...]
) -> tuple[Any, ...]:
    def enter(x: Any) -> Any:
        if not isinstance(x, Tensor):
            raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
        return level.enter(x)

    return tuple(tree_map(enter, a) if i in places else a for i, a in enumerate(args))


def _chosen(args: Sequence[Any], argnums: Any, places: tuple[int, ...]) -> Any:
    return args[places[0]] if isinstance(argnums, int) else tuple(args[i] for i in places)


def _tensor_of_aux(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise RuntimeError(f"Expected tensors, got unsupported type {type(value)}")
    return value


# ---- reverse ----


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of func, and its value.

    Args:
        func: returns a single-element tensor, with has_aux a pair of it and anything.
        argnums: by which positional arguments; with a tuple the gradient is a tuple.
        has_aux: the value is then ``(value, aux)``.
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        places = _argnums(argnums, len(args))
        with _Differentiating() as level:
            entered = _enter_args(level, args, places)
            output = func(*entered, **kwargs)
            aux = None
            if has_aux:
                if not (isinstance(output, tuple) and len(output) == 2):
                    raise RuntimeError(
                        "grad_and_value(f)(*args): output of function f should be a tuple: "
                        "(output, aux) if has_aux is True"
                    )
                output, aux = output
            if not isinstance(output, Tensor):
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got "
                    f"{type(output)}"
                )
            if output.dim() != 0:
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got "
                    f"tensor with {output.dim()} dims. Maybe you wanted to use the vjp or jacrev "
                    "APIs instead?"
                )
            wanted, spec = tree_flatten(_chosen(entered, argnums, places))
            seed = first_gradient(output) if _records(output) else None
            grads = _gradients(level, [output], [seed], wanted)
            grad = tree_unflatten(grads, spec)
            value = level.leave(output)
            if has_aux:
                return grad, (value, tree_map(lambda v: level.leave(_tensor_of_aux(v)), aux))
            return grad, value

    return wrapper


def _records(t: Tensor) -> bool:
    return any(r.requires_grad for r in recorded(t))


def _gradients(
    level: GradLevel, outputs: list[Tensor], seeds: list[Any], wanted: Sequence[Tensor]
) -> list[Tensor]:
    create = level.beyond([*outputs, *[s for s in seeds if s is not None]])
    found = pull(outputs, seeds, wanted, create)
    return [
        aten.zeros_like(level.leave(x)) if g is None else level.leave(g)
        for g, x in zip(found, wanted, strict=True)
    ]


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of func (with has_aux: and its second result)."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result, value = both(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return wrapper


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """func's outputs at primals, and the function from cotangents to gradients by the primals
    (with has_aux: and func's second result)."""
    return _vjp(func, primals, None, has_aux)


def _vjp(
    func: Callable[..., Any], primals: tuple[Any, ...], argnums: Any, has_aux: bool
) -> tuple[Any, ...]:
    places = tuple(range(len(primals))) if argnums is None else _argnums(argnums, len(primals))
    with _Differentiating() as level:
        entered = _enter_args(level, primals, places)
        outputs = func(*entered)
        aux = None
        if has_aux:
            if not (isinstance(outputs, tuple) and len(outputs) == 2):
                raise RuntimeError(
                    "vjp(f, *primals): output of function f should be a tuple: (output, aux) if "
                    "has_aux is True"
                )
            outputs, aux = outputs
            aux = tree_map(lambda v: level.leave(_tensor_of_aux(v)), aux)
        flat, spec = tree_flatten(outputs)
        if not flat:
            raise RuntimeError(
                "vjp(f, *primals): Expected f to be a function that has non-empty output (got "
                f"output = {outputs})"
            )
        for o in flat:
            if not isinstance(o, Tensor):
                raise RuntimeError(
                    "vjp(f, *primals): expected f(*primals) to return only tensors, got "
                    f"unsupported type {type(o)}"
                )
        chosen = entered if argnums is None else _chosen(entered, argnums, places)
        wanted, in_spec = tree_flatten(chosen)
        results = tree_unflatten([level.leave(o) for o in flat], spec)

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        seeds, seeds_spec = tree_flatten(cotangents)
        if seeds_spec != spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {treespec_pprint(seeds_spec)}, "
                f"primal output: {treespec_pprint(spec)}"
            )
        for i, (o, s) in enumerate(zip(flat, seeds, strict=True)):
            if s.shape != o.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {s.shape} and output[{i}] "
                    f"has a shape of {o.shape}."
                )
        create = create_graph
        if create is None:
            create = state.get_grad() and level.beyond([*flat, *seeds])
        found = pull(flat, seeds, wanted, create)
        grads = [
            aten.zeros_like(level.leave(x)) if g is None else level.leave(g) if create else g
            for g, x in zip(found, wanted, strict=True)
        ]
        return tree_unflatten(grads, in_spec)

    return (results, vjp_fn, aux) if has_aux else (results, vjp_fn)


def _basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """For each tensor, stacked: the unit vectors of all tensors together, seen by this one."""
    total = sum(t.numel() for t in tensors)
    result, at = [], 0
    for t in tensors:
        block = called.new_zeros(t, (total, t.numel()))
        if t.numel():
            aten.fill_(aten.diagonal(block, -at, 0, 1), 1)
        at += t.numel()
        result.append(aten.view(block, (total, *t.shape)))
    return result


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False,
    chunk_size: int | None = None, _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A function that returns func's Jacobian, by reverse mode: for output o and argument x a
    tensor of shape (*o.shape, *x.shape).

    Args:
        chunk_size: how many rows at once. Default: all.
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    def wrapper(*args: Any) -> Any:
        outputs, vjp_fn, *rest = _vjp(func, args, argnums, has_aux)
        outs, out_spec = tree_flatten(outputs)
        seeds = _basis(outs)

        def row(*unit: Tensor) -> list[Tensor]:
            return tree_leaves(vjp_fn(tree_unflatten(unit, out_spec)))

        blocks = vmap(row, chunk_size=chunk_size)(*seeds)
        sizes = [o.numel() for o in outs]
        chosen = args[_argnums(argnums, len(args))[0]] if isinstance(argnums, int) else tuple(
            args[i] for i in _argnums(argnums, len(args))
        )  # fmt: skip
        ins, in_spec = tree_flatten(chosen)
        per_input = [aten.split_with_sizes(block, sizes, 0) for block in blocks]
        rows = []
        for k, o in enumerate(outs):
            parts = [
                aten.reshape(pieces[k], (*o.shape, *x.shape))
                for pieces, x in zip(per_input, ins, strict=True)
            ]
            rows.append(tree_unflatten(parts, in_spec))
        jacobian = tree_unflatten(rows, out_spec)
        return (jacobian, rest[0]) if has_aux else jacobian

    return functools.wraps(func)(wrapper) if hasattr(func, "__name__") else wrapper


# ---- forward ----


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """func's outputs at primals, and the product of its Jacobian with tangents.

    Args:
        primals, tangents: tuples of the same structure.
        strict: raise when an output does not depend on the inputs, instead of zeros.
        has_aux: func returns a pair; its second part is returned as it is.
    """
    return _jvp(func, primals, tangents, None, strict, has_aux)


def _jvp(
    func: Callable[..., Any], primals: Any, tangents: Any, argnums: Any, strict: bool, has_aux: bool
) -> tuple[Any, ...]:
    if not isinstance(primals, tuple):
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to "
            "call f(*primals)."
        )
    chosen = (
        primals if argnums is None else _chosen(primals, argnums, _argnums(argnums, len(primals)))
    )
    flat, spec = tree_flatten(chosen)
    flat_tangents, tangents_spec = tree_flatten(tangents)
    if spec != tangents_spec:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python "
            "structure. For example, if primals is a tuple of 3 tensors, tangents also must be. "
            f"Got primals with structure {spec} and tangents with structure {tangents_spec}"
        )
    _check_tensors(flat, "primals")
    _check_tensors(flat_tangents, "tangents")
    forward = state.thread.forward_grad
    state.thread.forward_grad = True
    try:
        with Level("jvp") as level:
            duals = [make_dual(p, t, level) for p, t in zip(flat, flat_tangents, strict=True)]
            entered = tree_unflatten(duals, spec)
            if argnums is None:
                args = entered
            else:
                places = _argnums(argnums, len(primals))
                values = [entered] if isinstance(argnums, int) else list(entered)
                by_place = dict(zip(places, values, strict=True))
                args = tuple(by_place.get(i, p) for i, p in enumerate(primals))
            outputs = func(*args)
            return _jvp_results(level, outputs, strict, has_aux)
    finally:
        state.thread.forward_grad = forward


def _check_tensors(values: Sequence[Any], what: str) -> None:
    if not values:
        raise RuntimeError(
            f"jvp(f, primals, tangents): Expected {what} to contain at least one Tensor."
        )
    for v in values:
        if not isinstance(v, Tensor):
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected {what} to only contain Tensors, got {type(v)}"
            )


def make_dual(primal: Tensor, tangent: Tensor, level: Level) -> Tensor:
    """A dual tensor, after torch's checks."""
    if not (primal.is_floating_point() or primal.is_complex()):
        raise ValueError(
            f"Expected primal to be floating point or complex, but got: {primal.dtype}"
        )
    if not (tangent.is_floating_point() or tangent.is_complex()):
        raise ValueError(
            f"Expected tangent to be floating point or complex, but got: {tangent.dtype}"
        )
    if tangent.shape != primal.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(primal.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}."
        )
    i = info(primal)
    if isinstance(i, Dual) and i.level is level:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the "
            "same level 0 is not supported."
        )
    made = dual(aten.alias(primal), tangent, level)
    made._born = level.serial
    return made


def unpack(t: Any, level: Level) -> tuple[Any, Any]:
    """Primal and tangent at a level; None for a tensor without one."""
    i = info(t)
    if isinstance(i, Dual) and i.level is level:
        return aten.alias(i.primal), i.tangent
    return primal_of(t), None


def primal_of(t: Tensor) -> Tensor:
    """t without tangents of levels that are over."""
    i = info(t)
    return primal_of(i.primal) if isinstance(i, Dual) and not i.level.alive else t


def _jvp_results(level: Level, outputs: Any, strict: bool, has_aux: bool) -> tuple[Any, ...]:
    aux = None
    if has_aux:
        if not (isinstance(outputs, tuple) and len(outputs) == 2):
            raise RuntimeError(
                "jvp(f, primals, tangents): output of function f should be a tuple: (output, aux) "
                "if has_aux is True"
            )
        outputs, aux = outputs
        aux = tree_map(lambda v: unpack(_tensor_of_aux(v), level)[0], aux)
    flat, spec = tree_flatten(outputs)
    primals_out, tangents_out = [], []
    for o in flat:
        if not isinstance(o, Tensor):
            raise RuntimeError(
                "jvp(f, primals, tangents): expected f(*primals) to return only tensors, got "
                f"unsupported type {type(o)}"
            )
        p, t = unpack(o, level)
        if t is None:
            if strict:
                raise RuntimeError(
                    "jvp(f, primals, tangents, strict=True): The output of f is independent of the "
                    "inputs. This is not allowed with strict=True."
                )
            t = aten.zeros_like(p)
        primals_out.append(p)
        tangents_out.append(t)
    results = (tree_unflatten(primals_out, spec), tree_unflatten(tangents_out, spec))
    return (*results, aux) if has_aux else results


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """A function that returns func's Jacobian, by forward mode; see `jacrev`.

    Args:
        randomness: as in `vmap`.
    """

    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        places = _argnums(argnums, len(args))
        chosen = args[places[0]] if isinstance(argnums, int) else tuple(args[i] for i in places)
        ins, in_spec = tree_flatten(chosen)
        seeds = _basis(ins)

        def column(unit: list[Tensor]) -> tuple[Any, ...]:
            result = _jvp(func, args, tree_unflatten(unit, in_spec), argnums, False, has_aux)
            return result[1:]

        found = vmap(column, randomness=randomness, out_dims=(0, None) if has_aux else 0)(seeds)
        outs, out_spec = tree_flatten(found[0])
        sizes = [x.numel() for x in ins]
        rows = []
        for block in outs:
            shape = tuple(block.shape[1:])
            pieces = aten.split_with_sizes(aten.movedim(block, 0, -1), sizes, -1)
            parts = [aten.reshape(p, (*shape, *x.shape)) for p, x in zip(pieces, ins, strict=True)]
            rows.append(tree_unflatten(parts, in_spec))
        jacobian = tree_unflatten(rows, out_spec)
        return (jacobian, found[1]) if has_aux else jacobian

    return wrapper


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that returns func's second derivatives: forward mode over reverse mode."""
    return jacfwd(jacrev(func, argnums), argnums)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """func's outputs at primals, and the function from tangents to the tangents of the outputs."""
    output = func(*primals)
    spec = tree_flatten(primals)[1]

    def jvp_fn(*tangents: Any) -> Any:
        given = tree_flatten(tangents)[1]
        if given != spec:
            raise RuntimeError(
                f"Expected the tangents {given} to have the same argspec as the primals {spec}"
            )
        return jvp(func, primals, tangents)[1]

    return output, jvp_fn


__all__ = [
    "call_custom", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "make_dual", "primal_of", "unpack", "vjp", "vmap",
]  # fmt: skip
