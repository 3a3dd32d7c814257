"""The names that torch gives to its layers and back ends, as libraries' registrations use them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from flambeau._src.core import state

_BACKENDS = (
    "CPU CUDA HIP XLA MPS IPU XPU HPU VE Lazy MTIA MAIA PrivateUse1 PrivateUse2 PrivateUse3 Meta"
).split()
_FUNCTIONALITY = {
    "Undefined": 0, "Dense": 1, "Quantized": 5, "Sparse": 8, "SparseCsr": 9, "NestedTensor": 10,
    "BackendSelect": 11, "Python": 13, "FuncTorchDynamicLayerBackMode": 14, "Functionalize": 15,
    "Conjugate": 16, "Negative": 17, "ZeroTensor": 18, "ADInplaceOrView": 19, "AutogradOther": 20,
    "AutogradFunctionality": 21, "AutogradNestedTensor": 22, "AutocastCPU": 24, "AutocastXPU": 27,
    "AutocastIPU": 28, "AutocastHPU": 29, "AutocastMPS": 31, "AutocastCUDA": 32,
    "AutocastPrivateUse1": 33, "FuncTorchBatched": 34, "FuncTorchVmapMode": 36,
    "FuncTorchGradWrapper": 39, "PythonTLSSnapshot": 41, "FuncTorchDynamicLayerFrontMode": 42,
    "PreDispatch": 45, "PythonDispatcher": 46, "Autograd": 150, "CompositeImplicitAutograd": 151,
    "FuncTorchBatchedDecomposition": 152, "CompositeImplicitAutogradNestedTensor": 153,
    "CompositeExplicitAutograd": 154, "CompositeExplicitAutogradNonFunctional": 155,
}  # fmt: skip
_PER_BACKEND = (
    ("Dense", "", 48), ("Quantized", "Quantized", 65), ("Sparse", "Sparse", 82),
    ("SparseCsr", "SparseCsr", 99), ("NestedTensor", "NestedTensor", 116),
    ("AutogradFunctionality", "Autograd", 133),
)  # fmt: skip


def _members() -> dict[str, int]:
    found = dict(_FUNCTIONALITY)
    for group, prefix, first in _PER_BACKEND:
        found[f"StartOf{group}Backends"] = first
        for i, backend in enumerate(_BACKENDS, 1):
            found[prefix + backend] = first + i
        found[f"EndOf{group}Backends"] = first + len(_BACKENDS)
    return found


class _Key(enum.Enum):
    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    def __repr__(self) -> str:
        return f"<DispatchKey.{self.name}: {self.value}>"


_key_type: Callable[..., Any] = _Key  # its members are computed: type checkers read literal ones
DispatchKey = _key_type("DispatchKey", _members(), module="torch._C")


class DispatchKeySet:
    """A set of keys; `|`, `&` and `-` as of sets."""

    __slots__ = ("_keys",)

    def __init__(self, *keys: Any) -> None:
        self._keys = frozenset(keys)

    def has(self, key: Any) -> bool:
        """Whether the key is in the set."""
        return key in self._keys

    def add(self, key: Any) -> DispatchKeySet:
        """The set with the key."""
        return DispatchKeySet(*self._keys, key)

    def remove(self, key: Any) -> DispatchKeySet:
        """The set without the key."""
        return DispatchKeySet(*(self._keys - {key}))

    def highestPriorityTypeId(self) -> Any:
        """The key that is asked first."""
        return max(self._keys, key=int, default=DispatchKey.Undefined)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys | other._keys))

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys & other._keys))

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys - other._keys))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(k.name for k in sorted(self._keys, key=int))})"


def _layers(keys: DispatchKeySet) -> int:
    """The bits of the layers that the keys stand for."""
    bits = 0
    for key in keys._keys:
        if key.name.startswith("Autocast"):
            bits |= state.AUTOCAST
        elif key.name.startswith(("Autograd", "ADInplaceOrView")):
            bits |= state.RECORD
        elif key.name == "Functionalize":
            bits |= state.FUNCTIONALIZE
        elif key.name == "Python":
            bits |= state.DISPATCH
        elif key.name.startswith("FuncTorch"):
            bits |= state.FUNCTORCH
    return bits


class ExcludeDispatchKeyGuard(state.Suspended):
    """`with ExcludeDispatchKeyGuard(keys):` the layers of these keys do not
    see the calls inside."""

    __slots__ = ()

    def __init__(self, keys: DispatchKeySet) -> None:
        super().__init__(_layers(keys))
