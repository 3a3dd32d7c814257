"""Samples beyond the database's: mixed dtypes, memory layouts, long rows, empty shapes.

The database's `sample_inputs` hold few layouts and no type promotion. These are built for torch at
recording time, from the entry's own domain; what torch does with them is the expectation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing import make_tensor
from torch.testing._internal.opinfo.core import (
    BinaryUfuncInfo,
    ReductionOpInfo,
    SampleInput,
    UnaryUfuncInfo,
)

from tests.oracle.entries import Entry

BIGGEST = 20_000  # elements of an input; larger reference inputs are left out, and counted
LAYOUTS = {
    "contiguous": lambda x: x.contiguous(),
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "rolled": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "spread": lambda x: torch.stack((x, x), -1).flatten(-2)[..., ::2],
    "expanded": lambda x: x[:, :1].expand(x.shape),
    "offset": lambda x: torch.cat((x[:1], x))[1:],
}
SCALARS = (2, -3, 0.5, True, 2.0)
LONG = (
    "sum", "mean", "var_mean", "var", "std", "argmax", "max|reduction_with_dim",
    "max|reduction_no_dim", "cumsum", "softmax", "log_softmax", "sort", "topk",
    "nn.functional.layer_norm",
)  # fmt: skip


def beyond(op: Any, entry: Entry, dtype: torch.dtype, grad: bool) -> Iterator[Any]:
    """All further samples of `op` in `dtype`."""
    torch.manual_seed(7)
    if isinstance(op, BinaryUfuncInfo) or entry.key == "where":
        yield from binary_layouts(op, entry, dtype, grad)
        if dtype == torch.float32:
            yield from promotion(op, entry)
    elif isinstance(op, UnaryUfuncInfo) or entry.key == "clamp":
        yield from unary_layouts(op, entry, dtype, grad)
    elif isinstance(op, ReductionOpInfo) or entry.key in LONG:
        yield from reduction_layouts(op, entry, dtype, grad)
    if entry.key in LONG:
        yield from long_rows(entry, dtype, grad)


def reference(op: Any, entry: Entry, dtype: torch.dtype, grad: bool) -> tuple[list[Any], int]:
    """The database's reference inputs that are not too big, and how many are."""
    kept, big = [], 0
    for sample in op.reference_inputs("cpu", dtype, requires_grad=False):
        for x in (sample.input, *sample.args):  # it cannot be asked for: it makes integers too
            if isinstance(x, torch.Tensor) and x.dtype == dtype:
                x.requires_grad_(grad)
        sizes = [x.numel() for x in (sample.input, *sample.args) if isinstance(x, torch.Tensor)]
        if max(sizes, default=0) > BIGGEST:
            big += 1
        else:
            kept.append(sample)
    return kept, big


def _make(op: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    domain = getattr(op, "domain", None) or (None, None)
    low, high = domain
    if dtype == torch.bool:
        low = high = None
    return make_tensor(shape, device="cpu", dtype=dtype, low=low, high=high)


def _leaf(x: Any, grad: bool) -> Any:
    return x.detach().requires_grad_(grad and x.dtype.is_floating_point)


def unary_layouts(op: Any, entry: Entry, dtype: torch.dtype, grad: bool) -> Iterator[Any]:
    """One operand in every layout, and the shapes without elements or without dimensions."""
    rest: tuple[Any, ...] = {"fill": (2,), "clamp": (-1, 3), "to": (torch.float64,)}.get(
        entry.key, ()
    )
    for lay in LAYOUTS.values():
        yield SampleInput(_leaf(lay(_make(op, (2, 3, 4, 5), dtype)), grad), args=rest)
    for shape in ((), (0,), (2, 0, 3), (1,), (3, 1, 1)):
        yield SampleInput(_leaf(_make(op, shape, dtype), grad), args=rest)


def _pair(op: Any, entry: Entry, a: Any, b: Any) -> Any:
    if entry.key == "where":
        shape = a.shape if isinstance(a, torch.Tensor) else b.shape
        return SampleInput(a, args=(torch.rand(shape) > 0.5, b))
    first, second = a, b
    kwargs = dict(getattr(op, "sample_kwargs", lambda *_: ({}, {}))("cpu", torch.float32, a)[0])
    rounding = {"trunc_rounding": "trunc", "floor_rounding": "floor"}.get(entry.variant)
    if rounding:
        kwargs["rounding_mode"] = rounding
    return SampleInput(first, args=(second,), kwargs=kwargs)


def binary_layouts(op: Any, entry: Entry, dtype: torch.dtype, grad: bool) -> Iterator[Any]:
    """Two operands in every pair of layouts, with broadcasting against smaller shapes."""
    for lay_a in LAYOUTS.values():
        for name, lay_b in LAYOUTS.items():
            a, b = (_make(op, (2, 3, 4, 5), dtype) for _ in range(2))
            yield _pair(
                op, entry, _leaf(lay_a(a), grad), _leaf(lay_b(b), grad and name != "rolled")
            )
    shapes = [
        ((2, 3, 4, 5), (1, 3, 1, 1)), ((3, 1, 1), (2, 3, 4, 5)), ((), (2, 3)), ((0,), ()),
        ((2, 0, 3), (3,)), ((), ()), ((1,), ()), ((2, 3, 1), (1, 1, 4)), ((0,), (1,)),
    ]  # fmt: skip
    for one, two in shapes:
        a, b = _make(op, one, dtype), _make(op, two, dtype)
        for lay in ("contiguous", "channels_last"):
            fits = len(one) == 4
            if lay == "contiguous" or fits:
                left = LAYOUTS[lay](a) if fits else a
                yield _pair(op, entry, _leaf(left, grad), _leaf(b, grad))


def promotion(op: Any, entry: Entry) -> Iterator[Any]:
    """Every pair of eight dtypes, with dimensions and without, and Python scalars."""
    kinds = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
             torch.uint8, torch.bool)  # fmt: skip
    for one in kinds:
        for two in kinds:
            for shape_a, shape_b in (((2, 3), (3,)), ((2, 3), ()), ((), (2, 3)), ((), ())):
                a, b = _small(shape_a, one), _small(shape_b, two)
                yield _pair(op, entry, a, b)
        if entry.key.startswith("__r") or getattr(op, "supports_rhs_python_scalar", True):
            for scalar in SCALARS:
                yield _pair(op, entry, _small((2, 3), one), scalar)
                yield _pair(op, entry, _small((), one), scalar)


def _small(shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    return torch.randint(1, 7, shape).to(dtype)


def _dims(entry: Entry) -> list[dict[str, Any]]:
    if entry.key == "max|reduction_no_dim":
        return [{}]
    if entry.key in ("softmax", "log_softmax", "max|reduction_with_dim", "cumsum"):
        return [{"dim": 0}, {"dim": 1}, {"dim": -1}]
    if entry.key in ("argmax", "sort"):
        return [{"dim": 0}, {"dim": -1, **({"keepdim": True} if entry.key == "argmax" else {})}]
    if entry.key == "topk":
        return [{"k": 2, "dim": 0}, {"k": 2, "dim": -1}]
    if entry.key == "nn.functional.layer_norm":
        return []
    if entry.variant == "unbiased":
        return [{"unbiased": True}]
    return [{}, {"dim": 0}, {"dim": (1, 2)}, {"dim": (0, -1), "keepdim": True}]


def reduction_layouts(op: Any, entry: Entry, dtype: torch.dtype, grad: bool) -> Iterator[Any]:
    """Reductions over one and several dimensions of every layout."""
    for name, lay in LAYOUTS.items():
        if name == "expanded" and entry.key in ("sort", "topk", "argmax"):
            continue  # equal values: torch does not fix which comes first
        for kwargs in _dims(entry):
            yield SampleInput(_leaf(lay(_distinct((2, 3, 4, 5), dtype)), grad), kwargs=kwargs)


def _distinct(shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """Different numbers wherever the dtype has enough of them."""
    count = max(1, torch.Size(shape).numel())
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    values = torch.randperm(count).reshape(shape)
    if dtype.is_floating_point:
        return ((values - count // 2).to(torch.float64) / 16).to(dtype)
    return values.to(dtype)


def long_rows(entry: Entry, dtype: torch.dtype, grad: bool) -> Iterator[Any]:
    """Rows long enough that the order and the width of accumulation show."""
    distinct = dtype in (torch.float32, torch.float64, torch.int64) or entry.kind not in ("sort",)
    if not distinct or dtype == torch.bool:
        return
    random = torch.rand if dtype.is_floating_point else torch.ones
    for shape, dim in (((4099,), 0), ((3, 1031), 1), ((1031, 3), 0)):
        x = random(shape).to(dtype)
        if entry.kind == "sort" or entry.key.startswith(("argmax", "max")):
            x = _distinct(shape, dtype)
        if entry.key == "nn.functional.layer_norm":
            yield SampleInput(_leaf(x, grad), args=((shape[-1],),))
            continue
        kwargs: dict[str, Any] = {"dim": dim}
        if entry.key == "topk":
            kwargs["k"] = 5
        if entry.variant == "reduction_no_dim":
            kwargs = {}
        yield SampleInput(_leaf(x, grad), kwargs=kwargs)
    if entry.key in ("sum", "mean", "cumsum"):
        yield SampleInput(torch.ones(4096).to(dtype), kwargs={"dim": 0})
