"""Inside values as instructions that make their outside forms.

A value is planned first (what it is made of), then all plans are walked to find what is shared and
which tensors and sources are needed, and only then code is written: the graph runs in between.
"""

from __future__ import annotations

import collections
import functools
import gc
import operator
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flambeau._src.autograd.hooks import RemovableHandle
from flambeau._src.capture import arrays, going_on, library, suspended
from flambeau._src.capture.attributes import Super
from flambeau._src.capture.bytecode import make
from flambeau._src.capture.bytecode.program import Instruction
from flambeau._src.capture.generators import Generator
from flambeau._src.capture.interpreter import Pending
from flambeau._src.capture.iteration import SequenceIterator, UserIterator
from flambeau._src.capture.lookup import is_hidden, own_dict
from flambeau._src.capture.natives import ITERATORS, stateful
from flambeau._src.capture.outcome import TooLate, Unsupported
from flambeau._src.capture.scalars import Scalar
from flambeau._src.capture.shims import Shim
from flambeau._src.capture.sizes import SYMBOLIC, fixed, numbers
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
)
from flambeau._src.capture.tensor_hooks import Handle
from flambeau._src.capture.transforms import Pullback
from flambeau._src.capture.values.constant import is_plain, is_reference, is_structseq
from flambeau._src.core.size import Size
from flambeau._src.core.tensor import Tensor
from flambeau._src.interp.fake import FakeTensor
from flambeau._src.ir.node import Node
from flambeau._src.ir.sym_node import expression_of

if TYPE_CHECKING:
    from flambeau._src.capture.session import Session

__all__ = ["Rebuild"]


Code = list[Instruction]


class Plan:
    """How a value is made: `kind`, and the inside values (or sources) that it is made of."""

    __slots__ = ("attributes", "cyclic", "extra", "kind", "name", "open", "parts", "uses", "value")

    def __init__(self, value: Any, kind: str, parts: Iterable[Any] = (), extra: Any = None) -> None:
        self.value = value
        self.kind = kind
        self.parts = list(parts)
        self.extra = extra
        self.attributes: list[str] = []  # of a tensor that the graph gives
        self.uses = 0
        self.name: str | None = None  # the temporary that holds it, once made
        self.open = False  # its parts are being walked
        self.cyclic = False


class Rebuild:
    """Plans and code for the values that leave one capture."""

    def __init__(self, session: Session, own_cells: dict[int, str]) -> None:
        self.session = session
        self.own_cells = own_cells  # names of the outermost frame's free variables, by inside cell
        self.plans: dict[int, Plan] = {}
        self.keep: list[Any] = []
        self.sources: dict[Source, str | None] = {}
        self.outputs: list[Any] = []  # fake tensors that the graph gives
        self.output_names: dict[int, str] = {}
        self.counter = 0

    # ---- first pass ----

    def need(self, value: Any) -> None:
        """Plan a value and all that it is made of."""
        plan = self.plan_of(value)
        plan.uses += 1
        if plan.open:
            plan.cyclic = True
            if plan.kind in ("tuple", "call", "frozenset", "suspended"):
                raise Unsupported("An immutable object contains itself.")
            return
        if plan.uses > 1:
            return
        plan.open = True
        if plan.kind == "source":
            self.need_source(plan.extra)
        elif plan.kind == "output":
            self.outputs.append(value)
        for part in plan.parts:
            self.need(part)
        plan.open = False

    def need_source(self, source: Source) -> None:
        """A source is loaded before anything changes."""
        self.sources.setdefault(source, None)

    def plan_of(self, value: Any) -> Plan:
        """How the value is made."""
        plan = self.plans.get(id(value))
        if plan is None:
            plan = self.plans[id(value)] = self._make_plan(value)
            self.keep.append(value)
        return plan

    def _make_plan(self, value: Any) -> Plan:
        s = self.session
        kind = type(value)
        if kind is Handle:
            return _plan_hook(self, value)
        if any(value is c or kind is c for c in s.classes):
            raise Unsupported("A class that the function makes, or an instance of it, leaves it.")
        if kind is Pending:
            return Plan(value, "source", extra=value.source)
        if kind in SYMBOLIC:
            if fixed(value):
                return Plan(numbers(value), "const")
            for info in s.numbers.values():
                if info.fake is value or expression_of(info.fake) == expression_of(value):
                    return Plan(value, "source", extra=info.source)
            if not isinstance(s.recorder.node_of(value), Node):  # what is known by now settles it
                return Plan(numbers(value), "const")
            return Plan(value, "output")
        if kind is FakeTensor:
            info = s.tensors.get(id(value))
            if info is None:
                raise Unsupported("A tensor was made where the capture did not see it.")
            if info.source is not None:
                return Plan(value, "source", extra=info.source)
            if any(t is value for t in s.retained):
                raise TooLate("A tensor that is to retain its gradient leaves the graph.")
            if "grad" in info.attrs:
                raise Unsupported("A new tensor with a gradient leaves the graph.")
            s.recorder.node_of(value)
            kind = Tensor if info.made_of is not None else info.kind  # the graph gives it whole
            plan = Plan(value, "output", info.attrs.values(), kind)
            plan.attributes = list(info.attrs)
            return plan
        if kind is types.CellType:
            return self._cell(value)
        if arrays.is_inside(value):
            source, parts, function = arrays.left(s, value)
            if source is not None:
                return Plan(value, "source", extra=source)
            return Plan(value, "call", parts, (function, ()))
        source = s.heap.source_of(value)
        if source is not None:
            return Plan(value, "source", extra=source)
        if kind is Scalar:
            return Plan(value, "call", [value.number], (type(value.value), ()))
        if arrays.is_constant(value):
            return Plan(value, "const")
        if s.heap.is_made(value):
            return self._made(value, kind)
        if kind is tuple and value and id(value) not in s.heap.constants:
            return Plan(value, "tuple", value)  # a new one in each call
        if is_plain(value) or is_reference(value) or issubclass(kind, types.ModuleType):
            return Plan(value, "const")
        owner = s.heap.dicts.get(id(value))
        if owner is not None:
            return Plan(value, "dict of", [owner])
        if library.is_module_table(kind):  # a module's table, which counts its changes
            return Plan(value, "call", [dict(value)], (kind, ()))
        maker = _PLANS.get(kind)
        if maker is not None:
            return maker(self, value)
        if kind in ITERATORS:
            return self._reduced(value)
        if kind is types.FunctionType:
            return Plan(value, "const")
        if issubclass(kind, BaseException):
            return self._exception(value, kind)
        if issubclass(kind, tuple):
            return self._tuple(value, kind)
        own = library.is_library(kind.__module__) and not issubclass(kind, (dict, list, set))
        if own and not kind.__module__.startswith(__package__):
            return Plan(value, "const")
        raise Unsupported(f"A {kind.__name__} made in the function cannot leave it.")

    def _cell(self, cell: Any) -> Plan:
        name = self.own_cells.get(id(cell))
        if name is not None:
            return Plan(cell, "closure", extra=name)
        known = self.session.heap.cells.get(id(cell))
        if known is not None:
            assert isinstance(known.source, AttrSource)
            return Plan(cell, "source", extra=known.source.base)
        try:
            return Plan(cell, "cell", [cell.cell_contents])
        except ValueError:
            return Plan(cell, "cell")

    def _made(self, value: Any, kind: Any) -> Plan:
        if kind is types.FunctionType:
            if value.__dict__ and set(value.__dict__) - {"__wrapped__"}:
                raise Unsupported("A function with attributes leaves the graph.")
            parts = [value.__defaults__, value.__kwdefaults__, *(value.__closure__ or ())]
            return Plan(value, "function", [*parts, *value.__dict__.values()])
        if issubclass(kind, BaseException):
            return self._exception(value, kind)
        state = self._state(value, kind)
        base = _native_base(value)
        if base is not object:
            flat = []
            if issubclass(base, dict):
                flat = [x for kv in base.items(value) for x in kv]
                if base is collections.defaultdict:
                    state["default_factory"] = value.default_factory
            elif base is not types.SimpleNamespace:
                flat = list(base.__iter__(value))
            return Plan(value, "instance", [*flat, *state.values()], (list(state), len(flat)))
        if issubclass(kind, tuple):
            if state:
                raise Unsupported("A tuple with attributes leaves the graph.")
            return self._tuple(value, kind)
        if issubclass(kind, (str, int, float, bytes, frozenset)):
            raise Unsupported(f"A {kind.__name__} made in the function cannot leave it.")
        if stateful(kind):
            raise Unsupported(f"A {kind.__name__} made in the function cannot leave it.")
        return Plan(value, "instance", state.values(), (list(state), 0))

    def _state(self, value: Any, kind: type) -> dict[str, Any]:
        state = dict(own_dict(value) or {})
        for base in kind.__mro__:
            for name, slot in base.__dict__.items():
                if type(slot) is types.MemberDescriptorType and base is slot.__objclass__:
                    if base.__module__ in ("builtins", "collections") or name == "__dict__":
                        continue
                    try:
                        state[name] = slot.__get__(value)
                    except AttributeError:
                        continue
        return state

    def _tuple(self, value: Any, kind: type) -> Plan:
        if kind is tuple:
            return Plan(value, "tuple", value)
        if is_structseq(kind):
            return Plan(value, "call", [tuple(value)], (kind, ()))
        return Plan(value, "call", [tuple(value)], (tuple.__new__, (kind,)))

    def _exception(self, value: BaseException, kind: type) -> Plan:
        inlined = self.session.passed.get(id(value))
        if inlined is not None:  # its traceback has frames that only running makes
            limit = Unsupported(f"A {kind.__name__} that an inlined call raised leaves the graph.")
            limit.step = inlined[1]
            raise limit
        state = {**_fields(value, kind), **value.__dict__}
        parts = [value.args, value.__cause__, value.__context__, *value.args, *state.values()]
        return Plan(value, "exception", parts, list(state))

    def _reduced(self, value: Any) -> Plan:
        advance = _OF_DICTS.get(type(value))
        if advance is not None:
            return _plan_of_dict(value, advance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                parts = value.__reduce__()
            except TypeError:
                raise Unsupported("An iterator cannot be made again.") from None
        state = parts[2] if len(parts) > 2 else None
        if state is not None and type(value).__module__ == "itertools" and _WARNS:
            return Plan(value, "call", [*parts[1], state], (_restored, (parts[0],)))
        return Plan(value, "call", [*parts[1], state], (parts[0], "state"))

    # ---- code ----

    def temporary(self) -> str:
        """A new local variable of the replacement code."""
        self.counter += 1
        return f"___{self.counter}"

    def load_sources(self) -> Code:
        """Code that puts all needed sources into temporaries."""
        out: Code = []
        order = {s: (len(list(s.path())), not isinstance(s, KeySource)) for s in self.sources}
        for source in sorted(self.sources, key=order.__getitem__):  # what others start from first
            if isinstance(source, LocalSource) and not source.is_cell:
                continue  # never changed by the replacement
            name = self.sources[source] = self.sources[source] or self.temporary()
            out += self.source(source, fresh=True) + make.store_fast(name)
        return out

    def source(self, source: Source, fresh: bool = False) -> Code:
        """Code that pushes the value at a source."""
        name = self.sources.get(source)
        if name is not None and not fresh:
            return make.load_fast(name)
        if isinstance(source, LocalSource):
            return (make.load_deref if source.is_cell else make.load_fast)(source.name)
        if isinstance(source, (GlobalSource, BuiltinSource)):
            return make.load_global(source.name)
        if isinstance(source, ModuleSource):
            return make.load_const(sys.modules[source.name])
        assert source.base is not None
        return self._step(source, self.source(source.base))

    def _step(self, source: Source, base: Code) -> Code:
        if isinstance(source, AttrSource):
            if source.raw:
                own = source.raw == "own"
                return (
                    (self._call(own_dict, base, 1) if own else base + make.load_attr("__dict__"))
                    + make.load_const(source.name)
                    + make.load_subscr()
                )
            return base + make.load_attr(source.name)
        if isinstance(source, ItemSource):
            if isinstance(source.key, KeySource):
                return base + self.source(source.key) + make.load_subscr()
            return base + make.load_const(source.key) + make.load_subscr()
        if isinstance(source, KeySource):
            out = make.as_callable(make.load_const(list)) + base + make.call(1)
            return out + make.load_const(source.index) + make.load_subscr()
        if isinstance(source, TypeSource):
            return make.as_callable(make.load_const(type)) + base + make.call(1)
        if isinstance(source, AppliedSource):
            return make.as_callable(make.load_const(APPLIED[source.name])) + base + make.call(1)
        assert isinstance(source, CallSource)
        return base + make.load_method(source.name) + make.call(0)

    def take_outputs(self, names: dict[int, str]) -> None:
        """The graph's outputs are in these temporaries, by fake tensor."""
        self.output_names = names

    def value(self, value: Any) -> Code:
        """Code that pushes the outside form of a needed value."""
        plan = self.plans.get(id(value))
        if plan is None:  # an item of a constant
            assert is_plain(value), value
            return make.load_const(value)
        if plan.name is not None:
            return make.load_fast(plan.name)
        kind = plan.kind
        if kind == "const":
            return make.load_const(plan.value)
        if kind == "source":
            return self.source(plan.extra)
        if kind == "output":
            plan.name = self.output_names[id(value)]
            out: Code = []
            for attribute, part in zip(plan.attributes, plan.parts, strict=True):
                out += self.value(part) + make.load_fast(plan.name) + make.store_attr(attribute)
            return out + make.load_fast(plan.name)
        if kind == "closure":
            return make.load_closure(plan.extra)
        if kind in ("instance", "cell", "exception") or (plan.cyclic and kind != "function"):
            return self._in_two_steps(plan)
        out = _EMIT[kind](self, plan)
        if plan.uses > 1:
            plan.name = self.temporary()
            out += make.dup() + make.store_fast(plan.name)
        return out

    def _values(self, values: Iterable[Any]) -> Code:
        return [x for v in values for x in self.value(v)]

    def _call(self, fn: Any, args: Code, n: int) -> Code:
        return make.as_callable(make.load_const(fn)) + args + make.call(n)

    def _in_two_steps(self, plan: Plan) -> Code:
        """Make it empty, then fill it: parts may refer to it."""
        value, kind = plan.value, plan.kind
        plan.name = name = self.temporary()
        this = make.load_fast(name)
        if kind == "cell":
            out = self._call(types.CellType, [], 0) + make.store_fast(name)
            if plan.parts:
                out += self.value(plan.parts[0]) + this + make.store_attr("cell_contents")
            return out + make.load_fast(name)
        if kind == "list":
            out = make.build_list(0) + make.store_fast(name)
            for part in plan.parts:
                out += (
                    make.load_fast(name) + self.value(part) + make.list_append(1) + make.pop_top()
                )
            return out + make.load_fast(name)
        if kind == "dict":
            out = make.build_map(0) + make.store_fast(name)
            for key, part in zip(plan.parts[::2], plan.parts[1::2], strict=True):
                out += self.value(part) + make.load_fast(name) + self.value(key)
                out += make.store_subscr()
            return out + make.load_fast(name)
        if kind == "exception":
            return self._emit_exception(plan, name)
        if kind != "instance":
            raise Unsupported(f"A {type(value).__name__} contains itself.")
        return self._emit_instance(plan, name)

    def _emit_instance(self, plan: Plan, name: str) -> Code:
        value = plan.value
        cls = type(value)
        names, count = plan.extra
        base = _native_base(value)
        out = self._call(base.__new__, make.load_const(cls), 1) + make.store_fast(name)
        items, state = plan.parts[:count], plan.parts[count:]
        if base is collections.deque:
            args = make.load_fast(name) + make.load_const(()) + make.load_const(value.maxlen)
            out += self._call(base.__init__, args, 3) + make.pop_top()
        if issubclass(base, dict):
            for key, item in zip(items[::2], items[1::2], strict=True):
                args = make.load_fast(name) + self.value(key) + self.value(item)
                out += self._call(base.__setitem__, args, 3) + make.pop_top()
        elif items:
            add = base.add if base is set else base.append
            for item in items:
                args = make.load_fast(name) + self.value(item)
                out += self._call(add, args, 2) + make.pop_top()
        for attribute, part in zip(names, state, strict=True):
            target = make.load_fast(name)
            put: Any = object.__setattr__
            if is_hidden(cls, attribute):
                target, put = self._call(own_dict, target, 1), dict.__setitem__
            args = target + make.load_const(attribute) + self.value(part)
            out += self._call(put, args, 3) + make.pop_top()
        return out + make.load_fast(name)

    def _emit_exception(self, plan: Plan, name: str) -> Code:
        value = plan.value
        args, cause, context, *rest = plan.parts
        state = zip(plan.extra, rest[len(args) :], strict=True)
        cls = type(value)
        out = make.as_callable(make.load_const(cls.__new__)) + make.load_const(cls)
        out += self._values(args) + make.call(1 + len(args)) + make.store_fast(name)
        out += self.value(args) + make.load_fast(name) + make.store_attr("args")
        for attribute, part in (("__cause__", cause), ("__context__", context)):
            if part is not None:
                out += self.value(part) + make.load_fast(name) + make.store_attr(attribute)
        if value.__suppress_context__ and cause is None:
            out += make.load_const(True) + make.load_fast(name)
            out += make.store_attr("__suppress_context__")
        for attribute, part in state:
            out += self.value(part) + make.load_fast(name) + make.store_attr(attribute)
        if id(value) in self.session.raised:
            call = self._call(going_on.raised, make.load_fast(name), 1)
            out += make.located(call, self.session.raised[id(value)][1]) + make.pop_top()
        return out + make.load_fast(name)


def _fields(error: BaseException, kind: type) -> dict[str, Any]:
    """What an exception holds beside its `__dict__`: `__init__` of its class puts it there, which
    is not run again. Those of groups are set as they are made."""
    found = {}
    for base in kind.__mro__[: kind.__mro__.index(BaseException)]:
        if base is BaseExceptionGroup:
            continue
        for name, field in base.__dict__.items():
            if type(field) is types.MemberDescriptorType:
                try:
                    value = field.__get__(error)
                except AttributeError:
                    continue
                if value is not None:
                    found[name] = value
    return found


_BASES = (
    collections.OrderedDict, collections.defaultdict, dict, list, set, collections.deque,
    types.SimpleNamespace,
)  # fmt: skip


def _native_base(value: Any) -> Any:
    """The native class whose instances hold what this one holds."""
    return next((b for b in _BASES if issubclass(type(value), b)), object)


# ---- plans by type ----


def _plan_dict(r: Rebuild, value: Any) -> Plan:
    return Plan(value, "dict", [x for kv in value.items() for x in kv])


def _plan_pairs(r: Rebuild, value: Any) -> Plan:
    return Plan(value, "call", [list(value.items())], (type(value), ()))


def _plan_default(r: Rebuild, value: Any) -> Plan:
    return Plan(value, "call", [value.default_factory, dict(value)], (type(value), ()))


def _plan_deque(r: Rebuild, value: Any) -> Plan:
    return Plan(value, "call", [list(value), value.maxlen], (type(value), ()))


def _plan_partial(r: Rebuild, value: Any) -> Plan:
    if value.__dict__:
        raise Unsupported("A partial with attributes leaves the graph.")
    return Plan(value, "partial", [value.func, value.args, value.keywords])


def _plan_method(r: Rebuild, value: Any) -> Plan:
    if type(value.__self__) is Generator:
        raise Unsupported("A method of a generator leaves the graph.")
    if arrays.is_inside(value.__self__):  # outside it is NumPy's own
        return Plan(value, "call", [value.__self__, arrays.method_name(value)], (getattr, ()))
    return Plan(value, "call", [value.__func__, value.__self__], (types.MethodType, ()))


def _plan_bound(r: Rebuild, value: Any) -> Plan:
    self_ = value.__self__
    if self_ is None or isinstance(self_, (types.ModuleType, type)):
        return Plan(value, "const")
    for base in type(self_).__mro__:  # a method of a base may be hidden by one of Python
        found = base.__dict__.get(value.__name__)
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return Plan(value, "call", [self_], (found.__get__, ()))
    raise Unsupported(f"The native method {value.__name__} leaves the graph.")


def _plan_shim(r: Rebuild, value: Any) -> Plan:
    return Plan(value, "same", [value.fn])


def _plan_super(r: Rebuild, value: Any) -> Plan:
    return Plan(value, "call", [value.cls, value.self_], (super, ()))


def _plan_user_iterator(r: Rebuild, value: Any) -> Plan:
    return Plan(value, "same", [value.inside])


def _plan_sequence(r: Rebuild, value: Any) -> Plan:
    if value.at:
        raise Unsupported("An iterator that has begun leaves the graph.")
    return Plan(value, "call", [value.inside], (iter, ()))


def _plan_generator(r: Rebuild, value: Any) -> Plan:
    if value.done:
        return Plan(value, "call", [], (going_on.finished, ()))
    if value.running:
        raise Unsupported("A generator that is running leaves the graph.")
    if value.started or value.call is None:
        frame = value.frame
        code, values, cells = suspended.parts(frame, r.session.options.resumes)
        made = (code, frame.globals, frame.code.co_name, len(cells))
        return Plan(value, "suspended", [*cells, *values], made)
    fn, args, kwargs = value.call
    return Plan(value, "generator", [fn, args, kwargs])


def _plan_of_dict(value: Any, advance: Any) -> Plan:
    """An iterator over a dict: the dict itself, since changes of it must be noticed."""
    table = next((x for x in gc.get_referents(value) if isinstance(x, dict)), None)
    if table is None:
        return Plan(value, "call", [()], (iter, ()))
    left = value.__length_hint__()
    if not left and len(table):
        raise Unsupported("A dict was changed while it is iterated over.")
    return Plan(value, "call", [table, len(table) - left], (advance, ()))


_OF_DICTS: dict[type, Any] = {
    type(iter(dict[Any, Any]())): going_on.at_keys,
    type(iter(dict[Any, Any]().values())): going_on.at_values,
    type(iter(dict[Any, Any]().items())): going_on.at_items,
}


def _plan_getter(r: Rebuild, value: Any) -> Plan:
    made, parts = value.__reduce__()
    return Plan(
        value,
        "call",
        [made, *parts] if isinstance(made, functools.partial) else parts,
        (_call, ()) if isinstance(made, functools.partial) else (made, ()),
    )


def _call(fn: Callable[..., Any], *args: Any) -> Any:
    return fn(*args)


def _plan_pullback(r: Rebuild, value: Any) -> Plan:
    return Plan(value, "call", value.leaves(), (value.outside, ()))


def _plan_view(r: Rebuild, value: Any) -> Plan:
    raise Unsupported("A view of a dict leaves the graph.", "Make it a list.")


def _plan_hook(r: Rebuild, value: Any) -> Plan:
    if value.removed:
        return Plan(value, "call", [{}], (RemovableHandle, ()))
    if value.node is not None:
        raise TooLate("The handle of a hook leaves the graph.")
    return Plan(value, "hook", [value.tensor, value.hook], value.method)


_PLANS: dict[type, Callable[[Rebuild, Any], Plan]] = {
    list: lambda r, v: Plan(v, "list", v),
    tuple: lambda r, v: Plan(v, "tuple", v),
    set: lambda r, v: Plan(v, "set", v),
    frozenset: lambda r, v: Plan(v, "call", [list(v)], (frozenset, ())),
    Size: lambda r, v: Plan(v, "call", [tuple(v)], (Size, ())),
    slice: lambda r, v: Plan(v, "slice", (v.start, v.stop, v.step)),
    dict: _plan_dict,
    collections.OrderedDict: _plan_pairs,
    collections.defaultdict: _plan_default,
    collections.deque: _plan_deque,
    functools.partial: _plan_partial,
    types.MethodType: _plan_method,
    types.BuiltinFunctionType: _plan_bound,
    types.MethodWrapperType: _plan_bound,
    Shim: _plan_shim,
    Super: _plan_super,
    operator.itemgetter: _plan_getter,
    operator.attrgetter: _plan_getter,
    operator.methodcaller: _plan_getter,
    UserIterator: _plan_user_iterator,
    SequenceIterator: _plan_sequence,
    Generator: _plan_generator,
    Pullback: _plan_pullback,
    type({}.keys()): _plan_view,
    type({}.values()): _plan_view,
    type({}.items()): _plan_view,
}


_WARNS = sys.version_info >= (3, 12)  # of iterators of `itertools` that are given a state


def _restored(made: Any, *args: Any) -> Any:
    """An iterator with the state that comes last, of which the program is not to be warned."""
    *given, state = args
    found = made(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found.__setstate__(state)
    return found


# ---- code by kind ----


def _emit_many(build: Callable[[int], Code]) -> Callable[[Rebuild, Plan], Code]:
    def emit(r: Rebuild, plan: Plan) -> Code:
        return r._values(plan.parts) + build(len(plan.parts))

    return emit


def _emit_dict(r: Rebuild, plan: Plan) -> Code:
    return r._values(plan.parts) + make.build_map(len(plan.parts) // 2)


def _emit_call(r: Rebuild, plan: Plan) -> Code:
    fn, how = plan.extra
    if how != "state":
        code = [x for v in how for x in make.load_const(v)] + r._values(plan.parts)
        return r._call(fn, code, len(how) + len(plan.parts))
    *args, state = plan.parts
    out = r._call(fn, r._values(args), len(args))
    if state is not None:
        name = r.temporary()
        out += make.store_fast(name) + make.load_fast(name) + make.load_method("__setstate__")
        out += r.value(state) + make.call(1) + make.pop_top() + make.load_fast(name)
    return out


def _emit_partial(r: Rebuild, plan: Plan) -> Code:
    value = plan.value
    fn, args, keywords = plan.parts
    out = make.as_callable(make.load_const(functools.partial)) + r.value(fn)
    out += r._values(args) + r._values(keywords.values())
    return out + make.call(1 + len(args) + len(keywords), tuple(value.keywords))


def _emit_generator(r: Rebuild, plan: Plan) -> Code:
    fn, args, kwargs = plan.parts
    out = make.as_callable(r.value(fn)) + r._values(args) + r._values(kwargs.values())
    return out + make.call(len(args) + len(kwargs), tuple(kwargs))


def _emit_suspended(r: Rebuild, plan: Plan) -> Code:
    code, globals_, name, count = plan.extra
    args = [x for v in (code, globals_, name, None) for x in make.load_const(v)]
    args += r._values(plan.parts[:count]) + make.build_tuple(count)
    out = r._call(types.FunctionType, args, 5) + make.callable_on_top()
    out += r._values(plan.parts[count:]) + make.call(len(plan.parts) - count)
    made = make.load_fast(r.temporary())
    out += make.store_fast(made[0].argval)
    return out + r._call(next, made, 1) + make.pop_top() + make.load_fast(made[0].argval)


def _emit_function(r: Rebuild, plan: Plan) -> Code:
    fn = plan.value
    cells = fn.__closure__ or ()
    out: Code = []
    later = []  # cells may hold the function itself: they are filled when it is there
    for cell in cells:
        cell_plan = r.plans[id(cell)]
        if cell_plan.kind == "cell" and cell_plan.name is None:
            cell_plan.name = r.temporary()
            out += r._call(types.CellType, [], 0) + make.store_fast(cell_plan.name)
            later += [(cell_plan.name, part) for part in cell_plan.parts]
    args = make.load_const(fn.__code__) + make.load_const(fn.__globals__)
    args += make.load_const(fn.__name__) + r.value(fn.__defaults__)
    args += r._values(cells) + make.build_tuple(len(cells))
    name = r.temporary()
    plan.name = name
    out += r._call(types.FunctionType, args, 5) + make.store_fast(name)
    for cell_name, part in later:
        out += r.value(part) + make.load_fast(cell_name) + make.store_attr("cell_contents")
    for attribute, value in (
        ("__qualname__", fn.__qualname__),
        ("__module__", fn.__module__),
        ("__doc__", fn.__doc__),
    ):
        out += make.load_const(value) + make.load_fast(name) + make.store_attr(attribute)
    if fn.__kwdefaults__ is not None:
        out += r.value(fn.__kwdefaults__) + make.load_fast(name) + make.store_attr("__kwdefaults__")
    if fn.__annotations__:
        out += make.load_const(fn.__annotations__) + make.load_fast(name)
        out += make.store_attr("__annotations__")
    for attribute, value in fn.__dict__.items():
        out += r.value(value) + make.load_fast(name) + make.store_attr(attribute)
    return out + make.load_fast(name)


def _emit_hook(r: Rebuild, plan: Plan) -> Code:
    tensor, hook = plan.parts
    out = r.value(tensor) + make.load_method(plan.extra)
    return out + (make.call(0) if hook is None else r.value(hook) + make.call(1))


_EMIT: dict[str, Callable[[Rebuild, Plan], Code]] = {
    "hook": _emit_hook,
    "list": _emit_many(make.build_list),
    "tuple": _emit_many(make.build_tuple),
    "set": _emit_many(make.build_set),
    "slice": _emit_many(make.build_slice),
    "dict": _emit_dict,
    "call": _emit_call,
    "same": lambda r, plan: r.value(plan.parts[0]),
    "dict of": lambda r, plan: r.value(plan.parts[0]) + make.load_attr("__dict__"),
    "partial": _emit_partial,
    "generator": _emit_generator,
    "suspended": _emit_suspended,
    "function": _emit_function,
}
