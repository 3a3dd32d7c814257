"""Views: geometry as PyTorch 2.13 has it, live aliases, and in-place changes under autograd."""

from __future__ import annotations

import random
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.ops import indexing


def grid(*shape: int) -> Any:
    n = 1
    for s in shape:
        n *= s
    return torch.arange(float(n)).reshape(shape)


# (call, shape, strides, offset), recorded from PyTorch
GEOMETRY: list[tuple[str, tuple[int, ...], tuple[int, ...], int]] = [
    ("torch.tensor(1.).expand(2, 1)", (2, 1), (0, 0), 0),
    ("grid(3).expand(1, 1, 3)", (1, 1, 3), (3, 3, 1), 0),
    ("grid(3).expand(1, 2, 3)", (1, 2, 3), (0, 0, 1), 0),
    ("grid(0, 3).expand(1, 1, 0, 3)", (1, 1, 0, 3), (0, 0, 3, 1), 0),
    ("torch.as_strided(grid(8), (4, 1), (1, 7)).view(4, 1)", (4, 1), (1, 7), 0),
    ("torch.as_strided(grid(8), (4, 1), (1, 7)).reshape(2, 2, 1)", (2, 2, 1), (2, 1, 7), 0),
    ("grid(4, 6)[:, ::2].reshape(4, 3)", (4, 3), (6, 2), 0),
    ("grid(4, 6).t()[1:, 2]", (5,), (1,), 13),
    ("grid(4, 6).diagonal(-1)", (3,), (7,), 6),
    ("grid(4, 6).unfold(1, 3, 2)", (4, 2, 3), (6, 2, 1), 0),
    ("grid(2, 3, 4).movedim((0, 1), (2, 0))", (3, 4, 2), (4, 1, 12), 0),
    ("grid(4, 6)[None, 1, ..., None]", (1, 6, 1), (24, 1, 1), 6),
    ("grid(2, 4).view(torch.float64)", (2, 2), (2, 1), 0),
    ("grid(2, 4).view(torch.int16)", (2, 8), (8, 1), 0),
]


@pytest.mark.parametrize("call, shape, stride, offset", GEOMETRY, ids=[g[0] for g in GEOMETRY])
def test_geometry(call: str, shape: Any, stride: Any, offset: int) -> None:
    t = eval(call)  # the table's own text
    assert (tuple(t.shape), t.stride(), t.storage_offset()) == (shape, stride, offset)


ERRORS: list[tuple[str, type, str]] = [
    ("grid(2, 3).view(4)", RuntimeError, "shape '[4]' is invalid for input of size 6"),
    ("grid(2, 3).view(-1, -1)", RuntimeError, "only one dimension can be inferred"),
    (
        "grid(2, 3).expand(4, 3)",
        RuntimeError,
        "The expanded size of the tensor (4) must match the existing size (2) at non-singleton "
        "dimension 0.  Target sizes: [4, 3].  Tensor sizes: [2, 3]",
    ),
    (
        "grid(2, 3).select(0, 2)",
        IndexError,
        "select(): index 2 out of range for tensor of size [2, 3] at dimension 0",
    ),
    (
        "grid(2, 3).narrow(0, 1, 2)",
        RuntimeError,
        "start (1) + length (2) exceeds dimension size (2).",
    ),
    (
        "grid(2, 3).flatten(1, 0)",
        RuntimeError,
        "flatten() has invalid args: start_dim cannot come after end_dim",
    ),
    (
        "grid(2, 3).unflatten(1, (2, 2))",
        RuntimeError,
        "unflatten: Provided sizes [2, 2] don't multiply up to the size of dim 1 (3) in the "
        "input tensor",
    ),
    (
        "grid(2, 3).split([1, 2])",
        RuntimeError,
        "split_with_sizes expects split_sizes to sum exactly to 2 (input tensor's size at "
        "dimension 0), but got split_sizes=[1, 2]",
    ),
    (
        "grid(2, 3).as_strided((7,), (1,))",
        RuntimeError,
        "setStorage: sizes [7], strides [1], storage offset 0, and itemsize 4 requiring a "
        "storage size of 28 are out of bounds for storage of size 24",
    ),
]


@pytest.mark.parametrize("call, kind, text", ERRORS, ids=[e[0] for e in ERRORS])
def test_errors(call: str, kind: type, text: str) -> None:
    with pytest.raises(kind) as info:
        eval(call)  # the table's own text
    assert str(info.value) == text


def test_c_and_python_agree() -> None:
    """What C makes of basic indices is what Python makes of them, recorded alike."""
    keys = (0, -1, (0, 1), slice(1, None), slice(None, None, 2), None, ..., (..., 1), (None, 2),
            (slice(1, 3), 0), (0, slice(-2, None)), (slice(None), slice(None)), ())  # fmt: skip
    for key in keys:
        for x in (grid(3, 4, 2), grid(2, 4, 3).permute(2, 1, 0), grid(3, 4, 2).requires_grad_()):
            a, b = x[key], indexing.getitem(x, key)
            assert (a.shape, a.stride(), a.storage_offset()) == (
                b.shape,
                b.stride(),
                b.storage_offset(),
            )
            assert a.tolist() == b.tolist() and a._base is b._base
            assert type(a.grad_fn).__name__ == type(b.grad_fn).__name__
            if x.requires_grad:
                (ga,), (gb,) = torch.autograd.grad(a.sum(), x), torch.autograd.grad(b.sum(), x)
                assert ga.tolist() == gb.tolist()


def random_key(rng: random.Random, nd: int) -> tuple[Any, ...]:
    """A key of integers, slices, None and at most one Ellipsis, not always a valid one."""
    parts: list[Any] = []
    for _ in range(rng.randint(0, nd + 1)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(rng.randint(-3, 3))
        elif kind < 0.8:
            ends = (None, -4, -1, 0, 1, 2, 9)
            parts.append(slice(rng.choice(ends), rng.choice(ends), rng.choice((None, 1, 2))))
        elif kind < 0.9 or Ellipsis in parts:
            parts.append(None)
        else:
            parts.append(Ellipsis)
    return tuple(parts)


def outcome(run: Any) -> Any:
    """Geometry and values of what run returns, or its error."""
    try:
        t = run()
    except (IndexError, RuntimeError) as error:
        return type(error), str(error)
    return t.shape, t.stride(), t.storage_offset(), t.tolist(), type(t.grad_fn).__name__


def test_c_and_python_agree_at_random() -> None:
    """Reading, writing and rows by a tensor: the C paths against the Python ones."""
    rng = random.Random(11)
    for round_ in range(600):
        shape = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randint(0, 4))]
        x = torch.randn(shape)
        order = list(range(len(shape)))
        rng.shuffle(order)
        x = x.permute(order).requires_grad_(round_ % 3 == 0)
        key = random_key(rng, len(shape))
        read = outcome(lambda x=x, key=key: x[key])
        assert read == outcome(lambda x=x, key=key: indexing.getitem(x, key)), (shape, key)
        a, b = x.detach().clone(), x.detach().clone()
        value = rng.choice((1.5, 2, torch.randn(read[0]) if len(read) > 2 else 0.0))

        def assign(t: Any, put: Any, key: Any = key, value: Any = value) -> Any:
            put(t, key, value)
            return t

        wrote = outcome(lambda a=a: assign(a, torch.Tensor.__setitem__))
        assert wrote == outcome(lambda b=b: assign(b, indexing.setitem)), (shape, key, value)
        assert len(wrote) == 2 or a._version == b._version
        if shape:
            rows = torch.tensor([rng.randint(-2, 2) for _ in range(rng.randint(0, 3))]).long()
            got = outcome(lambda x=x, rows=rows: x[rows])
            assert got == outcome(lambda x=x, rows=rows: indexing.getitem(x, rows)), shape


def test_three_live_aliases() -> None:
    """Resizing the storage under live views: all see the new bytes, none moves."""
    x = grid(6)
    view, detached = x.view(2, 3), x.detach()
    x.resize_(8)
    x[5] = 50.0
    assert view[1, 2].item() == detached[5].item() == 50.0
    assert x.untyped_storage().nbytes() == 32 and x._version == view._version
    x.untyped_storage().resize_(0)
    assert view.shape == (2, 3) and detached.untyped_storage().nbytes() == 0
    x.untyped_storage().resize_(32)
    x.copy_(grid(8))
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]] and detached.tolist() == [0, 1, 2, 3, 4, 5]
    other = grid(3)
    x.set_(other)
    other[0] = 7.0
    assert x.tolist() == [7, 1, 2] and view.tolist() == [[0, 1, 2], [3, 4, 5]]


# Programs that change views of y = x * 1 in place; then the gradients of (y * weights).sum() for x
# and v, recorded from PyTorch.
INPLACE: list[tuple[str, list[list[float]], list[float] | None]] = [
    ("y[0].mul_(2)", [[2, 4, 6], [4, 5, 6]], None),
    ("y.view(-1)[2:4].add_(v[0])", [[1, 2, 3], [4, 5, 6]], [7, 0, 0]),
    ("y[0][1:3].mul_(v[:2])", [[1, 2, 6], [4, 5, 6]], [2, 6, 0]),
    ("q = y[0]; y.mul_(2); y = torch.stack([q, q])", [[10, 14, 18], [0, 0, 0]], None),
    ("q = y.view(-1); y[1].copy_(v); y = q.view(2, 3)", [[1, 2, 3], [0, 0, 0]], [4, 5, 6]),
    ("y.t()[0].zero_()", [[0, 2, 3], [0, 5, 6]], None),
    ("y = y.t(); y[2].mul_(3); y = y.t()", [[1, 2, 9], [4, 5, 18]], None),
    ("y[:, 1] = v[:2]", [[1, 0, 3], [4, 0, 6]], [2, 5, 0]),
    ("y[y > 3] = 0.", [[1, 2, 3], [4, 0, 0]], None),
    ("y[0] += y[1]", [[1, 2, 3], [5, 7, 9]], None),
    ("y.as_strided((2,), (2,), 1).mul_(5)", [[1, 10, 3], [20, 5, 6]], None),
    ("y.t_(); y = y * 1; y = y.t()", [[1, 2, 3], [4, 5, 6]], None),
]


@pytest.mark.parametrize("program, gx, gv", INPLACE, ids=[p[0] for p in INPLACE])
def test_inplace_on_views(program: str, gx: Any, gv: Any) -> None:
    x, v = grid(2, 3).requires_grad_(), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    scope = {"torch": torch, "v": v, "y": x * 1}
    exec(program, scope)  # the table's own text
    weights = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    (scope["y"] * weights).sum().backward()
    assert x.grad.tolist() == gx
    assert (v.grad.tolist() if v.grad is not None else None) == gv


def test_retained_graph_through_changed_views() -> None:
    x = grid(2, 3).requires_grad_()
    y = x * x
    y[0].mul_(y[1].detach().clone())
    total = (y * y).sum()
    total.backward(retain_graph=True)
    first = x.grad.clone()
    total.backward()
    assert x.grad.tolist() == (first * 2).tolist()


def test_refusals() -> None:
    x = grid(2, 3).requires_grad_()
    y = x * 1
    with pytest.raises(
        RuntimeError, match="Output 1 of Unbind is a view and is being modified inplace"
    ):
        y.unbind()[1].mul_(2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.mul_(2)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0].mul_(2)
    with torch.no_grad():
        v = y[0]
    assert v.requires_grad and v.is_leaf
    with pytest.raises(
        RuntimeError, match="A view was created in no_grad mode and is being modified"
    ):
        v.mul_(2)
