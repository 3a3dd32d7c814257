"""Operators that compute nothing: they raise where a number or a tensor is not as a program
assumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.core.symint import SymBool
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import aten
from flambeau._src.ops.op import Declaration
from flambeau._src.ops.views import sym_true


def hold(condition: Tensor, text: str | Callable[[], str]) -> None:
    """RuntimeError(text) where one truth value is false; in a graph, when the graph runs."""
    fake = condition.untyped_storage().is_fake
    if fake or not condition.item():
        text = text if isinstance(text, str) else text()
        if not fake:
            raise RuntimeError(text)
        aten._assert_async(condition, text)


class AssertScalar(Declaration):
    """RuntimeError where a condition is false."""

    schema = "_assert_scalar(Scalar self, str assert_msg) -> ()"
    public = "function"
    differentiable = False

    def run(self: Any, assert_msg: str) -> None:
        if not self:
            raise RuntimeError(assert_msg)

    def fake_run(self: Any, assert_msg: str) -> None:
        if isinstance(self, SymBool):
            sym_true(self)
        else:
            AssertScalar.run(self, assert_msg)


class AssertAsync(Declaration):
    """RuntimeError where a tensor's one element is zero."""

    schema = "_assert_async(Tensor self) -> ()"
    public = "function"
    differentiable = False
    whole = True

    def decompose(self: Tensor) -> None:
        aten._assert_async(self, "Expected Tensor with single nonzero value, but got zero")

    def run(self: Tensor) -> None:
        if not self:
            raise RuntimeError("Expected Tensor with single nonzero value, but got zero")

    def fake_run(self: Tensor) -> None:
        return None


class AssertAsyncMsg(Declaration):
    """RuntimeError with a text where a tensor's one element is zero."""

    schema = "_assert_async.msg(Tensor self, str assert_msg) -> ()"
    public = "function"
    differentiable = False

    def run(self: Tensor, assert_msg: str) -> None:
        if not self:
            raise RuntimeError(assert_msg)

    def fake_run(self: Tensor, assert_msg: str) -> None:
        return None


def _within(size: Any, least: int | None, most: int | None) -> None:
    if hasattr(size, "__sym_int__"):
        if least is not None:
            sym_true(size >= least)
        if most is not None:
            sym_true(size <= most)
        return
    if (least is not None and size < least) or (most is not None and size > most):
        ends = f"[{least}, {most}]"
        raise RuntimeError(f"Invalid value range for {size} between {ends}.")


class SymConstrainRange(Declaration):
    """RuntimeError where a number is not within [min, max]."""

    schema = "sym_constrain_range(Scalar size, *, int? min=None, int? max=None) -> ()"
    public = "function"
    differentiable = False

    def run(size: Any, min: int | None, max: int | None) -> None:
        _within(size, min, max)

    fake_run = run


class SymConstrainRangeForSize(Declaration):
    """RuntimeError where an extent is not within [min, max] (at least 0)."""

    schema = "sym_constrain_range_for_size(Scalar size, *, int? min=None, int? max=None) -> ()"
    public = "function"
    differentiable = False
    whole = True

    def decompose(size: Any, min: int | None, max: int | None) -> None:
        aten.sym_constrain_range(size, min=0 if min is None else min, max=max)

    def run(size: Any, min: int | None, max: int | None) -> None:
        _within(size, 0 if min is None else min, max)

    fake_run = run
