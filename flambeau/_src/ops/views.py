"""Views: other geometries over the same bytes."""

from __future__ import annotations

from typing import Any

from flambeau._src import _native
from flambeau._src.ops.call import aten
from flambeau._src.ops.kinds import View, wrap_dim


class Transpose(View):
    """Swap two dimensions."""

    schema = "transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"

    def view(t: Any, dim0: int, dim1: int) -> Any:
        a, b = wrap_dim(dim0, t.dim()), wrap_dim(dim1, t.dim())
        size, stride = list(t.shape), list(t.stride())
        if size:
            size[a], size[b] = size[b], size[a]
            stride[a], stride[b] = stride[b], stride[a]
        return size, stride, t.storage_offset()

    def vjp(b: Any, g: Any, t: Any, dim0: int, dim1: int) -> Any:
        return g.transpose(dim0, dim1)
