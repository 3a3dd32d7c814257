"""`cond` at torch's private path."""

from flambeau._src.capture.control_flow import cond, cond_op

__all__ = ["cond", "cond_op"]
