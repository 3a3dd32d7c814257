"""`gradcheck(fast_mode=True)`: one random direction instead of whole Jacobians. How often the
function is called, and the message, are PyTorch 2.13's."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import flambeau as torch
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.autograd.gradcheck import GradcheckError


class Wrong(torch.autograd.Function):
    """A square with five percent too much gradient."""

    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        ctx.save_for_backward(a)
        return a * a

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (a,) = ctx.saved_tensors
        return grads[0] * 2.1 * a


@pytest.mark.parametrize(
    ("check", "fast", "calls"),
    [(gradcheck, False, 42), (gradcheck, True, 4), (gradgradcheck, False, 83),
     (gradgradcheck, True, 7)],
)  # fmt: skip
def test_how_often_the_function_is_called(check: Any, fast: bool, calls: int) -> None:
    count = 0

    def f(a: Any) -> Any:
        nonlocal count
        count += 1
        return a.sin() * a

    x = torch.linspace(0, 1, 20, dtype=torch.double, requires_grad=True)
    assert check(f, (x,), fast_mode=fast)
    assert count == calls


def test_a_wrong_gradient() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.double, requires_grad=True)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(Wrong.apply, (x,), fast_mode=True)
    lines = str(caught.value).split("\n")
    assert lines[0] == "Jacobian mismatch for output 0 with respect to input 0,"
    numerical, analytical = (float(line.partition(":")[2]) for line in lines[1:3])
    assert analytical == pytest.approx(1.05 * numerical, rel=1e-6)
    assert "\n".join(lines[3:-2]) == (
        "\nThe above quantities relating the numerical and analytical jacobians are computed \n"
        "in fast mode. See: https://github.com/pytorch/pytorch/issues/53876 for more background \n"
        "about fast mode. Below, we recompute numerical and analytical jacobians in slow mode:\n\n"
        "Numerical:\n tensor([[2.0000, 0.0000],\n        [0.0000, 4.0000]], dtype=torch.float64)\n"
        "Analytical:\ntensor([[2.1000, 0.0000],\n        [0.0000, 4.2000]], dtype=torch.float64)\n"
    )
    assert lines[-2].startswith("The max per-element difference (slow mode) is: 0.1999999")
    assert not gradcheck(Wrong.apply, (x,), fast_mode=True, raise_exception=False)


def test_a_batching_rule_that_says_no_dimensions() -> None:
    @torch.library.custom_op("fast_gradcheck_tests::twice", mutates_args=())
    def twice(a: torch.Tensor) -> torch.Tensor:
        return a * 2

    twice.register_vmap(lambda info, in_dims, a: 3)
    with pytest.raises(RuntimeError, match=r"^Expected the vmap staticmethod to have two returns"):
        torch.vmap(twice)(torch.ones(2, 3))
    seen = []

    def rule(info: Any, in_dims: Any, a: Any) -> Any:
        seen.append((info.batch_size, info.randomness, in_dims, tuple(a.shape)))
        return a * 2, in_dims[0]

    twice.register_vmap(rule)
    found = torch.vmap(twice, in_dims=1, out_dims=1)(torch.ones(2, 3))
    assert found.tolist() == [[2.0] * 3] * 2
    assert seen == [(3, "error", (1,), (2, 3))]


class WrongForward(torch.autograd.Function):
    """Its rule for tangents is off by half."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2 * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return t * 3 * ctx.saved_tensors[0]


class WrongBackward(WrongForward):
    """Its rule for gradients is."""

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3 * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return t * 2 * ctx.saved_tensors[0]


@pytest.mark.parametrize("fast_mode", [False, True])
def test_forward_mode(fast_mode: bool) -> None:
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    z = torch.rand(3, dtype=torch.complex128, requires_grad=True)
    check = functools.partial(gradcheck, fast_mode=fast_mode)
    assert check(WrongForward.apply, x)
    what = "Jacobian computed with forward mode mismatch for output 0 with respect to input 0"
    for backward in (True, False):
        with pytest.raises(GradcheckError, match=what):
            check(WrongForward.apply, x, check_forward_ad=True, check_backward_ad=backward)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        check(WrongBackward.apply, x, check_forward_ad=True)
    assert check(WrongBackward.apply, x, check_forward_ad=True, check_backward_ad=False)
    assert check(lambda a: (a * a.conj(), a.exp()), z, check_forward_ad=True)
