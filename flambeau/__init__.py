"""flambeau: PyTorch 2 written again, Python first.

This file is the composition root: it builds the public namespace from the operator table, fills
the slots that lower ranks call upward through, and loads heavy parts on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src import public as _public
from flambeau._src.core import dtype as _dtype
from flambeau._src.core import tensor as _tensor
from flambeau._src.core.size import Size
from flambeau._src.interp import record as _record
from flambeau._src.loops import eager as _eager
from flambeau._src.ops import derive as _derive
from flambeau._src.ops import registry as _registry
from flambeau.torch_version import TorchVersion

if TYPE_CHECKING:
    from types import ModuleType

__version__ = TorchVersion("2.13.0")

Tensor = _native.Tensor
device = _native.device
dtype = _native.dtype
UntypedStorage = _native.UntypedStorage

globals().update(_dtype.DTYPES)
globals().update(_dtype.ALIASES)

_methods = _derive.tensor_methods()
_tensor.attach(_methods)
_tensor.attach(_public.tensor_methods())
_functions = {**_derive.public_functions(), **_public.functions()}
globals().update((n, f) for n, f in _functions.items() if n not in _registry.FUNCTIONS)
_derive.install_operators({**_methods, **_registry.operator_methods()})
_public.fill_slots()
_public.adopt(__name__, globals())

# What Tensor and its storages have from the public libraries.
importlib.import_module("flambeau._tensor")
storage = importlib.import_module("flambeau.storage")
globals().update(storage.PUBLIC)

# Submodules that load on first use.
_LAZY = frozenset(_public.LAZY_MODULES)


def __getattr__(name: str) -> Any:
    if name == "__all__":  # what `import *` takes: no modules
        named = {*globals(), *_registry.FUNCTIONS, *_public.LAZY_NAMES}
        return sorted(n for n in named if not n.startswith("_") and n not in _LAZY)
    if name in _registry.FUNCTIONS:
        made = _public.adopt_value(__name__, _registry.function(name))
        return globals().setdefault(name, made)
    if name in _LAZY:
        home, attribute = f"flambeau.{name}", None
    elif name in _public.LAZY_NAMES:
        home, attribute = _public.LAZY_NAMES[name]
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        value: Any = importlib.import_module(home)
    except ModuleNotFoundError as error:
        # A part that is not built yet is no attribute: programs probe for it.
        if not f"{home}.".startswith(f"{error.name}."):
            raise
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'") from None
    if attribute is not None:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_public.LAZY_NAMES, *_registry.FUNCTIONS})


legacy_contiguous_format = contiguous_format  # noqa: F821 (from the tables)
del annotations, TYPE_CHECKING, TorchVersion, _functions
