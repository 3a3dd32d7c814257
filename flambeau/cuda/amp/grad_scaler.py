"""The same name at its older path."""

from flambeau.cuda.amp import GradScaler  # noqa: F401
