"""What `match` asks of its subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src.capture import attributes, classes
from flambeau._src.capture.outcome import Raised

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["class_", "is_mapping", "is_sequence", "keys"]

_SEQUENCE, _MAPPING = 1 << 5, 1 << 6  # flags of types
_SELF_MATCHING = (
    bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple
)  # fmt: skip
_NOTHING = object()


def is_sequence(s: Session, value: Any) -> bool:
    """Whether sequence patterns may match."""
    return bool(classes.type_of(s, value).__flags__ & _SEQUENCE)


def is_mapping(s: Session, value: Any) -> bool:
    """Whether mapping patterns may match."""
    return bool(classes.type_of(s, value).__flags__ & _MAPPING)


def keys(s: Session, subject: Any, names: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The values of the keys, None if one is missing."""
    found = []
    for key in names:
        if isinstance(subject, dict):
            value = subject.get(key, _NOTHING)
        else:
            value = s.call_method(subject, "get", key, _NOTHING)
        if value is _NOTHING:
            return None
        found.append(value)
    return tuple(found)


def class_(s: Session, subject: Any, cls: Any, count: int, names: tuple[str, ...]) -> Any:
    """The values of a class pattern's parts, None if it does not match."""
    if not isinstance(cls, type):
        s.raise_(TypeError("called match pattern must be a class"))
    if not classes.is_instance(s, subject, cls):
        return None
    found = []
    if count:
        if cls in _SELF_MATCHING and "__match_args__" not in cls.__dict__:
            found.append(subject)
            allowed = 1
        else:
            match_args = getattr(cls, "__match_args__", ())
            allowed = len(match_args)
            if count <= allowed:
                names = (*match_args[:count], *names)
        if count > allowed:
            text = f"{cls.__name__}() accepts {allowed} positional sub-pattern"
            s.raise_(TypeError(f"{text}{'' if allowed == 1 else 's'} ({count} given)"))
    for name in names:
        try:
            found.append(attributes.get(s, subject, name))
        except Raised as raised:
            if isinstance(raised.error, AttributeError):
                return None
            raise
    return tuple(found)
