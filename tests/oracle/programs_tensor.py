"""Programs about tensors: storages and aliases, casts, indexing and assignment, conversions."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


def _said(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def swapaxes(rt: ModuleType) -> Any:
    """Aliases without an entry of their own."""
    x = rt.arange(24.0).reshape(2, 3, 4)
    return [rt.swapaxes(x, 0, 2), x.swapaxes(1, -1), rt.swapdims(x, 0, 1), x.swapdims(0, 2)]


def copy_broadcast(rt: ModuleType) -> Any:
    """`copy_` across dtypes, with broadcasting, into a permuted destination."""
    target = rt.zeros(4, 3).t()
    target.copy_(rt.arange(4, dtype=rt.int64))
    half = rt.zeros(3, 4, dtype=rt.bfloat16).copy_(target * 1.001)
    return [target, half, target.to(rt.bool), half.copy_(target.to(rt.float64) / 3)]


def three_aliases(rt: ModuleType) -> Any:
    """One storage through a view, detach() and .data, while it is written through each."""
    base = rt.arange(6.0)
    row, twin, data = base.view(2, 3)[1], base.detach(), base.data
    row.mul_(10)
    first = base.clone()
    twin[0] = -1
    data.add_(0.5)
    return [first, base, row, twin, data, base._version, twin._version, data._version]


def resize_and_set(rt: ModuleType) -> Any:
    """resize_, set_, and a storage emptied and filled again."""
    x = rt.arange(6.0)
    y = x.view(2, 3)
    x.resize_(2)
    z = rt.empty(0).set_(y.untyped_storage(), 1, (2, 2), (2, 1))
    storage = y.untyped_storage()
    size = storage.nbytes()
    kept = y.clone()
    storage.resize_(0)
    emptied = (storage.nbytes(), storage.size())
    storage.resize_(size)
    y.copy_(kept)
    other = rt.zeros(3).set_(rt.ones(5))
    return [x, y, z, list(emptied), size, other, rt.zeros(2, 3).resize_(3, 2).shape]


def view_dtype(rt: ModuleType) -> Any:
    """The same bytes as another dtype, narrower and wider, and what is refused."""
    x = rt.arange(8, dtype=rt.float32).reshape(2, 4)
    return [
        x.view(rt.int32),
        x.view(rt.int16),
        x.view(rt.float64),
        x.view(rt.uint8).shape,
        _said(lambda: x.t().view(rt.float64)),
        _said(lambda: x[:, :3].view(rt.float64)),
        _said(lambda: rt.tensor(1.0).view(rt.float64)),
    ]


def setitem_forms(rt: ModuleType) -> Any:
    """Assignment through every kind of index."""
    results = []
    for index, value in (
        ((0,), -1), ((slice(1, None), 2), -2.5), ((Ellipsis, -1), 7), ((None, 1), -3),
        ((rt.tensor([0, 2]),), 5), ((slice(None), rt.tensor([1, 3])), -6),
        ((rt.tensor([[True, False, True, False]] * 3),), 9), ((rt.tensor([True, False, True]),), 8),
        ((rt.tensor([0, 2]), rt.tensor([1, 3])), -9), (([0, 1],), 4), ((True,), 3),
        ((slice(0, 0),), 1), ((rt.tensor(1),), 2), ((slice(None, None, 2), slice(1, None, 2)), 11),
    ):  # fmt: skip
        x = rt.arange(12.0).reshape(3, 4)
        x[index] = value
        results.append(x)
    x = rt.zeros(3, 4)
    x[:, 1] = rt.arange(3)
    x[1] = rt.tensor([1, 2, 3, 4])
    x[rt.tensor([0, 2]), 1:3] = rt.ones(2, 2) * 5
    return [*results, x]


def getitem_forms(rt: ModuleType) -> Any:
    """Reading through every kind of index: values, shapes, strides."""
    x = rt.arange(60.0).reshape(3, 4, 5)
    a, b = rt.tensor([0, 2, 1]), rt.tensor([3, 1, 0])
    return [
        x[0], x[-1, ..., 2], x[:, None, 1:3], x[..., ::2], x[a], x[:, b], x[a, b], x[a, :, b],
        x[None, a, None], x[:, a, b], x[x > 30], x[rt.tensor([True, False, True])], x[[0, 2]],
        x[[[0], [2]], [1, 3]], x[True], x[False], x[a, 1:3], x[1:, b], x[:, :, [0, -1]],
        x[rt.tensor(2)], x[a[:, None], b], x[..., None], x[()], x[rt.zeros(0, dtype=rt.int64)],
    ]  # fmt: skip


def index_errors(rt: ModuleType) -> Any:
    """What indexing says when it refuses."""
    x = rt.arange(12.0).reshape(3, 4)
    return [
        _said(lambda: x[5]),
        _said(lambda: x[0, 0, 0]),
        _said(lambda: x[:, -7]),
        _said(lambda: x[rt.tensor([3])]),
        _said(lambda: x[rt.tensor([0.5])]),
        _said(lambda: x[rt.tensor([True, False])]),
        _said(lambda: x[::-1]),
        _said(lambda: x["a"]),
        _said(lambda: x[0.5]),
        _said(lambda: x[rt.tensor([0, 1]), rt.tensor([0, 1, 2])]),
        _said(lambda: x.__setitem__((0,), rt.zeros(3))),
        _said(lambda: rt.tensor(1.0)[0]),
    ]


def to_forms(rt: ModuleType) -> Any:
    """to(), type(), type_as() in their forms; when the very same object comes back."""
    x = rt.randn(2, 3, 4, 5)
    last = x.to(memory_format=rt.channels_last)
    return [
        x.to(rt.float64),
        x.to(rt.float32) is x,
        x.to("cpu") is x,
        x.to("cpu", rt.bfloat16),
        x.to(rt.float32, copy=True) is x,
        x.to(rt.zeros(1, dtype=rt.int32)),
        last,
        last.to(rt.float64),
        last.double(),
        last.clone(),
        last.contiguous(),
        last.contiguous(memory_format=rt.channels_last) is last,
        x.type(rt.float16),
        x.type_as(last) is x,
        x.type(),
        x.expand(2, 2, 3, 4, 5).to(rt.float64),
        x.t().to(rt.float64) if x.dim() == 2 else x.transpose(1, 3).to(rt.float16),
    ]


def casts_at_the_edges(rt: ModuleType) -> Any:
    """Rounding to 16 bits, overflow, NaN, booleans, integers that wrap."""
    x = rt.tensor([0.0, -0.0, 1.00390625, 1.01171875, 65504.0, 65520.0, 3.4e38, 1e-8, float("inf"),
                   float("-inf"), float("nan")])  # fmt: skip
    n = rt.tensor([-1, 0, 1, 255, 256, 2**31, 2**40 + 3])
    return [
        x.to(rt.bfloat16), x.to(rt.float16), x.to(rt.bool), x.to(rt.float64).to(rt.bfloat16),
        n.to(rt.int8), n.to(rt.uint8), n.to(rt.int32), n.to(rt.bool), n.to(rt.float32),
        rt.tensor([0.9, -0.9, 2.5, -2.5]).to(rt.int64), n.to(rt.bfloat16),
    ]  # fmt: skip


def python_values(rt: ModuleType) -> Any:
    """item(), tolist(), bool(), int(), float(), len(), formatting, and their errors."""
    x = rt.tensor([[1.5, 2.0], [3.25, -4.0]])
    return [
        x[0, 0].item(), x.tolist(), bool(rt.tensor(0.0)), int(rt.tensor(3.7)), float(x[1, 0]),
        len(x), f"{x[0, 0]:.3f}", [1, 2, 3][rt.tensor(1)], rt.tensor(True).item(),
        _said(lambda: bool(x)), _said(lambda: x.item()), _said(lambda: len(rt.tensor(1))),
        _said(lambda: int(x)), _said(lambda: [1][rt.tensor(0.0)]),
        _said(lambda: iter(rt.tensor(1))), [t.item() for t in rt.arange(3)],
        2 in rt.arange(3), str(x.shape), repr(x.dtype),
    ]  # fmt: skip


def printed(rt: ModuleType) -> Any:
    """repr of tensors: what users read."""
    samples = [
        rt.arange(6), rt.arange(6.0).reshape(2, 3), rt.tensor(2.5), rt.tensor([]),
        rt.tensor([1e-5, 1.0, 12345.678]), rt.tensor([1e10, 1.0]), rt.tensor([True, False]),
        rt.tensor([float("nan"), float("inf"), -1.0]), rt.zeros(2, 0),
        rt.ones(3, requires_grad=True), rt.ones(2, dtype=rt.float64),
        rt.tensor([1.5, 2], dtype=rt.bfloat16), rt.arange(2000),
        rt.ones(3, requires_grad=True) * 2, rt.zeros(30, 30), rt.tensor([1 + 2j, -0.5j]),
    ]  # fmt: skip
    return [repr(x) for x in samples]


def broadcast_errors(rt: ModuleType) -> Any:
    """What shape mismatches say."""
    a, b = rt.zeros(2, 3), rt.zeros(4, 5)
    return [
        _said(lambda: a + b),
        _said(lambda: a.add_(rt.zeros(2, 2, 3))),
        _said(lambda: a @ b),
        _said(lambda: a.view(7)),
        _said(lambda: a.reshape(-1, 4)),
        _said(lambda: a.t().view(6)),
        _said(lambda: a.expand(3, 3)),
        _said(lambda: a.transpose(0, 2)),
        _said(lambda: a.permute(0, 0)),
        _said(lambda: rt.cat([a, b])),
        _said(lambda: rt.stack([a, b])),
        _said(lambda: rt.mm(a, b)),
        _said(lambda: rt.bmm(a, b)),
        _said(lambda: a.sum(5)),
        _said(lambda: rt.softmax(a, 3)),
        _said(lambda: a.masked_fill(rt.zeros(2, 3), 1)),
        _said(lambda: rt.where(a, a, a)),
        _said(lambda: a.int().div_(2)),
        _said(lambda: rt.zeros(2, dtype=rt.int64).add_(1.5)),
        _said(lambda: rt.add(a, "x")),
        _said(lambda: rt.add(a)),
        _said(lambda: rt.nn.functional.linear(a, b)),
        _said(lambda: rt.einsum("ij,jk->ik", a, b)),
    ]


def einsum_forms(rt: ModuleType) -> Any:
    """Formulas that the database lacks: ellipses, repeated indices, the sublist form."""
    a, b = rt.randn(2, 3, 4), rt.randn(2, 4, 5)
    square = rt.randn(4, 4)
    return [
        rt.einsum("bij,bjk->bik", a, b), rt.einsum("...ij,...jk", a, b), rt.einsum("ii", square),
        rt.einsum("ii->i", square), rt.einsum("ij->ji", square), rt.einsum("bij->", a),
        rt.einsum("i,j", rt.arange(3.0), rt.arange(2.0)), rt.einsum("b i j -> i b j", a),
        rt.einsum(a, [0, 1, 2], b, [0, 2, 3], [0, 1, 3]),
        rt.einsum("bij,bjk,kl->il", a, b, rt.ones(5, 2)),
    ]  # fmt: skip


def interchange(rt: ModuleType) -> Any:
    """NumPy and DLPack without copies: writes are seen on both sides."""
    import numpy as np  # lazy: only this program needs it

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = rt.from_numpy(array)
    x[0, 0] = 50
    array[1, 1] = -7
    y = rt.arange(4.0)
    y.numpy()[2] = 99
    z = rt.from_dlpack(y)
    z[0] = 5
    w = rt.from_numpy(array.T)
    as_array = np.asarray(y)
    return [x, float(array[0, 0]), y, z, w, rt.as_tensor(array), rt.tensor(array),
            str(as_array.dtype), _said(lambda: rt.ones(2, requires_grad=True).numpy())]  # fmt: skip


def memory_formats(rt: ModuleType) -> Any:
    """Strides of pointwise results on channels-last, permuted and expanded operands."""
    x = rt.arange(120.0).reshape(2, 3, 4, 5)
    last = x.contiguous(memory_format=rt.channels_last)
    perm = x.permute(2, 0, 3, 1)
    narrow = rt.ones(3, 1, 1)
    return [
        x + last, last + x, last * 2, last + narrow, narrow + last, rt.exp(perm),
        perm + perm.clone(), rt.where(last > 3, last, x),
        last[:, :, ::2] + 1, x[:, 1:2].expand(2, 3, 4, 5) * 2,
        rt.empty_like(perm).stride(), rt.zeros_like(last).stride(), perm.sum(1), last.mean((2, 3)),
        last.sum(1, keepdim=True), rt.cat([last, last], 1), rt.stack([perm, perm]).stride(),
        rt.zeros_like(x[:, 1:2].expand(2, 3, 4, 5)).stride(), (last > 0).stride(),
    ]  # fmt: skip


def type_promotion(rt: ModuleType) -> Any:
    """result_type and what mixed operands give, scalars and 0-dim tensors included."""
    kinds = (rt.bool, rt.uint8, rt.int8, rt.int32, rt.int64, rt.bfloat16, rt.float16, rt.float32,
             rt.float64)  # fmt: skip
    pairs = [str(rt.promote_types(a, b)).rpartition(".")[2] for a in kinds for b in kinds]
    mixed = [
        str((rt.ones(2, dtype=a) * rt.tensor(1, dtype=b)).dtype).rpartition(".")[2]
        for a in kinds
        for b in kinds
    ]
    scalars = [
        str((rt.ones(2, dtype=a) * s).dtype).rpartition(".")[2]
        for a in kinds
        for s in (True, 2, 1.5)
    ]
    rest = [str(rt.result_type(rt.ones(1, dtype=a), 1.5)).rpartition(".")[2] for a in kinds]
    return [pairs, mixed, scalars, rest, (rt.ones(2, dtype=rt.int32) / 2).dtype]
