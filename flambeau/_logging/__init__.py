"""What is logged, by name."""

from flambeau._src.compiler.logs import set_logs

__all__ = ["set_logs"]
