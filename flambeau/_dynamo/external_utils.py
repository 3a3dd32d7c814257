"""What other parts ask the capture."""

from flambeau._dynamo import is_compiling  # noqa: F401
