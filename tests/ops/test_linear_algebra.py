"""Linear algebra where the samples of the declarations do not reach: no matrices, signs and phases,
what out= becomes, second results with gradients, and factorisations put together again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import gradcheck, gradgradcheck

linalg = torch.linalg


def _random(*shape: int, dtype: torch.dtype = torch.float64, grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(11)
    made = torch.randn(shape, generator=generator, dtype=dtype)
    return made.requires_grad_() if grad else made


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0)])
def test_of_no_matrices(shape: tuple[int, ...]) -> None:
    a = torch.zeros(shape, requires_grad=True)
    assert torch.equal(linalg.det(a), torch.ones(shape[:-2]))
    sign, size = linalg.slogdet(a)
    assert torch.equal(sign, torch.ones(shape[:-2])) and not size.any()
    assert linalg.solve(a, torch.zeros((*shape[:-1], 2))).shape == (*shape[:-1], 2)
    assert linalg.eigvals(a).shape == shape[:-1]
    (g,) = torch.autograd.grad(linalg.det(a).sum(), a)
    assert g.shape == a.shape


def test_pivots_of_complex_numbers_are_the_largest_by_parts() -> None:
    a = torch.tensor([[3 + 0j, 1], [2 + 2j, 1]])  # |re| + |im|: 3 against 4; sizes: 3 against 2.8
    _, pivots = linalg.lu_factor(a)
    assert pivots.tolist() == [2, 2]


def test_saved_sets_know_extents_of_one() -> None:
    for n in (1, 4):  # the short way of one element keeps nothing
        x = _random(n, grad=True)
        assert gradcheck(lambda x: linalg.vander(x, N=3), (x,))
    for n in (1, 3):
        a = _random(n, n, grad=True)
        assert gradcheck(linalg.det, (a,)) and gradgradcheck(linalg.det, (a,))
    assert linalg.vander(torch.tensor(3.0), N=3).tolist() == [[1, 3, 9]]


def test_eigh_has_the_gradient_of_the_hermitian_part() -> None:
    a = _random(3, 3, grad=True)
    weights = _random(3, 3)
    (g,) = torch.autograd.grad(linalg.eigvalsh(a), a, _random(3), create_graph=True)
    (again,) = torch.autograd.grad(g, a, weights)
    assert torch.equal(again, again.mT)
    assert gradgradcheck(lambda a: linalg.eigvalsh(a + a.mT), (a,))


@pytest.mark.parametrize("name", ["eigh", "eig", "svd"])
def test_phases_have_no_gradient(name: str) -> None:
    a = _random(3, 3, dtype=torch.complex128, grad=True)
    vectors = getattr(linalg, name)(a)[0 if name == "svd" else 1]
    vectors.abs().sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="up to multiplication by e"):
        vectors.real.sum().backward()


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd"])
def test_residuals_have_gradients(driver: str) -> None:
    a, b = _random(4, 2, grad=True), _random(4, 3, grad=True)
    assert gradcheck(lambda a, b: linalg.lstsq(a, b, driver=driver)[:2], (a, b))
    made = linalg.lstsq(a, b, driver=driver)
    assert made.residuals.requires_grad and made.solution.stride() == (1, 4)


def test_the_copied_coefficients_have_a_gradient() -> None:
    b, a = _random(3, 2, grad=True), _random(3, 3, grad=True)
    a = (a.detach() + 3 * torch.eye(3, dtype=a.dtype)).requires_grad_()
    assert gradcheck(lambda b, a: torch.triangular_solve(b, a), (b, a))


def test_what_out_becomes() -> None:
    spd = torch.eye(3) * 2
    for given, expected in ((torch.empty(0), (3, 1)), (torch.empty(3, 3).mT, (1, 3))):
        assert torch.cholesky(spd, out=given).stride() == expected
    empty = torch.empty(0, 3).as_strided((0, 3), (8, 2))
    assert linalg.eigvals(torch.zeros(0, 3, 3), out=empty.to(torch.complex64)).stride() == (3, 1)
    packed, pivots = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    torch.lu(spd, out=(packed, pivots))
    assert packed.dtype is torch.int64 and packed.tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
    whole = torch.ones(3, dtype=torch.int64)
    for call, text in (
        (torch.linalg.multi_dot, r"multi_dot\(\): expected out tensor to have dtype long int"),
        (lambda v, out: torch.inner(*v, out=out), "output tensor to have dtype Long"),
        (lambda v, out: torch.cross(*v, out=out), "Expected out tensor to have dtype long int"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call([whole, whole], out=torch.empty(0, dtype=torch.float64))


def test_numbers_of_integers_lose_their_fractions() -> None:
    a, v, x = torch.ones(2, 3).long(), torch.ones(3).long(), torch.tensor([7, 8])
    assert torch.addmv(x, a, v, beta=0.6, alpha=2.7).tolist() == [6, 6]
    made = torch.addbmm(x[:, None], a[None], v[None, :, None], beta=1.9, alpha=0.2)
    assert made.tolist() == [[7], [8]]
    yes = torch.tensor([True, False])
    assert torch.addr(torch.zeros(2, 2).bool(), yes, yes).tolist() == [[True, False], [False] * 2]


def test_the_power_zero_keeps_its_place_in_the_graph() -> None:
    a = _random(2, 2, grad=True)
    one = linalg.matrix_power(a, 0)
    (g,) = torch.autograd.grad(one.sum(), a)
    assert torch.equal(one, torch.eye(2, dtype=a.dtype)) and not g.any()


def test_bilinear_of_nothing() -> None:
    f = torch.nn.functional.bilinear
    made = f(torch.zeros(0, 3), torch.zeros(0, 4), torch.ones(5, 3, 4), torch.ones(5))
    assert made.shape == (0, 5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 3, 4)])
def test_reflections_put_together(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = _random(*shape, dtype=dtype)
    packed, tau = torch.geqrf(a)
    n = min(shape[-2:])
    q = linalg.householder_product(packed[..., :n], tau)
    assert torch.allclose(q @ packed[..., :n, :].triu(), a)
    assert torch.allclose(q.mH @ q, torch.eye(n, dtype=dtype).expand(*shape[:-2], n, n))
    other = _random(*shape[:-2], shape[-2], 2, dtype=dtype)
    there = torch.ormqr(packed[..., :n], tau, other)
    assert torch.allclose(torch.ormqr(packed[..., :n], tau, there, True, True), other)
    right = torch.ormqr(packed[..., :n], tau, other.mH, False, True)
    assert torch.allclose(right.mH, there)


def test_reflections_of_complex_numbers_have_gradients() -> None:
    a, tau = _random(3, 2, dtype=torch.complex128, grad=True), _random(2, dtype=torch.complex128)
    c = _random(2, 3, dtype=torch.complex128, grad=True)
    tau.requires_grad_()
    assert gradcheck(linalg.householder_product, (a, tau))
    assert gradcheck(lambda a, tau, c: torch.ormqr(a, tau, c, False, True), (a, tau, c))


def test_gradients_of_reflections_are_those_of_a_graph_bit_for_bit() -> None:
    """A graph is given the gradient in the result's own layout; eager's may have any."""
    a, tau, c = (_random(*s, dtype=torch.complex64) for s in ((7, 7), (7,), (7, 7)))
    for function, inputs in ((linalg.householder_product, (a, tau)), (torch.ormqr, (a, tau, c))):
        found = []
        for run in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
            leaves = [x.clone().requires_grad_() for x in inputs]
            found.append(torch.autograd.grad(run(*leaves), leaves, c.clone()))
        assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


def _two_gradients(function: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = function(*leaves)
    first = torch.autograd.grad(out, leaves, torch.ones_like(out), create_graph=True)
    second = torch.autograd.grad(first, leaves, [x.flip(0) for x in inputs])
    return [g.detach() for g in (*first, *second)]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (linalg.svdvals, [(2, 2)]),
        (lambda a: linalg.matrix_norm(a, "nuc"), [(2, 2)]),
        (lambda a: torch.svd_lowrank(a, 2, 2)[1], [(3, 2)]),
        (lambda a: torch.pca_lowrank(a, 2)[1], [(4, 2)]),
        (torch.ormqr, [(4, 4), (4,), (4, 4)]),
        (linalg.householder_product, [(4, 4), (4,)]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_gradients_of_small_matrices_are_rounded_once(
    function: Any, shapes: list[tuple[int, ...]], dtype: torch.dtype
) -> None:
    """Divided by the gap between two nearly equal singular values, earlier roundings would show."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    inputs = [_random(*shape, dtype=wide).to(dtype) for shape in shapes]
    if shapes == [(2, 2)]:
        inputs = [torch.eye(2, dtype=dtype) + inputs[0] / 64]
    found = []
    for kind in (dtype, wide):
        torch.manual_seed(3)  # the sample of a range; which numbers is of no matter to values
        found.append(_two_gradients(function, [x.to(kind) for x in inputs]))
    for ours, exact in zip(*found, strict=True):
        assert ours.dtype is dtype
        unit = torch.finfo(dtype).eps * exact.abs().max().item()
        assert (ours.to(wide) - exact).abs().max().item() <= unit


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_ldl_solves(dtype: torch.dtype, hermitian: bool, n: int) -> None:
    a = _random(3, n, n, dtype=dtype)
    a = a + (a.mH if hermitian else a.mT)
    a.diagonal(0, -2, -1)[0].zero_()  # the first: blocks of two
    factors, pivots = linalg.ldl_factor(a, hermitian=hermitian) if n > 1 else (a + 1, None)
    if pivots is None:
        factors, pivots = linalg.ldl_factor(a + 1, hermitian=hermitian)
        a = a + 1
    b = _random(n, 2, dtype=dtype)
    x = linalg.ldl_solve(factors, pivots, b, hermitian=hermitian)
    assert torch.allclose(a @ x, b.expand(3, n, 2), atol=1e-9)
    assert not factors.triu(1).any()
    assert n == 1 or int((pivots[0] < 0).sum()) > 0


def test_ldl_has_the_pivots_of_lapack() -> None:
    made = linalg.ldl_factor_ex(torch.tensor([[0.0, 1], [1, 0]]))
    assert made.pivots.tolist() == [-2, -2] and made.LD.tolist() == [[0, 0], [1, 0]]
    assert linalg.ldl_factor_ex(torch.zeros(2, 2)).info.item() == 1
    with pytest.raises(RuntimeError, match="derivative for aten::linalg_ldl_factor_ex"):
        linalg.ldl_factor(_random(2, 2, grad=True))[0].sum().backward()


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (2, 5, 5)])
def test_singular_values_of_a_low_rank(shape: tuple[int, ...]) -> None:
    m, n = shape[-2:]
    a = _random(*shape[:-2], m, 2) @ _random(*shape[:-2], 2, n)
    u, s, v = torch.svd_lowrank(a, q=3)
    assert torch.allclose(u @ (s.unsqueeze(-1) * v.mT), a)
    assert np.allclose(s[..., :2], np.linalg.svd(a.numpy())[1][..., :2])
    moved = a + 3
    u, s, v = torch.pca_lowrank(moved, q=3)
    assert torch.allclose(u @ (s.unsqueeze(-1) * v.mT), moved - moved.mean(-2, True))
    with pytest.raises(ValueError, match="must be non-negative integer and not greater than"):
        torch.pca_lowrank(a, q=20)


def test_a_compiled_least_squares_is_one_graph() -> None:
    a, b = _random(4, 2), _random(4, 3)
    solve = torch.compile(lambda a, b: linalg.lstsq(a, b).solution, fullgraph=True)
    assert torch.equal(solve(a, b), linalg.lstsq(a, b).solution)
