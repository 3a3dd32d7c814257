"""Whether what was made from source files is still what they would give."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

__all__ = ["are_current", "set_time", "stamps"]

_MARGIN = 1_000_000_000


def _stamp(path: str) -> list[Any]:
    from importlib.util import source_hash  # lazy: where nothing changed, nothing is read

    with open(path, "rb") as file:
        content = file.read()
    return [len(content), source_hash(content).hex()]


def stamps(root: str, names: Iterable[str]) -> dict[str, list[Any]]:
    """Size and hash of the content of the files `names` below `root`, by name."""
    return {name: _stamp(os.path.join(root, name)) for name in names}


def are_current(made: str, root: str, names: Iterable[str], known: Mapping[str, list[Any]]) -> bool:
    """Whether the files `names` below `root` are those of which `stamps` told `known` when the file
    `made` was written.

    Sizes are compared always, contents only of files changed after `made`; where they are the same
    nevertheless, `made` gets a later time, so that they need not be read again.

    Raises OSError: a file cannot be read.
    """
    names = list(names)
    if len(names) != len(known):
        return False
    since, now, reread = os.stat(made).st_mtime_ns, time.time_ns(), False
    for name in names:
        path = os.path.join(root, name)
        found = os.stat(path)
        stamp = known.get(name)
        if stamp is None or found.st_size != stamp[0]:
            return False
        if found.st_mtime_ns > since:
            reread = True
            if _stamp(path) != stamp:
                return False
    if reread:
        with suppress(OSError):  # it lies where this user may not write
            set_time(made, now)
    return True


def set_time(made: str, since: int) -> None:
    """Let `made` date from `since` (nanoseconds), less what clocks of files may lag behind."""
    os.utime(made, ns=(since - _MARGIN, since - _MARGIN))
