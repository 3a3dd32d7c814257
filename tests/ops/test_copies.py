"""Copies of views, and tensors joined or picked, with `out=`; what they refuse."""

from __future__ import annotations

import pytest

import flambeau as torch


def test_copies_of_several_views_go_into_the_tensors_of_a_list() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    a, b = torch.empty(0), torch.empty(0)
    assert torch.split_with_sizes_copy(x, [1, 2], 1, out=(a, b)) is None
    assert a.tolist() == [[0.0], [3.0]] and b.tolist() == [[1.0, 2.0], [4.0, 5.0]]
    c, d = torch.empty(3), torch.empty(3)
    torch.unbind_copy(x, out=[c, d])
    x.zero_()
    assert c.tolist() == [0.0, 1.0, 2.0] and d.tolist() == [3.0, 4.0, 5.0]
    with pytest.raises(RuntimeError, match="expected an out= argument of size 2, got size 1"):
        torch.unbind_copy(x, out=[c])
    with pytest.raises(RuntimeError, match="to have dtype float, but got long int"):
        torch.unbind_copy(x, out=[c, d.long()])
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.split_copy(x, 1, out=[c, d])  # alone among them, it does not resize
    with pytest.raises(TypeError):
        torch.unbind_copy(x, out=torch.empty(2, 3))


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack", "concat"])
def test_joined_into_another_dtype(name: str) -> None:
    join, x = getattr(torch, name), torch.ones(2)
    wide = join([x, x]).double().zero_()
    assert join([x, x], out=wide) is wide and wide.sum() == 4
    with pytest.raises(TypeError, match="can't be cast to the desired output type Long"):
        join([x, x], out=wide.long())


def test_numbers_that_a_dtype_cannot_hold() -> None:
    mask = torch.tensor([True, False])
    for dtype, value, shown in (
        (torch.int8, 300, "int8_t"), (torch.float16, 1e6, "c10::Half"), (torch.int64, 1j, "int64"),
        (torch.float32, 1j, "float"), (torch.uint8, -0.5, "uint8_t"), (torch.int32, 1e20, "int"),
    ):  # fmt: skip
        x = torch.ones(2, dtype=dtype)
        for v in (value, torch.tensor(value)):
            with pytest.raises(RuntimeError, match=f"to type {shown}.* without overflow"):
                x.masked_fill(mask, v)
    assert torch.ones(2, dtype=torch.uint8).masked_fill(mask, -1).tolist() == [255, 1]
    assert torch.ones(2).masked_fill(mask, float("inf")).tolist() == [float("inf"), 1]
    narrow = torch.ones(2, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="int8_t without overflow"):
        narrow[0] = 300


def test_out_of_what_is_picked() -> None:
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        torch.masked_select(x, x > 1, out=x)
    with pytest.raises(RuntimeError, match="must have the same scalar type"):
        torch.masked_select(x, x > 1, out=torch.empty(0, dtype=torch.int64))
    none = torch.empty_strided((0, 2), (1, 0), dtype=torch.int64)
    assert torch.nonzero(torch.zeros(2, 2), out=none) is none
    with pytest.raises(RuntimeError, match="does not support the out kwarg"):
        torch.nonzero(x, out=none, as_tuple=True)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float"):
        torch.diag(x, out=torch.empty(4, 4, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="diag: result type Float can't be cast"):
        torch.diag(x, out=torch.empty(4, 4, dtype=torch.int64))


def test_coordinates_lie_side_by_side() -> None:
    row, column = torch.unravel_index(torch.tensor([1, 7], dtype=torch.int32), (2, 4))
    assert row.tolist() == [0, 1] and column.tolist() == [1, 3]
    assert row.stride() == (2,) and row.dtype is torch.int64


def test_dimensions_in_memory() -> None:
    for size, order, message in (
        ((2,), (0, 1), "does not match the length"), ((2, 3), (0, 0), "Duplicate dim"),
        ((2, 3), (0, -1), "negative dims not currently supported"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            torch.empty_permuted(size, order)


def test_no_dimension_to_roll() -> None:
    with pytest.raises(IndexError, match="Dimension specified as 0 but tensor has no dimensions"):
        torch.roll(torch.ones(()), 1, 0)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_a_border_s_second_gradient_of_its_input_is_zero(mode: str) -> None:
    x = torch.randn(1, 3, requires_grad=True)
    out = torch.nn.functional.pad(x, (1, 2), mode)
    dot = torch.ones_like(out, requires_grad=True)
    (g,) = torch.autograd.grad(out, x, dot, create_graph=True)
    assert torch.autograd.grad(g.sum(), x)[0].tolist() == [[0.0, 0.0, 0.0]]


def test_functions_that_write() -> None:
    x = torch.ones(3)
    assert torch.zero_(x) is x and x.sum() == 0
    assert torch.put(x, torch.tensor([1]), torch.tensor([2.0])).tolist() == [0.0, 2.0, 0.0]
    for name in ("put_", "zero"):
        assert not hasattr(torch, name)


def test_complex_slices_scaled_down() -> None:
    x = torch.tensor([[3 + 4j, 0], [0.3j, 0.4]], dtype=torch.complex128, requires_grad=True)
    out = torch.renorm(x, 2, 0, 1.0)
    assert torch.allclose(out, torch.tensor([[0.6 + 0.8j, 0], [0.3j, 0.4]]).to(out.dtype))
    assert torch.autograd.gradcheck(lambda t: torch.renorm(t, 2, 0, 1.0), x)
    whole = (x.detach() + 1j).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: torch.renorm(t, 3, 1, 0.2), whole)
