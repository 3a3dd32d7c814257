"""Operators that users define: a declaration made while the program runs, filled rule by rule.

`define` enters the operator; `UserOp` holds what `torch.library` registers for it: kernels by
device type, the fake run, gradients, batching. The layers find these where they find those of the
library's own operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._src.core import state
from flambeau._src.core.tensor import Tensor
from flambeau._src.ops import call
from flambeau._src.ops.call import call_bits
from flambeau._src.ops.op import PACKETS, Declaration, Op, packet
from flambeau._src.ops.overload import forget, overload_of
from flambeau._src.ops.schema import parse

__all__ = ["UserOp", "define", "find", "remove"]

# Kernels that serve every device when there is none for it, the preferred first.
_EVERYWHERE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
IMPLICIT = "CompositeImplicitAutograd"
_BELOW_RECORD = state.RECORD - 1
_NO_FAKE = (
    "{0}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta "
    "kernel registered. You may have run into this message while using an operator with PT2 "
    "compilation APIs (torch.compile/torch.export); in order to use this operator with those APIs "
    "you'll need to add a fake impl with torch.library.register_fake."
)


class UserOp(Declaration):
    """Base of users' declarations; each has a class of its own."""

    kind = "opaque"
    public = ""
    repeatable = False  # users' bodies may do anything
    op: Op
    kernels: dict[str, Callable[..., Any]]
    fake: Callable[..., Any] | None = None
    custom: Any = None  # the torch.library.custom_op definition, if it came from one

    @classmethod
    def shown(cls, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Complete arguments as users' functions take them: keyword-only ones as keywords."""
        schema = cls.op.schema
        n = len(schema.positional)
        names = [a.name for a in schema.args[n:]]
        return args[:n], dict(zip(names, args[n:], strict=True))

    @classmethod
    def kernel_of(cls, args: tuple[Any, ...]) -> Callable[..., Any]:
        """The kernel for the devices of the arguments. NotImplementedError when there is none."""
        device = _device_type(args)
        key = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta"}.get(device, device.upper())
        for name in (key, *_EVERYWHERE, IMPLICIT):
            found = cls.kernels.get(name)
            if found is not None:
                return found
        if device == "meta":
            if cls.fake is not None:
                return cls.fake
            raise NotImplementedError(_NO_FAKE.format(f"{cls.op.namespace}::{cls.op.name}"))
        available = ", ".join([*cls.kernels, "Meta"] if cls.fake else cls.kernels)
        raise NotImplementedError(
            f"Could not run '{cls.op.namespace}::{cls.op.name}' with arguments from the '{key}' "
            "backend. This could be because the operator doesn't exist for this backend, or was "
            f"omitted during registration. '{cls.op.namespace}::{cls.op.name}' is only available "
            f"for these backends: [{available}]."
        )

    @classmethod
    def run(cls, *args: Any) -> Any:
        """The kernel on the arguments (all layers are suspended by the caller)."""
        positional, keywords = cls.shown(args)
        return _as_returned(cls.kernel_of(args)(*positional, **keywords))

    @classmethod
    def fake_run(cls, *args: Any) -> Any:
        """The results' geometry, from the rule that the user gave for it."""
        positional, keywords = cls.shown(args)
        rule = cls.fake or cls.kernels.get("Meta")
        if rule is None:
            rule = next((cls.kernels[k] for k in _EVERYWHERE if k in cls.kernels), None)
        if rule is None:
            if cls.custom is not None:
                raise RuntimeError(
                    f"There was no fake impl registered for {cls.custom}. This is necessary for "
                    "torch.compile/export/fx tracing to work. Please use "
                    f"`{cls.custom._init_fn.__name__}.register_fake` to add an fake impl."
                )
            raise NotImplementedError(_NO_FAKE.format(f"{cls.op.namespace}::{cls.op.name}"))
        return _as_returned(rule(*positional, **keywords))

    @classmethod
    def record(cls, op: Op, args: tuple[Any, ...]) -> Any:
        """What autograd does: the user's rule, or what the kernel itself records."""
        rule = cls.kernels.get("Autograd") or cls.kernels.get("AutogradCPU")
        if rule is not None:
            positional, keywords = cls.shown(args)
            return _as_returned(rule(*positional, **keywords))
        if call_bits(args, {}, 0) & _BELOW_RECORD:
            return call.below(state.RECORD, op, args)
        return cls.run(*args)


def _as_returned(out: Any) -> Any:
    return tuple(out) if isinstance(out, list) else out


def _device_type(args: Any) -> str:
    for v in args:
        if isinstance(v, Tensor):
            return str(v.device.type)
        if isinstance(v, (list, tuple)):
            for t in v:
                if isinstance(t, Tensor):
                    return str(t.device.type)
    return "cpu"


def define(text: str, tags: tuple[Any, ...] = ()) -> Op:
    """Enter an operator by its schema, namespace included. RuntimeError when it exists already."""
    schema = parse(text)
    existing = PACKETS.get((schema.namespace, schema.name))
    if existing is not None and existing.overload(schema.overload or "default") is not None:
        raise RuntimeError(
            f"Tried to register an operator ({text}) with the same name and overload name multiple "
            "times. Each overload's schema should only be registered with a single call to def()."
        )
    body = {
        "schema": text, "kernels": {}, "tags": tuple(tags), "__module__": __name__,
        "__doc__": f"The user's {schema.namespace}::{schema.name}.",
    }  # fmt: skip
    name = f"{schema.namespace}_{schema.name}_{schema.overload}".rstrip("_")
    cls: type[UserOp] = type(name, (UserOp,), body)
    return cls.op


def find(namespace: str, name: str, overload: str = "") -> Op | None:
    """A declared overload, the library's own included."""
    found = PACKETS.get((namespace, name))
    return None if found is None else found.overload(overload or "default")


def implement(op: Op, key: str, fn: Callable[..., Any] | None) -> None:
    """Register (or with None, take away) the kernel of a user's operator under a dispatch key."""
    decl = op.decl
    if fn is None:
        decl.kernels.pop(key, None)  # type: ignore[attr-defined]
    else:
        decl.kernels[key] = fn  # type: ignore[attr-defined]
    implicit = decl.kernels.get(IMPLICIT)  # type: ignore[attr-defined]
    decl.level = "composite" if implicit is not None else "primitive"
    op.bits = state.COMPOSITE if implicit is not None else 0
    decl.decompose = None if implicit is None else _decomposition(decl, implicit)


def _decomposition(decl: Any, fn: Callable[..., Any]) -> Any:
    def decompose(*args: Any) -> Any:
        positional, keywords = decl.shown(args)
        return _as_returned(fn(*positional, **keywords))

    return staticmethod(decompose)


def remove(op: Op) -> None:
    """Take an operator away again."""
    p = packet(op.name, op.namespace)
    p.remove(op)
    face = overload_of(op)
    face.overloadpacket.__dict__.pop(op.overload or "default", None)
    if not p.ops:
        PACKETS.pop((op.namespace, op.name), None)
        forget(op.namespace, op.name)
