"""What a public package lists in `__all__` is there."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import flambeau
from flambeau.nn import parallel


def _public() -> list[str]:
    names = [m.name for m in pkgutil.walk_packages(flambeau.__path__, "flambeau.") if m.ispkg]
    return ["flambeau", *(n for n in names if not n.startswith("flambeau._src"))]


@pytest.mark.parametrize("package", _public())
def test_all_resolves(package: str) -> None:
    module = importlib.import_module(package)
    listed = getattr(module, "__all__", ())
    assert [name for name in listed if not hasattr(module, name)] == []
    assert len(set(listed)) == len(listed)


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'DistributedDataParallel'"):
        parallel.DistributedDataParallel  # noqa: B018
