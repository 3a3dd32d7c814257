"""How a program that says ``import torch`` gets flambeau.

`finder` makes the names; `site` is a directory to put on the module search path, so that every
process that inherits it, however started, finds ``torch`` there; `launch` starts a program that
way; `environment` writes the same directory into an environment that has no PyTorch.
"""

from .finder import activate

__all__ = ["activate"]
