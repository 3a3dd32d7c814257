"""The foreach forms against the operators on each tensor."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau import func as F


def tensors() -> list[Any]:
    torch.manual_seed(0)
    return [torch.rand(2) + 1, torch.rand(3) + 1]


def equal(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
@pytest.mark.parametrize(
    ("given", "kwargs", "factors"),
    [
        ((), {}, (1, 1)), ((2.0,), {}, (2.0, 2.0)), (([1.5, 2.5],), {}, (1.5, 2.5)),
        ((torch.tensor([1.5, 2.5]),), {}, (1.5, 2.5)), ((), {"value": 2.0}, (2.0, 2.0)),
        ((), {"scalars": [1.5, 2.5]}, (1.5, 2.5)),
    ],
)  # fmt: skip
def test_weighted(name: str, given: Any, kwargs: Any, factors: Any) -> None:
    single = getattr(torch, name)
    expected = [single(x, x, x, value=v) for x, v in zip(tensors(), factors, strict=True)]
    found = getattr(torch, f"_foreach_{name}")(tensors(), tensors(), tensors(), *given, **kwargs)
    assert equal(found, expected) and type(found) is tuple
    xs = tensors()
    same = getattr(torch, f"_foreach_{name}_")(xs, tensors(), tensors(), *given, **kwargs)
    assert same is xs and equal(xs, expected)


@pytest.mark.parametrize("other", [1.5, [1.2, 1.4]])
def test_bounded_by_numbers(other: Any) -> None:
    each = other if isinstance(other, list) else [other] * 2
    for name, clamp in (("maximum", "clamp_min"), ("minimum", "clamp_max")):
        expected = [getattr(torch, clamp)(x, v) for x, v in zip(tensors(), each, strict=True)]
        assert equal(getattr(torch, f"_foreach_{name}")(tensors(), other), expected)
        xs = tensors()
        assert getattr(torch, f"_foreach_{name}_")(xs, other) is xs
        assert equal(xs, expected)


def test_others() -> None:
    xs = tensors()
    assert equal(torch._foreach_pow(2.0, xs), [2.0**x for x in xs])
    assert equal(torch._foreach_max(xs), [x.max() for x in xs])
    assert equal(torch._foreach_clone(xs), xs)
    assert torch._foreach_mul_(xs, 2.0) is xs
    assert torch._foreach_zero_(xs) is xs


def test_errors() -> None:
    x = [torch.ones(2)]
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_add([], 1)
    with pytest.raises(RuntimeError, match="same number of elements as scalar list"):
        torch._foreach_add(x, [1.0, 2.0])
    with pytest.raises(RuntimeError, match="Expected length of scalars to match input of length 1"):
        torch._foreach_addcmul(x, x, x, torch.ones(2))


def test_captured_tensors_in_transforms() -> None:
    """They are written, though `mul_` refuses: what the transform computes is constant to them."""
    x = torch.tensor([1.0, 2.0, 3.0])
    y = x.clone()

    def product(a: Any) -> Any:
        torch._foreach_mul_([y], [a])
        return (a * y).sum()

    assert F.grad(product)(x).tolist() == [1.0, 4.0, 9.0] == y.tolist()
    assert not y.requires_grad
    out, tangent = F.jvp(product, (x,), (x,))
    assert out.item() == tangent.item() == 98.0
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        F.grad(lambda a: (a * y.mul_(2)).sum())(x)
