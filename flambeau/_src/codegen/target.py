"""What machine a kernel's text is written for: vector width and instruction set, no probing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GENERIC", "TARGETS", "V3", "V4", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """``isa`` is 'avx512', 'avx2' (with FMA and F16C) or 'generic' (plain vector extensions).

    ``march`` is the compiler's name for the level, for code that must run on other machines;
    code for this machine alone is compiled with ``-march=native``.
    """

    name: str
    isa: str
    vector_bytes: int
    march: str


V4 = Target("x86-64-v4", "avx512", 64, "x86-64-v4")
V3 = Target("x86-64-v3", "avx2", 32, "x86-64-v3")
GENERIC = Target("generic", "generic", 16, "")
TARGETS = {t.name: t for t in (V4, V3, GENERIC)}
