"""Logging, announcements made once, and counters of the fallbacks that were taken.

``logger("capture")`` is the logger ``flambeau.capture``. The standard ``logging`` package is
imported when something is first logged, not when flambeau is imported.

A slow or partial path is never silent: it calls `fallback`, which counts every time and announces
once. `counters` shows the counts, so a test can demand that none was taken.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from flambeau._src.util.config import config

if TYPE_CHECKING:
    import logging

__all__ = ["count", "counters", "fallback", "logger", "parse_log", "reset_counters", "warn_once"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50, "off": 60}
_ROOT = "flambeau"
_announced: set[str] = set()
_counts: dict[str, int] = {}
_lock = Lock()


def logger(name: str = "") -> logging.Logger:
    """The logger ``flambeau.<name>`` (the root of the tree without a name)."""
    import logging  # lazy: 3 ms that a program without logging need not pay

    root = logging.getLogger(_ROOT)
    if not getattr(root, "_flambeau_ready", False):
        root._flambeau_ready = True  # type: ignore[attr-defined]
        _apply_levels(logging, config.log)
    return logging.getLogger(f"{_ROOT}.{name}") if name else root


def parse_log(text: str) -> dict[str, int]:
    """Levels by part, from ``FLAMBEAU_LOG``: ``{"": 20}`` for ``"info"``.

    Items are separated by commas: a level for everything, ``part=level`` for one part, or, as in
    ``TORCH_LOGS``, ``+part`` (debug), ``part`` (info), ``-part`` (error). ``all`` means everything.
    """
    levels: dict[str, int] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        part, equals, level = item.partition("=")
        if equals:
            number = _LEVELS.get(level.strip().lower())
            if number is None:
                raise ValueError(f"log level must be one of {', '.join(_LEVELS)}, got {level!r}")
            levels[part.strip().lower()] = number
        elif item.lower() in _LEVELS:
            levels[""] = _LEVELS[item.lower()]
        else:
            sign = item[0] if item[0] in "+-" else ""
            levels[item.lstrip("+-")] = {"+": 10, "": 20, "-": 40}[sign]
    if "all" in levels:
        levels[""] = levels.pop("all")
    return levels


def warn_once(key: str, message: str, category: type[Warning] = UserWarning) -> bool:
    """Warn the first time that `key` is seen in this process. Returns whether it did."""
    with _lock:
        if key in _announced:
            return False
        _announced.add(key)
    import warnings  # lazy: on the rare path only

    warnings.warn(message, category, stacklevel=_user_stacklevel())
    return True


def count(name: str, increment: int = 1) -> None:
    """Add to the counter `name`."""
    with _lock:
        _counts[name] = _counts.get(name, 0) + increment


def fallback(name: str, message: str) -> None:
    """Count a fallback under ``fallback.<name>`` and announce it once, at level INFO."""
    count(f"fallback.{name}")
    with _lock:
        first = name not in _announced
        _announced.add(name)
    if first:
        logger("fallback").info("%s", message)


def counters() -> dict[str, int]:
    """A copy of all counters."""
    with _lock:
        return dict(_counts)


def reset_counters() -> None:
    """Set all counters to nothing and forget which announcements were made (for tests)."""
    with _lock:
        _counts.clear()
        _announced.clear()


def _apply_levels(logging_module: object, text: str) -> None:
    if not text:
        return
    handler = logging_module.StreamHandler()  # type: ignore[attr-defined]
    form = "%(name)s %(levelname)s: %(message)s"
    handler.setFormatter(logging_module.Formatter(form))  # type: ignore[attr-defined]
    root = logging_module.getLogger(_ROOT)  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.propagate = False
    for part, level in parse_log(text).items():
        name = f"{_ROOT}.{part}" if part else _ROOT
        logging_module.getLogger(name).setLevel(level)  # type: ignore[attr-defined]


def _user_stacklevel() -> int:
    """How far up the stack the first frame outside flambeau is, for ``warnings.warn``."""
    import sys  # lazy: on the rare path only

    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module != _ROOT and not module.startswith(_ROOT + "."):
            return level
        frame = frame.f_back
        level += 1
    return level
