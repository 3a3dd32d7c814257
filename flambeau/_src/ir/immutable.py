"""The containers of a node's arguments: a list and a dict that refuse to change.

A node keeps track of who uses whom; an argument list changed behind its back would make that
record wrong. Both are pytree nodes, and pickle and compare as their plain counterparts.
"""

from __future__ import annotations

from typing import Any, NoReturn

from flambeau._src.util.pytree import NodeDef
from flambeau._src.util.pytree_keys import MappingKey, SequenceKey
from flambeau._src.util.pytree_text import enter

__all__ = ["immutable_dict", "immutable_list"]

_HELP = """\
{!r} object does not support mutation. If you are attempting to modify the kwargs or args of a \
torch.fx.Node object,
instead create a new copy of it and assign the copy to the node:

    new_args = ...  # copy and mutate args
    node.args = new_args"""


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(_HELP.format(type(self).__name__))


class immutable_list(list):  # type: ignore[type-arg]
    """A list that cannot be changed."""

    __module__ = "flambeau.fx.immutable_collections"
    __slots__ = ()

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_list, (tuple(self),)


class immutable_dict(dict):  # type: ignore[type-arg]
    """A dict that cannot be changed."""

    __module__ = "flambeau.fx.immutable_collections"
    __slots__ = ()

    clear = pop = popitem = setdefault = update = _refuse
    __delitem__ = __ior__ = __setitem__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_dict, (dict(self),)


enter(
    NodeDef(
        immutable_list,
        lambda items: (list(items), None),
        lambda children, _: immutable_list(children),
        lambda items: ([(SequenceKey(i), item) for i, item in enumerate(items)], None),
    ),
    "torch.fx.immutable_collections.immutable_list",
    None,
    None,
)
enter(
    NodeDef(
        immutable_dict,
        lambda table: (list(table.values()), list(table)),
        lambda children, keys: immutable_dict(zip(keys, children, strict=True)),
        lambda table: ([(MappingKey(k), v) for k, v in table.items()], list(table)),
    ),
    "torch.fx.immutable_collections.immutable_dict",
    None,
    None,
)
