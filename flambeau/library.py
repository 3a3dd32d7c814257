"""Users' operators: `custom_op`, and `Library` for schemas and kernels one by one."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau._library.custom_ops import CustomOpDef, custom_op, definition_of, split_name
from flambeau._library.infer_schema import infer_schema
from flambeau._library.opcheck import opcheck
from flambeau._src import _native
from flambeau._src.ops import user
from flambeau._src.ops.op import Op
from flambeau._src.ops.overload import OpOverload, overload_of

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "impl",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]

_RESERVED = ("prim",)
_DEFINING: set[str] = set()
_KEPT: list[Library] = []
_WAITING: dict[str, list[Any]] = {}  # kernels of operators that are not defined yet
_DEVICE_KEYS = {
    "cpu": "CPU",
    "cuda": "CUDA",
    "meta": "Meta",
    "default": "CompositeExplicitAutograd",
}


def fallthrough_kernel() -> None:
    """A kernel that stands for "go on with the next": it cannot be called.

    Raises NotImplementedError.
    """
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """Operators of a namespace: "DEF" owns it, "FRAGMENT" adds to it, "IMPL" only implements.

    What it registered is taken away again when nobody holds the library any more.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind in ("DEF", "FRAGMENT"):
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        if kind == "DEF":
            if ns in _DEFINING:
                raise RuntimeError(
                    f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; "
                    "please put all of your definitions in a single TORCH_LIBRARY block.  If you "
                    "were trying to specify implementations, consider using TORCH_LIBRARY_IMPL "
                    "(which can be duplicated).  If you really intended to define operators for a "
                    "single namespace in a distributed way, you can use TORCH_LIBRARY_FRAGMENT to "
                    "explicitly indicate this."
                )
            _DEFINING.add(ns)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._op_defs: set[str] = set()
        self._op_impls: set[str] = set()
        self._defined: list[Op] = []
        self._implemented: list[tuple[Op, str]] = []
        self._end = weakref.finalize(
            self, _take_down, self._defined, self._implemented, ns if kind == "DEF" else None
        )
        self._end.atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Enter an operator, "name(args) -> returns"; its name is returned.

        RuntimeError when it exists already or the text is no schema.
        """
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if self.kind == "IMPL":
            raise RuntimeError(
                "def(): Cannot define an operator inside of a TORCH_LIBRARY_IMPL block. All def()s "
                "should be placed in the (unique) TORCH_LIBRARY block for their namespace."
            )
        if "(" not in schema:
            raise RuntimeError(
                "Tried to parse a function schema but only the operator name was given"
            )
        tags = (tags,) if not isinstance(tags, (list, tuple)) else tuple(tags)
        op = user.define(f"{self.ns}::{schema.strip()}", tags)
        self._op_defs.add(f"{self.ns}::{op.name}")
        self._defined.append(op)
        for reference, fn, key, keyset in _WAITING.pop(f"{self.ns}::{op.key}", ()):
            lib = reference()
            if lib is not None:
                lib.impl(op.key, fn, key, with_keyset=keyset)
        return op.key

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Register a kernel of an operator of this namespace under a dispatch key.

        TypeError for what is no function. A second kernel under a key takes the first one's place.
        """
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        name = (
            op_name._op.key if isinstance(op_name, OpOverload) else str(op_name).rpartition("::")[2]
        )
        name, _, overload = name.partition(".")
        op = user.find(self.ns, name, overload)
        if op is None:  # the kernel comes before the schema
            full = f"{self.ns}::{name}" + (f".{overload}" if overload else "")
            _WAITING.setdefault(full, []).append((weakref.ref(self), fn, key, with_keyset))
            return
        if not issubclass(op.decl, user.UserOp):
            raise RuntimeError(
                f"impl({op_name!r}, …, {key!r}): flambeau's own operators take no further kernels; "
                "wrap the call in a TorchDispatchMode to change what they do"
            )
        if fn is fallthrough_kernel:
            return
        kernel = (lambda *a, **k: fn(None, *a, **k)) if with_keyset else fn
        user.implement(op, key, kernel)
        self._implemented.append((op, key))
        self._op_impls.add(f"{self.ns}/{name}/{key}")

    def _destroy(self) -> None:
        self._end()


def _take_down(defined: list[Op], implemented: list[tuple[Op, str]], owned: str | None) -> None:
    """Take away what a library registered; `owned` is the namespace of a "DEF"."""
    for op, key in implemented:
        user.implement(op, key, None)
    for op in defined:
        user.remove(op)
    if owned is not None:
        _DEFINING.discard(owned)


@contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A library that is taken down at the end of the context."""
    lib = Library(*args, **kwargs)
    try:
        yield lib
    finally:
        lib._destroy()


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Enter an operator 'ns::name' with a schema "(args) -> returns"."""
    if not isinstance(qualname, str):
        raise ValueError(
            "define(qualname, schema): expected qualname to be instance of str, got "
            f"{type(qualname)}"
        )
    namespace, name = split_name(qualname)
    if lib is None:
        lib = Library(namespace, "FRAGMENT")
        _KEPT.append(lib)
    lib.define(name + schema, alias_analysis="", tags=tags)


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """Register a kernel for device types ("cpu", "cuda", "default", or dispatch keys)."""
    if isinstance(types, str):
        types = (types,)
    keys = {_DEVICE_KEYS.get(t, t) for t in types}
    name = qualname._name if isinstance(qualname, OpOverload) else qualname

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        namespace, short = name.split("::")
        use = lib
        if use is None:
            use = Library(namespace, "FRAGMENT")
            _KEPT.append(use)
        for key in keys:
            use.impl(short, func, key)
        return func

    return register if func is None else register(func)


def _operator(op: Any, caller: str) -> Op:
    if not isinstance(op, (str, OpOverload, CustomOpDef)):
        raise ValueError(f"{caller}({op}): got unexpected type for op: {type(op)}")
    if isinstance(op, CustomOpDef):
        return op._op
    if isinstance(op, OpOverload):
        return op._op
    namespace, name = split_name(op)
    found = user.find(namespace, name)
    if found is None:
        raise RuntimeError(f"operator {op} does not exist")
    return found


def register_kernel(
    op: Any, device_types: Any, func: Any = None, /, *, lib: Library | None = None
) -> Any:
    """Register a kernel of an operator for device types (None: all)."""
    found = definition_of(op)
    if found is not None:
        return found.register_kernel(device_types, *(() if func is None else (func,)))
    return impl(
        overload_of(_operator(op, "register_kernel")),
        device_types or "CompositeExplicitAutograd",
        func,
        lib=lib,
    )


def register_fake(
    op: Any,
    func: Any = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = False,
) -> Any:
    """Register what an operator's results look like: `func` is called with fake tensors."""
    target = _operator(op, "register_fake")

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        target.decl.fake = staticmethod(func)  # type: ignore[attr-defined]
        return func

    return register if func is None else register(func)


impl_abstract = register_fake


def register_autograd(
    op: Any,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Any = None,
    lib: Library | None = None,
) -> None:
    """Register an operator's gradients: see `CustomOpDef.register_autograd`."""
    found = definition_of(op)
    if found is not None:
        found.register_autograd(backward, setup_context=setup_context)
        return
    from flambeau._library.autograd import Rules, make_autograd  # lazy: rare

    target = _operator(op, "register_autograd")
    rules = Rules()
    rules.backward, rules.setup_context = backward, setup_context
    target.decl.record = make_autograd(target, rules)  # type: ignore[attr-defined]


def register_vmap(op: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Register an operator's batching rule: ``func(info, in_dims, *args)``."""
    target = _operator(op, "register_vmap")

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        target.batch_rules["vmap"] = func
        return func

    return register if func is None else register(func)


def register_torch_dispatch(
    op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Library | None = None
) -> Any:
    """Register what a mode or a subclass does with an operator."""
    target = _operator(op, "register_torch_dispatch")

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        target.__dict__.setdefault("dispatch_rules", {})[torch_dispatch_class] = func
        return func

    return register if func is None else register(func)


def register_autocast(
    op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None
) -> Any:
    """Cast an operator's floating-point inputs where autocast is on for the device type."""
    target = _operator(op, "register_autocast")
    if _native.device(device_type).type not in ("cpu", "cuda"):
        raise ValueError(f"Unknown device type: {device_type}")
    target.__dict__.setdefault("autocast_to", {})[device_type] = cast_inputs


def get_ctx() -> Any:
    """In a fake rule: what makes unknown sizes.

    RuntimeError: flambeau has no symbolic sizes yet.
    """
    raise RuntimeError(
        "get_ctx() makes sizes that are only known when the operator runs, and flambeau has no "
        "symbolic sizes yet: the fake rule must give a definite shape"
    )


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """Refused: flambeau runs no Triton kernels of users yet. Raises RuntimeError."""
    raise RuntimeError(
        f"triton_op({name!r}): Triton kernels need a CUDA device, which flambeau does not drive yet"
    )


def wrap_triton(triton_kernel: Any, /) -> Any:
    """Refused like `triton_op`. Raises RuntimeError."""
    raise RuntimeError(
        "wrap_triton: Triton kernels need a CUDA device, which flambeau does not drive yet"
    )
