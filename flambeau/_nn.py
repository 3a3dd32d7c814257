"""The nn functions of the operator table (what torch keeps in torch._C._nn)."""

from __future__ import annotations

from flambeau._src.ops.derive import nn_functions

globals().update(nn_functions())
