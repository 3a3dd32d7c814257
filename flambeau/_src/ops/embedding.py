"""Tables looked up by index: embedding, its gradient and renorm, one_hot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import layout, state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, call_bits, copy_into
from flambeau._src.ops.copying import fill_with
from flambeau._src.ops.gather import INDEX_TYPES, Read, dense_copy, strided
from flambeau._src.ops.kinds import Composite, Opaque
from flambeau._src.ops.op import Declaration, TensorSpec


def check_index_type(index: Tensor, position: int, name: str, of: str) -> None:
    if index.dtype not in INDEX_TYPES:
        raise RuntimeError(
            f"Expected tensor for argument #{position} '{name}' to have one of the following "
            "scalar "
            f"types: Long, Int; but got {dt.type_name(index.dtype)} instead (while checking "
            f"arguments for {of})"
        )


def rows(op: str, a: Tensor, table: Tensor, index: Tensor) -> None:
    """`op` between the rows of a (one an index, contiguous) and those of table that index names."""
    n, width = index.numel(), table.shape[1]
    flat = strided(dense_copy(index), (n, width), (1, 0))
    source = strided(a, (n, width), (width, 1))
    view = strided(table, (n, width), (0, table.stride(1)))
    _native.indexed(op, source, view, flat, table.stride(0), 0)


def no_sparse() -> RuntimeError:
    return RuntimeError(
        "embedding with sparse=True needs sparse gradients, which flambeau does not have: use "
        "sparse=False"
    )


class Embedding(Read):
    """The rows of weight that indices name; padding_idx matters to the gradient alone."""

    schema = (
        "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, "
        "bool scale_grad_by_freq=False, bool sparse=False) -> Tensor"
    )
    out = "out"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(RuntimeError, "must be 2-D", s.tensor((3,)), s.ints((2,), 0, 2))

    def meta(
        weight: Tensor, indices: Tensor, padding_idx: int, scale: bool, sparse: bool
    ) -> TensorSpec:
        if weight.dim() != 2:
            raise RuntimeError("'weight' must be 2-D")
        check_index_type(indices, 1, "indices", "embedding")
        return TensorSpec((*indices.shape, weight.shape[1]), weight.dtype, weight.device)

    whole = True

    def decompose(weight: Tensor, indices: Tensor, *rest: Any) -> Tensor:
        shape = Embedding.meta(weight, indices, *rest).shape
        return aten.view(aten.index_select(weight, 0, aten.reshape(indices, (-1,))), shape)

    def kernel(out: Tensor, weight: Tensor, indices: Tensor, *rest: Any) -> None:
        if _native.beyond(indices, 0, weight.shape[0]) is not None:
            raise IndexError("index out of range in self")
        dense = out if out._contiguous() else _native.empty(out.shape, out.dtype, out.device)
        rows("get", dense, weight, indices)
        if dense is not out:
            copy_into(out, dense)

    def vjp(
        b: Any,
        g: Tensor,
        weight: Tensor,
        indices: Tensor,
        padding_idx: int,
        scale: bool,
        sparse: bool,
    ) -> Any:
        if sparse:
            raise no_sparse()
        n = weight.shape[0]
        return aten.embedding_dense_backward(g, indices, n, padding_idx, scale), None

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((5, 3)), s.ints((2, 4), 0, 5))
        yield s.sample(s.tensor((5, 3)), s.ints((), 0, 5))
        yield s.sample(s.tensor((5, 3)), s.ints((0, 2), 0, 5))
        yield s.sample(s.tensor((5, 3)), s.ints((2, 1, 3), 2, 5), 1)


class EmbeddingDenseBackward(Opaque):
    """The gradient of embedding: rows summed in the order of the indices, zero at padding_idx;
    scaled by one over how often the index occurs when asked for."""

    schema = (
        "embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, "
        "SymInt padding_idx, bool scale_grad_by_freq) -> Tensor"
    )
    public = ""
    out = "out"

    def meta(
        g: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale: bool
    ) -> TensorSpec:
        check_index_type(indices, 2, "indices", "embedding_backward")
        return TensorSpec((num_weights, g.shape[-1]), g.dtype, g.device)

    whole = True

    def decompose(
        g: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale: bool
    ) -> Tensor:
        check_index_type(indices, 2, "indices", "embedding_backward")
        made = {"dtype": g.dtype, "device": g.device}
        blank = aten.zeros((num_weights, g.shape[-1]), **made)
        at = aten.reshape(indices, (-1,))
        rows = aten.reshape(g, (at.shape[0], g.shape[-1]))
        if scale:
            one = aten.ones(at.shape, dtype=dt.int64, device=g.device)
            counts = aten.zeros((num_weights,), dtype=dt.int64, device=g.device)
            counts = aten.index_put(counts, [at], one, True)
            times = aten.index_select(counts, 0, at).to(dt.float64)
            rows = aten.mul(rows, aten.unsqueeze(aten.reciprocal(times).to(g.dtype), 1))
        if padding_idx >= 0:
            rows = aten.masked_fill(rows, aten.unsqueeze(aten.eq(at, padding_idx), 1), 0)
        return aten.index_put(blank, [at], rows, True)

    def kernel(
        out: Tensor, g: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale: bool
    ) -> None:
        fill_with(out, 0)
        if not out.numel() or not indices.numel():
            return
        g = dense_copy(g)
        if scale:
            counts = aten.bincount(aten.reshape(indices, (-1,)), minlength=num_weights)
            times = aten.index_select(counts, 0, aten.reshape(indices, (-1,)))
            factor = aten.reciprocal(times.to(dt.float64)).to(g.dtype)
            g = aten.mul(aten.reshape(g, (-1, out.shape[1])), aten.unsqueeze(factor, 1))
        rows("add", g, out, indices)
        if 0 <= padding_idx < num_weights:
            at = out.storage_offset() + padding_idx * out.stride(0)
            fill_with(_native.alias(Tensor, out, out.shape[1:], out.stride()[1:], at), 0)

    def vjp(
        b: Any,
        gg: Tensor,
        g: Tensor,
        indices: Tensor,
        num_weights: int,
        padding_idx: int,
        scale: bool,
    ) -> Any:
        if scale:
            raise RuntimeError(
                "double backward for embedding with scale_grad_by_freq is not implemented"
            )
        back = aten.index_select(gg, 0, aten.reshape(indices, (-1,)))
        if padding_idx >= 0:
            at_padding = aten.unsqueeze(aten.eq(aten.reshape(indices, (-1,)), padding_idx), 1)
            back = aten.masked_fill(back, at_padding, 0)
        return aten.view(back, (*indices.shape, gg.shape[1])), None

    def samples(s: Any) -> Any:
        yield s.sample(s.tensor((4, 3)), s.ints(4, 0, 5), 5, 2, False)


class EmbeddingRenorm(Declaration):
    """The rows that indices name, scaled down in place to norm max_norm where they exceed it."""

    schema = (
        "embedding_renorm_(Tensor(a!) self, Tensor indices, float max_norm, float norm_type) "
        "-> Tensor(a!)"
    )
    public = "function"
    kind = "index"

    def run(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
        if weight.dim() != 2:
            raise RuntimeError(f"'self' must be 2-D, but got {weight.dim()}-D")
        check_index_type(indices, 2, "indices", "embedding_renorm_")
        for i in sorted(set(aten.reshape(indices, (-1,)).tolist())):
            row = aten.select(weight, 0, i)
            norm = float(row_norm(row, norm_type))
            if norm > max_norm:
                aten.mul_(row, max_norm / (norm + 1e-7))
        return weight


def row_norm(row: Tensor, p: float) -> float:
    """The p-norm of a vector, summed as the dtype's accumulation type does."""
    magnitude = aten.abs(row)
    if p == float("inf"):
        return float(magnitude.max().item())
    if p == 1:
        return float(aten.sum(magnitude).item())
    if p == 2:
        return float(aten.sqrt(aten.sum(aten.mul(magnitude, magnitude))).item())
    return float(aten.pow(aten.sum(aten.pow(magnitude, p)), 1 / p).item())


class OneHot(Composite):
    """A new last dimension with one at the class's place and zeros elsewhere."""

    schema = "one_hot(Tensor self, int num_classes=-1) -> Tensor"
    public = "nn"

    def decompose(self: Tensor, num_classes: int) -> Tensor:
        if self.dtype is not dt.int64:
            raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
        if not self.numel():
            if num_classes <= 0:
                raise RuntimeError("Can not infer total number of classes from empty tensor.")
            return aten.empty((*self.shape, num_classes), dtype=self.dtype, device=self.device)
        batched = call_bits((self,), {}, 0) & state.FUNCTORCH
        untold = self._bits & state.BELOW_RECORD  # its values are not there yet
        named = num_classes > 0
        if (named or num_classes == -1) and self._bits & state.FUNCTIONALIZE:  # for when it runs
            least = aten.all(aten.ge(self, 0))
            aten._assert_async(least, "one_hot: Class values must be non-negative.")
        if named and self._bits & state.FUNCTIONALIZE:
            short = "one_hot: Class values must be smaller than num_classes."
            aten._assert_async(aten.all(aten.lt(self, num_classes)), short)
        fmt = None
        if num_classes == -1 and untold and not batched:
            num_classes = aten.max(self).item() + 1
            some: Any = num_classes >= 1
            some.node.expect_true()
            named, fmt = True, layout.contiguous_format  # strides that cannot be put in order
        if named and (batched or untold):
            classes = aten.arange(num_classes, dtype=self.dtype, device=self.device)
            hit = aten.eq(aten.unsqueeze(self, -1), classes)
            return aten._to_copy(hit, dtype=self.dtype, memory_format=fmt)
        low, high = int(aten.min(self).item()), int(aten.max(self).item())
        if low < 0:
            raise RuntimeError("Class values must be non-negative.")
        if num_classes == -1:
            num_classes = high + 1
        else:
            if num_classes < 1:
                raise RuntimeError("num_classes should be positive")
            if num_classes <= high:
                raise RuntimeError("Class values must be smaller than num_classes.")
        out = aten.zeros((*self.shape, num_classes), dtype=self.dtype, device=self.device)
        return aten.scatter_(out, -1, aten.unsqueeze(self, -1), 1)
