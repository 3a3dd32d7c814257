"""Named tuples of several results: torch.return_types.max and its like."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from flambeau._src.core.slots import fill

TYPES: dict[str, type] = {}


class Results(tuple):
    """A tuple whose parts have names; made from one sequence, as torch's are."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __new__(cls, values: Iterable[Any]) -> Results:
        values = tuple(values)
        if len(values) != len(cls._fields):
            raise TypeError(
                f"torch.return_types.{cls.__name__}() takes a {len(cls._fields)}-sequence ({len(values)}-sequence given)"
            )
        return tuple.__new__(cls, values)

    def __repr__(self) -> str:
        parts = ",\n".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True))
        return f"torch.return_types.{type(self).__name__}(\n{parts})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (tuple(self),))


def type_for(name: str, fields: tuple[str, ...]) -> type:
    """The class of that name, made when new."""
    found = TYPES.get(name)
    if found is None:
        namespace: dict[str, Any] = {f: property(itemgetter(i)) for i, f in enumerate(fields)}
        namespace.update(
            __slots__=(), _fields=fields, __module__="torch.return_types", n_fields=len(fields),
            n_sequence_fields=len(fields), n_unnamed_fields=0, __match_args__=fields,
        )  # fmt: skip
        found = TYPES[name] = type(name, (Results,), namespace)
    return found


def make(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return tuple.__new__(type_for(name, fields), values)


fill("return_type", make)
