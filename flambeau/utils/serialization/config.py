"""What `torch.save` and `torch.load` do where their arguments do not say: set the attributes."""

from __future__ import annotations

from mmap import MAP_PRIVATE
from typing import Any


class load:
    """Options of loading."""

    #: Leave bytes in the file, mapped.
    mmap: bool = False
    #: Byte order of files that do not say theirs; None: little.
    endianness: Any = None
    #: ``mmap.MAP_PRIVATE`` or ``mmap.MAP_SHARED``.
    mmap_flags: int | None = MAP_PRIVATE
    #: Accepted; offsets are read from the file's directory at no cost.
    calculate_storage_offsets: bool = False


class save:
    """Options of saving."""

    #: Compute checksums, by which damage is noticed.
    compute_crc32: bool = True
    #: Copy from an accelerator through page-locked memory.
    use_pinned_memory_for_d2h: bool = False
    #: Bytes to a multiple of which each storage begins in the file.
    storage_alignment: int = 64
