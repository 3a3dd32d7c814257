"""`FakeTensor`, `FakeTensorMode` and their errors at torch's private path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau._src.interp.dispatch_mode import FAKE_KEY, infra_mode, infra_suspended
from flambeau._src.interp.fake import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    fake_mode_of,
)

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "is_fake",
    "maybe_get_fake_mode",
    "unset_fake_temporarily",
]


def is_fake(x: object) -> bool:
    """Whether `x` is a fake tensor."""
    return isinstance(x, FakeTensor)


def maybe_get_fake_mode(t: object) -> FakeTensorMode | None:
    """The mode of a fake tensor; None for anything else."""
    return t.fake_mode if isinstance(t, FakeTensor) else None


def active_fake_mode() -> FakeTensorMode | None:
    """The fake mode on the stack of modes, or None."""
    return infra_mode(FAKE_KEY)


def get_fake_mode(args: Any) -> FakeTensorMode:
    """The mode of the fake tensors among the arguments."""
    return fake_mode_of(args)


@contextmanager
def unset_fake_temporarily() -> Iterator[Any]:
    """Without the active fake mode."""
    with infra_suspended(FAKE_KEY) as mode:
        yield mode
