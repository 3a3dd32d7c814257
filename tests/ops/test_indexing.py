"""x[...], gather, scatter and kin against NumPy; layouts, order of sums, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch


def both(shape: Any, dtype: Any = np.float32, seed: int = 0) -> tuple[Any, Any]:
    a = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return torch.from_numpy(a.copy()), a


ROW, J = np.array([2, 0, 1]), np.array([[0, 1, -1], [2, -3, 0]])
M, N = np.array([True, False, True, True]), np.random.default_rng(1).random((4, 3)) > 0.4
KEYS: list[Any] = [
    0,
    (1, 2),
    slice(1, 3),
    (slice(None), 1),
    (..., 0),
    (None, 0),
    (0, None, slice(1, None)),
    ROW,
    J,
    (slice(None), ROW),
    (slice(None), J),
    (ROW, ROW),
    (J, ROW),
    (ROW, slice(None), ROW),
    (slice(None), ROW, ROW),
    (0, ROW),
    (ROW, 0),
    (ROW, slice(None), 0),
    (ROW, None),
    (ROW, 1, slice(0, 2)),
    (..., ROW),
    (ROW[:1], J),
    M,
    (M, 0),
    (M, ROW),
    N,
    (N, 0),
    (slice(None), N[0], ROW[:1]),
    (0, N[0] | ~N[0]),
    [0, 1],
    ([0, 1], [1, 2]),
    (slice(None, None, 2), J),
    np.zeros(0, np.int64),
    (slice(None), np.zeros((0, 2), np.int64)),
    np.array(1),
]


def torch_key(k: Any) -> Any:
    if isinstance(k, tuple):
        return tuple(torch_key(x) for x in k)
    return torch.from_numpy(k) if isinstance(k, np.ndarray) else k


def fits(k: Any, a: Any) -> bool:
    try:
        a[k]
    except IndexError:
        return False
    return True


@pytest.mark.parametrize("k", KEYS, ids=range(len(KEYS)))
def test_get_and_set(k: Any) -> None:
    """Values as NumPy's, in plain and permuted layouts; what is set is what is then read."""
    for order in ((0, 1, 2), (2, 0, 1)):
        x, a = both((4, 3, 5))
        x, a = x.permute(order), a.transpose(order)
        if not fits(k, a):
            with pytest.raises(IndexError):
                x[torch_key(k)]
            continue
        assert np.array_equal(x[torch_key(k)].numpy(), a[k])
        value, b = both(a[k].shape, seed=3)
        y, c = x.clone(), a.copy()
        y[torch_key(k)] = 2.5
        c[k] = 2.5
        assert np.array_equal(y.numpy(), c)
        if (
            not isinstance(k, (int, slice))
            and len(set(map(str, np.argwhere(c == 2.5)))) == c[k].size
        ):
            y[torch_key(k)], c[k] = value, b
            assert np.array_equal(y.numpy(), c)


def test_layout_of_results() -> None:
    """Strides as torch's iterator chooses them (recorded)."""
    x = torch.arange(24.0).reshape(2, 3, 4)
    i, pair = torch.tensor([0, 2, 1]), torch.tensor([[0, 1], [2, 0]])
    assert x.transpose(0, 2)[:, i].stride() == (1, 4, 12)
    assert x.permute(2, 0, 1)[:, i[:2] % 2].stride() == (1, 4, 8)
    assert x.permute(1, 2, 0)[i].stride() == (8, 1, 4)
    assert x[0][pair.t()].stride() == (4, 8, 1)
    assert x.permute(1, 2, 0)[i, :, i % 2].stride() == (4, 1)
    assert x.permute(2, 1, 0)[pair].stride() == (12, 6, 1, 3)


def test_sums_run_in_the_order_of_the_indices() -> None:
    """Float32 sums of a place's terms: one after the other, as the indices come."""
    rng = np.random.default_rng(5)
    index, rows = rng.integers(0, 7, 500), rng.standard_normal((500, 33)).astype(np.float32)
    want = np.zeros((7, 33), np.float32)
    for k, r in zip(index, rows, strict=True):
        want[k] += r
    t, r = torch.from_numpy(index), torch.from_numpy(rows)
    zeros = torch.zeros(7, 33)
    assert np.array_equal(zeros.index_add(0, t, r).numpy(), want)
    assert np.array_equal(zeros.index_put((t,), r, accumulate=True).numpy(), want)
    wide = t[:, None].expand(500, 33)
    assert np.array_equal(zeros.scatter_add(0, wide, r).numpy(), want)
    table = torch.zeros(7, 33, requires_grad=True)
    torch.ops.aten.embedding(table, t).backward(r)
    assert np.array_equal(table.grad.numpy(), want)


def test_gather_and_scatter() -> None:
    x, a = both((5, 6))
    for dim in (0, 1):
        n = a.shape[dim]
        index = np.random.default_rng(2).integers(0, n, (4, 5))
        t = torch.from_numpy(index)
        part = a[:, :5] if dim == 0 else a[:4]
        assert np.array_equal(x.gather(dim, t).numpy(), np.take_along_axis(part, index, dim))
        unique = np.argsort(np.random.default_rng(3).random((4, 5)), axis=dim)
        src, b = both((4, 5), seed=4)
        want = a.copy()
        np.put_along_axis(want[:, :5] if dim == 0 else want[:4], unique, b, dim)
        assert np.array_equal(x.scatter(dim, torch.from_numpy(unique), src).numpy(), want)
    for reduce, how in (
        ("sum", np.add),
        ("prod", np.multiply),
        ("amax", np.maximum),
        ("amin", np.minimum),
    ):
        index, (src, b) = np.array([[0, 0, 2, 1], [1, 0, 2, 2]]), both((2, 4), seed=6)
        want = a.copy()
        for r in range(2):
            for c in range(4):
                want[index[r, c], c] = how(want[index[r, c], c], b[r, c])
        got = x.scatter_reduce(0, torch.from_numpy(index), src, reduce)
        assert np.array_equal(got.numpy(), want)


def test_bfloat16_moves_bits() -> None:
    x = torch.randn(6, 5).to(torch.bfloat16)
    i = torch.tensor([3, 0, 3])
    assert x[i].tolist() == [x.tolist()[k] for k in (3, 0, 3)]
    assert torch.cat([x, x[:1]]).tolist() == x.tolist() + x.tolist()[:1]
    assert x.flip(0).tolist() == x.tolist()[::-1]


def test_masks() -> None:
    x, a = both((300, 41))
    m = torch.from_numpy(a > 0.3)
    assert np.array_equal(x[m].numpy(), a[a > 0.3])
    assert np.array_equal(m.nonzero().numpy(), np.argwhere(a > 0.3))
    assert m.nonzero().stride() == (1, int((a > 0.3).sum()))
    assert np.array_equal(x.masked_fill(m, 0).numpy(), np.where(a > 0.3, 0, a))
    y = x.clone()
    y[m] = x[m] * 2
    assert np.array_equal(y.numpy(), np.where(a > 0.3, a * 2, a))
    assert torch.where(m)[1].tolist() == np.nonzero(a > 0.3)[1].tolist()


def test_embedding() -> None:
    table = torch.randn(6, 3, requires_grad=True)
    index = torch.tensor([[1, 2, 1], [0, 5, 1]])
    embed = torch.nn.functional.embedding
    assert torch.equal(embed(index, table), table[index])
    (g,) = torch.autograd.grad(embed(index, table, padding_idx=1).sum(), table)
    assert g.tolist() == [[1] * 3, [0] * 3, [1] * 3, [0] * 3, [0] * 3, [1] * 3]
    (g,) = torch.autograd.grad(embed(index, table, scale_grad_by_freq=True).sum(), table)
    assert g[:3].tolist() == [[1] * 3] * 3
    with pytest.raises(IndexError, match="index out of range in self"):
        embed(torch.tensor([6]), table)


ERRORS: list[tuple[str, type, str]] = [
    (
        "x[1.0]",
        IndexError,
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
        "valid indices (got float)",
    ),
    ("x[0, 0, 0]", IndexError, "too many indices for tensor of dimension 2"),
    ("x[4]", IndexError, "index 4 is out of bounds for dimension 0 with size 4"),
    ("x[::-1]", ValueError, "step must be greater than zero"),
    ("x[i + 5]", IndexError, "index 5 is out of bounds for dimension 0 with size 4"),
    (
        "x[i, i[:2]]",
        IndexError,
        "shape mismatch: indexing tensors could not be broadcast together with shapes [3], [2]",
    ),
    (
        "x.gather(0, i)",
        RuntimeError,
        "Index tensor must have the same number of dimensions as input tensor",
    ),
    (
        "x.index_put_((i,), i)",
        RuntimeError,
        "Index put requires the source and destination dtypes match, got Float for the "
        "destination and Long for the source.",
    ),
    (
        "x.scatter_(1, i[None], x)",
        RuntimeError,
        "unsupported operation: some elements of the input tensor and the written-to tensor "
        "refer to a single memory location. Please clone() the tensor before performing the "
        "operation.",
    ),
    (
        "torch.cat([x, x[0]])",
        RuntimeError,
        "Tensors must have same number of dimensions: got 2 and 1",
    ),
    (
        "torch.stack([x, x[:3]])",
        RuntimeError,
        "stack expects each tensor to be equal size, but got [4, 6] at entry 0 and [3, 6] at "
        "entry 1",
    ),
]


@pytest.mark.parametrize("call, kind, text", ERRORS, ids=[e[0] for e in ERRORS])
def test_errors(call: str, kind: type, text: str) -> None:
    scope = {"torch": torch, "x": torch.arange(24.0).reshape(4, 6), "i": torch.tensor([0, 2, 1])}
    with pytest.raises(kind) as info:
        eval(call, scope)  # the table's own text
    assert str(info.value) == text
