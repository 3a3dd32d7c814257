"""What `match` asks of its subject."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import attributes, classes
from flambeau._src.capture.lookup import MISSING, lookup
from flambeau._src.capture.outcome import Raised
from flambeau._src.capture.values.constant import is_plain

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["class_", "is_mapping", "is_sequence", "keys"]

_SEQUENCE, _MAPPING = 1 << 5, 1 << 6  # flags of types
_MATCHES_SELF = 1 << 22
_GETS = (dict.get, collections.OrderedDict.get)
_NOTHING = object()


def is_sequence(s: Session, value: Any) -> bool:
    """Whether sequence patterns may match."""
    return bool(classes.type_of(s, value).__flags__ & _SEQUENCE)


def is_mapping(s: Session, value: Any) -> bool:
    """Whether mapping patterns may match."""
    return bool(classes.type_of(s, value).__flags__ & _MAPPING)


def keys(s: Session, subject: Any, names: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The values of the keys, None if one is missing."""
    found: list[Any] = []
    own = isinstance(subject, dict) and lookup(type(subject), "get") in _GETS
    for i, key in enumerate(names):
        if is_plain(key) and any(is_plain(k) and k == key for k in names[:i]):
            s.raise_(ValueError(f"mapping pattern checks duplicate key ({key!r})"))
        if own:
            value = dict.get(subject, key, _NOTHING)
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
    found, positional = [], []
    if count:
        matches_self = cls.__flags__ & _MATCHES_SELF and lookup(cls, "__match_args__") is MISSING
        positional = [] if matches_self else _match_args(s, cls)
        allowed = 1 if matches_self else len(positional)
        if count > allowed:
            text = f"{cls.__name__}() accepts {allowed} positional sub-pattern"
            s.raise_(TypeError(f"{text}{'' if allowed == 1 else 's'} ({count} given)"))
        if matches_self:
            found.append(subject)
    seen = set()
    for name in (*positional[:count], *names):
        if type(name) is not str:
            text = f"__match_args__ elements must be strings (got {type(name).__name__})"
            s.raise_(TypeError(text))
        if name in seen:
            text = f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}"
            s.raise_(TypeError(text))
        seen.add(name)
        try:
            found.append(attributes.get(s, subject, name))
        except Raised as raised:
            if isinstance(raised.error, AttributeError):
                return None
            raise
    return tuple(found)


def _match_args(s: Session, cls: type) -> list[Any]:
    try:
        found = attributes.get(s, cls, "__match_args__")
    except Raised as raised:
        if isinstance(raised.error, AttributeError):
            return []
        raise
    if type(found) is not tuple:
        text = f"{cls.__name__}.__match_args__ must be a tuple (got {type(found).__name__})"
        s.raise_(TypeError(text))
    return list(found)
