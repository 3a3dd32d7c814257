"""Memory that is not the allocator's: mapped files, and memory that processes share."""

from __future__ import annotations

import os
import weakref
from typing import Any


class _Libc:
    """``mmap`` and ``munmap`` of the C library: Python's own keeps a descriptor for each map."""

    _found: Any = None

    @classmethod
    def get(cls) -> Any:
        if cls._found is None:
            import ctypes  # lazy: 2 ms, for shared memory and mapped files

            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [
                ctypes.c_void_p,
                ctypes.c_size_t,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.c_longlong,
            ]
            libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            cls._found = libc
        return cls._found


class Mapping:
    """`size` mapped bytes at `address`, unmapped when the object goes.

    Args:
        descriptor: an open file of at least `size` bytes.
        size: how many bytes; 0 maps nothing.
        shared: whether writing reaches the file (and whoever has mapped it).
    """

    def __init__(self, descriptor: int, size: int, shared: bool) -> None:
        self.size = size
        self.address = 0
        if size == 0:
            return
        import ctypes  # lazy: see `_Libc`
        import mmap  # lazy: likewise

        libc = _Libc.get()
        kind = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, kind, descriptor, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            number = ctypes.get_errno()
            raise RuntimeError(f"unable to mmap {size} bytes: {os.strerror(number)} ({number})")
        self.address = address
        weakref.finalize(self, libc.munmap, address, size).atexit = False


def map_file(path: Any, shared: bool, size: int) -> Mapping:
    """Map a file.

    Args:
        path: of the file.
        shared: whether writing changes it. Then it is made, or made longer, where it is shorter
            than `size`.
        size: how many bytes.

    Raises:
        RuntimeError: where it cannot be opened or is too short.
    """
    name = os.fspath(path)
    flags = os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY
    try:
        descriptor = os.open(name, flags, 0o600)
    except OSError as error:
        raise RuntimeError(
            f"unable to open file <{name}> in read-{'write' if shared else 'only'} mode: "
            f"{error.strerror} ({error.errno})"
        ) from None
    try:
        there = os.fstat(descriptor).st_size
        if size > there:
            if not shared:
                raise RuntimeError(
                    f"file <{name}> size <{there}> is smaller than the required mapping size "
                    f"<{size}>"
                )
            os.ftruncate(descriptor, size)
        return Mapping(descriptor, size, shared)
    finally:
        os.close(descriptor)


class SharedMemory(Mapping):
    """Memory without a name, behind a descriptor that can be sent to other processes.

    Attributes:
        descriptor: of the memory; closed with the object.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        super().__init__(descriptor, size, shared=True)
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor).atexit = False

    @classmethod
    def create(cls, size: int) -> SharedMemory:
        """Fresh memory of `size` bytes, zeros."""
        descriptor = os.memfd_create("flambeau", os.MFD_CLOEXEC)
        try:
            # A failure to have the pages shows here, and not as a SIGBUS when they are touched.
            if size:
                os.posix_fallocate(descriptor, 0, size)
            return cls(descriptor, size)
        except OSError as error:
            os.close(descriptor)
            raise RuntimeError(
                f"unable to allocate {size} bytes of shared memory: {error.strerror}"
            ) from error
