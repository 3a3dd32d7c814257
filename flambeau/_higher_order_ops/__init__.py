"""Control flow as operators: `cond`, `while_loop`."""

from flambeau._src.capture.control_flow import cond, while_loop

__all__ = ["cond", "while_loop"]
