"""`tag_activation_checkpoint` at torch's private path."""

from flambeau._src.capture.recompute import tag_activation_checkpoint

__all__ = ["tag_activation_checkpoint"]
