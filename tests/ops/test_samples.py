"""The operators that most programs rest on have samples of every kind."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau._src.ops.op import PACKETS, Op
from tests.ops import battery

POINTWISE = """add.Tensor sub.Tensor mul.Tensor div.Tensor div.Tensor_mode pow.Tensor_Tensor
    pow.Tensor_Scalar where.self exp log tanh erf gelu clamp clamp.Tensor eq.Tensor ne.Tensor
    lt.Tensor le.Tensor gt.Tensor ge.Tensor _to_copy copy fill.Scalar""".split()
SHAPES = """cat stack view reshape transpose.int permute expand slice.Tensor select.int
    as_strided""".split()
INDEXING = "index.Tensor index_put gather scatter_add embedding".split()
REDUCTIONS = """sum sum.dim_IntList mean mean.dim max.dim argmax var_mean.correction cumsum
    sort.stable topk _softmax _log_softmax""".split()
HEAVY = """mm bmm addmm linear einsum convolution max_pool2d_with_indices native_layer_norm
    native_batch_norm cross_entropy_loss _scaled_dot_product_flash_attention_for_cpu""".split()
RANDOM = "bernoulli native_dropout".split()
WRITTEN = "uniform_ normal_ bernoulli_.float bernoulli_.Tensor".split()  # of every geometry
MADE = "rand randn randint randint.low randperm normal.float_float".split()  # from no tensor

#: No tensor of no dimensions makes sense, or none can be of size zero, or there are never four.
NO_SCALARS = {
    "cat", "slice.Tensor", "select.int", "as_strided", "index.Tensor", "index_put", "mm", "bmm",
    "linear",
    "convolution", "max_pool2d_with_indices", "native_layer_norm", "native_batch_norm", "mean.dim",
    "_scaled_dot_product_flash_attention_for_cpu",
}  # fmt: skip
NO_EMPTY = {
    "stack", "transpose.int", "permute", "expand", "as_strided", "index.Tensor", "index_put",
    "mean", "mean.dim", "convolution", "native_batch_norm", "cross_entropy_loss",
    "_scaled_dot_product_flash_attention_for_cpu",
}  # fmt: skip
NO_FOUR = {
    "stack", "view", "transpose.int", "expand", "as_strided", "index.Tensor", "index_put",
    "pow.Tensor_Tensor",
    "embedding", "mm", "bmm", "addmm", "einsum", *RANDOM,
}  # fmt: skip
#: What refuses nothing but what every operator refuses.
NO_ERRORS = {
    "exp", "log", "tanh", "erf", "gelu", "clamp", "pow.Tensor_Scalar", "_to_copy", "fill.Scalar",
    "sum", "mean", "cross_entropy_loss", "native_batch_norm",
    "_scaled_dot_product_flash_attention_for_cpu", *RANDOM,
}  # fmt: skip


def declared(key: str) -> Op:
    """The overload of that name."""
    name, _, overload = key.partition(".")
    op = PACKETS["aten", name].overload(overload or "default")
    assert op is not None, f"{key} is not declared"
    return op


def shapes_of(op: Op) -> list[tuple[int, ...]]:
    samples = battery.samples_of(op, torch.float32)
    return [tuple(t.shape) for s in samples for t in battery.tensors_in(s)]


ALL = [*POINTWISE, *SHAPES, *INDEXING, *REDUCTIONS, *HEAVY, *RANDOM]


@pytest.mark.parametrize("key", ALL)
def test_kinds_of_samples(key: str) -> None:
    op = declared(key)
    assert op.decl.samples is not None, "no samples: the battery passes it by"
    shapes = shapes_of(op)
    if key not in NO_SCALARS:
        assert () in shapes, "no sample of no dimensions"
    if key not in NO_EMPTY:
        assert any(0 in shape for shape in shapes), "no sample of size zero"
    if key not in NO_FOUR:
        assert any(len(shape) == 4 for shape in shapes), "no sample that channels-last permutes"
    assert any(len(shape) > 1 for shape in shapes), "no sample that permuted layouts change"
    if key not in NO_ERRORS:
        assert op.decl.error_samples is not None, "no sample that is refused"


@pytest.mark.parametrize("key", ALL)
def test_the_battery_reaches_it(key: str) -> None:
    """Through its declaration's first overload, which is the one that the battery calls."""
    tested: Any = {op.decl for op in battery.tested_ops()}
    assert declared(key).decl in tested


@pytest.mark.parametrize("key", [*WRITTEN, *MADE])
def test_samples_of_random_numbers(key: str) -> None:
    """Sizes: none, zero, four dimensions (or a length of nothing), more than a block of draws."""
    op = declared(key)
    assert op.decl in {o.decl for o in battery.tested_ops()}
    results = [
        battery.drawing(op)(*s.args, **s.kwargs) for s in battery.samples_of(op, torch.float32)
    ]
    assert any(t.dim() == 0 for t in results) or key == "randperm"
    assert any(not t.numel() for t in results) and any(t.numel() > 16 for t in results)
    assert any(t.dim() == 4 for t in results) or key == "randperm"
    assert op.decl.error_samples is not None or key in MADE


@pytest.mark.parametrize("key", sorted(NO_SCALARS | NO_EMPTY | NO_FOUR | NO_ERRORS))
def test_exceptions_name_operators_of_the_list(key: str) -> None:
    assert key in ALL
