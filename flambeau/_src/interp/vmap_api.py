"""`vmap` as users call it: pytrees of arguments in, pytrees of results out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau._src.core.generator import default_generator
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.levels import Batched, Beneath, Level, batch, info
from flambeau._src.ops.call import aten
from flambeau._src.util.pytree import (
    broadcast_to_and_flatten,
    tree_flatten,
    tree_map,
    tree_unflatten,
)


def name_of(func: Callable[..., Any]) -> str:
    """How messages call func."""
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return getattr(func, "__name__", None) or repr(func)


def _in_dims_error(func: Any, in_dims: Any, text: str) -> ValueError:
    return ValueError(f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>): {text}")


def process_inputs(
    in_dims: Any, args: tuple[Any, ...], func: Callable[..., Any]
) -> tuple[int, list[Any], list[Any], Any]:
    """The batch size, the dimensions and the arguments flat, and their structure.

    Raises:
        ValueError: in_dims do not fit the arguments.
    """
    if not isinstance(in_dims, (int, tuple)):
        raise _in_dims_error(
            func, in_dims,
            "expected `in_dims` to be int or a (potentially nested) tuple matching the structure "
            f"of inputs, got: {type(in_dims)}.",
        )  # fmt: skip
    if not args:
        raise ValueError(
            f"vmap({name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or "
            "you are trying to vmap over a function with no inputs. The latter is unsupported."
        )
    flat, spec = tree_flatten(args)
    dims = broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise _in_dims_error(
            func, in_dims,
            "in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{tree_flatten(in_dims)[1]} but inputs has structure {spec}.",
        )  # fmt: skip
    for i, (a, d) in enumerate(zip(flat, dims, strict=True)):
        if d is None:
            continue
        if not isinstance(d, int):
            raise _in_dims_error(
                func, in_dims,
                f"Got in_dim={d} for an input but in_dim must be either an integer dimension or "
                "None.",
            )  # fmt: skip
        if not isinstance(a, Tensor):
            raise _in_dims_error(
                func, in_dims,
                f"Got in_dim={d} for an input but the input is of type {type(a)}. We cannot vmap "
                "over non-Tensor arguments, please use None as the respective in_dim",
            )  # fmt: skip
        if not -a.dim() <= d < a.dim():
            raise _in_dims_error(
                func, in_dims,
                f"Got in_dim={d} for some input, but that input is a Tensor of dimensionality "
                f"{a.dim()} so expected in_dim to satisfy -{a.dim()} <= in_dim < {a.dim()}.",
            )  # fmt: skip
        dims[i] = d % a.dim()
    return batch_size(dims, flat), dims, flat, spec


def batch_size(dims: list[Any], flat: list[Any]) -> int:
    """The one extent of the mapped dimensions."""
    sizes = [a.shape[d] for a, d in zip(flat, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(s != sizes[0] for s in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return int(sizes[0])


def _unwrapped(out: Any, dim: Any, level: Level, func: Callable[..., Any]) -> Any:
    """A result as its caller sees it."""
    if not isinstance(out, Tensor):
        if dim is None:
            return out
        raise ValueError(
            f"vmap({name_of(func)}, ...): `{name_of(func)}` must only return Tensors, got type "
            f"{type(out)}. Did you mean to set out_dims= to None for output?"
        )
    i = info(out)
    batched = isinstance(i, Batched) and i.level is level
    if dim is None:
        if batched:
            raise ValueError(
                f"vmap({name_of(func)}, ...): `{name_of(func)}` can not return a BatchedTensor "
                "when out_dim is None"
            )
        return out
    n = out.dim() + 1
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    d = dim % n
    if batched:
        return i.value if i.dim == d else aten.movedim(i.value, i.dim, d)
    grown = aten.unsqueeze(out, d)
    size = list(grown.shape)
    size[d] = level.batch_size
    return aten.expand(grown, size)


def flat_out_dims(out_dims: Any, spec: Any, outputs: Any, func: Callable[..., Any]) -> list[Any]:
    """out_dims for each leaf of the outputs."""
    if isinstance(outputs, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]  # a single dimension may stand in a tuple
    if out_dims is None or isinstance(out_dims, int):
        return [out_dims] * spec.num_leaves
    for d in tree_flatten(out_dims)[0]:
        if d is not None and not isinstance(d, int):
            raise ValueError(
                f"vmap({name_of(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None "
                "or a python collection of ints representing where in the outputs the vmapped "
                "dimension should appear."
            )
    dims = broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({name_of(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not "
            "compatible with the structure of `outputs`. out_dims has structure "
            f"{tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    return dims


def run_batched(
    func: Callable[..., Any], size: int, dims: list[Any], flat: list[Any], spec: Any, out_dims: Any,
    randomness: str, kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """func on batched arguments, its results unwrapped."""
    with Level("vmap", size, randomness) as level:
        wrapped = [a if d is None else batch(a, d, level) for a, d in zip(flat, dims, strict=True)]
        outputs = func(*tree_unflatten(wrapped, spec), **kwargs)
        outs, out_spec = tree_flatten(outputs)
        places = flat_out_dims(out_dims, out_spec, outputs, func)
        pairs = list(zip(outs, places, strict=True))
    results = [_unwrapped(o, d, level, func) for o, d in pairs]
    return tree_unflatten(results, out_spec)


class VmapInfo(NamedTuple):
    """What a user's batching rule is told of the vmap that it serves."""

    batch_size: int
    randomness: str


def user_rule(
    level: Level, rule: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A user's batching rule, ``rule(info, in_dims, *args) -> (results, out_dims)``, at a level."""
    flat, spec = tree_flatten(args)
    taken = [taken_apart(a, level) for a in flat]
    with Beneath(level):
        found = rule(
            VmapInfo(level.batch_size, level.randomness),
            tree_unflatten([d for _, d in taken], spec),
            *tree_unflatten([v for v, _ in taken], spec),
            **kwargs,
        )
        if not (isinstance(found, tuple) and len(found) == 2):
            raise RuntimeError(
                "Expected the vmap staticmethod to have two returns, an output and out_dims with "
                f"pytree structure compatible with the output. Got a {type(found)} instead"
            )
        outputs, out_dims = found
        outs, out_spec = tree_flatten(outputs)
        found = broadcast_to_and_flatten(out_dims, out_spec)
        places = flat_out_dims(out_dims, out_spec, outputs, rule) if found is None else found
    wrapped = [
        o if d is None or not isinstance(o, Tensor) else batch(o, d % o.dim(), level)
        for o, d in zip(outs, places, strict=True)
    ]
    return tree_unflatten(wrapped, out_spec)


def taken_apart(a: Any, level: Level) -> tuple[Any, Any]:
    """The whole value and its batch dimension at a level; (a, None) for what is not batched."""
    i = info(a)
    return (i.value, i.dim) if isinstance(i, Batched) and i.level is level else (a, None)


def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """A function that maps func over a dimension of its arguments, all elements at once.

    Args:
        func: takes and returns pytrees of tensors; sees them without the mapped dimension.
        in_dims: which dimension of each argument; None: the same argument for all. An int, or a
            (nested) tuple of the structure of the arguments.
        out_dims: where the mapped dimension stands in each result.
        randomness: what random operators do: "error", "same" numbers for all, or "different".
        chunk_size: how many elements at once. Default: all.

    Raises:
        ValueError: in_dims or out_dims do not fit.
        RuntimeError: func does something that depends on the values of a batch.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        size, dims, flat, spec = process_inputs(in_dims, args, func)
        if chunk_size is None or size <= chunk_size:
            return run_batched(func, size, dims, flat, spec, out_dims, randomness, kwargs)
        return _in_chunks(func, size, dims, flat, spec, out_dims, randomness, kwargs, chunk_size)

    if hasattr(func, "__name__"):
        functools.update_wrapper(wrapped, func)
    return wrapped


def _in_chunks(
    func: Callable[..., Any], size: int, dims: list[Any], flat: list[Any], spec: Any, out_dims: Any,
    randomness: str, kwargs: dict[str, Any], chunk_size: int,
) -> Any:  # fmt: skip
    """The batch in pieces, one after the other; for "same" randomness each
    draws what the first did."""
    sizes = [chunk_size] * (size // chunk_size) + ([size % chunk_size] if size % chunk_size else [])
    pieces: list[Any] = []
    generator = default_generator if randomness == "same" else None
    before = generator.get_state() if generator is not None else None
    start = 0
    for n in sizes:
        if generator is not None and start:
            generator.set_state(before)
        part = [
            a if d is None else aten.slice(a, d, start, start + n, 1)
            for a, d in zip(flat, dims, strict=True)
        ]
        pieces.append(run_batched(func, n, dims, part, spec, out_dims, randomness, kwargs))
        start += n
    leaves = [tree_flatten(p) for p in pieces]
    out_spec = leaves[0][1]
    places = flat_out_dims(out_dims, out_spec, pieces[0], func)
    joined = [
        parts[0] if d is None else aten.cat(list(parts), d)
        for parts, d in zip(zip(*[p for p, _ in leaves], strict=True), places, strict=True)
    ]
    return tree_unflatten(joined, out_spec)


_ = tree_map
