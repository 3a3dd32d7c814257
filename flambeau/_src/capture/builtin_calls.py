"""Native functions and classes that need more than being run: by object, what to do instead.

A handler takes (session, arguments, keywords).
"""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import operator
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau._src import _native
from flambeau._src.capture import (
    arithmetic,
    attributes,
    bodies,
    classes,
    custom_functions,
    iteration,
    library,
    module_hooks,
    natives,
    overriding,
    standard_calls,
    strings,
    tensor_calls,
    tensor_hooks,
    transforms,
)
from flambeau._src.capture.interpreter import NULL
from flambeau._src.capture.lookup import special
from flambeau._src.capture.opcodes.names import value_of
from flambeau._src.capture.outcome import Raised, Unsupported
from flambeau._src.capture.shims import Shim
from flambeau._src.capture.sizes import SYMBOLIC, is_symbolic, numbers
from flambeau._src.capture.source import TypeSource
from flambeau._src.capture.values.constant import ATOMS
from flambeau._src.core.slots import SLOTS
from flambeau._src.core.symint import SymFloat, SymInt
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = [
    "CLASSES",
    "CREATORS",
    "DESCRIPTORS",
    "FUNCTIONS",
    "METHODS",
    "QUESTIONS",
    "TENSOR_METHODS",
    "VALUE_CLASSES",
    "getter",
    "module_call",
    "python_handler",
    "search",
]

Handler = Callable[["Session", tuple[Any, ...], dict[str, Any]], Any]
CREATORS = tensor_calls.CREATORS
QUESTIONS = tensor_calls.QUESTIONS
TENSOR_METHODS = tensor_calls.METHODS
#: Classes of the library whose instances are values, like numbers.
VALUE_CLASSES = frozenset(("Size", "device", "dtype", "finfo", "iinfo"))


# ---- builtin functions ----


def _len(s: Session, args: Any, kwargs: Any) -> Any:
    (value,) = args
    return iteration.length(s, value)


def _isinstance(s: Session, args: Any, kwargs: Any) -> Any:
    value, cls = args
    if is_symbolic(value):
        value = SYMBOLIC[type(value)]()  # any number of the kind
    return classes.is_instance(s, value, cls)


def _issubclass(s: Session, args: Any, kwargs: Any) -> Any:
    kind, cls = args
    return classes.is_subclass(s, kind, cls)


def _getattr(s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) < 3:
        return attributes.get(s, *args)
    try:
        return attributes.get(s, args[0], args[1])
    except Raised as raised:
        if isinstance(raised.error, AttributeError):
            return args[2]
        raise


def _hasattr(s: Session, args: Any, kwargs: Any) -> Any:
    try:
        attributes.get(s, *args)
    except Raised as raised:
        if isinstance(raised.error, AttributeError):
            return False
        raise
    return True


def _setattr(s: Session, args: Any, kwargs: Any) -> Any:
    attributes.set_(s, *args)


def _delattr(s: Session, args: Any, kwargs: Any) -> Any:
    attributes.delete(s, *args)


def _iter(s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) == 1:
        return iteration.iterator(s, args[0])
    return iter(Shim(s, args[0]), args[1])


def _next(s: Session, args: Any, kwargs: Any) -> Any:
    try:
        return iteration.next_(s, args[0])
    except Raised as raised:
        if len(args) > 1 and isinstance(raised.error, StopIteration):
            return args[1]
        raise


def _callable(s: Session, args: Any, kwargs: Any) -> Any:
    return callable(args[0])


def _id(s: Session, args: Any, kwargs: Any) -> Any:
    known = s.heap.known(args[0])
    if known is not None and library.is_module(known.real):
        return id(known.real)
    raise Unsupported("`id` of an object is asked for.", "Use the object itself as a key.")


def _vars(s: Session, args: Any, kwargs: Any) -> Any:
    if not args:
        return _locals(s, args, kwargs)
    try:
        return attributes.get(s, args[0], "__dict__")
    except Raised as raised:
        if isinstance(raised.error, AttributeError):
            s.raise_(TypeError("vars() argument must have __dict__ attribute"))
        raise


def _dir(s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], type):
        return s.native(dir, args[0])
    if not args:
        return sorted(_locals(s, args, kwargs))
    raise Unsupported("`dir` of an object is asked for.")


def _getframe(s: Session, args: Any, kwargs: Any) -> Any:
    outwards, frame = args[0] if args else 0, s.frame
    while frame is not None and outwards > 0:
        outwards, frame = outwards - 1, frame.parent
    own = frame is not None and frame.parent is None
    raise Unsupported("The program looks at a frame.", "Do it outside.", whole=own)


def _hash(s: Session, args: Any, kwargs: Any) -> Any:
    value = numbers(args[0])
    method = attributes.special(type(value), "__hash__")
    if type(method) is types.FunctionType and not isinstance(value, type):
        return s.call(method, (value,), {})
    if type(value) in ATOMS or isinstance(value, tuple):
        natives.check_key(s, value)
        if natives.grade(value) == natives.PLAIN and strings.printable(value):
            return s.native(hash, value)
    raise Unsupported("A hash that depends on an address is asked for.")


def _any(s: Session, args: Any, kwargs: Any) -> Any:
    it = iteration.iterator(s, args[0])
    return any(arithmetic.truth(s, v) for v in _stream(s, it))


def _all(s: Session, args: Any, kwargs: Any) -> Any:
    it = iteration.iterator(s, args[0])
    return all(arithmetic.truth(s, v) for v in _stream(s, it))


def _stream(s: Session, it: Any) -> Any:
    while True:
        s.went_on()
        try:
            value = iteration.next_(s, it)
        except Raised as raised:
            if isinstance(raised.error, StopIteration):
                return
            raise
        yield value


_END = object()
_FLOATS = frozenset((float, SymFloat))
_SUMMED = _FLOATS | {int, bool, SymInt}


def _sum(s: Session, args: Any, kwargs: Any) -> Any:
    total = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if isinstance(total, (str, bytes, bytearray)):
        return s.native(sum, (), total)
    stream = _stream(s, iteration.iterator(s, args[0]))
    if sys.version_info >= (3, 12):
        total, item = _sum_numbers(s, total, stream)
        if item is not _END:
            total = arithmetic.binary(s, "+", total, item)
    for v in stream:
        total = arithmetic.binary(s, "+", total, v)
    return total


def _sum_numbers(s: Session, total: Any, stream: Iterator[Any]) -> tuple[Any, Any]:
    """The sum up to the first item that is no number (or a long one), and that item.

    Since 3.12 Python carries along what additions of floats lose. So it sums them itself, and
    symbols among two floats or more are fixed.
    """
    run, item = [total], _END
    floats = type(total) in _FLOATS
    while type(total) in _SUMMED:
        item = next(stream, _END)
        kind = type(item)
        if not (kind in _SUMMED or (floats and isinstance(item, int))):
            break
        if isinstance(item, int) and not -(1 << 63) <= item < 1 << 63:
            break
        floats = floats or kind in _FLOATS
        run.append(item)
    if sum(type(v) in _FLOATS for v in run) > 1:
        return s.native(sum, [numbers(v) for v in run[1:]], numbers(total)), item
    for v in run[1:]:
        total = arithmetic.binary(s, "+", total, v)
    return total, item


def _extreme(symbol: str) -> Handler:
    def extreme(s: Session, args: Any, kwargs: Any) -> Any:
        name = "max" if symbol == ">" else "min"
        key = kwargs.get("key")
        values = args if len(args) > 1 else iteration.items(s, args[0])
        if all(type(v) in ATOMS for v in values) and key is None:
            given = {k: v for k, v in kwargs.items() if k != "key"}
            return s.native(
                getattr(builtins, name), *((values,) if len(args) == 1 else args), **given
            )
        if not values:
            if "default" in kwargs:
                return kwargs["default"]
            return s.raise_(ValueError(f"{name}() iterable argument is empty"))
        best, best_key = values[0], _keyed(s, key, values[0])
        for v in values[1:]:
            k = _keyed(s, key, v)
            if arithmetic.truth(s, arithmetic.binary(s, symbol, k, best_key)):
                best, best_key = v, k
        return best

    return extreme


def _keyed(s: Session, key: Any, value: Any) -> Any:
    return value if key is None else s.call(key, (value,), {})


class _Order:
    """A key for native sorting: compared by the interpreter."""

    __slots__ = ("key", "session")

    def __init__(self, session: Session, key: Any) -> None:
        self.session = session
        self.key = key

    def __lt__(self, other: _Order) -> bool:
        s = self.session
        try:
            return arithmetic.truth(s, arithmetic.binary(s, "<", self.key, other.key))
        except Raised as raised:
            error = raised.error
        raise error


def _sort(s: Session, values: list[Any], kwargs: Any) -> list[Any]:
    key = kwargs.get("key")
    keys = [_keyed(s, key, v) for v in values]
    if not all(type(k) in ATOMS for k in keys):
        keys = [_Order(s, k) for k in keys]
    order = s.native(
        sorted,
        range(len(values)),
        key=keys.__getitem__,
        reverse=arithmetic.truth(s, kwargs.get("reverse", False)),
    )
    return [values[i] for i in order]


def _sorted(s: Session, args: Any, kwargs: Any) -> Any:
    return _sort(s, iteration.items(s, args[0]), kwargs)


def _list_sort(s: Session, bound: Any, args: Any, kwargs: Any) -> Any:
    target = bound.__self__
    if args:
        s.native(bound, *args, **kwargs)  # which is an error
    list.__setitem__(target, slice(None), _sort(s, list(list.__iter__(target)), kwargs))


def search(s: Session, sequence: Any, name: str, args: Any) -> Any:
    """`index`, `count`, `remove` of a sequence whose items are compared by the interpreter."""
    value = args[0]
    items = list(sequence)
    start, stop, _ = slice(*args[1:]).indices(len(items)) if len(args) > 1 else (0, len(items), 1)
    matching = (
        i
        for i in range(start, stop)
        if items[i] is value or arithmetic.truth(s, arithmetic.binary(s, "==", items[i], value))
    )
    if name == "count":
        return sum(1 for _ in matching)
    found = list(itertools.islice(matching, 1))
    if not found:
        what = (
            "list.remove(x): x not in list"
            if name == "remove"
            else (
                f"{strings.convert(s, 'repr', value)} is not in list"
                if isinstance(sequence, list)
                else "tuple.index(x): x not in tuple"
            )
        )
        return s.raise_(ValueError(what))
    if name == "index":
        return found[0]
    del sequence[found[0]]
    return None


def _round(s: Session, args: Any, kwargs: Any) -> Any:
    value, *rest = map(numbers, args)
    if type(value) is FakeTensor:
        return s.raise_(TypeError("type Tensor doesn't define __round__ method"))
    method = attributes.special(type(value), "__round__")
    if type(method) is types.FunctionType and (kwargs or len(rest) < 2):
        digits = (kwargs.get("ndigits"),) if kwargs else rest
        return s.call(method, (value, *(() if digits in ((None,), [None]) else digits)), {})
    return s.run_pure(round, (value, *rest), kwargs)


def _divmod(s: Session, args: Any, kwargs: Any) -> Any:
    a, b = args
    for v, other, name in ((a, b, "__divmod__"), (b, a, "__rdivmod__")):
        method = attributes.special(type(v), name)
        if type(method) is types.FunctionType:
            out = s.call(method, (v, other), {})
            if out is not NotImplemented:
                return out
    return s.run_pure(divmod, args, kwargs)


def _in_base(fn: Any) -> Handler:
    """`bin`, `hex`, `oct`: of what `__index__` gives."""

    def text(s: Session, args: Any, kwargs: Any) -> Any:
        method = attributes.special(type(args[0]), "__index__")
        if type(method) is types.FunctionType:
            return s.native(fn, s.call(method, (args[0],), {}))
        return s.run_pure(fn, args, kwargs)

    return text


def _locals(s: Session, args: Any, kwargs: Any) -> Any:
    frame = s.frame
    assert frame is not None
    found: dict[str, Any] = {}
    for slot, name in enumerate(frame.prepared.slots):
        value = value_of(s, frame, slot)
        if type(value) is types.CellType:
            try:
                value = s.heap.read_cell(value)
            except ValueError:
                continue
        if value is not NULL and not name.startswith((".", "___")):
            found[name] = value
    return found


def _frame_asked(what: str, least: int) -> Handler:
    """What looks at the variables of the frame that calls it: the frame must be as it is."""

    def refuse(s: Session, args: Any, kwargs: Any) -> Any:
        whole = len(args) < least and s.frame is not None and s.frame.parent is None
        raise Unsupported(f"`{what}` looks at the frame that calls it.", whole=whole)

    return refuse


def _abs(s: Session, args: Any, kwargs: Any) -> Any:
    value = args[0]
    if type(value) is FakeTensor:
        return s.recorder.call(abs, abs, args, {})
    if is_symbolic(value):
        return s.native(abs, value)
    method = attributes.special(type(value), "__abs__")
    if type(method) is types.FunctionType:
        return s.call(method, (value,), {})
    return s.run_pure(abs, args, kwargs)


def _pow(s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) == 2 and not kwargs:
        return arithmetic.binary(s, "**", *args)
    method = attributes.special(type(args[0]), "__pow__") if args else None
    if type(method) is types.FunctionType and len(args) == 3:
        return s.call(method, args, {})
    return s.run_pure(pow, args, kwargs)


def _text(how: str) -> Handler:
    def text(s: Session, args: Any, kwargs: Any) -> Any:
        return strings.convert(s, how, args[0])

    return text


def _format(s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) > 1 and not isinstance(args[1], str):
        return s.native(format, 0, args[1])  # which says so
    return strings.format_(s, args[0], args[1] if len(args) > 1 else "")


def _reduce(s: Session, args: Any, kwargs: Any) -> Any:
    it = iteration.iterator(s, args[1])
    if len(args) > 2:
        total = args[2]
    else:
        try:
            total = iteration.next_(s, it)
        except Raised as raised:
            if isinstance(raised.error, StopIteration):
                text = "reduce() of empty iterable with no initial value"
                return s.raise_(TypeError(text))
            raise
    for v in _stream(s, it):
        total = s.call(args[0], (total, v), {})
    return total


def _exception(s: Session, args: Any, kwargs: Any) -> Any:
    if s.handled is None:
        s.alone()
    return s.handled


def _exc_info(s: Session, args: Any, kwargs: Any) -> Any:
    error = _exception(s, args, kwargs)
    return (None, None, None) if error is None else classes.raised(s, error)


def _print(s: Session, args: Any, kwargs: Any) -> Any:
    raise Unsupported(
        "`print` is called.", "Print outside of the compiled function, or accept the break."
    )


_DEBUGGERS = frozenset({"pdb", "bdb", "ipdb", "IPython", "pudb", "pydevd", "debugpy"})


def _debugger(s: Session, args: Any, kwargs: Any) -> Any:
    """The function that stops runs as it is written, line by line and with all its variables."""
    outermost = s.frame is not None and s.frame.parent is None
    raise Unsupported("The debugger is called.", "Remove it to compile this.", whole=outermost)


def _object_setattr(s: Session, args: Any, kwargs: Any) -> Any:
    attributes.generic_set(s, *args)


def _object_getattribute(s: Session, args: Any, kwargs: Any) -> Any:
    return attributes.generic_get(s, *args)


def _object_delattr(s: Session, args: Any, kwargs: Any) -> Any:
    attributes.generic_delete(s, *args)


def _object_init(s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) < 2 and not kwargs:
        return None
    kind = type(args[0])
    if special(kind, "__init__") is not object.__init__:
        what = "object"
    elif special(kind, "__new__") is object.__new__:
        what = kind.__name__
    else:
        return None
    text = f"{what}.__init__() takes exactly one argument (the instance to initialize)"
    return s.raise_(TypeError(text))


def _set_grad(s: Session, args: Any, kwargs: Any) -> Any:
    return tensor_calls.set_grad(s, args[0])


def _unary(name: str) -> Handler:
    def unary(s: Session, args: Any, kwargs: Any) -> Any:
        return arithmetic.unary(s, name, args[0])

    return unary


def _binary(symbol: str) -> Handler:
    def binary(s: Session, args: Any, kwargs: Any) -> Any:
        return arithmetic.binary(s, symbol, *args)

    return binary


_BINARY_FUNCTIONS = tuple(arithmetic.SYMBOLS)

FUNCTIONS: dict[Any, Handler] = {
    len: _len,
    isinstance: _isinstance,
    issubclass: _issubclass,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    iter: _iter,
    next: _next,
    callable: _callable,
    id: _id,
    vars: _vars,
    sys._getframe: _getframe,
    dir: _dir,
    hash: _hash,
    any: _any,
    all: _all,
    sum: _sum,
    max: _extreme(">"),
    min: _extreme("<"),
    sorted: _sorted,
    round: _round,
    abs: _abs,
    divmod: _divmod,
    bin: _in_base(bin),
    hex: _in_base(hex),
    oct: _in_base(oct),
    locals: _locals,
    eval: _frame_asked("eval", 2),
    exec: _frame_asked("exec", 2),
    pow: _pow,
    repr: _text("repr"),
    ascii: _text("ascii"),
    format: _format,
    functools.reduce: _reduce,
    sys.exc_info: _exc_info,
    sys.exception: _exception,
    print: _print,
    breakpoint: _debugger,
    object.__getattribute__: _object_getattribute,
    operator.getitem: lambda s, a, k: arithmetic.get_item(s, *a),
    operator.setitem: lambda s, a, k: arithmetic.set_item(s, *a),
    operator.delitem: lambda s, a, k: arithmetic.delete_item(s, *a),
    operator.contains: lambda s, a, k: arithmetic.contains(s, *a),
    operator.truth: lambda s, a, k: arithmetic.truth(s, *a),
    operator.not_: lambda s, a, k: not arithmetic.truth(s, *a),
    operator.is_: lambda s, a, k: arithmetic.same(s, *a),
    operator.is_not: lambda s, a, k: not arithmetic.same(s, *a),
    operator.neg: _unary("neg"),
    operator.pos: _unary("pos"),
    operator.invert: _unary("invert"),
    operator.inv: _unary("invert"),
    operator.abs: _abs,
    _native.get_grad: lambda s, a, k: _native.get_grad(),
    _native.get_inference: lambda s, a, k: _native.get_inference(),
    _native.set_grad: _set_grad,
}
FUNCTIONS.update(standard_calls.FUNCTIONS)
FUNCTIONS.update({fn: _binary(symbol) for fn, symbol in arithmetic.SYMBOLS.items()})

#: How many arguments the functions take that check nothing themselves; keywords: those listed.
ARITY: dict[Any, tuple[int, int]] = {
    **dict.fromkeys((bin, hex, oct), (1, 1)),
    divmod: (2, 2),
    locals: (0, 0),
    **dict.fromkeys((len, callable, id, hash, any, all, repr, ascii, abs), (1, 1)),
    **dict.fromkeys((isinstance, issubclass, hasattr, delattr), (2, 2)),
    **dict.fromkeys((iter, next, format), (1, 2)),
    **dict.fromkeys((setattr, operator.setitem), (3, 3)),
    **dict.fromkeys((functools.reduce, getattr), (2, 3)),
    **dict.fromkeys((sorted, vars, dir, sys.exc_info), (0, 1)),
    **dict.fromkeys((round, sum), (1, 2)),
    **dict.fromkeys((operator.getitem, operator.delitem, operator.contains), (2, 2)),
    **dict.fromkeys((operator.is_, operator.is_not, *_BINARY_FUNCTIONS), (2, 2)),
    **dict.fromkeys((operator.truth, operator.not_, operator.neg, operator.pos), (1, 1)),
    **dict.fromkeys((operator.invert, operator.inv, operator.abs), (1, 1)),
    **dict.fromkeys((list, tuple, bool), (0, 1)),
    reversed: (1, 1),
    itertools.tee: (1, 2),
    functools.cmp_to_key: (1, 1),
    **dict.fromkeys((int, complex), (0, 2)),
    float: (0, 1),
    str: (0, 3),
    bytes: (0, 3),
}
KEYWORDS = frozenset(
    (functools.cmp_to_key, sum, max, min, sorted, round, pow, int, complex, str, bytes, print)
)


def fits(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a handled function takes so many arguments, and keywords."""
    low, high = ARITY.get(fn, (0, 1 << 30))
    if kwargs and fn in ARITY and fn not in KEYWORDS:
        return False
    return low <= len(args) <= high or (fn in KEYWORDS and bool(kwargs))


DESCRIPTORS: dict[Any, Handler] = {
    object.__setattr__: _object_setattr,
    object.__getattribute__: _object_getattribute,
    object.__delattr__: _object_delattr,
    object.__init__: _object_init,
    object.__repr__: _text("repr"),
    type.__instancecheck__: lambda s, a, k: classes.is_subclass(s, classes.type_of(s, a[1]), a[0]),
}


# ---- methods ----


def _join(s: Session, bound: Any, args: Any, kwargs: Any) -> Any:
    return s.native(bound, iteration.items(s, args[0]))


def _popitem(s: Session, bound: Any, args: Any, kwargs: Any) -> Any:
    """Done again as it was: taking the last item leaves a dict otherwise than deleting it does."""
    s.heap.popped.add(id(bound.__self__))
    return s.native(bound, *args, **kwargs)


def _percent(s: Session, bound: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 1 or kwargs:
        return s.native(bound, *args, **kwargs)
    return strings.percent(s, bound.__self__, args[0])


def _format_map(s: Session, bound: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs and type(args[0]) is dict and strings.printable(args[0]):
        return s.native(bound, numbers(args[0]))
    raise Unsupported("Objects are formatted by `str.format_map`.", "Use an f-string.")


def _str_format(s: Session, bound: Any, args: Any, kwargs: Any) -> Any:
    if all(map(strings.printable, (*args, *kwargs.values()))):
        return s.native(bound, *map(numbers, args), **{k: numbers(v) for k, v in kwargs.items()})
    raise Unsupported("Objects are formatted by `str.format`.", "Use an f-string.")


METHODS: dict[tuple[str, bool], Any] = {
    ("join", True): _join,
    ("format", True): _str_format,
    ("format_map", True): _format_map,
    ("__mod__", True): _percent,
    ("sort", False): _list_sort,
    ("popitem", False): _popitem,
}


# ---- classes ----


def _type(s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) == 1:
        kind = classes.type_of(s, args[0])
        known = s.heap.known(args[0])
        users = kind.__module__ != "builtins" and not library.is_library(kind.__module__)
        new = s.heap.known(kind) is None
        if users and new and known is not None and kind is type(known.real):
            s.heap.enter(kind, TypeSource(known.source))
        return kind
    plain = len(args) == 3 and not kwargs and args[1] in ((), (object,))
    if plain and type(args[2]) is dict and natives.grade(args[2]) == natives.PLAIN:
        return _made_class(s, type, args, kwargs)
    raise Unsupported("A class is made in the function.", "Define it outside.")


def _made_class(s: Session, make: Any, args: Any, kwargs: Any) -> Any:
    """A class of the program's own, which must not leave it: every call makes another."""
    made = s.native(make, *args, **kwargs)
    s.classes.append(made)
    for value in vars(made).values():
        fn = getattr(value, "__func__", value)
        if type(fn) is types.FunctionType:
            s.heap.made(fn)
    return made


def _named_tuple(s: Session, args: Any, kwargs: Any) -> Any:
    """`collections.namedtuple`: of constants, a class that is made at once."""
    if not all(natives.grade(v) == natives.PLAIN for v in (*args, *kwargs.values())):
        raise Unsupported("A class is made in the function.", "Define it outside.")
    own = "__main__" if s.frame is None else s.frame.globals.get("__name__", "__main__")
    return _made_class(s, collections.namedtuple, args, {"module": own, **kwargs})


_SYMBOLIC: dict[Any, type] = {int: SymInt, float: SymFloat}


def _number(cls: Any) -> Handler:
    names = {int: ("__int__", "__index__", "__trunc__"), float: ("__float__", "__index__")}

    def number(s: Session, args: Any, kwargs: Any) -> Any:
        if args and type(args[0]) not in ATOMS:
            value = args[0]
            if type(value) is FakeTensor:
                value = tensor_calls.METHODS["item"](s, value, (), {})
                if type(value) is _SYMBOLIC.get(cls):
                    return value
                return s.native(cls, value)
            for name in names.get(cls, ("__complex__", "__float__")):
                method = attributes.special(type(value), name)
                if type(method) is types.FunctionType:
                    return s.call(method, (value,), {})
            if not isinstance(value, (int, float, str, bytes, bytearray, complex)):
                possible = (*names.get(cls, ()), "__array__")
                if any(attributes.special(type(value), n) for n in possible):
                    raise Unsupported(f"A {type(value).__name__} becomes a number.")
                return s.raise_(_no_number(cls, value))
        return s.native(cls, *args, **kwargs)

    return number


def _no_number(cls: Any, value: Any) -> BaseException:
    what = {
        int: "a string, a bytes-like object or a real number",
        float: "a string or a real number",
    }
    needed = what.get(cls, "a number")
    if cls is complex:
        return TypeError(
            f"complex() first argument must be a string or a number, not '{type(value).__name__}'"
        )
    return TypeError(f"{cls.__name__}() argument must be {needed}, not '{type(value).__name__}'")


def _bool(s: Session, args: Any, kwargs: Any) -> Any:
    return arithmetic.truth(s, args[0]) if args else False


def _str(s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) != 1 or kwargs:
        return s.native(str, *args, **kwargs)
    return args[0] if type(args[0]) is str else strings.convert(s, "str", args[0])


def _bytes(s: Session, args: Any, kwargs: Any) -> Any:
    if args and type(args[0]) not in ATOMS:
        return s.native(bytes, iteration.items(s, args[0]))
    return s.native(bytes, *args, **kwargs)


def _list(s: Session, args: Any, kwargs: Any) -> Any:
    return iteration.items(s, args[0]) if args else []


def _tuple(s: Session, args: Any, kwargs: Any) -> Any:
    if args and type(args[0]) is tuple:
        return args[0]
    return tuple(iteration.items(s, args[0])) if args else ()


CLASSES: dict[Any, Handler] = {
    type: _type,
    super: attributes.super_of,
    int: _number(int),
    float: _number(float),
    complex: _number(complex),
    bool: _bool,
    str: _str,
    bytes: _bytes,
    list: _list,
    tuple: _tuple,
    **standard_calls.CLASSES,
}


# ---- Python functions that are not interpreted ----


def _warn(s: Session, args: Any, kwargs: Any) -> Any:
    raise Unsupported("A warning is given.", "Warn outside of the compiled function.")


def _is_compiling(s: Session, args: Any, kwargs: Any) -> Any:
    return True


def _wraps(s: Session, args: Any, kwargs: Any) -> Any:
    raise Unsupported("`functools.wraps` is used in the function.", "Wrap it outside.")


def _enter_on_break(s: Session, args: Any, kwargs: Any) -> Any:
    s.breaks_are_errors.append(bool(attributes.get(s, args[0], "error_on_graph_break")))


def _exit_on_break(s: Session, args: Any, kwargs: Any) -> Any:
    if s.breaks_are_errors:  # else it was entered before a break
        s.breaks_are_errors.pop()


#: Methods of what `error_on_graph_break` gives.
_ON_BREAK: dict[str, Handler] = {"__enter__": _enter_on_break, "__exit__": _exit_on_break}
_COMPILING = frozenset(("is_compiling", "is_dynamo_compiling"))


def python_handler(s: Session, fn: Any, code: types.CodeType) -> Handler | None:
    """What to do with a Python function instead of interpreting it, None: interpret it."""
    name = code.co_name
    if name in _COMPILING and library.kind_of_code(code) is not None:
        return _is_compiling
    if name == "graph_break" and library.kind_of_code(code) is not None:
        return _graph_break
    if name == "cudagraph_mark_step_begin" and library.kind_of_code(code) is not None:
        return _nothing
    if code is collections.namedtuple.__code__:
        return _named_tuple
    if code is _WARN:
        return _warn
    if name == "set_trace" and str(fn.__module__).partition(".")[0] in _DEBUGGERS:
        return _debugger
    if name in _ON_BREAK and code.co_qualname == f"_OnGraphBreak.{name}":
        return _ON_BREAK[name]
    transform = transforms.handler(fn) if library.kind_of_code(code) == library.LEAF else None
    if transform is not None:
        return transform
    if name == "checkpoint" and fn is SLOTS.get("checkpoint"):
        return bodies.checkpoint
    if name == "apply" and code.co_qualname == "Function.apply" and library.kind_of_code(code):
        return custom_functions.apply
    if code.co_qualname in _TABLES and library.kind_of_code(code) is not None:
        return functools.partial(_on_table, name)
    if code.co_qualname in module_hooks.HANDLERS and library.kind_of_code(code) is not None:
        return module_hooks.HANDLERS[code.co_qualname]
    handler: Handler | None = overriding.HANDLERS.get(code)
    if handler is not None:
        return handler
    if code is tensor_hooks.REMOVE:
        return tensor_hooks.remove
    if fn is Tensor.__repr__ or fn is Tensor.__format__:
        return _text_of_tensor
    if name in _MODULE_METHODS and library.is_module_code(code):
        return _MODULE_METHODS[name]
    if library.kind_of_code(code) == library.LEAF:
        return tensor_calls.FUNCTIONS.get(name)
    found = standard_calls.handler(fn, code)
    return None if found is None else functools.partial(_standard, found, fn)


def _standard(found: Any, fn: Any, s: Session, args: Any, kwargs: Any) -> Any:
    return found(s, fn, args, kwargs)


def _module_init(s: Session, args: Any, kwargs: Any) -> Any:
    """`Module.__init__` of a module that the program makes: its tables, by itself."""
    module = args[0]
    init = next(c.__dict__["__init__"] for c in type(module).__mro__ if "_call_impl" in c.__dict__)
    if s.heap.known(module) is not None or type(module).call_super_init or args[1:] or kwargs:
        raise Unsupported("A module is initialised in the function.", "Make it outside.")
    s.native(init, module)


#: Methods of a module's tables: they are a dict's, and the count of changes is kept outside.
_TABLES = frozenset(
    "Table." + n for n in ("__setitem__", "__delitem__", "pop", "popitem", "clear", "setdefault")
)


def _on_table(name: str, s: Session, args: Any, kwargs: Any) -> Any:
    if len(args) > 1:
        natives.check_key(s, args[1])
    return s.native(getattr(dict, name), *args, **kwargs)


def _module_setattr(s: Session, args: Any, kwargs: Any) -> Any:
    attributes.set_on_module(s, *args)


_MODULE_METHODS: dict[str, Handler] = {"__init__": _module_init, "__setattr__": _module_setattr}

_WARN = getattr(warnings.warn, "__code__", None)


def _nothing(s: Session, args: Any, kwargs: Any) -> Any:
    return None


def _text_of_tensor(s: Session, args: Any, kwargs: Any) -> Any:
    return strings.format_(s, args[0], "")


def _graph_break(s: Session, args: Any, kwargs: Any) -> Any:
    raise Unsupported("The program asks for a break here.", "Remove the call of graph_break.")


def getter(s: Session, fn: Any, args: Any, kwargs: Any) -> Any:
    """`operator.itemgetter`, `attrgetter`, `methodcaller`."""
    kind = type(fn).__name__
    if len(args) != 1 or kwargs:
        raise Unsupported(f"operator.{kind} is called with other than one argument.")
    made, parts = fn.__reduce__()[:2]
    value = args[0]
    if kind == "itemgetter":
        found = tuple([arithmetic.get_item(s, value, p) for p in parts])
    elif kind == "attrgetter":
        found = tuple([_dotted(s, value, p) for p in parts])
    else:
        keywords: dict[str, Any] = {}
        if isinstance(made, functools.partial):
            parts, keywords = (*made.args, *parts), made.keywords
        return s.call(attributes.get(s, value, parts[0]), tuple(parts[1:]), keywords)
    return found[0] if len(parts) == 1 else found


def _dotted(s: Session, value: Any, path: str) -> Any:
    for name in path.split("."):
        value = attributes.get(s, value, name)
    return value


def module_call(s: Session, module: Any) -> Any:
    """The forward of a module without hooks, None where its `__call__` has more to do."""
    call = attributes.special(type(module), "__call__")
    if type(call) is not types.FunctionType or library.kind_of_code(call.__code__) is None:
        return None
    known = s.heap.known(module)
    d = module.__dict__
    if known is None and not s.heap.is_made(module):
        return None
    if d.get("_hooked") or d.get("_compiled_call_impl") is not None:
        return None
    if call.__globals__.get("_any_global") or (known is not None and "_hooked" in known.attrs):
        return None
    if type(module)._compiled_call_impl is not None:
        return None
    if known is not None:
        s.modules.without_hooks(known, call.__globals__)
    return attributes.get(s, module, "forward")
