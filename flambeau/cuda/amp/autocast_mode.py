"""The same names at their older path."""

from flambeau.cuda.amp import autocast, custom_bwd, custom_fwd  # noqa: F401
