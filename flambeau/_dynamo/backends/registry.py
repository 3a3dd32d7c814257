"""The registry of back ends."""

from flambeau._src.compiler.backends import (  # noqa: F401
    list_backends,
    lookup_backend,
    register_backend,
)
from flambeau._src.compiler.errors import InvalidBackend  # noqa: F401


def register_debug_backend(*args: object, **kwargs: object) -> object:
    """`register_backend` with the tag "debug"."""
    return register_backend(*args, **kwargs, tags=("debug",))  # type: ignore[arg-type]


def register_experimental_backend(*args: object, **kwargs: object) -> object:
    """`register_backend` with the tag "experimental"."""
    return register_backend(*args, **kwargs, tags=("experimental",))  # type: ignore[arg-type]
