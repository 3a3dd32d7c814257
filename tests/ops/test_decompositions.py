"""Where a kernel and a decomposition stand in one declaration, they agree on every sample."""

from __future__ import annotations

import math
from typing import Any

import pytest

import flambeau as torch
from flambeau._src.ops.bind import bind
from flambeau._src.ops.call import dispatch
from flambeau._src.ops.op import PACKETS
from tests.ops import battery

#: Results that are inexact in different ways: (relative, absolute) in float64.
BOUND = (1e-12, 1e-13)

OPS = [
    op
    for op in battery.tested_ops()
    if op.decl.decompose is not None
    and op.decl.level != "composite"
    and not op.decl.only_decomposes()
    and not op.decl.random
    and not op.decl.whole  # test_primitives.py
]


def _x(*shape: int) -> Any:
    return torch.linspace(-1.5, 2.0, math.prod(shape), dtype=torch.float64).reshape(shape).cos()


_AT = torch.tensor([2, 0])
_SORTED = torch.tensor([-0.5, 0.0, 0.7], dtype=torch.float64)
#: Overloads that have no samples of their own: their arguments, complete.
CALLS: dict[str, Any] = {
    "_prelu_kernel_backward": (_x(3, 4), _x(3, 4) - 0.5, _x(3, 4)),
    "addbmm": (_x(3, 5), _x(2, 3, 4), _x(2, 4, 5), 0.5, 2.0),
    "addmv": (_x(3), _x(3, 4), _x(4), 0, 2.0),
    "vdot": (_x(5), _x(5)),
    "arange": (5, torch.int64, None, None, None),
    "arange.start": (1, 5, torch.float32, None, None, None),
    "bucketize.Tensor": (_x(3, 4), _SORTED, True, False),
    "bucketize.Scalar": (0.0, _SORTED, False, True),
    "count_nonzero": (_x(3, 4).round(), 1),
    "count_nonzero.dim_IntList": (_x(3, 4).round(), (0, 1)),
    "eye": (3, torch.float64, None, None, None),
    "eye.m": (2, 4, torch.int64, None, None, None),
    "fft_fftfreq": (5, 0.5, torch.float64, None, None, None),
    "fft_rfftfreq": (4, 2.0, torch.float64, None, None, None),
    "index_fill.int_Scalar": (_x(3, 4), 0, _AT, 2),
    "isin.Scalar_Tensor": (1, torch.tensor([1, 2]), False, False),
    "isin.Tensor_Scalar": (torch.tensor([1, 2]), 1, False, True),
    "linalg_cross": (_x(2, 3), _x(2, 3) - 0.5, -1),
    "multi_margin_loss": (_x(3, 4), torch.tensor([0, 3, 1]), 2, 0.5, _x(4), 1),
    "norm.Scalar": (_x(3, 4), 3),
    "norm.ScalarOpt_dim": (_x(3, 4), None, [1], True),
    "norm.ScalarOpt_dtype": (_x(3, 4), 1, torch.float64),
    "norm.ScalarOpt_dim_dtype": (_x(3, 4), 2, [0], False, torch.float64),
    "new_full": (_x(3), (2, 2), 4, None, None, None, None),
    "new_ones": (_x(3), (2, 2), torch.int64, None, None, None),
    "new_zeros": (_x(3), (2, 2), None, None, None, None),
    "ones": ((2, 3), None, None, None, None),
    "ones_like": (_x(3, 4).t(), None, None, None, None, None),
    "zeros_like": (_x(3, 4).t(), torch.float32, None, None, None, None),
    "scalar_tensor": (2.5, torch.float64, None, None, None),
    "scatter.value_reduce": (_x(3, 4), 0, torch.tensor([[0, 2], [1, 1]]), 2.0, "multiply"),
    "special_zeta.other_scalar": (_x(3, 4) + 3, 1.5),
    "special_hermite_polynomial_h.n_scalar": (_x(3, 4), 3),
    "special_legendre_polynomial_p.x_scalar": (0.5, torch.tensor([0.0, 2.0, 5.0])),
    "alias_copy": (_x(3, 4).t(),),
    "as_strided_copy": (_x(3, 4), (2, 2), (1, 3), 1),
    "diagonal_copy": (_x(3, 4), 1, 0, 1),
    "expand_copy": (_x(3, 1), (3, 4), False),
    "permute_copy": (_x(2, 3, 4), (2, 0, 1)),
    "select_copy.int": (_x(3, 4), 1, 2),
    "slice_copy.Tensor": (_x(3, 4), 1, 0, 4, 2),
    "squeeze_copy.dim": (_x(3, 1), 1),
    "t_copy": (_x(3, 4),),
    "transpose_copy.int": (_x(2, 3, 4), 0, 2),
    "unfold_copy": (_x(7), 0, 3, 2),
    "unsqueeze_copy": (_x(3), 0),
    "view_copy": (_x(3, 4), (4, 3)),
    "view_copy.dtype": (_x(3, 4), torch.int64),
}


def agree(op: Any, args: tuple[Any, ...]) -> None:
    wanted = battery.outputs(dispatch(op, args))
    found = battery.outputs(op.decl.decompose(*args))
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape and a.dtype is b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
        assert battery.close(a, b, *BOUND)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.key)
def test_samples(op: Any) -> None:
    for layout in ("contiguous", "permuted"):
        for sample in battery.samples_of(op, torch.float64, layout):
            args = bind(op, sample.args, sample.kwargs)
            assert args is not None
            agree(op, args)


@pytest.mark.parametrize("key", CALLS)
def test_calls(key: str) -> None:
    name, _, overload = key.partition(".")
    op = PACKETS["aten", name].overload(overload or "default")
    assert op is not None and op.decl.decompose is not None
    assert not op.decl.only_decomposes(), "nothing to compare with"
    agree(op, CALLS[key])
