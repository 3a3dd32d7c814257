"""Tests of CPython that fail when they are captured, each with the reason why they must.

They count as failures in every figure that `tests.capture.soundness` prints.
"""

DIFFERENT: dict[str, str] = {}
