"""Functions of numbers: where results lie, and what they are at infinities and NaN. The expected
values are PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

import flambeau as torch

INF, NAN = math.inf, math.nan


def same(got: torch.Tensor, wanted: list[float]) -> bool:
    """Equal, NaN where NaN is wanted."""
    return all(a == b or (a != a and b != b) for a, b in zip(got.tolist(), wanted, strict=True))


@pytest.mark.parametrize("name", ["deg2rad", "rad2deg", "nan_to_num", "frexp"])
def test_results_that_lie_like_self(name: str) -> None:
    """Strides of dimensions of one element or none are kept, as `empty_like` keeps them."""
    fn = getattr(torch, name)
    for size, stride, kept in (
        ((0, 3, 3), (18, 6, 2), (18, 6, 2)),
        ((1, 3), (7, 1), (7, 1)),
        ((2, 1, 3), (3, 9, 1), (3, 9, 1)),
        ((2, 3), (6, 2), (3, 1)),
    ):
        x = torch.ones(60).as_strided(size, stride)
        for _ in range(4):  # Python twice, then the program in C
            out = fn(x)
            assert (out[0] if name == "frexp" else out).stride() == kept


@pytest.mark.parametrize(("name", "strides"), [("deg2rad", (1, 3)), ("nan_to_num", (1, 1))])
def test_resized_out_lies_as_the_walk_has_it(name: str, strides: tuple[int, ...]) -> None:
    """An out= that is resized is not laid like self: degrees are a product of two operands."""
    x = torch.ones(30).as_strided((3, 1), (1, 7))
    assert getattr(torch, name)(x, out=torch.empty(0)).stride() == strides


def test_power_of_a_number_is_contiguous() -> None:
    """However the exponent lies."""
    x = torch.ones(3, 4).t()
    for _ in range(4):
        assert torch.pow(2.0, x).stride() == (2**x).stride() == (3, 1)
    assert torch.pow(2.0, x, out=torch.empty(0)).stride() == (3, 1)


def test_gradient_of_copysign_is_a_quotient() -> None:
    """NaN where self is infinite, 0 where it is 0."""
    x = torch.tensor([INF, -2.0, 0.0, NAN], requires_grad=True)
    torch.copysign(x, torch.tensor([1.0, 1.0, 1.0, 1.0])).sum().backward()
    assert same(x.grad, [NAN, -1.0, 0.0, NAN])


def test_incomplete_gamma_where_one_argument_is_nan() -> None:
    """The other one decides where it is at an end."""
    a = torch.tensor([INF, NAN, NAN, NAN, 0.0, INF, -1.0])
    x = torch.tensor([NAN, INF, 0.0, 1.0, NAN, 0.0, INF])
    assert same(torch.igamma(a, x), [0.0, 1.0, 0.0, NAN, NAN, 0.0, NAN])
    assert same(torch.igammac(a, x), [1.0, 0.0, 1.0, NAN, NAN, 1.0, NAN])


def test_zeta_at_infinities_and_far_below_zero() -> None:
    """Poles are seen before a NaN; a long walk up to zero is taken many terms at once."""
    s = torch.tensor([2.0, INF, NAN, NAN, INF, 0.5, 1.0])
    q = torch.tensor([INF, -0.5, 0.0, -INF, 1.0, 0.0, NAN])
    assert same(torch.special.zeta(s, q), [NAN, INF, INF, INF, 1.0, NAN, INF])
    far = torch.special.zeta(
        torch.tensor(3.0, dtype=torch.float64), torch.tensor(-200000.25, dtype=torch.float64)
    )
    terms = [1 / (n - 200000.25) ** 3 for n in range(400000)]
    assert math.isclose(far.item(), math.fsum(terms), rel_tol=1e-10)


def test_gradient_of_log_ndtr_far_out() -> None:
    """exp(-x²/2 - log_ndtr(x)) / sqrt(2 pi), which ends where the square does."""
    x = torch.tensor([-1.5, 0.0, 40.0, INF], dtype=torch.float64, requires_grad=True)
    torch.special.log_ndtr(x).sum().backward()
    wanted = [math.exp(-1.125) / math.sqrt(2 * math.pi) / (math.erfc(1.5 / 2**0.5) / 2)]
    wanted += [2 / math.sqrt(2 * math.pi), 0.0, 0.0]
    assert torch.allclose(x.grad, torch.tensor(wanted, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["i1", "i1e"])
def test_bessel_gradients_refuse_16_bits(name: str) -> None:
    """As PyTorch's kernel of them does; in other dtypes they are 1/2 next to 0."""
    fn = getattr(torch.special, name)
    x = torch.tensor([0.5], dtype=torch.float16, requires_grad=True)
    with pytest.raises(
        NotImplementedError, match=f"\"{name}_backward\" not implemented for 'Half'"
    ):
        fn(x).sum().backward()
    x = torch.tensor([0.0, NAN], requires_grad=True)
    fn(x).sum().backward()
    assert x.grad.tolist() == [0.5, 0.5]


def test_long_recurrence_of_one_element() -> None:
    """Laguerre's polynomial of a degree of thousands, by its value at 1 up to degree 3000."""
    before, latest = 1.0, 0.0
    for n in range(2, 3001):
        before, latest = latest, ((2 * n - 2.0) * latest - (n - 1) * before) / n
    x = torch.tensor([1.0, -3.0, 1.0], dtype=torch.float64)
    n = torch.tensor([3000.0, 1e6, 1.0], dtype=torch.float64)
    found = torch.special.laguerre_polynomial_l(x, n)
    assert math.isclose(found[0].item(), latest, rel_tol=1e-10)
    assert same(found[1:], [NAN, 0.0])


def test_parts_name_the_dtype_that_out_must_have() -> None:
    x = torch.ones(2, dtype=torch.float64)
    text = "Expected object of scalar type ComplexDouble but got scalar type ComplexFloat for"
    for fn in (torch.complex, torch.polar):
        with pytest.raises(RuntimeError, match=text):
            fn(x, x, out=torch.empty(2, dtype=torch.complex64))


SIXTEEN = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


@SIXTEEN
@pytest.mark.parametrize(("name", "whole"), [("fmod", math.trunc), ("remainder", math.floor)])
def test_quotient_of_16_bits_just_below_a_whole_number(
    name: str, whole: Callable[[float], int], dtype: torch.dtype
) -> None:
    """The slope is minus the whole part of the quotient, also where 16 bits would round it up."""
    torch.manual_seed(2)
    x, y = (torch.rand(4000).add(0.5).mul(scale).to(dtype) for scale in (40, 1))
    y.requires_grad_()
    getattr(torch, name)(x, y).sum().backward()
    quotients = [a / b for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert y.grad.tolist() == [-whole(q) for q in quotients]
    assert ((x / y.detach()).trunc() != -y.grad).sum() > 10  # so it would be rounded up


@SIXTEEN
def test_correlations_and_angles_of_16_bits_are_rounded_once(dtype: torch.dtype) -> None:
    """Against float64: half a unit of the result; gradients of a few."""
    torch.manual_seed(3)
    unit = torch.finfo(dtype).eps
    for _ in range(20):
        x, y = (torch.randn(4, 6).to(dtype).requires_grad_() for _ in range(2))
        wide = [t.detach().double().requires_grad_() for t in (x, y)]
        for fn in (lambda a, b: torch.corrcoef(a + 0 * b), torch.cosine_similarity):
            near, true = fn(x, y), fn(*wide)
            assert near.dtype is dtype
            assert ((near - true).abs() <= 0.51 * unit * true.abs() + 1e-6).all()
            (got,), (wanted,) = (
                torch.autograd.grad(t[0].sum(), s) for t, s in ((near, [x]), (true, wide[:1]))
            )
            assert (got - wanted).abs().max() <= unit * wanted.abs().max()


def test_two_observations_correlate_without_a_slope() -> None:
    """Every correlation is 1 or -1 there."""
    x = torch.tensor([[1.0, 3.5], [2.0, -7.25], [0.125, 9.0]], dtype=torch.float16)
    x.requires_grad_()
    torch.corrcoef(x)[0].sum().backward()
    assert x.grad.abs().max() <= 1e-6


@SIXTEEN
def test_linear_cross_entropy_of_16_bits_rounds_its_loss_once(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    unit = torch.finfo(dtype).eps
    x, w = torch.randn(5, 8).to(dtype), torch.randn(7, 8).to(dtype)
    target = torch.arange(5)
    loss = torch.nn.functional.linear_cross_entropy(x, w, target)
    logits = torch.nn.functional.linear(x, w)
    true = torch.nn.functional.cross_entropy(logits.double(), target)
    assert loss.dtype is dtype
    assert abs(loss.item() - true.item()) <= 0.51 * unit * true.item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.nn.functional.linear_cross_entropy(x, w, target).dtype is torch.float32


@SIXTEEN
def test_gaussian_loss_of_16_bits_is_rounded_once(dtype: torch.dtype) -> None:
    """The slope of a mean that all elements share is a sum of terms that cancel."""
    torch.manual_seed(7)
    unit = torch.finfo(dtype).eps
    loss = torch.nn.functional.gaussian_nll_loss
    for _ in range(20):
        x, var = torch.randn(50).mul(9).to(dtype), torch.rand(1).add(0.1).to(dtype)
        mean = x.mean().to(dtype).reshape(1).requires_grad_()
        wide = mean.detach().double().requires_grad_()
        near, true = loss(x, mean, var, full=True), loss(x.double(), wide, var.double(), full=True)
        assert near.dtype is dtype
        assert abs(near.item() - true.item()) <= 0.51 * unit * abs(true.item())
        near.backward()
        true.backward()
        assert (mean.grad - wide.grad).abs() <= 0.51 * unit * wide.grad.abs() + 1e-5
