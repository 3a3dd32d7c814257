"""`map` at torch's private path."""

from flambeau._src.capture.loops import map_ as map
from flambeau._src.capture.loops import map_op as map_impl

__all__ = ["map", "map_impl"]
