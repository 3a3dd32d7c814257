"""Functions of the root that are Python around an operator, and the corners of a few operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch

pytestmark = pytest.mark.filterwarnings("ignore:torch.:UserWarning")  # announced once a process
_RNG = np.random.default_rng(3)


def _matrix(*shape: int) -> Any:
    return torch.from_numpy(_RNG.standard_normal(shape))


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, float("inf")])
@pytest.mark.parametrize(
    "mode",
    ["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist",
     "donot_use_mm_for_euclid_dist"],
)  # fmt: skip
def test_cdist_is_the_norm_of_the_differences(p: float, mode: str) -> None:
    a, b = _matrix(2, 30, 3), _matrix(5, 3)
    wanted = np.linalg.norm(a.numpy()[:, :, None] - b.numpy()[None, None], p, axis=-1)
    np.testing.assert_allclose(torch.cdist(a, b, p, mode).numpy(), wanted, rtol=1e-6)


def test_cdist_names_the_mode_that_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="fast is not a valid value for compute_mode"):
        torch.cdist(_matrix(2, 3), _matrix(2, 3), compute_mode="fast")


def test_chain_matmul_takes_its_matrices_one_by_one() -> None:
    a, b, c = _matrix(2, 5), _matrix(5, 3), _matrix(3, 4)
    wanted = a.numpy() @ b.numpy() @ c.numpy()
    out = torch.empty(0, dtype=torch.float64)
    found = torch.chain_matmul(a, b, c)
    np.testing.assert_allclose(found.numpy(), wanted)
    assert torch.chain_matmul(a, b, c, out=out) is out
    np.testing.assert_allclose(out.numpy(), wanted)
    with pytest.raises(RuntimeError, match="Expected one or more matrices"):
        torch.chain_matmul()
    with pytest.raises(TypeError):
        torch.chain_matmul([a, b])


@pytest.mark.parametrize("infos", [False, True])
def test_lu_gives_factors_and_pivots(infos: bool) -> None:
    a = _matrix(2, 4, 4)
    found = torch.lu(a, get_infos=infos)
    p, lower, upper = torch.lu_unpack(*found[:2])
    np.testing.assert_allclose((p @ lower @ upper).numpy(), a.numpy())
    assert len(found) == 2 + infos
    assert torch.equal(a.lu()[1], found[1])
    if infos:
        assert found[2].tolist() == [0, 0]
    out = tuple(torch.empty(0, dtype=t.dtype) for t in found)
    again = torch.lu(a, get_infos=infos, out=out)
    assert all(x is y and torch.equal(x, z) for x, y, z in zip(again, out, found, strict=True))
    singular = torch.lu(torch.zeros(2, 2), get_infos=infos)  # is no error
    assert singular[0].tolist() == [[0, 0], [0, 0]] and (not infos or singular[2].item() == 1)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (12,), 12, ()])
def test_unravel_index_is_the_one_of_numpy(shape: Any) -> None:
    n = int(np.prod(shape))
    places = np.arange(n).reshape(1, n)
    found = torch.unravel_index(torch.from_numpy(places), shape)
    wanted = np.unravel_index(places, shape) if shape != () else ()
    assert [f.tolist() for f in found] == [w.tolist() for w in wanted]


def test_unravel_index_refuses() -> None:
    one = torch.tensor(1)
    for indices, shape, error, words in (
        (torch.tensor(1.0), (2,), TypeError, "integer dtype, but got torch.float32"),
        (torch.tensor(True), (2,), TypeError, "integer dtype, but got torch.bool"),
        (one, 2.5, TypeError, "int or sequence of ints"),
        (one, (2, 1.5), TypeError, "to only contain ints"),
        (one, (2, -2), ValueError, "cannot have negative values"),
    ):
        with pytest.raises(error, match=words):
            torch.unravel_index(indices, shape)
    assert [t.shape for t in torch.unravel_index(torch.zeros(0, dtype=torch.int64), (2, 0))] == [
        (0,),
        (0,),
    ]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (torch.float32, torch.float64, torch.float64),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.int64, torch.float32, torch.float32),
        (torch.complex64, torch.float32, torch.float32),
        (torch.float64, torch.complex64, torch.float64),
    ],
)
def test_dist_is_real_and_of_the_common_type(a: Any, b: Any, wanted: Any) -> None:
    found = torch.dist(torch.ones(4).to(a), torch.zeros(4).to(b))
    assert found.dtype is wanted
    assert found.item() == 2


def test_dist_of_complex_numbers_has_a_gradient() -> None:
    z = torch.tensor([3 + 4j, 0j], dtype=torch.complex128, requires_grad=True)
    torch.dist(z, torch.zeros(2)).backward()
    np.testing.assert_allclose(z.grad.numpy(), [0.6 + 0.8j, 0])
    with pytest.raises(RuntimeError, match="Got Long instead"):
        torch.dist(torch.ones(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))


def test_complex_numbers_are_two_draws_in_the_order_of_memory() -> None:
    def drawn(make: Any) -> np.ndarray:
        torch.manual_seed(5)
        return make().numpy()  # type: ignore[no-any-return]

    pairs = drawn(lambda: torch.rand(6, 2)).astype(np.complex64) @ [1, 1j]
    assert (drawn(lambda: torch.rand(6, dtype=torch.complex64)) == pairs).all()
    like = torch.empty(3, 2, dtype=torch.complex64)
    assert (drawn(lambda: torch.rand_like(like)) == pairs.reshape(3, 2)).all()
    assert (drawn(lambda: like.T.uniform_()) == pairs.reshape(3, 2).T).all()
    normal = drawn(lambda: torch.randn(6, 2)).astype(np.complex64) @ [1, 1j]
    found = drawn(lambda: torch.empty(6, dtype=torch.complex64).normal_(1, 2**0.5))
    np.testing.assert_allclose(found, normal + (1 + 1j), rtol=1e-6)


def test_least_squares_of_batches_that_broadcast() -> None:
    a, b = _matrix(1, 5, 3), _matrix(2, 5, 2)
    found = torch.linalg.lstsq(a, b, driver="gelsd")
    for i in range(2):
        wanted = np.linalg.lstsq(a[0].numpy(), b[i].numpy(), rcond=None)
        np.testing.assert_allclose(found.solution[i].numpy(), wanted[0])
        np.testing.assert_allclose(found.residuals[i].numpy(), wanted[1])
    assert found.rank.shape == (1,)
    assert found.singular_values.shape == (1, 3)
    inputs = a.requires_grad_(), b.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: torch.linalg.lstsq(x, y).solution, inputs)
    with pytest.raises(RuntimeError, match=r"size of tensor a \(4\) must match .* b \(2\)"):
        torch.linalg.lstsq(_matrix(4, 1, 3, 3), _matrix(2, 3, 3))


@pytest.mark.parametrize("shape", [(1, 2, 3), (1,), (3, 1)])
def test_an_extent_of_one_leaves_the_order_of_dimensions_open(shape: Any) -> None:
    t = torch.empty(shape)
    assert len(t.dim_order()) == len(shape)
    with pytest.raises(RuntimeError, match="does not have unique dim order"):
        t.dim_order(ambiguity_check=True)


def test_arrays_are_not_close_to_tensors() -> None:
    with pytest.raises(TypeError, match="No comparison pair"):
        torch.testing.assert_close(np.ones(2, np.float32), torch.ones(2))


def test_names_that_are_not_there_raise_attribute_errors() -> None:
    assert not hasattr(torch.autograd, "profiler_legacy")
    assert torch.linalg.LinAlgError.__name__ == "_LinAlgError"


@pytest.mark.parametrize("name", ["all", "any"])
def test_truth_of_uint8_is_uint8(name: str) -> None:
    x = torch.tensor([[2, 0], [3, 4]], dtype=torch.uint8)
    found = getattr(torch, name)(x, 1)
    assert found.dtype is torch.uint8
    assert found.tolist() == [int(getattr(np, name)(row)) for row in x.numpy()]
    assert getattr(torch, name)(x).dtype is torch.uint8
    with pytest.raises(RuntimeError, match=f"{name} only supports bool tensor for result, got: Lo"):
        getattr(torch, name)(x, out=torch.empty((), dtype=torch.int64))


def test_numbers_of_two_halves_are_converted_part_by_part() -> None:
    for x in (torch.tensor([1 + 2j, -8.5 + 0.25j]), torch.tensor(1.5j)):
        assert x.chalf().dtype is torch.complex32
        assert x.chalf().to(torch.complex64).tolist() == x.tolist()


def test_polynomials_of_degrees_that_no_loop_reaches() -> None:
    n = torch.tensor([1e30, 2e9, 1e9], dtype=torch.float64)
    x = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    t = torch.special.chebyshev_polynomial_t(x, n).tolist()
    assert t[:2] == [0, 1] and t[2] != t[2]
    wide = torch.special.legendre_polynomial_p(torch.tensor(2.0), torch.tensor(513.0))
    assert wide.isnan()  # beyond float32 on the way


def test_gradients_of_analytic_functions_are_conjugated() -> None:
    z = torch.tensor([0.3 + 0.4j, -1.0 + 0.7j], dtype=torch.complex128, requires_grad=True)
    w = torch.tensor([0.1 - 0.9j, 0.6 + 0.2j], dtype=torch.complex128, requires_grad=True)
    for fn in (torch.sigmoid, torch.tanh, torch.sinc):
        assert torch.autograd.gradcheck(fn, (z,)), fn
        assert torch.autograd.gradgradcheck(fn, (z,)), fn
    assert torch.autograd.gradcheck(torch.logaddexp, (z, w))
    found = torch.logaddexp(z, w).detach().numpy()
    exact = np.log(np.exp(z.detach().numpy()) + np.exp(w.detach().numpy()))
    np.testing.assert_allclose(found, exact)
    with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors"):
        z.detach().abs_()
    with pytest.raises(RuntimeError, match="Found dtype Float but expected ComplexDouble"):
        torch.conj_physical(z.detach(), out=torch.empty(2))


def test_integers_are_multiplied_and_added() -> None:
    x = torch.tensor([2, -3])
    assert torch.addcmul(x, x, x, value=3).tolist() == [14, 24]
    with pytest.raises(NotImplementedError, match="\"div_floor_cpu\" not implemented for 'Bool'"):
        torch.floor_divide(x > 0, x > 5)


@pytest.mark.parametrize("d", [2, 3])
def test_fractional_pooling_takes_the_largest_of_windows_that_end_with_the_input(d: int) -> None:
    x = torch.arange(9.0).expand(*(9,) * (d - 1), 9)[None].clone().requires_grad_()
    u = torch.full((1, 1, d), 0.3)
    pool = getattr(torch.nn.functional, f"fractional_max_pool{d}d")
    out, at = pool(x, 3, output_size=4, return_indices=True, _random_samples=u)
    assert out[(0,) * d].tolist() == [2, 4, 6, 8]  # starts 0, 2, 4, 6
    assert (at[(0,) * d] % 9).tolist() == [2, 4, 6, 8]
    out.sum().backward()
    assert x.grad is not None and x.grad.sum() == 4**d


@pytest.mark.parametrize("name", ["abs", "neg", "sgn", "sign", "floor", "round", "frac"])
def test_out_of_unary_functions_that_convert_nothing(name: str) -> None:
    with pytest.raises(RuntimeError, match="Found dtype Double but expected Float"):
        getattr(torch, name)(torch.ones(2), out=torch.empty(2, dtype=torch.float64))


def test_incomplete_gamma_of_large_arguments() -> None:
    a = torch.tensor([4988429.0, 30000.0, 30000.0, 1e12], dtype=torch.float64)
    x = torch.tensor([4988429.0, 29700.0, 30300.0, 1e12 + 1e6], dtype=torch.float64)
    wanted = [0.5000595397372725, 0.04128792, 0.95802683, 0.84134475]
    found = torch.igamma(a, x)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-7)
    np.testing.assert_allclose(found[0].item(), wanted[0], rtol=1e-9)
    np.testing.assert_allclose((found + torch.igammac(a, x)).numpy(), 1)
