"""The containers of a node's arguments, at their public place."""

from flambeau._src.ir.immutable import immutable_dict, immutable_list

__all__ = ["immutable_dict", "immutable_list"]
