"""The stages of compiled functions as a picture: when each ran, and how long it took.

The horizontal axis is time in the compiler. Where the program ran in between (a backward is
compiled when it is first needed) the axis is cut, and the cut says how long that was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from math import floor
from pathlib import Path
from typing import Any

from flambeau._src.compiler.history import Entry, Step

__all__ = ["draw"]

_WIDTH, _ROW, _BAR, _CHAR, _EDGE, _CUT = 960, 20, 12, 6.7, 16, 26
_INK, _FAINT, _GRID, _FAILED, _INSIDE = "#222", "#777", "#e4e4e4", "#b03024", "#fff"
#: By the part of the work (`Stage.part`).
_COLOURS = {"capture": "#4878a8", "graphs": "#5a9367", "kernels": "#a8741a", "code": "#b5654a"}
_OTHER = "#8a8a8a"


def draw(compiled: Any, path: Any = None) -> str:
    """A drawing of what was compiled, stage by stage, as SVG; also written to `path`.

    Args:
        compiled: what `torch.compile` gave, an entry of it, or several entries, which are drawn one
            below the other.

    Raises ValueError: nothing has been compiled yet.
    """
    if isinstance(compiled, Entry):
        entries: Iterable[Entry] = [compiled]
    else:
        entries = compiled.compiler().entries if hasattr(compiled, "compiler") else compiled
    shown = [e for e in entries if e.history]
    if not shown:
        raise ValueError("there is nothing to draw: nothing has been compiled yet")
    text = _picture(shown)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


class _Axis:
    """From a time (seconds of the clock) to a place: pieces of time in the compiler, cut apart."""

    def __init__(self, steps: Sequence[Step], left: float, right: float) -> None:
        # Between two stages the compiler is at work too; the program runs before the backward's.
        self.pieces: list[tuple[float, float]] = []
        for _, part in groupby(steps, key=lambda s: s.backward):
            times = [(s.begun, s.ended) for s in part]
            begun, ended = min(b for b, _ in times), max(e for _, e in times)
            if self.pieces and begun <= self.pieces[-1][1]:  # within the other half's work
                first, last = self.pieces.pop()
                begun, ended = first, max(last, ended)
            self.pieces.append((begun, ended))
        self.seconds = sum(b - a for a, b in self.pieces)
        self.left, cuts = left, len(self.pieces) - 1
        self.scale = max(right - left - cuts * _CUT, 1.0) / max(self.seconds, 1e-9)

    def at(self, time: float) -> float:
        """The place of a time that lies in one of the pieces."""
        x = self.left
        for begun, ended in self.pieces:
            if time <= ended:
                return x + (time - begun) * self.scale
            x += (ended - begun) * self.scale + _CUT
        return x - _CUT

    def cuts(self) -> list[tuple[float, float]]:
        """Middle of each cut, and the milliseconds left out there."""
        return [
            (self.at(before[1]) + _CUT / 2, (after[0] - before[1]) * 1e3)
            for before, after in zip(self.pieces, self.pieces[1:], strict=False)
        ]

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers of milliseconds in the compiler, and their places."""
        every = _round(self.seconds * 1e3 / 8)
        found, passed = [], 0.0
        for begun, ended in self.pieces:
            length = (ended - begun) * 1e3
            first = floor(passed / every + 1e-9) + 1 if passed else 0
            for k in range(first, floor((passed + length) / every + 1e-9) + 1):
                at = self.at(begun) + (k * every - passed) / 1e3 * self.scale
                found.append((at, f"{k * every:g}"))
            passed += length
        return found


def _round(value: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below the value."""
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 1.0
    while power > value:
        power /= 10
    return next(m * power for m in (1, 2, 5, 10) if m * power >= value)


def _text(x: float, y: float, text: str, fill: str = _INK, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{more}>{escape(text)}</text>'


def _under(x: float, y: float, text: str, right: float) -> str:
    """A text in the middle under x, or as far to the right as there is room."""
    half = len(text) * _CHAR / 2
    return _text(min(x, right - half), y, text, _FAINT, ' text-anchor="middle"')


def _line(x: float, top: float, bottom: float, stroke: str, more: str = "") -> str:
    return f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{stroke}"{more}/>'


def _picture(entries: list[Entry]) -> str:
    bands, y = [], float(_EDGE)
    left = _EDGE + max(len(s.stage) for e in entries for s in e.history) * _CHAR + 10
    for entry in entries:
        lines, height = _band(entry, y, left)
        bands += lines
        y += height + _EDGE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y:.0f}" '
            'font-family="monospace" font-size="11">',
            f"<title>{escape(', '.join(f'{e.id} {e.name}' for e in entries))}</title>",
            f'<rect width="{_WIDTH}" height="{y:.0f}" fill="#fff"/>',
            *bands,
            "</svg>\n",
        ]
    )


def _band(entry: Entry, top: float, left: float) -> tuple[list[str], float]:
    """One entry: its title, a row for each stage and the axis; and how high that is."""
    steps = sorted(entry.history, key=lambda s: s.begun)
    right = float(_WIDTH - _EDGE)
    axis = _Axis(steps, left, right)
    first = top + 22
    last = first + len(steps) * _ROW
    place = f"{Path(entry.filename).name}:{entry.line}"
    out = [
        _text(_EDGE, top + 9, f"{entry.id}  {entry.name}", more=' font-weight="bold"'),
        _text(right, top + 9, f"{place} · {_ms(entry.history.milliseconds)} in all", _FAINT,
              ' text-anchor="end"'),
    ]  # fmt: skip
    for x, label in axis.ticks():
        out += [
            _line(x, first, last, _GRID),
            _under(x, last + 13, label, right),
        ]
    for x, left_out in axis.cuts():
        out += [
            _line(x, first, last, _FAINT, ' stroke-dasharray="2 3"'),
            _under(x, last + 26, f"the program: {_ms(left_out)}", right),
        ]
    for i, step in enumerate(steps):
        out += _row(step, axis, first + i * _ROW, right)
    out.append(_text(_EDGE, last + 13, "ms", _FAINT))
    return out, last + (32 if axis.cuts() else 18) - top


def _row(step: Step, axis: _Axis, top: float, right: float) -> list[str]:
    x, end = axis.at(step.begun), axis.at(step.ended)
    width = max(end - x, 1.5)
    middle = top + _ROW / 2 + 4
    label = _ms(step.milliseconds)
    if step.error is not None:
        label += f"  failed: {type(step.error).__name__}"
    room, colour = len(label) * _CHAR + 10, _COLOURS.get(step.part, _OTHER)
    opacity = ' fill-opacity="0.6"' if step.backward else ""
    edge = f' stroke="{_FAILED}" stroke-width="1.5"' if step.error is not None else ""
    bar = (
        f'<rect x="{x:.1f}" y="{top + (_ROW - _BAR) / 2:.1f}" width="{width:.1f}" height="{_BAR}" '
        f'fill="{colour}"{opacity}{edge}><title>{escape(step.stage)}: {label}</title></rect>'
    )
    # Beside the bar, on a ground that hides the lines; inside where there is no room.
    after, ink = x + width, _INK if step.error is None else _FAILED
    if after + room <= right:
        beside, ground, anchor = after + 5, after + 2, ""
    elif x - room > axis.left:
        beside, ground, anchor = x - 5, x - room, ' text-anchor="end"'
    else:
        return [_text(_EDGE, middle, step.stage), bar,
                _text(after - 5, middle, label, _INSIDE, ' text-anchor="end"')]  # fmt: skip
    return [
        _text(_EDGE, middle, step.stage),
        f'<rect x="{ground:.1f}" y="{top + 2:.1f}" width="{room - 2:.1f}" height="{_ROW - 4}" '
        'fill="#fff"/>',
        bar,
        _text(beside, middle, label, ink, anchor),
    ]


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.{0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2}f} ms"
