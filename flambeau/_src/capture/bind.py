"""Arguments to parameters, as CPython binds them, with its messages."""

from __future__ import annotations

from types import CodeType
from typing import Any

from flambeau._src.capture.interpreter import NULL

__all__ = ["bind_arguments"]

_VARARGS, _VARKEYWORDS = 4, 8


def bind_arguments(
    code: CodeType,
    name: str,
    defaults: tuple[Any, ...] | None,
    kwdefaults: dict[str, Any] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    slots: list[Any],
) -> str | None:
    """Fill the slots of the parameters; the text of the TypeError if they do not fit."""
    n, kwonly, positional_only = code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount
    names = code.co_varnames
    given = len(args)
    flags = code.co_flags
    at = n + kwonly
    slots[: min(given, n)] = args[:n]
    if flags & _VARARGS:
        slots[at] = tuple(args[n:])
        at += 1
    extra: dict[str, Any] | None = None
    if flags & _VARKEYWORDS:
        extra = slots[at] = {}
    if kwargs:
        error = _keywords(names, n, kwonly, positional_only, name, kwargs, slots, extra)
        if error is not None:
            return error
    if given > n and not flags & _VARARGS:
        return _too_many(code, name, given, len(defaults or ()), slots)
    if given < n:
        error = _fill(names, n, defaults or (), name, slots)
        if error is not None:
            return error
    missing = []
    for i in range(n, n + kwonly):
        if slots[i] is NULL:
            if kwdefaults is not None and names[i] in kwdefaults:
                slots[i] = kwdefaults[names[i]]
            else:
                missing.append(names[i])
    if missing:
        return _missing(name, "keyword-only", missing)
    return None


def _keywords(
    names: tuple[str, ...],
    n: int,
    kwonly: int,
    positional_only: int,
    name: str,
    kwargs: dict[str, Any],
    slots: list[Any],
    extra: dict[str, Any] | None,
) -> str | None:
    allowed = names[positional_only : n + kwonly]
    wrong = []
    for key, value in kwargs.items():
        if key in allowed:
            i = positional_only + allowed.index(key)
            if slots[i] is not NULL:
                return f"{name}() got multiple values for argument '{key}'"
            slots[i] = value
        elif extra is not None:
            extra[key] = value
        elif key in names[:positional_only]:
            wrong.append(key)
        else:
            return f"{name}() got an unexpected keyword argument '{key}'"
    if wrong:
        return (
            f"{name}() got some positional-only arguments passed as keyword arguments: "
            f"'{', '.join(wrong)}'"
        )
    return None


def _fill(
    names: tuple[str, ...], n: int, defaults: tuple[Any, ...], name: str, slots: list[Any]
) -> str | None:
    first = n - len(defaults)
    missing = [names[i] for i in range(first) if slots[i] is NULL]
    if missing:
        return _missing(name, "positional", missing)
    for i in range(first, n):
        if slots[i] is NULL:
            slots[i] = defaults[i - first]
    return None


def _missing(name: str, kind: str, missing: list[str]) -> str:
    quoted = [f"'{m}'" for m in missing]
    if len(quoted) == 1:
        text = quoted[0]
    elif len(quoted) == 2:
        text = " and ".join(quoted)
    else:
        text = ", ".join(quoted[:-1]) + ", and " + quoted[-1]
    s = "" if len(missing) == 1 else "s"
    return f"{name}() missing {len(missing)} required {kind} argument{s}: {text}"


def _too_many(code: CodeType, name: str, given: int, ndefaults: int, slots: list[Any]) -> str:
    n = code.co_argcount
    if ndefaults:
        takes = f"from {n - ndefaults} to {n}"
        plural = True
    else:
        takes, plural = str(n), n != 1
    kwonly = sum(slots[i] is not NULL for i in range(n, n + code.co_kwonlyargcount))
    more = ""
    if kwonly:
        more = (
            f" positional argument{'' if given == 1 else 's'} (and {kwonly} keyword-only "
            f"argument{'' if kwonly == 1 else 's'})"
        )
    were = "was" if given == 1 and not kwonly else "were"
    s = "s" if plural else ""
    return f"{name}() takes {takes} positional argument{s} but {given}{more} {were} given"
