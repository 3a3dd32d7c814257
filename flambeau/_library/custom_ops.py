"""`custom_op`: a Python function as an operator that stays whole in every graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import flambeau as torch
from flambeau._library.autograd import Rules, make_autograd
from flambeau._library.infer_schema import infer_schema
from flambeau._src.ops import user
from flambeau._src.ops.overload import OpOverload, overload_of

__all__ = ["CustomOpDef", "custom_op", "definition_of", "split_name"]

_KEYS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta"}
_DEFINED: dict[str, CustomOpDef] = {}
_NO_ALIAS = (
    "{0}: The output of this custom operator (1) must not also be an input to this custom operator "
    "and (2) may not alias any inputs to this custom operator or other returns. The most common "
    "way to trigger this error is if we have y = custom_op(x) and y and x are the same Tensor. "
    "Please instead return a clone of the offending output tensor(s) (e.g. return x.clone()) or "
    "refactor the custom operator to not return y."
)


def split_name(qualname: str) -> tuple[str, str]:
    """'mylib::foo' → ('mylib', 'foo'). ValueError for another form."""
    parts = qualname.split("::")
    if len(parts) != 2:
        raise ValueError(
            f"Expected `qualname` to be of the form 'namespace::name', but got {qualname}. The "
            "qualname passed to the torch.library API must consist of a namespace and a name, e.g. "
            "aten::sin"
        )
    if "." in parts[1]:
        raise ValueError(
            f"The torch.library custom ops APIs do not handle overloads, i.e. operator names with "
            f"'.' in them. Please name your operator something like {qualname.replace('.', '_')}."
        )
    return parts[0], parts[1]


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: Any = None,
    schema: str | None = None,
    tags: Sequence[Any] | None = None,
) -> Any:
    """Wrap a function into an operator `name` ('mylib::foo').

    `mutates_args`: the names of the arguments that it writes. The schema is read from the type
    annotations unless it is given. `device_types`: what the function works on (default: all).
    """

    def wrap(fn: Callable[..., Any]) -> CustomOpDef:
        if schema is None:
            text = infer_schema(fn, mutates_args=mutates_args)
        else:
            text = schema
        namespace, opname = split_name(name)
        made = CustomOpDef(namespace, opname, text, fn, tags)
        if schema is not None:
            made._check_mutated(mutates_args)
        made.register_kernel(device_types)(fn)
        return made

    return wrap if fn is None else wrap(fn)


def definition_of(op: Any) -> CustomOpDef | None:
    """The definition behind a name, an overload or a definition itself."""
    if isinstance(op, CustomOpDef):
        return op
    if isinstance(op, OpOverload):
        op = op._name
    return _DEFINED.get(op)


class CustomOpDef:
    """A user's operator: calling it runs it; `register_…` tell how layers see it."""

    __module__ = "torch._library.custom_ops"

    def __init__(
        self, namespace: str, name: str, schema: str, fn: Callable[..., Any], tags: Any = None
    ) -> None:
        self._namespace, self._name, self._schema = namespace, name, schema
        self._init_fn = fn
        self._qualname = f"{namespace}::{name}"
        self._backend_fns: dict[Any, Callable[..., Any]] = {}
        self._disabled_kernel: set[str] = set()
        before = user.find(namespace, name)
        if before is not None and before.decl.__dict__.get("custom") is not None:
            user.remove(before)
        self._op = user.define(f"{self._qualname}{schema}", tuple(tags or ()))
        self._op.decl.custom = self  # type: ignore[attr-defined]
        self._rules = Rules()
        self._op.decl.record = make_autograd(self._op, self._rules)  # type: ignore[attr-defined]
        _DEFINED[self._qualname] = self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    @property
    def _opoverload(self) -> OpOverload:
        return overload_of(self._op)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def _check_mutated(self, mutates_args: Any) -> None:
        declared = {a.name for a in self._op.schema.args if a.mutates}
        if mutates_args != "unknown" and declared != set(mutates_args):
            raise ValueError(
                f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema="
                f"{self._schema}. The schema suggests that the op mutates {declared} which is "
                "different from what was provided to us in `mutates_args`. Please make these "
                "consistent."
            )

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Register an implementation for device types ("cpu", a list, or None for all)."""

        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            types = (
                [None]
                if device_types is None
                else [device_types]
                if isinstance(device_types, str)
                else list(device_types)
            )
            for device_type in types:
                self._backend_fns[device_type] = fn
                key = (
                    "CompositeExplicitAutograd"
                    if device_type is None
                    else _KEYS.get(device_type, device_type.upper())
                )
                if device_type is None:
                    key = "CPU"
                    self._op.decl.kernels.setdefault("CUDA", self._checked(fn, device_type))  # type: ignore[attr-defined]
                user.implement(self._op, key, self._checked(fn, device_type))
            return fn

        return register if fn is None else register(fn)

    def _checked(self, fn: Callable[..., Any], device_type: str | None) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            call = self._init_fn if device_type in self._disabled_kernel else fn
            result = call(*args, **kwargs)
            self._check_aliases(args, kwargs, result, fn)
            return result

        return kernel

    def _check_aliases(self, args: Any, kwargs: Any, result: Any, fn: Any) -> None:
        cells = {id(t.untyped_storage()) for t in _tensors([*args, *kwargs.values()])}
        for t in _tensors([result]):
            if id(t.untyped_storage()) in cells and t.numel():
                where = f"{self._name} (with implementation in {inspect.getmodule(fn)})"
                raise RuntimeError(_NO_ALIAS.format(where))
            cells.add(id(t.untyped_storage()))

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Register what the results look like: it is called with fake tensors."""
        self._op.decl.fake = staticmethod(fn)  # type: ignore[attr-defined]
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Register the gradients: ``backward(ctx, *grads)`` and what ``setup_context`` saves.

        RuntimeError for an operator that writes its arguments or returns views.
        """
        schema = self._op.schema
        if schema.is_mutable or schema.is_view:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self} with schema "
                f"{self._opoverload._schema}. Please create a functional operator and register an "
                "autograd formula for that."
            )
        self._rules.backward, self._rules.setup_context = backward, setup_context

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Register the batching rule: ``func(info, in_dims, *args) -> (results, out_dims)``."""

        def register(func: Callable[..., Any]) -> Callable[..., Any]:
            self._op.batch_rules["vmap"] = func
            return func

        return register if func is None else register(func)

    def register_torch_dispatch(
        self, torch_dispatch_class: Any, fn: Callable[..., Any] | None = None, /
    ) -> Any:
        """Register what a mode or a subclass does: ``fn(cls_or_mode, func,
        types, args, kwargs)``."""

        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            self._op.__dict__.setdefault("dispatch_rules", {})[torch_dispatch_class] = fn
            return fn

        return register if fn is None else register(fn)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> Callable[..., Any]:
        """Cast floating-point inputs to `cast_inputs` where autocast is on for the device type."""
        if device_type not in ("cpu", "cuda"):
            raise ValueError(f"device_type {device_type} does not support autocast")
        self._op.__dict__.setdefault("autocast_to", {})[device_type] = cast_inputs
        return self._init_fn

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Within the context, use the registered kernel of a device type, or the first function."""
        before = set(self._disabled_kernel)
        (self._disabled_kernel.discard if enabled else self._disabled_kernel.add)(device_type)
        try:
            yield
        finally:
            self._disabled_kernel = before


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _tensors(v)
