"""`while_loop` at torch's private path."""

from flambeau._src.capture.loops import while_loop, while_loop_op

__all__ = ["while_loop", "while_loop_op"]
