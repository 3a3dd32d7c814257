"""The exception table and the location table of a code object, as bytes.

Both formats are described in CPython's `Objects/exception_handling_notes.txt` and
`Objects/locations.md` (3.11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flambeau._src.capture.bytecode.program import Positions

__all__ = ["read_exceptions", "write_exceptions", "write_locations"]

_NOTHING = Positions(None)


def read_exceptions(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, target, depth, lasti) of each entry, in code units; `end` is exclusive."""
    values: list[int] = []
    at = 0
    while at < len(table):
        byte = table[at]
        at += 1
        value = byte & 63
        while byte & 64:
            byte = table[at]
            at += 1
            value = value << 6 | byte & 63
        values.append(value)
        if len(values) == 4:
            start, length, target, rest = values
            values = []
            yield start, start + length, target, rest >> 1, bool(rest & 1)


def write_exceptions(entries: Sequence[tuple[int, int, int, int, bool]]) -> bytes:
    """The inverse of `read_exceptions`. The first byte of an entry has its highest bit set."""
    out = bytearray()
    for start, end, target, depth, lasti in entries:
        first = len(out)
        for value in (start, end - start, target, depth << 1 | lasti):
            shift = 24
            while shift and not value >> shift:
                shift -= 6
            while shift:
                out.append(64 | value >> shift & 63)
                shift -= 6
            out.append(value & 63)
        out[first] |= 128
    return bytes(out)


def _varint(out: bytearray, value: int) -> None:
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)


def _signed(out: bytearray, value: int) -> None:
    _varint(out, -value << 1 | 1 if value < 0 else value << 1)


def write_locations(places: Sequence[tuple[int, Positions | None]], firstlineno: int) -> bytes:
    """The table for instructions given as (code units, place)."""
    out = bytearray()
    line = firstlineno
    for units, where in places:
        while units > 0:
            line = _entry(out, min(units, 8) - 1, where or _NOTHING, line)
            units -= 8
    return bytes(out)


def _entry(out: bytearray, size: int, where: Positions, line: int) -> int:
    """One entry for `size` + 1 code units; returns the line that the next one counts from."""
    at, end, col, end_col = where
    if at is None:
        out.append(128 | 15 << 3 | size)
        return line
    delta = at - line
    if col is None or end_col is None or end is None or end < at:
        out.append(128 | 13 << 3 | size)
        _signed(out, delta)
    elif end == at and delta == 0 and col < 80 and 0 <= end_col - col < 16:
        out.append(128 | col >> 3 << 3 | size)
        out.append((col & 7) << 4 | end_col - col)
    elif end == at and 0 <= delta < 3 and col < 128 and end_col < 128:
        out.append(128 | (10 + delta) << 3 | size)
        out.append(col)
        out.append(end_col)
    else:
        out.append(128 | 14 << 3 | size)
        _signed(out, delta)
        _varint(out, end - at)
        _varint(out, col + 1)
        _varint(out, end_col + 1)
    return at
