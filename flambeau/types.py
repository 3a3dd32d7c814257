"""Names for annotations."""

# ruff: noqa: F401  (the private spellings are used by other libraries)
from __future__ import annotations

import os
from builtins import bool as _bool
from builtins import bytes as _bytes
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from collections.abc import Sequence
from typing import IO, Any, TypeAlias, Union

from flambeau import Size, SymBool, SymFloat, SymInt, Tensor, device, dtype, layout
from flambeau.autograd.graph import GradientEdge
from flambeau.storage import TypedStorage, UntypedStorage

__all__ = ["Device", "FileLike", "Number", "Storage"]

_device = device
_dtype = dtype
_layout = layout
_size: TypeAlias = Union[Size, list[int], tuple[int, ...]]  # noqa: UP007 (a value at run time)
_symsize: TypeAlias = Union[Size, Sequence[Union[int, SymInt]]]  # noqa: UP007
_dispatchkey: TypeAlias = Union[str, Any]  # noqa: UP007
_TensorOrTensors: TypeAlias = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
_TensorOrTensorsOrGradEdge: TypeAlias = Union[  # noqa: UP007
    Tensor, Sequence[Tensor], GradientEdge, Sequence[GradientEdge]
]

Number: TypeAlias = int | float | bool
PySymType: TypeAlias = SymInt | SymFloat | SymBool
py_sym_types = (SymInt, SymFloat, SymBool)
IntLikeType: TypeAlias = int | SymInt
FloatLikeType: TypeAlias = float | SymFloat
BoolLikeType: TypeAlias = bool | SymBool
Device: TypeAlias = device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]


class Storage:
    """What storages have in common, for annotations."""

    _cdata: int
    device: _device
    dtype: _dtype
    _torch_load_uninitialized: bool

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        raise NotImplementedError("Storage is a name for annotations")

    def _new_shared(self, size: int) -> Storage:
        raise NotImplementedError("Storage is a name for annotations")

    def nbytes(self) -> int:
        """How many bytes."""
        raise NotImplementedError("Storage is a name for annotations")
