"""Questions about the capture."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

#: What happened, by part and name.
counters: defaultdict[str, Counter[str]] = defaultdict(Counter)


def is_compile_supported(device_type: Any) -> bool:
    """Whether `compile` works for a device: not yet for any."""
    return False
