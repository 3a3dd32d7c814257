"""Attributes: Python's lookup, on inside values, with a guard for what is read outside."""

from __future__ import annotations

import collections
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from flambeau._src.capture import classes, library, overriding
from flambeau._src.capture.generators import Generator
from flambeau._src.capture.guards import Kind
from flambeau._src.capture.lookup import MISSING, lookup, own_dict, special
from flambeau._src.capture.natives import CONTAINERS, ITERATORS
from flambeau._src.capture.outcome import Raised, Unsupported
from flambeau._src.capture.sizes import SYMBOLIC, numbers
from flambeau._src.capture.source import AttrSource, ItemSource, ModuleSource, Source, TypeSource
from flambeau._src.capture.values import tensor_attributes
from flambeau._src.capture.values.constant import ATOMS, OPERATORS, is_reference
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.heap import Known
    from flambeau._src.capture.session import Session

__all__ = [
    "Super",
    "bind",
    "delete",
    "generic_get",
    "get",
    "get_super",
    "lookup",
    "set_",
    "special",
    "super_of",
]

_CLASS = object.__dict__["__class__"]
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_CACHED: Any = functools._lru_cache_wrapper
_FIELD: Any = type(vars(collections.namedtuple("_Pair", ["first"]))["first"])
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType, _FIELD)
_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
)
_HOLDERS = (list, dict, tuple, set, frozenset, collections.deque)
#: Native code that only puts a value into `__dict__` or gives it to a descriptor.
_PLAIN = (object, BaseException, functools.partial, types.SimpleNamespace)
_SETTING = (*(c.__setattr__ for c in _PLAIN), types.FunctionType.__setattr__)
_DELETING = (*(c.__delattr__ for c in _PLAIN), type.__delattr__)


class Super:
    """What `super()` gives."""

    __slots__ = ("cls", "self_")

    def __init__(self, cls: type, self_: Any) -> None:
        self.cls = cls
        self.self_ = self_


def get(s: Session, obj: Any, name: str) -> Any:
    """`obj.name`."""
    kind = type(obj)
    if kind is FakeTensor:
        return tensor_attributes.get(s, obj, name)
    if kind in SYMBOLIC:  # what only numbers have fixes it
        if name == "__class__":
            return SYMBOLIC[kind]
        return s.native(getattr, obj if hasattr(kind, name) else numbers(obj), name)
    if kind in ATOMS or kind in CONTAINERS or kind in ITERATORS:
        return s.native(getattr, obj, name)
    if kind is types.ModuleType or isinstance(obj, types.ModuleType):
        return _of_module(s, obj, name)
    if isinstance(obj, type):
        return _of_class(s, obj, name)
    if kind is Super:
        return get_super(s, obj.cls, obj.self_, name)
    if kind is types.FunctionType:
        return _of_function(s, obj, name)
    if kind is types.MethodType and name not in ("__func__", "__self__"):
        return get(s, obj.__func__, name)
    if kind is Generator:
        return _of_generator(s, obj, name)
    if kind is types.MethodWrapperType and overriding.accessed(obj) is not None:
        return s.native(getattr, obj, name)
    if is_reference(obj) or kind in (types.MethodType, property, functools.partial, slice):
        return s.native(getattr, obj, name)
    found = special(kind, "__getattribute__")
    if (
        name == "__class__"
        and type(found) is not types.FunctionType
        and (lookup(kind, name) is _CLASS)
    ):
        return kind
    if type(found) is types.FunctionType:
        return _with_fallback(s, kind, obj, name, s.call, (found, (obj, name), {}))
    if found is not object.__getattribute__ and kind is not types.SimpleNamespace:
        if isinstance(obj, (*_HOLDERS, BaseException, str, int, float)):
            return _with_fallback(s, kind, obj, name, generic_get, (s, obj, name))
        raise Unsupported(f"An attribute of a {kind.__name__}, which is native code's, is read.")
    return _with_fallback(s, kind, obj, name, generic_get, (s, obj, name))


def _with_fallback(s: Session, kind: type, obj: Any, name: str, how: Any, args: Any) -> Any:
    """The lookup, and `__getattr__` where it fails."""
    fallback = special(kind, "__getattr__")
    if fallback is None:
        return how(*args)
    try:
        return how(*args)
    except Raised as raised:
        if not isinstance(raised.error, AttributeError):
            raise
        if library.is_module(obj) and library.kind_of_code(fallback.__code__) is not None:
            raise
    return s.call(fallback, (obj, name), {})


def generic_get(s: Session, obj: Any, name: str) -> Any:
    """`object.__getattribute__(obj, name)`."""
    kind = type(obj)
    known = s.heap.known(obj)
    if name == "__dict__":
        return s.heap.whole_dict(known) if known is not None else s.heap.dict_of(obj)
    attr = lookup(kind, name)
    if attr is _CLASS:
        return kind
    if attr is not MISSING and _is_data(attr):
        return _data(s, obj, kind, known, name, attr)
    if known is None:
        d = own_dict(obj)
        if d is not None and name in d:
            if not s.heap.is_made(obj) and not isinstance(obj, BaseException):
                return _of_unknown(s, obj, name, d[name])
            return d[name]
        if d is not None and s.heap.is_made(obj) and library.is_module(obj):
            for table in (d["_parameters"], d["_buffers"], d["_modules"]):
                if name in table:
                    return table[name]
    elif known.real is obj or known.attrs or own_dict(known.real) is not None:
        found = _own(s, known, name)
        if found is not MISSING:
            return found
    if attr is not MISSING:
        if known is not None:
            s.heap.lacks_attribute(known, name)
        return _from_class(s, obj, kind, known, name, attr)
    if known is not None:
        s.heap.lacks_attribute(known, name)
        s.modules.lacks(known, name)
    text = f"'{kind.__name__}' object has no attribute '{name}'"
    return s.raise_(AttributeError(text, name=name, obj=None))


def _own(s: Session, known: Known, name: str) -> Any:
    """The attribute of the instance itself."""
    heap = s.heap
    if id(known.real) in s.modules.read and known.attrs.get(name) is known.read.get(name):
        table = _table_of(s, known, name)
        if table is not None:
            return table.get(name, MISSING)
    if name in known.attrs:
        return known.attrs[name]
    if id(known.real) in s.modules.read:
        if name in known.read or known.whole:
            return MISSING
        source = s.modules.attribute(known, name)
        if source is None:
            return MISSING
        value = _real_attribute(known.real, name)
        inside = heap.enter(value, source)
        known.read[name] = known.attrs[name] = inside
        return inside
    if heap.has_attribute(known, name):
        return heap.read_attribute(known, name)
    return MISSING


def _table_of(s: Session, known: Known, name: str) -> dict[str, Any] | None:
    """The table of a module's parameters, buffers or modules that has the name, or had it, if the
    program got hold of it: it may have changed it."""
    d = known.real.__dict__
    for table in ("_parameters", "_buffers", "_modules"):
        entered = s.heap.by_real.get(id(d[table]))
        if entered is not None and (name in entered.inside or name in d[table]):
            return entered.inside  # type: ignore[no-any-return]
    return None


def _real_attribute(module: Any, name: str) -> Any:
    d = module.__dict__
    for table in (d, d["_parameters"], d["_buffers"], d["_modules"]):
        if name in table:
            return table[name]
    raise AssertionError(name)


def _of_unknown(s: Session, obj: Any, name: str, value: Any) -> Any:
    """An attribute of an object of the library that no guard leads to."""
    if library.is_library(type(obj).__module__) and (
        type(value) in ATOMS or is_reference(value) or type(value) is types.FunctionType
    ):
        return value
    raise Unsupported(f"A {type(obj).__name__} cannot be found again to guard it.")


def _is_data(attr: Any) -> bool:
    kind = type(attr)
    if kind is types.FunctionType or kind in ATOMS:
        return False
    if kind is property or kind in _SLOTS:
        return True
    return special(kind, "__set__") is not None or special(kind, "__delete__") is not None


def _data(s: Session, obj: Any, kind: type, known: Known | None, name: str, attr: Any) -> Any:
    if type(attr) is property:
        if attr.fget is None:
            return s.native(attr.__get__, obj, kind)  # which raises
        getter = attr.fget
        source = _class_source(s, kind, known)
        library_code = library.is_library(kind.__module__) and getter.__closure__ is None
        if source is not None and not library_code and type(getter) is types.FunctionType:
            getter = s.heap.enter(getter, AttrSource(AttrSource(source, name), "fget"))
        return s.call(getter, (obj,), {})
    if type(attr) is _FIELD:
        return s.native(attr.__get__, obj, kind)
    if type(attr) in (types.MemberDescriptorType, types.GetSetDescriptorType):
        if known is None and name == "__traceback__" and isinstance(obj, BaseException):
            raise Unsupported("The traceback of an exception is looked at.")
        if known is not None and (known.real is obj or not _is_native(attr)):
            if name in known.attrs:
                return known.attrs[name]
            try:
                if isinstance(obj, BaseException):
                    value = attr.__get__(obj)  # what a guard speaks of, unlike other native state
                else:
                    value = s.native(attr.__get__, known.real)
            except (AttributeError, Raised) as error:
                return _empty_slot(s, kind, known, name, getattr(error, "error", error))
            inside = s.heap.enter(value, AttrSource(known.source, name))
            known.read[name] = known.attrs[name] = inside
            return inside
        return s.native(attr.__get__, obj)
    method = special(type(attr), "__get__")
    if type(method) is types.FunctionType:
        descriptor = _class_value(s, kind, known, name, attr, False)
        return s.call(method, (descriptor, obj, kind), {})
    raise Unsupported(f"The descriptor {name} of {kind.__name__} is native code.")


def _is_native(slot: Any) -> bool:
    """Whether a slot is one of a native container, which its twin has too."""
    return slot.__objclass__.__module__ in ("builtins", "collections")


def _empty_slot(s: Session, kind: type, known: Known, name: str, error: BaseException) -> Any:
    """What reading a slot raises in which nothing is."""
    asked = type(special(kind, "__getattribute__")) is types.FunctionType
    if asked or special(kind, "__getattr__") is not None:
        raise Unsupported(f"{name} of a {kind.__name__} is empty, and is asked for elsewhere.")
    error.__traceback__ = error.__context__ = None
    s.heap.guard(Kind.NO_ATTR, known.source, name)
    return s.raise_(error)


def _class_source(s: Session, kind: type, known: Known | None) -> Source | None:
    found = s.heap.source_of(kind)
    if found is None and known is not None:
        found = TypeSource(known.source)
    return s.heap.find(kind) if found is None else found


def _class_value(
    s: Session, kind: type, known: Known | None, name: str, value: Any, hidden: bool
) -> Any:
    """A value found in a class, guarded; `hidden`: the class gives another under this name."""
    if library.is_library(kind.__module__) or hidden or any(kind is c for c in s.classes):
        return value
    source = _class_source(s, kind, known)
    if source is None:
        if type(value) in ATOMS or is_reference(value) or type(value) is types.FunctionType:
            return value
        raise Unsupported(f"{kind.__name__}.{name} cannot be found again to guard it.")
    if type(value) is not types.FunctionType and special(type(value), "__get__") is not None:
        source = _owner_source(s, kind, name, source)  # which asking the class would run
        return s.heap.enter(value, AttrSource(source, name, raw=True))
    return s.heap.enter(value, AttrSource(source, name))


def _owner_source(s: Session, kind: type, name: str, source: Source) -> Source:
    """Where the class is found that holds the name."""
    at = next(i for i, base in enumerate(kind.__mro__) if name in base.__dict__)
    return ItemSource(AttrSource(source, "__mro__"), at) if at else source


def _from_class(s: Session, obj: Any, kind: type, known: Known | None, name: str, attr: Any) -> Any:
    """A value of the class, bound to the instance."""
    ta = type(attr)
    if ta is types.FunctionType:
        return types.MethodType(_class_value(s, kind, known, name, attr, False), obj)
    if ta is _CACHED:
        return types.MethodType(_class_value(s, kind, known, name, attr, False), obj)
    if ta is functools.cached_property:
        value = s.call(attr.func, (obj,), {})
        generic_set(s, obj, attr.attrname, value)
        return value
    if ta is classmethod:
        source = None if library.is_library(kind.__module__) else _class_source(s, kind, known)
        if source is not None and type(attr.__func__) is types.FunctionType:
            s.heap.enter(attr.__func__, AttrSource(AttrSource(source, name), "__func__"))
        return types.MethodType(attr.__func__, kind)
    if ta is staticmethod:
        return _class_value(s, kind, known, name, attr.__func__, False)
    if ta is types.BuiltinFunctionType:
        return attr
    if ta in _DESCRIPTORS:
        return s.native(attr.__get__, obj, kind)
    method = special(ta, "__get__")
    if type(method) is types.FunctionType:
        held = _class_value(s, kind, known, name, attr, False)
        return s.call(method, (held, obj, kind), {})
    if method is not None and not is_reference(attr):
        raise Unsupported(f"The descriptor {name} of {kind.__name__} is native code.")
    return _class_value(s, kind, known, name, attr, False)


def bind(s: Session, method: Any, obj: Any) -> Any:
    """A special method bound to its object."""
    if type(method) is types.FunctionType:
        return types.MethodType(method, obj)
    return _from_class(s, obj, type(obj), s.heap.known(obj), "", method)


# ---- other kinds ----


def _of_module(s: Session, module: Any, name: str) -> Any:
    if type(module) in OPERATORS:  # they make what they hold when it is first asked for
        return s.native(getattr, module, name)
    d = module.__dict__
    known = s.heap.known(module)
    root = module.__name__.partition(".")[0]
    scope = s.scopes.get(id(d))
    if scope is not None and name in scope.now:
        return scope.now[name]
    if known is not None:
        source: Source | None = known.source
    else:
        there = sys.modules.get(module.__name__) is module
        source = ModuleSource(module.__name__) if there else None
    if (root in sys.stdlib_module_names and root != "__main__") or library.is_library(
        module.__name__
    ):
        value = s.native(getattr, module, name)
        if (source is None or library.is_library(module.__name__)) and (
            type(value) in ATOMS
            or is_reference(value)
            or isinstance(value, (types.FunctionType, types.ModuleType))
            or (callable(value) and library.is_library(type(value).__module__))
        ):
            return value
        if source is None:
            raise Unsupported(f"The module {module.__name__} cannot be found again.")
        return s.heap.enter(value, AttrSource(source, name))
    if name not in d:
        if "__getattr__" in d or known is None or hasattr(types.ModuleType, name):
            raise Unsupported(f"The module {module.__name__} makes {name} when it is asked for.")
        text = f"module '{module.__name__}' has no attribute '{name}'"
        return s.raise_(AttributeError(text, name=name, obj=module))
    if source is None:
        raise Unsupported(f"The module {module.__name__} cannot be found again.")
    return s.heap.enter(d[name], AttrSource(source, name))


def _of_class(s: Session, cls: type, name: str) -> Any:
    meta = lookup(type(cls), name)
    attr = lookup(cls, name)
    if name in ("__dict__", "__mro__", "__name__", "__qualname__", "__module__", "__bases__"):
        return s.native(getattr, cls, name)
    if type(cls).__module__ == "enum" or (isinstance(cls, type) and _is_enum(cls)):
        classes.check_enumeration(cls)
        return s.native(getattr, cls, name)
    if attr is MISSING:
        if type(meta) is types.FunctionType:
            return types.MethodType(meta, cls)
        if type(meta) is property and meta.fget is not None:
            return s.call(meta.fget, (cls,), {})
        return s.native(getattr, cls, name)
    ta = type(attr)
    known = s.heap.known(cls)
    if ta is classmethod:
        func = attr.__func__
        if type(func) is property:
            raise Unsupported("A classmethod of a property is read.")
        return types.MethodType(func, cls)
    if ta is staticmethod:
        attr = attr.__func__
        ta = type(attr)
    elif ta in _DESCRIPTORS or ta in (types.GetSetDescriptorType, types.MemberDescriptorType):
        return s.native(getattr, cls, name)
    elif ta is property or ta is functools.cached_property:
        return attr
    elif ta is not types.FunctionType and special(ta, "__get__") is not None:
        method = special(ta, "__get__")
        if type(method) is types.FunctionType:
            return s.call(method, (attr, None, cls), {})
        if type(method) is not types.WrapperDescriptorType:  # what it calls may be anything
            raise Unsupported(f"The descriptor {name} of {cls.__name__} is bound by an object.")
        return s.native(getattr, cls, name)
    plain = ta in ATOMS or is_reference(attr) or ta is types.FunctionType
    if plain and (library.is_library(cls.__module__) or known is None):
        return attr
    source = known.source if known is not None else s.heap.find(cls)
    if source is None:
        raise Unsupported(f"{cls.__name__}.{name} cannot be found again to guard it.")
    return s.heap.enter(attr, AttrSource(source, name))


def _is_enum(cls: type) -> bool:
    metaclass: type = type(cls)
    return any(b.__module__ == "enum" for b in metaclass.__mro__)


def _of_function(s: Session, fn: Any, name: str) -> Any:
    if name in ("__name__", "__qualname__", "__module__", "__doc__", "__code__", "__class__"):
        return s.native(getattr, fn, name)
    if name == "__closure__" and fn.__closure__ is not None:
        raise Unsupported("A cell is used as a value.")
    if s.heap.is_made(fn):
        return s.native(getattr, fn, name)
    source = s.heap.source_of(fn)
    value = s.native(getattr, fn, name)
    if name == "__get__" or isinstance(value, types.MethodWrapperType):
        return value
    if source is None:
        if type(value) in ATOMS or is_reference(value) or type(value) is types.FunctionType:
            return value
        raise Unsupported(f"The attribute {name} of a function cannot be found again.")
    return s.heap.enter(value, AttrSource(source, name))


_GENERATOR = {
    "send": "resume",
    "__next__": "resume",
    "throw": "throw_",
    "close": "close_",
    "__iter__": "__iter__",
}


def _of_generator(s: Session, gen: Any, name: str) -> Any:
    if name in _GENERATOR:
        return getattr(gen, _GENERATOR[name])
    raise Unsupported(f"The attribute {name} of a generator is read.")


def super_of(s: Session, args: Any, kwargs: Any) -> Any:
    """`super(...)`, and `super()` in the innermost frame."""
    if len(args) == 2 and not kwargs:
        return _checked(s, *args)
    frame = s.frame
    if args or kwargs or frame is None:
        raise Unsupported("An unbound `super` is made.")
    names = frame.prepared.slots
    if "__class__" not in names or not frame.code.co_argcount:
        raise Unsupported("`super()` stands where there is no class.")
    cell = frame.locals[len(names) - 1 - names[::-1].index("__class__")]
    first = frame.locals[0]
    if type(first) is types.CellType:
        first = _held(s, first)
    elif type(first).__name__ == "Pending":
        first = frame.locals[0] = s.heap.enter(first.real, first.source)
    return _checked(s, _held(s, cell), first)


def _held(s: Session, cell: Any) -> Any:
    try:
        return s.heap.read_cell(cell)
    except ValueError:
        return MISSING


def _checked(s: Session, cls: Any, first: Any) -> Any:
    """Of a class and an instance or a class beneath it; what is not raises as Python does."""
    kinds: tuple[type, ...] = ()
    if isinstance(cls, type) and first is not MISSING:
        kinds = classes.type_of(s, first).__mro__
        kinds += first.__mro__ if isinstance(first, type) else ()
    if cls not in kinds:
        raise Unsupported("`super()` is told another class than that of the object.")
    return Super(cls, first)


def get_super(s: Session, cls: type, self_: Any, name: str) -> Any:
    """`super(cls, self_).name`."""
    kind = self_ if isinstance(self_, type) and cls in self_.__mro__ else classes.type_of(s, self_)
    mro = kind.__mro__
    if cls not in mro:
        raise Unsupported("`super()` is told another class than that of the object.")
    for base in mro[mro.index(cls) + 1 :]:
        attr = base.__dict__.get(name, MISSING)
        if attr is MISSING:
            continue
        if kind is self_:
            return _super_class(s, attr, self_)
        ta = type(attr)
        if type(self_) is FakeTensor and base is Tensor:
            if not callable(attr):
                raise Unsupported("A property of tensors is read by `super()`.")
            return types.MethodType(attr, self_)
        if ta is types.FunctionType:
            return types.MethodType(attr, self_)
        if ta is property:
            return s.call(attr.fget, (self_,), {})
        if name == "__init__" and base is object:
            return types.MethodType(object.__init__, self_)
        if ta is types.BuiltinFunctionType:
            return attr
        if ta in _DESCRIPTORS:
            return s.native(attr.__get__, self_, kind)
        if ta is classmethod:
            return types.MethodType(attr.__func__, kind)
        if ta is staticmethod:
            return attr.__func__
        return _class_value(s, base, None, name, attr, True)
    text = f"'super' object has no attribute '{name}'"
    return s.raise_(AttributeError(text))


def _super_class(s: Session, attr: Any, cls: type) -> Any:
    if isinstance(attr, classmethod):
        return types.MethodType(attr.__func__, cls)
    if isinstance(attr, staticmethod):
        return attr.__func__
    if type(attr) is types.ClassMethodDescriptorType:
        return s.native(attr.__get__, None, cls)
    return attr


# ---- setting and deleting ----


def set_(s: Session, obj: Any, name: str, value: Any) -> None:
    """`obj.name = value`."""
    kind = type(obj)
    if kind is FakeTensor:
        tensor_attributes.set_(s, obj, name, value)
        return
    method = special(kind, "__setattr__")
    if type(method) is types.FunctionType:
        if library.is_module(obj) and library.kind_of_code(method.__code__) is not None:
            set_on_module(s, obj, name, value)
            return
        s.call(method, (obj, name, value), {})
        return
    if method not in _SETTING and not isinstance(obj, (type, types.ModuleType)):
        raise Unsupported(f"The attributes of a {kind.__name__} are set by native code.")
    generic_set(s, obj, name, value)


def generic_set(s: Session, obj: Any, name: str, value: Any) -> None:
    """`object.__setattr__(obj, name, value)`."""
    kind = type(obj)
    if isinstance(obj, (type, types.ModuleType)):
        what = (
            f"the module {obj.__name__}"
            if isinstance(obj, types.ModuleType)
            else (f"the class {obj.__name__}")
        )
        raise Unsupported(
            f"The attribute {name} of {what} is set.", "Set it outside of the compiled function."
        )
    if is_reference(obj) or (isinstance(obj, types.FunctionType) and not s.heap.is_made(obj)):
        raise Unsupported(f"The attribute {name} of a {kind.__name__} is set.")
    attr = lookup(kind, name)
    known = s.heap.known(obj)
    if name in ("__class__", "__dict__"):
        raise Unsupported(f"`{name}` of an object is set.")
    if attr is not MISSING and _is_data(attr):
        _set_data(s, obj, kind, known, name, attr, value)
        return
    if known is not None:
        own = isinstance(obj, _HOLDERS) and kind not in CONTAINERS
        if known.real is not obj and not own:
            raise Unsupported(f"An attribute of a {kind.__name__} from outside is set.")
        if s.heap.instance_dict(known) is None:
            text = f"'{kind.__name__}' object has no attribute '{name}'"
            s.raise_(AttributeError(text))
        known.attrs[name] = value
        return
    if not s.heap.is_made(obj) and kind is not functools.partial:
        raise Unsupported(f"An attribute of a {kind.__name__} is set that was not entered.")
    s.native(object.__setattr__, obj, name, value)


def _set_data(
    s: Session, obj: Any, kind: type, known: Known | None, name: str, attr: Any, value: Any
) -> None:
    if type(attr) is property:
        if attr.fset is None:
            s.native(attr.__set__, obj, value)  # raises
        s.call(attr.fset, (obj, value), {})
    elif type(attr) in (types.MemberDescriptorType, types.GetSetDescriptorType):
        if id(obj) in s.heap.opaque:  # native code may refuse the value
            raise Unsupported(f"The attribute {name} of a {kind.__name__} from outside is set.")
        if known is not None and (known.real is obj or not _is_native(attr)):
            known.attrs[name] = value
        elif known is not None and name != "default_factory":
            raise Unsupported(f"The attribute {name} of a {kind.__name__} from outside is set.")
        elif (
            known is not None
            or s.heap.is_made(obj)
            or isinstance(obj, (BaseException, dict, list, set))
        ):
            s.native(attr.__set__, obj, value)
        else:  # found in a class, for one: it is the user's
            raise Unsupported(f"An attribute of a {kind.__name__} is set that was not entered.")
    else:
        method = special(type(attr), "__set__")
        if type(method) is not types.FunctionType:
            raise Unsupported(f"The descriptor {name} of {kind.__name__} is native code.")
        s.call(method, (_class_value(s, kind, known, name, attr, False), obj, value), {})


def set_on_module(s: Session, obj: Any, name: str, value: Any) -> None:
    """`Module.__setattr__`: parameters, buffers and modules go to their tables."""
    known = s.heap.known(obj)
    if known is None:
        info = s.tensors.get(id(value))
        if info is not None and info.kind.__name__ in ("Parameter", "Buffer"):
            raise Unsupported("A module with parameters is made.", "Make it outside.")
        method = next(c.__dict__["__setattr__"] for c in type(obj).__mro__ if _is_root(c))
        s.native(method, obj, name, value)
        return
    if isinstance(value, FakeTensor):
        info = s.tensors.get(id(value))
        if info is not None and info.kind.__name__ in ("Parameter", "Buffer"):
            raise Unsupported(f"A parameter or buffer is registered as {name}.")
        if name in obj.__dict__["_parameters"]:
            raise Unsupported(f"The parameter {name} is replaced.")
    elif library.is_module(value):
        raise Unsupported(f"A module is registered as {name}.")
    elif name in obj.__dict__["_modules"] or name in obj.__dict__["_parameters"]:
        raise Unsupported(f"The registered {name} is replaced.")
    generic_set(s, obj, name, value)


def _is_root(cls: type) -> bool:
    return "_call_impl" in cls.__dict__ and "__setattr__" in cls.__dict__


def delete(s: Session, obj: Any, name: str) -> None:
    """`del obj.name`."""
    kind = type(obj)
    method = special(kind, "__delattr__")
    if type(method) is types.FunctionType:
        if library.is_module(obj):
            raise Unsupported(f"The attribute {name} of a module is deleted.")
        s.call(method, (obj, name), {})
        return
    if method not in _DELETING:
        raise Unsupported(f"The attributes of a {kind.__name__} are deleted by native code.")
    generic_delete(s, obj, name)


def generic_delete(s: Session, obj: Any, name: str) -> None:
    """`object.__delattr__(obj, name)`."""
    kind = type(obj)
    attr = lookup(kind, name)
    if isinstance(obj, (type, types.ModuleType)) or type(obj) is FakeTensor:
        raise Unsupported(f"The attribute {name} of a {kind.__name__} is deleted.")
    if attr is not MISSING and _is_data(attr):
        if type(attr) is property and attr.fdel is not None:
            s.call(attr.fdel, (obj,), {})
            return
        remove = special(type(attr), "__delete__")
        if type(remove) is types.FunctionType:
            known = s.heap.known(obj)
            s.call(remove, (_class_value(s, kind, known, name, attr, False), obj), {})
            return
        raise Unsupported(f"The attribute {name} of a {kind.__name__} is deleted.")
    known = s.heap.known(obj)
    if known is None:
        if not s.heap.is_made(obj):
            raise Unsupported(f"An attribute of a {kind.__name__} is deleted.")
        s.native(object.__delattr__, obj, name)
        return
    if not s.heap.has_attribute(known, name):
        s.raise_(AttributeError(f"'{kind.__name__}' object has no attribute '{name}'"))
    s.heap.read_attribute(known, name)
    del known.attrs[name]
