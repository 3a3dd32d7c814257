"""Convolutions of complex numbers: three real ones, gradients by the conjugates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F


def _tensor(shape: tuple[int, ...], seed: int) -> Any:
    random = np.random.RandomState(seed)
    return torch.from_numpy(random.randn(*shape) + 1j * random.randn(*shape)).requires_grad_()


@pytest.mark.parametrize("transposed", [False, True])
def test_values_are_those_of_the_sum_over_the_window(transposed: bool) -> None:
    x, w, b = _tensor((1, 1, 4), 0), _tensor((1, 1, 2), 1), _tensor((1,), 2)
    made = (F.conv_transpose1d if transposed else F.conv1d)(x, w, b)
    a, k = x.detach().numpy()[0, 0], w.detach().numpy()[0, 0]
    wanted = np.convolve(a, k) if transposed else np.correlate(a, k.conj(), "valid")
    assert np.allclose(made.detach().numpy()[0, 0], wanted + b.detach().numpy()[0], atol=1e-12)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_first_and_second_gradients(transposed: bool, direct: bool) -> None:
    x, w = _tensor((2, 2, 3, 4), 3), _tensor((2, 2, 2, 2), 4)

    def call(x: Any, w: Any) -> Any:
        if direct:
            args = ([2, 1], [1, 0], [1, 1], transposed, [0, 0], 1)
            return torch.ops.aten.convolution.default(x, w, None, *args)
        named = F.conv_transpose2d if transposed else F.conv2d
        return named(x, w, None, stride=(2, 1), padding=(1, 0))

    assert torch.autograd.gradcheck(call, (x, w))
    assert torch.autograd.gradgradcheck(call, (x, w))
