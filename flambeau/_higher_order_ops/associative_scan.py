"""`associative_scan` at torch's private path."""

from flambeau._src.capture.associative import associative_scan

__all__ = ["associative_scan"]
