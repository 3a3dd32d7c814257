"""native_dropout_backward of whole numbers."""

import pytest

import flambeau as torch


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_whole_numbers_times_a_scale_are_floating(dtype: torch.dtype) -> None:
    gradient = torch.tensor([1, 0, 1]).to(dtype)
    result = torch.native_dropout_backward(gradient, torch.tensor([True, True, False]), 1.5)
    assert result.dtype == torch.float32
    assert result.tolist() == [1.5, 0.0, 0.0]
