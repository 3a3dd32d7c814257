"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau._src import _native
from flambeau._src.core import dtype as dt
from flambeau._src.core import state
from flambeau._src.core.slots import slot
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten, call_bits, resize_output
from flambeau._src.ops.kinds import Composite, Opaque, TensorSpec
from flambeau._src.ops.pointwise import conj
from flambeau._src.ops.promote import broadcast_shape


def same_dtype(name: str, *ts: Tensor) -> None:
    for t in ts[1:]:
        if t.dtype is not ts[0].dtype:
            raise RuntimeError(
                f"expected m1 and m2 to have the same dtype, but got: {dt.c_name(ts[0].dtype)} != "
                f"{dt.c_name(t.dtype)}"
            )


def mm_shape(a: Tensor, b: Tensor) -> tuple[int, int]:
    if a.dim() != 2:
        raise RuntimeError("self must be a matrix")
    if b.dim() != 2:
        raise RuntimeError("mat2 must be a matrix")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and "
            f"{b.shape[0]}x{b.shape[1]})"
        )
    same_dtype("mm", a, b)
    return a.shape[0], b.shape[1]


def _column_major(t: Tensor) -> bool:
    return bool(t.stride() == (1, t.shape[0]))


def left_gradient(g: Any, x: Any, y: Any) -> Any:
    """Gradient of x in mm(x, y), laid out as x is: the transpose of a leaf gets what, transposed
    back, the leaf can keep without a copy."""
    return aten.mm(conj(y), g.t()).t() if _column_major(x) else aten.mm(g, conj(y).t())


def right_gradient(g: Any, x: Any, y: Any) -> Any:
    """Gradient of y in mm(x, y), laid out as y is."""
    return aten.mm(g.t(), conj(x)).t() if _column_major(y) else aten.mm(conj(x).t(), g)


class Mm(Opaque):
    """(n, m) times (m, p)."""

    total = True
    schema = "mm(Tensor self, Tensor mat2) -> Tensor"
    out = "out"
    autocast = "lower"
    reference = "numpy.matmul"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "mat1 and mat2 shapes cannot be multiplied .2x3 and 4x5.",
            s.tensor((2, 3)),
            s.tensor((4, 5)),
        )
        yield s.error(RuntimeError, "self must be a matrix", s.tensor((3,)), s.tensor((3, 2)))

    def meta(a: Tensor, b: Tensor) -> TensorSpec:
        return TensorSpec(mm_shape(a, b), a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor, b: Tensor) -> None:
        slot("gemm")(out, a, b, 1, 0)

    @classmethod
    def fast(cls, op: Any) -> Any:
        if op.variant != "functional":
            return None
        f = _native.Fast("mm", 2)
        op.__dict__.setdefault("fasts", []).append((f, False))
        return f

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        right = right_gradient(g, x, y) if b.needs[1] else None  # torch's order
        return left_gradient(g, x, y) if b.needs[0] else None, right

    def samples(s: Any) -> Iterator[Any]:
        for n, m, p in ((3, 4, 5), (1, 1, 1), (0, 3, 2), (3, 0, 2), (7, 2, 3)):
            yield s.sample(s.tensor((n, m)), s.tensor((m, p)))


class Addmm(Opaque):
    """beta self + alpha mat1 mat2, self broadcast."""

    old_form = True
    total = True
    schema = (
        "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"
    )
    out = "out"
    inplace = True
    autocast = "lower"
    saves_by = ("beta", "alpha")

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "mat1 and mat2 shapes cannot be multiplied",
            s.tensor((5,)),
            s.tensor((2, 3)),
            s.tensor((4, 5)),
        )

    def meta(c: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> TensorSpec:
        if a.dim() != 2:
            raise RuntimeError(f"mat1 must be a matrix, got {a.dim()}-D tensor")
        if b.dim() != 2:
            raise RuntimeError(f"mat2 must be a matrix, got {b.dim()}-D tensor")
        shape = mm_shape(a, b)
        check_expandable(c, shape)
        if c.dtype is not a.dtype:
            raise RuntimeError(
                f"self and mat2 must have the same dtype, but got {dt.scalar_name(c.dtype)} and "
                f"{dt.scalar_name(b.dtype)}"
            )
        return TensorSpec(shape, a.dtype, a.device)

    def kernel(out: Tensor, c: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> None:
        slot("gemm_add")(out, c, a, b, beta, alpha)

    @classmethod
    def fast(cls, op: Any) -> Any:
        if op.variant != "functional":
            return None
        f = _native.Fast("addmm", 3, (("beta", 1), ("alpha", 1)))
        op.__dict__.setdefault("fasts", []).append((f, False))
        return f

    def vjp(b: Any, g: Any, c: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
        scaled = g if alpha == 1 else g * conj(alpha)
        return (
            slot("sum_to")(g if beta == 1 else g * conj(beta), c) if b.needs[0] else None,
            left_gradient(scaled, x, y) if b.needs[1] else None,
            right_gradient(scaled, x, y) if b.needs[2] else None,
        )

    def samples(s: Any) -> Iterator[Any]:
        for c, n, m, p in (((3, 5), 3, 4, 5), ((5,), 3, 4, 5), ((), 2, 2, 2), ((3, 1), 3, 0, 2)):
            yield s.sample(s.tensor(c), s.tensor((n, m)), s.tensor((m, p)))
            yield s.sample(s.tensor(c), s.tensor((n, m)), s.tensor((m, p)), beta=0.5, alpha=2)


def check_expandable(c: Tensor, shape: tuple[int, ...]) -> None:
    s = tuple(c.shape)
    if len(s) > len(shape):
        raise RuntimeError(
            f"expand(torch.{dt.type_name(c.dtype)[6:]}{{{list(s)}}}, size={list(shape)}): the "
            f"number of sizes provided ({len(shape)}) must be greater or equal to the number of "
            f"dimensions in the tensor ({len(s)})"
        )
    for i, x in enumerate(s):
        j = i + len(shape) - len(s)
        if x not in (1, shape[j]):
            raise RuntimeError(
                f"The expanded size of the tensor ({shape[j]}) must match the existing size ({x}) "
                f"at non-singleton dimension {j}.  Target sizes: {list(shape)}.  Tensor sizes: "
                f"{list(s)}"
            )


class Bmm(Opaque):
    """Batches of matrix products."""

    total = True
    schema = "bmm(Tensor self, Tensor mat2) -> Tensor"
    out = "out"
    autocast = "lower"

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError, "batch1 must be a 3D tensor", s.tensor((2, 3)), s.tensor((2, 3, 4))
        )

    def meta(a: Tensor, b: Tensor) -> TensorSpec:
        if a.dim() != 3:
            raise RuntimeError("batch1 must be a 3D tensor")
        if b.dim() != 3:
            raise RuntimeError("batch2 must be a 3D tensor")
        if b.shape[0] != a.shape[0] or b.shape[1] != a.shape[2]:
            raise RuntimeError(
                "Expected size for first two dimensions of batch2 tensor to be: "
                f"[{a.shape[0]}, {a.shape[2]}] but got: [{b.shape[0]}, {b.shape[1]}]."
            )
        if a.dtype is not b.dtype:
            raise RuntimeError(
                f"expected scalar type {dt.scalar_name(a.dtype)} but found "
                f"{dt.scalar_name(b.dtype)}"
            )
        return TensorSpec((a.shape[0], a.shape[1], b.shape[2]), a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor, b: Tensor) -> None:
        slot("gemm")(out, a, b, 1, 0)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return (
            aten.bmm(g, conj(y).transpose(1, 2)) if b.needs[0] else None,
            aten.bmm(conj(x).transpose(1, 2), g) if b.needs[1] else None,
        )

    def samples(s: Any) -> Iterator[Any]:
        for n, m, k, p in ((2, 3, 4, 5), (0, 3, 4, 5), (2, 3, 0, 5), (1, 1, 1, 1)):
            yield s.sample(s.tensor((n, m, k)), s.tensor((n, k, p)))


class Baddbmm(Opaque):
    """beta self + alpha batch1 batch2, self broadcast."""

    old_form = True
    total = True
    schema = (
        "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) "
        "-> Tensor"
    )
    out = "out"
    inplace = True
    autocast = "lower"
    saves_by = ("beta", "alpha")

    def meta(c: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> TensorSpec:
        s = Bmm.meta(a, b)
        check_expandable(c, s.shape)
        return s

    def kernel(out: Tensor, c: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> None:
        slot("gemm_add")(out, c, a, b, beta, alpha)

    def vjp(b: Any, g: Any, c: Any, x: Any, y: Any, beta: Any, alpha: Any) -> Any:
        scaled = g if alpha == 1 else g * conj(alpha)
        return (
            slot("sum_to")(g if beta == 1 else g * conj(beta), c) if b.needs[0] else None,
            aten.bmm(scaled, conj(y).transpose(1, 2)) if b.needs[1] else None,
            aten.bmm(conj(x).transpose(1, 2), scaled) if b.needs[2] else None,
        )


class Mv(Opaque):
    """A matrix times a vector."""

    total = True
    schema = "mv(Tensor self, Tensor vec) -> Tensor"
    out = "out"
    autocast = "lower"
    whole = True

    def decompose(a: Tensor, v: Tensor) -> Tensor:
        Mv.meta(a, v)
        return aten.squeeze(aten.mm(a, aten.unsqueeze(v, 1)), 1)

    def meta(a: Tensor, v: Tensor) -> TensorSpec:
        if a.dim() != 2 or v.dim() != 1:
            raise RuntimeError(f"vector + matrix @ vector expected, got 1, {a.dim()}, {v.dim()}")
        if a.shape[1] != v.shape[0]:
            raise RuntimeError(
                f"size mismatch, got input ({a.shape[0]}), mat ({a.shape[0]}x{a.shape[1]}), vec "
                f"({v.shape[0]})"
            )
        if a.dtype is not v.dtype:
            raise RuntimeError(
                f"expected scalar type {dt.scalar_name(a.dtype)} but found "
                f"{dt.scalar_name(v.dtype)}"
            )
        return TensorSpec((a.shape[0],), a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor, v: Tensor) -> None:
        column = _native.alias(Tensor, v, (v.shape[0], 1), (v.stride()[0], 1), None)
        result = _native.alias(Tensor, out, (out.shape[0], 1), (1, 1), None)
        slot("gemm")(result, a, column, 1, 0)

    def vjp(b: Any, g: Any, a: Any, v: Any) -> Any:
        return (
            aten.outer(g, conj(v)) if b.needs[0] else None,
            aten.mv(conj(a).t(), g) if b.needs[1] else None,
        )


class Dot(Opaque):
    """The inner product of two vectors."""

    total = True
    schema = "dot(Tensor self, Tensor tensor) -> Tensor"
    out = "out"
    whole = True

    def decompose(a: Tensor, b: Tensor) -> Tensor:
        Dot.meta(a, b)
        return aten.reshape(aten.mm(aten.unsqueeze(a, 0), aten.unsqueeze(b, 1)), ())

    def meta(a: Tensor, b: Tensor) -> TensorSpec:
        if a.dim() != 1 or b.dim() != 1:
            raise RuntimeError(f"1D tensors expected, but got {a.dim()}D and {b.dim()}D tensors")
        if a.dtype is not b.dtype:
            raise RuntimeError(
                "dot : expected both vectors to have same dtype, but found "
                f"{dt.scalar_name(a.dtype)} and {dt.scalar_name(b.dtype)}"
            )
        if a.shape != b.shape:
            raise RuntimeError(
                f"inconsistent tensor size, expected tensor [{a.shape[0]}] and src [{b.shape[0]}] "
                f"to have the same number of elements, but got {a.shape[0]} and {b.shape[0]} "
                "elements respectively"
            )
        return TensorSpec((), a.dtype, a.device)

    def kernel(out: Tensor, a: Tensor, b: Tensor) -> None:
        row = _native.alias(Tensor, a, (1, a.shape[0]), (1, a.stride()[0]), None)
        column = _native.alias(Tensor, b, (b.shape[0], 1), (b.stride()[0], 1), None)
        slot("gemm")(_native.alias(Tensor, out, (1, 1), (1, 1), None), row, column, 1, 0)

    def vjp(b: Any, g: Any, x: Any, y: Any) -> Any:
        return g * conj(y) if b.needs[0] else None, g * conj(x) if b.needs[1] else None


class Outer(Composite):
    """Every product of the elements of two vectors."""

    schema = "outer(Tensor self, Tensor vec2) -> Tensor"
    aliases = ("ger",)
    out = True

    def decompose(self: Tensor, vec2: Tensor) -> Tensor:
        if self.dim() != 1 or vec2.dim() != 1:
            which, t = ("self", self) if self.dim() != 1 else ("vec2", vec2)
            raise RuntimeError(f"outer: Expected 1-D argument {which}, but got {t.dim()}-D")
        return self.reshape(self.shape[0], 1) * vec2


# Where these are active torch drops a batch dimension of one before it chooses; values are the
# same.
_WATCHED = state.DISPATCH | state.TRACE | state.FAKE | state.FUNCTIONALIZE | state.FUNCTORCH


class Matmul(Composite):
    """NumPy's matmul: vectors, matrices, and broadcast batches of matrices."""

    schema = "matmul(Tensor self, Tensor other) -> Tensor"
    out = "out"

    @classmethod
    def fast(cls, op: Any) -> Any:
        """Two matrices are mm, which is also what is recorded."""
        if op.variant != "functional":
            return None
        if aten.mm.fast is None:
            aten.mm._set_fast(slot("fast_of")("mm"))
        return aten.mm.fast

    def decompose(self: Tensor, other: Tensor) -> Tensor:
        return multiply(self, other, None)

    def decompose_out(self: Tensor, other: Tensor, out: Tensor) -> Tensor:
        return multiply(self, other, out)


def multiply(a: Tensor, b: Tensor, out: Any) -> Tensor:
    """The product, by the operator that fits; written to out where one is given."""
    n, m = a.dim(), b.dim()
    if n == 0 or m == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D"
        )
    if n == 1 and m == 1:
        return _into(aten.dot, a, b, out)
    if n == 2 and m == 1:
        return _into(aten.mv, a, b, out)
    if n == 1 and m == 2:
        return _into(aten.mm, a.unsqueeze(0), b, out).squeeze_(0)
    if n == 2 and m == 2:
        return _into(aten.mm, a, b, out)
    if (
        n == 3
        and m == 3
        and (a.shape[0] == 1) != (b.shape[0] == 1)
        and call_bits((a, b), {}, 0) & _WATCHED
    ):
        a, b = (a.squeeze(0), b) if a.shape[0] == 1 else (a, b.squeeze(0))
    return _fold(a, b, out) if _folds(a, b, out is not None) else _batched(a, b, out)


def _into(function: Any, a: Tensor, b: Tensor, out: Any) -> Tensor:
    return function(a, b) if out is None else function(a, b, out=out)


def _folds(a: Tensor, b: Tensor, has_out: bool) -> bool:
    """Whether the batch dimensions join the rows, so that one matrix product does."""
    swap = b.dim() > a.dim()
    big, small = (b.mT, a) if swap else (a, b)
    if big.dim() < 3 or small.dim() > 2:
        return False
    if (
        small.requires_grad and not has_out
    ):  # a batch of gradients for small would be larger than the copy
        return True
    if a.dim() == 2:
        return False
    if not big.numel():
        return True
    strides, sizes = big.stride(), big.shape
    return all(strides[i] == strides[i + 1] * sizes[i + 1] for i in range(big.dim() - 2))


def _fold(a: Tensor, b: Tensor, out: Any) -> Tensor:
    swap = b.dim() > a.dim()
    big, small = (b.mT, a.t() if a.dim() == 2 else a) if swap else (a, b)
    lead = list(big.shape[:-1])
    rows, matrix = _numel(lead), small.dim() == 2
    shape = [*lead, small.shape[1]] if matrix else lead
    flat = big.reshape(rows, big.shape[-1])
    if out is None:
        result = aten._unsafe_view(aten.mm(flat, small) if matrix else aten.mv(flat, small), shape)
        return result.mT.contiguous() if swap and matrix else result
    resize_output(out, shape)
    target = out.reshape([rows, small.shape[1]] if matrix else [rows])
    _into(aten.mm if matrix else aten.mv, flat, small, target)
    return out if target.untyped_storage() is out.untyped_storage() else out.copy_(target)


def _numel(shape: Any) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def _batched(a: Tensor, b: Tensor, out: Any) -> Tensor:
    rows = a.shape[-2] if a.dim() > 1 else 1
    inner = a.shape[-1]
    cols = b.shape[-1] if b.dim() > 1 else 1
    batch = broadcast_shape([a.shape[:-2], b.shape[:-2]])
    count = _numel(batch)
    a2 = a.expand([*batch, rows, inner]).reshape(count, rows, inner)
    if b.dim() == 1:
        b2 = b.expand([*batch, b.shape[0]]).reshape(count, b.shape[0]).unsqueeze(2)
    else:
        b2 = b.expand([*batch, b.shape[-2], cols]).reshape(count, b.shape[-2], cols)
    shape = [*batch]
    if a.dim() > 1:
        shape.append(rows)
    if b.dim() > 1:
        shape.append(cols)
    if out is None:
        return aten._unsafe_view(aten.bmm(a2, b2), shape)
    resize_output(out, shape)
    target = out.reshape([count, rows, cols])
    aten.bmm(a2, b2, out=target)
    same = target.untyped_storage() is out.untyped_storage()
    return out if same else out.copy_(target.view_as(out))


class Linear(Composite):
    """input times weight transposed, plus bias. input (*, in), weight (out, in), bias (out)."""

    schema = "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"
    public = "nn"
    out = "out"

    def samples(s: Any) -> Iterator[Any]:
        yield s.sample(s.tensor((2, 3)), s.tensor((4, 3)), s.tensor((4,)))
        yield s.sample(s.tensor((2, 5, 3)), s.tensor((4, 3)))
        yield s.sample(s.tensor((0, 3)), s.tensor((4, 3)), s.tensor((4,)))
        yield s.sample(s.tensor((2, 2, 2, 3)), s.tensor((4, 3)), s.tensor((4,)))

    def error_samples(s: Any) -> Iterator[Any]:
        yield s.error(
            RuntimeError,
            "mat1 and mat2 shapes cannot be multiplied",
            s.tensor((2, 3)),
            s.tensor((4, 5)),
        )

    def decompose(input: Tensor, weight: Tensor, bias: Any) -> Tensor:
        n = input.dim()
        if bias is None:
            return aten.matmul(input, weight.t())
        if n == 2:
            return aten.addmm(bias, input, weight.t())
        if input._contiguous() and (bias.dim() == 1 or bias.squeeze().dim() == 1) and n:
            flat = input.view(_numel(input.shape[:-1]), input.shape[-1])
            out = aten.addmm(bias, flat, weight.t())
            return out.view([*input.shape[:-1], out.shape[1]])
        return aten.matmul(input, weight.t()) + bias

    def decompose_out(input: Tensor, weight: Tensor, bias: Any, out: Tensor) -> Tensor:
        if input.dim() == 2 and bias is not None:
            return aten.addmm(bias, input, weight.t(), out=out)
        out = aten.matmul(input, weight.t(), out=out)
        return out if bias is None else out.add_(bias)

    @classmethod
    def fast(cls, op: Any) -> Any:
        if op.variant != "functional":
            return None
        f = _native.Fast("linear", 3)
        t, addmm, mm = (getattr(aten, n) for n in ("t", "addmm", "mm"))
        for fn in (t, addmm, mm):
            if fn.fast is None:
                fn._set_fast(slot("fast_of")(fn.__name__))
        if t.fast is None:
            return None
        t.fast.set_parts(mm.fast)
        f.set_parts(addmm.fast, t.fast)
        return f


class ChainMatmul(Composite):
    """The product of several matrices."""

    schema = "chain_matmul(Tensor[] matrices) -> Tensor"
    public = ""
    out = "out"

    def decompose(matrices: Any) -> Tensor:
        if not matrices:
            raise RuntimeError("chain_matmul(): Expected one or more matrices")
        return matrices[0] if len(matrices) == 1 else aten.linalg_multi_dot(matrices)


class LinalgMatmul(Composite):
    """matmul under its name in torch.linalg."""

    schema = "linalg_matmul(Tensor self, Tensor other) -> Tensor"
    public = ""
    out = "out"

    def decompose(self: Tensor, other: Tensor) -> Tensor:
        return aten.matmul(self, other)

    def decompose_out(self: Tensor, other: Tensor, out: Tensor) -> Tensor:
        return aten.matmul(self, other, out=out)
