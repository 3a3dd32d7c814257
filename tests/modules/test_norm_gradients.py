"""Second gradients of the norms and of gelu: against differences and NumPy; what is refused."""

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F


def _inputs(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]


def test_layer_norm_twice() -> None:
    x, w, b = _inputs((3, 5), (5,), (5,))
    assert torch.autograd.gradgradcheck(lambda *t: F.layer_norm(t[0], (5,), *t[1:]), (x, w, b))
    assert torch.autograd.gradgradcheck(lambda t: F.layer_norm(t, (3, 5)), (x,))
    assert torch.autograd.gradgradcheck(lambda t, w: F.layer_norm(t, (5,), w), (x, w))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(2, 3), (6, 3), (4, 3, 2), (2, 3, 2, 2)])
def test_batch_norm_twice(training: bool, shape: tuple[int, ...]) -> None:
    x, w, b = _inputs(shape, (3,), (3,))
    mean = torch.randn(3, dtype=torch.float64)
    var = torch.rand(3, dtype=torch.float64) + 0.5

    def run(*t: torch.Tensor) -> torch.Tensor:
        weights = t[1:] or (None, None)
        # 0.1 keeps the gradient of two cells from vanishing
        return F.batch_norm(t[0], mean.clone(), var.clone(), *weights, training, eps=0.1)

    for given in ((x, w, b), (x,)):
        assert torch.autograd.gradcheck(run, given)
        assert torch.autograd.gradgradcheck(run, given)


def test_batch_norm_channels_last_and_strided() -> None:
    (x,) = _inputs((4, 3, 5, 6))
    w, b = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    g = torch.randn(4, 3, 5, 6, dtype=torch.float64)
    wanted = None
    for layout in (
        lambda t: t,
        lambda t: t.contiguous(memory_format=torch.channels_last),
        lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
    ):
        leaf = layout(x.detach()).requires_grad_()
        y = F.batch_norm(leaf, None, None, w, b, True)
        (got,) = torch.autograd.grad(y, leaf, layout(g))
        got = (y.detach().numpy(), got.numpy())
        wanted = wanted or got
        for a, c in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, c, rtol=1e-12, atol=1e-12)


def test_bias_without_weight_is_refused() -> None:
    x, b = _inputs((2, 3), (3,))
    y = torch.native_layer_norm(x, (3,), None, b, 1e-5)[0]
    g = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    gx, gb = torch.autograd.grad(y, (x, b), g, create_graph=True)
    with pytest.raises(RuntimeError, match="Expected a proper Tensor but got None"):
        torch.autograd.grad((gx, gb), (x, g), (torch.ones(2, 3), torch.ones(3)), retain_graph=True)
    assert torch.autograd.grad(gx, x, torch.ones(2, 3, dtype=torch.float64))[0].shape == (2, 3)


def test_legit_batch_norm() -> None:
    x = torch.randn(4, 3)
    runs = []
    for name in ("native_batch_norm", "_native_batch_norm_legit"):
        mean, var = torch.zeros(3), torch.ones(3)
        outs = getattr(torch, name)(x, None, None, mean, var, True, 0.1, 1e-5)
        assert mean._version == var._version == 0  # as in torch, whatever the schema says
        runs.append([t.numpy() for t in (*outs, mean, var)])
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)
    bare = torch._native_batch_norm_legit(x, None, None, True, 0.1, 1e-5)
    np.testing.assert_array_equal(bare[0].numpy(), runs[0][0])
    with pytest.raises(RuntimeError, match="TensorAccessor expected 1 dims but tensor has 2"):
        torch.native_batch_norm(
            x, None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5,
            out=(torch.empty(4, 3), torch.empty(3, 1), torch.empty(3, 1)),
        )  # fmt: skip


def test_empty_batch_norm() -> None:
    for shape in ((0,), (0, 3), (4, 3, 0)):
        x = torch.randn(*shape, requires_grad=True)
        y = F.batch_norm(x, torch.zeros(3), torch.ones(3), torch.ones(3), None, training=False)
        assert y.shape == shape
        y.sum().backward()
        assert x.grad.shape == shape
    with pytest.raises(RuntimeError, match="input tensor must have at least one element"):
        torch.native_batch_norm(torch.randn(0, 3), None, None, None, None, True, 0.1, 1e-5)


def test_gelu_in_the_tails() -> None:
    """The tanh form, its slope and its curvature in float32, against long double."""
    a = np.linspace(-7, 7, 2001).astype(np.float32)
    x, r = a.astype(np.longdouble), np.sqrt(2 / np.longdouble(np.pi))
    u, du = r * (x + 0.044715 * x**3), r * (1 + 3 * 0.044715 * x**2)
    half, s = 1 / (1 + np.exp(-2 * u)), 1 / np.cosh(u) ** 2
    slope = half + x * s * du / 2
    curve = s * (du + x * (3 * 0.044715 * r * x - np.tanh(u) * du * du))
    t = torch.from_numpy(a.copy()).requires_grad_()
    y = F.gelu(t, approximate="tanh")
    (g,) = torch.autograd.grad(y.sum(), t, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), t)
    for got, wanted in ((y, x * half), (g, slope), (h, curve)):
        assert np.abs(got.detach().numpy() - wanted).max() < 6e-7
    low = a < -3  # relative here, where 1 + tanh(u) would have cancelled
    assert np.abs(y.detach().numpy()[low] / (x * half)[low] - 1).max() < 3e-5


def test_division_of_16_bits_rounds_before_it_truncates() -> None:
    a, b = torch.randn(4000).bfloat16() * 8, torch.randn(4000).bfloat16()
    once = (a.float() / b.float()).bfloat16().trunc()
    assert torch.equal(torch.div(a, b, rounding_mode="trunc"), once)
    one = torch.div(a, b[:1], rounding_mode="trunc")
    assert torch.equal(one, (a.float() / b[:1].float()).trunc().bfloat16())
