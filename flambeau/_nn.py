"""The nn functions of the operator table (what torch keeps in torch._C._nn)."""

from __future__ import annotations

import flambeau as _root
from flambeau._src.ops.creation import parse_to as _parse_to  # noqa: F401
from flambeau._src.ops.derive import nn_functions

_functions = nn_functions()
for _function in _functions.values():
    # The name by which graphs print them, as torch does.
    _function.__module__ = f"{_root.__name__}._C._nn"
globals().update(_functions)
