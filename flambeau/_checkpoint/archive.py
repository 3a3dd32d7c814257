"""The zip file of a checkpoint: stored (not compressed) entries whose bytes begin at multiples of
64, so that storages can be mapped from the file.

Written and read by hand: the standard library can neither align entries nor read one straight into
a storage. Format: PKWARE APPNOTE 6.3.x; alignment by an extra field "FB", as torch does.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END64_MAGIC, _LOCATOR64_MAGIC = b"PK\x06\x06", b"PK\x06\x07"
_UTF8 = 0x800
_DATE = 0x21  # 1980-01-01, the first that the format can hold
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_LONGEST_COMMENT = 0xFFFF
_ZIP64_EXTRA = 1
_PADDING_EXTRA = 0x4246  # "FB"
_STORED, _DEFLATED = 0, 8
_CHUNK = 1 << 24

MAGIC = _LOCAL_MAGIC


class Entry(NamedTuple):
    """One file of an archive: where its local header is, and its size."""

    name: str
    header_offset: int
    size: int
    stored_size: int
    crc: int
    method: int
    flags: int


def checksum(data: Any) -> int:
    """CRC-32 of a buffer."""
    return zlib.crc32(data)


class ZipWriter:
    """Writes entries one after the other; nothing is ever sought, so any stream will do.

    Args:
        write: takes the bytes.
        root: the folder that all entries are in.
        alignment: of the first byte of each entry.
        with_checksums: compute CRCs; otherwise they are 0.
    """

    def __init__(
        self,
        write: Callable[[Any], Any],
        root: str,
        alignment: int = 64,
        with_checksums: bool = True,
    ) -> None:
        self._write = write
        self._root = root
        self._alignment = alignment
        self._with_checksums = with_checksums
        self._at = 0
        self._entries: list[Entry] = []

    def _put(self, data: Any) -> None:
        self._write(data)
        self._at += len(data)

    def add(self, name: str, data: Any) -> None:
        """Write one entry from a buffer of bytes."""
        view = memoryview(data).cast("B")
        crc = checksum(view) if self._with_checksums else 0
        self._begin(name, view.nbytes, crc)
        # Some streams take no more than 2 GiB at once.
        for start in range(0, view.nbytes, _CHUNK):
            self._write(view[start : start + _CHUNK])
        self._at += view.nbytes

    def add_hole(self, name: str, size: int, skip: Callable[[int], Any]) -> None:
        """Write an entry whose bytes are left out: `skip` moves on by so many."""
        self._begin(name, size, 0)
        skip(size)
        self._at += size

    def _begin(self, name: str, size: int, crc: int) -> None:
        path = f"{self._root}/{name}"
        encoded = path.encode()
        start = self._at
        extra = b""
        if size >= _MAX32 or start >= _MAX32:
            extra = struct.pack("<2H2Q", _ZIP64_EXTRA, 16, size, size)
        # The padding field has a header of 4 bytes itself.
        fixed = start + _LOCAL.size + len(encoded) + len(extra) + 4
        padding = -fixed % self._alignment
        extra += struct.pack("<2H", _PADDING_EXTRA, padding) + b"Z" * padding
        shown = _MAX32 if size >= _MAX32 or start >= _MAX32 else size
        self._put(
            _LOCAL.pack(
                _LOCAL_MAGIC, 45 if shown == _MAX32 else 20, _UTF8, _STORED, 0, _DATE,
                crc, shown, shown, len(encoded), len(extra),
            )
            + encoded
            + extra
        )  # fmt: skip
        self._entries.append(Entry(path, start, size, size, crc, _STORED, _UTF8))

    def combined_checksum(self) -> int:
        """A number of all entries so far, their names and CRCs."""
        both = 0
        for entry in self._entries:
            both = zlib.crc32(entry.name.encode(), zlib.crc32(struct.pack("<I", entry.crc), both))
        return both

    def finish(self) -> None:
        """Write the directory."""
        start = self._at
        for entry in self._entries:
            self._put(_central_record(entry))
        size, count = self._at - start, len(self._entries)
        if start >= _MAX32 or size >= _MAX32 or count >= _MAX16:
            end64 = self._at
            self._put(
                _END64.pack(_END64_MAGIC, _END64.size - 12, 45, 45, 0, 0, count, count, size, start)
            )
            self._put(_LOCATOR64.pack(_LOCATOR64_MAGIC, 0, end64, 1))
        few = min(count, _MAX16)
        ends = min(size, _MAX32), min(start, _MAX32)
        self._put(_END.pack(_END_MAGIC, 0, 0, few, few, *ends, 0))


def _central_record(entry: Entry) -> bytes:
    name = entry.name.encode()
    extra = b""
    size, offset = entry.size, entry.header_offset
    if size >= _MAX32 or offset >= _MAX32:
        # Both sizes and the offset, all of them even where one alone is too large.
        extra = struct.pack("<2H3Q", _ZIP64_EXTRA, 24, size, size, offset)
        size = offset = _MAX32
    version = 45 if extra else 20
    return (
        _CENTRAL.pack(
            _CENTRAL_MAGIC, version, version, _UTF8, _STORED, 0, _DATE, entry.crc, size, size,
            len(name), len(extra), 0, 0, 0, 0, offset,
        )
        + name
        + extra
    )  # fmt: skip


def _bad(what: str) -> RuntimeError:
    return RuntimeError(f"PytorchStreamReader failed {what}")


class ZipReader:
    """Reads the entries of an archive in a seekable file.

    Args:
        file: open for reading bytes; the archive ends where it ends.

    Raises:
        RuntimeError: where it is no zip archive, or a broken one.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._base = file.tell()
        file.seek(0, os.SEEK_END)
        self._end = file.tell()
        self._entries: dict[str, Entry] = {}
        try:
            self._read_directory()
        except (struct.error, UnicodeDecodeError) as error:
            raise _bad("reading zip archive: the directory is damaged") from error
        if not self._entries:
            raise _bad("reading zip archive: it has no entries")
        first = next(iter(self._entries))
        if "/" not in first:
            raise _bad(
                f"finding the root folder: file in archive is not in a subdirectory: {first}"
            )
        #: The folder that all entries are in.
        self.root = first.split("/", 1)[0]

    def _at(self, offset: int, size: int) -> bytes:
        self._file.seek(self._base + offset)
        return self._file.read(size)

    def _read_directory(self) -> None:
        length = self._end - self._base
        tail_size = min(length, _LOCATOR64.size + _END.size + _LONGEST_COMMENT)
        tail = self._at(length - tail_size, tail_size)
        where = tail.rfind(_END_MAGIC)
        if where < 0:
            raise _bad("reading zip archive: failed finding central directory")
        end = _END.unpack_from(tail, where)
        count, size, start = end[4], end[5], end[6]
        if count == _MAX16 or _MAX32 in (size, start) or self._has_locator(tail, where):
            locator = _LOCATOR64.unpack_from(tail, where - _LOCATOR64.size)
            if locator[0] != _LOCATOR64_MAGIC:
                raise _bad("reading zip archive: the zip64 directory is missing")
            end64 = _END64.unpack(self._at(locator[2], _END64.size))
            if end64[0] != _END64_MAGIC:
                raise _bad("reading zip archive: the zip64 directory is damaged")
            count, size, start = end64[7], end64[8], end64[9]
        directory = self._at(start, size)
        at = 0
        for _ in range(count):
            at = self._read_entry(directory, at)

    @staticmethod
    def _has_locator(tail: bytes, where: int) -> bool:
        before = where - _LOCATOR64.size
        return before >= 0 and tail[before : before + 4] == _LOCATOR64_MAGIC

    def _read_entry(self, directory: bytes, at: int) -> int:
        fields = _CENTRAL.unpack_from(directory, at)
        if fields[0] != _CENTRAL_MAGIC:
            raise _bad("reading zip archive: the directory is damaged")
        flags, method, crc, stored, size = fields[3], fields[4], fields[7], fields[8], fields[9]
        name_size, extra_size, comment_size, offset = fields[10], fields[11], fields[12], fields[16]
        at += _CENTRAL.size
        name = directory[at : at + name_size].decode()
        at += name_size
        extra = directory[at : at + extra_size]
        size, stored, offset = _with_zip64(extra, size, stored, offset)
        self._entries[name] = Entry(name, offset, size, stored, crc, method, flags)
        return at + extra_size + comment_size

    def names(self) -> list[str]:
        """The names of all entries, without the root folder."""
        cut = len(self.root) + 1
        return [name[cut:] for name in self._entries]

    def __contains__(self, name: str) -> bool:
        return f"{self.root}/{name}" in self._entries

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(f"{self.root}/{name}")
        if entry is None:
            raise _bad(f"locating file {name}: file not found")
        return entry

    def size(self, name: str) -> int:
        """Bytes of an entry."""
        return self._entry(name).size

    def offset(self, name: str) -> int:
        """Where the bytes of a stored entry begin, counted from the beginning of the archive."""
        return self._data_offset(self._entry(name))

    def is_stored(self, name: str) -> bool:
        """Whether the bytes of an entry stand in the file as they are."""
        return self._entry(name).method == _STORED

    def _data_offset(self, entry: Entry) -> int:
        header = self._at(entry.header_offset, _LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != _LOCAL_MAGIC:
            raise _bad(f"reading file {entry.name}: invalid header or archive is corrupted")
        fields = _LOCAL.unpack(header)
        return entry.header_offset + _LOCAL.size + fields[9] + fields[10]

    def read(self, name: str) -> bytes:
        """All bytes of an entry."""
        buffer = bytearray(self.size(name))
        self.read_into(name, memoryview(buffer))
        return bytes(buffer)

    def read_into(self, name: str, view: memoryview) -> None:
        """Read an entry into memory of just its size.

        Raises:
            RuntimeError: where the size differs, bytes are missing, or the CRC does not agree.
        """
        entry = self._entry(name)
        view = view.cast("B")
        if view.nbytes != entry.size:
            raise _bad(f"reading file {name}: it has {entry.size} bytes and not {view.nbytes}")
        self._file.seek(self._base + self._data_offset(entry))
        if entry.method == _STORED:
            self._fill(view, name)
        elif entry.method == _DEFLATED:
            packed = self._file.read(entry.stored_size)
            unpacked = zlib.decompressobj(-15).decompress(packed, entry.size + 1)
            if len(unpacked) != entry.size:
                raise _bad(f"reading file {name}: file read failed")
            view[:] = unpacked
        else:
            raise _bad(f"reading file {name}: compression method {entry.method} is not supported")
        # 0 stands for "not computed": torch writes that when told to save the time.
        if entry.crc and checksum(view) != entry.crc:
            raise _bad(f"reading file {name}: file read failed (its checksum does not agree)")

    def _fill(self, view: memoryview, name: str) -> None:
        readinto = getattr(self._file, "readinto", None)
        done = 0
        while done < view.nbytes:
            if readinto is not None:
                got = readinto(view[done:])
            else:
                chunk = self._file.read(min(view.nbytes - done, _CHUNK))
                got = len(chunk)
                view[done : done + got] = chunk
            if not got:
                raise _bad(f"reading file {name}: file read failed")
            done += got


def _with_zip64(extra: bytes, size: int, stored: int, offset: int) -> tuple[int, int, int]:
    """The sizes and the offset, from the extra field where they do not fit in 32 bits."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        at += 4
        if kind == _ZIP64_EXTRA:
            values = iter(struct.unpack_from(f"<{length // 8}Q", extra, at))
            size = next(values) if size == _MAX32 else size
            stored = next(values) if stored == _MAX32 else stored
            offset = next(values) if offset == _MAX32 else offset
        at += length
    return size, stored, offset
