"""From a list of samples to a batch, and from arrays and numbers to tensors."""

from __future__ import annotations

import collections.abc
import copy
import re
import sys
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau import Tensor

default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)
# NumPy's kinds of strings and objects, as they show in the name of a dtype.
np_str_obj_array_pattern = re.compile(r"[SaUO]")

CollateFn = Callable[..., Any]
CollateMap = dict[type | tuple[type, ...], CollateFn]


def default_convert(data: Any) -> Any:
    """`data` with every NumPy array in it as a tensor; numbers, strings and tensors stay.

    Looks into mappings and sequences; a tuple becomes a list, a namedtuple stays one.
    """
    if isinstance(data, Tensor):
        return data
    elem_type = type(data)
    if _is_numpy(elem_type):
        dtype = getattr(data, "dtype", None)
        if elem_type.__name__ == "ndarray" and np_str_obj_array_pattern.search(dtype.str):
            return data
        return torch.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _rebuilt_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return elem_type(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt_sequence(data, [default_convert(d) for d in data])
    return data


def _is_numpy(cls: type) -> bool:
    return cls.__module__ == "numpy" and cls.__name__ not in ("str_", "string_", "bytes_")


def _rebuilt_mapping(sample: Any, new: dict[Any, Any]) -> Any:
    """`new` in a mapping of the type of `sample`, a plain dict where that cannot be made."""
    try:
        if isinstance(sample, collections.abc.MutableMapping):
            # A copy keeps what the mapping has besides its items (a default factory).
            clone = copy.copy(sample)
            clone.update(new)
            return clone
        return type(sample)(new)  # type: ignore[call-arg]
    except TypeError:
        return new


def _rebuilt_sequence(sample: Any, new: list[Any]) -> Any:
    """`new` in a sequence of the type of `sample`, a plain list where that cannot be made."""
    try:
        if isinstance(sample, collections.abc.MutableSequence):
            clone = copy.copy(sample)
            for i, value in enumerate(new):
                clone[i] = value
            return clone
        return type(sample)(new)  # type: ignore[call-arg]
    except TypeError:
        return new


def collate(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """The samples of `batch` put together, by a table from types to functions.

    Args:
        batch: a list of samples of the same structure.
        collate_fn_map: ``{type or types: f(batch, *, collate_fn_map)}``. The type itself is
            looked for first, then the first entry that it is an instance of. Mappings and
            sequences that are in no entry are collated by their elements.

    Raises:
        TypeError: for a type that is in no entry.
        RuntimeError: for sequences of different lengths.
    """
    elem = batch[0]
    elem_type = type(elem)
    if collate_fn_map is not None:
        found = collate_fn_map.get(elem_type)
        if found is None:
            for kinds, function in collate_fn_map.items():
                if isinstance(elem, kinds):
                    found = function
                    break
        if found is not None:
            return found(batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, collections.abc.Mapping):
        by_key = {
            key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in elem
        }
        return _rebuilt_mapping(elem, by_key)
    if isinstance(elem, tuple) and hasattr(elem, "_fields"):
        columns = zip(*batch, strict=True)
        return elem_type(*(collate(c, collate_fn_map=collate_fn_map) for c in columns))
    if isinstance(elem, collections.abc.Sequence):
        if not all(len(sample) == len(elem) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = zip(*batch, strict=False)
        by_position = [collate(c, collate_fn_map=collate_fn_map) for c in columns]
        return by_position if isinstance(elem, tuple) else _rebuilt_sequence(elem, by_position)
    raise TypeError(default_collate_err_msg_format.format(elem_type))


def collate_tensor_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Tensors of one shape, stacked along a new dimension 0."""
    elem = batch[0]
    if elem.is_nested:
        raise RuntimeError(
            "Batches of nested tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    if elem.layout is not torch.strided:
        raise RuntimeError(
            "Batches of sparse tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    return torch.stack(batch, 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """NumPy arrays of one shape, as one tensor."""
    dtype = batch[0].dtype
    if np_str_obj_array_pattern.search(dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(dtype))
    return collate([torch.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """NumPy scalars, as a tensor of one dimension."""
    return torch.as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Python floats, as a float64 tensor."""
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Python integers, as an int64 tensor (bools: a bool one)."""
    return torch.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Strings and bytes, left in their list."""
    return batch


#: The table of `default_collate`; programs may add to it. NumPy's types join when it is there.
default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def _know_numpy() -> None:
    """Put NumPy's types into the table once the program has loaded it."""
    np = sys.modules.get("numpy")
    ndarray = getattr(np, "ndarray", None)
    if np is None or ndarray is None or ndarray in default_collate_fn_map:
        return
    # np.float64 is a float too: NumPy's entries must come before those of Python's numbers.
    later = dict(default_collate_fn_map)
    tensor = later.pop(Tensor)
    default_collate_fn_map.clear()
    default_collate_fn_map[Tensor] = tensor
    default_collate_fn_map[ndarray] = collate_numpy_array_fn
    default_collate_fn_map[(np.bool_, np.number, np.object_)] = collate_numpy_scalar_fn
    default_collate_fn_map.update(later)


def default_collate(batch: Any) -> Any:
    """A list of samples as a batch, as a DataLoader makes it.

    Tensors and NumPy arrays are stacked along a new dimension 0; numbers become a tensor (float64,
    int64, bool); strings and bytes stay a list; mappings, tuples and sequences are collated by
    their elements (a tuple becomes a list).
    """
    _know_numpy()
    return collate(batch, collate_fn_map=default_collate_fn_map)
