"""x[...]: basic indices become views, tensors gather."""

from __future__ import annotations

from typing import Any

METHODS: dict[str, Any] = {}
OPERATORS: dict[str, Any] = {}
