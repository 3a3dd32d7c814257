"""Reductions and scans where their results' dtypes, their out= or complex numbers need a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as torch

Z = np.array([[1 + 2j, -0.5 - 1j, 3j], [0.25, -2 + 0.5j, 1 - 1j]])


def complex_tensor() -> torch.Tensor:
    return torch.tensor(Z.tolist(), dtype=torch.complex128)


REAL_RESULTS: dict[str, tuple[Callable[..., Any], Any]] = {
    "vector_norm": (lambda z: torch.linalg.vector_norm(z, 3), (np.abs(Z) ** 3).sum() ** (1 / 3)),
    "norm": (lambda z: z.norm(), np.sqrt((np.abs(Z) ** 2).sum())),
    "var": (lambda z: z.var(1), Z.var(1, ddof=1)),
    "std_mean": (lambda z: torch.std_mean(z, 0)[0], Z.std(0, ddof=1)),
}


@pytest.mark.parametrize("name", REAL_RESULTS)
def test_sizes_of_complex_numbers_are_real(name: str) -> None:
    call, wanted = REAL_RESULTS[name]
    found = call(complex_tensor())
    assert found.dtype is torch.float64
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)
    z = complex_tensor().requires_grad_()
    assert torch.autograd.gradcheck(call, (z,))


COMPLEX: dict[str, tuple[Callable[..., Any], Any]] = {
    "logsumexp": (lambda z: torch.logsumexp(z, 1), np.log(np.exp(Z).sum(1))),
    "logcumsumexp": (lambda z: torch.logcumsumexp(z, 1), np.log(np.exp(Z).cumsum(1))),
    "prod": (lambda z: torch.prod(z, 1), Z.prod(1)),
    "cumprod": (lambda z: torch.cumprod(z, 1), Z.cumprod(1)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_gradients_of_complex_numbers_are_conjugate(name: str) -> None:
    call, wanted = COMPLEX[name]
    np.testing.assert_allclose(call(complex_tensor()).numpy(), wanted, rtol=1e-12)
    z = complex_tensor().requires_grad_()
    assert torch.autograd.gradcheck(call, (z,))


REFUSED: list[tuple[Callable[..., Any], torch.dtype, type[Exception], str]] = [
    (lambda x, o: torch.all(x, 0, out=o), torch.float32, RuntimeError, "all only supports bool"),
    (lambda x, o: torch.amax(x, 0, out=o), torch.float64, RuntimeError, "input and out to match"),
    (lambda x, o: torch.nansum(x, 0, out=o), torch.int64, NotImplementedError, "nansum_cpu"),
    (lambda x, o: torch.nanmean(x, 0, out=o), torch.int64, NotImplementedError, "nansum_cpu"),
    (lambda x, o: torch.logsumexp(x, 0, out=o), torch.int64, RuntimeError, "floating point type"),
    (lambda x, o: torch.msort(x, out=o), torch.float64, RuntimeError, "to have dtype float"),
    (lambda x, o: torch.diff(x, 0, out=o), torch.float64, RuntimeError, "expected scalar_type"),
]


@pytest.mark.parametrize("call, dtype, error, text", REFUSED)
def test_out_of_another_dtype_is_refused(
    call: Callable[..., Any], dtype: torch.dtype, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(torch.rand(3, 4), torch.empty(0, dtype=dtype))


def test_out_of_the_right_number_keeps_its_shape() -> None:
    out = torch.empty(3, 2)
    assert torch.linspace(0, 5, 6, out=out).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert torch.linspace(0, torch.tensor(1.0), 0, out=torch.empty(0, 2)).shape == (0, 2)
    assert torch.logspace(0, 5, 6, base=1, out=out).tolist() == [[1, 1]] * 3


def test_logsumexp_of_integers_is_floating() -> None:
    found = torch.logsumexp(torch.tensor([[0, 1], [2, 3]]), 1)
    assert found.dtype is torch.float32
    np.testing.assert_allclose(found.numpy(), np.log(np.exp([[0, 1], [2, 3]]).sum(1)), rtol=1e-6)


def test_the_norm_of_one_element_is_itself() -> None:
    x = torch.tensor([0.3, 1e-6, -7.0])
    assert torch.linalg.vector_norm(x[:, None], 6, dim=1).tolist() == x.abs().tolist()


def test_order_zero_has_no_gradient() -> None:
    x = torch.rand(3, requires_grad=True)
    count = torch.linalg.vector_norm(x, 0)
    assert torch.autograd.grad(count, x, allow_unused=True) == (None,)


def test_second_gradients_that_are_zero_are_there() -> None:
    x = torch.rand(1, requires_grad=True)
    (g,) = torch.autograd.grad(x.prod(), x, torch.ones((), requires_grad=True), create_graph=True)
    assert torch.autograd.grad(g, x)[0].tolist() == [0]
    x = torch.rand(1, 1, 4, requires_grad=True)
    y = torch.nn.functional.pad(x, (1, 1), mode="reflect")
    (g,) = torch.autograd.grad(y, x, torch.ones_like(y, requires_grad=True), create_graph=True)
    assert not torch.autograd.grad(g.sum(), x)[0].any()


def test_logcumsumexp_twice() -> None:
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: torch.logcumsumexp(x, 0), (x,))


def test_a_long_logcumsumexp_is_off_by_one_rounding() -> None:
    x = torch.tensor(np.random.RandomState(0).randint(-1000, 1000, (2, 1000)) / 111.0)
    wanted = x.logcumsumexp(1)
    found = x.float().logcumsumexp(1)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2.0**-23)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logcumsumexp_of_large_numbers_has_a_gradient_in_16_bits(dtype: torch.dtype) -> None:
    """The result, rounded, has no digits left that tell one number from the next."""
    x = torch.full((5,), 8192.0, dtype=dtype, requires_grad=True)
    (g,) = torch.autograd.grad(x.logcumsumexp(0).sum(), x, create_graph=True)
    shares = [sum(1 / n for n in range(i, 6)) for i in range(1, 6)]  # 1/i of each later result
    np.testing.assert_allclose(g.detach().float().numpy(), shares, rtol=2.0**-8)
    (again,) = torch.autograd.grad(g[0], x)
    squares = sum(1 / n - 1 / n**2 for n in range(1, 6)), -sum(1 / n**2 for n in range(2, 6))
    np.testing.assert_allclose(again[:2].float().numpy(), squares, rtol=2.0**-6)


@pytest.mark.parametrize("order", [-2.1, 2.1])
def test_the_root_of_a_norm_is_that_of_the_power_taken(order: float) -> None:
    """In float32 both are rounded; of exponents that do not fit each other 2,000 units come."""
    x = torch.tensor([1.0, 2.0], dtype=torch.float64) * (1e-15 if order < 0 else 1e15)
    found = torch.linalg.vector_norm(x.float(), order).item()
    assert abs(found / torch.linalg.vector_norm(x, order).item() - 1) < 1e-6


def test_group_norm_and_its_statistics_add_up_before_they_are_rounded() -> None:
    x = torch.tensor([[1.0, 2.5, -0.75]], dtype=torch.bfloat16, requires_grad=True)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        out, mean, rstd = torch.native_group_norm(x, None, None, 1, 3, 1, 1, 1e-5)
        return torch.autograd.grad((out * out.detach()).sum() + mean.sum() + 3 * rstd.sum(), x)[0]

    def wide(x: torch.Tensor) -> torch.Tensor:
        out, mean, rstd = torch.native_group_norm(x, None, None, 1, 3, 1, 1, 1e-5)
        plain = torch.autograd.grad((out * out.detach()).sum(), x, retain_graph=True)[0]
        m, r = mean.detach().double(), rstd.detach().double()
        return plain.double() + 1 / 3 - 3 * r**3 * (x.detach().double() - m) / 3

    np.testing.assert_array_equal(gradient(x).double(), wide(x).to(x.dtype).double())


def test_sum_to_no_dimensions_is_a_sum() -> None:
    x = torch.tensor(True)
    assert x.sum_to_size(()).dtype is torch.int64


def test_weights_are_checked_when_a_graph_runs() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.cov(x, aweights=w)

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    x, w = torch.rand(2, 3), torch.tensor([0.5, 1.0, 2.0])
    np.testing.assert_allclose(compiled(x, w).numpy(), program(x, w).numpy(), rtol=1e-6)
    with pytest.raises(RuntimeError, match="aweights cannot be negative"):
        compiled(x, -w)


def test_histogramdd_of_symbolic_sizes() -> None:
    compiled = torch.compile(
        lambda x: torch.histogramdd(x, [2, 3])[0], backend="aot_eager", dynamic=True
    )
    for n in (4, 7):
        assert compiled(torch.rand(n, 2)).sum() == n


def test_transforms_keep_the_order_of_memory() -> None:
    x = torch.rand(5, 6, 7)
    assert torch.fft.rfft2(x, dim=(1, 0)).stride() == (1, 3, 18)
    assert torch.fft.ihfft2(x, dim=(0, 1)).stride() == (1, 5, 20)
    out = torch.empty(0, dtype=torch.complex64)
    assert torch.fft.ifft(x, dim=1, out=out).stride() == (42, 1, 6)


def test_norms_of_complex_numbers_by_their_largest_have_gradients() -> None:
    z = torch.tensor([[1.1 + 2.3j, 0.7 - 1.9j, 3.3j]], dtype=torch.complex64, requires_grad=True)
    (g,) = torch.autograd.grad(torch.linalg.vector_norm(z, float("inf"), dim=1).sum(), z)
    np.testing.assert_allclose(g.numpy(), [[0, 0, 1j]], atol=1e-6)


def test_the_place_of_a_mode_is_that_of_an_unstable_sort() -> None:
    x = torch.arange(3000) % 3  # as torch's quicksort leaves the last of the zeros
    value, place = torch.mode(x)
    assert value == 0 and place == 2571


def test_the_variance_of_one_complex_variable_is_real() -> None:
    z = torch.tensor([1.1 + 2.3j, 0.7 - 1.9j, 3.3j], requires_grad=True)
    found = torch.cov(z, aweights=torch.tensor([0.3, 0.9, 0.7]))
    (g,) = torch.autograd.grad(found, z, torch.tensor(1j))
    assert found.imag == 0 and g.tolist() == [0, 0, 0]
