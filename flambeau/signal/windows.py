"""Window functions, after F. J. Harris, "On the use of windows for harmonic analysis with the
discrete Fourier transform", Proc. IEEE 66 (1978).

Each returns a vector of M weights whose largest is 1 (for even M of a periodic one: the middle).
`sym` gives the symmetric window that filters use; without it the periodic one for spectra, which is
the symmetric one of M + 1 less its last weight. Types are float32 and float64 (by default the
default dtype); ValueError for others, for M < 0 and for layouts that are not strided.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as torch
from flambeau import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine",
    "general_hamming", "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip

Window = Callable[..., Tensor]


def _checked(window: Window) -> Window:
    """The window with what all of them check."""
    name = window.__name__

    @functools.wraps(window)
    def checked(
        M: int, *, sym: bool = True, dtype: Any = None, layout: Any = torch.strided,
        device: Any = None, requires_grad: bool = False, **shape: Any,
    ) -> Tensor:  # fmt: skip
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if layout is not torch.strided:
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
        options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        return window(M, sym=sym, options=options, **shape)

    return checked


def _line(start: float, end: float, M: int, options: dict[str, Any]) -> Tensor:
    return torch.linspace(start, end, M, **options)


def _periods(M: int, sym: bool) -> float:
    """The distance from the first weight to the one that is equal to it."""
    return M - 1 if sym else M


@_checked
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool, options: Any
) -> Tensor:
    """exp(-|n - center| / tau); `center`, which symmetric windows leave out, is the middle."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if M < 2:
        return torch.ones((M,), **options)
    middle = _periods(M, sym) / 2 if center is None else center
    return torch.exp(-torch.abs(_line(-middle / tau, (M - 1 - middle) / tau, M, options)))


@_checked
def cosine(M: int, *, sym: bool, options: Any) -> Tensor:
    """sin(π (n + 1/2) / N): half a wave."""
    if M < 2:
        return torch.ones((M,), **options)
    step = math.pi / (M if sym else M + 1)
    return torch.sin(_line(step / 2, (M - 0.5) * step, M, options))


@_checked
def gaussian(M: int, *, std: float = 1.0, sym: bool, options: Any) -> Tensor:
    """exp(-(n - middle)² / (2 std²)); `std` in steps."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if M < 2:
        return torch.ones((M,), **options)
    middle, width = -_periods(M, sym) / 2, std * math.sqrt(2)
    return torch.exp(-(_line(middle / width, (middle + M - 1) / width, M, options) ** 2))


@_checked
def kaiser(M: int, *, beta: float = 12.0, sym: bool, options: Any) -> Tensor:
    """I₀(beta √(1 - (2n/N - 1)²)) / I₀(beta)."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M < 2:
        return torch.ones((M,), **options)
    plain = {"dtype": options["dtype"], "device": options["device"]}
    top = torch.tensor(beta, **plain)
    end = beta if sym else -beta + (M - 1) * 2 * beta / M
    at = _line(-beta, end, M, options)
    inner = torch.clamp(beta * beta - at**2, min=0)
    return torch.i0(torch.sqrt(inner)) / torch.i0(top)


@_checked
def bartlett(M: int, *, sym: bool, options: Any) -> Tensor:
    """1 - |2n/N - 1|: a triangle that ends in zeros."""
    if M < 2:
        return torch.ones((M,), **options)
    step = 2 / _periods(M, sym)
    return 1 - torch.abs(_line(-1, -1 + (M - 1) * step, M, options))


@_checked
def general_cosine(M: int, *, a: Iterable[float], sym: bool, options: Any) -> Tensor:
    """Σ (-1)^k a_k cos(2π k n / N)."""
    if M < 2:
        return torch.ones((M,), **options)
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    step = 2 * math.pi / _periods(M, sym)
    at = _line(0, (M - 1) * step, M, options)
    plain = {"dtype": options["dtype"], "device": options["device"]}
    weights = torch.tensor([-v if k & 1 else v for k, v in enumerate(a)], **plain)
    orders = torch.arange(len(weights), **plain)
    return (weights.unsqueeze(-1) * torch.cos(orders.unsqueeze(-1) * at)).sum(0)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(2π n / N)."""
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.54 - 0.46 cos(2π n / N)."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """(1 - cos(2π n / N)) / 2."""
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(2π n / N) + 0.08 cos(4π n / N)."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The minimum four-term window of A. H. Nuttall, IEEE Trans. ASSP 29 (1981)."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)
