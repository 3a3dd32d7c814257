"""Dispatch modes and subclasses: what handlers see, what their results
become, as torch 2.13 does it."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
)

aten = torch.ops.aten


class Log(TorchDispatchMode):
    def __init__(self, inside: Any = None) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.inside = inside

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        if self.inside is not None:
            self.inside(func)
        return func(*args, **(kwargs or {}))


def test_trailing_defaults_are_left_out_and_keywords_stay_keywords() -> None:
    calls = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            calls.append((func, args[1:], kwargs))
            return func(*args, **kwargs)

    x = torch.ones(2, 3)
    with Mode():
        x.sum(0, keepdim=True)
        x[:, 1:]
        x.clone(memory_format=torch.contiguous_format)
        torch.add(x, x, alpha=2)
        x + 1
    assert calls[0] == (aten.sum.dim_IntList, ([0], True), {})
    assert calls[1] == (aten.slice.Tensor, (1, 1, 9223372036854775807), {})
    assert calls[2] == (aten.clone.default, (), {"memory_format": torch.contiguous_format})
    assert calls[3][2] == {"alpha": 2}
    assert calls[4][1:] == ((1,), {})


def test_a_handler_meets_composites_whole_and_no_autograd() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)
    found = []

    def inside(func: Any) -> None:
        if func is aten.exp.default:
            found.append(torch.nn.functional.linear(x, w).requires_grad)

    outer, inner = Log(), Log(inside)
    with outer, inner:
        x.exp()
    assert found == [False]
    assert inner.seen == ["aten.exp.default"]
    assert outer.seen == ["aten.linear.default", "aten.exp.default"]


def test_in_place_results_are_the_argument_and_versions_count_once() -> None:
    class Other(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            func(*args, **(kwargs or {}))
            return torch.zeros(7)

    x, out = torch.ones(2), torch.empty(2)
    before = x._version
    with Other():
        assert x.add_(1) is x
        assert torch.add(x, 1, out=out) is out
    assert x._version == before + 1
    assert x.tolist() == [2, 2] and out.tolist() == [3, 3]


def test_what_a_handler_may_return() -> None:
    class Returns(TorchDispatchMode):
        def __init__(self, value: Any) -> None:
            super().__init__()
            self.value = value

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return self.value

    x = torch.ones(2)
    with Returns(None):
        assert x.exp() is None
    with Returns(5), pytest.raises(RuntimeError, match="Unable to cast 5 to Tensor"):
        x.exp()
    with (
        Returns(NotImplemented),
        pytest.raises(
            TypeError, match=r"Multiple dispatch failed for 'torch\._ops\.aten\.exp\.default'"
        ),
    ):
        x.exp()


def test_lists_in_handlers_tuples_outside() -> None:
    kinds = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            kinds.append(type(out))
            return out

    with Mode():
        x = torch.ones(2, 3)
        kinds.clear()
        assert type(x.split(1)) is tuple
        assert torch.max(x, 0).values.shape == (3,)
        assert x.sum().item() == 6
    assert kinds[:2] == [list, tuple] and kinds[-1] is float


def test_the_stack_of_modes() -> None:
    outer, inner = Log(), Log()
    assert _get_current_dispatch_mode() is None
    with outer:
        with inner:
            assert _get_current_dispatch_mode() is inner
            with _disable_current_modes() as modes:
                assert modes == [outer, inner]
                torch.ones(1)
            torch.ones(1).neg()
        assert _get_current_dispatch_mode() is outer
    assert inner.seen == outer.seen == ["aten.ones.default", "aten.neg.default"]


class Wrapper(torch.Tensor):
    """Holds an inner tensor."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            dtype=inner.dtype,
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner: Any) -> None:
        self.inner = inner.detach()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from flambeau.utils._pytree import tree_map_only

        assert types == (Wrapper,)
        args, kwargs = tree_map_only(Wrapper, lambda t: t.inner, (args, kwargs or {}))
        out = func(*args, **kwargs)
        return tree_map_only(torch.Tensor, Wrapper, out)

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, ctx: Any, size: Any, stride: Any) -> Any:
        return Wrapper(inner["inner"])


def test_a_wrapper_trains() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    w = torch.ones(4, 3, requires_grad=True)
    y = Wrapper(x).requires_grad_()
    out = torch.nn.functional.linear(y, w).exp()
    assert type(out) is Wrapper and out.grad_fn is not None
    out.sum().backward()
    plain = x.clone().requires_grad_()
    torch.nn.functional.linear(plain, w.detach()).exp().sum().backward()
    assert type(y.grad) is Wrapper and torch.equal(y.grad.inner, plain.grad)


def test_views_and_writes_of_a_wrapper() -> None:
    y = Wrapper(torch.zeros(2, 3))
    v = y.view(3, 2)
    assert type(v) is Wrapper and v._base is y and v.shape == (3, 2)
    version = y._version
    assert y.add_(1) is y and y._version == version + 1
    assert y.inner.sum() == 6
    assert is_traceable_wrapper_subclass(y) and not is_traceable_wrapper_subclass(torch.ones(1))


def test_return_and_correct_aliasing() -> None:
    y = Wrapper(torch.zeros(2, 3))
    made = Wrapper(torch.zeros(3, 2))
    out = return_and_correct_aliasing(aten.view.default, (y, [3, 2]), {}, made)
    assert out is made and made.untyped_storage() is y.untyped_storage()
    assert return_and_correct_aliasing(aten.add_.Tensor, (y, 1), {}, made) is y
