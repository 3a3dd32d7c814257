"""DLPack: sharing tensors with other libraries without copies."""

from flambeau._src.core.dlpack import DLDeviceType, from_dlpack, to_dlpack  # noqa: F401

__all__ = ["DLDeviceType", "from_dlpack"]
