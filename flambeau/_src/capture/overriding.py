"""`__torch_function__` of classes that are no tensors: asked before a call becomes a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src.capture.lookup import special
from flambeau._src.capture.values.constant import ATOMS
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor
from flambeau._src.interp.function import full_name

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["call", "overriding"]


def overriding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """One argument for each class that has a say: subclasses before their bases, else in order."""
    found: list[Any] = []
    for v in (*args, *kwargs.values()):
        for x in v if type(v) in (list, tuple) else (v,):
            kind = type(x)
            if kind in ATOMS or kind is FakeTensor or isinstance(x, (type, Tensor)):
                continue
            if special(kind, "__torch_function__") is None or any(type(y) is kind for y in found):
                continue
            at = next((i for i, y in enumerate(found) if issubclass(kind, type(y))), len(found))
            found.insert(at, x)
    return found


def call(s: Session, fn: Any, found: list[Any], args: Any, kwargs: Any) -> Any:
    """Ask them, until one does not say NotImplemented."""
    types = tuple([type(x) for x in found])
    for x in found:
        out = s.call(s.get(x, "__torch_function__"), (fn, types, args, kwargs), {})
        if out is not NotImplemented:
            return out
    lines = [
        f"Multiple dispatch failed for '{full_name(fn)}'; all __torch_function__ handlers "
        "returned NotImplemented:\n",
        *(f"  - tensor subclass {t!r}" for t in types),
        "\nFor more information, try re-running with TORCH_LOGS=not_implemented",
    ]
    return s.raise_(TypeError("\n".join(lines)))
