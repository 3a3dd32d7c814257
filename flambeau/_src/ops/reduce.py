"""Sums, means, extremes, scans."""

from __future__ import annotations

from typing import Any

from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import Reduction


class Sum(Reduction):
    """The sum over all elements."""

    schema = "sum(Tensor self, *, ScalarType? dtype=None) -> Tensor"
    promotion = "sum"

    def expr(k: Any, x: Any) -> Any:
        return k.sum(x)

    def vjp(b: Any, g: Any, x: Any, dtype: Any) -> Any:
        return g.expand(x.shape)
