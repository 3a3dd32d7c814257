"""`dynamic_shapes`: what is said of the arguments' sizes, checked against the arguments.

Said is, by argument: nothing (None), a dict {dimension: size}, or a size for each dimension; for
nested arguments the same, nested. A size is a `Dim`, a hint, an int (fixed) or None (fixed).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau._src.compiler.errors import UserError, UserErrorType
from flambeau._src.core.tensor import Tensor
from flambeau._src.export.dims import Dim, DimHint
from flambeau._src.util import pytree, pytree_keys

__all__ = ["AdditionalInputs", "Leaf", "ShapesCollection", "in_order", "leaves"]


@dataclass
class Leaf:
    """One leaf of the arguments: where it stands, and what is said of its sizes.

    `path` is its place in the call, `['x'][0]`; `sizes` has what is said by dimension, `number`
    what is said of an int.
    """

    path: str
    value: Any
    sizes: dict[int, Any] = field(default_factory=dict)
    number: Any = None

    @property
    def source(self) -> str:
        """Its place as guards write it."""
        return f"L{self.path}"


def _invalid(text: str) -> UserError:
    return UserError(UserErrorType.INVALID_INPUT, text)


def _bound(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    return dict(inspect.signature(forward).bind(*args, **kwargs).arguments)


def in_order(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Keyword arguments in the order of the parameters. TypeError if the call is wrong."""
    bound = inspect.signature(forward).bind(*args, **kwargs).arguments
    named = [name for name in bound if name in kwargs]
    return {name: kwargs[name] for name in [*named, *(k for k in kwargs if k not in named)]}


def leaves(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any
) -> list[Leaf]:
    """The leaves of a call in the order of its flat form, with what `shapes` says of each.

    UserError where it does not fit the arguments, ValueError for an int with a name.
    """
    arguments = _bound(forward, args, kwargs)
    if isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        shapes = shapes.dynamic_shapes(forward, args, dict(kwargs))
    names = list(arguments)
    if isinstance(shapes, (list, tuple)):
        if len(shapes) != len(names):
            raise _invalid(
                f"`dynamic_shapes` is given as a {type(shapes).__name__} of {len(shapes)} items, "
                f"but the arguments are {names}: say something, or None, of each."
            )
        shapes = dict(zip(names, shapes, strict=True))
    elif shapes is not None and set(shapes) != set(names):
        raise _invalid(
            "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg "
            f"names {names} of `inputs`, but here they are {list(shapes)}. Alternatively, you "
            "could also ignore arg names entirely and specify `dynamic_shapes` as a list/tuple "
            "matching `inputs`."
        )
    found: list[Leaf] = []
    for name, value in arguments.items():
        found += _walk(value, (shapes or {}).get(name), f"[{name!r}]")
    _named_once(found)
    return found


def _walk(value: Any, said: Any, path: str) -> Iterator[Leaf]:
    if isinstance(value, Tensor):
        yield Leaf(path, value, _sizes(value, said, path))
        return
    if pytree.tree_is_leaf(value):
        yield Leaf(path, value, number=_number(value, said, path))
        return
    parts = _parts(value)
    if said is None:
        for key, part in parts:
            yield from _walk(part, None, f"{path}{key}")
        return
    inner = _said_of_parts(value, [key for key, _ in parts], said, path)
    for (key, part), s in zip(parts, inner, strict=True):
        yield from _walk(part, s, f"{path}{key}")


def _parts(value: Any) -> list[tuple[str, Any]]:
    """A node's children, each with its step."""
    return [
        (str(keys[0]), part)
        for keys, part in pytree_keys.tree_leaves_with_path(value, lambda v: v is not value)
    ]


def _said_of_parts(value: Any, keys: list[str], said: Any, path: str) -> Sequence[Any]:
    if isinstance(value, Mapping):
        if not isinstance(said, Mapping):
            raise _mismatch(value, said, path)
        if set(said) != set(value):
            raise _invalid(
                f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: "
                f"`inputs{path}` has keys {list(value)}, but `dynamic_shapes{path}` has keys "
                f"{list(said)}"
            )
        return [said[key] for key in value]
    if isinstance(said, Mapping) or not isinstance(said, (list, tuple)):
        raise _mismatch(value, said, path)
    if len(said) != len(keys):
        raise _invalid(
            f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: "
            f"`inputs{path}` has {len(keys)} elements, but `dynamic_shapes{path}` has {len(said)} "
            "elements"
        )
    return list(said)


def _mismatch(value: Any, said: Any, path: str) -> UserError:
    return _invalid(
        f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: "
        f"`inputs{path}` is a {type(value)}, but `dynamic_shapes{path}` is a {type(said)}"
    )


def _sizes(t: Tensor, said: Any, path: str) -> dict[int, Any]:
    if said is None:
        return {}
    if isinstance(said, Mapping):
        for i in said:
            if not 0 <= i < t.dim():
                raise _invalid(
                    f"Expected dimensions of a tensor of {t.dim()} in {dict(said)} specified at "
                    f"`dynamic_shapes{path}`, but got {i}"
                )
        pairs = list(said.items())
    elif isinstance(said, (list, tuple)):
        if len(said) != t.dim():
            raise _invalid(
                f"Expected dynamic shape spec {said} specified at `dynamic_shapes{path}` to have "
                f"the same length as the actual tensor shape {t.shape} (expected {t.dim()}, but "
                f"got {len(said)} instead)"
            )
        pairs = list(enumerate(said))
    else:
        raise _invalid(
            f"Unexpected input tensor shape {said} specified at `dynamic_shapes{path}` (expected "
            "either a list/tuple of dimensions, or a dict mapping indices to dimensions, where "
            "each dimension is an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC)"
        )
    for i, size in pairs:
        if not (size is None or isinstance(size, (Dim, DimHint)) or type(size) is int):
            raise _invalid(
                f"Unexpected dimension mapped to index {i} in input tensor shape {said} specified "
                f"at `dynamic_shapes{path}` (expected None, an int, a Dim, Dim.AUTO, Dim.STATIC, "
                f"or Dim.DYNAMIC,  but got {size!r} instead)"
            )
    return {i: size for i, size in pairs if size is not None and size != DimHint.STATIC}


def _number(value: Any, said: Any, path: str) -> Any:
    if isinstance(said, Dim):
        raise ValueError(
            "Unable to specify input integers as dynamic through named Dims. Please use "
            "Dim.AUTO/DYNAMIC instead."
        )
    if said is None or said == DimHint.STATIC:
        return None
    if type(value) is not int or not isinstance(said, DimHint):
        raise _invalid(
            f"Cannot associate shape {said} specified at `dynamic_shapes{path}` to non-tensor "
            f"type {type(value)} at `inputs{path}` (expected None)"
        )
    return said


def _named_once(found: list[Leaf]) -> None:
    """A name stands for one size."""
    known: dict[str, Dim] = {}
    for leaf in found:
        for size in leaf.sizes.values():
            if isinstance(size, Dim):
                root = size.root
                first = known.setdefault(root.__name__, root)
                if (first.min, first.max) != (root.min, root.max):
                    raise _invalid(
                        f"Found different definitions {first!r} and {root!r} for the same symbolic "
                        f"dimension {root!r}!"
                    )


class ShapesCollection:
    """What is said of sizes, by tensor: `shapes[x] = {0: batch}`.

    For arguments that are nested, or long: the tensors are met by identity when exported.
    """

    def __init__(self) -> None:
        self._said: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        """Say what the sizes of a tensor are. AssertionError: said otherwise before."""
        assert isinstance(t, Tensor), f"Cannot assign shape to non-tensor type {type(t)}"
        if id(t) in self._said:
            known = self._said[id(t)][1]
            assert known == shape, (
                f"Shapes assigned to tensor do not match: expected {known}, got {shape}"
            )
            return
        self._said[id(t)] = (t, shape)

    def __getitem__(self, t: Any) -> Any:
        """What is said of a tensor, {} where nothing is."""
        return self._said.get(id(t), (t, {}))[1]

    def __len__(self) -> int:
        return len(self._said)

    def _of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        met = set[int]()

        def one(v: Any) -> Any:
            met.add(id(v))
            return self._said[id(v)][1] if id(v) in self._said else None

        found = {name: pytree.tree_map(one, v) for name, v in arguments.items()}
        for t, shape in self._said.values():
            if id(t) not in met:
                raise ValueError(
                    f"A tensor of shape {tuple(t.shape)} that was assigned {shape} is not among "
                    "the inputs of the export."
                )
        return found

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        """What is said, in the form that `export` takes. ValueError: a tensor that is no input."""
        return self._of(_bound(getattr(m, "forward", m), tuple(args), kwargs or {}))


class AdditionalInputs:
    """Further arguments that a program shall hold for: sizes that differ among them vary."""

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(self, args: Any, kwargs: Any = None) -> None:
        """Arguments of one more call."""
        assert type(args) is tuple, f"Representative args {args} must be a tuple"
        assert kwargs is None or type(kwargs) is dict, (
            f"Representative kwargs {kwargs} must be None or a dict"
        )
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        """What follows for the sizes, in the form that `export` takes.

        ValueError: another type or structure, or constants that differ.
        """
        forward = getattr(m, "forward", m)
        calls = [(tuple(args), kwargs or {}), *self._examples]
        return self._joined([_bound(forward, a, k) for a, k in calls])

    def _joined(self, rows: list[dict[str, Any]]) -> Any:
        flat = [pytree.tree_flatten(row) for row in rows]
        for _, spec in flat[1:]:
            if spec != flat[0][1]:
                raise ValueError("The additional inputs are nested otherwise than the inputs.")
        said = [_varying(values) for values in zip(*(v for v, _ in flat), strict=True)]
        return pytree.tree_unflatten(said, flat[0][1])

    def verify(self, ep: Any) -> None:
        """Call the program with each of them; what it raises is not caught."""
        module = ep.module()
        for args, kwargs in self._examples:
            module(*args, **kwargs)


def _varying(values: tuple[Any, ...]) -> Any:
    first = values[0]
    if not all(type(v) is type(first) for v in values):
        raise ValueError(
            "The following inputs do not all have the same type: "
            f"{', '.join(str(type(v)) for v in values)}"
        )
    if isinstance(first, Tensor):
        if not all(v.dim() == first.dim() for v in values):
            raise ValueError(
                "The following inputs do not all have the same number of dimensions: "
                f"{', '.join(str(tuple(v.shape)) for v in values)}"
            )
        return tuple(
            None if len(set(sizes)) == 1 else DimHint.DYNAMIC
            for sizes in zip(*(v.shape for v in values), strict=True)
        )
    if type(first) is int:
        return None if len(set(values)) == 1 else DimHint.DYNAMIC
    if not all(v == first for v in values):
        raise ValueError(f"The following constants differ: {', '.join(map(repr, values))}")
    return None


for _type in (ShapesCollection, AdditionalInputs):
    _type.__module__ = "flambeau.export.dynamic_shapes"
