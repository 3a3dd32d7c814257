"""The drawing of an entry's history: what it shows is what was timed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import flambeau as torch
from flambeau._dynamo.utils import draw_history
from flambeau._src.compiler.history import Entry, History, Step

SVG = "{http://www.w3.org/2000/svg}"


def entry(*steps: tuple[str, float, float], error: Exception | None = None) -> Entry:
    """Steps are (stage, beginning, length), in milliseconds."""
    made = [
        Step(name, None, length, None, begun / 1e3, backward=name.startswith("backward "))
        for name, begun, length in steps
    ]
    made[-1].error = error
    return Entry("f<x>", "/somewhere/of_mine.py", 7, 3, 1, history=History(made))


def bars(svg: str) -> dict[str, tuple[float, float]]:
    """Beginning and end of each stage's bar, by what a pointer over it would be told."""
    found = {}
    for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None:
            assert title.text is not None
            x, width = float(rect.get("x", "")), float(rect.get("width", ""))
            found[title.text.split(":")[0]] = x, x + width
    return found


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_bars_stand_where_and_as_long_as_the_stages_took() -> None:
    drawn = bars(draw_history(entry(("capture", 10, 100), ("fuse", 120, 50), ("guards", 180, 250))))
    assert list(drawn) == ["capture", "fuse", "guards"]
    ((a, b), (c, d), (e, f)) = drawn.values()
    scale = (b - a) / 100
    assert scale > 1
    for begun, ended, at, length in ((a, b, 0, 100), (c, d, 110, 50), (e, f, 170, 250)):
        assert begun - a == pytest.approx(at * scale, abs=0.15)
        assert ended - begun == pytest.approx(length * scale, abs=0.15)


def test_ticks_are_round_and_in_their_places() -> None:
    svg = draw_history(entry(("capture", 0, 300), ("guards", 300, 100)))
    (x, end), (_, last) = bars(svg).values()
    labels = {
        t.text: float(t.get("x", ""))
        for t in ElementTree.fromstring(svg).iter(f"{SVG}text")
        if re.fullmatch(r"\d+", t.text or "")
    }
    assert set(labels) == {"0", "50", "100", "150", "200", "250", "300", "350", "400"}
    assert labels["0"] == pytest.approx(x, abs=0.1)
    assert labels["300"] == pytest.approx(end, abs=0.1)
    assert labels["400"] == pytest.approx(last, abs=12)  # kept inside the picture


def test_what_the_program_did_before_its_backward_is_cut_out() -> None:
    """Ten seconds between two halves of 100 ms each leave both bars long."""
    svg = draw_history(entry(("capture", 0, 100), ("backward fuse", 10_100, 100)))
    (a, b), (c, d) = bars(svg).values()
    assert b - a == pytest.approx(d - c, abs=0.2)
    assert 0 < c - b < 40
    assert "the program: 10000 ms" in texts(svg)
    # The ticks go on counting time in the compiler.
    assert [t for t in texts(svg) if re.fullmatch(r"\d+", t)] == ["0", "50", "100", "150", "200"]
    apart = draw_history(entry(("capture", 0, 100), ("guards", 10_100, 100)))
    assert not any(t.startswith("the program") for t in texts(apart))


def test_a_failure_shows() -> None:
    svg = draw_history(entry(("capture", 0, 1), ("toolchain", 1, 3), error=KeyError("no <cc>")))
    assert "3.00 ms  failed: KeyError" in texts(svg)


def test_labels_stay_inside() -> None:
    for first, second in ((1000, 0.01), (0.01, 1000), (500, 500), (1e-4, 1e-4)):
        svg = draw_history(entry(("capture", 0, first), ("guards", first, second)))
        for t in ElementTree.fromstring(svg).iter(f"{SVG}text"):
            x, length = float(t.get("x", "")), 6.7 * len(t.text or "")
            left = {"end": x - length, "middle": x - length / 2}.get(t.get("text-anchor", ""), x)
            assert left >= 0 and left + length <= 961, (first, second, t.text)


def test_several_entries_and_a_file(tmp_path: Path) -> None:
    path = tmp_path / "both.svg"
    svg = draw_history([entry(("capture", 0, 5)), entry(("joint", 5, 5))], path)
    assert path.read_text(encoding="utf-8") == svg
    assert list(bars(svg)) == ["capture", "joint"]
    assert texts(svg).count("3/1  f<x>") == 2


def test_a_function_that_was_compiled() -> None:
    fast = torch.compile(lambda x, n: (torch.sin(x) + n).sum())
    with pytest.raises(ValueError, match="nothing has been compiled"):
        draw_history(fast)
    fast(torch.arange(4.0, requires_grad=True), 2).backward()
    (made,) = fast.compiler().entries
    drawn: Any = bars(draw_history(fast))
    assert list(drawn) == [s.stage for s in made.history]
    assert {s.part for s in made.history} == {"capture", "graphs", "kernels", "code"}
    assert {s.part for s in made.history if s.backward} == {"kernels", "code"}
    begun = [s.begun for s in made.history]
    assert begun == sorted(begun) and begun[0] > 0
    places = [x for x, _ in drawn.values()]
    assert places == sorted(places)
    assert draw_history(made) == draw_history([made]) == draw_history(fast)
