"""A progress bar in a terminal; elsewhere (a log file) a plain line every few seconds."""

from __future__ import annotations

import shutil
import sys
import time


class Bar:
    """Shows steps, speed and time left. `each` units of work are done in a step."""

    def __init__(self, total: int, done: int, each: int, unit: str) -> None:
        self.total, self.first, self.each, self.unit = total, done, each, unit
        self.live = sys.stderr.isatty()
        self.pause = 0.1 if self.live else 5.0
        self.started = self.shown = time.perf_counter()

    def update(self, done: int, text: str) -> None:
        """Say that `done` steps are done; drawn again only after a pause."""
        now = time.perf_counter()
        if now - self.shown < self.pause and done < self.total:
            return
        self.shown = now
        speed = (done - self.first) / max(now - self.started, 1e-9)
        left = (self.total - done) / max(speed, 1e-9)
        tail = (
            f" {done}/{self.total}  {text}  {speed * self.each:,.0f} {self.unit}/s"
            f"  {int(left) // 60}:{int(left) % 60:02d} left"
        )
        if not self.live:
            print(tail.strip(), file=sys.stderr, flush=True)
            return
        room = max(10, min(40, shutil.get_terminal_size().columns - len(tail) - 3))
        full = room * done // max(1, self.total)
        print(f"\r\x1b[K[{'=' * full}{' ' * (room - full)}]{tail}", end="", file=sys.stderr)
        sys.stderr.flush()

    def note(self, line: str) -> None:
        """Print a line that stays, above the bar."""
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        print(line, flush=True)

    def close(self) -> None:
        if self.live:
            print(file=sys.stderr, flush=True)
