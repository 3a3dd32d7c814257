"""`scan` at torch's private path."""

from flambeau._src.capture.loops import scan, scan_op

__all__ = ["scan", "scan_op"]
