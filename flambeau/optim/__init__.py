"""Optimizers, learning-rate schedules and averaged models."""

from . import lr_scheduler, swa_utils
from .adam import Adam
from .adamw import AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["Adam", "AdamW", "Optimizer", "SGD", "lr_scheduler", "swa_utils"]
