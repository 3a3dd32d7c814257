"""What is said of sizes that may vary."""

from __future__ import annotations

from flambeau._src.export.dims import Derived as _DerivedDim
from flambeau._src.export.dims import Dim, dims
from flambeau._src.export.dims import DimHint as _DimHint
from flambeau._src.export.shapes import AdditionalInputs, ShapesCollection

__all__ = ["AdditionalInputs", "Dim", "ShapesCollection", "_DerivedDim", "_DimHint", "dims"]
