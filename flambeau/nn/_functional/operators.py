"""The functions of operators, also of those that the table does not have (yet).

A name that is missing is looked for when it is called, and says then that it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def operator(module: Any, name: str) -> Callable[..., Any]:
    """`module.name`; where there is none, a function that looks for it at every call."""
    found = getattr(module, name, None)
    if found is not None:
        return found

    def late(*args: Any, **kwargs: Any) -> Any:
        return getattr(module, name)(*args, **kwargs)

    late.__name__ = late.__qualname__ = name
    return late
