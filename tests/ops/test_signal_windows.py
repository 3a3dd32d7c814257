"""torch.signal.windows against SciPy's."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.signal import windows as reference

import flambeau as torch
from flambeau.signal import windows

ARGUMENTS: dict[str, dict[str, Any]] = {
    "exponential": {"tau": 2.5}, "gaussian": {"std": 1.7}, "kaiser": {"beta": 5.0},
    "general_cosine": {"a": [0.3, 0.5, 0.2]}, "general_hamming": {"alpha": 0.6},
}  # fmt: skip


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("M", [0, 1, 2, 9, 16])
@pytest.mark.parametrize("name", windows.__all__)
def test_a_window_is_the_one_of_scipy(name: str, M: int, sym: bool) -> None:
    given = ARGUMENTS.get(name, {})
    wanted = getattr(reference, name)(M, sym=sym, **given)
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 3e-6)):
        found = getattr(windows, name)(M, sym=sym, dtype=dtype, **given)
        assert found.dtype is dtype
        assert found.tolist() == pytest.approx(wanted.tolist(), abs=bound)


@pytest.mark.parametrize("name", windows.__all__)
def test_a_window_is_part_of_a_graph(name: str) -> None:
    """The oracle compiles calls with tensors alone; these have none."""
    window, given = getattr(windows, name), ARGUMENTS.get(name, {})

    def weighted(x: torch.Tensor, M: int) -> torch.Tensor:
        return x * window(M, **given)

    torch.compiler.reset()
    compiled = torch.compile(weighted, fullgraph=True, dynamic=True)
    for M in (7, 16, 33):
        x = torch.ones(M)
        torch.testing.assert_close(compiled(x, M), weighted(x, M), rtol=0, atol=2.0**-22)


def test_a_steep_kaiser_window_overflows_where_pytorch_s_does() -> None:
    """I0 is made of exp(x), which no float32 holds from 88.73 on."""
    assert torch.i0(torch.tensor([88.72, 88.73, -89.0])).isinf().tolist() == [False, True, True]
    assert torch.i0(torch.tensor(89.0, dtype=torch.float64)).isfinite()
    window = windows.kaiser(256, beta=100)
    middle = window.isnan().nonzero().flatten().tolist()
    assert middle == list(range(middle[0], 256 - middle[0]))
    assert middle[0] == 69
    assert not window[:69].any()


def test_the_center_of_a_periodic_exponential() -> None:
    wanted = reference.exponential(5, center=1.0, tau=2.0, sym=False)
    found = windows.exponential(5, center=1.0, tau=2.0, sym=False, dtype=torch.float64)
    assert found.tolist() == pytest.approx(wanted.tolist())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: windows.hann(-1), ValueError, "non-negative window length, got M=-1"),
        (lambda: windows.cosine(3, dtype=torch.int64), ValueError, "cosine expects float32 or"),
        (lambda: windows.kaiser(1, beta=-1), ValueError, "beta must be non-negative"),
        (lambda: windows.gaussian(0, std=0), ValueError, "must be positive, got: 0"),
        (lambda: windows.exponential(3, tau=0), ValueError, "Tau must be positive"),
        (lambda: windows.exponential(3, center=1.0), ValueError, "None for symmetric windows"),
        (lambda: windows.general_cosine(3, a=[]), ValueError, "cannot be empty"),
        (lambda: windows.general_cosine(3, a=3), TypeError, "must be a list/tuple"),
        (lambda: windows.hann(3, layout=torch.sparse_coo), ValueError, "strided tensors only"),
    ],
)
def test_what_a_window_refuses(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_window_takes_the_default_dtype_and_may_require_gradients() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert windows.blackman(4).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert windows.gaussian(4, requires_grad=True).requires_grad


def test_a_generator_that_goes_on_is_returned() -> None:
    generator = torch.Generator()
    assert generator.set_state(torch.Generator().get_state()) is generator
