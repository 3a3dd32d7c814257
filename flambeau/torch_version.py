"""The version as a string that compares as a version: with strings, tuples and other versions."""

from __future__ import annotations

from typing import Any

__all__ = ["TorchVersion"]

_STAGES = {
    "dev": -4,
    "a": -3,
    "alpha": -3,
    "b": -2,
    "beta": -2,
    "c": -1,
    "rc": -1,
    "pre": -1,
    "preview": -1,
}
_POST = {"post": 1, "rev": 1, "r": 1}


def _pieces(text: str) -> list[str]:
    """'1.2rc3.dev4' as ['1', '2', 'rc', '3', 'dev', '4']."""
    found, word = [], ""
    for c in text:
        kind = c.isdigit()
        if not c.isalnum() or (word and word[-1].isdigit() != kind):
            found.append(word)
            word = ""
        if c.isalnum():
            word += c
    return [w for w in (*found, word) if w]


def _key(version: Any) -> tuple[Any, ...]:
    """What versions are ordered by (PEP 440): the epoch, the numbers, the stage, the local part.

    Raises:
        ValueError: it is no version.
    """
    if isinstance(version, (tuple, list)):
        version = ".".join(map(str, version))
    text = str(version).strip().lower().removeprefix("v")
    public, _, local = text.partition("+")
    epoch, mark, numbers = public.partition("!")
    if not mark:
        epoch, numbers = "0", public
    release: list[int] = []
    stages: list[tuple[int, int]] = []
    words = _pieces(numbers)
    while words and words[0].isdigit() and not stages:
        release.append(int(words.pop(0)))
    while words:
        name = words.pop(0)
        number = int(words.pop(0)) if words and words[0].isdigit() else 0
        if name not in _STAGES and name not in _POST:
            raise ValueError(f"Invalid version: {version!r}")
        stages.append((_STAGES.get(name, 1), number))
    if not release or not epoch.isdigit():
        raise ValueError(f"Invalid version: {version!r}")
    while len(release) > 1 and not release[-1]:
        release.pop()
    after = tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in _pieces(local))
    return int(epoch), tuple(release), (*stages, (0, 0)), after


class TorchVersion(str):
    """A version string.

    `v >= "2.1"`, `v >= (2, 1)` and `v >= Version("2.1")` all compare versions.
    """

    __slots__ = ()

    def _compare(self, other: Any, method: str) -> bool:
        try:
            left, right = _key(str(self)), _key(other)
        except ValueError:
            # What is no version is compared as text.
            return bool(getattr(str, method)(str(self), other))
        return bool(getattr(left, method)(right))

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "__lt__")

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "__le__")

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, "__gt__")

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, "__ge__")

    def __eq__(self, other: object) -> bool:
        return self._compare(other, "__eq__")

    # As torch's: `!=` compares the text.
    __ne__ = str.__ne__
    __hash__ = str.__hash__
