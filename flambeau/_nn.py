"""The nn functions of the operator table (what torch keeps in torch._C._nn)."""

from __future__ import annotations

from flambeau._src.ops.creation import parse_to as _parse_to  # noqa: F401
from flambeau._src.ops.derive import nn_functions

globals().update(nn_functions())
