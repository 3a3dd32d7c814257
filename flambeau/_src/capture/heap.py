"""The private heap: what the captured program sees of the objects outside.

The program is not run on the user's objects. Constants, functions, classes and instances stand for
themselves; a container gets a *twin*, a copy of its own type whose items are inside values; a
tensor gets a fake tensor. Attributes that are written go to an overlay. So native functions work on
inside values as they do outside, nothing that the program does can be seen by the user, a capture
can be given up at any time, and what has changed is found by comparing (`effects.py`).

Everything is entered through `enter(value, source)`, which guards what it reads. What a user's
method could answer is not asked: classes are compared by `type(value)`, methods found by `lookup`.
"""

from __future__ import annotations

import collections
import functools
import operator
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import arrays, library, scalars, sizes
from flambeau._src.capture.guards import Guard, Kind
from flambeau._src.capture.lookup import lookup, own_dict, special
from flambeau._src.capture.natives import NATIVE, inert, stateful
from flambeau._src.capture.outcome import Unsupported
from flambeau._src.capture.source import (
    AttrSource,
    ItemSource,
    KeySource,
    ModuleSource,
    Source,
    TypeSource,
)
from flambeau._src.capture.values import containers, iterators, tensors
from flambeau._src.capture.values.constant import ATOMS, is_plain, is_reference, is_structseq
from flambeau._src.core.size import Size
from flambeau._src.core.tensor import Tensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["Heap", "Known"]

_CLASS = object.__dict__["__class__"]
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)


class Known:
    """An outside object: `real` itself, `inside` what stands for it, and where it is found.

    `before` is what a twin held at first. Of an instance, `read` holds the attributes that were
    entered and `attrs` what they are now.
    """

    __slots__ = ("attrs", "before", "factory", "inside", "read", "real", "source", "whole")

    def __init__(self, real: Any, inside: Any, source: Source) -> None:
        self.real = real
        self.inside = inside
        self.source = source
        self.before: Any = None
        self.factory: Any = None  # of a twin that makes what is missing
        self.read: dict[str, Any] = {}
        self.attrs: dict[str, Any] = {}
        self.whole = False


class Heap:
    """The outside objects that a capture has met, by either side."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.by_real: dict[int, Known] = {}
        self.by_inside: dict[int, Known] = {}
        self.of_class: dict[int, Known] = {}  # the first object that was met of each class
        self.opaque: dict[int, Any] = {}  # what holds native state that no guard speaks of
        self.fresh: dict[int, Any] = {}  # instances and functions that the program made
        self.cells: dict[int, Known] = {}  # outside cells, by their inside cell
        self.distinct: list[Source] = []  # sources that must give different objects
        self.arrays: dict[int, Source] = {}  # where arrays are found, by their inside form
        #: the instance whose `__dict__` a dict is, or the proxy that shows it, by the dict
        self.dicts: dict[int, Any] = {}
        self.constants: dict[int, Any] = {}  # tuples that stand in codes
        self.popped: set[int] = set()  # twins of dicts that `popitem` was called of

    # ---- entering ----

    def guard(self, kind: Kind, source: Source, expected: Any = None) -> None:
        """Add a guard for what is about to be relied upon."""
        session = self.session
        session.guards.add(Guard(kind, source, expected, "", session.where()))

    def enter(self, value: Any, source: Source) -> Any:
        """The inside form of an outside object that is found at `source`, guarded."""
        self.session.went_on()
        kind = type(value)
        if kind in ATOMS:
            if value is None:
                self.guard(Kind.NONE, source)
            elif kind in (int, float) and (
                made := sizes.number(self.session, value, source)
            ) is not None:  # fmt: skip
                self.guard(Kind.TYPE, source, kind)
                return made
            else:
                self.guard(Kind.EQUALS, source, value)
            return value
        if id(value) in self.dicts and id(value) not in self.by_real:
            raise Unsupported("A dict is used beside an object or a proxy that shows it.")
        if kind is types.CellType:  # sources are of what it holds
            raise Unsupported("A cell is used as a value.")
        known = self.by_real.get(id(value))
        if known is not None:
            if known.source != source:
                self.guard(Kind.SAME, source, known.source)
            return known.inside
        inside = self.by_inside.get(id(value))
        if inside is not None:
            raise Unsupported("An inside value was found outside.")
        if kind is types.FunctionType:
            self.guard(Kind.FUNCTION, source, value.__code__)
            return self._know(value, value, source).inside
        if kind in (weakref.ProxyType, weakref.CallableProxyType):  # asked anything, it may raise
            raise Unsupported("A weak proxy is used.")
        if issubclass(kind, Tensor):
            return tensors.enter(self, value, source)
        return self._enter_object(value, kind, source)

    def _enter_object(self, value: Any, kind: type, source: Source) -> Any:
        if lookup(kind, "__class__") is not _CLASS:
            raise Unsupported(f"A {kind.__name__} says itself what its class is.")
        if is_reference(value) or kind is types.ModuleType or kind in _GETTERS:
            self.guard(Kind.ID, source, value)
            return self._know(value, value, source).inside
        if kind.__module__ == "numpy" and self.session.options.numpy:
            if arrays.is_array(kind):
                return arrays.enter(self, value, source)
            if arrays.is_constant(value):
                if (scalar := scalars.enter(self.session, value, source)) is not None:
                    self.guard(Kind.TYPE, source, kind)
                    return self._know(value, scalar, source).inside
                self.guard(Kind.EQUALS, source, value)
                return self._know(value, value, source).inside
            if callable(value):
                self.guard(Kind.ID, source, value)
                return self._know(value, value, source).inside
        if kind in (types.BuiltinFunctionType, types.MethodWrapperType):
            return self._enter_native_method(value, kind, source)
        if kind is types.MethodType:
            self.guard(Kind.TYPE, source, kind)
            made = types.MethodType(
                self.enter(value.__func__, AttrSource(source, "__func__")),
                self.enter(value.__self__, AttrSource(source, "__self__")),
            )
            return self._know(value, made, source).inside
        if kind is types.GeneratorType:
            return self._enter_opaque(value, source)
        if type(getattr(kind, "__del__", None)) is types.FunctionType:
            raise Unsupported(f"A {kind.__name__} is told of its end, which may come earlier.")
        if kind is functools.partial and not value.__reduce__()[2][3]:  # `__dict__` would make one
            self.guard(Kind.TYPE, source, kind)
            partial = functools.partial(
                self.enter(value.func, AttrSource(source, "func")),
                *self.enter(value.args, AttrSource(source, "args")),
                **self.enter(value.keywords, AttrSource(source, "keywords")),
            )
            return self._know(value, partial, source).inside
        fixed = is_structseq(kind) and all(is_plain(v) for v in value)  # as sys.flags
        fixed = fixed and kind.n_fields == kind.n_sequence_fields  # type: ignore[attr-defined]
        fixed = fixed or kind is Size or kind is slice
        if fixed or (
            kind is tuple and is_plain(value) and sizes.stays(self.session, value, source)
        ):
            self.guard(Kind.EQUALS, source, value)
            return self._know(value, value, source).inside
        enter = containers.ENTER.get(kind)
        if enter is None and issubclass(kind, tuple(containers.ENTER)):
            enter = next(e for k, e in containers.ENTER.items() if issubclass(kind, k))
        if kind is collections.OrderedDict and value.__dict__:
            raise Unsupported("An ordered dict with attributes is used.", "Use a class of its own.")
        if kind in iterators.SEQUENCE_ITERATORS:
            self.guard(Kind.TYPE, source, kind)
            self.distinct.append(source)
            return iterators.enter(self, value, source)
        if enter is None and kind in NATIVE:
            return self._enter_opaque(value, source)  # it would be used up or changed
        if enter is None and issubclass(kind, (int, float, str, bytes, complex)):
            if not inert(kind):
                raise Unsupported(f"A {kind.__name__} from outside compares by Python code.")
            self.guard(Kind.EQUALS, source, value)
            return self._know(value, value, source).inside
        if enter is None and library.is_module(value):
            self.session.modules.enter(self._know(value, value, source))
            return value
        self.guard(Kind.TYPE, source, kind)
        self.distinct.append(source)
        if enter is not None:
            return enter(self, value, source)
        self._know(value, value, source)
        if stateful(kind) and not library.is_library(kind.__module__):
            self.opaque[id(value)] = value
        return value

    def _enter_native_method(self, value: Any, kind: type, source: Source) -> Any:
        """A method of a container from outside is its twin's; others may only be handed on."""
        owner = value.__self__
        if type(owner) not in containers.ENTER or kind is not types.BuiltinFunctionType:
            return self._enter_opaque(value, source)
        self.guard(Kind.TYPE, source, kind)
        self.guard(Kind.EQUALS, AttrSource(source, "__name__"), value.__name__)
        made = getattr(self.enter(owner, AttrSource(source, "__self__")), value.__name__)
        return self._know(value, made, source).inside

    def _enter_opaque(self, value: Any, source: Source) -> Any:
        """An object that may be handed on; whatever looks into it ends the graph."""
        self.guard(Kind.TYPE, source, type(value))
        self.distinct.append(source)
        self.opaque[id(value)] = value
        return self._know(value, value, source).inside

    def _know(self, real: Any, inside: Any, source: Source) -> Known:
        known = Known(real, inside, source)
        self.by_real[id(real)] = known
        self.by_inside[id(inside)] = known
        self.of_class.setdefault(id(type(real)), known)
        return known

    know = _know

    def know_only(self, real: Any, inside: Any, source: Source) -> None:
        """Note the inside form of an outside object that is not changed in place of it."""
        self.by_real[id(real)] = Known(real, inside, source)

    def known(self, inside: Any) -> Known | None:
        """What is known of an inside value that came from outside; None: made in the program."""
        found = self.by_inside.get(id(inside))
        return found if found is not None and found.inside is inside else None

    def source_of(self, inside: Any) -> Source | None:
        """Where the outside form of an inside value is found."""
        found = self.by_inside.get(id(inside))
        return found.source if found is not None and found.inside is inside else None

    def find(self, value: Any) -> Source | None:
        """Where a function or class is found by its module and its name; None: nowhere."""
        source = self.source_of(value)
        if source is not None:
            return source
        if isinstance(value, type) and id(value) in self.of_class:
            return TypeSource(self.of_class[id(value)].source)
        module = sys.modules.get(getattr(value, "__module__", None) or "")
        if module is None:
            return None
        found: Any = module
        source = ModuleSource(module.__name__)
        for part in value.__qualname__.split("."):
            if part not in getattr(found, "__dict__", {}):
                return None
            found = found.__dict__[part]
            source = AttrSource(source, part)
            if isinstance(found, classmethod):
                source = AttrSource(source, "__func__")
            if isinstance(found, (staticmethod, classmethod)):
                found = found.__func__
        if found is not value:
            return None
        self.enter(value, source)
        return source

    def made(self, value: Any) -> Any:
        """Note that the program made this instance or function."""
        self.fresh[id(value)] = value
        return value

    def is_made(self, value: Any) -> bool:
        """Whether the program made this instance or function."""
        return id(value) in self.fresh

    def forget(self) -> None:
        """Let go of all objects."""
        for table in (
            self.by_real,
            self.by_inside,
            self.of_class,
            self.opaque,
            self.fresh,
            self.cells,
            self.dicts,
            self.constants,
        ):
            table.clear()

    # ---- attributes of outside instances ----

    def check_bare(self, inside: Any) -> None:
        """Refuse native code that would look for attributes in a container's twin: it has none."""
        known = self.known(inside)
        if known is None or known.real is inside:
            return
        if known.attrs or getattr(known.real, "__dict__", None):
            raise Unsupported(f"A {type(inside).__name__} with attributes is copied.")

    def instance_dict(self, known: Known) -> dict[str, Any] | None:
        """The real `__dict__` of an outside instance, None where it has none."""
        found = own_dict(known.real)
        if not isinstance(found, dict):
            return None
        if self.dicts.setdefault(id(found), known.real) is not known.real or (
            id(found) in self.by_real and not known.whole
        ):
            raise Unsupported("The `__dict__` of an object is used as a dict of its own.")
        return found

    def has_attribute(self, known: Known, name: str) -> bool:
        """Whether the instance's own `__dict__` has the name (guarded)."""
        if name in known.attrs:
            return True
        if known.whole or name in known.read:
            return False  # deleted
        real = self.instance_dict(known)
        return real is not None and name in real

    def read_attribute(self, known: Known, name: str) -> Any:
        """The instance attribute, which is there."""
        if name in known.attrs:
            return known.attrs[name]
        real = self.instance_dict(known)
        assert real is not None
        own = type(special(type(known.real), "__getattribute__")) is types.FunctionType
        inside = self.enter(real[name], AttrSource(known.source, name, raw=own and "own"))
        known.read[name] = known.attrs[name] = inside
        return inside

    def lacks_attribute(self, known: Known, name: str) -> None:
        """Guard that the instance's own `__dict__` lacks the name."""
        real = self.instance_dict(known)
        if real is not None and name not in known.attrs and name not in known.read:
            self.guard(Kind.NO_KEY, AttrSource(known.source, "__dict__"), name)

    def whole_dict(self, known: Known) -> dict[str, Any]:
        """All attributes as a dict that may be changed: the instance's `__dict__`, inside."""
        if not known.whole:
            real = self.instance_dict(known)
            if real is None:
                raise Unsupported(f"`__dict__` of a {type(known.real).__name__} is not a dict.")
            base = AttrSource(known.source, "__dict__")
            self.guard(Kind.KEYS, base, list(real))
            written = known.attrs
            now: dict[str, Any] = {}
            for name in real:
                if name in written:
                    now[name] = written[name]
                elif name not in known.read:
                    now[name] = self.enter(real[name], AttrSource(known.source, name))
                    known.read[name] = now[name]
            now.update(written)
            known.attrs = now
            known.whole = True
            known.read.setdefault("", None)
            whole = Known(real, now, base)
            self.by_real[id(real)] = self.by_inside[id(now)] = whole
        return known.attrs

    def dict_of(self, made: Any) -> dict[str, Any]:
        """The `__dict__` of an instance that the program made."""
        found: dict[str, Any] = self.session.native(getattr, made, "__dict__")
        if type(found) is dict and self.is_made(made):
            self.dicts[id(found)] = made
        return found

    # ---- cells ----

    def enter_cell(self, cell: Any, source: Source) -> Any:
        """An inside cell for an outside one; `source` is its contents'."""
        known = self.by_real.get(id(cell))
        if known is None:
            inside = types.CellType()
            known = Known(cell, inside, source)
            self.by_real[id(cell)] = known
            self.cells[id(inside)] = known
            known.before = _UNREAD
        return known.inside

    def read_cell(self, cell: Any) -> Any:
        """The contents of an inside cell. Raises ValueError for an empty one."""
        known = self.cells.get(id(cell))
        if known is not None and known.before is _UNREAD:
            value = known.real.cell_contents
            known.before = cell.cell_contents = self.enter(value, known.source)
        return cell.cell_contents

    def write_cell(self, cell: Any, value: Any) -> None:
        """Set the contents of an inside cell."""
        known = self.cells.get(id(cell))
        if known is not None and known.before is _UNREAD:
            known.before = _UNWRITTEN
        cell.cell_contents = value

    def changed_cells(self) -> list[Known]:
        """Outside cells whose contents the program set."""
        changed = []
        for known in self.cells.values():
            if known.before is _UNREAD:
                continue
            try:
                now = known.inside.cell_contents
            except ValueError:
                now = _UNREAD
            if now is not known.before:
                changed.append(known)
        return changed


class _Mark:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


_UNREAD = _Mark("unread")
_UNWRITTEN = _Mark("unread, then written")


def type_source(source: Source | None) -> Source | None:
    """Where the type of an object is found."""
    return None if source is None else TypeSource(source)


def key_source(base: Source, key: Any, index: int) -> Source:
    """Where a dict's value is found: under the key if it is a constant, else under its place."""
    if is_plain(key):
        return ItemSource(base, key)
    return ItemSource(base, KeySource(base, index))
