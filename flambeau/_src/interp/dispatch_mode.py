"""`__torch_dispatch__`: modes on a stack, then subclasses, see every operator below autograd.

The stack holds users' modes above the library's own (`infra`) ones: fake tensors lowest, then
tracing. A mode is off while its handler runs; what is beneath it still sees the handler's calls.
Layers above this one (autograd, composites, transforms, autocast) are suspended in a handler, so
that a composite called there is seen whole, as in torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau._src.core import dtype as dt
from flambeau._src.core import layout as layouts
from flambeau._src.core import state
from flambeau._src.core.slots import fill
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops.call import LAYERS, below
from flambeau._src.ops.op import Op
from flambeau._src.ops.overload import OpOverload, overload_of
from flambeau._src.ops.schema import Schema

__all__ = [
    "FAKE_KEY",
    "FUNCTIONAL_KEY",
    "PROXY_KEY",
    "TorchDispatchMode",
    "bind_shown",
    "current_modes",
    "modes_suspended",
    "pop_mode",
    "push_mode",
    "shown_arguments",
]

# Places of the library's own modes, lowest first; a user's mode has none and stands above.
FAKE_KEY, PROXY_KEY, FUNCTIONAL_KEY = 0, 1, 2
# What a handler does not meet again: everything between the public call and this layer.
_ABOVE = state.AUTOCAST | state.FUNCTORCH | state.COMPOSITE | state.RECORD | state.FUNCTIONALIZE


class TorchDispatchMode:
    """A context in which operators are handed to `__torch_dispatch__(func, types, args, kwargs)`.

    `func` is an `OpOverload`; calling it goes on beneath this mode. Arguments that equal their
    defaults are left out.
    """

    __module__ = "flambeau.utils._python_dispatch"
    supports_higher_order_operators = False
    _mode_key: int | None = None

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._dispatch_key = _dispatch_key

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        push_mode(self)
        return self

    def __exit__(self, *error: object) -> None:
        pop_mode(self._mode_key)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """Deprecated: make one and enter it."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether this is one of the library's own modes."""
        return cls._mode_key is not None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether compilation may go on under this mode."""
        return False


def current_modes() -> list[Any]:
    """The modes that see operators now, the lowest first."""
    return list(state.thread.dispatch_modes)


def _set_stack(modes: list[Any]) -> None:
    state.thread.dispatch_modes = modes
    active = state.get_active()
    state.set_active(active | state.DISPATCH if modes else active & ~state.DISPATCH)


def _rank(mode: Any) -> int:
    key = getattr(mode, "_mode_key", None)
    return 99 if key is None else key


def push_mode(mode: Any) -> None:
    """Put a mode on the stack: a user's on top, the library's own at its place."""
    stack = list(state.thread.dispatch_modes)
    rank = _rank(mode)
    if rank < 99 and any(_rank(m) == rank for m in stack):
        raise AssertionError(f"a mode of the kind of {mode} is active already")
    i = len(stack)
    while i and _rank(stack[i - 1]) > rank:
        i -= 1
    stack.insert(i, mode)
    _set_stack(stack)


def pop_mode(key: int | None = None) -> Any:
    """Take the top mode from the stack (with `key`, the library's own of that kind)."""
    stack = list(state.thread.dispatch_modes)
    for i in range(len(stack) - 1, -1, -1):
        if key is None or _rank(stack[i]) == key:
            mode = stack.pop(i)
            _set_stack(stack)
            return mode
    raise AssertionError("the stack of dispatch modes is empty")


def users_modes() -> list[Any]:
    """The modes on the stack that are not the library's own."""
    return [m for m in state.thread.dispatch_modes if _rank(m) == 99]


def infra_mode(key: int) -> Any:
    """The library's own mode of that kind on the stack, or None."""
    for m in state.thread.dispatch_modes:
        if _rank(m) == key:
            return m
    return None


@contextmanager
def modes_suspended(keep: tuple[int, ...] = ()) -> Iterator[list[Any]]:
    """Without any mode on the stack (but for the library's own of the kinds in `keep`)."""
    before = state.thread.dispatch_modes
    _set_stack([m for m in before if _rank(m) in keep])
    try:
        yield list(before)
    finally:
        _set_stack(before)


@contextmanager
def infra_suspended(key: int) -> Iterator[Any]:
    """Without the library's own mode of one kind; yields it (or None)."""
    before = state.thread.dispatch_modes
    found = infra_mode(key)
    _set_stack([m for m in before if m is not found])
    try:
        yield found
    finally:
        _set_stack(before)


# ---- arguments as handlers are shown them ----


def _plan(schema: Schema) -> list[tuple[str, bool, bool, bool, Any]]:
    plan = []
    for a in schema.args:
        default = a.default if a.has_default else None
        if isinstance(default, str) and a.type in ("MemoryFormat", "Layout"):
            default = layouts.FORMATS[default]
        elif a.type == "ScalarType" and isinstance(default, str):
            default = dt.DTYPES.get(
                {"long": "int64", "float": "float32"}.get(default, default), default
            )
        plan.append(
            (
                a.name,
                a.kwarg_only,
                a.is_list,
                a.has_default or (a.optional and a.kwarg_only),
                default,
            )
        )
    return plan


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if isinstance(value, Tensor) or isinstance(default, Tensor) or value is None or default is None:
        return False
    if isinstance(value, (list, tuple)):
        return (
            isinstance(default, (list, tuple))
            and len(value) == len(default)
            and all(_same(v, d) for v, d in zip(value, default, strict=True))
        )
    if isinstance(value, bool) != isinstance(default, bool):
        return False
    return type(value) is type(default) and value == default


def shown_arguments(op: Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The complete arguments as `(args, kwargs)`: defaults at the end and
    among keywords left out."""
    plan = op.__dict__.get("shown_plan")
    if plan is None:
        plan = op.__dict__["shown_plan"] = _plan(op.schema)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    last = 0
    for (name, kwarg_only, is_list, has_default, default), v in zip(plan, args, strict=False):
        if is_list and type(v) is tuple:
            v = list(v)
        if kwarg_only:
            if not (has_default and _same(v, default)):
                keywords[name] = v
        else:
            positional.append(v)
            if not (has_default and _same(v, default)):
                last = len(positional)
    return tuple(positional[:last]), keywords


def bind_shown(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> tuple[Any, ...]:
    """The complete arguments again, from what a handler was shown."""
    return func._bound(tuple(args), kwargs or {})


# ---- the layer ----


def _tensors(args: tuple[Any, ...]) -> Iterator[Tensor]:
    for v in args:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _tensors(tuple(v))


def overloaded_types(tensors: Any) -> list[type]:
    """The classes that handle operators themselves, derived classes before their bases."""
    found: list[type] = []
    for t in tensors:
        cls = type(t)
        if cls is Tensor or cls in found or not t._bits & state.DISPATCH:
            continue
        i = next((k for k, c in enumerate(found) if issubclass(cls, c)), len(found))
        found.insert(i, cls)
    return found


def classes_among(args: tuple[Any, ...]) -> list[type]:
    """Users' classes that handle operators, of tensors that are made of others."""
    return overloaded_types(
        t for t in _tensors(args)
        if not t._bits & state.FUNCTIONALIZE and "_run_op" not in type(t).__dict__
    )  # fmt: skip


def by_classes(op: Op, args: tuple[Any, ...], types: list[type]) -> Any:
    """Hand the call to these classes above functionalisation: what they are made of is functional,
    and the operators that they run on it are composed and functional as any others."""
    before = state.get_suspended()
    state.set_suspended((before | _ABOVE) & ~(state.COMPOSITE | state.FUNCTIONALIZE))
    try:
        shown = shown_arguments(op, args)
        for cls in types:
            handle: Any = cls
            out = handle.__torch_dispatch__(overload_of(op), tuple(types), *shown)
            if out is not NotImplemented:
                return _finish(op, args, out)
    finally:
        state.set_suspended(before)
    raise TypeError(_refused(overload_of(op), [], types))


def dispatch_layer(op: Op, args: tuple[Any, ...]) -> Any:
    """Hand the call to the top mode, or else to the subclasses among its arguments."""
    before = state.get_suspended()
    state.set_suspended(before | _ABOVE)
    written = (
        [args[i] for i in op.schema.mutates if isinstance(args[i], Tensor)]
        if op.schema.mutates
        else []
    )
    versions = [t._current_version() for t in written]
    try:
        result = _handled(op, args)
    finally:
        state.set_suspended(before)
    for t, v in zip(written, versions, strict=True):
        if t._current_version() == v:
            t._bump_version()
    return _finish(op, args, result)


def _handled(op: Op, args: tuple[Any, ...]) -> Any:
    thread = state.thread
    modes = thread.dispatch_modes
    types: list[type] | None = None
    shown: Any = None
    if modes:
        mode = modes[-1]
        _set_stack(modes[:-1])
        try:
            direct = getattr(mode, "run_op", None)
            rule = _rule(op, type(mode))
            if rule is not None:
                types = overloaded_types(_tensors(args))
                shown = shown_arguments(op, args)
                result = rule(mode, overload_of(op), tuple(types), *shown)
            elif direct is not None:
                result = direct(op, args)
            else:
                types = overloaded_types(_tensors(args))
                shown = shown_arguments(op, args)
                result = mode.__torch_dispatch__(overload_of(op), tuple(types), *shown)
        finally:
            _set_stack(modes)
        if result is not NotImplemented:
            return result
    if types is None:
        types = overloaded_types(_tensors(args))
    if not types and not modes:
        return below(state.DISPATCH, op, args)
    cls: Any  # a subclass of Tensor
    for cls in types:
        direct = cls.__dict__.get("_run_op")
        rule = _rule(op, cls)
        if rule is not None:
            shown = shown_arguments(op, args) if shown is None else shown
            result = rule(cls, overload_of(op), tuple(types), *shown)
        elif direct is not None:
            result = direct(op, args)
        else:
            shown = shown_arguments(op, args) if shown is None else shown
            result = cls.__torch_dispatch__(overload_of(op), tuple(types), *shown)
        if result is not NotImplemented:
            return result
    raise TypeError(_refused(overload_of(op), modes, types))


def _rule(op: Op, cls: type) -> Any:
    """What `register_torch_dispatch` registered for a mode or a subclass, or None."""
    rules = op.__dict__.get("dispatch_rules")
    return None if rules is None else rules.get(cls)


def _refused(func: OpOverload, modes: list[Any], types: list[type]) -> str:
    lines = [f"  - mode object {modes[-1]!r}"] if modes else []
    lines += [f"  - tensor subclass {cls!r}" for cls in types]
    asked = "\n".join(lines)
    return (
        f"Multiple dispatch failed for 'torch._ops.{func.namespace}.{func.__name__}'; all "
        f"__torch_dispatch__ handlers returned NotImplemented:\n\n{asked}\n\n"
        "For more information, try re-running with TORCH_LOGS=not_implemented"
    )


def _finish(op: Op, args: tuple[Any, ...], result: Any) -> Any:
    """What the caller gets: the written arguments themselves, lists as
    tuples, views with a base."""
    if op.variant == "inplace":
        return args[0]
    if op.variant == "out":
        n = len(op.decl.out_args)
        return args[-1] if n == 1 else tuple(args[-n:])
    returns = op.schema.returns
    if len(returns) == 1 and not returns[0].is_list:
        r = returns[0]
        if r.type == "Tensor" and not isinstance(result, Tensor) and result is not None:
            raise RuntimeError(f"Unable to cast {result!r} to Tensor")
        if r.mutates and op.schema.mutates:
            return args[op.schema.mutates[0]]
        if r.alias and isinstance(result, Tensor) and op.decl.gives_base:
            _give_base(args[0], result)
        return result
    if returns and not isinstance(result, (list, tuple)):
        if len(returns) == 1:
            raise RuntimeError(
                f"Unable to cast Python instance of type {type(result)} to C++ type 'List[Tensor]'"
            )
        raise RuntimeError(
            f"Object of type '{type(result).__name__}' is not an instance of 'sequence'"
        )
    if len(returns) == 1 and returns[0].alias:
        for r in result:
            _give_base(args[0], r)
            r._multi_view = True
    return tuple(result) if isinstance(result, list) else result


def _give_base(source: Any, view: Tensor) -> None:
    """A view that a handler made of a wrapper is a view of the wrapper."""
    if (
        view is source
        or view._base is not None
        or not isinstance(source, Tensor)
        or view._inference
    ):
        return
    if source._bits & state.DISPATCH or view._bits & state.DISPATCH:
        view._base = source if source._base is None else source._base
        if not state.get_grad():
            view._nograd_view = True


LAYERS[state.DISPATCH] = dispatch_layer


# ---- for subclasses and higher-order operators ----


@contextmanager
def torch_dispatch_disabled() -> Iterator[None]:
    """Operators go on beneath modes and subclasses (torch's `_DisableTorchDispatch`)."""
    with state.Suspended(state.DISPATCH):
        yield


def disabled_torch_dispatch(
    func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """`Tensor.__torch_dispatch__`: the operator on the bytes themselves."""
    with state.Suspended(state.DISPATCH):
        return func(*args, **(kwargs or {}))


def call_higher_order(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hand a higher-order operator to the top mode when it takes such operators; else
    NotImplemented."""
    modes = state.thread.dispatch_modes
    if not modes or state.get_suspended() & state.DISPATCH:
        return NotImplemented
    mode = modes[-1]
    before = state.get_suspended()
    state.set_suspended(before | _ABOVE)
    _set_stack(modes[:-1])
    try:
        direct = getattr(mode, "run_higher_order", None)
        if direct is not None:
            return direct(op, args, kwargs)
        if not mode.supports_higher_order_operators:
            raise NotImplementedError(
                f"There was no rule registered for HigherOrderOperator {op.name()} and mode "
                f"{mode}. Hint: set supports_higher_order_operators to True on the mode's class to "
                "handle it in its __torch_dispatch__."
            )
        return mode.__torch_dispatch__(op, (), args, kwargs)
    finally:
        _set_stack(modes)
        state.set_suspended(before)


fill("users_modes", users_modes)
fill("dispatch_modes_active", lambda: bool(state.thread.dispatch_modes))
