"""torch.masked against NumPy's masked arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import flambeau as torch
from flambeau import masked

X = torch.tensor([[1.5, -2.0, 4.0, 0.5], [3.0, 2.5, -1.0, 7.0]], dtype=torch.float64)
MASK = torch.tensor([[True, False, True, True], [False, True, True, False]])
MA = numpy.ma.array(X.numpy(), mask=~MASK.numpy())


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("sum", MA.sum), ("prod", MA.prod), ("amax", MA.max), ("amin", MA.min),
        ("mean", MA.mean), ("var", lambda axis: MA.var(axis, ddof=1)),
        ("std", lambda axis: MA.std(axis, ddof=1)),
        ("norm", lambda axis: numpy.sqrt((MA * MA).sum(axis))),
        ("logsumexp", lambda axis: numpy.log(numpy.exp(MA).sum(axis))),
    ],
)  # fmt: skip
def test_a_reduction_is_that_of_what_counts(
    name: str, reference: Callable[..., Any], dim: Any
) -> None:
    kw: dict[str, Any] = {"dim": dim, "mask": MASK}
    found = getattr(masked, name)(X, **kw)
    wanted = reference(dim)
    # one element has no variance: NumPy masks it, torch divides 0 by 0
    wanted = wanted.filled(numpy.nan) if isinstance(wanted, numpy.ma.MaskedArray) else wanted
    numpy.testing.assert_allclose(found.numpy(), wanted, rtol=1e-14)
    assert getattr(masked, name)(X, keepdim=True, **kw).ndim == 2


def test_positions_medians_and_scans() -> None:
    assert masked.argmax(X, 1, mask=MASK, dtype=torch.int64).tolist() == [2, 1]
    assert masked.argmin(X, 1, mask=MASK).tolist() == [3.0, 2.0]  # torch: in the input's dtype
    assert masked.argmax(X, mask=MASK, dtype=torch.int64).item() == 2
    assert masked.median(X, 1, mask=MASK).tolist() == [1.5, -1.0]
    assert masked.cumsum(X, 1, mask=MASK)[0].tolist() == [1.5, 1.5, 5.5, 6.0]
    assert masked.cumprod(X, 1, mask=MASK)[0].tolist() == [1.5, 1.5, 6.0, 3.0]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_a_softmax_gives_nothing_to_what_is_masked_out(name: str) -> None:
    sign = -1 if name == "softmin" else 1
    e = numpy.exp(sign * MA)
    wanted = (e / e.sum(1, keepdims=True)).filled(0)
    found = getattr(masked, name)(X, 1, mask=MASK)
    found = found.exp() if name == "log_softmax" else found
    numpy.testing.assert_allclose(found.numpy(), wanted, rtol=1e-14)
    assert getattr(masked, name)(X, 1, mask=MASK & False).isnan().all()


def test_normalize_and_logaddexp() -> None:
    wanted = (MA / abs(MA).sum(1, keepdims=True)).filled(0)
    numpy.testing.assert_allclose(masked.normalize(X, 1.0, 1, mask=MASK).numpy(), wanted)
    found = masked.logaddexp(X, X, input_mask=MASK, other_mask=~MASK)
    assert torch.equal(found, X)  # of each pair one counts


def test_what_reduces_nothing_is_the_identity() -> None:
    none = torch.zeros(3, dtype=torch.bool)
    for dtype in (torch.int8, torch.int64, torch.uint8):
        x = torch.ones(3, dtype=dtype)
        assert masked.amax(x, 0, mask=none).item() == torch.iinfo(dtype).min
        assert masked.amin(x, 0, mask=none).item() == torch.iinfo(dtype).max
        assert masked.sum(x, 0, mask=none).item() == 0
        assert masked.prod(x, 0, mask=none).item() == 1
        assert masked.sum(x, 0).dtype is torch.int64
    x = torch.ones(3)
    assert masked.norm(x, -torch.inf, 0, mask=none).item() == torch.inf
    assert masked.mean(x, 0, mask=none).isnan() and masked.median(x, 0, mask=none).isnan()
    assert masked.sum(x, 0, mask=torch.tensor(False)).item() == 0  # broadcast


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: masked.sum(X, 2), IndexError, r"range of \[-2, 1\], but got 2"),
        (lambda: masked.sum(X, (0, 0)), RuntimeError, "dim=0 appears multiple times"),
        (lambda: masked.sum(X[0], 0, mask=MASK), IndexError, "expected broadcastable mask"),
        (lambda: masked.sum(X, 0, mask=MASK[:, :2]), RuntimeError, "must match the existing size"),
        (lambda: masked.mean(MASK, 0), ValueError, "Input dtype must be either a floating"),
        (lambda: masked.amax(MASK, 0, mask=MASK), NotImplementedError, "identity of amax on"),
        (lambda: masked.var(X, 0, True, correction=1), AssertionError, "Only one of unbiased"),
        (lambda: masked.median(MASK, 1, mask=MASK & False), ValueError, "fully masked out rows"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_masked_program_is_one_graph() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        away = masked.var(x, 1, mask=mask, correction=0)
        return masked.softmax(x, 1, mask=mask) * away[:, None] + masked.mean(x, mask=mask)

    x = X.clone().requires_grad_()
    y = X.clone().requires_grad_()
    program(x, MASK).sum().backward()
    torch.compile(program, fullgraph=True)(y, MASK).sum().backward()
    assert x.grad is not None and y.grad is not None
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-13, atol=1e-15)


def test_the_dtypes_of_parts_and_of_pairs() -> None:
    assert torch.complex64.to_real() is torch.float32 and torch.int32.to_real() is torch.int32
    assert torch.bfloat16.to_complex() is torch.complex64
    with pytest.raises(RuntimeError, match="Unknown Complex ScalarType for Int"):
        torch.int32.to_complex()
