"""What other parts ask the capture."""

from flambeau.compiler import is_compiling  # noqa: F401
