"""What is kept from one capture to the next because it depends on nothing but code."""

from __future__ import annotations

from flambeau._src.capture.interpreter import Prepared

__all__ = ["PREPARED"]

#: Code objects that were decoded, by identity. Bounded: emptied when it is full.
PREPARED: dict[int, Prepared] = {}
