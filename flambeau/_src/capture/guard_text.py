"""Guards as one printed Python function, and in words why one of them fails."""

from __future__ import annotations

import builtins
import enum
import math
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flambeau._src.capture.guard_tree import weak_to
from flambeau._src.capture.guards import Guard, Kind, ModuleFacts, TensorFacts
from flambeau._src.capture.library import is_library
from flambeau._src.capture.lookup import own_dict
from flambeau._src.capture.modes import differing
from flambeau._src.capture.relations import relation
from flambeau._src.capture.source import (
    APPLIED,
    AppliedSource,
    AttrSource,
    BuiltinSource,
    CallSource,
    GlobalSource,
    ItemSource,
    KeySource,
    LocalSource,
    ModuleSource,
    Source,
    TypeSource,
    key_text,
)
from flambeau._src.capture.values.constant import ATOMS, REFERENCES
from flambeau._src.core import state

__all__ = ["difference", "printed", "same_constant"]


def _text(source: Source) -> str:
    """The path as Python over L, G, B(G) (the builtins) and M (sys.modules)."""
    if isinstance(source, LocalSource):
        return f"L[{source.name!r}]"
    if isinstance(source, BuiltinSource):
        return f"B(G)[{source.name!r}]"
    if isinstance(source, GlobalSource):
        return f"G[{source.name!r}]"
    if isinstance(source, ModuleSource):
        return f"M[{source.name!r}]"
    assert source.base is not None, source
    v = _text(source.base)
    if isinstance(source, AttrSource):
        if source.raw == "own":
            return f"own_dict({v})[{source.name!r}]"
        return f"{v}.__dict__[{source.name!r}]" if source.raw else f"{v}.{source.name}"
    if isinstance(source, ItemSource):
        if isinstance(source.key, KeySource):
            return f"nth({v}, {source.key.index})"
        return f"{v}[{key_text(source.key)}]"
    if isinstance(source, KeySource):
        return f"list({v})[{source.index}]"
    if isinstance(source, TypeSource):
        return f"type({v})"
    if isinstance(source, AppliedSource):
        return f"{source.name}({v})"
    assert isinstance(source, CallSource), source
    return f"{v}.{source.name}()"


def same_constant(a: Any, b: Any) -> bool:
    """Equal constants of one type, their items included; floats by their bits."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a.hex() == b.hex() if a == a else repr(a) == repr(b)
    if isinstance(a, complex):
        return same_constant(a.real, b.real) and same_constant(a.imag, b.imag)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_constant, a, b))
    if isinstance(a, slice):
        return all(same_constant(getattr(a, n), getattr(b, n)) for n in ("start", "stop", "step"))
    if isinstance(a, range):  # ranges with the same items are equal
        return (a.start, a.stop, a.step) == (b.start, b.stop, b.step)
    if isinstance(a, frozenset):  # the order hangs on how it became what it is
        return len(a) == len(b) and all(map(same_constant, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(map(same_constant, a.items(), b.items()))
    return bool(a == b)


def _same_key(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(_same_key, a, b))
    return type(a) in (str, int, bool, float, complex, bytes) and same_constant(a, b)


def _keys_are(v: Any, want: Sequence[Any]) -> bool:
    keys = list(v)
    return len(keys) == len(want) and all(map(_same_key, keys, want))


def _nth(v: Any, index: int) -> Any:
    return v[list(v)[index]]


def _function_of(v: Any, code: Callable[[], Any]) -> bool:
    return type(v) is types.FunctionType and v.__code__ is code()


def _tensor_differs(v: Any, f: TensorFacts) -> str | None:
    """The first fact that a tensor does not have."""
    actual: type = type(v)
    if actual is not f.kind:
        return f"expected type {f.kind.__name__}, actual {actual.__name__}"
    with state.Suspended(state.FUNCTION):  # a class is not asked for its own guards
        return _fact_differs(v, f)


def _fact_differs(v: Any, f: TensorFacts) -> str | None:
    facts: list[tuple[str, Any, Any]] = [
        ("dtype", f.dtype, v.dtype),
        ("device", f.device, v.device),
        ("requires_grad", f.requires_grad, v.requires_grad),
        ("rank", len(f.shape), v.dim()),
        ("leaf", f.leaf, v.grad_fn is None),
        ("layers", f.bits, v._bits),
        ("conjugation", f.conjugated, v.is_conj()),
        ("negation", f.negated, v.is_neg()),
    ]
    for name, want, now in facts:
        if want != now:
            return f"{name} mismatch. expected {want}, actual {now}"
    for name, wanted, have in (("size", f.shape, v.shape), ("stride", f.stride, v.stride())):
        for i, (want, now) in enumerate(zip(wanted, have, strict=True)):
            if want is not None and want != now:
                return f"{name} mismatch at index {i}. expected {want}, actual {now}"
    return None


def _modes_are(want: Mapping[str, Any]) -> bool:
    return not differing(want)


def _has_facts(v: Any, f: TensorFacts) -> bool:
    return _tensor_differs(v, f) is None


def _unchanged(facts: ModuleFacts, L: Mapping[str, Any], G: Mapping[str, Any]) -> bool:
    """What a MODULE_TREE guard relies on, all of it read again."""
    if any(ref() is None for ref in facts.modules):
        return False
    scope = _namespace()
    return all(bool(eval(_expression(g, scope), scope | {"L": L, "G": G})) for g in facts.guards)


def _iterates(v: Any, want: tuple[type, int]) -> bool:
    return type(v) is want[0] and operator.length_hint(v, -1) == want[1]


def _builtins_of(scope: Mapping[str, Any]) -> Mapping[str, Any]:
    found = scope.get("__builtins__", builtins)
    return found if isinstance(found, dict) else vars(found)


def _all_different(*values: Any) -> bool:
    return len({id(v) for v in values}) == len(values)


def _namespace() -> dict[str, Any]:
    return {
        "M": sys.modules, "B": _builtins_of, "nth": _nth, "keys_are": _keys_are,
        "same": same_constant,
        "function_of": _function_of, "has_facts": _has_facts, "unchanged": _unchanged,
        "iterates": _iterates, "modes_are": _modes_are, "all_different": _all_different,
        "math": math, "own_dict": own_dict,
        **APPLIED,
    }  # fmt: skip


def _expression(guard: Guard, scope: dict[str, Any]) -> str:
    """The guard as a Python expression; what has no text of its own is named in `scope`."""
    kind, source, want = guard.kind, guard.source, guard.expected
    v = "" if source is None else _text(source)

    def named(value: Any, prefix: str = "E") -> str:
        # Native types may be called what no variable is: `method-wrapper`.
        name = f"{''.join(c if c.isidentifier() else '_' for c in prefix)}{len(scope)}"
        scope[name] = value
        return name

    if kind is Kind.STATE:
        return f"modes_are({named(want, 'state')})"
    if kind is Kind.SHAPE:
        names = {name: _text(s) for name, s in guard.names}
        return relation(guard).text(names)
    if kind is Kind.TYPE:
        return f"type({v}) is {named(want, want.__name__ + '_')}"
    if kind is Kind.NONE:
        return f"{v} is None"
    if kind in (Kind.EQUALS, Kind.KEYS):
        call = "same" if kind is Kind.EQUALS else "keys_are"
        return f"{call}({v}, {_literal(want) or named(want)})"
    if kind is Kind.LENGTH:
        return f"len({v}) == {want}"
    if kind in (Kind.HAS_KEY, Kind.NO_KEY):
        inside = "in" if kind is Kind.HAS_KEY else "not in"
        return f"{_literal(want) or named(want)} {inside} {v}"
    if kind in (Kind.HAS_ATTR, Kind.NO_ATTR):
        call = f"hasattr({v}, {want!r})"
        return call if kind is Kind.HAS_ATTR else f"not {call}"
    if kind is Kind.SAME:
        return f"{v} is {_text(want)}"
    if kind is Kind.NOT_SAME:
        listed = dict.fromkeys([v, *map(_text, want)])
        return f"all_different({', '.join(listed)})"
    if kind is Kind.MODULE_TREE:
        return f"unchanged({named(want, 'modules')}, L, G)"
    if guard.gone:
        return "False"
    if kind is Kind.ID:
        weak = weak_to(want)
        return f"{v} is {named(want)}" if weak is None else f"{v} is {named(weak, 'ref')}()"
    if kind is Kind.ALIVE:
        ref = named(want, "ref")
        return f"({ref}() is not None and {v} is {ref}())"
    if kind is Kind.FUNCTION:
        return f"function_of({v}, {named(weakref.ref(want), 'code')})"
    calls = {Kind.TENSOR: "has_facts", Kind.ITERATOR: "iterates"}
    if kind in calls:
        return f"{calls[kind]}({v}, {named(want, 'facts')})"
    assert kind is Kind.PYTHON, kind
    return f"{named(want, 'predicate')}({v})"


def _literal(value: Any) -> str | None:
    """The text of a constant, if it reads back as itself."""
    if type(value) in (int, str, bytes, bool, type(None)):
        return _shown(value)
    if type(value) in (tuple, list):
        parts = [_literal(v) for v in value]
        if all(p is not None for p in parts):
            shown = ", ".join(p for p in parts if p is not None)
            if type(value) is list:
                return f"[{shown}]"
            return f"({shown},)" if len(parts) == 1 else f"({shown})"
    return None


def _shown(value: Any) -> str:
    """A value for people. No method of the program's objects runs, which may count its calls or
    read what they hold; huge numbers have no decimal text."""
    kind = type(value)
    if kind is int and value.bit_length() > 2_000:
        return hex(value)
    if kind in _BRACKETS:
        opening, closing = _BRACKETS[kind]
        return opening + ", ".join(map(_shown, value)) + closing
    if issubclass(kind, enum.Enum):
        return key_text(value)
    if issubclass(kind, type):
        return _name_of(value)
    home = _of_class("__module__", kind)
    if kind in _TOLD or is_library(home) or (home == "numpy" and hasattr(kind, "itemsize")):
        return repr(value)
    return f"a {_name_of(kind)}"


_BRACKETS: dict[type, tuple[str, str]] = {
    tuple: ("(", ")"),
    list: ("[", "]"),
    frozenset: ("frozenset({", "})"),
}
#: What shows itself by native code alone.
_TOLD = (ATOMS | REFERENCES | {types.FunctionType}) - {types.GenericAlias}


def _of_class(name: str, kind: type) -> str:
    found = type.__dict__[name].__get__(kind)  # not what a metaclass would say
    return found if type(found) is str else ""


def _name_of(kind: type) -> str:
    return _of_class("__name__", kind)


def _lines(guard: Guard, scope: dict[str, Any]) -> Iterator[str]:
    before = len(scope)
    expression = _expression(guard, scope)
    where = ""
    if guard.where is not None:
        file, line, function = guard.where
        where = f"{file}:{line} in {function}"
    note = ": ".join(part for part in (where, guard.reason) if part)
    if note:
        yield f"# {note}".replace("\n", " ")
    for name in list(scope)[before:]:
        yield f"# {name} = {_shown(scope[name])}".replace("\n", " ")[:300]
    yield expression


def _classes_of_keys(guards: Sequence[Guard]) -> dict[str, Any]:
    """The enums whose members are keys in paths, under the names that the texts of these use."""
    sources = [s for g in guards for s in (g.source, *dict(g.names).values()) if s is not None]
    for g in guards:
        if g.kind in (Kind.SAME, Kind.NOT_SAME):
            sources += [g.expected] if g.kind is Kind.SAME else g.expected
    steps = {step for s in sources for step in s.path()}
    keys = [s.key for s in steps if isinstance(s, ItemSource)]
    for key in keys:  # grows
        keys += key if isinstance(key, (tuple, frozenset)) else ()
    return {type(key).__name__: type(key) for key in keys if isinstance(key, enum.Enum)}


def printed(guards: Sequence[Guard]) -> tuple[str, dict[str, Any]]:
    """The text of the function, and the names that it uses."""
    scope = _namespace() | _classes_of_keys(guards)
    out = ["def check(L, G):", "    try:", "        return bool("]
    joint = ""
    for guard in guards:
        *notes, expression = _lines(guard, scope)
        out += [f"            {note}" for note in notes]
        out.append(f"            {joint}({expression})")
        joint = "and "
    if not guards:
        out.append("            True")
    out += ["        )", "    except Exception:", "        return False"]
    return "\n".join(out), scope


def difference(guard: Guard, variables: Mapping[str, Any], globals_: Mapping[str, Any]) -> str:
    """Why a guard fails, for people."""
    scope = _namespace() | _classes_of_keys((guard,)) | {"L": variables, "G": globals_}
    try:
        if guard.kind is Kind.STATE:
            return "; ".join(differing(guard.expected)) or "the thread's state has changed"
        if guard.kind is Kind.MODULE_TREE:
            for inner in guard.expected.guards:
                if not eval(_expression(inner, scope), scope):
                    return difference(inner, variables, globals_)
            return "a module has changed"
        if guard.kind is Kind.TENSOR and guard.source is not None:
            differs = _tensor_differs(eval(_text(guard.source), scope), guard.expected)
            return f"tensor '{guard.source}' {differs}"
        if guard.kind in (Kind.TYPE, Kind.EQUALS, Kind.LENGTH) and guard.source is not None:
            value = eval(_text(guard.source), scope)
            if guard.kind is Kind.TYPE:
                expected, now = _name_of(guard.expected), _name_of(type(value))
                return f"type({guard.source}) is {expected}: {now}"
            if guard.kind is Kind.LENGTH:
                return f"len({guard.source}) == {guard.expected}: {len(value)}"
            return f"{guard.source} == {_shown(guard.expected)}: {_shown(value)}"[:300]
    except Exception as e:
        return f"{_plain(guard)}: {type(e).__name__}: {e}"
    return _plain(guard)


def _plain(guard: Guard) -> str:
    if guard.kind is Kind.SHAPE:
        names = {name: _text(s) for name, s in guard.names}
        return relation(guard).text(names)
    if guard.kind is Kind.SAME:
        return f"{guard.source} is {guard.expected}"
    if guard.kind is Kind.NOT_SAME:
        return "different objects: " + ", ".join(map(str, guard.expected))
    expected = guard.expected
    template = str(guard.kind.value)
    return template.replace("E", _shown(expected)[:200]).replace("v", str(guard.source), 1)
