"""Mixed precision: `autocast` chooses dtypes an operator at a time, `GradScaler` keeps small
gradients from vanishing in float16."""

from .autocast_mode import (
    _enter_autocast,
    _exit_autocast,
    autocast,
    custom_bwd,
    custom_fwd,
    is_autocast_available,
)
from .grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "_enter_autocast",
    "_exit_autocast",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "is_autocast_available",
]
