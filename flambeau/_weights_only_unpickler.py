"""The unpickler behind ``load(weights_only=True)``, where programs look for it."""

from __future__ import annotations

from ._checkpoint.restricted import (
    Unpickler,
    load,
)
from ._checkpoint.restricted import (
    add_safe_globals as _add_safe_globals,
)
from ._checkpoint.restricted import (
    clear_safe_globals as _clear_safe_globals,
)
from ._checkpoint.restricted import (
    default_allowed as _get_allowed_globals,
)
from ._checkpoint.restricted import (
    get_safe_globals as _get_safe_globals,
)
from ._checkpoint.restricted import (
    user_allowed as _get_user_allowed_globals,
)

__all__ = [
    "Unpickler",
    "_add_safe_globals",
    "_clear_safe_globals",
    "_get_allowed_globals",
    "_get_safe_globals",
    "_get_user_allowed_globals",
    "load",
]
