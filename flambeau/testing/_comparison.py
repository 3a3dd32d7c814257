"""`assert_close`: two results are alike, in all that tensors have and within a tolerance."""

from __future__ import annotations

import cmath
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flambeau as torch
from flambeau import Tensor

__all__ = ["assert_allclose", "assert_close", "default_tolerances"]

Message = str | Callable[[str], str] | None
#: dtype name -> (rtol, atol); numbers that are exact have none.
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def default_tolerances(*inputs: Any) -> tuple[float, float]:
    """(rtol, atol) for tensors or dtypes: the largest of theirs."""
    names = [(x.dtype if isinstance(x, Tensor) else x).name for x in inputs]
    found = [_TOLERANCES.get(name, (0.0, 0.0)) for name in names]
    return max(r for r, _ in found), max(a for _, a in found)


class _Rules(NamedTuple):
    """What counts."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool


class _Unlike(Exception):
    """A difference was found: its text, and where in nested containers."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.path: list[Any] = []

    def message(self) -> str:
        where = "".join(f"[{key!r}]" for key in reversed(self.path))
        return f"{self.text}\n\nThe failure occurred for item {where}" if where else self.text


def _kind(x: Any, rules: _Rules) -> str | None:
    """How x is compared; None for what cannot be."""
    if x is None:
        return "none"
    if isinstance(x, bool) or type(x).__name__ in ("bool_", "bool"):
        return "bool"
    if isinstance(x, (int, float, complex)):
        return "number"
    if isinstance(x, Tensor):
        return "tensor" if rules.allow_subclasses or type(x) is Tensor else None
    if hasattr(x, "__array_interface__"):
        return "tensor" if getattr(x, "ndim", 0) or hasattr(x, "__setitem__") else "number"
    if isinstance(x, Mapping):
        return "mapping"
    return "sequence" if isinstance(x, Sequence) and not isinstance(x, (str, bytes)) else None


def _compare(actual: Any, expected: Any, rules: _Rules) -> None:
    kinds = _kind(actual, rules), _kind(expected, rules)
    kind = kinds[0]
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if kind is None or kinds[0] != kinds[1] or (kind == "tensor" and not related):
        numbers = {"bool", "number"}
        if not (set(kinds) <= numbers):
            if "none" in kinds:
                raise _Unlike(f"None mismatch: {actual} is not {expected}")
            raise TypeError(
                f"No comparison pair was able to handle inputs of type {type(actual)} and "
                f"{type(expected)}."
            )
        kind = "number"
    if kind == "bool" and bool(actual) is not bool(expected):
        raise _Unlike(f"Booleans mismatch: {bool(actual)} is not {bool(expected)}")
    if kind == "number":
        _compare_numbers(actual, expected, rules)
    elif kind == "tensor":
        _compare_tensors(torch.as_tensor(actual), torch.as_tensor(expected), rules)
    elif kind == "sequence":
        if len(actual) != len(expected):
            raise _Unlike(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}")
        _compare_items(actual, expected, range(len(actual)), rules)
    elif kind == "mapping":
        missing = sorted(set(expected) - set(actual), key=repr)
        additional = sorted(set(actual) - set(expected), key=repr)
        if missing or additional:
            raise _Unlike(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {additional}"
            )
        _compare_items(actual, expected, list(actual), rules)


def _compare_items(actual: Any, expected: Any, keys: Any, rules: _Rules) -> None:
    for key in keys:
        try:
            _compare(actual[key], expected[key], rules)
        except _Unlike as difference:
            difference.path.append(key)
            raise


def _allowed(tolerance: float, exact: bool) -> str:
    return "" if exact else f" (up to {tolerance} allowed)"


def _numbers_text(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    difference = abs(actual - expected)
    exact = not rtol and not atol
    relative = float("inf") if not expected else difference / abs(expected)
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\n"
        f"Expected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{_allowed(atol, exact)}\n"
        f"Relative difference: {relative}{_allowed(rtol, exact)}"
    )


def _compare_numbers(actual: Any, expected: Any, rules: _Rules) -> None:
    actual, expected = (x.item() if hasattr(x, "item") else x for x in (actual, expected))
    if rules.check_dtype and type(actual) is not type(expected):
        raise _Unlike(f"The (d)types do not match: {type(actual)} != {type(expected)}.")
    exact = all(isinstance(x, int) for x in (actual, expected))
    rtol, atol = (0.0, 0.0) if exact else (1e-7, 1e-7)
    if rules.rtol is not None and rules.atol is not None:
        rtol, atol = rules.rtol, rules.atol
    if actual == expected:
        return
    if rules.equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
        return
    if cmath.isfinite(actual - expected) and abs(actual - expected) <= atol + rtol * abs(expected):
        return
    raise _Unlike(_numbers_text(actual, expected, rtol, atol))


def _compare_tensors(actual: Tensor, expected: Tensor, rules: _Rules) -> None:
    def attribute(name: str, a: Any, b: Any) -> None:
        if a != b:
            raise _Unlike(f"The values for attribute '{name}' do not match: {a} != {b}.")

    attribute("shape", actual.shape, expected.shape)
    if rules.check_layout:
        attribute("layout", actual.layout, expected.layout)
    if rules.check_stride:
        attribute("stride()", actual.stride(), expected.stride())
    if rules.check_device:
        attribute("device", actual.device, expected.device)
    if rules.check_dtype:
        attribute("dtype", actual.dtype, expected.dtype)
    if rules.rtol is None or rules.atol is None:
        rtol, atol = default_tolerances(actual, expected)
    else:
        rtol, atol = rules.rtol, rules.atol
    if "meta" in (actual.device.type, expected.device.type):
        return
    actual, expected = actual.detach(), expected.detach()
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    if actual.dtype != expected.dtype:
        common = torch.promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(common), expected.to(common)
    matches = torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=rules.equal_nan)
    if not bool(matches.all().item()):
        raise _Unlike(_tensors_text(actual, expected, matches, rtol, atol))


def _tensors_text(actual: Any, expected: Any, matches: Any, rtol: float, atol: float) -> str:
    if not actual.dim():
        return _numbers_text(actual.item(), expected.item(), rtol, atol)
    exact = not rtol and not atol
    if not actual.is_floating_point() and not actual.is_complex():
        actual, expected = actual.to(torch.int64), expected.to(torch.int64)
    count, total = int((~matches).sum().item()), matches.numel()
    absolute = (actual - expected).abs()
    # What matches does not compete: infinities that are equal differ by nan.
    absolute = torch.where(matches, torch.zeros_like(absolute), absolute)
    relative = absolute / expected.abs()
    relative = torch.where(matches, torch.zeros_like(relative), relative)
    lines = [
        f"Tensor-likes are not {'equal' if exact else 'close'}!",
        "",
        f"Mismatched elements: {count} / {total} ({count / total:.1%})",
    ]
    for word, difference, tolerance in (
        ("absolute", absolute, atol),
        ("relative", relative, rtol),
    ):
        flat = int(difference.flatten().argmax().item())
        at, index = flat, []
        for n in reversed(tuple(difference.shape)):
            index.append(at % n)
            at //= n
        lines.append(
            f"Greatest {word} difference: {difference.flatten()[flat].item()} at index "
            f"{tuple(reversed(index))}{_allowed(tolerance, exact)}"
        )
    return "\n".join(lines)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Assert that |actual - expected| <= atol + rtol |expected|, element by element.

    Args:
        actual: tensors, arrays, numbers, None, or sequences and mappings of them.
        expected: of the same structure.
        allow_subclasses: whether instances of subclasses of Tensor are compared.
        rtol, atol: both or none; by default by dtype (float32: 1.3e-6 and 1e-5).
        equal_nan: whether nan equals nan.
        check_device, check_dtype, check_layout, check_stride: whether these must agree as well.
        msg: in place of the message, or a function of it.

    Raises:
        AssertionError: they differ. The text names the greatest difference and where it is.
        TypeError: they cannot be compared.
        ValueError: only one of rtol and atol is given.
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        )
    rules = _Rules(
        allow_subclasses,
        rtol,
        atol,
        equal_nan,
        check_device,
        check_dtype,
        check_layout,
        check_stride,
    )
    try:
        _compare(actual, expected, rules)
    except _Unlike as difference:
        text = difference.message()
    else:
        return
    raise AssertionError(text if msg is None else msg(text) if callable(msg) else msg)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """`assert_close` with wider defaults and fewer checks. Deprecated."""
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a "
        "future release. Please use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual, expected = (x if isinstance(x, Tensor) else torch.tensor(x) for x in (actual, expected))
    if rtol is None and atol is None:
        wider = {"float16": (1e-3, 1e-3), "float32": (1e-4, 1e-5), "float64": (1e-5, 1e-8)}
        pairs = [wider.get(x.dtype.name, (0.0, 0.0)) for x in (actual, expected)]
        rtol, atol = max(r for r, _ in pairs), max(a for _, a in pairs)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )
