"""A progress bar: a bar in a terminal, and a plain line now and then in a log file.

for batch in track(loader, unit="batch"):
    ...

with Bar(total=1000, unit="token", each=2048) as bar:
    for step in range(1000):
        bar.update(loss=loss, lr=rate)
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, TextIO, TypeVar

__all__ = ["Bar", "track"]

_T = TypeVar("_T")

#: Seconds between two drawings, in a terminal and elsewhere.
_PAUSE_TERMINAL = 0.1
_PAUSE_LOG = 5.0
_LONGEST_BAR = 40
_SHORTEST_BAR = 10


class Bar:
    """How far a loop is: steps done, rate, time left, and values such as the loss.

    Args:
        total: number of steps, None where it is not known.
        unit: what the rate counts, ``each`` of them a step.
        each: units in a step.
        done: steps that were done before (a run that is continued); they do not count for the rate.
        label: text before the bar.
        file: where to write (default: standard error).
        pause: seconds between two drawings (default: 0.1 in a terminal, else 5).
    """

    def __init__(
        self,
        total: int | None = None,
        unit: str = "step",
        each: float = 1,
        done: int = 0,
        label: str = "",
        file: TextIO | None = None,
        pause: float | None = None,
    ) -> None:
        self.total = total
        self.unit = unit
        self.each = each
        self.done = self._first = done
        self.label = label
        self.file = sys.stderr if file is None else file
        self.live = self.file.isatty()
        if pause is None:
            pause = _PAUSE_TERMINAL if self.live else _PAUSE_LOG
        self.pause = pause
        self.values: dict[str, Any] = {}
        self._started = self._shown = time.perf_counter()
        self._closed = False
        self._drawn = -1

    def update(self, steps: int = 1, **values: Any) -> None:
        """Say that `steps` more are done, and what values stand beside the bar now.

        Values may be numbers or one-element tensors; they are read only when the bar is drawn.
        """
        self.done += steps
        self.values.update(values)
        now = time.perf_counter()
        if now - self._shown >= self.pause or self.done == self.total:
            self._shown = now
            self._draw(now)

    def note(self, line: str) -> None:
        """Print a line that stays, above the bar."""
        if self.live:
            self.file.write("\r\x1b[K")
        self.file.write(line + "\n")
        self.file.flush()

    def close(self) -> None:
        """Leave the bar as it is and begin a new line. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self.live or self._drawn != self.done:
            self._draw(time.perf_counter())
        if self.live:
            self.file.write("\n")
            self.file.flush()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def rate(self, now: float | None = None) -> float:
        """Units a second since the bar was made."""
        now = time.perf_counter() if now is None else now
        return (self.done - self._first) * self.each / max(now - self._started, 1e-9)

    def text(self, now: float | None = None) -> str:
        """The words of the line, without the bar."""
        now = time.perf_counter() if now is None else now
        rate = self.rate(now)
        parts = [f"{self.done}" if self.total is None else f"{self.done}/{self.total}"]
        parts += [f"{name} {_number(value)}" for name, value in self.values.items()]
        parts.append(f"{rate:,.0f} {self.unit}/s" if rate >= 10 else f"{rate:.2f} {self.unit}/s")
        if self.total is not None and self.done < self.total and rate > 0:
            parts.append(f"{_clock((self.total - self.done) * self.each / rate)} left")
        else:
            parts.append(_clock(now - self._started))
        return "  ".join(parts)

    def _draw(self, now: float) -> None:
        self._drawn = self.done
        line = self.text(now)
        label = f"{self.label} " if self.label else ""
        if not self.live:
            self.file.write(f"{label}{line}\n")
            self.file.flush()
            return
        bar = ""
        if self.total:
            width = shutil.get_terminal_size().columns - len(line) - len(label) - 4
            width = max(_SHORTEST_BAR, min(_LONGEST_BAR, width))
            full = width * min(self.done, self.total) // self.total
            bar = f"[{'=' * full}{' ' * (width - full)}] "
        self.file.write(f"\r\x1b[K{label}{bar}{line}")
        self.file.flush()


def track(iterable: Iterable[_T], total: int | None = None, **options: Any) -> Iterator[_T]:
    """Go through `iterable` with a `Bar`, whose other arguments are `options`."""
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with Bar(total, **options) as bar:
        for item in iterable:
            yield item
            bar.update()


def _number(value: Any) -> str:
    if isinstance(value, (int, str)):
        return str(value)
    return f"{float(value):.4g}"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
