"""The declarations. The registry is imported first: it knows what the families declare."""

from flambeau._src.ops import registry
