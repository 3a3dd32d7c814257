"""Inside functions for native code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src.capture.outcome import Raised

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["Shim"]


class Shim:
    """A function that native code can call: it is interpreted."""

    __slots__ = ("fn", "session")

    def __init__(self, session: Session, fn: Any) -> None:
        self.session = session
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.session.call(self.fn, args, kwargs)
        except Raised as raised:
            error = raised.error
        raise error
