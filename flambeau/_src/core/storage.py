"""Storage cells in Python: sharing between processes, mapped files, and what the C cell lacks."""

from __future__ import annotations

from typing import Any

METHODS: dict[str, Any] = {}
