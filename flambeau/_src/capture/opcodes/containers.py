"""Building and taking apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau._src.capture import iteration, matching, strings
from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.interpreter import Frame, opcode
from flambeau._src.capture.lookup import special
from flambeau._src.capture.natives import check_key
from flambeau._src.capture.scopes import NULL_FIRST

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session


def _take(f: Frame, n: int) -> list[Any]:
    if not n:
        return []
    items = f.stack[-n:]
    del f.stack[-n:]
    return items


@opcode("BUILD_TUPLE")
def build_tuple(s: Session, f: Frame, i: Instruction) -> None:
    """A tuple of the top n."""
    f.stack.append(tuple(_take(f, i.arg)))  # type: ignore[arg-type]


@opcode("BUILD_LIST")
def build_list(s: Session, f: Frame, i: Instruction) -> None:
    """A list of the top n."""
    f.stack.append(_take(f, i.arg))  # type: ignore[arg-type]


@opcode("BUILD_SET")
def build_set(s: Session, f: Frame, i: Instruction) -> None:
    """A set of the top n."""
    items = _take(f, i.arg)  # type: ignore[arg-type]
    for item in items:
        check_key(s, item)
    f.stack.append(s.native(set, items))


@opcode("BUILD_MAP")
def build_map(s: Session, f: Frame, i: Instruction) -> None:
    """A dict of n pairs."""
    items = _take(f, 2 * i.arg)  # type: ignore[operator]
    for key in items[::2]:
        check_key(s, key)
    f.stack.append(s.native(dict, zip(items[::2], items[1::2], strict=True)))


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(s: Session, f: Frame, i: Instruction) -> None:
    """A dict of n values and a tuple of keys."""
    keys = f.stack.pop()
    f.stack.append(dict(zip(keys, _take(f, i.arg), strict=True)))  # type: ignore[arg-type]


@opcode("BUILD_SLICE")
def build_slice(s: Session, f: Frame, i: Instruction) -> None:
    """A slice of two or three values."""
    f.stack.append(slice(*_take(f, i.arg)))  # type: ignore[arg-type]


@opcode("LIST_APPEND")
def list_append(s: Session, f: Frame, i: Instruction) -> None:
    """Append in a comprehension."""
    value = f.stack.pop()
    f.stack[-i.arg].append(value)  # type: ignore[operator]


@opcode("SET_ADD")
def set_add(s: Session, f: Frame, i: Instruction) -> None:
    """Add in a comprehension."""
    value = f.stack.pop()
    check_key(s, value)
    s.native(f.stack[-i.arg].add, value)  # type: ignore[operator]


@opcode("MAP_ADD")
def map_add(s: Session, f: Frame, i: Instruction) -> None:
    """Set an item in a comprehension."""
    value = f.stack.pop()
    key = f.stack.pop()
    check_key(s, key)
    s.native(f.stack[-i.arg].__setitem__, key, value)  # type: ignore[operator]


@opcode("LIST_EXTEND")
def list_extend(s: Session, f: Frame, i: Instruction) -> None:
    """`[*a]`."""
    value = f.stack.pop()
    s.native(f.stack[-i.arg].extend, iteration.native_iterable(s, value))  # type: ignore[operator]


@opcode("SET_UPDATE")
def set_update(s: Session, f: Frame, i: Instruction) -> None:
    """`{*a}`."""
    items = iteration.items(s, f.stack.pop())
    for item in items:
        check_key(s, item)
    s.native(f.stack[-i.arg].update, items)  # type: ignore[operator]


@opcode("DICT_UPDATE")
def dict_update(s: Session, f: Frame, i: Instruction) -> None:
    """`{**a}`."""
    value = iteration.mapping(s, f.stack.pop())
    s.native(f.stack[-i.arg].update, value)  # type: ignore[operator]


@opcode("DICT_MERGE")
def dict_merge(s: Session, f: Frame, i: Instruction) -> None:
    """`f(**a)`: a key that is there twice is an error."""
    value = iteration.mapping(s, f.stack.pop())
    target = f.stack[-i.arg]  # type: ignore[operator]
    for key in value:
        if key in target:
            called = _function_text(f, i.arg)  # type: ignore[arg-type]
            s.raise_(TypeError(f"{called} got multiple values for keyword argument '{key}'"))
    target.update(value)


def _function_text(f: Frame, depth: int) -> str:
    """How errors name the function below the arguments."""
    fn = f.stack[-depth - 2 if NULL_FIRST else -depth - 3]
    name = getattr(fn, "__qualname__", None)
    if name is None:
        return repr(fn)
    module = getattr(fn, "__module__", None)
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


@opcode("LIST_TO_TUPLE")
def list_to_tuple(s: Session, f: Frame, i: Instruction) -> None:
    """A tuple of a list (3.11)."""
    f.stack[-1] = tuple(f.stack[-1])


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(s: Session, f: Frame, i: Instruction) -> None:
    """`a, b = top`."""
    value = f.stack.pop()
    n: int = i.arg  # type: ignore[assignment]
    items = _unpacked(s, value, n)
    if len(items) != n:
        _wrong_length(s, value, len(items), n)
    f.stack.extend(reversed(items))


def _unpacked(s: Session, value: Any, limit: int | None) -> list[Any]:
    """Items of what is unpacked; an error says so."""
    kind = type(value)
    if all(special(kind, name) is None for name in ("__iter__", "__getitem__")):
        s.raise_(TypeError(f"cannot unpack non-iterable {kind.__name__} object"))
    return iteration.items(s, value, limit)


def _wrong_length(s: Session, value: Any, got: int, n: int) -> None:
    if got < n:
        s.raise_(ValueError(f"not enough values to unpack (expected {n}, got {got})"))
    s.raise_(ValueError(f"too many values to unpack (expected {n})"))


@opcode("UNPACK_EX")
def unpack_ex(s: Session, f: Frame, i: Instruction) -> None:
    """`a, *b, c = top`."""
    arg: int = i.arg  # type: ignore[assignment]
    before, after = arg & 255, arg >> 8
    items = _unpacked(s, f.stack.pop(), None)
    if len(items) < before + after:
        s.raise_(
            ValueError(
                f"not enough values to unpack (expected at least {before + after}, "
                f"got {len(items)})"
            )
        )
    end = len(items) - after
    parts = [*items[:before], items[before:end], *items[end:]]
    f.stack.extend(reversed(parts))


@opcode("BUILD_STRING")
def build_string(s: Session, f: Frame, i: Instruction) -> None:
    """The pieces of an f-string."""
    f.stack.append("".join(_take(f, i.arg)))  # type: ignore[arg-type]


_CONVERSIONS = {1: "str", 2: "repr", 3: "ascii"}


@opcode("FORMAT_VALUE")
def format_value(s: Session, f: Frame, i: Instruction) -> None:
    """A value in an f-string (3.11, 3.12)."""
    arg: int = i.arg  # type: ignore[assignment]
    spec = f.stack.pop() if arg & 4 else ""
    value = f.stack.pop()
    if arg & 3:
        value = strings.convert(s, _CONVERSIONS[arg & 3], value)
    f.stack.append(strings.format_(s, value, spec))


@opcode("CONVERT_VALUE")
def convert_value(s: Session, f: Frame, i: Instruction) -> None:
    """`!r` and its like (3.13)."""
    f.stack[-1] = strings.convert(s, _CONVERSIONS[i.arg], f.stack[-1])  # type: ignore[index]


@opcode("FORMAT_SIMPLE")
def format_simple(s: Session, f: Frame, i: Instruction) -> None:
    """A value in an f-string (3.13)."""
    f.stack[-1] = strings.format_(s, f.stack[-1], "")


@opcode("FORMAT_WITH_SPEC")
def format_with_spec(s: Session, f: Frame, i: Instruction) -> None:
    """A value with a format (3.13)."""
    spec = f.stack.pop()
    f.stack[-1] = strings.format_(s, f.stack[-1], spec)


@opcode("GET_LEN")
def get_len(s: Session, f: Frame, i: Instruction) -> None:
    """The length of the top, which stays."""
    f.stack.append(iteration.length(s, f.stack[-1]))


@opcode("MATCH_SEQUENCE")
def match_sequence(s: Session, f: Frame, i: Instruction) -> None:
    """Whether the top is a sequence as patterns mean it."""
    f.stack.append(matching.is_sequence(s, f.stack[-1]))


@opcode("MATCH_MAPPING")
def match_mapping(s: Session, f: Frame, i: Instruction) -> None:
    """Whether the top is a mapping as patterns mean it."""
    f.stack.append(matching.is_mapping(s, f.stack[-1]))


@opcode("MATCH_KEYS")
def match_keys(s: Session, f: Frame, i: Instruction) -> None:
    """The values of the keys on top in the mapping below, or None."""
    f.stack.append(matching.keys(s, f.stack[-2], f.stack[-1]))


@opcode("MATCH_CLASS")
def match_class(s: Session, f: Frame, i: Instruction) -> None:
    """The attributes that a class pattern names, or None."""
    subject, cls, names = f.stack[-3:]
    del f.stack[-3:]
    f.stack.append(matching.class_(s, subject, cls, i.arg or 0, names))
